//! What a user of the store sees: revisions, times, names, reverts, what is refused.

use assent_docs::{At, Config, DocsError, Look, Meta, NodeKey, Once, Value, Versioning, WINDOW_MAX};
use assent_kind::Kind;

use super::tree::{push, read};
use super::{fresh, fresh_with, says};

#[test]
fn every_revision_stays_what_it_was_and_the_newest_is_what_was_committed_last() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    assert_eq!((doc.latest().number(), doc.latest().value()), (0, None));
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    let price = push(&mut edit, root, Some("price"), Value::Number("1"));
    assert_eq!(doc.latest().number(), 0, "nothing is visible before the commit");
    assert_eq!(edit.commit(&says("first")).unwrap().number(), 1);
    for price_now in 2..50 {
        let mut edit = doc.edit().unwrap();
        edit.set(price, Value::Number(&price_now.to_string())).unwrap();
        edit.commit(&says("dearer")).unwrap();
    }
    let desk = desk.again();
    let doc = desk.db.document("orders").unwrap();
    assert_eq!(doc.latest().number(), 49);
    for revision in (1..50).rev() {
        let at = doc.at(revision).unwrap();
        assert_eq!(at.item(price).unwrap().text(), revision.to_string());
        assert_eq!((at.number(), at.meta().author.as_str()), (revision, "ann"));
        assert_eq!(at.pointer(price).unwrap(), "/price");
    }
    assert_eq!(doc.at(0).unwrap().value(), None);
    assert_eq!(doc.at(50).unwrap_err().kind(), Kind::NotFound);
    let told = doc.history(10..=12, 100).unwrap();
    assert_eq!(told.iter().map(|told| told.revision).collect::<Vec<_>>(), [12, 11, 10]);
    assert_eq!(doc.history(0..=u32::MAX, 2).unwrap().len(), 2);
    assert_eq!(doc.history(1..=1, 9).unwrap()[0].message, "first");
    // In memory and on the disk, by any pages.
    for _ in 0..2 {
        for (from, to) in [(0, u32::MAX), (0, 0), (1, 49), (7, 30), (48, 60), (30, 29), (50, 70)] {
            for limit in [0, 1, 2, 10, 49, 50, usize::MAX] {
                let told: Vec<u32> = doc.history(from..=to, limit).unwrap().iter().map(|told| told.revision).collect();
                let expected = (from.max(1)..=to.min(49)).rev().take(limit);
                assert_eq!(told, expected.collect::<Vec<_>>(), "{from} to {to}, {limit} of them");
            }
        }
        desk.db.checkpoint().unwrap();
    }
}

#[test]
fn a_revision_is_opened_by_the_time_at_which_it_was_the_newest() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::Full).unwrap();
    for number in 0..20_u32 {
        desk.clock.set_wall_ms(1000 + 10 * u64::from(number));
        let mut edit = doc.edit().unwrap();
        match doc.latest().value() {
            None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("0")),
            Some(value) => edit.set(value, Value::Number(&number.to_string())).unwrap(),
        }
        edit.commit(&Meta::default()).unwrap();
    }
    for (time, revision) in [(0, 0), (999, 0), (1000, 1), (1009, 1), (1010, 2), (1189, 19), (1190, 20), (9999, 20)] {
        assert_eq!(doc.as_of(time).unwrap().number(), revision, "{time}");
    }
    // The operator's clock goes back: history does not.
    desk.clock.set_wall_ms(5);
    let mut edit = doc.edit().unwrap();
    edit.set(doc.latest().value().unwrap(), Value::Null).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().time_ms(), 1190);
    assert_eq!(doc.as_of(1190).unwrap().number(), 21);
}

