//! Chance as a door: salts, node ids, secrets.

use std::fmt::Debug;

/// A source of bits that nobody can foresee.
pub trait Dice: Send + Sync + Debug {
    /// Sixty-four of them.
    fn roll(&self) -> u64;
}

/// The operating system's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDice;

impl Dice for RealDice {
    #[expect(clippy::expect_used, reason = "without chance no salt and no secret is safe: better no process")]
    fn roll(&self) -> u64 {
        getrandom::u64().expect("the operating system gives random bits")
    }
}
