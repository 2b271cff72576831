//! A walk over a level: runs that do not overlap, in the order of their keys, as if they were one.
//!
//! Walk: [`find`] the run where a key would be · [`LevelCursor`] walks that run, then its neighbour.
//! Deliberately absent: levels whose runs overlap; those are `merged`.

use std::sync::Arc;

use crate::entry::Cursor;
use crate::run_cursor::RunCursor;
use crate::run_reader::{Reading, Run};
use crate::{Entry, RunsError};

/// The first run that ends at this key or behind it.
pub(crate) fn find(runs: &[Arc<Run>], key: &[u8]) -> usize {
    runs.partition_point(|run| run.facts().last.as_slice() < key)
}

/// A walk over a level.
#[derive(Debug)]
pub(crate) struct LevelCursor {
    runs: Arc<[Arc<Run>]>,
    reading: Reading,
    /// Which run the walk is in.
    at: usize,
    walk: Option<RunCursor>,
}

impl LevelCursor {
    /// Nowhere in a level.
    pub(crate) const fn new(runs: Arc<[Arc<Run>]>, reading: Reading) -> Self {
        LevelCursor { runs, reading, at: 0, walk: None }
    }

    /// Into a run; nowhere without one.
    fn enter(&mut self, at: Option<usize>) -> Option<&mut RunCursor> {
        let run = at.and_then(|at| self.runs.get(at).map(|run| (at, run)));
        match run {
            Some((at, run)) => {
                // A seek in the run where the walk is already keeps what that has read ahead.
                if self.walk.is_none() || self.at != at {
                    self.walk = Some(run.cursor(self.reading));
                }
                self.at = at;
            }
            None => self.walk = None,
        }
        self.walk.as_mut()
    }
}

impl Cursor for LevelCursor {
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError> {
        let at = find(&self.runs, key);
        self.enter(Some(at)).map_or(Ok(()), |walk| walk.seek(key))
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError> {
        let starts =
            key.map_or(self.runs.len(), |key| self.runs.partition_point(|run| run.facts().first.as_slice() <= key));
        self.enter(starts.checked_sub(1)).map_or(Ok(()), |walk| walk.seek_back(key))
    }

    fn next(&mut self) -> Result<(), RunsError> {
        let Some(walk) = self.walk.as_mut().filter(|walk| walk.key().is_some()) else { return Ok(()) };
        walk.next()?;
        if walk.key().is_some() {
            return Ok(());
        }
        let next = self.at.checked_add(1);
        self.enter(next).map_or(Ok(()), RunCursor::first)
    }

    fn prev(&mut self) -> Result<(), RunsError> {
        let Some(walk) = self.walk.as_mut().filter(|walk| walk.key().is_some()) else { return Ok(()) };
        walk.prev()?;
        if walk.key().is_some() {
            return Ok(());
        }
        let before = self.at.checked_sub(1);
        self.enter(before).map_or(Ok(()), |walk| walk.seek_back(None))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.walk.as_ref().and_then(Cursor::entry)
    }

    fn key(&self) -> Option<&[u8]> {
        self.walk.as_ref().and_then(Cursor::key)
    }

    fn seq(&self) -> Option<u64> {
        self.walk.as_ref().and_then(Cursor::seq)
    }
}
