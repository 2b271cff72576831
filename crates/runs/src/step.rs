//! One piece of work: a flush, a drop, a move or a merge, from the first byte to the new version.
//!
//! ```text
//!   walk the entries, tell the tally, write runs · sync them and their names · commit the manifest with the note · publish
//! ```
//! Until the commit nothing has happened: a step that fails or is stopped removes its files, and its tally was never said.
//!
//! Walk: [`Task::next`] asks the policy, [`Task::run`] does it · [`Output`] writes the runs.
//! Deliberately absent: haste. What a step writes is paced by the owner.

use std::sync::Arc;

use assent_world::Barrier;

use crate::RunsError;
use crate::book::Change;
use crate::entry::{Cursor, Entry};
use crate::facts::Counts;
use crate::level::LevelCursor;
use crate::memtable::MemCursor;
use crate::merged::Merged;
use crate::owner::{Fate, Go, Owner, Pace, Tally};
use crate::policy::{self, Shape, Work};
use crate::ranges::Erased;
use crate::run::{RunFacts, RunId};
use crate::run_reader::{Reading, Run};
use crate::run_writer::RunWriter;
use crate::runs::Runs;
use crate::version::{Frozen, Levels, Version};

pub(crate) const RUN_NAMES: Barrier = Barrier::new("runs: the names of new runs before a manifest names them");

/// The pace is asked after so many bytes of entries.
const PACE_BYTES: u64 = 256 << 10;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A memtable is in a run now.
    Flushed {
        /// Bytes of the run; zero if nothing was left of it.
        bytes: u64,
    },
    /// A run whose every entry had been erased is gone.
    Dropped {
        /// Its bytes.
        bytes: u64,
    },
    /// A run is one level deeper, as it is.
    Moved {
        /// The level where it is now.
        to: usize,
    },
    /// Runs were merged.
    Merged {
        /// Bytes of the runs that went.
        read_bytes: u64,
        /// Bytes of the runs that came.
        written_bytes: u64,
        /// The level where they are.
        to: usize,
    },
    /// The pace said stop. Nothing was changed.
    Stopped,
}

/// Why a step did not come to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    Stopped,
    Failed(RunsError),
}

impl From<RunsError> for Halt {
    fn from(error: RunsError) -> Self {
        Self::Failed(error)
    }
}

/// A piece of work, and what it is about. No other is under way.
pub(crate) struct Task<'a> {
    runs: &'a Runs,
    version: Arc<Version>,
    /// What was erased, as far as it is durable: a merge must not take away what a log that lost its end would still have.
    erased: Arc<Erased>,
    applied: u64,
    levels: Vec<Vec<RunFacts>>,
    work: Work,
}

impl<'a> Task<'a> {
    pub(crate) fn next(runs: &'a Runs, durable: u64) -> Option<Self> {
        Self::chosen(runs, durable, |shape| policy::next(shape, &runs.config))
    }

    /// A flush or nothing.
    pub(crate) fn flush_next(runs: &'a Runs, durable: u64) -> Option<Self> {
        Self::chosen(runs, durable, |shape| (shape.frozen > 0).then_some(Work::Flush))
    }

