//! The journal records of the store: how they are laid, and how bytes become records again.
//!
//! Walk: [`Laid::new`] lays the heads of operations, keys and values stay where they are ·
//! [`Content::decode`] takes an entry apart in place · [`Record::decode`] so that it outlives the entry, at restart. The layouts are drawn in `docs/format.md`, "Key-value records".
//! Deliberately absent: the frame, its checksum and chains, which are the journal's.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{KEY_BYTES_MAX, METADATA_BYTES_MAX, ROW_BYTES, VALUE_BYTES_MAX};
use crate::covers::Covers;
use crate::keyed::Key;
use crate::op::{Durability, ENDS, EXPIRES, Fields, OP_DELETE, OP_ERASE, OP_PUT, Op, head_bytes};

/// The entry kind of an atomic batch.
pub const KIND_BATCH: u16 = 1;
/// The entry kind of a prepared branch.
pub const KIND_PREPARE: u16 = 2;
/// The entry kind of a prepared branch's commit.
pub const KIND_COMMIT: u16 = 3;
/// The entry kind of a prepared branch's rollback.
pub const KIND_ROLLBACK: u16 = 4;

const VERSION: u8 = 2;
/// Without times and erases. Still read.
const VERSION_BEFORE: u8 = 1;
const BATCH_HEAD_BYTES: usize = 16;

/// Where a value stands: inside which entry, what it must hash to, and its times.
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
    /// When it was written, in milliseconds since 1970; 0 where no record says so.
    pub(crate) modified: u64,
    /// From when on it is no more; 0 for never.
    pub(crate) expiry: u64,
}

/// What a writer keeps beside a value: a little needs no memory of its own.
pub(crate) type Metadata = SmallVec<[u8; 64]>;

/// A key on its way: a short one needs no memory of its own either.
pub(crate) type ShortKey = SmallVec<[u8; 24]>;

/// What an entry does; what a single write does needs no memory of its own.
pub(crate) type Effects = SmallVec<[Effect; 1]>;

/// What a key, or the keys from one on, become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// A value, with what the writer keeps beside it.
    Value { place: Place, metadata: Metadata },
    /// Nothing: it was deleted.
    Nothing,
    /// Nothing, from this key to an exclusive end or to the keyspace's last.
    Erased { to: Option<Key> },
}

/// What publishing does to one key, or from it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) keyspace: u32,
    pub(crate) key: ShortKey,
    pub(crate) became: Became,
}

impl Effect {
    /// Where the value stands, if it has one now.
    pub(crate) const fn place(&self) -> Option<&Place> {
        match &self.became {
            Became::Value { place, .. } => Some(place),
            Became::Nothing | Became::Erased { .. } => None,
        }
    }

    /// As [`Op::row_bytes`].
    pub(crate) fn row_bytes(&self) -> u64 {
        let (more, times) = match &self.became {
            Became::Value { metadata, .. } => (metadata.len(), 1),
            Became::Nothing => (0, 1),
            Became::Erased { to } => (to.as_ref().map_or(0, |to| to.len()), 2),
        };
        times * ((self.key.len() + more) as u64 + ROW_BYTES)
    }

    fn of(op: &Op<'_>, entry: Lsn, at: u32, modified: u64) -> Self {
        let (keyspace, key) = op.key();
        let became = match *op {
            // The door has checked all lengths against limits that fit these fields.
            Op::Put { metadata, value, expiry, .. } => Became::Value {
                place: Place {
                    entry,
                    hash: xxh3_64(value),
                    at,
                    value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
                    metadata_bytes: u16::try_from(metadata.len()).unwrap_or(u16::MAX),
                    modified,
                    expiry,
                },
                // At once: `into` goes byte by byte.
                metadata: Metadata::from_slice(metadata),
            },
            Op::Delete { .. } => Became::Nothing,
            Op::Erase { to, .. } => Became::Erased { to: to.map(Key::from) },
        };
        Self { keyspace, key: ShortKey::from_slice(key), became }
    }
}

