//! What compactions are to give back, for who asks with each write: a few numbers, read without a lock.
//!
//! Walk: a compaction that begins says how much is too much of what it could take ([`Space::owes`]), and how it ended ([`Space::ended`]); each
//! tick looks again meanwhile, for writers go on ([`Space::owes_now`]) · [`Space::debt`] is that, for as long as somebody compacts and a
//! little longer.
//! What the first of several compactions found is an old debt: an hour in which nothing was permitted made it, or a bound that was lowered, and
//! not who writes now. It only shrinks.
//! Deliberately absent: what no compaction may take now: the journal behind a prepared branch or the last checkpoint, and what is damaged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_world::Moment;

/// So long after a compaction the next one may begin: nobody waits for one that does not come.
const FRESH: Duration = Duration::from_secs(1);

/// As the last look of a compaction found it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    bytes: AtomicU64,
    old: AtomicU64,
    live: AtomicU64,
    /// Until when it counts, in microseconds of the clock.
    until: AtomicU64,
    /// Of those who say it: a look that takes its time says nothing behind the end.
    turn: Mutex<Turn>,
}

/// What compactions are about.
#[derive(Debug, Default)]
struct Turn {
    is_under_way: bool,
    /// One was, and has left something to do.
    goes_on: bool,
}

/// What is too much on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Bytes beyond what is wished, of what compactions can take.
    pub(crate) bytes: u64,
    /// What of them the first look found, as far as that was not given back since.
    pub(crate) old: u64,
    /// Bytes that live.
    pub(crate) live: u64,
}

impl Space {
    /// A compaction begins.
    pub(crate) fn owes(&self, bytes: u64, live: u64) {
        let mut turn = self.turn();
        let old = if turn.goes_on { self.old.load(Ordering::Relaxed).min(bytes) } else { bytes };
        *turn = Turn { is_under_way: true, goes_on: true };
        self.live.store(live, Ordering::Relaxed);
        self.until.store(u64::MAX, Ordering::Relaxed);
        self.says(bytes, old);
    }

    /// Somebody has looked again. Nothing if the compaction has ended meanwhile.
    pub(crate) fn owes_now(&self, bytes: u64) {
        let turn = self.turn();
        if turn.is_under_way {
            self.says(bytes, self.old.load(Ordering::Relaxed).min(bytes));
        }
    }

    fn says(&self, bytes: u64, old: u64) {
        self.old.store(old, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether a compaction is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.turn().is_under_way
    }

    /// It has ended: well, or there was nothing to do, or it may not go on.
    pub(crate) fn ended(&self, well: bool, now: Moment) {
        let mut turn = self.turn();
        turn.is_under_way = false;
        self.until.store(now.after(FRESH).0, Ordering::Relaxed);
        if !well {
            turn.goes_on = false;
            self.says(0, 0);
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is owed now.
    pub(crate) fn debt(&self, now: impl FnOnce() -> Moment) -> Debt {
        let bytes = self.bytes.load(Ordering::Relaxed);
        // While nobody compacts none is: the clock is not asked then.
        if bytes == 0 || now().0 > self.until.load(Ordering::Relaxed) {
            return Debt::default();
        }
        Debt { bytes, old: self.old.load(Ordering::Relaxed), live: self.live.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> impl Fn() -> Moment {
        move || Moment(us)
    }

    #[test]
    fn a_debt_counts_while_somebody_compacts_and_a_second_longer() {
        let space = Space::default();
        assert_eq!(space.debt(at(0)), Debt::default(), "nobody has looked");
        space.owes_now(5);
        assert_eq!(space.debt(at(0)), Debt::default(), "nobody compacts");
        space.owes(900, 50);
        let debt = Debt { bytes: 900, old: 900, live: 50 };
        assert_eq!((space.debt(at(u64::MAX)), space.is_under_way()), (debt, true), "however long it takes");
        space.ended(true, Moment(5_000_000));
        assert!(!space.is_under_way());
        assert_eq!([space.debt(at(6_000_000)), space.debt(at(6_000_001))], [debt, Debt::default()]);
        space.owes_now(1000);
        assert_eq!(space.debt(at(6_000_000)), debt, "a look that came too late");
        space.owes(900, 50);
        space.ended(false, Moment(7_000_000));
        assert_eq!(space.debt(at(7_000_000)), Debt::default(), "it may not go on");
    }

    #[test]
    fn what_was_found_first_is_an_old_debt_and_only_shrinks() {
        let space = Space::default();
        let debt = || {
            let Debt { bytes, old, .. } = space.debt(at(0));
            (bytes, old)
        };
        space.owes(900, 50);
        space.owes_now(1000);
        assert_eq!(debt(), (1000, 900));
        space.owes_now(700);
        assert_eq!(debt(), (700, 700));
        space.ended(true, Moment(0));
        space.owes(800, 50);
        assert_eq!(debt(), (800, 700), "the same turn of compactions");
        space.ended(false, Moment(0));
        space.owes(800, 50);
        assert_eq!(debt(), (800, 800), "nobody has compacted meanwhile");
    }
}
