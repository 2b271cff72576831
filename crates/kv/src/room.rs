//! A disk that refuses room: what can be given back is, before anybody is refused again.
//!
//! ```text
//!   leave     puts leave room in the journal for deletes, the journal leaves room on the disk for what gives room back
//!   refused   an append, a flush or a merge finds none · who compacts is woken
//!   settle    checkpoint · the note once more, so that both manifests say so · trim: all that was visible then may be compacted
//!   compact   without a least room, of a small share, no more at a time than finds room · until nothing is worth it
//! ```
//! Without that order a small disk stays full: what is dead in the journal may be taken from behind two checkpoints only, and those come
//! each `checkpoint_bytes` of journal, of which there is no room.
//!
//! Walk: [`Kv::appended`], [`Kv::hears_of_room`] · [`Kv::settle`] · [`Kv::in_need`] is how to choose then.
//! Deliberately absent: who compacts. A put is refused where there is no room, and tried again by whoever wants it.

use std::sync::atomic::{AtomicU64, Ordering};

use assent_journal::{JournalError, Leaves};
use assent_kind::Kind;

use crate::desk::Desk;
use crate::ledger::Ledger;
use crate::vault::{Accounts, Chooser};
use crate::{Config, Kv, KvError, Op};

/// What may be dead on a disk that has no room for more, for each byte that lives.
const SHARE: f64 = 1.1;
/// Puts leave such a part of a stretch of the journal to deletes: no more than what is made ahead.
const DELETES_PARTS: u64 = 2;

/// The disk refused room, and not all was compacted since that can be.
#[derive(Debug, Default)]
pub(crate) struct NoRoom {
    /// What was visible then, and one more; 0: nobody was refused.
    refused: AtomicU64,
}

impl NoRoom {
    /// Room was refused while everything up to there was visible.
    pub(crate) fn told(&self, published: u64) {
        self.refused.fetch_max(published.saturating_add(1), Ordering::Relaxed);
    }

    /// Up to where everything was visible when room was refused the last time.
    pub(crate) fn refused(&self) -> Option<u64> {
        self.refused.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whatever can be compacted up to there is. Not if somebody has seen more and was refused since.
    pub(crate) fn ended(&self, published: u64) {
        let seen = published.saturating_add(1);
        _ = self.refused.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Config {
    /// What has to find room on a disk that is full: the ledger's memory, and a volume.
    pub(crate) const fn upkeep_bytes(&self, volume_bytes: u64) -> u64 {
        self.memory_bytes.saturating_add(volume_bytes)
    }
}

impl Kv {
    /// Of the log. Where the disk has no room, whoever compacts hears of it.
    pub(crate) fn appended<T>(&self, done: Result<T, JournalError>) -> Result<T, JournalError> {
        done.inspect_err(|error| self.hears_of_room(error.kind()))
    }

    pub(crate) fn hears_of_room(&self, kind: Kind) {
        if kind == Kind::Full {
            let ledger = &self.shared.ledger;
            ledger.space.no_room.told(ledger.published().0);
            self.wanted.tell();
        }
    }

    /// What an entry has to leave behind it in the journal: the outcomes of prepared branches, `more` of them among these; and where it
    /// brings values, deletes, or nobody could make room on a full disk.
    pub(crate) fn leaves(&self, desk: &Desk, ops: &[Op<'_>], more: u64) -> Leaves {
        let brings = ops.iter().any(|op| matches!(op, Op::Put { .. }));
        let spare_bytes = self.shared.log.stretch_bytes().filter(|_| brings).map_or(0, |bytes| bytes / DELETES_PARTS);
        Leaves::Room { room_bytes: desk.outcomes_bytes(more), spare_bytes }
    }

    /// About the bytes of a volume.
    pub(crate) fn volume_bytes(&self) -> u64 {
        let (_, live) = self.shared.ledger.expected().sums(self.shared.log.end().0);
        self.config.chooser().sized(live).volume_bytes
    }

    /// What the disk has to keep free, for a volume of that length: no less than of a stretch of the journal in which all lives. Nothing
    /// where nothing is ever compacted.
    pub(crate) fn leave_free(&self, volume_bytes: u64) {
        let log = &self.shared.log;
        if let Some(stretch_bytes) = log.stretch_bytes() {
            log.leave_free(self.config.upkeep_bytes(volume_bytes.max(stretch_bytes)));
        }
    }

    /// Whether somebody was refused room, and there is none yet as far as the disk says.
    pub(crate) fn lacks_room(&self) -> bool {
        let free = || self.disk.room(&self.volumes_folder).ok().flatten().map(|room| room.free_bytes);
        let needs = || self.config.upkeep_bytes(self.volume_bytes());
        self.shared.ledger.space.no_room.refused().is_some() && free().is_none_or(|free| free < 2 * needs())
    }

    /// Whether what was visible when room was refused may be compacted: nothing reads it in the journal, whichever manifest an open
    /// believes. `settle` makes it so.
    pub(crate) fn is_settled(&self, published: u64) -> bool {
        self.shared.ledger.is_settled(published)
    }

    /// Room was refused: all that is visible may be compacted from now on.
    ///
    /// # Errors
    /// As the disk or the log says. Nothing is lost by it.
    pub(crate) fn settle(&self) -> Result<(), KvError> {
        let ledger = &self.shared.ledger;
        let Some(published) = ledger.space.no_room.refused() else { return Ok(()) };
        if ledger.durable().0 < published {
            match self.checkpoint() {
                // Whoever writes one makes what is visible durable: the next turn goes on.
                Err(KvError::Busy { .. }) => return Ok(()),
                done => done?,
            }
        }
        if !self.is_settled(published) {
            ledger.renote(None)?;
        }
        // A merge may have settled it, and trims nothing.
        Ok(self.shared.log.trim(ledger.settled().needs)?)
    }

    /// How to choose where the disk has no room: no least room and no share are worth a refusal, and what is written has to find room
    /// before anything is given back, and to take less.
    pub(crate) fn in_need(&self, chooser: &Chooser, accounts: &Accounts) -> Chooser {
        let space_amplification_max = chooser.space_amplification_max.min(SHARE);
        let needy = Chooser { room_bytes_min: 0, space_amplification_max, extra: accounts.extra(), ..*chooser };
        let Some(room) = self.disk.room(&self.volumes_folder).ok().flatten() else { return needy };
        let volume_bytes = needy.volume_bytes.min(needy.live_within(room.free_bytes));
        // Much more may be dead than anybody knows: a merge will say, or whoever reads it.
        let pays = !self.shared.ledger.unknown.is_any();
        Chooser { volume_bytes, fits_bytes: room.free_bytes, pays, ..needy }
    }
}

impl Ledger {
    fn is_settled(&self, published: u64) -> bool {
        let notes = self.notes();
        notes.durable.end.0 >= published && notes.older_needs >= notes.durable.needs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_refused_since_is_not_forgotten() {
        let no_room = NoRoom::default();
        assert_eq!(no_room.refused(), None);
        no_room.told(0);
        assert_eq!(no_room.refused(), Some(0));
        no_room.told(7);
        no_room.told(5);
        no_room.ended(0);
        assert_eq!(no_room.refused(), Some(7));
        no_room.ended(7);
        assert_eq!(no_room.refused(), None);
    }
}
