//! Values move while others write, read and kill: a store beside a map, and readers beside those who move.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use assent_journal::Log as _;
use assent_kv::{Durability, Op, Snapshot};
use assent_runs::AtOnce;
use assent_sim::{Rng, SimDisk};

use super::compactions::{House, Map, house, rows};
use super::xid;

type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// One word of a batch.
enum Word {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Erase(Vec<u8>, Vec<u8>),
}

/// What is done to a store and to a map.
struct Pair {
    house: House,
    model: Map,
    prepared: BTreeMap<u64, Writes>,
    snapshots: Vec<(Snapshot, Map)>,
    next: u64,
    rng: Rng,
    rebuilds: u64,
}

impl Pair {
    fn key(&mut self) -> Vec<u8> {
        (0..self.rng.range(1..3)).map(|_| self.rng.below(5).to_le_bytes()[0]).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let times = if self.rng.below(40) == 0 { 3000 } else { [0, 1, 20, 150, 400][self.rng.index(5)] };
        self.rng.roll().to_le_bytes().repeat(times)
    }

    fn held(&self, key: &[u8]) -> bool {
        self.prepared.values().flatten().any(|(held, _)| held == key)
    }

    fn write(&mut self) {
        let (key, value) = (self.key(), self.value());
        if self.held(&key) {
            return;
        }
        let kv = &self.house.kv;
        match self.rng.below(13) {
            12 => self.words(),
            0 | 1 => {
                kv.delete(0, &key, Durability::Durable).unwrap();
                self.model.remove(&key);
            }
            2 => {
                let to = [key[0] + 1];
                if self.prepared.is_empty() {
                    kv.batch(&[Op::put(0, &key, b"gone"), Op::erase(0, &key, Some(&to))], Durability::Durable).unwrap();
                    self.model.retain(|at, _| at < &key || at.as_slice() >= &to[..]);
                }
            }
            3 => {
                let ops = [Op::put(0, &key, b"before"), Op::put(0, &key, &value)];
                kv.batch(&ops, Durability::Durable).unwrap();
                self.model.insert(key, value);
            }
            _ => {
                let durability = if self.rng.below(3) == 0 { Durability::Buffered } else { Durability::Durable };
                kv.put(0, &key, &value, durability).unwrap();
                self.model.insert(key, value);
            }
        }
    }

    /// A batch of several words on few keys, in any order: the last word on a key counts.
    fn words(&mut self) {
        let first = self.rng.below(4).to_le_bytes()[0];
        let words: Vec<Word> = (0..self.rng.range(2..6))
            .map(|_| {
                let key = vec![first, self.rng.below(3).to_le_bytes()[0]];
                match self.rng.below(6) {
                    0 | 1 => Word::Delete(key),
                    2 => Word::Erase(key, vec![first, 9]),
                    _ => Word::Put(key, self.value()),
                }
            })
            .collect();
        if self.prepared.values().flatten().any(|(held, _)| held.first() == Some(&first)) {
            return;
        }
        let ops: Vec<Op<'_>> = words
            .iter()
            .map(|word| match word {
                Word::Put(key, value) => Op::put(0, key, value),
                Word::Delete(key) => Op::delete(0, key),
                Word::Erase(from, to) => Op::erase(0, from, Some(to)),
            })
            .collect();
        self.house.kv.batch(&ops, Durability::Durable).unwrap();
        for word in words {
            match word {
                Word::Put(key, value) => _ = self.model.insert(key, value),
                Word::Delete(key) => _ = self.model.remove(&key),
                Word::Erase(from, to) => self.model.retain(|key, _| *key < from || *key >= to),
            }
        }
    }

    fn branch(&mut self) {
        if self.prepared.len() > 2 || self.rng.below(2) == 0 {
            let Some(number) = self.prepared.keys().nth(self.rng.index(self.prepared.len())).copied() else { return };
            let writes = self.prepared.remove(&number).unwrap();
            let kv = &self.house.kv;
            if self.rng.below(3) == 0 {
                kv.wait(kv.rollback_begin(&xid(number)).unwrap()).unwrap();
                return;
            }
            kv.wait(kv.commit_begin(&xid(number)).unwrap()).unwrap();
            for (key, value) in writes {
                match value {
                    Some(value) => _ = self.model.insert(key, value),
                    None => _ = self.model.remove(&key),
                }
            }
            return;
        }
        self.next += 1;
        let (number, mut writes) = (self.next, BTreeMap::new());
        for _ in 0..self.rng.range(1..3) {
            let (key, value) = (self.key(), self.value());
            if !self.held(&key) {
                let value = (self.rng.below(3) > 0).then_some(value);
                writes.insert(key, value);
            }
        }
        if writes.is_empty() {
            return;
        }
        let kv = &self.house.kv;
        kv.start(&xid(number)).unwrap();
        for (key, value) in &writes {
            let op = value.as_ref().map_or_else(|| Op::delete(0, key), |value| Op::put(0, key, value));
            kv.branch_write(&xid(number), &op).unwrap();
        }
        kv.end(&xid(number), true).unwrap();
        kv.wait(kv.prepare_begin(&xid(number)).unwrap().pending).unwrap();
        self.prepared.insert(number, writes.into_iter().collect());
    }

