//! Work on the store's keys: writes, and ranges to read.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Xid;

use crate::field;

/// One write to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets a key.
    Put {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes a key; fine if it is not there.
    Delete {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
}

/// Writes, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Within this branch; else at once.
    pub xid: Option<Xid>,
    /// On disk before it is answered, whatever the store's policy. Within a branch the vote is what is durable.
    pub durable: bool,
    /// In this order.
    pub ops: Vec<Op<'a>>,
}

/// One end of a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<'a> {
    /// No end.
    Unbounded,
    /// This key and beyond.
    Included(&'a [u8]),
    /// Beyond this key.
    Excluded(&'a [u8]),
}

/// Keys of a range in their order. One answer holds what fits a message; ask on behind its last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// As this branch sees it; else as of now.
    pub xid: Option<Xid>,
    /// Whose keys.
    pub keyspace: u32,
    /// The lower end.
    pub from: Bound<'a>,
    /// The upper end.
    pub to: Bound<'a>,
    /// At most that many.
    pub limit: u32,
}

impl<'a> Write<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_option(to, self.xid.as_ref(), field::put_xid);
        to.u8(u8::from(self.durable));
        for op in &self.ops {
            match op {
                Op::Put { keyspace, key, value } => _ = to.u8(1).u32(*keyspace).bytes(key).bytes(value),
                Op::Delete { keyspace, key } => _ = to.u8(2).u32(*keyspace).bytes(key),
            }
        }
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: field::option(from, "branch", field::xid)?,
            durable: field::flag(from, "durable")?,
            ops: field::rest(from, |from| match (from.u8("op")?, from.u32("keyspace")?, from.bytes("key")?) {
                (1, keyspace, key) => Ok(Op::Put { keyspace, key, value: from.bytes("value")? }),
                (2, keyspace, key) => Ok(Op::Delete { keyspace, key }),
                _ => Err(Malformed { field: "op" }),
            })?,
        })
    }
}

impl<'a> Bound<'a> {
    fn put(self, to: &mut Writer) {
        match self {
            Self::Unbounded => _ = to.u8(0),
            Self::Included(key) => _ = to.u8(1).bytes(key),
            Self::Excluded(key) => _ = to.u8(2).bytes(key),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        match from.u8("bound")? {
            0 => Ok(Self::Unbounded),
            1 => from.bytes("bound").map(Self::Included),
            2 => from.bytes("bound").map(Self::Excluded),
            _ => Err(Malformed { field: "bound" }),
        }
    }
}

impl<'a> Scan<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_option(to, self.xid.as_ref(), field::put_xid);
        to.u32(self.keyspace).u32(self.limit);
        self.from.put(to);
        self.to.put(to);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            xid: field::option(from, "branch", field::xid)?,
            keyspace: from.u32("keyspace")?,
            limit: from.u32("limit")?,
            from: Bound::take(from)?,
            to: Bound::take(from)?,
        })
    }
}
