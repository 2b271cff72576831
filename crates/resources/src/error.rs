//! What can go wrong outside the verbs: a wrong URL, no connection, the caller's own work.

use assent_kind::Kind;
use assent_xa::Native;

/// Why a connection could not be had or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// A URL that cannot be read.
    #[error("url {url:?} of resource {name:?}: {reason}; write {form}")]
    Url {
        /// The registered name.
        name: String,
        /// The URL without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
        /// How to write it.
        form: &'static str,
    },
    /// The server was not reached, or refused.
    #[error("resource {name:?} at {place}: {}", .native.message)]
    Connect {
        /// The registered name.
        name: String,
        /// Host and port.
        place: String,
        /// What the caller must do.
        kind: Kind,
        /// What the server or the network said.
        native: Native,
    },
    /// A verb is under way on this connection.
    #[error("resource {name:?} is busy with a verb; receive its answer first")]
    UnderWay {
        /// The registered name.
        name: String,
    },
    /// The connection is gone: an answer did not come in time, or it broke.
    #[error("the connection to resource {name:?} is gone ({}); open another one", .native.message)]
    Gone {
        /// The registered name.
        name: String,
        /// How it ended.
        native: Native,
    },
    /// A statement of the caller failed.
    #[error("resource {name:?}: {} {}", .native.code, .native.message)]
    Statement {
        /// The registered name.
        name: String,
        /// What the caller must do.
        kind: Kind,
        /// What the server said.
        native: Native,
    },
}

impl ResourceError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Url { .. } => Kind::Invalid,
            Self::Connect { kind, .. } | Self::Statement { kind, .. } => *kind,
            Self::UnderWay { .. } => Kind::Busy,
            Self::Gone { .. } => Kind::Unavailable,
        }
    }

    /// Kind and native words, as [`assent_xa::Connector::connect`] tells them.
    #[must_use]
    pub fn into_native(self) -> (Kind, Native) {
        let code = match &self {
            Self::Connect { native, .. } | Self::Gone { native, .. } | Self::Statement { native, .. } => {
                native.code.clone()
            }
            Self::Url { .. } | Self::UnderWay { .. } => String::new(),
        };
        (self.kind(), Native { code, message: self.to_string() })
    }
}
