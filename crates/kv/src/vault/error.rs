//! What can go wrong with volumes, and what the caller must do.

use std::io;
use std::path::Path;

use assent_frame::Malformed;
use assent_ids::Lsn;
use assent_journal::JournalError;
use assent_kind::Kind;
use assent_world::is_short;

use crate::vault::Address;

/// What is done to a volume's file first.
pub(crate) const OPENING: &str = "opening";

/// Why the vault refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VaultError {
    /// Durable bytes are damaged; the rest of the file stays readable.
    #[error("the volume {file} is damaged at byte {offset}: {what}")]
    Damaged { file: String, offset: u64, what: String },
    /// A journal entry that this version cannot have written.
    #[error("the journal entry at LSN {lsn} is no key-value record of this version: {malformed}")]
    Record { lsn: Lsn, malformed: Malformed },
    /// The journal refused.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Volumes are written in the order of addresses, within their range.
    #[error("a record at {address} after one at {last}, in a volume from {first}")]
    Order { address: Address, last: Address, first: u64 },
    /// More leaves a volume than lives in it, or something belongs to none: the accounts and the ledger disagree.
    #[error("the account of the volume at LSN {volume}: {what}")]
    Account { volume: u64, what: String },
    /// What was to be compacted cannot be: the caller's picture is not the accounts'.
    #[error("a compaction from LSN {first} to {end}: {what}")]
    Compaction { first: u64, end: u64, what: &'static str },
    /// What was to be compacted is damaged, or was not opened: at this place, or behind it in the same cell.
    #[error("{what}")]
    Unreadable { place: u64, what: String, kind: Kind },
    /// What was to be compacted could not be read this time, at this place or behind it in the same cell: for want of descriptors or memory, if that is
    /// said.
    #[error("{what}")]
    Unread { place: u64, what: String, kind: Kind, short: bool },
    /// The journal begins behind a place that no volume holds.
    #[error("the journal from LSN {from} to {to} is missing, and no volume holds it")]
    Missing { from: u64, to: u64 },
    /// The pace said so. Nothing is left behind.
    #[error("stopped: nothing was left behind")]
    Stopped,
    /// The ledger could not answer whether what stands at this place lives.
    #[error("what lives is not known: {what}")]
    Ledger { place: u64, what: String, kind: Kind, short: bool },
    /// The disk refused.
    #[error("{doing} {path}: {error}")]
    Disk { doing: &'static str, path: String, error: String, kind: Kind, short: bool },
}

impl VaultError {
    /// What the caller must do.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Damaged { .. } | Self::Record { .. } | Self::Missing { .. } => Kind::Corrupt,
            Self::Journal(error) => error.kind(),
            Self::Order { .. } | Self::Account { .. } | Self::Compaction { .. } => Kind::Internal,
            Self::Stopped => Kind::Busy,
            Self::Unreadable { kind, .. }
            | Self::Unread { kind, .. }
            | Self::Ledger { kind, .. }
            | Self::Disk { kind, .. } => *kind,
        }
    }

    /// Whether a file was not opened, for a reason that may pass.
    pub(crate) fn is_unopened(&self) -> bool {
        matches!(self, Self::Disk { doing, kind: Kind::Unavailable, .. } if *doing == OPENING)
    }

    /// Whether the process or the machine had no descriptor or no memory left: that says nothing of what was to be read.
    pub(crate) const fn is_short(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_short(),
            Self::Unread { short, .. } | Self::Ledger { short, .. } | Self::Disk { short, .. } => *short,
            _ => false,
        }
    }

    /// Said of the place where it was found: no compaction takes that again.
    pub(crate) fn unreadable(&self, place: u64) -> Self {
        Self::Unreadable { place, what: self.to_string(), kind: self.kind() }
    }

    /// Said of the place where it was read: for good where it will be no better next time, else of this time.
    pub(crate) fn found_at(self, place: u64) -> Self {
        match self.kind() {
            Kind::Corrupt | Kind::NotFound => self.unreadable(place),
            kind => Self::Unread { place, what: self.to_string(), kind, short: self.is_short() },
        }
    }

    pub(crate) fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: path.display().to_string(), offset, what: what.into() }
    }

    pub(crate) fn disk(doing: &'static str, path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
            io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Unavailable,
        };
        let (path, short) = (path.display().to_string(), is_short(error));
        Self::Disk { doing, path, error: error.to_string(), kind, short }
    }
}
