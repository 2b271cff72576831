//! Truncating: the newest revisions are dropped, as if they had never been.
//!
//! Walk: [`Document::truncate`], of a document whose newest commit cannot be read [`Older::truncate`](crate::Older::truncate), takes the writer's seat, appends one entry and waits: so a reader that opens a revision sees all of
//! them or those that stay. Who holds a dropped one can still read it.
//! Deliberately absent: room that comes free: the journal keeps what it has. Keys of dropped nodes are not used again.

use std::sync::Arc;

use crate::DocsError;
use crate::act::{KIND_TRUNCATE, Truncation, lay_truncate};
use crate::database::Staging;
use crate::document::{Document, Seat};
use crate::entry::Root;
use crate::revision::Revision;

/// Revisions that cannot be read have given fewer keys to nodes.
const KEYS_UNREAD_MAX: u64 = 1 << 32;

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
        let next_node = self.next_node(&newest)?;
        let truncation =
            Truncation { document: self.doc.id, to, newest: newest.entry, newest_hash: newest.hash, next_node };
        let head = Arc::new(Root {
            next_node,
            // What readers keep of the dropped revisions is under the epoch before.
            epoch: self.store.next_epoch(),
            ..(*stays.root).clone()
        });
        // Tags that cannot be read refuse it here: once it is durable, nothing more would become visible.
        self.store.index.tags_behind(self.doc.id, to)?;
        let staged = Arc::clone(&head);
        let laid = lay_truncate(&truncation);
        let ticket =
            self.store.append(KIND_TRUNCATE, &laid, |_| Staging::Truncated(seat.leaving(), truncation, staged))?;
        self.store.wait(ticket)?;
        Ok(Revision::of(self, head))
    }

    /// No node has had this key, or one behind it.
    fn next_node(&self, newest: &Root) -> Result<u64, DocsError> {
        if self.doc.withheld.is_none() {
            return Ok(newest.next_node);
        }
        let floor = self.store.index.next_node(self.doc.id)?;
        // Keys rise, so the newest revision that can be read says the most; the one that is truncated to can be.
        let last = (0..newest.revision).rev().find_map(|revision| self.at(revision).ok());
        Ok(floor.max(last.map_or(0, |last| last.root.next_node)).saturating_add(KEYS_UNREAD_MAX))
    }
}
