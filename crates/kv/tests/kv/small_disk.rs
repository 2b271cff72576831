//! A disk of little more than the store holds: it fills up, deletes and overwritten values make room again without a restart, and a
//! crash anywhere in between takes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, KvError, Op};
use assent_runs::AtOnce;
use assent_sim::{Explore, Rng, SimClock, SimDice, SimDisk, Subject, Survival, Witness};

use super::all;

/// Whoever is refused tries again so often, and leaves a second to what runs in the background before each try.
const TRIES: usize = 4;
const SEGMENT_BYTES: u64 = 9 * 4096;
const CAPACITY: u64 = 1 << 20;

struct Store {
    log: Arc<Journal>,
    kv: Kv,
    refused: u64,
    writes: u64,
}

/// With checkpoints that never come by themselves and a least room that is larger than the disk, as defaults are on a disk of 133 MiB.
fn open(disk: &SimDisk, salt: u64, log_size: u64) -> Result<Store, String> {
    let journal = assent_journal::Config {
        log_size,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Default::default()
    };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
    let opened = Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), journal);
    let (log, _) = opened.map_err(|error| error.to_string())?;
    let config = Config { memory_bytes: 64 << 10, volume_bytes: 24 << 10, ..Config::default() };
    let shared: Arc<dyn Log> = Arc::<Journal>::clone(&log);
    let kv = Kv::open(shared, Arc::new(disk.clone()), clock, Path::new("kv"), config);
    Ok(Store { log, kv: kv.map_err(|error| error.to_string())?, refused: 0, writes: 0 })
}

impl Store {
    /// What runs in the background of a store within a second: what failed is tried again by then.
    fn turn(&self) {
        for _ in 0..=10 {
            self.kv.tick();
            while self.kv.work(&AtOnce) {}
            self.log.maintain();
        }
    }

    /// A write of somebody who tries again where there is no room.
    fn write(&mut self, op: Op<'_>) -> Result<(), KvError> {
        let mut tries = TRIES;
        self.writes += 1;
        if self.writes.is_multiple_of(16) {
            self.kv.tick();
        }
        loop {
            match self.kv.batch(&[op], Durability::Durable) {
                Err(error) if error.kind() == Kind::Full && tries > 0 => {
                    (self.refused, tries) = (self.refused + 1, tries - 1);
                    self.turn();
                }
                done => return done.map(drop),
            }
        }
    }

    /// Puts keys until there is no room, which no turn brings; how many.
    fn fill(&mut self, bytes: usize) -> u64 {
        let full = |number: &u64| self.write(Op::put(0, &number.to_be_bytes(), &vec![7; bytes])).is_err();
        (0..).find(full).unwrap()
    }
}

/// Five of 133 MiB lived, and no write was taken ever again: the disk filled up before the second checkpoint, from which on what is dead may be
/// given back.
#[test]
fn a_disk_that_fills_with_what_was_overwritten_takes_writes_as_long_as_anybody_compacts() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(CAPACITY));
    let mut store = open(&disk, 1, SEGMENT_BYTES).unwrap();
    for number in 0..6000_u64 {
        let value = number.to_le_bytes().repeat(112);
        store.write(Op::put(0, &(number % 6).to_be_bytes(), &value)).unwrap();
    }
    let stats = store.kv.stats();
    assert!(store.refused > 0 && stats.compactions > 0 && stats.compactions_failed == 0, "{stats:?}");
    for number in 5994..6000_u64 {
        let value = number.to_le_bytes().repeat(112);
        assert_eq!(store.kv.get(0, &(number % 6).to_be_bytes()), Ok(Some(value)));
    }
}

