//! Revisions that are dropped, and the chain of those that stay.

use std::path::Path;
use std::sync::Arc;

use assent_docs::{Database, DocsError, Look, Meta, NodeKey, Value, Versioning};
use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_sim::{SimDice, SimDisk};

use super::tree::{push, read};
use super::{Desk, fresh, says};

/// A document with a number that is that of its revision.
fn counted(desk: &Desk, revisions: u32) -> (assent_docs::Document, NodeKey) {
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    let leaf = push(&mut edit, root, None, Value::Number("1"));
    edit.commit(&says("1")).unwrap();
    for number in 2..=revisions {
        set(&doc, leaf, &number.to_string());
    }
    (doc, leaf)
}

fn set(doc: &assent_docs::Document, leaf: NodeKey, digits: &str) -> u32 {
    let mut edit = doc.edit().unwrap();
    edit.set(leaf, Value::Number(digits)).unwrap();
    edit.commit(&says(digits)).unwrap().number()
}

#[test]
fn what_is_truncated_is_gone_and_its_numbers_are_those_of_what_comes_next() {
    let desk = fresh();
    let (doc, leaf) = counted(&desk, 9);
    let mut edit = doc.edit().unwrap();
    let dropped = push(&mut edit, doc.latest().value().unwrap(), None, Value::Null);
    edit.commit(&Meta::default()).unwrap();
    let held = doc.at(7).unwrap();
    let entries = desk.log.counts();
    assert_eq!(doc.truncate(4).unwrap().item(leaf).unwrap().text(), "4");
    let after = desk.log.counts();
    assert_eq!((after.entries - entries.entries, after.syncs - entries.syncs), (1, 1));
    assert_eq!((doc.latest().number(), doc.history(0..=99, 99).unwrap().len()), (4, 4));
    assert!(matches!(doc.at(5), Err(DocsError::NoRevision { newest: 4, .. })));
    assert_eq!(held.item(leaf).unwrap().text(), "7", "who holds it can read it");
    // Whatever was kept in memory of the old revision 5 is not shown for the new one.
    assert_eq!(set(&doc, leaf, "50"), 5);
    for (revision, text) in [(3, "3"), (4, "4"), (5, "50")] {
        assert_eq!(doc.at(revision).unwrap().item(leaf).unwrap().text(), text);
    }
    assert_eq!(doc.truncate(4).unwrap().number(), 4);
    let desk = desk.again();
    let doc = desk.db.document("orders").unwrap();
    assert_eq!((doc.latest().number(), doc.verify().unwrap()), (4, 4));
    let mut edit = doc.edit().unwrap();
    let new = push(&mut edit, doc.latest().value().unwrap(), None, Value::Null);
    assert!(new > dropped, "the key of a dropped node is not used again: {new} after {dropped}");
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    assert_eq!(doc.truncate(9).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(doc.truncate(0).unwrap().value(), None);
    let desk = desk.again();
    let doc = desk.db.document("orders").unwrap();
    assert_eq!((doc.latest().number(), read(&doc.latest()), doc.verify().unwrap()), (0, None, 0));
    let mut edit = doc.edit().unwrap();
    assert!(push(&mut edit, NodeKey::DOCUMENT, None, Value::Null) > new);
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 1);
    desk.db.drop_document("orders").unwrap();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    assert_eq!(push(&mut doc.edit().unwrap(), NodeKey::DOCUMENT, None, Value::Null), NodeKey(1), "another document");
}

#[test]
fn what_was_truncated_stays_so_behind_a_checkpoint_and_without_the_index() {
    let desk = fresh();
    let (doc, leaf) = counted(&desk, 9);
    desk.db.checkpoint().unwrap();
    doc.truncate(6).unwrap();
    desk.db.checkpoint().unwrap();
    assert_eq!(set(&doc, leaf, "70"), 7);
    let desk = desk.again();
    assert_eq!(desk.db.stats().replayed, 1);
    let (log, disk) = (Arc::clone(&desk.log), Arc::new(desk.disk.clone()));
    let clock = Arc::new(desk.clock.clone());
    let anew = Database::open(log, disk, clock, Path::new("anew"), desk.config).unwrap();
    for db in [&desk.db, &anew] {
        let doc = db.document("orders").unwrap();
        assert_eq!((doc.latest().number(), doc.verify().unwrap()), (7, 7));
        for (revision, text) in [(5, "5"), (6, "6"), (7, "70")] {
            assert_eq!(doc.at(revision).unwrap().item(leaf).unwrap().text(), text);
        }
        assert_eq!(doc.history(7..=7, 1).unwrap()[0].message, "70");
    }
}

