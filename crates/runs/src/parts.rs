//! Sorting more entries than memory holds: they come in any order, and leave as runs that do not overlap.
//!
//! Walk: [`Parts::add`] gathers · what is too much is sorted and spilt into a part, a run file that no manifest names · too many
//! parts become one · [`Parts::finish`] merges all of them into the runs of one level.
//! Of a key the entry with the greatest `seq` is kept; of two with one `seq`, the one that was added last.
//! Files of a process that died have names of their own ([`RunId::part`]), and go with the next map that is built or opened.
//! Deliberately absent: the manifest, and who says what is left out.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_world::Disk;

use crate::cache::Cache;
use crate::entry::Cursor;
use crate::merged::Merged;
use crate::run::{PART, RunFacts, RunId};
use crate::run_reader::{Reading, Run};
use crate::run_writer::RunWriter;
use crate::{Entry, RunsError};

/// Parts of one rank that become one of the next: each has a file open and a stretch of it in memory.
const PARTS_MAX: usize = 64;
/// Parts whose files are open at the same time.
const OPEN_PARTS_MAX: u32 = 64;
/// How often the pace is asked.
const PACE_BYTES: u64 = 256 << 10;

/// How large things become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes gathered in memory.
    pub(crate) part_bytes: u64,
    /// Bytes of a run, about.
    pub(crate) run_bytes: u64,
    /// Bytes of a block, about.
    pub(crate) block_bytes: u32,
}

/// Entries on their way into order.
#[derive(Debug)]
pub(crate) struct Parts {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    sizes: Sizes,
    /// Parts are read once, past it.
    cache: Arc<Cache>,
    next_id: u64,
    bytes: Vec<u8>,
    gathered: Vec<Gathered>,
    /// The parts of each rank, the oldest first; those of rank 0 are spilt, the others made of some of the rank before.
    ranks: Vec<Vec<Arc<Run>>>,
}

/// An entry in `bytes`: the key, then the value.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    at: usize,
    key: u32,
    value: Option<u32>,
    seq: u64,
}

/// What became of the entries.
#[derive(Debug)]
pub(crate) struct Built {
    /// Runs in the order of their keys, durable but for their names. They are doomed, under the names that they have: [`Built::name`] them before
    /// a manifest may say where they are.
    pub(crate) runs: Vec<Arc<Run>>,
    /// No file has this number or a greater one.
    pub(crate) next_id: u64,
}

impl Built {
    /// Gives the runs their names, for a folder that is synced then.
    ///
    /// # Errors
    /// As the disk says: then they are gone.
    pub(crate) fn name(&self, disk: &dyn Disk, folder: &Path) -> Result<(), RunsError> {
        self.runs.iter().try_for_each(|run| {
            let path = run.id().part(folder);
            disk.rename(&path, &run.id().path(folder)).map_err(|error| RunsError::disk("rename", &path, &error))
        })
    }

    /// Takes them away, whatever their names are by now.
    pub(crate) fn give_up(&self, disk: &dyn Disk, folder: &Path) {
        self.runs.iter().for_each(|run| _ = disk.unlink(&run.id().path(folder)));
    }
}

/// Removes what maps have left that were being built by a process that died.
///
/// # Errors
/// As the disk says.
pub(crate) fn remove_left(disk: &dyn Disk, folder: &Path, names: &[String]) -> Result<(), RunsError> {
    names.iter().filter(|name| name.ends_with(PART)).try_for_each(|name| {
        let path = folder.join(name);
        disk.unlink(&path).map_err(|error| RunsError::disk("remove", &path, &error))
    })
}

impl Parts {
    /// Nothing yet. Numbers of files begin behind those that the folder has, and not before `next_id`.
    ///
    /// # Errors
    /// As the disk says; so for all below.
    pub(crate) fn new(disk: &Arc<dyn Disk>, folder: &Path, sizes: Sizes, next_id: u64) -> Result<Self, RunsError> {
        let names = disk.list(folder).map_err(|error| RunsError::disk("list", folder, &error))?;
        remove_left(&**disk, folder, &names)?;
        let behind = names.iter().filter_map(|name| RunId::of(name)).map(|id| id.0.saturating_add(1)).max();
        Ok(Parts {
            disk: Arc::clone(disk),
            folder: folder.to_path_buf(),
            sizes,
            cache: Cache::new(0, 0, sizes.block_bytes, OPEN_PARTS_MAX)?,
            next_id: next_id.max(behind.unwrap_or(0)),
            bytes: Vec::new(),
            gathered: Vec::new(),
            ranks: Vec::new(),
        })
    }

    /// One more.
    pub(crate) fn add(&mut self, entry: &Entry<'_>) -> Result<(), RunsError> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value.unwrap_or_default());
        let bytes = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.gathered.push(Gathered { at, key: bytes(entry.key), value: entry.value.map(bytes), seq: entry.seq });
        let held = self.bytes.len() + self.gathered.len() * size_of::<Gathered>();
        if number(held) >= self.sizes.part_bytes { self.spill() } else { Ok(()) }
    }

