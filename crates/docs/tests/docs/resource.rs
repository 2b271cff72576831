//! A database among the branches of a transaction.

use std::sync::Arc;

use assent_docs::{Database, DocsConnector, DocsError, DocsResource, Look, Meta, NodeKey, Value, Versioning};
use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::{Connector, Past, Reply, Resource, Verb, Vote};

use super::tree::push;
use super::{Desk, fresh, open_with, says};

const NODE: NodeId = NodeId(5);

fn xid(counter: u64) -> Xid {
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
    Branch { node: NODE, tx, resource: ResourceId(1), number: 0, flags: 0 }.xid()
}

/// A database with documents "a" and "b", shared with a connection.
fn connected(desk: Desk) -> (Arc<Database>, DocsResource, impl FnOnce() -> Desk) {
    for name in ["a", "b"] {
        if desk.db.document(name).is_err() {
            desk.db.create(name, Versioning::default()).unwrap();
        }
    }
    let Desk { disk, clock, log, db, config } = desk;
    let db = Arc::new(db);
    let again = move || {
        drop(log);
        disk.kill();
        open_with(&disk, &clock, disk.hash(), super::journal(), config)
    };
    (Arc::clone(&db), DocsResource::new("docs", db, says("by a transaction")), again)
}

/// Puts a value into these documents within a branch.
fn work(resource: &mut DocsResource, xid: Xid, names: &[&str], digits: &str) {
    assert_eq!(resource.call(Verb::Start(xid)), Reply::Done);
    for name in names {
        let edit = resource.edit(name).unwrap();
        match edit.value() {
            None => _ = push(edit, NodeKey::DOCUMENT, None, Value::Number(digits)),
            Some(value) => edit.set(value, Value::Number(digits)).unwrap(),
        }
    }
    assert_eq!(resource.call(Verb::End { xid, success: true }), Reply::Done);
}

fn number(db: &Database, name: &str) -> (u32, String) {
    let newest = db.document(name).unwrap().latest();
    let text = newest.value().map(|value| newest.item(value).unwrap().text().to_owned());
    (newest.number(), text.unwrap_or_default())
}

#[test]
fn a_branch_is_prepared_and_committed_or_rolled_back_and_nothing_of_it_is_seen_before() {
    let (db, mut resource, _) = connected(fresh());
    assert!(matches!(resource.edit("a"), Err(DocsError::NoBranch)));
    work(&mut resource, xid(1), &["a", "b"], "1");
    assert!(matches!(resource.call(Verb::Start(xid(1))), Reply::Refused(Kind::Conflict, _)));
    assert_eq!(resource.call(Verb::Prepare(xid(1))), Reply::Vote(Vote::Yes));
    assert_eq!((number(&db, "a").0, number(&db, "b").0), (0, 0));
    assert_eq!(resource.call(Verb::Recover(NODE)), Reply::Listed(vec![xid(1)]));
    assert_eq!(resource.call(Verb::Inquire { xid: xid(1), witness: Vec::new() }), Reply::Past(Past::Open));
    assert!(matches!(resource.call(Verb::Prepare(xid(1))), Reply::Refused(Kind::Invalid, _)));
    assert_eq!(resource.call(Verb::Commit(xid(1))), Reply::Done);
    for name in ["a", "b"] {
        assert_eq!(number(&db, name), (1, "1".to_owned()));
    }
    assert_eq!(db.document("a").unwrap().latest().meta().message, "by a transaction");
    assert!(matches!(resource.call(Verb::Commit(xid(1))), Reply::Unknown(_)));
    assert_eq!(resource.call(Verb::Inquire { xid: xid(1), witness: Vec::new() }), Reply::Past(Past::Forgotten));
    work(&mut resource, xid(2), &["a"], "2");
    assert_eq!(resource.call(Verb::Prepare(xid(2))), Reply::Vote(Vote::Yes));
    assert_eq!(resource.call(Verb::Rollback(xid(2))), Reply::Done);
    // Rolled back before its vote, and one whose work had failed.
    work(&mut resource, xid(3), &["a"], "3");
    assert_eq!(resource.call(Verb::Rollback(xid(3))), Reply::Done);
    assert_eq!(resource.call(Verb::Start(xid(4))), Reply::Done);
    resource.edit("a").unwrap();
    assert!(matches!(resource.call(Verb::Prepare(xid(4))), Reply::Refused(Kind::Invalid, _)), "it is not ended");
    assert_eq!(resource.call(Verb::End { xid: xid(4), success: false }), Reply::Done);
    assert!(matches!(resource.edit("a"), Err(DocsError::NoBranch)));
    assert!(matches!(resource.call(Verb::Prepare(xid(4))), Reply::RolledBack(_)));
    // One without changes.
    assert_eq!(resource.call(Verb::Start(xid(5))), Reply::Done);
    resource.edit("a").unwrap();
    assert_eq!(resource.call(Verb::End { xid: xid(5), success: true }), Reply::Done);
    assert_eq!(resource.call(Verb::Prepare(xid(5))), Reply::Vote(Vote::ReadOnly));
    assert_eq!(number(&db, "a"), (1, "1".to_owned()));
    // A connection that goes takes its unprepared branch along, with the writer's seat.
    assert_eq!(resource.call(Verb::Start(xid(6))), Reply::Done);
    resource.edit("a").unwrap();
    assert_eq!(db.document("a").unwrap().edit().unwrap_err().kind(), Kind::Busy);
    drop(resource);
    db.document("a").unwrap().edit().unwrap();
}

