//! Every stop point: the process that stands there is killed, everything comes back, money is conserved and nothing is
//! left prepared.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use super::assent::{json, run};
use super::town::{alone, variable};

/// A short demo with these kills; its promises are checked from its JSON, not only from its exit code.
fn survives(kills: &[&str], more: &[&str]) {
    let mut arguments = vec!["--json", "demo", "--transfers", "240", "--accounts", "50", "--clients", "3"];
    kills.iter().for_each(|kill| arguments.extend(["--kill", kill]));
    arguments.extend(more);
    let output = run(&arguments);
    assert!(
        output.status.success(),
        "{kills:?}: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let report = json(&output);
    assert_eq!(report["conserved"], true, "{kills:?}");
    assert_eq!(report["left_prepared"], 0, "{kills:?}");
    assert_eq!(report["kills"].as_array().unwrap().len(), kills.len(), "{kills:?}: {report}");
    assert!(report["committed"].as_u64().unwrap() > 0, "{kills:?}: {report}");
    assert!(report["settled_ms"].as_u64().unwrap() < 5_000, "{kills:?}: in doubt for too long: {report}");
    let kill = &report["kills"][0];
    assert_ne!(kill["fate"], "", "{kills:?}: {report}");
}

#[test]
fn a_client_killed_at_every_stop_point() {
    for stop in [
        "client-before-prepare:20",
        "client-between-prepares:20",
        "client-before-decision:20",
        "client-after-decision:20",
        "client-between-commits:20",
        "client-before-finished:20",
    ] {
        survives(&[stop], &[]);
    }
}

#[test]
fn a_coordinator_killed_at_every_stop_point() {
    for stop in ["coordinator-before-decision:40", "coordinator-after-decision:40", "coordinator-after-answer:40"] {
        survives(&[stop], &[]);
    }
}

#[test]
fn a_coordinator_over_a_state_table_killed_at_every_stop_point_of_a_decision() {
    for stop in [
        "coordinator-before-decision:40",
        "coordinator-after-decision:40",
        "coordinator-after-answer:40",
        "client-before-decision:20=coordinator",
        "client-between-commits:20=coordinator",
    ] {
        survives(&[stop], &["--engine", "table"]);
    }
}

#[test]
fn a_store_killed_at_every_stop_point() {
    for stop in ["store-before-prepare:40", "store-after-prepare:40", "store-before-commit:40", "store-after-commit:40"]
    {
        survives(&[stop], &[]);
    }
}

#[test]
fn a_coordinator_killed_while_a_client_stands_between_prepare_and_decision() {
    survives(&["client-before-decision:20=coordinator"], &[]);
    survives(&["client-between-commits:20=bank-a"], &[]);
}

#[test]
fn postgres_and_mariadb_killed_while_a_client_stands_in_a_commit() {
    let _alone = alone();
    let (postgres, mariadb) = (variable("ASSENT_TEST_POSTGRES"), variable("ASSENT_TEST_MARIADB"));
    let (hook, folder) = (variable("ASSENT_TEST_SERVERS"), variable("ASSENT_TEST_SERVERS_DIR"));
    let more = ["--postgres", &postgres, "--mariadb", &mariadb, "--kill-hook", &hook, "--kill-dir", &folder];
    for kill in [
        "client-before-decision:15=postgres",
        "client-before-decision:15=mariadb",
        "client-between-commits:15=postgres",
        "client-between-commits:15=mariadb",
    ] {
        survives(&[kill], &more);
    }
}
