//! What a flush or a merge of the ledger counts: keys, bytes, and what lives where.
//!
//! Walk: [`Clerk`] opens an account for each of them, several at once · [`Count::note`] lays the note of all that was committed before
//! and of this, under the manifest's lock · [`Count::committed`] makes it what is known, under the same hold of it, and with it which values
//! nobody has to ask for again ([`Dead`]).
//! Deliberately absent: the note's bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_ids::Lsn;
use assent_journal::Log;
use assent_kind::Kind;
use assent_runs::{Entry, Fate, InOrder, Newest, Owner, Pace, Step, Tally};

use crate::KvError;
use crate::ledger::Ledger;
use crate::looks::{Looks, Weight};
use crate::note;
use crate::record::Place;
use crate::rows::{Booked, booked, expiry, place};
use crate::time::{Time, is_over};
use crate::vault::{Accounts, Address, Booking, Dead, VaultError, value_bytes};

/// Of a larger value a compaction's look-up costs little beside the rest.
const DEAD_BYTES: u64 = 1 << 10;
/// What is known to be dead takes such a part of what the ledger's memory may, and no more than so many bytes: those of sixteen segments.
const DEAD_PARTS: u64 = 8;
const DEAD_BYTES_MAX: u64 = 2 << 20;
/// So many are noted at once.
const LEAVING: usize = 16;

/// Flushes of whose rows not each was looked up for what it supersedes, as far as they may be at level 0.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    came: AtomicU64,
    went: AtomicU64,
}

impl Unknown {
    pub(crate) fn one_more(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// So many have come. Asked before a merge, for [`Unknown::go`].
    fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// So many are not at level 0 any more.
    fn go(&self, came: u64) {
        self.went.store(came, Ordering::Relaxed);
    }

    pub(crate) fn is_any(&self) -> bool {
        self.came() != self.went.load(Ordering::Relaxed)
    }
}

/// Tells the map what to note.
pub(crate) struct Clerk<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) log: &'a dyn Log,
}

impl Owner for Clerk<'_> {
    fn durable(&self) -> u64 {
        self.log.durable().0
    }

    /// What small runs hide of the journal is looked up, or far too much of it would be taken for living.
    fn gathers(&self) -> bool {
        true
    }

    /// Where the disk has no room, what may be given back has to be known.
    fn hurries(&self) -> bool {
        self.ledger.space.no_room.refused().is_some() && self.ledger.unknown.is_any()
    }

    fn is_lazy(&self) -> bool {
        self.log.is_lazy()
    }

    fn tally(&self) -> Box<dyn Tally + '_> {
        let booking = Booking::new(self.ledger.cell_bytes());
        let dead = self.ledger.notes().dead.empty();
        let looks = Looks { is_near: self.ledger.is_near_memory(), value_bytes: self.ledger.value_bytes() };
        Box::new(Count {
            clerk: self,
            comes: [0; 2],
            goes: [0; 2],
            booking,
            dead,
            leaving: Vec::with_capacity(LEAVING),
            // Nothing is dead where nothing is ever compacted.
            looks: self.log.stretch_bytes().map(|_| looks),
            before: None,
            skipped: false,
            applied: Lsn::ZERO,
            next: None,
        })
    }
}

impl Ledger {
    /// Of a value that its files have, on average.
    fn value_bytes(&self) -> u64 {
        let [values, bytes] = self.notes().kept;
        bytes / values.max(1)
    }

    /// From now on what merges book out of the oldest cells of the journal is remembered, beside memory of so many bytes.
    pub(crate) fn remember_dead(&self, memory_bytes: u64) {
        let mut notes = self.notes();
        let bytes_max = (memory_bytes / DEAD_PARTS).min(DEAD_BYTES_MAX);
        notes.dead = Dead::new(notes.accounts.cell_bytes(), notes.accounts.raw_from(), bytes_max);
    }

    /// What is known to be dead of the journal before a place.
    pub(crate) fn dead_before(&self, end: u64) -> Dead {
        self.notes().dead.before(end)
    }

    /// Does the most urgent piece of work that is no flush; whether there was any. A flush may be under way meanwhile. What it
    /// commits is of entries that are durable already.
    ///
    /// # Errors
    /// As the disk says; `Corrupt`, naming the file, if what it had to read is damaged. Nothing has changed then.
    pub(crate) fn merge(&self, log: &dyn Log, pace: &dyn Pace) -> Result<bool, KvError> {
        let owner = Clerk { ledger: self, log };
        let (level0_runs, came) = (self.debt().level0_runs, self.unknown.came());
        let hurries = owner.hurries();
        let step = match self.runs().merge(&owner, pace) {
            Err(error) if hurries && error.kind() == Kind::Full => {
                // Too long for the room that there is. What it would have shown is known later, and compactions may make room without it.
                self.unknown.go(came);
                return Ok(false);
            }
            step => step?,
        };
        if matches!(step, Some(Step::Merged { .. } | Step::Dropped { .. })) {
            // What was merged is as much again, and goes once no manifest names it. If that fails, with the next commit.
            _ = self.renote(None);
        }
        if matches!(step, Some(Step::Merged { to: 1, .. })) && self.debt().level0_runs < level0_runs {
            self.unknown.go(came);
        }
        Ok(step.is_some_and(|step| step != Step::Stopped))
    }
}

