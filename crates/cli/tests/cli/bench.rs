//! The races that start servers, in small: what they print is what they did.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

use super::assent::{command, json, run, write};

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

/// Neither what is set for the service on this machine nor what stands in the folder that is measured.
#[test]
fn a_race_touches_nothing_of_the_services_own() {
    let (real, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("assent.toml");
    write(&file, "mine");
    let mut race = command(&["bench", "restart", "--finished", "10", "--in-doubt", "0", "--transactions", "0"]);
    let output = race.args(["--folder", folder.path().to_str().unwrap()]).env("ASSENT_DATA_DIR", real.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(real.path()).unwrap().count(), 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "its own folder is gone");
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

/// A quick run of the transactions' race, its report read back.
fn raced(arguments: &str) -> serde_json::Value {
    let words: Vec<&str> =
        ["bench", "tx", "--workload", "none", "--json"].into_iter().chain(arguments.split(' ')).collect();
    let output = run(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json(&output)
}

#[test]
fn several_servers_take_each_clients_transactions_in_turn_and_do_not_interfere() {
    let told = raced("-o -l 4 -C 25 --servers 2 --rpo 0/0,0/5 --engine table,journal");
    let cells = told["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4, "one of each RPO and engine");
    for cell in cells {
        assert!(cell["error"].is_null(), "{cell}");
        let figure = |name: &str| cell["figures"][name].as_f64().unwrap_or_else(|| panic!("{name} of {cell}"));
        assert_eq!((figure("transactions"), figure("decisions")), (100.0, 100.0));
        assert_eq!((figure("decisions_server_1"), figure("decisions_server_2")), (50.0, 50.0));
        assert_eq!(figure("round_trips_per_tx"), 1.0, "a decision each, and nothing else");
        assert!(figure("cpu_server_us_per_tx") > 0.0);
        assert!(figure("disk_syncs_per_s") > 0.0 || cell["labels"]["rpo"] == "0/5", "{cell}");
    }
    assert!(told["complete"].as_bool().unwrap() && !told["charts"].as_array().unwrap().is_empty());
    assert!(!told["floors"].as_array().unwrap().is_empty());
}

#[test]
fn a_network_in_between_costs_one_round_trip() {
    let told = raced("--batch -l 1 -C 10 --rtt-us 20000");
    let cell = &told["cells"][0];
    assert!(cell["error"].is_null(), "{cell}");
    let commit = cell["figures"]["commit_min_us"].as_f64().unwrap();
    assert!(commit >= 20_000.0, "{cell}");
    assert_eq!(cell["figures"]["round_trips_per_tx"].as_f64(), Some(1.0));
}

#[test]
fn a_run_of_which_nothing_came_fails_with_one_sentence_and_keeps_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("race.html");
    let words = ["bench", "tx", "--workload", "none", "-l", "1", "-C", "1", "--server", "127.0.0.1:1", "--report"];
    let output = command(&words).arg(&name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("no cell of 1 could be measured") && said.contains("127.0.0.1:1"), "{said}");
    let report = std::fs::read_to_string(folder.path().join("race.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["cells"][0]["error"].as_str().unwrap().contains("127.0.0.1:1"), "{report}");
    assert!(name.exists());
}

#[test]
fn whoever_interrupts_a_race_keeps_a_report_of_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("race");
    let mut race = command(&["bench", "tx", "--workload", "none", "-l", "1", "-C", "100000000"]);
    race.arg("--report").arg(&name).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut race = race.spawn().unwrap();
    let read = || {
        let text = std::fs::read_to_string(name.with_extension("json")).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default()
    };
    // Its first floors come before its first cell, which takes for ever.
    while read()["floors"].as_array().is_none_or(Vec::is_empty) {
        assert!(race.try_wait().unwrap().is_none(), "it has ended by itself");
        std::thread::yield_now();
    }
    let process = rustix::process::Pid::from_raw(race.id().cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert_eq!(race.wait().unwrap().code(), Some(130));
    let told = read();
    assert_eq!(told["complete"].as_bool(), Some(false), "{told}");
    assert!(name.with_extension("html").exists() && name.with_extension("csv").exists());
}

#[test]
fn one_transaction_is_traced_and_sends_one_message_that_is_waited_for() {
    let output = run(&["bench", "tx", "--once", "--workload", "none", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = json(&output);
    let steps: Vec<&str> = told[0][1].as_array().unwrap().iter().map(|step| step["what"].as_str().unwrap()).collect();
    assert!(steps.contains(&"bench-1 <- xa_prepare") && steps.contains(&"commit"), "{steps:?}");
    assert!(steps.last().unwrap().contains("1 round trips"), "{steps:?}");
}

#[test]
fn real_branches_are_cells_beside_their_two_floors() {
    let variable = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
    };
    let mut race = command(&["bench", "tx", "--branches", "real", "-l", "2", "--rounds", "1", "--json"]);
    race.env("ASSENT_BENCH_POSTGRES", variable("ASSENT_TEST_POSTGRES"));
    race.env("ASSENT_BENCH_MARIADB", variable("ASSENT_TEST_MARIADB"));
    let output = race.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = json(&output);
    let ways: Vec<&str> =
        told["cells"].as_array().unwrap().iter().map(|cell| cell["labels"]["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["two plain commits", "XA by hand", "served", "served, last resource"]);
    assert!(told["cells"][2]["figures"]["tps_ratio_to_by_hand"].as_f64().unwrap() > 0.0);
}

#[test]
fn assets_are_raced_alone_and_as_a_pair_and_the_report_holds_what_it_cost() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("race");
    let words = "bench assets --shapes 2x1,2x8 --ack received,written --spread zipf --subscribers 1 --rounds 2 --slice-ms 100 --json";
    let mut race = command(&words.split(' ').collect::<Vec<_>>());
    let output = race.arg("--report").arg(&name).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let told = json(&output);
    let cells = told["cells"].as_array().unwrap();
    let rows: Vec<String> =
        cells.iter().map(|cell| format!("{} {}", cell["labels"]["role"], cell["labels"]["ack"])).collect();
    let pair = ["\"pair\" \"floor\"", "\"pair\" \"received\"", "\"pair\" \"written\""];
    let solo = ["\"solo\" \"floor\"", "\"solo\" \"written\""];
    assert_eq!(rows, [&pair[..], &pair[..], &solo[..], &solo[..]].concat());
    for cell in cells {
        assert!(cell["error"].is_null(), "{cell}");
        let figure = |name: &str| cell["figures"][name].as_f64();
        assert!(figure("per_s").unwrap() > 0.0 && figure("command_p99_73_us").unwrap() > 0.0, "{cell}");
        let is_floor = cell["labels"]["ack"] == "floor";
        assert_eq!(figure("answered").is_none(), is_floor);
        if !is_floor {
            assert_eq!((figure("lost"), figure("doubled")), (Some(0.0), Some(0.0)));
            let told = figure("news").unwrap() + figure("news_missed").unwrap();
            assert_eq!(Some(told), figure("answered"), "a subscriber hears of each command");
            assert!(figure("ratio_to_floor").unwrap() > 0.0);
        }
        let processes: &[&str] = match (cell["labels"]["role"] == "pair", is_floor) {
            (true, true) => &["relay", "echo"],
            (true, false) => &["primary", "standby", "witness"],
            (false, true) => &["echo"],
            (false, false) => &["server"],
        };
        for process in processes.iter().chain(&["client"]) {
            assert!(figure(&format!("cpu_{process}_us")).is_some(), "{process} of {cell}");
        }
    }
    assert_eq!(told["floors"].as_array().unwrap().len(), 4);
    for ending in ["json", "csv", "html"] {
        assert!(name.with_extension(ending).exists(), "{ending}");
    }
}

#[test]
fn a_page_over_http_is_a_row_for_each_subject_and_no_commit_beside_readers_is_lost() {
    let small = "--objects 60 --clients 1,2 --readers 3 -t 1 --rounds 2 --warm-up 0.02 --revisions 2,4 --pace 300";
    let words: Vec<&str> =
        ["bench", "docs", "--json", "--scenario", "rest,mixed"].into_iter().chain(small.split(' ')).collect();
    let output = run(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = json(&output);
    let cells = told["cells"].as_array().unwrap();
    let figures = |row: &str, on: &str| {
        let is_it =
            |cell: &&serde_json::Value| (&cell["labels"]["row"], &cell["labels"]["on"]) == (&row.into(), &on.into());
        &cells.iter().find(is_it).unwrap_or_else(|| panic!("no row {row}, {on}"))["figures"]
    };
    let (read, known) = ("read", "read, a token checked in every request");
    for row in ["floor: a constant answer", read, known, "read, not changed by its tag"] {
        for on in ["1 client, 2 revisions", "2 clients, 2 revisions"] {
            let figures = figures(row, on);
            let all = ["per_s", "ratio_to_floor", "read_p50_us", "read_p99_us", "read_max_us", "client_cpu_us"];
            assert!(all.iter().all(|name| figures[*name].as_f64().unwrap() > 0.0), "{row}, {on}: {figures}");
        }
    }
    assert!(figures(known, "1 client, 2 revisions")["ratio_to_open"].as_f64().unwrap() > 0.0);
    assert!(figures(read, "16 clients, 4 revisions")["read_samples"].as_f64().unwrap() > 0.0);
    let page = figures(read, "1 client, 2 revisions")["bytes_each"].as_f64().unwrap();
    assert!((15_000.0..20_000.0).contains(&page), "fifty records with what is known of their nodes: {page}");
    for on in ["3 readers beside a writer", "3 readers beside a writer of 300/s"] {
        let both = figures("read and commit", on);
        for name in ["per_s", "ratio_to_alone", "commits_per_s", "commit_p99_us", "read_p99_us"] {
            assert!(both[name].as_f64().unwrap() > 0.0, "{on}, {name}: {both}");
        }
    }
}
