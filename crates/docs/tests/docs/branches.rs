//! Edits that are branches of distributed transactions: they wait for their outcome, whatever happens.

use assent_docs::{Database, DocsError, Document, InDoubt, Look, Meta, NodeKey, Value, Versioning};
use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::Vote;

use super::damage::rot;
use super::tree::push;
use super::{Desk, fresh, says};

fn xid(number: u8) -> Xid {
    Xid::new(1, &[number], b"").unwrap()
}

/// Documents "a" and "b", each with a number.
fn two(desk: &Desk) -> [(Document, NodeKey); 2] {
    ["a", "b"].map(|name| {
        let doc = desk.db.create(name, Versioning::default()).unwrap();
        let mut edit = doc.edit().unwrap();
        let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("1"));
        edit.commit(&Meta::default()).unwrap();
        (doc, leaf)
    })
}

/// Prepares another number for each of these.
fn prepare(db: &Database, xid: &Xid, docs: &[(Document, NodeKey)], digits: &str) {
    let edit = |(doc, leaf): &(Document, NodeKey)| {
        let mut edit = doc.edit().unwrap();
        edit.set(*leaf, Value::Number(digits)).unwrap();
        edit
    };
    let voted = db.prepare_begin(xid, docs.iter().map(edit).collect(), &says("prepared")).unwrap();
    assert_eq!(voted.vote, Vote::Yes);
    db.wait(voted.appended).unwrap();
}

fn number(db: &Database, name: &str) -> (u32, String) {
    let newest = db.document(name).unwrap().latest();
    let value = newest.value().unwrap();
    (newest.number(), newest.item(value).unwrap().text().to_owned())
}

#[test]
fn a_prepared_branch_holds_its_documents_until_its_outcome_and_commits_them_at_once() {
    let desk = fresh();
    let docs = two(&desk);
    let before = desk.log.counts();
    prepare(&desk.db, &xid(1), &docs, "2");
    assert_eq!(number(&desk.db, "a"), (1, "1".to_owned()), "not visible");
    for (doc, _) in &docs {
        assert_eq!(doc.edit().unwrap_err().kind(), Kind::Busy);
        assert_eq!(doc.truncate(0).unwrap_err().kind(), Kind::Busy);
    }
    assert_eq!(desk.db.drop_document("a").unwrap_err().kind(), Kind::Busy);
    let documents = vec![("a".to_owned(), 2), ("b".to_owned(), 2)];
    assert_eq!(desk.db.in_doubt(), [InDoubt { xid: xid(1), documents }]);
    let appended = desk.db.commit_prepared_begin(&xid(1)).unwrap();
    assert_eq!(number(&desk.db, "a").0, 1, "not yet durable");
    assert_eq!(desk.db.commit_prepared_begin(&xid(1)).unwrap(), appended, "asked again");
    assert!(matches!(desk.db.rollback_prepared_begin(&xid(1)), Err(DocsError::State { state: "being committed", .. })));
    desk.db.wait(appended).unwrap();
    let after = desk.log.counts();
    assert_eq!((after.entries - before.entries, after.syncs - before.syncs), (2, 2), "a vote and an outcome");
    for name in ["a", "b"] {
        assert_eq!(number(&desk.db, name), (2, "2".to_owned()));
    }
    assert!(desk.db.in_doubt().is_empty());
    assert_eq!(desk.db.commit_prepared_begin(&xid(1)).unwrap_err().kind(), Kind::NotFound);
    let (doc, leaf) = &docs[0];
    let mut edit = doc.edit().unwrap();
    edit.set(*leaf, Value::Number("3")).unwrap();
    edit.commit(&Meta::default()).unwrap();
    let desk = desk.again();
    assert_eq!((number(&desk.db, "a"), number(&desk.db, "b")), ((3, "3".to_owned()), (2, "2".to_owned())));
    for name in ["a", "b"] {
        let doc = desk.db.document(name).unwrap();
        doc.verify().unwrap();
        assert_eq!((doc.at(2).unwrap().verify().unwrap(), doc.at(2).unwrap().meta().message.as_str()), (1, "prepared"));
    }
}

