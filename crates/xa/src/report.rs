//! How a commit ended, for the application and for people.

use assent_kind::Kind;

use crate::{DecideError, Heuristic, Native, Outcome, TxReturn};

/// Why a transaction was rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The application asked for it.
    Asked,
    /// A branch could not commit: the first that said so.
    Branch {
        /// Its position.
        branch: u16,
        /// What kind of trouble: `RolledBack` is a plain no, `Unavailable` a lost answer.
        kind: Kind,
        /// The resource's own words.
        native: Native,
    },
    /// Somebody else (recovery, a time-out, an operator) had decided it before.
    Decided,
    /// No decision could be made, surely.
    NotDecided(DecideError),
}

/// A branch that finished on its own, otherwise than decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeuristicBranch {
    /// Its position.
    pub branch: u16,
    /// What it did.
    pub heuristic: Heuristic,
    /// The resource's own words.
    pub native: Native,
}

/// A branch that still has to be told the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedBranch {
    /// Its position.
    pub branch: u16,
    /// Why: the resource's own words.
    pub native: Native,
}

/// A branch's vote: what it answered when it was asked whether it can commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ballot {
    /// It will do whatever is decided.
    Yes,
    /// It had nothing to commit.
    ReadOnly,
    /// It cannot commit. Also where the answer was lost.
    No,
}

/// What a branch has said for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voice {
    /// Its vote.
    pub ballot: Ballot,
    /// How often it had to be told the outcome again.
    pub retries: u32,
    /// The resource's own words: of a no, or of the last answer to the outcome that was none.
    pub native: Native,
}

/// The outcome, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is committed, or will be: no branch can go the other way.
    Committed,
    /// Everything is rolled back, or will be.
    RolledBack(Cause),
    /// Not known: the decision's answer was lost, or that of the only branch (its words, if it had any).
    InDoubt(Native),
    /// Some branches ended otherwise than decided, or may have.
    Heuristic(Vec<HeuristicBranch>),
}

/// How a commit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The outcome.
    pub verdict: Verdict,
    /// The same in the words of the TX interface, folded over all branches.
    pub returned: TxReturn,
    /// The durable decision, if there was one: one phase and read-only need none.
    pub decided: Option<Outcome>,
    /// Branches left to a retry or to recovery.
    pub unfinished: Vec<UnfinishedBranch>,
    /// Branches that are committed because they did not know themselves any more after a durable commit.
    pub inferred: Vec<u16>,
}

impl Voice {
    pub(crate) const fn new(ballot: Ballot, native: Native) -> Self {
        Self { ballot, retries: 0, native }
    }

    /// A plain yes, told the outcome once: nothing that a decision does not say.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.ballot == Ballot::Yes && self.retries == 0 && self.native == Native::default()
    }
}

impl Report {
    /// Whether no branch waits for anything any more.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.unfinished.is_empty() && !matches!(self.verdict, Verdict::InDoubt(_) | Verdict::Heuristic(_))
    }
}
