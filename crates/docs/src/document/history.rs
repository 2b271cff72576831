//! The list of a document's revisions: which was committed when, by whom and why.
//!
//! What it says of a revision never changes; only a truncation takes some away, and gives the document another epoch. So whole pages of it
//! are kept in memory, as revisions are.
//!
//! Walk: [`Document::history`] goes back page by page · [`Document::page`] finds one that is kept, or makes it of the index's rows.
//! Deliberately absent: a page that still grows, and one that misses a row. Those are looked up each time.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Document, Told};
use crate::DocsError;

/// Revisions of a page: 1 to 128, 129 to 256, and so on.
const PAGE: u32 = 128;
/// Who asks for fewer does not make a page of them.
const ASKED_MIN: u32 = PAGE / 4;

impl Document {
    /// Revisions of a range, the newest first, at most so many.
    ///
    /// # Errors
    /// As the index says.
    pub fn history(&self, revisions: RangeInclusive<u32>, limit: usize) -> Result<Vec<Told>, DocsError> {
        // What is not yet visible to a reader of the document is not in its history.
        let head = self.doc.head.get();
        let (from, mut to) = ((*revisions.start()).max(1), (*revisions.end()).min(head.revision));
        let many = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).saturating_add(1);
        let mut list = Vec::with_capacity(if from > to { 0 } else { many.min(limit).min(1 << 16) });
        while from <= to && list.len() < limit {
            let first = (to - 1) / PAGE * PAGE + 1;
            let (oldest, left) = (first.max(from), limit - list.len());
            let asked = (to - oldest + 1).min(u32::try_from(left).unwrap_or(u32::MAX));
            let is_whole = head.revision - first >= PAGE - 1;
            match if is_whole { self.page((head.epoch, first), asked)? } else { None } {
                Some(page) => {
                    let rows = page.iter().filter(|told| (oldest..=to).contains(&told.revision));
                    list.extend(rows.take(left).cloned());
                }
                None => list.extend(self.store.index.told(self.doc.id, oldest..=to, left)?),
            }
            to = first - 1;
        }
        Ok(list)
    }

    /// The page that begins at a revision, the newest first. None: one by one is better.
    fn page(&self, (epoch, first): (u32, u32), asked: u32) -> Result<Option<Arc<[Told]>>, DocsError> {
        let key = (self.doc.id, epoch, first);
        if let Some(page) = self.store.told.get(&key) {
            return Ok(Some(page));
        }
        if asked < ASKED_MIN {
            return Ok(None);
        }
        let rows = self.store.index.told(self.doc.id, first..=first.saturating_add(PAGE - 1), usize::MAX)?;
        let page: Arc<[Told]> = rows.into();
        if page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            return Ok(None);
        }
        self.store.told.keep(key, Arc::clone(&page));
        Ok(Some(page))
    }
}
