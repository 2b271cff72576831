//! `assent kv` against a running server and a stopped one's folder: bytes come out as they went in, and what fails says how far
//! it came.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::assent::{command, json, write};
use super::served::{Served, serve};

/// A store alone.
pub(crate) fn configure(folder: &Path, more: &str) {
    let text = format!(
        "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[kv]\n{more}"
    );
    write(&folder.join("assent.toml"), &text);
}

pub(crate) fn kv(served: &Served, words: &[&str]) -> Output {
    command(&[&["kv"], words].concat()).env("ASSENT_SERVER", &served.protocol).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn done(served: &Served, words: &[&str]) -> Vec<u8> {
    let output = kv(served, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn told(served: &Served, words: &[&str]) -> Value {
    json(&kv(served, &[words, &["--json"]].concat()))
}

pub(crate) fn refused(output: &Output, code: i32, said: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(said) && stderr.lines().count() == 1, "one line with {said:?}: {stderr}");
}

fn spawn(served: &Served, words: &[&str]) -> Child {
    let mut command = command(&[&["kv"], words].concat());
    command.env("ASSENT_SERVER", &served.protocol).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The same with bytes on stdin.
pub(crate) fn fed(served: &Served, words: &[&str], input: &[u8]) -> Output {
    let mut child = spawn(served, words);
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // It may end before it has read everything.
        scope.spawn(move || _ = stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

#[test]
fn values_go_in_and_come_out_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    done(&served, &["put", "text", "a value"]);
    assert_eq!(done(&served, &["get", "text"]), b"a value");
    // Every byte, and more than a frame.
    let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    assert!(fed(&served, &["put", "large"], &bytes).status.success());
    assert!(done(&served, &["get", "large"]) == bytes);
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    #[allow(clippy::disallowed_methods, reason = "a test writes its own files")]
    std::fs::write(&input, &bytes).unwrap();
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    done(&served, &["put", "--hex", "00ff", "--file", input, "--keyspace", "7", "--metadata", "m"]);
    done(&served, &["get", "--hex", "00ff", "--output", output, "--keyspace", "7"]);
    #[allow(clippy::disallowed_methods, reason = "a test reads its own files")]
    let written = std::fs::read(output).unwrap();
    assert!(written == bytes);
    // The empty value is one.
    assert!(fed(&served, &["put", "empty"], b"").status.success());
    assert_eq!(done(&served, &["get", "empty"]), b"");
    refused(&kv(&served, &["get", "nothing"]), 3, "there is no key \"nothing\"");
    refused(&kv(&served, &["get", "text", "--keyspace", "1"]), 3, "there is no key");
    assert_eq!(told(&served, &["get", "nothing"])["error"]["kind"], "not_found");
    refused(&kv(&served, &["put", "a", "--file", "/nowhere/at/all"]), 3, "/nowhere/at/all");
    refused(&kv(&served, &["put", "a", "b", "--ttl", "soon"]), 2, "\"soon\" is no length of time");
    refused(&kv(&served, &["get", "--hex", "0"]), 2, "not hexadecimal");
    refused(&kv(&served, &["put", &"k".repeat((64 << 10) + 1), "v"]), 2, "65537");
    refused(&kv(&served, &["delete"]), 2, "--prefix");

    let heads = told(&served, &["head", "text", "gone"]);
    assert_eq!((&heads["heads"][0]["key"], &heads["heads"][0]["value_bytes"]), (&json!("text"), &json!(7)));
    assert_eq!(heads["missing"], json!(["gone"]));
    assert_eq!(kv(&served, &["head", "text", "gone"]).status.code(), Some(3));
    let stored = told(&served, &["head", "--hex", "00ff", "-k", "7"]);
    assert_eq!(stored["heads"][0]["metadata"], "m");
    assert!(String::from_utf8_lossy(&done(&served, &["head", "text"])).contains("never"));

    // What is stopped is read from its folder, and a running one's is not.
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    refused(&kv(&served, &["get", "text", "--data", &data]), 5, "another process");
    let protocol = served.protocol.clone();
    served.stop();
    let offline = |words: &[&str]| command(&[&["kv"], words, &["--data", data.as_str()]].concat()).output().unwrap();
    assert_eq!(offline(&["get", "text"]).stdout, b"a value");
    assert!(offline(&["get", "large"]).stdout == bytes);
    assert_eq!(offline(&["scan", "--keys-only"]).stdout, b"empty\nlarge\ntext\n");
    let stats = json(&offline(&["stats", "--json"]));
    assert_eq!((&stats["prepared"], &stats["keys"], &stats["ledger_debt_bytes"]), (&json!(0), &json!(4), &json!(0)));
    assert!(String::from_utf8_lossy(&offline(&["stats"]).stdout).contains("cache hits"));
    refused(&command(&["kv", "get", "text", "--server", &protocol]).output().unwrap(), 8, &protocol);
    let nowhere = folder.path().to_str().unwrap();
    refused(&command(&["kv", "get", "text", "--data", nowhere]).output().unwrap(), 3, "no folder kv");
}

#[test]
fn a_write_happens_only_if_its_condition_holds() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let lsn = |output: Vec<u8>| String::from_utf8(output).unwrap().trim().to_owned();
    let first = lsn(done(&served, &["put", "k", "1", "--if-absent"]));
    refused(&kv(&served, &["put", "k", "2", "--if-absent"]), 4, &format!("was committed at {first}"));
    let second = lsn(done(&served, &["put", "k", "2", "--if-lsn", &first]));
    refused(&kv(&served, &["put", "k", "3", "--if-lsn", &first]), 4, &second);
    assert_eq!(told(&served, &["head", "k"])["heads"][0]["lsn"].to_string(), second);
    refused(&kv(&served, &["put", "other", "3", "--if-present"]), 4, "is not there");
    refused(&kv(&served, &["delete", "k", "other", "--if-present"]), 4, "is not there");
    assert_eq!(done(&served, &["get", "k"]), b"2", "all or none");
    refused(&kv(&served, &["delete", "--all", "--if-present"]), 2, "name the keys");
    done(&served, &["delete", "k", "--if-lsn", &second]);
    refused(&kv(&served, &["get", "k"]), 3, "there is no key");
    served.stop();
}

#[test]
fn keyspaces_have_names_and_go_with_all_that_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let id = told(&served, &["keyspace", "create", "orders"])["id"].as_u64().unwrap();
    assert!(id >= 0x4000_0000, "{id}");
    done(&served, &["keyspace", "create", "bills"]);
    refused(&kv(&served, &["keyspace", "create", "orders"]), 4, "orders");
    refused(&kv(&served, &["keyspace", "create", ""]), 2, "name");
    refused(&kv(&served, &["put", "k", "v", "--keyspace", "nothing"]), 3, "there is no keyspace \"nothing\"");
    done(&served, &["put", "k", "of an order", "--keyspace", "orders"]);
    done(&served, &["put", "k", "of a bill", "--keyspace", "bills"]);
    assert!(fed(&served, &["load", "-k", "orders"], line(7).as_bytes()).status.success());
    assert_eq!(done(&served, &["get", "k", "-k", &id.to_string()]), b"of an order");
    assert_eq!(done(&served, &["scan", "-k", "orders"]), b"k\tof an order\nk00007\tv\n");
    refused(&kv(&served, &["get", "k"]), 3, "there is no key");
    let names = |listed: Value| -> Vec<String> {
        let all = listed["keyspaces"].as_array().unwrap().clone();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(told(&served, &["keyspace", "list"])), ["bills", "orders"]);
    done(&served, &["keyspace", "drop", "orders"]);
    refused(&kv(&served, &["keyspace", "drop", "orders"]), 3, "orders");
    refused(&kv(&served, &["get", "k", "-k", "orders"]), 3, "there is no keyspace");
    let missing = kv(&served, &["put", "k", "v", "-k", &id.to_string()]);
    assert_ne!(missing.status.code(), Some(0), "what is dropped is not written to");
    served.stop();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let offline = |words: &[&str]| command(&[&["kv"], words, &["--data", data.as_str()]].concat()).output().unwrap();
    assert_eq!(names(json(&offline(&["keyspace", "list", "--json"]))), ["bills"]);
    assert_eq!(offline(&["get", "k", "-k", "bills"]).stdout, b"of a bill");
}

#[test]
fn what_is_dead_gives_its_room_back_and_everything_is_read_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // Small segments, so that there are cells of the journal to compact: fewer than anybody compacts who is not asked.
    configure(folder.path(), "log_size = 4194304\nmemory_bytes = 65536\n");
    let served = serve(folder.path());
    let value = "v".repeat(20_000);
    let lines = |_: u32| -> String {
        (0..400).map(|number| format!("{{\"key\":\"k{number:05}\",\"value\":\"{value}\"}}\n")).collect()
    };
    // The same keys again and again: most of what was written is dead.
    for round in 0..6 {
        assert!(fed(&served, &["load", "--batch", "50"], lines(round).as_bytes()).status.success());
    }
    let found = told(&served, &["compact"]);
    let is_more = |name: &str| found[name].as_u64().is_some_and(|number| number > 0);
    assert!(is_more("compactions") && is_more("reclaimed_bytes"), "{found}");
    let checked = told(&served, &["verify"]);
    assert_eq!((&checked["values"], &checked["damaged"], &checked["damages"]), (&json!(400), &json!(0), &json!([])));
    let said = String::from_utf8(done(&served, &["verify"])).unwrap();
    assert!(said.starts_with("everything is as it was written: 400 values"), "{said}");
    let stats = told(&served, &["stats"]);
    let disk = stats["values_disk_bytes"].as_u64().unwrap();
    assert!(disk > 0 && stats["live_bytes"].as_u64().unwrap() > 0, "{stats}");
    done(&served, &["put", "last", &"w".repeat(50_000)]);
    let metrics = served.get("/metrics");
    for name in
        ["kv_live_bytes", "kv_values_disk_bytes", "kv_volumes", "kv_compactions_total", "kv_reclaimed_bytes_total"]
    {
        assert!(metric(&metrics, &format!("assent_{name}")) >= 0.0, "{name}");
    }
    served.stop();
    let data = folder.path().join("data");
    let verify = || command(&["kv", "verify", "--json", "--data", data.to_str().unwrap()]).output().unwrap();
    assert_eq!(json(&verify())["values"], 401);
    // One byte in the middle of the value that was written last, on the disk behind the store's back.
    let journal = std::fs::read_dir(data.join("kv")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = journal.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
    segments.sort();
    let pattern = [b'w'; 20_000];
    let place = segments.iter().rev().find_map(|path| {
        #[allow(clippy::disallowed_methods, reason = "a test damages a file")]
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(pattern.len()).position(|window| window == pattern).map(|at| (path.clone(), at + 10_000, bytes))
    });
    let (path, at, mut bytes) = place.expect("the value is in the journal");
    bytes[at] ^= 1;
    #[allow(clippy::disallowed_methods, reason = "a test damages a file")]
    std::fs::write(&path, &bytes).unwrap();
    let damaged = verify();
    let told = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert_eq!(damaged.status.code(), Some(13), "{told}");
    assert!(told.contains(".log") || told.contains("last"), "it names the place: {told}");
}

/// A number of `/metrics`.
pub(crate) fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

#[test]
fn what_the_store_does_is_scraped() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "memory_bytes = 65536\n");
    let served = serve(folder.path());
    // More rows than the ledger keeps in memory, so that it is written out.
    let lines: String = (0..3_000).map(line).collect();
    assert!(fed(&served, &["load", "--batch", "100"], lines.as_bytes()).status.success());
    done(&served, &["get", "k00001"]);
    done(&served, &["head", "k00001", "k00002"]);
    done(&served, &["scan", "--keys-only"]);
    done(&served, &["put", "k00001", "v", "--if-present"]);
    refused(&kv(&served, &["put", "k00001", "v", "--if-absent"]), 4, "was committed at");
    refused(&kv(&served, &["put", &"k".repeat((64 << 10) + 1), "v"]), 2, "65537");
    let text = loop {
        let text = served.get("/metrics");
        let of_levels = |name: &str| -> f64 {
            (0..8).map(|level| metric(&text, &format!("assent_kv_level_{name}{{level=\"{level}\"}}"))).sum()
        };
        let runs = metric(&text, "assent_kv_ledger_runs");
        // Each number is of its own moment: a merge may have ended in between.
        let is_of_one = of_levels("runs") == runs && of_levels("bytes") == metric(&text, "assent_kv_ledger_bytes");
        if runs > 0.0 && is_of_one {
            break text;
        }
        std::thread::yield_now();
    };
    let count = |name: &str, op: &str| metric(&text, &format!("assent_kv_{name}{{op=\"{op}\"}}"));
    for (op, done, failed) in
        [("get", 1.0, 0.0), ("look", 1.0, 0.0), ("rows", 1.0, 0.0), ("write", 30.0, 1.0), ("write_if", 1.0, 1.0)]
    {
        assert_eq!((count("operations_total", op), count("operations_failed_total", op)), (done, failed), "{op}");
        assert_eq!(count("operation_seconds_count", op), done + failed, "{op}");
        assert!(count("operation_seconds_sum", op) > 0.0, "{op}");
    }
    assert!(text.contains("assent_kv_operation_seconds_bucket{le=\"0.0005\",op=\"write\"}"), "{text}");
    assert!(metric(&text, "assent_kv_keys") >= 3_000.0 && metric(&text, "assent_kv_value_bytes") >= 3_000.0);
    assert!(metric(&text, "assent_kv_ledger_flushed_bytes_total") > 0.0);
    // One byte each, which lives where it was written: whole blocks of the journal, and the ledger.
    let put = metric(&text, "assent_kv_put_bytes_total");
    let amplified = |of: &str| metric(&text, &format!("assent_kv_{of}_amplification_percent"));
    assert_eq!(put, 3_001.0);
    // A hundred of a batch share what each is counted with.
    assert_eq!(amplified("space"), 100.0, "{text}");
    let log = metric(&text, "assent_log_written_bytes_total{log=\"kv\"}");
    assert!(amplified("write") >= (log * 100.0 / put).floor(), "{text}");
    for name in [
        "kv_ledger_memory_bytes",
        "kv_ledger_spare_bytes",
        "kv_ledger_debt_bytes",
        "kv_ledger_unwritten_bytes",
        "kv_ledger_runs_unreadable",
        "kv_cache_bytes",
        "kv_cache_hits_total",
        "kv_cache_misses_total",
        "kv_value_cache_bytes",
        "kv_value_cache_hits_total",
        "kv_value_cache_misses_total",
        "kv_ledger_merged_bytes_total",
        "kv_snapshots",
        "kv_branches",
        "kv_branches_bytes",
        "long_bytes",
    ] {
        assert!(metric(&text, &format!("assent_{name}")) >= 0.0, "{name}");
    }
    served.stop();
}

