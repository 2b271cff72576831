//! The paths of an edit: those of the revision with what has changed of them.
//!
//! Walk: [`Paths::step`] finds or makes the path one step further · [`Paths::count`] counts a node in or out.
//! Paths are looked up by their steps in a table that is filled once, when the first new node needs its path: a changed value needs none.
//! The document keeps it; an edit has one of its own paths beside it, and a commit adds those. Neither has the names, which may be long,
//! but a digest of each: with a secret key, so that nobody finds two names that have the same one.
//! A path that no node has any more does not count. Whoever fills the table passes it over: its name gets another number when it comes again.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::DocsError;
use crate::document::Doc;
use crate::edit::TEXT_BYTES_LONG;
use crate::entry::Root;
use crate::error::within;
use crate::look::{Named, Stepped, Text};
use crate::node::NodeKey;
use crate::page::SLOTS;
use crate::path::{Path, PathId, PathIds, Step};
use crate::store::{Reading, Store};
use crate::trie::{Bad, Changes, PageName, Pages as _, Tree, Which};

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
    there: There,
    share: Share,
}

/// Bytes that the kept paths of all documents take, at most. Beyond them an edit that needs a new node's path walks over all paths.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// What a path costs there, about.
const PATH_BYTES: u64 = 48;
/// Numbers of paths: whoever fills the table walks over the pages of all of them, also of those that are gone.
const NUMBERS_MAX: PathId = 1 << 28;

/// A step behind a path, as the tables know it.
type Digest = [u64; 2];

/// The key of this process: what is digested stays in it.
static KEYS: LazyLock<Digest> = LazyLock::new(|| [(); 2].map(|()| RandomState::new().build_hasher().finish()));

fn digest(before: PathId, step: Step<'_>) -> Digest {
    let [first, second] = *KEYS;
    let mut hasher = SipHasher13::new_with_keys(first, second);
    hasher.write_u64(before);
    match step {
        Step::Root => hasher.write_u8(1),
        Step::Items => hasher.write_u8(2),
        Step::Member(name) => {
            hasher.write_u8(3);
            hasher.write(name.as_bytes());
        }
    }
    let digest = hasher.finish128();
    [digest.h1, digest.h2]
}

/// Which path is one step behind which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(HashMap<Digest, PathId, PathIds>);

/// A part of what all documents may keep.
#[derive(Debug)]
struct Share {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Share {
    fn take(all: &Arc<AtomicU64>, bytes: u64) -> Option<Self> {
        let room = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= KEPT_BYTES_MAX);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Self { all: Arc::clone(all), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Kept {
    fn is_of(&self, tree: &Tree, next: PathId) -> bool {
        (&self.tree, self.next) == (tree, next)
    }

    /// What is known of these paths, if they are the ones that are kept.
    pub(crate) fn of(&self, tree: &Tree, next: PathId) -> Option<There> {
        self.is_of(tree, next).then(|| self.there.clone())
    }
}

impl Known {
    fn find(&self, step: Digest) -> Option<PathId> {
        self.0.get(&step).copied()
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX).saturating_mul(PATH_BYTES)
    }

    fn forget_from(&mut self, first: PathId) {
        self.0.retain(|_, path| *path < first);
    }
}

/// The paths that were there by their steps: each that has nodes, and perhaps some that have none any more.
#[derive(Clone, Debug)]
pub(crate) struct There {
    known: Arc<Known>,
    /// Those that have nodes.
    live: u64,
}

/// The paths of an edit by their steps: those that were there, and its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    before: Option<There>,
    own: Known,
    /// Of those that were there: so many more have nodes now.
    gained: i64,
    /// Of its own: those that have nodes.
    own_live: i64,
}

impl Names {
    /// Distinct paths of the edit; its own are taken for such before their nodes are counted.
    fn many(&self) -> u64 {
        let own = u64::try_from(self.own.0.len()).unwrap_or(u64::MAX);
        let before = self.before.as_ref().map_or(0, |there| there.live);
        before.saturating_add_signed(self.gained).saturating_add(own)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) tree: Tree,
    pub(crate) next: PathId,
    pub(crate) drafts: BTreeMap<PathId, PathDraft>,
    /// The tree that the edit began with, and its own paths begin here.
    origin: (Tree, PathId),
    is_reverted: bool,
    pub(crate) names: Names,
}

impl Paths {
    pub(crate) fn over(base: &Root) -> Self {
        let (tree, next) = (base.paths.clone(), base.next_path);
        let (drafts, names) = (BTreeMap::new(), Names::default());
        Self { origin: (tree.clone(), next), tree, next, drafts, is_reverted: false, names }
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
        if self.names.before.is_none() {
            self.names.before = Some(self.known(reading)?);
        }
        let Names { before: there, own, .. } = &self.names;
        let digest = digest(before, step);
        let there = there.as_ref().and_then(|there| there.known.find(digest));
        if let Some(path) = there.or_else(|| own.find(digest)) {
            return Ok(path);
        }
        let many = self.names.many().saturating_add(1);
        within("the distinct paths of a document", many, reading.store.config.paths_max.into())?;
        within("the paths that a document ever had", self.next, NUMBERS_MAX)?;
        let (path, name) = (self.next, name.unwrap_or_default());
        let named = Named { before, step: stepped, name: Text::own(name), references: 0 };
        self.drafts.insert(path, PathDraft { named, is_new: true });
        self.names.own.0.insert(digest, path);
        // A long name is the last of its page, as a long text is.
        self.next = if name.len() < TEXT_BYTES_LONG { path + 1 } else { (path / SLOTS + 1) * SLOTS };
        Ok(path)
    }

