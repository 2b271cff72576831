//! Commits that name only the branches that were seen, and what a person has decided: they are kept until every resource has shown what it holds.
//!
//! Walk: [`Late::expect`] the resources · [`Late::listed`] counts their listings · [`Late::mark`] such a commit ·
//! [`Late::is_awaited`] until each has listed twice since: the second list was asked for after the decision.
//! Why: a resource that was down at the decision comes back with a branch. If the commit were forgotten by then, the
//! branch would be rolled back, presumed: half a transaction.
//! Deliberately absent: what is listed (the table's watched ones are kept anyway), and I/O.

use std::collections::BTreeMap;

use assent_ids::{ResourceId, TxId};

#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Counts all listings.
    count: u64,
    /// The last listing but one, and the last one, of each resource; 0: none yet.
    listings: BTreeMap<ResourceId, [u64; 2]>,
    /// The count when it was decided, or recovered.
    marks: BTreeMap<TxId, u64>,
}

impl Late {
    pub(crate) fn expect(&mut self, resources: impl Iterator<Item = ResourceId>) {
        self.listings = resources.map(|resource| (resource, [0; 2])).collect();
    }

    pub(crate) fn listed(&mut self, resource: ResourceId) {
        self.count += 1;
        if let Some([before, last]) = self.listings.get_mut(&resource) {
            (*before, *last) = (*last, self.count);
        }
    }

    pub(crate) fn mark(&mut self, tx: TxId) {
        _ = self.marks.insert(tx, self.count);
    }

    pub(crate) fn gone(&mut self, tx: TxId) {
        _ = self.marks.remove(&tx);
    }

    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }

    /// Whether a resource may still come with a branch of it. Before any is attended each of them may.
    pub(crate) fn is_awaited(&self, tx: TxId) -> bool {
        self.marks.get(&tx).is_some_and(|mark| self.shown() <= *mark)
    }

    /// Those that nobody waits for any more.
    pub(crate) fn shown_all(&self) -> Vec<TxId> {
        let shown = self.shown();
        self.marks.iter().filter(|(_, mark)| shown > **mark).map(|(tx, _)| *tx).collect()
    }

    /// Every resource has listed twice since then.
    fn shown(&self) -> u64 {
        self.listings.values().map(|[before, _]| *before).min().unwrap_or(0)
    }
}
