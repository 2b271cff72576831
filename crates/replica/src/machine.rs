//! What a group's log leads to.

use std::io;

use assent_membership::Sequence;

/// As many bytes as one chunk of a state has at most.
pub const CHUNK_BYTES_MAX: usize = assent_frame::PAYLOAD_BYTES_MAX;

/// Takes the chunks of a state; what it says ends the laying.
pub type Put<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;
/// Gives the chunks of a state, each as it was laid; none after the last.
pub type Next<'a> = &'a mut dyn FnMut() -> Option<Vec<u8>>;

/// A state machine. The same commands in the same order make the same state, the same answers and the same hash on every member:
/// it reads no clock, rolls no dice and asks nobody.
///
/// A request that a client sent again stands in the log again: whether it was executed is for the machine to know.
pub trait Machine: Send + Sized + 'static {
    /// All state at one moment, for a snapshot: another thread lays it in bytes while commands go on.
    type View: Send + 'static;

    /// Executes the command that the log holds there, and lays the answer for whoever waits behind what `answer` has.
    ///
    /// # Errors
    /// Why no primary lays such a command: the member stops, and says so.
    fn apply(&mut self, at: Sequence, kind: u16, command: &[u8], answer: &mut Vec<u8>) -> Result<(), String>;

    /// How many commands an entry holds, as its first bytes say: snapshots, displays and the length of a turn count these.
    #[must_use]
    fn commands(kind: u16, command: &[u8]) -> u64 {
        _ = (kind, command);
        1
    }

    /// A hash of the state, kept by each change: asking costs next to nothing.
    fn hash(&self) -> u64;

    /// The state as it is now. On the thread that orders: be short.
    fn view(&self) -> Self::View;

    /// The state of a view in bytes, in chunks of 1 to [`CHUNK_BYTES_MAX`]. On another thread.
    ///
    /// # Errors
    /// What `put` says.
    fn lay(view: &Self::View, put: Put<'_>) -> io::Result<()>;

    /// One before its first command, with the same settings.
    fn empty(&self) -> Self;

    /// Becomes the state of these chunks; called once, before the first command, perhaps on another thread.
    ///
    /// # Errors
    /// What is wrong with them.
    fn load(&mut self, next: Next<'_>) -> Result<(), String>;
}
