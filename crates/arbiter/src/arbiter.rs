//! What an arbiter does, and how it fails.

use std::fmt::{self, Debug};
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use assent_kind::Kind;
use assent_membership::Configuration;
use assent_world::Clock;
use assent_world::net::Address;

use crate::{Etcd, Witness};

/// The most bytes of a group's name.
pub const GROUP_BYTES_MAX: usize = 64;

/// A group's name: 1 to 64 of `a-z`, `0-9`, `.`, `_`, `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(String);

impl GroupName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GroupName {
    type Err = ArbiterError;

    fn from_str(text: &str) -> Result<Self, ArbiterError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if (1..=GROUP_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(Self(text.to_owned()));
        }
        Err(ArbiterError::Group { name: text.chars().take(GROUP_BYTES_MAX).collect() })
    }
}

/// Why an arbiter did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArbiterError {
    /// A name that is none.
    #[error("group {name:?}; a name is 1 to {GROUP_BYTES_MAX} of a-z, 0-9, '.', '_' and '-'")]
    Group {
        /// As it was given.
        name: String,
    },
    /// An address that is none.
    #[error("witness {text:?}: {why}; write host:port, unix:/path or etcd://host:port")]
    Address {
        /// As it was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A configuration that no arbiter takes.
    #[error("version {to} cannot follow version {expect}; it must be higher")]
    Version {
        /// What was expected to be held.
        expect: u64,
        /// What was to be held.
        to: u64,
    },
    /// More groups than the witness keeps.
    #[error("the witness keeps {GROUPS} groups, and {name} would be one more", GROUPS = crate::GROUPS_MAX)]
    Groups {
        /// Which.
        name: String,
    },
    /// It answers, holds what was expected, and takes no change: it has no room. Nothing was changed.
    #[error("the arbiter at {at} takes no change: {why}")]
    Refused {
        /// Where it is.
        at: String,
        /// As it says.
        why: String,
    },
    /// It cannot be reached. Nothing was changed.
    #[error("the arbiter at {at} cannot be reached: {why}")]
    Unavailable {
        /// Where it should be.
        at: String,
        /// As the operating system says, or it itself.
        why: String,
    },
    /// The answer to a change was lost: it may have been done. Read, and see.
    #[error("the arbiter at {at} was asked for a change and did not answer: {why}; it may be done")]
    InDoubt {
        /// Where it is.
        at: String,
        /// How the answer was lost.
        why: String,
    },
    /// Another process keeps this folder.
    #[error("the folder {path} is in use by another process")]
    Locked {
        /// The folder.
        path: String,
    },
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
    /// An earlier rename or sync failed, and what reached the disk is not known.
    #[error("the witness has shut itself after its disk failed; start it again")]
    Poisoned,
    /// What is stored, or was answered, is no configuration.
    #[error("{place}: {why}")]
    Damaged {
        /// Where it stands.
        place: String,
        /// What is wrong.
        why: String,
    },
}

impl ArbiterError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Group { .. } | Self::Address { .. } | Self::Version { .. } => Kind::Invalid,
            Self::Groups { .. } | Self::Refused { .. } | Self::Disk { full: true, .. } => Kind::Full,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::InDoubt { .. } => Kind::InDoubt,
            Self::Locked { .. } => Kind::Busy,
            Self::Disk { .. } => Kind::Internal,
            Self::Poisoned => Kind::Closed,
            Self::Damaged { .. } => Kind::Corrupt,
        }
    }

    pub(crate) fn unavailable(at: impl fmt::Display, error: &io::Error) -> Self {
        Self::Unavailable { at: at.to_string(), why: error.to_string() }
    }
}

/// Holds one configuration for one group, and changes it only for who knows it. Blocking; every call ends within the time
/// limits that it was made with. All methods may be called from many threads.
pub trait Arbiter: Send + Sync + Debug {
    /// What it holds: version 0 if nobody ever changed it. Never older than what any earlier call, of anybody, returned.
    ///
    /// # Errors
    /// `Unavailable`, `Damaged`.
    fn read(&self) -> Result<Configuration, ArbiterError>;

    /// Holds `to` instead, durably, if it holds version `expect`, and `to` can follow it. Returns what it holds then: `to` if that was
    /// done (now, or by an earlier call whose answer was lost), else what stands in its way.
    ///
    /// # Errors
    /// `Version` if `to` is no higher version; `Refused` or `Unavailable` if it surely was not done; `InDoubt` if it may have been.
    fn change(&self, expect: u64, to: &Configuration) -> Result<Configuration, ArbiterError>;

    /// Waits until it holds another version than this one, or for so long; returns what it holds.
    ///
    /// # Errors
    /// As [`Arbiter::read`].
    fn watch(&self, seen: u64, at_most: Duration) -> Result<Configuration, ArbiterError>;
}

/// The arbiter at this address, for this group: `host:port` or `unix:/path` for `assent witness`, `etcd://host:port` for etcd.
/// Nothing is connected yet. One question takes at most `limit`.
///
/// # Errors
/// `Address`.
pub fn open(
    at: &str,
    group: GroupName,
    clock: Arc<dyn Clock>,
    limit: Duration,
) -> Result<Box<dyn Arbiter>, ArbiterError> {
    let wrong = |why: String| ArbiterError::Address { text: at.chars().take(200).collect(), why };
    let place = at.strip_prefix("etcd://");
    if place.is_none() && at.contains("://") {
        return Err(wrong("no such kind of arbiter".to_owned()));
    }
    let address: Address = place.unwrap_or(at).parse().map_err(|error| wrong(format!("{error}")))?;
    match (place, &address) {
        (Some(_), Address::Unix(_)) => Err(wrong("etcd has no Unix socket here".to_owned())),
        (Some(_), _) => Ok(Box::new(Etcd::new(address, &group, clock, limit))),
        (None, _) => Ok(Box::new(Witness::new(address, group, limit))),
    }
}
