//! Group commit: the thread that waits is the thread that writes.
//!
//! Measured (zeroed file, one thread, p50): a buffered write and fdatasync 137-145 us, a buffered write with RWF_DSYNC the
//! same, an O_DIRECT write and fdatasync 109-120 us, an O_DIRECT write with RWF_DSYNC 112-141 us; two threads in flight
//! make 1.35 times the operations of one, four 1.9 times. So: direct, fdatasync, two in flight, though appenders that wait
//! gain nothing by the second on that machine (docs/PERFORMANCE.md). Not io_uring: at depth one it is the same write and the same flush; its depth a second
//! waiting thread gives too, and whoever waits for a reaper of completions pays a wake-up more.
//!
//! Walk: [`Journal::reach`] waits until a place has landed and leads the open batch if it may · [`Journal::gather`] lets those run before who
//! are about to come again · [`Journal::lead`] closes it, writes it outside the lock and lands it · [`Journal::sync_backlog`] is RPO > 0 and votes in that policy.
//! Deliberately absent: a flusher thread, a timer before an acknowledgement of RPO 0, a retry after a failure.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use assent_ids::Lsn;
use assent_world::{Durably, File, write_all_at, write_all_durable_at};

use crate::JournalError;
use crate::backlog::Unsynced;
use crate::barrier;
use crate::company::DEAR;
use crate::group::{Core, Flight, Landed};
use crate::journal::Journal;
use crate::layout::bytes;
use crate::segment::Segment;

/// So often somebody looks: for some microseconds.
const LOOKS: u32 = 200;
/// So many batches somebody writes for others behind his own: some tenths of a millisecond for him.
const FURTHER: u32 = 4;
/// So often somebody who gathers lets others run.
const LETS_RUN: u32 = 4;

impl Journal {
    /// Waits until everything before `end` has landed: durable where RPO is 0, else in the kernel.
    pub(crate) fn reach(&self, end: u64) -> Result<(), JournalError> {
        loop {
            let landed = self.landed.load(Ordering::Acquire);
            if landed >= end {
                return Ok(());
            }
            let mut core = self.core();
            if self.landed.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            self.writable(&core)?;
            if end > core.end() {
                return Err(JournalError::NotFound { lsn: Lsn(end) });
            }
            if end > core.tail && core.should_lead(self.config.in_flight()) {
                if let Some(core) = self.gather(core) {
                    self.lead(core);
                }
                continue;
            }
            if self.config.lazy() && core.waiters == 0 {
                drop(core);
                if self.lands_soon(landed) {
                    continue;
                }
                core = self.core();
                if self.landed.load(Ordering::Acquire) != landed
                    || core.closed.is_some()
                    || end > core.tail && core.should_lead(self.config.in_flight())
                {
                    continue;
                }
            }
            let seat = core.seat(end);
            drop(core);
            seat.gate.wait(seat.seen, None);
        }
    }

