//! The races that start servers, in small: what they print is what they did.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

use super::assent::{command, json, run};

#[test]
fn a_server_over_a_log_of_finished_and_doubtful_transactions_takes_the_first_commit() {
    let output = run(&["bench", "restart", "--finished", "500", "--in-doubt", "7", "--transactions", "0", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = json(&output);
    assert_eq!((told["finished"].as_u64(), told["in_doubt"].as_u64()), (Some(500), Some(7)));
    let (ready, first) = (told["ready_ms"].as_f64().unwrap(), told["first_commit_ms"].as_f64().unwrap());
    assert!(0.0 < ready && ready <= first, "{told}");
    assert!(told["journal_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn branches_in_doubt_in_both_databases_are_finished_by_a_fresh_server_and_so_are_a_killed_clients() {
    let variable = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
    };
    let mut recover = command(&["bench", "recover", "--branches", "20", "--kills", "1", "--limit-s", "60", "--json"]);
    recover.env("ASSENT_BENCH_POSTGRES", variable("ASSENT_TEST_POSTGRES"));
    recover.env("ASSENT_BENCH_MARIADB", variable("ASSENT_TEST_MARIADB"));
    let output = recover.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = json(&output);
    assert_eq!(told["branches"].as_u64(), Some(20), "all of them were in doubt when the server started");
    let stops: Vec<_> = told["killed"].as_array().unwrap().iter().map(|it| it["stop"].as_str().unwrap()).collect();
    let all = ["client-between-prepares", "client-before-decision", "client-after-decision", "client-between-commits"];
    assert_eq!(stops, all);
}

#[test]
fn more_branches_than_postgres_has_slots_for_are_refused_before_the_first() {
    let variable = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
    };
    let mut recover = command(&["bench", "recover", "--branches", "1000000"]);
    recover.env("ASSENT_BENCH_POSTGRES", variable("ASSENT_TEST_POSTGRES"));
    recover.env("ASSENT_BENCH_MARIADB", variable("ASSENT_TEST_MARIADB"));
    let output = recover.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("max_prepared_transactions") && said.contains("500000"), "{said}");
}
