//! Entries out: in the order in which they were complete, or one by its address.
//!
//! Walk: [`Source`] is the segments of one moment · [`Entries`] walks batches and puts chains together · [`Source::fetch`]
//! reads one entry with one read where its length is small or known, and follows a chain piece by piece.

use std::collections::HashMap;
use std::sync::Arc;

use assent_frame::{HEADER_BYTES, PAYLOAD_BYTES_MAX, laid_bytes, parse};
use assent_ids::Lsn;
use assent_world::read_exact_at;

use crate::epochs::Epochs;
use crate::error::{damaged, refused};
use crate::layout::{BATCH_BYTES, BatchHead, ChainEnd, FIRST, Frames, KIND_RESERVED, LAST, PIECE, bytes, fold, length};
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
        let missing = JournalError::NotFound { lsn: Lsn(lsn) };
        let held = holder(&self.segments, lsn).and_then(|index| self.segments.get(index));
        let held = held.filter(|segment| lsn < to.min(segment.end()) && lsn.is_multiple_of(8));
        let Some(segment) = held else { return Err(missing) };
        let most = length(segment.end().saturating_sub(lsn));
        // What is longer than a frame is a chain, of which this is the first piece.
        let least = if payload_bytes <= PAYLOAD_BYTES_MAX { laid_bytes(payload_bytes) } else { FIRST_READ_BYTES };
        let mut memory = self.read(segment, lsn, least.min(most))?;
        let said = memory.first_chunk().map_or(0, |word| length(u64::from(u32::from_le_bytes(*word))));
        if said <= PAYLOAD_BYTES_MAX && laid_bytes(said) > memory.len() && laid_bytes(said) <= most {
            memory = self.read(segment, lsn, laid_bytes(said))?;
        }
        match parse(&memory, PAYLOAD_BYTES_MAX) {
            Ok(Some((frame, laid))) if frame.mark == lsn && frame.kind < KIND_RESERVED => {
                if frame.flags & FIRST != 0 {
                    return match self.chain(lsn, frame.chain, to)? {
                        Chained::Whole(entry) => Ok(Fetched::from(entry)),
                        Chained::Open | Chained::Cut(_) => Err(missing),
                    };
                }
                if frame.flags & PIECE != 0 {
                    return Err(missing);
                }
                let (end, kind, payload) = (Lsn(lsn + bytes(laid)), frame.kind, frame.payload.len());
                memory.truncate(HEADER_BYTES + payload);
                Ok(Fetched::within(Lsn(lsn), end, kind, memory, HEADER_BYTES))
            }
            _ if self.begins(lsn)? => {
                Err(damaged(segment.path(), segment.offset(lsn), "the checksum of the entry there fails"))
            }
            _ => Err(missing),
        }
    }

    fn read(&self, segment: &Arc<Segment>, lsn: u64, wanted: usize) -> Result<Vec<u8>, JournalError> {
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
    fn chain(&self, lsn: u64, id: u32, to: u64) -> Result<Chained, JournalError> {
        let mut walk = self.walk_from(lsn);
        let mut chain: Option<(u32, Chain)> = None;
        loop {
            if chain.is_some() && walk.at() >= to {
                return Ok(Chained::Open);
            }
            let Some(head) = walk.next()? else { break };
            if head.lsn >= to || chain.as_ref().is_some_and(|(epoch, _)| *epoch != head.epoch) {
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
                if frame.mark == lsn {
                    chain = Some((head.epoch, Chain::new(lsn)));
                }
                let Some((_, chain)) = &mut chain else { continue };
                if frame.flags & LAST == 0 {
                    chain.push(frame.payload, placed.stored);
                } else {
                    let closed = std::mem::replace(chain, Chain::new(lsn)).close(frame.payload);
                    let payload = closed.ok_or_else(|| self.damage(lsn))?;
                    return Ok(Chained::Whole(Entry { lsn: Lsn(lsn), end: Lsn(end), kind: frame.kind, payload }));
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

    fn damage(&self, lsn: u64) -> JournalError {
        match holder(&self.segments, lsn).and_then(|index| self.segments.get(index)) {
            Some(segment) => damaged(segment.path(), segment.offset(lsn), "the checksum of the entry there fails"),
            None => JournalError::NotFound { lsn: Lsn(lsn) },
        }
    }
}

/// What became of a long entry.
enum Chained {
    Whole(Entry),
    /// It was never closed, or is not yet.
    Open,
    /// What follows was released, or is lost: nobody can tell from here.
    Cut(JournalError),
}

/// A long entry that is being put together.
#[derive(Debug)]
struct Chain {
    first: u64,
    payload: Vec<u8>,
    checksum: u32,
    pieces: u32,
}

impl Chain {
    const fn new(first: u64) -> Self {
        Self { first, payload: Vec::new(), checksum: 0, pieces: 0 }
    }

    fn push(&mut self, piece: &[u8], checksum: Option<u32>) {
        self.payload.extend_from_slice(piece);
        self.checksum = fold(self.checksum, checksum.unwrap_or_default());
        self.pieces += 1;
    }

    /// The whole payload, if the last frame says the same of it.
    fn close(self, last: &[u8]) -> Option<Vec<u8>> {
        let seen = ChainEnd {
            first: self.first,
            total: bytes(self.payload.len()),
            checksum: self.checksum,
            pieces: self.pieces,
        };
        (ChainEnd::parse(last)? == seen).then_some(self.payload)
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
    chains: HashMap<u32, Chain>,
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
                    self.chains.insert(frame.chain, Chain::new(place));
                }
                if let Some(chain) = self.chains.get_mut(&frame.chain) {
                    chain.push(frame.payload, placed.stored);
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
        let Some(chain) = self.chains.remove(&id).filter(|chain| chain.first == said.first) else {
            return if self.source.covers(said.first, entry.lsn.0) {
                match self.source.chain(said.first, id, self.to)? {
                    Chained::Whole(entry) => Ok(Some(entry)),
                    Chained::Open | Chained::Cut(_) => Err(JournalError::NotFound { lsn: Lsn(said.first) }),
                }
            } else {
                Ok(None)
            };
        };
        let payload = chain.close(last).ok_or_else(|| self.source.damage(said.first))?;
        Ok(Some(Entry { lsn: Lsn(said.first), payload, ..entry }))
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