#[test]
fn ranges_are_scanned_in_order_and_removed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let lines: String =
        (0..2_500).map(|number| format!("{{\"key\":\"k{number:04}\",\"value\":\"v{number}\"}}\n")).collect();
    let loaded = fed(&served, &["load", "--json"], lines.as_bytes());
    assert_eq!(
        json(&loaded),
        json!({"lines": 2500, "objects": 2500, "bytes": 2500 * 5 + 2500 + 10 + 90 * 2 + 900 * 3 + 1500 * 4})
    );
    let rows = |words: &[&str]| String::from_utf8(done(&served, &[&["scan"], words].concat())).unwrap();
    assert_eq!(rows(&["--prefix", "k000", "--limit", "2"]), "k0000\tv0\nk0001\tv1\n");
    assert_eq!(rows(&["--from", "k2498", "--keys-only"]), "k2498\nk2499\n");
    assert_eq!(rows(&["--from", "6b30303037", "--to", "6b30303038", "--hex"]), "6b30303037\tv7\n");
    assert_eq!(rows(&["--limit", "5000"]).lines().count(), 2_500);
    let told_rows = told(&served, &["scan", "--limit", "3"]);
    assert_eq!((told_rows["rows"].as_array().unwrap().len(), &told_rows["more"]), (3, &json!(true)));
    assert!(told_rows["rows"][0]["lsn"].as_u64().unwrap() > 0);
    done(&served, &["delete", "k0000", "nothing"]);
    done(&served, &["delete", "--prefix", "k00"]);
    assert_eq!(rows(&["--keys-only", "--limit", "1"]), "k0100\n");
    done(&served, &["delete", "--from", "k0101", "--to", "k2499"]);
    assert_eq!(rows(&["--keys-only"]), "k0100\nk2499\n");
    done(&served, &["delete", "--all"]);
    assert_eq!(rows(&[]), "");
    served.stop();
}

