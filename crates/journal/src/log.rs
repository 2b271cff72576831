//! The `Log` contract: an ordered, checksummed run of entries, durable in order. No code above it may assume a file.
//!
//! Walk: [`Log::append`] copies the bytes once into the open batch and gives a [`Ticket`] · [`Log::wait`] returns when
//! the policy lets the ticket be acknowledged, [`Log::wait_durable`] when it is durable in every policy · the thread
//! that waits is the thread that syncs.
//! Deliberately absent: callbacks, threads, knowledge of what a payload means.

use std::fmt::Debug;
use std::ops::Range;

use assent_ids::{Epoch, Lsn};

use crate::{JournalError, Part};

/// What an appended entry is known by. Tickets are ordered as their entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Where the entry begins: its address for ever.
    pub lsn: Lsn,
    /// Where it ends: once `durable() >= end`, it is durable.
    pub end: Lsn,
}

/// One entry, whole, however many frames it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it begins.
    pub lsn: Lsn,
    /// Where it ends. A log read from here goes on behind it.
    pub end: Lsn,
    /// What the payload is; the log does not look.
    pub kind: u16,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// One entry as it came from the disk: its payload stands within bytes that were not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Where it begins.
    pub lsn: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// What the payload is; the log does not look.
    pub kind: u16,
    bytes: Vec<u8>,
    from: usize,
}

impl Fetched {
    /// The payload is what stands from there on.
    pub(crate) const fn within(lsn: Lsn, end: Lsn, kind: u16, bytes: Vec<u8>, from: usize) -> Self {
        Self { lsn, end, kind, bytes, from }
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    /// Gives the bytes away, and says where in them the payload begins; it ends where they end.
    #[must_use]
    pub fn into_bytes(self) -> (Vec<u8>, usize) {
        (self.bytes, self.from)
    }
}

impl From<Entry> for Fetched {
    fn from(entry: Entry) -> Self {
        let Entry { lsn, end, kind, payload } = entry;
        Self::within(lsn, end, kind, payload, 0)
    }
}

impl From<Fetched> for Entry {
    fn from(fetched: Fetched) -> Self {
        let Fetched { lsn, end, kind, mut bytes, from } = fetched;
        bytes.drain(..from.min(bytes.len()));
        Self { lsn, end, kind, payload: bytes }
    }
}

/// A stretch of a log that was trimmed and is kept until its owner releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first place, and its name.
    pub first: Lsn,
    /// Where the log goes on elsewhere.
    pub end: Lsn,
    /// Bytes that come free with it.
    pub bytes: u64,
}

/// Whether a log takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Open,
    /// No room for another segment: appends are `Full`, reads go on. Opens again by itself when there is room.
    Full,
    /// A write or sync failed, or it was closed: only reads go on. Reopen; recovery decides.
    Closed,
}

/// What an entry leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// Nothing: it takes what the disk has.
    Nothing,
    /// Room in the log behind it, and what is to stay free on the disk ([`Log::leave_free`]).
    Room {
        /// Bytes for entries that may not be refused, always there. Batches of one small entry each take a block of 4096.
        room_bytes: u64,
        /// So many more where the disk has no room for another segment: for entries that make some.
        spare_bytes: u64,
    },
}

impl Leaves {
    pub(crate) const fn heeds(self) -> bool {
        matches!(self, Self::Room { .. })
    }
}

/// Entries of a log, one after the other.
pub type Entries<'a> = Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send + 'a>;

/// An ordered run of entries. All methods may be called from many threads.
pub trait Log: Send + Sync + Debug {
    /// Appends one entry: the parts one after the other, copied once. Not durable, and not yet in the kernel.
    ///
    /// # Errors
    /// `Invalid` for an entry beyond the limit, `Full` without room, `Closed` after a failure, `Busy` if the buffer is
    /// full and cannot be emptied. Nothing was appended then.
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError>;

    /// As [`Log::append`], of an entry that leaves room to others and is refused first. A log that has no such thing as room appends.
    ///
    /// # Errors
    /// As [`Log::append`]; `Full` too where the entry would fit, and what it leaves would not.
    fn append_leaving(&self, kind: u16, parts: &[&[u8]], leaves: Leaves) -> Result<Ticket, JournalError> {
        let _ = leaves;
        self.append(kind, parts)
    }

    /// Waits until the ticket may be acknowledged: durable if `max_elapsed_sync_time` is 0, else in the kernel.
    ///
    /// # Errors
    /// `Closed` if the write or sync failed: whether the entry is durable is unknown until the log is reopened.
    fn wait(&self, ticket: Ticket) -> Result<(), JournalError>;

    /// Waits until the ticket is durable, whatever the policy. For votes and branch outcomes.
    ///
    /// # Errors
    /// As [`Log::wait`].
    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError>;

    /// Makes all that was appended before the call durable; returns how far it is durable then. One write and one sync
    /// for everything that waits; none if nothing does.
    ///
    /// # Errors
    /// As [`Log::wait`].
    fn sync(&self) -> Result<Lsn, JournalError>;

    /// Everything before this is durable.
    fn durable(&self) -> Lsn;

    /// Where the next entry would begin, at the earliest.
    fn end(&self) -> Lsn;

    /// The first place of the live log, from which a replay begins.
    fn start(&self) -> Lsn;

    /// The first place that can still be read: before [`Log::start`] where trimmed segments are archived.
    fn oldest(&self) -> Lsn {
        self.start()
    }

