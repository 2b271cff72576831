//! What everything of a database shares: the journal, the index, and what is kept of pages and revisions.
//!
//! Walk: [`Store::root`] finds a revision · [`Reading`] finds pages of one, from memory or from the journal, and in them
//! items and paths.
//! Deliberately absent: writing.

mod kept;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use assent_frame::Malformed;
use assent_ids::{Lsn, NodeId};
use assent_journal::{Fetched, Log};
use assent_kind::Kind;
use assent_world::Clock;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::Config;
use crate::database::Desk;
use crate::document::Doc;
use crate::entry::{Root, commit_of, fragment, read_commit};
use crate::index::{Index, Row};
use crate::look::{Item, Named, Stepped, Text};
use crate::node::{Node, NodeKey};
use crate::page::{Page, SLOTS};
use crate::path::{Path, PathId, Step};
use crate::place::{Chain, Entry, Place, resolve};
use crate::trie::{Bad, PageName, Pages, Tree, Which};
use crate::{DocsError, Told};
pub(crate) use kept::Kept;
use kept::{PageKey, RootKey};

pub(crate) struct Store {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) index: Index,
    pub(crate) pages: Kept<PageKey, Page>,
    pub(crate) roots: Kept<RootKey, Root>,
    /// Whole pages of histories, by their first revision.
    pub(crate) told: Kept<RootKey, [Told]>,
    pub(crate) desk: Mutex<Desk>,
    pub(crate) documents: Mutex<HashMap<Arc<str>, Arc<Doc>>>,
    /// Nodes of coordinators whose branches somebody resolves.
    pub(crate) claims: Mutex<BTreeSet<NodeId>>,
    /// Held by whoever writes the index out.
    pub(crate) stepping: Mutex<()>,
    /// Everything that ends here or before is visible, and its documents show it.
    pub(crate) shown: AtomicU64,
    /// Bytes of paths that documents keep.
    pub(crate) path_bytes: Arc<AtomicU64>,
    /// The epoch that was given last.
    pub(crate) epochs: AtomicU32,
}

impl Store {
    /// An epoch that no document of this opening has had: what is kept under an earlier one is never taken for a later revision.
    pub(crate) fn next_epoch(&self) -> u32 {
        self.epochs.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The revision of this number in that epoch of the document; `none` says that there is none.
    ///
    /// # Errors
    /// [`DocsError::Damaged`] if its commit cannot be read; as the disk says.
    pub(crate) fn root(
        &self,
        doc: &Doc,
        (epoch, revision): (u32, u32),
        none: impl FnOnce() -> DocsError,
    ) -> Result<Arc<Root>, DocsError> {
        if let Some(root) = self.roots.get(&(doc.id, epoch, revision)) {
            return Ok(root);
        }
        let row = self.index.row(doc.id, revision)?.ok_or_else(none)?;
        let root = Arc::new(self.read_root(doc, &row)?);
        self.roots.keep((doc.id, epoch, revision), Arc::clone(&root));
        Ok(root)
    }

    /// The newest revision, as the index has it.
    ///
    /// # Errors
    /// As [`Store::root`].
    pub(crate) fn head(&self, doc: &Doc) -> Result<Root, DocsError> {
        let mut root = match self.index.newest(doc.id)? {
            Some(row) => self.read_root(doc, &row)?,
            None => Root::empty(doc.id),
        };
        root.next_node = root.next_node.max(self.index.next_node(doc.id)?);
        Ok(root)
    }

    /// The newest revision, where its commit cannot be read: what the index says of it, and nothing of what is in it.
    pub(crate) fn told_head(&self, document: u64) -> Result<Root, DocsError> {
        let Some(row) = self.index.newest(document)? else { return Ok(Root::empty(document)) };
        let Row { revision, entry, time_ms, hash, .. } = row;
        Ok(Root { revision, entry, time_ms, hash, epoch: self.next_epoch(), ..Root::empty(document) })
    }

    /// The revision of a row.
    ///
    /// # Errors
    /// As [`Store::root`].
    pub(crate) fn read_root(&self, doc: &Doc, row: &Row) -> Result<Root, DocsError> {
        let (revision, entry) = (row.revision, row.entry);
        let fetched = self.fetch(entry, |what| doc.damaged(revision, entry.lsn(), what))?;
        let wrong = |what: &dyn fmt::Display| doc.damaged(revision, entry.lsn(), what);
        let malformed = |malformed: Malformed| wrong(&malformed);
        let commit = commit_of(fetched.kind, fetched.payload(), doc.id).map_err(malformed)?;
        let (root, _) = read_commit(commit).map_err(malformed)?;
        if (root.document, root.revision) != (doc.id, revision) {
            return Err(wrong(&"the commit there is of another document or revision"));
        }
        let hash = xxh3_64(commit);
        if hash != row.hash {
            return Err(wrong(&"the commit there is not the one that was published"));
        }
        // One that was prepared is as old as its decision.
        Ok(Root { time_ms: row.time_ms, ..settled(root, entry, hash) })
    }

    /// An entry; what is damaged or gone is told as `damaged` says.
    fn fetch(&self, entry: Entry, damaged: impl Fn(&dyn fmt::Display) -> DocsError) -> Result<Fetched, DocsError> {
        self.log.read_at_sized(entry.lsn(), entry.payload_bytes()).map_err(|error| match error.kind() {
            Kind::Corrupt | Kind::NotFound => damaged(&error),
            _ => error.into(),
        })
    }
}

/// A revision that knows its own entry.
pub(crate) fn settled(root: Root, entry: Entry, hash: u64) -> Root {
    let here = |tree: Tree| Tree { top: tree.top.resolved(entry), ..tree };
    let Root { nodes, paths, .. } = root;
    Root { nodes: here(nodes), paths: here(paths), entry, hash, ..root }
}

/// Pages of one revision.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) store: &'a Store,
    pub(crate) doc: &'a Doc,
    pub(crate) revision: u32,
}

