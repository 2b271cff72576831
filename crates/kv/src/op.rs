//! What a writer asks: to set a key, to remove one, to remove a range.
//!
//! Walk: [`Op::put`] and its like · [`Op::fields`] are the parts that a record is laid of.

use crate::config::ROW_BYTES;

const OP_HEAD_BYTES: usize = 16;
const EXPIRY_BYTES: usize = 8;
pub(crate) const OP_PUT: u8 = 1;
pub(crate) const OP_DELETE: u8 = 2;
pub(crate) const OP_ERASE: u8 = 3;
/// Flag of a put: when it expires stands behind the head.
pub(crate) const EXPIRES: u8 = 1;
/// Flag of an erase: it has an end, laid where a put has its value.
pub(crate) const ENDS: u8 = 2;

/// How durable a plain write is when it is answered. Votes and branch outcomes are always [`Durability::Durable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// As the journal's sync policy says: at least in the kernel, where only a crash of the operating system takes it.
    Buffered,
    /// On disk, whatever the policy; so is everything before it.
    #[default]
    Durable,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets a key.
    Put {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// Kept beside the value, opaque here.
        metadata: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// From when on it is no more, in milliseconds since 1970; 0 for never.
        expiry: u64,
    },
    /// Removes a key; fine if it is not there.
    Delete {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
    /// Removes all keys of a range with one entry, however many there are. Not within a branch.
    Erase {
        /// Whose keys.
        keyspace: u32,
        /// The first of them.
        from: &'a [u8],
        /// The first key that stays; `None`: the keyspace's last one goes too.
        to: Option<&'a [u8]>,
    },
}

/// An operation as it is laid.
pub(crate) struct Fields<'a> {
    pub(crate) code: u8,
    pub(crate) flags: u8,
    pub(crate) key: &'a [u8],
    pub(crate) metadata: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) expiry: u64,
}

impl<'a> Op<'a> {
    /// A put without metadata.
    #[must_use]
    pub const fn put(keyspace: u32, key: &'a [u8], value: &'a [u8]) -> Self {
        Self::Put { keyspace, key, metadata: &[], value, expiry: 0 }
    }

    /// The same put, gone from then on: milliseconds since 1970, 0 for never. Anything else stays as it is.
    #[must_use]
    pub const fn expiring(self, at_ms: u64) -> Self {
        match self {
            Self::Put { keyspace, key, metadata, value, .. } => {
                Self::Put { keyspace, key, metadata, value, expiry: at_ms }
            }
            other => other,
        }
    }

    /// A delete.
    #[must_use]
    pub const fn delete(keyspace: u32, key: &'a [u8]) -> Self {
        Self::Delete { keyspace, key }
    }

    /// An erase of all keys from one to an exclusive end, or to the last.
    #[must_use]
    pub const fn erase(keyspace: u32, from: &'a [u8], to: Option<&'a [u8]>) -> Self {
        Self::Erase { keyspace, from, to }
    }

    /// Its keyspace and key; of an erase, the first one.
    #[must_use]
    pub const fn key(&self) -> (u32, &'a [u8]) {
        match self {
            Self::Put { keyspace, key, .. }
            | Self::Delete { keyspace, key }
            | Self::Erase { keyspace, from: key, .. } => (*keyspace, key),
        }
    }

    pub(crate) const fn fields(&self) -> Fields<'a> {
        let (_, key) = self.key();
        let none = Fields { code: OP_DELETE, flags: 0, key, metadata: &[], value: &[], expiry: 0 };
        match *self {
            Self::Put { metadata, value, expiry, .. } => {
                let flags = if expiry == 0 { 0 } else { EXPIRES };
                Fields { code: OP_PUT, flags, key, metadata, value, expiry }
            }
            Self::Delete { .. } => none,
            Self::Erase { to: Some(to), .. } => Fields { code: OP_ERASE, flags: ENDS, value: to, ..none },
            Self::Erase { to: None, .. } => Fields { code: OP_ERASE, ..none },
        }
    }

    /// How many bytes its row takes in the ledger's memory, at most.
    pub(crate) const fn row_bytes(&self) -> u64 {
        let Fields { code, key, metadata, value, .. } = self.fields();
        // Kept as it is, and as what it cuts.
        if code == OP_ERASE {
            return 2 * ((key.len() + value.len()) as u64 + ROW_BYTES);
        }
        (key.len() + metadata.len()) as u64 + ROW_BYTES
    }

    /// How many bytes it takes in a record.
    #[must_use]
    pub const fn laid_bytes(&self) -> u64 {
        let Fields { flags, key, metadata, value, .. } = self.fields();
        (head_bytes(flags) + key.len() + metadata.len() + value.len()) as u64
    }
}

/// How many bytes stand before an operation's key.
pub(crate) const fn head_bytes(flags: u8) -> usize {
    OP_HEAD_BYTES + if flags & EXPIRES == 0 { 0 } else { EXPIRY_BYTES }
}
