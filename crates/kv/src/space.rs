//! What values take on disk and what of it lives, for who asks with each write: a few numbers, read without a lock.
//!
//! Walk: the ledger tells with each commit of its accounts ([`Space::tell`]) · a compaction tells whether it found something to do
//! ([`Space::can_shrink`]) · [`Space::debt`] is what is too much.
//! Deliberately absent: where it lives; that is the accounts'.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::vault::Accounts;

/// Each number is of the newest commit; two of them may be of neighbouring ones.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Bytes of volumes.
    compacted: AtomicU64,
    /// From here on the journal has the values.
    raw_from: AtomicU64,
    live: AtomicU64,
    /// Whether the last look of a compaction found something to do.
    can_shrink: AtomicBool,
}

/// What is too much on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Bytes beyond what is wished, as far as compactions can give them back.
    pub(crate) bytes: u64,
    /// Bytes that live.
    pub(crate) live: u64,
}

impl Space {
    pub(crate) fn tell(&self, accounts: &Accounts) {
        let raw_from = accounts.raw_from();
        let (compacted, live) = accounts.sums(raw_from);
        self.compacted.store(compacted, Ordering::Relaxed);
        self.live.store(live, Ordering::Relaxed);
        self.raw_from.store(raw_from, Ordering::Relaxed);
    }

    /// Where nothing can be compacted, now or at all, nobody waits for it.
    pub(crate) fn can_shrink(&self, can: bool) {
        self.can_shrink.store(can, Ordering::Relaxed);
    }

    /// What is beyond so many bytes for each hundred that live; `log_end`: about where the journal ends.
    pub(crate) fn debt(&self, log_end: u64, percent: u32) -> Debt {
        let live = self.live.load(Ordering::Relaxed);
        if !self.can_shrink.load(Ordering::Relaxed) {
            return Debt { bytes: 0, live };
        }
        let raw = log_end.saturating_sub(self.raw_from.load(Ordering::Relaxed));
        let bytes = self.compacted.load(Ordering::Relaxed).saturating_add(raw);
        Debt { bytes: bytes.saturating_sub(allowed(live, percent)), live }
    }
}

/// So many bytes for each hundred that live.
pub(crate) const fn allowed(live: u64, percent: u32) -> u64 {
    live.saturating_mul(percent as u64) / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::Booking;

    #[test]
    fn a_debt_is_what_is_too_much_and_none_where_nothing_can_be_done() {
        let mut accounts = Accounts::new(100);
        let mut booking = Booking::new(100);
        booking.enters(0, 50);
        accounts.book(&booking).unwrap();
        let space = Space::default();
        space.tell(&accounts);
        assert_eq!(space.debt(1_000, 140), Debt { bytes: 0, live: 50 }, "nobody has looked");
        space.can_shrink(true);
        assert_eq!(space.debt(1_000, 140), Debt { bytes: 930, live: 50 });
        assert_eq!(space.debt(70, 140), Debt { bytes: 0, live: 50 });
        assert_eq!(space.debt(71, 140), Debt { bytes: 1, live: 50 });
        space.can_shrink(false);
        assert_eq!(space.debt(1_000, 140).bytes, 0);
    }
}