impl Reading<'_> {
    fn damaged(&self, page: PageName, lsn: Lsn, what: &dyn fmt::Display) -> DocsError {
        let (document, what) = (Arc::clone(&self.doc.name), what.to_string());
        DocsError::Damaged { document, revision: self.revision, page: Some(page), lsn, what }
    }

    fn fragment(&self, page: PageName, place: Place) -> Result<Arc<[u8]>, DocsError> {
        let lsn = place.entry.lsn();
        let fetched = self.store.fetch(place.entry, |what| self.damaged(page, lsn, what))?;
        let bad = |malformed: Malformed| self.damaged(page, lsn, &malformed);
        let bytes = fragment(fetched.kind, fetched.payload(), self.doc.id, page, place.index).map_err(bad)?;
        if page.level == 0 {
            return Ok(bytes.into());
        }
        let mut bytes = bytes.to_vec();
        resolve(&mut bytes, place.entry).map_err(bad)?;
        Ok(bytes.into())
    }

    /// The page of level 0 with that number.
    pub(crate) fn leaf(&self, tree: &Tree, which: Which, number: u64) -> Result<Option<Arc<Page>>, DocsError> {
        Ok(tree.find(which, (0, number), self)?.map(|(_, page)| page))
    }

    /// A node of the page that would have it.
    pub(crate) fn item_of(&self, page: Option<Arc<Page>>, key: NodeKey) -> Result<Option<Item>, DocsError> {
        let (number, slot) = key.page();
        let Some(page) = page else { return Ok(None) };
        let bad = |what| self.bad(Bad { page: PageName { which: Which::Nodes, level: 0, number }, what });
        let Some((record, range)) = page.placed(slot).map_err(bad)? else { return Ok(None) };
        let node = Node::read(key, &record).map_err(bad)?;
        let text = Text::within(&page, range).ok_or_else(|| bad(Malformed { field: "text" }))?;
        Ok(Some(Item { node, text }))
    }

    pub(crate) fn path(&self, tree: &Tree, path: PathId) -> Result<Option<Named>, DocsError> {
        self.path_of(self.leaf(tree, Which::Paths, path / SLOTS)?, path)
    }

    /// A path of the page that would have it.
    pub(crate) fn path_of(&self, page: Option<Arc<Page>>, path: PathId) -> Result<Option<Named>, DocsError> {
        let (number, slot) = NodeKey(path).page();
        let Some(page) = page else { return Ok(None) };
        let bad = |what| self.bad(Bad { page: PageName { which: Which::Paths, level: 0, number }, what });
        let Some((record, range)) = page.placed(slot).map_err(bad)? else { return Ok(None) };
        let Path { before, step, references } = Path::read(&record).map_err(bad)?;
        let step = match step {
            Step::Root => Stepped::Root,
            Step::Member(_) => Stepped::Member,
            Step::Items => Stepped::Items,
        };
        let name = Text::within(&page, range).ok_or_else(|| bad(Malformed { field: "name" }))?;
        Ok(Some(Named { before, step, name, references }))
    }
}

impl Pages for Reading<'_> {
    type Error = DocsError;

    fn page(&self, page: PageName, chain: &Chain) -> Result<Arc<Page>, DocsError> {
        let Some(newest) = chain.newest() else {
            return Err(self.bad(Bad { page, what: Malformed { field: "chain" } }));
        };
        if let Some(found) = self.store.pages.get(&(self.doc.id, newest)) {
            return Ok(found);
        }
        let fragments = chain.0.iter().map(|place| self.fragment(page, *place)).collect::<Result<Vec<_>, _>>()?;
        let combined = Page::combine(fragments).map_err(|what| self.damaged(page, newest.entry.lsn(), &what))?;
        let combined = Arc::new(combined);
        self.store.pages.keep((self.doc.id, newest), Arc::clone(&combined));
        Ok(combined)
    }

    fn bad(&self, bad: Bad) -> DocsError {
        let lsn = self.doc.head.get().entry.lsn();
        self.damaged(bad.page, lsn, &bad.what)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("log", &self.log).finish_non_exhaustive()
    }
}
