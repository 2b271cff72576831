//! `assent docs` on a folder: what is put comes out to the last digit, of every revision, and what fails leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test looks at the files that it is about")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::assent::{command, json, unheard, unsaid, write};

/// A folder of documents.
pub(crate) struct House(pub(crate) TempDir);

impl House {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.fed(words, b"")
    }

    /// The same with bytes on stdin.
    pub(crate) fn fed(&self, words: &[&str], input: &[u8]) -> Output {
        let mut command = command(&[&["docs"], words].concat());
        command.env("ASSENT_DOCS", self.0.path().join("house")).current_dir(self.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // It may end before it has read everything.
            scope.spawn(move || _ = stdin.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    /// Its exit code and stderr, where nobody reads what it writes.
    fn unheard(&self, words: &[&str]) -> (Option<i32>, String) {
        let house = self.0.path().join("house");
        unheard(&[&["docs"], words, &["--data", house.to_str().unwrap()]].concat(), true)
    }

    /// The same where that has no room.
    fn unsaid(&self, words: &[&str]) -> (Option<i32>, String) {
        let house = self.0.path().join("house");
        unsaid(&[&["docs"], words, &["--data", house.to_str().unwrap()]].concat())
    }

    /// What it writes.
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn told(&self, words: &[&str]) -> Value {
        json(&self.run(&[words, &["--json"]].concat()))
    }

    pub(crate) fn refuses(&self, words: &[&str], code: i32, said: &str) {
        refused(&self.run(words), code, said);
    }

    fn file(&self, name: &str, text: &str) {
        write(&self.0.path().join(name), text);
    }
}

pub(crate) fn refused(output: &Output, code: i32, said: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(said) && stderr.lines().count() == 1, "one line with {said:?}: {stderr}");
}

#[test]
fn a_document_is_made_changed_read_at_every_revision_and_reverted() {
    let house = House::new();
    let first = r#"{"item":"pen","price":1.50,"exact":12345678901234567890.10}"#;
    let made = house.told(&["create", "orders", first, "-m", "opening", "--author", "ann"]);
    assert_eq!((&made["document"], &made["revision"]), (&json!("orders"), &json!(1)));
    assert!(
        house
            .done(&["put", "orders", "1.75", "--at", "$.price", "-m", "dearer"])
            .starts_with("orders: revision 2 of 2")
    );
    let second = first.replace("1.50", "1.75");
    assert_eq!(house.done(&["get", "orders"]), format!("{second}\n"));
    assert_eq!(house.done(&["get", "orders", "--revision", "1"]), format!("{first}\n"));
    assert_eq!(house.done(&["get", "orders", "--at", "$.price"]), "1.75\n");
    assert_eq!(house.done(&["get", "orders", "--pretty", "--max-children", "1"]), "{\n  \"item\": \"pen\"\n}\n");
    assert_eq!(
        house.done(&["get", "orders", "--at", "$.item", "--metadata", "node-key"]),
        "{\"metadata\":{\"nodeKey\":2},\"value\":\"pen\"}\n"
    );
    let envelope = house.run(&["get", "orders", "--json"]);
    let text = String::from_utf8(envelope.stdout.clone()).unwrap();
    assert!(text.ends_with(&format!(",\"value\":{second}}}\n")), "{text}");
    assert_eq!((&json(&envelope)["revision"], &json(&envelope)["message"]), (&json!(2), &json!("dearer")));
    assert_eq!(house.done(&["revert", "orders", "1"]).split(" of ").next(), Some("orders: revision 3"));
    assert_eq!(house.done(&["get", "orders"]), format!("{first}\n"));
    let told = house.told(&["history", "orders"]);
    let rows = told["revisions"].as_array().unwrap();
    let said: Vec<_> = rows.iter().map(|row| row["message"].as_str().unwrap()).collect();
    assert_eq!(said, ["revert to revision 1", "dearer", "opening"]);
    assert_eq!(rows[2]["author"], "ann");
    assert_eq!(house.told(&["history", "orders", "-n", "1", "--to", "2"])["revisions"][0]["revision"], 2);
    assert!(house.done(&["history", "orders"]).contains("dearer"));
    // As of a time: before the first there is nothing.
    let moment = rows[1]["time_ms"].as_u64().unwrap();
    house.refuses(&["get", "orders", "--as-of", "1d"], 3, "document \"orders\" is empty at revision 0");
    house.refuses(&["revert", "orders", "--as-of", "1d"], 3, "had no revision then");
    assert!(moment >= rows[2]["time_ms"].as_u64().unwrap());
    assert_eq!(house.done(&["get", "orders", "--as-of", "2099-01-01"]), format!("{first}\n"));
    // A file is there whole or as it was, and nothing beside it.
    house.file("copy.json", "what was there before");
    for (revision, text) in [("2", &second), ("1", &first.to_owned())] {
        house.done(&["get", "orders", "--revision", revision, "--output", "copy.json"]);
        assert_eq!(std::fs::read_to_string(house.0.path().join("copy.json")).unwrap(), format!("{text}\n"));
    }
    house.done(&["get", "orders", "--output", "/dev/null"]);
    assert_eq!(std::fs::read_dir(house.0.path()).unwrap().count(), 2, "the file and the house");
    let checked = house.told(&["verify"]);
    assert_eq!(checked, json!({"documents": 1, "revisions": 3, "nodes": 12, "damages": []}));
}

#[test]
fn a_query_gives_paths_keys_and_values_of_any_revision() {
    let house = House::new();
    house.done(&["create", "shop", r#"{"book":[{"title":"one","price":8.950},{"title":"two","price":22.99}]}"#]);
    house.done(&["put", "shop", "[]", "--at", "$.book"]);
    let at = |words: &[&str]| house.done(&[&["query", "shop", "-r", "1"], words].concat());
    assert_eq!(at(&["$..price"]), "$['book'][0]['price']\t8.950\n$['book'][1]['price']\t22.99\n");
    assert_eq!(at(&["$.book[?@.price < 10].title", "--values"]), "\"one\"\n");
    assert_eq!(at(&["$.book[*]", "--paths"]), "$['book'][0]\n$['book'][1]\n");
    assert_eq!(house.done(&["query", "shop", "$..price"]), "");
    let told = house.run(&["query", "shop", "$..price", "-r", "1", "--limit", "1", "--json"]);
    let text = String::from_utf8(told.stdout.clone()).unwrap();
    assert!(text.contains("\"path\":\"$['book'][0]['price']\",\"value\":8.950}],\"more\":true}"), "{text}");
    assert_eq!(json(&told)["results"][0]["node_key"], 5);
    let cut = house.run(&["query", "shop", "$..price", "-r", "1", "--limit", "1"]);
    assert!(String::from_utf8_lossy(&cut.stderr).contains("there are more; --limit was 1"));
    house.refuses(&["query", "shop", "$.book[?@.price <]"], 2, "the query, character 18: a value");
    house.refuses(&["get", "shop", "--at", "$..price", "-r", "1"], 2, "$..price leads to more than one node");
    house.refuses(&["get", "shop", "--at", "$.none"], 3, "$.none leads to nothing in \"shop\" at revision 2");
}

#[test]
fn what_is_wrong_leaves_nothing_behind_and_is_said_in_one_sentence() {
    let house = House::new();
    house.refuses(&["list"], 3, "has no documents: assent docs create makes the first");
    house.refuses(&["create", "a", "[1,2"], 2, "no JSON");
    house.refuses(&["get", "a"], 3, "there is no document \"a\"");
    house.done(&["create", "a", "[1,2]"]);
    house.refuses(&["create", "a", "[1,2]"], 4, "there is a document \"a\" already");
    house.refuses(&["put", "a", "NaN"], 2, "no JSON");
    refused(&house.fed(&["put", "a"], b"[\"\xff\"]"), 2, "no JSON");
    refused(&house.fed(&["put", "a"], b"[\"\\ud800\"]"), 2, "no JSON");
    let deep = format!("{}{}", "[".repeat(10_001), "]".repeat(10_001));
    refused(&house.fed(&["put", "a"], deep.as_bytes()), 2, "nesting of 10001; at most 10000 is taken");
    house.refuses(&["get", "a", "-r", "2"], 3, "has no revision 2; its newest is 1");
    assert_eq!(house.done(&["get", "a"]), "[1,2]\n");
    // The other way round: what is fine at its limit.
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let put = house.fed(&["put", "a"], deep.as_bytes());
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    assert_eq!(house.done(&["get", "a"]), format!("{deep}\n"));
    house.done(&["create", "empty"]);
    house.refuses(&["get", "empty"], 3, "document \"empty\" is empty at revision 0");
    house.done(&["put", "empty", "7"]);
    assert_eq!(house.told(&["list"])["documents"][1]["nodes"], 1);
    house.done(&["drop", "a"]);
    assert!(!house.done(&["list"]).contains("│ a "));
    house.refuses(&["drop", "a"], 3, "there is no document \"a\"");
    let both = house.run(&["get", "empty", "--output", "x", "--json"]);
    assert_eq!((both.status.code(), json(&both)["error"]["kind"].as_str()), (Some(2), Some("invalid")));
}

#[test]
fn a_load_is_one_revision_or_nothing() {
    let house = House::new();
    let lines: String = (0..20_000).map(|number| format!("{{\"number\":{number}.0}}\n")).collect();
    house.file("lines.jsonl", &format!("{lines}\n"));
    let told = house.told(&["load", "rows", "lines.jsonl", "--lines"]);
    assert_eq!((&told["revision"], &told["nodes"]), (&json!(1), &json!(40_001)));
    assert_eq!(told["bytes"].as_u64().unwrap(), lines.len() as u64 + 1);
    assert_eq!(house.done(&["query", "rows", "$[-1].number"]), "$[19999]['number']\t19999.0\n");
    house.refuses(&["load", "rows", "lines.jsonl"], 4, "--replace puts the new one in its place");
    house.file("wrong.jsonl", "{\"a\":1}\n\n{\"a\":1,\"a\":2}\n[");
    house.refuses(&["load", "other", "wrong.jsonl", "--lines"], 2, "wrong.jsonl: line 3: ");
    house.refuses(&["get", "other"], 3, "there is no document \"other\"");
    house.refuses(&["load", "rows", "wrong.jsonl", "--lines"], 2, "0 values before it are committed");
    assert_eq!(house.told(&["list"])["documents"][0]["nodes"], 40_001);
    // Those that were committed stay.
    house.refuses(
        &["load", "kept", "wrong.jsonl", "--lines", "--commit-every", "1"],
        2,
        "1 values before it are committed",
    );
    assert_eq!(house.done(&["get", "kept"]), "[{\"a\":1}]\n");
    house.file("two.jsonl", "1 2\n");
    house.refuses(&["load", "other", "two.jsonl", "--lines"], 2, "two.jsonl: line 1: ");
    let said = house.fed(&["load", "rows", "--replace", "-m", "anew"], b"{\"new\":[true]}");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "rows: revision 2, 3 nodes of 14 bytes of JSON\n");
    assert_eq!(house.done(&["query", "rows", "$[0].number", "-r", "1", "--values"]), "0.0\n");
    house.done(&["verify", "rows"]);
    house.refuses(&["load", "rows", "nowhere"], 3, "cannot read nowhere");
}

#[test]
fn patches_are_made_whole_and_named_revisions_are_found_again() {
    let house = House::new();
    house.done(&["create", "orders", r#"{"item":"pen","price":1.50}"#]);
    house.done(&["tag", "orders", "opening"]);
    house.done(&[
        "patch",
        "orders",
        r#"[{"op":"replace","path":"/price","value":1.75},{"op":"add","path":"/new","value":[]}]"#,
    ]);
    assert_eq!(house.done(&["get", "orders"]), "{\"item\":\"pen\",\"price\":1.75,\"new\":[]}\n");
    let failing = r#"[{"op":"remove","path":"/new"},{"op":"test","path":"/price","value":2}]"#;
    assert_ne!(house.run(&["patch", "orders", failing]).status.code(), Some(0));
    house.refuses(&["patch", "orders", "[{}]"], 2, "operation");
    house.done(&["patch", "orders", "--merge", r#"{"new":null,"price":2.00}"#]);
    assert_eq!(house.done(&["get", "orders"]), "{\"item\":\"pen\",\"price\":2.00}\n");
    assert_eq!(house.done(&["get", "orders", "--tag", "opening"]), "{\"item\":\"pen\",\"price\":1.50}\n");
    house.done(&["tag", "orders", "later", "2"]);
    assert_eq!(
        house.told(&["tag", "orders"])["tags"],
        json!([{"tag": "later", "revision": 2}, {"tag": "opening", "revision": 1}])
    );
    house.done(&["tag", "orders", "later", "--delete"]);
    assert!(!house.done(&["tag", "orders"]).contains("later"));
    house.refuses(&["get", "orders", "--tag", "later"], 3, "later");
    house.done(&["revert", "orders", "--tag", "opening"]);
    assert_eq!(house.told(&["list"])["documents"][0]["revision"], 4);
    let runs = house.run(&["history", "orders", "--pointer", "/price", "--json"]);
    let text = String::from_utf8(runs.stdout.clone()).unwrap();
    let rows = json(&runs)["runs"].as_array().unwrap().clone();
    let spans: Vec<_> = rows.iter().map(|row| (row["from_revision"].as_u64(), row["to_revision"].as_u64())).collect();
    assert_eq!(spans, [(Some(4), Some(4)), (Some(3), Some(3)), (Some(2), Some(2)), (Some(1), Some(1))]);
    assert!(text.contains("\"value\":2.00}"), "{text}");
    assert!(house.done(&["history", "orders", "--pointer", "/new"]).contains("nothing"));
    house.refuses(&["truncate", "orders", "2"], 2, "add --yes to drop revisions 3 to 4");
    house.done(&["truncate", "orders", "2", "--yes"]);
    assert_eq!(house.done(&["get", "orders", "--at", "$.price"]), "1.75\n");
    house.refuses(&["get", "orders", "-r", "3"], 3, "its newest is 2");
}

#[test]
fn a_diff_is_read_by_people_and_programs_and_applied_again() {
    let house = House::new();
    house.done(&["create", "orders", r#"{"item":"pen","price":1.50,"old":[1,2]}"#]);
    house.done(&["put", "orders", "1.75", "--at", "$.price"]);
    house.done(&[
        "patch",
        "orders",
        r#"[{"op":"remove","path":"/old"},{"op":"add","path":"/new","value":{"a":null}}]"#,
    ]);
    let shown = house.done(&["diff", "orders", "2", "3"]);
    assert_eq!(shown, "- \"/old\": [1,2]\n+ \"/new\": {\"a\":null}\n");
    assert_eq!(house.done(&["diff", "orders"]), shown, "the newest against the one before it");
    let back = house.done(&["diff", "orders", "3", "2"]);
    assert!(back.contains("- \"/new\": {\"a\":null}\n") && back.contains("+ \"/old\": [1,2]\n"), "{back}");
    let coloured = house.done(&["diff", "orders", "1", "2", "--colour", "always"]);
    assert!(
        coloured.starts_with("\u{1b}[31m- \"/price\": 1.50\u{1b}[0m\n\u{1b}[32m+ \"/price\": 1.75\u{1b}[0m\n"),
        "{coloured:?}"
    );
    assert!(!house.done(&["diff", "orders", "1", "2"]).contains('\u{1b}'), "a pipe is no terminal");
    let told = house.told(&["diff", "orders", "1", "3"]);
    assert_eq!((&told["old-revision"], &told["new-revision"]), (&json!(1), &json!(3)));
    assert!(told["diffs"].as_array().unwrap().len() >= 3, "{told}");
    let patch = house.done(&["diff", "orders", "3", "1", "--patch"]);
    house.done(&["patch", "orders", patch.trim()]);
    let first = house.done(&["get", "orders", "-r", "1", "--at", "$.old"]);
    assert_eq!(house.done(&["get", "orders", "--at", "$.old"]), first);
    let plain =
        |revision: &str| serde_json::from_str::<Value>(&house.done(&["get", "orders", "-r", revision])).unwrap();
    assert_eq!(plain("4"), plain("1"));
    assert_eq!(house.done(&["diff", "orders", "1", "2", "--merge"]), "{\"price\":1.75}\n");
    house.refuses(&["diff", "orders", "1", "9"], 3, "has no revision 9");
    // A new version of it keeps the keys of what it keeps.
    house.done(&["put", "orders", "--import", r#"{"item":"pen","price":3,"old":[1,2]}"#]);
    let key =
        |revision: &str| house.told(&["query", "orders", "$.item", "-r", revision])["results"][0]["node_key"].clone();
    assert_eq!(key("5"), key("1"));
}

#[test]
fn a_watch_tells_what_each_commit_changed_and_follows_while_others_write() {
    let house = House::new();
    house.done(&["create", "orders", r#"{"item":"pen","price":1.50}"#, "-m", "opening"]);
    house.done(&["put", "orders", "1.75", "--at", "$.price"]);
    let lines = |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let seen = lines(&house.done(&["watch", "orders", "--json"]));
    assert_eq!(seen.iter().map(|line| line["revision"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(seen[0]["changes"], json!([{"what": "inserted", "node_key": 1, "pointer": ""}]));
    let places: Vec<_> = seen[1]["changes"].as_array().unwrap().iter().map(|change| &change["pointer"]).collect();
    assert!(places.iter().all(|place| *place == "/price"), "{places:?}");
    assert!(house.done(&["watch", "orders"]).contains("  inserted \"\"\n"));
    assert_eq!(house.done(&["watch", "orders", "--after", "2"]), "");
    let mut command = command(&["docs", "watch", "orders", "--after", "2", "--follow", "--json"]);
    command.env("ASSENT_DOCS", house.0.path().join("house")).stdout(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    // Whoever writes meanwhile waits for the folder, and gets it.
    for price in ["2.00", "2.25", "2.50"] {
        house.done(&["put", "orders", price, "--at", "$.price"]);
    }
    let told: Vec<Value> = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .take(3)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(told.iter().map(|line| line["revision"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(house.done(&["get", "orders", "--at", "$.price"]), "2.50\n", "also after it was killed");
}

#[test]
fn damage_is_named_and_nothing_is_answered_over_it() {
    let house = House::new();
    let long = format!("[\"{}\"]", "x".repeat(100_000));
    house.fed(&["create", "a", "--file", "-"], long.as_bytes());
    house.done(&["create", "b", "[1]"]);
    let segment = segment(&house.0.path().join("house").join("docs"));
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(1000).position(|window| window.iter().all(|byte| *byte == b'x')).unwrap();
    bytes[at + 500] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    assert_eq!(house.unheard(&["verify"]).0, Some(13), "damage is damage, whoever hears of it");
    let output = house.run(&["verify", "--json"]);
    assert_eq!((output.status.code(), json(&output)["error"]["kind"].as_str()), (Some(13), Some("corrupt")));
    house.refuses(&["get", "a"], 13, "docs");
}

#[test]
fn who_reads_no_more_has_read_enough_and_what_was_done_is_told_as_done() {
    let house = House::new();
    house.done(&["create", "a", "[1,2,3]"]);
    // More than a pipe holds.
    house.fed(&["put", "a", "--file", "-"], format!("[{}0]", "\"some text\",".repeat(50_000)).as_bytes());
    for words in [
        &["get", "a"][..],
        &["get", "a", "--json"],
        &["query", "a", "$[*]"],
        &["query", "a", "$[*]", "--json"],
        &["diff", "a", "--patch"],
        &["diff", "a", "--merge"],
        &["diff", "a", "--json"],
        &["diff", "a"],
        &["history", "a"],
    ] {
        assert_eq!(house.unheard(words), (Some(0), String::new()), "{words:?}");
        let (code, said) = house.unsaid(words);
        assert!(code == Some(7) && said.contains("cannot write stdout"), "{words:?}: {code:?} {said}");
    }
    for words in [&["put", "a", "[7]"][..], &["tag", "a", "first", "1"], &["revert", "a", "1"], &["drop", "a"]] {
        let (code, said) = house.unsaid(words);
        assert!(code == Some(7) && said.contains("it was done, \"a\""), "{words:?}: {code:?} {said}");
    }
    assert_eq!(house.told(&["list"])["documents"], json!([]));
}

#[test]
fn a_history_says_that_there_is_more_of_it_and_moves_nobodys_cursor() {
    let house = House::new();
    house.done(&["create", "a", "[0]"]);
    for number in 1..=4 {
        house.done(&[
            "put",
            "a",
            &format!("[{number}]"),
            "--message",
            "ok\u{1b}[2J\u{9b}1A\u{202e}",
            "--author",
            "\rme",
        ]);
    }
    for words in [&["history", "a"][..], &["history", "a", "--pointer", "/0"]] {
        let all = house.told(words);
        let list = if words.len() == 2 { "revisions" } else { "runs" };
        assert_eq!((all[list].as_array().unwrap().len(), &all["more"]), (5, &json!(false)), "{all}");
        let some = house.told(&[words, &["--limit", "4"]].concat());
        assert_eq!((some[list].as_array().unwrap().len(), &some["more"]), (4, &json!(true)), "{some}");
        let output = house.run(&[words, &["--limit", "4"]].concat());
        assert!(String::from_utf8_lossy(&output.stderr).contains("there are more; --limit was 4"), "{output:?}");
        assert!(house.run(words).stderr.is_empty());
    }
    for words in [["history", "a"], ["watch", "a"]] {
        let said = house.done(&words);
        assert!(said.contains("ok\\u{1b}[2J\\u{9b}1A\\u{202e}"), "{said}");
        assert!(!said.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\r']), "{said:?}");
    }
}

/// The one segment of a small journal that has something.
fn segment(folder: &Path) -> std::path::PathBuf {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| std::fs::read(file).is_ok_and(|bytes| bytes.windows(100).any(|window| window == [b'x'; 100])));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}
