//! What is durable: the newest manifest, and the files that only the one before it names.
//!
//! Walk: [`Book::open`] reads the manifests, names a run that is missing, and removes what a crash left over ·
//! [`Book::commit`] writes the next manifest, and lets the files go that now no manifest names.
//! Deliberately absent: memory; that is [`crate::version`]'s.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use assent_world::Disk;

use crate::RunsError;
use crate::cache::Cache;
use crate::facts::Opened;
use crate::manifest::{self, Contents, Copies, FOLDER, Found, Refused};
use crate::parts::remove_left;
use crate::ranges::Erased;
use crate::run::{RunFacts, RunId};
use crate::run_reader::Run;

#[derive(Debug)]
pub(crate) struct Book {
    /// Without them nothing is ever committed.
    copies: Option<Copies>,
    contents: Contents,
    /// What the contents say was erased.
    erased: Arc<Erased>,
    /// What the other copy says of `applied`: an open that cannot believe the newer one goes back to there.
    older_applied: u64,
    /// Runs that the other copy names and the newest does not.
    leaving: Vec<Arc<Run>>,
}

/// A change of the map.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) applied: u64,
    pub(crate) levels: Vec<Vec<RunFacts>>,
    /// Without what nobody needs any more.
    pub(crate) erased: Erased,
    /// Runs that the map had before.
    pub(crate) removed: Vec<Arc<Run>>,
}

impl Book {
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        cache: &Arc<Cache>,
        settles_late: bool,
    ) -> Result<(Self, Opened, u64), RunsError> {
        if !manifest::is_any(&names(&**disk, folder)?) {
            make_folder(&**disk, folder)?;
        }
        let (mut copies, Found { newest, older, torn }) = Copies::open(&**disk, folder, settles_late)?;
        let names = names(&**disk, folder)?;
        let files: BTreeSet<RunId> = names.iter().filter_map(|name| RunId::of(name)).collect();
        nothing_is_missing(&newest, &files, folder)?;
        let named: BTreeSet<RunId> = newest.runs().map(|run| run.id).collect();
        let older_runs = older.iter().flat_map(Contents::runs).filter(|run| !named.contains(&run.id));
        let leaving: Vec<_> = older_runs.map(|run| Run::open(disk, folder, run.clone(), cache)).collect();
        let leaving_ids: BTreeSet<RunId> = leaving.iter().map(|run| run.id()).collect();
        remove_left(&**disk, folder, &names)?;
        let mut orphans_removed = 0;
        for orphan in files.iter().filter(|id| !named.contains(id) && !leaving_ids.contains(id)) {
            // The newest may have been written over one that names it, and not be durable.
            copies.make_sure(&newest)?;
            let path = orphan.path(folder);
            disk.unlink(&path).map_err(|error| RunsError::disk("remove", &path, &error))?;
            orphans_removed += 1;
        }
        let next_id = files.last().map_or(0, |last| last.0 + 1).max(newest.next_id);
        let opened = told(&newest, orphans_removed, torn);
        let older_applied = older.map_or(newest.applied, |older| older.applied);
        let erased = Arc::new(Erased::of(&newest.erased));
        let book = Self { copies: Some(copies), contents: newest, erased, older_applied, leaving };
        Ok((book, opened, next_id))
    }

    /// What a folder says, to look at.
    pub(crate) fn open_read_only(disk: &dyn Disk, folder: &Path) -> Result<(Self, Opened), RunsError> {
        let names = names(disk, folder)?;
        let (newest, torn) = manifest::look(disk, folder, &names)?;
        let files = names.iter().filter_map(|name| RunId::of(name)).collect();
        nothing_is_missing(&newest, &files, folder)?;
        let opened = told(&newest, 0, torn);
        let (erased, older_applied) = (Arc::new(Erased::of(&newest.erased)), newest.applied);
        Ok((Self { copies: None, contents: newest, erased, older_applied, leaving: Vec::new() }, opened))
    }

    /// Makes an empty map of a folder.
    pub(crate) fn create(disk: &dyn Disk, folder: &Path) -> Result<(), RunsError> {
        make_folder(disk, folder)?;
        let files: Vec<RunId> = names(disk, folder)?.iter().filter_map(|name| RunId::of(name)).collect();
        let next_id = files.iter().max().map_or(0, |last| last.0 + 1);
        Copies::replace(disk, folder, &Contents { next_id, ..Contents::default() })?;
        for run in files {
            let path = run.path(folder);
            disk.unlink(&path).map_err(|error| RunsError::disk("remove", &path, &error))?;
        }
        Ok(())
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        self.copies.is_none()
    }

    pub(crate) const fn contents(&self) -> &Contents {
        &self.contents
    }

    pub(crate) const fn erased(&self) -> &Arc<Erased> {
        &self.erased
    }

    /// The first place that the owner may be asked to replay from, whichever manifest the next open believes.
    pub(crate) fn floor(&self) -> u64 {
        self.older_applied.min(self.contents.applied)
    }

    pub(crate) const fn leaving(&self) -> &[Arc<Run>] {
        self.leaving.as_slice()
    }

    /// Whether the newest manifest is as it was written.
    pub(crate) fn verify(&self) -> Option<RunsError> {
        self.copies.as_ref().and_then(Copies::verify)
    }

    /// Makes a change durable, with the note.
    pub(crate) fn commit(&mut self, change: Change, next_id: u64, note: Vec<u8>) -> Result<(), Refused> {
        let Change { applied, levels, erased, removed } = change;
        let contents = Contents { next_id, applied, levels, erased: erased.ranges(), note };
        let copies = self.copies.as_mut().ok_or(Refused::Nothing(RunsError::ReadOnly))?;
        copies.make_sure(&self.contents).map_err(Refused::Unknown)?;
        copies.commit(&contents)?;
        // What the manifest before this one had let go was named by the copy that has just been written over.
        self.leaving.drain(..).for_each(|run| run.doom());
        self.leaving = removed;
        self.older_applied = self.contents.applied;
        self.contents = contents;
        self.erased = Arc::new(erased);
        Ok(())
    }

    /// Makes a note durable, and nothing else.
    pub(crate) fn renote(&mut self, next_id: u64, note: Vec<u8>) -> Result<(), Refused> {
        let Contents { applied, levels, .. } = self.contents.clone();
        let erased = Erased::clone(&self.erased);
        self.commit(Change { applied, levels, erased, removed: Vec::new() }, next_id, note)
    }
}

fn names(disk: &dyn Disk, folder: &Path) -> Result<Vec<String>, RunsError> {
    match disk.list(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| RunsError::disk("list", folder, &error)),
    }
}

fn nothing_is_missing(newest: &Contents, files: &BTreeSet<RunId>, folder: &Path) -> Result<(), RunsError> {
    match newest.runs().find(|run| !files.contains(&run.id)) {
        Some(missing) => Err(RunsError::damaged(&missing.id.path(folder), 0, "the file is not there")),
        None => Ok(()),
    }
}

fn told(newest: &Contents, orphans_removed: u64, manifest_torn: Option<RunsError>) -> Opened {
    let runs = u64::try_from(newest.runs().count()).unwrap_or(u64::MAX);
    Opened { applied: newest.applied, note: newest.note.clone(), orphans_removed, runs, manifest_torn }
}

pub(crate) fn make_folder(disk: &dyn Disk, folder: &Path) -> Result<(), RunsError> {
    disk.create_dir(folder).map_err(|error| RunsError::disk("create", folder, &error))?;
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_dir(parent, FOLDER).map_err(|error| RunsError::disk("sync", parent, &error))
}
