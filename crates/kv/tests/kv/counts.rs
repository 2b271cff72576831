//! What a walk costs: appends and syncs are counted, and the count is the gate.

use std::path::Path;
use std::sync::Arc;

use assent_journal::{Journal, Log};
use assent_kv::{Config, Durability, Kv, Op};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_xa::Vote;

use super::branches::{commit, ended, prepare, rollback};
use super::scripted_log::Counts;
use super::{Desk, fresh, xid};

fn cost(desk: &Desk, walk: impl FnOnce()) -> (u64, u64) {
    let Counts { appends, syncs, .. } = desk.log.counts();
    walk();
    let after = desk.log.counts();
    (after.appends - appends, after.syncs - syncs)
}

#[test]
fn a_vote_is_one_append_and_one_sync_and_so_is_an_outcome() {
    let desk = fresh();
    let kv = &desk.kv;
    assert_eq!(cost(&desk, || ended(kv, &xid(1), b"k", b"v")), (0, 0));
    assert_eq!(cost(&desk, || assert_eq!(prepare(kv, &xid(1)), Ok(Vote::Yes))), (1, 1));
    assert_eq!(cost(&desk, || commit(kv, &xid(1)).unwrap()), (1, 1));
    ended(kv, &xid(2), b"k", b"v");
    assert_eq!(cost(&desk, || kv.wait(kv.commit_one_phase_begin(&xid(2)).unwrap()).unwrap()), (1, 1));
    ended(kv, &xid(3), b"k", b"v");
    prepare(kv, &xid(3)).unwrap();
    assert_eq!(cost(&desk, || rollback(kv, &xid(3)).unwrap()), (1, 1));
    ended(kv, &xid(4), b"k", b"v");
    assert_eq!(cost(&desk, || rollback(kv, &xid(4)).unwrap()), (0, 0));
}

#[test]
fn a_branch_that_wrote_nothing_costs_nothing() {
    let desk = fresh();
    let kv = &desk.kv;
    kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    let walk = |number| {
        kv.start(&xid(number)).unwrap();
        kv.branch_get(&xid(number), 0, b"k").unwrap();
        kv.end(&xid(number), true).unwrap();
    };
    let prepares = cost(&desk, || {
        walk(1);
        assert_eq!(prepare(kv, &xid(1)), Ok(Vote::ReadOnly));
    });
    let one_phase = cost(&desk, || {
        walk(2);
        kv.wait(kv.commit_one_phase_begin(&xid(2)).unwrap()).unwrap();
    });
    assert_eq!((prepares, one_phase, kv.stats().branches, kv.stats().snapshots), ((0, 0), (0, 0), 0, 0));
}

#[test]
fn many_that_wait_share_a_sync() {
    let desk = fresh();
    let kv = &desk.kv;
    for number in 0..8 {
        ended(kv, &xid(number), &[number.to_le_bytes()[0]], b"v");
    }
    let shared = cost(&desk, || {
        let plain = kv.batch_begin(&[Op::put(0, b"plain", b"")], Durability::Durable).unwrap();
        let votes: Vec<_> = (0..8).map(|number| kv.prepare_begin(&xid(number)).unwrap()).collect();
        votes.into_iter().rev().for_each(|voted| kv.wait(voted.pending).unwrap());
        kv.wait(plain).unwrap();
    });
    assert_eq!(shared, (9, 1));
}

#[test]
fn over_the_journal_the_counts_are_the_same() {
    let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let config = assent_journal::Config::default();
    let (journal, _) = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), config).unwrap();
    let log: Arc<dyn Log> = Arc::<Journal>::clone(&journal);
    let kv = Kv::open(log, Arc::new(disk), Arc::new(SimClock::new()), Path::new("kv"), Config::default()).unwrap();
    let cost = |walk: &dyn Fn()| {
        let before = journal.counts();
        walk();
        let after = journal.counts();
        (after.entries - before.entries, after.writes - before.writes, after.syncs - before.syncs)
    };
    ended(&kv, &xid(1), b"k", b"v");
    assert_eq!(cost(&|| _ = prepare(&kv, &xid(1)).unwrap()), (1, 1, 1));
    assert_eq!(cost(&|| commit(&kv, &xid(1)).unwrap()), (1, 1, 1));
    kv.start(&xid(2)).unwrap();
    kv.branch_get(&xid(2), 0, b"k").unwrap();
    kv.end(&xid(2), true).unwrap();
    assert_eq!(cost(&|| assert_eq!(prepare(&kv, &xid(2)), Ok(Vote::ReadOnly))), (0, 0, 0));
    ended(&kv, &xid(3), b"k", b"v");
    ended(&kv, &xid(4), b"l", b"v");
    let together = cost(&|| {
        let votes = [kv.prepare_begin(&xid(3)).unwrap(), kv.prepare_begin(&xid(4)).unwrap()];
        votes.into_iter().for_each(|voted| kv.wait(voted.pending).unwrap());
    });
    assert_eq!(together, (2, 1, 1));
}
