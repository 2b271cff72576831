//! What the application is told in the words of the TX interface: one rule, from what became of each branch.
//!
//! Walk: [`Fate`] is one branch's end · [`TxReturn::of`] folds them all · [`TxReturn::of_commit`] is for a commit that had
//! to be made a rollback before it began.
//! Deliberately absent: TX_ERROR, TX_PROTOCOL_ERROR and the others that say nothing of an outcome: they are a
//! [`Kind`](assent_kind::Kind)'s; and `*_NO_BEGIN`, which say that a chained transaction did not begin.
//! Source: X/Open CAE Specification C504 (TX), tx_commit() and tx_rollback(), RETURN VALUE, and appendix B (the tables of one
//! and of several resource managers). Where those tables answer TX_FAIL because a branch could not be told, we go on: the
//! branch is unfinished and recovery's, and the outcome is the decided one.

use crate::Outcome;

/// What became of one branch, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It had nothing to commit.
    Nothing,
    /// Committed, or bound to be.
    Committed,
    /// Rolled back, or bound to be.
    RolledBack,
    /// Partly each.
    Mixed,
    /// It may be either.
    Hazard,
}

/// The return value of tx_commit() and tx_rollback().
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxReturn {
    /// TX_OK: what was asked has happened, or is bound to.
    Ok,
    /// TX_ROLLBACK: a commit was asked, and everything is rolled back.
    Rollback,
    /// TX_MIXED: partly committed and partly rolled back.
    Mixed,
    /// TX_HAZARD: some of it may have been committed and some rolled back.
    Hazard,
    /// TX_COMMITTED: a rollback was asked, and every branch had been committed by its resource.
    Committed,
    /// TX_FAIL: a promise of ours is broken; nothing is known.
    #[default]
    Fail,
}

impl TxReturn {
    /// The number in `tx.h`.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            TxReturn::Ok => 0,
            TxReturn::Rollback => -2,
            TxReturn::Mixed => -3,
            TxReturn::Hazard => -4,
            TxReturn::Fail => -7,
            TxReturn::Committed => -9,
        }
    }

    /// The name in `tx.h`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TxReturn::Ok => "TX_OK",
            TxReturn::Rollback => "TX_ROLLBACK",
            TxReturn::Mixed => "TX_MIXED",
            TxReturn::Hazard => "TX_HAZARD",
            TxReturn::Fail => "TX_FAIL",
            TxReturn::Committed => "TX_COMMITTED",
        }
    }

    /// What is returned when this was `asked`, that was `meant` in the end, and the branches ended so.
    ///
    /// A known mixture outweighs a possible one: it is not undone by learning more.
    pub(crate) fn of(asked: Outcome, meant: Outcome, fates: impl Iterator<Item = Fate>) -> Self {
        let (mut committed, mut rolled_back, mut mixed, mut hazard) = (false, false, false, false);
        for fate in fates {
            match fate {
                Fate::Nothing => {}
                Fate::Committed => committed = true,
                Fate::RolledBack => rolled_back = true,
                Fate::Mixed => mixed = true,
                Fate::Hazard => hazard = true,
            }
        }
        match (asked, meant) {
            _ if mixed || committed && rolled_back => TxReturn::Mixed,
            _ if hazard => TxReturn::Hazard,
            // Appendix B: what one branch committed of a commit that failed is not the whole work.
            (Outcome::Committed, Outcome::RolledBack) if committed => TxReturn::Mixed,
            (Outcome::Committed, _) if rolled_back => TxReturn::Rollback,
            (Outcome::RolledBack, _) if committed => TxReturn::Committed,
            _ => TxReturn::Ok,
        }
    }

    /// Of a rollback, what it means to whoever had asked for a commit.
    #[must_use]
    pub const fn of_commit(self) -> Self {
        match self {
            TxReturn::Ok => TxReturn::Rollback,
            TxReturn::Committed => TxReturn::Mixed,
            other => other,
        }
    }
}
