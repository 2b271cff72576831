//! Runs the binary.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::{Command, Output};

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
