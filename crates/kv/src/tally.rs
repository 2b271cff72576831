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
use assent_runs::{Entry, Fate, Newest, Owner, Tally, View};

use crate::ledger::Ledger;
use crate::note;
use crate::record::Place;
use crate::rows::{Booked, booked, expiry, place};
use crate::time::{Time, is_over};
use crate::vault::{Accounts, Booking, Dead, Superseded, VaultError, value_bytes};

/// Smaller values are not worth a look-up.
const LOOKED_UP_BYTES: u64 = 1 << 10;
/// What is known to be dead takes such a part of what the ledger's memory may, and no more than so many bytes: those of sixteen segments.
const DEAD_PARTS: u64 = 8;
const DEAD_BYTES_MAX: u64 = 2 << 20;

/// Flushes of whose rows nobody has looked up what they supersede, as far as these may be at level 0.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    came: AtomicU64,
    went: AtomicU64,
}

impl Unseen {
    pub(crate) fn one_more(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// So many have come. Asked before a merge, for [`Unseen::go`].
    pub(crate) fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// So many are not at level 0 any more.
    pub(crate) fn go(&self, came: u64) {
        self.went.store(came, Ordering::Relaxed);
    }

    fn is_any(&self) -> bool {
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

    /// What small runs hide of the journal has to be known, or far too much of it would be taken for living.
    fn gathers(&self) -> bool {
        self.log.stretch_bytes().is_none() || !self.ledger.unseen.is_any()
    }

    fn is_lazy(&self) -> bool {
        self.log.is_lazy()
    }

    fn tally(&self) -> Box<dyn Tally + '_> {
        let booking = Booking::new(self.ledger.cell_bytes());
        let dead = self.ledger.notes().dead.empty();
        Box::new(Count {
            clerk: self,
            comes: [0; 2],
            goes: [0; 2],
            booking,
            superseded: Superseded::default(),
            dead,
            before: None,
            value_bytes: self.ledger.value_bytes(),
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
}

struct Count<'a> {
    clerk: &'a Clerk<'a>,
    /// Puts and bytes of their values that come, and that go.
    comes: [u64; 2],
    goes: [u64; 2],
    /// The same, by where they stand.
    booking: Booking,
    /// Of what the files had when a flush began: values that its rows supersede. None: not looked for.
    superseded: Superseded,
    /// What leaves, as far as a look-up of it costs much beside the value.
    dead: Dead,
    before: Option<Option<View>>,
    /// Of a value that the files have, on average.
    value_bytes: u64,
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

    /// A look-up for each large value is little beside writing it, while most of the ledger's files are in memory. So is one for what is short and
    /// supersedes values that are large, if most of them are: of others, four small runs and those that are gathered hide about as much.
    fn supersedes(&mut self, key: &[u8], bytes: u64) {
        if bytes.max(self.value_bytes) < LOOKED_UP_BYTES {
            return;
        }
        let ledger = self.clerk.ledger;
        // Nor is it where nothing is ever compacted.
        let is_worth = || self.clerk.log.stretch_bytes().is_some() && ledger.is_near_memory();
        let before = self.before.get_or_insert_with(|| is_worth().then(|| ledger.runs().view()));
        // What cannot be read is told to whoever asks for the key.
        let Some(Ok(Some(Newest { seq, value: Some(row) }))) = before.as_ref().map(|it| it.last_written(key)) else {
            return;
        };
        if let Ok(old) = place(seq, &row) {
            self.superseded.note(self.booking.cell_at(old.entry.0), laid_bytes(key, &old));
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
        let left = Self::count(&mut self.goes, entry, |lsn, bytes| self.booking.leaves(lsn, bytes));
        // What expires may leave because it has: then it may hide something, and is not dead for who compacts.
        if let Some((booked, _)) = left.filter(|(booked, laid)| !booked.expires && *laid < LOOKED_UP_BYTES) {
            self.dead.note(booked.address);
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
        if matches!(self.before, Some(None)) {
            self.clerk.ledger.unseen.one_more();
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
        notes.superseded.left(&self.booking);
        notes.superseded.add(&self.superseded);
        notes.dead.add(self.dead);
        while notes.closed.front().is_some_and(|moment| moment.end <= self.applied) {
            notes.durable = notes.closed.pop_front().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_could_not_look_beside_a_merge_is_not_taken_for_one_that_went_down_with_it() {
        let unseen = Unseen::default();
        assert!(!unseen.is_any());
        unseen.one_more();
        let came = unseen.came();
        assert!(unseen.is_any());
        unseen.one_more();
        unseen.go(came);
        assert!(unseen.is_any());
        unseen.go(unseen.came());
        assert!(!unseen.is_any());
    }
}
