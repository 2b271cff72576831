//! A document: its name, its newest revision, the seat of its one writer.
//!
//! Walk: [`Document::latest`], [`Document::at`], [`Document::as_of`] open a revision, [`Document::history`] lists them, without
//! a lock · [`Document::edit`] takes the writer's seat.
//! Deliberately absent: the order of commits of several documents.

mod history;
mod newest;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_ids::Lsn;
use assent_world::Moment;

use self::newest::Newest;
use crate::edit::Edit;
use crate::entry::Root;
use crate::index::Row;
use crate::path::PathId;
use crate::paths::{Kept, There};
use crate::revision::Revision;
use crate::store::Store;
use crate::trie::Tree;
use crate::{DocsError, Versioning};

/// What the handles of one document share.
#[derive(Debug)]
pub(crate) struct Doc {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) versioning: Versioning,
    /// Why nobody gets its newest revision, of which the head has nothing but what the index says: its commit cannot be read.
    pub(crate) withheld: Option<DocsError>,
    /// The newest revision that is visible: it is durable.
    pub(crate) head: Newest<Root>,
    seat: Mutex<Taken>,
    left: Condvar,
    /// The paths of some revision, most likely of the newest.
    paths: Mutex<Option<Kept>>,
    /// How many wait for another newest revision.
    watched: Mutex<u32>,
    shown: Condvar,
    /// It was dropped, durably.
    pub(crate) is_gone: AtomicBool,
}

/// The writer's seat, and how many wait for it: to wake nobody costs a call of the kernel too.
#[derive(Debug)]
struct Taken {
    by: Seated,
    waiting: u32,
}

/// Who has the writer's seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seated {
    Nobody,
    Writer,
    /// Its commit is appended: the seat is free once that is visible, and whoever wants it can see to that.
    Leaving,
}

impl Doc {
    pub(crate) fn new(id: u64, name: Arc<str>, versioning: Versioning, head: Root) -> Self {
        let head = Newest::new(head);
        Self {
            id,
            name,
            versioning,
            withheld: None,
            head,
            seat: Mutex::new(Taken { by: Seated::Nobody, waiting: 0 }),
            left: Condvar::new(),
            paths: Mutex::default(),
            watched: Mutex::default(),
            shown: Condvar::new(),
            is_gone: AtomicBool::new(false),
        }
    }

    pub(crate) fn withheld(name: Arc<str>, versioning: Versioning, head: Root, why: DocsError) -> Self {
        Self { withheld: Some(why), ..Self::new(head.document, name, versioning, head) }
    }

    pub(crate) fn take_paths(&self) -> Option<Kept> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What is known of these paths.
    pub(crate) fn known_paths(&self, tree: &Tree, next: PathId) -> Option<There> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.of(tree, next)
    }

    pub(crate) fn keep_paths(&self, kept: Kept) {
        *self.paths.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// This is the newest revision from here on.
    pub(crate) fn show(&self, root: Arc<Root>) {
        self.head.show(root);
        // Who has looked in vain waits by now, or has not looked yet.
        let watched = *self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched > 0 {
            self.shown.notify_all();
        }
    }

    /// The newest revision; waits that long for another one than the commit there.
    pub(crate) fn wait_for_other(&self, seen: Lsn, wait: Duration) -> Arc<Root> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        *watched += 1;
        let is_same = |_: &mut u32| self.head.get().entry.lsn() == seen;
        let waited = self.shown.wait_timeout_while(watched, wait, is_same);
        let (mut watched, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *watched -= 1;
        drop(watched);
        self.head.get()
    }

    fn seat(&self) -> MutexGuard<'_, Taken> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn damaged(&self, revision: u32, lsn: Lsn, what: impl fmt::Display) -> DocsError {
        DocsError::Damaged { document: Arc::clone(&self.name), revision, page: None, lsn, what: what.to_string() }
    }
}

/// The writer's seat of a document, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(pub(crate) Arc<Doc>);

impl Seat {
    /// Takes the seat, or waits for it as long as the configuration says.
    ///
    /// # Errors
    /// [`DocsError::Busy`]; [`DocsError::InDoubt`] if the journal failed under an earlier commit.
    pub(crate) fn take(store: &Store, doc: &Arc<Doc>) -> Result<Self, DocsError> {
        Self::free(doc).map_or_else(|| Self::wait(store, doc, store.clock.now()), Ok)
    }

    /// The same for who waits since then, for other documents of this name before.
    pub(crate) fn take_since(store: &Store, doc: &Arc<Doc>, began: Moment) -> Result<Self, DocsError> {
        Self::free(doc).map_or_else(|| Self::wait(store, doc, began), Ok)
    }

    /// The seat, if nobody has it and nobody's commit is on its way.
    fn free(doc: &Arc<Doc>) -> Option<Self> {
        let mut seat = doc.seat();
        (seat.by == Seated::Nobody).then(|| {
            seat.by = Seated::Writer;
            Self(Arc::clone(doc))
        })
    }

