//! Slices of the kill matrix over databases of their own: every stop point, every victim and every mode at least once; and MariaDB with its
//! binlog.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::assent::json;

/// `make matrix` for so long; what it found.
fn play(seconds: &str, more: &[&str], mariadb: &str) -> serde_json::Value {
    let output = script(env!("CARGO_BIN_EXE_assent"), seconds, more, mariadb);
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    json(&output)
}

fn script(binary: &str, seconds: &str, more: &[&str], mariadb: &str) -> Output {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/matrix");
    Command::new(script)
        .args([seconds, "--json"])
        .args(more)
        .env("ASSENT_BINARY", binary)
        // Not a private folder of this test's: the servers' accounts must be able to enter.
        .env("TMPDIR", std::env::temp_dir())
        .env("ASSENT_SERVERS_MARIADB_OPTIONS", mariadb)
        .env_remove("ASSENT_STOP")
        .output()
        .unwrap()
}

/// What was found stood in servers whose data was gone by the time that anybody could look.
#[test]
fn whoever_looks_for_a_fault_is_told_where_and_finds_it() {
    let mut binary = tempfile::NamedTempFile::new().unwrap();
    // A play that ends early, and a fault.
    write!(binary, "#!/bin/sh\n'{}' \"$@\"\nexit 9\n", env!("CARGO_BIN_EXE_assent")).unwrap();
    let binary = binary.into_temp_path();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = script(binary.to_str().unwrap(), "1", &["--only", "no such cell"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(9), "{said}");
    let behind = |words: &str| said.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in: {said}")).1;
    assert!(behind("seed 1, table assent_matrix_").contains("; journals"), "{said}");
    let folder = |words: &str| PathBuf::from(behind(words).split(['\n', ';']).next().unwrap());
    let (journals, servers) = (folder("configurations are in "), folder("scripts/servers start "));
    let kept = ["mariadb/data/ibdata1", "postgres/data/PG_VERSION"].map(|file| servers.join(file).exists());
    let written = journals.read_dir().unwrap().next().is_some();
    for folder in [&journals, &servers] {
        std::fs::remove_dir_all(folder).unwrap();
    }
    assert_eq!((kept, written), ([true; 2], true), "{said}");
}

#[test]
fn whoever_dies_at_any_stop_point_everything_or_nothing_is_there_and_nothing_stays_prepared() {
    let report = play("70", &["--cells", "16", "--restarts", "6"], "");
    judge(&report, 8, 51);
}

/// As MariaDB mostly runs: what it has prepared stands in two logs, which must agree after a kill.
#[test]
fn the_same_over_a_mariadb_with_its_binlog() {
    let only = ["--only", "mariadb", "--cells", "6", "--restarts", "0"];
    let report = play("30", &only, "--log-bin --sync-binlog=1 --server-id=7");
    judge(&report, 3, 11);
}

/// The decision is a row of the PostgreSQL: who dies before it is written, behind it, or in between, everybody follows it.
#[test]
fn the_same_by_a_last_resource() {
    let report = play("60", &["--last-resource", "--cells", "16", "--restarts", "6"], "");
    judge(&report, 8, 51);
    // It sleeps before anybody has prepared, and wakes when it is fenced: no row of recovery's keeps it out.
    let report = play("6", &["--last-resource", "--only", "client-before-prepare/asleep", "--restarts", "0"], "");
    judge(&report, 1, 0);
}

fn judge(report: &serde_json::Value, plays_min: usize, committed_min: u64) {
    let plays = report["plays"].as_array().unwrap();
    assert!(plays.len() >= plays_min, "too few cells for a slice: {}", plays.len());
    let sum = |key: &str| plays.iter().map(|play| play[key].as_u64().unwrap()).sum::<u64>();
    assert!(sum("committed") >= committed_min, "the matrix did too little: {} committed", sum("committed"));
    for play in plays {
        assert_eq!(play["faults"], serde_json::json!([]), "{play}");
        // The aim is 2 s on a quiet machine, which the table shows; tests run beside others.
        let resolved = play["resolved_ms"].as_u64();
        assert!(resolved.is_some_and(|ms| ms < 8_000), "in doubt for too long: {play}");
    }
}
