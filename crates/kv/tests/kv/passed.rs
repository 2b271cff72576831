//! A load of values that live for long, and others behind it that do not: the load is not written again for their sake.

use std::path::Path;
use std::sync::Arc;

use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, Op};
use assent_runs::AtOnce;
use assent_sim::{Rng, SimClock, SimDisk};
use assent_world::Disk;

use super::compactions::{House, Map, house_over, journal, rows};
use super::faults::{flip, lose_ledger, settle};

const SEGMENT_BYTES: u64 = 64 << 10;
const DURABLE: Durability = Durability::Durable;

fn config() -> Config {
    Config {
        space_amplification_max_percent: 140,
        space_room_bytes_min: 0,
        volume_bytes: 4 * SEGMENT_BYTES,
        passed_bytes_min: 4096,
        memory_bytes: 1 << 20,
        ..Config::default()
    }
}

fn opened(disk: &SimDisk, salt: u64) -> House {
    house_over(disk, journal(disk, salt, SEGMENT_BYTES + 4096), config())
}

fn again(house: House, salt: u64) -> House {
    let House { disk, log, kv } = house;
    drop((log, kv));
    disk.kill();
    opened(&disk, salt)
}

struct Filled {
    house: House,
    model: Map,
    rng: Rng,
}

impl Filled {
    /// A load of 32 segments, some of its entries longer than what a segment has left.
    fn new() -> Self {
        Self::of(|key| if key % 40 == 7 { 20_000 } else { 4000 })
    }

    fn of(bytes: impl Fn(u64) -> usize) -> Self {
        let house = opened(&SimDisk::new(), 1);
        let mut filled = Self { house, model: Map::new(), rng: Rng::new(3) };
        for key in 0..512_u64 {
            filled.put(key, bytes(key));
        }
        filled
    }

    fn put(&mut self, key: u64, bytes: usize) {
        let value = self.rng.below(1 << 40).to_le_bytes().repeat(bytes / 8);
        self.house.kv.put(0, &key.to_be_bytes(), &value, DURABLE).unwrap();
        self.model.insert(key.to_be_bytes().to_vec(), value);
    }

    /// Few keys of those that were loaded last, again and again.
    fn overwrite(&mut self, puts: u64) {
        for _ in 0..puts {
            let key = 504 + self.rng.below(8);
            self.put(key, 4000);
        }
        settle(&self.house.kv);
    }

    fn check(&self) {
        self.check_of(&self.house.kv);
    }

    fn check_of(&self, kv: &Kv) {
        assert!(rows(kv) == self.model);
        let mut told = Vec::new();
        kv.verify(&mut |error| told.push(error.to_string()));
        assert_eq!((told, kv.stats().broken_accounts), (vec![], 0));
    }
}

fn kept(disk: &SimDisk) -> usize {
    disk.list(Path::new("log")).unwrap().iter().filter(|name| name.ends_with(".kept")).count()
}

#[test]
fn a_load_is_not_written_again_to_get_at_what_was_written_behind_it() {
    let mut filled = Filled::new();
    for _ in 0..10 {
        filled.overwrite(100);
        while filled.house.kv.work(&AtOnce) {}
    }
    let stats = filled.house.kv.stats();
    let written = stats.compacted_bytes_out;
    assert!(stats.passed_stretches > 8 && stats.unreadable_stretches == 0, "{stats:?}");
    assert!(written < 200_000, "{written} bytes were written again, and 32 segments live: {stats:?}");
    assert!(kept(&filled.house.disk) < 48, "{} segments stay, of 90", kept(&filled.house.disk));
    filled.check();
    // Passed, read, built anew.
    filled.house = again(filled.house, 2);
    filled.check();
    assert_eq!(filled.house.kv.stats().passed_stretches, stats.passed_stretches);
    let copy = filled.house.disk.copy();
    copy.kill();
    lose_ledger(&copy);
    let built = opened(&copy, 3);
    filled.check_of(&built.kv);
    assert_eq!((built.kv.stats().passed_stretches, built.kv.stats().rebuilt), (stats.passed_stretches, 1));
    // Most of the load is deleted: then it is worth reading, in any order, and nothing that was deleted comes back.
    for key in (0..504_u64).filter(|key| key % 9 > 0) {
        filled.house.kv.delete(0, &key.to_be_bytes(), DURABLE).unwrap();
        filled.model.remove(&key.to_be_bytes()[..]);
    }
    settle(&filled.house.kv);
    while filled.house.kv.work(&AtOnce) {}
    let after = filled.house.kv.stats();
    assert!(after.passed_stretches * 2 < stats.passed_stretches, "{after:?}");
    assert!(kept(&filled.house.disk) < 16, "{} segments stay", kept(&filled.house.disk));
    filled.check();
    filled.house = again(filled.house, 4);
    filled.check();
    let disk = filled.house.disk.copy();
    disk.kill();
    lose_ledger(&disk);
    filled.check_of(&opened(&disk, 5).kv);
}

