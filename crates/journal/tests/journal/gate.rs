//! The power goes, everywhere: what was acknowledged is there, in order, at its place; what was not is there wholly or
//! not at all. And without any one barrier that is not so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::Lsn;
use assent_journal::{BARRIERS, BARRIERS_OF_ARCHIVE, Config, Journal, Log, Ticket, stepping};
use assent_sim::{Explore, Rng, SimClock, SimDisk, Subject, Witness};
use assent_world::Disk;

use super::stage::{FOLDER, in_two_files, open_at, small};

/// An entry, or a place up to which the log was trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fact {
    /// The life it belongs to, its number in it, and its place (0 when it is attempted: not known then).
    Entry { life: usize, number: u64, lsn: u64, end: u64 },
    /// Entries before may be gone.
    Trimmed { to: u64 },
    /// What was kept between these places may be gone; once it is told so, it is.
    Released { first: u64, end: u64 },
    /// A life began.
    Opened,
}

struct Gate {
    lives: u32,
    /// Which of the nine ways to keep bytes; by chance one of the first eight if not said.
    mode: Option<u64>,
}

fn config(mode: u64) -> Config {
    let base = small();
    match mode {
        0 => base,
        1 => Config { dsync: true, writes_in_flight: 3, ..base },
        2 => Config { direct: false, ..base },
        3 => Config { direct: false, dsync: true, ..base },
        4 => Config { max_elapsed_sync_time: 10, min_elapsed_sync_time: 2, ..base },
        // With room for entries that begin in the last block of the write under way, and wait for it.
        RELEASED => Config { kept_until_released: true, max_buffer_log_size: 4 * 4096, ..base },
        ALL_KEPT | TIGHT => Config { archive_bytes_max: u64::MAX, ..base },
        _ => Config { archive_bytes_max: base.log_size, ..base },
    }
}

/// The way that keeps what is trimmed until it is released.
const RELEASED: u64 = 8;
/// The ways that archive what is trimmed: all of it, one segment of it.
const ALL_KEPT: u64 = 5;
const ONE_KEPT: u64 = 6;
/// All of it, on a disk that is too small for that.
const TIGHT: u64 = 7;
const TIGHT_BYTES: u64 = 8 * 5 * 4096;

fn payload(life: usize, number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = [(life as u64).to_le_bytes(), number.to_le_bytes()].concat();
    payload.extend((16..bytes.max(16)).map(|at| (at as u64 * 31 + number * 7 + life as u64).to_le_bytes()[0]));
    payload
}

/// One life of a journal.
struct Life<'a> {
    witness: &'a Witness<Fact>,
    journal: Arc<Journal>,
    clock: Arc<SimClock>,
    rng: Rng,
    life: usize,
    numbers: u64,
    lazy: bool,
    archives: bool,
    releases: bool,
    /// Appended and not known to be durable.
    open: Vec<(u64, Ticket)>,
    places: Vec<u64>,
}

type Done = Result<(), String>;

