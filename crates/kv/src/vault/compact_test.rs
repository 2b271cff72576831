//! Whatever is compacted, in whatever order, and wherever the power goes: a rebuild of the ledger from what is left of journal
//! and volumes is the store as it was. Nothing that was deleted comes back, and nothing that lives is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use assent_ids::Xid;
use assent_runs::AtOnce;
use assent_sim::{Rng, SimDisk};
use assent_world::Disk;
use xxhash_rust::xxh3::xxh3_64;

use crate::vault::{
    Address, Asked, Body, Compacted, Compaction, Horizon, Item, Liveness, NoBlocks, Source, Value, VaultError, Volume,
    compact, keep,
};

const FOLDER: &str = "kv";
const CELL: u64 = 300;
const KEYS: u64 = 6;

/// One write of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A word, and when it expires (0: never).
    Put(u64, u64),
    Delete,
    /// All keys from this one to that, exclusive.
    Erase(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    at: u32,
    key: u8,
    what: What,
}

#[derive(Clone, Debug)]
enum Entry {
    Batch(Vec<Write>),
    Prepare(u64, Vec<Write>),
    Outcome { branch: u64, prepare: u64, committed: bool },
}

/// An entry at its place, and where it ends.
#[derive(Clone, Debug)]
struct Placed {
    lsn: u64,
    end: u64,
    entry: Entry,
}

/// The journal of a history, from one place to another.
struct Part<'a> {
    log: &'a [Placed],
    first: u64,
    end: u64,
}

fn xid(branch: u64) -> Xid {
    Xid::new(3, &branch.to_le_bytes(), b"").unwrap()
}

/// What a word stands for: most wait for each other where they are compacted, some are too long for it.
fn bytes_of(word: u64) -> Vec<u8> {
    word.to_le_bytes().repeat(if word.is_multiple_of(5) { 200 } else { 1 })
}

fn item(
    placed: &Placed,
    write: Write,
    then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>,
) -> Result<(), VaultError> {
    let (key, seq) = ([write.key], placed.end);
    let address = Address::new(placed.lsn, write.at);
    match (write.what, &placed.entry) {
        (What::Put(word, expiry), entry) => {
            let bytes = bytes_of(word);
            let (metadata, hash) = (&b"m"[..], xxh3_64(&bytes));
            let value = Value { keyspace: 0, key: &key, modified: 1, expiry, metadata, value: &bytes, hash };
            let body = match entry {
                Entry::Prepare(branch, _) => Body::Prepared { xid: xid(*branch), value },
                _ => Body::Value { seq, value },
            };
            then(Item { address, body })
        }
        (What::Delete, Entry::Prepare(branch, _)) => {
            then(Item { address, body: Body::PreparedDelete { xid: xid(*branch), keyspace: 0, key: &key } })
        }
        (What::Delete, _) => then(Item { address, body: Body::Deleted { seq, keyspace: 0, key: &key } }),
        (What::Erase(to), _) => {
            then(Item { address, body: Body::Erased { seq, keyspace: 0, from: &key, to: Some(&[to]) } })
        }
    }
}

impl Source for Part<'_> {
    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
        for placed in self.log.iter().filter(|placed| self.first <= placed.lsn && placed.lsn < self.end) {
            match &placed.entry {
                Entry::Batch(writes) | Entry::Prepare(_, writes) => {
                    writes.iter().try_for_each(|write| item(placed, *write, then))?;
                }
                Entry::Outcome { branch, prepare, committed } => {
                    let (seq, xid) = (placed.end, xid(*branch));
                    let body = Body::Outcome { seq, xid, prepare: *prepare, committed: *committed };
                    then(Item { address: Address::new(placed.lsn, 0), body })?;
                }
            }
        }
        Ok(())
    }
}

/// When something counts: its seq, and its address among what has the same.
type Order = (u64, Address);

/// What a store is, by its log or by what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    keys: BTreeMap<u8, (u64, u64)>,
    undecided: BTreeMap<u64, Vec<(u8, What)>>,
}

