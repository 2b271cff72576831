//! One word to wait at: a futex, which costs nothing while nobody waits.
//!
//! Not a condition variable: waking sixty-four waiters would send each through one mutex again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

/// A number that threads can wait on to change.
#[derive(Debug, Default)]
pub struct Gate {
    word: AtomicU32,
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
        _ = futex::wait(&self.word, futex::Flags::PRIVATE, seen, timeout.as_ref());
    }

    /// Wakes at most that many sleepers.
    pub fn wake(&self, most: u32) {
        _ = futex::wake(&self.word, futex::Flags::PRIVATE, most);
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
    }
}