fn told<T>(result: Result<T, assent_journal::JournalError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

impl Life<'_> {
    fn append(&mut self, bytes: usize) -> Result<Ticket, String> {
        let number = self.numbers;
        self.numbers += 1;
        self.witness.attempt(Fact::Entry { life: self.life, number, lsn: 0, end: 0 });
        let payload = payload(self.life, number, bytes);
        let (front, back) = payload.split_at(payload.len() / 3);
        let ticket = told(self.journal.append(7, &[front, back]))?;
        self.open.push((number, ticket));
        Ok(ticket)
    }

    /// Acknowledges whatever is durable.
    fn acknowledge(&mut self) {
        let durable = self.journal.durable();
        for (number, ticket) in std::mem::take(&mut self.open) {
            if ticket.end <= durable {
                self.places.push(ticket.lsn.0);
                let (lsn, end) = (ticket.lsn.0, ticket.end.0);
                self.witness.acknowledge(Fact::Entry { life: self.life, number, lsn, end });
            } else {
                self.open.push((number, ticket));
            }
        }
    }

    fn wait(&mut self, ticket: Ticket) -> Done {
        told(self.journal.wait(ticket))?;
        let acknowledged = self.journal.durable() >= ticket.end;
        if !self.lazy && !acknowledged {
            return Err(format!("{ticket:?} was acknowledged before it was durable"));
        }
        self.acknowledge();
        Ok(())
    }

    fn size(&mut self) -> usize {
        let long = self.rng.below(12) == 0;
        usize::try_from(if long { self.rng.range(9_000..24_000) } else { self.rng.range(16..700) }).unwrap()
    }

    fn step(&mut self) -> Done {
        // Where there is an archive, much is laid and much trimmed.
        let kinds = if self.releases {
            18
        } else if self.archives {
            14
        } else {
            10
        };
        match self.rng.below(kinds) {
            0..=2 => {
                let size = self.size();
                let ticket = self.append(size)?;
                self.wait(ticket)
            }
            3 | 4 => {
                for _ in 0..self.rng.range(2..6) {
                    let size = self.size();
                    self.append(size)?;
                }
                told(self.journal.sync())?;
                self.acknowledge();
                Ok(())
            }
            5 | 6 => self.two_in_flight(),
            7 => {
                let size = self.size();
                let ticket = self.append(size)?;
                told(self.journal.wait_durable(ticket))?;
                self.acknowledge();
                Ok(())
            }
            8 => {
                // At the end longer than what was written counts as cached.
                for pause in [7, 7, 60] {
                    self.clock.advance(Duration::from_millis(pause));
                    self.journal.maintain();
                }
                self.acknowledge();
                Ok(())
            }
            10..=12 => {
                let bytes = usize::try_from(self.rng.range(9_000..40_000)).unwrap();
                let ticket = self.append(bytes)?;
                self.wait(ticket)
            }
            14..=17 => self.release(),
            kind => {
                let index =
                    if kind == 9 { self.rng.index(self.places.len()) } else { self.places.len().wrapping_sub(1) };
                let Some(to) = self.places.get(index).copied() else { return Ok(()) };
                self.witness.attempt(Fact::Trimmed { to });
                told(self.journal.trim(Lsn(to)))
            }
        }
    }

    /// Any one of what is kept goes.
    fn release(&mut self) -> Done {
        let sealed = self.journal.sealed();
        let Some(span) = sealed.get(self.rng.index(sealed.len())) else { return Ok(()) };
        let fact = Fact::Released { first: span.first.0, end: span.end.0 };
        self.witness.attempt(fact);
        told(self.journal.release(span.first))?;
        self.witness.acknowledge(fact);
        Ok(())
    }

    /// Leaves the last of two batches as earlier releases rescued it.
    fn leave_two_files(mut self, disk: &SimDisk) -> Done {
        let mut end = None;
        for _ in 0..2 {
            let ticket = self.append(300)?;
            end = end.or(Some(ticket.end));
            self.wait(ticket)?;
        }
        drop(self.journal);
        end.map_or(Ok(()), |end| in_two_files(disk, end).map_err(|error| error.to_string()))
    }

    /// Two writes under way, the later done first: nothing of it counts before the earlier.
    fn two_in_flight(&mut self) -> Done {
        let size = self.size().min(2000);
        let first = self.append(size)?;
        let Some(mut one) = stepping::close(&self.journal) else { return self.wait(first) };
        let shares = self.releases && self.rng.below(2) == 0;
        let size = if shares { 5000 } else { self.size().min(2000) };
        let second = self.append(size)?;
        let two = stepping::close(&self.journal);
        if let Some(mut two) = two {
            if self.rng.below(2) == 0 {
                two.write();
                two.land();
                if !self.lazy && self.journal.durable() >= second.end {
                    return Err("a later write counted before the earlier".to_owned());
                }
                one.land();
            } else {
                one.write();
                two.land();
                one.land();
            }
        } else {
            one.land();
        }
        self.wait(second)
    }
}

