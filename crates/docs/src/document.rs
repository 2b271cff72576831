//! A document: its name, its newest revision, the seat of its one writer.
//!
//! Walk: [`Document::latest`], [`Document::at`], [`Document::as_of`] open a revision, [`Document::history`] lists them, without
//! a lock · [`Document::edit`] takes the writer's seat.
//! Deliberately absent: the order of commits of several documents.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use assent_ids::Lsn;

use crate::edit::Edit;
use crate::entry::Root;
use crate::index::Row;
use crate::revision::Revision;
use crate::store::Store;
use crate::{DocsError, Versioning};

/// What the handles of one document share.
#[derive(Debug)]
pub(crate) struct Doc {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) versioning: Versioning,
    /// The newest revision that is visible: it is durable.
    pub(crate) head: ArcSwap<Root>,
    seat: Mutex<bool>,
    left: Condvar,
}

impl Doc {
    pub(crate) fn new(id: u64, name: Arc<str>, versioning: Versioning, head: Root) -> Self {
        let head = ArcSwap::from_pointee(head);
        Self { id, name, versioning, head, seat: Mutex::new(false), left: Condvar::new() }
    }

    pub(crate) fn damaged(&self, revision: u32, lsn: Lsn, what: impl fmt::Display) -> DocsError {
        DocsError::Damaged { document: Arc::clone(&self.name), revision, page: None, lsn, what: what.to_string() }
    }
}

/// The writer's seat of a document, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(pub(crate) Arc<Doc>);

impl Seat {
    /// Takes the seat, or waits for it that long.
    pub(crate) fn take(doc: &Arc<Doc>, wait_ms: u64) -> Result<Self, DocsError> {
        let taken = doc.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let at_most = Duration::from_millis(wait_ms);
        let (mut taken, _) =
            doc.left.wait_timeout_while(taken, at_most, |taken| *taken).unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return Err(DocsError::Busy { name: doc.name.to_string(), waited_ms: wait_ms });
        }
        *taken = true;
        Ok(Self(Arc::clone(doc)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *self.0.seat.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.left.notify_one();
    }
}

/// One revision in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number.
    pub revision: u32,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Who committed it.
    pub author: String,
    /// Why.
    pub message: String,
}

impl From<Row> for Told {
    fn from(row: Row) -> Self {
        Self { revision: row.revision, time_ms: row.time_ms, author: row.author, message: row.message }
    }
}

/// A document of a database. Clones are the same document; all methods may be called from many threads.
#[derive(Clone, Debug)]
pub struct Document {
    pub(crate) store: Arc<Store>,
    pub(crate) doc: Arc<Doc>,
}

impl Document {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.doc.name
    }

    /// How its pages are versioned.
    #[must_use]
    pub fn versioning(&self) -> Versioning {
        self.doc.versioning
    }

    /// The newest revision. Before the first commit that is revision 0, which is empty.
    #[must_use]
    pub fn latest(&self) -> Revision {
        Revision::of(self, self.doc.head.load_full())
    }

    /// The revision of that number.
    ///
    /// # Errors
    /// [`DocsError::NoRevision`]; [`DocsError::Damaged`] if its commit cannot be read.
    pub fn at(&self, revision: u32) -> Result<Revision, DocsError> {
        let head = self.doc.head.load_full();
        if revision > head.revision {
            return Err(self.none(revision));
        }
        let root = match revision {
            0 => Arc::new(Root::empty(self.doc.id)),
            revision if revision == head.revision => head,
            revision => self.store.root(&self.doc, revision, || self.none(revision))?,
        };
        Ok(Revision::of(self, root))
    }

    fn none(&self, revision: u32) -> DocsError {
        let newest = self.doc.head.load().revision;
        DocsError::NoRevision { name: self.doc.name.to_string(), revision: revision.into(), newest }
    }

    /// The revision that was the newest at that time (milliseconds since 1970); revision 0 before the first.
    ///
    /// # Errors
    /// As [`Document::at`].
    pub fn as_of(&self, time_ms: u64) -> Result<Revision, DocsError> {
        let head = self.doc.head.load_full();
        if head.time_ms <= time_ms {
            return Ok(Revision::of(self, head));
        }
        // Times never go back: the last revision that is not after it.
        let (mut from, mut to) = (0, head.revision);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            let row = self.store.index.row(self.doc.id, middle)?.ok_or_else(|| self.none(middle))?;
            if row.time_ms <= time_ms { from = middle } else { to = middle }
        }
        self.at(from)
    }

    /// Revisions of a range, the newest first, at most so many.
    ///
    /// # Errors
    /// As the index says.
    pub fn history(&self, revisions: RangeInclusive<u32>, limit: usize) -> Result<Vec<Told>, DocsError> {
        // What is not yet visible to a reader of the document is not in its history.
        let newest = self.doc.head.load().revision;
        let revisions = *revisions.start()..=(*revisions.end()).min(newest);
        Ok(self.store.index.rows(self.doc.id, revisions, limit)?.into_iter().map(Told::from).collect())
    }

    /// Begins a change of the newest revision. Waits for another writer, for as long as the configuration says.
    ///
    /// # Errors
    /// [`DocsError::Busy`]; [`DocsError::NoDocument`] if it was dropped; [`DocsError::InDoubt`] if the journal failed under an earlier
    /// commit.
    pub fn edit(&self) -> Result<Edit, DocsError> {
        // Who has appended a commit may have gone without waiting for it.
        self.store.settle(&self.doc)?;
        let seat = Seat::take(&self.doc, self.store.config.writer_wait_ms)?;
        match self.store.index.name(&self.doc.name)? {
            Some(named) if named.document == self.doc.id => Ok(Edit::begin(Arc::clone(&self.store), seat)),
            _ => Err(DocsError::NoDocument { name: self.doc.name.to_string() }),
        }
    }
}
