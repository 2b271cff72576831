//! A snapshot as frames: the same on disk and on the way to a standby.
//!
//! ```text
//!   head      version 3 · limits 4 x 8, logics 2 and each 2 · sequence 8 · time 8 · place 8 · hash 8 · finished since 8 · how many rows, notes, sessions,
//!             prepared, finished: 8 each
//!   rows      asset 8, value 8, updates 8, one after the other
//!   notes     book 8, key 8, length 4, bytes …
//!   sessions  name 8, last 8, used 8, answers 4 · each: length 4, bytes
//!   prepared  name, sequence 8, time 8, writes 4 · each: asset 8, there 1, value 8, updates 8
//!   finished  sequence 8, outcome 1, name
//!   end       nothing
//! ```
//! A frame's mark counts the frames from 0, its chain is the low half of the sequence: a frame of another snapshot does not fit.
//! Walk: [`View::write`] lays frames one by one · [`Loading::take`] takes them in that order · [`Loading::finish`] checks counts and
//! hash.

use assent_frame::{Frame, Head, Malformed, Reader, Writer, lay_with};
use assent_membership::Sequence;

use crate::asset::{Asset, AssetId, Row};
use crate::branches::BranchesView;
use crate::config::Limits;
use crate::logic::Logics;
use crate::machine::Machine;
use crate::notes::Note;
use crate::refusal::{signed, signless};
use crate::rules::Rules;
use crate::sessions::SessionsView;
use crate::work::State;

const VERSION: u16 = 3;
/// Read all the same: no two sessions were used by one entry, which programs of that time call damage.
const VERSION_BEFORE_RUNS: u16 = 2;
const KIND_HEAD: u16 = 0x41;
const KIND_ROWS: u16 = 0x42;
const KIND_NOTES: u16 = 0x43;
const KIND_SESSIONS: u16 = 0x44;
const KIND_PREPARED: u16 = 0x45;
const KIND_FINISHED: u16 = 0x46;
const KIND_END: u16 = 0x47;
/// A frame is laid when it has so many bytes; the longest item is shorter than the rest of a frame.
const FRAME_BYTES: usize = 1 << 16;

const _: () = assert!(
    FRAME_BYTES + crate::sessions::SESSION_BYTES_MAX + crate::OUTPUT_BYTES_MAX + 16 * crate::OPS_MAX + 65_536
        < assent_frame::PAYLOAD_BYTES_MAX,
    "a session with the most answers fits a frame"
);

/// All state at one moment, for a snapshot.
#[derive(Debug)]
pub struct View {
    pub(crate) sequence: Sequence,
    pub(crate) time_ms: u64,
    pub(crate) rules: Rules,
    pub(crate) hash: u64,
    pub(crate) state: State,
    pub(crate) sessions: SessionsView,
    pub(crate) branches: BranchesView,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    rows: u64,
    notes: u64,
    sessions: u64,
    prepared: u64,
    finished: u64,
}

/// Lays items into frames.
struct Frames<F> {
    put: F,
    payload: Writer,
    frame: Vec<u8>,
    mark: u64,
    chain: u32,
}

impl<E, F: FnMut(&[u8]) -> Result<(), E>> Frames<F> {
    fn item(&mut self, kind: u16, lay: &dyn Fn(&mut Writer)) -> Result<(), E> {
        lay(&mut self.payload);
        if self.payload.as_slice().len() < FRAME_BYTES { Ok(()) } else { self.flush(kind) }
    }

    /// The frame of these items is whole, if it has any.
    fn flush(&mut self, kind: u16) -> Result<(), E> {
        if self.payload.as_slice().is_empty() { Ok(()) } else { self.lay(kind) }
    }

    fn lay(&mut self, kind: u16) -> Result<(), E> {
        self.frame.clear();
        let head = Head { mark: self.mark, kind, flags: 0, chain: self.chain };
        let payload = &self.payload;
        lay_with(&mut self.frame, head, |out| _ = out.raw(payload.as_slice()));
        self.payload.clear();
        self.mark += 1;
        (self.put)(&self.frame)
    }
}

impl View {
    /// The last command in it.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// [`Machine::hash`] of that moment.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// How many assets are in it.
    #[must_use]
    pub const fn assets(&self) -> usize {
        self.state.assets.len()
    }

    /// Gives it frame by frame. `place` is where the log goes on behind it, as far as that means something to who reads it.
    ///
    /// # Errors
    /// What `put` says; then no more frames come.
    pub fn write<E>(&self, place: u64, put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let chain = low(self.sequence);
        let mut frames = Frames { put, payload: Writer::new(), frame: Vec::new(), mark: 0, chain };
        let counts = self.counts();
        frames.payload.u16(VERSION);
        self.rules.lay(&mut frames.payload);
        for word in [self.sequence.0, self.time_ms, place, self.hash, self.branches.since().0] {
            frames.payload.u64(word);
        }
        for count in [counts.rows, counts.notes, counts.sessions, counts.prepared, counts.finished] {
            frames.payload.u64(count);
        }
        frames.lay(KIND_HEAD)?;
        for Row { id, asset } in self.state.assets.iter() {
            frames.item(KIND_ROWS, &|out| _ = out.u64(id.0).u64(signless(asset.value)).u64(asset.updates))?;
        }
        frames.flush(KIND_ROWS)?;
        for (book, key, note) in self.state.notes.iter() {
            frames.item(KIND_NOTES, &|out| _ = out.u64(book).u64(key).bytes(note))?;
        }
        frames.flush(KIND_NOTES)?;
        self.sessions.each(|lay| frames.item(KIND_SESSIONS, lay))?;
        frames.flush(KIND_SESSIONS)?;
        self.branches.each_prepared(|lay| frames.item(KIND_PREPARED, lay))?;
        frames.flush(KIND_PREPARED)?;
        self.branches.each_finished(|lay| frames.item(KIND_FINISHED, lay))?;
        frames.flush(KIND_FINISHED)?;
        frames.lay(KIND_END)
    }

