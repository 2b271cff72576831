//! What lives where: for each volume its bytes and how many of them the ledger still points to.
//!
//! A value is booked into its volume when it reaches the ledger's first run and out when it leaves, each time with the bytes
//! that it takes in a volume. The journal from `raw_from` on is counted in cells of one length, however it is cut into
//! files: a cell is a volume that has not been compacted. Accounts are kept in the ledger's note, committed with the run
//! that they speak of; so they never drift, and a mismatch is a broken promise of ours that is told, not mended.
//!
//! Walk: [`Booking`] gathers what one flush or merge does · [`Accounts::book`] takes it, or refuses it wholly ·
//! [`Accounts::replace`] after a compaction · [`Accounts::lay`] and [`Accounts::read`] for the note.

use std::collections::BTreeMap;

use assent_frame::{Malformed, Reader, Writer};

use crate::vault::seal::Facts;
use crate::vault::{Compacted, VaultError};

const VERSION: u8 = 1;

/// One volume's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its range.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Bytes on disk; 0 for a range of which nothing was left: there is no file.
    pub(crate) bytes: u64,
    /// Bytes of them that the ledger points to.
    pub(crate) live: u64,
    /// Bytes of them that lived when it was written: the rest are index, seals and what is remembered, and stay as long as it does.
    pub(crate) born: u64,
    /// How often what it holds has outlived a compaction; 0 for a cell of the journal.
    pub(crate) generation: u32,
    /// Nothing in it was dead as of this seq.
    pub(crate) as_of: u64,
}

/// What is booked at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Booking {
    /// By LSN of the entry: bytes that enter, bytes that leave.
    places: BTreeMap<u64, (u64, u64)>,
}

impl Booking {
    /// A value of the entry at this LSN reaches the ledger's first run.
    pub(crate) fn enters(&mut self, lsn: u64, bytes: u64) {
        self.places.entry(lsn).or_default().0 += bytes;
    }

    /// It leaves the ledger for good.
    pub(crate) fn leaves(&mut self, lsn: u64, bytes: u64) {
        self.places.entry(lsn).or_default().1 += bytes;
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

    /// Of a store whose note was lost: these volumes are there, the rest is the journal. Who lives where is told by [`Accounts::admit`].
    pub(crate) fn found<'a>(cell_bytes: u64, raw_from: u64, facts: impl Iterator<Item = &'a Facts>) -> Self {
        let account = |facts: &Facts| {
            let Facts { first, end, bytes, generation, as_of, .. } = *facts;
            (first, Account { first, end, bytes, live: 0, born: bytes, generation, as_of })
        };
        Self { cell_bytes, raw_from, volumes: facts.map(account).collect() }
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
        let compacted: u64 = self.compacted().filter(within).map(|account| account.bytes).sum();
        compacted + end.saturating_sub(first.max(self.raw_from))
    }

    /// As if everything lived in the volume of this range: nobody chooses it then.
    pub(crate) fn spare(&mut self, first: u64) {
        if let Some(account) = self.volumes.get_mut(&first) {
            account.live = account.born;
        }
    }

    /// Compacted volumes with a file, in order.
    pub(crate) fn compacted(&self) -> impl Iterator<Item = &Account> {
        self.volumes.range(..self.raw_from).map(|(_, account)| account).filter(|account| account.bytes > 0)
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
        let (end, bytes) = (first.saturating_add(self.cell_bytes), self.cell_bytes);
        Account { first, end, bytes, live: 0, born: bytes, generation: 0, as_of: 0 }
    }

    /// Bytes on disk and bytes that live, with the journal up to its end.
    pub(crate) fn sums(&self, log_end: u64) -> (u64, u64) {
        let compacted: u64 = self.compacted().map(|account| account.bytes).sum();
        let live = self.volumes.values().map(|account| account.live).sum();
        (compacted + log_end.saturating_sub(self.raw_from), live)
    }

    /// Takes all of a booking, or nothing.
    ///
    /// # Errors
    /// `Account`, naming the volume, if more leaves it than lives in it, or something enters a place that is compacted.
    pub(crate) fn book(&mut self, booking: &Booking) -> Result<(), VaultError> {
        let mut booked: BTreeMap<u64, (Account, u64)> = BTreeMap::new();
        for (lsn, (enters, leaves)) in &booking.places {
            let account = match self.holder(*lsn) {
                Some(account) => *account,
                None if *lsn >= self.raw_from => self.cell_of(*lsn),
                None => {
                    let what = format!("{leaves} bytes at LSN {lsn} leave, and there is no volume");
                    return Err(VaultError::Account { volume: *lsn, what });
                }
            };
            if *enters > 0 && *lsn < self.raw_from {
                let what = format!("{enters} bytes at LSN {lsn} enter, and it is compacted");
                return Err(VaultError::Account { volume: account.first, what });
            }
            let (account, left) = booked.entry(account.first).or_insert((account, 0));
            account.live += enters;
            *left += leaves;
        }
        for (account, left) in booked.values_mut() {
            account.live = account.live.checked_sub(*left).ok_or_else(|| VaultError::Account {
                volume: account.first,
                what: format!("{left} bytes leave, {} live in it", account.live),
            })?;
        }
        for (account, _) in booked.into_values() {
            if account.first < self.raw_from && account.live == 0 && account.bytes == 0 {
                self.volumes.remove(&account.first);
            } else {
                self.volumes.insert(account.first, account);
            }
        }
        Ok(())
    }

