//! What a resource manager is to the protocol: verbs go in, replies come out.
//!
//! Walk: `send` puts a verb on its way to every branch · `receive` takes each answer; so branches overlap on one
//! thread. Exactly one `receive` follows each `send`. A driver that can only block does its work on a kept helper
//! thread.
//! Source: X/Open CAE Specification C193 (XA), chapters 3 to 5.

use std::collections::BTreeMap;

use assent_ids::{Mark, NodeId, TxId, Xid};
use assent_kind::Kind;

/// So many rows are one answer to [`Verb::Rows`] at most; one that is as long has more behind it.
pub const ROWS_MAX: usize = 4_096;

/// What a branch is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// xa_start: work on this connection belongs to the branch from now on.
    Start(Xid),
    /// xa_end: the work is done. `success` is false where it failed (TMFAIL): the branch can only be rolled back.
    End {
        /// The branch.
        xid: Xid,
        /// Whether the application's work went well.
        success: bool,
    },
    /// xa_prepare: vote, and keep the vote through any crash.
    Prepare(Xid),
    /// xa_commit of a prepared branch.
    Commit(Xid),
    /// xa_commit with TMONEPHASE: the only branch decides for itself.
    CommitOnePhase(Xid),
    /// Commits the ended branch of a last resource, and keeps the decision in its own transaction: as a row that names the
    /// transaction. `Done`: both stand. `RolledBack` or `Refused`: neither does, also where recovery was first.
    /// `Heuristic(Committed)`: the work stands and no row, as somebody has changed the table.
    CommitLast {
        /// The branch.
        xid: Xid,
        /// Of all branches that wait for this decision, as [`crate::lay_votes`] lays them; recovery reads them back.
        votes: Vec<u8>,
    },
    /// xa_rollback, before or after prepare.
    Rollback(Xid),
    /// xa_recover: which prepared or heuristically finished branches of this node are there?
    Recover(NodeId),
    /// xa_forget: the heuristic outcome has been noted.
    Forget(Xid),
    /// Recovery's claim: as long as this connection lives, no other one resolves this node's branches at this resource.
    /// `Done`, also where it is this connection's already; `Refused(Conflict)` while another connection has it.
    Claim(NodeId),
    /// What became of a branch that is not listed, asked with the witness of its vote. Answered by [`Reply::Past`].
    Inquire {
        /// The branch.
        xid: Xid,
        /// What [`Resource::witness`] gave when it voted; may be empty.
        witness: Vec<u8>,
    },
    /// The branch's client is fenced: a session of its that still keeps the prepared branch from others is ended.
    /// `Done` when nothing keeps it (any more): whoever may have had it has gone, and whoever comes later cannot have it.
    /// `Refused(Denied)` where that is not this account's right; sessions of the client that it could end have gone.
    Evict(Xid),
    /// Whether the connection that voted, as its witness says, has gone; without one that can be read, whether every connection of the
    /// branch's client has. Asked before another connection commits the branch or rolls it back. `Done`, also where that
    /// makes no difference; `Refused(Busy)` while one is there, or on its way out.
    Freed {
        /// The branch.
        xid: Xid,
        /// What [`Resource::witness`] gave when it voted; may be empty.
        witness: Vec<u8>,
    },
    /// Which row stands for a transaction whose decision may be one; where none does, recovery's own is put there, durably:
    /// it is rolled back, and [`Verb::CommitLast`] comes too late for ever. Answered by [`Reply::Row`]; `Refused(Busy)` while
    /// a client is about to commit, `Refused(Invalid)` where this is another table, `Refused(Unavailable)` where it is an old primary's.
    Settle {
        /// The coordinator.
        node: NodeId,
        /// The transaction.
        tx: TxId,
        /// Which table, and of when, as the branches say.
        mark: Mark,
    },
    /// The rows of this node that say commit, at most [`ROWS_MAX`] of them in their order. Recovery's own that nobody can come too late for
    /// any more go. Answered by [`Reply::Rows`], also where there is no table.
    Rows {
        /// The coordinator.
        node: NodeId,
        /// Those behind this one.
        after: Option<TxId>,
    },
    /// These transactions are finished: their rows go.
    Clear {
        /// The coordinator.
        node: NodeId,
        /// Which.
        txs: Vec<TxId>,
    },
}

