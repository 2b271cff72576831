//! Why bytes are no message, or a message takes too many bytes.

use assent_frame::{FrameError, Malformed};
use assent_kind::Kind;

use crate::Versions;

/// What is wrong with bytes from a peer, or with a message for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The stream cannot be followed any further: close the connection.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A message that ends early, or has bytes left over, or a value that no writer lays.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// A message that this version does not know. Answer it; the connection is well.
    #[error("message kind {kind:#06x} is unknown to this side, which speaks versions {VERSIONS}", VERSIONS = crate::VERSIONS)]
    UnknownKind {
        /// The number.
        kind: u16,
    },
    /// The first frame is no greeting of this protocol.
    #[error("the first frame is no hello of the Assent protocol")]
    NoHello,
    /// Nothing in common.
    #[error("the other side speaks versions {theirs}, this one {ours}; upgrade the older one")]
    Version {
        /// Theirs.
        theirs: Versions,
        /// Ours.
        ours: Versions,
    },
    /// A message that the version of this connection does not have.
    #[error(
        "this request needs version {since} of the protocol, and this connection speaks {version}; upgrade the older side"
    )]
    Since {
        /// The first version that has it.
        since: u16,
        /// What was agreed on.
        version: u16,
    },
    /// Parts that are no message: close the connection.
    #[error("{what} of a long message")]
    Part {
        /// What is wrong.
        what: &'static str,
    },
    /// More elements than one message takes: each takes many times its bytes once it is read.
    #[error("{count} {what} in one message; it takes at most {limit}: send them in several")]
    Many {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// More payload than one message takes.
    #[error("a message of {bytes} payload bytes; at most {limit} travel over the wire")]
    TooLarge {
        /// What it would have taken.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl WireError {
    /// What the caller must do: all of them mean to send something else.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind::Invalid
    }
}
