//! Whether the next batch waits for company: for those whose batch has just landed and who may be about to come again.
//!
//! Eight threads that each wait for their own entry end as two groups of four. While the batch of one is synced the other's gathers, which is
//! written as soon as the first has landed, and so on, for ever: a sync takes four entries where it could take eight. So whoever leads lets those run
//! first who are ready to run on its core, a few times, until all have come that are expected. Where nobody is ready he goes on at once: there is no
//! timer, and nobody sleeps.
//!
//! It is left where it gives nothing: threads that do other things between two entries do not come, and beside threads that compute, to let others
//! run takes as long as they like. Then some batches are not gathered for, twice as many each time, or sixteen times.
//!
//! Walk: [`Company::landed`] says who is expected · [`Company::begin`] · [`Company::awaits`] for all others meanwhile: the one who completes it
//! closes it · [`Company::end`], or, where somebody has closed it, [`Company::closed`] and [`Company::left`].
//! Deliberately absent: clocks, threads, locks. `commit` does that. Who waits is not counted, entries are: of a thread that waited for a
//! hundred of its own as many are expected once.

use std::time::Duration;

/// A batch of so many entries goes at once: a sync each hundred costs little, and whoever lays many at a time is not about to come again.
const ENOUGH: u32 = 128;
/// To let others run has taken somebody's whole turn, if it takes longer.
pub(crate) const DEAR: Duration = Duration::from_micros(500);
/// As if so few had come so often in a row.
const DEAR_COUNTS: u32 = 4;
/// Then 4,096 batches are passed, and no more.
const FEW_MAX: u32 = 12;

/// Who is expected, and whether it is worth it.
#[derive(Debug, Default)]
pub(crate) struct Company {
    /// So many entries the open batch has once all have come again whose batches have landed since the last was closed; no more than are enough.
    expected: u32,
    /// Somebody lets others run until there are so many, and leads then.
    gathers: Option<u32>,
    /// How often in a row few have come.
    few: u32,
    /// So many batches are still passed.
    passes: u32,
}

impl Company {
    /// So many entries have landed, with so many in the open batch.
    pub(crate) fn landed(&mut self, entries: u32, open: u32) {
        self.expected = self.expected.max(open).saturating_add(entries).min(ENOUGH);
    }

    /// Whether an open batch of so many entries is somebody's who gathers, and not whole yet.
    pub(crate) const fn awaits(&self, open: u32) -> bool {
        matches!(self.gathers, Some(whole) if open < whole)
    }

    /// Somebody is about to write an open batch of so many entries: whether he should let others run before.
    pub(crate) const fn begin(&mut self, open: u32) -> bool {
        if self.gathers.is_some() || open >= self.expected {
            return false;
        }
        if self.passes > 0 {
            self.passes -= 1;
            return false;
        }
        self.gathers = Some(self.expected);
        true
    }

    /// He has, as long as that, and now it has so many entries; he closes it.
    pub(crate) fn end(&mut self, (from, to): (u32, u32), took: Duration) {
        let whole = self.gathers.take().unwrap_or(from);
        let half = whole.saturating_sub(from).div_ceil(2);
        if took > DEAR {
            self.pass(DEAR_COUNTS);
        } else if to.saturating_sub(from) < half {
            self.pass(1);
        } else {
            self.few = 0;
        }
    }

    /// He has, as long as that, and another has closed it meanwhile.
    pub(crate) fn left(&mut self, took: Duration) {
        if took > DEAR {
            self.pass(DEAR_COUNTS);
        }
    }

    /// A batch of so many entries is closed, by whomever.
    pub(crate) fn closed(&mut self, entries: u32) {
        self.expected = 0;
        if self.gathers.take().is_some_and(|whole| entries >= whole) {
            self.few = 0;
        }
    }

