//! Writers: one of each document, many of many beside readers, and what becomes of a commit that fails or for which nobody waits.

use assent_docs::{Config, DocsError, Look, Meta, NodeKey, Value, Versioning};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation};

use super::tree::{push, read};
use super::{fresh, fresh_with};

#[test]
fn a_second_writer_is_told_that_it_is_busy_and_a_dropped_edit_never_was() {
    let desk = fresh_with(Config::default());
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    assert!(matches!(doc.edit().unwrap_err(), DocsError::Busy { waited_ms: 0, .. }));
    let value = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    push(&mut edit, value, None, Value::Null);
    drop(edit);
    assert_eq!(desk.log.counts().entries, 1, "the document's own");
    let mut edit = doc.edit().unwrap();
    assert_eq!(edit.value(), None);
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Null);
    let pending = edit.commit_begin(&Meta::default()).unwrap();
    assert_eq!((doc.latest().number(), pending.revision()), (0, 1));
    assert_eq!(pending.wait().unwrap().number(), 1);
    let revision = doc.edit().unwrap().commit(&Meta::default()).unwrap();
    assert_eq!(revision.number(), 1, "nothing had changed");
}

#[test]
fn a_second_writer_gets_the_seat_when_the_first_leaves_it() {
    let desk = super::open_with(
        &assent_sim::SimDisk::new(),
        &assent_sim::SimClock::new(),
        1,
        super::journal(),
        Config { writer_wait_ms: 600_000, ..Config::default() },
    );
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut edit = doc.edit().unwrap();
            let value = edit.value().unwrap();
            edit.set(value, Value::Number("2")).unwrap();
            edit.commit(&Meta::default()).unwrap().number()
        });
        edit.commit(&Meta::default()).unwrap();
        assert_eq!(second.join().unwrap(), 2, "it began where the first had ended");
    });
}

#[test]
fn a_second_writer_does_not_wait_for_a_commit_for_which_nobody_waits() {
    // The first has appended its commit and gone: the second waited for the seat until its time was over, and was told `Busy`.
    let desk = super::open_with(
        &assent_sim::SimDisk::new(),
        &assent_sim::SimClock::new(),
        1,
        super::journal(),
        Config { writer_wait_ms: 600_000, ..Config::default() },
    );
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    std::thread::scope(|scope| {
        let second = scope.spawn(|| doc.edit().unwrap().value().is_some());
        // Whether the second waits by now or not, it gets the seat.
        std::thread::yield_now();
        drop(edit.commit_begin(&Meta::default()).unwrap());
        assert!(second.join().unwrap(), "it sees what was committed");
    });
}

#[test]
fn a_commit_for_which_nobody_waits_stands_before_the_next_one() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let value = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    drop(edit.commit_begin(&Meta::default()).unwrap());
    assert_eq!(doc.latest().number(), 0, "neither durable nor visible");
    let mut edit = doc.edit().unwrap();
    edit.set(value, Value::Number("2")).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 2);
    let mut edit = doc.edit().unwrap();
    edit.set(value, Value::Number("3")).unwrap();
    drop(edit.commit_begin(&Meta::default()).unwrap());
    // A commit of another document carries it.
    desk.db.create("other", Versioning::default()).unwrap();
    assert_eq!(doc.latest().item(value).unwrap().text(), "3");
    let desk = desk.again();
    assert_eq!(desk.db.document("orders").unwrap().latest().number(), 3);
}

#[test]
fn a_document_that_another_one_has_left_in_doubt_is_refused_to_who_makes_it_and_his_own_is_in_no_doubt() {
    // He had written nothing, and was told that nobody knows whether he had.
    let desk = fresh();
    for operation in [Operation::SyncData, Operation::WriteDurable] {
        desk.disk.inject(Call::of(operation, 1), Fault::Io);
    }
    let [first, second] = [0; 2].map(|_| desk.db.create("orders", Versioning::default()).unwrap_err());
    assert_eq!((first.kind(), second.kind()), (Kind::InDoubt, Kind::Closed), "{second}");
}

#[test]
fn a_failed_sync_leaves_the_commit_in_doubt_and_readers_with_what_is_durable() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let value = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    edit.commit(&Meta::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.set(value, Value::Number("2")).unwrap();
    for operation in [Operation::SyncData, Operation::WriteDurable] {
        desk.disk.inject(Call::of(operation, 1), Fault::Io);
    }
    assert_eq!(edit.commit(&Meta::default()).unwrap_err().kind(), Kind::InDoubt);
    assert_eq!(doc.latest().item(value).unwrap().text(), "1");
    assert_eq!(doc.edit().unwrap_err().kind(), Kind::InDoubt, "not busy for ever");
    assert_eq!(desk.db.create("other", Versioning::default()).unwrap_err().kind(), Kind::Closed);
    let desk = desk.again();
    let doc = desk.db.document("orders").unwrap();
    assert!((1..=2).contains(&doc.latest().number()));
    let mut edit = doc.edit().unwrap();
    edit.set(value, Value::Number("3")).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().item(value).unwrap().text(), "3");
}

#[test]
fn writers_of_many_documents_and_readers_of_all_go_on_at_once() {
    let desk = super::open_with(
        &assent_sim::SimDisk::new(),
        &assent_sim::SimClock::new(),
        1,
        super::journal(),
        Config { writer_wait_ms: 600_000, cache_bytes: 64 << 10, ..Config::default() },
    );
    const COMMITS: u32 = 60;
    std::thread::scope(|scope| {
        for writer in 0..4_u32 {
            let db = &desk.db;
            scope.spawn(move || {
                let doc = db.create(&format!("doc {writer}"), Versioning::default()).unwrap();
                let mut edit = doc.edit().unwrap();
                let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
                let ends: Vec<NodeKey> = (0..2).map(|_| push(&mut edit, root, None, Value::Number("0"))).collect();
                edit.commit(&Meta::default()).unwrap();
                for number in 1..COMMITS {
                    let mut edit = doc.edit().unwrap();
                    ends.iter().for_each(|end| edit.set(*end, Value::Number(&number.to_string())).unwrap());
                    edit.commit(&Meta::default()).unwrap();
                }
            });
        }
        for reader in 0..2_u32 {
            let db = &desk.db;
            scope.spawn(move || {
                let mut seen = 0;
                while seen < COMMITS {
                    let Ok(doc) = db.document(&format!("doc {reader}")) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let newest = doc.latest();
                    assert!(newest.number() >= seen, "a revision vanished");
                    seen = newest.number();
                    for revision in [newest, doc.at(seen.div_ceil(2)).unwrap()] {
                        let Some(tree) = read(&revision) else { continue };
                        let expected = (revision.number() - 1).to_string();
                        tree.children().iter().for_each(|end| assert_eq!(end.value(), Value::Number(&expected)));
                    }
                }
            });
        }
    });
    assert!(desk.db.stats().cache_bytes <= 64 << 10);
}
