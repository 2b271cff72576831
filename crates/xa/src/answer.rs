//! What a branch's answer means: one table from (what it was told, what it said) to where it stands.
//!
//! Walk: [`Task`] is a verb without its XID · [`stand_after`] is the table · [`fate_after`] is what the application will be
//! told of the branch; a reply that does not fit its verb counts as
//! lost, because it says nothing.

use assent_ids::Xid;
use assent_kind::Kind;

use crate::tx::Fate;
use crate::{Heuristic, Native, Reply, Trust, Verb, Vote};

/// What a branch is told during a commit: a [`Verb`] without its XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// The work is done, well or not.
    End {
        /// Whether the branch is meant to commit.
        success: bool,
    },
    /// Vote.
    Prepare,
    /// Commit a prepared branch.
    Commit,
    /// Commit the only branch.
    CommitOnePhase,
    /// Commit the last resource, and keep the decision there.
    CommitLast,
    /// Roll back.
    Rollback,
    /// Forget a heuristic outcome.
    Forget,
}

impl Task {
    /// The verb for this branch.
    #[must_use]
    pub const fn verb(self, xid: Xid) -> Verb {
        match self {
            Task::End { success } => Verb::End { xid, success },
            Task::Prepare => Verb::Prepare(xid),
            Task::Commit => Verb::Commit(xid),
            Task::CommitOnePhase => Verb::CommitOnePhase(xid),
            // The votes are the driver's to add.
            Task::CommitLast => Verb::CommitLast { xid, votes: Vec::new() },
            Task::Rollback => Verb::Rollback(xid),
            Task::Forget => Verb::Forget(xid),
        }
    }
}

/// Where a branch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Working, or ended: nothing voted yet.
    Working,
    /// Ended, and to decide when all others have voted.
    Last,
    /// It was told to decide, and its answer is missing: its row tells.
    Asked(Native),
    /// It has committed, and kept no decision: somebody has changed its table. The log decides for all others.
    Unrecorded(Native),
    /// Prepared.
    Voted,
    /// It cannot commit any more and is still to be rolled back.
    Doomed,
    /// Nothing to do any more: read-only, committed or rolled back.
    Finished,
    /// Committed, concluded from "unknown" after a durable commit.
    Inferred,
    /// It finished by itself, as decided; the resource still remembers.
    Agrees(Heuristic),
    /// It finished by itself, against the decision or partly. Stays until a person clears it.
    Heuristic(Heuristic, Native),
    /// The answer to a verb of phase two is missing; it is told again, by us or by recovery.
    Unfinished {
        /// What it was told.
        task: Task,
        /// Why it is unfinished.
        native: Native,
    },
    /// One phase: the answer is missing, and nobody else knows.
    InDoubt(Native),
}

/// Why a branch keeps the others from committing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct No {
    pub(crate) kind: Kind,
    pub(crate) native: Native,
}

/// Where a branch stands after its answer, and whether that says no to the whole transaction.
pub(crate) fn stand_after(task: Task, reply: Reply, trust: Trust) -> (Stand, Option<No>) {
    match task {
        Task::End { .. } => ended(reply),
        Task::Prepare => prepared(reply),
        Task::CommitOnePhase => one_phase(reply),
        Task::CommitLast => settled(reply),
        Task::Commit => (committed(reply, trust), None),
        Task::Rollback => (rolled_back(reply), None),
        Task::Forget => (forgotten(reply), None),
    }
}

/// What became of the branch that stands there after this task; none as long as it may be told more, and to forget says
/// nothing new.
pub(crate) const fn fate_after(task: Task, stand: &Stand, said_no: bool) -> Option<Fate> {
    Some(match stand {
        Stand::Working | Stand::Last | Stand::Asked(_) | Stand::Voted | Stand::Doomed => return None,
        _ if matches!(task, Task::Forget) => return None,
        Stand::Agrees(heuristic) | Stand::Heuristic(heuristic, _) => match heuristic {
            Heuristic::Committed => Fate::Committed,
            Heuristic::RolledBack => Fate::RolledBack,
            Heuristic::Mixed => Fate::Mixed,
            Heuristic::Hazard => Fate::Hazard,
        },
        Stand::InDoubt(_) => Fate::Hazard,
        Stand::Inferred | Stand::Unrecorded(_) => Fate::Committed,
        // An unfinished one is bound to: nobody tells it anything else.
        Stand::Finished | Stand::Unfinished { .. } => match task {
            Task::Rollback => Fate::RolledBack,
            _ if said_no => Fate::RolledBack,
            Task::Commit | Task::CommitOnePhase | Task::CommitLast => Fate::Committed,
            Task::End { .. } | Task::Prepare | Task::Forget => Fate::Nothing,
        },
    })
}

fn ended(reply: Reply) -> (Stand, Option<No>) {
    match reply {
        Reply::Done => (Stand::Working, None),
        // The resource knows already that it has nothing to commit, and has ended the branch.
        Reply::Vote(Vote::ReadOnly) => (Stand::Finished, None),
        Reply::Vote(Vote::Decides) => (Stand::Last, None),
        // XA, xa_end [XA_RB*]: the branch is marked, not yet rolled back.
        other => doomed(other),
    }
}