/// A branch's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It will do whatever is decided, also after a crash.
    Yes,
    /// It changed nothing and is finished (XA_RDONLY).
    ReadOnly,
    /// To end alone: it has surely written, and may be prepared as any other or, of one branch in a transaction, decide by
    /// [`Verb::CommitLast`].
    Decides,
}

/// How a resource finished a branch on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Heuristic {
    /// XA_HEURCOM: committed.
    Committed,
    /// XA_HEURRB: rolled back.
    RolledBack,
    /// XA_HEURMIX: partly each.
    Mixed,
    /// XA_HEURHAZ: may be either.
    Hazard,
}

/// What a resource knows of a branch that is no longer listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Past {
    /// It was committed.
    Committed,
    /// It was rolled back.
    RolledBack,
    /// It is there: prepared, or being finished just now.
    Open,
    /// The server is the one that voted, and keeps no memory of finished branches. Who leaves witnesses never says so of
    /// a vote without one.
    Forgotten,
    /// The server is another one than voted, or has lost its place since (a fail-over, a restored backup), or nothing was
    /// kept of the vote: it cannot know.
    Elsewhere(Native),
}

/// The resource manager's own words, kept for people: SQLSTATE, error number, text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    /// `42704`, `1397` or empty.
    pub code: String,
    /// The message.
    pub message: String,
}

/// What a resource's list says of a prepared branch beside its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stay {
    /// Since when it is prepared, in milliseconds since 1970 by the resource's clock.
    pub since_ms: u64,
    /// Where in the resource and whose it is, in words for people.
    pub words: String,
}

/// What a branch answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, and durable where the verb says so: start, end, commit, commit one phase, rollback, forget.
    Done,
    /// The answer to prepare. `ReadOnly` also to end, where the resource knows by then: the branch is finished.
    Vote(Vote),
    /// XA_RB*. To prepare and to one phase, a `no`: the branch is rolled back and gone, nothing follows. To start and to
    /// end: it can only be rolled back, and is told so next.
    RolledBack(Native),
    /// The resource has finished the branch on its own; forget it once that is noted.
    Heuristic(Heuristic, Native),
    /// The resource does not know the branch (XAER_NOTA). Never success by itself.
    Unknown(Native),
    /// It said no in a way that changed nothing: wrong state, no right, no room. Its kind says what to do; in phase two
    /// the branch is kept and tried again.
    Refused(Kind, Native),
    /// No answer, or one that says nothing (connection lost, timed out): the verb may have been done or not.
    Lost(Native),
    /// The answer to recover.
    Listed(Vec<Xid>),
    /// The answer to inquire.
    Past(Past),
    /// The answer to settle: the votes of a row that says commit; none: the row is recovery's.
    Row(Option<Vec<u8>>),
    /// The answer to rows.
    Rows(Vec<(TxId, Vec<u8>)>),
}

