//! What can go wrong in the store, and what the caller must do.

use std::fmt;

use assent_ids::{Lsn, NodeId, Xid};
use assent_journal::JournalError;
use assent_kind::Kind;
use assent_runs::RunsError;

use crate::conditions::Expect;
use crate::config::ROWS_BYTES_MAX;
use crate::keyspaces::Name;
use crate::op::Op;
use crate::vault::VaultError;

/// A key as people read it in messages: escaped, and cut if it is long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    keyspace: u32,
    key: String,
}

impl Shown {
    pub(crate) fn of(keyspace: u32, key: &[u8]) -> Self {
        const SHOWN_BYTES_MAX: usize = 80;
        let start = key.get(..SHOWN_BYTES_MAX).unwrap_or(key);
        let dots = if start.len() < key.len() { "..." } else { "" };
        Self { keyspace, key: format!("{}{dots}", start.escape_ascii()) }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" of keyspace {}", self.key, self.keyspace)
    }
}

/// Why the store refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// A part of an operation beyond its limit. Nothing has been written.
    #[error("{part} of {bytes} bytes; at most {limit} are taken")]
    Size {
        /// Key, value, metadata, batch, branch, row or scan.
        part: &'static str,
        /// How many bytes it has.
        bytes: u64,
        /// How many are taken.
        limit: u64,
    },
    /// A batch without operations.
    #[error("a batch of 0 operations; at least 1 is needed")]
    Empty,
    /// A configured value that cannot work.
    #[error("{name} = {value}; it must be {rule}")]
    Config {
        /// The key.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// A limit on what waits or stays open is reached for the moment.
    #[error("{what}: the limit of {limit} is reached; send it again")]
    Busy {
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// A start of a branch that is known already (XAER_DUPID).
    #[error("branch {xid} is known already")]
    Known {
        /// The branch.
        xid: Box<Xid>,
    },
    /// No such branch (XAER_NOTA).
    #[error("branch {xid} is not known here")]
    Unknown {
        /// The branch.
        xid: Box<Xid>,
    },
    /// A verb that does not fit the branch's state (XAER_PROTO). Nothing has changed.
    #[error("branch {xid} is {state}: {verb} is not possible now")]
    State {
        /// The branch.
        xid: Box<Xid>,
        /// What it is.
        state: &'static str,
        /// What was asked.
        verb: &'static str,
    },
    /// More of something than one request takes. Nothing has changed.
    #[error("{count} {what}; at most {limit} are taken")]
    Many {
        /// Of what there are too many.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A name that no keyspace can have. Nothing has changed.
    #[error("{name} of {bytes} bytes is no name of a keyspace: that has 1 to 255 bytes, and no control characters")]
    Named {
        /// The name, or how it begins.
        name: Name,
        /// How many bytes it has.
        bytes: usize,
    },
    /// A keyspace that is to be made exists.
    #[error("keyspace {name} exists")]
    NameKnown {
        /// Its name.
        name: Name,
    },
    /// No keyspace has this name.
    #[error("there is no keyspace {name}")]
    NameUnknown {
        /// The name, or how it begins.
        name: Name,
    },
    /// A write into a named keyspace that is not there. Nothing was written.
    #[error("keyspace {keyspace} was dropped, or never made: ids from 1073741824 on are given out with names")]
    Dropped {
        /// Its id.
        keyspace: u32,
    },
    /// A write into the store's own rows. Nothing was written.
    #[error("keyspace {keyspace} is the store's own")]
    Reserved {
        /// Its id.
        keyspace: u32,
    },
    /// What a lease or a branch saw is kept no longer. A branch is rolled back by its vote; else take a new one, or refresh it.
    #[error("the snapshot at {at} was ended: {what} reached the limit of {limit}")]
    SnapshotEnded {
        /// Everything up to here was visible in it.
        at: Lsn,
        /// What there was too much of.
        what: &'static str,
        /// How much there may be.
        limit: u64,
    },
    /// A condition does not hold. Nothing was written; a branch that had it is rolled back.
    #[error("key {key} was expected {expected}, and {}", found.map_or("is not there".to_owned(), |at| format!("was committed at {at}")))]
    Unmet {
        /// The key.
        key: Shown,
        /// What it had to be.
        expected: Expect,
        /// Where the entry ends that made it what it is; none if it is not there.
        found: Option<Lsn>,
    },
    /// Something that no branch can do. Nothing has changed.
    #[error("{verb} is not possible within a branch: do it outside of one")]
    Unbranched {
        /// What was asked.
        verb: &'static str,
    },
    /// Work on a resource that has no branch started.
    #[error("no branch is started on this resource: start one first")]
    NoBranch,
    /// A prepared branch holds the key until it is told its outcome.
    #[error("key {key} is held by the prepared branch {by}")]
    Held {
        /// The key.
        key: Shown,
        /// Who holds it.
        by: Box<Xid>,
    },
    /// Others wait for a key, and who would hold it does not go before them.
    #[error("key {key} is waited for by a writer who came before")]
    Awaited {
        /// The key.
        key: Shown,
    },
    /// Somebody else wrote a key of this branch after the branch's snapshot.
    #[error("key {key} was written at {written} after this branch's snapshot at {snapshot}")]
    Newer {
        /// The key.
        key: Shown,
        /// When the other write was committed.
        written: Lsn,
        /// What the branch had seen.
        snapshot: Lsn,
    },
    /// The branch's work had failed (xa_end with TMFAIL): it is rolled back and forgotten.
    #[error("branch {xid} had failed and is rolled back")]
    RolledBack {
        /// The branch.
        xid: Box<Xid>,
    },
    /// Another connection resolves this coordinator's branches here.
    #[error("another connection resolves the branches of node {node} here")]
    Claimed {
        /// The coordinator's data folder.
        node: NodeId,
    },
    /// The store was opened read-only.
    #[error("the store is open read-only")]
    ReadOnly,
    /// The journal refused; nothing was appended.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It was appended, and whether it is durable is not known until the store is reopened.
    #[error("whether it was written is not known until the store is reopened: {0}")]
    InDoubt(JournalError),
    /// A value's bytes are not those that were written.
    #[error("the value of key {key} at LSN {lsn} is damaged: {what}")]
    Damaged {
        /// The key.
        key: Shown,
        /// The journal entry that has the value.
        lsn: Lsn,
        /// What is wrong.
        what: String,
    },
    /// A journal entry that this version cannot have written.
    #[error("the journal entry at LSN {lsn} is no key-value record of this version: {what}")]
    Record {
        /// The entry.
        lsn: Lsn,
        /// What is wrong.
        what: String,
    },
    /// The ledger refused or failed; it can be built anew from the journal.
    #[error("the ledger: {0}")]
    Ledger(#[from] RunsError),
    /// The ledger took an entry no more that the journal has: what was asked is known once the store is reopened.
    #[error("nothing more becomes visible until the store is reopened: {0}")]
    Unpublished(RunsError),
    /// A volume of values refused or failed.
    #[error("{what}")]
    Volume {
        /// What the caller must do.
        kind: Kind,
        /// What is wrong, and which file it is.
        what: String,
    },
    /// The ledger is lost, and what is left is only to be looked at: opening the store to work in it builds the ledger anew.
    #[error("the ledger {folder} is lost; open the store to work in it, and it is built anew")]
    Lost {
        /// Its folder.
        folder: String,
    },
    /// A row of the ledger that this version cannot have written.
    #[error("the ledger's row of LSN {committed} is none of this version: {what}")]
    Row {
        /// The entry that made it so.
        committed: Lsn,
        /// What is wrong.
        what: String,
    },
}

impl KvError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Size { .. }
            | Self::Empty
            | Self::Config { .. }
            | Self::State { .. }
            | Self::Many { .. }
            | Self::Named { .. }
            | Self::Reserved { .. }
            | Self::Unbranched { .. }
            | Self::NoBranch => Kind::Invalid,
            Self::Busy { .. } => Kind::Busy,
            Self::Known { .. }
            | Self::NameKnown { .. }
            | Self::SnapshotEnded { .. }
            | Self::Dropped { .. }
            | Self::Held { .. }
            | Self::Awaited { .. }
            | Self::Newer { .. }
            | Self::Unmet { .. }
            | Self::Claimed { .. } => Kind::Conflict,
            Self::Unknown { .. } | Self::NameUnknown { .. } => Kind::NotFound,
            Self::RolledBack { .. } => Kind::RolledBack,
            Self::ReadOnly => Kind::Denied,
            Self::Journal(error) => error.kind(),
            Self::InDoubt(_) | Self::Unpublished(_) => Kind::InDoubt,
            Self::Ledger(error) => error.kind(),
            Self::Volume { kind, .. } => *kind,
            Self::Lost { .. } | Self::Damaged { .. } | Self::Record { .. } | Self::Row { .. } => Kind::Corrupt,
        }
    }
}

impl From<VaultError> for KvError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Journal(error) => Self::Journal(error),
            error => Self::Volume { kind: error.kind(), what: error.to_string() },
        }
    }
}

/// One sentence for a size beyond its limit.
pub(crate) const fn within(part: &'static str, bytes: u64, limit: u64) -> Result<(), KvError> {
    if bytes <= limit { Ok(()) } else { Err(KvError::Size { part, bytes, limit }) }
}

/// The rows of one entry become visible together.
pub(crate) fn rows_fit(ops: &[Op<'_>]) -> Result<(), KvError> {
    within("the rows of one batch", ops.iter().map(Op::row_bytes).sum(), ROWS_BYTES_MAX)
}
