//! One client of a cell: draws a key, asks the store, checks what it says, and says how long it took.
//!
//! ```text
//!   GET       look what was acknowledged -> get -> the value is one of this key, not older than that
//!   UPDATE    claim the next version -> GET -> lay the value -> put -> acknowledged
//! ```
//! Walk: [`Client::run`] until the time is over · `one` operation as the scenario has it · [`Part`] what it knows in the end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};

use super::keys::{self, Draw, TERMS};
use super::ledger::Ledger;
use super::pipe::{CALLS, Call, Spill};
use super::scenario::{BATCH_WRITES, COPIES, Case, Scenario};
use super::store::{Store, Write};
use super::value::{self, Head, Pool};
use super::windows::{Seconds, Tail};
use crate::BenchError;
use crate::pace::OpenLoop;

/// Samples that a client keeps before it sends them home.
const KEPT: usize = 4_096;
/// Index entries of an object, one a field; and the fields that are asked for.
pub(super) const FIELDS: u8 = 4;
const _: () = assert!(FIELDS < 8, "an audit keeps a bit for each");
const ASKED_FIELDS: u64 = 2;
/// Rows that a range of an index finds, about.
const QUERY_ROWS: u64 = 20;

/// What all clients of a cell share.
pub(super) struct Ground<'g> {
    pub(super) case: &'g Case,
    pub(super) stores: &'g [Box<dyn Store>],
    pub(super) ledger: &'g Ledger,
    pub(super) pool: &'g Pool,
    pub(super) spill: &'g dyn Spill,
    pub(super) start: Instant,
    /// Set when one has failed.
    pub(super) stop: AtomicBool,
}

/// What one client did.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) seconds: Seconds,
    pub(super) gets: u64,
    pub(super) missing: u64,
    pub(super) user_bytes: u64,
    pub(super) rows: u64,
    /// Operations of an open loop that were meant to begin and never did.
    pub(super) behind: u64,
    /// When its last operation ended.
    pub(super) end: Duration,
}

impl Part {
    pub(super) fn merge(&mut self, other: &Self) {
        self.seconds.merge(&other.seconds);
        self.gets += other.gets;
        self.missing += other.missing;
        self.user_bytes += other.user_bytes;
        self.rows += other.rows;
        self.behind += other.behind;
        self.end = self.end.max(other.end);
    }
}

impl Ground<'_> {
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn store(&self, number: u32) -> Result<&dyn Store, BenchError> {
        let store = usize::try_from(number).ok().and_then(|number| self.stores.get(number));
        store.map(AsRef::as_ref).ok_or_else(|| BenchError::new(Kind::Internal, format!("no store {number}")))
    }

    /// The end of the time, where time ends it.
    fn end(&self) -> Option<Duration> {
        self.case.operations.is_none().then(|| Duration::from_millis(self.case.duration_ms))
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// A client.
pub(super) struct Client<'g> {
    ground: &'g Ground<'g>,
    /// Its own store where each client has one, else the first.
    home: u32,
    draw: Draw,
    pace: Option<OpenLoop>,
    part: Part,
    kept: [Vec<u64>; CALLS.len()],
    value: Vec<u8>,
    laid: Vec<u8>,
    rows: Vec<Row>,
}

/// One of a batch, laid before its clock begins.
#[derive(Default)]
struct Row {
    number: u64,
    version: u64,
    key: [u8; keys::KEY_BYTES],
    value: Vec<u8>,
}

impl<'g> Client<'g> {
    pub(super) fn new(ground: &'g Ground<'g>, number: u32) -> Self {
        let Case { scenario, clients, stores, rate, seed, .. } = ground.case;
        let home = if *scenario == Scenario::KvParallel { number % *stores } else { 0 };
        Self {
            ground,
            home,
            draw: Draw::new(keys::mixed(*seed) ^ u64::from(number)),
            pace: rate.map(|rate| OpenLoop::new(rate, number, *clients)),
            part: Part::default(),
            kept: std::array::from_fn(|_| Vec::new()),
            value: Vec::new(),
            laid: Vec::new(),
            rows: (0..BATCH_WRITES).map(|_| Row::default()).collect(),
        }
    }

