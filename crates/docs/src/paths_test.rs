//! What documents keep of their paths from one edit to the next.

use std::path::Path as File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use assent_journal::Journal;
use assent_sim::{SimClock, SimDice, SimDisk};

use super::NUMBERS_MAX;
use crate::{At, Config, Database, Diff, DocsError, Document, Look, Meta, NodeKey, Scope, Value, Versioning};

fn database() -> Database {
    database_with(Config::default())
}

fn database_with(config: Config) -> Database {
    let (disk, clock) = (Arc::new(SimDisk::new()), Arc::new(SimClock::new()));
    let kept = assent_journal::Config { kept_until_released: true, ..Default::default() };
    let (log, _) =
        Journal::open(disk.clone(), clock.clone(), Arc::new(SimDice::new(1)), File::new("log"), kept).unwrap();
    Database::open(log, disk, clock, File::new("index"), config).unwrap()
}

/// An object with so many members.
fn document(db: &Database, name: &str, members: u32) -> Document {
    let doc = db.create(name, Versioning::default()).unwrap();
    let members: Vec<String> = (0..members).map(|number| format!("\"u{number}\":{number}")).collect();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, format!("{{{}}}", members.join(",")).as_bytes()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    doc
}

fn is_kept(doc: &Document) -> bool {
    let head = doc.doc.head.get();
    doc.doc.known_paths(&head.paths, head.next_path).is_some()
}

fn insert(doc: &Document, name: &str) -> crate::Edit {
    let mut edit = doc.edit().unwrap();
    let root = edit.value().unwrap();
    edit.insert(At::Last(root), Some(name), Value::Null).unwrap();
    edit
}

