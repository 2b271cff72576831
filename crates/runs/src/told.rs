//! What a map tells about itself: debt, facts, and a check of everything.
//!
//! Walk: [`Runs::debt`] for whoever slows writers down · [`Runs::facts`] for metrics · [`Runs::verify`] reads every byte.
//! Deliberately absent: repair. What is damaged is named; the owner has the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::RunsError;
use crate::facts::{Counts, Debt, Facts, LevelFacts, Verified};
use crate::memtable::Memtable;
use crate::run_reader::Run;
use crate::runs::Runs;
use crate::version::{Levels, Version};

impl Runs {
    /// What waits to be done. Cheap: without a lock, and however many runs there are.
    #[must_use]
    pub fn debt(&self) -> Debt {
        let version = self.now();
        let level0_runs = version.levels.first().map_or(0, |level0| level0.len());
        Debt {
            active_bytes: version.active.counted_bytes(),
            immutable_bytes: version.frozen.iter().map(|frozen| frozen.table.counted_bytes()).sum(),
            immutables: u32::try_from(version.frozen.len()).unwrap_or(u32::MAX),
            level0_runs: u32::try_from(level0_runs).unwrap_or(u32::MAX),
            merge_bytes: Counts::read(&self.merge_bytes),
        }
    }

    /// A look at these levels has found no merge to do: what is more than its level's size waits for more, and nothing waits for a merge.
    pub(crate) fn owes_nothing(&self, shown: &Arc<Levels>) {
        // Under this lock a commit says what is owed from then on.
        let _book = self.book();
        if Arc::ptr_eq(&self.now().levels, shown) {
            self.merge_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// What it holds, and what it did since it was opened.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let version = self.version();
        let cache = self.cache.facts();
        let run_bytes: u64 = version.levels.iter().flat_map(|level| level.iter()).map(|run| run.memory_bytes()).sum();
        let table_bytes: u64 = tables(&version).map(Memtable::memory_bytes).sum();
        let spare_bytes = self.spare.memory_bytes();
        let levels: Vec<LevelFacts> = version.levels.iter().map(|level| level_facts(level)).collect();
        Facts {
            runs: levels.iter().map(|level| level.runs).sum(),
            bytes: levels.iter().map(|level| level.bytes).sum(),
            levels,
            memtable_entries: tables(&version).map(Memtable::entries).sum(),
            ranges: count(version.erased.fragments().len()),
            runs_leaving: count(self.book().leaving().len()),
            runs_unreadable: count(self.shunned.runs().len()),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_bytes: cache.bytes,
            flushed_bytes: Counts::read(&self.counts.flushed_bytes),
            merged_bytes: Counts::read(&self.counts.merged_bytes),
            commits: Counts::read(&self.counts.commits),
            memory_bytes: run_bytes + table_bytes + cache.bytes + spare_bytes,
            spare_bytes,
        }
    }

    /// Reads the newest manifest and every byte of every run, past the cache, and tells all damage there is. Readers, writers
    /// and steps go on meanwhile.
    pub fn verify(&self, told: &mut dyn FnMut(&RunsError)) -> Verified {
        self.verify_until(&|| false, told)
    }

    /// As [`Runs::verify`], until it is told to stop: it asks before each run.
    pub fn verify_until(&self, is_stopped: &dyn Fn() -> bool, told: &mut dyn FnMut(&RunsError)) -> Verified {
        let mut found = Verified::default();
        if let Some(error) = self.book().verify() {
            found.damaged += 1;
            told(&error);
        }
        let version = self.version();
        for run in version.levels.iter().flat_map(|level| level.iter()).take_while(|_| !is_stopped()) {
            let verified = run.verify(told);
            found.runs += 1;
            found.entries += verified.entries;
            found.damaged += verified.damaged;
        }
        found
    }
}

fn tables(version: &Version) -> impl Iterator<Item = &Memtable> {
    std::iter::once(&*version.active).chain(version.frozen.iter().map(|frozen| &*frozen.table))
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn level_facts(runs: &[Arc<Run>]) -> LevelFacts {
    let mut level = LevelFacts { runs: count(runs.len()), ..LevelFacts::default() };
    for run in runs.iter().map(|run| run.facts()) {
        level.bytes += run.bytes;
        level.entries += run.entries;
        level.tombstones += run.tombstones;
        level.value_bytes += run.value_bytes;
    }
    level
}