#[test]
fn a_prepared_branch_survives_restarts_before_and_behind_a_checkpoint() {
    for (is_commit, has_checkpoint) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut desk = fresh();
        let docs = two(&desk);
        prepare(&desk.db, &xid(1), &docs, "2");
        drop(docs);
        for _ in 0..2 {
            if has_checkpoint {
                desk.db.checkpoint().unwrap();
            }
            desk = desk.again();
            assert_eq!(desk.db.in_doubt().len(), 1);
            assert_eq!(desk.db.document("a").unwrap().edit().unwrap_err().kind(), Kind::Busy);
            assert_eq!(number(&desk.db, "a"), (1, "1".to_owned()));
        }
        let known = desk.db.prepare_begin(&xid(1), Vec::new(), &Meta::default()).unwrap_err();
        assert_eq!(known.kind(), Kind::Conflict);
        let verb = if is_commit { Database::commit_prepared_begin } else { Database::rollback_prepared_begin };
        let appended = verb(&desk.db, &xid(1)).unwrap();
        desk.db.wait(appended).unwrap();
        let expected = if is_commit { (2, "2".to_owned()) } else { (1, "1".to_owned()) };
        for _ in 0..2 {
            assert_eq!((number(&desk.db, "a"), number(&desk.db, "b")), (expected.clone(), expected.clone()));
            assert!(desk.db.in_doubt().is_empty());
            desk = desk.again();
        }
        // Its name is free again, and so are its documents.
        let docs = ["a", "b"].map(|name| {
            let doc = desk.db.document(name).unwrap();
            let leaf = doc.latest().value().unwrap();
            (doc, leaf)
        });
        prepare(&desk.db, &xid(1), &docs, "7");
        let appended = desk.db.commit_prepared_begin(&xid(1)).unwrap();
        desk.db.wait(appended).unwrap();
        assert_eq!(number(&desk.db, "b"), (expected.0 + 1, "7".to_owned()));
    }
}

#[test]
fn a_revision_of_a_branch_is_as_old_as_its_outcome() {
    let desk = fresh();
    desk.clock.set_wall_ms(1000);
    let docs = two(&desk);
    desk.clock.set_wall_ms(2000);
    prepare(&desk.db, &xid(1), &docs, "2");
    desk.clock.set_wall_ms(3000);
    assert_eq!(docs[0].0.as_of(2500).unwrap().number(), 1);
    let appended = desk.db.commit_prepared_begin(&xid(1)).unwrap();
    desk.db.wait(appended).unwrap();
    let mut desk = desk;
    for _ in 0..2 {
        let doc = desk.db.document("a").unwrap();
        assert_eq!(doc.as_of(2500).unwrap().number(), 1, "what was seen is seen again");
        assert_eq!((doc.as_of(3000).unwrap().number(), doc.at(2).unwrap().time_ms()), (2, 3000));
        assert_eq!(doc.history(2..=2, 1).unwrap()[0].time_ms, 3000);
        desk = desk.again();
    }
}

#[test]
fn a_branch_without_changes_is_read_only_and_one_of_our_coordinators_is_listed_for_its_node() {
    let desk = fresh();
    let docs = two(&desk);
    let unchanged = docs.iter().map(|(doc, _)| doc.edit().unwrap()).collect();
    let voted = desk.db.prepare_begin(&xid(1), unchanged, &Meta::default()).unwrap();
    assert_eq!(voted.vote, Vote::ReadOnly);
    desk.db.wait(voted.appended).unwrap();
    drop(docs[0].0.edit().unwrap());
    let incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    let tx = TxId { incarnation, counter: 7 };
    let ours = Branch { node: NodeId(5), tx, resource: ResourceId(1), number: 0, flags: 0, mark: None }.xid();
    prepare(&desk.db, &ours, &docs[..1], "2");
    prepare(&desk.db, &xid(2), &docs[1..], "2");
    assert_eq!(desk.db.in_doubt().len(), 2);
    assert_eq!((desk.db.recover(NodeId(5)), desk.db.recover(NodeId(6))), (vec![ours], Vec::new()));
    let other = fresh();
    let [(doc, leaf), _] = two(&other);
    let mut edit = doc.edit().unwrap();
    edit.set(leaf, Value::Null).unwrap();
    let refused = desk.db.prepare_begin(&xid(3), vec![edit], &Meta::default()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid, "of another database");
    assert_eq!(desk.db.in_doubt().len(), 2);
}

#[test]
fn documents_of_one_branch_have_pages_of_their_own_though_they_stand_in_one_entry() {
    let desk = fresh();
    let docs = two(&desk);
    let edit = |(doc, leaf): &(Document, NodeKey)| {
        let mut edit = doc.edit().unwrap();
        edit.set(*leaf, Value::String(doc.name())).unwrap();
        edit
    };
    let voted = desk.db.prepare_begin(&xid(1), docs.iter().map(edit).collect(), &Meta::default()).unwrap();
    let appended = desk.db.commit_prepared_begin(&xid(1)).unwrap();
    desk.db.wait(appended).unwrap();
    desk.db.wait(voted.appended).unwrap();
    drop(docs);
    let mut desk = desk;
    for _ in 0..2 {
        for name in ["a", "b"] {
            assert_eq!(number(&desk.db, name), (2, name.to_owned()));
        }
        desk = desk.again();
    }
}

