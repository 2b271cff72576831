//! What a walk costs: entries, writes, syncs and bytes are counted, and the count is the gate.

use std::path::Path;
use std::sync::Arc;

use assent_docs::{At, Config, Database, Document, Look, Meta, NodeKey, Value, Versioning};
use assent_journal::{Journal, Log as _};
use assent_world::{RealClock, RealDice, RealDisk};

use super::tree::push;
use super::{Desk, fresh, fresh_with};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    entries: u64,
    writes: u64,
    syncs: u64,
    bytes: u64,
    /// Of the disk, of any sort: an open, a rename, a listing would be one more.
    calls: u64,
}

fn cost<T>(desk: &Desk, walk: impl FnOnce() -> T) -> (Cost, T) {
    let (before, calls) = (desk.log.counts(), desk.disk.calls());
    let end = desk.log.end().0;
    let done = walk();
    let calls = desk.disk.calls() - calls;
    let after = desk.log.counts();
    let bytes = desk.log.end().0 - end;
    let (entries, writes) = (after.entries - before.entries, after.writes - before.writes);
    (Cost { entries, writes, syncs: after.syncs - before.syncs, bytes, calls }, done)
}

fn tiny(desk: &Desk) -> (Document, NodeKey) {
    let doc = desk.db.create("tiny", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    push(&mut edit, root, Some("name"), Value::String("ann"));
    let count = push(&mut edit, root, Some("count"), Value::Number("10000"));
    edit.commit(&Meta::default()).unwrap();
    (doc, count)
}

fn set(doc: &Document, key: NodeKey, number: u64) {
    let mut edit = doc.edit().unwrap();
    edit.set(key, Value::Number(&number.to_string())).unwrap();
    edit.commit(&Meta::default()).unwrap();
}

/// As deep as a minute allows where a gate has one.
fn deepest() -> u64 {
    let seconds = std::env::var("ASSENT_GATE_SECONDS").ok().and_then(|text| text.trim().parse::<u64>().ok());
    if seconds.is_some_and(|seconds| seconds >= 60) { 1_000_000 } else { 20_000 }
}

#[test]
fn gate_a_changed_field_is_one_entry_one_write_one_sync_and_the_same_few_bytes_at_any_depth() {
    let desk = fresh();
    let (doc, count) = tiny(&desk);
    let deepest = deepest();
    let mut costs = Vec::new();
    for number in 0..deepest {
        let (cost, ()) = cost(&desk, || set(&doc, count, 10_001 + number % 80_000));
        if [10, 1000, 10_000, deepest - 1].contains(&number) {
            costs.push(cost);
        }
        // What a server does beside it; the next commit costs what each does.
        if number % 5000 == 4990 {
            desk.db.tick();
        }
    }
    println!("{deepest} deep: {costs:?}");
    assert!(costs[0].bytes <= 200, "{costs:?}");
    assert_eq!((costs[0].entries, costs[0].writes, costs[0].syncs), (1, 1, 1));
    // Nothing is opened, renamed, listed or asked beside.
    assert!(costs[0].calls <= 2, "{costs:?}");
    assert!(costs.len() == 4 && costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
    // And an open reads as little, and any revision is as near.
    let desk = desk.again();
    let before = desk.disk.calls();
    let doc = desk.db.document("tiny").unwrap();
    let opened = desk.disk.calls() - before;
    let reads = [1, 2 + deepest / 2, deepest].map(|revision| {
        let before = desk.disk.calls();
        assert_eq!(doc.at(u32::try_from(revision).unwrap()).unwrap().value(), Some(NodeKey(1)));
        desk.disk.calls() - before
    });
    println!("{opened} calls to open a document, {reads:?} to open a revision");
    assert!(opened <= 8 && reads.iter().all(|calls| *calls <= 8), "{opened} {reads:?}");
}

/// So many commits: what they cost is counted from outside, by scripts/docs-instructions.
#[inline(never)]
fn counted_commits(doc: &Document, key: NodeKey) {
    (0..100).for_each(|number| set(doc, key, 90_000 + number));
}

/// A database as a server has it: no commit makes a segment within megabytes.
fn open_in(folder: &Path) -> (Arc<Journal>, Database) {
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let kept = assent_journal::Config { kept_until_released: true, log_size: 64 << 20, ..Default::default() };
    let (log, _) =
        Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), kept).expect("the journal");
    let config = Config { trims: true, ..Config::default() };
    let db = Database::open(log.clone(), disk, clock, &folder.join("index"), config).expect("the database");
    (log, db)
}