    /// Operations until the time is over, or as many as are asked for.
    pub(super) fn run(mut self) -> Result<Part, BenchError> {
        let mut left = self.ground.case.operations;
        while !self.ground.stopped() && left != Some(0) {
            let Some(meant) = self.begin() else { break };
            let count = self.one(meant)?;
            self.part.end = self.ground.start.elapsed();
            self.part.seconds.ended(count, self.part.end);
            left = left.map(|left| left - 1);
        }
        let kept = std::mem::take(&mut self.kept);
        for ((call, _), nanos) in CALLS.iter().zip(&kept) {
            if !nanos.is_empty() {
                self.ground.spill.take(*call, nanos)?;
            }
        }
        Ok(self.part)
    }

    /// When the next operation begins, or was meant to; `None` when the time is over.
    fn begin(&mut self) -> Option<Instant> {
        let (passed, end) = (self.ground.start.elapsed(), self.ground.end());
        let over = |at: Duration| end.is_some_and(|end| at >= end);
        let Some(pace) = &mut self.pace else {
            return (!over(passed)).then(now);
        };
        let at = pace.next_at();
        if over(at) {
            return None;
        }
        if over(passed) {
            // Nobody may say that what never began was quick.
            self.part.behind += 1;
            while !over(pace.next_at()) {
                self.part.behind += 1;
            }
            return None;
        }
        RealClock.sleep(at.saturating_sub(passed));
        Some(self.ground.start + at)
    }

    /// One operation; how many it counts for.
    fn one(&mut self, meant: Instant) -> Result<u64, BenchError> {
        match self.ground.case.scenario {
            Scenario::KvHead => self.copies(meant, false),
            Scenario::KvHeadput => self.copies(meant, true),
            Scenario::KvIndex => self.indexed(meant),
            Scenario::MemoryGet => {
                let key = self.key();
                self.get(self.home, key, meant).map(|_| 1)
            }
            Scenario::MemoryHead => {
                let key = self.key();
                self.head(self.home, key, meant).map(|_| 1)
            }
            Scenario::KvPut | Scenario::MemoryPut => {
                let Some((key, version)) = self.claim() else { return Ok(0) };
                self.put(self.home, Head { key, version, indexed: 0 }, meant)?;
                self.ground.ledger.settle(key, version);
                Ok(1)
            }
            Scenario::MemoryBatch => self.batch(meant),
            _ if self.draw.below(6) < 5 => {
                let key = self.key();
                self.get(self.home, key, meant).map(|_| 1)
            }
            _ => self.update(meant),
        }
    }

    fn key(&mut self) -> u64 {
        let Case { spread, stores, keys, scenario, .. } = self.ground.case;
        if *scenario != Scenario::KvParallel {
            return spread.draw(&mut self.draw, *keys);
        }
        // Each store has keys of its own.
        let stores = u64::from(*stores);
        spread.draw(&mut self.draw, keys / stores) * stores + u64::from(self.home)
    }

    /// A key that nobody else is writing, and its next version; `None` once the cell is stopped.
    fn claim(&mut self) -> Option<(u64, u64)> {
        while !self.ground.stopped() {
            let key = self.key();
            if let Some(version) = self.ground.ledger.claim(key) {
                return Some((key, version));
            }
        }
        None
    }

    fn get(&mut self, store: u32, key: u64, since: Instant) -> Result<Option<Head>, BenchError> {
        let least = self.ground.ledger.least(key);
        let found = self.ground.store(store)?.get(&keys::object(key), &mut self.value)?;
        self.took(Call::Get, since)?;
        self.part.gets += 1;
        let head = found.then(|| value::check(key, &self.value, self.ground.case.value_bytes)).transpose()?;
        self.part.missing += u64::from(head.is_none());
        self.ground.ledger.judge(key, least, head.map(|head| head.version))?;
        Ok(head)
    }

