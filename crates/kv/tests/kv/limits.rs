//! Each limit is taken, one beyond is refused in one sentence, and nothing was written then.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_journal::Journal;
use assent_kind::Kind;
use assent_kv::{
    Condition, Config, Durability, Expect, KEY_BYTES_MAX, Kv, KvError, METADATA_BYTES_MAX, Most, Op, VALUE_BYTES_MAX,
};
use assent_sim::{SimClock, SimDice, SimDisk};
use assent_world::{Clock, Moment};

use super::{all, fresh, open, xid};

fn refused(result: Result<impl std::fmt::Debug, KvError>, kind: Kind, numbers: [u64; 2]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(numbers.iter().filter(|number| **number > 0).all(|number| text.contains(&number.to_string())), "{text}");
}

#[test]
fn the_longest_key_and_metadata_are_taken_and_one_byte_more_is_not() {
    let desk = fresh();
    let key = vec![b'k'; KEY_BYTES_MAX as usize + 1];
    desk.kv.put(0, &key[1..], b"v", Durability::Durable).unwrap();
    refused(desk.kv.put(0, &key, b"v", Durability::Durable), Kind::Invalid, [65537, 65536]);
    refused(desk.kv.delete(0, &key, Durability::Durable), Kind::Invalid, [65537, 65536]);
    desk.kv.start(&xid(1)).unwrap();
    refused(desk.kv.branch_put(&xid(1), 0, &key, b""), Kind::Invalid, [65537, 65536]);
    let metadata = vec![1; usize::from(METADATA_BYTES_MAX) + 1];
    let put = |metadata| [Op::Put { keyspace: 0, key: b"m", metadata, value: b"v", expiry: 0 }];
    desk.kv.batch(&put(&metadata[1..]), Durability::Durable).unwrap();
    refused(desk.kv.batch(&put(&metadata), Durability::Durable), Kind::Invalid, [4097, 4096]);
    assert_eq!((desk.log.counts().appends, desk.kv.stats().keys), (2, 2));
    let desk = desk.again();
    assert_eq!(desk.kv.get(0, &key[1..]).unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn the_longest_value_fits_the_defaults_and_one_byte_more_is_refused() {
    let config = Config { value_bytes_max: 100, batch_bytes_max: 300, ..Config::default() };
    let desk = open(&SimDisk::new(), config);
    desk.kv.put(0, b"k", &[7; 100], Durability::Durable).unwrap();
    refused(desk.kv.put(0, b"k", &[7; 101], Durability::Durable), Kind::Invalid, [101, 100]);
    // A batch: 16 bytes and for each put 16, the key and the value.
    let two = [Op::put(0, b"k", &[1; 100]), Op::put(0, b"l", &[1; 100])];
    desk.kv.batch(&[two[0], two[1], Op::put(0, b"m", &[1; 33])], Durability::Durable).unwrap();
    refused(
        desk.kv.batch(&[two[0], two[1], Op::put(0, b"m", &[1; 34])], Durability::Durable),
        Kind::Invalid,
        [301, 300],
    );
    refused(desk.kv.batch(&[], Durability::Durable), Kind::Invalid, [0, 1]);
    let defaults = Config::default();
    let longest = u64::from(VALUE_BYTES_MAX) + u64::from(KEY_BYTES_MAX) + u64::from(METADATA_BYTES_MAX) + 40;
    assert!(longest <= u64::from(defaults.batch_bytes_max) && longest > u64::from(VALUE_BYTES_MAX));
}

#[test]
fn branches_are_bounded_each_and_together_and_in_number() {
    // What a write takes in memory beside its bytes.
    const ROW: u64 = 192;
    let branches_bytes_max = 150 + 2 * ROW;
    let config = Config { branch_bytes_max: 100, branches_bytes_max, branches_max: 2, ..Config::default() };
    let kv = open(&SimDisk::new(), config).kv;
    kv.start(&xid(1)).unwrap();
    kv.start(&xid(2)).unwrap();
    refused(kv.start(&xid(3)), Kind::Busy, [2, 0]);
    kv.branch_put(&xid(1), 0, b"k", &[0; 83]).unwrap();
    refused(kv.branch_put(&xid(1), 0, b"k", &[0; 84]), Kind::Invalid, [101, 100]);
    // The refused write changed nothing, and a shorter one of the same key gives its bytes back.
    kv.branch_put(&xid(2), 0, b"k", &[0; 33]).unwrap();
    refused(kv.branch_put(&xid(2), 0, b"k", &[0; 34]), Kind::Busy, [branches_bytes_max, 0]);
    refused(kv.branch_expect(&xid(2), Condition::new(0, b"", Expect::Absent)), Kind::Busy, [branches_bytes_max, 0]);
    assert_eq!(kv.stats().branches_bytes, branches_bytes_max);
    kv.branch_put(&xid(1), 0, b"k", &[0; 1]).unwrap();
    assert_eq!(kv.stats().branches_bytes, 68 + 2 * ROW);
    kv.branch_put(&xid(2), 0, b"k", &[0; 34]).unwrap();
    kv.abandon(&xid(1));
    kv.abandon(&xid(2));
    assert_eq!((kv.stats().branches_bytes, kv.stats().branches), (0, 0));
    kv.start(&xid(3)).unwrap();
}

#[test]
fn entries_that_nobody_waits_for_are_bounded() {
    let config = Config { unpublished_max: 2, ..Config::default() };
    let kv = open(&SimDisk::new(), config).kv;
    let begin = || kv.batch_begin(&[Op::put(0, b"k", b"v")], Durability::Durable);
    let first = begin().unwrap();
    let second = begin().unwrap();
    refused(begin(), Kind::Busy, [2, 0]);
    kv.wait(second).unwrap();
    kv.wait(first).unwrap();
    kv.wait(begin().unwrap()).unwrap();
}

#[test]
fn a_scan_beyond_its_bytes_is_refused_and_never_cut() {
    let config = Config { scan_bytes_max: 22, ..Config::default() };
    let kv = open(&SimDisk::new(), config).kv;
    kv.put(0, b"a", &[0; 10], Durability::Durable).unwrap();
    kv.put(0, b"b", &[0; 10], Durability::Durable).unwrap();
    assert_eq!(kv.scan(0, Bound::Unbounded, Bound::Unbounded, 9).unwrap().len(), 2);
    kv.put(0, b"c", b"", Durability::Durable).unwrap();
    refused(kv.scan(0, Bound::Unbounded, Bound::Unbounded, 9), Kind::Invalid, [23, 22]);
    assert_eq!(kv.scan(0, Bound::Unbounded, Bound::Unbounded, 2).unwrap().len(), 2);
}

#[test]
fn a_configuration_that_cannot_work_is_named() {
    let wrong = Config { key_bytes_max: KEY_BYTES_MAX + 1, ..Config::default() };
    assert_eq!(wrong.check().unwrap_err().to_string(), "key_bytes_max = 65537; it must be 1 to 65536");
    assert_eq!(Config::default().check(), Ok(()));
}

/// Tables of where keys stand were in no budget: four of them, of four MiB each, and lists of chunks for five GiB of rows. 152 MiB were
/// held where 128 were allowed.
#[test]
fn all_that_the_ledger_holds_is_within_its_budgets_however_its_memory_comes_and_goes() {
    const KEYS: u32 = 40_000;
    let config = Config { memory_bytes: 2 << 20, cache_bytes: 4 << 20, checkpoint_bytes: 1 << 40, ..Config::default() };
    let desk = open(&SimDisk::new(), config);
    let budget = 4 * config.memory_bytes + config.cache_bytes;
    let (mut held, mut counted, mut spare, mut number) = (0, 0, 0, 0_u32);
    // Who writes it out comes in time; late, when writers wait already; and never, so that they do it themselves.
    for due in [config.memory_bytes, 3 * config.memory_bytes, u64::MAX] {
        for _ in 0..4 * KEYS / 64 {
            let keys: Vec<[u8; 4]> = (0..64).map(|key| (number + key).wrapping_mul(7919).to_be_bytes()).collect();
            number += 64;
            let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::put(0, key, b"v")).collect();
            desk.kv.batch(&ops, Durability::Buffered).unwrap();
            let (facts, debt) = desk.kv.ledger_facts();
            let memory = debt.active_bytes + debt.immutable_bytes;
            (held, spare) = (facts.memory_bytes.max(held), facts.spare_bytes.max(spare));
            counted = memory.max(counted);
            assert!(facts.memory_bytes <= budget + budget / 10, "{facts:?}, {debt:?}");
            assert_eq!(memory, desk.kv.stats().memory_bytes);
            if memory >= due {
                super::keep(&desk.kv);
            }
        }
    }
    println!("held {held}, rows and their places {counted}, waiting {spare}, of {budget}");
    assert!(counted > 3 * config.memory_bytes && held > counted, "{counted} of {held}");
    assert!(spare > config.memory_bytes / 2 && spare <= 2 * config.memory_bytes, "{spare} waits for the next rows");
}

/// A prepared branch was decided while the disk was full and memory too: it was refused like any write, and the other branches of
/// its transaction were committed.
#[test]
fn a_full_disk_and_full_memory_refuse_writes_and_no_outcome() {
    let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let config = assent_journal::Config { log_size: 4 << 20, max_buffer_log_size: 1 << 20, ..Default::default() };
    let (journal, _) = Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), config).unwrap();
    let config = Config { memory_bytes: 64 << 10, ..Config::default() };
    let kv = Kv::open(journal, Arc::new(disk.clone()), clock, Path::new("kv"), config).unwrap();
    for number in 1..=2 {
        kv.start(&xid(number)).unwrap();
        for key in 0..100_u8 {
            kv.branch_put(&xid(number), 0, &[b'p', number as u8, key], b"v").unwrap();
        }
        kv.end(&xid(number), true).unwrap();
        kv.wait(kv.prepare_begin(&xid(number)).unwrap().pending).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let mut number = 0_u32;
    let error = loop {
        number += 1;
        if let Err(error) = kv.put(0, &number.to_be_bytes(), b"v", Durability::Buffered) {
            break error;
        }
    };
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert!(kv.stats().memory_bytes >= 4 * config.memory_bytes, "{:?}", kv.stats());
    kv.wait(kv.commit_begin(&xid(1)).unwrap()).unwrap();
    kv.wait(kv.rollback_begin(&xid(2)).unwrap()).unwrap();
    assert_eq!(kv.get(0, &[b'p', 1, 99]).unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!((kv.get(0, &[b'p', 2, 99]), kv.prepared()), (Ok(None), vec![]));
    assert_eq!(kv.put(0, b"k", b"v", Durability::Buffered).unwrap_err().kind(), Kind::Full);
    disk.set_capacity(None);
    kv.put(0, b"k", b"v", Durability::Durable).unwrap();
}

#[test]
fn what_is_behind_is_waited_for_by_who_writes_and_waits_and_by_nobody_else() {
    let (disk, clock) = (SimDisk::new(), SimClock::new());
    let log = Arc::new(super::scripted_log::ScriptedLog::open(&disk, false).unwrap());
    let config = Config { memory_bytes: 64 << 10, ..Config::default() };
    let kv = Kv::open(log, Arc::new(disk), Arc::new(clock.clone()), Path::new("kv"), config).unwrap();
    kv.start(&xid(1)).unwrap();
    kv.branch_put(&xid(1), 0, b"p", b"v").unwrap();
    kv.end(&xid(1), true).unwrap();
    let put = |number: u32| kv.put(0, &number.to_be_bytes(), b"v", Durability::Buffered).unwrap();
    let few = (0..).find(|number| {
        put(*number);
        kv.stats().memory_bytes >= 2 * config.memory_bytes
    });
    assert_eq!((clock.now(), kv.stats().delayed), (Moment(0), 0), "up to half of it nobody waits");
    let mut waited = Duration::ZERO;
    for number in few.unwrap() + 1..few.unwrap() + 200 {
        waited += kv.delay(&[Op::put(0, &number.to_be_bytes(), b"v")]);
        put(number);
        assert_eq!(clock.now(), Moment(0).after(waited));
    }
    assert!(waited > Duration::from_millis(5), "{waited:?}");
    let stats = kv.stats();
    assert_eq!(Duration::from_micros(stats.delayed_us), waited);
    // Votes, outcomes and what is begun by somebody who has other things to do.
    kv.wait(kv.prepare_begin(&xid(1)).unwrap().pending).unwrap();
    kv.wait(kv.commit_begin(&xid(1)).unwrap()).unwrap();
    kv.wait(kv.batch_begin(&[Op::delete(0, b"p")], Durability::Buffered).unwrap()).unwrap();
    assert_eq!((clock.now(), kv.stats().delayed), (Moment(0).after(waited), stats.delayed));
    kv.checkpoint().unwrap();
    put(0);
    assert_eq!(clock.now(), Moment(0).after(waited), "nothing is behind any more");
}

#[test]
fn where_nobody_merges_files_do_not_pile_up_and_a_snapshot_s_memory_is_counted_apart() {
    let desk = open(&SimDisk::new(), Config { memory_bytes: 64 << 10, ..Config::default() });
    let snapshot = desk.kv.snapshot();
    for number in 0..200_u32 {
        desk.kv.put(0, &number.to_be_bytes(), b"v", Durability::Buffered).unwrap();
        desk.kv.checkpoint().unwrap();
        assert!(desk.kv.stats().runs <= 64 + 2, "{:?}", desk.kv.stats());
    }
    assert_eq!(all(&desk.kv, 0).len(), 200);
    let stats = desk.kv.stats();
    assert!(stats.memory_bytes == 0 && stats.pinned_bytes > 0, "{stats:?}");
    drop(snapshot);
    assert_eq!(desk.kv.stats().pinned_bytes, 0);
}

#[test]
fn a_full_disk_refuses_writes_and_votes_and_readers_go_on_until_there_is_room() {
    let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let config = assent_journal::Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Default::default() };
    let (journal, _) = Journal::open(Arc::new(disk.clone()), clock, dice, Path::new("log"), config).unwrap();
    let kv = Kv::open(journal, Arc::new(disk.clone()), Arc::new(SimClock::new()), Path::new("kv"), Config::default())
        .unwrap();
    kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    kv.start(&xid(1)).unwrap();
    kv.branch_put(&xid(1), 0, b"big", &[7; 1 << 16]).unwrap();
    kv.end(&xid(1), true).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(kv.prepare_begin(&xid(1)).unwrap_err().kind(), Kind::Full);
    assert_eq!(kv.put(0, b"big", &[7; 1 << 16], Durability::Durable).unwrap_err().kind(), Kind::Full);
    assert_eq!(kv.get(0, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!((kv.stats().branches, kv.stats().prepared, kv.stats().branches_bytes), (1, 0, 16 + 3 + (1 << 16) + 192));
    disk.set_capacity(None);
    kv.wait(kv.prepare_begin(&xid(1)).unwrap().pending).unwrap();
    kv.wait(kv.commit_begin(&xid(1)).unwrap()).unwrap();
    assert_eq!(kv.get(0, b"big").unwrap().map(|value| value.len()), Some(1 << 16));
    assert_eq!((kv.stats().branches, kv.stats().branches_bytes), (0, 0));
}

/// However many bytes they have.
const fn rows_of(rows: usize) -> Most {
    Most { rows, bytes: u64::MAX, row_bytes: 0 }
}

/// A scan of one message read 64 values, of whatever length, to answer those that fitted.
#[test]
fn a_page_has_what_fits_it_and_no_other_value_is_read() {
    let mut desk = fresh();
    for key in 0..40_u8 {
        let value = vec![key; if key % 4 == 3 { 50_000 } else { 100 }];
        desk.kv.put(0, &[key], &value, Durability::Durable).unwrap();
    }
    desk = desk.again();
    let (kv, branch) = (&desk.kv, xid(1));
    kv.start(&branch).unwrap();
    // It removes one, writes over one, and has one between two and one at the end of its own.
    kv.branch_delete(&branch, 0, &[1]).unwrap();
    for (key, bytes) in [(&[2][..], 300), (&[5, 5], 300), (&[200], 60_000)] {
        kv.branch_put(&branch, 0, key, &vec![9; bytes]).unwrap();
    }
    let all = kv.branch_scan(&branch, 0, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    assert_eq!(all.len(), 41);
    let plain = kv.scan(0, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    for (rows, bytes, row_bytes) in [(5, 1 << 20, 0), (64, 1000, 8), (64, 50_300, 8), (64, 50_209, 8), (2, 120_000, 8)]
    {
        let most = Most { rows, bytes, row_bytes };
        for (all, branch) in [(&plain, None), (&all, Some(&branch))] {
            let mut from = Bound::Unbounded;
            let mut seen = Vec::new();
            loop {
                let reads = desk.log.counts().reads;
                let page = match branch {
                    None => kv.snapshot().page(0, from, Bound::Unbounded, most, &mut 0),
                    Some(branch) => kv.branch_page(branch, 0, from, Bound::Unbounded, most),
                };
                let read = desk.log.counts().reads - reads;
                let expected = &all[seen.len()..];
                let sizes = expected.iter().map(|(key, value)| (key.len() + value.len()) as u64 + row_bytes);
                let fit = sizes.scan(0, |sum, more| Some(*sum + more).inspect(|with| *sum = *with));
                let fit = fit.take(rows).take_while(|sum| *sum <= bytes).count();
                if fit == 0 {
                    let first = &expected[0];
                    let bytes = (first.0.len() + first.1.len()) as u64 + row_bytes;
                    assert_eq!(page, Err(KvError::Size { part: "row", bytes, limit: most.bytes }));
                    assert_eq!(read, 0);
                    break;
                }
                let page = page.unwrap();
                assert_eq!((&page.rows[..], page.more), (&expected[..fit], fit < expected.len()), "{most:?}");
                assert!(read <= fit as u64, "{read} reads for {fit} rows");
                seen.extend(page.rows);
                if !page.more {
                    break;
                }
                from = seen.last().map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key.as_slice()));
            }
        }
    }
}

#[test]
fn who_may_not_walk_for_long_passes_no_more_dead_keys_than_he_said() {
    let desk = fresh();
    let kv = &desk.kv;
    let all = (Bound::Unbounded, Bound::Unbounded);
    for key in 0..40_u8 {
        let op = Op::put(0, std::slice::from_ref(&key), b"v").expiring(if key < 30 { 0 } else { 5 });
        kv.batch(&[op], Durability::Durable).unwrap();
    }
    kv.put(0, b"z", b"v", Durability::Durable).unwrap();
    (5..30_u8).for_each(|key| _ = kv.delete(0, &[key], Durability::Durable).unwrap());
    desk.clock.set_wall_ms(9);
    let snapshot = kv.snapshot();
    // Five live, twenty-five were deleted, ten have expired, one lives.
    for (passes, found) in [(34, Err(Kind::Busy)), (35, Ok((6, 0))), (100, Ok((6, 65)))] {
        let told = |rows: Result<usize, KvError>, left| rows.map(|rows| (rows, left)).map_err(|error| error.kind());
        let mut left = passes;
        let rows = snapshot.page(0, all.0, all.1, rows_of(10), &mut left).map(|page| page.rows.len());
        assert_eq!(told(rows, left), found);
        let mut left = passes;
        let rows = snapshot.heads_within(0, all.0, all.1, 10, &mut left).map(|rows| rows.len());
        assert_eq!(told(rows, left), found);
    }
    let page = snapshot.page(0, all.0, all.1, rows_of(4), &mut 0).unwrap();
    assert_eq!((page.rows.len(), page.more), (4, true));
}