/// Puts that an erase behind them in the same record takes away again. The ledger erases first, whatever the order in the
/// record, so they count as deletes.
fn overtaken(ops: &[Op<'_>]) -> Vec<usize> {
    if !ops.iter().any(|op| matches!(op, Op::Erase { .. })) {
        return Vec::new();
    }
    let (mut behind, mut overtaken) = (Covers::default(), Vec::new());
    for (at, op) in ops.iter().enumerate().rev() {
        match *op {
            Op::Erase { keyspace, from, to } => behind.insert(keyspace, (from, to), ()),
            Op::Put { keyspace, key, .. } if behind.get(keyspace, key).is_some() => overtaken.push(at),
            Op::Put { .. } | Op::Delete { .. } => {}
        }
    }
    overtaken
}

/// A record ready to be appended: its heads in one buffer, keys and values where the caller has them.
#[derive(Debug)]
pub(crate) struct Laid {
    heads: Vec<u8>,
    first: usize,
    pub(crate) effects: Effects,
}

impl Laid {
    /// `now`: when its values were written.
    pub(crate) fn batch(ops: &[Op<'_>], durability: Durability, now: u64) -> Self {
        let mut head = Writer::behind(Vec::with_capacity(BATCH_HEAD_BYTES + heads_bytes(ops)));
        let durable = u8::from(durability == Durability::Durable);
        head.u8(VERSION).u8(durable).u16(0).u32(count(ops)).u64(now);
        Self::new(head, ops, now)
    }

    pub(crate) fn prepare(ops: &[Op<'_>], xid: &Xid, snapshot: Option<Lsn>, now: u64) -> Self {
        let mut head = Writer::new();
        head.u8(VERSION).u8(0).u16(0).u32(count(ops)).u64(now).u64(snapshot.unwrap_or_default().0);
        lay_xid(&mut head, xid);
        Self::new(head, ops, now)
    }

    fn new(mut heads: Writer, ops: &[Op<'_>], now: u64) -> Self {
        let first = heads.as_slice().len();
        let mut at = first;
        let mut effects = Effects::with_capacity(ops.len());
        for op in ops {
            let Fields { code, flags, key, metadata, value, expiry } = op.fields();
            // The door has checked all lengths against limits that fit these fields.
            heads.u8(code).u8(flags).u16(u16::try_from(metadata.len()).unwrap_or(u16::MAX)).u32(op.key().0);
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            heads.u32(length(key)).u32(length(value));
            if flags & EXPIRES != 0 {
                heads.u64(expiry);
            }
            at += head_bytes(flags) + key.len();
            effects.push(Effect::of(op, Lsn::ZERO, u32::try_from(at).unwrap_or(u32::MAX), now));
            at += metadata.len() + value.len();
        }
        for at in overtaken(ops) {
            effects.get_mut(at).into_iter().for_each(|effect| effect.became = Became::Nothing);
        }
        Self { heads: heads.into_vec(), first, effects }
    }

    /// The payload in parts, for `Log::append`.
    pub(crate) fn parts<'a>(&'a self, ops: &[Op<'a>]) -> SmallVec<[&'a [u8]; 5]> {
        let cut = |heads: &'a [u8], at: usize| heads.split_at_checked(at).unwrap_or((heads, &[]));
        let (first, mut heads) = cut(&self.heads, self.first);
        let mut parts = SmallVec::with_capacity(1 + 4 * ops.len());
        parts.push(first);
        for op in ops {
            let Fields { flags, key, metadata, value, .. } = op.fields();
            let (head, rest) = cut(heads, head_bytes(flags));
            heads = rest;
            parts.extend_from_slice(&[head, key, metadata, value]);
        }
        parts
    }

    /// What it does, now that it is known where it stands.
    pub(crate) fn placed(mut self, entry: Lsn) -> Effects {
        for effect in &mut self.effects {
            if let Became::Value { place, .. } = &mut effect.became {
                place.entry = entry;
            }
        }
        self.effects
    }
}

/// What all heads of operations take.
fn heads_bytes(ops: &[Op<'_>]) -> usize {
    ops.iter().map(|op| head_bytes(op.fields().flags)).sum()
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

/// A journal entry, understood where it stands. `modified`: when its values were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    Batch { modified: u64, ops: Vec<Placed<'a>> },
    Prepare { xid: Xid, modified: u64, ops: Vec<Placed<'a>> },
    Commit { xid: Xid, prepare: Lsn },
    Rollback { xid: Xid, prepare: Lsn },
}

impl<'a> Content<'a> {
    pub(crate) fn decode(kind: u16, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let version = reader.u8("version")?;
        if !(VERSION_BEFORE..=VERSION).contains(&version) {
            return Err(Malformed { field: "version" });
        }
        reader.u8("durability")?;
        reader.u16("reserved")?;
        let count = reader.u32("count")?;
        let modified = |reader: &mut Reader<'a>| if version == VERSION { reader.u64("modified") } else { Ok(0) };
        let content = match kind {
            KIND_BATCH => {
                let modified = modified(&mut reader)?;
                Self::Batch { modified, ops: ops(&mut reader, version, count, payload)? }
            }
            KIND_PREPARE => {
                let modified = modified(&mut reader)?;
                reader.u64("snapshot")?;
                let xid = read_xid(&mut reader)?;
                let ops = ops(&mut reader, version, count, payload)?;
                if ops.iter().any(|placed| matches!(placed.op, Op::Erase { .. })) {
                    return Err(Malformed { field: "operation" });
                }
                Self::Prepare { xid, modified, ops }
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
    /// When its values were written; 0 if it has none, or does not say.
    pub(crate) fn modified(&self) -> u64 {
        let (Self::Batch { effects } | Self::Prepare { effects, .. }) = self else { return 0 };
        effects.iter().find_map(Effect::place).map_or(0, |place| place.modified)
    }

    pub(crate) fn decode(entry: Lsn, kind: u16, payload: &[u8]) -> Result<Self, Malformed> {
        let effects = |ops: &[Placed<'_>], modified| {
            ops.iter().map(|placed| Effect::of(&placed.op, entry, placed.at, modified)).collect()
        };
        Ok(match Content::decode(kind, payload)? {
            Content::Batch { modified, ops } => Self::Batch { effects: effects(&ops, modified) },
            Content::Prepare { xid, modified, ops } => Self::Prepare { xid, effects: effects(&ops, modified) },
            Content::Commit { xid, prepare } => Self::Commit { xid, prepare },
            Content::Rollback { xid, prepare } => Self::Rollback { xid, prepare },
        })
    }
}

/// What an operation's head says.
struct OpHead {
    code: u8,
    flags: u8,
    keyspace: u32,
    key_bytes: u32,
    metadata_bytes: u16,
    value_bytes: u32,
    expiry: u64,
}

impl OpHead {
    fn read(reader: &mut Reader<'_>, version: u8) -> Result<Self, Malformed> {
        let code = reader.u8("operation")?;
        let flags = reader.u8("flags")?;
        let flags = if version == VERSION { flags } else { 0 };
        let metadata_bytes = reader.u16("metadata length")?;
        let keyspace = reader.u32("keyspace")?;
        let key_bytes = reader.u32("key length")?;
        let value_bytes = reader.u32("value length")?;
        let expiry = if flags & EXPIRES == 0 { 0 } else { reader.u64("expiry")? };
        let head = Self { code, flags, keyspace, key_bytes, metadata_bytes, value_bytes, expiry };
        if head.is_known(version) { Ok(head) } else { Err(Malformed { field: "operation" }) }
    }

    const fn is_known(&self, version: u8) -> bool {
        let fits = self.key_bytes <= KEY_BYTES_MAX && self.metadata_bytes <= METADATA_BYTES_MAX;
        fits && match (self.code, self.flags) {
            (OP_PUT, 0) | (OP_DELETE, 0) => self.value_bytes <= VALUE_BYTES_MAX,
            (OP_PUT, EXPIRES) => self.value_bytes <= VALUE_BYTES_MAX && self.expiry != 0,
            (OP_ERASE, ENDS) => self.value_bytes <= KEY_BYTES_MAX && version == VERSION,
            (OP_ERASE, 0) => self.value_bytes == 0 && version == VERSION,
            _ => false,
        }
    }
}

fn ops<'a>(reader: &mut Reader<'a>, version: u8, count: u32, payload: &[u8]) -> Result<Vec<Placed<'a>>, Malformed> {
    let mut ops = Vec::new();
    for _ in 0..count {
        let OpHead { code, flags, keyspace, key_bytes, metadata_bytes, value_bytes, expiry } =
            OpHead::read(reader, version)?;
        let long = |_| Malformed { field: "length" };
        let key = reader.raw(usize::try_from(key_bytes).map_err(long)?, "key")?;
        let at = u32::try_from(payload.len() - reader.rest().len()).map_err(long)?;
        let metadata = reader.raw(metadata_bytes.into(), "metadata")?;
        let value = reader.raw(usize::try_from(value_bytes).map_err(long)?, "value")?;
        let op = match code {
            OP_PUT => Op::Put { keyspace, key, metadata, value, expiry },
            OP_DELETE => Op::Delete { keyspace, key },
            _ => Op::Erase { keyspace, from: key, to: (flags & ENDS != 0).then_some(value) },
        };
        ops.push(Placed { at, op });
    }
    // Most erase nothing.
    if ops.iter().any(|placed| matches!(placed.op, Op::Erase { .. })) {
        let plain: Vec<Op<'_>> = ops.iter().map(|placed| placed.op).collect();
        for at in overtaken(&plain) {
            if let Some(placed) = ops.get_mut(at) {
                let (keyspace, key) = placed.op.key();
                placed.op = Op::Delete { keyspace, key };
            }
        }
    }
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops() -> [Op<'static>; 4] {
        [
            Op::Put { keyspace: 7, key: b"k", metadata: b"meta", value: b"value", expiry: 0 },
            Op::delete(1, b"gone"),
            Op::put(0, b"", b"").expiring(u64::MAX),
            Op::put(0, b"k", b"v").expiring(1),
        ]
    }

    fn xid() -> Xid {
        Xid::new(3, b"global", b"branch").unwrap()
    }

    #[test]
    fn what_is_laid_is_understood_and_places_point_at_the_values() {
        for (kind, laid) in [
            (KIND_BATCH, Laid::batch(&ops(), Durability::Durable, 77)),
            (KIND_PREPARE, Laid::prepare(&ops(), &xid(), Some(Lsn(9)), 77)),
        ] {
            let payload = laid.parts(&ops()).concat();
            let effects = laid.placed(Lsn(64));
            let place = *effects[0].place().unwrap();
            let at = usize::try_from(place.at).unwrap();
            assert_eq!(&payload[at..at + 9], b"metavalue");
            assert_eq!((place.modified, place.expiry), (77, 0));
            let expiries: Vec<u64> = effects.iter().filter_map(|effect| Some(effect.place()?.expiry)).collect();
            assert_eq!(expiries, [0, u64::MAX, 1]);
            let expected = match kind {
                KIND_BATCH => Record::Batch { effects: effects.into_vec() },
                _ => Record::Prepare { xid: xid(), effects: effects.into_vec() },
            };
            assert_eq!(Record::decode(Lsn(64), kind, &payload), Ok(expected));
        }
        assert_eq!(
            batch_bytes(&ops()),
            u64::try_from(Laid::batch(&ops(), Durability::Buffered, 1).parts(&ops()).concat().len()).unwrap()
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
        let payload = Laid::batch(&ops(), Durability::Durable, 1).parts(&ops()).concat();
        for end in 0..payload.len() {
            assert!(Record::decode(Lsn(0), KIND_BATCH, &payload[..end]).is_err(), "{end}");
        }
        assert!(Record::decode(Lsn(0), 99, &payload).is_err());
        let mut newer = payload;
        newer[0] = 3;
        assert_eq!(Record::decode(Lsn(0), KIND_BATCH, &newer), Err(Malformed { field: "version" }));
    }

    #[test]
    fn an_erase_is_laid_with_its_end_and_takes_what_stands_before_it_in_its_record() {
        let ops = [
            Op::put(1, b"b", b"gone"),
            Op::put(1, b"d", b"stays"),
            Op::put(2, b"b", b"stays"),
            Op::erase(1, b"a", Some(b"d")),
            Op::put(1, b"b", b"new"),
            Op::erase(3, b"", None),
        ];
        let laid = Laid::batch(&ops, Durability::Durable, 5);
        let payload = laid.parts(&ops).concat();
        assert_eq!(u64::try_from(payload.len()), Ok(batch_bytes(&ops)));
        let effects = laid.placed(Lsn(64));
        let lives: Vec<bool> = effects.iter().map(|effect| effect.place().is_some()).collect();
        assert_eq!(lives, [false, true, true, false, true, false]);
        assert_eq!(effects[3].became, Became::Erased { to: Some(b"d"[..].into()) });
        assert_eq!(effects[5].became, Became::Erased { to: None });
        assert_eq!(Record::decode(Lsn(64), KIND_BATCH, &payload), Ok(Record::Batch { effects: effects.into_vec() }));
        // No branch erases.
        let laid = Laid::prepare(&ops, &xid(), None, 5);
        let payload = laid.parts(&ops).concat();
        assert_eq!(Record::decode(Lsn(64), KIND_PREPARE, &payload), Err(Malformed { field: "operation" }));
        for end in 0..payload.len() {
            assert!(Record::decode(Lsn(0), KIND_BATCH, &payload[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_record_of_the_version_before_has_no_times_and_no_erases() {
        let mut before = vec![VERSION_BEFORE, 1, 0, 0, 2, 0, 0, 0];
        for (code, flags, key, value) in [(OP_PUT, 9, b"k", &b"value"[..]), (OP_DELETE, 0, b"d", b"")] {
            before.extend_from_slice(&[code, flags, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0]);
            before.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
            before.extend_from_slice(key);
            before.extend_from_slice(value);
        }
        let Ok(Record::Batch { effects }) = Record::decode(Lsn(64), KIND_BATCH, &before) else { panic!("{before:?}") };
        let place = effects[0].place().unwrap();
        assert_eq!((place.modified, place.expiry, place.at, place.value_bytes), (0, 0, 25, 5));
        assert_eq!(effects[1].became, Became::Nothing);
        before[8] = OP_ERASE;
        assert_eq!(Record::decode(Lsn(64), KIND_BATCH, &before), Err(Malformed { field: "operation" }));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_get_an_answer(kind in 0_u16..6, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = Record::decode(Lsn(0), kind, &bytes);
        }
    }
}
