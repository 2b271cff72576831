//! A revision: the document as one commit left it, for as long as somebody looks. No lock is held.
//!
//! Walk: [`Revision`] is a [`Look`]; it keeps the pages that it looked at last (`last`) · `held` for who must not wait.
//! Deliberately absent: writing.

mod held;

use std::fmt;
use std::sync::Arc;

use self::held::HeldPages;
use crate::document::{Doc, Document};
use crate::entry::{Change, Meta, Root};
use crate::error::within;
use crate::look::{Item, Leaf, Look, Named};
use crate::node::NodeKey;
use crate::page::{Page, SLOTS};
use crate::path::PathId;
use crate::record::length;
use crate::store::{Reading, Store};
use crate::trie::{Last, Tree, Which};
use crate::{DocsError, PathCount};

/// Bytes of all paths of a revision that are told at once.
const PATHS_BYTES_MAX: u64 = 64 << 20;

/// One revision of a document.
#[derive(Clone, Debug)]
pub struct Revision {
    pub(crate) store: Arc<Store>,
    pub(crate) doc: Arc<Doc>,
    pub(crate) root: Arc<Root>,
    nodes: Last,
    paths: Last,
    /// Whether it waits for the disk.
    pub(crate) waits: bool,
    wanted: Option<Wanted>,
}

/// Says whether somebody still waits for what is read.
#[derive(Clone)]
struct Wanted(Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").finish_non_exhaustive()
    }
}

impl Revision {
    pub(crate) fn of(document: &Document, root: Arc<Root>) -> Self {
        let (store, doc) = (Arc::clone(&document.store), Arc::clone(&document.doc));
        Self { store, doc, root, nodes: Last::default(), paths: Last::default(), waits: true, wanted: None }
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
    /// [`DocsError::Size`] if they are too long together: a path names each step from the root on. As [`Look::find`].
    pub fn paths(&self) -> Result<Vec<PathCount>, DocsError> {
        let (mut paths, mut way, mut bytes) = (Vec::new(), Way::default(), 0);
        // After a revert there are numbers without a path.
        for id in 1..self.root.next_path {
            let Some(named) = self.path(id)?.filter(|named| named.references > 0) else { continue };
            way.lead(self, id, &named)?;
            bytes += length(way.text.as_bytes());
            within("the paths of a revision, as text,", bytes, PATHS_BYTES_MAX)?;
            let level = u32::try_from(way.steps.len()).unwrap_or(u32::MAX);
            paths.push(PathCount { id, level, path: way.text.clone(), references: named.references });
        }
        Ok(paths)
    }

    /// The same revision, for as long as this says that somebody waits for what is read: asked for each page that is looked at after
    /// another one, so that a long walk ends with [`DocsError::Unwanted`] soon after.
    #[must_use]
    pub fn while_wanted(mut self, is_wanted: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        self.wanted = Some(Wanted(is_wanted));
        self
    }

    pub(crate) fn refuse_unwanted(&self) -> Result<(), DocsError> {
        match &self.wanted {
            Some(Wanted(is_wanted)) if !is_wanted() => Err(DocsError::Unwanted),
            _ => Ok(()),
        }
    }

    /// A page of level 0.
    fn page(&self, tree: &Tree, which: Which, number: u64) -> Result<Option<Arc<Page>>, DocsError> {
        self.refuse_unwanted()?;
        if self.waits {
            return self.reading().leaf(tree, which, number);
        }
        Ok(tree.find(which, (0, number), &HeldPages(self.reading()))?.map(|(_, page)| page))
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading { store: &self.store, doc: &self.doc, revision: self.root.revision }
    }
}

/// The way to a path: each step's path and where its text ends. The next path is mostly a step beside or behind.
#[derive(Debug, Default)]
struct Way {
    /// Numbers grow along a way: a path is made behind the one before it.
    steps: Vec<(PathId, usize)>,
    text: String,
}

impl Way {
    fn lead(&mut self, revision: &Revision, id: PathId, named: &Named) -> Result<(), DocsError> {
        let (mut missing, mut up) = (vec![(id, named.clone())], named.before);
        let shared = loop {
            match self.steps.binary_search_by_key(&up, |(id, _)| *id) {
                Ok(at) => break at + 1,
                Err(_) if up == 0 => break 0,
                Err(_) => {}
            }
            let Some(named) = revision.path(up)? else { break 0 };
            missing.push((up, named.clone()));
            up = named.before;
        };
        self.steps.truncate(shared);
        self.text.truncate(self.steps.last().map_or(0, |(_, end)| *end));
        for (id, named) in missing.iter().rev() {
            self.text.push_str(&named.step().to_string());
            self.steps.push((*id, self.text.len()));
        }
        Ok(())
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
        let number = key.0 / SLOTS;
        let page = self.nodes.page(&self.root.nodes, number, || self.page(&self.root.nodes, Which::Nodes, number))?;
        self.reading().item_of(page, key)
    }

    fn path(&self, path: PathId) -> Result<Option<Named>, DocsError> {
        let number = path / SLOTS;
        let page = self.paths.page(&self.root.paths, number, || self.page(&self.root.paths, Which::Paths, number))?;
        self.reading().path_of(page, path)
    }

    fn leaf(&self, number: u64) -> Result<Option<Leaf>, DocsError> {
        let page = self.nodes.page(&self.root.nodes, number, || self.page(&self.root.nodes, Which::Nodes, number))?;
        Ok(page.map(Leaf))
    }
}
