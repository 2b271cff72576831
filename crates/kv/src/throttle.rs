//! How fast work in the background may be: a budget of bytes for each second, and a short rest between pieces.
//!
//! Walk: [`Budget::take`] says how long to wait for some bytes, as a value · [`rest`] how long a rest is, the longer the seldomer memory is
//! written out ([`Flushes`]) · [`Throttle`] waits, as the pace of merges and compactions.
//! Deliberately absent: flushes. What frees memory is not slowed down; writers are ([`crate::pressure`]).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_runs::{Go, Pace};
use assent_world::{Clock, Moment};

/// A piece of work may be early by so much, so that a budget is used up although pieces are long.
const BURST: Duration = Duration::from_millis(100);
/// Without a budget: between two pieces a commit's sync finds the device free, at least for so long.
const REST: Duration = Duration::from_micros(250);
/// And at most, such a part of the time between two flushes: what those leave to be merged has that time, and readers need the disk, too.
const REST_MAX: Duration = Duration::from_millis(16);
const REST_PARTS: u32 = 1024;
/// Memory has not been written out yet.
const NEVER: u64 = u64::MAX;
/// So often somebody who waits looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(20);

/// How often memory is written out.
#[derive(Debug)]
pub(crate) struct Flushes {
    last: AtomicU64,
    /// Between the two before.
    between_us: AtomicU64,
}

impl Default for Flushes {
    fn default() -> Self {
        Self { last: AtomicU64::new(NEVER), between_us: AtomicU64::new(NEVER) }
    }
}

impl Flushes {
    pub(crate) fn one_more(&self, now: Moment) {
        let last = self.last.swap(now.0, Ordering::Relaxed);
        if last != NEVER {
            self.between_us.store(now.0.saturating_sub(last), Ordering::Relaxed);
        }
    }

    /// The time between two of them, as far as that can be known. Of a store that has just been opened it is long.
    pub(crate) fn between(&self, now: Moment) -> Duration {
        let since = now.0.saturating_sub(self.last.load(Ordering::Relaxed));
        Duration::from_micros(since.max(self.between_us.load(Ordering::Relaxed)))
    }
}

/// How long a rest is where there is so much time between two flushes, and so many bytes of dead values are too much: none from a quarter of a
/// volume of them on, when writers wait for them.
pub(crate) fn rest(between_flushes: Duration, dead_bytes: u64, volume_bytes: u64) -> Duration {
    let most = (volume_bytes / 4).max(1);
    let longest = (between_flushes / REST_PARTS).clamp(REST, REST_MAX);
    let us = longest.as_micros() * u128::from(most.saturating_sub(dead_bytes)) / u128::from(most);
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// So many bytes for each second.
#[derive(Clone, Copy, Debug)]
struct Budget {
    bytes_per_second: u64,
    /// By when all that was taken is paid for.
    paid: Moment,
}

impl Budget {
    const fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, paid: Moment(0) }
    }

    /// Takes some bytes; how long to wait before the next ones.
    fn take(&mut self, now: Moment, bytes: u64) -> Duration {
        let us = (u128::from(bytes) * 1_000_000).div_ceil(self.bytes_per_second.max(1).into());
        let earliest = Moment(now.0.saturating_sub(u64::try_from(BURST.as_micros()).unwrap_or(0)));
        self.paid = self.paid.max(earliest).after(Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX)));
        self.paid.since(now)
    }
}

/// A pace for [`crate::Kv::work`]: within the configured budget, and until it is told to stop.
pub struct Throttle {
    clock: Arc<dyn Clock>,
    /// None: as fast as it goes, with rests.
    budget: Option<Mutex<Budget>>,
    rest: Box<dyn Fn() -> Duration + Send + Sync>,
    is_stopped: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Throttle {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        bytes_per_second: u64,
        is_stopped: impl Fn() -> bool + Send + Sync + 'static,
        rest: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let budget = (bytes_per_second > 0).then(|| Mutex::new(Budget::new(bytes_per_second)));
        Self { clock, budget, rest: Box::new(rest), is_stopped: Box::new(is_stopped) }
    }
}

