//! What is in memory, for a thread that serves many and must not wait for the disk.
//!
//! Walk: [`Database::at_hand`] a document that is open · [`Document::at_hand`] a revision that is kept · [`Revision::without_waiting`]
//! refuses pages that are not: [`DocsError::NotHeld`]. Who is refused asks again where he may wait.
//! Deliberately absent: promises. What is kept now may be gone a moment later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::page::Page;
use crate::place::Chain;
use crate::store::Reading;
use crate::trie::{Bad, PageName, Pages};
use crate::{Database, DocsError, Document, Revision};

/// Others hold the list of open documents for as long as it takes to look at it, or for as long as the disk takes.
const LOOKS: u32 = 64;

impl Database {
    /// A document that is open and has a revision. None says nothing: [`Database::document`] knows.
    #[must_use]
    pub fn at_hand(&self, name: &str) -> Option<Document> {
        let documents = (0..LOOKS).find_map(|_| {
            let documents = self.store.documents.try_lock().ok();
            if documents.is_none() {
                std::hint::spin_loop();
            }
            documents
        })?;
        let doc = documents.get(name).filter(|doc| doc.withheld.is_none() && !doc.is_gone.load(Ordering::Acquire))?;
        let document = Document { store: Arc::clone(&self.store), doc: Arc::clone(doc) };
        drop(documents);
        (document.latest().number() > 0).then_some(document)
    }
}

impl Document {
    /// A revision that is kept in memory; without a number the newest.
    #[must_use]
    pub fn at_hand(&self, revision: Option<u32>) -> Option<Revision> {
        let latest = self.latest();
        match revision {
            None => Some(latest),
            Some(number) if number == latest.number() => Some(latest),
            Some(number) => {
                let root = self.store.roots.at_hand(&(self.doc.id, latest.root.epoch, number))?;
                Some(Revision::of(self, root))
            }
        }
    }
}

impl Revision {
    /// The same revision, for who does not wait: what is not in memory is [`DocsError::NotHeld`].
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.waits = false;
        self
    }
}

/// Pages that are in memory.
pub(crate) struct HeldPages<'r>(pub(crate) Reading<'r>);

impl Pages for HeldPages<'_> {
    type Error = DocsError;

    fn page(&self, _: PageName, chain: &Chain) -> Result<Arc<Page>, DocsError> {
        let newest = chain.newest().ok_or(DocsError::NotHeld)?;
        self.0.store.pages.at_hand(&(self.0.doc.id, newest)).ok_or(DocsError::NotHeld)
    }

    fn bad(&self, bad: Bad) -> DocsError {
        self.0.bad(bad)
    }
}