impl Reply {
    /// Its name, for messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Reply::Done => "done",
            Reply::Vote(Vote::Yes) => "a vote of yes",
            Reply::Vote(Vote::ReadOnly) => "read-only",
            Reply::Vote(Vote::Decides) => "ready to decide",
            Reply::RolledBack(_) => "rolled back",
            Reply::Heuristic(..) => "a heuristic outcome",
            Reply::Unknown(_) => "an unknown branch",
            Reply::Refused(..) => "a refusal",
            Reply::Lost(_) => "a lost answer",
            Reply::Listed(_) => "a list",
            Reply::Past(_) => "what became of a branch",
            Reply::Row(_) | Reply::Rows(_) => "what rows say",
        }
    }

    /// The answer of a resource that keeps no decisions to what is asked about them.
    #[must_use]
    pub fn without_rows() -> Self {
        let message = "this resource keeps no decisions".to_owned();
        Reply::Refused(Kind::Invalid, Native { code: String::new(), message })
    }

    /// This answer to [`Verb::Inquire`] as one to the commit of a prepared branch which was answered "unknown" with these
    /// words.
    #[must_use]
    pub fn past_of_a_commit(self, native: Native) -> Reply {
        match self {
            Reply::Past(Past::Committed) => Reply::Done,
            // It broke its promise, or somebody did in its place.
            Reply::Past(Past::RolledBack) => Reply::RolledBack(native),
            Reply::Past(Past::Elsewhere(words)) => Reply::Heuristic(Heuristic::Hazard, words),
            Reply::Past(Past::Forgotten) => Reply::Unknown(native),
            Reply::Past(Past::Open) => Reply::Refused(Kind::Busy, native),
            Reply::Refused(_, words) | Reply::Lost(words) => Reply::Lost(words),
            _ => Reply::Lost(native),
        }
    }
}

/// A connection to a resource manager, used for one branch after the other.
pub trait Resource: Send {
    /// The registered name.
    fn name(&self) -> &str;

    /// Puts a verb on its way. Trouble is told by `receive`.
    fn send(&mut self, verb: Verb);

    /// Keeps a verb to do it within `receive`, on the caller's thread, as far as its time limit can be kept there; else
    /// gives it back, and it is to be sent. For one branch of a round, whose `receive` then comes first: the others are
    /// under way meanwhile, and this one needs no other thread. Forward it in a resource that wraps another one.
    #[must_use]
    fn defer(&mut self, verb: Verb) -> Option<Verb> {
        Some(verb)
    }

    /// Waits for the answer to the verb that was sent. Without one, `Refused(Internal)`.
    fn receive(&mut self) -> Reply;

    /// What a decision keeps of the branch on this connection, in the adapter's own form, so that recovery can later ask
    /// what became of it ([`Verb::Inquire`]). Asked after a vote of yes; says no word to the resource. At most 4,096
    /// bytes; empty where there is nothing to say. Forward it in a resource that wraps another one.
    fn witness(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Whether a branch on this connection can decide its transaction by a row of its own ([`Verb::CommitLast`]), and in which
    /// table of which server's timeline. Says no word to the resource. Forward it in a resource that wraps another
    /// one.
    fn decides(&mut self) -> Option<Mark> {
        None
    }

    /// The branch is left to recovery: give up whatever keeps it from others. Whoever holds an unfinished branch by its
    /// connection (`MariaDB`) ends the connection; then this value starts no other branch, and says so. Forward it in a
    /// resource that wraps another one.
    fn let_go(&mut self) {}

    /// What the latest list says of each branch beside its name, where the resource tells; taken, so that a second question
    /// gets nothing. Says no word to the resource.
    fn stays(&mut self) -> BTreeMap<Xid, Stay> {
        BTreeMap::new()
    }

    /// Whether this connection, which rests, is known to have ended: as far as that shows without a word to the resource
    /// and without waiting. What a server has prepared may be another list by the time it is back. Forward it in a
    /// resource that wraps another one.
    fn has_ended(&mut self) -> bool {
        false
    }

    /// Send and receive.
    fn call(&mut self, verb: Verb) -> Reply {
        self.send(verb);
        self.receive()
    }
}

/// Opens connections to one registered resource manager: for the recovery agent, and for whoever lost one.
pub trait Connector: Send + Sync {
    /// The registered name; its [`assent_ids::ResourceId`] stands in every XID.
    fn name(&self) -> &str;

    /// Where it is, for people: host and port, database and account, and never a password. Empty where that says nothing.
    fn place(&self) -> String {
        String::new()
    }

    /// A fresh connection.
    ///
    /// # Errors
    /// What the resource or the network said; `Unavailable`, `Denied` or `Invalid`.
    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)>;
}
