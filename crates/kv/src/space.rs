//! What compactions are to give back, for who asks with each write: a few numbers, read without a lock.
//!
//! Walk: a compaction that begins says how much is too much of what it could take ([`Space::owes`]), and how it ended ([`Space::ended`]) ·
//! [`Space::debt`] is that, for as long as somebody compacts and a little longer.
//! Deliberately absent: what no compaction may take now: the journal behind a prepared branch or the last checkpoint, and what is damaged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_world::Moment;

/// So long after a compaction the next one may begin: nobody waits for one that does not come.
const FRESH: Duration = Duration::from_secs(1);

/// As the last look of a compaction found it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    bytes: AtomicU64,
    live: AtomicU64,
    /// Until when it counts, in microseconds of the clock.
    until: AtomicU64,
}

/// What is too much on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Bytes beyond what is wished, of what compactions can take.
    pub(crate) bytes: u64,
    /// Bytes that live.
    pub(crate) live: u64,
}

impl Space {
    /// A compaction begins.
    pub(crate) fn owes(&self, debt: Debt) {
        self.live.store(debt.live, Ordering::Relaxed);
        self.until.store(u64::MAX, Ordering::Relaxed);
        self.bytes.store(debt.bytes, Ordering::Relaxed);
    }

    /// It has ended: well, or there was nothing to do, or it may not go on.
    pub(crate) fn ended(&self, well: bool, now: Moment) {
        self.until.store(now.after(FRESH).0, Ordering::Relaxed);
        if !well {
            self.bytes.store(0, Ordering::Relaxed);
        }
    }

    /// What is owed now.
    pub(crate) fn debt(&self, now: impl FnOnce() -> Moment) -> Debt {
        let debt = Debt { bytes: self.bytes.load(Ordering::Relaxed), live: self.live.load(Ordering::Relaxed) };
        // Mostly none is: the clock is not asked then.
        if debt.bytes > 0 && now().0 > self.until.load(Ordering::Relaxed) { Debt { bytes: 0, ..debt } } else { debt }
    }
}

/// So many bytes for each hundred that live.
pub(crate) const fn allowed(live: u64, percent: u32) -> u64 {
    live.saturating_mul(percent as u64) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_counts_while_somebody_compacts_and_a_second_longer() {
        let space = Space::default();
        let at = |us| move || Moment(us);
        let debt = Debt { bytes: 900, live: 50 };
        assert_eq!(space.debt(at(0)), Debt::default(), "nobody has looked");
        space.owes(debt);
        assert_eq!(space.debt(at(u64::MAX)), debt, "however long it takes");
        space.ended(true, Moment(5_000_000));
        assert_eq!([space.debt(at(6_000_000)).bytes, space.debt(at(6_000_001)).bytes], [900, 0]);
        space.owes(debt);
        space.ended(false, Moment(7_000_000));
        assert_eq!(space.debt(at(7_000_000)).bytes, 0, "it may not go on");
    }
}