/// The processes whose instructions are counted: the first makes a history in a folder, another one opens it, makes some commits and is
/// counted from there. As a test of its own it does nothing.
#[test]
fn the_commits_that_are_counted() {
    let said = |name: &str| std::env::var(name).ok();
    let Some(folder) = said("ASSENT_DOCS_FOLDER") else { return };
    let number = |name: &str| said(name).and_then(|text| text.parse::<u64>().ok());
    let (log, db) = open_in(Path::new(&folder));
    if let Some(depth) = number("ASSENT_DOCS_DEPTH") {
        let doc = db.create("tiny", Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
        let count = push(&mut edit, root, Some("count"), Value::Number("10000"));
        edit.commit(&Meta::default()).unwrap();
        for number in 1..depth {
            set(&doc, count, 10_001 + number % 70_000);
            if number % 5000 == 0 {
                db.tick();
            }
        }
        assert_eq!(u64::from(doc.latest().number()), depth);
    } else {
        let doc = db.document("tiny").unwrap();
        let value = doc.latest().value().unwrap();
        let count = doc.latest().member(value, "count").unwrap().unwrap();
        (0..number("ASSENT_DOCS_BEFORE").unwrap()).for_each(|number| set(&doc, count, 10_000 + number % 70_000));
        counted_commits(&doc, count);
    }
    db.checkpoint().unwrap();
    log.close().unwrap();
}

#[test]
fn a_changed_field_of_a_document_of_ten_megabytes_is_one_entry_of_a_few_hundred_bytes() {
    let desk = fresh_with(Config { cache_bytes: 256 << 20, ..Config::default() });
    let doc = desk.db.create("large", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    // Ten megabytes as JSON text: an object of three members is 200 bytes.
    let text = "x".repeat(150);
    let mut fields = Vec::new();
    for number in 0..50_000_u64 {
        let object = push(&mut edit, root, None, Value::Object);
        push(&mut edit, object, Some("name"), Value::String(&text));
        fields.push(push(&mut edit, object, Some("count"), Value::Number(&(100_000 + number).to_string())));
    }
    edit.commit(&Meta::default()).unwrap();
    let (mut most, mut all) = (0, 0);
    for number in 0..500 {
        let field = fields[number * 97];
        let (cost, ()) = cost(&desk, || set(&doc, field, 200_000));
        assert_eq!((cost.entries, cost.writes, cost.syncs), (1, 1, 1), "commit {number}");
        (most, all) = (most.max(cost.bytes), all + cost.bytes);
    }
    // And one field again and again.
    for number in 0..200 {
        let (cost, ()) = cost(&desk, || set(&doc, fields[7], 300_000 + number));
        assert_eq!((cost.entries, cost.writes, cost.syncs), (1, 1, 1), "commit {number}");
        (most, all) = (most.max(cost.bytes), all + cost.bytes);
    }
    let average = all / 700;
    println!("{average} bytes on average, at most {most}");
    // Now and then a page of the trie is written whole.
    assert!(average <= 512 && most <= 2048, "{average} bytes on average, at most {most}");
    assert_eq!(doc.latest().item(fields[7]).unwrap().text(), "300199");
}

#[test]
fn commits_of_many_documents_share_a_sync() {
    let desk = fresh();
    let docs: Vec<Document> =
        (0..16).map(|number| desk.db.create(&number.to_string(), Versioning::default()).unwrap()).collect();
    let begin = |doc: &Document| {
        let mut edit = doc.edit().unwrap();
        edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Null).unwrap();
        edit.commit_begin(&Meta::default()).unwrap()
    };
    let (cost, ()) = cost(&desk, || {
        let pending: Vec<_> = docs.iter().map(begin).collect();
        pending.into_iter().rev().for_each(|pending| _ = pending.wait().unwrap());
    });
    assert_eq!((cost.entries, cost.writes, cost.syncs), (16, 1, 1));
    assert!(docs.iter().all(|doc| doc.latest().number() == 1));
}

#[test]
fn what_changes_nothing_and_what_is_dropped_costs_nothing() {
    let desk = fresh();
    let (doc, count) = tiny(&desk);
    let (cost, ()) = cost(&desk, || {
        set(&doc, count, 10_000);
        let mut edit = doc.edit().unwrap();
        edit.set(count, Value::Null).unwrap();
        drop(edit);
        assert_eq!(doc.latest().number(), 1);
    });
    assert_eq!(cost, Cost { entries: 0, writes: 0, syncs: 0, bytes: 0, calls: 0 });
}