    fn pass(&mut self, counts: u32) {
        self.few = (self.few + counts).min(FEW_MAX);
        self.passes = 1 << self.few;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_micros(20);

    /// How many of so many batches were gathered for, of two groups of four in turn, of whom so many come again each time.
    fn gathered(company: &mut Company, batches: u32, come: u32, took: Duration) -> u32 {
        let begun = (0..batches).filter(|_| {
            company.landed(4, 4);
            let begins = company.begin(4);
            if begins {
                company.end((4, 4 + come), took);
            }
            company.closed(4);
            begins
        });
        u32::try_from(begun.count()).unwrap()
    }

    #[test]
    fn it_is_worth_it_as_long_as_half_of_them_come() {
        let mut company = Company::default();
        assert_eq!([2, 3, 4].map(|come| gathered(&mut company, 1_000, come, AT_ONCE)), [1_000; 3]);
        assert_eq!(gathered(&mut company, 4_096, 1, AT_ONCE), 11, "behind 2, 4, 8 .. batches");
    }

    #[test]
    fn it_is_tried_again_and_goes_on_once_they_come() {
        let mut company = Company::default();
        _ = gathered(&mut company, 100_000, 0, AT_ONCE);
        let once = gathered(&mut company, 4_097, 4, AT_ONCE);
        assert!(once >= 1, "no more than 4,096 are passed");
        assert_eq!(gathered(&mut company, 1_000, 4, AT_ONCE), 1_000);
    }

    #[test]
    fn beside_threads_that_compute_it_is_left_sooner_and_though_they_come() {
        let (mut few, mut dear) = (Company::default(), Company::default());
        let slow = DEAR + Duration::from_micros(1);
        assert_eq!([gathered(&mut few, 1_000, 0, AT_ONCE), gathered(&mut dear, 1_000, 4, slow)], [9, 3]);
        assert_eq!(gathered(&mut Company::default(), 1_000, 4, DEAR), 1_000);
    }

    #[test]
    fn who_is_alone_or_whole_waits_for_nobody() {
        let mut company = Company::default();
        assert!(!company.begin(1), "nothing has landed");
        company.landed(1, 0);
        assert!(!company.begin(1), "the one who came again is all there is");
        company.landed(4, 4);
        assert!(!company.begin(8) && !company.begin(9));
        company.landed(1_000, 0);
        assert!(!company.begin(ENOUGH) && company.begin(ENOUGH - 1) && !company.awaits(ENOUGH));
    }

    #[test]
    fn one_gathers_and_whoever_completes_it_leads() {
        let mut company = Company::default();
        company.landed(4, 1);
        assert!(!company.awaits(1) && company.begin(1) && !company.begin(2));
        assert_eq!([1, 2, 4, 5, 6].map(|open| company.awaits(open)), [true, true, true, false, false]);
        company.landed(9, 2);
        assert!(!company.awaits(5), "who is expected later is waited for by the next");
        company.few = 3;
        company.closed(5);
        assert!(!company.awaits(1) && company.few == 0 && !company.begin(1), "nothing has landed since");
        company.few = 3;
        company.closed(5);
        assert_eq!(company.few, 3, "nobody has gathered for that one");
    }

    #[test]
    fn a_batch_that_is_closed_before_it_is_whole_says_nothing_and_what_it_took_is_heard() {
        let mut company = Company::default();
        company.landed(4, 4);
        assert!(company.begin(4));
        company.few = 3;
        company.closed(5);
        assert_eq!((company.few, company.passes), (3, 0));
        company.left(DEAR);
        assert_eq!((company.few, company.passes), (3, 0));
        company.left(DEAR + Duration::from_micros(1));
        assert_eq!((company.few, company.passes), (7, 128));
    }

    #[test]
    fn two_batches_that_land_behind_each_other_are_all_expected() {
        let mut company = Company::default();
        company.landed(3, 1);
        company.landed(4, 2);
        assert!(company.begin(2) && company.awaits(7) && !company.awaits(8));
    }
}