    fn counts(&self) -> Counts {
        let count = |many: usize| u64::try_from(many).unwrap_or(u64::MAX);
        let (prepared, finished) = self.branches.counts();
        Counts {
            rows: count(self.state.assets.len()),
            notes: count(self.state.notes.len()),
            sessions: count(self.sessions.len()),
            prepared: count(prepared),
            finished: count(finished),
        }
    }
}

/// What the head of a snapshot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageHead {
    /// The limits and the business logic of who wrote it.
    pub rules: Rules,
    /// The last command in it.
    pub sequence: Sequence,
    /// Where the log goes on behind it, in the words of who wrote it.
    pub place: u64,
    /// The state's hash.
    pub hash: u64,
    time_ms: u64,
    since: Sequence,
    counts: Counts,
}

impl ImageHead {
    /// Reads the first frame of a snapshot.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if (frame.kind, frame.mark) != (KIND_HEAD, 0) {
            return Err(Malformed { field: "head" });
        }
        let mut reader = Reader::new(frame.payload);
        if !matches!(reader.u16("version")?, VERSION_BEFORE_RUNS | VERSION) {
            return Err(Malformed { field: "version" });
        }
        let rules = Rules::read(&mut reader)?;
        let sequence = Sequence(reader.u64("sequence")?);
        let (time_ms, place) = (reader.u64("time")?, reader.u64("place")?);
        let (hash, since) = (reader.u64("hash")?, Sequence(reader.u64("since")?));
        let counts = Counts {
            rows: reader.u64("rows")?,
            notes: reader.u64("notes")?,
            sessions: reader.u64("sessions")?,
            prepared: reader.u64("prepared")?,
            finished: reader.u64("finished")?,
        };
        reader.end()?;
        if frame.chain != low(sequence) {
            return Err(Malformed { field: "chain" });
        }
        Ok(Self { rules, sequence, place, hash, time_ms, since, counts })
    }
}

/// A snapshot on its way into memory.
#[derive(Debug)]
pub struct Loading {
    machine: Machine,
    head: Option<ImageHead>,
    taken: Counts,
    mark: u64,
    ended: bool,
}

impl Loading {
    /// Nothing has come yet.
    #[must_use]
    pub fn new(limits: Limits, logics: Logics) -> Self {
        Self::of(Machine::new(limits, logics))
    }

    /// Into this one, which is empty.
    pub(crate) fn of(machine: Machine) -> Self {
        Self { machine, head: None, taken: Counts::default(), mark: 0, ended: false }
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// [`Malformed`]: it is not the next one, or damaged, or of other [`Rules`]. The snapshot is of no use then.
    pub fn take(&mut self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let fits = self.head.as_ref().is_none_or(|head| frame.chain == low(head.sequence));
        if self.ended || frame.mark != self.mark || !fits {
            return Err(Malformed { field: "frame" });
        }
        self.mark += 1;
        if self.head.is_none() {
            let head = ImageHead::read(frame)?;
            if head.rules != self.machine.rules() {
                return Err(Malformed { field: "rules" });
            }
            self.head = Some(head);
            return Ok(());
        }
        let mut reader = Reader::new(frame.payload);
        if frame.kind == KIND_END {
            self.ended = true;
            return reader.end();
        }
        while !reader.rest().is_empty() {
            self.item(frame.kind, &mut reader)?;
        }
        Ok(())
    }

    fn item(&mut self, kind: u16, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let (machine, taken) = (&mut self.machine, &mut self.taken);
        match kind {
            KIND_ROWS => {
                let id = AssetId(reader.u64("asset")?);
                let asset = Asset { value: signed(reader.u64("value")?), updates: reader.u64("updates")? };
                machine.state.assets.put(id, Some(asset));
                taken.rows += 1;
            }
            KIND_NOTES => {
                let (book, key) = (reader.u64("book")?, reader.u64("key")?);
                machine.state.notes.put(book, key, Some(Note::from(reader.bytes("note")?)));
                taken.notes += 1;
            }
            KIND_SESSIONS => {
                machine.sessions.read(reader)?;
                taken.sessions += 1;
            }
            KIND_PREPARED => {
                machine.branches.read_prepared(reader)?;
                taken.prepared += 1;
            }
            KIND_FINISHED => {
                machine.branches.read_finished(reader)?;
                taken.finished += 1;
            }
            _ => return Err(Malformed { field: "kind" }),
        }
        Ok(())
    }

    /// Whether the last frame came.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.ended
    }

    /// Everything came: the state, and what its head says.
    ///
    /// # Errors
    /// [`Malformed`]: frames are missing, or what came is not what was written.
    pub fn finish(self) -> Result<(Machine, ImageHead), Malformed> {
        let Self { mut machine, head, taken, ended, .. } = self;
        let head = head.filter(|_| ended).ok_or(Malformed { field: "end" })?;
        machine.sequence = head.sequence;
        machine.time_ms = head.time_ms;
        machine.branches.remembers_since(head.since);
        if taken != head.counts {
            return Err(Malformed { field: "counts" });
        }
        if machine.hash() != head.hash {
            return Err(Malformed { field: "hash" });
        }
        Ok((machine, head))
    }
}

fn low(sequence: Sequence) -> u32 {
    u32::try_from(sequence.0 & u64::from(u32::MAX)).unwrap_or(0)
}
