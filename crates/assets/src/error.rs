//! What can go wrong beside the state machine, and what the caller must do.

use std::io;
use std::path::Path;

use assent_frame::Malformed;
use assent_journal::JournalError;
use assent_kind::Kind;
use assent_membership::Sequence;

use crate::subscribe::{KEPT_SUM_MAX, WANTED_SUM_MAX};

/// Why an engine refused or failed. What business rules refuse is an [`Answer`](crate::Answer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssetsError {
    /// Bytes that are no command. Nothing was done.
    #[error("a command is malformed at its field {field:?}")]
    Malformed {
        /// The field.
        field: &'static str,
    },
    /// A command beyond the limit. Nothing was done.
    #[error("a command of {bytes} bytes; at most {limit} are taken")]
    Size {
        /// How many bytes it has.
        bytes: usize,
        /// How many are taken.
        limit: usize,
    },
    /// A configured value that cannot work.
    #[error("{name} = {value}; it must be {rule}")]
    Config {
        /// The key.
        name: &'static str,
        /// Its value.
        value: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// The next command of a log has another number than the state expects.
    #[error("command {found} follows {last} in the log; {} was expected", last.0.saturating_add(1))]
    OutOfOrder {
        /// The last one applied.
        last: Sequence,
        /// What came.
        found: Sequence,
    },
    /// A command of the log that needed no place there: who laid it had another state.
    #[error("command {found} changes nothing here, and was laid by someone for whom it did")]
    NotLaid {
        /// Which.
        found: Sequence,
    },
    /// Limits or business logic that are not those of the log or of its snapshot.
    #[error("{file}: {what}")]
    Rules {
        /// Where the others stand.
        file: String,
        /// What differs.
        what: String,
    },
    /// One more subscription would name too many assets.
    #[error("subscriptions would name {assets} assets; at most {WANTED_SUM_MAX} are taken: subscribe to all of them")]
    Subscribed {
        /// How many all together would name.
        assets: usize,
    },
    /// One more subscription would have too many changes kept.
    #[error(
        "subscriptions would keep {changes} changes, {asked} of them for this one; at most {KEPT_SUM_MAX} are kept: ask for fewer"
    )]
    Keeps {
        /// How many all together would.
        changes: usize,
        /// How many this one asks for.
        asked: usize,
    },
    /// The log refused. Nothing was done.
    #[error(transparent)]
    Log(#[from] JournalError),
    /// The log failed after the command was ordered: it is done or not, and only a restart knows.
    #[error("whether the command is kept is unknown until the server was restarted: {reason}")]
    InDoubt {
        /// What failed.
        reason: String,
    },
    /// An earlier write failed. Nothing was done.
    #[error("the assets are closed ({reason}): restart, recovery decides")]
    Closed {
        /// What failed first.
        reason: String,
    },
    /// Stored bytes are damaged, and nothing else has what they held.
    #[error("{file}: {what}; nothing was changed, restore the file")]
    Corrupt {
        /// The file, or the log.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// The disk refused.
    #[error("{doing} {path}: {error}")]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: String,
        /// As the operating system says.
        error: String,
        /// What the caller must do.
        kind: Kind,
    },
}

impl AssetsError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Malformed { .. } | Self::Size { .. } | Self::Config { .. } | Self::Rules { .. } => Kind::Invalid,
            Self::OutOfOrder { .. } | Self::NotLaid { .. } | Self::Corrupt { .. } => Kind::Corrupt,
            Self::Log(error) => error.kind(),
            Self::InDoubt { .. } => Kind::InDoubt,
            Self::Closed { .. } => Kind::Closed,
            Self::Subscribed { .. } | Self::Keeps { .. } => Kind::Full,
            Self::Disk { kind, .. } => *kind,
        }
    }
}

impl From<Malformed> for AssetsError {
    fn from(Malformed { field }: Malformed) -> Self {
        Self::Malformed { field }
    }
}

/// The disk's refusal, with what was being done to what.
pub(crate) fn refused(doing: &'static str, path: &Path, error: &io::Error) -> AssetsError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
        _ => Kind::Unavailable,
    };
    AssetsError::Disk { doing, path: path.display().to_string(), error: error.to_string(), kind }
}
