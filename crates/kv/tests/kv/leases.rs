//! Leases end when there are too many, when they are too old, or when they keep too much, and whoever reads on is told.

use std::ops::ControlFlow;
use std::time::Duration;

use assent_ids::Lsn;
use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::{Config, Durability, Fold, Kv, KvError, Lease, Op, Order, Row, What};
use assent_runs::AtOnce;
use assent_sim::SimDisk;
use assent_xa::Vote;

use super::branches::prepare;
use super::compactions::{self, SEGMENT_BYTES, house_over, journal, merge_all};
use super::{Desk, keep, open, xid};

const HOUR: Duration = Duration::from_secs(3600);

fn with(config: Config) -> Desk {
    let desk = open(&SimDisk::new(), config);
    desk.kv.put(0, b"k", b"old", Durability::Durable).unwrap();
    desk
}

fn ended(lease: &Lease) -> Option<&'static str> {
    match lease.get(0, b"k") {
        Ok(Some(value)) if value == b"old" => None,
        Err(KvError::SnapshotEnded { what, .. }) => {
            assert_eq!(
                lease.scan(0, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 1).unwrap_err().kind(),
                Kind::Conflict
            );
            Some(what)
        }
        other => panic!("{other:?}"),
    }
}

/// Rows of a megabyte and more, in memory and then in a file.
fn fill(kv: &Kv, with: u8) {
    for number in 0..320_u32 {
        let metadata = &[with; 4096];
        let put = Op::Put { keyspace: 1, key: &number.to_be_bytes(), metadata, value: b"", expiry: 0 };
        kv.batch(&[put], Durability::Buffered).unwrap();
    }
}

#[test]
fn a_lease_is_as_of_its_moment_until_its_time_is_over_and_anew_once_it_is_refreshed() {
    let desk = with(Config::default());
    let (lease, longer) = (desk.kv.lease(Duration::from_secs(5)), desk.kv.lease(HOUR));
    let at = lease.lsn().unwrap();
    desk.kv.put(0, b"k", b"new", Durability::Durable).unwrap();
    desk.clock.advance(Duration::from_millis(4_999));
    desk.kv.tick();
    assert_eq!((ended(&lease), desk.kv.stats().leases), (None, 2));
    desk.clock.advance(Duration::from_millis(1));
    // With no tick in between.
    let error = lease.get(0, b"k").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the snapshot at {at} was ended: its age in milliseconds reached the limit of 5000")
    );
    let stats = desk.kv.stats();
    assert_eq!((stats.leases, stats.leases_ended, stats.snapshots), (1, 1, 1), "nothing is kept for its sake");
    lease.refresh();
    assert_eq!(lease.get(0, b"k").unwrap().unwrap(), b"new");
    assert_eq!((ended(&longer), desk.kv.stats().leases), (None, 2));
    // And by a tick, with no read.
    desk.clock.advance(HOUR);
    desk.kv.tick();
    assert_eq!((desk.kv.stats().leases, desk.kv.stats().snapshots), (0, 0));
    drop((lease, longer));
    assert_eq!((desk.kv.stats().leases, desk.kv.stats().leases_ended), (0, 3));
}

#[test]
fn of_too_many_the_oldest_ends() {
    let desk = with(Config { leases_max: 3, ..Config::default() });
    let mut leases: Vec<Lease> = (0..3).map(|_| desk.kv.lease(HOUR)).collect();
    assert!(leases.iter().all(|lease| ended(lease).is_none()));
    drop(leases.remove(1));
    leases.push(desk.kv.lease(HOUR));
    assert!(leases.iter().all(|lease| ended(lease).is_none()), "one was dropped");
    leases.push(desk.kv.lease(HOUR));
    assert_eq!(ended(&leases[0]), Some("the number of leases"));
    assert!(leases[1..].iter().all(|lease| ended(lease).is_none()));
    assert_eq!(desk.kv.stats().snapshots, 3);
}

