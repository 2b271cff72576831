//! From batch to batch, as recovery, readers and inspection go.
//!
//! A batch follows the one before it at its end, or at the next block (another write was in flight), or at the start of
//! the next segment; its header says how many bytes were skipped, so that stale bytes in between never count. An empty
//! batch (idle, close) does not advance: the next one was laid over it or behind the link it left.
//!
//! Walk: [`Walk::next`] steps to the next valid batch and leaves its body in [`Walk::body`] · it returns `None` where no
//! valid batch follows: whether that is the end or damage, `recovery` decides.

use std::sync::Arc;

use assent_ids::Lsn;
use assent_world::{File, read_exact_at};

use crate::JournalError;
use crate::epochs::Epochs;
use crate::error::{damaged, refused};
use crate::layout::{BATCH_BYTES, BatchHead, block_from, bytes, length};
use crate::listing::gap;
use crate::segment::{Files, Segment, Segments, holder};

/// A walk reads so much at once, and twice as much each time as it goes on, up to this.
const AHEAD_BYTES: usize = 128 << 10;
const AHEAD_BYTES_MAX: usize = 512 << 10;

/// Bytes of one segment, read ahead.
#[derive(Debug, Default)]
pub(crate) struct Window {
    memory: Vec<u8>,
    /// So much was read at once.
    ahead: usize,
    /// Which segment they are of, and the place of the first.
    of: Option<(u64, u64)>,
    /// The file of the last segment, kept: what is released or pruned under a reader goes on being read.
    file: Option<(u64, Arc<dyn File>)>,
}

impl Window {
    /// These bytes of a segment; fewer at its end.
    pub(crate) fn get(
        &mut self,
        files: &Files,
        segment: &Arc<Segment>,
        lsn: u64,
        wanted: usize,
    ) -> Result<&[u8], JournalError> {
        let wanted = wanted.min(length(segment.end().saturating_sub(lsn)));
        let at = match self.of {
            Some((first, from)) if first == segment.first() && from <= lsn => length(lsn - from),
            _ => usize::MAX,
        };
        if at.checked_add(wanted).is_some_and(|end| end <= self.memory.len()) {
            return Ok(self.memory.get(at..at + wanted).unwrap_or_default());
        }
        // Where the last piece ended, or within: it goes on. What is not written yet nobody reads ahead.
        let goes_on = at <= self.memory.len() && segment.is_archived();
        self.ahead = if goes_on { (self.ahead * 2).min(AHEAD_BYTES_MAX) } else { AHEAD_BYTES };
        let left = length(segment.end().saturating_sub(lsn));
        let ahead = wanted.max(self.ahead).min(left);
        self.memory.resize(ahead, 0);
        self.of = None;
        let file = match &self.file {
            Some((first, file)) if *first == segment.first() => Arc::clone(file),
            _ => files.read(segment)?,
        };
        let read = read_exact_at(&*file, segment.offset(lsn), &mut self.memory)
            .map_err(|error| refused("reading", segment.path(), &error))?;
        if goes_on && read == ahead {
            // While this is looked at the disk brings what follows.
            file.will_read(segment.offset(lsn) + bytes(ahead), bytes(AHEAD_BYTES_MAX.min(left - ahead)));
        }
        self.file = Some((segment.first(), file));
        self.memory.truncate(read);
        self.of = Some((segment.first(), lsn));
        Ok(self.memory.get(..wanted.min(read)).unwrap_or_default())
    }
}

/// A walk over the batches of a log.
#[derive(Debug)]
pub(crate) struct Walk {
    files: Arc<Files>,
    segments: Segments,
    epochs: Arc<Epochs>,
    window: Window,
    /// Where the last batch ended.
    at: u64,
    /// The first batch after the beginning has no link to check.
    linked: bool,
    epoch: u32,
    /// An empty batch that was seen at or behind `at`.
    ghost: Option<u64>,
    current: Option<(Arc<Segment>, BatchHead)>,
}

impl Walk {
    /// Begins at a place where a batch may begin: the start of the first segment, or a batch.
    pub(crate) fn new(files: Arc<Files>, segments: Segments, epochs: Arc<Epochs>, at: u64) -> Self {
        let window = Window::default();
        Self { files, segments, epochs, window, at, linked: false, epoch: 0, ghost: None, current: None }
    }

