//! A version: everything that a look-up needs, as one value that never changes but for what is added to its active memtable.
//!
//! Walk: [`Version::find`] asks the newest source first, and the first that knows the key decides · who holds a version
//! holds its memtables and files.
//! Deliberately absent: how versions follow each other; that is [`crate::runs`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::RunsError;
use crate::entry::{Cursor, Range};
use crate::filter;
use crate::level::{LevelCursor, find};
use crate::memo::{self, Memo};
use crate::memtable::Memtable;
use crate::ranges::Erased;
use crate::run_reader::{OwnedEntry, Reading, Row, Run};

/// A memtable that takes no more entries and waits for its flush.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) table: Arc<Memtable>,
    /// All changes up to here are in it or in an older one.
    pub(crate) mark: u64,
    /// What was erased while it was active.
    pub(crate) erases: Vec<Range>,
}

/// Level 0 newest first, the others in the order of their keys.
pub(crate) type Levels = Vec<Arc<[Arc<Run>]>>;

/// The levels, and what was found in them before.
pub(crate) type Files = (Arc<Levels>, Memo);

/// What somebody looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Value,
    /// And what is kept beside it, though that takes another look.
    Beside,
}

/// What a look-up sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) seq: u64,
    /// Nothing where the key was deleted.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) beside: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct Version {
    /// The newest place of which everything can be seen here.
    seq: AtomicU64,
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Frozen>>,
    pub(crate) levels: Arc<Levels>,
    pub(crate) erased: Arc<Erased>,
    pub(crate) memo: Memo,
}

impl Version {
    pub(crate) fn new(
        seq: u64,
        active: Arc<Memtable>,
        frozen: Vec<Arc<Frozen>>,
        (levels, memo): Files,
        erased: Arc<Erased>,
    ) -> Self {
        Self { seq: AtomicU64::new(seq), active, frozen, levels, erased, memo }
    }

