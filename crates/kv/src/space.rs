//! What compactions are to give back, for who asks with each write: a few numbers, read without a lock.
//!
//! Walk: a compaction that begins says how much is too much of what it could take ([`Space::owes`]), and how it ended ([`Space::ended`]); each
//! tick looks again meanwhile, also while a merge has its turn ([`Space::works`]), for writers go on ([`Space::owes_now`]) · [`Space::debt`] is
//! that, with what was written since, for as long as somebody works and a little longer.
//! What the first of several compactions found is an old debt: an hour in which nothing was permitted made it, or a bound that was lowered, and
//! not who writes now. It shrinks, and grows by what writers cannot have written: values that were deleted, erased or have expired.
//! Deliberately absent: what no compaction may take now: the journal behind a prepared branch or the last checkpoint, and what is damaged.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_world::{Clock, Moment};

use crate::ledger::Ledger;
use crate::pacing::Pacing;
use crate::room::NoRoom;
use crate::vault::{Owed, value_bytes};

/// So long after a compaction the next one may begin: nobody waits for one that does not come.
const FRESH: Duration = Duration::from_secs(1);

/// What is written can be too much so often: at once, for it is on disk; and, once it was counted as living and the bound rose with it, when
/// what supersedes it is known.
const COUNTS: u64 = 3;

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
    /// So many are at work, at a merge or a compaction: it counts as long.
    works: AtomicU32,
    /// Somebody wrote while there was a debt.
    was_told: AtomicBool,
    pub(crate) no_room: NoRoom,
    /// Of those who say it: a look that takes its time says nothing behind the end.
    turn: Mutex<Turn>,
    /// How fast writers may go on.
    pub(crate) pacing: Pacing,
}

/// What compactions are about.
#[derive(Debug, Default)]
struct Turn {
    /// One is under way, or was, and has left something to do; or nothing was too much, and what is from now on writers make.
    goes_on: bool,
    /// The last look found nothing too much.
    rests: bool,
    /// So much of what was written may still turn out to be too much.
    unspent: u64,
}

/// Somebody works, until this is dropped.
#[must_use]
pub(crate) struct Works<'a> {
    space: &'a Space,
    clock: &'a dyn Clock,
}

impl Drop for Works<'_> {
    fn drop(&mut self) {
        // A compaction that is under way elsewhere counts longer.
        self.space.until.fetch_max(self.clock.now().after(FRESH).0, Ordering::Relaxed);
        self.space.works.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Somebody compacts, until this is dropped: well, or, as where it has panicked, not.
#[must_use]
pub(crate) struct Compacts<'a> {
    space: &'a Space,
    clock: &'a dyn Clock,
    pub(crate) well: bool,
}

impl Drop for Compacts<'_> {
    fn drop(&mut self) {
        // What cannot go on for now is nothing that a writer could wait for.
        self.space.ended(self.well, self.clock.now());
    }
}

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) owed: Owed,
    pub(crate) at: Moment,
    /// Where the log ended.
    pub(crate) end: u64,
    /// Bytes that live, and about those of a volume.
    pub(crate) live: u64,
    pub(crate) volume: u64,
    /// What was written and nobody has judged yet is no more.
    pub(crate) unjudged: u64,
}

/// What is too much on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Bytes beyond what is wished, of what compactions can take.
    pub(crate) bytes: u64,
    /// What of them is none of those who write now, as far as that was not given back since.
    pub(crate) old: u64,
    /// Bytes that live, and about those of a volume.
    pub(crate) live: u64,
    pub(crate) volume: u64,
}

impl Space {
    /// Somebody works from now on: a merge or a compaction, for as long as it takes.
    pub(crate) fn works<'a>(&'a self, clock: &'a dyn Clock) -> Works<'a> {
        self.works.fetch_add(1, Ordering::Relaxed);
        Works { space: self, clock }
    }

    /// Somebody is about to compact.
    pub(crate) const fn compacts<'a>(&'a self, clock: &'a dyn Clock) -> Compacts<'a> {
        Compacts { space: self, clock, well: false }
    }

    /// A compaction begins.
    pub(crate) fn owes(&self, look: &Look) {
        let mut turn = self.turn();
        let old = if turn.goes_on { self.old_by(look, &mut turn) } else { look.owed.bytes };
        (turn.goes_on, turn.rests) = (true, false);
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
        let mut turn = self.turn();
        if turn.goes_on {
            let old = self.old_by(look, &mut turn);
            self.says(look, old);
        }
    }

