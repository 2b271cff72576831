//! How fast writers may write while dead values are too much: about as fast as compactions give them back.
//!
//! What they give back comes in pieces, a volume or some segments of the journal at a time, and a flush tells of many dead values at once. A delay
//! that follows the debt lets writers go and stops them again with each piece. So the rate is learned: it is what was written in the last
//! seconds, times a factor of the debt.
//!
//! ```text
//!   debt in volumes    0+    1     2     4     8     16
//!   factor             1.5   0.94  0.66  0.38  0.15  0
//! ```
//! Where the debt stays beyond one, less is written than before, and the rate falls; below it rises. Without a debt nobody waits.
//! Writers wait until what the log has is due at that rate, all of them, however many there are.
//!
//! Walk: a look at the debt sets the rate ([`Pacing::look`]), as [`Learned`] has learned it, a value tested as a table · who writes asks when
//! ([`Pacing::wait`]), without a lock. Deliberately absent: the longest wait; [`crate::pressure`] has it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_world::Moment;

/// In such a time the rate becomes what is written; and in such a one where the debt is beyond [`DEBT_LONG`] volumes.
const LEARNS_S: f64 = 5.0;
const LEARNS_SOON_S: f64 = 1.0;
const DEBT_LONG: f64 = 2.0;
/// Nothing is learned of less.
const LOOK_MIN: Duration = Duration::from_millis(20);
/// Of the least debt.
const FACTOR: f64 = 1.5;
/// With such a debt, in volumes, nothing more may be written.
const DEBT_MAX: f64 = 16.0;
/// Who was let go for want of longer waits owes no more than this.
const BEHIND_MAX: Duration = Duration::from_millis(20);
/// Nobody has looked, or begun.
const NONE: u64 = u64::MAX;

/// What is written in a second, as far as writers know what compactions can do.
#[derive(Clone, Copy, Debug, Default)]
struct Learned {
    per_s: f64,
    /// Of the look before, and where the log ended then.
    before: Option<(Moment, u64)>,
}

impl Learned {
    /// Bytes a second, with such a debt.
    fn look(&mut self, now: Moment, end: u64, debt: u64, volume: u64) -> u64 {
        let volume = real(volume.max(1));
        let debt = real(debt) / volume;
        // Of one that has just been opened nothing is known.
        let (at, from) = *self.before.get_or_insert((now, end));
        let passed = now.since(at);
        if passed >= LOOK_MIN {
            let seconds = passed.as_secs_f64();
            let written = real(end.saturating_sub(from)) / seconds;
            // Who writes little because he wants to teaches nothing.
            if debt > 0.0 || written > self.per_s {
                let learns = if debt > DEBT_LONG { LEARNS_SOON_S } else { LEARNS_S };
                self.per_s += (written - self.per_s) * (seconds / learns).min(1.0);
            }
            self.before = Some((now, end));
        }
        self.per_s = self.per_s.max(volume);
        whole(self.per_s * factor(debt))
    }
}

/// By how much the rate is not what was written in the last seconds.
fn factor(debt: f64) -> f64 {
    FACTOR / (1.0 + debt * (FACTOR - 1.0)) * (1.0 - debt / DEBT_MAX).max(0.0)
}

fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at least 0, and precision is of no matter"
)]
fn whole(bytes: f64) -> u64 {
    (bytes as u64).clamp(1, NONE - 1)
}

/// The rate, and since when what of the log is due at it.
#[derive(Debug)]
pub(crate) struct Pacing {
    learned: Mutex<Learned>,
    per_s: AtomicU64,
    /// Up to there the log was due then, in microseconds of the clock; or nobody has begun.
    due: AtomicU64,
    at: AtomicU64,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            learned: Mutex::default(),
            per_s: AtomicU64::new(NONE),
            due: AtomicU64::new(0),
            at: AtomicU64::new(NONE),
        }
    }
}

impl Pacing {
    /// So much is too much now that the log ends there, of volumes of about so many bytes.
    pub(crate) fn look(&self, now: Moment, end: u64, debt: u64, volume: u64) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let per_s = learned.look(now, end, debt, volume);
        let due = self.due(now).unwrap_or(end).max(end.saturating_sub(bytes_in(BEHIND_MAX, per_s)));
        self.per_s.store(per_s, Ordering::Release);
        if debt == 0 {
            // Who writes while nothing is too much owes nothing for it: the first who has a debt begins.
            self.at.store(NONE, Ordering::Release);
            return;
        }
        // The place first: who reads in between takes more of the log for due, not less.
        self.due.store(due.min(end), Ordering::Release);
        self.at.store(now.0, Ordering::Release);
    }

    /// Up to where the log is due, where somebody has begun.
    fn due(&self, now: Moment) -> Option<u64> {
        let at = self.at.load(Ordering::Acquire);
        let (due, per_s) = (self.due.load(Ordering::Acquire), self.per_s.load(Ordering::Acquire));
        (at != NONE).then(|| due.saturating_add(bytes_in(now.since(Moment(at)), per_s)))
    }

    /// How long until the log is due up to its end with so many bytes more. For who has a debt: without one nobody waits.
    pub(crate) fn wait(&self, now: Moment, end: u64, bytes: u64) -> Duration {
        let per_s = self.per_s.load(Ordering::Acquire);
        if per_s == NONE {
            return Duration::ZERO;
        }
        let due = self.due(now).unwrap_or_else(|| {
            self.due.store(end, Ordering::Release);
            self.at.store(now.0, Ordering::Release);
            end
        });
        let behind = end.saturating_add(bytes).saturating_sub(due);
        let us = u128::from(behind) * 1_000_000 / u128::from(per_s);
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }
}

