//! Any bytes for an entry, a page or JSON get an answer.

use assent_docs::fuzzing::{fuzz_entry, fuzz_json, fuzz_page, fuzz_patch};
use assent_docs::{At, Form, KIND_PAGE, Meta, NodeKey, Versioning};
use assent_journal::Log;
use assent_kind::Kind;

use super::fresh;
use super::tree::read;

/// The payloads of a small database, and the fragments among them.
fn good() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let desk = fresh();
    let doc = desk.db.create("a", Versioning::default()).unwrap();
    let many = format!("[{}]", vec!["12"; 300].join(","));
    for json in [r#"{"a":[1,"x",{"b":null}],"c":true}"#, "[[],{}]", &many] {
        let mut edit = doc.edit().unwrap();
        match doc.latest().number() {
            0 => _ = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap(),
            _ => _ = edit.replace(NodeKey(2), json.as_bytes()).or_else(|_| edit.replace(NodeKey(1), json.as_bytes())),
        }
        edit.commit(&Meta::default()).unwrap();
    }
    let mut anew = doc.edit().unwrap().anew(Versioning::Full).unwrap();
    anew.insert_json(At::Last(NodeKey::DOCUMENT), None, b"[1]".as_slice()).unwrap();
    anew.commit(&Meta::default()).unwrap();
    let entries: Vec<_> = desk.log.read(desk.log.start()).unwrap().map(Result::unwrap).collect();
    // Behind version, document and page, of one byte each but for the page's two.
    let pages = entries.iter().filter(|entry| entry.kind == KIND_PAGE);
    let pages = pages.map(|entry| [&[255], &entry.payload[4..entry.payload.len().min(259)]].concat()).collect();
    (entries.into_iter().map(|entry| entry.payload).collect(), pages)
}

#[test]
fn fuzz_entries() {
    let (entries, _) = good();
    let corpus: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
    let runs = assent_sim::fuzz(1, &corpus, fuzz_entry);
    assert!(runs > 1000, "{runs}");
}

#[test]
fn fuzz_pages() {
    let (_, pages) = good();
    // One record of each sort: a string with all its links, what leads to a page, an empty slot, a patch over it.
    let small: [&[u8]; 3] = [
        b"\x0a\x01\x00\x83\x05\x01x\x03\x01\x01\x00",
        b"\x03\x01\x00\x01",
        b"\x04\x01\x00\x02\x00\x05\x01\x00\x03\x01y",
    ];
    let corpus: Vec<&[u8]> = pages.iter().map(Vec::as_slice).chain(small).collect();
    let runs = assent_sim::fuzz(2, &corpus, fuzz_page);
    assert!(runs > 1000, "{runs}");
}

#[test]
fn fuzz_values() {
    let desk = fresh();
    let doc = desk.db.create("a", Versioning::default()).unwrap();
    let corpus: [&[u8]; 4] = [
        br#"{"a":[1.5e+7,-0,"x\u00e4\ud83d\ude00\n"],"b":{"c":null,"d":[true,false]}}"#,
        b"[[[]]]",
        b"\"\xc3\xa4\"",
        b"",
    ];
    let runs = assent_sim::fuzz(3, &corpus, |bytes| {
        fuzz_json(&doc, bytes);
        let mut edit = doc.edit().unwrap();
        match edit.insert_json(At::Last(NodeKey::DOCUMENT), None, bytes) {
            Ok(key) => {
                let text = Form::default().text(&edit).unwrap();
                let tree = read(&edit);
                let again = edit.replace(key, text.as_bytes()).unwrap();
                assert_eq!(Form { start: Some(again), ..Form::default() }.text(&edit).unwrap(), text);
                assert_eq!(tree.map(|tree| tree.count()), read(&edit).map(|tree| tree.count()));
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Invalid, "{error}");
                assert_eq!(read(&edit), None);
            }
        }
    });
    assert!(runs > 1000, "{runs}");
}

#[test]
fn fuzz_patches() {
    let desk = fresh();
    let doc = desk.db.create("a", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let json = br#"{"a":[1,{"b":[]},"x"],"c":{"d":null,"e":[7,8,9]},"a/b~":0}"#.as_slice();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let corpus: [&[u8]; 6] = [
        br#"[{"op":"add","path":"/a/1","value":[1]},{"op":"remove","path":"/a/0"},{"op":"test","path":"/a/1/b","value":[]}]"#,
        br#"[{"op":"move","from":"/c/e/0","path":"/a/-"},{"op":"copy","from":"/c","path":"/a/0"},{"op":"replace","path":"/c/d","value":1e0}]"#,
        br#"[{"op":"move","from":"/a/1","path":"/c/e/2"},{"op":"add","path":"/a~1b~0","value":{}},{"op":"remove","path":"/c/e/1"}]"#,
        br#"[{"op":"copy","from":"","path":"/x"},{"op":"replace","path":"","value":{"a":[]}},{"op":"add","path":"/a/0","value":""}]"#,
        br#"{"a":null,"c":{"d":1,"e":{"f":null,"g":[null]}},"new":{"h":{}}}"#,
        b"[]",
    ];
    let runs = assent_sim::fuzz(5, &corpus, |bytes| fuzz_patch(&doc, bytes));
    assert!(runs > 1000, "{runs}");
    assert_eq!(doc.latest().number(), 1);
}
