//! The journal records of the store: how they are laid, and how bytes become records again.
//!
//! Walk: [`Op`] what a writer asks · [`Laid::new`] lays the heads of operations, keys and values stay where they are ·
//! [`Content::decode`] takes an entry apart in place · [`Record::decode`] so that it outlives the entry, at restart. The layouts are drawn in `docs/format.md`, "Key-value records".
//! Deliberately absent: the frame, its checksum and chains, which are the journal's.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{KEY_BYTES_MAX, METADATA_BYTES_MAX, ROW_BYTES, VALUE_BYTES_MAX};
use crate::keyed::Key;

/// The entry kind of an atomic batch.
pub const KIND_BATCH: u16 = 1;
/// The entry kind of a prepared branch.
pub const KIND_PREPARE: u16 = 2;
/// The entry kind of a prepared branch's commit.
pub const KIND_COMMIT: u16 = 3;
/// The entry kind of a prepared branch's rollback.
pub const KIND_ROLLBACK: u16 = 4;

const VERSION: u8 = 1;
const BATCH_HEAD_BYTES: usize = 8;
const OP_HEAD_BYTES: usize = 16;
const OP_PUT: u8 = 1;
const OP_DELETE: u8 = 2;

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
    },
    /// Removes a key; fine if it is not there.
    Delete {
        /// Whose key.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Op<'a> {
    /// A put without metadata.
    #[must_use]
    pub const fn put(keyspace: u32, key: &'a [u8], value: &'a [u8]) -> Self {
        Self::Put { keyspace, key, metadata: &[], value }
    }

    /// A delete.
    #[must_use]
    pub const fn delete(keyspace: u32, key: &'a [u8]) -> Self {
        Self::Delete { keyspace, key }
    }

    /// Its keyspace and key.
    #[must_use]
    pub const fn key(&self) -> (u32, &'a [u8]) {
        match self {
            Self::Put { keyspace, key, .. } | Self::Delete { keyspace, key } => (*keyspace, key),
        }
    }

    const fn fields(&self) -> (u8, &'a [u8], &'a [u8]) {
        match self {
            Self::Put { metadata, value, .. } => (OP_PUT, metadata, value),
            Self::Delete { .. } => (OP_DELETE, &[], &[]),
        }
    }

    /// How many bytes its row takes in the ledger's memory, at most.
    pub(crate) const fn row_bytes(&self) -> u64 {
        let (_, metadata, _) = self.fields();
        let (_, key) = self.key();
        (key.len() + metadata.len()) as u64 + ROW_BYTES
    }

    /// How many bytes it takes in a record.
    #[must_use]
    pub const fn laid_bytes(&self) -> u64 {
        let (_, metadata, value) = self.fields();
        let (_, key) = self.key();
        (OP_HEAD_BYTES + key.len() + metadata.len() + value.len()) as u64
    }
}

/// Where a value stands: inside which entry, and what it must hash to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The entry that has the bytes: a batch, or the prepare record of a committed branch.
    pub(crate) entry: Lsn,
    /// XXH3-64 of the value.
    pub(crate) hash: u64,
    /// Where in the entry's payload the metadata begins; the value stands behind it.
    pub(crate) at: u32,
    pub(crate) value_bytes: u32,
    pub(crate) metadata_bytes: u16,
}

impl Effect {
    /// As [`Op::row_bytes`].
    pub(crate) fn row_bytes(&self) -> u64 {
        (self.key.len() + self.metadata.len()) as u64 + ROW_BYTES
    }
}

/// What publishing does to one key: a place, or nothing for a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) keyspace: u32,
    pub(crate) key: Key,
    pub(crate) place: Option<Place>,
    /// What the writer keeps beside the value.
    pub(crate) metadata: Box<[u8]>,
}

/// A record ready to be appended: its heads in one buffer, keys and values where the caller has them.
#[derive(Debug)]
pub(crate) struct Laid {
    heads: Vec<u8>,
    first: usize,
    pub(crate) effects: Vec<Effect>,
}