    /// A compaction is done: what it read gives way to what it wrote. What lived there lives there still.
    ///
    /// # Errors
    /// `Compaction` if its range is not whole volumes or the first whole cells of the journal. Nothing has changed then.
    pub(crate) fn replace(&mut self, compacted: &Compacted) -> Result<(), VaultError> {
        let Compacted { first, end, generation, as_of, .. } = *compacted;
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
        let live = olds.iter().map(|old| old.live).sum();
        let bytes = compacted.facts.as_ref().map_or(0, |facts| facts.bytes);
        // Also without a file: what is counted as alive there and is not is still going to leave.
        if bytes > 0 || live > 0 {
            let born = compacted.kept_bytes.min(bytes);
            self.volumes.insert(first, Account { first, end, bytes, live, born, generation, as_of });
        }
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
            let Account { first, end, bytes, live, born, generation, as_of } = account;
            out.u64(*first).u64(*end).u64(*bytes).u64(*live).u64(*born).u32(*generation).u64(*as_of);
        }
    }

    /// Reads them back.
    ///
    /// # Errors
    /// [`Malformed`], also if they could not have been laid.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let wrong = |field| Malformed { field };
        if reader.u8("version")? != VERSION {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(first: u64, end: u64, generation: u32, bytes: u64) -> Compacted {
        let facts = (bytes > 0).then(|| Facts { first, end, generation, bytes, ..Facts::default() });
        Compacted { first, end, generation, as_of: 999, facts, kept_bytes: bytes, ..Compacted::default() }
    }

    fn booked(accounts: &mut Accounts, enters: &[(u64, u64)], leaves: &[(u64, u64)]) -> Result<(), VaultError> {
        let mut booking = Booking::default();
        enters.iter().for_each(|(lsn, bytes)| booking.enters(*lsn, *bytes));
        leaves.iter().for_each(|(lsn, bytes)| booking.leaves(*lsn, *bytes));
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
        // A value dies there, and later the rest: without a file the range is remembered until all has left.
        booked(&mut accounts, &[], &[(150, 30)]).unwrap();
        accounts.replace(&compacted(0, 300, 2, 0)).unwrap();
        assert_eq!((accounts.volume_of(0), accounts.compacted().count()), (None, 0));
        assert_eq!(rows(&accounts), [(0, 300, 0, 10), (400, 500, 100, 40)]);
        booked(&mut accounts, &[], &[(0, 10)]).unwrap();
        assert_eq!(rows(&accounts), [(400, 500, 100, 40)]);
    }

    #[test]
    fn a_mismatch_names_the_volume_and_books_nothing() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10), (250, 7)], &[]).unwrap();
        accounts.replace(&compacted(0, 200, 1, 50)).unwrap();
        let before = accounts.clone();
        for (enters, leaves, volume) in [
            (vec![(250, 1)], vec![(10, 11)], 0),
            (vec![], vec![(299, 8)], 200),
            (vec![(10, 1)], vec![], 0),
            (vec![], vec![(510, 1)], 500),
        ] {
            let error = booked(&mut accounts, &enters, &leaves).unwrap_err();
            assert!(matches!(error, VaultError::Account { volume: named, .. } if named == volume), "{error}");
            assert_eq!(accounts, before);
        }
        accounts.replace(&compacted(0, 200, 2, 0)).unwrap();
        booked(&mut accounts, &[], &[(10, 10)]).unwrap();
        assert!(booked(&mut accounts, &[], &[(10, 1)]).is_err(), "a range that is gone");
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
    fn the_note_is_read_back_and_every_cut_or_impossible_one_refused() {
        let mut accounts = Accounts::new(100);
        booked(&mut accounts, &[(10, 10), (250, 7)], &[]).unwrap();
        accounts.replace(&compacted(0, 200, 1, 50)).unwrap();
        let mut out = Writer::new();
        accounts.lay(&mut out);
        let bytes = out.into_vec();
        assert_eq!(Accounts::read(&mut Reader::new(&bytes)), Ok(accounts.clone()));
        for end in 0..bytes.len() {
            assert!(Accounts::read(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
        for (at, byte) in [(0, 2), (1, 0), (9, 150), (29, 0)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert!(Accounts::read(&mut Reader::new(&wrong)).is_err(), "{at}");
        }
    }
}
