//! The race of stores through the binary: a process for each cell, reports that are compared, and who stops it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use assent_bench::report::Report;
use assent_world::{Clock as _, RealClock};
use rustix::process::Signal;

use super::assent::{command, fails, json, run};

/// Few operations over few small values, without a limit of memory, which not everybody may set.
const SMALL: [&str; 12] =
    ["bench", "kv", "-l", "2", "--keys", "60", "--value-bytes", "200", "--segment", "1", "--memory", "0"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn every_cell_is_a_process_and_brings_its_samples_home() {
    let output = run(&small(&["--scenario", "kv-sync,kv-compact", "--operations", "20", "--rounds", "2", "--json"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = json(&output);
    let cells = told["cells"].as_array().unwrap();
    assert_eq!((cells.len(), told["complete"].as_bool()), (4, Some(true)));
    for cell in cells {
        let figure = |name: &str| cell["figures"][name].as_f64().unwrap_or_else(|| panic!("{name} of {cell}"));
        if cell["labels"]["scenario"] == "kv-compact" && cell["labels"]["store"] == "floor" {
            assert!(cell["error"].as_str().unwrap().contains("not built"), "{cell}");
            continue;
        }
        assert!(cell["error"].is_null(), "{cell}");
        assert_eq!((figure("operations"), figure("get_samples"), figure("audited_keys")), (40.0, 80.0, 60.0));
    }
    let notes = told["notes"].to_string();
    assert!(
        notes.contains("No memory limit: none was asked for") && notes.contains("medians over the rounds"),
        "{notes}"
    );
}

#[test]
fn two_reports_are_compared_and_a_page_is_laid() {
    let folder = tempfile::tempdir().unwrap();
    let name = |which: &str| folder.path().join(which).to_str().unwrap().to_owned();
    for which in ["a", "b"] {
        let ran = run(&small(&["--scenario", "memory-put", "--operations", "50", "--report", &name(which)]));
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    let output = run(&["bench", "compare", &name("a.json"), &name("b.json"), "--json"]);
    let found = json(&output);
    assert!(found["rows"].as_array().unwrap().iter().any(|row| row["figure"] == "ops_per_s"), "{found}");
    assert_eq!(found["only_in_a"].as_array().unwrap().len(), 0);
    assert!(std::fs::read_to_string(name("a.html")).unwrap().contains("Operations per second: memory-put"));
}

#[test]
fn a_report_that_cannot_be_gone_on_with_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("race").to_str().unwrap().to_owned();
    let words = |operations: &'static str, rounds: &'static str| {
        let more = ["--store", "floor", "--scenario", "memory-put", "--operations", operations, "--rounds", rounds];
        small(&more)
            .into_iter()
            .map(str::to_owned)
            .chain(["--go-on", "--report", &name].map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let raced = |words: &[String]| run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let files = || ["json", "csv", "html"].map(|ending| std::fs::read_to_string(format!("{name}.{ending}")).unwrap());
    assert!(raced(&words("20", "1")).status.success());
    let before = files();
    let others = words("21", "2");
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    fails(&others, 2, "race.json: the report cannot be gone on with");
    fails(&others, 2, "lasts is 20 a client and 21 a client");
    assert!(files() == before, "also its notes and its charts, and it is complete");
    assert!(raced(&words("20", "3")).status.success());
    let report = Report::read(&folder.path().join("race.json")).unwrap();
    assert_eq!((report.complete, report.cells[0].rounds.len()), (true, 3));
    // A number would be wrong once more are added.
    assert!(!report.notes.iter().any(|note| note.contains("3 times")), "{:?}", report.notes);
}

#[test]
fn who_stops_the_race_ends_the_cell_and_keeps_those_before() {
    let folder = tempfile::tempdir().unwrap();
    let (name, cells) = (folder.path().join("race"), folder.path().join("cells"));
    // Stores in turn: a cell that is done at once, and one that would run for an hour.
    let words = small(&["--store", "floor", "--scenario", "kv-compact,kv-nosync", "-t", "3600", "--report"]);
    let mut race = command(&words);
    let mut race =
        race.arg(&name).arg("--folder").arg(&cells).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let file = folder.path().join("race.json");
    let began = || cells.join("assent-bench-cell").join("store-0").is_dir();
    for _ in 0..6_000 {
        if began() {
            break;
        }
        RealClock.sleep(Duration::from_millis(10));
    }
    assert!(began(), "the second workload runs");
    let process = rustix::process::Pid::from_raw(i32::try_from(race.id()).unwrap()).unwrap();
    rustix::process::kill_process(process, Signal::INT).unwrap();
    assert_eq!(race.wait().unwrap().code(), Some(130));
    let report = Report::read(&file).unwrap();
    assert!(!report.complete && report.cells.len() == 1, "{report:?}");
    assert!(report.cells.iter().all(|cell| cell.labels["scenario"] == "kv-compact"));
    assert!(Path::new(&name).with_extension("html").exists());
    assert_eq!(std::fs::read_dir(&cells).unwrap().count(), 0, "the space is given back");
}

#[test]
fn what_cannot_be_run_is_said_in_one_sentence() {
    fails(&["bench", "kv", "--store", "leveldb"], 2, "known are assent, floor; more come with --program");
    fails(&["bench", "kv", "--program", "/bin/false"], 8, "asking false for its members");
    fails(&["bench", "kv", "--program", "/nowhere/kv"], 8, "asking kv for its members");
    fails(&["bench", "kv", "--scenario", "kv-fast"], 2, "known are kv-sync");
    fails(
        &small(&["--store", "floor", "--scenario", "kv-compact", "--operations", "1"]),
        8,
        "no cell of 1 could be measured",
    );
}
