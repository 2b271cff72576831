//! What can go wrong with a log, and what the caller must do.

use std::io;
use std::path::Path;

use assent_ids::Lsn;
use assent_kind::Kind;
use assent_world::is_short;

/// Why a log refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// An entry beyond the limit. Nothing has been appended.
    #[error("an entry of {bytes} bytes; a journal takes at most {limit}")]
    EntrySize {
        /// How many bytes it has.
        bytes: u64,
        /// How many are taken.
        limit: u64,
    },
    /// A kind that the journal keeps for itself. Nothing has been appended.
    #[error("an entry of kind {kind:#06x}; kinds from 0xfff0 are the journal's own")]
    EntryKind {
        /// The refused kind.
        kind: u16,
    },
    /// A configured value that cannot work.
    #[error("{name} = {value}; {rule}")]
    Config {
        /// The key.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// No room for another segment. Nothing has been appended; reads go on.
    #[error("the disk under {folder} is full: make room, the journal goes on by itself")]
    Full {
        /// The journal's folder.
        folder: String,
    },
    /// The buffer is full and a write is under way.
    #[error("the journal's buffer of {bytes} bytes is full; send it again")]
    Busy {
        /// Its size.
        bytes: u64,
    },
    /// An earlier write or sync failed, or the journal was closed; what reached the disk is unknown.
    #[error("the journal in {folder} is closed ({reason}): reopen it, recovery decides")]
    Closed {
        /// The journal's folder.
        folder: String,
        /// The first failure.
        reason: String,
    },
    /// Somebody else has the folder open.
    #[error("the journal in {folder} is open in another process: stop that first")]
    Locked {
        /// The journal's folder.
        folder: String,
    },
    /// The place was trimmed away, or no entry begins there.
    #[error("no journal entry at {lsn}")]
    NotFound {
        /// The place asked for.
        lsn: Lsn,
    },
    /// Durable bytes are damaged. Nothing has been changed.
    #[error("the journal file {file} is damaged at byte {offset}: {what}; nothing was changed, restore the file")]
    Corrupt {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The disk refused.
    #[error("{doing} {path}: {error}{}", advice(*kind))]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: String,
        /// As the operating system says.
        error: String,
        /// What the caller must do.
        kind: Kind,
        /// Whether the process or the machine had no descriptor or no memory left: that says nothing of the file.
        short: bool,
    },
}

/// What an operator does about a disk that refuses.
const fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Full => ": make room",
        Kind::Denied => ": give this user the right to read and write there",
        _ => "",
    }
}

impl JournalError {
    /// Whether the process or the machine had no descriptor or no memory left.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        matches!(self, Self::Disk { short: true, .. })
    }

    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::EntrySize { .. } | Self::EntryKind { .. } | Self::Config { .. } => Kind::Invalid,
            Self::Full { .. } => Kind::Full,
            Self::Busy { .. } | Self::Locked { .. } => Kind::Busy,
            Self::Closed { .. } => Kind::Closed,
            Self::NotFound { .. } => Kind::NotFound,
            Self::Corrupt { .. } => Kind::Corrupt,
            Self::Disk { kind, .. } => *kind,
        }
    }
}

/// The disk's refusal, with what was being done to what.
pub(crate) fn refused(doing: &'static str, path: &Path, error: &io::Error) -> JournalError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
        _ => Kind::Unavailable,
    };
    let (path, short) = (path.display().to_string(), is_short(error));
    JournalError::Disk { doing, path, error: error.to_string(), kind, short }
}

pub(crate) fn damaged(path: &Path, offset: u64, what: &str) -> JournalError {
    JournalError::Corrupt { file: path.display().to_string(), offset, what: what.to_owned() }
}
