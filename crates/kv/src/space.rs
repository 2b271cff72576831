//! What compactions are to give back, for who asks with each write: a few numbers, read without a lock.
//!
//! Walk: a compaction that begins says how much is too much of what it could take ([`Space::owes`]), and how it ended ([`Space::ended`]); each
//! tick looks again meanwhile, also while a merge has its turn, for writers go on ([`Space::owes_now`]) · [`Space::debt`] is that, with what was
//! written since, for as long as somebody compacts and a little longer.
//! What the first of several compactions found is an old debt: an hour in which nothing was permitted made it, or a bound that was lowered, and
//! not who writes now. It only shrinks.
//! Deliberately absent: what no compaction may take now: the journal behind a prepared branch or the last checkpoint, and what is damaged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_world::Moment;

use crate::ledger::Ledger;
use crate::vault::{Owed, value_bytes};

/// So long after a compaction the next one may begin: nobody waits for one that does not come.
const FRESH: Duration = Duration::from_secs(1);

/// Level 0 of the ledger's files goes down when it is such a part of the rest, or sooner.
const LEVEL0_PARTS: u64 = 3;

/// As the last look of a compaction found it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    bytes: AtomicU64,
    room: AtomicU64,
    most: AtomicU64,
    /// Where the log ended then.
    end: AtomicU64,
    old: AtomicU64,
    live: AtomicU64,
    volume: AtomicU64,
    /// Until when it counts, in microseconds of the clock.
    until: AtomicU64,
    /// Somebody was told of a debt.
    was_told: AtomicBool,
    /// The disk refused room, and not all was compacted since that can be.
    no_room: AtomicBool,
    /// Of those who say it: a look that takes its time says nothing behind the end.
    turn: Mutex<Turn>,
}

/// What compactions are about.
#[derive(Debug, Default)]
struct Turn {
    is_under_way: bool,
    /// One was, and has left something to do; or nothing was too much, and what is from now on writers make.
    goes_on: bool,
    /// The last look found nothing too much.
    rests: bool,
}

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) owed: Owed,
    /// Where the log ended.
    pub(crate) end: u64,
    /// Bytes that live, and about those of a volume.
    pub(crate) live: u64,
    pub(crate) volume: u64,
}

/// What is too much on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Bytes beyond what is wished, of what compactions can take.
    pub(crate) bytes: u64,
    /// What of them the first look found, as far as that was not given back since.
    pub(crate) old: u64,
    /// Bytes that live, and about those of a volume.
    pub(crate) live: u64,
    pub(crate) volume: u64,
}

impl Space {
    /// A compaction begins.
    pub(crate) fn owes(&self, look: &Look) {
        let mut turn = self.turn();
        let bytes = look.owed.bytes;
        let old = if turn.goes_on { self.old.load(Ordering::Relaxed).min(bytes) } else { bytes };
        *turn = Turn { is_under_way: true, goes_on: true, rests: false };
        self.until.store(u64::MAX, Ordering::Relaxed);
        self.says(look, old);
    }

    /// A compaction was permitted, and there is nothing to do for it, for nothing is too much.
    pub(crate) fn owes_nothing(&self, look: &Look) {
        self.owes(look);
        self.turn().rests = true;
    }

    /// Somebody has looked again: while a compaction is under way, or a merge in its turn. Nothing if none may go on meanwhile.
    pub(crate) fn owes_now(&self, look: &Look) {
        let turn = self.turn();
        if turn.goes_on {
            self.says(look, self.old.load(Ordering::Relaxed).min(look.owed.bytes));
        }
    }

    fn says(&self, look: &Look, old: u64) {
        let Look { owed: Owed { bytes, room, most }, end, live, volume } = *look;
        let numbers = [&self.old, &self.bytes, &self.room, &self.most, &self.end, &self.live, &self.volume];
        for (place, number) in numbers.into_iter().zip([old, bytes, room, most, end, live, volume]) {
            place.store(number, Ordering::Relaxed);
        }
    }

    /// Whether a look would count now that the log ends there: a compaction is under way, or one may be at any time, and somebody has written.
    pub(crate) fn goes_on(&self, end: u64) -> bool {
        self.turn().goes_on && end != self.end.load(Ordering::Relaxed)
    }

