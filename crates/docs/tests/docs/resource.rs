//! A database among the branches of a transaction.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assent_docs::{
    Database, DocsConnector, DocsError, DocsResource, KIND_PREPARE, Look, Meta, NodeKey, Once, Value, Versioning,
};
use assent_ids::{Branch, Epoch, Incarnation, Lsn, NodeId, ResourceId, TxId, Xid};
use assent_journal::{Entries, Entry, Journal, JournalError, Log, State, Ticket};
use assent_kind::Kind;
use assent_xa::{Connector, Past, Reply, Resource, Verb, Vote};

use super::tree::push;
use super::{Desk, fresh, open_with, says};

const NODE: NodeId = NodeId(5);

fn xid(counter: u64) -> Xid {
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
    Branch { node: NODE, tx, resource: ResourceId(1), number: 0, flags: 0, mark: None }.xid()
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

#[test]
fn a_document_that_a_branch_lets_go_is_free_and_has_no_revision_of_it() {
    // Each document of a branch that carries what is done once has a revision, also where nothing has changed.
    let (db, mut resource, _) = connected(fresh());
    let once = Once { name: [7; 32], until_ms: u64::MAX, note: String::new() };
    resource.say(Meta { fields: vec![once.field()], ..Meta::default() });
    resource.let_go("a");
    assert_eq!(resource.call(Verb::Start(xid(1))), Reply::Done);
    push(resource.edit("a").unwrap(), NodeKey::DOCUMENT, None, Value::Null);
    let held = resource.held_bytes();
    push(resource.edit("b").unwrap(), NodeKey::DOCUMENT, None, Value::Null);
    assert_eq!(["a", "b", "c"].map(|name| resource.has(name)), [true, true, false]);
    // The one beside the one that is written just now, then that one.
    resource.let_go("a");
    assert_eq!((resource.has("a"), resource.held_bytes()), (false, held));
    drop(db.document("a").unwrap().edit().unwrap());
    resource.let_go("b");
    assert_eq!((resource.has("b"), resource.held_bytes()), (false, 0));
    // What comes behind it is another edit.
    push(resource.edit("b").unwrap(), NodeKey::DOCUMENT, None, Value::Bool(true));
    resource.edit("a").unwrap();
    resource.let_go("a");
    assert_eq!(resource.call(Verb::End { xid: xid(1), success: true }), Reply::Done);
    assert_eq!(resource.call(Verb::Prepare(xid(1))), Reply::Vote(Vote::Yes));
    assert_eq!(resource.call(Verb::Commit(xid(1))), Reply::Done);
    assert_eq!((number(&db, "a").0, number(&db, "b").0), (0, 1));
}

/// What became of a branch, as a database tells it.
fn became(db: &Arc<Database>, xid: Xid, witness: &[u8]) -> Past {
    let mut agent = DocsResource::new("docs", Arc::clone(db), Meta::default());
    match agent.call(Verb::Inquire { xid, witness: witness.to_vec() }) {
        Reply::Past(past) => past,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_became_of_a_branch_is_told_by_whoever_voted_and_by_nobody_else() {
    // A restored older copy answered "forgotten" of a branch that it had never heard of: half a transaction was gone and counted as
    // committed.
    let (db, mut resource, again) = connected(fresh());
    let mut witnesses = Vec::new();
    for (counter, is_commit) in [(1, true), (2, false), (3, true)] {
        work(&mut resource, xid(counter), &["a", "b"], &counter.to_string());
        assert_eq!(resource.call(Verb::Prepare(xid(counter))), Reply::Vote(Vote::Yes));
        witnesses.push(resource.witness());
        assert_eq!(became(&db, xid(counter), witnesses.last().unwrap()), Past::Open);
        let verb = if is_commit { Verb::Commit(xid(counter)) } else { Verb::Rollback(xid(counter)) };
        assert_eq!(resource.call(verb), Reply::Done);
    }
    let expected = [Past::Committed, Past::Forgotten, Past::Committed];
    let told = |db: &Arc<Database>| [0, 1, 2].map(|at| became(db, xid(at + 1), &witnesses[at as usize]));
    assert_eq!(told(&db), expected);
    drop((db, resource));
    let (db, ..) = connected(again());
    assert_eq!(told(&db), expected);
    // What was committed and truncated, or dropped, is told by nobody any more.
    db.document("a").unwrap().truncate(1).unwrap();
    db.drop_document("b").unwrap();
    assert_eq!(told(&db), [Past::Committed, Past::Forgotten, Past::Forgotten]);
    assert!(matches!(became(&db, xid(1), b""), Past::Elsewhere(_)), "nothing was kept");
    assert!(matches!(became(&db, xid(1), b"other"), Past::Elsewhere(_)), "not of such a store");
    // The same place of a copy from before it: nothing, or something else.
    let (older, ..) = connected(fresh());
    for _ in 0..3 {
        for (counter, witness) in (1..).zip(&witnesses) {
            assert!(matches!(became(&older, xid(counter), witness), Past::Elsewhere(_)));
        }
        let doc = older.document("a").unwrap();
        let mut edit = doc.edit().unwrap();
        match edit.value() {
            None => _ = push(&mut edit, NodeKey::DOCUMENT, None, Value::Number("7")),
            Some(value) => edit.set(value, Value::Number(&"7".repeat(300))).unwrap(),
        }
        edit.commit(&Meta::default()).unwrap();
    }
}

/// A journal that is at its end as soon as a branch is prepared.
#[derive(Debug)]
struct Ending {
    log: Arc<Journal>,
    is_over: AtomicBool,
}

impl Log for Ending {
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        let ticket = self.log.append(kind, parts);
        self.is_over.store(kind == KIND_PREPARE, Ordering::Relaxed);
        ticket
    }

    fn end(&self) -> Lsn {
        if self.is_over.load(Ordering::Relaxed) { Lsn(u64::MAX) } else { self.log.end() }
    }

    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.log.wait(ticket)
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.log.wait_durable(ticket)
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        self.log.sync()
    }

    fn durable(&self) -> Lsn {
        self.log.durable()
    }

    fn start(&self) -> Lsn {
        self.log.start()
    }

    fn read(&self, from: Lsn) -> Result<Entries<'_>, JournalError> {
        self.log.read(from)
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        self.log.read_at(lsn)
    }

    fn trim(&self, to: Lsn) -> Result<(), JournalError> {
        self.log.trim(to)
    }

    fn epoch(&self) -> Epoch {
        self.log.epoch()
    }

    fn state(&self) -> State {
        self.log.state()
    }
}

