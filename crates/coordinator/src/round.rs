//! What one round of recovery found and did, for logs and people.

use assent_ids::{ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_xa::{Heuristic, Native};

/// How a prepared branch was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Told to commit, and did; or its resource, asked, knows that it has.
    Committed,
    /// Decided commit, and gone from the server that voted yes, which keeps no memory: it has been committed.
    CommittedInferred,
    /// Told to roll back, and did; or its resource, asked, knows that it has.
    RolledBack,
    /// Decided rollback, and gone from its resource: finished before. Or cleared by a person, and gone.
    NotListed,
    /// Nothing may be done yet: nobody has decided, or its client is at work. Looked at again in the next round.
    Waiting,
    /// Nobody has decided as far as is known, but a power cut may have taken the decision (RPO > 0), and no sibling is
    /// known to be committed. It waits for a person; siblings are asked about again.
    Held,
    /// It ended on its own, otherwise than decided. Kept for a person.
    Heuristic(Heuristic, Native),
    /// It could not be told, or its answer was lost. Tried again.
    Retry(Kind, Native),
}

impl Resolution {
    /// Whether recovery is done with the branch.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self, Self::Committed | Self::CommittedInferred | Self::RolledBack | Self::NotListed)
    }

    /// Whether another round may bring it forward.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Waiting | Self::Retry(..))
    }
}

/// One branch in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchReport {
    /// Its transaction.
    pub tx: TxId,
    /// Its name at the resource.
    pub xid: Xid,
    /// The registered name of the resource.
    pub resource: String,
    /// How it was left.
    pub resolution: Resolution,
}

/// One resource in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceReport {
    /// The registered name.
    pub name: String,
    /// How many prepared branches of this node it listed; `None` if it was not asked or did not answer.
    pub listed: Option<usize>,
    /// Why not. After trouble it is asked again after 500 ms, then every second.
    pub trouble: Option<(Kind, Native)>,
}

/// A branch of this node whose client this coordinator never had, or such a row of a last resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The branch; of a row the one that put it.
    pub xid: Xid,
    /// Its transaction.
    pub tx: TxId,
    /// Where it was found.
    pub resource: String,
}

/// One round of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Every registered resource.
    pub resources: Vec<ResourceReport>,
    /// Every branch that was found or concluded about.
    pub branches: Vec<BranchReport>,
    /// Branches at resources that are not registered: nobody here can finish them.
    pub unregistered: Vec<(TxId, ResourceId)>,
    /// Branches that their resource refuses to let this coordinator finish, for want of a right or in another database: a person
    /// has to put that right. One of each resource, with its own words.
    pub refused: Vec<(TxId, String, Native)>,
    /// Set if another copy of the data folder is at work, or this one is an old one: nothing was touched.
    pub stopped: Option<Stopped>,
}

impl Round {
    /// Adds what another attendant found and did.
    pub fn merge(&mut self, other: Round) {
        self.resources.extend(other.resources);
        self.branches.extend(other.branches);
        self.unregistered.extend(other.unregistered);
        self.refused.extend(other.refused);
        self.stopped = self.stopped.take().or(other.stopped);
        self.unregistered.sort_unstable();
        self.unregistered.dedup();
    }

    /// Whether nothing is left to do, as far as every resource could be asked.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.stopped.is_none()
            && self.unregistered.is_empty()
            && self.resources.iter().all(|resource| resource.trouble.is_none() && resource.listed.is_some())
            && self.branches.iter().all(|branch| branch.resolution.is_finished())
    }
}