#[test]
fn a_truncation_waits_for_the_writer_and_refuses_where_there_is_one() {
    let desk = fresh();
    let (doc, leaf) = counted(&desk, 3);
    let edit = doc.edit().unwrap();
    assert_eq!(doc.truncate(1).unwrap_err().kind(), Kind::Busy);
    drop(edit);
    let mut edit = doc.edit().unwrap();
    edit.set(leaf, Value::Number("4")).unwrap();
    drop(edit.commit_begin(&Meta::default()).unwrap());
    assert_eq!(doc.truncate(3).unwrap().item(leaf).unwrap().text(), "3", "after a commit for which nobody waited");
    assert_eq!((doc.latest().number(), doc.verify().unwrap()), (3, 3));
}

/// The same journal with one byte of one entry changed: as somebody would forge it, checksums and all.
fn forged(desk: &Desk, message: &[u8]) -> (SimDisk, Arc<Journal>) {
    let disk = SimDisk::new();
    let dice = Arc::new(SimDice::new(1));
    let opened =
        Journal::open(Arc::new(disk.clone()), Arc::new(desk.clock.clone()), dice, Path::new("log"), super::journal());
    let (log, _) = opened.unwrap();
    let mut forged = 0;
    for entry in desk.log.read(desk.log.oldest()).unwrap() {
        let mut entry = entry.unwrap();
        if let Some(at) = entry.payload.windows(message.len()).position(|window| window == message) {
            entry.payload[at] ^= 1;
            forged += 1;
        }
        assert_eq!(log.append(entry.kind, &[&entry.payload]).unwrap().lsn, entry.lsn);
        log.sync().unwrap();
    }
    assert_eq!(forged, 1);
    (disk, log)
}

#[test]
fn a_revision_that_is_not_the_one_on_which_its_successor_stands_is_refused_and_named() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    edit.commit(&says("what was said")).unwrap();
    set(&doc, leaf, "2");
    set(&doc, leaf, "3");
    assert_eq!(doc.verify().unwrap(), 3);
    let (disk, log) = forged(&desk, b"what was said");
    let open =
        |log, disk| Database::open(log, Arc::new(disk), Arc::new(desk.clock.clone()), Path::new("index"), desk.config);
    let error = open(log, disk).unwrap_err();
    assert!(
        matches!(&error, DocsError::Record { what, .. } if what.contains("is not the one that is there")),
        "{error}"
    );
    // An index that knows what was published knows it is another one.
    desk.db.checkpoint().unwrap();
    let (_, log) = forged(&desk, b"what was said");
    let db = open(log, desk.disk.clone()).unwrap();
    assert_eq!(db.stats().replayed, 0);
    let doc = db.document("orders").unwrap();
    assert_eq!(doc.latest().item(leaf).unwrap().text(), "3");
    for error in [doc.verify().unwrap_err(), doc.at(1).unwrap_err()] {
        assert!(matches!(error, DocsError::Damaged { revision: 1, .. }), "{error}");
    }
}

#[test]
fn names_of_a_dropped_revision_that_comes_back_by_a_revert_stay_whose_they_are() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    push(&mut edit, root, Some("a"), Value::Null);
    edit.commit(&says("1")).unwrap();
    let mut edit = doc.edit().unwrap();
    push(&mut edit, root, Some("b"), Value::Null);
    let dropped = edit.commit(&says("2")).unwrap();
    doc.truncate(1).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.revert(&dropped).unwrap();
    push(&mut edit, root, Some("c"), Value::Null);
    let newest = edit.commit(&says("3")).unwrap();
    assert_eq!(assent_docs::Form::default().text(&newest).unwrap(), r#"{"a":null,"b":null,"c":null}"#);
    newest.verify().unwrap();
}

#[test]
fn a_document_that_was_forgotten_and_loaded_again_shows_no_dropped_revision() {
    let desk = fresh();
    let (doc, leaf) = counted(&desk, 5);
    (1..5).for_each(|number| _ = doc.at(number).unwrap());
    doc.truncate(2).unwrap();
    (3..7).for_each(|number| _ = set(&doc, leaf, &(number * 100).to_string()));
    let third = assent_docs::Form::default().text(&doc.at(3).unwrap()).unwrap();
    drop(doc);
    // More documents than are remembered.
    for number in 0..4200 {
        desk.db.create(&format!("other-{number}"), Versioning::default()).unwrap();
    }
    let again = desk.db.document("orders").unwrap();
    assert_eq!(assent_docs::Form::default().text(&again.at(3).unwrap()).unwrap(), third);
    assert_eq!(third, "[300]");
}