impl Subject for Gate {
    type Fact = Fact;

    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Fact>) -> Done {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(SimClock::new());
        let mode = self.mode.unwrap_or_else(|| rng.below(TIGHT + 1));
        let (settles_late, openings_max) = (rng.below(2) == 0, if rng.below(2) == 0 { 2 } else { 1_024 });
        let config = Config { settles_late, openings_max, ..config(mode) };
        let life = witness.attempted().iter().filter(|fact| **fact == Fact::Opened).count();
        witness.attempt(Fact::Opened);
        disk.set_capacity((mode == TIGHT).then_some(TIGHT_BYTES));
        let (journal, _) = match open_at(disk, Arc::clone(&clock), rng.roll(), &config) {
            Err(error) if mode == TIGHT => return full_of_what_lives(disk, error.to_string()),
            opened => told(opened)?,
        };
        // What an open shows is durable, whoever asked for it.
        let known: BTreeSet<_> = witness.acknowledged().into_iter().map(key).collect();
        let found = read(&journal)?;
        for ((life, number), (lsn, end)) in &found {
            let fact = Fact::Entry { life: *life, number: *number, lsn: *lsn, end: *end };
            if !known.contains(&key(fact)) {
                witness.acknowledge(fact);
            }
        }
        let (lazy, releases) = (config.lazy(), config.kept_until_released);
        let archives = config.archive_bytes_max > 0 || releases;
        let places = found.values().map(|(lsn, _)| *lsn).collect();
        let open = Vec::new();
        let mut life = Life { witness, journal, clock, rng, life, numbers: 0, lazy, archives, releases, open, places };
        for _ in 0..life.rng.range(2..14) {
            match life.step() {
                Err(error) if mode == TIGHT => return full_of_what_lives(disk, error),
                done => done?,
            }
        }
        match life.rng.below(4) {
            0 => {
                told(life.journal.close())?;
                life.acknowledge();
            }
            1 if mode != TIGHT => _ = life.append(300)?,
            2 if mode != TIGHT && !life.lazy => life.leave_two_files(disk)?,
            _ => {}
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, acknowledged: &[Fact], attempted: &[Fact]) -> Done {
        let clock = Arc::new(SimClock::new());
        let openings_max = if acknowledged.len().is_multiple_of(2) { 2 } else { 1_024 };
        let settles_late = attempted.len().is_multiple_of(2);
        let config = Config { settles_late, openings_max, ..config(self.mode.unwrap_or(0)) };
        disk.set_capacity(None);
        let (journal, _) = told(open_at(disk, clock, 99, &config))?;
        let found = read(&journal)?;
        let trimmed = attempted.iter().map(|fact| if let Fact::Trimmed { to } = fact { *to } else { 0 }).max();
        let trimmed = trimmed.unwrap_or(0);
        let gone: Vec<(u64, u64)> = attempted.iter().filter_map(released).collect();
        let may_be_released = |from: u64, to: u64| {
            gone.iter().any(|(first, end)| *first < to && from < *end && self.mode == Some(RELEASED))
        };
        for (first, _) in acknowledged.iter().filter_map(released) {
            if journal.sealed().iter().any(|span| span.first.0 == first) {
                return Err(format!("{first} was released and is there again"));
            }
        }
        let mut attempts: BTreeMap<usize, u64> = BTreeMap::new();
        for fact in attempted {
            if let Fact::Entry { life, number, .. } = fact {
                attempts.insert(*life, number + 1);
            }
        }
        for fact in acknowledged {
            let Fact::Entry { life, number, lsn, end } = *fact else { continue };
            match found.get(&(life, number)) {
                Some((at, _)) if *at == lsn => {}
                Some((at, _)) => return Err(format!("entry {life}.{number} moved from {lsn} to {at}")),
                None if may_be_released(lsn, end) => {}
                None if lsn < trimmed && !matches!(self.mode, Some(ALL_KEPT | RELEASED)) => {}
                None => return Err(format!("entry {life}.{number} at {lsn} is lost")),
            }
        }
        // Of each life, what is left is whole: no entry without those before it, but for what was trimmed.
        let mut before: Option<((usize, u64), u64)> = None;
        for (key, (lsn, _)) in &found {
            let (life, number) = *key;
            if attempts.get(&life).is_none_or(|count| number >= *count) {
                return Err(format!("entry {life}.{number} was never appended"));
            }
            let follows = match before {
                Some(((last, of_it), at)) if last == life => {
                    (of_it + 1 == number || may_be_released(at, *lsn)) && at < *lsn
                }
                _ => {
                    let at = before.map_or(0, |(_, at)| at);
                    number == 0 || *lsn <= trimmed || before.is_none() && trimmed > 0 || may_be_released(at, *lsn)
                }
            };
            if !follows {
                return Err(format!("entry {life}.{number} at {lsn} follows {before:?}"));
            }
            before = Some((*key, *lsn));
        }
        if self.mode == Some(ONE_KEPT) && archived_bytes(disk) > config.archive_bytes_max {
            return Err(format!("{} bytes are archived", archived_bytes(disk)));
        }
        Ok(())
    }

    fn lives(&self) -> u32 {
        self.lives
    }
}

fn released(fact: &Fact) -> Option<(u64, u64)> {
    if let Fact::Released { first, end } = fact { Some((*first, *end)) } else { None }
}

fn key(fact: Fact) -> (usize, u64) {
    if let Fact::Entry { life, number, .. } = fact { (life, number) } else { (usize::MAX, 0) }
}

