//! What a folder holds after whatever happened, and how doubt is ended before anything is served.
//!
//! Walk: [`examine`] goes from batch to batch to the last valid one, and refuses if a later header proves that more was
//! durable · [`rescue`] copies segments in which something is that no header claims to be durable into fresh ones, syncs them, and lets them
//! take the doubtful ones' place: the page cache of a failed sync is no evidence · [`examine_end`] is enough where the last opening was closed.
//! Deliberately absent: repair of damage. It changes nothing and says where.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_ids::{Epoch, Lsn};
use assent_world::{File, read_exact_at, write_all_at};

use crate::JournalError;
use crate::barrier;
use crate::closed;
use crate::config::Config;
use crate::epochs::Epochs;
use crate::error::{damaged, refused};
use crate::layout::{BATCH_BYTES, BatchHead, Frames, LAST, PIECE, SegmentHead, bytes, length};
use crate::segment::{self, Files, Making, Segment, Segments};
use crate::walk::{Walk, Window};

/// What an open found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The epoch of this opening; of the last one, if it was opened to read only.
    pub epoch: Epoch,
    /// The first place that can be read.
    pub start: Lsn,
    /// Where the log ends.
    pub end: Lsn,
    /// Valid batches.
    pub batches: u64,
    /// Entries in them.
    pub entries: u64,
    /// The last opening closed properly, or there was none.
    pub clean: bool,
    /// The operating system is still the run of the last opening.
    pub same_boot: bool,
    /// The last opening acknowledged before the sync (RPO > 0), did not close, and the operating system was restarted:
    /// what it acknowledged last may be gone.
    pub may_have_lost: bool,
    /// What stood behind the end and was never acknowledged as durable.
    pub torn: Option<Torn>,
    /// Bytes that were valid, claimed by nobody to be durable, and made durable by this open.
    pub rescued_bytes: u64,
}

/// A batch that was being written when the power went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// Where in the log.
    pub lsn: Lsn,
}

/// What [`examine`] found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) segments: Segments,
    /// Everything before this was durable when some header was written.
    pub(crate) synced: u64,
    /// The end of the last valid batch with entries.
    pub(crate) end: u64,
    /// The epochs of the batches.
    pub(crate) living: BTreeSet<u32>,
    /// For each segment with batches, the end of its last one.
    ends: Vec<(Arc<Segment>, u64)>,
    pub(crate) batches: u64,
    pub(crate) entries: u64,
    pub(crate) closed: bool,
    pub(crate) torn: Option<Torn>,
}

/// Reads all batches.
///
/// # Errors
/// `Corrupt`, naming file and offset, if an invalid batch is followed by the proof that it was durable.
pub(crate) fn examine(files: &Arc<Files>, segments: Segments, epochs: &Arc<Epochs>) -> Result<Found, JournalError> {
    let start = segments.first().map_or(0, |segment| segment.first());
    let mut walk = Walk::new(Arc::clone(files), segments, Arc::clone(epochs), start);
    let mut found = Found {
        segments: Segments::default(),
        synced: start,
        end: start,
        living: BTreeSet::new(),
        ends: Vec::new(),
        batches: 0,
        entries: 0,
        closed: false,
        torn: None,
    };
    while let Some(head) = walk.next()? {
        found.synced = found.synced.max(head.synced);
        // Only of the last opening: one behind it may have acknowledged what stood where this stands, and lost it.
        found.closed = head.entries == 0 && head.close && epochs.last().is_some_and(|(last, _)| last == head.epoch);
        // Of a claim too: a claim of an unknown salt would be none.
        found.living.insert(head.epoch);
        if head.entries == 0 {
            continue;
        }
        found.batches += 1;
        let whole = |flags: u16| flags & PIECE == 0 || flags & LAST != 0;
        let frames = Frames::new(walk.body()?, head.lsn + BATCH_BYTES);
        found.entries += bytes(frames.filter(|(placed, _)| whole(placed.frame.flags)).count());
        let Some(segment) = walk.segment() else { continue };
        segment.mark(head.lsn);
        match found.ends.last_mut() {
            Some((last, end)) if last.first() == segment.first() => *end = head.end(),
            _ => found.ends.push((Arc::clone(segment), head.end())),
        }
    }
    found.end = walk.at();
    found.synced = found.synced.min(found.end);
    // Where the last opening said that it is over, nothing was written behind it: to look through all the room ahead for a proof of loss
    // would cost most of an open.
    if !found.closed
        && let Some(claim) = walk.later_claim()?
    {
        return Err(lost(&walk, &claim));
    }
    found.torn = torn(&walk, files, epochs, found.closed)?;
    found.segments = Arc::clone(walk.segments());
    Ok(found)
}

/// Openings without an end to their list: then all batches are walked over once, and those that have none left are forgotten.
const OPENINGS_FEW: usize = 64;

