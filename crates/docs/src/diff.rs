//! What differs between two revisions of a document, whichever is the older.
//!
//! ```text
//!   neighbours       the keys that the newer commit lists
//!   any other two    the keys in pages that they do not share                             (differing)
//!   both             what became of each: the same answer                                 (judge)
//!   written          as a list of differences (json) · as a JSON Patch (patch) · as a merge patch (merge)
//! ```
//! Walk: [`Diff::between`] · [`Diff::differences`] · [`Diff::write`], [`Diff::patch`], [`Diff::merge_patch`].
//! Deliberately absent: values. They stand in the revisions, and a diff knows both.

mod differing;
mod json;
mod judge;
mod merge;
mod patch;
mod row;
mod work;

pub(crate) use judge::children;
pub use patch::{DiffOp, DiffPatch};

use judge::Judge;

use crate::DocsError;
use crate::look::Look;
use crate::node::NodeKey;
use crate::revision::Revision;

/// A place in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The container; the document for the outermost value.
    pub parent: NodeKey,
    /// The sibling to the left; none for the first child.
    pub left: Option<NodeKey>,
}

/// One difference. Names and values are in the revisions.
///
/// Differences are in an order in which they can be applied: take out everything that is removed, replaced or moved; then change
/// what changed in place; then put what was inserted or moved to its place, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Difference {
    /// It is gone, with all that was below it and was not moved.
    Removed {
        /// The topmost node.
        key: NodeKey,
        /// Where it was.
        from: Spot,
    },
    /// A member has another name.
    Renamed {
        /// The node.
        key: NodeKey,
    },
    /// A string, number, boolean or null is another one.
    Updated {
        /// The node.
        key: NodeKey,
    },
    /// It is new, with all that is below it.
    Inserted {
        /// The topmost node.
        key: NodeKey,
        /// Where it is.
        to: Spot,
    },
    /// It is new, in the place of another one that is gone: under its name, or where it stood in an array.
    Replaced {
        /// The topmost node that is gone.
        old: NodeKey,
        /// The topmost one that is new.
        new: NodeKey,
        /// Where it was.
        from: Spot,
        /// Where it is.
        to: Spot,
    },
    /// It is elsewhere, and may have another name there.
    Moved {
        /// The topmost node.
        key: NodeKey,
        /// Where it was.
        from: Spot,
        /// Where it is.
        to: Spot,
    },
}

impl Difference {
    /// The node in the old revision, and in the new one.
    #[must_use]
    pub const fn keys(&self) -> (Option<NodeKey>, Option<NodeKey>) {
        match *self {
            Self::Removed { key, .. } => (Some(key), None),
            Self::Inserted { key, .. } => (None, Some(key)),
            Self::Replaced { old, new, .. } => (Some(old), Some(new)),
            Self::Renamed { key } | Self::Updated { key } | Self::Moved { key, .. } => (Some(key), Some(key)),
        }
    }
}

/// How much of a document is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// This node and what is below it, in either revision; everything where there is none.
    pub start: Option<NodeKey>,
    /// So many levels; the first node is on level 1. What differs further down is left out.
    pub max_level: Option<u32>,
}

/// What differs between two revisions.
#[derive(Clone, Debug)]
pub struct Diff {
    old: Revision,
    new: Revision,
    differences: Vec<Difference>,
    scope: Scope,
}

impl Diff {
    /// What differs. `new` may as well be the older one.
    ///
    /// # Errors
    /// [`DocsError::Unfit`] for revisions of different documents; [`DocsError::NoNode`] for a start that is in neither; as
    /// [`Look::find`].
    pub fn between(old: &Revision, new: &Revision, scope: Scope) -> Result<Self, DocsError> {
        match listed(old, new) {
            Some(keys) => Self::of(old, new, scope, keys),
            None => Self::walked(old, new, scope),
        }
    }

    /// What differs, by the pages of both and not by what a commit lists. The answer is the same.
    ///
    /// # Errors
    /// As [`Diff::between`].
    #[doc(hidden)]
    pub fn walked(old: &Revision, new: &Revision, scope: Scope) -> Result<Self, DocsError> {
        if old.root.document != new.root.document {
            let why = "the revisions are of different documents: no node of one is one of the other";
            return Err(DocsError::Unfit { key: NodeKey::DOCUMENT, why });
        }
        Self::of(old, new, scope, differing::differing(old, new)?)
    }

    fn of(
        old: &Revision,
        new: &Revision,
        scope: Scope,
        keys: impl IntoIterator<Item = NodeKey>,
    ) -> Result<Self, DocsError> {
        if let Some(start) = scope.start
            && old.find(start)?.is_none()
        {
            new.item(start)?;
        }
        let mut differences = Judge::of(old, new, keys)?;
        if scope != Scope::default() {
            let mut within = Vec::new();
            for difference in differences {
                if is_within(old, new, scope, &difference)? {
                    within.push(difference);
                }
            }
            differences = within;
        }
        Ok(Self { old: old.clone(), new: new.clone(), differences, scope })
    }

    /// The revision that it leads from.
    #[must_use]
    pub const fn before(&self) -> &Revision {
        &self.old
    }

    /// The revision that it leads to.
    #[must_use]
    pub const fn after(&self) -> &Revision {
        &self.new
    }

    /// What differs.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Refuses a part of a document where all of it is needed.
    fn whole(&self, form: &'static str) -> Result<(), DocsError> {
        if self.scope == Scope::default() {
            return Ok(());
        }
        let why = "only a part of the document was compared";
        Err(DocsError::Inexpressible { form, key: self.scope.start.unwrap_or(NodeKey::DOCUMENT), why })
    }
}

/// What the commit between two neighbours lists, if they are that and it does.
fn listed(old: &Revision, new: &Revision) -> Option<Vec<NodeKey>> {
    let of = |older: &Revision, newer: &Revision| {
        let (before, after) = (&*older.root, &*newer.root);
        // By its entry: a revision of the same number may have been another one.
        let follows = before.document == after.document
            && before.revision.checked_add(1) == Some(after.revision)
            && before.entry == after.previous;
        let changes = newer.changes().filter(|_| follows)?;
        let mut keys: Vec<NodeKey> = changes.iter().map(|change| NodeKey(change.node)).collect();
        keys.sort_unstable();
        keys.dedup();
        Some(keys)
    };
    of(old, new).or_else(|| of(new, old))
}

fn is_within(old: &Revision, new: &Revision, scope: Scope, difference: &Difference) -> Result<bool, DocsError> {
    let (before, after) = difference.keys();
    let is_in = |look: &Revision, key: Option<NodeKey>| -> Result<bool, DocsError> {
        let Some(key) = key else { return Ok(false) };
        let level = level(look, key, scope.start)?;
        Ok(level.is_some_and(|level| scope.max_level.is_none_or(|most| level <= most)))
    };
    Ok(is_in(old, before)? || is_in(new, after)?)
}

/// On which level below a start a node is; none if it is not below it. The start itself, or the document's value, is on level 1.
fn level(look: &impl Look, key: NodeKey, start: Option<NodeKey>) -> Result<Option<u32>, DocsError> {
    let (mut at, mut level) = (key, 1);
    loop {
        if Some(at) == start {
            return Ok(Some(level));
        }
        at = look.item(at)?.node.parent;
        if at == NodeKey::DOCUMENT {
            return Ok(start.is_none().then_some(level));
        }
        level += 1;
    }
}
