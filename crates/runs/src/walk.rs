//! A walk over a range of keys, from its front, from its back, or from both until they meet.
//!
//! Walk: [`Walk::next`] and [`Walk::prev`] each move a [`Merged`] of their own over all sources of the view, made when it is
//! first asked · tombstones and what was erased are stepped over · no key is given twice.
//! Deliberately absent: values of other rooms; an entry is what the map holds.

use std::ops::Bound;

use crate::RunsError;
use crate::entry::{Cursor, Entry};
use crate::merged::Merged;
use crate::version::Version;
use crate::view::Found;

/// A walk over keys in order.
#[derive(Debug)]
pub struct Walk<'v> {
    version: &'v Version,
    seq: u64,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    front: Option<Merged>,
    back: Option<Merged>,
    /// So many entries that nobody sees may still be stepped over.
    passes: u64,
    gave_up: bool,
    /// They have met, or an error ended it. Until then each end stands on what it gave last: beyond that the other does not go.
    is_done: bool,
}

impl<'v> Walk<'v> {
    pub(crate) const fn new(version: &'v Version, seq: u64, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { version, seq, from, to, front: None, back: None, passes: u64::MAX, gave_up: false, is_done: false }
    }

    /// The same walk, but it gives up, and gives nothing more, rather than step over more entries than these that nobody sees: tombstones,
    /// and what a range has erased. There may be any number of them between two keys.
    #[must_use]
    pub fn within(self, passes: u64) -> Self {
        Self { passes, ..self }
    }

    /// How many more it may step over.
    #[must_use]
    pub const fn passes_left(&self) -> u64 {
        self.passes
    }

    /// Whether it gave nothing more because there were too many: there may be keys behind them.
    #[must_use]
    pub const fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Counts one that its caller steps over. False if it gives up with that.
    pub const fn pass(&mut self) -> bool {
        match self.passes.checked_sub(1) {
            Some(left) => self.passes = left,
            None => (self.gave_up, self.is_done) = (true, true),
        }
        !self.gave_up
    }

    /// The next key from the front; nothing behind the last, or where the back has been.
    ///
    /// # Errors
    /// `Damaged` naming file and place; as the disk says. It ends the walk; another may go around.
    #[expect(clippy::should_implement_trait, reason = "an error ends it: whoever wants an iterator transposes")]
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, Found)>, RunsError> {
        Ok(self.next_entry()?.and_then(given))
    }

    /// The same where it stands: without a copy.
    ///
    /// # Errors
    /// As [`Walk::next`].
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, RunsError> {
        if !self.is_done {
            self.is_done = true;
            self.is_done = !self.forth()?;
        }
        Ok(self.front.as_ref().filter(|_| !self.is_done).and_then(Merged::entry))
    }

    /// The next key from the back; nothing before the first, or where the front has been.
    ///
    /// # Errors
    /// As [`Walk::next`].
    pub fn prev(&mut self) -> Result<Option<(Vec<u8>, Found)>, RunsError> {
        if !self.is_done {
            self.is_done = true;
            self.is_done = !self.back()?;
        }
        Ok(self.back.as_ref().filter(|_| !self.is_done).and_then(Merged::entry).and_then(given))
    }

    /// Moves the front to what it gives next; false if there is nothing.
    fn forth(&mut self) -> Result<bool, RunsError> {
        let Self { version, seq, from, to, front, back, passes, gave_up, .. } = self;
        let cursor = match front {
            Some(cursor) => {
                cursor.next()?;
                cursor
            }
            None => {
                let cursor = front.insert(Merged::new(version.cursors(*seq)));
                match &*from {
                    Bound::Unbounded => cursor.seek(&[])?,
                    Bound::Included(key) => cursor.seek(key)?,
                    Bound::Excluded(key) => {
                        cursor.seek(key)?;
                        if cursor.entry().is_some_and(|entry| entry.key == key.as_slice()) {
                            cursor.next()?;
                        }
                    }
                }
                cursor
            }
        };
        while let Some(entry) = cursor.entry() {
            let is_behind = match &*to {
                Bound::Unbounded => false,
                Bound::Included(key) => entry.key > key.as_slice(),
                Bound::Excluded(key) => entry.key >= key.as_slice(),
            };
            if is_behind || given_last(back).is_some_and(|last| entry.key >= last) {
                return Ok(false);
            }
            if is_seen(version, &entry) {
                return Ok(true);
            }
            let Some(left) = passes.checked_sub(1) else {
                *gave_up = true;
                return Ok(false);
            };
            *passes = left;
            cursor.next()?;
        }
        Ok(false)
    }

    /// Moves the back to what it gives next; false if there is nothing.
    fn back(&mut self) -> Result<bool, RunsError> {
        let Self { version, seq, from, to, front, back, passes, gave_up, .. } = self;
        let cursor = match back {
            Some(cursor) => {
                cursor.prev()?;
                cursor
            }
            None => {
                let cursor = back.insert(Merged::new(version.cursors(*seq)));
                match &*to {
                    Bound::Unbounded => cursor.seek_back(None)?,
                    Bound::Included(key) => cursor.seek_back(Some(key))?,
                    Bound::Excluded(key) => {
                        cursor.seek_back(Some(key))?;
                        if cursor.entry().is_some_and(|entry| entry.key == key.as_slice()) {
                            cursor.prev()?;
                        }
                    }
                }
                cursor
            }
        };
        while let Some(entry) = cursor.entry() {
            let is_before = match &*from {
                Bound::Unbounded => false,
                Bound::Included(key) => entry.key < key.as_slice(),
                Bound::Excluded(key) => entry.key <= key.as_slice(),
            };
            if is_before || given_last(front).is_some_and(|last| entry.key <= last) {
                return Ok(false);
            }
            if is_seen(version, &entry) {
                return Ok(true);
            }
            let Some(left) = passes.checked_sub(1) else {
                *gave_up = true;
                return Ok(false);
            };
            *passes = left;
            cursor.prev()?;
        }
        Ok(false)
    }
}

/// What an end gave last.
fn given_last(end: &Option<Merged>) -> Option<&[u8]> {
    end.as_ref().and_then(Merged::entry).map(|entry| entry.key)
}

fn given(Entry { key, seq, value }: Entry<'_>) -> Option<(Vec<u8>, Found)> {
    Some((key.to_vec(), Found { seq, value: value?.to_vec() }))
}

/// Whether an entry is a value, and no range erased it later.
fn is_seen(version: &Version, entry: &Entry<'_>) -> bool {
    entry.value.is_some() && version.erased.over(entry.key) <= entry.seq
}
