//! One piece of work: a flush, a drop, a move or a merge, from the first byte to the new version.
//!
//! ```text
//!   walk the entries, tell the tally, write runs · sync them and their names · commit the manifest with the note · publish
//! ```
//! Until the commit nothing has happened: a step that fails or is stopped removes its files, and its tally was never said.
//!
//! A flush and a merge may be under way at the same time. Each works on what it found when it began; what it changes is an
//! [`Edit`] of what is there when it commits, so neither undoes what the other did.
//!
//! Walk: [`Task::flush`] and [`Task::merge`] ask the policy, [`Task::run`] does it · [`Edit`] is what the commit changes.
//! Deliberately absent: haste. What a step writes is paced by the owner.

use std::sync::Arc;

use crate::RunsError;
use crate::entry::{Cursor, Entry};
use crate::facts::Counts;
use crate::level::LevelCursor;
use crate::merged::Merged;
use crate::output::Output;
use crate::owner::{Fate, Owner, Pace, Tally};
use crate::policy::{self, Shape, Work};
use crate::ranges::Erased;
use crate::run::{RunFacts, RunId};
use crate::run_reader::{Reading, Run};
use crate::runs::Runs;
use crate::version::{Frozen, Levels};

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

/// What a step changes, whatever another one did since it began.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    /// Runs that go from wherever they are.
    pub(crate) gone: Vec<RunId>,
    /// Runs that come, and to which level: at level 0 they are the newest, or as old as those that go from there.
    pub(crate) come: Vec<RunFacts>,
    pub(crate) to: usize,
    /// The memtable that they hold now: with it comes its mark, and what was erased while it was active.
    pub(crate) flushed: Option<Arc<Frozen>>,
}

impl Edit {
    pub(crate) fn levels(&self, now: &[Vec<RunFacts>]) -> Vec<Vec<RunFacts>> {
        let mut levels = now.to_vec();
        // What was gathered stands where its runs stood: behind those that were flushed meanwhile.
        let gathered = |runs: &Vec<RunFacts>| runs.iter().position(|run| self.gone.contains(&run.id));
        let at = now.first().filter(|_| self.to == 0).and_then(gathered).unwrap_or(0);
        levels.iter_mut().for_each(|level| level.retain(|run| !self.gone.contains(&run.id)));
        if levels.len() <= self.to {
            levels.resize_with(self.to + 1, Vec::new);
        }
        if let Some(level) = levels.get_mut(self.to) {
            level.splice(at..at, self.come.iter().cloned());
            if self.to > 0 {
                level.sort_by(|a, b| a.first.cmp(&b.first));
            }
        }
        while levels.last().is_some_and(Vec::is_empty) {
            levels.pop();
        }
        levels
    }
}

/// A piece of work, and what it is about. No other of its kind is under way.
pub(crate) struct Task<'a> {
    runs: &'a Runs,
    /// Nothing of the memory but what a flush is about: who works for long must not hold what others have written out by then.
    shown: Arc<Levels>,
    oldest: Option<Arc<Frozen>>,
    /// What was erased, as far as it is durable: a merge must not take away what a log that lost its end would still have.
    erased: Arc<Erased>,
    applied: u64,
    levels: Vec<Vec<RunFacts>>,
    work: Work,
}

impl<'a> Task<'a> {
    /// A flush of the oldest memtable that may have one.
    pub(crate) fn flush_next(runs: &'a Runs, owner: &dyn Owner) -> Option<Self> {
        Self::chosen(runs, owner, |shape| (shape.frozen > 0).then_some(Work::Flush))
    }

    /// Anything but a flush.
    pub(crate) fn merge_next(runs: &'a Runs, owner: &dyn Owner) -> Option<Self> {
        let shown = Arc::clone(&runs.now().levels);
        let next = Self::chosen(runs, owner, |shape| policy::next_merge(shape, &runs.config));
        if next.is_none() {
            runs.owes_nothing(&shown);
        }
        next
    }

    /// Whether the most urgent piece of work is a flush.
    pub(crate) fn is_flush_first(runs: &'a Runs, owner: &dyn Owner) -> bool {
        let next = Self::chosen(runs, owner, |shape| policy::next(shape, &runs.config));
        next.is_some_and(|task| task.work == Work::Flush)
    }