    fn chosen(runs: &'a Runs, durable: u64, choose: impl FnOnce(Shape<'_>) -> Option<Work>) -> Option<Self> {
        let version = runs.version();
        let (erased, applied, levels) = {
            let book = runs.book();
            (Arc::clone(book.erased()), book.contents().applied, book.contents().levels.clone())
        };
        let frozen = version.frozen.iter().filter(|frozen| frozen.mark <= durable).count();
        let shape = Shape { frozen, levels: &levels, erased: &erased };
        let work = choose(shape)?;
        Some(Self { runs, version, erased, applied, levels, work })
    }

    pub(crate) fn run(self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        match &self.work {
            Work::Flush => self.flush(owner, pace),
            Work::Drop(id) => self.take_away(*id, owner, pace),
            Work::Move(id) => self.move_down(*id, owner),
            Work::Merge { inputs, to } => self.merge(inputs, *to, owner, pace),
        }
    }

    fn flush(&self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let Some(frozen) = self.version.frozen.last() else { return Err(Halt::Stopped) };
        let mut erased = Erased::clone(&self.erased);
        frozen.erases.iter().for_each(|range| erased.erase(range));
        let mut tally = owner.tally();
        let mut output = Output::new(self.runs, pace, frozen.mark, u64::MAX);
        let mut cursor = MemCursor::new(Arc::clone(&frozen.table), u64::MAX);
        cursor.seek(&[])?;
        while let Some(entry) = cursor.entry() {
            if erased.over(entry.key) <= entry.seq {
                let is_kept = entry.value.is_some() && tally.judge(&entry) == Fate::Keep;
                if is_kept {
                    tally.enters(&entry);
                    output.push(&entry)?;
                } else if self.is_hidden_below(entry.key, 0) {
                    output.push(&Entry { value: None, ..entry })?;
                }
            }
            cursor.next()?;
        }
        let new = output.finish()?;
        let mut levels = self.levels.clone();
        if levels.is_empty() {
            levels.push(Vec::new());
        }
        if let Some(level0) = levels.first_mut() {
            level0.splice(0..0, new);
        }
        let bytes = output.bytes();
        self.commit(tally, output, levels, (erased, frozen.mark), Some(frozen))?;
        Counts::add(&self.runs.counts.flushed_bytes, bytes);
        Ok(Step::Flushed { bytes })
    }

    /// Whether a run at this level or a deeper one may have the key: then a deletion has something to hide.
    fn is_hidden_below(&self, key: &[u8], level: usize) -> bool {
        self.levels.iter().enumerate().skip(level).any(|(level, runs)| {
            let at = if level == 0 { 0 } else { runs.partition_point(|run| run.last.as_slice() < key) };
            let count = if level == 0 { runs.len() } else { 1 };
            runs.iter().skip(at).take(count).any(|run| run.spans(key))
        })
    }

    fn merge(&self, inputs: &[RunId], to: usize, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let mut tally = owner.tally();
        let mut output = Output::new(self.runs, pace, self.applied, self.runs.config.run_bytes);
        let mut merged = Merged::new(self.cursors(inputs));
        merged.seek(&[])?;
        while let Some(entry) = merged.entry() {
            if self.erased.over(entry.key) > entry.seq {
                if entry.value.is_some() {
                    tally.leaves(&entry);
                }
                output.passed(&entry)?;
            } else {
                self.write(&entry, to, &mut *tally, &mut output)?;
            }
            merged.advance(&mut |hidden| {
                if hidden.value.is_some() {
                    tally.leaves(hidden);
                }
            })?;
        }
        let mut new = output.finish()?;
        let mut levels: Vec<Vec<RunFacts>> = self.levels.clone();
        levels.iter_mut().for_each(|level| level.retain(|run| !inputs.contains(&run.id)));
        if levels.len() <= to {
            levels.resize_with(to + 1, Vec::new);
        }
        if let Some(level) = levels.get_mut(to) {
            level.append(&mut new);
            level.sort_by(|a, b| a.first.cmp(&b.first));
        }
        let read_bytes = self.facts(inputs).map(|run| run.bytes).sum();
        let written_bytes = output.bytes();
        self.commit(tally, output, levels, (Erased::clone(&self.erased), self.applied), None)?;
        Counts::add(&self.runs.counts.merged_bytes, written_bytes);
        Ok(Step::Merged { read_bytes, written_bytes, to })
    }

    /// The newest entry of a key, that nothing erased.
    fn write(&self, entry: &Entry<'_>, to: usize, tally: &mut dyn Tally, output: &mut Output<'_>) -> Result<(), Halt> {
        if entry.value.is_some() {
            if tally.judge(entry) == Fate::Keep {
                return output.push(entry);
            }
            tally.leaves(entry);
        }
        if self.is_hidden_below(entry.key, to + 1) {
            return output.push(&Entry { value: None, ..*entry });
        }
        output.passed(entry)
    }

    fn take_away(&self, id: RunId, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let mut tally = owner.tally();
        let mut output = Output::new(self.runs, pace, self.applied, u64::MAX);
        let mut merged = Merged::new(self.cursors(&[id]));
        merged.seek(&[])?;
        while let Some(entry) = merged.entry() {
            if entry.value.is_some() {
                tally.leaves(&entry);
            }
            output.passed(&entry)?;
            merged.next()?;
        }
        let bytes = self.facts(&[id]).map(|run| run.bytes).sum();
        let mut levels = self.levels.clone();
        levels.iter_mut().for_each(|level| level.retain(|run| run.id != id));
        self.commit(tally, output, levels, (Erased::clone(&self.erased), self.applied), None)?;
        Ok(Step::Dropped { bytes })
    }

    fn move_down(&self, id: RunId, owner: &dyn Owner) -> Result<Step, Halt> {
        let mut levels = self.levels.clone();
        let from = levels.iter().position(|level| level.iter().any(|run| run.id == id));
        let to = from.map_or(1, |from| from + 1);
        let moved: Vec<RunFacts> = self.facts(&[id]).cloned().collect();
        levels.iter_mut().for_each(|level| level.retain(|run| run.id != id));
        if levels.len() <= to {
            levels.resize_with(to + 1, Vec::new);
        }
        if let Some(level) = levels.get_mut(to) {
            level.extend(moved);
            level.sort_by(|a, b| a.first.cmp(&b.first));
        }
        let output = Output::new(self.runs, &crate::AtOnce, self.applied, u64::MAX);
        self.commit(owner.tally(), output, levels, (Erased::clone(&self.erased), self.applied), None)?;
        Ok(Step::Moved { to })
    }

    fn facts(&self, ids: &[RunId]) -> impl Iterator<Item = &RunFacts> {
        self.levels.iter().flatten().filter(|run| ids.contains(&run.id))
    }

    /// Cursors over some runs, the newest first: each run of level 0, then what there is of each level.
    fn cursors(&self, ids: &[RunId]) -> Vec<Box<dyn Cursor>> {
        let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
        for (level, runs) in self.version.levels.iter().enumerate() {
            let chosen: Arc<[Arc<Run>]> = runs.iter().filter(|run| ids.contains(&run.id())).cloned().collect();
            match level {
                0 => cursors.extend(chosen.iter().map(|run| Box::new(run.cursor(Reading::Ahead)) as Box<dyn Cursor>)),
                _ if chosen.is_empty() => {}
                _ => cursors.push(Box::new(LevelCursor::new(chosen, Reading::Ahead))),
            }
        }
        cursors
    }

    /// Makes it so: the manifest with the note, then the version.
    fn commit(
        &self,
        tally: Box<dyn Tally + '_>,
        mut output: Output<'_>,
        mut levels: Vec<Vec<RunFacts>>,
        (mut erased, applied): (Erased, u64),
        flushed: Option<&Arc<Frozen>>,
    ) -> Result<(), RunsError> {
        while levels.last().is_some_and(Vec::is_empty) {
            levels.pop();
        }
        erased.retain(|fragment| policy::is_needed(&levels, fragment));
        let old: Vec<&Arc<Run>> = self.version.levels.iter().flat_map(|level| level.iter()).collect();
        let open = |facts: &RunFacts| match old.iter().find(|run| run.id() == facts.id) {
            Some(run) => Arc::clone(run),
            None => Run::open(&self.runs.disk, &self.runs.folder, facts.clone(), &self.runs.cache),
        };
        let opened: Levels = levels.iter().map(|level| level.iter().map(open).collect()).collect();
        let is_kept = |run: &Arc<Run>| levels.iter().flatten().any(|kept| kept.id == run.id());
        let removed = old.iter().filter(|run| !is_kept(run)).map(|run| Arc::clone(run)).collect();
        let done =
            self.runs.commit(Change { applied, levels: levels.clone(), erased, removed }, tally, opened, flushed);
        // Where it is not known whether the manifest counts, it may name them.
        if done.is_ok() || self.runs.is_closed() {
            output.keep();
        }
        done
    }
}