#[test]
fn one_phase_is_one_commit_and_of_several_documents_all_of_them_or_none() {
    let desk = fresh();
    let log = Arc::clone(&desk.log);
    let (db, mut resource, _) = connected(desk);
    for (counter, names, entries) in [(1, &["a"][..], 1), (2, &["a", "b"], 2)] {
        work(&mut resource, xid(counter), names, &counter.to_string());
        let before = log.counts();
        assert_eq!(resource.call(Verb::CommitOnePhase(xid(counter))), Reply::Done);
        let after = log.counts();
        assert_eq!((after.entries - before.entries, after.syncs - before.syncs), (entries, 1));
    }
    assert_eq!((number(&db, "a"), number(&db, "b")), ((2, "2".to_owned()), (1, "2".to_owned())));
    assert_eq!(resource.call(Verb::Start(xid(3))), Reply::Done);
    assert_eq!(resource.call(Verb::End { xid: xid(3), success: true }), Reply::Done);
    assert_eq!(resource.call(Verb::CommitOnePhase(xid(3))), Reply::Done, "nothing at all");
    assert_eq!(resource.call(Verb::Recover(NODE)), Reply::Listed(Vec::new()));
}

#[test]
fn recovery_finishes_what_was_prepared_before_a_restart() {
    let (db, mut resource, again) = connected(fresh());
    work(&mut resource, xid(1), &["a"], "1");
    assert_eq!(resource.call(Verb::Prepare(xid(1))), Reply::Vote(Vote::Yes));
    work(&mut resource, xid(2), &["b"], "2");
    assert_eq!(resource.call(Verb::Prepare(xid(2))), Reply::Vote(Vote::Yes));
    drop((db, resource));
    let (db, _, _) = connected(again());
    let mut agent = DocsConnector::new("docs", Arc::clone(&db), Meta::default()).connect().unwrap();
    let mut other = DocsConnector::new("docs", Arc::clone(&db), Meta::default()).connect().unwrap();
    assert_eq!((agent.call(Verb::Claim(NODE)), agent.call(Verb::Claim(NODE))), (Reply::Done, Reply::Done));
    assert!(matches!(other.call(Verb::Claim(NODE)), Reply::Refused(Kind::Conflict, _)));
    assert_eq!(agent.call(Verb::Recover(NODE)), Reply::Listed(vec![xid(1), xid(2)]));
    assert_eq!(agent.call(Verb::Commit(xid(1))), Reply::Done);
    assert_eq!(agent.call(Verb::Rollback(xid(2))), Reply::Done);
    assert_eq!((number(&db, "a"), number(&db, "b")), ((1, "1".to_owned()), (0, String::new())));
    assert_eq!(agent.call(Verb::Recover(NODE)), Reply::Listed(Vec::new()));
    assert!(matches!(agent.call(Verb::Forget(xid(1))), Reply::Unknown(_)));
    drop(agent);
    assert_eq!(other.call(Verb::Claim(NODE)), Reply::Done);
}
