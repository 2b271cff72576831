//! Assets as a branch of a transaction: votes that survive a death, recovery's verbs, and beside another store under one decision.

use assent_assets::{AssetId, AssetsConnector, AssetsResource, Known, Op};
use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::{Connector as _, Past, Reply, Resource, Verb, Vote};

use super::{House, add, create, fresh, get};

const NODE: NodeId = NodeId(77);

fn name(counter: u64) -> Xid {
    let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
    Branch { node: NODE, tx, resource: ResourceId::of("assets"), number: 0, flags: 0, mark: None }.xid()
}

fn resource(house: &House) -> AssetsResource {
    AssetsResource::new("assets", house.engine.clone())
}

/// Begins a branch, does this, and ends it.
fn ended(resource: &mut AssetsResource, xid: Xid, ops: &[Op]) {
    assert_eq!(resource.call(Verb::Start(xid)), Reply::Done);
    ops.iter().for_each(|op| resource.work(*op).unwrap());
    assert_eq!(resource.call(Verb::End { xid, success: true }), Reply::Done);
}

#[test]
fn a_vote_survives_a_death_and_recovery_commits_it_over_a_connection_of_its_own() {
    let house = fresh();
    house.run(&[create(1, 10)]);
    let mut one = resource(&house);
    ended(&mut one, name(1), &[add(1, 5)]);
    assert_eq!(one.call(Verb::Prepare(name(1))), Reply::Vote(Vote::Yes));
    let witness = one.witness();
    ended(&mut one, name(2), &[add(1, 5)]);
    assert!(matches!(one.call(Verb::Prepare(name(2))), Reply::RolledBack(_)), "the first one holds it");
    drop(one);
    let house = house.again(2);
    let connector = AssetsConnector::new("assets", house.engine.clone());
    let mut agent = connector.connect().unwrap();
    assert_eq!(agent.call(Verb::Claim(NODE)), Reply::Done);
    assert_eq!(agent.call(Verb::Claim(NODE)), Reply::Done, "its own");
    assert!(matches!(resource(&house).call(Verb::Claim(NODE)), Reply::Refused(Kind::Conflict, _)));
    assert_eq!(agent.call(Verb::Recover(NODE)), Reply::Listed(vec![name(1)]));
    assert_eq!(agent.call(Verb::Recover(NodeId(1))), Reply::Listed(Vec::new()), "of another node");
    let mut ask = |xid, witness: &[u8]| agent.call(Verb::Inquire { xid, witness: witness.to_vec() });
    assert_eq!(ask(name(1), &witness), Reply::Past(Past::Open));
    assert!(matches!(ask(name(3), &[]), Reply::Past(Past::Elsewhere(_))));
    assert!(matches!(ask(name(3), &99_u64.to_le_bytes()), Reply::Past(Past::Elsewhere(_))), "set back");
    assert_eq!(agent.call(Verb::Commit(name(1))), Reply::Done);
    assert_eq!(agent.call(Verb::Commit(name(1))), Reply::Done, "told again");
    assert_eq!(agent.call(Verb::Inquire { xid: name(1), witness }), Reply::Past(Past::Committed));
    assert!(matches!(agent.call(Verb::Commit(name(9))), Reply::Unknown(_)));
    drop(agent);
    assert_eq!(resource(&house).call(Verb::Claim(NODE)), Reply::Done, "a claim goes with its connection");
    assert_eq!(house.value(1), Some(15));
}

#[test]
fn what_is_not_prepared_leaves_nothing_and_an_only_branch_commits_in_one_phase() {
    let house = fresh();
    house.run(&[create(1, 10)]);
    let mut one = resource(&house);
    assert_eq!(one.work(add(1, 1)).unwrap_err().0, Kind::Invalid, "no branch is started");
    ended(&mut one, name(1), &[add(1, 1)]);
    assert_eq!(one.call(Verb::CommitOnePhase(name(1))), Reply::Done);
    ended(&mut one, name(2), &[add(1, 1)]);
    assert_eq!(one.call(Verb::Rollback(name(2))), Reply::Done);
    ended(&mut one, name(3), &[add(1, 1), add(9, 1)]);
    assert!(matches!(one.call(Verb::CommitOnePhase(name(3))), Reply::RolledBack(_)));
    ended(&mut one, name(4), &[]);
    assert_eq!(one.call(Verb::Prepare(name(4))), Reply::Vote(Vote::ReadOnly));
    ended(&mut one, name(5), &[get(1)]);
    assert_eq!(one.call(Verb::Prepare(name(5))), Reply::Vote(Vote::ReadOnly));
    assert_eq!(one.call(Verb::Start(name(6))), Reply::Done);
    one.work(add(1, 1)).unwrap();
    assert_eq!(one.call(Verb::End { xid: name(6), success: false }), Reply::Done);
    assert!(matches!(one.call(Verb::Prepare(name(6))), Reply::RolledBack(_)), "its work had failed");
    ended(&mut one, name(7), &[add(1, 1)]);
    assert_eq!(one.call(Verb::Prepare(name(7))), Reply::Vote(Vote::Yes));
    assert!(matches!(resource(&house).call(Verb::Start(name(7))), Reply::Refused(Kind::Conflict, _)));
    assert_eq!(one.call(Verb::Rollback(name(7))), Reply::Done);
    assert!(matches!(one.call(Verb::Commit(name(7))), Reply::RolledBack(_)));
    assert_eq!(house.engine.branch(&name(7)), Ok(Known::RolledBack));
    assert_eq!(house.engine.peek(AssetId(1)).map(|asset| (asset.value, asset.updates)), Some((11, 1)));
}