/// The seal of what was passed had the end of the last piece for that of an entry, and a rebuild found none that ends there: the store, whole,
/// did not open.
#[test]
fn what_a_kill_cut_at_the_end_of_a_segment_is_passed_and_the_ledger_is_built_anew() {
    let mut filled = Filled::of(|_| 4000);
    filled.house.kv.put(0, b"cut", &vec![7; 4 * 65_536], DURABLE).unwrap();
    let begins = filled.house.kv.head(0, b"cut").unwrap().unwrap().lsn.0;
    // The process was killed before the third segment of it was written.
    let end = (begins / SEGMENT_BYTES + 2) * SEGMENT_BYTES;
    let House { disk, log, kv } = filled.house;
    drop((log, kv));
    disk.kill();
    let gone = |name: &String| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok().filter(|first| *first >= end);
    for name in disk.list(Path::new("log")).unwrap() {
        if gone(&name).is_some() {
            disk.unlink(&Path::new("log").join(name)).unwrap();
        }
    }
    filled.house = opened(&disk, 2);
    assert_eq!((filled.house.log.end().0, filled.house.kv.get(0, b"cut").unwrap()), (end, None));
    (512..1024).for_each(|key| filled.put(key, 4000));
    filled.overwrite(400);
    while filled.house.kv.work(&AtOnce) {}
    assert!(filled.house.kv.stats().passed_stretches > 8, "{:?}", filled.house.kv.stats());
    filled.check();
    let copy = filled.house.disk.copy();
    copy.kill();
    lose_ledger(&copy);
    let built = opened(&copy, 3);
    filled.check_of(&built.kv);
    assert_eq!(built.kv.stats().rebuilt, 1);
}

/// The journal says itself where no entry goes on in the next segment: a load of 4 GiB took seven seconds of reading, in which nothing was given back.
#[test]
fn a_load_is_passed_without_a_look_into_it_where_no_entry_stands_across_its_segments() {
    let mut filled = Filled::of(|_| 3000);
    filled.overwrite(400);
    // All but the first sectors of the load: what is read of it fails.
    let disk = filled.house.disk.clone();
    let load = (0..20).map(|segment| Path::new("log").join(format!("{:016x}.kept", segment * SEGMENT_BYTES)));
    let load: Vec<_> = load.collect();
    let make_unreadable = |is_unreadable| {
        for path in &load {
            (16..40).for_each(|sector| disk.set_unreadable(path, sector, is_unreadable));
        }
    };
    make_unreadable(true);
    while filled.house.kv.work(&AtOnce) {}
    let stats = filled.house.kv.stats();
    assert!(stats.passed_stretches >= 5 && stats.unreadable_stretches == 0, "{stats:?}");
    assert_eq!(stats.compactions_failed, 0, "{stats:?}");
    make_unreadable(false);
    filled.check();
    filled.house = again(filled.house, 2);
    filled.check();
}

/// Entries of several segments each, one into the next: no end is one that nothing stands across.
#[test]
fn what_cannot_be_passed_is_read_once_and_compacted_like_anything_else() {
    let house = opened(&SimDisk::new(), 1);
    let value = vec![5; 20_000];
    let puts: Vec<[u8; 1]> = (0..40).map(|key| [key]).collect();
    let ops: Vec<Op<'_>> = puts.iter().map(|key| Op::put(0, key, &value)).collect();
    house.kv.batch(&ops, DURABLE).unwrap();
    for round in 0..60_u64 {
        house.kv.put(0, b"hot", &round.to_le_bytes().repeat(1000), DURABLE).unwrap();
    }
    settle(&house.kv);
    for _ in 0..50 {
        house.kv.work(&AtOnce);
    }
    for key in &puts {
        assert_eq!(house.kv.get(0, key).unwrap().as_ref(), Some(&value));
    }
    let stats = house.kv.stats();
    assert!(stats.compactions_failed == 0 && stats.broken_accounts == 0, "{stats:?}");
}

/// What rots in it is told like anything else, and without a ledger nothing is made of the rest.
#[test]
fn a_passed_stretch_that_has_rotted_is_told_by_whoever_reads_it() {
    let mut filled = Filled::new();
    filled.overwrite(400);
    while filled.house.kv.work(&AtOnce) {}
    assert!(filled.house.kv.stats().passed_stretches > 8);
    let House { disk, log, kv } = filled.house;
    drop((log, kv));
    disk.kill();
    let damaged = Path::new("log").join(format!("{:016x}.kept", 4 * SEGMENT_BYTES));
    assert!(flip(&disk, &damaged, 4096 + 9000));
    let house = opened(&disk, 9);
    let mut told = Vec::new();
    house.kv.verify(&mut |error| told.push(error.to_string()));
    let name = damaged.display().to_string();
    assert!(told.iter().any(|damage| damage.contains(&name)), "{told:?}");
    let mut wrong = 0;
    for (key, value) in &filled.model {
        match house.kv.get(0, key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value)),
            Err(error) => {
                assert!(error.kind() == Kind::Corrupt && error.to_string().contains(&name), "{error}");
                wrong += 1;
            }
        }
    }
    assert!((1..16).contains(&wrong), "{wrong} values, and what is not of that segment is whole");
    drop((house.log, house.kv));
    disk.kill();
    lose_ledger(&disk);
    let log = journal(&disk, 10, SEGMENT_BYTES + 4096);
    let (log, clock): (Arc<dyn Log>, _) = (log, Arc::new(SimClock::new()));
    let error = Kv::open(log, Arc::new(disk), clock, Path::new("kv"), config()).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
}
