//! What has expired is not there, for nobody, and never comes back.

use std::ops::Bound;
use std::time::Duration;

use assent_kv::{Condition, Config, Durability, Expect, Kv, Op, Snapshot};

use super::branches::{commit, prepare};
use super::{all, fresh, keep, open_at, rows, xid};

fn put(kv: &Kv, key: &[u8], value: &[u8], expiry: u64) {
    kv.batch(&[Op::put(0, key, value).expiring(expiry)], Durability::Durable).unwrap();
}

fn is_there(kv: &Kv, key: &[u8]) -> bool {
    let snapshot = kv.snapshot();
    let there = kv.get(0, key).unwrap().is_some();
    assert_eq!(kv.head(0, key).unwrap().is_some(), there);
    assert_eq!(sees(&snapshot, key), there);
    let expects = if there { Expect::Present } else { Expect::Absent };
    kv.batch_if(&[Condition::new(0, key, expects)], &[Op::put(9, b"", b"")], Durability::Buffered).unwrap();
    there
}

fn sees(snapshot: &Snapshot, key: &[u8]) -> bool {
    let there = snapshot.get(0, key).unwrap().is_some();
    let only = (Bound::Included(key), Bound::Included(key));
    assert_eq!(snapshot.head(0, key).unwrap().is_some(), there);
    assert_eq!(snapshot.scan(0, only.0, only.1, 9).unwrap().len(), usize::from(there));
    assert_eq!(snapshot.heads(0, only.0, only.1, 9).unwrap().len(), usize::from(there));
    there
}

#[test]
fn a_key_is_gone_from_its_expiry_on_for_every_kind_of_read() {
    let desk = fresh();
    let kv = &desk.kv;
    desk.clock.set_wall_ms(1_000);
    put(kv, b"k", b"v", 2_000);
    put(kv, b"past", b"v", 1_000);
    put(kv, b"never", b"v", u64::MAX);
    put(kv, b"refreshed", b"v", 2_000);
    put(kv, b"kept", b"v", 2_000);
    assert!(is_there(kv, b"k") && !is_there(kv, b"past"));
    put(kv, b"refreshed", b"v", 3_000);
    kv.put(0, b"kept", b"v", Durability::Durable).unwrap();
    desk.clock.set_wall_ms(1_999);
    let before = kv.snapshot();
    assert!(is_there(kv, b"k"));
    desk.clock.set_wall_ms(2_000);
    assert!(!is_there(kv, b"k"));
    assert!(sees(&before, b"k"), "a snapshot is of its time");
    assert!([&b"refreshed"[..], b"kept", b"never"].iter().all(|key| is_there(kv, key)));
    // On its way, and expired before it is visible.
    let pending = kv.batch_begin(&[Op::put(0, b"late", b"v").expiring(2_001)], Durability::Durable).unwrap();
    let absent = [Condition::new(0, b"late", Expect::Absent)];
    kv.batch_if(&absent, &[Op::put(9, b"", b"")], Durability::Durable).unwrap_err();
    desk.clock.set_wall_ms(2_001);
    kv.batch_if(&absent, &[Op::put(9, b"", b"")], Durability::Durable).unwrap();
    kv.wait(pending).unwrap();
    put(kv, b"k", b"again", 0);
    assert_eq!(kv.get(0, b"k").unwrap().unwrap(), b"again");
}

#[test]
fn a_clock_that_is_set_back_brings_nothing_back_not_through_a_restart_either() {
    for checkpoint in [false, true] {
        let mut desk = fresh();
        desk.clock.set_wall_ms(1_000);
        put(&desk.kv, b"k", b"v", 2_000);
        desk.clock.set_wall_ms(2_000);
        assert!(!is_there(&desk.kv, b"k"));
        desk.clock.set_wall_ms(500);
        assert!(!is_there(&desk.kv, b"k"));
        desk.kv.put(0, b"later", b"v", Durability::Durable).unwrap();
        assert_eq!(desk.kv.head(0, b"later").unwrap().unwrap().modified, 2_000);
        if checkpoint {
            desk.kv.checkpoint().unwrap();
        }
        desk = desk.again();
        assert!(!is_there(&desk.kv, b"k"), "checkpoint: {checkpoint}");
        assert_eq!(all(&desk.kv, 0), rows(&[("later", "v")]));
    }
}