    fn head(&mut self, store: u32, key: u64, since: Instant) -> Result<Option<Head>, BenchError> {
        let least = self.ground.ledger.least(key);
        let found = self.ground.store(store)?.head(&keys::object(key), &mut self.value)?;
        self.took(Call::Head, since)?;
        let head = found.then(|| value::head(key, &self.value)).transpose()?;
        self.ground.ledger.judge(key, least, head.map(|head| head.version))?;
        Ok(head)
    }

    /// Lays the value before the clock of the put: `since` counts where it is earlier, in an open loop.
    fn put(&mut self, store: u32, head: Head, since: Instant) -> Result<(), BenchError> {
        let case = self.ground.case;
        self.ground.pool.lay(head, case.value_bytes, &mut self.laid);
        let begun = if self.pace.is_some() { since } else { now() };
        let key = keys::object(head.key);
        self.ground.store(store)?.write(&[Write::Put(&key, &self.laid)], case.sync)?;
        self.took(Call::Put, begun)?;
        self.part.user_bytes += super::length(key.len() + self.laid.len());
        Ok(())
    }

    fn update(&mut self, meant: Instant) -> Result<u64, BenchError> {
        let Some((key, version)) = self.claim() else { return Ok(0) };
        let before = self.get(self.home, key, meant)?;
        let indexed = before.map_or(0, |head| head.indexed);
        self.put(self.home, Head { key, version, indexed }, now())?;
        self.ground.ledger.settle(key, version);
        self.took(Call::Update, meant)?;
        Ok(1)
    }

    /// kv-head and kv-headput: three copies of each object.
    fn copies(&mut self, meant: Instant, heads_before_puts: bool) -> Result<u64, BenchError> {
        if self.draw.below(6) < 5 {
            let key = self.key();
            let first = u32::try_from(self.draw.below(u64::from(COPIES))).unwrap_or(0);
            let second = (first + 1 + u32::try_from(self.draw.below(u64::from(COPIES) - 1)).unwrap_or(0)) % COPIES;
            let version = |head: Option<Head>| head.map_or(0, |head| head.version);
            let one = version(self.head(first, key, meant)?);
            let two = version(self.head(second, key, now())?);
            self.get(if one >= two { first } else { second }, key, now())?;
            self.took(Call::Read, meant)?;
            return Ok(1);
        }
        let Some((key, version)) = self.claim() else { return Ok(0) };
        let mut since = meant;
        for copy in 0..COPIES {
            if heads_before_puts && copy > 0 {
                self.head(copy, key, since)?;
            } else {
                self.get(copy, key, since)?;
            }
            since = now();
        }
        for copy in 0..COPIES {
            self.put(copy, Head { key, version, indexed: 0 }, now())?;
        }
        self.ground.ledger.settle(key, version);
        self.took(Call::Update, meant)?;
        Ok(1)
    }

    fn batch(&mut self, meant: Instant) -> Result<u64, BenchError> {
        let mut rows = std::mem::take(&mut self.rows);
        let done = self.batch_of(&mut rows, meant);
        self.rows = rows;
        done
    }

    fn batch_of(&mut self, rows: &mut [Row], meant: Instant) -> Result<u64, BenchError> {
        let case = self.ground.case;
        for row in &mut *rows {
            let Some((key, version)) = self.claim() else { return Ok(0) };
            self.ground.pool.lay(Head { key, version, indexed: 0 }, case.value_bytes, &mut row.value);
            (row.number, row.version, row.key) = (key, version, keys::object(key));
        }
        let writes: Vec<Write<'_>> = rows.iter().map(|row| Write::Put(&row.key, &row.value)).collect();
        let begun = if self.pace.is_some() { meant } else { now() };
        self.ground.store(self.home)?.write(&writes, case.sync)?;
        self.took(Call::Batch, begun)?;
        for row in rows {
            self.ground.ledger.settle(row.number, row.version);
            self.part.user_bytes += super::length(row.key.len() + row.value.len());
        }
        Ok(BATCH_WRITES)
    }

