//! Values and patches of a document, on a disk in memory. Nothing is committed.
#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use assent_docs::{At, Config, Database, Document, Meta, NodeKey, Versioning};
use assent_journal::Journal;
use assent_sim::{SimClock, SimDice, SimDisk};

const JSON: &str = r#"{"a":[1,{"b":[]},"x"],"c":{"d":null,"e":[7,8,9]},"a/b~":0}"#;

static DOCUMENTS: LazyLock<[Document; 2]> = LazyLock::new(|| {
    let (disk, clock, dice) = (Arc::new(SimDisk::new()), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let kept = assent_journal::Config { kept_until_released: true, ..Default::default() };
    let (log, _) = Journal::open(disk.clone(), clock.clone(), dice, Path::new("log"), kept).expect("a journal");
    let db = Database::open(log, disk, clock, Path::new("index"), Config::default()).expect("a database");
    ["", JSON].map(|json| {
        let doc = db.create(if json.is_empty() { "empty" } else { "patched" }, Versioning::default()).expect("a document");
        let mut edit = doc.edit().expect("its writer");
        if !json.is_empty() {
            edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).expect("a value");
        }
        edit.commit(&Meta::default()).expect("a commit");
        doc
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [empty, patched] = &*DOCUMENTS;
    assent_docs::fuzzing::fuzz_json(empty, bytes);
    assent_docs::fuzzing::fuzz_patch(patched, bytes);
});
