//! `assent doctor` as an operator and a script meet it: the table, the object, the exit code, no password.
//! What is asked of databases is tested with their adapters.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json as object};

use super::assent::{fails, json, run, write};
use super::served::serve;

/// The doctor's word on these resources.
fn doctor(folder: &Path, resources: &[(&str, &str, &str)]) -> (Output, Output) {
    let mut text = "data_dir = \"data\"\n[coordinator]\n".to_owned();
    for (name, kind, url) in resources {
        let key = if url.starts_with("file:") { "url_file" } else { "url" };
        let url = url.trim_start_matches("file:");
        text.push_str(&format!("[[resource]]\nname = {name:?}\nkind = {kind:?}\n{key} = {url:?}\n"));
    }
    let file = folder.join("doctor.toml");
    write(&file, &text);
    let config = ["doctor", "--config", file.to_str().unwrap()];
    (run(&config), run(&["--json", "doctor", "--config", file.to_str().unwrap()]))
}

fn rows(report: &Value) -> Vec<(&str, &str)> {
    let rows = report["findings"].as_array().unwrap();
    rows.iter().map(|row| (row["resource"].as_str().unwrap(), row["severity"].as_str().unwrap())).collect()
}

#[test]
fn a_store_that_runs_is_well_and_the_same_under_two_names_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let text = "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[kv]\n";
    write(&folder.path().join("assent.toml"), text);
    let served = serve(folder.path());
    let (table, report) = doctor(folder.path(), &[("kv", "assent", &served.protocol)]);
    assert_eq!((table.status.code(), report.status.code()), (Some(0), Some(0)), "{table:?}");
    let printed = String::from_utf8_lossy(&table.stdout);
    assert!(printed.contains("Assent store at") && printed.contains("epoch 1"), "{printed}");
    let report = json(&report);
    assert_eq!((rows(&report), &report["worst"]), (vec![("kv", "ok")], &object!("ok")));
    assert_eq!(report["findings"][0]["advice"], Value::Null);

    let twice = [("kv", "assent", served.protocol.as_str()), ("again", "assent", &served.protocol)];
    let (table, report) = doctor(folder.path(), &twice);
    assert_eq!(table.status.code(), Some(0), "a warning is no failure: {table:?}");
    let report = json(&report);
    assert_eq!(rows(&report), [("kv", "ok"), ("again", "ok"), ("again", "warning")]);
    assert_eq!(report["worst"], "warning");
    let file = folder.path().join("doctor.toml");
    let strict = run(&["doctor", "--strict", "--config", file.to_str().unwrap()]);
    assert_eq!(strict.status.code(), Some(2), "but to who asks strictly: {strict:?}");
    assert!(report["findings"][2]["what"].as_str().unwrap().contains("\"kv\""));
    served.stop();
}

#[test]
fn what_cannot_be_asked_is_exit_8_and_what_is_wrong_is_exit_2_and_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens on port 1 of loopback.
    let dead = [
        ("bank", "postgres", "postgresql://u:secret@127.0.0.1:1/db"),
        ("shop", "mariadb", "mysql://u:secret@127.0.0.1:1/db"),
        ("kv", "assent", "127.0.0.1:1"),
    ];
    let (table, report) = doctor(folder.path(), &dead);
    assert_eq!((table.status.code(), report.status.code()), (Some(8), Some(8)));
    let report = json(&report);
    assert_eq!(rows(&report), dead.map(|(name, ..)| (name, "unreachable")));
    assert_eq!(report["worst"], "unreachable");

    let wrong = [dead[0], ("shop", "mariadb", "mysql://u:secret@h:port/db"), ("kv", "assent", "file:gone.url")];
    let (table, report) = doctor(folder.path(), &wrong);
    assert_eq!((table.status.code(), report.status.code()), (Some(2), Some(2)));
    for output in [&table, &report] {
        let printed = format!("{output:?}");
        assert!(!printed.contains("secret") && printed.contains("gone.url"), "{printed}");
    }
    let report = json(&report);
    assert_eq!(rows(&report), [("bank", "unreachable"), ("shop", "error"), ("kv", "error")]);
    assert_eq!(report["worst"], "error");
}

#[test]
fn no_resource_is_nothing_wrong_and_no_configuration_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (table, report) = doctor(folder.path(), &[]);
    assert_eq!(table.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&table.stdout).contains("names no [[resource]]"), "{table:?}");
    assert_eq!(json(&report), object!({"findings": [], "worst": "ok"}));
    fails(&["doctor", "--config", "/nowhere/assent.toml"], 3, "/nowhere/assent.toml");
    let help = run(&["doctor", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit code: 0 if nothing is worse than a warning"));
}
