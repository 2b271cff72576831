//! Work on the store's keys: writes, and ranges to read.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Xid;

use crate::{WireError, field};

/// The most operations of one message.
pub const OPS_MAX: usize = 1 << 20;
/// What one takes at least: its code, its keyspace, and the length of its key.
const OP_BYTES_MIN: usize = 9;
const _: () = assert!(OPS_MAX <= field::LIST_MAX, "what is counted can be read");

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
    /// Sets a key with what is kept beside its value. Since version 2.
    Set {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// Opaque to the store.
        metadata: &'a [u8],
        /// When it expires, in milliseconds since 1970; 0: never.
        expiry_ms: u64,
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
    /// Removes all keys of a range. Not within a branch. Since version 2.
    Erase {
        /// Whose keys.
        keyspace: u32,
        /// The first of them.
        from: &'a [u8],
        /// The first key that stays; without it the keyspace's last one goes too.
        to: Option<&'a [u8]>,
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

/// Keys of a range in their order. One answer holds what fits a message, and 64 values at most; ask on behind its last key.
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

impl<'a> Op<'a> {
    /// The version of the protocol that knows it.
    pub(crate) const fn since(&self) -> u16 {
        match self {
            Self::Put { .. } | Self::Delete { .. } => 1,
            Self::Set { .. } | Self::Erase { .. } => 2,
        }
    }

    pub(crate) fn put(&self, to: &mut Writer) {
        match self {
            Self::Put { keyspace, key, value } => _ = to.u8(1).u32(*keyspace).bytes(key).bytes(value),
            Self::Delete { keyspace, key } => _ = to.u8(2).u32(*keyspace).bytes(key),
            Self::Set { keyspace, key, metadata, expiry_ms, value } => {
                to.u8(3).u32(*keyspace).bytes(key).bytes(metadata).u64(*expiry_ms).bytes(value);
            }
            Self::Erase { keyspace, from, to: end } => {
                to.u8(4).u32(*keyspace).bytes(from);
                field::put_option(to, end.as_ref(), |to, end| _ = to.bytes(end));
            }
        }
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        match (from.u8("op")?, from.u32("keyspace")?, from.bytes("key")?) {
            (1, keyspace, key) => Ok(Self::Put { keyspace, key, value: from.bytes("value")? }),
            (2, keyspace, key) => Ok(Self::Delete { keyspace, key }),
            (3, keyspace, key) => Ok(Self::Set {
                keyspace,
                key,
                metadata: from.bytes("metadata")?,
                expiry_ms: from.u64("expiry")?,
                value: from.bytes("value")?,
            }),
            (4, keyspace, first) => {
                Ok(Self::Erase { keyspace, from: first, to: field::option(from, "end", |from| from.bytes("end"))? })
            }
            _ => Err(Malformed { field: "op" }),
        }
    }
}

/// Operations run to the end of the payload. They are counted before room is made for any.
///
/// # Errors
/// [`WireError::Many`] beyond [`OPS_MAX`]; what is wrong with one of them.
pub(crate) fn ops<'a>(from: &mut Reader<'a>) -> Result<Vec<Op<'a>>, WireError> {
    if from.rest().len() / OP_BYTES_MIN > OPS_MAX {
        let (mut ahead, mut count) = (*from, 0);
        while !ahead.rest().is_empty() {
            Op::take(&mut ahead)?;
            count += 1;
        }
        if count > OPS_MAX {
            return Err(WireError::Many { what: "operations", count, limit: OPS_MAX });
        }
    }
    Ok(field::rest(from, Op::take)?)
}

impl<'a> Write<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_option(to, self.xid.as_ref(), field::put_xid);
        to.u8(u8::from(self.durable));
        self.ops.iter().for_each(|op| op.put(to));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(Self {
            xid: field::option(from, "branch", field::xid)?,
            durable: field::flag(from, "durable")?,
            ops: ops(from)?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assembly, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, Request, WriteIf};

    /// A message of 256 MiB has room for thirty million deletes of an empty key, of which each took 144 bytes before the store saw any.
    #[test]
    fn as_many_operations_as_fit_memory_are_taken_and_one_more_is_refused_with_its_count() {
        let parsed = |count: usize, is_conditional: bool| {
            let ops = vec![Op::Delete { keyspace: 0, key: b"" }; count];
            let request = if is_conditional {
                Request::WriteIf(WriteIf { durable: true, conditions: Vec::new(), ops })
            } else {
                Request::Write(Write { xid: None, durable: true, ops })
            };
            let mut out = Vec::new();
            request.lay_long(&mut out, 1, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX).unwrap();
            let (mut rest, mut whole): (_, Option<Assembly>) = (out.as_slice(), None);
            while let Some((part, used)) = assent_frame::parse(rest, PAYLOAD_BYTES_MAX).unwrap() {
                rest = &rest[used..];
                match &mut whole {
                    Some(whole) => whole.add(&part).unwrap(),
                    None => whole = Some(Assembly::begin(&part, true).unwrap()),
                }
            }
            Request::parse(&whole.unwrap().frame()).map(|_| ())
        };
        for is_conditional in [false, true] {
            assert_eq!(parsed(OPS_MAX, is_conditional), Ok(()));
            let refused = parsed(OPS_MAX + 1, is_conditional).unwrap_err();
            assert_eq!(refused, WireError::Many { what: "operations", count: OPS_MAX + 1, limit: OPS_MAX });
            let said = "1048577 operations in one message; it takes at most 1048576: send them in several";
            assert_eq!(refused.to_string(), said);
        }
    }
}
