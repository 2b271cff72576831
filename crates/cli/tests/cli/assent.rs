//! Runs the binary.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The binary with these arguments, and none of the caller's own settings.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assent"));
    command
        .args(arguments)
        .env_remove("ASSENT_STOP")
        .env_remove("ASSENT_SERVER")
        .env_remove("ASSENT_CONFIG")
        .env_remove("ASSENT_DOCS");
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Its exit code where the reader of stdout, and of stderr, has gone before the first word, and what the one that stayed was told.
pub(crate) fn unheard(arguments: &[&str], is_stderr_heard: bool) -> (Option<i32>, String) {
    let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    if !is_stderr_heard {
        drop(child.stderr.take());
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The same where stdout has no room.
pub(crate) fn unsaid(arguments: &[&str]) -> (Option<i32>, String) {
    #[allow(clippy::disallowed_methods, reason = "a device, and no file of the server's")]
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(arguments).stdout(full).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What it must end with, and say on stderr in one line.
pub(crate) fn fails(arguments: &[&str], code: i32, said: &str) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(stderr.contains(said), "{arguments:?} should say {said:?}: {stderr}");
}

pub(crate) fn write(path: &Path, text: &str) {
    #[allow(clippy::disallowed_methods, reason = "a test writes its own files")]
    std::fs::write(path, text).unwrap();
}

pub(crate) fn json(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 1, "one object on stdout: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