/// The runs that a step writes. What is not kept goes with it.
struct Output<'a> {
    runs: &'a Runs,
    pace: &'a dyn Pace,
    knows: u64,
    run_bytes: u64,
    writer: Option<RunWriter>,
    done: Vec<RunFacts>,
    is_kept: bool,
    /// Bytes of entries since the pace was asked, and what was written when it was.
    passed_bytes: u64,
    told_bytes: u64,
}

impl<'a> Output<'a> {
    fn new(runs: &'a Runs, pace: &'a dyn Pace, knows: u64, run_bytes: u64) -> Self {
        let (writer, done, is_kept) = (None, Vec::new(), false);
        Self { runs, pace, knows, run_bytes, writer, done, is_kept, passed_bytes: 0, told_bytes: 0 }
    }

    fn push(&mut self, entry: &Entry<'_>) -> Result<(), Halt> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let Runs { disk, folder, config, .. } = self.runs;
                self.writer.insert(RunWriter::create(disk, folder, self.runs.new_id(), config.block_bytes)?)
            }
        };
        writer.push(entry)?;
        if writer.bytes() >= self.run_bytes {
            self.close()?;
        }
        self.passed(entry)
    }

    /// An entry was dealt with, whatever became of it.
    fn passed(&mut self, entry: &Entry<'_>) -> Result<(), Halt> {
        let bytes = entry.key.len() + entry.value.map_or(0, <[u8]>::len);
        self.passed_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.passed_bytes < PACE_BYTES {
            return Ok(());
        }
        self.passed_bytes = 0;
        let written = self.bytes();
        let since = written.saturating_sub(self.told_bytes);
        self.told_bytes = written;
        match self.pace.wrote(since) {
            Go::On => Ok(()),
            Go::Stop => Err(Halt::Stopped),
        }
    }

    /// Bytes of all runs so far.
    fn bytes(&self) -> u64 {
        let open = self.writer.as_ref().map_or(0, RunWriter::bytes);
        self.done.iter().map(|run| run.bytes).sum::<u64>() + open
    }

    fn close(&mut self) -> Result<(), RunsError> {
        if let Some(writer) = self.writer.take() {
            self.done.push(writer.finish(self.knows)?);
        }
        Ok(())
    }

    /// All of them, durable with their names.
    fn finish(&mut self) -> Result<Vec<RunFacts>, RunsError> {
        self.close()?;
        if !self.done.is_empty() {
            let folder = &self.runs.folder;
            let synced = self.runs.disk.sync_dir(folder, RUN_NAMES);
            synced.map_err(|error| RunsError::disk("sync", folder, &error))?;
        }
        Ok(self.done.clone())
    }

    const fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // One that stays is in no manifest: the next open removes it.
            self.done.iter().for_each(|run| _ = self.runs.disk.unlink(&run.id.path(&self.runs.folder)));
        }
    }
}
