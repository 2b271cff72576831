//! The store's time: the operator's clock, never going back.
//!
//! What was told as gone because its time was over must not be there again when somebody sets the clock back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_ids::Lsn;
use assent_world::Clock;

use crate::ledger::Ledger;
use crate::{Kv, KvError};

/// A clock that stands further back than this at an open was wrong before, and is believed now: else what anybody writes with an
/// expiry would be gone at once until it has caught up.
const BACK_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// So far behind what somebody was told the ledger's note may be while nothing is written: a kill takes no more.
const BEHIND_MS_MAX: u64 = 60 * 1000;

/// Milliseconds since 1970 for what is modified and what expires.
#[derive(Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// The latest that anybody was told.
    latest_ms: AtomicU64,
    /// The latest expiry of which anybody was told that it was over.
    over_ms: AtomicU64,
}

impl Time {
    /// Not before this, which an earlier opening knew.
    pub(crate) fn new(clock: Arc<dyn Clock>, latest_ms: u64) -> Self {
        let is_believed = latest_ms <= clock.wall_ms().saturating_add(BACK_MS_MAX);
        let latest_ms = if is_believed { latest_ms } else { 0 };
        Self { clock, latest_ms: AtomicU64::new(latest_ms), over_ms: AtomicU64::new(0) }
    }

    /// The clock itself: for pauses, not for what is written.
    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Whether something that expires then is no more. Who is told so is not told otherwise by the next opening.
    pub(crate) fn is_over(&self, expiry: u64, now: u64) -> bool {
        let over = is_over(expiry, now);
        // Looked at first: whoever reads the same again changes nothing.
        if over && expiry > self.over_ms.load(Ordering::Relaxed) {
            self.over_ms.fetch_max(expiry, Ordering::Relaxed);
        }
        over
    }

    /// Now, and never less than it was.
    pub(crate) fn now_ms(&self) -> u64 {
        let (now, latest) = (self.clock.wall_ms(), self.latest_ms.load(Ordering::Relaxed));
        // Mostly it is the same millisecond: writers of two cores need not fetch it from each other.
        if now <= latest { latest } else { self.latest_ms.fetch_max(now, Ordering::Relaxed).max(now) }
    }
}

/// Whether something that expires then is no more; 0 is never.
pub(crate) const fn is_over(expiry: u64, now: u64) -> bool {
    expiry != 0 && expiry <= now
}

impl Kv {
    /// Before an orderly stop: makes the time durable, if somebody was told since it was that something is over. Ticks do it
    /// where the last note is a minute old.
    ///
    /// # Errors
    /// As [`Kv::checkpoint`]: then a clock that is set back before the next open may bring back what was over.
    pub fn keep_time(&self) -> Result<(), KvError> {
        self.keep_time_behind(0)
    }

    pub(crate) fn keep_time_due(&self) -> Result<(), KvError> {
        self.keep_time_behind(BEHIND_MS_MAX)
    }

    fn keep_time_behind(&self, behind_ms: u64) -> Result<(), KvError> {
        // A note of no entry is not read.
        let has_note = self.shared.ledger.durable() > Lsn::ZERO;
        if has_note || !self.is_time_behind(behind_ms) { self.note_time(behind_ms) } else { self.checkpoint() }
    }

    /// The same of a store that has a note.
    pub(crate) fn note_time(&self, behind_ms: u64) -> Result<(), KvError> {
        let ledger = &self.shared.ledger;
        let is_due = ledger.durable() > Lsn::ZERO && self.is_time_behind(behind_ms);
        if is_due { ledger.keep_time(self.shared.time.now_ms()) } else { Ok(()) }
    }

    /// Whether something was told to be over of which the note does not say so, and that note is so old.
    fn is_time_behind(&self, behind_ms: u64) -> bool {
        let time = &self.shared.time;
        let over = time.over_ms.load(Ordering::Relaxed);
        if over == 0 || self.read_only {
            return false;
        }
        let noted = self.shared.ledger.notes().durable.latest_ms;
        over > noted && time.now_ms() >= noted.saturating_add(behind_ms)
    }
}

impl Ledger {
    /// As [`Time::is_over`].
    pub(crate) fn is_over(&self, expiry: u64, now: u64) -> bool {
        self.time.get().map_or_else(|| is_over(expiry, now), |time| time.is_over(expiry, now))
    }

    /// The note once more, with this time; and so the next ones.
    fn keep_time(&self, now: u64) -> Result<(), KvError> {
        let before = {
            let mut notes = self.notes();
            notes.closed.iter_mut().for_each(|moment| moment.latest_ms = moment.latest_ms.max(now));
            std::mem::replace(&mut notes.durable.latest_ms, now)
        };
        self.renote(None).inspect_err(|_| {
            let mut notes = self.notes();
            if notes.durable.latest_ms == now {
                notes.durable.latest_ms = before;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use assent_sim::SimClock;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_stands_until_it_has_caught_up() {
        let clock = SimClock::new();
        let time = Time::new(Arc::new(clock.clone()), 5);
        assert_eq!(time.now_ms(), 5);
        for (set, told) in [(7, 7), (3, 7), (7, 7), (8, 8)] {
            clock.set_wall_ms(set);
            assert_eq!(time.now_ms(), told);
        }
        let reopened = |latest| Time::new(Arc::new(clock.clone()), latest).now_ms();
        assert_eq!((reopened(8 + BACK_MS_MAX), reopened(9 + BACK_MS_MAX)), (8 + BACK_MS_MAX, 8));
    }
}
