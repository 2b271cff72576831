//! Watching: what is committed to a document after a place that the watcher keeps, also across restarts.
//!
//! Walk: a [`Mark`] names a revision that was seen · [`Document::since`] gives those after it, and waits for the next one where there
//! is none.
//! Deliberately absent: threads, callbacks, and anything that is kept here for a watcher: a mark is all there is.

use std::time::Duration;

use assent_ids::Lsn;

use crate::DocsError;
use crate::document::{Document, Told};
use crate::revision::Revision;

/// A revision that was seen. Its number alone would not do: revisions may be dropped, and others get their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Its number; 0: none was seen.
    pub revision: u32,
    /// Where its commit stands in the journal.
    pub lsn: Lsn,
}

impl Revision {
    /// What [`Document::since`] goes on from.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { revision: self.root.revision, lsn: self.root.entry.lsn() }
    }
}

/// Revisions after a mark, and the mark to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    /// The oldest first; what each of them changed, [`Revision::changes`] says.
    pub revisions: Vec<Told>,
    /// One for each.
    pub marks: Vec<Mark>,
    /// The last of them, or the mark as it was.
    pub mark: Mark,
}

impl Document {
    /// The revisions after a mark, the oldest first, at most so many. Where there is none it waits for one that long; none may have come
    /// then.
    ///
    /// # Errors
    /// [`DocsError::Truncated`] if the marked revision was dropped: whatever was seen since the newest one that is left was taken back.
    /// As the index says.
    pub fn since(&self, mark: Mark, limit: usize, wait: Duration) -> Result<Since, DocsError> {
        let seen = self.doc.head.get().entry.lsn();
        let newest = if mark.lsn == seen { self.doc.wait_for_other(seen, wait) } else { self.doc.head.get() };
        let stands = match mark.revision {
            0 => true,
            revision if revision == newest.revision => mark.lsn == newest.entry.lsn(),
            revision if revision > newest.revision => false,
            revision => self.store.index.row(self.doc.id, revision)?.is_some_and(|row| row.entry.lsn() == mark.lsn),
        };
        if !stands {
            let (name, newest) = (self.doc.name.to_string(), newest.revision);
            return Err(DocsError::Truncated { name, revision: mark.revision, newest });
        }
        let most = u32::try_from(limit).unwrap_or(u32::MAX);
        let to = mark.revision.saturating_add(most).min(newest.revision);
        let mut rows = self.store.index.rows(self.doc.id, mark.revision.saturating_add(1)..=to, limit)?;
        rows.reverse();
        let marks: Vec<Mark> = rows.iter().map(|row| Mark { revision: row.revision, lsn: row.entry.lsn() }).collect();
        let mark = marks.last().copied().unwrap_or(mark);
        Ok(Since { revisions: rows.into_iter().map(Told::from).collect(), marks, mark })
    }
}
