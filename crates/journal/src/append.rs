//! Entries in: checked, copied once into the open batch.
//!
//! Walk: [`Journal::lay`] checks the door · an entry of one frame is laid whole · a longer one as a chain of pieces under
//! one id, others in between, closed by a frame with the checksum of all · where a segment is needed that is not ready,
//! the appender makes it ([`Journal::extend`]), before anything of the entry is laid · who may not wait for a disk tries
//! ([`Journal::try_append`]), and lets somebody else make room ([`Journal::make_room`]).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use assent_frame::{PAYLOAD_BYTES_MAX, laid_bytes};
use assent_ids::Lsn;
use assent_kind::Kind;

use crate::buffer::Batch;
use crate::config::{Config, ENTRY_BYTES_MAX};
use crate::group::{Core, Room};
use crate::journal::{self, Journal};
use crate::layout::{
    BATCH_BYTES, BLOCK_BYTES, ChainEnd, FIRST, KIND_RESERVED, LAST, PIECE, SegmentHead, bytes, fold, length,
};
use crate::segment::{self, Making, Segment, Unmade};
use crate::{JournalError, Leaves, Ticket, barrier};

/// A piece is not cut smaller than this to fill the rest of a batch.
const PIECE_BYTES_MIN: usize = 1024;
/// What an owner wants left free is no more than such a part of the disk.
const LEAVES_PARTS: u64 = 8;

impl Journal {
    /// Appends one entry, and leaves others what it has to.
    pub(crate) fn lay(&self, kind: u16, parts: &[&[u8]], leaves: Leaves) -> Result<Ticket, JournalError> {
        let total = self.check(kind, parts)?;
        let ticket = if self.is_one_frame(total) {
            let ahead = self.ahead(total, leaves);
            self.frame((laid_bytes(total), ahead), |open, _| open.push(kind, 0, 0, parts))?.ticket()
        } else {
            self.lay_chain(kind, parts, total, leaves)?
        };
        self.counters.entries.fetch_add(1, Ordering::Relaxed);
        Ok(ticket)
    }

    /// As [`Log::append`](crate::Log::append), but waits for no disk: `None` where it would have to, and then nothing was appended. It is
    /// taken when what was appended before has been written, and [`Journal::make_room`] has returned. An entry that is longer than a
    /// frame waits all the same.
    ///
    /// # Errors
    /// As [`Log::append`](crate::Log::append).
    pub fn try_append(&self, kind: u16, parts: &[&[u8]]) -> Result<Option<Ticket>, JournalError> {
        let total = self.check(kind, parts)?;
        if !self.is_one_frame(total) {
            return self.lay(kind, parts, Leaves::Nothing).map(Some);
        }
        let Tried::Laid(laid) = self
            .try_frame((laid_bytes(total), Ahead::NOTHING), &mut |open: &mut Batch, _| open.push(kind, 0, 0, parts))?
        else {
            return Ok(None);
        };
        self.counters.entries.fetch_add(1, Ordering::Relaxed);
        Ok(Some(laid.ticket()))
    }

    /// Makes the segments that an entry of so many bytes needs, if they are not there, which takes a disk.
    ///
    /// # Errors
    /// As [`Log::append`](crate::Log::append).
    pub fn make_room(&self, bytes: usize) -> Result<(), JournalError> {
        self.reserve(bytes, Leaves::Nothing)
    }

    /// Checks the door; how long the entry is.
    fn check(&self, kind: u16, parts: &[&[u8]]) -> Result<usize, JournalError> {
        if kind >= KIND_RESERVED {
            return Err(JournalError::EntryKind { kind });
        }
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if bytes(total) > ENTRY_BYTES_MAX {
            return Err(JournalError::EntrySize { bytes: bytes(total), limit: ENTRY_BYTES_MAX });
        }
        self.settle()?;
        Ok(total)
    }

    fn is_one_frame(&self, total: usize) -> bool {
        total <= PAYLOAD_BYTES_MAX && laid_bytes(total) <= self.frame_bytes_max
    }

