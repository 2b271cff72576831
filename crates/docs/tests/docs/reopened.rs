//! What an open finds: behind a checkpoint, a clean stop, on a real disk, without an index of its own or with one that has no room.

use std::path::Path;
use std::sync::Arc;

use assent_docs::{Config, Database, DocsError, Look, Meta, NodeKey, Value, Versioning};
use assent_ids::Xid;
use assent_journal::Journal;
use assent_kind::Kind;
use assent_sim::SimDice;
use assent_world::Clock as _;

use super::damage::{bury, rot_in};
use super::tree::push;
use super::{Desk, fresh, fresh_with, journal, open_with, says};

#[test]
fn an_open_replays_what_is_behind_the_last_checkpoint_and_walks_no_more() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let text = "x".repeat(50_000);
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    let leaf = push(&mut edit, root, None, Value::Null);
    edit.commit(&Meta::default()).unwrap();
    for number in 0..100 {
        let mut edit = doc.edit().unwrap();
        edit.set(leaf, Value::String(&format!("{number}{text}"))).unwrap();
        edit.commit(&Meta::default()).unwrap();
        if number % 20 == 0 {
            desk.db.checkpoint().unwrap();
        }
    }
    assert!(desk.db.stats().checkpoint > assent_ids::Lsn::ZERO);
    let (oldest, start) = (assent_journal::Log::oldest(&*desk.log), assent_journal::Log::start(&*desk.log));
    assert!(oldest < start, "trimmed, and still there");
    let desk = desk.again();
    let replayed = desk.db.stats().replayed;
    assert!((19..60).contains(&replayed), "{replayed} entries");
    let doc = desk.db.document("orders").unwrap();
    assert_eq!(doc.at(2).unwrap().item(leaf).unwrap().text(), format!("0{text}"), "before the trim");
    assert_eq!(doc.latest().item(leaf).unwrap().text(), format!("99{text}"));
    // Without an index it is built anew, from the journal's oldest entry on.
    let (log, disk) = (Arc::clone(&desk.log), Arc::new(desk.disk.clone()));
    let db = Database::open(log, disk, Arc::new(desk.clock.clone()), Path::new("anew"), desk.config).unwrap();
    assert!(db.stats().replayed > 101);
    let doc = db.document("orders").unwrap();
    assert_eq!((doc.latest().number(), doc.history(0..=u32::MAX, 1000).unwrap().len()), (101, 101));
    assert_eq!(doc.at(2).unwrap().item(leaf).unwrap().text(), format!("0{text}"));
}

#[test]
fn a_clean_stop_leaves_nothing_to_replay_and_a_commit_for_which_nobody_waited_is_there() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Null);
    drop(edit.commit_begin(&Meta::default()).unwrap());
    let Desk { disk, clock, log, db, config } = desk;
    db.close().unwrap();
    drop((log, doc));
    disk.kill();
    let desk = open_with(&disk, &clock, 2, journal(), config);
    assert_eq!((desk.db.stats().replayed, desk.db.document("orders").unwrap().latest().number()), (0, 1));
}

#[test]
fn an_index_of_another_journal_or_none_is_built_anew() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    for _ in 0..3 {
        let mut edit = doc.edit().unwrap();
        match edit.value() {
            None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Null),
            Some(value) => edit.set(value, Value::Bool(doc.latest().number() == 1)).unwrap(),
        }
        edit.commit(&Meta::default()).unwrap();
    }
    desk.db.checkpoint().unwrap();
    // Another database's index stands where this one's should.
    let disk = Arc::new(desk.disk.clone());
    let other = Journal::open(
        Arc::clone(&disk) as _,
        Arc::new(desk.clock.clone()),
        Arc::new(SimDice::new(9)),
        Path::new("other"),
        journal(),
    );
    let (other, _) = other.unwrap();
    let open =
        |log, folder| Database::open(log, Arc::clone(&disk) as _, Arc::new(desk.clock.clone()), folder, desk.config);
    let db = open(Arc::clone(&other) as _, Path::new("other-index")).unwrap();
    for name in ["x", "y", "z", "u", "v"] {
        db.create(name, Versioning::Full).unwrap();
    }
    db.checkpoint().unwrap();
    drop(db);
    let db = open(Arc::clone(&desk.log) as _, Path::new("other-index")).unwrap();
    assert!(db.stats().rebuilt);
    assert_eq!(db.document("orders").unwrap().latest().number(), 3);
    assert_eq!(db.names(None, 9).unwrap(), ["orders"]);
}

