//! What the map is made of: entries, ranges that were erased, and cursors over sorted sources.
//!
//! Walk: an [`Entry`] is what a key became at a place in the owner's order · a [`Range`] erases all that is older in it · a
//! [`Cursor`] walks one source in the order of its keys, both ways, and shows each key once.

use crate::RunsError;

/// What a key became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key; keys are ordered by their bytes.
    pub key: &'a [u8],
    /// The place in the owner's order at which it became that. A key becomes one thing at a place.
    pub seq: u64,
    /// The value; `None`: it was deleted (a tombstone).
    pub value: Option<&'a [u8]>,
}

/// A range that was erased: every entry of a key in it with a smaller `seq` is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key of it.
    pub from: Vec<u8>,
    /// The first key behind it; `None`: there is none.
    pub to: Option<Vec<u8>>,
    /// The place in the owner's order.
    pub seq: u64,
}

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The key has none.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// No key from here on has one, as of before this batch: what the batch itself puts stays.
    Erase {
        /// The first key.
        from: &'a [u8],
        /// The first key that is not erased; `None`: there is none.
        to: Option<&'a [u8]>,
    },
}

/// A walk over one sorted source. It stands on an entry or nowhere; it shows each key once, as its newest entry.
pub(crate) trait Cursor: Send {
    /// To the first entry at this key or behind it.
    ///
    /// # Errors
    /// As the disk says; `Damaged` naming file and place. It stands nowhere then; so for all below.
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError>;

    /// To the last entry at this key or before it; to the last of all without one.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError>;

    /// To the next one; nowhere behind the last.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn next(&mut self) -> Result<(), RunsError>;

    /// To the one before; nowhere before the first.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    fn prev(&mut self) -> Result<(), RunsError>;

    /// Where it stands.
    fn entry(&self) -> Option<Entry<'_>>;

    /// The key of that: most of a walk over many sources is to compare keys.
    fn key(&self) -> Option<&[u8]>;

    /// The place of that in the owner's order.
    fn seq(&self) -> Option<u64>;
}
