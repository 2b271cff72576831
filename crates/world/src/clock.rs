//! Time as a door.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since some fixed point of this run; never goes back, says nothing to another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This moment and that much later.
    #[must_use]
    pub fn after(self, pause: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// What time it is.
pub trait Clock: Send + Sync + Debug {
    /// The monotonic time.
    fn now(&self) -> Moment;
    /// Milliseconds since 1970, as the operator's clock says: for people, never for decisions.
    fn wall_ms(&self) -> u64;
    /// Waits.
    fn sleep(&self, pause: Duration);
    /// How long processors have worked for this process so far, all of its threads together; none where that is not known.
    fn worked(&self) -> Option<Duration> {
        None
    }
    /// Names this run of the operating system: another value means that the page cache was lost in between.
    fn boot_id(&self) -> u128;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Clock for RealClock {
    fn now(&self) -> Moment {
        static START: OnceLock<Instant> = OnceLock::new();
        let start = START.get_or_init(Instant::now);
        Moment(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }

    fn worked(&self) -> Option<Duration> {
        rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().ok()
    }

    fn boot_id(&self) -> u128 {
        let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_hexdigit).collect();
        // An unreadable id is zero: then every open counts as the first of its boot, which only costs a check.
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_the_boot_has_a_name() {
        let before = RealClock.now();
        RealClock.sleep(Duration::from_millis(1));
        assert!(RealClock.now().since(before) >= Duration::from_millis(1));
        let worked = RealClock.worked().unwrap();
        while RealClock.worked().unwrap() < worked + Duration::from_millis(2) {}
        assert_eq!(RealClock.boot_id(), RealClock.boot_id());
        assert_ne!(RealClock.boot_id(), 0);
        assert_eq!(Moment(5).since(Moment(9)), Duration::ZERO);
    }
}
