//! Parts of long entries: where the pieces of one stand, so that whoever wants a part of it reads no more than the pieces that hold it.
//!
//! A batch of many values is one entry, and a store reads its values one by one: to put all of it together for each would be quadratic. So the first
//! such read walks the entry, proves that it is complete, and remembers where its pieces are. Each later one reads pieces, whose frames have
//! checksums of their own and name their places.
//!
//! Walk: [`Known`] remembers the latest · [`Source::part`] · [`Pieces`] of one entry.
//! Deliberately absent: payloads; they are in the page cache, or nobody wants them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_frame::{PAYLOAD_BYTES_MAX, laid_bytes, parse};
use assent_ids::Lsn;

use crate::JournalError;
use crate::layout::{PIECE, bytes, length};
use crate::reader::{FIRST_READ_BYTES, First, Gathers, Source};
use crate::segment::holder;

/// So many long entries are remembered, those with no more pieces than that: 2 MiB in all at most.
const KNOWN_MAX: usize = 8;
const PIECES_MAX: usize = 16_384;
/// Pieces near each other are read at once, up to so many bytes.
const ONE_READ_BYTES: u64 = 512 << 10;

/// Bytes, and where in them stands what was asked for.
pub type Part = (Vec<u8>, Range<usize>);

/// Where a piece begins in the payload, and its frame in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) from: u64,
    pub(crate) lsn: u64,
}

/// A complete long entry's pieces, in order.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) lsn: u64,
    pub(crate) id: u32,
    pub(crate) total: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// The long entries of which a part was read last.
#[derive(Debug, Default)]
pub(crate) struct Known {
    all: Mutex<VecDeque<Arc<Pieces>>>,
    any: AtomicBool,
}

impl Known {
    /// This one, unless somebody has the lock: readers wait for nobody, and most entries are short.
    fn at_once(&self, lsn: u64) -> Option<Arc<Pieces>> {
        if self.any.load(Ordering::Relaxed) { find(&mut *self.all.try_lock().ok()?, lsn) } else { None }
    }

    /// This one. Who asks knows that it is long.
    fn of(&self, lsn: u64) -> Option<Arc<Pieces>> {
        find(&mut self.all(), lsn)
    }

    fn keep(&self, pieces: Pieces) {
        let mut all = self.all();
        if pieces.pieces.len() <= PIECES_MAX && all.iter().all(|known| known.lsn != pieces.lsn) {
            all.truncate(KNOWN_MAX - 1);
            all.push_front(Arc::new(pieces));
            self.any.store(true, Ordering::Relaxed);
        }
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Pieces>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was found comes first: the one that nobody asked for the longest is forgotten.
fn find(all: &mut VecDeque<Arc<Pieces>>, lsn: u64) -> Option<Arc<Pieces>> {
    let at = all.iter().position(|pieces| pieces.lsn == lsn)?;
    let found = all.remove(at)?;
    all.push_front(Arc::clone(&found));
    Some(found)
}

impl Pieces {
    /// A piece's place, and where it begins and ends in the payload.
    fn nth(&self, number: usize) -> Option<(u64, Range<u64>)> {
        let piece = self.pieces.get(number)?;
        let end = self.pieces.get(number + 1).map_or(self.total, |next| next.from);
        Some((piece.lsn, piece.from..end))
    }

    /// Those that hold some of these bytes.
    fn holding(&self, part: &Range<u64>) -> Range<usize> {
        let behind = |at: u64| self.pieces.partition_point(|piece| piece.from < at);
        // The one that begins at or before the first byte.
        let first = self.pieces.partition_point(|piece| piece.from <= part.start).saturating_sub(1);
        first..behind(part.end).max(first)
    }
}

impl Source {
    /// Bytes of the payload of the entry that begins at this place, no more than it has; there is none from `to` on.
    pub(crate) fn part(&self, lsn: u64, to: u64, part: Range<usize>, directly: bool) -> Result<Part, JournalError> {
        let part = part.start..part.end.max(part.start);
        let wanted = bytes(part.start)..bytes(part.end);
        if let Some(pieces) = self.files.known.at_once(lsn) {
            return self.together(&pieces, &wanted);
        }
        // One that stands behind others is read with all of them, to see that they are whole: these the page cache has the next time.
        let alone = directly && part.start <= FIRST_READ_BYTES && part.end > FIRST_READ_BYTES;
        match self.first(lsn, to, part.end, alone)? {
            First::Whole(fetched) => {
                let (all, from) = fetched.into_bytes();
                let at = |place: usize| from.saturating_add(place).min(all.len());
                let range = at(part.start)..at(part.end);
                Ok((all, range))
            }
            First::Of(id) => {
                if let Some(pieces) = self.files.known.of(lsn) {
                    return self.together(&pieces, &wanted);
                }
                let mut gathers = Gathers::part(wanted);
                self.gather(lsn, id, to, &mut gathers)?.complete(lsn)?;
                let Gathers { total, memory, pieces, .. } = gathers;
                self.files.known.keep(Pieces { lsn, id, total, pieces });
                let range = 0..memory.len();
                Ok((memory, range))
            }
        }
    }

    /// The same from its pieces alone.
    fn together(&self, pieces: &Pieces, part: &Range<u64>) -> Result<Part, JournalError> {
        let wanted = part.start.min(pieces.total)..part.end.min(pieces.total);
        let mut out = Vec::with_capacity(length(wanted.end - wanted.start));
        let numbers = pieces.holding(&wanted);
        let (mut from, mut memory) = (0, Vec::new());
        for number in numbers.clone() {
            let Some((lsn, of)) = pieces.nth(number) else { break };
            let laid = laid_bytes(length(of.end - of.start));
            let is_read =
                |from: u64, memory: &[u8]| from <= lsn && length(lsn - from).saturating_add(laid) <= memory.len();
            if !is_read(from, &memory) {
                let held = holder(&self.segments, lsn).and_then(|index| self.segments.get(index));
                // Behind its end there is a hole: what stood there was released.
                let segment = held
                    .filter(|segment| lsn < segment.end())
                    .ok_or(JournalError::NotFound { lsn: Lsn(pieces.lsn) })?;
                // As far as pieces of this part go on near here.
                let ends = (number..numbers.end).map_while(|next| pieces.nth(next));
                let ends = ends.map(|(lsn, of)| lsn + bytes(laid_bytes(length(of.end - of.start))));
                let near = ends.take_while(|end| *end <= segment.end().min(lsn + ONE_READ_BYTES)).last();
                let reach = near.unwrap_or(lsn + bytes(laid));
                (from, memory) = (lsn, self.read(segment, lsn, length(reach - lsn))?);
            }
            let frame = memory.get(length(lsn - from)..).unwrap_or_default();
            let frame = match parse(frame, PAYLOAD_BYTES_MAX) {
                Ok(Some((frame, _))) if frame.mark == lsn && frame.chain == pieces.id && frame.flags & PIECE != 0 => {
                    frame
                }
                _ => return Err(self.damage(lsn)),
            };
            let at = |place: u64| length(place.clamp(of.start, of.end) - of.start);
            let held = frame.payload.get(at(wanted.start)..at(wanted.end));
            out.extend_from_slice(
                held.filter(|_| bytes(frame.payload.len()) == of.end - of.start).ok_or_else(|| self.damage(lsn))?,
            );
        }
        let range = 0..out.len();
        Ok((out, range))
    }
}
