//! Entries out: in the order in which they were complete, or one by its address.
//!
//! Walk: [`Source`] is the segments of one moment · [`Entries`] walks batches and puts chains together · [`Source::fetch`]
//! reads one entry with one read where its length is small or known, and follows a chain piece by piece.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use assent_frame::{HEADER_BYTES, PAYLOAD_BYTES_MAX, laid_bytes, parse};
use assent_ids::Lsn;
use assent_world::{read_direct, read_exact_at};

use crate::epochs::Epochs;
use crate::error::{damaged, refused};
use crate::layout::{BATCH_BYTES, BatchHead, ChainEnd, FIRST, Frames, KIND_RESERVED, LAST, PIECE, bytes, fold, length};
use crate::pieces::Piece;
use crate::segment::{Files, Segment, Segments, holder};
use crate::walk::Walk;
use crate::{Entry, Fetched, JournalError, Span};

/// Most entries and their header fit.
pub(crate) const FIRST_READ_BYTES: usize = 4096;

/// The segments of one moment and what is needed to read them.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) files: Arc<Files>,
    pub(crate) segments: Segments,
    pub(crate) epochs: Arc<Epochs>,
}

impl Source {
    /// The first place that can be read, archived or not.
    pub(crate) fn oldest(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.first())
    }

    /// A walk whose first batch begins at or before this place.
    pub(crate) fn walk_from(&self, lsn: u64) -> Walk {
        let held = holder(&self.segments, lsn).and_then(|index| self.segments.get(index));
        let at = held.map_or(0, |segment| segment.mark_before(lsn).unwrap_or_else(|| segment.first()));
        Walk::new(Arc::clone(&self.files), Arc::clone(&self.segments), Arc::clone(&self.epochs), at)
    }

    /// The trimmed segments, in order.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let nexts = self.segments.iter().skip(1).map(|next| next.first()).chain([u64::MAX]);
        let archived = self.segments.iter().zip(nexts).take_while(|(segment, _)| segment.is_archived());
        let span = |(segment, next): (&Arc<Segment>, u64)| Span {
            first: Lsn(segment.first()),
            end: Lsn(segment.end().min(next)),
            bytes: segment.head.size,
        };
        archived.map(span).collect()
    }

    /// All entries that were complete between two places.
    pub(crate) fn entries(self, from: u64, to: u64) -> Entries {
        self.walked(from, to, None)
    }

    /// The entries that begin between two places, in that order; each is complete before `limit`.
    pub(crate) fn begun(self, from: u64, to: u64, limit: u64) -> Entries {
        self.walked(from, to.min(limit), Some(limit))
    }

    fn walked(self, from: u64, to: u64, begun: Option<u64>) -> Entries {
        let walk = self.walk_from(from);
        let chains = HashMap::new();
        // Between a place and itself there is nothing, however far the walk there would be.
        let ended = from >= to;
        Entries { walk, from, to, begun, source: self, batch: None, at: 0, epoch: 0, chains, ended }
    }

    /// The entry that begins at this place; there is none from `to` on.
    pub(crate) fn entry(&self, lsn: u64, to: u64) -> Result<Entry, JournalError> {
        self.fetch(lsn, to, FIRST_READ_BYTES - HEADER_BYTES).map(Entry::from)
    }

    /// As [`Source::entry`], with one read if its payload is no longer than said.
    pub(crate) fn fetch(&self, lsn: u64, to: u64, payload_bytes: usize) -> Result<Fetched, JournalError> {
        match self.first(lsn, to, payload_bytes, false)? {
            First::Whole(fetched) => Ok(fetched),
            First::Of(id) => self.chain(lsn, id, to)?.complete(lsn).map(Fetched::from),
        }
    }

    /// What begins there: all of an entry, or the first piece of a long one. As far as it was said to reach it is read past the page cache, if
    /// that is said; what it turns out to have beyond is others', who will be asked for, too.
    pub(crate) fn first(&self, lsn: u64, to: u64, payload_bytes: usize, directly: bool) -> Result<First, JournalError> {
        let missing = JournalError::NotFound { lsn: Lsn(lsn) };
        let held = holder(&self.segments, lsn).and_then(|index| self.segments.get(index));
        let held = held.filter(|segment| lsn < to.min(segment.end()) && lsn.is_multiple_of(8));
        let Some(segment) = held else { return Err(missing) };
        let most = length(segment.end().saturating_sub(lsn));
        // What is longer than a frame is a chain, of which this is the first piece.
        let least = if payload_bytes <= PAYLOAD_BYTES_MAX { laid_bytes(payload_bytes) } else { FIRST_READ_BYTES };
        // Of the one that is written through the page cache: such a write would wait for such a read, and it is there.
        let directly = directly && segment.writer().is_none_or(|writer| writer.is_direct());
        let read = if directly { Self::read_directly } else { Self::read };
        let mut memory = read(self, segment, lsn, least.min(most))?;
        let said = memory.first_chunk().map_or(0, |word| length(u64::from(u32::from_le_bytes(*word))));
        if said <= PAYLOAD_BYTES_MAX && laid_bytes(said) > memory.len() && laid_bytes(said) <= most {
            memory = self.read(segment, lsn, laid_bytes(said))?;
        }
        match parse(&memory, PAYLOAD_BYTES_MAX) {
            Ok(Some((frame, laid))) if frame.mark == lsn && frame.kind < KIND_RESERVED => {
                if frame.flags & FIRST != 0 {
                    return Ok(First::Of(frame.chain));
                }
                if frame.flags & PIECE != 0 {
                    return Err(missing);
                }
                let (end, kind, payload) = (Lsn(lsn + bytes(laid)), frame.kind, frame.payload.len());
                memory.truncate(HEADER_BYTES + payload);
                Ok(First::Whole(Fetched::within(Lsn(lsn), end, kind, memory, HEADER_BYTES)))
            }
            _ if self.begins(lsn)? => {
                Err(damaged(segment.path(), segment.offset(lsn), "the checksum of the entry there fails"))
            }
            _ => Err(missing),
        }
    }

    /// The same, past the page cache.
    fn read_directly(&self, segment: &Arc<Segment>, lsn: u64, wanted: usize) -> Result<Vec<u8>, JournalError> {
        read_direct(&*self.files.read(segment)?, segment.offset(lsn), wanted)
            .map_err(|error| refused("reading", segment.path(), &error))
    }

    pub(crate) fn read(&self, segment: &Arc<Segment>, lsn: u64, wanted: usize) -> Result<Vec<u8>, JournalError> {
        let mut memory = vec![0; wanted];
        let read = read_exact_at(&*self.files.read(segment)?, segment.offset(lsn), &mut memory)
            .map_err(|error| refused("reading", segment.path(), &error))?;
        memory.truncate(read);
        Ok(memory)
    }

    /// Where the last entry ends that begins before a segment, if its first batch says that none goes on in it.
    pub(crate) fn divided(&self, at: u64) -> Result<Option<Lsn>, JournalError> {
        let held = holder(&self.segments, at).and_then(|index| self.segments.get(index));
        let Some(segment) = held.filter(|segment| segment.first() == at) else { return Ok(None) };
        let head = BatchHead::parse(&self.read(segment, at, length(BATCH_BYTES))?, at);
        // An empty one has another laid over it, or leaves no link.
        let head = head.filter(|head| head.divides && head.entries > 0);
        Ok(head.and_then(|head| at.checked_sub(head.skipped.into())).map(Lsn))
    }

    /// Whether the frames before this place lead to one that begins here, or end in damage before they do.
    fn begins(&self, lsn: u64) -> Result<bool, JournalError> {
        let mut walk = self.walk_from(lsn);
        while let Some(head) = walk.next()? {
            if head.entries > 0 && lsn < head.end() {
                let frames = Frames::new(walk.body()?, head.lsn + BATCH_BYTES);
                return Ok(frames.map(|(placed, _)| placed.frame.mark).any(|mark| mark == lsn));
            }
        }
        Ok(walk.at() <= lsn)
    }

    /// Puts a long entry together, from its first piece on. What is there ends at `to`.
    fn chain(&self, lsn: u64, id: u32, to: u64) -> Result<Chained<Entry>, JournalError> {
        let mut gathers = Gathers::all();
        Ok(match self.gather(lsn, id, to, &mut gathers)? {
            Chained::Whole((kind, end)) => {
                Chained::Whole(Entry { lsn: Lsn(lsn), end: Lsn(end), kind, payload: gathers.memory })
            }
            Chained::Open => Chained::Open,
            Chained::Cut(hole) => Chained::Cut(hole),
        })
    }

    /// Gathers what is wanted of a long entry, from its first piece on: if it is whole, its kind and where it ends.
    pub(crate) fn gather(
        &self,
        lsn: u64,
        id: u32,
        to: u64,
        gathers: &mut Gathers,
    ) -> Result<Chained<(u16, u64)>, JournalError> {
        let mut walk = self.walk_from(lsn);
        let mut begun = false;
        loop {
            if begun && walk.at() >= to {
                return Ok(Chained::Open);
            }
            let Some(head) = walk.next()? else { break };
            // Or the header says that nothing that begins before goes on: behind each opening one does.
            let is_behind = begun && head.divides && head.entries > 0;
            if head.lsn >= to || is_behind {
                return Ok(Chained::Open);
            }
            // The next one that begins in here need not come from as far.
            if let Some(segment) = walk.segment() {
                segment.mark(head.lsn);
            }
            for (placed, end) in Frames::new(walk.body()?, head.lsn + BATCH_BYTES) {
                let frame = placed.frame;
                if frame.mark < lsn || frame.flags & PIECE == 0 || frame.chain != id {
                    continue;
                }
                // Another of this number, of an opening behind: this one was never closed. Which opening a batch is of does not say so: an open
                // that lays many anew may have come so far only.
                if frame.flags & FIRST != 0 && frame.mark != lsn {
                    return Ok(Chained::Open);
                }
                begun |= frame.mark == lsn;
                if !begun {
                    continue;
                }
                if frame.flags & LAST == 0 {
                    gathers.push(frame.payload, placed.stored, frame.mark);
                } else if gathers.are_all(lsn, frame.payload) {
                    return Ok(Chained::Whole((frame.kind, end)));
                } else {
                    return Err(self.damage(lsn));
                }
            }
        }
        match walk.broken() {
            _ if walk.at() >= to => Ok(Chained::Open),
            hole if walk.before_a_hole() => Ok(Chained::Cut(hole)),
            damage => Err(damage),
        }
    }

    /// Whether the log is there from one place to another.
    fn covers(&self, from: u64, to: u64) -> bool {
        let Some(index) = holder(&self.segments, from) else { return false };
        let mut at = from;
        for segment in self.segments.iter().skip(index).take_while(|segment| segment.first() <= to) {
            if segment.first() > at {
                return false;
            }
            at = segment.end();
        }
        at > to
    }

    pub(crate) fn damage(&self, lsn: u64) -> JournalError {
        match holder(&self.segments, lsn).and_then(|index| self.segments.get(index)) {
            Some(segment) => damaged(segment.path(), segment.offset(lsn), "the checksum of the entry there fails"),
            None => JournalError::NotFound { lsn: Lsn(lsn) },
        }
    }
}