    /// Has one frame laid as soon as `least` bytes fit, and what it asks for is there; `push` is told for how many bytes of payload there
    /// is room.
    fn frame(
        &self,
        least: (usize, Ahead),
        mut push: impl FnMut(&mut Batch, usize) -> Option<(u64, u32)>,
    ) -> Result<Laid, JournalError> {
        loop {
            match self.try_frame(least, &mut push)? {
                Tried::Laid(laid) => return Ok(laid),
                Tried::Batch(turn) => self.flush(turn)?,
                Tried::Segment(from) => self.extend(from, least.1.heeds)?,
                Tried::Spare(from) => self.secure(from)?,
            }
        }
    }

    /// Has one frame laid if `least` bytes fit, else says what is in the way.
    fn try_frame(
        &self,
        (least, ahead): (usize, Ahead),
        push: &mut impl FnMut(&mut Batch, usize) -> Option<(u64, u32)>,
    ) -> Result<Tried, JournalError> {
        let mut core = self.core();
        self.writable(&core)?;
        if let Some(missing) = ahead.missing(&core) {
            return Ok(missing);
        }
        let room = match core.place(bytes(least)) {
            Room::Bytes(room) => room,
            Room::Batch => return Ok(Tried::Batch(core.turn)),
            Room::Segment(from) => return Ok(Tried::Segment(from)),
        };
        let payload = length(room).saturating_sub(laid_bytes(0)).min(PAYLOAD_BYTES_MAX);
        let laid = push(&mut core.open, payload);
        let end = core.open.end();
        let hungry = std::mem::take(&mut core.hungry);
        drop(core);
        if hungry {
            self.call_keeper();
        }
        // There was room. If not after all, what was cut for it is not laid: nothing may be claimed of it.
        let busy = JournalError::Busy { bytes: bytes(self.config.max_buffer_log_size) };
        laid.map(|(lsn, checksum)| Tried::Laid(Laid { lsn, checksum, end })).ok_or(busy)
    }

    fn lay_chain(&self, kind: u16, parts: &[&[u8]], total: usize, leaves: Leaves) -> Result<Ticket, JournalError> {
        self.reserve(total, leaves)?;
        // As its room was asked for: what others have taken of it meanwhile is made again.
        let ahead = Ahead { heeds: leaves.heeds(), ..Ahead::NOTHING };
        let chain = {
            let mut core = self.core();
            core.chain = core.chain.wrapping_add(1);
            core.chain
        };
        let mut end = ChainEnd { first: 0, total: bytes(total), checksum: 0, pieces: 0 };
        let mut rest = Rest { parts, left: total };
        while rest.left > 0 {
            let flags = if end.pieces == 0 { PIECE | FIRST } else { PIECE };
            let least = laid_bytes(rest.left.min(PIECE_BYTES_MIN));
            let push = |open: &mut Batch, room| open.push(kind, flags, chain, &rest.cut(room));
            let Laid { lsn, checksum, .. } = self.frame((least, ahead), push)?;
            if end.pieces == 0 {
                end.first = lsn;
            }
            end.pieces += 1;
            end.checksum = fold(end.checksum, checksum);
        }
        let laid = end.lay();
        let push = |open: &mut Batch, _| open.push(kind, PIECE | LAST, chain, &[&laid]);
        let last = self.frame((ChainEnd::LAID_BYTES, ahead), push)?.end;
        Ok(Ticket { lsn: Lsn(end.first), end: Lsn(last) })
    }

    /// Makes the segments of an entry, and of what it leaves behind it, before its first piece is laid. Should others take that room meanwhile and the
    /// disk be full, the chain stays unclosed: invisible, as if nothing had been appended.
    pub(crate) fn reserve(&self, total: usize, leaves: Leaves) -> Result<(), JournalError> {
        let ahead = self.ahead(total, leaves);
        let ahead = Ahead { needed: ahead.needed.max(self.needed(total)), ..ahead };
        loop {
            let core = self.core();
            self.writable(&core)?;
            let missing = ahead.missing(&core);
            drop(core);
            match missing {
                Some(Tried::Segment(from)) => self.extend(from, ahead.heeds)?,
                Some(Tried::Spare(from)) => self.secure(from)?,
                _ => return Ok(()),
            }
        }
    }

