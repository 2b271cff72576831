//! A process that is frozen at each of the server's stop points and killed there.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use assent_world::stop::{self, Stop};

use crate::house::{Rules, eventually, get, street_in};

const FOLDER: &str = "ASSENT_TEST_FOLDER";

/// The process that is killed: this very test, told where to work.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    stop::arm_from_environment().unwrap();
    let street = street_in(&PathBuf::from(folder), &Rules::default());
    street.committer().commit(b"key", b"value");
    // The answer is out before the last stop point is passed: whoever was to freeze may take a moment more.
    eventually("it is frozen and killed", || false);
}

/// Runs the child to its stop point and kills it there; on whose behalf it was frozen.
fn kill_at(stop: Stop, folder: &Path) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--nocapture"])
        .env(FOLDER, folder)
        .env("ASSENT_STOP", stop.name())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let prefix = format!("stopped {} ", stop.name());
    let line = lines.map(Result::unwrap).find(|line| line.starts_with(&prefix));
    child.kill().unwrap();
    child.wait().unwrap();
    line.unwrap_or_else(|| panic!("{} was not passed", stop.name())).replace(&prefix, "")
}

#[test]
fn killed_at_any_stop_point_both_stores_commit_or_neither_does() {
    use Stop as S;
    let table = [
        (S::StoreBeforePrepare, false),
        (S::StoreAfterPrepare, false),
        (S::CoordinatorBeforeDecision, false),
        (S::CoordinatorAfterDecision, true),
        (S::CoordinatorAfterAnswer, true),
        (S::StoreBeforeCommit, true),
        (S::StoreAfterCommit, true),
    ];
    for (stop, commits) in table {
        let folder = tempfile::tempdir().unwrap();
        let whose = kill_at(stop, folder.path());
        assert!(whose.contains('.'), "{} is passed on behalf of somebody: {whose:?}", stop.name());
        let street = street_in(folder.path(), &Rules { client_lost_ms: 50, ..Rules::default() });
        eventually("recovery finishes", || street.prepared() == 0);
        let expected = commits.then(|| b"value".to_vec());
        for house in [&street.a, &street.b] {
            assert_eq!(get(&house.store_link(), b"key"), expected, "killed at {}", stop.name());
        }
    }
}