#[test]
fn a_long_text_is_the_last_of_its_page_so_that_pages_stay_small() {
    // Seventeen texts of sixteen megabytes in one page were more than an entry of the journal takes.
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    let (below, long) = ("x".repeat((64 << 10) - 1), "y".repeat(64 << 10));
    let keys = [&below, &long, &long, &below, &below].map(|text| push(&mut edit, root, None, Value::String(text)));
    assert_eq!(keys, [2, 3, 256, 512, 513].map(NodeKey));
    let revision = edit.commit(&Meta::default()).unwrap();
    assert_eq!(revision.verify().unwrap(), 6);
    let desk = desk.again();
    let revision = desk.db.document("orders").unwrap().latest();
    assert_eq!(revision.item(keys[2]).unwrap().text(), long);
    assert_eq!(revision.item(keys[4]).unwrap().text(), below);
}

#[test]
fn long_texts_that_are_set_leave_room_for_every_other_change_of_their_page() {
    // Five texts of 64 MiB were set in one page: all of it was more than an entry of the journal takes, and from then on nothing of the
    // document could be changed, not even a boolean.
    let desk = fresh_with(Config { text_bytes_max: 64 << 20, cache_bytes: 16 << 30, ..Config::default() });
    // Of many fragments, as all of so large a page takes seconds on this disk.
    let doc = desk.db.create("orders", Versioning::Incremental { window: 16 }).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    let keys = [(); 5].map(|()| push(&mut edit, root, None, Value::Null));
    let long = "x".repeat(64 << 20);
    for key in &keys[..3] {
        edit.set(*key, Value::String(&long)).unwrap();
    }
    let size = DocsError::Size { part: "the texts of neighbouring nodes", size: (240 << 20) + 1, limit: 240 << 20 };
    let rest = 48 << 20;
    assert_eq!(edit.set(keys[3], Value::String(&long[..=rest])).unwrap_err(), size);
    edit.set(keys[3], Value::String(&long[..rest])).unwrap();
    edit.set(keys[4], Value::Bool(true)).unwrap();
    assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 1);
    // A new node has a page that has room.
    let mut edit = doc.edit().unwrap();
    assert_eq!(push(&mut edit, root, None, Value::String(&long)), NodeKey(256));
    drop(edit);
    // A shorter text is taken, and leaves room.
    let mut edit = doc.edit().unwrap();
    edit.set(keys[0], Value::String(&long[..100_000])).unwrap();
    edit.set(keys[4], Value::String(&long[..60 << 20])).unwrap();
}

#[test]
fn a_drop_with_a_note_that_is_too_long_is_refused_before_it_is_durable() {
    // It was durable, no row of the index took it, and the database could not be opened any more.
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let once = |bytes| Once { name: [7; 32], until_ms: 1 << 47, note: "n".repeat(bytes) };
    for bytes in [140_000, (64 << 10) + 1] {
        let refused = doc.edit().unwrap().drop_once(once(bytes));
        assert!(matches!(refused, Err(DocsError::Size { limit: 65_536, .. })), "{refused:?}");
    }
    drop(doc);
    let desk = desk.again();
    let longest = once(64 << 10);
    desk.db.document("orders").unwrap().edit().unwrap().drop_once(longest.clone()).unwrap();
    let desk = desk.again();
    assert!(desk.db.document("orders").is_err());
    assert_eq!(desk.db.done(&longest.name).unwrap().unwrap().once, longest);
}

