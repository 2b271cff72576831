//! Truncating: the newest revisions are dropped, as if they had never been.
//!
//! Walk: [`Document::truncate`] takes the writer's seat, appends one entry and waits: so a reader that opens a revision sees all of
//! them or those that stay. Who holds a dropped one can still read it.
//! Deliberately absent: room that comes free: the journal keeps what it has. Keys of dropped nodes are not used again.

use std::sync::Arc;

use crate::DocsError;
use crate::act::{KIND_TRUNCATE, Truncation, lay_truncate};
use crate::database::Staging;
use crate::document::{Document, Seat};
use crate::entry::Root;
use crate::revision::Revision;

impl Document {
    /// Drops all revisions after this one; with 0, all. It is the newest from then on, and the next commit has the number after it.
    /// Nothing is written where it is the newest already.
    ///
    /// # Errors
    /// [`DocsError::NoRevision`], [`DocsError::NoDocument`], [`DocsError::Busy`] as [`Document::edit`]; as [`crate::Pending::wait`].
    pub fn truncate(&self, to: u32) -> Result<Revision, DocsError> {
        let seat = Seat::take(&self.store, &self.doc)?;
        self.refuse_dropped()?;
        let stays = self.at(to)?;
        let newest = self.doc.head.get();
        if newest.revision == to {
            return Ok(stays);
        }
        let truncation = Truncation {
            document: self.doc.id,
            to,
            newest: newest.entry,
            newest_hash: newest.hash,
            next_node: newest.next_node,
        };
        let head = Arc::new(Root {
            next_node: newest.next_node,
            // What readers keep of the dropped revisions is under the epoch before.
            epoch: self.store.next_epoch(),
            ..(*stays.root).clone()
        });
        let staged = Arc::clone(&head);
        let laid = lay_truncate(&truncation);
        let ticket =
            self.store.append(KIND_TRUNCATE, &laid, |_| Staging::Truncated(seat.leaving(), truncation, staged))?;
        self.store.wait(ticket)?;
        Ok(Revision::of(self, head))
    }
}