    /// What of it is an old debt: by what more than was written it grew since the look before is one, too.
    fn old_by(&self, look: &Look, turn: &mut Turn) -> u64 {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let written = look.end.saturating_sub(read(&self.end));
        let unspent = turn.unspent.saturating_add(written.saturating_mul(COUNTS)).min(look.unjudged.max(written));
        let growth = look.owed.bytes.saturating_sub(read(&self.bytes));
        turn.unspent = unspent.saturating_sub(growth);
        let old = read(&self.old).saturating_add(growth.saturating_sub(unspent));
        old.min(look.owed.bytes)
    }

    /// The end first: who reads in between finds less written since, and not what was written before it added to what was found at it.
    fn says(&self, look: &Look, old: u64) {
        let Look { owed: Owed { bytes, room, most }, at, end, live, volume, .. } = *look;
        let numbers = [&self.end, &self.room, &self.old, &self.bytes, &self.most, &self.live, &self.volume];
        for (place, number) in numbers.into_iter().zip([end, room, old, bytes, most, live, volume]) {
            place.store(number, Ordering::Release);
        }
        self.pacing.look(at, end, bytes.saturating_sub(old), volume);
    }

    /// Whether a look would count now that the log ends there: a compaction is under way, or one may be at any time, and somebody has written.
    pub(crate) fn goes_on(&self, end: u64) -> bool {
        self.turn().goes_on && end != self.end.load(Ordering::Relaxed)
    }