/// A ledger under construction: entries in any order, the newest of a key counts.
#[derive(Default)]
struct Rebuilt {
    newest: BTreeMap<u8, (Order, What)>,
    erased: Vec<(Order, u8, u8)>,
    prepared: Vec<(Address, Xid, u8, What)>,
    outcomes: BTreeMap<u64, (u64, bool)>,
}

impl Rebuilt {
    fn write(&mut self, order: Order, key: u8, what: What) {
        let place = self.newest.entry(key).or_insert((order, what));
        if place.0 < order {
            *place = (order, what);
        }
    }

    fn take(&mut self, item: &Item<'_>) {
        let address = item.address;
        let put = |value: &Value<'_>| {
            assert_eq!(value.hash, xxh3_64(value.value));
            What::Put(u64::from_le_bytes(*value.value.first_chunk().unwrap()), value.expiry)
        };
        match &item.body {
            Body::Value { seq, value } => self.write((*seq, address), value.key[0], put(value)),
            Body::Deleted { seq, key, .. } => self.write((*seq, address), key[0], What::Delete),
            Body::Erased { seq, from, to, .. } => self.erased.push(((*seq, address), from[0], to.unwrap()[0])),
            Body::Outcome { seq, prepare, committed, .. } => _ = self.outcomes.insert(*prepare, (*seq, *committed)),
            Body::Prepared { xid, value } => self.prepared.push((address, *xid, value.key[0], put(value))),
            Body::PreparedDelete { xid, key, .. } => self.prepared.push((address, *xid, key[0], What::Delete)),
        }
    }

    fn state(mut self, clock: u64) -> State {
        let mut state = State::default();
        for (address, xid, key, what) in std::mem::take(&mut self.prepared) {
            match self.outcomes.get(&address.lsn) {
                Some((seq, true)) => self.write((*seq, address), key, what),
                Some((_, false)) => {}
                None => {
                    let branch = u64::from_le_bytes(*xid.gtrid().first_chunk().unwrap());
                    state.undecided.entry(branch).or_default().push((key, what));
                }
            }
        }
        for (key, (order, what)) in &self.newest {
            let erased = self.erased.iter().any(|(erased, from, to)| erased > order && from <= key && key < to);
            match what {
                What::Put(word, expiry) if !erased && (*expiry == 0 || *expiry > clock) => {
                    state.keys.insert(*key, (*word, *expiry));
                }
                _ => {}
            }
        }
        state
    }
}

/// What a volume holds, or the journal for it.
fn holds<'a>((done, volume): &'a (Compacted, Arc<Volume>), log: &'a [Placed]) -> Box<dyn Source + 'a> {
    if done.as_of > 0 { Box::new(Arc::clone(volume)) } else { Box::new(Part { log, first: done.first, end: done.end }) }
}

/// A store with a history: its journal from `raw_from` on, and volumes before.
struct Store {
    sim: SimDisk,
    disk: Arc<dyn Disk>,
    log: Vec<Placed>,
    end: u64,
    clock: u64,
    volumes: BTreeMap<u64, (Compacted, Arc<Volume>)>,
    raw_from: u64,
    /// What a power cut leaves at least: every compaction judged by no more.
    durable: u64,
    branches: u64,
    rng: Rng,
}

impl Store {
    fn new(seed: u64) -> Self {
        let sim = SimDisk::new();
        sim.create_dir(Path::new(FOLDER)).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let volumes = BTreeMap::new();
        let rng = Rng::new(seed);
        Self { sim, disk, log: Vec::new(), end: 0, clock: 10, volumes, raw_from: 0, durable: 0, branches: 0, rng }
    }

    fn outcome_of(&self, prepare: u64) -> Option<(u64, bool)> {
        self.log.iter().find_map(|placed| match placed.entry {
            Entry::Outcome { prepare: of, committed, .. } if of == prepare => Some((placed.end, committed)),
            _ => None,
        })
    }