#[test]
fn an_index_of_which_one_sector_rots_is_built_anew_by_the_open_that_meets_it() {
    // What it replayed asked for the row, or what was prepared did: the database did not open any more.
    for is_behind in [true, false] {
        let desk = fresh();
        let doc = desk.db.create("orders", Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
        edit.commit(&says("what rots")).unwrap();
        desk.db.checkpoint().unwrap();
        if is_behind {
            let mut edit = doc.edit().unwrap();
            edit.set(leaf, Value::Number("2")).unwrap();
            edit.commit(&says("behind")).unwrap();
        }
        drop(doc);
        rot_in(&desk.disk, "index", b"what rots");
        let mut desk = desk.again();
        for is_rebuilt in [true, false] {
            assert_eq!(desk.db.stats().rebuilt, is_rebuilt);
            let doc = desk.db.document("orders").unwrap();
            let newest = 1 + u32::from(is_behind);
            assert_eq!(doc.latest().item(leaf).unwrap().text(), newest.to_string());
            let told = doc.history(0..=9, 9).unwrap();
            assert_eq!((told.len(), &*told.last().unwrap().message), (newest as usize, "what rots"));
            drop(doc);
            desk = desk.again();
        }
    }
}

#[test]
fn an_index_is_kept_where_the_journal_cannot_be_read_to_its_end() {
    // It was begun anew before it was known that no other could be built: what might have passed was for ever.
    let desk = fresh();
    let doc = desk.db.create("old", Versioning::Full).unwrap();
    let mut edit = doc.edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::String("an old text"));
    edit.commit(&Meta::default()).unwrap();
    bury(&desk, b"an old text");
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    edit.commit(&says("what rots")).unwrap();
    desk.db.checkpoint().unwrap();
    let mut edit = doc.edit().unwrap();
    edit.set(leaf, Value::Number("2")).unwrap();
    edit.commit(&says("behind")).unwrap();
    drop(doc);
    let Desk { disk, clock, log, db, config } = desk;
    drop((log, db));
    rot_in(&disk, "index", b"what rots");
    for _ in 0..2 {
        disk.kill();
        let (all, times) = (Arc::new(disk.clone()), Arc::new(clock.clone()));
        let dice = Arc::new(SimDice::new(disk.hash()));
        let (log, _) = Journal::open(all.clone(), times.clone(), dice, Path::new("log"), journal()).unwrap();
        let refused = Database::open(log, all, times, Path::new("index"), config).unwrap_err();
        assert!(matches!(refused, DocsError::Index(_)) && refused.kind() == Kind::Corrupt, "{refused}");
    }
    disk.kill();
    // The same byte once more: it has passed.
    rot_in(&disk, "index", b"vhat rots");
    let desk = open_with(&disk, &clock, disk.hash(), journal(), config);
    assert!(!desk.db.stats().rebuilt);
    assert_eq!(desk.db.document("orders").unwrap().latest().item(leaf).unwrap().text(), "2");
}

#[test]
fn an_index_without_room_makes_commits_wait_and_breaks_nothing() {
    // What was durable by then and did not fit into the index's memory was never shown before a reopen, nor was anything behind it.
    let mut desk = fresh_with(Config { memory_bytes: 64 << 10, ..Config::default() });
    let name = |number: usize| format!("{number}");
    let docs: Vec<_> = (0..40).map(|number| desk.db.create(&name(number), Versioning::default()).unwrap()).collect();
    let said = says(&"m".repeat(60_000));
    for revision in 1..=3 {
        let begin = |doc: &assent_docs::Document| {
            let mut edit = doc.edit().unwrap();
            match edit.value() {
                Some(leaf) => edit.set(leaf, Value::Number(&revision.to_string())).unwrap(),
                None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1")),
            }
            edit.commit_begin(&said).unwrap()
        };
        // All of them are appended before one is visible: five times what the index's memory may take.
        let pending: Vec<_> = docs.iter().map(begin).collect();
        for waiting in pending.into_iter().rev() {
            assert_eq!(waiting.wait().unwrap().number(), revision);
        }
    }
    drop(docs);
    for _ in 0..2 {
        for number in 0..40 {
            let told = desk.db.document(&name(number)).unwrap().history(0..=u32::MAX, 9).unwrap();
            assert!(told.len() == 3 && told.iter().all(|told| told.message.len() == 60_000));
        }
        assert!(desk.db.stats().memory_bytes <= 8 * (64 << 10), "{:?}", desk.db.stats());
        desk = desk.again();
    }
}

