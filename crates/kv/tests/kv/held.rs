//! Prepared branches among all that goes on beside them: restarts, compactions, keyspaces that are dropped, ledgers that are lost.

use std::time::Duration;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_kv::{Condition, Durability, Expect, Kv, KvError, Op};
use assent_sim::SimDisk;

use super::branches::prepare;
use super::compactions::{House, house, merge_all};
use super::faults::settle;
use super::xid;

fn write(kv: &Kv, xid: &Xid, ops: &[Op<'_>]) {
    kv.start(xid).unwrap();
    ops.iter().for_each(|op| kv.branch_write(xid, op).unwrap());
    kv.end(xid, true).unwrap();
    prepare(kv, xid).unwrap();
}

/// Values that supersede each other, so that whatever is around gets compacted.
fn churn(house: &House, space: u32) -> u64 {
    let before = house.kv.stats().compactions;
    for round in 0..6_u64 {
        for key in 0..30_u64 {
            let value = round.to_le_bytes().repeat(60);
            house.kv.put(space, &key.to_be_bytes(), &value, Durability::Durable).unwrap();
        }
        settle(&house.kv);
        merge_all(&house.kv);
        house.compact_all();
    }
    house.kv.stats().compactions - before
}

#[test]
fn a_branch_stands_through_restart_compaction_a_drop_beside_it_and_a_lost_ledger_and_ends_as_it_is_told() {
    for lost in 0..8_u32 {
        let mut house = house(&SimDisk::new(), 1);
        let [mine, beside] = ["mine", "beside"].map(|name| house.kv.keyspace_create(name).unwrap());
        for key in [&b"deleted"[..], b"replaced", b"kept"] {
            house.kv.put(mine, key, &[1; 300], Durability::Durable).unwrap();
        }
        house.kv.put(beside, b"gone", &[1; 300], Durability::Durable).unwrap();
        let (committed, rolled_back) = (xid(1), xid(2));
        let ops = [
            Op::put(mine, b"replaced", &[2; 300]),
            Op::delete(mine, b"deleted"),
            Op::put(mine, b"timed", b"v").expiring(u64::MAX),
            Op::put(0, b"long", &[3; 20_000]),
        ];
        write(&house.kv, &committed, &ops);
        write(&house.kv, &rolled_back, &[Op::put(mine, b"kept", &[9; 300]), Op::put(0, b"nothing", &[9; 300])]);
        // Each restart with its ledger or without.
        let again = |house: House, nth: u32| {
            if lost >> nth & 1 == 1 {
                house.without_ledger(u64::from(nth) + 2)
            } else {
                house.again(u64::from(nth) + 2)
            }
        };
        house = again(house, 0);
        churn(&house, 7);
        house.kv.keyspace_drop("beside").unwrap();
        let refused = house.kv.keyspace_drop("mine").unwrap_err();
        assert!(matches!(refused, KvError::Held { .. }), "{refused}");
        house = again(house, 1);
        assert_eq!(house.kv.prepared(), [committed, rolled_back], "{lost:b}");
        for key in [&b"replaced"[..], b"deleted", b"timed", b"kept"] {
            let refused = house.kv.put(mine, key, b"", Durability::Durable).unwrap_err();
            assert!(matches!(refused, KvError::Held { .. }), "{refused}");
        }
        let refused = house.kv.erase(mine, b"", None, Durability::Durable).unwrap_err();
        assert_eq!(refused.kind(), Kind::Conflict);
        let absent = [Condition::new(mine, b"timed", Expect::Absent)];
        let refused = house.kv.batch_if(&absent, &[Op::put(0, b"x", b"")], Durability::Durable).unwrap_err();
        assert!(matches!(refused, KvError::Held { .. }), "neither there nor not: {refused}");
        assert_eq!(house.kv.get(mine, b"replaced").unwrap(), Some(vec![1; 300]), "nobody sees it yet");
        house.kv.wait(house.kv.commit_begin(&committed).unwrap()).unwrap();
        house.kv.wait(house.kv.rollback_begin(&rolled_back).unwrap()).unwrap();
        assert!(churn(&house, 7) > 0, "{:?}", house.kv.stats());
        house = again(house, 2);
        let look = |kv: &Kv| {
            let get = |space, key: &[u8]| kv.get(space, key).unwrap();
            assert_eq!(get(mine, b"replaced"), Some(vec![2; 300]), "{lost:b}");
            assert_eq!((get(mine, b"deleted"), get(mine, b"kept")), (None, Some(vec![1; 300])));
            assert_eq!((get(mine, b"timed"), get(0, b"nothing")), (Some(b"v".to_vec()), None));
            assert!(get(0, b"long") == Some(vec![3; 20_000]));
            assert_eq!((get(beside, b"gone"), kv.prepared().len(), kv.stats().held_keys), (None, 0, 0));
            let mut told = Vec::new();
            kv.verify(&mut |error| told.push(error.to_string()));
            assert_eq!(told, Vec::<String>::new());
        };
        look(&house.kv);
        // Nothing holds it any more, and a lease of before shows it still.
        let lease = house.kv.lease(Duration::from_secs(3600));
        house.kv.keyspace_drop("mine").unwrap();
        churn(&house, 7);
        assert_eq!(lease.get(mine, b"replaced").unwrap(), Some(vec![2; 300]));
        drop(lease);
        house = again(house, 0);
        assert_eq!((house.kv.get(mine, b"replaced"), house.kv.keyspaces().unwrap().len()), (Ok(None), 0));
        let again = house.kv.keyspace_create("mine").unwrap();
        assert!(again > beside && house.kv.get(again, b"replaced").unwrap().is_none());
    }
}

/// Its keyspace was dropped while it worked: it votes no, however it wrote there, and nothing of it is found again.
#[test]
fn a_branch_whose_keyspace_went_votes_no_through_any_restart() {
    let house = house(&SimDisk::new(), 1);
    let space = house.kv.keyspace_create("s").unwrap();
    for (number, op) in [(1, Op::put(space, b"k", b"v")), (2, Op::delete(space, b"k"))] {
        house.kv.start(&xid(number)).unwrap();
        house.kv.branch_get(&xid(number), space, b"k").unwrap();
        house.kv.branch_write(&xid(number), &op).unwrap();
        house.kv.end(&xid(number), true).unwrap();
    }
    house.kv.keyspace_drop("s").unwrap();
    house.kv.keyspace_create("s").unwrap();
    assert_eq!(prepare(&house.kv, &xid(1)).unwrap_err().kind(), Kind::Conflict);
    assert_eq!(house.kv.commit_one_phase_begin(&xid(2)).unwrap_err().kind(), Kind::Conflict);
    assert_eq!((house.kv.stats().branches, house.kv.stats().held_keys), (0, 0));
    let house = house.without_ledger(2);
    assert_eq!((house.kv.get(space, b"k"), house.kv.prepared()), (Ok(None), vec![]));
}
