//! [`Log`] over the files of this machine: each method, handed to the part that does it.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use assent_ids::{Epoch, Lsn};

use crate::journal::Journal;
use crate::layout::{BLOCK_BYTES, bytes};
use crate::reader::Source;
use crate::segment;
use crate::{Entries, Entry, Fetched, JournalError, Leaves, Log, Part, Span, State, Ticket};

impl Journal {
    /// Everything before this is out of this process's hands: in the kernel, and durable where [`Log::is_lazy`] is false.
    #[must_use]
    pub fn landed(&self) -> Lsn {
        Lsn(self.landed.load(Ordering::Acquire))
    }

    /// As [`Log::read`], but sees only what has landed, and so waits for no write.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn read_landed(&self, from: Lsn) -> Result<Entries<'_>, JournalError> {
        self.read_to(from, self.landed().0)
    }

    fn read_to(&self, from: Lsn, to: u64) -> Result<Entries<'_>, JournalError> {
        let source = self.source();
        if from.0 < source.oldest() {
            return Err(JournalError::NotFound { lsn: from });
        }
        Ok(Box::new(source.entries(from.0, to)))
    }

    /// How far it can be read: everything appended before the call, as far as the disk still takes it.
    fn readable(&self) -> u64 {
        let end = self.core().end();
        // A poisoned journal shows what it has written.
        if self.reach(end).is_ok() { end } else { self.landed.load(Ordering::Acquire) }
    }

    /// What this reads of the entry there, as far as the log can be read.
    fn fetch<T>(&self, lsn: Lsn, read: impl Fn(&Source, u64) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let landed = self.landed.load(Ordering::Acquire);
        match read(&self.source(), landed) {
            // Perhaps it, or the last pieces of it, were only in memory.
            Err(JournalError::NotFound { .. }) if lsn >= self.oldest() => {
                let to = self.readable();
                if to == landed {
                    return Err(JournalError::NotFound { lsn });
                }
                read(&self.source(), to)
            }
            // Trimmed while it was read.
            Err(_) if lsn < self.oldest() => Err(JournalError::NotFound { lsn }),
            other => other,
        }
    }
}

impl Log for Journal {
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        self.lay(kind, parts, Leaves::Nothing)
    }

    fn append_leaving(&self, kind: u16, parts: &[&[u8]], leaves: Leaves) -> Result<Ticket, JournalError> {
        self.lay(kind, parts, leaves)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.reach(ticket.end.0)
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.reach(ticket.end.0)?;
        if self.config.lazy() { self.sync_backlog(ticket.end.0) } else { Ok(()) }
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        let end = Lsn(self.core().end());
        self.wait_durable(Ticket { lsn: end, end })?;
        Ok(self.durable())
    }

    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn end(&self) -> Lsn {
        Lsn(self.core().end())
    }

    fn start(&self) -> Lsn {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        Lsn(segments.get(segment::archived(&segments)).map_or(0, |segment| segment.first()))
    }

    fn oldest(&self) -> Lsn {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        Lsn(segments.first().map_or(0, |segment| segment.first()))
    }

    fn read(&self, from: Lsn) -> Result<Entries<'_>, JournalError> {
        self.read_to(from, self.readable())
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        self.fetch(lsn, |source, to| source.entry(lsn.0, to))
    }

    fn read_at_sized(&self, lsn: Lsn, payload_bytes: usize) -> Result<Fetched, JournalError> {
        self.fetch(lsn, |source, to| source.fetch(lsn.0, to, payload_bytes))
    }

    fn read_part(&self, lsn: Lsn, part: Range<usize>) -> Result<Part, JournalError> {
        self.fetch(lsn, |source, to| source.part(lsn.0, to, part.clone(), false))
    }

    fn read_part_direct(&self, lsn: Lsn, part: Range<usize>) -> Result<Part, JournalError> {
        // What only the kernel has would have to be written first, and appends would wait behind that.
        let directly = lsn.0 < self.durable.load(Ordering::Acquire);
        self.fetch(lsn, |source, to| source.part(lsn.0, to, part.clone(), directly))
    }

    fn begun(&self, from: Lsn, to: Lsn, by: Lsn) -> Result<Entries<'_>, JournalError> {
        let limit = by.0.min(self.readable());
        let source = self.source();
        if from.0 < source.oldest() {
            return Err(JournalError::NotFound { lsn: from });
        }
        Ok(Box::new(source.begun(from.0, to.0, limit)))
    }

    fn divided(&self, at: Lsn) -> Result<Option<Lsn>, JournalError> {
        self.source().divided(at.0)
    }

    fn stretch_bytes(&self) -> Option<u64> {
        self.config.kept_until_released.then_some(self.config.log_size - BLOCK_BYTES)
    }

    fn idle_bytes(&self) -> u64 {
        let ahead = self.core().room_ahead();
        let listed = self.segments.read().unwrap_or_else(PoisonError::into_inner).len();
        // Without the lock that is held while a segment is made.
        let waiting = bytes(self.counters.waiting.load(Ordering::Relaxed)) * self.config.log_size;
        ahead + waiting + bytes(listed) * BLOCK_BYTES
    }

    fn leave_free(&self, bytes: u64) {
        self.leaves_bytes.store(bytes, Ordering::Relaxed);
    }

    fn waiting(&self) -> Option<(usize, usize)> {
        let spares_zeroes = self.config.kept_until_released && !self.config.lazy();
        spares_zeroes.then(|| (self.counters.waiting.load(Ordering::Relaxed), self.waiting_max()))
    }

    fn sealed(&self) -> Vec<Span> {
        if self.config.kept_until_released { self.source().spans() } else { Vec::new() }
    }

    fn release(&self, first: Lsn) -> Result<(), JournalError> {
        self.let_go(first.0)
    }

    fn trim(&self, to: Lsn) -> Result<(), JournalError> {
        self.give_back(to.0)
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    fn state(&self) -> State {
        let core = self.core();
        match (&core.closed, core.full) {
            (Some(_), _) => State::Closed,
            (None, true) => State::Full,
            (None, false) => State::Open,
        }
    }

    fn is_lazy(&self) -> bool {
        self.config.lazy()
    }

    fn may_have_lost(&self) -> bool {
        self.may_have_lost
    }
}
