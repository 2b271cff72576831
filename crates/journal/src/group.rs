//! What all threads of a journal share under one short lock: the open batch, the writes under way, the room ahead.
//!
//! Walk: [`Core::place`] finds room for a frame or says what is in the way · [`Core::close`] seals the open batch into a
//! [`Flight`] · [`Core::land`] takes a finished write back and says what is durable now, in order, and whom to wake.
//! Deliberately absent: I/O, clocks, waiting. `commit` does that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use assent_world::{File, Gate, Moment};

use crate::buffer::Batch;
use crate::company::Company;
use crate::layout::{BATCH_BYTES, BLOCK_BYTES, block_from, length};
use crate::segment::Segment;

/// A page that was written so short a time ago is still in the page cache: to be written out, to age and to be taken back takes longer in practice.
const CACHED_FOR: Duration = Duration::from_millis(50);

/// Where room counts, a batch beside a write under way leaves no more free before it than such a part of its bytes.
const SKIPPED_MAX: u64 = 16;

/// What the journal's threads share.
#[derive(Debug)]
pub(crate) struct Core {
    /// Where the next batch goes.
    pub(crate) segment: Arc<Segment>,
    /// Segments made ahead, in order.
    pub(crate) spares: VecDeque<Arc<Segment>>,
    /// The end of the last closed batch.
    pub(crate) tail: u64,
    /// The bytes of the tail's block before it, for writes of whole blocks.
    tail_block: Vec<u8>,
    /// When this opening began to write that block the last time.
    tail_written: Option<Moment>,
    pub(crate) open: Batch,
    /// Counts the batches closed so far: names the open one.
    pub(crate) turn: u64,
    /// Where those wait whose entry is in the open batch: made by the first of them, for most batches have nobody who sleeps.
    gate: Option<Arc<Gate>>,
    /// How many do.
    pub(crate) waiters: u32,
    flights: VecDeque<Landing>,
    /// Writes under way.
    pub(crate) writing: u32,
    /// An idle batch is being written where the next one will go.
    pub(crate) idling: bool,
    /// The last synced place that a header on disk claims.
    pub(crate) claimed: u64,
    memory: Vec<Batch>,
    /// Why it takes nothing more.
    pub(crate) closed: Option<String>,
    /// The last attempt to make a segment found no room.
    pub(crate) full: bool,
    /// How many entries the last closed batch had.
    last_entries: u32,
    /// The disk has room for a segment behind this place, when that was asked.
    pub(crate) secure_to: u64,
    /// The last spare segment was taken: the keeper should hear of it.
    pub(crate) hungry: bool,
    /// Names the next chain.
    pub(crate) chain: u32,
    /// Chains that begin in closed batches and do not end in one. What failed in between is never ended, and counts for ever.
    chains: i32,
    memory_bytes: usize,
    /// Writes go past the page cache.
    direct: bool,
    /// Its segments are kept for what is in them: room counts.
    packs: bool,
    /// Bytes of the last closed batch.
    last_bytes: u64,
    /// For whom the open batch waits.
    pub(crate) company: Company,
}

#[derive(Debug)]
struct Landing {
    turn: u64,
    end: u64,
    entries: u32,
    gate: Option<Arc<Gate>>,
    landed: bool,
}

/// A closed batch on its way to the disk.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) turn: u64,
    pub(crate) batch: Batch,
    pub(crate) segment: Arc<Segment>,
    /// Its file; the segment may have been left by the time of the write.
    pub(crate) file: Option<Arc<dyn File>>,
}

/// Whether a frame can be laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// That many bytes of frames can.
    Bytes(u64),
    /// The open batch has to be written first.
    Batch,
    /// A segment has to be made first, from this place on.
    Segment(u64),
}

/// What a finished write changed.
#[derive(Debug, Default)]
pub(crate) struct Landed {
    /// Everything before this has landed, if that is news.
    pub(crate) end: Option<u64>,
    /// Whose batches have landed or failed: wake all.
    pub(crate) gates: Vec<Arc<Gate>>,
    /// Whose batch waits to be written and may be now: wake one.
    pub(crate) next: Option<Arc<Gate>>,
}

impl Landed {
    /// Wakes them.
    pub(crate) fn wake(&self) {
        // The next write first: it takes longest.
        if let Some(next) = &self.next {
            next.bump();
            next.wake(1);
        }
        for gate in &self.gates {
            gate.bump();
            gate.wake_all();
        }
    }
}

/// Where a waiting thread waits.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) gate: Arc<Gate>,
    pub(crate) seen: u32,
}

