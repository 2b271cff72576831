//! A slice of the kill matrix: every stop point, every victim and every mode at least once, over databases of its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::assent::json;

/// `make matrix` for so many cells; what it found.
fn play(cells: &str, restarts: &str, folder: &Path) -> serde_json::Value {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/matrix");
    let output = Command::new(script)
        .args(["35", "--cells", cells, "--restarts", restarts, "--json"])
        .env("ASSENT_BINARY", env!("CARGO_BIN_EXE_assent"))
        .env("TMPDIR", folder)
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
    // Not /tmp itself: the servers' accounts must be able to enter, so no private folder of this test's.
    let report = play("16", "6", &std::env::temp_dir());
    let plays = report["plays"].as_array().unwrap();
    assert!(plays.len() >= 8, "too few cells for a slice: {}", plays.len());
    let sum = |key: &str| plays.iter().map(|play| play[key].as_u64().unwrap()).sum::<u64>();
    assert!(sum("committed") > 50, "the matrix did too little: {} committed", sum("committed"));
    for play in plays {
        assert_eq!(play["faults"], serde_json::json!([]), "{play}");
        // The aim is 2 s on a quiet machine, which the table shows; tests run beside others.
        let resolved = play["resolved_ms"].as_u64();
        assert!(resolved.is_some_and(|ms| ms < 8_000), "in doubt for too long: {play}");
    }
}
