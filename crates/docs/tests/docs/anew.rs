//! A document in the place of another: in one entry, so that under its name there is always one of the two.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use assent_docs::{At, Config, Database, DocsError, Edit, Form, KIND_REPLACE, Look, Meta, NodeKey, Once, Versioning};
use assent_ids::Xid;
use assent_journal::Log as _;
use assent_kind::Kind;
use assent_sim::{SimClock, SimDisk};

use super::{Desk, fresh, fresh_with, journal, open_with, says};

const NAME: &str = "orders";

fn put(edit: &mut Edit, json: &str) -> NodeKey {
    edit.insert_json(At::Last(NodeKey::DOCUMENT), None, json.as_bytes()).unwrap()
}

fn text(look: &impl Look) -> String {
    Form::default().text(look).unwrap()
}

/// A document of three revisions, one of them with a tag.
fn old(desk: &Desk) -> assent_docs::Document {
    let doc = desk.db.create(NAME, Versioning::Differential).unwrap();
    for number in 1..=3 {
        let mut edit = doc.edit().unwrap();
        if let Some(value) = edit.value() {
            edit.remove(value).unwrap();
        }
        put(&mut edit, &format!("[{number}]"));
        edit.commit(&says(&number.to_string())).unwrap();
    }
    doc.tag("release", 2).unwrap();
    doc
}

/// Whatever was there before is not.
fn is_new(db: &Database, json: &str) {
    let doc = db.document(NAME).unwrap();
    assert_eq!((doc.latest().number(), text(&doc.latest()).as_str()), (1, json));
    assert_eq!(doc.versioning(), Versioning::Full);
    assert_eq!((doc.history(0..=99, 99).unwrap().len(), doc.tags(None, 99).unwrap().len()), (1, 0));
    assert_eq!(doc.verify().unwrap(), 1);
    assert_eq!(db.names(None, 99).unwrap(), [NAME]);
}

#[test]
fn who_waits_for_a_document_that_is_replaced_gets_the_one_that_came_but_waits_for_all_of_them_no_longer_than_for_one() {
    type Work = fn(&Database) -> Result<(), DocsError>;
    const WAIT_MS: u64 = 60_000;
    let works: [Work; 2] = [|db| db.edit(NAME).map(|edit| assert_eq!(text(&edit), "{}")), |db| db.drop_document(NAME)];
    for (number, work) in works.into_iter().enumerate() {
        for (later_ms, is_late) in [(0, false), (WAIT_MS, false), (WAIT_MS + 1, true)] {
            let config = Config { trims: true, writer_wait_ms: WAIT_MS, ..Config::default() };
            let desk = open_with(&SimDisk::new(), &SimClock::new(), 1, journal(), config);
            let doc = old(&desk);
            let held = doc.edit().unwrap();
            let done = thread::scope(|scope| {
                let waiter = scope.spawn(|| work(&desk.db));
                while doc.waiting() == 0 {
                    thread::yield_now();
                }
                desk.clock.advance(Duration::from_millis(later_ms));
                let mut anew = held.anew(Versioning::Full).unwrap();
                put(&mut anew, "{}");
                anew.commit(&says("anew")).unwrap();
                waiter.join().unwrap()
            });
            if is_late {
                assert_eq!(done, Err(DocsError::Busy { name: NAME.to_owned(), waited_ms: WAIT_MS }), "{number}");
                is_new(&desk.db, "{}");
            } else {
                assert_eq!(done, Ok(()), "{number}, {later_ms} ms");
            }
        }
    }
}

