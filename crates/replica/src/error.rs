//! What can go wrong with what a member keeps, and what the caller must do.

use std::io;
use std::path::Path;

use assent_journal::JournalError;
use assent_kind::Kind;
use assent_membership::Sequence;

/// Why a member cannot open, read or write what it keeps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// Its journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The disk refused.
    #[error("{doing} {path}: {error}")]
    Disk {
        /// What was under way.
        doing: &'static str,
        /// The file or folder.
        path: String,
        /// As the operating system says.
        error: String,
        /// Whether there was no room.
        full: bool,
    },
    /// What stands in a file is not what a member writes there.
    #[error("{path} is damaged: {why}; take this member's folder away and let it start from an empty one")]
    Damaged {
        /// The file or folder.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A snapshot that stands lower than the one that is kept.
    #[error("a snapshot behind entry {found} came; the one behind entry {kept} is kept")]
    Older {
        /// Where it stands.
        found: Sequence,
        /// Where the kept one stands.
        kept: Sequence,
    },
    /// An entry that should be there is not.
    #[error("entry {at} is not in this member's log")]
    Missing {
        /// Which.
        at: Sequence,
    },
}

impl ReplicaError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Journal(error) => error.kind(),
            Self::Disk { full: true, .. } => Kind::Full,
            Self::Disk { .. } => Kind::Unavailable,
            Self::Damaged { .. } => Kind::Corrupt,
            Self::Missing { .. } => Kind::NotFound,
            Self::Older { .. } => Kind::Corrupt,
        }
    }

    /// Whether the disk does not give back what was asked for, or gives something else; all other bytes may be well.
    pub(crate) const fn is_unreadable(&self) -> bool {
        match self {
            Self::Journal(error) => {
                matches!(
                    error,
                    JournalError::Corrupt { .. } | JournalError::Disk { .. } | JournalError::NotFound { .. }
                )
            }
            Self::Disk { full, .. } => !*full,
            Self::Damaged { .. } => true,
            Self::Missing { .. } | Self::Older { .. } => false,
        }
    }
}

/// The disk's refusal, with what was being done to what.
pub(crate) fn refused(doing: &'static str, path: &Path, error: &io::Error) -> ReplicaError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    ReplicaError::Disk { doing, path: path.display().to_string(), error: error.to_string(), full }
}

pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> ReplicaError {
    ReplicaError::Damaged { path: path.display().to_string(), why: why.into() }
}
