//! A member's copy of the group's log, in its journal.
//!
//! Walk: [`OwnLog::open`] verifies what the journal holds behind the snapshot, entry by entry · [`OwnLog::append`], which waits for no sync ·
//! [`OwnLog::write`] into the kernel, [`OwnLog::sync`] to the disk · [`OwnLog::fetch`] reads on behind an entry ·
//! [`OwnLog::cut`] takes a diverged tail away · [`OwnLog::begin`] goes on behind a snapshot that came from elsewhere ·
//! [`OwnLog::let_go`] reads no more of what a snapshot holds, and [`OwnLog::trim`] gives its room back.
//! Numbers lead to places by a sparse index in memory. The journal may hold entries from before a snapshot that came from
//! elsewhere, and then a gap: what stands before it is not read any more.
//! Deliberately absent: threads. One owner calls, and knows in which order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use assent_ids::Lsn;
use assent_journal::{Config, Entry as Laid, Journal, Log, Ticket};
use assent_membership::{Ack, History, Sequence};
use assent_world::Dice;

use crate::entry::{Chain, Entry, Mark};
use crate::error::{ReplicaError, damaged};
use crate::message::Base;

/// One place in so many entries is remembered.
const MARK_EVERY: u64 = 64;
/// And one in so many bytes.
const MARK_BYTES: u64 = 64 << 10;

/// A member's copy of the log.
#[derive(Debug)]
pub struct OwnLog {
    journal: Arc<Journal>,
    dice: Arc<dyn Dice>,
    end: Mark,
    /// What stands right before the first entry that can be read, if that is known.
    floor: Option<Mark>,
    /// Where some entries begin; the first that can be read is one of them.
    places: BTreeMap<Sequence, Lsn>,
    /// In the journal, one after the other, and not known to be durable.
    open: VecDeque<(Sequence, Ticket)>,
    /// Behind those: the journal takes them when its disk has come farther.
    held_back: VecDeque<Entry>,
    written: Sequence,
    durable: Sequence,
}

/// What was read of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The chain up to the entry behind which it was read; none if the log does not reach back so far.
    pub chain: Option<Chain>,
    /// What follows.
    pub entries: Vec<Entry>,
}

/// What stands behind an entry.
#[derive(Debug)]
pub(crate) struct Reading {
    journal: Arc<Journal>,
    from: Lsn,
    after: Sequence,
    /// What follows that entry can be read without waiting for a disk.
    has_landed: bool,
}

impl Reading {
    /// Gives each entry up to this one to `take`, in order, until that says that it is enough.
    ///
    /// # Errors
    /// As the journal says, and what `take` says.
    pub(crate) fn each<E: From<ReplicaError>>(
        &self,
        to: Sequence,
        mut take: impl FnMut(&Entry) -> Result<bool, E>,
    ) -> Result<(), E> {
        let laid = if self.has_landed { self.journal.read_landed(self.from) } else { self.journal.read(self.from) };
        for laid in laid.map_err(ReplicaError::from)? {
            let entry = parse(&self.journal, laid.map_err(ReplicaError::from)?)?;
            if entry.sequence > to {
                break;
            }
            if entry.sequence > self.after && !take(&entry)? {
                break;
            }
        }
        Ok(())
    }
}

impl OwnLog {
    /// How its journal is opened in a group of which an acknowledgement means this: where that is the disk, each write is durable, and else
    /// what was written is so many milliseconds later.
    #[must_use]
    pub fn config(ack: Ack, sync_ms: u64, base: Config) -> Config {
        let max_elapsed_sync_time = if ack == Ack::Durable { 0 } else { sync_ms.max(1) };
        Config { max_elapsed_sync_time, ..base }
    }

