//! Why something did not work, and what to do about it.

use std::path::{Path, PathBuf};

use assent_kind::Kind;
use assent_world::is_short;

/// Why the map refused, or could not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// A configured value cannot work.
    #[error("{name} is {value}; it takes {rule}")]
    Config {
        /// The key.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        rule: &'static str,
    },
    /// A key or value beyond its limit.
    #[error("a {part} of {bytes} bytes; the limit is {limit}")]
    Size {
        /// Which part.
        part: &'static str,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        limit: u64,
    },
    /// A change that is not newer than what was applied.
    #[error("a change at {seq} after one at {newest}; places rise")]
    Order {
        /// Its place.
        seq: u64,
        /// The newest place that was applied.
        newest: u64,
    },
    /// Memory or debt is at its limit; it becomes less by itself while steps are taken.
    #[error("{bytes} bytes of {what}; the limit is {limit}")]
    Busy {
        /// Of what there is too much.
        what: &'static str,
        /// How much there is.
        bytes: u64,
        /// How much there may be.
        limit: u64,
    },
    /// Bytes are not those that were written.
    #[error("{}, at byte {offset}: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The disk said no. Nothing was changed.
    #[error("cannot {doing} {}: {reason}", path.display())]
    Disk {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's words.
        reason: String,
        /// Whether there is no room left.
        full: bool,
        /// Whether the process or the machine had no descriptor or no memory left: that says nothing of the file.
        short: bool,
    },
    /// The owner's log is durable less far than what is to be made durable here. Nothing was changed.
    #[error("the owner's log is durable up to {durable}, this needs {seq}")]
    Unsettled {
        /// How far it must be.
        seq: u64,
        /// How far it is.
        durable: u64,
    },
    /// The map was opened to look only.
    #[error("the map is open read-only")]
    ReadOnly,
    /// A write whose outcome is unknown failed before: reopen, which decides.
    #[error("closed since {reason}")]
    Closed {
        /// What failed.
        reason: String,
    },
}

impl RunsError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Config { .. } | Self::Size { .. } | Self::Order { .. } => Kind::Invalid,
            Self::Busy { .. } => Kind::Busy,
            Self::ReadOnly => Kind::Denied,
            Self::Damaged { .. } => Kind::Corrupt,
            Self::Disk { full: true, .. } => Kind::Full,
            Self::Disk { .. } | Self::Unsettled { .. } => Kind::Unavailable,
            Self::Closed { .. } => Kind::Closed,
        }
    }

    pub(crate) fn disk(doing: &'static str, path: &Path, error: &std::io::Error) -> Self {
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        let short = is_short(error);
        Self::Disk { doing, path: path.to_path_buf(), reason: error.to_string(), full, short }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_path_buf(), offset, what: what.into() }
    }
}
