//! What a group's log leads to.

use assent_membership::Sequence;

/// A state machine. The same commands in the same order make the same state, the same answers and the same hash on every member:
/// it reads no clock, rolls no dice and asks nobody.
///
/// A request that a client sent again stands in the log again: whether it was executed is for the machine to know.
pub trait Machine: Send + 'static {
    /// Executes the command that the log holds there. Returns the answer for whoever waits.
    fn apply(&mut self, at: Sequence, kind: u16, command: &[u8]) -> Vec<u8>;

    /// A hash of the state.
    fn hash(&self) -> u64;

    /// The state in bytes.
    fn save(&self) -> Vec<u8>;

    /// Becomes the state of these bytes; without any, the one before the first command.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn load(&mut self, state: &[u8]) -> Result<(), String>;
}