    /// Reads the journal of a member whose snapshot stands there. Returns the log, and which epochs wrote it.
    ///
    /// # Errors
    /// `Damaged` if the entries behind the snapshot are not one history that continues it; as the journal says.
    pub fn open(journal: Arc<Journal>, dice: Arc<dyn Dice>, base: &Base) -> Result<(Self, History), ReplicaError> {
        let floor = Some(Mark::default());
        let mut log = Self {
            journal,
            dice,
            end: Mark::default(),
            floor,
            places: BTreeMap::new(),
            open: VecDeque::new(),
            held_back: VecDeque::new(),
            written: Sequence(0),
            durable: Sequence(0),
        };
        let mut history = base.history.clone();
        let journal = Arc::clone(&log.journal);
        for laid in journal.read(journal.start())? {
            let laid = laid?;
            let lsn = laid.lsn;
            let entry = log.parse(laid)?;
            if entry.sequence > base.end.sequence {
                if log.end.sequence < base.end.sequence {
                    log.begin(base.end);
                }
                history.grew(entry.epoch, entry.sequence);
            }
            if !entry.follows(log.end) {
                if entry.sequence > base.end.sequence {
                    return Err(log.wrong(&entry, "does not follow the one before it"));
                }
                // What stands before was trimmed, or a snapshot came from elsewhere.
                log.places.clear();
                log.floor = None;
            }
            if entry.sequence == base.end.sequence && entry.chain != base.end.chain {
                return Err(log.wrong(&entry, "is not the one that the snapshot ends with"));
            }
            log.place(entry.sequence, lsn);
            log.end = entry.mark();
        }
        if log.end.sequence < base.end.sequence {
            log.begin(base.end);
        }
        (log.written, log.durable) = (log.end.sequence, log.end.sequence);
        Ok((log, history))
    }

    /// Its end.
    #[must_use]
    pub const fn end(&self) -> Mark {
        self.end
    }

    /// How far it is in the kernel, and how far on the disk.
    #[must_use]
    pub const fn held(&self) -> (Sequence, Sequence) {
        (self.written, self.durable)
    }

    /// Puts an entry that follows the end behind it: in memory, and without waiting for a sync.
    ///
    /// # Errors
    /// As the journal says.
    pub fn append(&mut self, entry: &Entry) -> Result<(), ReplicaError> {
        self.go_on()?;
        if !self.held_back.is_empty() || !self.lay(entry)? {
            self.held_back.push_back(entry.clone());
        }
        self.end = entry.mark();
        Ok(())
    }

    /// Gives the journal what was held back, as far as it takes it by now.
    ///
    /// # Errors
    /// As the journal says.
    pub(crate) fn go_on(&mut self) -> Result<(), ReplicaError> {
        while let Some(entry) = self.held_back.pop_front() {
            if !self.lay(&entry)? {
                self.held_back.push_front(entry);
                break;
            }
        }
        Ok(())
    }

    /// Whether the journal takes it now.
    fn lay(&mut self, entry: &Entry) -> Result<bool, ReplicaError> {
        let header = entry.header();
        let parts: &[&[u8]] = &[&header, &entry.payload];
        let taken = if self.journal.is_lazy() {
            // It may have to write, into the page cache.
            Some(self.journal.append(entry.kind, parts)?)
        } else {
            self.journal.try_append(entry.kind, parts)?
        };
        let Some(ticket) = taken else { return Ok(false) };
        self.place(entry.sequence, ticket.lsn);
        self.open.push_back((entry.sequence, ticket));
        Ok(true)
    }

    /// Writes what was appended: a killed process keeps it.
    ///
    /// # Errors
    /// As the journal says: the member must stop.
    pub fn write(&mut self) -> Result<(), ReplicaError> {
        loop {
            if let Some((last, ticket)) = self.open.back().copied() {
                self.journal.wait(ticket)?;
                self.written = self.written.max(last);
            }
            self.look();
            let Some(room_bytes) = self.held_back_bytes() else { return Ok(()) };
            self.journal.make_room(room_bytes)?;
            self.go_on()?;
        }
    }

    /// Syncs what was appended.
    ///
    /// # Errors
    /// As the journal says: the member must stop.
    pub fn sync(&mut self) -> Result<(), ReplicaError> {
        self.write()?;
        self.journal.sync()?;
        self.look();
        Ok(())
    }

