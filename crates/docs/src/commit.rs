//! The commit of an edit: what has changed is laid, appended once, waited for.
//!
//! ```text
//!   drafts -> records of pages -> fragments of what changed -> trees       (small fragments into the commit's own entry,
//!   entry: fragments, trees, changes, metadata -> journal: append          large ones into entries before it)
//!   wait: one sync for all that wait -> published
//! ```
//! Walk: [`Edit::lay_drafts`] · [`Edit::commit_begin`] · [`Pending::wait`].
//! Deliberately absent: a second sync. Whatever stands before the commit's entry is durable with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use assent_ids::Lsn;
use assent_journal::Ticket;
use xxhash_rust::xxh3::xxh3_64;

use crate::DocsError;
use crate::act::{KIND_REPLACE, Replacing, lay_replace};
use crate::config::{AUTHOR_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::database::Staging;
use crate::document::{Document, Seat};
use crate::edit::{Draft, Drafts, Edit};
use crate::entry::{KIND_COMMIT, KIND_PAGE, Meta, Root, lay_commit, lay_page};
use crate::error::within;
use crate::fragment::{self, Records};
use crate::once::Once;
use crate::page::Page;
use crate::paths::{Names, Paths};
use crate::place::{Chain, Entry, Place, resolve};
use crate::record::{Record, length};
use crate::revision::Revision;
use crate::store::{Reading, Store, settled};
use crate::trie::{Bad, Draft as Fragment, PageName, Pages, Shelf, Which};
use crate::versioning::Versioning;

/// A larger fragment stands in an entry of its own, so that who reads another one of the commit does not read it too.
const FRAGMENT_BYTES_MAX: u64 = 2048;
/// And so does every further one when there is as much: a commit's entry is read with one read.
const FRAGMENTS_BYTES_MAX: u64 = 3072;

/// A node in memory.
const DRAFT_BYTES: u64 = size_of::<Draft>() as u64;
/// An edit keeps so many bytes of texts in memory.
const TEXT_BYTES_HELD: u64 = 8 << 20;

/// A commit that is appended. It is neither durable nor visible before [`Pending::wait`]. Dropped, it will be: by whoever waits
/// next, for this document or for any that was committed later.
#[derive(Debug)]
#[must_use = "it is neither durable nor visible before Pending::wait"]
pub struct Pending {
    document: Document,
    ticket: Option<Ticket>,
    root: Arc<Root>,
}

impl Pending {
    /// The revision that it will be.
    #[must_use]
    pub fn revision(&self) -> u32 {
        self.root.revision
    }

    /// Where its entry begins; nothing where nothing had changed.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        self.ticket.map(|ticket| ticket.lsn)
    }

    pub(crate) const fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Waits until it is durable and visible, and gives it.
    ///
    /// # Errors
    /// [`DocsError::InDoubt`] if the journal failed: whether it was committed is known once the database is reopened.
    pub fn wait(self) -> Result<Revision, DocsError> {
        let Self { document, ticket, root } = self;
        if let Some(ticket) = ticket {
            document.store.wait(ticket)?;
        }
        // Not looked up: by now the document may have been dropped.
        Ok(Revision::of(&document, root))
    }
}

/// What is laid of an edit, and not yet appended.
#[derive(Debug)]
pub(crate) struct Laid {
    pub(crate) seat: Seat,
    /// That of the document that goes at the commit.
    pub(crate) gone: Option<Seat>,
    pub(crate) root: Root,
    pub(crate) bytes: Vec<u8>,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) names: Names,
}

impl Edit {
    /// Commits and waits. Where nothing has changed nothing is written, and the newest revision stays what it was.
    ///
    /// # Errors
    /// As [`Edit::commit_begin`] and [`Pending::wait`].
    pub fn commit(self, meta: &Meta) -> Result<Revision, DocsError> {
        self.commit_begin(meta)?.wait()
    }

    /// Appends the commit and does not wait, so that commits of several documents may share a sync.
    ///
    /// # Errors
    /// [`DocsError::Size`] of what is said of it; `Full`, `Busy` or `Closed` as the journal says; why an earlier change of this edit
    /// was left half made. Nothing was committed then.
    pub fn commit_begin(self, meta: &Meta) -> Result<Pending, DocsError> {
        let base = Arc::clone(&self.base);
        let document = self.document();
        let mut pending = Pending { document, ticket: None, root: base };
        let Some(Laid { seat, gone, root, bytes, fragments, names }) = self.lay(meta)? else { return Ok(pending) };
        let before = Arc::clone(&pending.root);
        let hash = xxh3_64(&bytes);
        let store = Arc::clone(&pending.document.store);
        let (kind, bytes) = match &gone {
            None => (KIND_COMMIT, bytes),
            Some(Seat(gone)) => {
                let (gone, versioning, name) = (gone.id, seat.0.versioning, &*seat.0.name);
                (KIND_REPLACE, lay_replace(&Replacing { gone, versioning, name, commit: &bytes }))
            }
        };
        let ticket = store.append(kind, &bytes, |ticket| {
            pending.root = Arc::new(settled(root, Entry::new(ticket.lsn, bytes.len()), hash));
            // Before the seat is left.
            Paths::keep(names, (&store, &seat.0), &before, &pending.root);
            let (seat, root) = (seat.leaving(), Arc::clone(&pending.root));
            match gone {
                None => Staging::Committed(seat, root),
                Some(gone) => Staging::Replaced(gone.leaving(), seat, root),
            }
        })?;
        keep(&store, &pending.root, fragments);
        pending.ticket = Some(ticket);
        Ok(pending)
    }

