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
