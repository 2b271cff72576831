//! The past of one node, or of one path: in which revisions it became another, and what it said from when to when.
//!
//! Walk: [`Document::node_runs`] and [`Document::path_runs`] go back from revision to revision, and put those together that say the
//! same; where the trees of two revisions are one, nothing is looked up.
//! Deliberately absent: an index of changes by node. A walk costs a commit read for each revision of the range.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::DocsError;
use crate::document::Document;
use crate::entry::Root;
use crate::look::Look;
use crate::node::NodeKey;
use crate::pointer::Pointer;
use crate::revision::Revision;

/// So many rows are looked up at once.
const ROWS: u32 = 256;

/// Revisions one after the other in which a node says the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first and the last of them.
    pub revisions: RangeInclusive<u32>,
    /// When the first one was committed (milliseconds since 1970).
    pub time_ms: u64,
    /// The node, and the rolling hash of it with all that is below it. None: there is no node.
    pub node: Option<(NodeKey, u64)>,
}

impl Document {
    /// What a node was in the revisions of a range: runs of those in which it is the same, with all that is below it, under the same
    /// name and in the same container. The newest first, at most so many. A run begins in the revision in which the node became that, or where
    /// the range does.
    ///
    /// # Errors
    /// As [`Document::at`] and [`Look::find`].
    pub fn node_runs(&self, key: NodeKey, revisions: RangeInclusive<u32>, limit: usize) -> Result<Vec<Run>, DocsError> {
        self.node_runs_while(key, revisions, limit, || true).map(Option::unwrap_or_default)
    }

    /// The same for as long as somebody waits for it: asked once for so many revisions; if it is not to go on, none.
    ///
    /// # Errors
    /// As [`Document::node_runs`].
    pub fn node_runs_while(
        &self,
        key: NodeKey,
        revisions: RangeInclusive<u32>,
        limit: usize,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<Vec<Run>>, DocsError> {
        self.runs(revisions, limit, |revision| Ok(revision.find(key)?.map(|item| item.node.key)), go_on)
    }

    /// As [`Document::node_runs`], of whatever node is there where a JSON Pointer (RFC 6901) leads.
    ///
    /// # Errors
    /// [`DocsError::Pointer`]; as [`Document::node_runs`].
    pub fn path_runs(
        &self,
        pointer: &str,
        revisions: RangeInclusive<u32>,
        limit: usize,
    ) -> Result<Vec<Run>, DocsError> {
        let parsed = Pointer::parse(pointer);
        let parsed = parsed.map_err(|why| DocsError::Pointer { pointer: pointer.to_owned(), why })?;
        Ok(self.runs(revisions, limit, |revision| parsed.find(revision), || true)?.unwrap_or_default())
    }

    fn runs(
        &self,
        revisions: RangeInclusive<u32>,
        limit: usize,
        find: impl Fn(&Revision) -> Result<Option<NodeKey>, DocsError>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<Vec<Run>>, DocsError> {
        let head = self.doc.head.get();
        let (from, to) = (*revisions.start(), (*revisions.end()).min(head.revision));
        let mut runs: Vec<Run> = Vec::new();
        // What was found last, that is one revision later.
        let mut later: Option<(Arc<Root>, State)> = None;
        let mut next = Some(to).filter(|to| from <= *to);
        while let Some(newest) = next {
            if !go_on() {
                return Ok(None);
            }
            let oldest = newest.saturating_sub(ROWS - 1).max(from);
            for root in self.roots_back(&head, oldest, newest)? {
                let state = match &later {
                    Some((after, state)) if (after.value, &after.nodes) == (root.value, &root.nodes) => *state,
                    _ => {
                        let revision = Revision::of(self, Arc::clone(&root));
                        state_of(&revision, find(&revision)?)?
                    }
                };
                let is_same = later.as_ref().is_some_and(|(_, after)| *after == state);
                if !is_same && runs.len() == limit {
                    return Ok(Some(runs));
                }
                match runs.last_mut().filter(|_| is_same) {
                    Some(run) => (run.revisions, run.time_ms) = (root.revision..=*run.revisions.end(), root.time_ms),
                    None => runs.push(Run {
                        revisions: root.revision..=root.revision,
                        time_ms: root.time_ms,
                        node: state.map(|(key, hash, _)| (key, hash)),
                    }),
                }
                later = Some((root, state));
            }
            next = oldest.checked_sub(1).filter(|next| from <= *next);
        }
        Ok(Some(runs))
    }

    /// The commits of revisions, the newest first. They are not kept in memory: there may be many.
    fn roots_back(&self, head: &Arc<Root>, from: u32, to: u32) -> Result<Vec<Arc<Root>>, DocsError> {
        let rows = self.store.index.rows(self.doc.id, from..=to, usize::MAX)?;
        let mut roots = Vec::with_capacity(rows.len() + 1);
        for row in rows {
            let kept = self.store.roots.get(&(self.doc.id, head.epoch, row.revision));
            roots.push(match kept {
                _ if row.revision == head.revision => Arc::clone(head),
                Some(root) => root,
                None => Arc::new(self.store.read_root(&self.doc, &row)?),
            });
        }
        if from == 0 {
            roots.push(Arc::new(Root::empty(self.doc.id)));
        }
        Ok(roots)
    }
}

/// A node with the hash of all that is below it, and its parent.
type State = Option<(NodeKey, u64, NodeKey)>;

fn state_of(revision: &Revision, key: Option<NodeKey>) -> Result<State, DocsError> {
    let Some(key) = key else { return Ok(None) };
    let item = revision.item(key)?;
    Ok(Some((key, revision.hash(&item)?, item.node.parent)))
}
