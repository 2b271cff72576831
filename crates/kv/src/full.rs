//! Memory is full, or there are too many dead values: writers say so, and whoever ticks, or works, hears of it at once and not when his time is
//! over.
//!
//! Walk: [`Full::tell`] with each write that finds it so; the first of them wakes · [`Full::hears`] when a tick begins, [`Full::forget`] when
//! it has ended well: the next full memory is told again. After a failure it is not, so that who rests is left alone · [`Full::wait`].

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use assent_world::Gate;

#[derive(Debug, Default)]
pub(crate) struct Full {
    gate: Gate,
    is_told: AtomicBool,
    /// What the gate said when the last tick began.
    heard: AtomicU32,
}

impl Full {
    pub(crate) fn tell(&self) {
        // Looked at first: many find it full, and one changes it.
        if !self.is_told.load(Ordering::Relaxed) && !self.is_told.swap(true, Ordering::AcqRel) {
            self.gate.bump();
            self.gate.wake(1);
        }
    }

    pub(crate) fn hears(&self) {
        self.heard.store(self.gate.value(), Ordering::Relaxed);
    }

    pub(crate) fn forget(&self) {
        self.is_told.store(false, Ordering::Release);
    }

    /// Until somebody tells, or for so long; not at all if somebody told since the last tick began.
    pub(crate) fn wait(&self, at_most: Duration) {
        self.gate.wait(self.heard.load(Ordering::Relaxed), Some(at_most));
    }

    /// Whether it would not sleep.
    #[cfg(test)]
    pub(crate) fn is_awake(&self) -> bool {
        self.gate.value() != self.heard.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use assent_world::{Clock, RealClock};

    use super::*;

    #[test]
    fn the_first_who_finds_it_full_wakes_and_nobody_else_until_that_was_dealt_with() {
        let (full, clock) = (Full::default(), RealClock);
        let bumps = |full: &Full| full.gate.value();
        let waited = |at_most: Duration| {
            let from = clock.now();
            full.wait(at_most);
            clock.now().since(from)
        };
        let (ever, at_once) = (Duration::from_secs(60), Duration::from_secs(30));
        full.hears();
        full.tell();
        full.tell();
        assert_eq!(bumps(&full), 1);
        // Told since: it does not sleep.
        assert!(waited(ever) < at_once);
        full.hears();
        full.tell();
        assert_eq!(bumps(&full), 1, "nobody has dealt with it");
        let rest = Duration::from_millis(50);
        assert!(waited(rest) >= rest, "it was heard: it sleeps");
        full.forget();
        full.tell();
        assert_eq!(bumps(&full), 2);
        assert!(waited(ever) < at_once);
    }
}