#[test]
fn memory_and_files_that_leases_keep_have_a_budget_and_the_oldest_goes_first() {
    let roomy = Config::default();
    for (config, what) in [
        (roomy, None),
        (Config { leases_memory_bytes_max: 1 << 20, ..roomy }, Some("bytes of memory that leases keep")),
        (Config { leases_file_bytes_max: 1 << 20, ..roomy }, Some("bytes of files that leases keep")),
    ] {
        let desk = with(config);
        fill(&desk.kv, 1);
        // For files: what is there is merged away beneath the lease. For memory: what is there is written out beneath it.
        if config.leases_file_bytes_max < roomy.leases_file_bytes_max {
            desk.kv.checkpoint().unwrap();
        }
        let old = desk.kv.lease(HOUR);
        for round in 2..8 {
            fill(&desk.kv, round);
            desk.kv.checkpoint().unwrap();
            keep(&desk.kv);
        }
        let young = desk.kv.lease(HOUR);
        desk.kv.tick();
        assert_eq!((ended(&old), ended(&young)), (what, None), "{what:?}");
        assert_eq!(desk.kv.stats().snapshots, if what.is_some() { 1 } else { 2 });
    }
}

#[test]
fn a_branch_whose_snapshot_was_ended_is_refused_at_its_next_read_and_at_its_vote() {
    let desk = with(Config { branch_snapshot_ms: 1_000, ..Config::default() });
    let kv = &desk.kv;
    for number in 1..=4 {
        kv.start(&xid(number)).unwrap();
        if number != 3 {
            assert!(kv.branch_get(&xid(number), 0, b"k").unwrap().is_some());
        }
        if number != 4 {
            kv.branch_put(&xid(number), 0, &[number.to_le_bytes()[0]], b"v").unwrap();
        }
    }
    assert_eq!(kv.stats().leases, 3);
    desk.clock.advance(Duration::from_secs(1));
    kv.tick();
    assert_eq!((kv.stats().leases, kv.stats().snapshots), (0, 0), "no branch keeps anything for ever");
    let refused = kv.branch_get(&xid(1), 0, b"k").unwrap_err();
    assert!(matches!(refused, KvError::SnapshotEnded { .. }), "{refused}");
    for number in 1..=4 {
        kv.end(&xid(number), true).unwrap();
    }
    assert!(matches!(prepare(kv, &xid(1)).unwrap_err(), KvError::SnapshotEnded { .. }));
    assert!(matches!(kv.commit_one_phase_begin(&xid(2)).unwrap_err(), KvError::SnapshotEnded { .. }));
    // One that never read has nothing to lose, and one that only read has nothing to win.
    assert_eq!(prepare(kv, &xid(3)).unwrap(), Vote::Yes);
    assert_eq!(prepare(kv, &xid(4)).unwrap(), Vote::ReadOnly);
    assert_eq!((kv.stats().branches, kv.prepared()), (1, vec![xid(3)]));
    assert!(kv.stats().published > Lsn::ZERO);
}

#[test]
fn a_lease_that_keeps_too_much_of_volumes_or_journal_ends_and_they_go() {
    // What it keeps of the ledger's files is little: some thirty kilobytes of volumes or journal are too much.
    for (is_compacted, limit, ends) in [(false, 1 << 30, false), (false, 32 << 10, true), (true, 32 << 10, true)] {
        let disk = SimDisk::new();
        let log = journal(&disk, 1, SEGMENT_BYTES + 4096);
        let house = house_over(&disk, log, Config { leases_file_bytes_max: limit, ..compactions::config() });
        let pass = |salt: u64| {
            for round in 0..12_u64 {
                for key in 0..16_u64 {
                    let value = (salt * 1000 + round).to_le_bytes().repeat(50);
                    house.kv.put(0, &key.to_be_bytes(), &value, Durability::Durable).unwrap();
                }
                house.kv.checkpoint().unwrap();
            }
            if is_compacted || salt > 1 {
                merge_all(&house.kv);
            }
        };
        pass(1);
        let old = house.kv.lease(Duration::from_secs(3600));
        house.kv.tick();
        old.get(0, &[0]).expect("nothing has been compacted since");
        let before = house.log.oldest();
        pass(2);
        let young = house.kv.lease(Duration::from_secs(3600));
        house.kv.tick();
        let ended = old.get(0, &[0]).err().map(|error| error.to_string());
        assert_eq!(ended.is_some(), ends, "{is_compacted} {limit} {ended:?}");
        assert!(ended.is_none_or(|error| error.contains("bytes of files that leases keep")));
        young.get(0, &[0]).unwrap();
        // With it goes what it kept.
        house.compact_all();
        house.kv.compact_once(&AtOnce).unwrap();
        assert_eq!(house.log.oldest() > before, ends, "{is_compacted} {limit}: {} {before}", house.log.oldest());
    }
}