/// What begins at a place.
pub(crate) enum First {
    Whole(Fetched),
    /// A long entry, and how its pieces are called.
    Of(u32),
}

/// What became of a long entry.
pub(crate) enum Chained<T> {
    Whole(T),
    /// It was never closed, or is not yet.
    Open,
    /// What follows was released, or is lost: nobody can tell from here.
    Cut(JournalError),
}

impl<T> Chained<T> {
    /// It, for whoever asks for this one by its place.
    pub(crate) fn complete(self, lsn: u64) -> Result<T, JournalError> {
        match self {
            Self::Whole(whole) => Ok(whole),
            Self::Open | Self::Cut(_) => Err(JournalError::NotFound { lsn: Lsn(lsn) }),
        }
    }
}

/// What is wanted of a long entry while its pieces come one by one.
#[derive(Debug)]
pub(crate) struct Gathers {
    /// These bytes of it.
    part: Range<u64>,
    pub(crate) memory: Vec<u8>,
    /// Where its pieces stand, where that is wanted.
    places: bool,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) total: u64,
    checksum: u32,
    many: u32,
}

impl Gathers {
    /// All of it.
    pub(crate) const fn all() -> Self {
        Self::of(0..u64::MAX, false)
    }

    /// These bytes, and where its pieces are.
    pub(crate) const fn part(part: Range<u64>) -> Self {
        Self::of(part, true)
    }

