//! Batches under conditions. Since version 2.
//!
//! Walk: [`WriteIf`] is a [`Write`](crate::Write) that is done if every [`Condition`] holds · [`Expected`] are conditions of a branch,
//! judged by its vote.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};

use crate::work::{Op, ops};
use crate::{WireError, field};

/// What a key must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Not there.
    Absent,
    /// There.
    Present,
    /// As this write left it: what its writer was answered, and what `Object::lsn` says.
    At(Lsn),
}

/// A condition of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// Whose key.
    pub keyspace: u32,
    /// The key.
    pub key: &'a [u8],
    /// What it must be like.
    pub expects: Expect,
}

/// Writes, all or none, if every condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteIf<'a> {
    /// On disk before it is answered, whatever the store's policy.
    pub durable: bool,
    /// All of them must hold.
    pub conditions: Vec<Condition<'a>>,
    /// In this order.
    pub ops: Vec<Op<'a>>,
}

/// Conditions that a branch keeps: it commits only if all of them hold when it votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected<'a> {
    /// The branch.
    pub xid: Xid,
    /// All of them must hold.
    pub conditions: Vec<Condition<'a>>,
}

impl<'a> Condition<'a> {
    fn put(&self, to: &mut Writer) {
        to.u32(self.keyspace).bytes(self.key);
        match self.expects {
            Expect::Absent => _ = to.u8(1),
            Expect::Present => _ = to.u8(2),
            Expect::At(lsn) => _ = to.u8(3).u64(lsn.0),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (keyspace, key) = (from.u32("keyspace")?, from.bytes("key")?);
        let expects = match from.u8("expectation")? {
            1 => Expect::Absent,
            2 => Expect::Present,
            3 => Expect::At(Lsn(from.u64("lsn")?)),
            _ => return Err(Malformed { field: "expectation" }),
        };
        Ok(Self { keyspace, key, expects })
    }
}

impl<'a> WriteIf<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.u8(u8::from(self.durable));
        field::put_list(to, &self.conditions, |to, condition| condition.put(to));
        self.ops.iter().for_each(|op| op.put(to));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(Self {
            durable: field::flag(from, "durable")?,
            conditions: field::list(from, "conditions", Condition::take)?,
            ops: ops(from)?,
        })
    }
}

impl<'a> Expected<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_xid(to, &self.xid);
        self.conditions.iter().for_each(|condition| condition.put(to));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { xid: field::xid(from)?, conditions: field::rest(from, Condition::take)? })
    }
}