    fn chosen(runs: &'a Runs, owner: &dyn Owner, choose: impl FnOnce(Shape<'_>) -> Option<Work>) -> Option<Self> {
        let (durable, gathers, hurries) = (owner.durable(), owner.gathers(), owner.hurries());
        // The version of these contents: a commit publishes before it lets the book go.
        let book = runs.book();
        let version = runs.version();
        let (erased, applied, levels) =
            (Arc::clone(book.erased()), book.contents().applied, book.contents().levels.clone());
        drop(book);
        let frozen = version.frozen.iter().filter(|frozen| frozen.mark <= durable).count();
        let shunned = runs.shunned.runs();
        let shape = Shape { frozen, levels: &levels, erased: &erased, gathers, hurries, shunned: &shunned };
        let work = choose(shape)?;
        let oldest = if work == Work::Flush { version.frozen.last().cloned() } else { None };
        Some(Self { runs, shown: Arc::clone(&version.levels), oldest, erased, applied, levels, work })
    }

    pub(crate) fn run(self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let done = self.done(owner, pace);
        match &done {
            Err(Halt::Failed(error)) => self.runs.shunned.failed(error, &self.runs.folder, self.work.inputs()),
            Ok(_) if self.work != Work::Flush => self.runs.shunned.succeeded(),
            Ok(_) | Err(Halt::Stopped) => {}
        }
        done
    }

    fn done(&self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        match &self.work {
            Work::Flush => self.flush(owner, pace),
            Work::Drop(id) => self.take_away(*id, owner, pace),
            Work::Move(id) => self.move_down(*id, owner),
            Work::Merge { inputs, to } => self.merge(inputs, *to, owner, pace),
        }
    }

    fn flush(&self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let Some(frozen) = &self.oldest else { return Err(Halt::Stopped) };
        let mut erased = Erased::clone(&self.erased);
        erased.erase(&frozen.erases);
        let mut tally = owner.tally();
        let mut output = Output::new(self.runs, pace, frozen.mark, u64::MAX).synced_once(owner.is_lazy());
        let mut sorted = frozen.table.sorted();
        while let Some(entry) = sorted.next() {
            if erased.over(entry.key) <= entry.seq {
                let is_kept = entry.value.is_some() && tally.judge(&entry) == Fate::Keep;
                if is_kept {
                    tally.enters(&entry);
                    output.push(&entry)?;
                } else if self.is_hidden_below(entry.key, 0) {
                    tally.hides(entry.key);
                    output.push(&Entry { value: None, ..entry })?;
                }
            }
        }
        let come = output.finish()?;
        let bytes = output.bytes();
        self.commit(tally, output, Edit { come, flushed: Some(Arc::clone(frozen)), ..Edit::default() })?;
        Counts::add(&self.runs.counts.flushed_bytes, bytes);
        Ok(Step::Flushed { bytes })
    }

    /// Whether a run at this level or a deeper one may have the key: then a deletion has something to hide. Asked of what was
    /// there when the step began: a merge beside it brings no key to a place where none was.
    fn is_hidden_below(&self, key: &[u8], level: usize) -> bool {
        self.levels.iter().enumerate().skip(level).any(|(level, runs)| {
            let at = if level == 0 { 0 } else { runs.partition_point(|run| run.last.as_slice() < key) };
            let count = if level == 0 { runs.len() } else { 1 };
            runs.iter().skip(at).take(count).any(|run| run.spans(key))
        })
    }

    fn merge(&self, inputs: &[RunId], to: usize, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let mut tally = owner.tally();
        // At level 0 runs are counted, so what is gathered is one.
        let run_bytes = if to == 0 { u64::MAX } else { self.runs.config.run_bytes };
        let mut output = Output::new(self.runs, pace, self.applied, run_bytes);
        let mut merged = Merged::new(self.cursors(inputs)?);
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
            let shown = entry.seq;
            merged.advance(&mut |hidden| {
                debug_assert!(hidden.seq < shown, "no row is in two runs");
                // One that were would not leave: what it leads to is not dead.
                if hidden.value.is_some() && hidden.seq < shown {
                    tally.leaves(hidden);
                }
            })?;
        }
        let come = output.finish()?;
        let read_bytes = self.facts(inputs).map(|run| run.bytes).sum();
        let written_bytes = output.bytes();
        self.commit(tally, output, Edit { gone: inputs.to_vec(), come, to, flushed: None })?;
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
        // At level 0 there may be older runs beside it.
        if self.is_hidden_below(entry.key, if to == 0 { 0 } else { to + 1 }) {
            return output.push(&Entry { value: None, ..*entry });
        }
        output.passed(entry)
    }

    fn take_away(&self, id: RunId, owner: &dyn Owner, pace: &dyn Pace) -> Result<Step, Halt> {
        let mut tally = owner.tally();
        let mut output = Output::new(self.runs, pace, self.applied, u64::MAX);
        let mut merged = Merged::new(self.cursors(&[id])?);
        merged.seek(&[])?;
        while let Some(entry) = merged.entry() {
            if entry.value.is_some() {
                tally.leaves(&entry);
            }
            output.passed(&entry)?;
            merged.next()?;
        }
        let bytes = self.facts(&[id]).map(|run| run.bytes).sum();
        self.commit(tally, output, Edit { gone: vec![id], ..Edit::default() })?;
        Ok(Step::Dropped { bytes })
    }

    fn move_down(&self, id: RunId, owner: &dyn Owner) -> Result<Step, Halt> {
        let from = self.levels.iter().position(|level| level.iter().any(|run| run.id == id));
        let to = from.map_or(1, |from| from + 1);
        let come: Vec<RunFacts> = self.facts(&[id]).cloned().collect();
        let output = Output::new(self.runs, &crate::AtOnce, self.applied, u64::MAX);
        self.commit(owner.tally(), output, Edit { gone: vec![id], come, to, flushed: None })?;
        Ok(Step::Moved { to })
    }

    fn facts(&self, ids: &[RunId]) -> impl Iterator<Item = &RunFacts> {
        self.levels.iter().flatten().filter(|run| ids.contains(&run.id))
    }

    /// Cursors over some runs, the newest first: each run of level 0, then what there is of each level.
    ///
    /// # Errors
    /// `Closed` if one of them is not shown: what it has would be gone with it.
    fn cursors(&self, ids: &[RunId]) -> Result<Vec<Box<dyn Cursor>>, RunsError> {
        let (mut cursors, mut found): (Vec<Box<dyn Cursor>>, usize) = (Vec::new(), 0);
        for (level, runs) in self.shown.iter().enumerate() {
            let chosen: Arc<[Arc<Run>]> = runs.iter().filter(|run| ids.contains(&run.id())).cloned().collect();
            found += chosen.len();
            match level {
                0 => cursors.extend(chosen.iter().map(|run| Box::new(run.cursor(Reading::Ahead)) as Box<dyn Cursor>)),
                _ if chosen.is_empty() => {}
                _ => cursors.push(Box::new(LevelCursor::new(chosen, Reading::Ahead))),
            }
        }
        if found < ids.len() {
            return Err(self.runs.close("a file that counts is not shown to readers".to_owned()));
        }
        Ok(cursors)
    }

    /// Makes it so: the manifest with the note, then the version.
    fn commit(&self, tally: Box<dyn Tally + '_>, mut output: Output<'_>, edit: Edit) -> Result<(), RunsError> {
        // From here on a manifest may name them, also where it is not known whether that counts, or the owner panics.
        output.keep(true);
        let done = self.runs.commit(edit, tally);
        output.keep(done.is_ok() || self.runs.is_closed());
        done
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use assent_sim::SimDisk;

    use super::*;
    use crate::{AtOnce, Change, Config};

    struct Nobody;

    impl Owner for Nobody {
        fn tally(&self) -> Box<dyn Tally + '_> {
            Box::new(Self)
        }

        fn durable(&self) -> u64 {
            u64::MAX
        }
    }

    impl Tally for Nobody {
        fn enters(&mut self, _: &Entry<'_>) {}

        fn leaves(&mut self, _: &Entry<'_>) {}

        fn note(&mut self, _: u64) -> Vec<u8> {
            Vec::new()
        }

        fn committed(self: Box<Self>) {}
    }

    /// It was left out, and all that it had with it.
    #[test]
    fn a_merge_of_a_run_that_is_not_shown_ends_before_anything_is_lost() {
        let disk = Arc::new(SimDisk::new());
        let open = || Runs::open(Arc::<SimDisk>::clone(&disk), Path::new("map"), Config::default()).unwrap().0;
        let runs = open();
        for (seq, key) in [(1, b"a"), (2, b"b")] {
            runs.apply(seq, &[Change::Put { key, value: b"v" }]).unwrap();
            runs.rotate(seq);
            assert!(matches!(runs.flush(&Nobody, &AtOnce), Ok(Some(Step::Flushed { .. }))));
        }
        let inputs: Vec<RunId> = runs.book().contents().levels[0].iter().map(|run| run.id).collect();
        assert_eq!(inputs.len(), 2);
        for work in [Work::Merge { inputs: inputs.clone(), to: 1 }, Work::Drop(inputs[0])] {
            let mut task = Task::chosen(&runs, &Nobody, |_| Some(work)).unwrap();
            task.shown = Arc::new(vec![task.shown[0][1..].into()]);
            assert!(matches!(task.run(&Nobody, &AtOnce), Err(Halt::Failed(RunsError::Closed { .. }))));
        }
        assert!(runs.is_closed());
        drop(runs);
        assert!([b"a", b"b"].iter().all(|key| open().get(*key).unwrap().is_some()));
    }
}