#[test]
fn what_is_exported_is_loaded_into_another_store_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
    paths.iter().for_each(|path| configure(path, ""));
    let [one, two] = paths.each_ref().map(|path| serve(path));
    let large: Vec<u8> = (0..2 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    assert!(fed(&one, &["put", "large"], &large).status.success());
    assert!(fed(&one, &["put", "--hex", "ff00"], &[0, 159, 146, 150]).status.success());
    done(&one, &["put", "timed", "v", "--metadata", "meta", "--ttl", "2d"]);
    done(&one, &["put", "zwölf", "12"]);
    let file = folder.path().join("lines").to_str().unwrap().to_owned();
    assert_eq!(told(&one, &["export", "--output", &file]), json!({"objects": 4}));
    let loaded = told(&two, &["load", &file]);
    assert_eq!(loaded["objects"], 4);
    assert!(done(&two, &["get", "large"]) == large);
    assert_eq!(done(&two, &["get", "--hex", "ff00"]), [0, 159, 146, 150]);
    let heads = ["timed", "zwölf"].map(|key| [&one, &two].map(|it| told(it, &["head", key])["heads"][0].clone()));
    for [mine, theirs] in &heads {
        for field in ["key", "metadata", "expiry_ms", "hash", "value_bytes"] {
            assert_eq!(mine[field], theirs[field], "{field}");
        }
    }
    assert!(heads[0][0]["expiry_ms"].as_u64().unwrap() > heads[0][0]["modified_ms"].as_u64().unwrap());
    let range = String::from_utf8(done(&one, &["export", "--from", "t", "--to", "u"])).unwrap();
    assert!(range.starts_with("{") && range.contains("\"metadata\":\"meta\"") && range.lines().count() == 1, "{range}");
    one.stop();
    // The same of the stopped one's folder.
    let data = folder.path().join("one/data").to_str().unwrap().to_owned();
    let offline = command(&["kv", "export", "--data", &data]).output().unwrap();
    #[allow(clippy::disallowed_methods, reason = "a test reads its own files")]
    let served = std::fs::read(&file).unwrap();
    assert!(offline.stdout == served);
    two.stop();
}

