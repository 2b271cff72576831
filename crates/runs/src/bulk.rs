//! Building a whole map from entries in any order: for whoever lost one and still has the log.
//!
//! Walk: [`Bulk::add`] all of them · [`Bulk::finish`] sorts them into runs of one level that do not overlap, and lets both
//! manifests say so. Until then the folder's map is what it was.
//! Deliberately absent: removing the files of the map that was; the next open does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_world::{Barrier, Disk};

use crate::book::make_folder;
use crate::entry::{Entry, Range};
use crate::manifest::{Contents, Copies, LEVELS_MAX};
use crate::owner::{Fate, Go, Owner, Pace};
use crate::parts::{Parts, Sizes};
use crate::ranges::Erased;
use crate::run::RunFacts;
use crate::{Config, RunsError};

pub(crate) const BULK_NAMES: Barrier =
    Barrier::new("runs: the names of a map's runs before it takes the place of another");

/// A map that is being built.
#[derive(Debug)]
pub struct Bulk {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    config: Config,
    parts: Parts,
}

impl Bulk {
    /// Nothing yet. No map of this folder is open, or will be before the end.
    ///
    /// # Errors
    /// `Config`; as the disk says, so for all below.
    pub fn new(disk: Arc<dyn Disk>, folder: &Path, config: Config) -> Result<Self, RunsError> {
        config.check()?;
        make_folder(&*disk, folder)?;
        let Config { bulk_bytes: part_bytes, run_bytes, block_bytes, .. } = config;
        let parts = Parts::new(&disk, folder, Sizes { part_bytes, run_bytes, block_bytes }, 0)?;
        Ok(Self { disk, folder: folder.to_path_buf(), config, parts })
    }

    /// One more entry, in any order; of a key the one with the greatest place counts.
    ///
    /// # Errors
    /// As the disk says.
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<(), RunsError> {
        self.parts.add(entry)
    }

    /// Makes it the folder's map: with everything up to `applied` that is neither deleted nor in a range that erased it later. The
    /// owner's tally is told of each value that enters. False if the pace said stop: then nothing has changed.
    ///
    /// # Errors
    /// As the disk says; `Unsettled`. The folder's map is the new one or what it was.
    pub fn finish(self, ranges: &[Range], applied: u64, owner: &dyn Owner, pace: &dyn Pace) -> Result<bool, RunsError> {
        let durable = owner.durable();
        if durable < applied {
            return Err(RunsError::Unsettled { seq: applied, durable });
        }
        let Self { disk, folder, config, parts } = self;
        let erased = Erased::of(ranges);
        let mut tally = owner.tally();
        let mut keep = |entry: &Entry<'_>| {
            let is_kept = erased.over(entry.key) <= entry.seq && tally.judge(entry) == Fate::Keep;
            if is_kept {
                tally.enters(entry);
            }
            is_kept
        };
        let mut is_stopped = false;
        let mut wrote = |bytes| match pace.wrote(bytes) {
            Go::On => Ok(()),
            Go::Stop => {
                is_stopped = true;
                Err(RunsError::Closed { reason: "a stop".to_owned() })
            }
        };
        let built = match parts.finish(applied, &mut keep, &mut wrote) {
            Err(_) if is_stopped => return Ok(false),
            built => built?,
        };
        if !built.runs.is_empty() {
            let sync = || disk.sync_dir(&folder, BULK_NAMES).map_err(|error| RunsError::disk("sync", &folder, &error));
            built.name(&*disk, &folder).and_then(|()| sync()).inspect_err(|_| built.give_up(&*disk, &folder))?;
        }
        let runs: Vec<RunFacts> = built.runs.iter().map(|run| run.facts().clone()).collect();
        let levels = at_their_level(runs, &config);
        let contents =
            Contents { next_id: built.next_id, applied, levels, erased: Vec::new(), note: tally.note(applied) };
        // From the first rename on a power cut may leave the new map: its files stay, whatever the answer is.
        built.runs.iter().for_each(|run| run.spare());
        Copies::replace(&*disk, &folder, &contents)?;
        tally.committed();
        Ok(true)
    }
}

/// The first level that holds so much, and nothing above it.
fn at_their_level(runs: Vec<RunFacts>, config: &Config) -> Vec<Vec<RunFacts>> {
    if runs.is_empty() {
        return Vec::new();
    }
    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    let level = (1..LEVELS_MAX - 1).find(|level| config.level_bytes(*level) >= bytes).unwrap_or(LEVELS_MAX - 1);
    let mut levels = vec![Vec::new(); level];
    levels.push(runs);
    levels
}