impl Pace for Throttle {
    fn wrote(&self, bytes: u64) -> Go {
        let now = self.clock.now();
        let pause = match &self.budget {
            Some(budget) => budget.lock().unwrap_or_else(PoisonError::into_inner).take(now, bytes),
            None => (self.rest)(),
        };
        let until = now.after(pause);
        loop {
            if (self.is_stopped)() {
                return Go::Stop;
            }
            match until.since(self.clock.now()) {
                Duration::ZERO => return Go::On,
                rest => self.clock.sleep(rest.min(LOOK)),
            }
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("budget", &self.budget).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use assent_sim::SimClock;

    use super::*;

    const MIB: u64 = 1 << 20;
    const SOON: Duration = Duration::from_millis(200);

    #[test]
    fn a_budget_is_used_up_and_not_overdrawn_whatever_the_pieces_are() {
        for piece in [1 << 10, 256 << 10, 3 * MIB] {
            let clock = SimClock::new();
            clock.advance(Duration::from_secs(100));
            let began = clock.now();
            let throttle = Throttle::new(Arc::new(clock.clone()), 10 * MIB, || false, || REST);
            for _ in 0..30 * MIB / piece {
                assert_eq!(throttle.wrote(piece), Go::On);
            }
            let took = clock.now().since(began);
            assert!((2890..=3000).contains(&took.as_millis()), "30 MiB in pieces of {piece}: {took:?}");
        }
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let mut budget = Budget::new(MIB);
        assert_eq!(budget.take(Moment(0), MIB), Duration::from_secs(1));
        // After an hour no more than a burst is free.
        assert_eq!(budget.take(Moment(3_600_000_000), MIB), Duration::from_millis(900));
        assert_eq!(budget.take(Moment(3_600_000_000), 0), Duration::from_millis(900));
    }

    #[test]
    fn who_waits_hears_a_stop_soon() {
        let clock = SimClock::new();
        let looks = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&looks);
        let stopped = move || asked.fetch_add(1, Ordering::Relaxed) == 3;
        let throttle = Throttle::new(Arc::new(clock.clone()), 1, stopped, || REST);
        assert_eq!(throttle.wrote(MIB), Go::Stop);
        assert_eq!((looks.load(Ordering::Relaxed), clock.now()), (4, Moment(60_000)));
    }

    #[test]
    fn without_a_budget_there_is_a_rest_after_each_piece() {
        let clock = SimClock::new();
        let throttle = Throttle::new(Arc::new(clock.clone()), 0, || false, || rest(SOON, 0, MIB));
        assert_eq!((throttle.wrote(u64::MAX), clock.now()), (Go::On, Moment(250)));
    }

    #[test]
    fn the_more_dead_values_the_shorter_the_rest() {
        let rests = [0, 1, MIB / 8, MIB / 4, u64::MAX].map(|dead| rest(SOON, dead, MIB).as_micros());
        assert_eq!(rests, [250, 249, 125, 0, 0]);
        assert_eq!(rest(Duration::MAX, MIB / 8, MIB).as_millis(), 8);
        let clock = SimClock::new();
        let throttle = Throttle::new(Arc::new(clock.clone()), 0, || false, || rest(SOON, MIB, MIB));
        assert_eq!((throttle.wrote(MIB), clock.now()), (Go::On, Moment(0)));
    }

    #[test]
    fn the_seldomer_memory_is_written_out_the_longer_the_rest() {
        let rests =
            [0, 256, 1024, 10_240, 16_384, 99_999].map(|ms| rest(Duration::from_millis(ms), 0, MIB).as_micros());
        assert_eq!(rests, [250, 250, 1000, 10_000, 16_000, 16_000]);
        let flushes = Flushes::default();
        let between = |now| rest(flushes.between(Moment(now)), 0, MIB).as_millis();
        assert_eq!(between(5), 16, "nothing is known of a store that was just opened");
        flushes.one_more(Moment(1_000_000));
        assert_eq!(between(1_000_005), 16);
        flushes.one_more(Moment(5_096_000));
        assert_eq!([between(5_096_001), between(9_000_000)], [4, 4]);
        assert_eq!(between(5_096_000 + 8_192_000), 8, "it takes longer this time");
        flushes.one_more(Moment(13_288_000));
        flushes.one_more(Moment(14_312_000));
        assert_eq!(between(14_312_001), 1, "a burst is told by its first flush");
    }
}