/// A session that was over was there again: its row stood in one file of the ledger, and what told of the later time in another one, so
/// that nothing was replayed, and the store took the clock's time, which had been set back, for now.
#[test]
fn a_clock_that_is_set_back_brings_nothing_back_where_nothing_is_replayed() {
    for outcome in [false, true] {
        let mut desk = fresh();
        desk.clock.set_wall_ms(1_000);
        put(&desk.kv, b"k", b"v", 2_000);
        desk.kv.checkpoint().unwrap();
        desk.clock.set_wall_ms(2_000);
        // A read alone: what it is told behind must not say the time for it.
        assert_eq!(desk.kv.get(0, b"k"), Ok(None));
        if outcome {
            // The last entry says no time.
            super::branches::ended(&desk.kv, &xid(1), b"other", b"v");
            prepare(&desk.kv, &xid(1)).unwrap();
            commit(&desk.kv, &xid(1)).unwrap();
        }
        desk.kv.checkpoint().unwrap();
        desk.clock.set_wall_ms(500);
        for _ in 0..2 {
            desk = desk.again();
            assert_eq!((desk.kv.stats().replayed, desk.kv.get(0, b"k")), (0, Ok(None)), "outcome {outcome}");
            assert_eq!(desk.kv.snapshot().time_ms(), 2_000);
        }
    }
}

/// A lease or a branch reads for an hour: what it was told is kept before it ends.
#[test]
fn what_a_snapshot_that_is_kept_was_told_is_over_stays_so() {
    let mut desk = fresh();
    desk.clock.set_wall_ms(1_000);
    put(&desk.kv, b"k", b"v", 2_000);
    desk.kv.checkpoint().unwrap();
    desk.clock.set_wall_ms(2_000);
    let kept = desk.kv.snapshot();
    assert_eq!(kept.get(0, b"k"), Ok(None));
    desk.kv.keep_time().unwrap();
    drop(kept);
    desk.clock.set_wall_ms(500);
    desk = desk.again();
    assert_eq!((desk.kv.stats().replayed, desk.kv.get(0, b"k")), (0, Ok(None)));
}

/// A server that was only read wrote no note: a session of which somebody had been told that it was over was there again behind a
/// restart, where the clock had been set back.
#[test]
fn what_is_only_read_as_over_stays_so_behind_an_orderly_stop_and_a_minute_of_ticks() {
    let get = |kv: &Kv| assert_eq!(kv.get(0, b"k"), Ok(None));
    let scan = |kv: &Kv| assert_eq!(all(kv, 0), rows(&[]));
    let condition = |kv: &Kv| {
        let present = [Condition::new(0, b"k", Expect::Present)];
        kv.batch_if(&present, &[Op::put(9, b"", b"")], Durability::Durable).unwrap_err();
    };
    let nothing = |_: &Kv| {};
    let stop = |kv: &Kv| kv.keep_time().unwrap();
    type Does<'a> = &'a dyn Fn(&Kv);
    let table: [(Does<'_>, Does<'_>, u64, bool, bool); 10] = [
        (&get, &stop, 2_000, true, true),
        (&scan, &stop, 2_000, true, true),
        (&condition, &stop, 2_000, true, true),
        // Never written out.
        (&get, &stop, 2_000, false, true),
        (&get, &Kv::tick, 61_000, true, true),
        (&get, &Kv::tick, 61_000, false, true),
        // A kill takes a minute of it, and an end that tells nobody.
        (&get, &Kv::tick, 60_999, true, false),
        (&get, &nothing, 61_000, true, false),
        // Nobody was told: nothing is kept.
        (&nothing, &stop, 61_000, true, false),
        (&nothing, &Kv::tick, 61_000, true, false),
    ];
    for (row, (reads, ends, at, is_written_out, stays)) in table.into_iter().enumerate() {
        let mut desk = fresh();
        desk.clock.set_wall_ms(1_000);
        put(&desk.kv, b"k", b"v", 2_000);
        if is_written_out {
            desk.kv.checkpoint().unwrap();
        }
        desk.clock.set_wall_ms(at);
        reads(&desk.kv);
        ends(&desk.kv);
        let calls = desk.disk.calls();
        ends(&desk.kv);
        assert_eq!(desk.disk.calls(), calls, "row {row}: it is known");
        desk.clock.set_wall_ms(500);
        for _ in 0..2 {
            desk = desk.again();
            assert_eq!(desk.kv.get(0, b"k").unwrap().is_none(), stays, "row {row}");
        }
    }
}

#[test]
fn a_clock_that_was_far_ahead_is_believed_again_after_a_restart() {
    let desk = fresh();
    let day = Duration::from_secs(24 * 60 * 60);
    desk.clock.advance(10 * day);
    desk.kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    desk.clock.set_wall_ms(1_000);
    put(&desk.kv, b"short", b"v", 2_000);
    assert!(!is_there(&desk.kv, b"short"));
    let (disk, clock) = (desk.disk.clone(), desk.clock.clone());
    drop(desk);
    let desk = open_at(&disk, &clock, Config::default());
    assert!(is_there(&desk.kv, b"short"));
}