/// What stands at the end where the last opening says that it was closed; none if it does not, or if it does not stand there.
///
/// # Errors
/// As the disk says.
pub(crate) fn examine_end(
    files: &Arc<Files>,
    folder: &Path,
    segments: &Segments,
    epochs: &Arc<Epochs>,
) -> Result<Option<Found>, JournalError> {
    let living = epochs.all();
    let Some((epoch, opening)) = epochs.last().filter(|_| living.len() < OPENINGS_FEW) else { return Ok(None) };
    let Some(end) = closed::end(&*files.disk, folder, (epoch, opening.salt)) else { return Ok(None) };
    if segments.first().is_none_or(|first| end < first.first()) || segments.last().is_none_or(|last| end > last.end()) {
        return Ok(None);
    }
    let mut walk = Walk::new(Arc::clone(files), Arc::clone(segments), Arc::clone(epochs), end);
    let is_closing = |head: &BatchHead| head.entries == 0 && head.close && head.epoch == epoch && head.synced == end;
    if !walk.next()?.as_ref().is_some_and(is_closing) {
        return Ok(None);
    }
    let segments = Arc::clone(segments);
    let (ends, torn) = (Vec::new(), None);
    Ok(Some(Found { segments, synced: end, end, living, ends, batches: 0, entries: 0, closed: true, torn }))
}

impl Found {
    /// Whether nothing of it is in doubt: the last opening said so as its last word.
    pub(crate) fn is_settled(&self) -> bool {
        self.closed && self.synced == self.end && self.torn.is_none() && !self.segments.is_empty()
    }
}

fn lost(walk: &Walk, claim: &BatchHead) -> JournalError {
    let what = format!(
        "no valid batch at {}, but the batch at {} says that everything before {} was durable",
        walk.at(),
        claim.lsn,
        claim.synced
    );
    match walk.candidates().next() {
        Some((at, segment)) => damaged(segment.path(), segment.offset(at), &what),
        None => damaged(Path::new(""), 0, &what),
    }
}

/// Whether something was begun behind the end. Stale bytes of a recycled segment do not count, as far as they can be
/// told from it.
fn torn(walk: &Walk, files: &Files, epochs: &Epochs, closed: bool) -> Result<Option<Torn>, JournalError> {
    if closed {
        return Ok(None);
    }
    let (end, epoch) = (walk.at(), walk.epoch());
    for (at, segment) in walk.candidates() {
        let mut window = Window::default();
        let bytes = window.get(files, &segment, at, length(BATCH_BYTES))?;
        let begun = match BatchHead::parse(bytes, at) {
            Some(head) => {
                head.entries > 0
                    && u64::from(head.skipped) == at - end
                    && head.epoch >= epoch
                    && epochs.know(head.epoch, head.salt)
            }
            None => at == end && !segment.head.recycled && bytes.iter().any(|byte| *byte != 0),
        };
        if begun {
            return Ok(Some(Torn { file: segment.path().to_path_buf(), offset: segment.offset(at), lsn: Lsn(at) }));
        }
    }
    Ok(None)
}

/// Copies each segment with batches above the last claimed place into a fresh one of the same places, durable before it takes the name. Returns
/// the segments of the log from then on and how many bytes were rescued.
///
/// All of it, and not those batches alone: beside a file that begins with them the old one would keep the room that it was made with, at each
/// restart another one.
///
/// # Errors
/// As the disk says.
pub(crate) fn rescue(
    files: &Files,
    folder: &Path,
    found: &Found,
    (epoch, salt): (u32, u64),
    config: &Config,
) -> Result<(Vec<Arc<Segment>>, u64), JournalError> {
    let mut segments = found.segments.to_vec();
    let mut rescued = 0;
    for (old, end) in found.ends.iter().filter(|(_, end)| found.synced < *end) {
        let first = old.first();
        let head = SegmentHead { first, size: old.head.size, epoch, salt, recycled: false };
        let barriers = [barrier::RESCUE, barrier::RESCUE_ENTRY];
        let making = Making { folder, head, recycled: None, direct: config.direct(), lazy: config.lazy(), barriers };
        let copy = |file: &dyn File, new: &Segment| copy(files, old, file, new, first, *end);
        let new = segment::make(&*files.disk, &making, copy).map_err(|unmade| unmade.error)?;
        old.shut();
        new.inherit(old);
        rescued += end - found.synced.max(first);
        segments.iter_mut().filter(|segment| segment.first() == first).for_each(|segment| *segment = Arc::clone(&new));
    }
    Ok((segments, rescued))
}

/// Copies the bytes from one place to another out of a segment into the file of a new one.
///
/// # Errors
/// As the disk says.
pub(crate) fn copy(
    files: &Files,
    old: &Arc<Segment>,
    file: &dyn File,
    new: &Segment,
    from: u64,
    end: u64,
) -> Result<(), JournalError> {
    let source = files.read(old)?;
    let mut memory = vec![0; 1 << 20];
    let mut at = from;
    while at < end {
        let wanted = length(end - at).min(memory.len());
        let place = memory.get_mut(..wanted).unwrap_or_default();
        let read = read_exact_at(&*source, old.offset(at), place);
        let read = read.map_err(|error| refused("reading", old.path(), &error))?;
        if read < wanted {
            return Err(damaged(old.path(), old.offset(at) + bytes(read), "it became shorter while it was read"));
        }
        write_all_at(file, new.offset(at), place).map_err(|error| refused("writing", new.path(), &error))?;
        at += bytes(wanted);
    }
    Ok(())
}
