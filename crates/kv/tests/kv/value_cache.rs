//! Values of more than 4 KiB in memory of their own: read past the system's cache, renewed by who overwrites them, never another's.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Condition, Config, Durability, Expect, Fold, Kv, Op, What};
use assent_runs::AtOnce;
use assent_sim::{Rng, SimClock, SimDice, SimDisk};

use super::compactions::{House, Map, SEGMENT_BYTES, config, house_over, journal, merge_all, rows};
use super::counting::{Counting, Reads};
use super::faults::flip;

const BUFFERED: Durability = Durability::Buffered;

fn with_cache(disk: &SimDisk, salt: u64, value_cache_bytes: u64) -> House {
    // A segment takes a few values.
    house_over(disk, journal(disk, salt, 4 * SEGMENT_BYTES + 4096), Config { value_cache_bytes, ..config() })
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1024)
}

/// Nothing that was written can be read from the disk any more.
fn rot_all(house: &House) {
    house.log.sync().unwrap();
    for folder in ["log", "kv-values"] {
        let folder = Path::new(folder);
        for name in assent_world::Disk::list(&house.disk, folder).unwrap_or_default() {
            for sector in 8.. {
                if !flip(&house.disk, &folder.join(&name), sector * 512) {
                    break;
                }
            }
        }
    }
}

fn counts(kv: &Kv) -> [u64; 2] {
    let kept = kv.value_cache();
    [kept.hits, kept.misses]
}

#[test]
fn what_was_read_once_is_read_from_memory_and_so_is_what_is_put_over_it() {
    let house = with_cache(&SimDisk::new(), 1, 1 << 20);
    let kv = &house.kv;
    for number in 0..3 {
        kv.put(0, &[number], &value(number.into()), BUFFERED).unwrap();
    }
    assert!(kv.get(0, &[0]).unwrap() == Some(value(0)));
    assert_eq!(counts(kv), [0, 1], "what nobody has read takes no room");
    let before = kv.snapshot();
    kv.put(0, &[0], &value(10), BUFFERED).unwrap();
    // By each way: alone, with others, on a condition.
    kv.batch(&[Op::put(0, &[1], &value(11)), Op::put(0, &[0], &value(20))], BUFFERED).unwrap();
    assert!(kv.get(0, &[0]).unwrap() == Some(value(20)));
    let (key, longer) = ([0], [value(30), vec![7; 123]].concat());
    kv.batch_if(&[Condition::new(0, &key, Expect::Present)], &[Op::put(0, &key, &longer)], BUFFERED).unwrap();
    assert_eq!(counts(kv), [1, 1]);
    rot_all(&house);
    assert!(kv.get(0, &[0]).unwrap().as_ref() == Some(&longer) && counts(kv) == [2, 1]);
    assert!(kv.entry(0, &[0]).unwrap().is_some_and(|found| found.value == longer));
    let scanned = kv.scan(0, Bound::Unbounded, Bound::Excluded(&[1]), 9).unwrap();
    assert!(scanned == [(vec![0], longer)] && counts(kv) == [4, 1]);
    // An older one is not what is kept, and what was never read is not there.
    assert_eq!(before.get(0, &[0]).unwrap_err().kind(), Kind::Corrupt);
    for _ in 0..2 {
        assert_eq!(kv.get(0, &[1]).unwrap_err().kind(), Kind::Corrupt, "what was wrong is not kept");
    }
    kv.delete(0, &[0], BUFFERED).unwrap();
    assert_eq!(kv.get(0, &[0]).unwrap(), None);
    kv.put(0, &[0], b"short", BUFFERED).unwrap();
    assert_eq!(kv.get(0, &[0]).unwrap(), Some(b"short".to_vec()));
    kv.put(0, &[0], &value(40), BUFFERED).unwrap();
    rot_all(&house);
    assert_eq!(kv.get(0, &[0]).unwrap(), Some(value(40)));
}

#[test]
fn without_room_for_them_nothing_of_long_values_is_kept() {
    let house = with_cache(&SimDisk::new(), 1, 0);
    house.kv.put(0, b"a", &value(1), BUFFERED).unwrap();
    house.kv.get(0, b"a").unwrap();
    rot_all(&house);
    assert_eq!((house.kv.get(0, b"a").unwrap_err().kind(), counts(&house.kv)), (Kind::Corrupt, [0, 0]));
}

