//! Branches: their assets are held from the vote to the outcome, through restarts and snapshots.

use assent_assets::{Answer, AssetId, AssetsResource, Command, Known, Op, Refusal, Trace};
use assent_ids::NodeId;
use assent_journal::Log;
use assent_membership::Sequence;
use assent_sim::SimDisk;
use assent_xa::{Resource, Verb};

use super::{add, create, done, fresh, get, laid, results, xid};

fn refused(refusal: Refusal) -> Answer {
    Answer::Refused { op: 0, refusal }
}

#[test]
fn a_prepared_branch_holds_its_assets_and_nothing_of_it_is_seen_before_the_commit() {
    let house = fresh();
    house.run(&[create(1, 10), create(2, 20)]);
    let transfer = [add(1, -4), add(2, 4), get(1)];
    assert_eq!(house.prepare(5, &transfer), Answer::Voted(results(&[(6, 1), (24, 1), (6, 1)])));
    assert_eq!(house.run(&[get(1), get(2)]), done(&[(10, 0), (20, 0)]), "reads see what is committed");
    let held = |id| refused(Refusal::Held { id: AssetId(id) });
    for op in [add(1, 1), Op::Set { id: AssetId(1), value: 3 }, Op::Remove { id: AssetId(1) }] {
        assert_eq!(house.run(&[op]), held(1));
    }
    assert_eq!(house.prepare(6, &[add(2, 1)]), held(2));
    assert_eq!(house.prepare(5, &transfer), refused(Refusal::BranchKnown));
    assert_eq!(house.outcome(5, true), Answer::Done(results(&[])));
    assert_eq!(house.run(&[add(1, 1), get(2)]), done(&[(7, 2), (24, 1)]));
    assert_eq!(house.outcome(5, true), Answer::Done(results(&[])), "told again");
    assert_eq!(house.outcome(5, false), refused(Refusal::BranchFinished { committed: true }));
    assert_eq!(house.prepare(5, &transfer), refused(Refusal::BranchFinished { committed: true }));
    assert_eq!(house.outcome(9, true), refused(Refusal::BranchUnknown));
}

#[test]
fn a_branch_survives_restarts_and_snapshots_and_is_listed_in_doubt() {
    let house = fresh();
    house.run(&[create(1, 10), create(2, 20)]);
    house.prepare(5, &[add(1, -4), create(3, 7), Op::Remove { id: AssetId(2) }]);
    house.prepare(6, &[create(8, 1)]);
    house.outcome(6, false);
    let check = |house: &super::House| {
        let [listed] = house.engine.in_doubt().unwrap()[..] else { panic!("{:?}", house.engine.in_doubt()) };
        assert_eq!((listed.xid, listed.at, listed.assets), (xid(5), Sequence(2), 3));
        assert_eq!(house.engine.branch(&xid(6)).unwrap(), Known::RolledBack);
        assert_eq!(house.engine.branch(&xid(7)).unwrap(), Known::Nothing { since: Sequence(0) });
        for id in 1..=3 {
            assert_eq!(house.run(&[create(id, 0)]), refused(Refusal::Held { id: AssetId(id) }));
        }
    };
    check(&house);
    let house = house.again(2);
    check(&house);
    assert!(house.engine.snapshot().unwrap().is_some());
    let house = house.again(3);
    assert_eq!((house.recovery.replayed, house.recovery.snapshot), (0, Sequence(4)));
    check(&house);
    house.outcome(5, true);
    let house = house.again(4);
    assert_eq!((house.value(1), house.value(2), house.value(3)), (Some(6), None, Some(7)));
    assert!(house.engine.in_doubt().unwrap().is_empty());
    assert_eq!(house.engine.branch(&xid(5)).unwrap(), Known::Committed);
}

#[test]
fn what_is_told_again_of_a_branch_is_durable_also_where_the_log_is_lazy() {
    let house = super::lazy(&SimDisk::new());
    house.run(&[create(1, 10)]);
    let unsynced = || house.log.end().0 - house.log.durable().0;
    let order = |command: &[u8]| house.engine.order(command, &mut Vec::new(), &mut Trace::default()).unwrap();
    let prepare = laid(|out| Command::lay_prepare(out, &xid(1), &[add(1, 1)]));
    let commit = laid(|out| Command::lay_outcome(out, &xid(1), true));
    for command in [prepare, commit] {
        // The first answer is lost before anybody waited for it; the second one may not be told earlier than it might have been.
        _ = order(&command);
        assert!(unsynced() > 0);
        house.engine.confirm(order(&command)).unwrap();
        assert_eq!(unsynced(), 0, "{command:?}");
    }
    for look in [
        |house: &super::House| _ = house.engine.in_doubt().unwrap(),
        |house: &super::House| {
            _ = house.engine.branch(&xid(2)).unwrap();
        },
    ] {
        house.run(&[add(1, 1)]);
        assert!(unsynced() > 0, "the log is lazy");
        look(&house);
        assert_eq!(unsynced(), 0);
    }
    let mut agent = AssetsResource::new("assets", house.engine.clone());
    for verb in [Verb::Recover(NodeId(1)), Verb::Inquire { xid: xid(1), witness: Vec::new() }, Verb::Commit(xid(1))] {
        house.run(&[add(1, 1)]);
        assert!(unsynced() > 0);
        agent.call(verb);
        assert_eq!(unsynced(), 0);
    }
}

#[test]
fn a_branch_that_cannot_is_refused_at_its_vote_and_one_that_only_reads_is_finished() {
    let house = fresh();
    house.run(&[create(1, 10)]);
    let bound = Op::AddWithin { id: AssetId(1), by: -11, min: 0, max: 100 };
    let refusal = Refusal::Bounds { id: AssetId(1), value: -1, bound: 0 };
    assert_eq!(house.prepare(1, &[add(1, 0), bound]), Answer::Refused { op: 1, refusal });
    assert_eq!(house.prepare(1, &[get(1)]), Answer::ReadOnly(results(&[(10, 0)])));
    assert_eq!(house.outcome(1, true), refused(Refusal::BranchUnknown));
    assert_eq!(house.run(&[add(1, 1)]), done(&[(11, 1)]), "nothing is held");
}