    pub(crate) fn files(&self) -> Files {
        (Arc::clone(&self.levels), self.memo.clone())
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Shows what was added up to here. Only while this is the current version, by the one writer: who has an older one must
    /// not see entries beside ranges that it does not know.
    pub(crate) fn show(&self, seq: u64) {
        self.seq.store(seq, Ordering::Release);
    }

    /// What a key became as of a seq: by an entry, or by a range that erased it later. Nothing if nobody knows the key.
    pub(crate) fn find(&self, key: &[u8], as_of: u64) -> Result<Option<OwnedEntry>, RunsError> {
        let owned = |seen: Seen<'_>| OwnedEntry { seq: seen.seq, value: seen.value.map(Row::from_slice) };
        self.look(key, as_of, Wanted::Value, owned)
    }

    /// The same for whoever only looks at it.
    pub(crate) fn look<R>(
        &self,
        key: &[u8],
        as_of: u64,
        wanted: Wanted,
        then: impl FnOnce(Seen<'_>) -> R,
    ) -> Result<Option<R>, RunsError> {
        let erased = self.erased.over(key);
        let judged = |seq, value: Option<&[u8]>, beside: &[u8]| {
            if seq >= erased {
                then(Seen { seq, value, beside })
            } else {
                then(Seen { seq: erased, value: None, beside: &[] })
            }
        };
        let hash = filter::hash(key);
        if let Some(OwnedEntry { seq, value }) = self.find_in_memory(key, as_of) {
            let row = if wanted == Wanted::Beside { self.memo.recall(key, hash, as_of) } else { None };
            let kept = row.as_ref().and_then(memo::Row::read).filter(|kept| kept.seq == seq);
            return Ok(Some(judged(seq, value.as_deref(), kept.map_or(&[], |kept| kept.beside))));
        }
        if let Some(row) = self.memo.recall(key, hash, as_of)
            && let Some(kept) = row.read()
        {
            return Ok(Some(judged(kept.seq, Some(kept.value), kept.beside)));
        }
        let Some(OwnedEntry { seq, value }) = self.find_in_runs(key, hash)? else {
            return Ok((erased > 0).then(|| judged(0, None, &[])));
        };
        if let Some(value) = &value {
            self.memo.keep(key, hash, (seq, value), &[]);
        }
        Ok(Some(judged(seq, value.as_deref(), &[])))
    }

    /// Keeps something beside the row that a key has now, if that is still the one of this seq and kept itself, or in memory.
    pub(crate) fn keep_beside(&self, key: &[u8], seq: u64, beside: &[u8]) {
        let (hash, as_of) = (filter::hash(key), self.seq());
        if let Some(row) = self.memo.recall(key, hash, as_of)
            && let Some(kept) = row.read().filter(|kept| kept.seq == seq)
        {
            self.memo.put(hash, &kept.with(beside));
        } else if let Some(OwnedEntry { seq: newest, value: Some(value) }) = self.find_in_memory(key, as_of)
            && newest == seq
        {
            self.memo.keep(key, hash, (seq, &value), beside);
        }
    }

    /// What is kept beside the row of this key and seq.
    pub(crate) fn beside<R>(&self, key: &[u8], seq: u64, then: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let row = self.memo.recall(key, filter::hash(key), seq)?;
        let kept = row.read().filter(|kept| kept.seq == seq)?;
        Some(then(kept.beside))
    }

    /// What a key became as of a seq, as it stands in memory or else in the files. Not by the memo, which goes on to tell of a value that
    /// a step has buried, and for which a walk over much that nobody else asks for has no room.
    pub(crate) fn newest(&self, key: &[u8], as_of: u64) -> Result<Option<OwnedEntry>, RunsError> {
        self.newest_by(key, as_of, |hash| self.find_in_runs(key, hash))
    }

    /// The same for whoever has a way of his own to ask the files.
    pub(crate) fn newest_by(
        &self,
        key: &[u8],
        as_of: u64,
        in_runs: impl FnOnce(u64) -> Result<Option<OwnedEntry>, RunsError>,
    ) -> Result<Option<OwnedEntry>, RunsError> {
        let (erased, hash) = (self.erased.over(key), filter::hash(key));
        let found = match self.find_in_memory(key, as_of) {
            None => in_runs(hash)?,
            found => found,
        };
        let gone = (erased > 0).then_some(OwnedEntry { seq: erased, value: None });
        Ok(found.filter(|found| found.seq >= erased).or(gone))
    }

    fn find_in_memory(&self, key: &[u8], as_of: u64) -> Option<OwnedEntry> {
        let frozen = || self.frozen.iter().find_map(|frozen| frozen.table.get(key, as_of));
        self.active.get(key, as_of).or_else(frozen)
    }

    /// What the newest run that has a key says of it.
    pub(crate) fn find_in_runs(&self, key: &[u8], hash: u64) -> Result<Option<OwnedEntry>, RunsError> {
        for (_, run) in self.slots_of(key) {
            if let Some(found) = run.get(key, hash)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The runs that may have a key, the newest first, and the slot of each: of level 0 each has one, and behind them each level.
    pub(crate) fn slots_of(&self, key: &[u8]) -> impl Iterator<Item = (usize, &Arc<Run>)> {
        let (level0, deep) = self.levels.split_first().map_or((&[][..], &[][..]), |(level0, deep)| (&**level0, deep));
        let deep = deep.iter().map(move |runs| runs.get(find(runs, key)));
        let slots = level0.iter().map(Some).chain(deep).enumerate();
        slots.filter_map(|(slot, run)| run.map(|run| (slot, run)))
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.levels.split_first().map_or(0, |(level0, deep)| level0.len() + deep.len())
    }

    /// What each run has of a key, the newest first.
    pub(crate) fn written(&self, key: &[u8]) -> Result<Vec<OwnedEntry>, RunsError> {
        let hash = filter::hash(key);
        let found = self.slots_of(key).filter_map(|(_, run)| run.get(key, hash).transpose());
        found.collect()
    }

    /// A cursor over each source, the newest first.
    pub(crate) fn cursors(&self, as_of: u64) -> Vec<Box<dyn Cursor>> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.table);
        let tables = std::iter::once(&self.active).chain(frozen);
        let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
        cursors.extend(tables.map(|table| Box::new(table.walk(as_of)) as Box<dyn Cursor>));
        if let Some((level0, deep)) = self.levels.split_first() {
            cursors.extend(level0.iter().map(|run| Box::new(run.cursor(Reading::Cached)) as Box<dyn Cursor>));
            let deep = deep.iter().filter(|runs| !runs.is_empty());
            cursors.extend(
                deep.map(|runs| Box::new(LevelCursor::new(Arc::clone(runs), Reading::Cached)) as Box<dyn Cursor>),
            );
        }
        cursors
    }
}