/// What was written: six keys again and again, beside somebody who reads as of a moment and rests. What the user saw: the disk was full, and stayed so for
/// as long as that reader may rest. It kept a part of a disk of which all together was less than leases may keep.
#[test]
fn a_reader_keeps_no_room_that_writers_on_a_full_disk_lack() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(CAPACITY));
    let mut store = open(&disk, 1, SEGMENT_BYTES).unwrap();
    let write = |store: &mut Store, number: u64| {
        store.write(Op::put(0, &(number % 6).to_be_bytes(), &number.to_le_bytes().repeat(112)))
    };
    (0..100).for_each(|number| write(&mut store, number).unwrap());
    let lease = store.kv.lease(Duration::from_secs(3600));
    assert!(lease.get(0, &0_u64.to_be_bytes()).unwrap().is_some());
    (100..6000).for_each(|number| write(&mut store, number).unwrap());
    let ended = lease.get(0, &0_u64.to_be_bytes()).unwrap_err();
    assert!(ended.to_string().contains("room that a full disk lacks"), "{ended}");
    // Nor one of a disk that has room again, though nothing was compacted since.
    store.fill(900);
    let lease = store.kv.lease(Duration::from_secs(3600));
    disk.set_capacity(None);
    (0..600).for_each(|number| _ = store.kv.put(0, &(number % 6_u64).to_be_bytes(), &[8; 900], Durability::Durable));
    store.kv.checkpoint().unwrap();
    store.kv.tick();
    assert!(lease.get(0, &0_u64.to_be_bytes()).unwrap().is_some());
    // What rests on nothing that would go is not ended.
    let lease = store.kv.lease(Duration::from_secs(3600));
    store.turn();
    assert!(lease.get(0, &0_u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn who_asks_for_room_gets_it_where_nothing_ran_in_the_background() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(CAPACITY));
    let store = open(&disk, 1, SEGMENT_BYTES).unwrap();
    let put = |number: u64| store.kv.put(0, &(number % 6).to_be_bytes(), &[7; 900], Durability::Durable);
    let refused = (0..).find_map(|number| put(number).err()).unwrap();
    assert_eq!(refused.kind(), Kind::Full, "{refused}");
    while store.kv.compact_asked(&AtOnce).unwrap() {}
    assert!(store.kv.stats().reclaimed_bytes > CAPACITY / 2, "{:?}", store.kv.stats());
    (0..100).for_each(|number| _ = put(number).unwrap());
}

#[test]
fn a_disk_that_is_full_of_what_lives_takes_deletes_and_then_takes_values_again() {
    for (bytes, is_power_cut) in [(900, false), (900, true), (5000, false), (400, true)] {
        let disk = SimDisk::new();
        disk.set_capacity(Some(CAPACITY));
        let mut store = open(&disk, 1, SEGMENT_BYTES).unwrap();
        let filled = store.fill(bytes);
        assert!(filled > 100, "{filled}");
        // Nobody did anything for the first of them.
        store.kv.delete(0, &1_u64.to_be_bytes(), Durability::Durable).unwrap();
        for number in (0..filled).filter(|number| number % 5 > 0) {
            let key = number.to_be_bytes();
            store.write(Op::delete(0, &key)).unwrap_or_else(|error| panic!("{number} of {filled}: {error}"));
        }
        for number in 0..filled / 2 {
            let key = (filled + number).to_be_bytes();
            store
                .write(Op::put(0, &key, &vec![8; bytes]))
                .unwrap_or_else(|error| panic!("{number} of {filled}: {error}"));
        }
        let old = (0..filled).filter(|number| number % 5 == 0).map(|number| (number, 7));
        let model: BTreeMap<Vec<u8>, Vec<u8>> = old
            .chain((filled..filled + filled / 2).map(|number| (number, 8)))
            .map(|(number, byte): (u64, u8)| (number.to_be_bytes().to_vec(), vec![byte; bytes]))
            .collect();
        let holds = |store: &Store| all(&store.kv, 0).into_iter().collect::<BTreeMap<_, _>>() == model;
        assert!(holds(&store));
        drop(store);
        if is_power_cut {
            disk.cut_power(Survival::Nothing)
        } else {
            disk.kill()
        }
        let mut store = open(&disk, 2, SEGMENT_BYTES).unwrap();
        assert!(holds(&store), "values of {bytes} bytes, power cut: {is_power_cut}");
        store.write(Op::erase(0, b"", None)).unwrap();
        store.write(Op::put(0, b"last", b"word")).unwrap();
    }
}

/// What became of a key: a word, or 0 where it was deleted.
type Fact = (u8, u64);

/// A store on a disk of twenty segments, for whoever cuts the power.
struct Crowded;

const CROWDED_SEGMENT_BYTES: u64 = 5 * 4096;
const CROWDED_BYTES: u64 = 20 * CROWDED_SEGMENT_BYTES;

fn value(word: u64) -> Vec<u8> {
    word.to_le_bytes().repeat(300)
}

