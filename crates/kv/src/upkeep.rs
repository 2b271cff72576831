//! What is off the commit path: the ledger's memory written out, its runs merged, and what writers wait for where that is behind.
//!
//! ```text
//!   tick    publish what nobody waited for · write the memory out when it is due          about every 100 ms, and when it is full
//!   work    one merge or one compaction of values, in turn                              in a loop, beside the ticks; again when a writer waits
//!   put     sleeps as long as [`crate::pressure`] says, before it comes to the desk
//! ```
//! The two may be under way at the same time, so that memory never waits for a merge; that is why they have a thread each where there
//! are threads. Who has but one calls both in turn, and a merge may then stand before the memory.
//!
//! Walk: [`Kv::tick`], [`Kv::work`] · [`Kv::checkpoint`] writes out what is visible now, so that the next open replays
//! nothing before it · [`Kv::delay`] is what a writer waits · one that finds no room in memory makes it ([`Kv::make_room`]).
//! Deliberately absent: threads. Whoever owns loops calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use assent_runs::{AtOnce, Pace};

use crate::desk::Desk;
use crate::pressure::{self, Pressure};
use crate::space;
use crate::throttle::{self, Throttle};
use crate::{Config, Kv, KvError, Op};

/// After work failed, so many turns pass before the next try: at first, and at most.
const REST_TURNS: u32 = 10;
const REST_TURNS_MAX: u32 = 600;

/// Runs at the first level of the ledger beyond which nothing more is written before some are merged: a reader may have to ask all
/// of them.
const LEVEL0_RUNS_MAX: u32 = 64;

/// From so many on merges have three turns of four: four more runs, and writers begin to wait. One merge takes all of them.
const LEVEL0_RUNS_URGENT: u32 = 10;

/// Counts of what was written out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) written: u64,
    pub(crate) failed: u64,
    /// Merges that failed.
    pub(crate) merges_failed: u64,
    /// Ticks and pieces of work that panicked.
    pub(crate) panics: u64,
    /// Where the last try began: after a failure, the next waits as long as after a success.
    pub(crate) tried: u64,
    /// Ticks until memory that is full is written out again.
    pub(crate) rest: u32,
    /// Pieces of work that were asked for.
    pub(crate) turns: u64,
    /// Turns until work is tried again, and how long the rest was.
    pub(crate) work_rest: u32,
    pub(crate) work_rested: u32,
    /// What of the cache the ledger may hold; 0: as it was opened.
    pub(crate) ledger_cache: u64,
    /// Batches that waited, and how long together.
    pub(crate) delayed: u64,
    pub(crate) delayed_us: u64,
}

impl Kv {
    /// What is to be done about every 100 ms by whoever owns a loop: publishes what nobody waited for, and writes the ledger's
    /// memory out when it is due. A failure is counted, not told: the journal has everything.
    pub fn tick(&self) {
        if self.caught(|| self.tick_once()).is_none() {
            let mut counts = self.counts();
            counts.rest = counts.rest.max(REST_TURNS);
        }
    }

