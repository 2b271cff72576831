//! A graceful stop: take nothing new, finish what is under way, but not for longer than a given time.
//!
//! Walk: [`Drain::begin`] once · desks look at [`Drain::until`] each turn · helper threads wait by [`Drain::sleep`],
//! which a stop cuts short.

use std::sync::OnceLock;
use std::time::Duration;

use assent_world::{Gate, Moment};

/// Whether a listener is stopping, and by when it must have stopped.
#[derive(Debug, Default)]
pub struct Drain {
    // 0 runs, 1 drains; the word that helper threads wait at.
    gate: Gate,
    until: OnceLock<Moment>,
}

impl Drain {
    /// Begins the stop; what is not finished by then is dropped. A second call changes nothing. Whoever sleeps at a
    /// socket must be woken by the caller.
    pub fn begin(&self, now: Moment, within: Duration) {
        _ = self.until.set(now.after(within));
        self.gate.set(1);
        self.gate.wake_all();
    }

    /// By when all must have ended, once a stop has begun.
    #[must_use]
    pub fn until(&self) -> Option<Moment> {
        self.until.get().copied()
    }

    /// Waits that long, or until a stop begins. Says whether to go on.
    #[must_use]
    pub fn sleep(&self, pause: Duration) -> bool {
        if self.gate.value() == 0 {
            self.gate.wait(0, Some(pause));
        }
        self.gate.value() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_cuts_every_sleep_short_and_its_time_is_set_once() {
        let drain = Drain::default();
        assert_eq!(drain.until(), None);
        assert!(drain.sleep(Duration::from_millis(1)), "nothing has stopped yet");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| while drain.sleep(Duration::from_secs(3600)) {});
            drain.begin(Moment(5), Duration::from_micros(7));
            assert!(sleeper.join().is_ok());
        });
        drain.begin(Moment(1000), Duration::from_secs(1));
        assert_eq!(drain.until(), Some(Moment(12)));
    }
}