impl Laid {
    pub(crate) fn batch(ops: &[Op<'_>], durability: Durability) -> Self {
        let mut head = Writer::new();
        let durable = u8::from(durability == Durability::Durable);
        head.u8(VERSION).u8(durable).u16(0).u32(count(ops));
        Self::new(head, ops)
    }

    pub(crate) fn prepare(ops: &[Op<'_>], xid: &Xid, snapshot: Option<Lsn>) -> Self {
        let mut head = Writer::new();
        head.u8(VERSION).u8(0).u16(0).u32(count(ops)).u64(snapshot.unwrap_or_default().0);
        lay_xid(&mut head, xid);
        Self::new(head, ops)
    }

    fn new(mut heads: Writer, ops: &[Op<'_>]) -> Self {
        let first = heads.as_slice().len();
        let mut at = first;
        let mut effects = Vec::with_capacity(ops.len());
        for op in ops {
            let (code, metadata, value) = op.fields();
            let (keyspace, key) = op.key();
            // The door has checked all lengths against limits that fit these fields.
            let metadata_bytes = u16::try_from(metadata.len()).unwrap_or(u16::MAX);
            let value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
            heads.u8(code).u8(0).u16(metadata_bytes).u32(keyspace);
            heads.u32(u32::try_from(key.len()).unwrap_or(u32::MAX)).u32(value_bytes);
            at += OP_HEAD_BYTES + key.len();
            let place = (code == OP_PUT).then(|| Place {
                entry: Lsn::ZERO,
                hash: xxh3_64(value),
                at: u32::try_from(at).unwrap_or(u32::MAX),
                value_bytes,
                metadata_bytes,
            });
            effects.push(Effect { keyspace, key: key.into(), place, metadata: metadata.into() });
            at += metadata.len() + value.len();
        }
        Self { heads: heads.into_vec(), first, effects }
    }

    /// The payload in parts, for `Log::append`.
    pub(crate) fn parts<'a>(&'a self, ops: &[Op<'a>]) -> Vec<&'a [u8]> {
        let (first, rest) = self.heads.split_at_checked(self.first).unwrap_or((&self.heads, &[]));
        let heads = rest.chunks(OP_HEAD_BYTES);
        let each = heads.zip(ops).flat_map(|(head, op)| {
            let (_, metadata, value) = op.fields();
            [head, op.key().1, metadata, value]
        });
        std::iter::once(first).chain(each).filter(|part| !part.is_empty()).collect()
    }

    /// What it does, now that it is known where it stands.
    pub(crate) fn placed(mut self, entry: Lsn) -> Vec<Effect> {
        self.effects.iter_mut().filter_map(|effect| effect.place.as_mut()).for_each(|place| place.entry = entry);
        self.effects
    }
}

fn count(ops: &[Op<'_>]) -> u32 {
    u32::try_from(ops.len()).unwrap_or(u32::MAX)
}

/// The bytes that a batch of these operations takes.
pub(crate) fn batch_bytes(ops: &[Op<'_>]) -> u64 {
    ops.iter().fold(BATCH_HEAD_BYTES as u64, |sum, op| sum.saturating_add(op.laid_bytes()))
}

/// The payload of a commit or rollback record.
pub(crate) fn outcome(xid: &Xid, prepare: Lsn) -> Vec<u8> {
    let mut payload = Writer::new();
    payload.u8(VERSION).u8(0).u16(0).u32(0).u64(prepare.0);
    lay_xid(&mut payload, xid);
    payload.into_vec()
}

pub(crate) fn lay_xid(payload: &mut Writer, xid: &Xid) {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    payload.u32(xid.format().unsigned_abs()).u8(length(xid.gtrid())).u8(length(xid.bqual())).u16(0);
    payload.raw(xid.gtrid()).raw(xid.bqual());
}

pub(crate) fn read_xid(reader: &mut Reader<'_>) -> Result<Xid, Malformed> {
    let malformed = |_| Malformed { field: "xid" };
    let format = i32::try_from(reader.u32("xid format")?).map_err(|_| Malformed { field: "xid format" })?;
    let gtrid = reader.u8("gtrid length")?;
    let bqual = reader.u8("bqual length")?;
    reader.u16("xid reserved")?;
    let gtrid = reader.raw(gtrid.into(), "gtrid")?;
    let bqual = reader.raw(bqual.into(), "bqual")?;
    Xid::new(format, gtrid, bqual).map_err(malformed)
}

/// An operation of an entry and where its metadata begins in the payload: with the entry's LSN, the address of what it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed<'a> {
    pub(crate) at: u32,
    pub(crate) op: Op<'a>,
}

/// A journal entry, understood where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    Batch { ops: Vec<Placed<'a>> },
    Prepare { xid: Xid, ops: Vec<Placed<'a>> },
    Commit { xid: Xid, prepare: Lsn },
    Rollback { xid: Xid, prepare: Lsn },
}

impl<'a> Content<'a> {
    pub(crate) fn decode(kind: u16, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        if reader.u8("version")? != VERSION {
            return Err(Malformed { field: "version" });
        }
        reader.u8("durability")?;
        reader.u16("reserved")?;
        let count = reader.u32("count")?;
        let content = match kind {
            KIND_BATCH => Self::Batch { ops: ops(&mut reader, count, payload)? },
            KIND_PREPARE => {
                reader.u64("snapshot")?;
                let xid = read_xid(&mut reader)?;
                Self::Prepare { xid, ops: ops(&mut reader, count, payload)? }
            }
            KIND_COMMIT | KIND_ROLLBACK => {
                let prepare = Lsn(reader.u64("prepare")?);
                let xid = read_xid(&mut reader)?;
                if kind == KIND_COMMIT { Self::Commit { xid, prepare } } else { Self::Rollback { xid, prepare } }
            }
            _ => return Err(Malformed { field: "kind" }),
        };
        reader.end()?;
        Ok(content)
    }
}

/// A journal entry, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Batch { effects: Vec<Effect> },
    Prepare { xid: Xid, effects: Vec<Effect> },
    Commit { xid: Xid, prepare: Lsn },
    Rollback { xid: Xid, prepare: Lsn },
}

impl Record {
    pub(crate) fn decode(entry: Lsn, kind: u16, payload: &[u8]) -> Result<Self, Malformed> {
        Ok(match Content::decode(kind, payload)? {
            Content::Batch { ops } => Self::Batch { effects: effects(&ops, entry) },
            Content::Prepare { xid, ops } => Self::Prepare { xid, effects: effects(&ops, entry) },
            Content::Commit { xid, prepare } => Self::Commit { xid, prepare },
            Content::Rollback { xid, prepare } => Self::Rollback { xid, prepare },
        })
    }
}

fn effects(ops: &[Placed<'_>], entry: Lsn) -> Vec<Effect> {
    let effect = |placed: &Placed<'_>| {
        let (keyspace, key) = placed.op.key();
        let (code, metadata, value) = placed.op.fields();
        let place = (code == OP_PUT).then(|| Place {
            entry,
            hash: xxh3_64(value),
            at: placed.at,
            value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
            metadata_bytes: u16::try_from(metadata.len()).unwrap_or(u16::MAX),
        });
        Effect { keyspace, key: key.into(), place, metadata: metadata.into() }
    };
    ops.iter().map(effect).collect()
}

fn ops<'a>(reader: &mut Reader<'a>, count: u32, payload: &[u8]) -> Result<Vec<Placed<'a>>, Malformed> {
    let mut ops = Vec::new();
    for _ in 0..count {
        let code = reader.u8("operation")?;
        reader.u8("reserved")?;
        let metadata_bytes = reader.u16("metadata length")?;
        let keyspace = reader.u32("keyspace")?;
        let key_bytes = reader.u32("key length")?;
        let value_bytes = reader.u32("value length")?;
        let fits = key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX && metadata_bytes <= METADATA_BYTES_MAX;
        if !fits || !matches!(code, OP_PUT | OP_DELETE) {
            return Err(Malformed { field: "operation" });
        }
        let long = |_| Malformed { field: "length" };
        let key = reader.raw(usize::try_from(key_bytes).map_err(long)?, "key")?;
        let at = u32::try_from(payload.len() - reader.rest().len()).map_err(long)?;
        let metadata = reader.raw(metadata_bytes.into(), "metadata")?;
        let value = reader.raw(usize::try_from(value_bytes).map_err(long)?, "value")?;
        let op = if code == OP_PUT { Op::Put { keyspace, key, metadata, value } } else { Op::Delete { keyspace, key } };
        ops.push(Placed { at, op });
    }
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops() -> [Op<'static>; 3] {
        [
            Op::Put { keyspace: 7, key: b"k", metadata: b"meta", value: b"value" },
            Op::delete(1, b"gone"),
            Op::put(0, b"", b""),
        ]
    }

    fn xid() -> Xid {
        Xid::new(3, b"global", b"branch").unwrap()
    }

    #[test]
    fn what_is_laid_is_understood_and_places_point_at_the_values() {
        for (kind, laid) in [
            (KIND_BATCH, Laid::batch(&ops(), Durability::Durable)),
            (KIND_PREPARE, Laid::prepare(&ops(), &xid(), Some(Lsn(9)))),
        ] {
            let payload = laid.parts(&ops()).concat();
            let effects = laid.placed(Lsn(64));
            let at = usize::try_from(effects[0].place.unwrap().at).unwrap();
            assert_eq!(&payload[at..at + 9], b"metavalue");
            let expected = match kind {
                KIND_BATCH => Record::Batch { effects },
                _ => Record::Prepare { xid: xid(), effects },
            };
            assert_eq!(Record::decode(Lsn(64), kind, &payload), Ok(expected));
        }
        assert_eq!(
            batch_bytes(&ops()),
            u64::try_from(Laid::batch(&ops(), Durability::Buffered).parts(&ops()).concat().len()).unwrap()
        );
        let commit = outcome(&xid(), Lsn(5));
        assert_eq!(Record::decode(Lsn(8), KIND_COMMIT, &commit), Ok(Record::Commit { xid: xid(), prepare: Lsn(5) }));
        assert_eq!(
            Record::decode(Lsn(8), KIND_ROLLBACK, &commit),
            Ok(Record::Rollback { xid: xid(), prepare: Lsn(5) })
        );
    }

    #[test]
    fn every_cut_and_every_foreign_kind_or_version_is_refused() {
        let payload = Laid::batch(&ops(), Durability::Durable).parts(&ops()).concat();
        for end in 0..payload.len() {
            assert!(Record::decode(Lsn(0), KIND_BATCH, &payload[..end]).is_err(), "{end}");
        }
        assert!(Record::decode(Lsn(0), 99, &payload).is_err());
        let mut newer = payload;
        newer[0] = 2;
        assert_eq!(Record::decode(Lsn(0), KIND_BATCH, &newer), Err(Malformed { field: "version" }));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_get_an_answer(kind in 0_u16..6, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = Record::decode(Lsn(0), kind, &bytes);
        }
    }
}