    /// How long the first entry is that the journal has not taken.
    pub(crate) fn held_back_bytes(&self) -> Option<usize> {
        self.held_back.front().map(Entry::bytes)
    }

    /// The last entry in the journal that is not known to be durable, and how its journal knows it.
    pub(crate) fn last_open(&self) -> Option<(Sequence, Ticket)> {
        self.open.back().copied()
    }

    /// Somebody else wrote what was appended up to this entry.
    pub(crate) fn was_written(&mut self, to: Sequence) {
        self.written = self.written.max(to.min(self.end.sequence));
    }

    /// Looks how far the journal has come by itself.
    pub(crate) fn look(&mut self) {
        let durable = self.journal.durable();
        while let Some((sequence, _)) = self.open.pop_front_if(|(_, ticket)| ticket.end <= durable) {
            self.durable = sequence;
            self.written = self.written.max(sequence);
        }
    }

    /// Reads on behind an entry, about so many bytes, one entry at least, but where nothing lands before it is durable, and what follows
    /// is not: no disk is waited for then, and what follows is in its owner's memory.
    ///
    /// # Errors
    /// As the journal says.
    pub fn fetch(&self, after: Sequence, bytes_max: u64) -> Result<Fetched, ReplicaError> {
        if after >= self.end.sequence {
            let chain = (after == self.end.sequence).then_some(self.end.chain);
            return Ok(Fetched { chain, entries: Vec::new() });
        }
        let mut fetched = Fetched {
            chain: self.floor.filter(|floor| floor.sequence == after).map(|floor| floor.chain),
            entries: Vec::new(),
        };
        let Some(from) = self.place_before(after) else { return Ok(fetched) };
        let mut bytes = 0_u64;
        let has_landed =
            self.has_landed(Sequence(after.0.saturating_add(1))) || (!self.journal.is_lazy() && self.has_landed(after));
        for laid in if has_landed { self.journal.read_landed(from)? } else { self.journal.read(from)? } {
            let entry = self.parse(laid?)?;
            if entry.sequence == after {
                fetched.chain = Some(entry.chain);
            }
            if entry.sequence > after {
                bytes = bytes.saturating_add(u64::try_from(entry.bytes()).unwrap_or(u64::MAX));
                fetched.entries.push(entry);
                if bytes >= bytes_max {
                    break;
                }
            }
        }
        Ok(fetched)
    }

    /// For who reads on behind an entry while the log's owner does something else; none if the log does not reach back so far.
    pub(crate) fn reading(&self, after: Sequence) -> Option<Reading> {
        let has_landed = self.has_landed(Sequence(after.0.saturating_add(1)));
        self.place_before(after).map(|from| Reading { journal: Arc::clone(&self.journal), from, after, has_landed })
    }

    fn has_landed(&self, at: Sequence) -> bool {
        at <= self.durable || self.ticket(at).is_some_and(|ticket| ticket.end <= self.journal.landed())
    }

    /// How the journal knows an entry that is not known to be durable.
    fn ticket(&self, at: Sequence) -> Option<Ticket> {
        let (first, _) = self.open.front()?;
        let index = usize::try_from(at.0.checked_sub(first.0)?).ok()?;
        self.open.get(index).map(|(_, ticket)| *ticket)
    }

    /// Where to begin to read what stands behind this entry; none if the log does not reach back so far.
    fn place_before(&self, after: Sequence) -> Option<Lsn> {
        let place = match self.floor {
            Some(floor) if floor.sequence == after => self.places.first_key_value(),
            _ => self.places.range(..=after).next_back(),
        };
        place.map(|(_, lsn)| *lsn)
    }