    const fn of(part: Range<u64>, places: bool) -> Self {
        Self { part, memory: Vec::new(), places, pieces: Vec::new(), total: 0, checksum: 0, many: 0 }
    }

    fn push(&mut self, piece: &[u8], checksum: Option<u32>, lsn: u64) {
        if self.places {
            self.pieces.push(Piece { from: self.total, lsn });
        }
        let at = |place: u64| length(place.saturating_sub(self.total)).min(piece.len());
        self.memory.extend_from_slice(piece.get(at(self.part.start)..at(self.part.end)).unwrap_or_default());
        self.total += bytes(piece.len());
        self.checksum = fold(self.checksum, checksum.unwrap_or_default());
        self.many += 1;
    }

    /// Whether the last frame says the same of the entry that begins there.
    fn are_all(&self, first: u64, last: &[u8]) -> bool {
        let Self { total, checksum, many: pieces, .. } = *self;
        ChainEnd::parse(last) == Some(ChainEnd { first, total, checksum, pieces })
    }
}

/// The entries between two places.
#[derive(Debug)]
pub(crate) struct Entries {
    source: Source,
    walk: Walk,
    from: u64,
    to: u64,
    /// A long entry is yielded where it begins, if it is complete before this; else where it ends.
    begun: Option<u64>,
    batch: Option<BatchHead>,
    /// How much of the batch's body has been read.
    at: usize,
    epoch: u32,
    /// Those that have begun, each with its place.
    chains: HashMap<u32, (u64, Gathers)>,
    ended: bool,
}

