//! The store's time: the operator's clock, never going back.
//!
//! What was told as gone because its time was over must not be there again when somebody sets the clock back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_world::Clock;

/// A clock that stands further back than this at an open was wrong before, and is believed now: else what anybody writes with an
/// expiry would be gone at once until it has caught up.
const BACK_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Milliseconds since 1970 for what is modified and what expires.
#[derive(Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// The latest that anybody was told.
    latest_ms: AtomicU64,
}

impl Time {
    /// Not before this, which an earlier opening knew.
    pub(crate) fn new(clock: Arc<dyn Clock>, latest_ms: u64) -> Self {
        let is_believed = latest_ms <= clock.wall_ms().saturating_add(BACK_MS_MAX);
        let latest_ms = if is_believed { latest_ms } else { 0 };
        Self { clock, latest_ms: AtomicU64::new(latest_ms) }
    }

    /// The clock itself: for pauses, not for what is written.
    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
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
