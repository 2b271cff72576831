//! What became of a request that got no good answer.

use assent_kind::Kind;
use assent_wire::WireError;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The request was surely not done: its frame never left whole. Send it again elsewhere.
    #[error("{message}")]
    Unavailable {
        /// What happened to the connection.
        message: String,
    },
    /// The request left, and its answer did not come or says nothing: it may have been done.
    #[error("no answer: {message}")]
    InDoubt {
        /// What happened to the connection.
        message: String,
    },
    /// So many requests wait for answers here; nothing was sent.
    #[error("{in_flight} requests wait for answers on this connection; the server takes no more at a time")]
    Busy {
        /// How many.
        in_flight: usize,
    },
    /// The server said no; nothing was done.
    #[error("{message}")]
    Refused {
        /// What the caller must do.
        kind: Kind,
        /// The server's sentence.
        message: String,
    },
    /// The request does not fit a message; nothing was sent.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl LinkError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::InDoubt { .. } => Kind::InDoubt,
            Self::Busy { .. } => Kind::Busy,
            Self::Refused { kind, .. } => *kind,
            Self::Wire(error) => error.kind(),
        }
    }
}
