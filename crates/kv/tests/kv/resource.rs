//! The store as a resource manager: every verb gets the reply that XA asks for.

use std::sync::Arc;

use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, KvConnector, KvResource};
use assent_sim::{Call, Fault, Operation};
use assent_xa::{Connector, Past, Reply, Resource, Verb, Vote};

use super::{Desk, NODE, all, fresh, open, rows, xid};

fn work(resource: &mut KvResource, xid: Xid, key: &[u8]) {
    assert_eq!(resource.call(Verb::Start(xid)), Reply::Done);
    resource.put(0, key, b"v").unwrap();
    assert_eq!(resource.get(0, key).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(resource.call(Verb::End { xid, success: true }), Reply::Done);
}

fn connect(kv: &Arc<Kv>) -> KvResource {
    KvResource::new("bank", Arc::clone(kv))
}

#[test]
fn two_phases_one_phase_and_nothing_to_do() {
    let Desk { kv, .. } = fresh();
    let mut resource = connect(&kv);
    assert_eq!(resource.name(), "bank");
    work(&mut resource, xid(1), b"a");
    assert_eq!(resource.call(Verb::Prepare(xid(1))), Reply::Vote(Vote::Yes));
    let mut agent = KvConnector::new("bank", Arc::clone(&kv)).connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(NODE)), Reply::Listed(vec![xid(1)]));
    assert_eq!(agent.call(Verb::Commit(xid(1))), Reply::Done);
    assert!(matches!(resource.call(Verb::Commit(xid(1))), Reply::Unknown(_)));
    assert!(matches!(resource.call(Verb::Forget(xid(1))), Reply::Unknown(_)));
    work(&mut resource, xid(2), b"b");
    assert_eq!(resource.call(Verb::CommitOnePhase(xid(2))), Reply::Done);
    resource.call(Verb::Start(xid(3)));
    assert_eq!(resource.get(0, b"a").unwrap().as_deref(), Some(&b"v"[..]));
    resource.call(Verb::End { xid: xid(3), success: true });
    assert_eq!(resource.call(Verb::Prepare(xid(3))), Reply::Vote(Vote::ReadOnly));
    work(&mut resource, xid(4), b"c");
    assert_eq!(resource.call(Verb::Rollback(xid(4))), Reply::Done);
    assert_eq!(all(&kv, 0), rows(&[("a", "v"), ("b", "v")]));
    assert_eq!(resource.put(0, b"x", b"").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(resource.delete(0, b"x").unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_lost_race_is_rolled_back_and_a_wrong_state_is_refused() {
    let Desk { kv, .. } = fresh();
    let mut resource = connect(&kv);
    assert_eq!(resource.call(Verb::Start(xid(1))), Reply::Done);
    resource.get(0, b"k").unwrap();
    resource.put(0, b"k", b"v").unwrap();
    assert!(matches!(resource.call(Verb::Prepare(xid(1))), Reply::Refused(Kind::Invalid, _)));
    resource.call(Verb::End { xid: xid(1), success: true });
    kv.put(0, b"k", b"faster", Durability::Durable).unwrap();
    let Reply::RolledBack(native) = resource.call(Verb::Prepare(xid(1))) else { panic!("somebody was first") };
    assert_eq!(native.code, "conflict");
    assert!(matches!(resource.call(Verb::Rollback(xid(1))), Reply::Unknown(_)));
    resource.call(Verb::Start(xid(2)));
    assert!(matches!(resource.call(Verb::Start(xid(2))), Reply::Refused(Kind::Conflict, _)));
    resource.call(Verb::End { xid: xid(2), success: false });
    assert!(matches!(resource.call(Verb::Prepare(xid(2))), Reply::RolledBack(_)));
    assert!(matches!(resource.receive(), Reply::Refused(Kind::Internal, _)));
}

#[test]
fn an_answer_that_the_disk_swallowed_is_lost_and_never_no() {
    let Desk { kv, disk, .. } = fresh();
    let mut resource = connect(&kv);
    work(&mut resource, xid(1), b"k");
    disk.inject(Call::of(Operation::SyncData, 1), Fault::Io);
    assert!(matches!(resource.call(Verb::Prepare(xid(1))), Reply::Lost(_)));
    assert!(matches!(resource.call(Verb::Rollback(xid(1))), Reply::Refused(Kind::Closed, _)));
}

#[test]
fn a_dropped_connection_takes_its_unprepared_branches_along() {
    let Desk { kv, .. } = fresh();
    let mut resource = connect(&kv);
    work(&mut resource, xid(1), b"a");
    resource.call(Verb::Prepare(xid(1)));
    work(&mut resource, xid(2), b"b");
    resource.call(Verb::Start(xid(3)));
    assert_eq!(kv.stats().branches, 3);
    drop(resource);
    assert_eq!((kv.stats().branches, kv.prepared()), (1, vec![xid(1)]));
}

/// Works, votes, and says what the coordinator keeps of the vote.
fn voted(resource: &mut KvResource, xid: Xid, key: &[u8]) -> Vec<u8> {
    work(resource, xid, key);
    assert_eq!(resource.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));
    resource.witness()
}

fn past(resource: &mut KvResource, xid: Xid, witness: &[u8]) -> Past {
    match resource.call(Verb::Inquire { xid, witness: witness.to_vec() }) {
        Reply::Past(past) => past,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_became_of_a_branch_is_known_after_any_restart_with_and_without_a_checkpoint() {
    let mut desk = fresh();
    let mut resource = connect(&desk.kv);
    let witnesses: Vec<_> = (1..=3_u8).map(|it| voted(&mut resource, xid(it.into()), &[it])).collect();
    assert_eq!(past(&mut resource, xid(1), &witnesses[0]), Past::Open);
    resource.call(Verb::Commit(xid(1)));
    resource.call(Verb::Rollback(xid(2)));
    drop(resource);
    for round in 0..4 {
        let mut resource = connect(&desk.kv);
        let mut asked = |it: usize| past(&mut resource, xid(it as u64), &witnesses[it - 1]);
        assert_eq!((asked(1), asked(2), asked(3)), (Past::Committed, Past::RolledBack, Past::Open), "round {round}");
        if round == 1 {
            desk.kv.checkpoint().unwrap();
        }
        drop(resource);
        desk = desk.again();
    }
    assert_eq!(desk.kv.stats().replayed, 0, "the last ones were carried by a checkpoint");
}

#[test]
fn a_store_remembers_so_many_and_an_older_copy_of_it_or_another_one_says_so() {
    let config = Config { finished_max: 2, store: NodeId(5), ..Config::default() };
    let desk = open(&assent_sim::SimDisk::new(), config);
    let mut resource = connect(&desk.kv);
    let witnesses: Vec<_> = (1..=3_u8)
        .map(|it| {
            let witness = voted(&mut resource, xid(it.into()), &[it]);
            resource.call(Verb::Commit(xid(it.into())));
            witness
        })
        .collect();
    assert_eq!(past(&mut resource, xid(1), &witnesses[0]), Past::Forgotten);
    assert_eq!(past(&mut resource, xid(2), &witnesses[1]), Past::Committed);
    assert_eq!(desk.kv.stats().finished, 2);
    let elsewhere = |kv: &Arc<Kv>, it: usize| match past(&mut connect(kv), xid(it as u64), &witnesses[it - 1]) {
        Past::Elsewhere(native) => native.message,
        other => panic!("{other:?}"),
    };
    let another = open(&assent_sim::SimDisk::new(), Config { store: NodeId(6), ..config });
    assert_eq!(elsewhere(&another.kv, 3), format!("store {} voted, and this is store {}", NodeId(5), NodeId(6)));
    // Set back to before everything, under its own name.
    let copy = open(&assent_sim::SimDisk::new(), config);
    assert!(elsewhere(&copy.kv, 3).contains("older copy"));
    for _ in 0..20 {
        copy.kv.put(0, b"gone on", &[0; 100], Durability::Durable).unwrap();
    }
    assert!(elsewhere(&copy.kv, 3).contains("older copy"), "also once it has gone on");
}

#[test]
fn one_connection_resolves_a_nodes_branches_until_it_ends() {
    let Desk { kv, .. } = fresh();
    let (mut first, mut second) = (connect(&kv), connect(&kv));
    assert_eq!(first.call(Verb::Claim(NODE)), Reply::Done);
    assert_eq!(first.call(Verb::Claim(NODE)), Reply::Done, "it is its own already");
    assert!(matches!(second.call(Verb::Claim(NODE)), Reply::Refused(Kind::Conflict, _)));
    assert_eq!(second.call(Verb::Claim(NodeId(1))), Reply::Done, "another node's");
    drop(first);
    let mut third = connect(&kv);
    assert_eq!(third.call(Verb::Claim(NODE)), Reply::Done);
}