    /// Lets those run whose batch has just landed, so that the one that is written now takes their next entries, too ([`Company`]). None
    /// where somebody else has closed it meanwhile, or nobody may.
    ///
    /// [`Company`]: crate::company::Company
    fn gather<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> Option<MutexGuard<'a, Core>> {
        let (turn, from) = (core.turn, core.open.entries());
        if self.config.lazy() || !core.company.begin(from) {
            return Some(core);
        }
        let begun = self.clock.now();
        let mut took = Duration::ZERO;
        for _ in 0..LETS_RUN {
            drop(core);
            thread::yield_now();
            took = self.clock.now().since(begun);
            core = self.core();
            if core.turn != turn {
                core.company.left(took);
                return None;
            }
            if took > DEAR || !core.company.awaits(core.open.entries()) {
                break;
            }
        }
        let to = core.open.entries();
        core.company.end((from, to), took);
        (core.closed.is_none() && core.may_lead(self.config.in_flight())).then_some(core)
    }

    /// Looks for a moment whether a write into the page cache ends: it takes less than to sleep and to be woken. One thread at a time: a
    /// crowd would look at the core of the one that writes.
    fn lands_soon(&self, landed: u64) -> bool {
        if self.looking.swap(true, Ordering::Acquire) {
            return false;
        }
        let has_landed = (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.landed.load(Ordering::Acquire) != landed
        });
        self.looking.store(false, Ordering::Release);
        has_landed
    }

    /// Gets the batch of this turn out of the way: writes it, or waits until somebody has begun to.
    pub(crate) fn flush(&self, turn: u64) -> Result<(), JournalError> {
        loop {
            let mut core = self.core();
            if core.turn != turn || core.open.is_empty() {
                return Ok(());
            }
            self.writable(&core)?;
            if core.may_lead(self.config.in_flight()) {
                self.lead(core);
                continue;
            }
            let end = core.end();
            let seat = core.seat(end);
            drop(core);
            seat.gate.wait(seat.seen, None);
        }
    }

    /// Closes the open batch, writes it and lands it; into the page cache then some more for which somebody waits: who writes there has a core,
    /// and whoever is woken to do it waits for one.
    fn lead(&self, mut core: MutexGuard<'_, Core>) {
        let mut further = if self.config.lazy() { FURTHER } else { 0 };
        let mut next = Some(self.close_batch(&mut core));
        drop(core);
        while let Some(flight) = next {
            let result = self.write(&flight);
            next = self.land_and_go_on(flight, result, further > 0);
            further = further.saturating_sub(1);
        }
    }

    fn close_batch(&self, core: &mut Core) -> Flight {
        core.close(self.epoch, self.salt, self.durable.load(Ordering::Acquire), self.clock.now())
    }

    /// Hands the open batch to whoever wants to write it step by step; none if it is empty or may not be written now.
    pub(crate) fn take(&self) -> Option<Flight> {
        let mut core = self.core();
        let may = !core.open.is_empty() && core.may_lead(self.config.in_flight()) && core.closed.is_none();
        may.then(|| self.close_batch(&mut core))
    }

    /// Writes a closed batch: durable where RPO is 0.
    pub(crate) fn write(&self, flight: &Flight) -> Result<(), String> {
        flight.segment.mark(flight.batch.lsn());
        let (at, bytes_of) = flight.batch.to_write();
        let file = flight.file.as_deref();
        self.write_bytes(&flight.segment, file, at, bytes_of, !self.config.lazy())
    }

    /// Writes bytes of the log at their place.
    pub(crate) fn write_bytes(
        &self,
        segment: &Segment,
        file: Option<&dyn File>,
        at: u64,
        memory: &[u8],
        durable: bool,
    ) -> Result<(), String> {
        let offset = segment.offset(at);
        let file = file.ok_or_else(|| format!("{} is not open", segment.path().display()))?;
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes(memory.len()), Ordering::Relaxed);
        let written = if durable {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            let how = if self.config.dsync { Durably::Dsync } else { Durably::DataSync };
            write_all_durable_at(file, offset, memory, how, barrier::BATCH)
        } else {
            write_all_at(file, offset, memory)
        };
        written.map_err(|error| format!("writing {} at {offset}: {error}", segment.path().display()))
    }

    /// Takes a write back, publishes how far the log has landed and wakes whom that concerns.
    pub(crate) fn land(&self, flight: Flight, result: Result<(), String>) {
        self.land_and_go_on(flight, result, false);
    }

    /// The same. Who goes on has the next batch in his hands then, if somebody waits for it and it may be written.
    fn land_and_go_on(&self, flight: Flight, result: Result<(), String>, goes_on: bool) -> Option<Flight> {
        let Flight { turn, batch, segment, file } = flight;
        let (_, written) = batch.exact();
        let written = bytes(written.len());
        let mut core = self.core();
        let mut due = false;
        let mut landed = core.land(turn, batch, result, self.config.in_flight());
        if let Some(end) = landed.end {
            if self.config.lazy() {
                due = self.backlog().wrote((&segment, &file), (written, end), || self.clock.now(), &self.config);
            } else {
                self.durable.store(end, Ordering::Release);
            }
            self.landed.store(end, Ordering::Release);
        }
        let next = landed.next.take_if(|_| goes_on).map(|_| self.close_batch(&mut core));
        drop(core);
        if due {
            self.call_keeper();
        }
        landed.wake();
        next
    }

    /// Closes the journal for writers and wakes everyone, so that they see it.
    pub(crate) fn poison(&self, reason: String) -> JournalError {
        let mut core = self.core();
        core.closed.get_or_insert(reason);
        let mut gates = core.everyone();
        let error = self.closed_error(&core);
        drop(core);
        gates.push(Arc::clone(&self.backlog().gate));
        Landed { end: None, gates, next: None }.wake();
        error
    }

    /// Makes everything that has landed durable (RPO > 0); one sync for all who wait.
    pub(crate) fn sync_backlog(&self, end: u64) -> Result<(), JournalError> {
        loop {
            if self.durable.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            self.writable(&self.core())?;
            let mut backlog = self.backlog();
            if self.durable.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            if backlog.syncing {
                let (gate, seen) = (Arc::clone(&backlog.gate), backlog.gate.value());
                drop(backlog);
                gate.wait(seen, None);
                continue;
            }
            let (target, segments) = backlog.begin();
            drop(backlog);
            let result = segments.iter().try_for_each(|unsynced| self.sync_segment(unsynced));
            // Nothing becomes durable after a failure anywhere: a sync that did not see it proves nothing.
            let result = result.map_err(|reason| self.poison(reason)).and_then(|()| self.writable(&self.core()));
            if result.is_ok() {
                self.durable.fetch_max(target, Ordering::AcqRel);
            }
            let gate = self.backlog().end(self.clock.now());
            gate.bump();
            gate.wake_all();
            result?;
        }
    }

    fn sync_segment(&self, Unsynced { segment, file }: &Unsynced) -> Result<(), String> {
        let file = file.as_ref().ok_or_else(|| format!("{} is not open", segment.path().display()))?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_data(barrier::BACKLOG).map_err(|error| format!("syncing {}: {error}", segment.path().display()))
    }
}