    /// Where the last batch ended.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// The epoch of the last batch.
    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) const fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The segment of the last batch.
    pub(crate) fn segment(&self) -> Option<&Arc<Segment>> {
        self.current.as_ref().map(|(segment, _)| segment)
    }

    /// The places where the next batch may begin, each with its segment.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (u64, Arc<Segment>)> + use<> {
        let index = holder(&self.segments, self.at);
        let here = index.and_then(|index| self.segments.get(index)).cloned();
        let next = index.map_or(0, |index| index + 1);
        let next = self.segments.get(next).cloned();
        let end = here.as_ref().map_or(0, |segment| segment.end());
        let end = next.as_ref().map_or(end, |next| end.min(next.first()));
        let block = block_from(self.at);
        let fits = move |at: u64| at + BATCH_BYTES <= end;
        let first = here.clone().filter(|_| fits(self.at)).map(|segment| (self.at, segment));
        let second = here.filter(|_| block != self.at && fits(block)).map(|segment| (block, segment));
        let third = next.map(|segment| (segment.first(), segment));
        let ghost = self.ghost;
        [first, second, third].into_iter().flatten().filter(move |(at, _)| ghost.is_none_or(|ghost| *at > ghost))
    }

    /// The header of the batch that follows at this candidate, if one of ours does.
    fn head(&mut self, at: u64, segment: &Arc<Segment>) -> Result<Option<BatchHead>, JournalError> {
        let bytes = self.window.get(&self.files, segment, at, length(BATCH_BYTES))?;
        let Some(head) = BatchHead::parse(bytes, at) else { return Ok(None) };
        let linked = u64::from(head.skipped) == at - self.at || !self.linked && at == self.at;
        let fits = head.end() <= segment.end();
        // What is archived was durable with all before it, and its opening may be forgotten since.
        let known = segment.is_archived() || self.epochs.know(head.epoch, head.salt);
        let ours = head.epoch >= self.epoch && known;
        Ok((linked && fits && ours).then_some(head))
    }

    /// The next valid batch.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn next(&mut self) -> Result<Option<BatchHead>, JournalError> {
        for (at, segment) in self.candidates() {
            let Some(head) = self.head(at, &segment)? else { continue };
            let body = usize::try_from(head.body).unwrap_or(usize::MAX);
            let bytes = self.window.get(&self.files, &segment, at + BATCH_BYTES, body)?;
            if !head.holds(bytes) {
                continue;
            }
            self.epoch = head.epoch;
            if head.entries == 0 {
                self.ghost = Some(at);
            } else {
                self.at = head.end();
                self.linked = true;
                self.ghost = None;
            }
            self.current = Some((segment, head));
            return Ok(Some(head));
        }
        self.current = None;
        Ok(None)
    }

    /// Why no valid batch follows before the end of what is readable.
    pub(crate) fn broken(&self) -> JournalError {
        let held = holder(&self.segments, self.at);
        let here = held.and_then(|index| Some((self.segments.get(index)?, self.segments.get(index + 1)?)));
        if let Some(error) = here.and_then(|(here, next)| gap(here, next)) {
            return error;
        }
        let here = || Some((self.at, Arc::clone(self.segments.get(held?)?)));
        match self.candidates().next().or_else(here) {
            Some((place, segment)) => damaged(segment.path(), segment.offset(place), "no valid batch follows there"),
            None => JournalError::NotFound { lsn: Lsn(self.at) },
        }
    }

    /// Whether it stands before a hole: the segment that followed is not there.
    pub(crate) fn before_a_hole(&self) -> bool {
        let held = holder(&self.segments, self.at);
        held.and_then(|index| Some((self.segments.get(index)?, self.segments.get(index + 1)?)))
            .is_some_and(|(here, next)| gap(here, next).is_some())
    }

    /// The body of the batch that `next` stepped to.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn body(&mut self) -> Result<&[u8], JournalError> {
        let Some((segment, head)) = &self.current else { return Ok(&[]) };
        self.window.get(&self.files, segment, head.lsn + BATCH_BYTES, length(u64::from(head.body)))
    }

    /// The first header behind the end that proves that what stood at the end was durable once: written by us, for its
    /// place, and claiming a synced place beyond.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn later_claim(&mut self) -> Result<Option<BatchHead>, JournalError> {
        let Some(index) = holder(&self.segments, self.at) else { return Ok(None) };
        for position in index..self.segments.len() {
            let Some(segment) = self.segments.get(position).cloned() else { break };
            let end = self.segments.get(position + 1).map_or(segment.end(), |next| segment.end().min(next.first()));
            let mut from = self.at.max(segment.first());
            while from + BATCH_BYTES <= end {
                let ahead = length(end - from).min(AHEAD_BYTES);
                let window = self.window.get(&self.files, &segment, from, ahead)?;
                if let Some(head) = claim_in(window, from, self.at, &self.epochs) {
                    return Ok(Some(head));
                }
                // The last header that fits was looked at; go on with the first that did not.
                let scanned = bytes(window.len()).saturating_sub(BATCH_BYTES - 8);
                if scanned == 0 {
                    break;
                }
                from += scanned;
            }
        }
        Ok(None)
    }
}

fn claim_in(window: &[u8], from: u64, beyond: u64, epochs: &Epochs) -> Option<BatchHead> {
    let headers = window.windows(length(BATCH_BYTES)).step_by(8);
    headers.zip((from..).step_by(8)).find_map(|(at, lsn)| {
        let head = BatchHead::parse(at, lsn)?;
        (head.synced > beyond && epochs.know(head.epoch, head.salt)).then_some(head)
    })
}