#[test]
fn behind_a_drop_that_cannot_be_shown_yet_nobody_writes_the_document() {
    // It gave the writer's seat up; a second drop, or a commit, was logged behind it, and the database did not open again.
    for shows_before in [true, false] {
        let mut desk = fresh_with(Config { memory_bytes: 64 << 10, ..Config::default() });
        let make = |name: &str| desk.db.create(name, Versioning::default()).unwrap();
        let docs: Vec<_> = (0..11).map(|number| make(&number.to_string())).collect();
        let gone = make("gone");
        let said = says(&"m".repeat(60_000));
        let edit = |doc: &assent_docs::Document| {
            let mut edit = doc.edit().unwrap();
            push(&mut edit, NodeKey::DOCUMENT, None, Value::Null);
            edit
        };
        // The index's memory takes eight times 64 KiB, and three of these have their place in it: the branch's eight do not fit, and there is
        // no room to write out what is there.
        let xid = Xid::new(1, b"many", b"").unwrap();
        let voted = desk.db.prepare_begin(&xid, docs[..8].iter().map(edit).collect(), &said).unwrap();
        desk.db.wait(voted.appended).unwrap();
        docs[8..].iter().for_each(|doc| _ = edit(doc).commit(&said).unwrap());
        desk.disk.set_capacity(Some(desk.disk.used_bytes()));
        _ = desk.db.commit_prepared_begin(&xid).unwrap();
        assert_eq!(desk.db.drop_document("gone").unwrap_err().kind(), Kind::InDoubt);
        let end = assent_journal::Log::end(&*desk.log);
        assert!(desk.db.document("gone").is_ok(), "it is shown still");
        assert!(desk.db.drop_document("gone").is_err());
        let written = gone.edit().and_then(|mut edit| {
            push(&mut edit, NodeKey::DOCUMENT, None, Value::Null);
            edit.commit(&Meta::default())
        });
        assert!(written.is_err());
        assert_eq!(assent_journal::Log::end(&*desk.log), end, "nothing stands behind the drop");
        drop(docs);
        desk.disk.set_capacity(None);
        if shows_before {
            desk.db.drop_document("8").unwrap();
            assert_eq!(desk.db.drop_document("gone").unwrap_err().kind(), Kind::NotFound);
            assert_eq!(gone.edit().unwrap_err().kind(), Kind::NotFound);
        }
        drop(gone);
        desk = desk.again();
        assert_eq!(desk.db.document("gone").unwrap_err().kind(), Kind::NotFound);
        assert_eq!(desk.db.document("7").unwrap().latest().number(), 1);
    }
}

#[test]
fn on_a_real_disk_it_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let (disk, clock) = (Arc::new(assent_world::RealDisk), Arc::new(assent_world::RealClock));
        let (log, index) = (folder.path().join("log"), folder.path().join("index"));
        let dice = Arc::new(assent_world::RealDice);
        let open = || {
            let (disk, clock) = (Arc::clone(&disk), Arc::clone(&clock));
            Journal::open(disk as _, clock as _, dice.clone() as _, &log, journal())
        };
        let until = assent_world::RealClock.now().after(std::time::Duration::from_secs(20));
        let (log, _) = loop {
            match open() {
                // A process that another test starts has it until it runs its program.
                Err(assent_journal::JournalError::Locked { .. }) if assent_world::RealClock.now() < until => {
                    std::thread::yield_now();
                }
                opened => break opened.unwrap(),
            }
        };
        let config = Config { trims: true, ..Config::default() };
        Database::open(log, disk, clock, &index, config).unwrap()
    };
    let db = open();
    let doc = db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let value = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
    edit.commit(&Meta::default()).unwrap();
    for number in 2..30 {
        let mut edit = doc.edit().unwrap();
        edit.set(value, Value::Number(&number.to_string())).unwrap();
        edit.commit(&says("more")).unwrap();
        if number == 20 {
            db.checkpoint().unwrap();
        }
    }
    drop((db, doc));
    let db = open();
    assert_eq!(db.stats().replayed, 9);
    let doc = db.document("orders").unwrap();
    for revision in 1..30 {
        assert_eq!(doc.at(revision).unwrap().item(value).unwrap().text(), revision.to_string());
    }
}
