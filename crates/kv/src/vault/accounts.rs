//! What lives where: for each volume its bytes and how many of them the ledger still points to.
//!
//! A value is booked into its volume when it reaches the ledger's first run and out when it leaves, each time with the bytes
//! that it takes in a volume. The journal from `raw_from` on is counted in cells of one length, however it is cut into
//! files: a cell is a volume that has not been compacted. Accounts are kept in the ledger's note, committed with the run
//! that they speak of; so they never drift, and a mismatch is a broken promise of ours that is told, not mended.
//!
//! Until a merge meets both rows of a value that was superseded, it counts as living: that may be a third of a store. A flush looks some of
//! them up ([`crate::looks`]), and what it finds, and what of that merges book out, is kept beside, as an estimate: it says what is worth
//! compacting and how much is too much ([`Accounts::expected`]); what lives, the ledger says.
//!
//! Walk: [`Booking`] gathers what one flush or merge does · [`Accounts::book`] takes of it what fits ·
//! [`Accounts::replace`] after a compaction · [`Accounts::lay`] and [`Accounts::read`] for the note.

use std::collections::BTreeMap;

use assent_frame::{Malformed, Reader, Writer};

use crate::vault::choose::EXTRA_BYTES;
use crate::vault::hides::Hides;
use crate::vault::seal::Facts;
use crate::vault::{Compacted, VaultError};

const VERSION: u8 = 4;
/// Without `hides`.
const VERSION_3: u8 = 3;
/// And without `superseded`.
const VERSION_2: u8 = 2;
/// And without `until`.
const VERSION_1: u8 = 1;

/// One volume's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its range.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Bytes on disk; 0 only in notes of before a volume without an item was written too: there is no file.
    pub(crate) bytes: u64,
    /// Bytes of them that the ledger points to.
    pub(crate) live: u64,
    /// Bytes of them that lived when it was written: the rest are index, seals and what is remembered, and stay as long as it does.
    pub(crate) born: u64,
    /// How often what it holds has outlived a compaction; 0 for a cell of the journal.
    pub(crate) generation: u32,
    /// Nothing in it was dead as of this seq; 0 for what has not been compacted.
    pub(crate) as_of: u64,
    /// Of a kept stretch: the journal is kept up to here, where the last entry ends that is needed to read it; of one that was passed that is
    /// its own last. Else 0.
    pub(crate) until: u64,
    /// Bytes of those that live that are known to be superseded, about: a merge will book them out.
    pub(crate) superseded: u64,
    /// What it remembers for the sake of others.
    pub(crate) hides: Hides,
}

impl Account {
    /// Of a range in which nothing lives: a cell of the journal.
    pub(crate) const fn empty(first: u64, end: u64) -> Self {
        let (bytes, hides) = (end.saturating_sub(first), Hides::NONE);
        Self { first, end, bytes, live: 0, born: bytes, generation: 0, as_of: 0, until: 0, superseded: 0, hides }
    }

    /// Whether there may be a value in it, living or not.
    pub(crate) const fn holds(&self) -> bool {
        self.born > 0 || self.is_kept()
    }

    /// A stretch of the journal whose values stay where they are, and its file only says so.
    pub(crate) const fn is_kept(&self) -> bool {
        self.generation > 0 && self.as_of == 0
    }

    /// One that was passed because it is full, and can be read: of itself alone. Of any other no compaction could read some.
    pub(crate) const fn is_passed(&self) -> bool {
        self.is_kept() && 0 < self.until && self.until <= self.end
    }

    /// Bytes on disk, the journal's of a kept stretch among them.
    pub(crate) const fn disk_bytes(&self) -> u64 {
        if self.is_kept() { self.bytes.saturating_add(self.end - self.first) } else { self.bytes }
    }
}

/// What is booked at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    cell_bytes: u64,
    /// By the first place of a cell, all of which is in one volume.
    cells: BTreeMap<u64, Cell>,
}

/// Bytes of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    enters: u64,
    leaves: u64,
    /// Were found to be superseded; and leave of what was.
    found: u64,
    lost: u64,
}

