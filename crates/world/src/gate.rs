//! One word to wait at: a futex, which costs nothing while nobody waits, not even who wakes.
//!
//! Not a condition variable: waking sixty-four waiters would send each through one mutex again.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

/// A number that threads can wait on to change.
#[derive(Debug, Default)]
pub struct Gate {
    word: AtomicU32,
    /// Who sleeps, or is about to.
    waiting: AtomicU32,
}

impl Gate {
    /// The number now.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Changes the number; wake whoever must see it afterwards.
    pub fn set(&self, value: u32) {
        self.word.store(value, Ordering::Release);
    }

    /// Changes the number to the next one, however many threads do so at once; wake whoever must see it afterwards.
    pub fn bump(&self) {
        self.word.fetch_add(1, Ordering::AcqRel);
    }

    /// Sleeps while the number is `seen`, or until `at_most` has passed. May wake for nothing: look again.
    pub fn wait(&self, seen: u32, at_most: Option<Duration>) {
        let timeout = at_most.and_then(|pause| rustix::time::Timespec::try_from(pause).ok());
        // Every error (changed already, signal, timeout) means: look again.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        _ = futex::wait(&self.word, futex::Flags::PRIVATE, seen, timeout.as_ref());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes at most that many sleepers.
    pub fn wake(&self, most: u32) {
        // The number was changed before; who is not counted here yet finds that out before he sleeps.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            _ = futex::wake(&self.word, futex::Flags::PRIVATE, most);
        }
    }

    /// Wakes all sleepers.
    pub fn wake_all(&self) {
        self.wake(i32::MAX.unsigned_abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_number_lets_all_sleepers_through() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while gate.value() == 0 {
                        gate.wait(0, None);
                    }
                });
            }
            gate.set(1);
            gate.wake_all();
        });
        gate.wait(0, None);
        gate.wait(1, Some(Duration::from_millis(1)));
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0, "nobody is left behind");
    }

    #[test]
    fn of_two_that_wait_for_each_other_none_sleeps_on() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            for own in 0..2 {
                let gate = &gate;
                scope.spawn(move || {
                    for turn in (own..40_000).step_by(2) {
                        while let seen = gate.value()
                            && seen != turn
                        {
                            gate.wait(seen, None);
                        }
                        gate.set(turn + 1);
                        gate.wake(1);
                    }
                });
            }
        });
        assert_eq!(gate.value(), 40_000);
    }
}
