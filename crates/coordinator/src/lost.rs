//! Decisions that were told and are not in the log: told before they were durable (RPO > 0) and taken by a power cut, or
//! made behind the copy that somebody put back.
//!
//! A log that acknowledges before it syncs may lose the end of what it acknowledged when the operating system dies. Its
//! next opening says so, and from then on nobody presumes an abort for a transaction whose client began in an earlier
//! opening: [`Coordinator::may_be_lost`]. Recovery looks for a committed sibling, and without one does as
//! [`LostDecision`] says. That is never taken back: a late PREPARE of such a client may come at any time, and costs a
//! person's look, not a half transaction.
//! An older copy that is put back looks like a power cut that took nothing, so a person has to say that it is one
//! (`Config::is_restored`); then the same is true of it. And no client of before resumes: others may have decided against it behind the copy.
//! Where nobody has said so, a branch that no client of ours can have begun says it ([`State::loses_up_to`]).
//! Deliberately absent: which transactions those are. Exactly that is lost.

use assent_ids::{Epoch, Incarnation, Lsn, TxId};
use assent_journal::{JournalError, Log, Ticket};

use crate::coordinator::State;
use crate::record::{self, Opened};
use crate::{Coordinator, Standing, lay};

/// What becomes of a prepared branch whose decision may be lost and of which no sibling is known to be committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostDecision {
    /// It stays prepared and is reported until a person decides.
    #[default]
    Hold,
    /// It is rolled back. A sibling that was committed and cannot be asked makes that half a transaction.
    Rollback,
}

impl Coordinator {
    /// Whether this transaction, undecided as far as is known, may have been decided all the same. Stays so until
    /// somebody decides it, over restarts.
    #[must_use]
    pub fn may_be_lost(&self, tx: TxId) -> bool {
        self.state().may_be_lost(tx)
    }

    /// Prepared, undecided, perhaps lost, and left to a person. Walks those of earlier openings only, or of this one where it has met a stranger.
    pub(crate) fn held(&self, state: &State) -> u64 {
        if self.config.lost_decision == LostDecision::Rollback {
            return 0;
        }
        let end = TxId { incarnation: Incarnation { epoch: state.opened.lost_below, number: 0 }, counter: 0 };
        let held = state.table.watched_before(end).filter(|tx| state.is_left(*tx)).count();
        u64::try_from(held).unwrap_or(u64::MAX)
    }
}

impl State {
    pub(crate) fn may_be_lost(&self, tx: TxId) -> bool {
        tx.incarnation.epoch < self.opened.lost_below && self.table.get(tx).is_none()
    }

    /// The same, and no client of this opening is at it.
    pub(crate) fn is_left(&self, tx: TxId) -> bool {
        let is_at_it = || matches!(self.clients.standing(tx.incarnation), Standing::Connected | Standing::Lost);
        self.may_be_lost(tx) && (tx.incarnation.epoch < self.opened.epoch || !is_at_it())
    }

    /// Decisions of clients that are not durable yet, where they may be told before.
    pub(crate) fn unsynced(&mut self, durable: Lsn) -> u64 {
        while self.unsynced.front().is_some_and(|end| *end <= durable) {
            _ = self.unsynced.pop_front();
        }
        u64::try_from(self.unsynced.len()).unwrap_or(u64::MAX)
    }

    /// What clients of openings up to this one have prepared may have been decided elsewhere, from now on. Nothing, where that is known.
    pub(crate) fn loses_up_to(
        &mut self,
        log: &dyn Log,
        epoch: Epoch,
        at_ms: u64,
    ) -> Result<Option<Ticket>, JournalError> {
        let lost_below = Epoch(epoch.0.saturating_add(1));
        if lost_below <= self.opened.lost_below {
            return Ok(None);
        }
        let opened = Opened { epoch: log.epoch(), is_lazy: log.is_lazy(), lost_below };
        let ticket = self.append(log, record::OPENED, &[&lay::opened(at_ms, &opened)])?;
        self.opened = opened;
        Ok(Some(ticket))
    }

    /// Looks for what earlier openings may have lost, once, before anything is served. Durable when it returns.
    ///
    /// An opening serves only behind its own record. So one that left none, between the last that did and this, may have
    /// been the one that was told of the loss by its log, and died with the news: that counts as a loss.
    pub(crate) fn look_for_lost(&mut self, log: &dyn Log, is_restored: bool, at_ms: u64) -> Result<(), JournalError> {
        let (before, epoch) = (self.opened, log.epoch());
        let is_missing = before.is_lazy && epoch.0 > before.epoch.0.saturating_add(1);
        let is_lost = log.may_have_lost() || is_missing || is_restored;
        let lost_below = if is_lost { epoch.max(before.lost_below) } else { before.lost_below };
        self.opened = Opened { epoch, is_lazy: log.is_lazy(), lost_below };
        if !(is_lost || self.opened.is_lazy || before.is_lazy) || log.state() == assent_journal::State::Closed {
            return Ok(());
        }
        let ticket = self.append(log, record::OPENED, &[&lay::opened(at_ms, &self.opened)])?;
        log.wait_durable(ticket)
    }
}