    pub(crate) fn document(&self) -> Document {
        Document { store: Arc::clone(&self.store), doc: Arc::clone(&self.seat.0) }
    }

    /// Lays all that has changed; nothing where nothing has.
    pub(crate) fn lay(mut self, meta: &Meta) -> Result<Option<Laid>, DocsError> {
        check(meta)?;
        if let Some(error) = self.failed {
            return Err(error);
        }
        let is_changed = self.value != self.base.value || self.nodes != self.base.nodes || self.gone.is_some();
        // What was done once must be found again, also where it changed nothing.
        if !is_changed && self.drafts.iter().all(|(_, draft)| draft.mask == 0) && !Once::is_in(meta) {
            return Ok(None);
        }
        let revision = self.base.revision.checked_add(1);
        let limit = u32::MAX.into();
        let revision = revision.ok_or(DocsError::Size { part: "revisions", size: limit + 1, limit })?;
        let fragments = self.lay_drafts(false)?;
        let Self { store, seat, gone, base, value, next_node, nodes, paths, changes, is_listed, .. } = self;
        let root = Root {
            document: base.document,
            revision,
            previous: base.entry,
            previous_hash: base.hash,
            time_ms: store.clock.wall_ms().max(base.time_ms),
            meta: meta.clone(),
            value,
            next_node,
            next_path: paths.next,
            nodes,
            paths: paths.tree,
            changes,
            is_listed,
            epoch: base.epoch,
            ..Root::default()
        };
        let bytes = lay_commit(&root, fragments.iter().map(|fragment| (fragment.page, fragment.bytes.as_slice())));
        Ok(Some(Laid { seat, gone, root, bytes, fragments, names: paths.names }))
    }

    /// Lays the drafts as fragments, and forgets them; those that are to be in the commit's entry. With `apart` each stands in an
    /// entry of its own: it is there before the commit, and means nothing without it.
    pub(crate) fn lay_drafts(&mut self, apart: bool) -> Result<Vec<Fragment>, DocsError> {
        let Self { store, seat, base, .. } = &*self;
        let reading = Reading { store, doc: &seat.0, revision: base.revision };
        let mut laying = Laying { reading, fragments: Vec::new(), bytes: 0, apart };
        let nodes = self.nodes.write(Which::Nodes, seat.0.versioning, node_changes(&self.drafts), &mut laying)?;
        let paths = self.paths.tree.write(Which::Paths, Versioning::default(), self.paths.changes(), &mut laying)?;
        let fragments = laying.fragments;
        // Only now: where the journal refused, the edit is what it was.
        self.drafts.clear();
        self.paths.drafts.clear();
        (self.nodes, self.paths.tree, self.unlaid_from) = (nodes, paths, self.next_node);
        self.text_bytes = 0;
        Ok(fragments)
    }

    /// Lays the pages from this one on that are full, of which nothing was laid before: each stands in an entry of its own, as with
    /// [`Edit::lay_drafts`]. Where it fails, what was drafted of them is gone.
    pub(crate) fn lay_full(&mut self, first: u64) -> Result<(), DocsError> {
        let full = self.drafts.take_full(first);
        let Self { store, seat, base, .. } = &*self;
        let reading = Reading { store, doc: &seat.0, revision: base.revision };
        let mut laying = Laying { reading, fragments: Vec::new(), bytes: 0, apart: true };
        let mut chains = BTreeMap::new();
        for (number, drafts) in full.pages() {
            let lay = |draft: &Draft, out: &mut Vec<u8>| draft.item.node.lay(draft.item.text.bytes(), out);
            let bytes = fragment::lay_all(drafts, lay);
            let page = PageName { which: Which::Nodes, level: 0, number };
            let before = Arc::default();
            let place = laying.append(Fragment { page, bytes, leads_here: false, before, superseded: 0 })?;
            chains.insert(number, Chain::from_iter([place]));
        }
        let nodes = self.nodes.lead(Which::Nodes, chains, &mut laying)?;
        let texts = full.iter().map(|(_, draft)| length(draft.item.text.bytes())).sum();
        self.text_bytes = self.text_bytes.saturating_sub(texts);
        (self.nodes, self.unlaid_from) = (nodes, self.next_node);
        Ok(())
    }