struct Count<'a> {
    clerk: &'a Clerk<'a>,
    /// Puts and bytes of their values that come, and that go.
    comes: [u64; 2],
    goes: [u64; 2],
    /// The same, by where they stand.
    booking: Booking,
    /// What leaves, as far as a look-up of it costs much beside the value; the last few are noted together.
    dead: Dead,
    leaving: Vec<Address>,
    /// Of which rows of a flush it is looked up what they supersede; and what the files had when it began.
    looks: Option<Looks>,
    before: Option<InOrder>,
    /// A row was not looked up, or for others too.
    skipped: bool,
    /// What the note was asked for, and the accounts that it says; and what of the booking they could not take.
    applied: Lsn,
    next: Option<(Accounts, Option<VaultError>)>,
}

impl Count<'_> {
    fn kept(&self, kept: [u64; 2]) -> [u64; 2] {
        std::array::from_fn(|at| {
            let of = |counts: &[u64; 2]| counts.get(at).copied().unwrap_or_default();
            of(&kept).saturating_add(of(&self.comes)).saturating_sub(of(&self.goes))
        })
    }

    /// A value of so many bytes comes, or none: what the files have of its key is superseded.
    fn supersedes(&mut self, key: &[u8], bytes: u64) {
        let Some(looks) = self.looks else { return };
        let ledger = self.clerk.ledger;
        // Where the disk has no room, each is, whatever it costs: nothing is given back that nobody knows to be dead.
        let is_needed = ledger.space.no_room.refused().is_some();
        let weight = if is_needed { Some(Weight::ONE) } else { looks.at(key, bytes) };
        self.skipped |= weight != Some(Weight::ONE);
        let Some(weight) = weight else { return };
        let before = self.before.get_or_insert_with(|| ledger.runs().view().in_order());
        // What cannot be read is told to whoever asks for the key.
        let Ok(Some(Newest { seq, value: Some(row) })) = before.last_written(key) else { return };
        if let Ok(old) = place(seq, &row) {
            self.booking.finds(old.entry.0, weight.of(laid_bytes(key, &old)));
        }
    }

    /// What the accounts count for it.
    fn count(counts: &mut [u64; 2], entry: &Entry<'_>, book: impl FnOnce(u64, u64)) -> Option<(Booked, u64)> {
        // A row that cannot be read is told to whoever asks for its key.
        let booked = entry.value.and_then(booked)?;
        let [keys, bytes] = counts;
        *keys += 1;
        *bytes += u64::from(booked.value_bytes);
        let laid = bytes_of(entry.key, booked.metadata_bytes, booked.value_bytes);
        book(booked.address.lsn, laid);
        Some((booked, laid))
    }
}

/// What the accounts count for a row.
pub(crate) fn laid_bytes(key: &[u8], place: &Place) -> u64 {
    bytes_of(key, place.metadata_bytes, place.value_bytes)
}

fn bytes_of(key: &[u8], metadata_bytes: u16, of_value: u32) -> u64 {
    let value = usize::try_from(of_value).unwrap_or(usize::MAX);
    value_bytes(key.len().saturating_sub(4), metadata_bytes.into(), value)
}

impl Tally for Count<'_> {
    fn enters(&mut self, entry: &Entry<'_>) {
        if let Some((_, laid)) = Self::count(&mut self.comes, entry, |lsn, bytes| self.booking.enters(lsn, bytes)) {
            self.supersedes(entry.key, laid);
        }
    }

    fn leaves(&mut self, entry: &Entry<'_>) {
        let looks = self.looks;
        let left = Self::count(&mut self.goes, entry, |lsn, bytes| {
            let lost = looks.map_or(0, |looks| looks.lost(entry.key, bytes));
            self.booking.leaves(lsn, bytes, lost);
        });
        // What expires may leave because it has: then it may hide something, and is not dead for who compacts.
        if let Some((booked, _)) = left.filter(|(booked, laid)| !booked.expires && *laid < DEAD_BYTES) {
            self.leaving.push(booked.address);
            if self.leaving.len() == LEAVING {
                self.dead.note_all(&self.leaving);
                self.leaving.clear();
            }
        }
    }

    fn hides(&mut self, key: &[u8]) {
        self.supersedes(key, 0);
    }

    fn judge(&mut self, entry: &Entry<'_>) -> Fate {
        let Some(expiry) = entry.value.and_then(expiry) else { return Fate::Keep };
        let is_over = |time: &Arc<Time>| expiry != 0 && is_over(expiry, time.now_ms());
        if self.clerk.ledger.time.get().is_some_and(is_over) { Fate::Bury } else { Fate::Keep }
    }

    fn note(&mut self, applied: u64) -> Vec<u8> {
        let notes = self.clerk.ledger.notes();
        let moment = notes.closed.iter().rev().find(|moment| moment.end.0 <= applied).unwrap_or(&notes.durable);
        self.applied = Lsn(applied);
        let mut accounts = notes.accounts.clone();
        let booked = accounts.book(&self.booking);
        let laid = note::lay(moment, self.kept(notes.kept), &accounts);
        self.next = Some((accounts, booked.err()));
        laid
    }

    fn committed(mut self: Box<Self>) {
        if self.skipped {
            self.clerk.ledger.unknown.one_more();
        }
        let mut notes = self.clerk.ledger.notes();
        notes.kept = self.kept(notes.kept);
        let (accounts, broken) = self.next.take().unwrap_or_else(|| (notes.accounts.clone(), None));
        if let Some(broken) = broken {
            // A broken promise of ours: it is told. Nothing is lost by it but room, until the volume is compacted.
            notes.broken += 1;
            notes.first_broken.get_or_insert(broken);
        }
        notes.committed(accounts);
        self.dead.note_all(&self.leaving);
        notes.dead.add(self.dead);
        while notes.closed.front().is_some_and(|moment| moment.end <= self.applied) {
            notes.durable = notes.closed.pop_front().unwrap_or_default();
        }
    }
}