    /// Moves the end back behind this entry, durably. Returns it.
    ///
    /// # Errors
    /// `Missing` if that entry is not in the log any more; nothing has happened then. As the journal says: the member must stop.
    pub fn cut(&mut self, to: Sequence) -> Result<Mark, ReplicaError> {
        if to >= self.end.sequence {
            return Ok(self.end);
        }
        self.sync()?;
        let from = self.places.range(..=to).next_back().map_or_else(|| self.journal.start(), |(_, lsn)| *lsn);
        let mut last = self.floor.filter(|floor| floor.sequence == to);
        let mut place = self.journal.start();
        for laid in self.journal.read(from)? {
            let laid = laid?;
            let end = laid.end;
            let entry = self.parse(laid)?;
            if entry.sequence > to {
                break;
            }
            place = end;
            if entry.sequence == to {
                last = Some(entry.mark());
            }
        }
        let end = last.ok_or(ReplicaError::Missing { at: to })?;
        let (journal, _) = self.journal.cut_back(Arc::clone(&self.dice), place)?;
        self.journal = journal;
        self.places.retain(|sequence, _| *sequence <= to);
        (self.open, self.held_back) = Default::default();
        (self.end, self.written, self.durable) = (end, to, to);
        Ok(end)
    }

    /// The log goes on behind a snapshot that came from elsewhere, and that is durable; all before it is not read any more.
    pub fn begin(&mut self, end: Mark) {
        self.places.clear();
        (self.open, self.held_back) = Default::default();
        self.floor = Some(end);
        (self.end, self.written, self.durable) = (end, end.sequence, end.sequence);
    }

    /// Lets go what stands before this entry: a durable snapshot holds it.
    ///
    /// # Errors
    /// As the journal says; the log goes on.
    pub fn trim(&mut self, to: Sequence) -> Result<(), ReplicaError> {
        if let Some(place) = self.let_go(to)? {
            self.journal.trim(place)?;
        }
        Ok(())
    }

    /// From now on nothing before this entry is read. Returns up to which place the journal may be trimmed, by whoever has the time; nothing
    /// if it holds nothing more than that, or has not taken that entry yet: the next one gives back as much more.
    ///
    /// # Errors
    /// As the journal says; nothing has happened then.
    pub fn let_go(&mut self, to: Sequence) -> Result<Option<Lsn>, ReplicaError> {
        let place = match self.ticket(to) {
            Some(ticket) => Some(ticket.lsn),
            None => self.find(to)?,
        };
        let Some(place) = place else { return Ok(None) };
        let first = self.places.first_key_value().map(|(sequence, _)| *sequence);
        self.places.insert(to, place);
        self.places.retain(|sequence, _| *sequence >= to);
        if first != Some(to) {
            // What stood before the first one is not read any more, and its chain with it.
            self.floor = None;
        }
        Ok(Some(place))
    }

    /// Where an entry that is durable begins.
    fn find(&self, at: Sequence) -> Result<Option<Lsn>, ReplicaError> {
        let Some((_, near)) = self.places.range(..=at).next_back() else { return Ok(None) };
        for laid in self.journal.read_landed(*near)? {
            let laid = laid?;
            let lsn = laid.lsn;
            if self.parse(laid)?.sequence == at {
                return Ok(Some(lsn));
            }
        }
        Ok(None)
    }

    /// Its journal, as it is now: a cut opens it anew.
    #[must_use]
    pub const fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn place(&mut self, sequence: Sequence, lsn: Lsn) {
        let is_far = |(_, last): (&Sequence, &Lsn)| lsn.0.saturating_sub(last.0) >= MARK_BYTES;
        if sequence.0.is_multiple_of(MARK_EVERY) || self.places.last_key_value().is_none_or(is_far) {
            self.places.insert(sequence, lsn);
        }
    }

    fn parse(&self, laid: Laid) -> Result<Entry, ReplicaError> {
        parse(&self.journal, laid)
    }

    fn wrong(&self, entry: &Entry, what: &str) -> ReplicaError {
        damaged(self.journal.folder(), format!("entry {} of epoch {} {what}", entry.sequence, entry.epoch))
    }
}

fn parse(journal: &Journal, laid: Laid) -> Result<Entry, ReplicaError> {
    let wrong = |error| damaged(journal.folder(), format!("the entry at {}: {error}", laid.lsn));
    Entry::parse(laid.kind, laid.payload.into()).map_err(wrong)
}
