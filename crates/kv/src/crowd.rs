//! Writers that wait for the same compactions, many more than there are processors.
//!
//! What they wait for comes in turn: a delay, the desk, the log. Each of these sleeps would end when all others, readers most of all, have had their
//! turn at a core, and the longest put is the sum. So those of a crowd are let in soon, from the begin of a write to its end. All of them: beside
//! some alone, whoever writes for the others would lose his core to each whom he wakes.
//!
//! Walk: [`Crowd::enter`] for each such write, and what it answers is dropped with the write.
//! Deliberately absent: writers that nothing holds up, and those that have cores enough. For them it would be four system calls and nothing more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use assent_world::{Soon, soon};

/// So many writers for each processor are a crowd.
const CROWD: usize = 2;

/// How many are about it.
#[derive(Debug, Default)]
pub(crate) struct Crowd(AtomicUsize);

/// One of them, until it is dropped.
#[derive(Debug)]
#[must_use = "it is over when it is dropped"]
pub(crate) struct Among<'c> {
    crowd: &'c Crowd,
    turn: Option<Soon>,
}

impl Crowd {
    /// One more.
    pub(crate) fn enter(&self) -> Among<'_> {
        let others = self.0.fetch_add(1, Ordering::Relaxed);
        Among { crowd: self, turn: (others >= CROWD * processors()).then(soon) }
    }
}

impl Among<'_> {
    /// Whether he is one of a crowd, and is let in soon.
    #[cfg(test)]
    pub(crate) const fn is_crowded(&self) -> bool {
        self.turn.is_some()
    }
}

impl Drop for Among<'_> {
    fn drop(&mut self) {
        self.turn = None;
        self.crowd.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many there are.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_twice_as_many_as_there_are_processors_and_who_leaves_counts_no_more() {
        let (crowd, most) = (Crowd::default(), CROWD * processors());
        let mut few: Vec<Among<'_>> = (0..most).map(|_| crowd.enter()).collect();
        assert!(few.iter().all(|one| !one.is_crowded()));
        assert!(crowd.enter().is_crowded(), "{most} are there");
        few.pop();
        assert!(!crowd.enter().is_crowded());
        drop(few);
        assert_eq!(crowd.0.load(Ordering::Relaxed), 0);
    }
}