/// At such a rate.
fn bytes_in(time: Duration, per_s: u64) -> u64 {
    let bytes = time.as_micros() * u128::from(per_s) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: u64 = 16 << 20;
    const MIB: u64 = 1 << 20;

    const fn ms(ms: u64) -> Moment {
        Moment(ms * 1000)
    }

    #[test]
    fn the_factor_falls_with_the_debt_as_the_table_says() {
        let percent = |debt: f64| (factor(debt) * 100.0).round();
        assert_eq!([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 99.0].map(percent), [150.0, 94.0, 66.0, 38.0, 15.0, 0.0, 0.0]);
    }

    #[test]
    fn a_rate_becomes_what_is_written_while_there_is_a_debt() {
        let mut learned = Learned::default();
        let long = 1 << 40;
        for (at, debt) in [(100, 0), (200, 1)] {
            let rate = learned.look(ms(at), long, debt, VOLUME);
            assert!(rate.abs_diff(VOLUME * 3 / 2) < 9, "{rate}: of a store that was just opened nothing is known");
        }
        // Each row: milliseconds that pass, MiB that are written meanwhile, the debt in MiB, and the rate without its factor.
        let rows = [
            (5_000, 500, 0, 100.0),
            (5_000, 0, 0, 100.0),
            (10, 100, 1, 100.0),
            (2_490, 100, 1, 90.0),
            (500, 0, 64, 45.0),
            (1_000, 0, 64, 16.0),
        ];
        let (mut now, mut end) = (200, long);
        for (passed, written, debt, per_s) in rows {
            (now, end) = (now + passed, end + written * MIB);
            learned.look(ms(now), end, debt * MIB, VOLUME);
            assert!((learned.per_s / real(MIB) - per_s).abs() < 0.01, "{now} ms: {learned:?}, {per_s} expected");
        }
    }

    /// A rate that swings with the debt lets writers go and stops them; here the debt swings between nothing and two volumes.
    #[test]
    fn writers_wait_about_the_same_while_what_is_given_back_comes_in_pieces() {
        let (pacing, given) = (Pacing::default(), 40 * MIB);
        let (mut end, mut debt, mut longest, mut longest_late) = (0_u64, 0_i64, 0_u128, 0_u128);
        for now in 0..60_000_u64 {
            // Eight writers that would write 200 MiB a second.
            for _ in 0..8 {
                let wait = if debt > 0 { pacing.wait(ms(now), end, 8 << 10) } else { Duration::ZERO };
                longest = longest.max(wait.as_millis());
                if wait < Duration::from_millis(1) && end < now * 200 * MIB / 1000 {
                    end += 8 << 10;
                    debt += 8 << 10;
                }
                longest_late = if now > 30_000 { longest_late.max(wait.as_millis()) } else { 0 };
            }
            if now % 1000 == 999 {
                debt -= i64::try_from(given).unwrap();
            }
            if now % 100 == 99 {
                pacing.look(ms(now), end, u64::try_from(debt).unwrap_or(0), VOLUME);
            }
        }
        let per_s = end / 60 / MIB;
        assert!((38..50).contains(&per_s), "{per_s} MiB a second were written");
        assert!(longest_late <= 3, "{longest_late} ms, {longest} before it was learned");
    }

    #[test]
    fn what_is_due_is_waited_for_at_the_rate_and_no_debt_is_no_wait() {
        let pacing = Pacing::default();
        assert_eq!(pacing.wait(ms(0), 1 << 40, 1 << 30), Duration::ZERO, "nobody has looked");
        pacing.look(ms(1000), MIB, 0, VOLUME);
        // One and a half volumes a second: 24 KiB a millisecond. What is too much before the next look is due from then on.
        let early = |now, end, bytes| pacing.wait(ms(now), MIB + end, bytes).as_millis();
        assert_eq!(
            [early(1005, 8 << 20, 24 << 10), early(1005, (8 << 20) + (24 << 10), 24 << 10), early(1007, 8 << 20, 0)],
            [0, 1, 0]
        );
        pacing.look(ms(1008), MIB, 0, VOLUME);
        pacing.look(ms(1010), MIB, 1, VOLUME);
        let wait = |now, more: u64, bytes| pacing.wait(ms(now), MIB + more, bytes).as_millis();
        assert_eq!([wait(1010, 0, 0), wait(1010, 0, 24 << 10), wait(1010, 240 << 10, 24 << 10)], [0, 0, 10]);
        assert_eq!(
            [wait(1015, 240 << 10, 24 << 10), wait(1020, 240 << 10, 24 << 10), wait(9999, 240 << 10, 24 << 10)],
            [5, 0, 0]
        );
        // A second of it was written at once: the next look forgives all but a little.
        pacing.look(ms(1011), 25 * MIB, 1, VOLUME);
        assert_eq!(pacing.wait(ms(1011), 25 * MIB, 0).as_millis(), 19);
        pacing.look(ms(1012), 25 * MIB, 16 * VOLUME, VOLUME);
        assert!(pacing.wait(ms(1012), 25 * MIB, 1) >= Duration::from_secs(1), "far too much");
    }
}
