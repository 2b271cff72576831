//! One store in one scenario, in this process: opened, loaded, raced, measured, closed, opened again and audited.
//!
//! Walk: [`run`] does all of it · [`serve`] does it for a race in another process.

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_kind::Kind;

use super::client::{Client, FIELDS, Ground, Part, now};
use super::keys::{self, mixed};
use super::ledger::Ledger;
use super::meter::{Look, rss_peak_mb, space};
use super::pauses::{Pauses, Watched};
use super::pipe::{Call, Done, Pipe, Spill};
use super::scenario::{Begin, Case, Job, Scenario};
use super::store::{Member, Setup, Store, Write};
use super::value::{self, Head, Pool};
use super::windows::Tail;
use crate::BenchError;
use crate::report::Figures;

const LOADERS: u64 = 4;
const OPENS: u32 = 5;
/// Leaves of the tree that kv-scan builds.
const LEAVES: u64 = 1 << 16;
const MIB: f64 = 1_048_576.0;

/// Reads a job from `input`, runs it and writes samples and outcome to `output`. Whoever started this process and dies takes it along.
///
/// # Errors
/// [`Kind::Invalid`] for a job that is none, and what the output says; never what the cell says.
pub fn serve(members: &[Member], mut input: impl Read, output: impl std::io::Write + Send) -> Result<(), BenchError> {
    // Without it a race that is killed would leave a cell behind; with an old kernel it does.
    _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut text = String::new();
    input.read_to_string(&mut text).map_err(|error| BenchError::new(Kind::Invalid, format!("no job: {error}")))?;
    let job: Job =
        serde_json::from_str(&text).map_err(|error| BenchError::new(Kind::Invalid, format!("no job: {error}")))?;
    let pipe = Pipe::new(output);
    pipe.end(run(&job, members, &pipe))
}

/// Writes who takes part, as [`super::race::Program`] reads it.
///
/// # Errors
/// What the output says.
pub fn tell(members: &[Member], mut output: impl std::io::Write) -> Result<(), BenchError> {
    let named: Vec<super::store::Named> = members.iter().map(super::store::Named::from).collect();
    let text = serde_json::to_string(&named).map_err(|error| BenchError::new(Kind::Internal, error))?;
    output.write_all(text.as_bytes()).map_err(|error| BenchError::disk("telling the members", &error))
}

/// The stores of a cell.
struct House<'h> {
    case: &'h Case,
    member: &'h Member,
    folders: Vec<PathBuf>,
    stores: Vec<Box<dyn Store>>,
}

/// What ran beside the clients.
#[derive(Debug, Default)]
struct Scanned {
    folds: u64,
    rows: u64,
}

/// Runs one cell.
///
/// # Errors
/// What the store says, "not built" for what it cannot, and [`Kind::Corrupt`] for a wrong or lost value.
pub fn run(job: &Job, members: &[Member], spill: &dyn Spill) -> Result<Done, BenchError> {
    let case = &job.case;
    let known = members.iter().find(|member| member.name == job.store);
    let member =
        known.ok_or_else(|| BenchError::new(Kind::Invalid, format!("nobody here is called {:?}", job.store)))?;
    member.check(case.scenario.needs())?;
    let (ledger, pool) = (Ledger::new(case.keys), Pool::new(case.seed));
    let mut house = House::open(case, member, &job.folder)?;
    let mut figures = Figures::new();
    if job.begin == Begin::Loaded {
        ledger.was_loaded();
    } else if case.preload {
        let begun = now();
        house.load(&ledger, &pool)?;
        let rate = super::number(case.keys) / begun.elapsed().as_secs_f64().max(1e-9);
        figures.insert("preload_per_s".to_owned(), rate);
    }
    if job.begin == Begin::Load {
        house.closed()?;
        return Ok(Done { figures, ..Done::default() });
    }
    if case.scenario.is_warmed() {
        let begun = now();
        house.warm()?;
        let rate = super::number(case.keys) / begun.elapsed().as_secs_f64().max(1e-9);
        figures.insert("first_looks_per_s".to_owned(), rate);
    }
    let mut done = Done { figures, ..Done::default() };
    if case.scenario == Scenario::MemoryOpen {
        house = house.reopened_often(spill, &mut done)?;
    } else {
        house.race(&ledger, &pool, spill, &job.folder, &mut done)?;
    }
    let live = ledger.written() * super::length(case.value_bytes + keys::KEY_BYTES) * house.copies();
    let taken = space(&job.folder);
    let mut put = |name: &str, value: f64| _ = done.figures.insert(name.to_owned(), value);
    put("live_mb", super::number(live) / MIB);
    put("space_mb", super::number(taken) / MIB);
    if live > 0 {
        put("space_amplification", super::number(taken) / super::number(live));
    }
    if let Some(peak) = rss_peak_mb() {
        put("rss_peak_mb", peak);
    }
    let house = house.reopened()?;
    put("audited_keys", super::number(house.audit(&ledger)?));
    house.closed()?;
    Ok(done)
}

