//! What is known of a map: sizes, counts, what waits, what a check found.
//!
//! Walk: [`Counts`] are added to by steps · `Runs::facts` and `Runs::debt` read them and the version.
//! Deliberately absent: names of metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an open found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Up to here the owner need not replay.
    pub applied: u64,
    /// The owner's note.
    pub note: Vec<u8>,
    /// Files of steps that a crash ended.
    pub orphans_removed: u64,
    /// Runs of the map.
    pub runs: u64,
    /// Why one copy of the manifest could not be believed: a crash tore it, or it is damaged. The other one counts.
    pub manifest_torn: Option<crate::RunsError>,
}

/// What waits to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt {
    /// Bytes of the memtable that takes what is applied: of its entries, and of the places of their keys.
    pub active_bytes: u64,
    /// Bytes of those that wait for their flush.
    pub immutable_bytes: u64,
    /// How many wait.
    pub immutables: u32,
    /// Runs at level 0.
    pub level0_runs: u32,
    /// What merges would have to read of what is too much at its level, as of the last commit; 0 since a look found no merge to do.
    pub merge_bytes: u64,
}

/// What one level holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelFacts {
    /// Runs.
    pub runs: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries, tombstones among them.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of values.
    pub value_bytes: u64,
}

/// What a map holds and did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Runs of all levels.
    pub runs: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Level 0 first.
    pub levels: Vec<LevelFacts>,
    /// Entries in memtables, those that nobody can see any more among them.
    pub memtable_entries: u64,
    /// Erased ranges that something may still lie beneath.
    pub ranges: u64,
    /// Runs that are no part of the map any more, and whose files an older manifest still names.
    pub runs_leaving: u64,
    /// Runs that merges go round since this opening, because they cannot be read.
    pub runs_unreadable: u64,
    /// Pieces of run files that were in the cache, and rows that were found before.
    pub cache_hits: u64,
    /// Pieces that were not.
    pub cache_misses: u64,
    /// Bytes that the cache holds: of files, and rows with what their owner keeps beside them.
    pub cache_bytes: u64,
    /// Bytes of runs that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of runs that merges wrote.
    pub merged_bytes: u64,
    /// Manifests that were committed.
    pub commits: u64,
    /// Bytes of the process that it holds: memtables, what of those that are gone waits for the next one, cache and the tops of indexes.
    pub memory_bytes: u64,
    /// Of these, what waits for the next memtable ([`crate::Config::memory_bytes_kept`]).
    pub spare_bytes: u64,
}

/// What a check of everything found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Runs that were read.
    pub runs: u64,
    /// Entries that could be read.
    pub entries: u64,
    /// Places that are damaged.
    pub damaged: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) commits: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, much: u64) {
        count.fetch_add(much, Ordering::Relaxed);
    }

    pub(crate) fn read(count: &AtomicU64) -> u64 {
        count.load(Ordering::Relaxed)
    }
}
