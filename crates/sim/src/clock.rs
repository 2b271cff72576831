//! A clock that stands still until somebody moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_world::{Clock, Moment};

#[derive(Debug, Default)]
struct Hands {
    now_us: AtomicU64,
    wall_ms: AtomicU64,
    boot_id: Mutex<u128>,
}

/// A clock for tests; its clones show the same time. Sleeping moves it on and returns at once.
#[derive(Clone, Debug)]
pub struct SimClock(Arc<Hands>);

impl Default for SimClock {
    fn default() -> Self {
        SimClock(Arc::new(Hands { boot_id: Mutex::new(1), ..Hands::default() }))
    }
}

impl SimClock {
    /// A clock at zero, in its first boot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Time passes, for the monotonic and the wall clock.
    pub fn advance(&self, pause: Duration) {
        let us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        let before = self.0.now_us.fetch_add(us, Ordering::Relaxed);
        self.0.wall_ms.fetch_add((before + us) / 1000 - before / 1000, Ordering::Relaxed);
    }

    /// Somebody sets the wall clock, forward or back.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        self.0.wall_ms.store(wall_ms, Ordering::Relaxed);
    }

    /// The machine starts anew: another boot id, and the monotonic time begins again.
    pub fn reboot(&self) {
        *self.0.boot_id.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.now_us.store(0, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment(self.0.now_us.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> u64 {
        self.0.wall_ms.load(Ordering::Relaxed)
    }

    fn sleep(&self, pause: Duration) {
        self.advance(pause);
    }

    fn boot_id(&self) -> u128 {
        *self.0.boot_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_until_somebody_sleeps() {
        let clock = SimClock::new();
        let other = clock.clone();
        assert_eq!(clock.now(), Moment(0));
        other.sleep(Duration::from_micros(1_700));
        other.sleep(Duration::from_micros(1_300));
        assert_eq!((clock.now(), clock.wall_ms()), (Moment(3_000), 3));
        let boot_id = clock.boot_id();
        clock.set_wall_ms(1);
        clock.reboot();
        assert_eq!((clock.now(), clock.wall_ms()), (Moment(0), 1));
        assert_ne!(clock.boot_id(), boot_id);
    }
}