    /// All of them, each key once, as runs. `keep` is asked about each, in the order of the keys; tombstones are left out.
    /// `pace` hears how many bytes were gone through and may refuse to go on.
    pub(crate) fn finish(
        mut self,
        knows: u64,
        keep: &mut dyn FnMut(&Entry<'_>) -> bool,
        pace: &mut dyn FnMut(u64) -> Result<(), RunsError>,
    ) -> Result<Built, RunsError> {
        self.spill()?;
        // Newest first: a part is newer than those spilt before it, and a rank than the next one.
        let parts = std::mem::take(&mut self.ranks);
        let parts = parts.into_iter().flat_map(|rank| rank.into_iter().rev()).collect();
        let mut output = Output { parts: &mut self, knows, writer: None, runs: Vec::new() };
        let mut told = 0;
        each(parts, &mut |entry| {
            told += number(entry.key.len() + entry.value.map_or(0, <[u8]>::len));
            if told >= PACE_BYTES {
                pace(std::mem::take(&mut told))?;
            }
            if entry.value.is_some() && keep(entry) { output.push(entry) } else { Ok(()) }
        })?;
        output.close()?;
        Ok(Built { runs: output.runs, next_id: self.next_id })
    }

    fn spill(&mut self) -> Result<(), RunsError> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut gathered = std::mem::take(&mut self.gathered);
        if gathered.is_empty() {
            return Ok(());
        }
        gathered.sort_unstable_by(|a, b| {
            let newest = |one: &Gathered| Reverse((one.seq, one.at));
            a.key(&bytes).cmp(b.key(&bytes)).then_with(|| newest(a).cmp(&newest(b)))
        });
        gathered.dedup_by(|other, first| other.key(&bytes) == first.key(&bytes));
        let mut writer = self.create()?.unfiltered();
        for one in &gathered {
            writer.push(&one.entry(&bytes))?;
        }
        let part = self.part(writer)?;
        self.take_part(0, part)
    }

    fn take_part(&mut self, rank: usize, part: Arc<Run>) -> Result<(), RunsError> {
        if self.ranks.len() == rank {
            self.ranks.push(Vec::new());
        }
        let Some(parts) = self.ranks.get_mut(rank) else { return Ok(()) };
        parts.push(part);
        if parts.len() < PARTS_MAX {
            return Ok(());
        }
        let full = std::mem::take(parts);
        let mut writer = self.create()?.unfiltered();
        each(full.into_iter().rev().collect(), &mut |entry| writer.push(entry))?;
        let part = self.part(writer)?;
        self.take_part(rank + 1, part)
    }

    fn create(&mut self) -> Result<RunWriter, RunsError> {
        let id = RunId(self.next_id);
        self.next_id += 1;
        RunWriter::create_at(&self.disk, id.part(&self.folder), id, self.sizes.block_bytes)
    }

    fn part(&self, writer: RunWriter) -> Result<Arc<Run>, RunsError> {
        writer.finish_unsynced().map(|facts| self.doomed(facts))
    }

    fn doomed(&self, facts: RunFacts) -> Arc<Run> {
        let run = Run::open_at(&self.disk, facts.id.part(&self.folder), facts, &self.cache);
        run.doom();
        run
    }
}

impl Gathered {
    fn slice(self, bytes: &[u8], from: u32, length: u32) -> &[u8] {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let rest = bytes.get(self.at..).and_then(|rest| rest.get(number(from)..)).unwrap_or_default();
        rest.get(..number(length)).unwrap_or_default()
    }

    fn key(self, bytes: &[u8]) -> &[u8] {
        self.slice(bytes, 0, self.key)
    }

    fn entry(self, bytes: &[u8]) -> Entry<'_> {
        let value = self.value.map(|value| self.slice(bytes, self.key, value));
        Entry { key: self.key(bytes), seq: self.seq, value }
    }
}

/// Each key of these parts once, in order; the newest part comes first. The parts are gone afterwards.
fn each(parts: Vec<Arc<Run>>, take: &mut dyn FnMut(&Entry<'_>) -> Result<(), RunsError>) -> Result<(), RunsError> {
    let cursors = parts.iter().map(|part| Box::new(part.cursor(Reading::Ahead)) as Box<dyn Cursor>);
    let mut merged = Merged::new(cursors.collect());
    merged.seek(&[])?;
    while let Some(entry) = merged.entry() {
        take(&entry)?;
        merged.next()?;
    }
    Ok(())
}

fn number(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The runs that come out.
struct Output<'a> {
    parts: &'a mut Parts,
    knows: u64,
    writer: Option<RunWriter>,
    runs: Vec<Arc<Run>>,
}

impl Output<'_> {
    fn push(&mut self, entry: &Entry<'_>) -> Result<(), RunsError> {
        if self.writer.as_ref().is_some_and(|writer| writer.bytes() >= self.parts.sizes.run_bytes) {
            self.close()?;
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.parts.create()?,
        };
        writer.push(entry)?;
        self.writer = Some(writer);
        Ok(())
    }

    fn close(&mut self) -> Result<(), RunsError> {
        if let Some(writer) = self.writer.take() {
            let facts = writer.finish(self.knows)?;
            self.runs.push(self.parts.doomed(facts));
        }
        Ok(())
    }
}