    /// What the next edit may go on with, when these are the committed paths. `before`: those that this edit began with.
    pub(crate) fn keep(names: Names, (store, doc): (&Store, &Doc), before: &Root, after: &Root) {
        let kept = doc.take_paths();
        let Names { before: there, own, gained, own_live } = names;
        let (there, share) = match there {
            Some(There { known, live }) => {
                // Nobody else has it then, and it need not be copied.
                drop(kept);
                let known = if own.0.is_empty() {
                    known
                } else {
                    let mut known = Arc::try_unwrap(known).unwrap_or_else(|shared| Known::clone(&shared));
                    known.0.extend(own.0);
                    Arc::new(known)
                };
                let share = Share::take(&store.path_bytes, known.bytes());
                (There { known, live: live.saturating_add_signed(gained.saturating_add(own_live)) }, share)
            }
            // Without a new path the known ones are the same, but for a revert: that lists no changes.
            None => match kept {
                Some(Kept { tree, next, there: There { known, live }, share })
                    if (&tree, next) == (&before.paths, before.next_path)
                        && after.is_listed
                        && before.next_path == after.next_path =>
                {
                    (There { known, live: live.saturating_add_signed(gained) }, Some(share))
                }
                _ => return,
            },
        };
        if let Some(share) = share {
            doc.keep_paths(Kept { tree: after.paths.clone(), next: after.next_path, there, share });
        }
    }

    /// The paths that were there: those that an earlier edit left, or all of them are walked over, page by page.
    fn known(&self, reading: &Reading<'_>) -> Result<There, DocsError> {
        let (tree, end) = &self.origin;
        if let Some(there) = reading.doc.known_paths(tree, *end) {
            return Ok(there);
        }
        let mut known = Known::default();
        for number in 0..end.div_ceil(SLOTS) {
            let Some(page) = reading.leaf(tree, Which::Paths, number)? else { continue };
            let bad = |what| reading.bad(Bad { page: PageName { which: Which::Paths, level: 0, number }, what });
            for (slot, record) in page.records().map_err(bad)?.iter() {
                let Path { before, step, references } = Path::read(record).map_err(bad)?;
                if references > 0 {
                    known.0.insert(digest(before, step), number * SLOTS + PathId::from(slot));
                }
            }
        }
        let live = u64::try_from(known.0.len()).unwrap_or(u64::MAX);
        let there = There { known: Arc::new(known), live };
        // This edit may never be committed.
        if !self.is_reverted
            && let Some(share) = Share::take(&reading.store.path_bytes, there.known.bytes())
        {
            reading.doc.keep_paths(Kept { tree: tree.clone(), next: *end, there: there.clone(), share });
        }
        Ok(there)
    }

    /// The paths are those of a revision; new ones go on where they would have, or behind those of a revision that was dropped since.
    pub(crate) fn revert(&mut self, to: &Root) {
        self.drafts.clear();
        (self.tree, self.next) = (to.paths.clone(), self.next.max(to.next_path));
        (self.origin, self.is_reverted, self.names) = ((to.paths.clone(), self.next), true, Names::default());
    }

    /// Forgets the paths from this one on: they were never in the tree that holds.
    pub(crate) fn forget_from(&mut self, first: PathId) {
        if self.next > first {
            self.drafts.retain(|path, _| *path < first);
            self.names.own.forget_from(first);
            self.next = first;
        }
    }

    /// Counts nodes of a path in or out.
    pub(crate) fn count(&mut self, reading: &Reading<'_>, path: PathId, delta: i64) -> Result<(), DocsError> {
        let draft = match self.drafts.remove(&path) {
            Some(draft) => Some(draft),
            None => reading.path(&self.tree, path)?.map(|named| PathDraft { named, is_new: false }),
        };
        if let Some(mut draft) = draft {
            let had = draft.named.references > 0;
            draft.named.references = draft.named.references.saturating_add_signed(delta);
            let (_, own_from) = self.origin;
            let Names { gained, own_live, .. } = &mut self.names;
            let live = if path < own_from { gained } else { own_live };
            *live += i64::from(draft.named.references > 0) - i64::from(had);
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

#[cfg(test)]
#[path = "paths_test.rs"]
mod tests;