    fn undecided(&self) -> Vec<(u64, u64, Vec<u8>)> {
        let prepared = self.log.iter().filter_map(|placed| match &placed.entry {
            Entry::Prepare(branch, writes) if self.outcome_of(placed.lsn).is_none() => {
                Some((*branch, placed.lsn, writes.iter().map(|write| write.key).collect()))
            }
            _ => None,
        });
        prepared.collect()
    }

    fn append(&mut self, entry: Entry) {
        let lsn = self.end;
        self.end += 24 + 8 * self.rng.range(1..12);
        self.log.push(Placed { lsn, end: self.end, entry });
    }

    fn writes(&mut self, may_erase: bool) -> Vec<Write> {
        let held: Vec<u8> = self.undecided().into_iter().flat_map(|(_, _, keys)| keys).collect();
        let mut writes = Vec::new();
        for number in 0..self.rng.range(1..4) {
            let key = self.rng.below(KEYS).to_le_bytes()[0];
            let what = match self.rng.below(10) {
                0..=4 => What::Put(self.rng.roll(), 0),
                5 => What::Put(self.rng.roll(), self.clock + self.rng.range(1..6)),
                6 if may_erase => What::Erase(key + 1 + self.rng.below(3).to_le_bytes()[0]),
                _ => What::Delete,
            };
            let keys = if let What::Erase(to) = what { key..to } else { key..key + 1 };
            let twice = |key: u8| !may_erase && writes.iter().any(|write: &Write| write.key == key);
            if !keys.clone().any(|key| held.contains(&key) || twice(key)) {
                writes.push(Write { at: u32::try_from(8 + number * 20).unwrap(), key, what });
            }
        }
        writes
    }

    fn step(&mut self) {
        match self.rng.below(12) {
            0..=5 => {
                let writes = self.writes(true);
                self.append(Entry::Batch(writes));
            }
            6 | 7 => {
                let writes = self.writes(false);
                if !writes.is_empty() {
                    self.branches += 1;
                    self.append(Entry::Prepare(self.branches, writes));
                }
            }
            8 | 9 => {
                let undecided = self.undecided();
                if let Some((branch, prepare, _)) = undecided.get(self.rng.index(undecided.len())) {
                    let committed = self.rng.below(3) > 0;
                    self.append(Entry::Outcome { branch: *branch, prepare: *prepare, committed });
                }
            }
            _ => self.clock += 1,
        }
    }

    /// Committed writes that touch a key: when, and what they are.
    fn history(&self, key: u8) -> Vec<(Order, What)> {
        let mut found = Vec::new();
        for placed in &self.log {
            let (seq, writes) = match &placed.entry {
                Entry::Batch(writes) => (placed.end, writes),
                Entry::Prepare(_, writes) => match self.outcome_of(placed.lsn) {
                    Some((seq, true)) => (seq, writes),
                    _ => continue,
                },
                Entry::Outcome { .. } => continue,
            };
            for write in writes {
                let touches =
                    if let What::Erase(to) = write.what { write.key <= key && key < to } else { write.key == key };
                if touches {
                    found.push(((seq, Address::new(placed.lsn, write.at)), write.what));
                }
            }
        }
        found.sort_by_key(|(order, _)| *order);
        found
    }

    /// What a ledger answers that has taken in the whole log, and has durably forgotten what it may forget.
    fn judge(&mut self, asked: &Asked<'_>, durable: u64) -> Liveness {
        if asked.seq.is_none() {
            match self.outcome_of(asked.address.lsn) {
                None => return Liveness::Undecided,
                Some((since, false)) => return Liveness::Dead { since },
                Some((_, true)) => {}
            }
        }
        let history = self.history(asked.key[0]);
        let ((newest, address), what) = *history.last().unwrap();
        let over = match what {
            What::Put(_, expiry) => expiry > 0 && expiry <= self.clock,
            What::Delete | What::Erase(_) => true,
        };
        if over && newest <= durable && self.rng.below(2) == 0 {
            return Liveness::Absent;
        }
        if address == asked.address { Liveness::Live { seq: newest } } else { Liveness::Dead { since: newest } }
    }