impl<'h> House<'h> {
    fn open(case: &'h Case, member: &'h Member, folder: &Path) -> Result<Self, BenchError> {
        let folders: Vec<PathBuf> = (0..case.stores).map(|number| folder.join(format!("store-{number}"))).collect();
        for folder in &folders {
            std::fs::create_dir_all(folder).map_err(|error| BenchError::disk("making the store's folder", &error))?;
        }
        let mut house = Self { case, member, folders, stores: Vec::new() };
        house.stores = house.opened()?;
        Ok(house)
    }

    fn opened(&self) -> Result<Vec<Box<dyn Store>>, BenchError> {
        let Case { sync, disk_iops, segment_bytes, .. } = *self.case;
        let stores = u64::from(self.case.stores).max(1);
        let (cache_bytes, value_cache_bytes) = (self.case.cache_bytes / stores, self.case.value_cache_bytes / stores);
        let open = |folder: &PathBuf| {
            let folder = folder.clone();
            (self.member.open)(&Setup { folder, sync, cache_bytes, value_cache_bytes, segment_bytes, disk_iops })
        };
        self.folders.iter().map(open).collect()
    }

    fn closed(mut self) -> Result<Self, BenchError> {
        std::mem::take(&mut self.stores).into_iter().try_for_each(|store| store.close())?;
        Ok(self)
    }

    fn reopened(self) -> Result<Self, BenchError> {
        let mut house = self.closed()?;
        house.stores = house.opened()?;
        Ok(house)
    }

    /// How often each object is kept.
    fn copies(&self) -> u64 {
        if self.case.scenario.has_copies() { super::length(self.stores.len()) } else { 1 }
    }

    /// The stores that have a key.
    fn homes(&self, key: u64) -> impl Iterator<Item = &dyn Store> {
        let all = self.copies() > 1;
        let home = usize::try_from(key % super::length(self.stores.len()).max(1)).unwrap_or(0);
        let stores = self.stores.iter().map(AsRef::as_ref).enumerate();
        stores.filter(move |(number, _)| all || *number == home).map(|(_, store)| store)
    }

    /// Writes every key once, in an order that is not theirs, without waiting for the disk; then waits once.
    fn load(&self, ledger: &Ledger, pool: &Pool) -> Result<(), BenchError> {
        let stop = AtomicBool::new(false);
        let part = |first: u64| {
            let mut value = Vec::new();
            let mut numbers = (first..ledger.keys()).step_by(usize::try_from(LOADERS).unwrap_or(1));
            numbers.try_for_each(|key| {
                let Some(version) = ledger.claim(key).filter(|_| !stop.load(Ordering::Relaxed)) else { return Ok(()) };
                pool.lay(Head { key, version, indexed: 0 }, self.case.value_bytes, &mut value);
                let laid = keys::object(key);
                self.homes(key).try_for_each(|store| store.write(&[Write::Put(&laid, &value)], false))?;
                ledger.settle(key, version);
                Ok(())
            })
        };
        let part = |first: u64| part(first).inspect_err(|_: &BenchError| stop.store(true, Ordering::Relaxed));
        together(&|number| part(number), LOADERS)?;
        self.stores.iter().try_for_each(|store| store.flush())
    }

    /// Looks at every key once, as the clients will: as many threads, each at keys of its own.
    fn warm(&self) -> Result<(), BenchError> {
        let Case { clients, keys, scenario, .. } = *self.case;
        let part = |first: u64| {
            let mut found = Vec::new();
            let mut numbers = (first..keys).step_by(usize::try_from(clients).unwrap_or(1).max(1));
            numbers.try_for_each(|key| {
                let laid = keys::object(key);
                self.homes(key).try_for_each(|store| {
                    let look = if scenario == Scenario::MemoryHead {
                        store.head(&laid, &mut found)
                    } else {
                        store.get(&laid, &mut found)
                    };
                    look.map(drop)
                })
            })
        };
        together(&part, u64::from(clients))
    }

