//! The runs that a step writes: one behind the other, each closed when it is long enough. What is not kept goes with it.
//!
//! Walk: [`Output::push`] writes an entry, [`Output::passed`] counts one and asks the pace · [`Output::finish`] makes them durable
//! with their names · [`Output::keep`] says that a manifest names them.
//! Deliberately absent: what is written, and what the pace does with its time.

use assent_world::Barrier;

use crate::RunsError;
use crate::entry::Entry;
use crate::owner::{Go, Pace};
use crate::run::RunFacts;
use crate::run_writer::RunWriter;
use crate::runs::Runs;
use crate::step::Halt;

pub(crate) const RUN_NAMES: Barrier = Barrier::new("runs: the names of new runs before a manifest names them");

/// The pace is asked after so many bytes of entries.
const PACE_BYTES: u64 = 256 << 10;

/// The runs that a step writes. What is not kept goes with it.
pub(crate) struct Output<'a> {
    runs: &'a Runs,
    pace: &'a dyn Pace,
    knows: u64,
    run_bytes: u64,
    writer: Option<RunWriter>,
    done: Vec<RunFacts>,
    is_kept: bool,
    is_synced_once: bool,
    /// Bytes of entries since the pace was asked, and what was written when it was.
    passed_bytes: u64,
    told_bytes: u64,
}

impl<'a> Output<'a> {
    pub(crate) fn new(runs: &'a Runs, pace: &'a dyn Pace, knows: u64, run_bytes: u64) -> Self {
        let (writer, done, is_kept) = (None, Vec::new(), false);
        let is_synced_once = false;
        Self { runs, pace, knows, run_bytes, writer, done, is_kept, is_synced_once, passed_bytes: 0, told_bytes: 0 }
    }

    /// The same; each run is synced once, or as they are else.
    pub(crate) const fn synced_once(mut self, is_synced_once: bool) -> Self {
        self.is_synced_once = is_synced_once;
        self
    }

    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> Result<(), Halt> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let Runs { disk, folder, config, .. } = self.runs;
                let writer = RunWriter::create(disk, folder, self.runs.new_id(), config.block_bytes)?;
                self.writer.insert(if self.is_synced_once { writer.synced_once() } else { writer })
            }
        };
        writer.push(entry)?;
        if writer.bytes() >= self.run_bytes {
            self.close()?;
        }
        self.passed(entry)
    }

    /// An entry was dealt with, whatever became of it.
    pub(crate) fn passed(&mut self, entry: &Entry<'_>) -> Result<(), Halt> {
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
    pub(crate) fn bytes(&self) -> u64 {
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
    pub(crate) fn finish(&mut self) -> Result<Vec<RunFacts>, RunsError> {
        self.close()?;
        if !self.done.is_empty() {
            let folder = &self.runs.folder;
            let synced = self.runs.disk.sync_dir(folder, RUN_NAMES);
            synced.map_err(|error| RunsError::disk("sync", folder, &error))?;
        }
        Ok(self.done.clone())
    }

    /// Whether they stay when this is gone.
    pub(crate) const fn keep(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
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