    /// The first cells of the journal stay as they are, as if they could not be read; later they can.
    fn keep(&mut self) {
        let first = self.raw_from;
        let ends = (first / CELL + 1..).map(|cell| cell * CELL).take_while(|end| *end <= self.end);
        let ends: Vec<u64> = ends.take(2).collect();
        let Some(end) = ends.get(self.rng.index(ends.len())).copied() else { return };
        let until = self.log.iter().filter(|placed| placed.lsn < end).map(|placed| placed.end).max().unwrap_or(0);
        let (disk, folder) = (Arc::clone(&self.disk), Path::new(FOLDER));
        let done = keep((first, end, until), (1, CELL), &*disk, folder, &AtOnce).unwrap();
        let volume = Volume::open(&disk, folder, first, 1).unwrap();
        assert!(done.facts.is_kept() && volume.facts().is_kept() && volume.facts().end == end);
        self.volumes.insert(first, (done, volume));
        (self.raw_from, self.durable) = (end, self.durable.max(until));
    }

    /// Compacts any run of volumes, any first cells of the journal, or both.
    fn compact(&mut self) {
        let mut firsts: Vec<u64> = self.volumes.keys().copied().collect();
        firsts.push(self.raw_from);
        let first = firsts[self.rng.index(firsts.len())];
        let mut ends: Vec<u64> = self.volumes.range(first..).map(|(_, (done, _))| done.end).collect();
        let cells = (self.raw_from / CELL + 1..).map(|cell| cell * CELL).take_while(|end| *end <= self.end);
        ends.extend(cells.take(4));
        let Some(end) = ends.get(self.rng.index(ends.len())).copied() else { return };
        let inside = self.log.iter().filter(|placed| placed.lsn < end).map(|placed| placed.end).max().unwrap_or(0);
        let durables: Vec<u64> =
            self.log.iter().map(|placed| placed.end).filter(|at| *at >= inside.max(self.durable)).collect();
        let Some(durable) = durables.get(self.rng.index(durables.len())).copied() else { return };
        let read: Vec<(Compacted, Arc<Volume>)> =
            self.volumes.range(first..end).map(|(_, (done, volume))| (*done, Arc::clone(volume))).collect();
        let generation = 1 + self.volumes.range(first..end).map(|(_, (done, _))| done.generation).max().unwrap_or(0);
        let log = self.log.clone();
        let part = Part { log: &log, first: first.max(self.raw_from), end };
        let held: Vec<Box<dyn Source + '_>> = read.iter().map(|volume| holds(volume, &log)).collect();
        let mut sources: Vec<&dyn Source> = held.iter().map(|source| &**source).collect();
        if end > self.raw_from {
            sources.push(&part);
        }
        let horizon = |(done, _): &(Compacted, Arc<Volume>)| Horizon {
            first: done.first,
            end: done.end,
            as_of: done.as_of,
            holds: done.kept > 0 || done.facts.is_kept(),
        };
        let before = self.volumes.range(..first).chain(self.volumes.range(end..));
        let mut others: Vec<Horizon> = before.map(|(_, volume)| horizon(volume)).collect();
        others.push(Horizon { first: end.max(self.raw_from), end: u64::MAX, as_of: 0, holds: true });
        let compaction = Compaction {
            first,
            end,
            generation,
            sources,
            others,
            durable,
            flushed: durable,
            remembered_from: u64::MAX,
            cell_bytes: CELL,
            // Each alone, some four together, some fourteen.
            window_bytes: usize::try_from(generation % 3).unwrap() * 2048,
        };
        let (disk, folder) = (Arc::clone(&self.disk), Path::new(FOLDER));
        let mut ledger = |asked: &Asked<'_>| Ok(self.judge(asked, durable));
        let done = compact(&compaction, &mut ledger, &*disk, folder, &AtOnce).unwrap();
        drop(compaction);
        drop(held);
        let olds: Vec<u64> = self.volumes.range(first..end).map(|(first, _)| *first).collect();
        for old in olds {
            if let Some((_, volume)) = self.volumes.remove(&old) {
                volume.doom();
            }
        }
        drop(read);
        let volume = Volume::open(&disk, folder, first, generation).unwrap();
        self.volumes.insert(first, (done, volume));
        self.raw_from = self.raw_from.max(end);
        self.durable = self.durable.max(durable);
    }

