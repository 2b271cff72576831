//! Wrong input: one sentence with the value and what to do, and the right exit code.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::sync::Arc;

use assent_journal::{Config, Journal, Log as _};
use assent_world::{Disk as _, RealClock, RealDice, RealDisk};

use super::assent::{command, fails, json, run, unheard, unsaid, write};

#[test]
fn wrong_flags_and_names_are_refused_with_exit_2() {
    fails(&[], 2, "Usage");
    fails(&["frobnicate"], 2, "frobnicate");
    fails(&["demo", "--transfers", "lots"], 2, "lots");
    fails(&["demo", "--transfers", "1"], 2, "1");
    fails(&["demo", "--kill", "nowhere"], 2, "nowhere");
    fails(&["demo", "--kill", "store-after-prepare:0"], 2, "store-after-prepare");
    fails(&["tx", "show", "seven"], 2, "seven");
    fails(&["tx", "list", "--server", "nowhere"], 2, "nowhere");
    fails(&["bench", "tx", "--sleeps", "9"], 2, "9");
    fails(&["bench", "real", "--postgres", "mysql://h", "--mariadb", "mysql://h", "-l", "none"], 2, "none");
    fails(&["serve", "--config", "x", "--colour"], 2, "--colour");
}

#[test]
fn a_stop_point_that_is_none_is_refused_before_anything_runs() {
    let output = command(&["journal", "check", "x"]).env("ASSENT_STOP", "somewhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("somewhere"));
    let listed = run(&["serve", "--help-stops"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("client-before-decision"));
}

#[test]
fn wrong_configurations_name_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("assent.toml");
    let path = file.display().to_string();
    let serve = ["serve", "--config", path.as_str()];
    fails(&serve, 3, &path);
    let cases = [
        ("data_dir = \"d\"", 2, "no engine"),
        ("data_dir = \"d\"\n[kv]\ncolour = 1", 2, "colour"),
        ("data_dir = \"d\"\n[kv]\nlog_size = 5", 2, "log_size = 5"),
        ("data_dir = \"d\"\n[server]\nlisten = \"7430\"\n[kv]", 2, "7430"),
        ("data_dir = \"d\"\n[server]\nlisten = \"0.0.0.0:0\"\n[kv]", 6, "--insecure"),
        // A word for the binary protocol says nothing of HTTP.
        (
            "data_dir = \"d\"\n[server]\nlisten = \"0.0.0.0:0\"\ninsecure = true\n[admin]\nlisten = \"0.0.0.0:0\"\n[kv]",
            6,
            "admin.listen",
        ),
        ("data_dir = \"d\"\n[coordinator]\nmin_elapsed_sync_time = 5", 2, "min_elapsed_sync_time = 5"),
        (
            "data_dir = \"d\"\n[coordinator]\n[[resource]]\nname = \"a\"\nkind = \"postgres\"\nurl = \"http://u:secret@h\"",
            2,
            "\"a\"",
        ),
        (
            "data_dir = \"d\"\n[coordinator]\n[[resource]]\nname = \"a\"\nkind = \"assent\"\nurl_file = \"gone\"",
            3,
            "gone",
        ),
    ];
    for (text, code, said) in cases {
        write(&file, text);
        fails(&serve, code, said);
        let stderr = String::from_utf8_lossy(&run(&serve).stderr).into_owned();
        assert!(!stderr.contains("secret"), "a password was printed: {stderr}");
    }
}

#[test]
fn a_folder_that_may_not_be_written_or_is_no_folder_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("assent.toml");
    let path = file.display().to_string();
    // Root may write anywhere; nobody can make a folder inside a file.
    write(&folder.path().join("blocked"), "a file");
    write(&file, "data_dir = \"blocked/data\"\n[kv]");
    let output = run(&["serve", "--config", &path]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("blocked"), "{output:?}");
    write(&file, "data_dir = \"/proc/assent\"\n[kv]");
    let output = run(&["serve", "--config", &path]);
    assert!(matches!(output.status.code(), Some(3 | 6)), "{output:?}");
}

