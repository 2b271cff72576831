//! Names for revisions, and watching what comes after one.

use std::time::Duration;

use assent_docs::{DocsError, Document, Look, Mark, Meta, NodeKey, Value, Versioning};
use assent_kind::Kind;

use super::fresh;
use super::tree::push;

fn commit(doc: &Document) -> u32 {
    let mut edit = doc.edit().unwrap();
    match edit.value() {
        None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Array),
        Some(value) => _ = push(&mut edit, value, None, Value::Null),
    }
    edit.commit(&Meta::default()).unwrap().number()
}

#[test]
fn a_tag_names_a_revision_until_it_is_moved_or_taken_away_or_its_revision_is_dropped() {
    let mut desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    let other = desk.db.create("other", Versioning::default()).unwrap();
    (0..5).for_each(|_| _ = commit(&doc));
    commit(&other);
    let edit = doc.edit().unwrap();
    for (tag, revision) in [("b", 2), ("a", 5), ("c", 3), ("b", 4), ("empty", 0)] {
        doc.tag(tag, revision).unwrap();
    }
    drop(edit);
    other.tag("a", 1).unwrap();
    assert_eq!(doc.tag("d", 6).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(doc.tag("", 1).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(doc.untag("d").unwrap_err().kind(), Kind::NotFound);
    doc.untag("c").unwrap();
    assert!(matches!(doc.tagged("c"), Err(DocsError::NoTag { .. })));
    for has_checkpoint in [false, true, false] {
        if has_checkpoint {
            desk.db.checkpoint().unwrap();
        }
        desk = desk.again();
        let doc = desk.db.document("orders").unwrap();
        let tags = [("a", 5), ("b", 4), ("empty", 0)].map(|(tag, revision)| (tag.to_owned(), revision));
        assert_eq!(doc.tags(None, 9).unwrap(), tags);
        assert_eq!(doc.tags(Some("a"), 1).unwrap(), tags[1..2]);
        assert_eq!(doc.tagged("b").unwrap().number(), 4);
    }
    let doc = desk.db.document("orders").unwrap();
    doc.truncate(4).unwrap();
    assert_eq!(commit(&doc), 5);
    for _ in 0..2 {
        let doc = desk.db.document("orders").unwrap();
        assert_eq!(doc.tags(None, 9).unwrap(), [("b".to_owned(), 4), ("empty".to_owned(), 0)]);
        assert_eq!(desk.db.document("other").unwrap().tagged("a").unwrap().number(), 1);
        desk = desk.again();
    }
    let doc = desk.db.document("orders").unwrap();
    desk.db.drop_document("orders").unwrap();
    assert_eq!(doc.tag("e", 1).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(desk.db.create("orders", Versioning::default()).unwrap().tags(None, 9).unwrap(), []);
}

#[test]
fn a_watcher_sees_every_revision_once_and_goes_on_where_it_was_after_a_restart() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    assert_eq!(doc.since(Mark::default(), 9, Duration::ZERO).unwrap().revisions, []);
    (0..7).for_each(|_| _ = commit(&doc));
    let (mut mark, mut seen) = (Mark::default(), Vec::new());
    loop {
        let since = doc.since(mark, 3, Duration::ZERO).unwrap();
        if since.revisions.is_empty() {
            assert_eq!(since.mark, mark);
            break;
        }
        seen.extend(since.revisions.iter().map(|told| told.revision));
        mark = since.mark;
    }
    assert_eq!((seen, mark), ((1..=7).collect(), doc.latest().mark()));
    let desk = desk.again();
    let doc = desk.db.document("orders").unwrap();
    commit(&doc);
    let since = doc.since(mark, 9, Duration::ZERO).unwrap();
    assert_eq!(since.revisions.iter().map(|told| told.revision).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_watcher_that_waits_is_woken_by_the_next_commit() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    commit(&doc);
    let mark = doc.latest().mark();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| doc.since(mark, 9, Duration::from_secs(600)).unwrap());
        // Whether it waits by now or not, it is told.
        std::thread::yield_now();
        commit(&doc);
        assert_eq!(watcher.join().unwrap().revisions[0].revision, 2);
    });
    assert_eq!(doc.since(doc.latest().mark(), 9, Duration::from_millis(1)).unwrap().revisions, []);
}

#[test]
fn a_watcher_of_a_dropped_revision_is_told_so_even_if_another_one_has_its_number() {
    let desk = fresh();
    let doc = desk.db.create("orders", Versioning::default()).unwrap();
    (0..4).for_each(|_| _ = commit(&doc));
    let marks: Vec<Mark> = (1..=4).map(|revision| doc.at(revision).unwrap().mark()).collect();
    doc.truncate(2).unwrap();
    for _ in 0..3 {
        for mark in &marks[2..] {
            let error = doc.since(*mark, 9, Duration::ZERO).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            assert!(matches!(error, DocsError::Truncated { revision, .. } if revision == mark.revision));
        }
        let expected = doc.latest().number() - 2;
        assert_eq!(doc.since(marks[1], 9, Duration::ZERO).unwrap().revisions.len(), expected as usize);
        commit(&doc);
    }
}
