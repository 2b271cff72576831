//! Requests that are done once: found again after whatever happened, for as long as they were to be, and never without what they did.

use std::time::Duration;

use assent_docs::{DocsError, Done, Look, Meta, NodeKey, Once, OnceName, Value, Versioning};
use assent_ids::Xid;
use assent_world::Clock as _;

use super::damage::rot_in;
use super::tree::push;
use super::{Desk, fresh};

fn once(desk: &Desk, number: u8, seconds: u64) -> Once {
    Once { name: [number; 32], until_ms: desk.clock.wall_ms() + 1_000 * seconds, note: format!("note {number}") }
}

fn says(onces: &[Once]) -> Meta {
    Meta { fields: onces.iter().map(Once::field).collect(), ..Meta::default() }
}

/// Commits an array, or one more null in it.
fn commit(desk: &Desk, name: &str, meta: &Meta) -> u32 {
    let mut edit = desk.db.document(name).unwrap().edit().unwrap();
    match edit.value() {
        None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array),
        Some(value) => _ = push(&mut edit, value, None, Value::Null),
    }
    edit.commit(meta).unwrap().number()
}

fn done(desk: &Desk, number: u8) -> Option<Done> {
    let name: OnceName = [number; 32];
    desk.db.done(&name).unwrap()
}

/// The revision that a request made of this document.
fn made(desk: &Desk, number: u8, name: &str) -> Option<u32> {
    let document = desk.db.document(name).unwrap();
    done(desk, number).unwrap().revision_of(&document).map(|revision| revision.number())
}

#[test]
fn a_request_is_found_by_its_name_with_its_revision_after_replays_and_checkpoints() {
    let mut desk = fresh();
    desk.db.create("a", Versioning::default()).unwrap();
    desk.db.create("b", Versioning::default()).unwrap();
    let (one, two) = (once(&desk, 1, 600), once(&desk, 2, 600));
    assert_eq!(commit(&desk, "a", &says(std::slice::from_ref(&one))), 1);
    assert_eq!(commit(&desk, "a", &Meta::default()), 2);
    // Also where it changes nothing: two names, one revision.
    let edit = desk.db.document("a").unwrap().edit().unwrap();
    assert_eq!(edit.commit(&says(&[two.clone(), once(&desk, 3, 600)])).unwrap().number(), 3);
    commit(&desk, "b", &Meta::default());
    for has_checkpoint in [false, true, false] {
        assert_eq!(done(&desk, 1).unwrap().once, one);
        assert_eq!((made(&desk, 1, "a"), made(&desk, 2, "a"), made(&desk, 3, "a")), (Some(1), Some(3), Some(3)));
        assert_eq!((made(&desk, 1, "b"), done(&desk, 4)), (None, None), "another document; another request");
        if has_checkpoint {
            desk.db.checkpoint().unwrap();
        }
        desk = desk.again();
    }
    // A revision that was dropped is no other one that has its number.
    desk.db.document("a").unwrap().truncate(2).unwrap();
    assert_eq!(commit(&desk, "a", &Meta::default()), 3);
    assert_eq!((made(&desk, 2, "a"), done(&desk, 2).unwrap().once), (None, two));
}

#[test]
fn a_drop_and_the_documents_of_a_branch_carry_one_too_and_what_is_not_committed_is_not_done() {
    let mut desk = fresh();
    for name in ["a", "b"] {
        desk.db.create(name, Versioning::default()).unwrap();
        commit(&desk, name, &Meta::default());
    }
    let edit = |desk: &Desk, name: &str| {
        let mut edit = desk.db.document(name).unwrap().edit().unwrap();
        let value = edit.value().unwrap();
        push(&mut edit, value, None, Value::Null);
        edit
    };
    for (number, is_commit) in [(1, true), (2, false)] {
        let xid = Xid::new(1, &[number], b"").unwrap();
        let edits = vec![edit(&desk, "a"), edit(&desk, "b")];
        let voted = desk.db.prepare_begin(&xid, edits, &says(&[once(&desk, number, 600)])).unwrap();
        desk.db.wait(voted.appended).unwrap();
        for _ in 0..2 {
            // Nobody is told that it is not done: it may be soon.
            assert_eq!(desk.db.done(&[number; 32]).unwrap_err(), DocsError::OnItsWay);
            assert_eq!(done(&desk, 9), None, "another one");
            desk = desk.again();
        }
        let ended = if is_commit { desk.db.commit_prepared_begin(&xid) } else { desk.db.rollback_prepared_begin(&xid) };
        desk.db.wait(ended.unwrap()).unwrap();
        assert_eq!(done(&desk, number).is_some(), is_commit);
    }
    drop(edit(&desk, "a"));
    let dropped = once(&desk, 3, 600);
    desk.db.document("b").unwrap().edit().unwrap().drop_once(dropped.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(done(&desk, 3).unwrap().once, dropped);
        assert!(desk.db.document("b").is_err());
        assert_eq!((done(&desk, 1).is_some(), done(&desk, 2)), (true, None));
        desk = desk.again();
    }
}

#[test]
fn a_request_is_forgotten_when_its_time_is_over_and_its_rows_go_with_those_that_come() {
    let mut desk = fresh();
    desk.db.create("a", Versioning::default()).unwrap();
    for number in 0..40 {
        commit(&desk, "a", &says(&[once(&desk, number, 10)]));
    }
    assert!(done(&desk, 39).is_some());
    desk.clock.advance(Duration::from_secs(10));
    assert_eq!((done(&desk, 0), done(&desk, 39)), (None, None));
    // The same name again: it is the new one that is found, whatever goes.
    let again = once(&desk, 0, 10);
    commit(&desk, "a", &says(std::slice::from_ref(&again)));
    for number in 100..112 {
        commit(&desk, "a", &says(&[once(&desk, number, 10)]));
    }
    for _ in 0..2 {
        assert_eq!(done(&desk, 0).unwrap().once, again);
        desk.clock.set_wall_ms(desk.clock.wall_ms() - 5_000);
        // Rows that are gone are not found by a clock that goes back either; thirteen that came have taken all of them along.
        assert_eq!((1..40).filter_map(|number| done(&desk, number)).count(), 0);
        desk.clock.set_wall_ms(desk.clock.wall_ms() + 5_000);
        desk = desk.again();
    }
}

#[test]
fn a_request_is_done_though_rows_of_others_that_are_over_are_damaged() {
    // It was durable and never shown, and neither was anything behind it.
    for rots in [b"note 0".as_slice(), &[7; 32]] {
        let desk = fresh();
        desk.db.create("a", Versioning::default()).unwrap();
        for number in 0..200 {
            commit(&desk, "a", &says(&[once(&desk, number, 10)]));
        }
        desk.db.checkpoint().unwrap();
        rot_in(&desk.disk, "index", rots);
        let mut desk = desk.again();
        assert!(!desk.db.stats().rebuilt);
        desk.clock.advance(Duration::from_secs(10));
        for number in 200..203 {
            commit(&desk, "a", &says(&[once(&desk, number, 10)]));
        }
        for _ in 0..2 {
            assert_eq!((made(&desk, 200, "a"), made(&desk, 202, "a")), (Some(201), Some(203)));
            desk = desk.again();
        }
    }
}