    /// It has ended: well, or there was nothing to do, or it may not go on.
    pub(crate) fn ended(&self, well: bool, now: Moment) {
        let mut turn = self.turn();
        let rests = std::mem::take(&mut turn.rests);
        self.until.store(now.after(FRESH).0, Ordering::Relaxed);
        if !well && !rests {
            *turn = Turn::default();
            // Nothing can be given back, wherever the log ends.
            self.most.store(0, Ordering::Release);
            self.bytes.store(0, Ordering::Release);
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody writes: not who compacts, who asks for the debt, too.
    pub(crate) fn tell(&self) {
        if !self.was_told.load(Ordering::Relaxed) {
            self.was_told.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anybody has since this was asked.
    pub(crate) fn was_told(&self) -> bool {
        self.was_told.swap(false, Ordering::Relaxed)
    }

    /// What is owed now that the log ends there: what was written since the look is dead, or something else is.
    pub(crate) fn debt(&self, end: u64, now: impl FnOnce() -> Moment) -> Debt {
        let read = |number: &AtomicU64| number.load(Ordering::Acquire);
        let owed = Owed { bytes: read(&self.bytes), room: read(&self.room), most: read(&self.most) };
        let bytes = owed.after(end.saturating_sub(read(&self.end)));
        // While nobody works none is: the clock is not asked then.
        if bytes == 0 || self.works.load(Ordering::Relaxed) == 0 && now().0 > read(&self.until) {
            return Debt::default();
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
    use assent_sim::SimClock;

    use super::*;

    const fn at(us: u64) -> impl Fn() -> Moment {
        move || Moment(us)
    }

    fn look(bytes: u64) -> Look {
        let owed = Owed { bytes, room: 0, most: 20_000 };
        Look { owed, at: Moment(0), end: 10, live: 50, volume: 7, unjudged: 1000 }
    }

    /// With so much more written.
    fn look_at(end: u64, bytes: u64) -> Look {
        Look { end, ..look(bytes) }
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
        space.owes_now(&look_at(110, 1000));
        assert_eq!(space.debt(110, at(6_000_000)), debt(1000, 900), "a merge has its turn");
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
        space.owes_now(&look_at(310, 300));
        assert_eq!(space.debt(310, at(0)), debt(300, 0));
        space.owes(&look_at(410, 400));
        assert_eq!(space.debt(410, at(0)), debt(400, 0));
        // The hour has come to its end.
        space.ended(false, Moment(0));
        space.owes_now(&look_at(510, 500));
        assert_eq!([510, u64::MAX].map(|end| space.debt(end, at(0))), [Debt::default(); 2]);
    }

    /// A store rested, and a keyspace was erased: every writer waited the longest for it.
    #[test]
    fn what_nobody_has_written_is_an_old_debt_whenever_it_is_found() {
        let space = Space::default();
        space.owes_nothing(&look(0));
        space.ended(false, Moment(0));
        space.owes_now(&look(5000));
        assert_eq!(space.debt(10, at(0)), debt(5000, 5000));
        // Two hundred that were written are dead, and what they supersede is known later: as much again, and its share.
        space.owes_now(&look_at(210, 5200));
        assert_eq!(space.debt(210, at(0)), debt(5200, 5000));
        space.owes_now(&look_at(210, 4900));
        space.owes(&look_at(210, 5300));
        assert_eq!(space.debt(210, at(0)), debt(5300, 4900));
        // All that they have written was found to be too much.
        space.owes_now(&look_at(210, 5400));
        assert_eq!(space.debt(210, at(0)), debt(5400, 5000));
        // However much they wrote while nothing was too much.
        space.owes_now(&look_at(9_000_000, 0));
        space.owes_now(&look_at(9_000_000, 1500));
        assert_eq!(space.debt(9_000_000, at(0)), debt(1500, 500));
        // A look that came late: what was written since is theirs.
        space.owes_now(&look_at(9_002_000, 3500));
        assert_eq!(space.debt(9_002_000, at(0)), debt(3500, 500));
    }

    /// A compaction panicked, and each batch waited its part of ten milliseconds from then on.
    #[test]
    fn nobody_waits_for_a_compaction_that_has_panicked() {
        let (space, clock) = (Space::default(), SimClock::new());
        for well in [true, false] {
            let mut compacts = space.compacts(&clock);
            space.owes(&look(900));
            compacts.well = well;
            assert_eq!(space.debt(10, at(0)), debt(900, 900));
            drop(compacts);
            assert_eq!(space.debt(10, at(0)), if well { debt(900, 900) } else { Debt::default() });
        }
    }

    /// A merge of 85 MiB within a budget of 30 MiB a second: from its second second on nobody was slowed down.
    #[test]
    fn a_debt_counts_while_a_merge_has_its_turn_however_long_that_takes_and_a_second_longer() {
        let (space, clock) = (Space::default(), SimClock::new());
        let seconds = |count: u64| clock.advance(Moment(count * 1_000_000).since(clock.now()));
        space.owes(&look(900));
        space.ended(true, Moment(0));
        let works = space.works(&clock);
        seconds(5);
        space.owes_now(&look_at(110, 1000));
        assert_eq!(space.debt(110, at(5_500_000)), debt(1000, 900));
        drop(works);
        assert_eq!([6_000_000, 6_000_001].map(|us| space.debt(110, at(us))), [debt(1000, 900), Debt::default()]);
        // Nothing could be done: it is not for his sake that somebody waits.
        space.owes(&look_at(110, 1000));
        let works = space.works(&clock);
        space.ended(false, clock.now());
        assert_eq!(space.debt(110, at(5_000_000)), Debt::default());
        drop(works);
        assert_eq!(space.debt(110, at(5_000_000)), Debt::default());
    }

    #[test]
    fn what_is_written_between_two_looks_takes_room_and_then_is_owed_as_far_as_it_can_be_given_back() {
        let space = Space::default();
        let owed = Owed { bytes: 0, room: 100, most: 250 };
        space.owes_nothing(&Look { owed, ..look(0) });
        assert_eq!([10, 110, 111, 300, 361, 999].map(|end| space.debt(end, at(0)).bytes), [0, 0, 1, 190, 250, 250]);
        assert!(!space.was_told(), "who only asks does not write");
        space.tell();
        assert_eq!([space.was_told(), space.was_told()], [true, false]);
        assert_eq!(space.debt(5, at(0)).bytes, 0);
        space.owes(&look(70));
        assert_eq!([9, 11].map(|end| space.debt(end, at(0)).bytes), [70, 71]);
    }

    #[test]
    fn what_was_found_first_is_an_old_debt_and_writers_add_nothing_to_it() {
        let space = Space::default();
        let debt = || {
            let Debt { bytes, old, .. } = space.debt(10, at(0));
            (bytes, old)
        };
        space.owes(&look(900));
        space.owes_now(&look_at(110, 1000));
        assert_eq!(debt(), (1000, 900));
        space.owes_now(&look_at(110, 700));
        assert_eq!(debt(), (700, 700));
        space.ended(true, Moment(0));
        space.owes(&look_at(210, 800));
        assert_eq!(debt(), (800, 700), "the same turn of compactions");
        space.ended(false, Moment(0));
        space.owes(&look_at(210, 800));
        assert_eq!(debt(), (800, 800), "nobody has compacted meanwhile");
    }
}