impl Crowded {
    fn try_write(store: &mut Store, witness: &Witness<Fact>, (key, word): Fact) -> Result<bool, String> {
        witness.attempt((key, word));
        let value = value(word);
        let op = if word == 0 {
            Op::delete(0, std::slice::from_ref(&key))
        } else {
            Op::put(0, std::slice::from_ref(&key), &value)
        };
        match store.write(op) {
            Ok(()) => witness.acknowledge((key, word)),
            Err(error) if error.kind() == Kind::Full => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
        Ok(true)
    }

    /// Until these are refused, too: nobody does anything behind them.
    fn fill_with_deletes(kv: &Kv, witness: &Witness<Fact>, rng: &mut Rng) -> Result<(), String> {
        loop {
            let fact = (rng.below(250).to_le_bytes()[0], 0);
            witness.attempt(fact);
            match kv.delete(0, &[fact.0], Durability::Durable) {
                Ok(_) => witness.acknowledge(fact),
                Err(error) if error.kind() == Kind::Full => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Wherever the power went, on a disk that is as full as it was: deletes make room.
    fn check_room(disk: &SimDisk, found: &BTreeMap<u8, u64>) -> Result<(), String> {
        // Files that were removed may be back beside those that took their room, which no real file system lets come to that.
        disk.set_capacity(Some(CROWDED_BYTES.max(disk.used_bytes() + CROWDED_BYTES / 8)));
        let mut store = open(disk, disk.hash() ^ 1, CROWDED_SEGMENT_BYTES)?;
        for key in found.keys() {
            store.write(Op::delete(0, &[*key])).map_err(|error| format!("deleting {key}: {error}"))?;
        }
        for key in 0..20 {
            store.write(Op::put(0, &[key], &value(9))).map_err(|error| format!("putting {key}: {error}"))?;
        }
        Ok(())
    }
}

impl Subject for Crowded {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Result<(), String> {
        disk.set_capacity(Some(CROWDED_BYTES.max(disk.used_bytes() + CROWDED_BYTES / 8)));
        let mut store = open(disk, seed, CROWDED_SEGMENT_BYTES)?;
        let mut rng = Rng::new(seed);
        // Values are few: most of this is the end of filling up, and what follows.
        let mut full = 0;
        for number in 0..400 {
            let key = rng.below(if seed.is_multiple_of(2) { 250 } else { 40 }).to_le_bytes()[0];
            let word = if full > 0 && rng.below(3) > 0 { 0 } else { rng.range(1..1000) };
            if !Self::try_write(&mut store, witness, (key, word))? {
                full += 1;
                if full == 1 && seed.is_multiple_of(3) {
                    Self::fill_with_deletes(&store.kv, witness, &mut rng)?;
                }
            }
            if full > 6 {
                break;
            }
            if number % 50 == 49 && full > 0 {
                store.turn();
            }
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Result<(), String> {
        let copy = disk.hash().is_multiple_of(4).then(|| disk.copy());
        let store = open(disk, disk.hash(), CROWDED_SEGMENT_BYTES)?;
        let found: BTreeMap<u8, u64> = all(&store.kv, 0)
            .into_iter()
            .map(|(key, bytes)| {
                let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                if bytes == value(word) {
                    Ok((key[0], word))
                } else {
                    Err(format!("a value that nobody wrote: {bytes:?}"))
                }
            })
            .collect::<Result<_, _>>()?;
        for key in 0..=u8::MAX {
            let there = found.get(&key).copied().unwrap_or(0);
            let words =
                |facts: &[Fact]| facts.iter().filter(|fact| fact.0 == key).map(|fact| fact.1).collect::<Vec<_>>();
            let promised = words(acknowledged).last().copied().unwrap_or(0);
            let behind = words(attempted).iter().rposition(|word| *word == promised).unwrap_or(0);
            if there != promised && !words(attempted)[behind..].contains(&there) {
                return Err(format!("key {key}: {there}, which is older than the promised {promised}"));
            }
        }
        let mut damages = Vec::new();
        store.kv.verify(&mut |error| damages.push(error.to_string()));
        if let Some(damage) = damages.first() {
            return Err(damage.clone());
        }
        copy.map_or(Ok(()), |copy| Self::check_room(&copy, &found))
    }

    fn lives(&self) -> u32 {
        2
    }
}

#[test]
fn gate_a_power_cut_on_a_full_disk_takes_nothing_that_was_promised_and_deletes_make_room_behind_it() {
    let gate = Explore::within(20);
    let report = gate.run(&Crowded).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.states >= gate.states_max || report.took >= gate.time_max, "it ended early: {report}");
}