    fn reopen(mut self, lost: bool) -> Self {
        let salt = self.rng.roll();
        let before = self.house.kv.stats();
        // As it is while readers still keep what was replaced.
        let copy = lost.then(|| self.house.disk.copy());
        self.snapshots.clear();
        self.house = match copy {
            Some(copy) => self.house.without_ledger_on(copy, salt),
            None => self.house.again(salt),
        };
        let after = self.house.kv.stats();
        assert_eq!((after.held_keys, after.prepared), (before.held_keys, before.prepared));
        // Nothing to lose where the journal has nothing.
        assert!(!lost || before.volumes == 0 || after.rebuilt == 1);
        self.rebuilds += after.rebuilt;
        self
    }

    fn check(&self, seed: u64) {
        assert!(rows(&self.house.kv) == self.model, "seed {seed}");
        for (snapshot, map) in &self.snapshots {
            let found: Map =
                snapshot.scan(0, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap().into_iter().collect();
            assert!(&found == map, "seed {seed}");
        }
        let stats = self.house.kv.stats();
        assert_eq!(
            (stats.broken_accounts, stats.compactions_failed),
            (0, 0),
            "seed {seed}: {:?}",
            self.house.kv.broken_account()
        );
    }
}

fn run(seed: u64) -> (u64, u64) {
    let (house, rng) = (house(&SimDisk::new(), seed), Rng::new(seed));
    let (prepared, snapshots) = (BTreeMap::new(), Vec::new());
    let mut pair = Pair { house, model: Map::new(), prepared, snapshots, next: 0, rng, rebuilds: 0 };
    let mut compactions = 0;
    for _ in 0..400 {
        match pair.rng.below(48) {
            0..27 => pair.write(),
            27..32 => pair.branch(),
            32..36 => pair.house.kv.checkpoint().unwrap(),
            36..40 => compactions += u64::from(pair.house.kv.compact_once(&AtOnce).unwrap()),
            40 => _ = pair.house.kv.work(&AtOnce),
            41 if pair.snapshots.len() < 3 => pair.snapshots.push((pair.house.kv.snapshot(), pair.model.clone())),
            42 if !pair.snapshots.is_empty() => {
                let at = pair.rng.index(pair.snapshots.len());
                pair.snapshots.swap_remove(at);
            }
            43 => pair = pair.reopen(false),
            44 => pair = pair.reopen(true),
            _ => pair.check(seed),
        }
    }
    pair.check(seed);
    let mut told = Vec::new();
    pair.house.kv.verify(&mut |error| told.push(error.to_string()));
    assert_eq!(told, Vec::<String>::new(), "seed {seed}");
    (compactions, pair.rebuilds)
}

#[test]
fn whatever_is_compacted_and_wherever_it_dies_the_store_is_the_map() {
    let (mut compactions, mut rebuilds) = (0, 0);
    for seed in 0..60 {
        let done = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        });
        compactions += done.0;
        rebuilds += done.1;
    }
    println!("{compactions} compactions, {rebuilds} rebuilds");
    assert!(compactions > 200 && rebuilds > 100, "{compactions} compactions, {rebuilds} rebuilds");
}

/// Values say what they are: key and turn, repeated.
fn said(key: u64, turn: u64) -> Vec<u8> {
    [key.to_le_bytes(), turn.to_le_bytes()].concat().repeat(40)
}

#[test]
fn readers_see_every_value_whole_while_it_moves() {
    const KEYS: u64 = 40;
    let house = house(&SimDisk::new(), 1);
    for key in 0..KEYS {
        house.kv.put(0, &key.to_be_bytes(), &said(key, 0), Durability::Durable).unwrap();
    }
    let (kv, stop) = (&house.kv, AtomicBool::new(false));
    let look = |get: &dyn Fn(&[u8]) -> Option<Vec<u8>>, seen: &mut BTreeMap<u64, u64>, rng: &mut Rng| {
        let key = rng.below(KEYS);
        let value = get(&key.to_be_bytes()).expect("it was never deleted");
        let turn = u64::from_le_bytes(value[8..16].try_into().unwrap());
        assert!(value == said(key, turn), "{key} {turn}");
        assert!(seen.insert(key, turn).is_none_or(|before| before <= turn), "key {key} went back to turn {turn}");
    };
    let (reads, compactions) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|number| {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut rng, mut seen, mut reads) = (Rng::new(number), BTreeMap::new(), 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        look(&|key| kv.get(0, key).unwrap(), &mut seen, &mut rng);
                        let (snapshot, mut of_it) = (kv.snapshot(), BTreeMap::new());
                        (0..20).for_each(|_| look(&|key| snapshot.get(0, key).unwrap(), &mut of_it, &mut rng));
                        reads += 21;
                    }
                    reads
                })
            })
            .collect();
        let stopped = &stop;
        let worker = scope.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                kv.tick();
                _ = kv.work(&AtOnce);
            }
        });
        let mut rng = Rng::new(9);
        // Until the worker has had a core for long enough.
        for turn in 1..400_000 {
            if turn >= 4_000 && kv.stats().compactions > 0 {
                break;
            }
            let key = rng.below(KEYS);
            kv.put(0, &key.to_be_bytes(), &said(key, turn), Durability::Durable).unwrap();
            if turn % 100 == 0 {
                _ = kv.checkpoint();
            }
        }
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        (readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>(), kv.stats().compactions)
    });
    println!("{reads} reads, {compactions} compactions");
    assert!(compactions > 0 && reads > 0);
    house.compact_all();
    assert!(house.log.oldest().0 > 0, "{:?}", house.kv.stats());
    assert_eq!(house.kv.stats().broken_accounts, 0);
}