    /// As the log says up to a place.
    fn truth(&self, upto: u64) -> State {
        let mut rebuilt = Rebuilt::default();
        let log: Vec<Placed> = self.log.iter().filter(|placed| placed.end <= upto).cloned().collect();
        let part = Part { log: &log, first: 0, end: u64::MAX };
        part.walk(&mut |item| {
            rebuilt.take(&item);
            Ok(())
        })
        .unwrap();
        rebuilt.state(self.clock)
    }

    /// As what is left says, of a log that a power cut ended there.
    fn rebuilt(&self, upto: u64) -> State {
        let mut rebuilt = Rebuilt::default();
        let log: Vec<Placed> = self.log.iter().filter(|placed| placed.end <= upto).cloned().collect();
        for volume in self.volumes.values() {
            holds(volume, &log)
                .walk(&mut |item| {
                    rebuilt.take(&item);
                    Ok(())
                })
                .unwrap();
        }
        let part = Part { log: &log, first: self.raw_from, end: u64::MAX };
        part.walk(&mut |item| {
            rebuilt.take(&item);
            Ok(())
        })
        .unwrap();
        rebuilt.state(self.clock)
    }

    fn check(&mut self, seed: u64) {
        let ends: Vec<u64> = self.log.iter().map(|placed| placed.end).filter(|end| *end >= self.durable).collect();
        for upto in ends.iter().copied().chain([self.durable]) {
            assert_eq!(self.rebuilt(upto), self.truth(upto), "seed {seed}, up to {upto} of {}", self.end);
        }
        // Every value that lives is where its address says.
        for key in 0..u8::try_from(KEYS).unwrap() {
            let Some(((seq, address), What::Put(word, expiry))) = self.history(key).last().copied() else { continue };
            let over = expiry > 0 && expiry <= self.clock;
            if over || seq > self.durable || address.lsn >= self.raw_from {
                continue;
            }
            let (_, (done, volume)) = self.volumes.range(..=address.lsn).next_back().unwrap();
            if done.as_of == 0 {
                continue;
            }
            let record = volume.get(&NoBlocks, address).unwrap().unwrap();
            let (Body::Value { value, .. } | Body::Prepared { value, .. }) = record.item().unwrap().body else {
                panic!()
            };
            assert_eq!(value.value, bytes_of(word), "seed {seed}");
        }
        if self.rng.below(4) == 0 && !ends.is_empty() {
            // The power goes: what was not durable was never there.
            let upto = ends[self.rng.index(ends.len())];
            self.log.retain(|placed| placed.end <= upto);
            self.end = upto;
        }
    }
}

#[test]
fn a_rebuild_of_what_compactions_left_is_the_store() {
    let (mut compactions, mut remembered, mut dropped, mut kept) = (0, 0, 0, 0);
    for seed in 0..1500 {
        let mut store = Store::new(seed);
        for _ in 0..12 {
            for _ in 0..store.rng.range(2..14) {
                store.step();
            }
            if store.rng.below(6) == 0 {
                store.keep();
            }
            store.compact();
            store.check(seed);
        }
        kept += store.volumes.values().filter(|(done, _)| done.as_of == 0).count();
        compactions += store.volumes.len();
        let last = store.volumes.values().map(|(done, _)| done);
        last.for_each(|done| (remembered, dropped) = (remembered + done.remembered, dropped + done.dropped));
        assert!(store.sim.list(Path::new(FOLDER)).unwrap().len() <= store.volumes.len(), "what was doomed is gone");
    }
    println!("{compactions} volumes, {remembered} items remembered, {dropped} dropped by their last compactions");
    assert!(kept > 100, "{kept}");
    assert!(compactions > 2_000 && remembered > 2_000 && dropped > 10_000, "{compactions} {remembered} {dropped}");
}
