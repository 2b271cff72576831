//! A writer that commits by itself: after so many changes, or so much time.
//!
//! Walk: [`Document::writer`] · [`Writer::change`] makes one change and commits what is due · [`Writer::finish`] commits the rest.
//! Deliberately absent: a timer. Time is looked at with each change, and by [`Writer::commit_due`].

use std::time::Duration;

use assent_world::Moment;

use crate::DocsError;
use crate::document::Document;
use crate::edit::Edit;
use crate::entry::Meta;
use crate::revision::Revision;

/// When a writer commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Every {
    /// After so many changes.
    pub changes: Option<u64>,
    /// When the oldest change is so old.
    pub ms: Option<u64>,
}

/// A writer of a document. It has the document's seat from the first change after a commit to the next commit. Dropped, it has
/// not made what it had not committed.
#[derive(Debug)]
pub struct Writer {
    document: Document,
    every: Every,
    meta: Meta,
    open: Option<(Edit, Moment)>,
    /// Changes since the last commit.
    changes: u64,
}

impl Document {
    /// A writer that commits by itself, and says this of each commit.
    #[must_use]
    pub fn writer(&self, every: Every, meta: Meta) -> Writer {
        Writer { document: self.clone(), every, meta, open: None, changes: 0 }
    }
}

impl Writer {
    /// Makes a change, and commits if it is time.
    ///
    /// # Errors
    /// As [`Document::edit`], as the change, as [`Edit::commit`]. What the change itself has not undone is undone only where nothing is
    /// committed any more: a change that fails half made spoils all since the last commit.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Edit) -> Result<T, DocsError>) -> Result<T, DocsError> {
        let (edit, _) = match &mut self.open {
            Some(open) => open,
            none => none.insert((self.document.edit()?, self.document.store.clock.now())),
        };
        let changed = change(edit)?;
        self.changes += 1;
        self.commit_due()?;
        Ok(changed)
    }

    /// Commits if it is time. Whether it did.
    ///
    /// # Errors
    /// As [`Edit::commit`]: then what was changed since the last commit is gone.
    pub fn commit_due(&mut self) -> Result<bool, DocsError> {
        let Some((_, since)) = &self.open else { return Ok(false) };
        let age = self.document.store.clock.now().since(*since);
        let is_due = self.every.changes.is_some_and(|most| self.changes >= most)
            || self.every.ms.is_some_and(|most| age >= Duration::from_millis(most));
        if is_due {
            self.commit()?;
        }
        Ok(is_due)
    }

    /// Commits what was changed since the last commit, and gives the newest revision.
    ///
    /// # Errors
    /// As [`Writer::commit_due`].
    pub fn commit(&mut self) -> Result<Revision, DocsError> {
        self.changes = 0;
        match self.open.take() {
            Some((edit, _)) => edit.commit(&self.meta),
            None => Ok(self.document.latest()),
        }
    }

    /// Commits the rest.
    ///
    /// # Errors
    /// As [`Writer::commit_due`].
    pub fn finish(mut self) -> Result<Revision, DocsError> {
        self.commit()
    }

    /// Changes that are not committed.
    #[must_use]
    pub const fn uncommitted(&self) -> u64 {
        self.changes
    }
}