/// Of one moment; where each page is of its own, a value that is fetched after its page was has its own metadata and expiry: with
/// the old ones, what was kept for ever would end.
#[test]
fn what_is_written_anew_while_it_is_exported_is_exported_as_it_was_or_whole() {
    exported_meanwhile(&["export"], "old");
    exported_meanwhile(&["export", "--page-by-page"], "new");
}

fn exported_meanwhile(words: &[&str], told: &str) {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let [first, earlier, after] = [1_u8, 2, 3].map(|byte| vec![byte; 3 << 20]);
    assert!(fed(&served, &["put", "a"], &first).status.success());
    assert!(fed(&served, &["put", "s", "--metadata", "old", "--ttl", "1h"], &earlier).status.success());
    assert!(fed(&served, &["put", "t"], &first).status.success());
    let before = self::told(&served, &["head", "s"])["heads"][0].clone();
    let mut export = spawn(&served, words);
    let mut out = BufReader::new(export.stdout.take().unwrap());
    // The first line does not fit the pipe: the page was taken, and no more than it was fetched.
    let mut begin = [0; 16];
    out.read_exact(&mut begin).unwrap();
    assert!(fed(&served, &["put", "s", "--metadata", "new"], &after).status.success());
    done(&served, &["delete", "t"]);
    let mut text = String::from_utf8(begin.to_vec()).unwrap();
    out.read_to_string(&mut text).unwrap();
    assert!(export.wait().unwrap().success());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<Value> = lines.iter().map(|line| line["key"].clone()).collect();
    let all = ["a", "s", "t"];
    assert_eq!(keys, if told == "old" { &all[..] } else { &all[..2] });
    let now = self::told(&served, &["head", "s"])["heads"][0].clone();
    for field in ["metadata", "lsn", "expiry_ms", "modified_ms"] {
        assert_eq!(lines[1][field], if told == "old" { &before } else { &now }[field], "{field}");
    }
    assert_eq!(lines[1]["metadata"], told);
    served.stop();
}