impl Entries {
    fn step(&mut self) -> Result<Option<Entry>, JournalError> {
        loop {
            let Some(head) = self.batch else {
                if self.walk.at() >= self.to {
                    return Ok(None);
                }
                match self.walk.next()? {
                    Some(head) if head.epoch != self.epoch => {
                        // An unclosed chain of another opening stays unclosed.
                        self.chains.clear();
                        self.epoch = head.epoch;
                        self.batch = Some(head);
                    }
                    Some(head) => self.batch = Some(head),
                    None => return Err(self.walk.broken()),
                }
                self.at = 0;
                continue;
            };
            let place = head.lsn + BATCH_BYTES + bytes(self.at);
            let body = self.walk.body()?.get(self.at..).unwrap_or_default();
            let Some((placed, end)) = Frames::new(body, place).next() else {
                self.batch = None;
                continue;
            };
            self.at += length(end - place);
            let frame = placed.frame;
            let entry = Entry { lsn: Lsn(place), end: Lsn(end), kind: frame.kind, payload: Vec::new() };
            if place >= self.to {
                return Ok(None);
            }
            if frame.flags & PIECE == 0 {
                if place >= self.from {
                    return Ok(Some(Entry { payload: frame.payload.to_vec(), ..entry }));
                }
            } else if let Some(limit) = self.begun {
                if frame.flags & FIRST != 0 && place >= self.from {
                    match self.source.chain(place, frame.chain, limit)? {
                        Chained::Whole(entry) => return Ok(Some(entry)),
                        Chained::Open => {}
                        // It may be complete: whoever takes this for all that begins here would let it go.
                        Chained::Cut(hole) => return Err(hole),
                    }
                }
            } else if frame.flags & LAST == 0 {
                if frame.flags & FIRST != 0 {
                    self.chains.insert(frame.chain, (place, Gathers::all()));
                }
                if let Some((_, chain)) = self.chains.get_mut(&frame.chain) {
                    chain.push(frame.payload, placed.stored, place);
                }
            } else if place >= self.from {
                let (id, last) = (frame.chain, frame.payload.to_vec());
                if let Some(entry) = self.closed(id, &last, entry)? {
                    return Ok(Some(entry));
                }
            }
        }
    }

    /// The entry that a last frame closes; its first piece may stand before the walk's beginning, or be trimmed away.
    fn closed(&mut self, id: u32, last: &[u8], entry: Entry) -> Result<Option<Entry>, JournalError> {
        let said = ChainEnd::parse(last).ok_or_else(|| self.source.damage(entry.lsn.0))?;
        let Some((first, chain)) = self.chains.remove(&id).filter(|(first, _)| *first == said.first) else {
            return if self.source.covers(said.first, entry.lsn.0) {
                self.source.chain(said.first, id, self.to)?.complete(said.first).map(Some)
            } else {
                Ok(None)
            };
        };
        if !chain.are_all(first, last) {
            return Err(self.source.damage(first));
        }
        Ok(Some(Entry { lsn: Lsn(first), payload: chain.memory, ..entry }))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}
