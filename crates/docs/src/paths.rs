//! The paths of an edit: those of the revision with what has changed of them.
//!
//! Walk: [`Paths::step`] finds or makes the path one step further · [`Paths::count`] counts a node in or out.
//! Names are looked up in maps that are filled once, when the first new node needs its path: a changed value needs none. A commit
//! leaves them to the next edit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::DocsError;
use crate::document::Doc;
use crate::entry::Root;
use crate::look::{Named, Stepped, Text};
use crate::node::NodeKey;
use crate::path::{Path, PathId, Step};
use crate::store::Reading;
use crate::trie::{Changes, Tree};

/// A path as it will be.
#[derive(Clone, Debug)]
pub(crate) struct PathDraft {
    pub(crate) named: Named,
    /// It is not in the tree; else only its count has changed.
    pub(crate) is_new: bool,
}

/// The paths of a revision by their steps, kept from one edit to the next: filling them costs a walk over all of them.
#[derive(Debug)]
pub(crate) struct Kept {
    tree: Tree,
    next: PathId,
    known: Known,
}

/// More paths than this are not kept.
const KEPT_MAX: PathId = 1 << 16;

/// Which path is one step behind which.
#[derive(Debug, Default)]
pub(crate) struct Known {
    members: HashMap<PathId, HashMap<Arc<str>, PathId>>,
    items: HashMap<PathId, PathId>,
    root: Option<PathId>,
}

impl Kept {
    fn is_of(&self, tree: &Tree, next: PathId) -> bool {
        (&self.tree, self.next) == (tree, next)
    }
}

impl Known {
    fn find(&self, before: PathId, step: Step<'_>) -> Option<PathId> {
        match step {
            Step::Root => self.root,
            Step::Member(name) => self.members.get(&before)?.get(name).copied(),
            Step::Items => self.items.get(&before).copied(),
        }
    }

    fn add(&mut self, before: PathId, step: Step<'_>, path: PathId) {
        match step {
            Step::Root => self.root = Some(path),
            Step::Member(name) => _ = self.members.entry(before).or_default().insert(name.into(), path),
            Step::Items => _ = self.items.insert(before, path),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) tree: Tree,
    pub(crate) next: PathId,
    pub(crate) drafts: BTreeMap<PathId, PathDraft>,
    pub(crate) known: Option<Known>,
}

impl Paths {
    pub(crate) fn over(base: &Root) -> Self {
        Self { tree: base.paths.clone(), next: base.next_path, drafts: BTreeMap::new(), known: None }
    }

    /// The same, for whoever may come back to it.
    pub(crate) fn copy(&self) -> Self {
        Self { tree: self.tree.clone(), next: self.next, drafts: self.drafts.clone(), known: None }
    }

    pub(crate) fn find(&self, reading: &Reading<'_>, path: PathId) -> Result<Option<Named>, DocsError> {
        match self.drafts.get(&path) {
            Some(draft) => Ok(Some(draft.named.clone())),
            None => reading.path(&self.tree, path),
        }
    }

    /// The path one step behind another; made, without a node, if there is none. No name: a value of an array, or the
    /// document's.
    pub(crate) fn step(
        &mut self,
        reading: &Reading<'_>,
        before: PathId,
        name: Option<&str>,
    ) -> Result<PathId, DocsError> {
        let (step, stepped) = match name {
            Some(name) => (Step::Member(name), Stepped::Member),
            None if before == 0 => (Step::Root, Stepped::Root),
            None => (Step::Items, Stepped::Items),
        };
        let mut known = match self.known.take() {
            Some(known) => known,
            None => match reading.doc.take_paths().filter(|kept| kept.is_of(&self.tree, self.next)) {
                Some(kept) => kept.known,
                None => self.known(reading)?,
            },
        };
        let path = known.find(before, step).unwrap_or_else(|| {
            let named = Named { before, step: stepped, name: Text::own(name.unwrap_or_default()), references: 0 };
            self.drafts.insert(self.next, PathDraft { named, is_new: true });
            known.add(before, step, self.next);
            self.next += 1;
            self.next - 1
        });
        self.known = Some(known);
        Ok(path)
    }

    /// What the next edit may go on with, when these are the committed paths. `before`: those that this edit began with.
    pub(crate) fn keep(known: Option<Known>, doc: &Doc, before: &Root, after: &Root) {
        let kept = doc.take_paths().filter(|kept| kept.is_of(&before.paths, before.next_path));
        // Without a new path the known ones are the same, but for a revert: that lists no changes.
        let kept = kept.filter(|_| after.is_listed && before.next_path == after.next_path).map(|kept| kept.known);
        if let Some(known) = known.or(kept).filter(|_| after.next_path <= KEPT_MAX) {
            doc.keep_paths(Kept { tree: after.paths.clone(), next: after.next_path, known });
        }
    }

    fn known(&self, reading: &Reading<'_>) -> Result<Known, DocsError> {
        let mut known = Known::default();
        for path in 1..self.next {
            if let Some(named) = self.find(reading, path)? {
                known.add(named.before, named.step(), path);
            }
        }
        Ok(known)
    }

    /// The paths are those of a revision; new ones go on where they would have, or behind those of a revision that was dropped since.
    pub(crate) fn revert(&mut self, to: &Root) {
        self.drafts.clear();
        (self.tree, self.known, self.next) = (to.paths.clone(), None, self.next.max(to.next_path));
    }

    /// Forgets the paths from this one on: they were never in the tree that holds.
    pub(crate) fn forget_from(&mut self, first: PathId) {
        if self.next > first {
            self.drafts.retain(|path, _| *path < first);
            (self.next, self.known) = (first, None);
        }
    }

    /// Counts nodes of a path in or out.
    pub(crate) fn count(&mut self, reading: &Reading<'_>, path: PathId, delta: i64) -> Result<(), DocsError> {
        let draft = match self.drafts.remove(&path) {
            Some(draft) => Some(draft),
            None => reading.path(&self.tree, path)?.map(|named| PathDraft { named, is_new: false }),
        };
        if let Some(mut draft) = draft {
            draft.named.references = draft.named.references.saturating_add_signed(delta);
            self.drafts.insert(path, draft);
        }
        Ok(())
    }

    /// What has changed, by pages.
    pub(crate) fn changes(&self) -> Changes<'_> {
        let mut changes = Changes::new();
        for (id, PathDraft { named, is_new }) in &self.drafts {
            let (page, slot) = NodeKey(*id).page();
            let path = Path { before: named.before, step: named.step(), references: named.references };
            let record = if *is_new { path.record() } else { path.count() };
            changes.entry(page).or_default().insert(slot, record);
        }
        changes
    }
}