    /// kv-index: 100 GET : 10 UPDATE : 10 UPDATE with index entries : 1 + 1 ranges.
    fn indexed(&mut self, meant: Instant) -> Result<u64, BenchError> {
        match self.draw.below(122) {
            0..100 => {
                let key = self.key();
                self.get(self.home, key, meant).map(|_| 1)
            }
            100..110 => self.update(meant),
            110..120 => self.update_index(meant),
            _ => self.query(meant),
        }
    }

    /// The object and its new entries, without the old ones, in one batch.
    fn update_index(&mut self, meant: Instant) -> Result<u64, BenchError> {
        let Some((key, version)) = self.claim() else { return Ok(0) };
        let before = self.get(self.home, key, meant)?;
        let case = self.ground.case;
        self.ground.pool.lay(Head { key, version, indexed: version }, case.value_bytes, &mut self.laid);
        let entries = |indexed: u64| -> Vec<[u8; keys::ENTRY_BYTES]> {
            (0..FIELDS).map(|field| keys::entry(field, keys::term(key, indexed, field), key)).collect()
        };
        let old = before.filter(|head| head.indexed > 0).map_or(Vec::new(), |head| entries(head.indexed));
        let (new, object) = (entries(version), keys::object(key));
        // A term may stay the same: no batch writes a key twice.
        let gone = old.iter().filter(|entry| !new.contains(entry));
        let mut writes: Vec<Write<'_>> = gone.map(|entry| Write::Delete(entry)).collect();
        writes.extend(new.iter().map(|entry| Write::Put(entry, b"")));
        writes.push(Write::Put(&object, &self.laid));
        let begun = now();
        self.ground.store(self.home)?.write(&writes, case.sync)?;
        self.took(Call::Put, begun)?;
        self.part.user_bytes += super::length(object.len() + self.laid.len() + new.len() * keys::ENTRY_BYTES);
        self.ground.ledger.settle(key, version);
        self.took(Call::Update, meant)?;
        Ok(1)
    }

    fn query(&mut self, meant: Instant) -> Result<u64, BenchError> {
        let field = u8::try_from(self.draw.below(ASKED_FIELDS)).unwrap_or(0);
        let first = self.draw.below(TERMS);
        let width = (TERMS * QUERY_ROWS / self.ground.ledger.keys().max(1)).clamp(1, TERMS);
        let (from, to) = (keys::entry(field, first, 0), keys::entry(field, first + width, 0));
        let (mut rows, mut odd) = (0, None);
        self.ground.store(self.home)?.fold(&from, &to, &mut |key, _| {
            if key.len() != keys::ENTRY_BYTES || key < from.as_slice() || key >= to.as_slice() {
                odd = Some(format!("a range of an index found {key:?}, which is outside of it"));
                return ControlFlow::Break(());
            }
            rows += 1;
            ControlFlow::Continue(())
        })?;
        self.took(Call::Query, meant)?;
        self.part.rows += rows;
        odd.map_or(Ok(1), |said| Err(BenchError::new(Kind::Corrupt, said)))
    }

    fn took(&mut self, call: Call, since: Instant) -> Result<(), BenchError> {
        let end = now();
        let took = end.saturating_duration_since(since);
        let at = end.saturating_duration_since(self.ground.start);
        match call {
            Call::Get => self.part.seconds.latency(Tail::Get, at, took),
            Call::Put | Call::Batch => self.part.seconds.latency(Tail::Put, at, took),
            _ => {}
        }
        let Some(kept) = self.kept.get_mut(call.number()) else { return Ok(()) };
        kept.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if kept.len() < KEPT {
            return Ok(());
        }
        let full = std::mem::take(kept);
        self.ground.spill.take(call, &full)
    }
}