#[test]
fn one_phase_that_cannot_end_what_it_prepared_does_not_say_that_it_is_rolled_back() {
    // "Rolled back", and the documents were held, also after a restart, until a coordinator listed the branch.
    let Desk { disk, clock, log, db, config } = fresh();
    drop(db);
    let log = Arc::new(Ending { log, is_over: AtomicBool::new(false) });
    let (disk, clock) = (Arc::new(disk), Arc::new(clock));
    let db = Database::open(Arc::clone(&log) as _, disk, clock, Path::new("index"), config).unwrap();
    let db = Arc::new(db);
    ["a", "b"].iter().for_each(|name| _ = db.create(name, Versioning::default()).unwrap());
    let mut resource = DocsResource::new("docs", Arc::clone(&db), Meta::default());
    work(&mut resource, xid(1), &["a", "b"], "1");
    let answer = resource.call(Verb::CommitOnePhase(xid(1)));
    let Reply::Lost(native) = answer else { panic!("{answer:?}") };
    assert!(native.message.contains("is prepared and has no outcome: a journal of"), "{native:?}");
    log.sync().unwrap();
    db.tick();
    assert_eq!(resource.call(Verb::Recover(NODE)), Reply::Listed(vec![xid(1)]));
    assert_eq!(db.document("a").unwrap().edit().unwrap_err().kind(), Kind::Busy);
    // A coordinator that lists it ends it.
    log.is_over.store(false, Ordering::Relaxed);
    assert_eq!(resource.call(Verb::Rollback(xid(1))), Reply::Done);
    assert_eq!(resource.call(Verb::Recover(NODE)), Reply::Listed(Vec::new()));
    db.document("a").unwrap().edit().unwrap();
}

#[test]
fn a_branch_of_many_documents_keeps_no_more_in_memory_than_two_edits_may() {
    // Each document kept what one edit may, so that a request of 16 MB over 120 of them took 1.3 GB, for as long as it was open.
    const NODES: usize = 100;
    let desk = super::fresh_with(assent_docs::Config { edit_nodes_max: 100, ..assent_docs::Config::default() });
    let names: Vec<String> = (0..40).map(|number| format!("doc {number}")).collect();
    names.iter().for_each(|name| _ = desk.db.create(name, Versioning::default()).unwrap());
    let (db, mut resource, again) = connected(desk);
    assert_eq!((resource.call(Verb::Start(xid(1))), resource.held_bytes()), (Reply::Done, 0));
    let (mut most, mut one) = (0, 0);
    // Twice over all of them, so that what was laid is changed again.
    for round in 0..2 {
        for name in &names {
            let edit = resource.edit(name).unwrap();
            let array = edit.value().unwrap_or_else(|| push(edit, NodeKey::DOCUMENT, None, Value::Array));
            for number in 0..NODES / 2 {
                push(edit, array, None, Value::Number(&(round * NODES / 2 + number).to_string()));
            }
            one = one.max(if most == 0 { resource.held_bytes() } else { 0 });
            most = most.max(resource.held_bytes());
        }
    }
    assert!(one > 0 && most <= 8 * one, "{one} bytes for half of what an edit may keep, {most} at most");
    assert_eq!(resource.call(Verb::End { xid: xid(1), success: true }), Reply::Done);
    assert_eq!(resource.call(Verb::Prepare(xid(1))), Reply::Vote(Vote::Yes));
    assert_eq!((resource.call(Verb::Commit(xid(1))), resource.held_bytes()), (Reply::Done, 0));
    drop((db, resource));
    let desk = again();
    let said = format!("[{}]", (0..NODES).map(|number| number.to_string()).collect::<Vec<_>>().join(","));
    for name in &names {
        let revision = desk.db.document(name).unwrap().latest();
        assert_eq!(revision.verify().unwrap(), NODES as u64 + 1, "{name}");
        assert_eq!(assent_docs::Form::default().text(&revision).unwrap(), said, "{name}");
    }
}