    /// What has to be there for an entry of so many bytes.
    fn ahead(&self, total: usize, leaves: Leaves) -> Ahead {
        let Leaves::Room { room_bytes, spare_bytes } = leaves else { return Ahead::NOTHING };
        let needed = if room_bytes > 0 { self.needed(total).saturating_add(room_bytes) } else { 0 };
        let wished = if spare_bytes > 0 { needed.max(self.needed(total)).saturating_add(spare_bytes) } else { 0 };
        Ahead { needed, wished, heeds: true }
    }

    /// Bytes of room that an entry may take.
    fn needed(&self, total: usize) -> u64 {
        let buffer = bytes(self.config.max_buffer_log_size);
        let batches = bytes(total) / (buffer - BLOCK_BYTES) + 1;
        bytes(total) + bytes(total) / 16 + (batches + 1) * (2 * BLOCK_BYTES)
    }

    /// Another segment can be had from there on, or is made. Where somebody makes segments ahead, nobody waits for it as long as the disk has
    /// room: one question to the disk for a segment.
    fn secure(&self, from: u64) -> Result<(), JournalError> {
        let is_full = self.core().full;
        if !self.has_keeper() || is_full || self.is_short(self.config.log_size) {
            return self.extend(from, true);
        }
        self.core().secure_to = from;
        Ok(())
    }

    /// Makes the segment that begins at this place, unless it is there already. Where there is no room for it, history
    /// gives way. `heeds`: there is none where that would take of what is to stay free on the disk.
    ///
    /// # Errors
    /// `Full` if there is no room and no history, `Disk` if it could not be made, and then nothing has happened: the next append tries
    /// again. `Closed` if it may have been made or not.
    pub(crate) fn extend(&self, from: u64, heeds: bool) -> Result<(), JournalError> {
        // A segment's header names its epoch.
        self.settle()?;
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.writable(&self.core())?;
        let last = self.segments.read().unwrap_or_else(PoisonError::into_inner).last().map(|last| last.end());
        if last != Some(from) {
            return Ok(());
        }
        let made = loop {
            match self.make(from, &mut making, heeds) {
                Err(Unmade { error, named: false }) if error.kind() == Kind::Full && self.give_way(&mut making) => {}
                made => break made,
            }
        };
        match made {
            Ok(segment) => {
                self.counters.segments.fetch_add(1, Ordering::Relaxed);
                let is_zeroed = !segment.head.recycled && !self.config.lazy();
                let zeroed = if is_zeroed { segment.head.size } else { 0 };
                self.counters.zeroed.fetch_add(zeroed, Ordering::Relaxed);
                let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
                Arc::make_mut(&mut segments).push(Arc::clone(&segment));
                drop(segments);
                let mut core = self.core();
                core.spares.push_back(segment);
                core.full = false;
                Ok(())
            }
            Err(Unmade { error, named: true }) => Err(self.poison(error.to_string())),
            Err(Unmade { error, .. }) if error.kind() == Kind::Full => {
                let mut core = self.core();
                (core.full, core.secure_to) = (true, 0);
                drop(core);
                Err(self.full())
            }
            Err(Unmade { error, .. }) => Err(error),
        }
    }

    fn full(&self) -> JournalError {
        JournalError::Full { folder: self.folder.display().to_string() }
    }

    /// Whether so many bytes more would take of what is to stay free on the disk ([`Log::leave_free`](crate::Log::leave_free)).
    pub(crate) fn is_short(&self, bytes: u64) -> bool {
        let leaves = self.leaves_bytes.load(Ordering::Relaxed);
        if leaves == 0 {
            return false;
        }
        // Where nobody knows, the disk itself refuses.
        let room = self.files.disk.room(&self.folder).ok().flatten();
        room.is_some_and(|room| room.free_bytes < bytes.saturating_add(leaves.min(room.bytes / LEAVES_PARTS)))
    }

