//! What is left of a document whose newest commit cannot be read: the revisions before that one, and the way back to one of them.
//!
//! Walk: [`Database::held`] gives a document out whether its newest commit can be read or not, [`Database::seat`] its writer's seat · [`Database::older`] · [`Older::at`], [`Older::tagged`], [`Older::history`] read · [`Older::truncate`] gives up what cannot be read.
//! Deliberately absent: the newest revision, and what stands on it. Who has no use for what is left drops the document, or puts another in
//! its place ([`Database::edit_anew`]).

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::database::DOCUMENTS_KEPT;
use crate::document::{Doc, Seat};
use crate::{Database, DocsError, Document, Edit, Revision, Told, Versioning};

/// A document without its newest revision.
#[derive(Clone, Debug)]
pub struct Older(Document);

impl Database {
    /// A document by its name, whether its newest commit can be read or not.
    ///
    /// # Errors
    /// [`DocsError::NoDocument`]; as the index says.
    pub fn older(&self, name: &str) -> Result<Older, DocsError> {
        Ok(Older(Document { store: Arc::clone(&self.store), doc: self.held(name)? }))
    }

    /// Begins a document in the place of the one of this name, as [`Edit::anew`] does: also where that one's newest commit cannot be read.
    /// [`Edit::drop_document`] drops that one instead.
    ///
    /// # Errors
    /// [`DocsError::NoDocument`], [`DocsError::Busy`]; as [`Edit::anew`].
    pub fn edit_anew(&self, name: &str, versioning: Versioning) -> Result<Edit, DocsError> {
        Edit::begin(Arc::clone(&self.store), self.seat(name)?).anew(versioning)
    }

    /// The writer's seat of the document of this name; of another one that has come in its place while its writer was waited for.
    pub(crate) fn seat(&self, name: &str) -> Result<Seat, DocsError> {
        let began = self.store.clock.now();
        loop {
            let seat = Seat::take_since(&self.store, &self.held(name)?, began)?;
            if !seat.0.is_gone.load(Ordering::Acquire) {
                return Ok(seat);
            }
            self.refuse_late(name, began)?;
        }
    }

    /// A document, also one whose newest commit cannot be read: nobody gets that, but its seat is taken as any other's.
    pub(crate) fn held(&self, name: &str) -> Result<Arc<Doc>, DocsError> {
        let none = || DocsError::NoDocument { name: name.to_owned() };
        let mut documents = self.store.documents();
        let named = self.store.index.name(name)?.ok_or_else(none)?;
        // Whoever holds a withheld one has its seat, or waits for it: there is no second one beside it. Nobody does: it is read again.
        let is_kept =
            |doc: &&Arc<Doc>| doc.id == named.document && (doc.withheld.is_none() || Arc::strong_count(doc) > 1);
        if let Some(doc) = documents.get(name).filter(is_kept) {
            return Ok(Arc::clone(doc));
        }
        let doc = match self.load(name, named) {
            Err(why @ DocsError::Damaged { .. }) => {
                let head = self.store.told_head(named.document)?;
                Doc::withheld(name.into(), named.versioning, head, why)
            }
            loaded => loaded?,
        };
        let doc = Arc::new(doc);
        if documents.len() >= DOCUMENTS_KEPT {
            documents.retain(|_, doc| Arc::strong_count(doc) > 1);
        }
        documents.insert(Arc::clone(&doc.name), Arc::clone(&doc));
        Ok(doc)
    }
}

impl Older {
    /// The number of the newest revision.
    #[must_use]
    pub fn newest(&self) -> u32 {
        self.0.doc.head.get().revision
    }

    /// The revision of that number.
    ///
    /// # Errors
    /// As [`Document::at`].
    pub fn at(&self, revision: u32) -> Result<Revision, DocsError> {
        self.0.at(revision)
    }

    /// The revision of that tag.
    ///
    /// # Errors
    /// As [`Document::tagged`].
    pub fn tagged(&self, tag: &str) -> Result<Revision, DocsError> {
        self.0.tagged(tag)
    }

    /// Revisions of a range, also of those that cannot be read: as [`Document::history`].
    ///
    /// # Errors
    /// As [`Document::history`].
    pub fn history(&self, revisions: RangeInclusive<u32>, limit: usize) -> Result<Vec<Told>, DocsError> {
        self.0.history(revisions, limit)
    }

    /// Drops all revisions after this one, as [`Document::truncate`]. Then it is a document like any other.
    ///
    /// # Errors
    /// As [`Document::truncate`]; [`DocsError::NoDocument`] also if a branch has changed it since.
    pub fn truncate(&self, to: u32) -> Result<Revision, DocsError> {
        self.0.truncate(to)
    }
}
