//! A revision: the document as one commit left it, for as long as somebody looks. No lock is held.
//!
//! Walk: [`Revision`] is a [`Look`].
//! Deliberately absent: writing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::document::{Doc, Document};
use crate::entry::{Change, Meta, Root};
use crate::look::{Item, Look, Named};
use crate::node::NodeKey;
use crate::path::PathId;
use crate::store::{Reading, Store};
use crate::{DocsError, PathCount};

/// One revision of a document.
#[derive(Clone, Debug)]
pub struct Revision {
    pub(crate) store: Arc<Store>,
    pub(crate) doc: Arc<Doc>,
    pub(crate) root: Arc<Root>,
}

impl Revision {
    pub(crate) fn of(document: &Document, root: Arc<Root>) -> Self {
        Self { store: Arc::clone(&document.store), doc: Arc::clone(&document.doc), root }
    }

    /// Its number, from 1; 0 is the document before its first commit.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.root.revision
    }

    /// Milliseconds since 1970, never before that of the revision before.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.root.time_ms
    }

    /// What its committer said.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.root.meta
    }

    /// What changed since the revision before; none if it was too much to list.
    #[must_use]
    pub fn changes(&self) -> Option<&[Change]> {
        self.root.is_listed.then_some(self.root.changes.as_slice())
    }

    /// The distinct paths of the document with how many nodes have each, in the order in which they first appeared.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn paths(&self) -> Result<Vec<PathCount>, DocsError> {
        let mut names = BTreeMap::<PathId, String>::new();
        let mut paths = Vec::new();
        // After a revert there are numbers without a path.
        for id in 1..self.root.next_path {
            let Some(named) = self.path(id)? else { continue };
            let before = names.get(&named.before).map_or("", String::as_str);
            let path = format!("{before}{}", named.step());
            if named.references > 0 {
                paths.push(PathCount { path: path.clone(), references: named.references });
            }
            names.insert(id, path);
        }
        Ok(paths)
    }

    fn reading(&self) -> Reading<'_> {
        Reading { store: &self.store, doc: &self.doc, revision: self.root.revision }
    }
}

impl Look for Revision {
    fn value(&self) -> Option<NodeKey> {
        (self.root.value != 0).then_some(NodeKey(self.root.value))
    }

    fn revision(&self) -> u32 {
        self.root.revision
    }

    fn find(&self, key: NodeKey) -> Result<Option<Item>, DocsError> {
        self.reading().item(&self.root.nodes, key)
    }

    fn path(&self, path: PathId) -> Result<Option<Named>, DocsError> {
        self.reading().path(&self.root.paths, path)
    }
}
