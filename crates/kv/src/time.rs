//! The store's time: the operator's clock, never going back.
//!
//! What was told as gone because its time was over must not be there again when somebody sets the clock back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_world::Clock;

/// Milliseconds since 1970 for what is modified and what expires.
#[derive(Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// The latest that anybody was told.
    latest_ms: AtomicU64,
}

impl Time {
    /// Not before this.
    pub(crate) fn new(clock: Arc<dyn Clock>, latest_ms: u64) -> Self {
        Self { clock, latest_ms: AtomicU64::new(latest_ms) }
    }

    /// Now, and never less than it was.
    pub(crate) fn now_ms(&self) -> u64 {
        let now = self.clock.wall_ms();
        self.latest_ms.fetch_max(now, Ordering::Relaxed).max(now)
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
    }
}