    /// It has ended: well, or there was nothing to do, or it may not go on.
    pub(crate) fn ended(&self, well: bool, now: Moment) {
        let mut turn = self.turn();
        turn.is_under_way = false;
        let rests = std::mem::take(&mut turn.rests);
        self.until.store(now.after(FRESH).0, Ordering::Relaxed);
        if !well && !rests {
            turn.goes_on = false;
            self.says(&Look::default(), 0);
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk refused room: nothing that is dead is none too much until [`Space::has_room`].
    pub(crate) fn finds_no_room(&self) {
        self.no_room.store(true, Ordering::Relaxed);
    }

    /// Whatever can be compacted is.
    pub(crate) fn has_room(&self) {
        self.no_room.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_out_of_room(&self) -> bool {
        self.no_room.load(Ordering::Relaxed)
    }

    /// Whether anybody was told of a debt since this was asked.
    pub(crate) fn was_told(&self) -> bool {
        self.was_told.swap(false, Ordering::Relaxed)
    }

    /// What is owed now that the log ends there: what was written since the look is dead, or something else is.
    pub(crate) fn debt(&self, end: u64, now: impl FnOnce() -> Moment) -> Debt {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let owed = Owed { bytes: read(&self.bytes), room: read(&self.room), most: read(&self.most) };
        let bytes = owed.after(end.saturating_sub(read(&self.end)));
        // While nobody compacts none is: the clock is not asked then.
        if bytes == 0 || now().0 > read(&self.until) {
            return Debt::default();
        }
        if !self.was_told.load(Ordering::Relaxed) {
            self.was_told.store(true, Ordering::Relaxed);
        }
        Debt { bytes, old: read(&self.old), live: read(&self.live), volume: read(&self.volume) }
    }
}

impl Ledger {
    /// Of bytes that live those that are neither key nor value, about: for values as long as they are on average.
    pub(crate) fn framing_bytes(&self, live: u64) -> u64 {
        let [values, bytes] = self.notes().kept.map(u128::from);
        let framing = values * u128::from(value_bytes(0, 0, 0));
        u64::try_from(u128::from(live) * framing / (framing + bytes).max(1)).unwrap_or(live)
    }

    /// Bytes of its files, and of what the next merge of level 0 will write beside them so much as that has come: all of it when it is due.
    pub(crate) fn room_bytes(&self) -> u64 {
        let facts = self.runs().facts();
        let level0 = facts.levels.first().map_or(0, |level| level.bytes);
        facts.bytes + level0.saturating_mul(LEVEL0_PARTS).min(facts.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> impl Fn() -> Moment {
        move || Moment(us)
    }

    fn look(bytes: u64) -> Look {
        Look { owed: Owed { bytes, room: 0, most: 2000 }, end: 10, live: 50, volume: 7 }
    }

    const fn debt(bytes: u64, old: u64) -> Debt {
        Debt { bytes, old, live: 50, volume: 7 }
    }

    #[test]
    fn a_debt_counts_while_somebody_compacts_and_a_second_longer() {
        let space = Space::default();
        assert_eq!(space.debt(10, at(0)), Debt::default(), "nobody has looked");
        space.owes_now(&look(5));
        assert_eq!(space.debt(10, at(0)), Debt::default(), "nobody compacts");
        space.owes(&look(900));
        assert_eq!((space.debt(10, at(u64::MAX)), space.goes_on(11)), (debt(900, 900), true), "however long it takes");
        assert!(!space.goes_on(10), "nobody has written");
        space.ended(true, Moment(5_000_000));
        assert_eq!([6_000_000, 6_000_001].map(|us| space.debt(10, at(us))), [debt(900, 900), Debt::default()]);
        space.owes_now(&look(1000));
        assert_eq!(space.debt(10, at(6_000_000)), debt(1000, 900), "a merge has its turn");
        space.owes(&look(900));
        space.ended(false, Moment(7_000_000));
        assert!(!space.goes_on(11), "it may not go on");
        space.owes_now(&look(1000));
        assert_eq!(space.debt(99, at(7_000_000)), Debt::default(), "a look that came too late");
    }

    #[test]
    fn what_comes_while_nothing_is_too_much_is_no_old_debt() {
        let space = Space::default();
        space.owes_nothing(&look(0));
        space.ended(false, Moment(0));
        assert_eq!(space.debt(10, at(0)), Debt::default());
        // A merge takes its time, and writers go on.
        space.owes_now(&look(300));
        assert_eq!(space.debt(10, at(0)), debt(300, 0));
        space.owes(&look(400));
        assert_eq!(space.debt(10, at(0)), debt(400, 0));
        // The hour has come to its end.
        space.ended(false, Moment(0));
        space.owes_now(&look(500));
        assert_eq!(space.debt(10, at(0)), Debt::default());
    }

    #[test]
    fn what_is_written_between_two_looks_takes_room_and_then_is_owed_as_far_as_it_can_be_given_back() {
        let space = Space::default();
        let owed = Owed { bytes: 0, room: 100, most: 250 };
        space.owes_nothing(&Look { owed, ..look(0) });
        assert_eq!([10, 110, 111, 300, 361, 999].map(|end| space.debt(end, at(0)).bytes), [0, 0, 1, 190, 250, 250]);
        assert_eq!([space.was_told(), space.was_told()], [true, false]);
        assert_eq!((space.debt(5, at(0)).bytes, space.was_told()), (0, false));
        space.owes(&look(70));
        assert_eq!([9, 11].map(|end| space.debt(end, at(0)).bytes), [70, 71]);
    }

    #[test]
    fn what_was_found_first_is_an_old_debt_and_only_shrinks() {
        let space = Space::default();
        let debt = || {
            let Debt { bytes, old, .. } = space.debt(10, at(0));
            (bytes, old)
        };
        space.owes(&look(900));
        space.owes_now(&look(1000));
        assert_eq!(debt(), (1000, 900));
        space.owes_now(&look(700));
        assert_eq!(debt(), (700, 700));
        space.ended(true, Moment(0));
        space.owes(&look(800));
        assert_eq!(debt(), (800, 700), "the same turn of compactions");
        space.ended(false, Moment(0));
        space.owes(&look(800));
        assert_eq!(debt(), (800, 800), "nobody has compacted meanwhile");
    }
}
