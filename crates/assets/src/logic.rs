//! Business logic: what a call does, as a function of the state and its input alone.
//!
//! It has no state of its own: what it must remember stands in assets and notes, so that it is replicated, snapshotted,
//! hashed and undone with them. It reads no clock and rolls no dice: the time is the command's, the same on every member.
//! Walk: register it in [`Logics`] under a number · a call runs it on a [`Work`](crate::Work) · what it
//! changed is undone if it refuses. `examples/order_book.rs` is one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::refusal::Refusal;
use crate::work::Work;

/// One kind of call.
pub trait Logic: Send + Sync {
    /// Does it. What it lays into `output` is the caller's answer. Where it panics, that is a refusal ([`Refusal::Panicked`]).
    ///
    /// # Errors
    /// Why not. Then nothing that it did remains.
    fn run(&self, work: &mut Work<'_>, input: &[u8], output: &mut Vec<u8>) -> Result<(), Refusal>;
}

/// The business logic of a server. Every member of a group has the same, or their states part.
#[derive(Clone, Default)]
pub struct Logics(BTreeMap<u16, Arc<dyn Logic>>);

impl Logics {
    /// Under this number, in the place of what was there.
    #[must_use]
    pub fn with(mut self, number: u16, logic: Arc<dyn Logic>) -> Self {
        self.0.insert(number, logic);
        self
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> + use<'_> {
        self.0.keys().copied()
    }

    pub(crate) fn get(&self, number: u16) -> Option<&Arc<dyn Logic>> {
        self.0.get(&number)
    }
}

impl fmt::Debug for Logics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
