//! What can go wrong with a coordinator, and what the caller must do.

use assent_frame::Malformed;
use assent_ids::{Epoch, Incarnation, Lsn, NodeId, TxId};
use assent_journal::JournalError;
use assent_kind::Kind;
use assent_xa::DecideError;

/// Why a coordinator refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorError {
    /// The log said so.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The identity's file could not be read or made.
    #[error("{doing} {path}: {error}")]
    Identity {
        /// What was being done.
        doing: &'static str,
        /// To which file or folder.
        path: String,
        /// As the operating system says.
        error: String,
    },
    /// The identity's file is damaged. Without it the branches of this node are nobody's.
    #[error("the identity in {path} is damaged: restore the file, it was written once and never changes")]
    IdentityDamaged {
        /// The file.
        path: String,
    },
    /// A record that this program cannot read, though its checksum is right.
    #[error("the record at {lsn} (kind {kind:#06x}) cannot be read: {what}; a newer program may have written it")]
    Record {
        /// Where.
        lsn: Lsn,
        /// Its kind.
        kind: u16,
        /// What is wrong.
        what: String,
    },
    /// Log and identity do not belong together.
    #[error("the log belongs to node {log}, the data folder is node {folder}: one of them was copied")]
    Node {
        /// Whom the log names.
        log: NodeId,
        /// Whom the folder names.
        folder: NodeId,
    },
    /// A configured value that cannot work.
    #[error("{name} = {value}; {rule}")]
    Config {
        /// The key.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// As many clients as it takes.
    #[error("{clients} clients are connected, more are not taken: try again later")]
    Clients {
        /// How many.
        clients: usize,
    },
    /// A page of the history cannot go on where the last one ended.
    #[error("{tx} is no longer in the log, the history cannot go on behind it: begin anew")]
    Page {
        /// The last of the page before.
        tx: TxId,
    },
    /// The coordinator keeps its state in a table.
    #[error(
        "this coordinator keeps its state in a table and no history: a transaction that is finished is forgotten, and only \
         engine = \"journal\" keeps a log that can be read and verified"
    )]
    NoHistory,
    /// The hash chain over the log is broken.
    #[error("the chain of seals is broken at {lsn}: {what}")]
    Chain {
        /// The seal that does not fit.
        lsn: Lsn,
        /// What does not.
        what: String,
    },
    /// The log does not reach back to a seal that somebody kept.
    #[error(
        "the log reaches back to seal {reaches}, what came before has been let go: whether seal {number} was in it, it cannot say"
    )]
    Reach {
        /// What was kept.
        number: u64,
        /// The first that is known.
        reaches: u64,
    },
    /// Another process of this node is at work at a resource, nobody has asked yet, or a branch was found that nobody here can have begun.
    #[error("{why}")]
    Unclaimed {
        /// In one sentence, with the resource's name.
        why: String,
    },
    /// All numbers of an epoch are given.
    #[error("epoch {epoch} has given all its client numbers: restart the coordinator")]
    Numbers {
        /// Which.
        epoch: Epoch,
    },
    /// The secret is not that of this client.
    #[error("client {incarnation} cannot be resumed: wrong secret")]
    Secret {
        /// Who it wants to be.
        incarnation: Incarnation,
    },
    /// The client was away for too long.
    #[error(
        "client {incarnation} was lost for too long and is fenced: what it had not decided is rolled back; connect anew"
    )]
    Fenced {
        /// Who.
        incarnation: Incarnation,
    },
}

impl CoordinatorError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Journal(error) => error.kind(),
            Self::Identity { .. } | Self::Unclaimed { .. } => Kind::Unavailable,
            Self::IdentityDamaged { .. } | Self::Record { .. } | Self::Node { .. } | Self::Chain { .. } => {
                Kind::Corrupt
            }
            Self::Config { .. } => Kind::Invalid,
            Self::Page { .. } | Self::NoHistory | Self::Reach { .. } => Kind::NotFound,
            Self::Clients { .. } | Self::Numbers { .. } => Kind::Busy,
            Self::Secret { .. } => Kind::Denied,
            Self::Fenced { .. } => Kind::RolledBack,
        }
    }

    pub(crate) fn record(lsn: Lsn, kind: u16, malformed: Malformed) -> Self {
        Self::Record { lsn, kind, what: malformed.to_string() }
    }
}

/// Nothing was decided: the log refused the entry before it was laid.
pub(crate) fn not_laid(error: &JournalError) -> DecideError {
    DecideError { kind: error.kind(), message: error.to_string() }
}

/// It was laid, and nobody knows whether it is durable.
pub(crate) fn in_doubt(error: &JournalError) -> DecideError {
    DecideError { kind: Kind::InDoubt, message: format!("the decision may be durable or not: {error}") }
}
