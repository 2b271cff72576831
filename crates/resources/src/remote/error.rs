//! What can go wrong with work on a remote store.

use assent_kind::Kind;
use assent_link::LinkError;

/// Why work on a remote store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// What the connection or the store said.
    #[error("store {name:?}: {error}")]
    Link {
        /// The registered name.
        name: String,
        /// The reason; its kind is ours.
        error: LinkError,
    },
    /// The branch's connection ended; the store has dropped its work.
    #[error("store {name:?}: the connection ended and took the work of the branch with it; roll back")]
    Dropped {
        /// The registered name.
        name: String,
    },
    /// A condition alone is a branch's: without one it goes with the writes that it is for ([`super::Remote::write_if`]).
    #[error("store {name:?}: no branch is started on this connection: start one, or write under conditions")]
    NoBranch {
        /// The registered name.
        name: String,
    },
    /// The branch's work was ended.
    #[error("store {name:?}: no work on branch {branch} after its end")]
    Ended {
        /// The registered name.
        name: String,
        /// The branch's XID.
        branch: String,
    },
}

impl RemoteError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Link { error, .. } => error.kind(),
            Self::Dropped { .. } => Kind::RolledBack,
            Self::Ended { .. } | Self::NoBranch { .. } => Kind::Invalid,
        }
    }
}