/// The store over a disk that counts direct reads of the journal and of volumes.
fn counting(disk: &SimDisk, salt: u64, max_elapsed_sync_time: u64) -> (Arc<Journal>, Kv, [Arc<Reads>; 2]) {
    let counting = |folder| Counting { disk: disk.clone(), folder, reads: Arc::default() };
    let (journal, volumes) = (counting("log"), counting("kv-values"));
    let reads = [&journal, &volumes].map(|disk| Arc::clone(&disk.reads));
    let settings = assent_journal::Config {
        log_size: 512 << 10,
        max_buffer_log_size: 64 << 10,
        max_elapsed_sync_time,
        kept_until_released: true,
        ..Default::default()
    };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
    let (log, _) = Journal::open(Arc::new(journal), clock.clone(), dice, Path::new("log"), settings).unwrap();
    let shared: Arc<dyn Log> = Arc::<Journal>::clone(&log);
    let config = Config { value_cache_bytes: 4 << 20, ..config() };
    let kv = Kv::open(shared, Arc::new(volumes), clock, Path::new("kv"), config).unwrap();
    (log, kv, reads)
}

#[test]
fn each_is_read_directly_once_in_the_journal_and_in_a_volume_and_others_are_not() {
    let disk = SimDisk::new();
    let (log, kv, reads) = counting(&disk, 1, 0);
    let direct = || reads.each_ref().map(|reads| reads.direct());
    let (own, longest) = (value(1), vec![3; 300_000]);
    kv.put(0, b"own", &own, BUFFERED).unwrap();
    kv.put(0, b"short", &[7; 4096], BUFFERED).unwrap();
    kv.put(0, b"longest", &longest, BUFFERED).unwrap();
    let together: Vec<(String, Vec<u8>)> = (0..5).map(|number| (format!("b{number}"), value(10 + number))).collect();
    let ops: Vec<Op<'_>> = together.iter().map(|(key, value)| Op::put(0, key.as_bytes(), value)).collect();
    kv.batch(&ops, BUFFERED).unwrap();
    for (key, expected, then) in [
        ("own", &own, 1),
        ("own", &own, 1),
        ("short", &vec![7; 4096], 1),
        ("longest", &longest, 1),
        // The first of an entry of many is tried so; the entry is read as any other.
        ("b0", &together[0].1, 2),
        ("b3", &together[3].1, 2),
        ("b3", &together[3].1, 2),
    ] {
        assert!(kv.get(0, key.as_bytes()).unwrap().as_ref() == Some(expected), "{key}");
        assert_eq!(direct(), [then, 0], "{key}");
    }
    assert_eq!(counts(&kv), [2, 3]);
    // A store that keeps nothing of them finds them in volumes.
    for round in 0..200_u64 {
        kv.put(0, b"other", &value(round), BUFFERED).unwrap();
        if round % 20 == 0 {
            kv.checkpoint().unwrap();
        }
    }
    while kv.work(&AtOnce) || kv.compact_once(&AtOnce).unwrap() {}
    assert!(kv.stats().volumes > 0, "{:?}", kv.stats());
    drop(kv);
    log.close().unwrap();
    drop(log);
    disk.kill();
    let (_log, kv, reads) = counting(&disk, 2, 0);
    let direct = || reads.each_ref().map(|reads| reads.direct());
    for then in [0, 1] {
        for (key, expected, then) in [("short", &vec![7; 4096], then), ("longest", &longest, then), ("own", &own, 1)] {
            assert!(kv.get(0, key.as_bytes()).unwrap().as_ref() == Some(expected), "{key}");
            assert_eq!(direct(), [0, then], "{key}");
        }
    }
    assert_eq!((direct(), counts(&kv)), ([0, 1], [1, 1]));
    // Who folds reads what is not kept, and keeps nothing.
    let fold = |kv: &Kv| {
        let mut rows = 0;
        let lease = kv.lease(Duration::from_secs(9));
        let ended = lease.fold(&Fold::new(What::Objects, 0), &mut |_| {
            rows += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((ended, rows), (Ok(ControlFlow::Continue(())), 9));
    };
    let folded = [(); 2].map(|()| {
        let before: u64 = direct().iter().sum();
        fold(&kv);
        direct().iter().sum::<u64>() - before
    });
    assert_eq!((folded, counts(&kv)), ([6, 6], [1, 1]));
}

/// A direct read has the kernel write what it alone has, and appends would wait for that.
#[test]
fn what_is_not_durable_yet_is_read_from_where_it_is() {
    let (log, kv, [reads, _]) = counting(&SimDisk::new(), 1, 1000);
    let direct = |key: &[u8]| {
        let before = reads.direct();
        assert!(kv.get(0, key).unwrap() == Some(value(1)));
        reads.direct() - before
    };
    for key in [b"a", b"b", b"c"] {
        kv.put(0, key, &value(1), BUFFERED).unwrap();
    }
    assert_eq!(direct(b"a"), 0);
    log.sync().unwrap();
    assert_eq!(direct(b"b"), 0, "the segment that is written through the page cache is read so, durable or not");
    kv.put(0, b"d", &value(1), BUFFERED).unwrap();
    for _ in 0..100 {
        kv.put(0, b"more", &value(2), BUFFERED).unwrap();
    }
    assert_eq!((direct(b"c"), direct(b"d")), (1, 0), "another one is written by now, and the second is not durable");
    assert_eq!(counts(&kv), [0, 4]);
}

/// Short and long, over their limits, in the journal and in volumes, with restarts.
#[test]
fn a_store_that_keeps_values_is_the_same_map() {
    let (mut kept, mut compactions) = ([0; 2], 0);
    for seed in 0..12 {
        let (mut rng, mut model) = (Rng::new(seed), Map::new());
        let memory = [64 << 10, 1 << 20][rng.index(2)];
        let mut house = with_cache(&SimDisk::new(), seed, memory);
        let mut snapshot = None;
        for round in 0..600_u64 {
            let key = [rng.below(24).to_le_bytes()[0]];
            match rng.below(40) {
                0..14 => {
                    let bytes = [0, 4095, 4096, 4097, 8192, 9000, 40_000][rng.index(7)];
                    let mut value = rng.roll().to_le_bytes().repeat(bytes / 8 + 1);
                    value.truncate(bytes);
                    house.kv.put(0, &key, &value, BUFFERED).unwrap();
                    model.insert(key.to_vec(), value);
                }
                14 => {
                    house.kv.delete(0, &key, BUFFERED).unwrap();
                    model.remove(&key[..]);
                }
                15 => {
                    house.kv.checkpoint().unwrap();
                    merge_all(&house.kv);
                }
                16 => _ = house.kv.compact_once(&AtOnce).unwrap(),
                17 if snapshot.is_none() => snapshot = Some((house.kv.snapshot(), model.clone())),
                18 => snapshot = None,
                19 if round % 5 == 0 => {
                    snapshot = None;
                    counts(&house.kv).iter().zip(&mut kept).for_each(|(count, sum)| *sum += count);
                    let House { disk, log, kv } = house;
                    log.sync().unwrap();
                    drop((log, kv));
                    disk.kill();
                    house = with_cache(&disk, 100 * seed + round, memory);
                }
                _ => {
                    assert!(house.kv.get(0, &key).unwrap() == model.get(&key[..]).cloned(), "seed {seed}");
                    if let Some((snapshot, then)) = &snapshot {
                        assert!(snapshot.get(0, &key).unwrap() == then.get(&key[..]).cloned(), "seed {seed}");
                    }
                }
            }
            assert!(house.kv.value_cache().bytes <= memory, "seed {seed}: {:?}", house.kv.value_cache());
        }
        assert!(rows(&house.kv) == model, "seed {seed}");
        compactions += house.kv.stats().compactions;
    }
    assert!(compactions > 20 && kept.iter().all(|count| *count > 500), "{compactions} {kept:?}");
}

#[test]
fn many_readers_and_writers_see_what_they_may() {
    const KEYS: u8 = 16;
    let house = with_cache(&SimDisk::new(), 1, 64 << 10);
    let kv = Arc::clone(&house.kv);
    for key in 0..KEYS {
        kv.put(0, &[key], &value(key.into()), BUFFERED).unwrap();
    }
    std::thread::scope(|threads| {
        for seed in 0..4 {
            let kv = &kv;
            threads.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..1000 {
                    let key = rng.below(KEYS.into());
                    let name = &key.to_le_bytes()[..1];
                    if rng.below(4) == 0 {
                        let next = rng.below(1 << 40) * u64::from(KEYS) + key;
                        kv.put(0, name, &value(next), BUFFERED).unwrap();
                        continue;
                    }
                    let found = kv.get(0, name).unwrap().unwrap();
                    let number = u64::from_le_bytes(*found.first_chunk().unwrap());
                    assert!(found == value(number) && number % u64::from(KEYS) == key, "{number} of {key}");
                }
            });
        }
    });
    assert!(counts(&kv).iter().all(|count| *count > 100), "{:?}", counts(&kv));
}