    fn make(&self, first: u64, making: &mut journal::Making, heeds: bool) -> Result<Arc<Segment>, Unmade> {
        // Nobody who listed it before it was trimmed reads it any more.
        let unread = making.recycled.iter().position(|(_, segment)| Arc::strong_count(segment) == 1);
        if unread.is_none() && heeds && self.is_short(self.config.log_size) {
            return Err(Unmade { error: self.full(), named: false });
        }
        let recycled = unread.map(|index| making.recycled.swap_remove(index).0);
        self.counters.waiting.store(making.recycled.len(), Ordering::Relaxed);
        let (size, epoch, salt) = (self.config.log_size, self.epoch, self.salt);
        let head = SegmentHead { first, size, epoch, salt, recycled: recycled.is_some() };
        let barriers = [barrier::SEGMENT, barrier::SEGMENT_ENTRY];
        let order = Making {
            folder: &self.folder,
            head,
            recycled,
            direct: self.config.direct(),
            lazy: self.config.lazy(),
            barriers,
        };
        segment::make(&*self.files.disk, &order, |_, _| Ok(()))
    }
}

/// The longest frame that fits every batch and every segment in which nothing is yet. Those that an opening finds may have been made when segments
/// were smaller: none can be left empty, for a batch is looked for in its segment and the next one.
pub(crate) fn frame_bytes_max(config: &Config, spares: &VecDeque<Arc<Segment>>) -> usize {
    let buffer = bytes(config.max_buffer_log_size) - BLOCK_BYTES;
    let spares = spares.iter().map(|spare| spare.end() - spare.first());
    let least = spares.fold(buffer.min(config.log_size - BLOCK_BYTES), u64::min);
    length(least.saturating_sub(BATCH_BYTES))
}

/// A frame in the open batch.
struct Laid {
    lsn: u64,
    checksum: u32,
    end: u64,
}

impl Laid {
    const fn ticket(&self) -> Ticket {
        Ticket { lsn: Lsn(self.lsn), end: Lsn(self.end) }
    }
}

/// What came of laying a frame.
enum Tried {
    Laid(Laid),
    /// The open batch, of this turn, has to be written first.
    Batch(u64),
    /// A segment has to be made first, from this place on.
    Segment(u64),
    /// It has to be known first that a segment can be had from this place on.
    Spare(u64),
}

/// What has to be there before the first byte of an entry is laid.
#[derive(Clone, Copy)]
struct Ahead {
    /// So many bytes of room.
    needed: u64,
    /// So many, unless the disk has room for another segment.
    wished: u64,
    /// It makes no segment where that would take of what is to stay free on the disk.
    heeds: bool,
}

impl Ahead {
    const NOTHING: Self = Self { needed: 0, wished: 0, heeds: false };

    fn missing(&self, core: &Core) -> Option<Tried> {
        let (room, made_to) = (core.room_ahead(), core.made_to());
        if room < self.needed {
            return Some(Tried::Segment(made_to));
        }
        (room < self.wished && core.secure_to != made_to).then_some(Tried::Spare(made_to))
    }
}

/// The bytes of a long entry that have not been laid.
struct Rest<'a, 'b> {
    parts: &'b [&'a [u8]],
    left: usize,
}

impl<'a> Rest<'a, '_> {
    /// Takes up to that many off the front.
    fn cut(&mut self, most: usize) -> Vec<&'a [u8]> {
        let total: usize = self.parts.iter().map(|part| part.len()).sum();
        let mut skip = total - self.left;
        let mut take = most.min(self.left);
        self.left -= take;
        let mut pieces = Vec::new();
        for part in self.parts {
            let Some((_, part)) = part.split_at_checked(skip) else {
                skip -= part.len();
                continue;
            };
            skip = 0;
            let (piece, _) = part.split_at_checked(take).unwrap_or((part, &[]));
            take -= piece.len();
            pieces.push(piece);
        }
        pieces
    }
}