#[test]
fn merges_bury_what_has_expired_and_what_it_hid_stays_hidden() {
    let mut desk = fresh();
    desk.clock.set_wall_ms(1_000);
    for round in 0..6_u64 {
        for number in 0..60_u64 {
            let (key, value) = (number.to_be_bytes(), [7; 10]);
            match number % 3 {
                // Before: without an end. Now: with one, over it.
                0 => put(&desk.kv, &key, &value, if round == 0 { 0 } else { 2_000 + round }),
                1 => put(&desk.kv, &[round.to_be_bytes(), key].concat(), &value, 2_000),
                _ => put(&desk.kv, &key, &value, 0),
            }
        }
        desk.kv.checkpoint().unwrap();
        if round == 3 {
            desk.clock.set_wall_ms(2_003);
            assert!(is_there(&desk.kv, &0_u64.to_be_bytes()) == (round > 3));
        }
        keep(&desk.kv);
    }
    desk.clock.set_wall_ms(3_000);
    let live: Vec<_> = (0..60_u64).filter(|number| number % 3 == 2).map(u64::to_be_bytes).collect();
    let seen = |kv: &Kv| all(kv, 0).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(seen(&desk.kv), live);
    // So many small ones that all are merged.
    for number in 0..40_u64 {
        desk.kv.put(1, b"k", &number.to_be_bytes(), Durability::Durable).unwrap();
        put(&desk.kv, &0_u64.to_be_bytes(), b"", 1);
        put(&desk.kv, &58_u64.to_be_bytes(), b"", 1);
        desk.kv.put(0, &59_u64.to_be_bytes(), &[8; 10], Durability::Durable).unwrap();
        desk.kv.put(0, &2_u64.to_be_bytes(), &[8; 10], Durability::Durable).unwrap();
        desk.kv.checkpoint().unwrap();
        keep(&desk.kv);
    }
    desk.clock.set_wall_ms(100);
    for _ in 0..2 {
        assert_eq!(seen(&desk.kv), live);
        desk = desk.again();
    }
}

#[test]
fn what_merges_bury_is_counted_out_to_the_last_byte() {
    let mut desk = fresh();
    let mut live = 0;
    for round in 0..12_u8 {
        // So that each run spans all keys, and merges leave none out.
        for edge in [0, 255] {
            desk.kv.put(0, &[edge, round], &[7; 100], Durability::Durable).unwrap();
            live += 1;
        }
        for number in 0..10 {
            put(&desk.kv, &[1, round, number], &[7; 1000], 2_000);
        }
        desk.kv.checkpoint().unwrap();
        keep(&desk.kv);
        if round == 5 {
            let stats = desk.kv.stats();
            assert_eq!((stats.keys, stats.value_bytes), (live + 60, live * 100 + 60_000));
            desk.clock.set_wall_ms(2_000);
        }
    }
    desk.clock.set_wall_ms(0);
    for _ in 0..2 {
        let stats = desk.kv.stats();
        assert_eq!((stats.keys, stats.value_bytes), (live, live * 100));
        assert_eq!(all(&desk.kv, 0).len() as u64, live);
        desk = desk.again();
    }
}

#[test]
fn a_vote_takes_an_expiry_for_no_write() {
    let desk = fresh();
    let kv = &desk.kv;
    desk.clock.set_wall_ms(1_000);
    put(kv, b"before", b"v", 1_001);
    put(kv, b"within", b"v", 2_000);
    desk.clock.set_wall_ms(1_500);
    kv.start(&xid(1)).unwrap();
    assert_eq!(kv.branch_get(&xid(1), 0, b"before").unwrap(), None);
    assert!(kv.branch_get(&xid(1), 0, b"within").unwrap().is_some());
    let write = |key: &[u8], expiry| kv.branch_write(&xid(1), &Op::put(0, key, b"new").expiring(expiry)).unwrap();
    write(b"before", 5_000);
    write(b"within", 5_000);
    write(b"over", 1_400);
    assert_eq!(kv.branch_get(&xid(1), 0, b"over").unwrap(), None);
    let scanned = kv.branch_scan(&xid(1), 0, Bound::Unbounded, Bound::Unbounded, 9).unwrap();
    assert_eq!(scanned, rows(&[("before", "new"), ("within", "new")]));
    desk.clock.set_wall_ms(3_000);
    assert!(kv.branch_get(&xid(1), 0, b"within").unwrap().is_some());
    kv.end(&xid(1), true).unwrap();
    prepare(kv, &xid(1)).unwrap();
    commit(kv, &xid(1)).unwrap();
    assert_eq!(all(kv, 0), rows(&[("before", "new"), ("within", "new")]));
    desk.clock.set_wall_ms(5_000);
    assert_eq!(all(kv, 0), rows(&[]));
}
