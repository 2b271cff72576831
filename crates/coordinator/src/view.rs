//! What people and programs see of transactions: answers, lists, counters.

use std::time::Duration;

use assent_ids::{Incarnation, Mark, ResourceId, TxId};
use assent_journal::Ticket;
use assent_xa::{Native, Outcome, Stay};

use crate::{By, Fate, Standing};

/// A client's place at the coordinator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// In every transaction of the client.
    pub incarnation: Incarnation,
    /// With it the client resumes after a lost connection or a restart of the coordinator.
    pub secret: u128,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.incarnation)
    }
}

/// A decision that may not be durable yet. Nobody may be told before [`crate::Coordinator::decide_end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision is told only after decide_end"]
pub struct Pending {
    /// What was decided, by whoever was first.
    pub outcome: Outcome,
    /// Its record, if it has one that this opening laid.
    pub ticket: Option<Ticket>,
    /// It is told only when durable, whatever the log's policy: all but what a client decided itself.
    pub is_strict: bool,
}

/// The answer to "what became of it?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Known {
    /// Decided, durable.
    Committed,
    /// Decided.
    RolledBack,
    /// Branches of it are prepared, and nobody has decided.
    Undecided,
    /// A decision was laid, but the log failed: reopen it, recovery tells.
    InDoubt,
    /// Forgotten because it was finished (and its client knew, or came much too late), or never heard of.
    Unknown,
}

impl From<Outcome> for Known {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Committed => Known::Committed,
            Outcome::RolledBack => Known::RolledBack,
        }
    }
}

/// One transaction, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView {
    /// Which.
    pub tx: TxId,
    /// Where its client stands.
    pub client: Standing,
    /// What the client calls itself; empty if it is gone.
    pub label: String,
    /// What was decided, and by whom; `None` while branches are prepared and nobody has.
    pub decided: Option<(Outcome, By)>,
    /// When, in milliseconds since 1970; `None` before, or if an earlier program did not note it.
    pub decided_ms: Option<u64>,
    /// Whether the decision is durable.
    pub is_durable: bool,
    /// Whether the client knows the outcome.
    pub is_acknowledged: bool,
    /// Since it was decided, or since the agent saw it first; by the clocks of this machine and of its resources since before
    /// that, where they tell.
    pub age: Duration,
    /// Nobody has decided as far as is known, but a decision may have been lost with the power (RPO > 0).
    pub may_be_lost: bool,
    /// Its branches, as far as they are known.
    pub branches: Vec<BranchView>,
}

/// One branch, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchView {
    /// The registered resource.
    pub resource: ResourceId,
    /// Which branch of the transaction.
    pub number: u16,
    /// The XID's flags.
    pub flags: u16,
    /// The XID's mark.
    pub mark: Option<Mark>,
    /// How it was last seen.
    pub fate: Fate,
    /// Who brought it to its end, or found it so.
    pub by: Option<By>,
    /// How often it had to be told again.
    pub retries: u32,
    /// The resource's own words, where the fate does not carry them.
    pub native: Native,
    /// What the resource's latest list says of it beside its name; nothing where it is not listed, or the resource tells no more.
    pub stay: Stay,
    /// What the decision keeps of its vote, in the adapter's form.
    pub witness: Vec<u8>,
}

/// Counters since the opening, and levels of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Commits decided.
    pub decided_committed: u64,
    /// Rollbacks decided, by anyone.
    pub decided_rolled_back: u64,
    /// Transactions forgotten.
    pub forgotten: u64,
    /// Clients fenced.
    pub fenced: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Records read at the opening.
    pub replayed: u64,
    /// Decided transactions that must still be known.
    pub live: u64,
    /// Of those, with a branch that ended otherwise than decided.
    pub heuristic: u64,
    /// Transactions whose branches the agent saw prepared in its last look.
    pub prepared: u64,
    /// Clients connected.
    pub clients: u64,
    /// Decisions that may have been told and are not durable yet (RPO > 0).
    pub decisions_unsynced: u64,
    /// Prepared, undecided transactions that wait for a person because their decision may be lost.
    pub held: u64,
    /// Rows of last resources that are asked for and not answered: their transactions wait for that.
    pub rows_awaited: u64,
}