impl Booking {
    /// Of nothing, in a store whose journal is counted in cells of this length.
    pub(crate) const fn new(cell_bytes: u64) -> Self {
        Self { cell_bytes, cells: BTreeMap::new() }
    }

    /// The first place of the cell that holds this one.
    const fn cell_at(&self, lsn: u64) -> u64 {
        lsn - lsn % self.cell_bytes
    }

    fn cell(&mut self, lsn: u64) -> &mut Cell {
        self.cells.entry(self.cell_at(lsn)).or_default()
    }

    /// A value of the entry at this LSN reaches the ledger's first run.
    pub(crate) fn enters(&mut self, lsn: u64, bytes: u64) {
        self.cell(lsn).enters += bytes;
    }

    /// It leaves the ledger for good, and with it what it stands for of those that were found to be superseded.
    pub(crate) fn leaves(&mut self, lsn: u64, bytes: u64, lost: u64) {
        let cell = self.cell(lsn);
        cell.leaves += bytes;
        cell.lost += lost;
    }

    /// It was found to be superseded, and stands for so many bytes.
    pub(crate) fn finds(&mut self, lsn: u64, bytes: u64) {
        self.cell(lsn).found += bytes;
    }
}

/// All accounts of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accounts {
    cell_bytes: u64,
    raw_from: u64,
    /// By first place: compacted volumes below `raw_from`, cells with something in them from there on.
    volumes: BTreeMap<u64, Account>,
}

impl Accounts {
    /// Of an empty store whose journal is counted in cells of this length: best that of a segment. It never changes.
    pub(crate) const fn new(cell_bytes: u64) -> Self {
        Self { cell_bytes, raw_from: 0, volumes: BTreeMap::new() }
    }