#[test]
fn an_export_that_fails_leaves_the_one_before_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let file = folder.path().join("backup.jsonl").to_str().unwrap().to_owned();
    done(&served, &["put", "k", "v"]);
    done(&served, &["export", "-o", &file]);
    #[allow(clippy::disallowed_methods, reason = "a test reads its own files")]
    let read = || std::fs::read_to_string(&file).unwrap();
    let before = read();
    assert_eq!(before.lines().count(), 1);
    refused(&kv(&served, &["export", "-o", &file, "-k", "oders"]), 3, "oders");
    assert_eq!(read(), before);
    done(&served, &["put", "l", "v"]);
    done(&served, &["export", "-o", &file]);
    assert_eq!(read().lines().count(), 2);
    let parts = std::fs::read_dir(folder.path())
        .unwrap()
        .filter(|it| it.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
    served.stop();
}

/// Whoever reads only the first of it has had enough, and a write that was done is not told as one that was not.
#[test]
fn nobody_listens_or_nothing_can_be_said_and_no_command_panics() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    for number in ["0", "500", "1000", "1500"] {
        done(&served, &["put", number, &"x".repeat(100_000)]);
    }
    for words in [&["scan", "--json"][..], &["scan"], &["export"], &["get", "500"], &["put", "last", "v"]] {
        let mut command = spawn(&served, words);
        drop((command.stdout.take(), command.stdin.take()));
        let output = command.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{words:?}: {:?} {said}", output.status);
    }
    assert_eq!(done(&served, &["get", "last"]), b"v");
    // What the exit code says is the same.
    for words in [&["head", "last", "nothing"][..], &["head", "last", "nothing", "--json"]] {
        let mut command = spawn(&served, words);
        drop((command.stdout.take(), command.stdin.take()));
        assert_eq!(command.wait_with_output().unwrap().status.code(), Some(3), "{words:?}");
    }
    #[allow(clippy::disallowed_methods, reason = "a device, and no file of the server's")]
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut put = command(&["kv", "put", "k", "v"]);
    let output = put.env("ASSENT_SERVER", &served.protocol).stdout(full).output().unwrap();
    refused(&output, 7, "it was written, at LSN ");
    assert_eq!(done(&served, &["get", "k"]), b"v");
    served.stop();
}