/// A disk may be full of the live log, but never while there is history.
fn full_of_what_lives(disk: &SimDisk, error: String) -> Done {
    if error.contains("make room") && archived_bytes(disk) == 0 { Ok(()) } else { Err(error) }
}

fn archived_bytes(disk: &SimDisk) -> u64 {
    let names = disk.list(Path::new(FOLDER)).unwrap();
    names.iter().filter(|name| name.ends_with(".archived")).map(|_| small().log_size).sum()
}

/// Where entries begin and end, by life and number.
type Places = BTreeMap<(usize, u64), (u64, u64)>;

/// All entries, archived or not, by life and number, with their places; all ways of reading agree.
fn read(journal: &Journal) -> Result<Places, String> {
    let mut found = BTreeMap::new();
    let mut last = None;
    let sealed = journal.sealed();
    let mut behind = sealed.windows(2).filter(|two| two[0].end < two[1].first).map(|two| two[1].first);
    let live = sealed.last().filter(|last| last.end < journal.start()).map(|_| journal.start());
    let mut entries = told(journal.read(journal.oldest()))?;
    let mut next = None;
    loop {
        let entry = match entries.next() {
            None => break,
            Some(Ok(entry)) => entry,
            Some(Err(error)) => {
                // A hole, and only where something was released.
                let beyond = behind.next().or_else(|| live.filter(|live| next.replace(*live).is_none()));
                entries = told(journal.read(beyond.ok_or(error.to_string())?))?;
                continue;
            }
        };
        let (life, rest) = entry.payload.split_first_chunk::<8>().ok_or("a short entry")?;
        let (number, _) = rest.split_first_chunk::<8>().ok_or("a short entry")?;
        let (life, number) = (usize::try_from(u64::from_le_bytes(*life)).unwrap(), u64::from_le_bytes(*number));
        if entry.kind != 7 || entry.payload != payload(life, number, entry.payload.len()) {
            return Err(format!("entry {life}.{number} is not what was appended"));
        }
        let sized = told(journal.read_at_sized(entry.lsn, entry.payload.len()))?;
        if told(journal.read_at(entry.lsn))? != entry || sized.payload() != entry.payload {
            return Err(format!("entry {life}.{number} reads otherwise at its place"));
        }
        if last.is_some_and(|last| last >= (life, number)) {
            return Err(format!("entry {life}.{number} comes after {last:?}"));
        }
        last = Some((life, number));
        found.insert((life, number), (entry.lsn.0, entry.end.0));
    }
    Ok(found)
}

#[test]
fn gate_power_loss() {
    let report = Explore::new().run(&Gate { lives: 3, mode: None }).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.states > 2_000 && report.nested > 100, "{report}");
}

#[test]
fn gate_power_loss_of_a_log_that_archives() {
    for mode in [ALL_KEPT, ONE_KEPT, TIGHT, RELEASED] {
        // Releases are rare: more runs, and fewer states of each cut.
        let states_per_cut_max = if mode == RELEASED { 8 } else { 48 };
        let time_max = Duration::from_secs(20);
        let explore = Explore { states_max: 5_000, time_max, states_per_cut_max, ..Explore::new() };
        let report = explore.run(&Gate { lives: 3, mode: Some(mode) }).unwrap_or_else(|failure| panic!("{failure}"));
        println!("mode {mode}: {report}");
        assert!(report.states > 2_000 && report.nested > 100, "{report}");
    }
}

#[test]
fn gate_each_barrier_ignored_goes_red() {
    for barrier in BARRIERS.iter().chain(BARRIERS_OF_ARCHIVE) {
        // Some barriers matter only in some ways of keeping bytes: with RWF_DSYNC a batch takes nothing else along.
        let modes = match barrier.label() {
            label if label.contains("backlog") => vec![4],
            label if label.contains("archived") => vec![ALL_KEPT],
            label if label.contains("pruned") => vec![ONE_KEPT],
            label if label.contains("released") => vec![RELEASED],
            _ => vec![1, 4, 0, 2],
        };
        let explore = Explore { states_max: 30_000, ..Explore::new() };
        let red = modes.into_iter().find_map(|mode| {
            let failure = explore.ignoring(&Gate { lives: 3, mode: Some(mode) }, *barrier);
            failure.inspect_err(|green| println!("mode {mode}: {green}")).ok().map(|failure| (mode, failure))
        });
        let (mode, failure) = red.unwrap_or_else(|| panic!("nothing misses {:?}", barrier.label()));
        println!("{}: mode {mode}, {} states: {}", barrier.label(), failure.report.states, failure.message);
    }
}