fn prepared(reply: Reply) -> (Stand, Option<No>) {
    match reply {
        Reply::Vote(Vote::Yes) => (Stand::Voted, None),
        Reply::Vote(Vote::ReadOnly) => (Stand::Finished, None),
        // XA, xa_prepare [XA_RB*]: rolled back and forgotten.
        Reply::RolledBack(native) => (Stand::Finished, Some(No { kind: Kind::RolledBack, native })),
        // Presumed abort: whatever became of it, it is rolled back now, and once more when it turns up in a scan.
        other => doomed(other),
    }
}

fn one_phase(reply: Reply) -> (Stand, Option<No>) {
    match reply {
        Reply::Done => (Stand::Finished, None),
        // Nobody else could commit a branch that is not prepared: one that is unknown was rolled back.
        Reply::RolledBack(native) | Reply::Unknown(native) => {
            (Stand::Finished, Some(No { kind: Kind::RolledBack, native }))
        }
        Reply::Heuristic(Heuristic::Committed, _) => (Stand::Agrees(Heuristic::Committed), None),
        // The branch alone decides, so what it decided is the outcome.
        Reply::Heuristic(Heuristic::RolledBack, native) => {
            (Stand::Agrees(Heuristic::RolledBack), Some(No { kind: Kind::RolledBack, native }))
        }
        Reply::Heuristic(heuristic, native) => (Stand::Heuristic(heuristic, native), None),
        Reply::Refused(kind, native) if kind != Kind::InDoubt => (Stand::Doomed, Some(No { kind, native })),
        other => (Stand::InDoubt(lost(other)), None),
    }
}

/// The last resource decides for all: only what it says for certain counts, anything else its row tells.
fn settled(reply: Reply) -> (Stand, Option<No>) {
    match reply {
        Reply::Done => (Stand::Finished, None),
        // Also where recovery's row was first.
        Reply::RolledBack(native) | Reply::Unknown(native) => {
            (Stand::Finished, Some(No { kind: Kind::RolledBack, native }))
        }
        Reply::Refused(kind, native) if kind != Kind::InDoubt => (Stand::Doomed, Some(No { kind, native })),
        Reply::Heuristic(Heuristic::Committed, native) => (Stand::Unrecorded(native), None),
        other => (Stand::Asked(lost(other)), None),
    }
}

fn committed(reply: Reply, trust: Trust) -> Stand {
    match reply {
        Reply::Done => Stand::Finished,
        Reply::Heuristic(Heuristic::Committed, _) => Stand::Agrees(Heuristic::Committed),
        Reply::Heuristic(heuristic, native) => Stand::Heuristic(heuristic, native),
        // It voted yes and broke its promise.
        Reply::RolledBack(native) => Stand::Heuristic(Heuristic::RolledBack, native),
        // Nothing of Assent rolls a branch back after a durable commit: recovery was here before.
        Reply::Unknown(_) if trust == Trust::KeepsVotes => Stand::Inferred,
        other => Stand::Unfinished { task: Task::Commit, native: lost(other) },
    }
}

fn rolled_back(reply: Reply) -> Stand {
    match reply {
        // Presumed abort: a branch that is not there has nothing to undo.
        Reply::Done | Reply::RolledBack(_) | Reply::Unknown(_) => Stand::Finished,
        Reply::Heuristic(Heuristic::RolledBack, _) => Stand::Agrees(Heuristic::RolledBack),
        Reply::Heuristic(heuristic, native) => Stand::Heuristic(heuristic, native),
        other => Stand::Unfinished { task: Task::Rollback, native: lost(other) },
    }
}

fn forgotten(reply: Reply) -> Stand {
    match reply {
        Reply::Done | Reply::Unknown(_) => Stand::Finished,
        other => Stand::Unfinished { task: Task::Forget, native: lost(other) },
    }
}

fn doomed(reply: Reply) -> (Stand, Option<No>) {
    let no = match reply {
        Reply::RolledBack(native) => No { kind: Kind::RolledBack, native },
        Reply::Unknown(native) => No { kind: Kind::NotFound, native },
        Reply::Refused(kind, native) => No { kind, native },
        Reply::Lost(native) => No { kind: Kind::Unavailable, native },
        other => No { kind: Kind::Internal, native: lost(other) },
    };
    (Stand::Doomed, Some(no))
}

/// The words of a reply that did not answer the verb.
fn lost(reply: Reply) -> Native {
    match reply {
        Reply::Lost(native)
        | Reply::Refused(_, native)
        | Reply::Unknown(native)
        | Reply::RolledBack(native)
        | Reply::Heuristic(_, native) => native,
        Reply::Done | Reply::Vote(_) | Reply::Listed(_) | Reply::Past(_) | Reply::Row(_) | Reply::Rows(_) => {
            Native { code: String::new(), message: format!("{} does not answer that", reply.name()) }
        }
    }
}