#[test]
fn objects_travel_as_csv_too_and_a_wrong_row_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
    paths.iter().for_each(|path| configure(path, ""));
    let [one, two] = paths.each_ref().map(|path| serve(path));
    let large: Vec<u8> = (0..2 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    let spoken = "two\r\nlines, \"quotes\", and ümlauts".as_bytes();
    assert!(fed(&one, &["put", "large"], &large).status.success());
    assert!(fed(&one, &["put", "spoken", "--metadata", "a,b", "--ttl", "2d"], spoken).status.success());
    assert!(fed(&one, &["put", "--hex", "ff00"], &[0, 159, 146, 150]).status.success());
    assert!(fed(&one, &["put", ""], b"").status.success());
    let file = folder.path().join("all.CSV").to_str().unwrap().to_owned();
    assert_eq!(told(&one, &["export", "--output", &file]), json!({"objects": 4}));
    let loaded = told(&two, &["load", &file]);
    assert_eq!((&loaded["objects"], &loaded["lines"]), (&json!(4), &json!(4)));
    let all = |served: &Served| -> Vec<Value> {
        let exported = String::from_utf8(done(served, &["export"])).unwrap();
        let of = |line: &str| {
            let mut object: Value = serde_json::from_str(line).unwrap();
            let fields = object.as_object_mut().unwrap();
            ["lsn", "modified_ms"].iter().for_each(|name| _ = fields.remove(*name).unwrap());
            object
        };
        exported.lines().map(of).collect()
    };
    assert!(all(&one) == all(&two));
    let range = String::from_utf8(done(&one, &["export", "--from", "s", "--format", "csv"])).unwrap();
    assert!(
        range.starts_with("key,key_base64,value,value_base64,metadata,metadata_base64,expiry_ms,lsn,modified_ms\n")
    );
    assert!(range.contains("\nspoken,,\"two\r\nlines, \"\"quotes\"\""), "{range}");
    // As people write it; and what was loaded before it stays.
    let mut rows = String::from("value,key\n");
    (0..25).for_each(|number| rows.push_str(&format!("v,\"row\n{number:03}\"\n")));
    let output = fed(&two, &["load", "--format", "csv", "-k", "5", "--batch", "10"], format!("{rows}v\n").as_bytes());
    refused(
        &output,
        2,
        "row 26 (line 52): it has 1 cells, and the header has 2; 25 rows are done, go on with --skip 25",
    );
    let rest = format!("{rows}v,last\n");
    let output = fed(&two, &["load", "--format", "csv", "-k", "5", "--skip", "25", "--json"], rest.as_bytes());
    assert_eq!(json(&output)["objects"], 1);
    let output = fed(&two, &["load", "--format", "csv"], b"key,valeu\n");
    refused(&output, 2, "the header (line 1): \"valeu\" is no column");
    let output = fed(&two, &["load", "--format", "csv"], b"");
    refused(&output, 2, "it has no header");
    one.stop();
    two.stop();
}