#[test]
fn names_are_checked_listed_and_free_again_after_a_drop() {
    let desk = fresh();
    for name in ["b", "a", "c"] {
        desk.db.create(name, Versioning::default()).unwrap();
    }
    assert_eq!(desk.db.create("a", Versioning::Full).unwrap_err().kind(), Kind::Conflict);
    let long = "x".repeat(256);
    for name in ["", "a\nb", &long] {
        assert!(matches!(desk.db.create(name, Versioning::Full).unwrap_err(), DocsError::Name { .. }), "{name:?}");
    }
    desk.db.create(&long[1..], Versioning::Full).unwrap();
    let beyond = Versioning::SlidingSnapshot { window: WINDOW_MAX + 1 };
    assert_eq!(desk.db.create("d", beyond).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(desk.db.names(Some("a"), 2).unwrap(), ["b", "c"]);
    let held = desk.db.document("a").unwrap();
    let mut edit = held.edit().unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Bool(true));
    let revision = edit.commit(&Meta::default()).unwrap();
    desk.db.drop_document("a").unwrap();
    assert_eq!(desk.db.document("a").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(held.edit().unwrap_err().kind(), Kind::NotFound);
    assert_eq!(read(&revision).unwrap().value(), Value::Bool(true), "who holds it can read it");
    let again = desk.db.create("a", Versioning::Full).unwrap();
    assert_eq!((again.latest().number(), again.history(0..=9, 9).unwrap().len()), (0, 0));
    let desk = desk.again();
    assert_eq!(desk.db.document("a").unwrap().latest().number(), 0);
    assert_eq!(desk.db.names(None, 9).unwrap().len(), 4);
}

#[test]
fn what_does_not_fit_is_refused_and_has_changed_nothing() {
    let desk = fresh_with(Config { text_bytes_max: 8, ..Config::default() });
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    let list = push(&mut edit, root, Some("list"), Value::Array);
    let leaf = push(&mut edit, list, None, Value::String("12345678"));
    let before = read(&edit);
    let refused = [
        edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::Null).unwrap_err(),
        edit.insert(At::After(root), None, Value::Null).unwrap_err(),
        edit.insert(At::Last(root), None, Value::Null).unwrap_err(),
        edit.insert(At::Last(root), Some("list"), Value::Null).unwrap_err(),
        edit.insert(At::Before(list), Some("list"), Value::Null).unwrap_err(),
        edit.insert(At::Last(list), Some("name"), Value::Null).unwrap_err(),
        edit.insert(At::Last(leaf), None, Value::Null).unwrap_err(),
        edit.insert(At::Last(list), None, Value::String("123456789")).unwrap_err(),
        edit.insert(At::Last(list), None, Value::Number("01")).unwrap_err(),
        edit.set(list, Value::Null).unwrap_err(),
        edit.set(leaf, Value::Array).unwrap_err(),
    ];
    for (at, error) in refused.iter().enumerate() {
        assert_eq!(error.kind(), Kind::Invalid, "{at}: {error}");
    }
    assert_eq!(edit.set(NodeKey(99), Value::Null).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(edit.insert(At::First(NodeKey(99)), None, Value::Null).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(read(&edit), before);
    let meta = Meta { author: "x".repeat(256), ..Meta::default() };
    assert_eq!(edit.commit(&meta).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(doc.latest().number(), 0);
}

#[test]
fn a_page_of_another_revision_is_never_taken_for_that_of_this_one() {
    // Each revision keeps the page that it looked at last.
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    let leaves: Vec<NodeKey> = (0..600).map(|_| push(&mut edit, root, None, Value::Number("1"))).collect();
    edit.commit(&Meta::default()).unwrap();
    for number in 2..6 {
        let mut edit = doc.edit().unwrap();
        leaves.iter().step_by(3).for_each(|leaf| edit.set(*leaf, Value::Number(&number.to_string())).unwrap());
        edit.commit(&Meta::default()).unwrap();
    }
    let revisions: Vec<_> = (1..6).map(|revision| doc.at(revision).unwrap()).collect();
    for (at, leaf) in leaves.iter().enumerate() {
        for revision in
            revisions.iter().flat_map(|revision| [revision.clone(), revision.clone()]).chain(revisions.clone())
        {
            let expected = if at % 3 == 0 { revision.number() } else { 1 };
            assert_eq!(revision.item(*leaf).unwrap().text(), expected.to_string());
        }
        for revision in &revisions {
            let expected = if at % 3 == 0 { revision.number() } else { 1 };
            assert_eq!(revision.item(*leaf).unwrap().text(), expected.to_string());
            assert!(revision.find(NodeKey(9999)).unwrap().is_none());
        }
    }
}

#[test]
fn paths_that_an_edit_leaves_to_the_next_are_those_of_the_newest_revision() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    push(&mut edit, root, Some("a"), Value::Null);
    let first = edit.commit(&Meta::default()).unwrap();
    // A commit without new paths, one that is dropped, one that goes back, and one that is cut off: all of them change them.
    let mut edit = doc.edit().unwrap();
    edit.remove(edit.member(root, "a").unwrap().unwrap()).unwrap();
    edit.commit(&Meta::default()).unwrap();
    for step in 0..30 {
        if step % 6 == 5 {
            let mut edit = doc.edit().unwrap();
            edit.revert(&first).unwrap();
            edit.commit(&Meta::default()).unwrap().verify().unwrap();
        }
        let mut edit = doc.edit().unwrap();
        let name = format!("name {}", step % 5);
        if edit.member(root, &name).unwrap().is_none() {
            push(&mut edit, root, Some(&name), Value::Array);
        }
        match step % 4 {
            0 => drop(edit),
            1 => {
                edit.revert(&first).unwrap();
                push(&mut edit, root, Some(&name), Value::Null);
                edit.commit(&Meta::default()).unwrap().verify().unwrap();
            }
            2 => {
                edit.commit(&Meta::default()).unwrap().verify().unwrap();
                doc.truncate(doc.latest().number() - 1).unwrap();
            }
            _ => _ = edit.commit(&Meta::default()).unwrap().verify().unwrap(),
        }
        let paths = doc.latest().paths().unwrap();
        let names: std::collections::HashSet<_> = paths.iter().map(|path| &path.path).collect();
        assert_eq!(names.len(), paths.len(), "each path once: {paths:?}");
    }
}

#[test]
fn a_revert_is_a_revision_like_the_old_one_and_as_small_as_any() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array);
    (0..2000).for_each(|_| _ = push(&mut edit, root, None, Value::Null));
    let first = edit.commit(&Meta::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    edit.remove(root).unwrap();
    push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    let second = edit.commit(&Meta::default()).unwrap();
    assert_eq!((read(&first).unwrap().count(), read(&second).unwrap().count()), (2000, 0));
    let before = assent_journal::Log::end(&*desk.log).0;
    let mut edit = doc.edit().unwrap();
    edit.revert(&first).unwrap();
    let reverted = edit.commit(&says("back")).unwrap();
    assert!(assent_journal::Log::end(&*desk.log).0 - before <= 200);
    assert_eq!((reverted.number(), read(&reverted)), (3, read(&first)));
    assert_eq!(reverted.changes(), None, "whoever wants them compares");
    let mut edit = doc.edit().unwrap();
    let new = push(&mut edit, root, None, Value::Null);
    assert_eq!(new, NodeKey(2003), "no key is used again");
    edit.commit(&Meta::default()).unwrap().verify().unwrap();
    let other = desk.db.create("other", Versioning::default()).unwrap();
    assert_eq!(other.edit().unwrap().revert(&first).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_time_that_stays_is_found_while_revisions_behind_it_are_dropped() {
    // Between the drop and the newest revision that is shown, a reader of an earlier time was told that there is no such revision.
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let set = |digits: u64| {
        let mut edit = doc.edit().unwrap();
        match edit.value() {
            Some(leaf) => edit.set(leaf, Value::Number(&digits.to_string())).unwrap(),
            None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("0")),
        }
        edit.commit(&Meta::default()).unwrap();
    };
    desk.clock.set_wall_ms(1000);
    set(0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..400 {
                desk.clock.set_wall_ms(2000 + round);
                (1..16).for_each(set);
                doc.truncate(1).unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(doc.as_of(1500).unwrap().number(), 1);
        }
    });
}