#[test]
fn one_entry_and_one_sync_put_a_document_in_the_place_of_another_for_good() {
    let desk = fresh();
    let doc = old(&desk);
    let held = doc.at(2).unwrap();
    let before = desk.log.counts();
    let mut anew = doc.edit().unwrap().anew(Versioning::Full).unwrap();
    assert_eq!((anew.value(), put(&mut anew, r#"{"a":[true]}"#)), (None, NodeKey(1)), "keys begin anew");
    assert_eq!((text(&doc.latest()).as_str(), doc.edit().unwrap_err().kind()), ("[3]", Kind::Busy), "until then");
    let revision = anew.commit(&says("anew")).unwrap();
    let after = desk.log.counts();
    assert_eq!((after.entries - before.entries, after.syncs - before.syncs), (1, 1));
    assert_eq!((revision.number(), text(&revision).as_str()), (1, r#"{"a":[true]}"#));
    is_new(&desk.db, r#"{"a":[true]}"#);
    // Who has the old one in hand reads on and writes nothing.
    assert_eq!((text(&held).as_str(), doc.is_dropped()), ("[2]", true));
    assert!(matches!(doc.edit(), Err(DocsError::NoDocument { .. })));
    assert!(matches!(doc.tag("late", 1), Err(DocsError::NoDocument { .. })));

    // By a replay, behind a checkpoint, and from the journal alone.
    let mut desk = desk.again();
    for has_checkpoint in [false, true] {
        is_new(&desk.db, r#"{"a":[true]}"#);
        if has_checkpoint {
            desk.db.checkpoint().unwrap();
        }
        desk = desk.again();
    }
    is_new(&desk.db, r#"{"a":[true]}"#);
    let (log, disk, clock) = (Arc::clone(&desk.log), Arc::new(desk.disk.clone()), Arc::new(desk.clock.clone()));
    is_new(&Database::open(log, disk, clock, Path::new("anew"), desk.config).unwrap(), r#"{"a":[true]}"#);
    // It is a document like any other, and the next one has a number of its own.
    let mut edit = desk.db.document(NAME).unwrap().edit().unwrap();
    edit.remove(NodeKey(1)).unwrap();
    put(&mut edit, "7");
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 2);
    let other = desk.db.create("other", Versioning::default()).unwrap();
    let mut edit = other.edit().unwrap();
    put(&mut edit, "8");
    edit.commit(&Meta::default()).unwrap();
    let desk = desk.again();
    let text_of = |name| text(&desk.db.document(name).unwrap().latest());
    assert_eq!((text_of(NAME).as_str(), text_of("other").as_str()), ("7", "8"));
}

#[test]
fn what_is_refused_or_let_go_leaves_the_old_one_with_its_history() {
    let desk = fresh();
    let doc = old(&desk);
    let is_old = |desk: &Desk| {
        let doc = desk.db.document(NAME).unwrap();
        assert_eq!((text(&doc.latest()).as_str(), text(&doc.tagged("release").unwrap()).as_str()), ("[3]", "[2]"));
        assert_eq!((doc.history(0..=99, 99).unwrap().len(), doc.verify().unwrap()), (3, 3));
    };
    let anew = |versioning| doc.edit().unwrap().anew(versioning);
    assert!(matches!(anew(Versioning::SlidingSnapshot { window: 17 }), Err(DocsError::Config { .. })));
    let mut let_go = anew(Versioning::Full).unwrap();
    put(&mut let_go, "1");
    assert_eq!(desk.db.create(NAME, Versioning::Full).unwrap_err().kind(), Kind::Conflict);
    drop(let_go);
    let xid = Xid::new(1, b"branch", b"").unwrap();
    let of_branch = desk.db.prepare_begin(&xid, vec![anew(Versioning::Full).unwrap()], &Meta::default());
    assert!(matches!(of_branch, Err(DocsError::Unfit { .. })), "{of_branch:?}");
    is_old(&desk);

    // A drop first and what comes after it, when the disk had no room between them: both documents were gone.
    desk.disk.set_capacity(Some(desk.disk.used_bytes()));
    let long = format!("[{}]", vec!["\"0123456789\""; 200_000].join(","));
    let mut full = anew(Versioning::Full).unwrap();
    let refused = full.insert_json(At::Last(NodeKey::DOCUMENT), None, long.as_bytes());
    let refused = refused.and_then(|_| full.commit(&Meta::default())).unwrap_err();
    assert_eq!(refused.kind(), Kind::Full, "{refused}");
    is_old(&desk);
    desk.disk.set_capacity(None);
    is_old(&desk);
    let desk = desk.again();
    is_old(&desk);
    let mut edit = desk.db.document(NAME).unwrap().edit().unwrap().anew(Versioning::Full).unwrap();
    put(&mut edit, "true");
    edit.commit(&Meta::default()).unwrap();
    is_new(&desk.db, "true");
}

#[test]
fn a_drop_after_all_drops_the_old_one() {
    let desk = fresh();
    let anew = old(&desk).edit().unwrap().anew(Versioning::Full).unwrap();
    anew.drop_document().unwrap();
    assert!(matches!(desk.db.document(NAME), Err(DocsError::NoDocument { .. })));
}

#[test]
fn a_large_one_is_laid_piece_by_piece_and_an_empty_one_replaces_too() {
    let desk = fresh_with(Config { edit_nodes_max: 500, cache_bytes: 0, ..Config::default() });
    let mut anew = old(&desk).edit().unwrap().anew(Versioning::Full).unwrap();
    let long = format!("[{}]", (0..5000).map(|number| number.to_string()).collect::<Vec<_>>().join(","));
    put(&mut anew, &long);
    anew.commit(&Meta::default()).unwrap();
    let desk = desk.again();
    is_new(&desk.db, &long);
    let revision = desk.db.document(NAME).unwrap().latest();
    assert_eq!(revision.verify().unwrap(), 5001);
    let anew = desk.db.document(NAME).unwrap().edit().unwrap().anew(Versioning::Full).unwrap();
    assert_eq!(anew.commit(&Meta::default()).unwrap().number(), 1);
    let doc = desk.again().db.document(NAME).unwrap();
    assert_eq!((doc.latest().number(), doc.latest().value()), (1, None));
}

#[test]
fn a_request_that_did_it_is_found_with_its_revision_and_not_before() {
    let mut desk = fresh();
    let doc = old(&desk);
    let once = Once { name: [7; 32], until_ms: u64::MAX >> 16, note: "note".to_owned() };
    let meta = Meta { fields: vec![once.field()], ..Meta::default() };
    let mut anew = doc.edit().unwrap().anew(Versioning::Full).unwrap();
    put(&mut anew, "1");
    assert_eq!(desk.db.done(&once.name).unwrap(), None);
    let pending = anew.commit_begin(&meta).unwrap();
    assert_eq!((desk.db.done(&once.name).unwrap_err(), text(&doc.latest()).as_str()), (DocsError::OnItsWay, "[3]"));
    pending.wait().unwrap();
    for _ in 0..3 {
        let (done, doc) = (desk.db.done(&once.name).unwrap().unwrap(), desk.db.document(NAME).unwrap());
        assert_eq!(done.revision_of(&doc).map(|revision| text(&revision)).as_deref(), Some("1"));
        desk.db.checkpoint().unwrap();
        desk = desk.again();
    }
}

#[test]
fn one_that_nobody_waits_for_is_seen_to_by_whoever_wants_the_document_next() {
    let desk = fresh();
    let doc = old(&desk);
    let mut anew = doc.edit().unwrap().anew(Versioning::Full).unwrap();
    put(&mut anew, "1");
    drop(anew.commit_begin(&Meta::default()).unwrap());
    assert_eq!(text(&doc.latest()), "[3]", "not before it is durable");
    assert!(matches!(doc.tag("late", 1), Err(DocsError::NoDocument { .. })));
    assert!(matches!(doc.edit(), Err(DocsError::NoDocument { .. })));
    is_new(&desk.db, "1");
    // Two in a row.
    for number in 2..4 {
        let mut anew = desk.db.document(NAME).unwrap().edit().unwrap().anew(Versioning::Full).unwrap();
        put(&mut anew, &number.to_string());
        anew.commit(&Meta::default()).unwrap();
        is_new(&desk.db, &number.to_string());
    }
    is_new(&desk.again().db, "3");
}

#[test]
fn a_drop_by_name_that_finds_another_one_come_drops_that() {
    let desk = fresh();
    let mut anew = old(&desk).edit().unwrap().anew(Versioning::Full).unwrap();
    put(&mut anew, "1");
    let pending = anew.commit_begin(&Meta::default()).unwrap();
    desk.db.drop_document(NAME).unwrap();
    pending.wait().unwrap();
    assert_eq!(desk.db.names(None, 9).unwrap(), Vec::<String>::new());
    assert!(matches!(desk.db.drop_document(NAME), Err(DocsError::NoDocument { .. })));
}

#[test]
fn an_open_refuses_one_that_cannot_be_what_follows() {
    let desk = fresh();
    let mut anew = old(&desk).edit().unwrap().anew(Versioning::Full).unwrap();
    put(&mut anew, "1");
    anew.commit(&Meta::default()).unwrap();
    let entries: Vec<_> = desk.log.read(desk.log.start()).unwrap().map(Result::unwrap).collect();
    let replace = entries.iter().find(|entry| entry.kind == KIND_REPLACE).unwrap();
    // Once more: what it replaces is gone.
    let ticket = desk.log.append(KIND_REPLACE, &[&replace.payload]).unwrap();
    desk.log.wait_durable(ticket).unwrap();
    let Desk { disk, clock, log, db, config } = desk;
    drop(db);
    let error = Database::open(log, Arc::new(disk), Arc::new(clock), Path::new("index"), config).unwrap_err();
    assert!(matches!(&error, DocsError::Record { lsn, .. } if *lsn == ticket.lsn), "{error}");
    assert!(error.to_string().contains("it replaces document \"orders\", which is not there"), "{error}");
}
