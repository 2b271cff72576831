//! One client thread's cycles, each call timed.

use std::time::{Duration, Instant};

use assent_client::Client;
use assent_world::{Clock as _, RealClock};

use super::place::{Branch, Setting};
use super::{Options, Sleep};
use crate::BenchError;
use crate::stats::Samples;

/// What the calls took.
#[derive(Debug, Default)]
pub(super) struct Timed {
    pub(super) open: Samples,
    pub(super) begin: Samples,
    pub(super) commit: Samples,
    pub(super) close: Samples,
    pub(super) total: Samples,
}

impl Timed {
    pub(super) fn extend(&mut self, other: &Timed) {
        self.open.extend(&other.open);
        self.begin.extend(&other.begin);
        self.commit.extend(&other.commit);
        self.close.extend(&other.close);
        self.total.extend(&other.total);
    }
}

/// Sleeps that nobody can foresee but everybody can have again (xorshift64*: Vigna, 2016).
struct Sleeper(u64);

impl Sleeper {
    fn nap(&mut self, sleep: Sleep) {
        if sleep.median_us == 0 {
            return;
        }
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let chance = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        let shortest = sleep.median_us.saturating_sub(sleep.delta_us / 2);
        RealClock.sleep(Duration::from_micros(shortest + chance % (sleep.delta_us + 1)));
    }
}

/// Runs that many cycles as one client of one round.
pub(super) fn cycles(
    setting: &Setting,
    options: &Options,
    (client, round): (u32, u32),
    count: u32,
) -> Result<Timed, BenchError> {
    let mut sleeper = Sleeper((u64::from(client) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(round));
    let mut timed = Timed::default();
    let mut held = None;
    for cycle in 0..count {
        let mut total = Duration::ZERO;
        let key = u64::from(client) << 32 | u64::from(round * count + cycle);
        if options.open_close {
            sleeper.nap(options.t1);
        }
        let mut opened = match held.take() {
            Some(opened) => opened,
            None => measure(&mut timed.open, &mut total, || Ok(setting.open()))?,
        };
        sleeper.nap(options.t1);
        if !options.open_close {
            sleeper.nap(options.t1);
        }
        transaction(&mut opened, options, key, &mut sleeper, (&mut timed, &mut total))?;
        sleeper.nap(options.t1);
        if options.open_close || cycle + 1 == count {
            measure(&mut timed.close, &mut total, || {
                drop(opened);
                Ok(())
            })?;
        } else {
            held = Some(opened);
        }
        if options.sleeps == 5 {
            sleeper.nap(options.t1);
        }
        timed.total.push(total);
    }
    Ok(timed)
}

fn transaction(
    (client, branches): &mut (Client, [Branch; 2]),
    options: &Options,
    key: u64,
    sleeper: &mut Sleeper,
    (timed, total): (&mut Timed, &mut Duration),
) -> Result<(), BenchError> {
    let [one, two] = branches;
    let (tx, one, two) = measure(&mut timed.begin, total, || {
        let mut tx = client.begin().map_err(|error| BenchError::new(error.kind, error))?;
        let (one, two) = (tx.enlist(one), tx.enlist(two));
        Ok((tx, one, two))
    })?;
    for branch in [&one, &two] {
        branch.work().map_err(|error| BenchError::new(error.kind(), error))?.work(key)?;
    }
    sleeper.nap(options.t2);
    measure(&mut timed.commit, total, || {
        let ended = if options.commit { tx.commit().map(drop) } else { tx.rollback() };
        ended.map_err(|error| BenchError::new(error.kind, error))
    })
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn measure<T>(
    samples: &mut Samples,
    total: &mut Duration,
    call: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let start = Instant::now();
    let done = call()?;
    let took = start.elapsed();
    samples.push(took);
    *total += took;
    Ok(done)
}
