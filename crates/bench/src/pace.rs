//! When a client acts: think times of a closed loop, and the schedule of an open one.

use std::time::Duration;

/// A think time, uniform in [median - delta/2, median + delta/2]; a median of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// The middle.
    pub median_us: u64,
    /// From the shortest to the longest.
    pub delta_us: u64,
}

/// Draws think times that nobody can foresee but everybody can have again (xorshift64*: Vigna, 2016).
#[derive(Clone, Debug)]
pub struct Thinker(u64);

impl Thinker {
    /// Another sequence for each seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // Never zero: xorshift would stay there.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One think time.
    pub fn draw(&mut self, think: Think) -> Duration {
        if think.median_us == 0 {
            return Duration::ZERO;
        }
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let chance = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        let shortest = think.median_us.saturating_sub(think.delta_us / 2);
        Duration::from_micros(shortest + chance % (think.delta_us + 1))
    }
}

/// The schedule of one client of an open loop: begins at a fixed rate, whatever the answers do.
///
/// A call counts from the instant it was meant to begin, also when the client was late since an earlier answer was: what
/// waited behind a slow answer is in the figures (no coordinated omission).
#[derive(Clone, Debug)]
pub struct OpenLoop {
    per_s: f64,
    clients: u32,
    next: u64,
}

impl OpenLoop {
    /// The client `client` of `clients` that together begin `per_s` calls each second.
    #[must_use]
    pub fn new(per_s: f64, client: u32, clients: u32) -> Self {
        Self { per_s: per_s.max(1e-6), clients: clients.max(1), next: u64::from(client) }
    }

    /// When the next call is meant to begin, from the start of the race. Never drifts: it is the number of the call over
    /// the rate.
    #[expect(clippy::cast_precision_loss, reason = "calls below 2^52")]
    pub fn next_at(&mut self) -> Duration {
        let at = Duration::from_secs_f64(self.next as f64 / self.per_s);
        self.next += u64::from(self.clients);
        at
    }
}
