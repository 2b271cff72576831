//! The end of a log, moved back: what stands behind a place is gone, durably, before anything is laid there again.
//!
//! Walk: [`Journal::cut_back`] closes this opening and begins the next one, shorter · [`kept`] finds the batch in which the
//! log will end, and refuses a place that is no entry's end · [`cut`] removes the segments behind it, the last first ·
//! then a copy of the one that holds it, with zeroes behind, takes its name.
//!
//! At each moment the folder holds the old log up to some place at or behind the cut: a crash on the way shortens the log
//! and loses nothing before the cut. That is why a segment whose file goes on under the next one (earlier releases began a rescued tail there) is
//! copied without that before the next one goes: else what an earlier cut took would come to light again.
//! A new opening, because its epoch is higher than that of everything that was cut: no stale batch can follow its own.
//! Deliberately absent: a cut of archived places, and one of a log that goes on being written.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use assent_ids::Lsn;
use assent_world::{Dice, File, write_all_at};

use crate::barrier;
use crate::error::refused;
use crate::journal::Journal;
use crate::layout::{BATCH_BYTES, BatchHead, Frames, LAST, PIECE, SegmentHead, bytes, fold, length};
use crate::reader::Source;
use crate::recovery::copy;
use crate::segment::{self, Making, Segment};
use crate::{JournalError, Log, Recovery};

impl Journal {
    /// Moves the end of the log back to this place, the end of an entry or the start of the log, durably: when it returns,
    /// no entry behind it will ever be read again, and places behind it are used again. This opening is closed by that;
    /// the answer is the next one, which the keeper has not been told of. Its [`Recovery`] counts what was there before the cut.
    ///
    /// # Errors
    /// `NotFound` if no entry ends there or the place was trimmed: nothing has happened then. Else the log is closed, and an open
    /// finds it with its old end, with the new one, or anywhere between.
    pub fn cut_back(&self, dice: Arc<dyn Dice>, to: Lsn) -> Result<(Arc<Self>, Recovery), JournalError> {
        self.sync()?;
        kept(&self.source(), self.start().0, to.0)?;
        let left = self.leave();
        // A segment that is made ahead beside this would lie where the next opening does not look for it.
        let _making = self.shut("its end was moved back");
        self.wait_until_still();
        let closed = self.closed_error(&self.core());
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        left?;
        let doors = (Arc::clone(&self.files.disk), Arc::clone(&self.clock), dice);
        Self::begin(doors, &self.folder, self.config.clone(), lock.ok_or(closed)?, Some(to.0))
    }
}

/// What stays of the last batch that stays.
#[derive(Debug)]
struct Last {
    head: BatchHead,
    body: Vec<u8>,
}

/// The batch in which the log ends if it ends here; none if nothing is left.
///
/// # Errors
/// `NotFound` if no entry ends here.
fn kept(source: &Source, start: u64, to: u64) -> Result<Option<Last>, JournalError> {
    if to == start {
        return Ok(None);
    }
    let missing = JournalError::NotFound { lsn: Lsn(to) };
    if to < start {
        return Err(missing);
    }
    let mut walk = source.walk_from(to - 1);
    while let Some(head) = walk.next()? {
        if head.entries == 0 || head.end() < to {
            continue;
        }
        let mut body = walk.body()?.to_vec();
        let (mut entries, mut digest) = (0, 0);
        for (placed, end) in Frames::new(&body, head.lsn + BATCH_BYTES) {
            entries += 1;
            digest = fold(digest, placed.stored.unwrap_or_default());
            let whole = placed.frame.flags & PIECE == 0 || placed.frame.flags & LAST != 0;
            if whole && end == to {
                let left = to - head.lsn - BATCH_BYTES;
                body.truncate(length(left));
                let body_bytes = u32::try_from(left).unwrap_or(head.body);
                // Its epoch stays: a chain that ends in here must not end in another opening than its pieces.
                let head = BatchHead { entries, digest, body: body_bytes, close: false, ..head };
                return Ok(Some(Last { head, body }));
            }
        }
        break;
    }
    Err(missing)
}

/// Ends a log that was opened, and is durable as a whole, at this place. Returns its segments from then on.
///
/// # Errors
/// As the disk says; `NotFound` if no entry ends there, and then nothing has happened.
pub(crate) fn cut(
    source: Source,
    folder: &Path,
    to: u64,
    (epoch, salt): (u32, u64),
    direct: bool,
) -> Result<Vec<Arc<Segment>>, JournalError> {
    let mut segments = source.segments.to_vec();
    let last = kept(&source, source.oldest(), to)?;
    let ending = last.as_ref().and_then(|last| segment::holder(&segments, last.head.lsn)).unwrap_or(0);
    let shorter = |old: &Arc<Segment>, end: u64, last: Option<&Last>| {
        let head = SegmentHead { first: old.first(), size: old.head.size, epoch, salt, recycled: false };
        let barriers = [barrier::CUT, barrier::CUT_ENTRY];
        let making = Making { folder, head, recycled: None, direct, lazy: false, barriers };
        let fill = |file: &dyn File, new: &Segment| {
            copy(&source.files, old, file, new, old.first(), end)?;
            last.map_or(Ok(()), |last| lay(file, new, last))
        };
        segment::make(&*source.files.disk, &making, fill).map_err(|unmade| unmade.error)
    };
    while segments.len() > ending + 1 {
        let Some(gone) = segments.pop() else { break };
        if let Some(before) = segments.last_mut().filter(|before| before.end() > gone.first()) {
            *before = shorter(before, gone.first(), None)?;
        }
        let disk = &*source.files.disk;
        disk.unlink(gone.path()).map_err(|error| refused("removing", gone.path(), &error))?;
        disk.sync_dir(folder, barrier::CUT_SEGMENT).map_err(|error| refused("syncing", folder, &error))?;
    }
    if let Some(old) = segments.last_mut() {
        let end = last.as_ref().map_or(old.first(), |last| last.head.lsn);
        *old = shorter(old, end, last.as_ref())?;
    }
    Ok(segments)
}

/// Lays what stays of a batch.
fn lay(file: &dyn File, segment: &Segment, last: &Last) -> Result<(), JournalError> {
    let mut batch = vec![0; length(BATCH_BYTES)];
    last.head.lay(&mut batch);
    batch.extend_from_slice(&last.body);
    debug_assert_eq!(bytes(batch.len()), last.head.end() - last.head.lsn, "the body is as long as its header says");
    write_all_at(file, segment.offset(last.head.lsn), &batch)
        .map_err(|error| refused("writing", segment.path(), &error))
}
