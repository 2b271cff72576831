//! What the accounts still count as living, and what is known to be superseded: bytes by cell of the journal.
//!
//! A value is booked out when its row leaves the ledger's files, by the merge that meets both rows. Until then the accounts say more
//! than lives: of values of 8 KB, four small runs at the first level hide a quarter of a gigabyte. A flush that looks up what its
//! rows supersede knows sooner. Kept in memory alone: an open knows nothing of it, and merges put it right.
//!
//! Walk: a flush that counts hands over what it found ([`Superseded::add`]) · what is booked out is taken off ([`Superseded::left`]) ·
//! [`Accounts::without`](crate::vault::Accounts::without) are the accounts as they will be.
//! Deliberately absent: exactness. It says what is worth compacting and how much is too much; what lives, the ledger says.

use std::collections::BTreeMap;

use crate::vault::Booking;

/// Bytes that will be booked out, by the first place of their cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superseded {
    cells: BTreeMap<u64, u64>,
}

impl Superseded {
    /// What a flush has found.
    pub(crate) fn add(&mut self, found: &Self) {
        for (cell, bytes) in &found.cells {
            *self.cells.entry(*cell).or_default() += bytes;
        }
    }

    /// A value of so many bytes in this cell is superseded.
    pub(crate) fn note(&mut self, cell: u64, bytes: u64) {
        *self.cells.entry(cell).or_default() += bytes;
    }

    /// What leaves by this booking is off the accounts.
    pub(crate) fn left(&mut self, booking: &Booking) {
        for (cell, bytes) in booking.leaving() {
            if let Some(known) = self.cells.get_mut(&cell) {
                *known = known.saturating_sub(bytes);
            }
        }
        self.cells.retain(|_, bytes| *bytes > 0);
    }

    /// A compaction has looked: of the cells of a range no more than so many bytes are superseded, what a flush found meanwhile left out.
    pub(crate) fn at_most(&mut self, (first, end): (u64, u64), bytes: u64) {
        let known = self.between(first, end);
        if known > bytes {
            // Each of its part: what is booked out later is taken off cell by cell.
            for (_, own) in self.cells.range_mut(first..end) {
                let part = u128::from(*own) * u128::from(bytes) / u128::from(known);
                *own = u64::try_from(part).unwrap_or(0);
            }
            self.cells.retain(|_, bytes| *bytes > 0);
        }
    }

    /// Of the cells of a range.
    pub(crate) fn between(&self, first: u64, end: u64) -> u64 {
        self.cells.range(first..end).map(|(_, bytes)| *bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::{Accounts, Compacted, Facts};

    #[test]
    fn accounts_without_what_is_superseded_are_what_they_will_be() {
        let mut accounts = Accounts::new(100);
        let mut booking = Booking::new(100);
        [(10, 50), (110, 60), (210, 70)].into_iter().for_each(|(lsn, bytes)| booking.enters(lsn, bytes));
        accounts.book(&booking).unwrap();
        let (mut superseded, mut found) = (Superseded::default(), Superseded::default());
        found.note(0, 50);
        found.note(100, 20);
        superseded.add(&found);
        let lives = |accounts: &Accounts| accounts.cells(300).map(|cell| cell.live).collect::<Vec<_>>();
        assert_eq!(lives(&accounts.without(&superseded)), [0, 40, 70]);
        // A merge books it out: the accounts know, and it is taken off once.
        let mut booking = Booking::new(100);
        booking.leaves(10, 50);
        accounts.book(&booking).unwrap();
        superseded.left(&booking);
        assert_eq!((lives(&accounts), lives(&accounts.without(&superseded))), (vec![0, 60, 70], vec![0, 40, 70]));
        // What leaves and was not known takes nothing off but its own cell.
        let mut booking = Booking::new(100);
        booking.leaves(210, 30);
        accounts.book(&booking).unwrap();
        superseded.left(&booking);
        assert_eq!(superseded.between(0, 300), 20);
        // Cells that became a volume.
        let facts = Facts { first: 0, end: 200, generation: 1, bytes: 44, ..Facts::default() };
        let compacted =
            Compacted { first: 0, end: 200, generation: 1, as_of: 9, facts, kept_bytes: 40, ..Compacted::default() };
        accounts.replace(&compacted).unwrap();
        assert_eq!(accounts.volume_of(0).map(|volume| volume.live), Some(60));
        assert_eq!(accounts.without(&superseded).volume_of(0).map(|volume| volume.live), Some(40));
        // It had kept more: nothing there is worth compacting again.
        superseded.at_most((0, 200), 5);
        assert_eq!(accounts.without(&superseded).volume_of(0).map(|volume| volume.live), Some(55));
        superseded.at_most((0, 200), 0);
        assert_eq!(accounts.without(&superseded), accounts);
    }

    #[test]
    fn nothing_stays_noted_of_what_a_compaction_capped_and_a_merge_booked_out() {
        let mut superseded = Superseded::default();
        let mut booking = Booking::new(100);
        for (cell, bytes) in [(0, 30), (100, 20), (200, 40)] {
            superseded.note(cell, bytes);
            booking.leaves(cell, bytes);
        }
        superseded.at_most((0, 300), 60);
        assert!((58..=60).contains(&superseded.between(0, 300)), "{superseded:?}");
        superseded.left(&booking);
        assert_eq!(superseded, Superseded::default());
    }
}
