//! Slices of the kill matrix over databases of their own: every stop point, every victim and every mode at least once; and MariaDB with its
//! binlog.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::PathBuf;
use std::process::Command;

use super::assent::json;

/// `make matrix` for so long; what it found.
fn play(seconds: &str, more: &[&str], mariadb: &str) -> serde_json::Value {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/matrix");
    let output = Command::new(script)
        .args([seconds, "--json"])
        .args(more)
        .env("ASSENT_BINARY", env!("CARGO_BIN_EXE_assent"))
        // Not a private folder of this test's: the servers' accounts must be able to enter.
        .env("TMPDIR", std::env::temp_dir())
        .env("ASSENT_SERVERS_MARIADB_OPTIONS", mariadb)
        .env_remove("ASSENT_STOP")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    json(&output)
}

#[test]
fn whoever_dies_at_any_stop_point_everything_or_nothing_is_there_and_nothing_stays_prepared() {
    let report = play("35", &["--cells", "16", "--restarts", "6"], "");
    judge(&report, 8, 50);
}

/// As MariaDB mostly runs: what it has prepared stands in two logs, which must agree after a kill.
#[test]
fn the_same_over_a_mariadb_with_its_binlog() {
    let only = ["--only", "mariadb", "--cells", "6", "--restarts", "0"];
    let report = play("15", &only, "--log-bin --sync-binlog=1 --server-id=7");
    judge(&report, 3, 10);
}

fn judge(report: &serde_json::Value, plays_min: usize, committed_min: u64) {
    let plays = report["plays"].as_array().unwrap();
    assert!(plays.len() >= plays_min, "too few cells for a slice: {}", plays.len());
    let sum = |key: &str| plays.iter().map(|play| play[key].as_u64().unwrap()).sum::<u64>();
    assert!(sum("committed") > committed_min, "the matrix did too little: {} committed", sum("committed"));
    for play in plays {
        assert_eq!(play["faults"], serde_json::json!([]), "{play}");
        // The aim is 2 s on a quiet machine, which the table shows; tests run beside others.
        let resolved = play["resolved_ms"].as_u64();
        assert!(resolved.is_some_and(|ms| ms < 8_000), "in doubt for too long: {play}");
    }
}