    /// Reads entries in order from a place: the oldest, the start, an entry's `lsn` or `end`. Sees what was appended before the
    /// call, durable or not. Ends with `None` at the end. A chain is yielded where its last frame stands: readers see
    /// entries in the order in which they were complete.
    ///
    /// # Errors
    /// `NotFound` if the place was trimmed away and is not archived, also while it is read. `Corrupt`, as an item, where the
    /// archive has a hole: it names the places that are missing; to go on behind them, read from the second.
    fn read(&self, from: Lsn) -> Result<Entries<'_>, JournalError>;

    /// The entry that begins at this place (its ticket's `lsn`).
    ///
    /// # Errors
    /// `NotFound` if it was trimmed or no entry begins there; `Corrupt`, naming file and offset, if its checksum fails.
    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError>;

    /// As [`Log::read_at`], without a copy, and with one read if the payload is no longer than said.
    ///
    /// # Errors
    /// As [`Log::read_at`].
    fn read_at_sized(&self, lsn: Lsn, payload_bytes: usize) -> Result<Fetched, JournalError> {
        _ = payload_bytes;
        self.read_at(lsn).map(Fetched::from)
    }

    /// Bytes of the payload of the entry that begins at this place, no more than it has: of a long entry no more is read than holds them, once its
    /// pieces are known.
    ///
    /// # Errors
    /// As [`Log::read_at`].
    fn read_part(&self, lsn: Lsn, part: Range<usize>) -> Result<Part, JournalError> {
        let (all, from) = self.read_at_sized(lsn, part.end)?.into_bytes();
        let at = |place: usize| from.saturating_add(place).min(all.len());
        let range = at(part.start)..at(part.end.max(part.start));
        Ok((all, range))
    }

    /// The same past the system's cache, for who keeps in memory himself what he reads: where the part begins in the first block of an entry of one
    /// frame that is durable. Others are read as in [`Log::read_part`]. Default: as that.
    ///
    /// # Errors
    /// As [`Log::read_at`].
    fn read_part_direct(&self, lsn: Lsn, part: Range<usize>) -> Result<Part, JournalError> {
        self.read_part(lsn, part)
    }

    /// The entries that begin between two places, in the order of their LSNs: a long one stands where it begins, not where it was
    /// complete. What is not complete by the place `by` is left out, and what is behind that is not looked at; `Lsn(u64::MAX)` is the log's end.
    /// Here for logs in which both orders are one.
    ///
    /// # Errors
    /// As [`Log::read`]; also where a long one leads to what is not there any more, for it may have been complete.
    fn begun(&self, from: Lsn, to: Lsn, by: Lsn) -> Result<Entries<'_>, JournalError> {
        _ = by;
        let entries = self.read(from)?;
        Ok(Box::new(entries.take_while(move |entry| entry.as_ref().map_or(true, |entry| entry.lsn < to))))
    }

    /// Where the last entry ends that begins before this place, if a segment begins here and says that none of them goes on behind it.
    /// `None` if it does not say so. One small read, for who would else read all that is before.
    ///
    /// # Errors
    /// As the disk says.
    fn divided(&self, at: Lsn) -> Result<Option<Lsn>, JournalError> {
        _ = at;
        Ok(None)
    }

    /// Where what is trimmed is kept until its owner releases it: about how many bytes of the log come free with one stretch of
    /// it. `None`: what is trimmed is gone, or a history of which the log disposes itself.
    fn stretch_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes of disk that it holds ready for entries to come, and for what begins each of its files.
    fn idle_bytes(&self) -> u64 {
        0
    }

    /// From now on makes a new segment only where the disk has so many bytes of room left beside it, or an eighth of the disk where
    /// that is less: else [`Log::append_leaving`] is `Full` where it needs one. For an owner who needs that room to give any back.
    /// [`Log::append`] takes whatever the disk has. Released segments that wait to be used again need none. Nothing where nobody knows
    /// how much room there is.
    fn leave_free(&self, bytes: u64) {
        let _ = bytes;
    }

    /// How many released segments wait to be used again, and how many may, where that spares zeroes.
    fn waiting(&self) -> Option<(usize, usize)> {
        None
    }

    /// What was trimmed and is kept until it is released, in order. There may be holes: what was released. Nothing for a log
    /// whose trimmed places are its own.
    fn sealed(&self) -> Vec<Span> {
        Vec::new()
    }

    /// Gives one of [`Log::sealed`] back, by its first place, durably: from then on reads there are `NotFound`. A reader under
    /// way in it comes to the end of that one. A long entry is gone with the first of the stretches that it crosses.
    ///
    /// # Errors
    /// `NotFound` if none of that name is kept. As the disk says: then it may be gone or not, and nothing more is trimmed or
    /// released before the next open, which knows.
    fn release(&self, first: Lsn) -> Result<(), JournalError> {
        Err(JournalError::NotFound { lsn: first })
    }

    /// Gives whole segments before this place back: to the archive, if there is one, else to the disk. Entries before it
    /// may or may not be readable afterwards.
    ///
    /// # Errors
    /// As the disk says; the log stays open.
    fn trim(&self, to: Lsn) -> Result<(), JournalError>;

    /// The epoch of this opening.
    fn epoch(&self) -> Epoch;

    /// Whether it takes appends.
    fn state(&self) -> State;

    /// Whether its policy lets [`Log::wait`] return before the entry is durable (RPO > 0).
    fn is_lazy(&self) -> bool {
        false
    }

    /// Whether what was appended can be read later, in the order in which it was: else only what it led to can.
    fn keeps_history(&self) -> bool {
        true
    }

    /// Whether the last opening may have lost what it had acknowledged: [`crate::Recovery::may_have_lost`].
    fn may_have_lost(&self) -> bool {
        false
    }
}