    /// Who ticks or works does so as long as the process lives: what panics there is a broken promise of ours, which is counted, and tried
    /// again as what failed. What it had written no manifest names; and where it was in the midst of a change that others would go on
    /// with, it has broken the desk ([`Kv::desk`]) or closed the ledger ([`assent_runs::Runs::wholly`]).
    fn caught<T>(&self, piece: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(piece)).ok();
        self.counts().panics += u64::from(done.is_none());
        done
    }

    fn tick_once(&self) {
        // A journal that failed says so to every writer.
        self.full.hears();
        _ = self.publish(&mut self.desk());
        self.leases.end_due(&self.shared, self.lacks_room());
        self.open_anew();
        // So that who walks often finds little to put in order.
        self.shared.ledger.runs().order();
        if self.read_only {
            return;
        }
        {
            let mut counts = self.counts();
            counts.rest = counts.rest.saturating_sub(1);
        }
        let is_done = !self.is_due() || self.checkpoint().is_ok();
        if is_done && self.counts().rest == 0 {
            self.full.forget();
        }
        if is_done && self.counts().rest == 0 && self.keep_time_due().is_err() {
            self.counts().rest = REST_TURNS;
        }
        self.look_at_space();
        self.share_cache();
    }

    /// Sleeps until a tick should come: about every 100 ms, `at_most`, or at once when memory is full. What fills it in less would else be
    /// written out late, and writers wait ([`Kv::delay`]) though nothing is behind.
    pub fn wait_due(&self, at_most: Duration) {
        self.full.wait(at_most);
    }

    /// Sleeps until more work should be looked for: for so long, until memory was written out, or until somebody writes while dead values are
    /// too much. Who sleeps on would let him wait for nothing.
    pub fn wait_work(&self, at_most: Duration) {
        self.wanted.wait(at_most);
    }

    /// A ledger that is smaller than its part of the cache leaves the rest to rows with their values.
    fn share_cache(&self) {
        let (ledger, rows) = self.config.share_cache(self.shared.ledger.files_bytes());
        let before = std::mem::replace(&mut self.counts().ledger_cache, ledger);
        if ledger != before {
            self.shared.ledger.runs().hold_cache_bytes(ledger, rows);
        }
    }

    /// One piece of work in the background: whether there may be more. Whoever owns a second loop calls it until there is none, and
    /// again after a while; a store that nobody does this for goes on, but reads go through more and more files, and writers wait
    /// longer. After a failure it rests, longer each time; a failure is counted, not told. `pace` says how fast, and when to stop:
    /// [`Kv::throttle`] makes one.
    pub fn work(&self, pace: &dyn Pace) -> bool {
        if self.read_only {
            return false;
        }
        self.wanted.hears();
        let is_refused = || self.shared.ledger.space.no_room.refused().is_some();
        {
            let mut counts = self.counts();
            // Whoever is refused waits for no more than a second.
            counts.work_rest = if is_refused() { counts.work_rest.min(REST_TURNS) } else { counts.work_rest };
            if counts.work_rest > 0 {
                counts.work_rest -= 1;
                return false;
            }
        }
        self.wanted.forget();
        let done = self.caught(|| {
            // What is too much counts as long as a merge takes, too.
            let _works = self.shared.ledger.space.works(&**self.shared.time.clock());
            self.in_turn(pace)
        });
        let most = if is_refused() { REST_TURNS } else { REST_TURNS_MAX };
        let mut counts = self.counts();
        if matches!(done, Some(Ok(_))) {
            counts.work_rested = 0;
        } else {
            counts.work_rested = (counts.work_rested * 2).clamp(REST_TURNS, most);
            counts.work_rest = counts.work_rested;
        }
        matches!(done, Some(Ok(true)))
    }

    /// A merge or a compaction of values, each before the other in turn, so that neither waits for the other to come to an end, but for
    /// merges that are urgent, up to three; the second if there was nothing to do for the first, or that failed.
    fn in_turn(&self, pace: &dyn Pace) -> Result<bool, KvError> {
        let merge = || self.merge(pace);
        let compact = || match self.compact_once(pace) {
            // Somebody else does it.
            Err(KvError::Busy { .. }) => Ok(false),
            done => done,
        };
        let level0_runs = self.shared.ledger.debt().level0_runs;
        let is_merge_first = {
            let mut counts = self.counts();
            counts.turns = counts.turns.wrapping_add(1);
            is_merge_first(counts.turns, level0_runs)
        };
        let first = if is_merge_first { merge() } else { compact() };
        if matches!(first, Ok(true)) {
            return first;
        }
        let second = if is_merge_first { compact() } else { merge() };
        if matches!(second, Ok(true)) { second } else { first.and(second) }
    }

    fn merge(&self, pace: &dyn Pace) -> Result<bool, KvError> {
        let done = self.shared.ledger.merge(&*self.shared.log, pace);
        self.counts().merges_failed += u64::from(done.is_err());
        done.inspect_err(|error| self.hears_of_room(error.kind()))
    }

    /// A pace within [`crate::Config::background_bytes_per_second`], until `is_stopped` says so.
    #[must_use]
    pub fn throttle(&self, is_stopped: impl Fn() -> bool + Send + Sync + 'static) -> Throttle {
        let (shared, Config { background_bytes_per_second, .. }) = (Arc::clone(&self.shared), self.config);
        let rest = move || {
            let (ledger, now) = (&shared.ledger, || shared.time.clock().now());
            let debt = ledger.space.debt(shared.log.end().0, now);
            // Somebody has no room, or reads go through many files.
            let is_urgent = ledger.space.no_room.refused().is_some() || ledger.debt().level0_runs >= LEVEL0_RUNS_URGENT;
            let between = if is_urgent { Duration::ZERO } else { ledger.flushes.between(now()) };
            throttle::rest(between, debt.bytes, debt.volume)
        };
        Throttle::new(self.shared.time.clock().clone(), background_bytes_per_second, is_stopped, rest)
    }

    /// How long these writes should wait, for what is behind in the background: nothing, as long as little is. [`Kv::batch`] and its
    /// like wait so long themselves; whoever calls [`Kv::batch_begin`] may do something else meanwhile, and says so ([`Kv::was_delayed`]).
    #[must_use]
    pub fn delay(&self, ops: &[Op<'_>]) -> Duration {
        let (debt, space) = (self.shared.ledger.debt(), self.space_debt());
        let pressure = Pressure {
            memory_bytes: debt.active_bytes + debt.immutable_bytes,
            memory_bytes_max: self.config.memory_bytes_max(),
            level0_runs: debt.level0_runs.into(),
            merge_bytes: debt.merge_bytes,
            old_bytes: space.old,
            live_bytes: space.live,
            volume_bytes: space.volume,
        };
        let paced = if space.bytes > space.old { self.paced(ops) } else { Duration::ZERO };
        let delay = pressure::delay(&pressure, ops.iter().map(Op::row_bytes).sum(), paced);
        if space.bytes > 0 {
            self.shared.ledger.space.tell();
            self.wanted.tell();
        }
        delay
    }

    /// Until these are due, at the rate at which compactions give back what is dead.
    fn paced(&self, ops: &[Op<'_>]) -> Duration {
        let ledger = &self.shared.ledger;
        let bytes = ops.iter().map(Op::laid_bytes).sum();
        ledger.space.pacing.wait(self.shared.time.clock().now(), self.shared.log.end().0, bytes)
    }

    /// Values on disk that are too much.
    fn space_debt(&self) -> space::Debt {
        self.shared.ledger.space.debt(self.shared.ledger.published().0, || self.shared.time.clock().now())
    }

    /// Begins a write that is waited for, and sleeps as long as it should: with no lock held, nobody stands behind one that waits.
    pub(crate) fn pause(&self, ops: &[Op<'_>]) {
        let delay = self.delay(ops);
        if delay > Duration::ZERO {
            self.was_delayed(1, delay);
            self.shared.time.clock().sleep(delay);
        }
    }

    /// So many writes waited so long each, because [`Kv::delay`] said so: whoever has them wait without [`Kv::batch`] tells it, to be counted.
    pub fn was_delayed(&self, writes: usize, delay: Duration) {
        let (writes, each) =
            (u64::try_from(writes).unwrap_or(u64::MAX), u64::try_from(delay.as_micros()).unwrap_or(u64::MAX));
        let mut counts = self.counts();
        counts.delayed = counts.delayed.saturating_add(writes);
        counts.delayed_us = counts.delayed_us.saturating_add(each.saturating_mul(writes));
    }

    fn is_due(&self) -> bool {
        let counts = *self.counts();
        let behind = self.shared.log.end().0.saturating_sub(counts.tried);
        let full = self.shared.ledger.memory_bytes() >= self.config.memory_bytes;
        // What is full and failed is tried again after a rest, so that nothing is closed beside what waits already.
        behind >= self.config.checkpoint_bytes || full && counts.rest == 0
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes out everything that is visible, and until when nothing that was over comes back. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// `Busy` while another is written; as the disk or the log says. The store goes on without it.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        self.refuse_read_only()?;
        let Some(_alone) = self.alone() else { return Err(KvError::Busy { what: "checkpoints at once", limit: 1 }) };
        self.counts().tried = self.shared.log.end().0;
        let done = self.write_all();
        // Where nothing came, the time may have.
        let done = if matches!(done, Ok(false)) { self.note_time(0).map(|()| false) } else { done };
        let mut counts = self.counts();
        match &done {
            Ok(closed) => counts.written += u64::from(*closed),
            Err(error) => {
                self.hears_of_room(error.kind());
                counts.failed += 1;
                counts.rest = counts.rest.max(REST_TURNS);
            }
        }
        done.map(drop)
    }

    /// What an earlier try left, and then what is visible now. Whether the latter was anything.
    fn write_all(&self) -> Result<bool, KvError> {
        self.write_out()?;
        let closed = {
            let mut desk = self.desk();
            self.publish(&mut desk)?;
            self.close_memory(&desk)
        };
        self.write_out()?;
        Ok(closed)
    }

    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        match self.stepping.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(alone)) => Some(alone.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The desk is locked: what is visible and what its branches are belong together. Where something could not become
    /// visible they do not.
    fn close_memory(&self, desk: &Desk) -> bool {
        let least = self.config.memory_bytes;
        let moment = |entry, end| desk.moment(entry, end, self.shared.time.now_ms());
        desk.refuse_broken().is_ok() && self.shared.ledger.close_memory(least, moment)
    }

    fn write_out(&self) -> Result<(), KvError> {
        while self.shared.ledger.has_closed() {
            if !self.shared.ledger.flush(&*self.shared.log)? {
                break;
            }
            self.shared.ledger.flushes.one_more(self.shared.time.clock().now());
            // It may have made a merge due: a processor that waits for the next turn is lost to the writers, who have less later.
            self.wanted.tell();
        }
        Ok(())
    }

    /// Who finds memory full of what nobody has written out writes it out; who finds far too many runs that nobody has merged merges
    /// them, or waits for whoever does. Delays keep it from coming to that, where somebody ticks and works.
    ///
    /// # Errors
    /// As the disk says: then there is no room for this write.
    pub(crate) fn make_room(&self) -> Result<(), KvError> {
        let debt = self.shared.ledger.debt();
        let memory_bytes = debt.active_bytes + debt.immutable_bytes;
        if memory_bytes >= self.config.memory_bytes {
            self.full.tell();
        }
        if debt.level0_runs < LEVEL0_RUNS_MAX && memory_bytes < self.config.memory_bytes_max() {
            return Ok(());
        }
        let level0_runs = || self.shared.ledger.debt().level0_runs;
        while level0_runs() >= LEVEL0_RUNS_MAX {
            if !self.shared.ledger.merge(&*self.shared.log, &AtOnce)? && level0_runs() >= LEVEL0_RUNS_MAX {
                let limit = LEVEL0_RUNS_MAX.into();
                return Err(KvError::Busy { what: "files of the ledger that wait to be merged", limit });
            }
        }
        let is_full = || self.shared.ledger.memory_bytes() >= self.config.memory_bytes_max();
        if !is_full() {
            return Ok(());
        }
        let _alone = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        if is_full() {
            self.close_memory(&self.desk());
            self.write_out()?;
        }
        if is_full() {
            return Err(KvError::Busy { what: "bytes of the ledger in memory", limit: self.config.memory_bytes_max() });
        }
        Ok(())
    }
}

const fn is_merge_first(turns: u64, level0_runs: u32) -> bool {
    if level0_runs >= LEVEL0_RUNS_URGENT { !turns.is_multiple_of(4) } else { turns % 2 == 1 }
}

#[cfg(test)]
#[path = "upkeep_test.rs"]
mod tests;