/// The number in "N lines are done", of the one line on stderr.
fn lines_done(stderr: &str) -> usize {
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let (before, _) = stderr.split_once(" lines are done, go on with --skip ").unwrap_or_else(|| panic!("{stderr}"));
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

fn line(number: usize) -> String {
    format!("{{\"key\":\"k{number:05}\",\"value\":\"v\"}}\n")
}

fn count(served: &Served) -> usize {
    done(served, &["scan", "--keys-only", "--limit", "1000000"]).split(|byte| *byte == b'\n').count() - 1
}

#[test]
fn a_load_that_is_stopped_says_how_far_it_came_and_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let mut loading = spawn(&served, &["load", "--batch", "10"]);
    let mut stdin = loading.stdin.take().unwrap();
    // It waits for more lines than these when it is stopped, in the middle of a batch.
    for number in 0..105 {
        stdin.write_all(line(number).as_bytes()).unwrap();
    }
    stdin.flush().unwrap();
    while count(&served) < 100 {
        std::thread::yield_now();
    }
    kill_process(Pid::from_raw(i32::try_from(loading.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    assert_eq!(loading.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    loading.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let lines = lines_done(&said);
    assert!((100..=105).contains(&lines), "{said}");
    assert_eq!(count(&served), lines, "neither more nor less");
    drop(stdin);
    let all: String = (0..300).map(line).collect();
    let rest = fed(&served, &["load", "--skip", &lines.to_string(), "--json"], all.as_bytes());
    assert_eq!((&json(&rest)["lines"], &json(&rest)["objects"]), (&json!(300), &json!(300 - lines)));
    assert_eq!(count(&served), 300);
    served.stop();
}

#[test]
fn a_line_that_is_none_is_named_and_those_before_it_are_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let good: String = (0..25).map(line).collect();
    let output = fed(&served, &["load", "--batch", "10"], format!("{good}\n{{\"key\":7}}\n{good}").as_bytes());
    refused(&output, 2, "line 27: key must be a text; 26 lines are done");
    assert_eq!(count(&served), 25);
    let output = fed(&served, &["load"], &[b"{\"key\":\"a\",\"value\":\"", &[0xff][..], b"\"}\n"].concat());
    refused(&output, 2, "line 1: it is no UTF-8");
    let output = fed(&served, &["load", "nowhere"], b"");
    refused(&output, 3, "nowhere");
    served.stop();
}

#[test]
fn a_batch_that_is_refused_ends_what_is_done_and_nothing_is_left_out_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let lines = |bad: Option<usize>| -> String {
        let long = format!("\"metadata\":\"{}\",\"value\"", "m".repeat(5_000));
        let one = |number| if bad == Some(number) { line(number).replace("\"value\"", &long) } else { line(number) };
        (0..300).map(one).collect()
    };
    let wrong = lines(Some(45));
    let load = |more: &[&str]| {
        fed(&served, &[&["load", "--batch", "10", "--in-flight", "8"], more].concat(), wrong.as_bytes())
    };
    refused(&load(&[]), 2, "40 lines are done, go on with --skip 40");
    // What is left out is done, also where the first batch behind it is refused.
    refused(&load(&["--skip", "43"]), 2, "43 lines are done, go on with --skip 43");
    let rest = fed(&served, &["load", "--skip", "40", "--json"], lines(None).as_bytes());
    assert_eq!((&json(&rest)["lines"], &json(&rest)["objects"]), (&json!(300), &json!(260)));
    assert_eq!(count(&served), 300);
    served.stop();
}

#[test]
fn what_is_all_of_a_keyspace_is_erased_only_by_who_says_so() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    assert!(fed(&served, &["load"], (0..20).map(line).collect::<String>().as_bytes()).status.success());
    for range in [&["--prefix", ""][..], &["--from", ""], &["--hex", "--prefix", ""]] {
        refused(&kv(&served, &[&["delete"], range].concat()), 2, "say --all");
    }
    for range in [["--from", "k2", "--to", "k1"], ["--from", "k1", "--to", "k1"], ["--from", "", "--to", ""]] {
        refused(&kv(&served, &[&["delete"], &range[..]].concat()), 2, "no key is in this range");
    }
    assert_eq!(count(&served), 20);
    done(&served, &["delete", "--prefix", "k0001"]);
    assert_eq!(count(&served), 10);
    done(&served, &["delete", "--from", "", "--to", "k00005"]);
    assert_eq!(count(&served), 5);
    done(&served, &["delete", "--all"]);
    assert_eq!(count(&served), 0);
    served.stop();
}

#[test]
fn a_value_that_could_not_be_written_leaves_the_file_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let long = vec![b'x'; 100_000];
    assert!(fed(&served, &["put", "long"], &long).status.success());
    let path = folder.path().join("out.bin");
    let file = path.to_str().unwrap();
    write(&path, "keep me");
    let assent = env!("CARGO_BIN_EXE_assent");
    let words = ["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"", assent, "kv", "get", "long", "--output", file];
    let output = std::process::Command::new("sh").args(words).args(["--server", &served.protocol]).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("cannot write"), "{output:?}");
    #[allow(clippy::disallowed_methods, reason = "a test reads its own files")]
    let read = || std::fs::read(&path).unwrap();
    assert_eq!(read(), b"keep me");
    done(&served, &["get", "long", "--output", file]);
    assert!(read() == long);
    served.stop();
}

#[test]
fn a_load_whose_server_dies_says_what_is_surely_done() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "");
    let served = serve(folder.path());
    let mut loading = spawn(&served, &["load", "--batch", "10", "--in-flight", "4"]);
    let mut stdin = loading.stdin.take().unwrap();
    let mut stderr = BufReader::new(loading.stderr.take().unwrap());
    let writer = std::thread::spawn(move || {
        // Until nobody reads any more.
        for number in 0_usize.. {
            if stdin.write_all(line(number).as_bytes()).is_err() {
                return;
            }
        }
    });
    while count(&served) < 500 {
        std::thread::yield_now();
    }
    served.kill();
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    let code = loading.wait().unwrap().code().unwrap();
    assert!(matches!(code, 8 | 11), "unreachable, or in doubt: {code}, {said}");
    writer.join().unwrap();
    let lines = lines_done(&said);
    let served = serve(folder.path());
    let found = count(&served);
    // Each batch whole: what is done for sure, and some of the four that were under way.
    assert!((lines..=lines + 40).contains(&found) && found.is_multiple_of(10), "{found} of {lines}");
    served.stop();
}