    /// Of a store whose note was lost: these volumes are there, the rest is the journal. Who lives where is told by [`Accounts::admit`],
    /// what of the journal is kept by [`Accounts::keep_until`].
    pub(crate) fn found<'a>(cell_bytes: u64, raw_from: u64, facts: impl Iterator<Item = &'a Facts>) -> Self {
        let account = |facts: &Facts| {
            let Facts { first, end, bytes, values, generation, as_of, .. } = *facts;
            let born = if values == 0 { 0 } else { bytes };
            let hides = facts.hides();
            (first, Account { bytes, born, generation, as_of, hides, ..Account::empty(first, end) })
        };
        Self { cell_bytes, raw_from, volumes: facts.map(account).collect() }
    }

    /// The journal is kept up to there for the stretch that begins at `first`.
    pub(crate) fn keep_until(&mut self, first: u64, until: u64) {
        if let Some(account) = self.volumes.get_mut(&first) {
            account.until = until;
        }
    }

    /// So many bytes at a place live, wherever it is. Whether there is anything at it.
    pub(crate) fn admit(&mut self, lsn: u64, bytes: u64) -> bool {
        let account = match self.holder(lsn) {
            Some(account) => *account,
            None if lsn >= self.raw_from => self.cell_of(lsn),
            None => return false,
        };
        self.volumes.insert(account.first, Account { live: account.live + bytes, ..account });
        true
    }

    /// Values from this place on are read from the journal itself.
    pub(crate) const fn raw_from(&self) -> u64 {
        self.raw_from
    }

    /// In what the journal is counted.
    pub(crate) const fn cell_bytes(&self) -> u64 {
        self.cell_bytes
    }

    /// Bytes on disk of what there is between two places.
    pub(crate) fn bytes_between(&self, first: u64, end: u64) -> u64 {
        let within = |account: &&Account| first <= account.first && account.first < end;
        let compacted: u64 = self.compacted().filter(within).map(Account::disk_bytes).sum();
        compacted + end.saturating_sub(first.max(self.raw_from))
    }

    /// The highest generation of what begins between two places, with or without a file.
    pub(crate) fn generation_between(&self, first: u64, end: u64) -> u32 {
        self.volumes.range(first..end).map(|(_, account)| account.generation).max().unwrap_or(0)
    }

    /// As many bytes live in what was compacted as it has, with those that will still be booked out: where bookings did not fit, the
    /// account is not believed.
    pub(crate) fn recount(&mut self, compacted: &Compacted) {
        if let Some(account) = self.volumes.get_mut(&compacted.first).filter(|account| !account.is_kept()) {
            account.live = compacted.kept_bytes.saturating_add(compacted.leaving);
            account.superseded = compacted.leaving;
        }
    }

    /// Compacted volumes with a file, in order, and kept stretches among them.
    pub(crate) fn compacted(&self) -> impl Iterator<Item = &Account> {
        self.volumes.range(..self.raw_from).map(|(_, account)| account).filter(|account| account.bytes > 0)
    }

    /// What volumes have on disk beside what lived in them when they were written and some blocks of each, as a part of that.
    pub(crate) fn extra(&self) -> f64 {
        let volumes = self.compacted().filter(|volume| !volume.is_kept());
        let (extra, born) = volumes.fold((0, 0), |(extra, born), volume| {
            (extra + volume.bytes.saturating_sub(volume.born + EXTRA_BYTES), born + volume.born)
        });
        extra as f64 / born.max(1) as f64
    }

    /// The cells of the journal up to a place, also those in which nothing lives.
    pub(crate) fn cells(&self, to: u64) -> impl Iterator<Item = Account> {
        let mut at = self.raw_from;
        std::iter::from_fn(move || {
            let cell = self.cell_of(at);
            at = cell.end;
            (cell.end <= to).then(|| self.volumes.get(&cell.first).copied().unwrap_or(cell))
        })
    }

    /// The compacted volume that holds a place.
    pub(crate) fn volume_of(&self, lsn: u64) -> Option<&Account> {
        self.holder(lsn).filter(|account| lsn < self.raw_from && account.bytes > 0)
    }

    fn holder(&self, lsn: u64) -> Option<&Account> {
        let (_, account) = self.volumes.range(..=lsn).next_back()?;
        (lsn < account.end).then_some(account)
    }

    fn cell_of(&self, lsn: u64) -> Account {
        let first = lsn - lsn % self.cell_bytes;
        Account::empty(first, first.saturating_add(self.cell_bytes))
    }

    /// As they will be once what is known to be superseded is booked out: to choose by, not to count.
    pub(crate) fn expected(&self) -> Self {
        let mut accounts = self.clone();
        for account in accounts.volumes.values_mut() {
            account.live = account.live.saturating_sub(std::mem::take(&mut account.superseded));
        }
        accounts
    }

    /// Bytes on disk and bytes that live, with the journal up to its end.
    pub(crate) fn sums(&self, log_end: u64) -> (u64, u64) {
        let compacted: u64 = self.compacted().map(Account::disk_bytes).sum();
        let live = self.volumes.values().map(|account| account.live).sum();
        (compacted + log_end.saturating_sub(self.raw_from), live)
    }

    /// Takes a booking. What does not fit is left out, and only that: an account ends at nothing.
    ///
    /// # Errors
    /// `Account`, naming the first volume that more leaves than lives in it, or something enters although it is compacted.
    pub(crate) fn book(&mut self, booking: &Booking) -> Result<(), VaultError> {
        let mut booked: BTreeMap<u64, (Account, u64)> = BTreeMap::new();
        let mut broken = None;
        let mut tell = |volume, what| _ = broken.get_or_insert(VaultError::Account { volume, what });
        for (cell, Cell { enters, leaves, found, lost }) in &booking.cells {
            let account = match self.holder(*cell) {
                Some(account) => *account,
                None if *enters == 0 && *leaves == 0 => continue,
                None if *cell >= self.raw_from => self.cell_of(*cell),
                None => {
                    tell(*cell, format!("{leaves} bytes of the cell at LSN {cell} leave, and there is no volume"));
                    continue;
                }
            };
            let (account, left) = booked.entry(account.first).or_insert((account, 0));
            *left += leaves;
            account.superseded = (account.superseded + found).saturating_sub(*lost);
            if *enters > 0 && *cell < self.raw_from {
                tell(account.first, format!("{enters} bytes of the cell at LSN {cell} enter, and it is compacted"));
            } else {
                account.live += enters;
            }
        }
        for (mut account, left) in booked.into_values() {
            if left > account.live {
                tell(account.first, format!("{left} bytes leave, {} live in it", account.live));
            }
            account.live = account.live.saturating_sub(left);
            if account.first < self.raw_from && account.live == 0 && account.bytes == 0 {
                self.volumes.remove(&account.first);
            } else {
                self.volumes.insert(account.first, account);
            }
        }
        broken.map_or(Ok(()), Err)
    }

    /// A compaction is done: what it read gives way to what it wrote. What lived there lives there still.
    ///
    /// # Errors
    /// `Compaction` if its range is not whole volumes or the first whole cells of the journal. Nothing has changed then.
    pub(crate) fn replace(&mut self, compacted: &Compacted) -> Result<(), VaultError> {
        let Compacted { first, end, generation, as_of, until, hides, .. } = *compacted;
        let wrong = |what| Err(VaultError::Compaction { first, end, what });
        if first >= end || end > self.raw_from && !end.is_multiple_of(self.cell_bytes) {
            return wrong("its end is not the end of a cell");
        }
        let cuts = |place: u64| self.holder(place).is_some_and(|account| account.first < place);
        if first > self.raw_from || end <= self.raw_from && cuts(end) || cuts(first) {
            return wrong("it begins or ends within a volume, or leaves out the oldest cell of the journal");
        }
        let olds: Vec<Account> = self.volumes.range(first..end).map(|(_, account)| *account).collect();
        if olds.iter().any(|old| old.generation >= generation) {
            return wrong("its generation is not above that of what it read");
        }
        olds.iter().for_each(|old| _ = self.volumes.remove(&old.first));
        let live = olds.iter().map(|old| old.live).sum::<u64>();
        // It has looked: no more than what it did not keep is superseded, what a flush found meanwhile left out; and no less than that of it which
        // none has yet to find.
        let dead = live.saturating_sub(compacted.kept_bytes);
        let known = if as_of > 0 { dead.saturating_sub(compacted.fresh_bytes) } else { 0 };
        let superseded = olds.iter().map(|old| old.superseded).sum::<u64>().clamp(known, dead);
        let bytes = compacted.facts.bytes;
        let born = compacted.kept_bytes.min(bytes);
        let account = Account { first, end, bytes, live, born, generation, as_of, until, superseded, hides };
        self.volumes.insert(first, account);
        self.raw_from = self.raw_from.max(end);
        Ok(())
    }

    /// The volumes that a manifest must name, with what each should say of itself.
    pub(crate) fn says(&self, facts: &Facts) -> bool {
        self.volumes.get(&facts.first).is_some_and(|account| {
            (account.end, account.bytes, account.generation, account.as_of)
                == (facts.end, facts.bytes, facts.generation, facts.as_of)
        })
    }

    /// As the note keeps them.
    pub(crate) fn lay(&self, out: &mut Writer) {
        out.u8(VERSION).u64(self.cell_bytes).u64(self.raw_from);
        out.u32(u32::try_from(self.volumes.len()).unwrap_or(u32::MAX));
        for account in self.volumes.values() {
            let Account { first, end, bytes, live, born, generation, as_of, until, superseded, hides } = account;
            out.u64(*first).u64(*end).u64(*bytes).u64(*live).u64(*born).u32(*generation).u64(*as_of).u64(*until);
            out.u64(*superseded).u64(hides.bytes).u64(hides.from).u64(hides.to);
        }
    }

    /// Reads them back.
    ///
    /// # Errors
    /// [`Malformed`], also if they could not have been laid.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let wrong = |field| Malformed { field };
        let version = reader.u8("version")?;
        if !(VERSION_1..=VERSION).contains(&version) {
            return Err(wrong("version"));
        }
        let (cell_bytes, raw_from) = (reader.u64("cell bytes")?, reader.u64("raw from")?);
        if cell_bytes == 0 {
            return Err(wrong("cell bytes"));
        }
        let mut accounts = Self { raw_from, ..Self::new(cell_bytes) };
        let mut last = 0;
        for _ in 0..reader.u32("volumes")? {
            let account = Account {
                first: reader.u64("first")?,
                end: reader.u64("end")?,
                bytes: reader.u64("bytes")?,
                live: reader.u64("live")?,
                born: reader.u64("born")?,
                generation: reader.u32("generation")?,
                as_of: reader.u64("as of")?,
                until: if version == VERSION_1 { 0 } else { reader.u64("until")? },
                superseded: if version <= VERSION_2 { 0 } else { reader.u64("superseded")? },
                hides: if version <= VERSION_3 { Hides::NONE } else { read_hides(reader)? },
            };
            let apart = account.first >= last && account.first < account.end;
            if !apart || account.first < raw_from && account.end > raw_from {
                return Err(wrong("first"));
            }
            last = account.end;
            accounts.volumes.insert(account.first, account);
        }
        Ok(accounts)
    }
}

