//! One file of the journal: a header block and the bytes of the log from its first place on.
//!
//! A segment is named by the place where its first batch may begin (`%016x.log`). The place `lsn` stands at the file's
//! byte `4096 + lsn - block_of(first)`: blocks of the file are blocks of the log. The segment that holds a place is the
//! one with the greatest name at or before it.
//!
//! Walk: [`make`] zeroes ahead, syncs, then names · `listing` finds them again · [`Files`] opens what somebody reads,
//! and shuts the oldest of many · a segment that is written to has a descriptor of its own ([`Segment::writer`]).
//! A trimmed segment that is kept changes its name only (`%016x.archived`, or `%016x.kept` where its owner releases it;
//! [`Segment::archive`]): it stays where it is in the order of the log, and no second write is needed to keep history. If the
//! next one had begun before its end, the new name says where: once that one is gone, nothing else would. A released one loses its name,
//! and then its room in steps, once nobody reads its file ([`Segment::leave`]), whoever lists it still.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use assent_kind::Kind;
use assent_world::{Access, Barrier, Disk, File, Open, write_all_at};

use assent_ids::Lsn;

use crate::JournalError;
use crate::error::refused;
use crate::layout::{BLOCK_BYTES, SegmentHead, block_of};
use crate::listing::{archived_name, is_owned, name};
use crate::pieces::Known;

/// Batches remembered as places to begin reading lie at least that far apart.
const MARK_EVERY_BYTES: u64 = 64 << 10;

/// Files open to be read at the same time, in one journal; more where the process may open many. Values of old are read by their places, each
/// from any segment: opening the file for each would be a tenth of the read.
const READERS_MAX_LEAST: u32 = 128;

/// One file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) head: SegmentHead,
    named: PathBuf,
    /// Its name, and where it ends, from the moment when it was archived.
    archived: OnceLock<(PathBuf, u64)>,
    writer: Mutex<Option<Arc<dyn File>>>,
    reader: Mutex<Option<Arc<dyn File>>>,
    marks: Mutex<Vec<u64>>,
    /// Files that somebody may read by still, beside the one that readers share.
    lent: Mutex<Vec<Weak<dyn File>>>,
}

/// A log's files of one moment, in order.
pub(crate) type Segments = Arc<Vec<Arc<Segment>>>;

/// The disk, and the files that are open to be read.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) disk: Arc<dyn Disk>,
    readers_max: usize,
    open: Mutex<VecDeque<Weak<Segment>>>,
    /// Where the pieces of long entries are of which parts are read.
    pub(crate) known: Known,
}

impl Files {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        let most = disk.files_max().max(READERS_MAX_LEAST);
        disk.expect_files(most);
        Arc::new(Self {
            disk,
            readers_max: usize::try_from(most).unwrap_or(usize::MAX),
            open: Mutex::default(),
            known: Known::default(),
        })
    }

    /// A segment's file; opens it if it is not open, and shuts the one that was opened first if there are many.
    pub(crate) fn read(&self, segment: &Arc<Segment>) -> Result<Arc<dyn File>, JournalError> {
        let mut place = segment.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = place.as_ref() {
            return Ok(Arc::clone(file));
        }
        if let Some(file) = segment.writer() {
            return Ok(file);
        }
        let file =
            self.disk.open(segment.path(), Open { access: Access::Read, direct: false }).map_err(
                |error| match error.kind() {
                    // It was there when it was listed: given back since.
                    io::ErrorKind::NotFound => JournalError::NotFound { lsn: Lsn(segment.first()) },
                    _ => refused("opening", segment.path(), &error),
                },
            )?;
        // Who walks reads 128 KiB at a time; who reads entries by their places reads each by itself.
        file.expect_random_reads();
        *place = Some(Arc::clone(&file));
        drop(place);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::downgrade(segment));
        let oldest = if open.len() > self.readers_max { open.pop_front() } else { None };
        drop(open);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.shut();
        }
        Ok(file)
    }
}

impl Segment {
    pub(crate) fn new(head: SegmentHead, path: PathBuf, writer: Option<Arc<dyn File>>) -> Self {
        let writer = Mutex::new(writer);
        let archived = OnceLock::new();
        Self {
            head,
            named: path,
            archived,
            writer,
            reader: Mutex::default(),
            marks: Mutex::default(),
            lent: Mutex::default(),
        }
    }

    /// One that was archived before this opening, and ends there at the latest.
    pub(crate) fn of_archive(head: SegmentHead, path: PathBuf, end: u64) -> Self {
        let segment = Self::new(head, PathBuf::new(), None);
        _ = segment.archived.set((path, end.min(head.end())));
        segment
    }

