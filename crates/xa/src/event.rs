//! What goes into a commit and what comes out.
//!
//! Walk: [`Event`] in · [`Command`] out · [`Phase`] where it stands between · [`StepError`] what cannot happen there ·
//! [`Trust`] and [`Pace`] are chosen once.

use assent_kind::Kind;

use crate::{DecideError, Outcome, Reply, Task};

/// Whether a resource can lose a vote that it gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Its votes outlive it: after a durable commit, "I do not know that branch" means that it has been committed.
    #[default]
    KeepsVotes,
    /// A fail-over to a replica may lose one: "I do not know" says nothing, the branch is left to recovery.
    MayLoseVotes,
}

/// Which branches are prepared at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// All of them: one round.
    #[default]
    Together,
    /// All but the last, then the last: one round more, but when all the others were read-only the last one commits in
    /// one phase, without a decision and its sync. For work that mostly reads.
    LastAlone,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The application's work is done and shall commit.
    Commit,
    /// The application's work shall be undone.
    Rollback,
    /// A branch answered what it was told last.
    Answer {
        /// Which one, by its position.
        branch: u16,
        /// What it said.
        reply: Reply,
    },
    /// The decision is durable.
    Decided(Outcome),
    /// This question was refused, surely: any kind but `InDoubt`. Only of the first question that means a rollback.
    NotDecided(DecideError),
    /// The answer was lost: it may have been decided.
    DecisionInDoubt,
    /// At rest: try again what is unfinished or in doubt.
    Retry,
}

impl From<Result<Outcome, DecideError>> for Event {
    fn from(answer: Result<Outcome, DecideError>) -> Self {
        match answer {
            Ok(outcome) => Event::Decided(outcome),
            Err(error) if error.kind == Kind::InDoubt => Event::DecisionInDoubt,
            Err(error) => Event::NotDecided(error),
        }
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Tell a branch. All of a round are sent before the first is received.
    Send {
        /// Which one, by its position.
        branch: u16,
        /// What.
        task: Task,
    },
    /// Ask for the decision to commit.
    Decide {
        /// The branches that voted yes.
        yes: Vec<u16>,
        /// Whether it is asked for the first time.
        first: bool,
    },
    /// Ask what the row of the last resource says, which has not answered.
    Settle,
    /// Tell the decider that the decision may be forgotten: every branch is finished.
    Finished,
    /// Tell the decider that the outcome is known here, and that unfinished branches are left to recovery.
    Acknowledged,
}

/// Where a commit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The application works on its branches.
    Working,
    /// Told to end, in order to commit.
    Ending,
    /// Told to end, in order to roll back.
    Stopping,
    /// Told to prepare.
    Preparing,
    /// The only branch with something to commit was told to commit in one phase.
    OnePhase,
    /// All others have voted, and the last resource was told to decide.
    Settling,
    /// The decision has been asked for.
    Deciding,
    /// Told to commit.
    Committing,
    /// Told to roll back.
    RollingBack,
    /// Told to forget heuristic outcomes that agree with the decision.
    Forgetting,
    /// Nothing more is asked.
    Resting,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 11] = [
        Phase::Working,
        Phase::Ending,
        Phase::Stopping,
        Phase::Preparing,
        Phase::OnePhase,
        Phase::Settling,
        Phase::Deciding,
        Phase::Committing,
        Phase::RollingBack,
        Phase::Forgetting,
        Phase::Resting,
    ];
}

/// An event that cannot happen where the commit stands. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// A branch answered that was not asked, or that there is not.
    #[error("branch {branch} answered, but was not asked ({phase:?})")]
    NotAsked {
        /// Its position.
        branch: u16,
        /// Where the commit stands.
        phase: Phase,
    },
    /// Any other event.
    #[error("{event} cannot happen while the commit is {phase:?}")]
    OutOfPhase {
        /// The event's name.
        event: &'static str,
        /// Where the commit stands.
        phase: Phase,
    },
}

impl StepError {
    /// Always a broken promise of whoever drives.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind::Internal
    }
}

impl Event {
    /// Its name, for messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Commit => "commit",
            Event::Rollback => "rollback",
            Event::Answer { .. } => "an answer",
            Event::Decided(_) => "a decision",
            Event::NotDecided(_) => "a refused decision",
            Event::DecisionInDoubt => "a decision in doubt",
            Event::Retry => "a retry",
        }
    }
}
