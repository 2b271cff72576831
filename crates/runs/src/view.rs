//! A view: the map as it was at one moment, for as long as somebody looks.
//!
//! Walk: [`View::get`] asks for one key · [`View::range`] walks, from both ends · [`View::pinned_beyond`] is
//! what it costs to keep it.
//! Deliberately absent: leases. A view holds memory and files until it is dropped; how long that may be is the owner's.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::RunsError;
use crate::filter;
use crate::in_order::InOrder;
use crate::memtable::Memtable;
use crate::run_reader::{OwnedEntry, Reading, Row, Run};
use crate::version::{Seen, Version, Wanted};
use crate::walk::Walk;

/// A value, and where the key became it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The place in the owner's order.
    pub seq: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// What a key became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The place in the owner's order.
    pub seq: u64,
    /// The value; `None`: it was deleted or erased there.
    pub value: Option<Vec<u8>>,
}

/// Something that is there only because a view holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pinned {
    /// Tells it from others: two views may hold the same.
    pub id: usize,
    /// Bytes of memory that go with it.
    pub memory_bytes: u64,
    /// Bytes of files that go with it.
    pub file_bytes: u64,
}

/// The map at one moment. Cheap to make; it pins what it sees.
#[derive(Clone, Debug)]
pub struct View {
    version: Arc<Version>,
    seq: u64,
}

pub(crate) fn found(became: Option<OwnedEntry>) -> Option<Found> {
    let OwnedEntry { seq, value } = became?;
    value.map(|value| Found { seq, value: value.into_vec() })
}

pub(crate) fn newest(became: OwnedEntry) -> Newest {
    Newest { seq: became.seq, value: became.value.map(Row::into_vec) }
}

impl View {
    pub(crate) fn of(version: Arc<Version>) -> Self {
        let seq = version.seq();
        Self { version, seq }
    }

    /// The newest place that it sees.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Tells which version of the map it looks at: two of the same hold the same.
    #[must_use]
    pub fn version(&self) -> usize {
        Arc::as_ptr(&self.version).addr()
    }

    /// What this view holds and a newer one does not: memory and files that would go with it.
    #[must_use]
    pub fn pinned_beyond(&self, newer: &View) -> Vec<Pinned> {
        let tables = |view: &View| -> Vec<Arc<Memtable>> {
            let frozen = view.version.frozen.iter().map(|frozen| Arc::clone(&frozen.table));
            std::iter::once(Arc::clone(&view.version.active)).chain(frozen).collect()
        };
        let runs = |view: &View| -> Vec<Arc<Run>> {
            view.version.levels.iter().flat_map(|level| level.iter()).cloned().collect()
        };
        let kept_tables: BTreeSet<usize> = tables(newer).iter().map(|table| Arc::as_ptr(table).addr()).collect();
        let kept_runs: BTreeSet<usize> = runs(newer).iter().map(|run| Arc::as_ptr(run).addr()).collect();
        let table = |table: &Arc<Memtable>| Pinned {
            id: Arc::as_ptr(table).addr(),
            memory_bytes: table.memory_bytes(),
            file_bytes: 0,
        };
        let run = |run: &Arc<Run>| Pinned {
            id: Arc::as_ptr(run).addr(),
            memory_bytes: run.memory_bytes(),
            file_bytes: run.facts().bytes,
        };
        let tables =
            tables(self).iter().map(table).filter(|pinned| !kept_tables.contains(&pinned.id)).collect::<Vec<_>>();
        let runs = runs(self).iter().map(run).filter(|pinned| !kept_runs.contains(&pinned.id)).collect::<Vec<_>>();
        [tables, runs].concat()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Damaged` naming file and place; as the disk says. Another key may well be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Found>, RunsError> {
        Ok(found(self.version.find(key, self.seq)?))
    }

    /// The same for whoever only looks at it, as [`crate::Runs::look`].
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn look<R>(&self, key: &[u8], then: impl FnOnce(u64, &[u8]) -> R) -> Result<Option<R>, RunsError> {
        let seen = |Seen { seq, value, .. }: Seen<'_>| value.map(|value| then(seq, value));
        Ok(self.version.look(key, self.seq, Wanted::Value, seen)?.flatten())
    }

    /// What the files have of a key, the newest first: one that was superseded stays until a merge meets both. Not what only memory
    /// has.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn written(&self, key: &[u8]) -> Result<Vec<Newest>, RunsError> {
        let rows = self.version.written(key)?;
        Ok(rows.into_iter().map(newest).collect())
    }

    /// The newest of [`View::written`].
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn last_written(&self, key: &[u8]) -> Result<Option<Newest>, RunsError> {
        let row = self.version.find_in_runs(key, filter::hash(key))?;
        Ok(row.map(newest))
    }

    /// The same map, for whoever asks for many keys in their order. What that reads others may ask for, too: it comes into the cache.
    #[must_use]
    pub fn in_order(&self) -> InOrder {
        InOrder::of(Arc::clone(&self.version), self.seq, Reading::Cached)
    }

    /// The same for whoever asks for what nobody else does: it reads ahead where keys are near each other, and past the cache.
    #[must_use]
    pub fn in_order_ahead(&self) -> InOrder {
        InOrder::of(Arc::clone(&self.version), self.seq, Reading::Ahead)
    }

    /// A walk over the keys between two bounds.
    #[must_use]
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Walk<'_> {
        Walk::new(&self.version, self.seq, from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec))
    }
}