    /// Lets go of the file that readers share: what is gone from the folder gives its room back.
    pub(crate) fn shut(&self) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.take().into_iter().for_each(|file| self.lends(&file));
    }

    /// Nobody gets this file here any more; who has it goes on with it.
    fn lends(&self, file: &Arc<dyn File>) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|file| file.strong_count() > 0);
        lent.push(Arc::downgrade(file));
    }

    /// Its file, as it is named now.
    pub(crate) fn path(&self) -> &Path {
        self.archived.get().map_or(&self.named, |(path, _)| path)
    }

    /// Whether it was trimmed and kept.
    pub(crate) fn is_archived(&self) -> bool {
        self.archived.get().is_some()
    }

    /// Whether its owner releases it: no opening removes it by itself.
    pub(crate) fn is_owned(&self) -> bool {
        self.archived.get().is_some_and(|(path, _)| is_owned(path))
    }

    /// Gives the file its archived name; the next segment begins at `next`. Durable once the folder is synced.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn archive(&self, disk: &dyn Disk, folder: &Path, next: u64, owned: bool) -> Result<(), JournalError> {
        // Held: whoever opens it to read finds it under the name that it has at that moment.
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let end = next.min(self.head.end());
        let to = folder.join(archived_name(self.first(), (end < self.head.end()).then_some(end), owned));
        disk.rename(&self.named, &to).map_err(|error| refused("archiving", &self.named, &error))?;
        _ = self.archived.set((to, end));
        drop(reader);
        Ok(())
    }

    /// Its name is gone for good, and nobody opens it any more: what is needed to see when it is read no more. `file` is open to be cut.
    pub(crate) fn leave(&self, file: Arc<dyn File>) -> Leaving {
        // What a crash left unsynced was written anew by the opening, and has a writer still.
        self.retire();
        self.shut();
        let read = std::mem::take(&mut *self.lent.lock().unwrap_or_else(PoisonError::into_inner));
        Leaving { read, file }
    }

    /// Forgets where batches begin: memory must not grow with history. A walk in here begins at the segment's first batch.
    pub(crate) fn forget_marks(&self) {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    }

    pub(crate) const fn first(&self) -> u64 {
        self.head.first
    }

    pub(crate) fn end(&self) -> u64 {
        self.archived.get().map_or_else(|| self.head.end(), |(_, end)| *end)
    }

    /// Where a place of the log stands in the file.
    pub(crate) const fn offset(&self, lsn: u64) -> u64 {
        BLOCK_BYTES + lsn.saturating_sub(block_of(self.head.first))
    }

    /// The file to write to, while the segment is the last one or made ahead.
    pub(crate) fn writer(&self) -> Option<Arc<dyn File>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens it to write, past the page cache if told so.
    pub(crate) fn open_writer(&self, disk: &dyn Disk, direct: bool) -> Result<(), JournalError> {
        let file = disk
            .open(self.path(), Open { access: Access::Write, direct })
            .map_err(|error| refused("opening", self.path(), &error))?;
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    /// Nothing more will be laid into it. Writes under way have the file.
    pub(crate) fn retire(&self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.take().into_iter().for_each(|file| self.lends(&file));
    }

    /// Remembers that a batch begins here. Only what is behind all that is remembered counts.
    pub(crate) fn mark(&self, lsn: u64) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.last().is_none_or(|last| lsn.saturating_sub(*last) >= MARK_EVERY_BYTES) {
            marks.push(lsn);
        }
    }

    /// The last remembered batch at or before a place.
    pub(crate) fn mark_before(&self, lsn: u64) -> Option<u64> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let index = marks.partition_point(|mark| *mark <= lsn).checked_sub(1)?;
        marks.get(index).copied()
    }

    /// Takes over what another object of the same file remembers.
    pub(crate) fn inherit(&self, other: &Self) {
        let marks = other.marks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = marks;
    }
}

/// The file of a released segment, which nobody can open any more. Its room comes back in steps once it is dropped, and not when the last one who
/// reads it is done: he may be somebody who waits, and a disk that is told of freed blocks stands still.
#[derive(Debug)]
pub(crate) struct Leaving {
    read: Vec<Weak<dyn File>>,
    file: Arc<dyn File>,
}

impl Leaving {
    /// Whether somebody reads it. Who only lists it may go on with that: it is not to be had for him.
    pub(crate) fn is_read(&self) -> bool {
        self.read.iter().any(|file| file.strong_count() > 0)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // Read still, it goes with whoever reads it last.
        if !self.is_read() {
            // Whatever he read who was the last to let go of it comes before it is cut.
            fence(Ordering::Acquire);
            self.file.give_back();
        }
    }
}

/// What to make and how.
#[derive(Debug)]
pub(crate) struct Making<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) head: SegmentHead,
    /// A file of that size to be used again, not zeroed.
    pub(crate) recycled: Option<PathBuf>,
    pub(crate) direct: bool,
    /// It is synced now and then only: its zeroes need not be written.
    pub(crate) lazy: bool,
    /// The barriers of its content and of its entry.
    pub(crate) barriers: [Barrier; 2],
}

/// The most files that wait to become segments again: about what one compaction of values releases at once, while new ones are asked for
/// one by one. Each that is missing is zeroed ahead, so that all of its bytes are written twice.
pub(crate) const RECYCLED_MAX: usize = 8;
/// So many may always wait.
pub(crate) const RECYCLED_FEW: usize = 3;
/// The file that becomes a segment.
pub(crate) const NEXT: &str = "next.tmp";