    /// Lays what is in memory into the journal, if it is much. A later change of it is a further fragment.
    pub(crate) fn make_room(&mut self) -> Result<(), DocsError> {
        if self.is_large() { self.lay_drafts(true).map(drop) } else { Ok(()) }
    }

    /// Bytes in memory of what has changed and is not laid, about.
    pub(crate) fn held_bytes(&self) -> u64 {
        let drafts = u64::try_from(self.drafts.len() + self.paths.drafts.len()).unwrap_or(u64::MAX);
        drafts.saturating_mul(DRAFT_BYTES).saturating_add(self.text_bytes)
    }

    /// Those of as many nodes as one edit keeps.
    pub(crate) fn held_bytes_max(&self) -> u64 {
        u64::from(self.store.config.edit_nodes_max) * DRAFT_BYTES
    }

    /// Whether there is much in memory: many nodes or paths, or long texts.
    pub(crate) fn is_large(&self) -> bool {
        let drafts = u64::try_from(self.drafts.len().max(self.paths.drafts.len())).unwrap_or(u64::MAX);
        drafts > self.store.config.edit_nodes_max.into() || self.text_bytes > TEXT_BYTES_HELD
    }
}

/// What has changed of nodes, page by page: as records they take as much as they do as drafts.
fn node_changes(drafts: &Drafts) -> impl Iterator<Item = (u64, Records<'_>)> {
    let pages = drafts.pages().map(|(page, drafts)| {
        let mut records = Records::of(drafts.len());
        for Draft { item, mask, is_gone } in drafts.iter().filter(|draft| draft.mask != 0) {
            let record = if *is_gone { Record::GONE } else { item.node.record(*mask, item.text.bytes()) };
            records.insert(item.node.key.page().1, record);
        }
        (page, records)
    });
    pages.filter(|(_, records)| !records.is_empty())
}

fn check(meta: &Meta) -> Result<(), DocsError> {
    within("an author", length(meta.author.as_bytes()), AUTHOR_BYTES_MAX)?;
    within("a message", length(meta.message.as_bytes()), MESSAGE_BYTES_MAX)?;
    let fields = meta.fields.iter().map(|(name, value)| 4 + length(name.as_bytes()) + length(value.as_bytes()));
    within("the fields of a commit", fields.sum(), MESSAGE_BYTES_MAX)
}

/// The next reader and the next commit find the pages in memory, unless somebody stayed where they belong.
pub(crate) fn keep(store: &Store, root: &Root, fragments: Vec<Fragment>) {
    let entry = root.entry;
    for (index, Fragment { page, mut bytes, before, superseded, .. }) in (0..).zip(fragments) {
        // Whoever reads it from the journal is told what is wrong, if anything is.
        if page.level > 0 && resolve(&mut bytes, entry).is_err() {
            continue;
        }
        if let Ok(after) = before.after(bytes.into(), superseded) {
            store.pages.keep((root.document, Place { entry, index }), Arc::new(after));
        }
    }
}

/// Fragments on their way into the journal.
struct Laying<'a> {
    reading: Reading<'a>,
    /// Those that will be in the commit's entry.
    fragments: Vec<Fragment>,
    bytes: u64,
    apart: bool,
}

impl Laying<'_> {
    fn append(&self, fragment: Fragment) -> Result<Place, DocsError> {
        let Reading { store, doc, .. } = self.reading;
        let Fragment { page, bytes, before, superseded, .. } = fragment;
        let head = lay_page(doc.id, page);
        let ticket = store.log.append(KIND_PAGE, &[&head, &bytes])?;
        let place = Place { entry: Entry::new(ticket.lsn, head.len() + bytes.len()), index: 0 };
        if let Ok(after) = before.after(bytes.into(), superseded) {
            store.pages.keep((doc.id, place), Arc::new(after));
        }
        Ok(place)
    }
}

impl Pages for Laying<'_> {
    type Error = DocsError;

    fn page(&self, page: PageName, chain: &Chain) -> Result<Arc<Page>, DocsError> {
        self.reading.page(page, chain)
    }

    fn bad(&self, bad: Bad) -> DocsError {
        self.reading.bad(bad)
    }
}

impl Shelf for Laying<'_> {
    fn place(&mut self, fragment: Fragment) -> Result<Place, DocsError> {
        let bytes = length(&fragment.bytes);
        let is_large = bytes > FRAGMENT_BYTES_MAX || self.bytes.saturating_add(bytes) > FRAGMENTS_BYTES_MAX;
        if !fragment.leads_here && (self.apart || is_large) {
            return self.append(fragment);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.fragments.push(fragment);
        let index = u32::try_from(self.fragments.len() - 1).unwrap_or(u32::MAX);
        Ok(Place::here(index))
    }
}
