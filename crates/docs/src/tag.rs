//! Tags: names for revisions of a document.
//!
//! Walk: [`Document::tag`], [`Document::untag`] append one small entry and wait · [`Document::tagged`] opens a revision by its tag,
//! [`Document::tags`] lists them.
//! Deliberately absent: tags of what is gone. A tag goes with its revision when that is dropped.

use std::sync::Arc;

use crate::DocsError;
use crate::act::{KIND_TAG, Tagging, lay_tag};
use crate::config::NAME_BYTES_MAX;
use crate::database::Staging;
use crate::document::Document;
use crate::revision::Revision;

impl Document {
    /// Names a revision; a tag of that name is moved there. Waits for no writer.
    ///
    /// # Errors
    /// [`DocsError::TagName`], [`DocsError::NoRevision`], [`DocsError::NoDocument`]; as [`crate::Pending::wait`].
    pub fn tag(&self, tag: &str, revision: u32) -> Result<(), DocsError> {
        if tag.is_empty() || tag.len() > NAME_BYTES_MAX || tag.chars().any(char::is_control) {
            return Err(DocsError::TagName { tag: tag.to_owned() });
        }
        self.put_tag(tag, Some(revision))
    }

    /// Takes a tag away. Its revision stays.
    ///
    /// # Errors
    /// [`DocsError::NoTag`]; as [`Document::tag`].
    pub fn untag(&self, tag: &str) -> Result<(), DocsError> {
        self.put_tag(tag, None)
    }

    fn put_tag(&self, tag: &str, revision: Option<u32>) -> Result<(), DocsError> {
        let store = &self.store;
        let mut desk = store.writer()?;
        // What is on its way is durable before the tag is: it is looked at as if it were.
        if desk.drops(&self.doc) {
            return Err(DocsError::NoDocument { name: self.doc.name.to_string() });
        }
        self.refuse_dropped()?;
        let newest = desk.truncated(&self.doc).unwrap_or_else(|| self.doc.head.get().revision);
        match revision {
            Some(revision) if revision > newest => return Err(self.none(revision)),
            None if !desk.has_tag(&self.doc, tag) && store.index.tag(self.doc.id, tag)?.is_none() => {
                return Err(self.no_tag(tag));
            }
            _ => {}
        }
        let tagging = Tagging { document: self.doc.id, revision, tag };
        let staging = |_| Staging::Tagged(Arc::clone(&self.doc), tag.to_owned(), revision);
        let ticket = store.stage(&mut desk, KIND_TAG, &lay_tag(&tagging), staging)?;
        drop(desk);
        store.wait(ticket)
    }

    /// The revision of that tag.
    ///
    /// # Errors
    /// [`DocsError::NoTag`]; as [`Document::at`].
    pub fn tagged(&self, tag: &str) -> Result<Revision, DocsError> {
        let revision = self.store.index.tag(self.doc.id, tag)?.ok_or_else(|| self.no_tag(tag))?;
        self.at(revision)
    }

    /// Tags behind this one with their revisions, in the order of their names, at most so many.
    ///
    /// # Errors
    /// As the index says.
    pub fn tags(&self, behind: Option<&str>, limit: usize) -> Result<Vec<(String, u32)>, DocsError> {
        self.store.index.tags(self.doc.id, behind, limit)
    }

    fn no_tag(&self, tag: &str) -> DocsError {
        DocsError::NoTag { name: self.doc.name.to_string(), tag: tag.to_owned() }
    }
}