#[test]
fn a_branch_stays_listed_until_its_outcome_is_durable() {
    // Once the outcome was appended it was listed nowhere, though a crash might still leave it prepared.
    let desk = fresh();
    let docs = two(&desk);
    prepare(&desk.db, &xid(1), &docs, "2");
    let listed = desk.db.in_doubt();
    let appended = desk.db.rollback_prepared_begin(&xid(1)).unwrap();
    assert_eq!((listed.len(), desk.db.in_doubt()), (1, listed));
    desk.db.wait(appended).unwrap();
    assert!(desk.db.in_doubt().is_empty());
}

/// A branch is prepared on "a" and "b"; whatever these bytes are on the disk, they rot, and the database is opened again.
fn rotten(versioning: Versioning, bytes: &[u8]) -> Desk {
    let desk = fresh();
    let docs = ["a", "b", "c"].map(|name| {
        let doc = desk.db.create(name, versioning).unwrap();
        let mut edit = doc.edit().unwrap();
        let leaf = push(&mut edit, NodeKey::DOCUMENT, None, Value::String(&format!("first of {name}")));
        edit.commit(&Meta::default()).unwrap();
        (doc, leaf)
    });
    prepare(&desk.db, &xid(1), &docs[..2], "222");
    // Far behind it, so that its block is not written again, and an open need not walk over it.
    for number in 0..30 {
        let mut edit = docs[2].0.edit().unwrap();
        edit.set(docs[2].1, Value::Number(&(1_u64 << number).to_string().repeat(10_000))).unwrap();
        edit.commit(&Meta::default()).unwrap();
        if number == 0 {
            rot(&desk, bytes);
        }
        desk.db.checkpoint().unwrap();
    }
    drop(docs);
    desk.again()
}

#[test]
fn a_branch_on_a_damaged_document_shuts_that_one_and_ends_as_it_is_told() {
    // The whole database did not open: every other document was out of reach.
    for is_commit in [true, false] {
        let desk = rotten(Versioning::Full, b"first of a");
        assert_eq!(desk.db.in_doubt()[0].documents, [("a".to_owned(), 2), ("b".to_owned(), 2)]);
        for _ in 0..2 {
            assert_eq!(desk.db.document("a").map(drop).unwrap_err().kind(), Kind::Corrupt);
        }
        assert_eq!(desk.db.document("b").unwrap().edit().unwrap_err().kind(), Kind::Busy);
        assert_eq!(desk.db.drop_document("a").unwrap_err().kind(), Kind::Busy, "the branch has its seat");
        let doc = desk.db.document("c").unwrap();
        let mut edit = doc.edit().unwrap();
        let leaf = edit.value().unwrap();
        edit.set(leaf, Value::Bool(true)).unwrap();
        assert_eq!(edit.commit(&Meta::default()).unwrap().number(), 32);
        let verb = if is_commit { Database::commit_prepared_begin } else { Database::rollback_prepared_begin };
        desk.db.wait(verb(&desk.db, &xid(1)).unwrap()).unwrap();
        let mut desk = desk;
        for _ in 0..2 {
            assert!(desk.db.in_doubt().is_empty());
            if is_commit {
                assert_eq!((number(&desk.db, "a"), number(&desk.db, "b").0), ((2, "222".to_owned()), 2));
            } else {
                assert_eq!(desk.db.document("a").map(drop).unwrap_err().kind(), Kind::Corrupt);
                assert_eq!(number(&desk.db, "b").1, "first of b");
            }
            desk.db.document("b").unwrap().edit().unwrap();
            desk = desk.again();
        }
    }
}

#[test]
fn a_branch_that_cannot_be_read_lets_nobody_write_and_everybody_read() {
    let desk = rotten(Versioning::default(), b"222");
    assert_eq!(desk.db.in_doubt(), [InDoubt { xid: xid(1), documents: Vec::new() }]);
    for name in ["a", "b"] {
        assert_eq!(number(&desk.db, name), (1, format!("first of {name}")));
    }
    let doc = desk.db.document("c").unwrap();
    let mut edit = doc.edit().unwrap();
    let leaf = edit.value().unwrap();
    edit.set(leaf, Value::Bool(true)).unwrap();
    let error = edit.commit(&Meta::default()).unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("so none is written"), "{error}");
    for verb in [Database::commit_prepared_begin, Database::rollback_prepared_begin] {
        assert_eq!(verb(&desk.db, &xid(1)).unwrap_err().kind(), Kind::Corrupt);
    }
    assert_eq!((desk.db.in_doubt().len(), doc.latest().number()), (1, 31));
}