/// A file that waits to become a segment again.
pub(crate) fn recycled_name(number: usize) -> String {
    format!("recycled-{number}.tmp")
}

/// Why there is no new segment.
#[derive(Debug)]
pub(crate) struct Unmade {
    pub(crate) error: JournalError,
    /// It may have its name: what the disk holds is unknown. Else it is as if nothing had been tried.
    pub(crate) named: bool,
}

/// Makes a segment: zeroed ahead (or a trimmed one used again), header laid, `fill`ed, synced, and only then named.
///
/// # Errors
/// As the disk says; `Disk` of kind `Full` if there is no room, and then the room taken is given back.
pub(crate) fn make(
    disk: &dyn Disk,
    making: &Making<'_>,
    fill: impl FnOnce(&dyn File, &Segment) -> Result<(), JournalError>,
) -> Result<Arc<Segment>, Unmade> {
    let unnamed = making.folder.join(NEXT);
    let segment = build(disk, making, &unnamed, fill).map_err(|error| {
        // Half a file must not hold the room that is missing. If even that fails, the next attempt removes it.
        _ = disk.unlink(&unnamed);
        Unmade { error, named: false }
    })?;
    let [_, entry] = making.barriers;
    disk.rename(&unnamed, segment.path()).map_err(|error| {
        let error = refused("renaming", &unnamed, &error);
        // There is no room for another name: it has none.
        let named = error.kind() != Kind::Full;
        if !named {
            _ = disk.unlink(&unnamed);
        }
        Unmade { error, named }
    })?;
    let synced = disk.sync_dir(making.folder, entry).map_err(|error| refused("syncing", making.folder, &error));
    synced.map_err(|error| Unmade { error, named: true })?;
    Ok(segment)
}

fn build(
    disk: &dyn Disk,
    making: &Making<'_>,
    unnamed: &Path,
    fill: impl FnOnce(&dyn File, &Segment) -> Result<(), JournalError>,
) -> Result<Arc<Segment>, JournalError> {
    let SegmentHead { first, size, recycled, .. } = making.head;
    let access = if let Some(from) = &making.recycled {
        disk.rename(from, unnamed).map_err(|error| refused("renaming", from, &error))?;
        Access::Write
    } else {
        match disk.unlink(unnamed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused("removing", unnamed, &error)),
            _ => Access::Create,
        }
    };
    let direct = making.direct;
    let file = disk.open(unnamed, Open { access, direct }).map_err(|error| refused("making", unnamed, &error))?;
    // Readers have the writer's file for as long as it is written.
    file.expect_random_reads();
    if !recycled {
        let zeroed = if making.lazy { file.reserve_zeroed(size) } else { file.preallocate_zeroed(size) };
        zeroed.map_err(|error| refused("zeroing", unnamed, &error))?;
    }
    write_all_at(&*file, 0, &making.head.lay()).map_err(|error| refused("writing", unnamed, &error))?;
    let path = making.folder.join(name(first));
    let segment = Arc::new(Segment::new(making.head, path, Some(Arc::clone(&file))));
    fill(&*file, &segment)?;
    let [content, _] = making.barriers;
    file.sync_all(content).map_err(|error| refused("syncing", unnamed, &error))?;
    Ok(segment)
}

/// How many of a log's segments are archived: they come first.
pub(crate) fn archived(segments: &[Arc<Segment>]) -> usize {
    segments.partition_point(|segment| segment.is_archived())
}

/// The index of the segment that holds a place.
pub(crate) fn holder(segments: &[Arc<Segment>], lsn: u64) -> Option<usize> {
    segments.partition_point(|segment| segment.first() <= lsn).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(first: u64, size: u64) -> Arc<Segment> {
        let head = SegmentHead { first, size, epoch: 1, salt: 1, recycled: false };
        Arc::new(Segment::new(head, PathBuf::from(name(first)), None))
    }

    #[test]
    fn a_place_is_held_by_the_greatest_name_at_or_before_it() {
        let segments = [segment(8192, 20480), segment(10_000, 16384), segment(24576, 20480)];
        assert_eq!(segments[0].end(), 24576);
        assert_eq!(segments[1].end(), 8192 + 16384 - 4096);
        let held: Vec<_> = [0, 8191, 8192, 9999, 10_000, 24575, 24576].map(|at| holder(&segments, at)).to_vec();
        assert_eq!(held, [None, None, Some(0), Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(segments[1].offset(10_000), 4096 + 10_000 % 4096);
    }

    #[test]
    fn reading_begins_at_the_last_marked_batch() {
        let segment = segment(0, 20480);
        [0, 100, 70_000, 80_000, 140_000].into_iter().for_each(|lsn| segment.mark(lsn));
        assert_eq!([0, 69_999, 70_000, 200_000].map(|at| segment.mark_before(at)), [0, 0, 70_000, 140_000].map(Some));
    }
}