#[test]
fn a_missing_server_is_exit_8_and_json_errors_are_one_object() {
    // Nothing listens on port 1 of loopback.
    fails(&["tx", "list", "--server", "127.0.0.1:1"], 8, "127.0.0.1:1");
    let output = run(&["--json", "tx", "recover", "--server", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(8));
    let error = json(&output);
    assert_eq!(error["error"]["kind"], "unavailable");
    assert!(error["error"]["message"].as_str().unwrap().contains("127.0.0.1:1"));
    fails(&["tx", "list", "--data", "/nowhere/at/all"], 3, "/nowhere/at/all");
    // A server named by the environment does not stand in the way of a folder.
    let output = command(&["tx", "list", "--data", "/nowhere/at/all"]).env("ASSENT_SERVER", "h:1").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let wrong = run(&["--json", "demo", "--transfers", "lots"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(json(&wrong)["error"]["message"].as_str().unwrap().contains("lots"), "{wrong:?}");
}

#[test]
fn the_demo_refuses_databases_that_it_cannot_reach_and_hides_their_passwords() {
    let url = "postgresql://someone:secret@127.0.0.1:1/db";
    let output = run(&["demo", "--transfers", "100", "--postgres", url]);
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("127.0.0.1:1") && !stderr.contains("secret"), "{stderr}");
    // What is no URL may be a password: it is not repeated.
    fails(&["demo", "--mariadb", "nonsense"], 2, "mysql://user:password@host:port/database");
}

#[test]
fn journals_are_checked_and_inspected_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fails(&["journal", "check", folder.path().join("gone").to_str().unwrap()], 3, "gone");
    for verb in ["check", "inspect"] {
        fails(&["journal", verb, folder.path().to_str().unwrap()], 3, "is no journal");
    }
    // An archived segment is shown and counted before the live log; its damage is told too.
    let path = folder.path().join("journal");
    let config =
        Config { log_size: 5 << 12, max_buffer_log_size: 2 << 12, archive_bytes_max: 1 << 20, ..Config::default() };
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let (journal, _) = Journal::open(disk, clock, Arc::new(RealDice), &path, config).unwrap();
    let tickets: Vec<_> = (0..40_u8).map(|number| journal.append(1, &[&[number; 1000]]).unwrap()).collect();
    journal.sync().unwrap();
    journal.trim(tickets[30].lsn).unwrap();
    journal.close().unwrap();
    let checked = json(&run(&["--json", "journal", "check", path.to_str().unwrap()]));
    let counted = checked["archived_entries"].as_u64().unwrap() + checked["entries"].as_u64().unwrap();
    assert_eq!((counted, &checked["oldest_lsn"]), (40, &0.into()), "{checked}");
    let inspected = json(&run(&["--json", "journal", "inspect", path.to_str().unwrap()]));
    assert_eq!(inspected["batches"][0]["file"], "0000000000000000.archived");
    assert_eq!(inspected["more"], false);
    let some = json(&run(&["--json", "journal", "inspect", path.to_str().unwrap(), "--limit", "3"]));
    assert_eq!((some["entries"].as_array().unwrap().len(), &some["more"]), (3, &true.into()));
    // Nobody listens, or it cannot be said: no command panics, and one that does not say what it has to has failed.
    for words in [&["journal", "check"][..], &["journal", "inspect"], &["journal", "inspect", "--json"]] {
        let words = [words, &[path.to_str().unwrap()]].concat();
        assert_eq!(unheard(&words, true), (Some(0), String::new()), "{words:?}");
        let (code, said) = unsaid(&words);
        assert!(code == Some(7) && said.contains("cannot write stdout"), "{words:?}: {code:?} {said}");
    }
    let second = format!("{:016x}.archived", 4 << 12);
    RealDisk.unlink(&path.join(&second)).unwrap();
    fails(&["journal", "check", path.to_str().unwrap()], 13, "the log from 16384 to 32768 is missing");
    assert_eq!(unheard(&["journal", "check", path.to_str().unwrap()], false), (Some(13), String::new()));
}