#[test]
fn paths_are_kept_however_many_and_whatever_becomes_of_an_edit() {
    // More than 65,536 names were not kept: each new node cost a walk over all of them; and a dropped edit had taken them along.
    let db = database();
    let doc = document(&db, "a", 70_000);
    assert!(is_kept(&doc), "by the commit that made them");
    drop(insert(&doc, "dropped"));
    assert!(is_kept(&doc), "by an edit that was dropped");
    insert(&doc, "new").commit(&Meta::default()).unwrap();
    assert!(is_kept(&doc), "with a new one");
    let mut edit = insert(&doc, "another");
    assert!(
        edit.patch(br#"[{"op":"add","path":"/x","value":1},{"op":"test","path":"","value":1}]"#.as_slice()).is_err()
    );
    edit.insert(At::Last(edit.value().unwrap()), Some("x"), Value::Null).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    assert!(is_kept(&doc), "behind a patch that failed");
    let mut edit = doc.edit().unwrap();
    let root = edit.value().unwrap();
    // What fails has made paths that are forgotten; their numbers are given again.
    assert!(edit.insert_json(At::Last(root), Some("y"), br#"{"p":1,"q":{"r":2},"p":3}"#.as_slice()).is_err());
    edit.insert_json(At::Last(root), Some("z"), br#"{"q":{"p":1},"r":2}"#.as_slice()).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    let newest = insert(&doc, "last").commit(&Meta::default()).unwrap();
    newest.verify().unwrap();
    for (pointer, is_there) in [("/z/q/p", true), ("/z/r", true), ("/y", false), ("/dropped", false), ("/last", true)] {
        assert_eq!(newest.at_pointer(pointer).unwrap().is_some(), is_there, "{pointer}");
    }
    // A revert, and new names behind it.
    let mut edit = doc.edit().unwrap();
    edit.revert(&doc.at(1).unwrap()).unwrap();
    edit.insert(At::Last(root), Some("new"), Value::Bool(true)).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    assert!(is_kept(&doc));
}

#[test]
fn all_documents_together_keep_so_much_and_give_it_back() {
    let db = database();
    let taken = |db: &Database| db.store.path_bytes.load(Ordering::Relaxed);
    let doc = document(&db, "a", 1000);
    let one = taken(&db);
    assert!((40_000..60_000).contains(&one), "{one} bytes");
    insert(&doc, "b").commit(&Meta::default()).unwrap();
    assert!((one + 40..one + 100).contains(&taken(&db)), "{} bytes", taken(&db));
    // Nothing is left for another one: it does without.
    db.store.path_bytes.fetch_add(64 << 20, Ordering::Relaxed);
    let other = document(&db, "b", 10);
    insert(&other, "c").commit(&Meta::default()).unwrap().verify().unwrap();
    assert!(!is_kept(&other));
    db.store.path_bytes.fetch_sub(64 << 20, Ordering::Relaxed);
    db.drop_document("a").unwrap();
    drop(doc);
    assert_eq!(taken(&db), 0);
}

#[test]
fn as_many_paths_as_configured_and_not_one_more() {
    // The names of an edit's new paths were all in memory, however many and however long.
    let db = database_with(Config { paths_max: 10, ..Config::default() });
    let doc = document(&db, "a", 9);
    let mut edit = doc.edit().unwrap();
    let root = edit.value().unwrap();
    let refused = edit.insert(At::Last(root), Some("one more"), Value::Null).unwrap_err();
    assert_eq!(refused.to_string(), "the distinct paths of a document of 11; at most 10 is taken");
    let first = edit.member(root, "u0").unwrap().unwrap();
    let refused = edit.replace(first, br#"{"deeper":1}"#.as_slice()).unwrap_err();
    assert!(matches!(refused, DocsError::Size { size: 11, limit: 10, .. }), "{refused}");
    edit.remove(edit.member(root, "u3").unwrap().unwrap()).unwrap();
    edit.insert(At::Last(root), Some("u3"), Value::Bool(true)).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    assert_eq!(doc.latest().paths().unwrap().len(), 10);
}

fn remove(doc: &Document, name: &str) -> crate::Edit {
    let mut edit = doc.edit().unwrap();
    let member = edit.member(edit.value().unwrap(), name).unwrap().unwrap();
    edit.remove(member).unwrap();
    edit
}

#[test]
fn a_name_that_no_node_has_any_more_does_not_count() {
    // A map of session ids took no new one after as many as configured had ever been, though few were there.
    let db = database_with(Config { paths_max: 10, ..Config::default() });
    let doc = document(&db, "a", 7);
    for number in 0..20 {
        let name = format!("session {number}");
        insert(&doc, &name).commit(&Meta::default()).unwrap();
        let mut edit = remove(&doc, &name);
        // And one that comes and goes in one edit.
        let key = edit.insert(At::Last(edit.value().unwrap()), Some("passing"), Value::Null).unwrap();
        edit.remove(key).unwrap();
        edit.commit(&Meta::default()).unwrap().verify().unwrap();
        assert!(is_kept(&doc));
        if number % 5 == 4 {
            // As after a reopening: whoever needs them next walks over all.
            drop(doc.doc.take_paths());
        }
    }
    insert(&doc, "v").commit(&Meta::default()).unwrap();
    insert(&doc, "w").commit(&Meta::default()).unwrap();
    remove(&doc, "u3").commit(&Meta::default()).unwrap();
    assert!(is_kept(&doc), "by who needed none of them");
    insert(&doc, "x").commit(&Meta::default()).unwrap();
    for _ in 0..2 {
        let mut edit = doc.edit().unwrap();
        let refused = edit.insert(At::Last(edit.value().unwrap()), Some("y"), Value::Null).unwrap_err();
        assert!(matches!(refused, DocsError::Size { size: 11, limit: 10, .. }), "{refused}");
        drop(doc.doc.take_paths());
    }
    assert_eq!(doc.latest().paths().unwrap().len(), 10);
}

#[test]
fn a_name_that_comes_again_is_the_same_to_whoever_compares_whatever_its_number() {
    let db = database();
    let doc = document(&db, "a", 3);
    let first = doc.latest();
    let key = first.member(first.value().unwrap(), "u1").unwrap().unwrap();
    let id = |name: &str| {
        let paths = doc.latest().paths().unwrap();
        let ids: Vec<u64> = paths.iter().filter(|path| path.path.contains(name)).map(|path| path.id).collect();
        assert!(ids.len() <= 1, "{name} once: {paths:?}");
        ids.first().copied()
    };
    let before = id("u1");
    for (name, is_walked) in [("x", true), ("u1", false), ("x", false), ("u1", true)] {
        let mut edit = doc.edit().unwrap();
        edit.rename(key, name).unwrap();
        edit.commit(&Meta::default()).unwrap().verify().unwrap();
        if is_walked {
            drop(doc.doc.take_paths());
        }
    }
    assert_ne!(id("u1"), before, "the table was filled while no node had it");
    assert!(Diff::walked(&first, &doc.latest(), Scope::default()).unwrap().differences().is_empty());
    // Back where the first number is the one that counts; and from there on.
    let mut edit = doc.edit().unwrap();
    edit.revert(&first).unwrap();
    edit.rename(key, "y").unwrap();
    edit.rename(key, "u1").unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    assert_eq!((id("u1"), id("x")), (before, None));
    assert!(Diff::walked(&first, &doc.latest(), Scope::default()).unwrap().differences().is_empty());
}

#[test]
fn numbers_of_paths_end_with_a_refusal() {
    let db = database();
    let doc = document(&db, "a", 3);
    let mut edit = doc.edit().unwrap();
    let root = edit.value().unwrap();
    edit.paths.next = NUMBERS_MAX;
    edit.insert(At::Last(root), Some("last"), Value::Null).unwrap();
    let refused = edit.insert(At::Last(root), Some("beyond"), Value::Null).unwrap_err();
    assert!(matches!(refused, DocsError::Size { limit: NUMBERS_MAX, .. }), "{refused}");
    drop(edit);
    insert(&doc, "more").commit(&Meta::default()).unwrap().verify().unwrap();
}

#[test]
fn a_long_name_is_the_last_of_its_page_so_that_pages_stay_small() {
    // Names of sixteen megabytes were in one page until it was more than an entry of the journal takes.
    let db = database();
    let doc = document(&db, "a", 0);
    let (below, long) = ("x".repeat((64 << 10) - 1), "y".repeat(64 << 10));
    let longer = long.clone() + "y";
    for name in [&below, &long, &longer, "short"] {
        insert(&doc, name).commit(&Meta::default()).unwrap();
    }
    let paths = doc.latest().paths().unwrap();
    assert_eq!(paths.iter().map(|path| path.id).collect::<Vec<_>>(), [1, 2, 3, 256, 512]);
    drop(doc.doc.take_paths());
    let mut edit = remove(&doc, &long);
    edit.insert(At::Last(edit.value().unwrap()), Some(&long), Value::Null).unwrap();
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    let ids: Vec<u64> = doc.latest().paths().unwrap().iter().map(|path| path.id).collect();
    assert_eq!(ids, [1, 2, 3, 256, 512], "they are found again");
}

#[test]
fn a_rename_or_a_move_that_is_refused_in_its_middle_is_not_committed() {
    // Some of what is below had its new path then, and the rest its old one: a revision that does not hold together.
    let db = database_with(Config { paths_max: 7, ..Config::default() });
    let doc = db.create("a", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let json = br#"[{"a":{"b":1,"c":2}},{"a":{"b":1,"c":2}}]"#;
    let root = edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_slice()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let member = |edit: &crate::Edit| {
        let first = edit.item(root).unwrap().node.first.unwrap();
        edit.member(first, "a").unwrap().unwrap()
    };
    for is_move in [false, true] {
        let mut edit = doc.edit().unwrap();
        let key = member(&edit);
        let parent = edit.item(key).unwrap().node.parent;
        let renamed = if is_move { edit.relocate(key, At::Last(parent), Some("z")) } else { edit.rename(key, "z") };
        let refused = DocsError::Size { part: "the distinct paths of a document", size: 8, limit: 7 };
        assert_eq!(renamed, Err(refused.clone()));
        assert_eq!(edit.commit(&Meta::default()).map(|revision| revision.number()), Err(refused));
    }
    doc.latest().verify().unwrap();
}

#[test]
fn many_new_paths_are_laid_before_they_fill_the_memory() {
    let db = database_with(Config { edit_nodes_max: 64, ..Config::default() });
    let doc = db.create("a", Versioning::default()).unwrap();
    let name = "n".repeat(4000);
    let members: Vec<String> = (0..5000).map(|number| format!("\"{name}{number}\":{{\"x\":1}}")).collect();
    let mut edit = doc.edit().unwrap();
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, format!("{{{}}}", members.join(",")).as_bytes()).unwrap();
    assert!(edit.paths.drafts.len() <= 65, "{} paths in memory", edit.paths.drafts.len());
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    let paths = doc.latest().paths().unwrap();
    assert_eq!((paths.len(), paths.iter().all(|path| path.references == 1)), (10_001, true));
}

#[test]
fn the_paths_of_a_revision_are_told_as_long_as_they_are_not_too_long_together() {
    // Each path names all steps before it: a value nested deeply has paths that take the square of its depth.
    let db = database();
    let name = "n".repeat(150);
    let nested = |depth: usize| format!("{}1{}", format!("{{\"{name}\":").repeat(depth), "}".repeat(depth));
    let paths = |name: &str, depth: usize| {
        let doc = db.create(name, Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        edit.insert_json(At::Last(NodeKey::DOCUMENT), None, nested(depth).as_bytes()).unwrap();
        edit.commit(&Meta::default()).unwrap().paths()
    };
    let told = paths("a", 900).unwrap();
    assert_eq!(told.iter().map(|path| path.level).collect::<Vec<_>>(), (1..=901).collect::<Vec<_>>());
    assert_eq!(told[900].path, format!("${}", format!("[{name:?}]").repeat(900)));
    assert!(matches!(paths("b", 1000).unwrap_err(), DocsError::Size { limit: 67_108_864, .. }));
}
