//! Slices of `make failover`: faults under clients with sessions, and what these were told is judged.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use serde_json::{Value, json};

use super::assent;

/// Plays, and gives what was found; every promise must have been kept.
fn play(arguments: &[&str]) -> Value {
    let output = assent::run(&[&["--json", "failover"][..], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let report = assent::json(&output);
    for play in report["plays"].as_array().unwrap() {
        assert_eq!(play["faults"], json!([]), "{play}");
        assert_eq!((&play["lost"], &play["doubled"]), (&json!(0), &json!(0)), "{play}");
        assert!(play["acknowledged"].as_u64().unwrap() > 0, "a play in which nothing was done: {play}");
    }
    assert_eq!(report["faults"], json!([]));
    assert!(report["compared"].as_u64().unwrap() > 0, "what members have on their disks was never looked at");
    report
}

fn sum(report: &Value, key: &str) -> u64 {
    report["plays"].as_array().unwrap().iter().map(|play| play[key].as_u64().unwrap()).sum()
}

#[test]
fn one_server_killed_frozen_cut_off_and_full_has_done_everything_once() {
    let report = play(&[
        "--solo",
        "--plays",
        "9",
        "--hold-ms",
        "100",
        "--ack",
        "written",
        "--clients",
        "8",
        "--disk-mib",
        "128",
    ]);
    assert!(sum(&report, "again") > 0, "no command was sent twice, so nothing was shown of sessions");
}

#[test]
fn a_pair_harmed_in_twenty_ways_has_done_everything_once_and_every_history_is_linearizable() {
    let report = play(&["--plays", "20", "--hold-ms", "200"]);
    assert_eq!(report["plays"].as_array().unwrap().len(), 20);
    assert!(sum(&report, "again") > 0, "no command was sent twice, so nothing was shown of sessions");
    assert!(sum(&report, "fail_overs") > 0, "nobody took over, so nothing was shown of a pair");
}

#[test]
fn with_every_core_at_work_nobody_takes_over() {
    let report = play(&["--plays", "0", "--calm", "10", "--disk-mib", "0"]);
    assert_eq!(sum(&report, "fail_overs"), 0);
}
