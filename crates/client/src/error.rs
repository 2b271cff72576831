//! How a transaction ended, for the application.

use assent_ids::{NodeId, TxId};
use assent_kind::Kind;
use assent_xa::{DecideError, Native, Reply, TxReturn};

/// The transaction is committed: durably, and for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its name.
    pub tx: TxId,
    /// Resources that have not been told yet, and why: recovery tells them.
    pub unfinished: Vec<(String, Native)>,
    /// Resources that had forgotten their branch after the decision: they had committed it.
    pub inferred: Vec<String>,
}

/// The transaction is rolled back: nothing of it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// Its name.
    pub tx: TxId,
    /// Resources that could not be told, and why: a prepared branch of theirs keeps its locks until recovery tells them.
    pub unfinished: Vec<(String, Native)>,
}

/// The transaction is not committed, or nobody knows, or not everywhere: `kind` tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommitError {
    /// `RolledBack`: everything is undone, or will be. `InDoubt`: ask for the outcome. `Heuristic`: a resource finished
    /// its branch otherwise. Others: nothing was done.
    pub kind: Kind,
    /// What tx_commit() or tx_rollback() returns for it.
    pub returned: TxReturn,
    /// Its name, to ask for.
    pub tx: TxId,
    /// Sentences: what happened, and with which resource.
    pub message: String,
}

/// The coordinator cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientError {
    /// What the caller must do.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
}

impl From<DecideError> for ClientError {
    fn from(error: DecideError) -> Self {
        Self { kind: error.kind, message: error.message }
    }
}

/// An enlisted resource cannot be worked on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// It did not start its branch; the transaction can only be rolled back.
    #[error("resource {resource:?} did not start its branch: {} {}", .reply.name(), words(.reply).message)]
    NotStarted {
        /// Its name.
        resource: String,
        /// What it said.
        reply: Reply,
    },
    /// The transaction has ended.
    #[error("transaction {tx} of node {node} has ended; begin another one")]
    Over {
        /// Whose.
        node: NodeId,
        /// Which.
        tx: TxId,
    },
    /// This thread works on it already, and would wait for itself.
    #[error("this thread has a Work of this resource already: let go of it first")]
    Held,
}

impl WorkError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NotStarted { reply: Reply::Refused(kind, _), .. } => *kind,
            Self::NotStarted { .. } => Kind::RolledBack,
            Self::Over { .. } | Self::Held => Kind::Invalid,
        }
    }
}

/// The resource's own words in a reply, if there are any.
pub(crate) fn words(reply: &Reply) -> Native {
    match reply {
        Reply::RolledBack(native)
        | Reply::Heuristic(_, native)
        | Reply::Unknown(native)
        | Reply::Refused(_, native)
        | Reply::Lost(native) => native.clone(),
        Reply::Done | Reply::Vote(_) | Reply::Listed(_) | Reply::Past(_) | Reply::Row(_) | Reply::Rows(_) => {
            Native::default()
        }
    }
}