fn read_hides(reader: &mut Reader<'_>) -> Result<Hides, Malformed> {
    Ok(Hides { bytes: reader.u64("hides")?, from: reader.u64("hides from")?, to: reader.u64("hides to")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(first: u64, end: u64, generation: u32, bytes: u64) -> Compacted {
        let facts = Facts { first, end, generation, bytes, ..Facts::default() };
        Compacted { first, end, generation, as_of: 999, facts, kept_bytes: bytes, ..Compacted::default() }
    }

    fn booked(accounts: &mut Accounts, enters: &[(u64, u64)], leaves: &[(u64, u64)]) -> Result<(), VaultError> {
        let mut booking = Booking::new(100);
        enters.iter().for_each(|(lsn, bytes)| booking.enters(*lsn, *bytes));
        leaves.iter().for_each(|(lsn, bytes)| booking.leaves(*lsn, *bytes, *bytes));
        accounts.book(&booking)
    }

    fn rows(accounts: &Accounts) -> Vec<(u64, u64, u64, u64)> {
        accounts.volumes.values().map(|account| (account.first, account.end, account.bytes, account.live)).collect()
    }

    #[test]
    fn what_enters_and_leaves_is_counted_where_it_stands_and_follows_its_volume() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(0, 10), (50, 20), (150, 30), (450, 40)], &[]).unwrap();
        // It enters and leaves at once, in whatever order.
        booked(&mut accounts, &[(160, 5)], &[(160, 5), (50, 20)]).unwrap();
        assert_eq!(rows(&accounts), [(0, 100, 100, 10), (100, 200, 100, 30), (400, 500, 100, 40)]);
        assert_eq!(
            accounts.cells(499).map(|cell| (cell.first, cell.live)).collect::<Vec<_>>(),
            [(0, 10), (100, 30), (200, 0), (300, 0)]
        );
        assert_eq!(accounts.sums(470), (470, 80));
        accounts.replace(&compacted(0, 300, 1, 60)).unwrap();
        assert_eq!((accounts.raw_from(), accounts.sums(470)), (300, (230, 80)));
        assert_eq!(accounts.volume_of(299).map(|account| account.first), Some(0));
        assert_eq!(accounts.volume_of(300), None);
        // A value dies there, and later the rest: the place stays known, and so does its generation.
        booked(&mut accounts, &[], &[(150, 30)]).unwrap();
        accounts.replace(&compacted(0, 300, 2, 8)).unwrap();
        assert_eq!(rows(&accounts), [(0, 300, 8, 10), (400, 500, 100, 40)]);
        booked(&mut accounts, &[], &[(0, 10)]).unwrap();
        assert_eq!(rows(&accounts), [(0, 300, 8, 0), (400, 500, 100, 40)]);
        assert_eq!((accounts.generation_between(0, 400), accounts.generation_between(1, 900)), (2, 0));
    }

    #[test]
    fn a_mismatch_names_the_volume_and_the_rest_is_booked() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10), (250, 7)], &[]).unwrap();
        accounts.replace(&compacted(0, 200, 1, 50)).unwrap();
        let before = accounts.clone();
        for (enters, leaves, volume, live) in [
            (vec![(250, 1)], vec![(10, 11)], 0, [0, 8]),
            (vec![], vec![(10, 4), (299, 8)], 200, [6, 0]),
            (vec![(10, 1), (250, 2)], vec![(20, 3)], 0, [7, 9]),
            (vec![(210, 5)], vec![(510, 1)], 500, [10, 12]),
        ] {
            let mut accounts = before.clone();
            let error = booked(&mut accounts, &enters, &leaves).unwrap_err();
            assert!(matches!(error, VaultError::Account { volume: named, .. } if named == volume), "{error}");
            let lives: Vec<u64> = rows(&accounts).iter().take(2).map(|row| row.3).collect();
            assert_eq!(lives, live, "{error}");
        }
        // Once something did not fit, what a compaction has found counts.
        accounts.replace(&compacted(0, 200, 2, 7)).unwrap();
        accounts.recount(&compacted(0, 200, 2, 7));
        assert_eq!(rows(&accounts), [(0, 200, 7, 7), (200, 300, 100, 7)]);
    }

    #[test]
    fn a_booking_takes_memory_for_cells_and_not_for_values() {
        let mut booking = Booking::new(100);
        (0..5000).for_each(|lsn| booking.enters(lsn, 1));
        assert_eq!(booking.cells.len(), 50);
        let mut accounts = Accounts::new(100);
        accounts.book(&booking).unwrap();
        assert_eq!(accounts.sums(5000), (5000, 5000));
    }

    #[test]
    fn a_compaction_is_of_whole_volumes_or_the_first_cells() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10), (150, 7), (350, 3)], &[]).unwrap();
        for (first, end) in [(0, 150), (100, 200), (50, 200), (200, 200)] {
            assert!(accounts.replace(&compacted(first, end, 1, 50)).is_err(), "{first} {end}");
        }
        accounts.replace(&compacted(0, 100, 1, 50)).unwrap();
        accounts.replace(&compacted(100, 300, 1, 50)).unwrap();
        for (first, end, generation) in [(0, 200, 2), (50, 100, 2), (0, 300, 1), (400, 500, 2)] {
            assert!(accounts.replace(&compacted(first, end, generation, 50)).is_err(), "{first} {end}");
        }
        accounts.replace(&compacted(0, 300, 2, 70)).unwrap();
        let facts = Facts { first: 0, end: 300, generation: 2, as_of: 999, bytes: 70, ..Facts::default() };
        assert!(accounts.says(&facts) && !accounts.says(&Facts { bytes: 71, ..facts }));
    }

    #[test]
    fn a_kept_stretch_counts_as_the_journal_that_it_is_and_lives_on() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10), (150, 7)], &[]).unwrap();
        let kept = Compacted { as_of: 0, until: 130, kept_bytes: 0, ..compacted(0, 100, 1, 8) };
        accounts.replace(&kept).unwrap();
        let account = *accounts.volume_of(50).unwrap();
        assert_eq!((account.is_kept(), account.until, account.live, account.disk_bytes()), (true, 130, 10, 108));
        assert_eq!((accounts.raw_from(), accounts.sums(250), accounts.bytes_between(0, 100)), (100, (258, 17), 108));
        // What leaves is booked, nothing is counted anew.
        booked(&mut accounts, &[], &[(10, 4)]).unwrap();
        accounts.recount(&kept);
        assert_eq!(accounts.volume_of(50).map(|account| account.live), Some(6));
        // It can be read again, and is compacted.
        accounts.replace(&compacted(0, 200, 2, 50)).unwrap();
        assert_eq!(accounts.volume_of(50).map(|it| (it.is_kept(), it.until, it.live)), Some((false, 0, 13)));
    }

    /// Bytes that live in the cells, as they are counted and as they will be.
    fn lives(accounts: &Accounts) -> [Vec<u64>; 2] {
        [accounts.clone(), accounts.expected()]
            .map(|accounts| accounts.volumes.values().map(|account| account.live).collect())
    }

    #[test]
    fn what_is_known_to_be_superseded_is_no_more_expected_to_live_and_is_booked_out_once() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 50), (110, 60), (210, 70)], &[]).unwrap();
        let mut booking = Booking::new(100);
        // Nothing stands at the last one, which no account has.
        [(10, 50), (120, 20), (510, 9)].into_iter().for_each(|(lsn, bytes)| booking.finds(lsn, bytes));
        accounts.book(&booking).unwrap();
        assert_eq!(lives(&accounts), [vec![50, 60, 70], vec![0, 40, 70]]);
        // A merge books it out: the accounts know, and it is taken off once. What was not known takes off nothing but its own cell's.
        booked(&mut accounts, &[], &[(10, 50), (210, 30)]).unwrap();
        assert_eq!(lives(&accounts), [vec![0, 60, 40], vec![0, 40, 40]]);
        // Cells that became a volume, which kept 40; then one that had kept more: nothing there is worth compacting again. What it did not
        // keep is superseded, but for what a flush has yet to find.
        for (kept_bytes, fresh_bytes, expected) in
            [(40, 0, 40), (55, 0, 55), (99, 9, 60), (30, 10, 40), (5, 50, 40), (20, 0, 20), (60, 0, 60)]
        {
            let generation = 1 + accounts.generation_between(0, 200);
            let compacted = Compacted { kept_bytes, fresh_bytes, ..compacted(0, 200, generation, 44) };
            accounts.replace(&compacted).unwrap();
            assert_eq!(lives(&accounts), [vec![60, 40], vec![expected, 40]], "{compacted:?}");
        }
        // One look may stand for more than lives.
        let mut booking = Booking::new(100);
        booking.finds(20, 99);
        accounts.book(&booking).unwrap();
        assert_eq!(lives(&accounts), [vec![60, 40], vec![0, 40]]);
        let mut booking = Booking::new(100);
        booking.leaves(20, 60, 99);
        accounts.book(&booking).unwrap();
        assert_eq!(lives(&accounts), [vec![0, 40], vec![0, 40]]);
    }

    #[test]
    fn notes_of_before_what_is_remembered_or_superseded_or_kept_are_read() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10)], &[]).unwrap();
        accounts.replace(&compacted(0, 200, 1, 50)).unwrap();
        let mut out = Writer::new();
        accounts.lay(&mut out);
        let mut bytes = out.into_vec();
        for (version, fewer) in [(3, 24), (2, 8), (1, 8)] {
            bytes[0] = version;
            bytes.truncate(bytes.len() - fewer);
            assert_eq!(Accounts::read(&mut Reader::new(&bytes)).as_ref(), Ok(&accounts), "{version}");
        }
    }

    #[test]
    fn the_note_is_read_back_and_every_cut_or_impossible_one_refused() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10), (250, 7)], &[]).unwrap();
        let mut booking = Booking::new(100);
        booking.finds(250, 5);
        accounts.book(&booking).unwrap();
        let hides = Hides { bytes: 20, from: 30, to: 40 };
        accounts.replace(&Compacted { hides, ..compacted(0, 200, 1, 50) }).unwrap();
        let mut out = Writer::new();
        accounts.lay(&mut out);
        let bytes = out.into_vec();
        assert_eq!(Accounts::read(&mut Reader::new(&bytes)), Ok(accounts.clone()));
        for end in 0..bytes.len() {
            assert!(Accounts::read(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
        for (at, byte) in [(0, 5), (1, 0), (9, 150), (29, 0)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert!(Accounts::read(&mut Reader::new(&wrong)).is_err(), "{at}");
        }
    }
}