impl Core {
    /// Goes on at a place; `tail_block` are the bytes of its block before it.
    pub(crate) fn new(
        (segment, spares): (Arc<Segment>, VecDeque<Arc<Segment>>),
        tail: u64,
        tail_block: Vec<u8>,
        memory_bytes: usize,
        (direct, packs): (bool, bool),
    ) -> Self {
        Self {
            segment,
            spares,
            tail,
            tail_block,
            tail_written: None,
            open: Batch::new(memory_bytes),
            turn: 0,
            gate: None,
            waiters: 0,
            flights: VecDeque::new(),
            writing: 0,
            idling: false,
            claimed: tail,
            memory: Vec::new(),
            closed: None,
            full: false,
            last_entries: 0,
            secure_to: 0,
            hungry: false,
            chain: 0,
            chains: 0,
            memory_bytes,
            direct,
            packs,
            last_bytes: 0,
            company: Company::default(),
        }
    }

    /// Where the next entry would begin, at the earliest.
    pub(crate) const fn end(&self) -> u64 {
        if self.open.is_empty() { self.tail } else { self.open.end() }
    }

    /// Finds room for frames of at least that many bytes, and places the batch if it is the first.
    pub(crate) fn place(&mut self, least: u64) -> Room {
        if !self.open.is_empty() {
            let room = self.open.room().min(self.segment.end().saturating_sub(self.open.end()));
            return if room >= least { Room::Bytes(room) } else { Room::Batch };
        }
        // Batches in flight together never share a device block; one that is written alone is packed behind the last one, and behind the
        // page cache each is: a block of its own for every second batch of two writers in turn would be written whole.
        let next = block_from(self.tail);
        let at = if self.writing > 0 && self.direct && !self.packs(next - self.tail, least) { next } else { self.tail };
        let here = self.segment.end().saturating_sub(at + BATCH_BYTES);
        let (at, room) = if at + BATCH_BYTES <= self.segment.end() && here >= least {
            (at, here)
        } else {
            let Some(next) = self.spares.pop_front() else {
                return Room::Segment(self.segment.end());
            };
            let (at, room) = (next.first(), next.end().saturating_sub(next.first() + BATCH_BYTES));
            std::mem::replace(&mut self.segment, next).retire();
            self.hungry = self.spares.is_empty();
            // It takes any frame that is laid (`frame_bytes_max`): none is left empty, for what is laid behind an empty one is not found.
            (at, room)
        };
        self.open.begin(at, at - self.tail);
        self.open.divides(self.chains == 0);
        Room::Bytes(room.min(self.open.room_at(at)))
    }

    /// Whether a batch that begins with a frame of so many bytes rather waits for the write under way than leave so many bytes free before it:
    /// where room counts and the frame is a long one. Of values of 8 KiB, each in a batch of its own, free bytes would be every third.
    fn packs(&self, skipped: u64, least: u64) -> bool {
        self.packs && least > BLOCK_BYTES && skipped > self.last_bytes.max(least) / SKIPPED_MAX
    }

    /// Where the last segment ends that is made.
    pub(crate) fn made_to(&self) -> u64 {
        self.spares.back().map_or(self.segment.end(), |spare| spare.end())
    }

    /// Bytes that chains could fill without another segment, roughly.
    pub(crate) fn room_ahead(&self) -> u64 {
        let here = self.segment.end().saturating_sub(self.end());
        self.spares.iter().map(|spare| spare.end() - spare.first()).sum::<u64>() + here
    }

    /// Seals the open batch, which is written from now on, and opens the next.
    pub(crate) fn close(&mut self, epoch: u32, salt: u64, synced: u64, now: Moment) -> Flight {
        let memory = self.memory.pop().unwrap_or_else(|| Batch::new(self.memory_bytes));
        let mut batch = std::mem::replace(&mut self.open, memory);
        if self.direct || !is_cached(self.tail_written, now) {
            batch.lead(if batch.lsn() == self.tail { &self.tail_block } else { &[] });
        }
        batch.seal(epoch, salt, synced, false);
        self.claimed = self.claimed.max(synced);
        self.last_entries = batch.entries();
        self.last_bytes = batch.end() - batch.lsn();
        self.company.closed(self.last_entries);
        self.chains += batch.chains();
        self.tail = batch.end();
        batch.move_tail(&mut self.tail_block);
        self.tail_written = Some(now);
        let gate = self.gate.take();
        self.waiters = 0;
        self.writing += 1;
        let flight = Flight { turn: self.turn, batch, segment: Arc::clone(&self.segment), file: self.segment.writer() };
        let (turn, end, entries) = (self.turn, self.tail, self.last_entries);
        self.flights.push_back(Landing { turn, end, entries, gate, landed: false });
        self.turn += 1;
        flight
    }