    fn wait(store: &Store, doc: &Arc<Doc>, began: Moment) -> Result<Self, DocsError> {
        let wait_ms = store.config.writer_wait_ms;
        let wait = Duration::from_millis(wait_ms);
        loop {
            // Who has appended a commit may have gone without waiting for it.
            store.settle(doc)?;
            let left = wait.saturating_sub(store.clock.now().since(began));
            let mut seat = doc.seat();
            seat.waiting += 1;
            let waited = doc.left.wait_timeout_while(seat, left, |seat| seat.by == Seated::Writer);
            let (mut seat, _) = waited.unwrap_or_else(PoisonError::into_inner);
            seat.waiting -= 1;
            match seat.by {
                Seated::Nobody => {
                    seat.by = Seated::Writer;
                    return Ok(Self(Arc::clone(doc)));
                }
                Seated::Writer => return Err(DocsError::Busy { name: doc.name.to_string(), waited_ms: wait_ms }),
                Seated::Leaving => {}
            }
        }
    }

    /// Its commit is appended. Under the desk's lock, so that whoever is woken finds it in the queue.
    pub(crate) fn leaving(self) -> Self {
        if self.now(Seated::Leaving) {
            self.0.left.notify_all();
        }
        self
    }

    /// Whether somebody waits for that.
    fn now(&self, by: Seated) -> bool {
        let mut seat = self.0.seat();
        seat.by = by;
        seat.waiting > 0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.now(Seated::Nobody) {
            self.0.left.notify_one();
        }
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

    /// Whether it was dropped while this handle was held.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.doc.is_gone.load(Ordering::Acquire)
    }

    /// The newest revision. Before the first commit that is revision 0, which is empty.
    #[must_use]
    pub fn latest(&self) -> Revision {
        Revision::of(self, self.doc.head.get())
    }

    /// The revision of that number.
    ///
    /// # Errors
    /// [`DocsError::NoRevision`]; [`DocsError::Damaged`] if its commit cannot be read.
    pub fn at(&self, revision: u32) -> Result<Revision, DocsError> {
        let head = self.doc.head.get();
        if revision > head.revision {
            return Err(self.none(revision));
        }
        // Of the newest one, and not of one that has come in its place.
        let is_its = |why: &&DocsError| !matches!(why, DocsError::Damaged { lsn, .. } if *lsn != head.entry.lsn());
        if let Some(why) = self.doc.withheld.as_ref().filter(|_| revision == head.revision).filter(is_its) {
            return Err(why.clone());
        }
        let root = match revision {
            0 => Arc::new(Root::empty(self.doc.id)),
            revision if revision == head.revision => head,
            revision => self.store.root(&self.doc, (head.epoch, revision), || self.none(revision))?,
        };
        Ok(Revision::of(self, root))
    }

    pub(crate) fn none(&self, revision: u32) -> DocsError {
        let newest = self.doc.head.get().revision;
        DocsError::NoRevision { name: self.doc.name.to_string(), revision: revision.into(), newest }
    }

    /// The revision that was the newest at that time (milliseconds since 1970); revision 0 before the first.
    ///
    /// # Errors
    /// As [`Document::at`].
    pub fn as_of(&self, time_ms: u64) -> Result<Revision, DocsError> {
        let head = self.doc.head.get();
        if head.time_ms <= time_ms {
            return Ok(Revision::of(self, head));
        }
        // Times never go back: the last revision that is not after it.
        let (mut from, mut to) = (0, head.revision);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            // One that is gone since is behind a truncation: those before it stay.
            let row = self.store.index.row(self.doc.id, middle)?;
            if row.is_some_and(|row| row.time_ms <= time_ms) { from = middle } else { to = middle }
        }
        self.at(from)
    }

    /// Begins a change of the newest revision. Waits for another writer, for as long as the configuration says.
    ///
    /// # Errors
    /// [`DocsError::Busy`]; [`DocsError::NoDocument`] if it was dropped; [`DocsError::InDoubt`] if the journal failed under an earlier
    /// commit.
    pub fn edit(&self) -> Result<Edit, DocsError> {
        self.begin(Seat::take(&self.store, &self.doc)?)
    }

    /// The same for who waits since then.
    pub(crate) fn edit_since(&self, began: Moment) -> Result<Edit, DocsError> {
        self.begin(Seat::take_since(&self.store, &self.doc, began)?)
    }

    fn begin(&self, seat: Seat) -> Result<Edit, DocsError> {
        self.refuse_dropped()?;
        Ok(Edit::begin(Arc::clone(&self.store), seat))
    }

    /// How many wait for its writer's seat just now. For tests of those who wait.
    #[doc(hidden)]
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.doc.seat().waiting
    }

    /// # Errors
    /// [`DocsError::NoDocument`] if it was dropped, whatever has its name now.
    pub(crate) fn refuse_dropped(&self) -> Result<(), DocsError> {
        // All handles share what a drop has told, under the seat. Not asked of the index: what that costs grows with the history.
        if self.is_dropped() { Err(DocsError::NoDocument { name: self.doc.name.to_string() }) } else { Ok(()) }
    }
}