    /// The clients, and what runs beside them.
    fn race(
        &self,
        ledger: &Ledger,
        pool: &Pool,
        spill: &dyn Spill,
        folder: &Path,
        done: &mut Done,
    ) -> Result<(), BenchError> {
        let before = Look::settled(folder);
        let ground = Ground {
            case: self.case,
            stores: &self.stores,
            ledger,
            pool,
            spill,
            start: now(),
            stop: AtomicBool::new(false),
        };
        let (ended, pauses) = (AtomicBool::new(false), Pauses::watch(folder));
        let (outcome, scanned) = std::thread::scope(|scope| {
            let scanner = (self.case.scenario == Scenario::KvScan).then(|| scope.spawn(|| self.scan(&ended)));
            let outcome = clients(&ground);
            ended.store(true, Ordering::Relaxed);
            (outcome, scanner.map(std::thread::ScopedJoinHandle::join))
        });
        let elapsed = outcome.as_ref().map_or(Duration::ZERO, |part| part.end).max(Duration::from_nanos(1));
        let Watched { figures, disk, cpu: harness } = pauses.ended(elapsed);
        done.figures.extend(figures);
        if !disk.is_empty() {
            done.series.insert("disk_pause_max_10s_us".to_owned(), disk);
        }
        let part = outcome?;
        // The watchers were born behind the first look and have ended: all of theirs is in between.
        let after = Look::at(folder).without(harness);
        // Nobody leaves out of the figures what it still owes the disk.
        self.stores.iter().try_for_each(|store| store.flush())?;
        let settled = Look::settled(folder);
        done.figures.extend(part.seconds.figures(elapsed));
        done.figures.extend(after.since(before, settled, elapsed, part.seconds.operations(), part.user_bytes));
        done.series.insert("ops_per_s".to_owned(), part.seconds.rate(elapsed));
        for (name, tail) in [("get_max_10s_us", Tail::Get), ("put_max_10s_us", Tail::Put)] {
            let maxima = part.seconds.maxima_us(tail, elapsed);
            if !maxima.is_empty() {
                done.series.insert(name.to_owned(), maxima);
            }
        }
        let mut put = |name: &str, value: f64| _ = done.figures.insert(name.to_owned(), value);
        if part.gets > 0 {
            put("not_found_percent", super::number(part.missing) * 100.0 / super::number(part.gets));
        }
        if self.case.rate.is_some() {
            put("never_begun", super::number(part.behind));
        }
        if self.case.scenario == Scenario::KvIndex {
            put("index_rows", super::number(part.rows));
        }
        if let Some(scanned) = scanned {
            let Scanned { folds, rows } =
                scanned.unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "the fold panicked")))?;
            put("folds", super::number(folds));
            put("fold_rows_per_s", super::number(rows) / elapsed.as_secs_f64());
        }
        for (name, value) in self.stores.iter().flat_map(|store| store.figures()) {
            *done.figures.entry(name.to_owned()).or_default() += value;
        }
        Ok(())
    }

    /// Key and version of every object into a tree of exclusive ors, again and again until the clients have ended.
    fn scan(&self, ended: &AtomicBool) -> Result<Scanned, BenchError> {
        let mut scanned = Scanned::default();
        let leaves = usize::try_from(LEAVES).unwrap_or(1);
        loop {
            let (mut tree, mut odd) = (vec![0_u64; leaves], None);
            for store in &self.stores {
                store.fold(keys::OBJECTS.0, keys::OBJECTS.1, &mut |key, value| {
                    let number = keys::number_of(key);
                    let Some(Ok(head)) = number.map(|number| value::head(number, value)) else {
                        odd = Some(format!("a fold found {key:?}, whose value is none of ours"));
                        return ControlFlow::Break(());
                    };
                    let hash = mixed(head.key ^ mixed(head.version));
                    if let Some(leaf) = tree.get_mut(usize::try_from(hash % LEAVES).unwrap_or(0)) {
                        *leaf ^= hash;
                    }
                    scanned.rows += 1;
                    if ended.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            if let Some(said) = odd {
                return Err(BenchError::new(Kind::Corrupt, said));
            }
            if ended.load(Ordering::Relaxed) {
                return Ok(scanned);
            }
            scanned.folds += 1;
        }
    }

    /// Closes and opens a few times.
    fn reopened_often(self, spill: &dyn Spill, done: &mut Done) -> Result<Self, BenchError> {
        let (mut house, mut slowest) = (self, Duration::ZERO);
        for _ in 0..OPENS {
            house = house.closed()?;
            let begun = now();
            house.stores = house.opened()?;
            let took = begun.elapsed();
            slowest = slowest.max(took);
            spill.take(Call::Open, &[u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)])?;
        }
        let rate = super::number(house.case.keys) / slowest.as_secs_f64().max(1e-9);
        done.figures.insert("keys_opened_per_s".to_owned(), rate);
        Ok(house)
    }

    /// Looks for what was acknowledged; how many keys it looked at.
    fn audit(&self, ledger: &Ledger) -> Result<u64, BenchError> {
        let step = ledger.keys().div_ceil(self.case.audit_keys.max(1)).max(1);
        let (mut value, mut looked) = (Vec::new(), 0);
        let mut key = 0;
        while key < ledger.keys() {
            for store in self.homes(key) {
                let found = store.get(&keys::object(key), &mut value)?;
                let head = found.then(|| value::check(key, &value, self.case.value_bytes)).transpose()?;
                ledger.judge(key, ledger.least(key), head.map(|head| head.version)).map_err(|error| {
                    BenchError::new(error.kind, format!("after the store was opened again, {}", error.message))
                })?;
            }
            looked += 1;
            key += step;
        }
        if self.case.scenario == Scenario::KvIndex {
            self.stores.iter().try_for_each(|store| Self::audit_index(ledger, &**store))?;
        }
        Ok(looked)
    }

    /// Every entry of a store's index is one that its object has, and each of those is there. For that the heads of all objects are read, in
    /// one walk: a GET of each key would take some peers minutes.
    fn audit_index(ledger: &Ledger, store: &dyn Store) -> Result<(), BenchError> {
        let wrong = |what: String| {
            Err(BenchError::new(Kind::Corrupt, format!("after the store was opened again, index entry {what}")))
        };
        let mut objects: Vec<Entries> = (0..ledger.keys()).map(|_| Entries::default()).collect();
        let mut odd = None;
        let place = |key: u64| usize::try_from(key).unwrap_or(usize::MAX);
        store.fold(keys::OBJECTS.0, keys::OBJECTS.1, &mut |key, value| {
            let head = keys::number_of(key).map(|number| value::head(number, value));
            match head.and_then(Result::ok).and_then(|head| Some((objects.get_mut(place(head.key))?, head.indexed))) {
                Some((entries, indexed)) => *entries = Entries::of(indexed),
                None => odd = Some(key.to_vec()),
            }
            if odd.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if let Some(key) = odd {
            return Err(BenchError::new(Kind::Corrupt, format!("a fold found {key:?}, whose value is none of ours")));
        }
        store.fold(keys::ENTRIES.0, keys::ENTRIES.1, &mut |entry, _| {
            let known = keys::parts_of(entry).and_then(|(field, term, key)| {
                let entries = objects.get_mut(place(key))?;
                (entries.take(field) && keys::term(key, entries.indexed, field) == term).then_some(())
            });
            if known.is_some() {
                return ControlFlow::Continue(());
            }
            odd = Some(entry.to_vec());
            ControlFlow::Break(())
        })?;
        if let Some(entry) = odd {
            return wrong(match keys::parts_of(&entry) {
                Some((field, term, key)) => {
                    format!("of key {key} with term {term} in field {field} is none that its object has")
                }
                None => format!("{entry:?} is none of ours"),
            });
        }
        match objects.iter().enumerate().find(|(_, entries)| entries.missing > 0) {
            Some((key, Entries { indexed, .. })) => {
                wrong(format!("of key {key}, whose version {indexed} was indexed, is not found"))
            }
            None => Ok(()),
        }
    }
}

/// The index entries of one object.
#[derive(Default)]
struct Entries {
    indexed: u64,
    /// A bit for each field whose entry was not found yet.
    missing: u8,
}

impl Entries {
    fn of(indexed: u64) -> Self {
        Self { indexed, missing: if indexed > 0 { (1 << FIELDS) - 1 } else { 0 } }
    }

    /// One was found; false where there should be none, or it was found before.
    fn take(&mut self, field: u8) -> bool {
        let bit = 1_u8.checked_shl(u32::from(field)).unwrap_or(0);
        let is_missing = self.missing & bit != 0;
        self.missing &= !bit;
        is_missing
    }
}

/// Runs so many of them at once; the first error counts.
fn together(part: &(dyn Fn(u64) -> Result<(), BenchError> + Sync), count: u64) -> Result<(), BenchError> {
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..count).map(|number| scope.spawn(move || part(number))).collect();
        let panicked = || Err(BenchError::new(Kind::Internal, "a thread of the race panicked"));
        let ended: Vec<_> = parts.into_iter().map(|part| part.join().unwrap_or_else(|_| panicked())).collect();
        ended.into_iter().collect()
    })
}

/// All clients until they have ended; the first that fails stops all.
fn clients(ground: &Ground<'_>) -> Result<Part, BenchError> {
    let all = std::sync::Mutex::new(Part::default());
    let one = |number: u64| {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let ended = Client::new(ground, number).run();
        let part = ended.inspect_err(|_| ground.stop.store(true, Ordering::Relaxed))?;
        all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(&part);
        Ok(())
    };
    together(&one, u64::from(ground.case.clients))?;
    Ok(all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}