    /// An idle or closing batch where the next one will go; none if there is no room for it. The log does not advance.
    pub(crate) fn ghost(&self, epoch: u32, salt: u64, synced: u64, close: bool) -> Option<(Batch, Arc<Segment>)> {
        let fits = self.tail + BATCH_BYTES <= self.segment.end();
        let (segment, at) = if fits {
            (&self.segment, self.tail)
        } else {
            let next = self.spares.front()?;
            (next, next.first())
        };
        let mut batch = Batch::new(2 * length(BLOCK_BYTES));
        batch.begin(at, at - self.tail);
        batch.lead(if fits { &self.tail_block } else { &[] });
        batch.seal(epoch, salt, synced, close);
        Some((batch, Arc::clone(segment)))
    }

    /// Takes a write back. What failed closes the journal: nothing lands from then on, whatever later writes say.
    pub(crate) fn land(&mut self, turn: u64, batch: Batch, result: Result<(), String>, in_flight: u32) -> Landed {
        self.writing -= 1;
        let mut landed = Landed::default();
        if let Err(reason) = result {
            self.closed.get_or_insert(reason);
        }
        if self.closed.is_some() {
            landed.gates = self.everyone();
            return landed;
        }
        if let Some(landing) = self.flights.iter_mut().find(|landing| landing.turn == turn) {
            landing.landed = true;
        }
        // In order: a later write that is done first waits for the earlier.
        while let Some(landing) = self.flights.pop_front_if(|landing| landing.landed) {
            landed.end = Some(landing.end);
            self.company.landed(landing.entries, self.open.entries());
            landed.gates.extend(landing.gate);
        }
        let mut batch = batch;
        batch.reset();
        // The next one is mostly laid behind it, in the same block: a commit of a document touches 384 lines of memory then, not 451.
        if self.open.is_empty() {
            std::mem::swap(&mut self.open, &mut batch);
        }
        self.memory.push(batch);
        landed.next = self.next_leader(in_flight);
        landed
    }

    /// Who should write the open batch, if somebody waits for it and nobody is under way to it.
    pub(crate) fn next_leader(&self, in_flight: u32) -> Option<Arc<Gate>> {
        if self.waiters > 0 && self.should_lead(in_flight) { self.gate.clone() } else { None }
    }

    /// Whether the open batch may be written now: not beside one whose last block it begins in.
    pub(crate) const fn may_lead(&self, in_flight: u32) -> bool {
        let shares = self.direct && !self.open.is_empty() && !self.open.lsn().is_multiple_of(BLOCK_BYTES);
        self.writing < in_flight && !self.idling && !(shares && self.writing > 0)
    }

    /// Whether it is worth it: beside a write under way only with half as many entries as the last batch took. Else a
    /// crowd's first comer would write alone, and the crowd wait for the next but one. No timer: it waits for a write. And not
    /// while somebody lets others run before he writes it, until the last of them has come.
    pub(crate) const fn should_lead(&self, in_flight: u32) -> bool {
        let entries = self.open.entries();
        self.may_lead(in_flight)
            && !self.company.awaits(entries)
            && (self.writing == 0 || entries >= self.last_entries / 2)
    }

    /// Everyone who waits for anything.
    pub(crate) fn everyone(&self) -> Vec<Arc<Gate>> {
        self.flights.iter().map(|landing| &landing.gate).chain([&self.gate]).flatten().cloned().collect()
    }

    /// A seat for whoever waits until this place has landed.
    pub(crate) fn seat(&mut self, end: u64) -> Seat {
        let gate = match self.flights.iter_mut().find(|landing| landing.end >= end) {
            Some(landing) => &mut landing.gate,
            None => {
                self.waiters += 1;
                &mut self.gate
            }
        };
        let gate = Arc::clone(gate.get_or_insert_default());
        Seat { seen: gate.value(), gate }
    }
}

/// Whether a block that was last written then is in the page cache, so that a part of it can be written and none be read. To write all of it
/// each time would cost writers in turn, each with a few bytes: they would fetch all of it from each other's core.
fn is_cached(written: Option<Moment>, now: Moment) -> bool {
    written.is_some_and(|written| now.since(written) <= CACHED_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_in_the_page_cache_for_fifty_milliseconds_and_not_before_it_was_written() {
        let written = Some(Moment(7_000));
        assert_eq!([7_000, 57_000, 57_001].map(|now| is_cached(written, Moment(now))), [true, true, false]);
        assert!(!is_cached(None, Moment(7_000)), "an opening knows nothing of the one before");
    }
}