/// Its rows leave memory, its files are merged and compacted away beneath it: it shows what was there, to the last byte.
#[test]
fn a_lease_outlives_its_keyspace_and_all_that_becomes_of_its_files() {
    let disk = SimDisk::new();
    let log = journal(&disk, 1, SEGMENT_BYTES + 4096);
    let house = house_over(&disk, log, compactions::config());
    let kv = &house.kv;
    let space = kv.keyspace_create("orders").unwrap();
    let said = |key: u64| key.to_le_bytes().repeat(60);
    let put = |space, key: u64, value: &[u8]| kv.put(space, &key.to_be_bytes(), value, Durability::Durable).unwrap();
    (0..40).for_each(|key| _ = put(space, key, &said(key)));
    super::faults::settle(kv);
    // Half of it in files, half in memory.
    (40..80).for_each(|key| _ = put(space, key, &said(key)));
    let lease = kv.lease(HOUR);
    kv.keyspace_drop("orders").unwrap();
    let again = kv.keyspace_create("orders").unwrap();
    for round in 0..6_u64 {
        (0..80).for_each(|key| _ = put(again, key, &round.to_le_bytes().repeat(60)));
        super::faults::settle(kv);
        merge_all(kv);
        house.compact_all();
        kv.tick();
    }
    assert!(kv.stats().compactions > 2, "{:?}", kv.stats());
    for order in [Order::Key, Order::Journal] {
        let mut shown = 0_u64;
        let fold = Fold { order, ..Fold::new(What::Objects, space) };
        let ended = lease.fold(&fold, &mut |row| {
            let Row::Object(key, found) = row else { panic!("{row:?}") };
            assert!(key == shown.to_be_bytes() && found.value == said(shown), "{shown}");
            shown += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((ended, shown), (Ok(ControlFlow::Continue(())), 80));
        let of_another = Fold { order, ..Fold::new(What::Keys, again) };
        let ended = lease.fold(&of_another, &mut |row| panic!("{row:?}"));
        assert_eq!(ended, Ok(ControlFlow::Continue(())), "it was made behind it");
    }
    let before = (house.log.oldest(), kv.stats().reclaimed_bytes);
    lease.refresh();
    assert_eq!(lease.get(space, &0_u64.to_be_bytes()), Ok(None));
    drop(lease);
    super::faults::settle(kv);
    house.compact_all();
    kv.compact_once(&AtOnce).unwrap();
    assert!((house.log.oldest(), kv.stats().reclaimed_bytes) > before, "what it kept is given back");
    assert_eq!(kv.stats().broken_accounts, 0);
}

#[test]
fn volumes_that_only_a_lease_keeps_count_by_themselves() {
    let disk = SimDisk::new();
    let log = journal(&disk, 1, SEGMENT_BYTES + 4096);
    let config = Config { leases_file_bytes_max: 120 << 10, ..compactions::config() };
    let house = house_over(&disk, log, config);
    let write = |bytes: usize| {
        for key in 0..400_u64 {
            house.kv.put(0, &key.to_be_bytes(), &vec![7; bytes], Durability::Durable).unwrap();
        }
        super::faults::settle(&house.kv);
        merge_all(&house.kv);
    };
    // 160 KB that live, in volumes; a fifth of that is written since, and takes their place.
    write(400);
    let old = house.kv.lease(HOUR);
    let before = house.log.end().0;
    write(8);
    assert!(house.log.end().0 - before < 100 << 10, "the journal alone is within the budget");
    assert!(house.kv.stats().value_bytes_on_disk < 100 << 10, "{:?}", house.kv.stats());
    house.kv.tick();
    let error = old.get(0, &[0; 8]).unwrap_err().to_string();
    assert!(error.contains("bytes of files that leases keep"), "{error}");
}
