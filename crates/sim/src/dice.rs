//! Chance that can be had again: the same seed, the same rolls.

use std::sync::atomic::{AtomicU64, Ordering};

use assent_world::Dice;

/// A seeded generator for workloads (splitmix64: one word of state, good enough to choose with).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Sixty-four bits.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `end`; zero if `end` is.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of a remainder is nothing to a choice among a few.
        self.roll().checked_rem(end).unwrap_or(0)
    }

    /// A number from `start` to before `end`.
    pub fn range(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start.saturating_add(self.below(range.end.saturating_sub(range.start)))
    }

    /// An index into that many things; zero if there are none.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    pub(crate) fn digit(&mut self, digits: u32) -> u32 {
        u32::try_from(self.below(u64::from(digits))).unwrap_or(0)
    }
}

const fn scramble(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The door's form of it: shared by many threads, so that only a single-threaded run is the same again.
#[derive(Debug)]
pub struct SimDice(AtomicU64);

impl SimDice {
    /// The same seed gives the same rolls.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        SimDice(AtomicU64::new(seed))
    }
}

impl Dice for SimDice {
    fn roll(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        scramble(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_rolls_the_same() {
        let dice = SimDice::new(7);
        let mut rng = Rng::new(7);
        let rolls: Vec<u64> = (0..8).map(|_| dice.roll()).collect();
        assert_eq!(rolls, (0..8).map(|_| rng.roll()).collect::<Vec<_>>());
        assert_ne!(rolls.first(), Some(&SimDice::new(8).roll()));
        assert!((0..100).all(|_| (5..9).contains(&rng.range(5..9))));
        assert_eq!((rng.below(0), rng.index(0), rng.range(3..3)), (0, 0, 3));
    }
}
