//! The store as a resource manager: every verb gets the reply that XA asks for.

use std::sync::Arc;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvConnector, KvResource};
use assent_sim::{Call, Fault, Operation};
use assent_xa::{Connector, Reply, Resource, Verb, Vote};

use super::{Desk, NODE, all, fresh, rows, xid};

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
