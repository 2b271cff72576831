//! What a volume holds, one item after the other in the order of their addresses, and how each is laid.
//!
//! An item is a frame whose mark is the LSN and whose chain is the offset; of a long value, pieces follow in frames of their
//! own, each with its checksum. The layouts are drawn in `docs/format.md`, "Volumes".
//!
//! Walk: [`lay`] writes an item through a sink, a piece at a time · [`Record::parse`] checks all frames and puts the pieces
//! together in place · [`Record::item`] reads the fields.

use std::fmt;
use std::ops::Range;

use assent_frame::{HEADER_BYTES, Head, Malformed, PAYLOAD_BYTES_MAX, Reader, Writer, laid_bytes, parse};
use assent_ids::Xid;

use crate::config::{KEY_BYTES_MAX, METADATA_BYTES_MAX, VALUE_BYTES_MAX};
use crate::record::{lay_xid, read_xid};
use crate::vault::VaultError;

/// Where something stands for ever: the LSN of its entry, and the offset in its payload where its metadata begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) lsn: u64,
    pub(crate) at: u32,
}

impl Address {
    pub(crate) const fn new(lsn: u64, at: u32) -> Self {
        Self { lsn, at }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.lsn, self.at)
    }
}

/// A value with all that the ledger must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    /// When it was written, as the writer says; 0 if he does not.
    pub(crate) modified: u64,
    /// When it is no more; 0 for never.
    pub(crate) expiry: u64,
    pub(crate) metadata: &'a [u8],
    pub(crate) value: &'a [u8],
    /// XXH3-64 of the value.
    pub(crate) hash: u64,
}

/// What there is at an address. `seq` is the end of the entry that committed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// A committed value.
    Value { seq: u64, value: Value<'a> },
    /// A delete that still hides something.
    Deleted { seq: u64, keyspace: u32, key: &'a [u8] },
    /// A range of keys, to an exclusive end or to the last, whose erasing still hides something.
    Erased { seq: u64, keyspace: u32, from: &'a [u8], to: Option<&'a [u8]> },
    /// What became of a branch whose writes still stand somewhere as prepared.
    Outcome { seq: u64, xid: Xid, prepare: u64, committed: bool },
    /// A value of a prepared branch.
    Prepared { xid: Xid, value: Value<'a> },
    /// A delete of a prepared branch.
    PreparedDelete { xid: Xid, keyspace: u32, key: &'a [u8] },
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item<'a> {
    pub(crate) address: Address,
    pub(crate) body: Body<'a>,
}

const KIND_VALUE: u16 = 0x31;
const KIND_DELETED: u16 = 0x32;
const KIND_ERASED: u16 = 0x33;
const KIND_OUTCOME: u16 = 0x34;
const KIND_PREPARED: u16 = 0x35;
const KIND_PREPARED_DELETE: u16 = 0x36;
const KIND_PIECE: u16 = 0x37;
/// Flag of an item: its value follows in pieces.
const PIECES: u16 = 1;
/// A longer value is cut into pieces of this.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

const _: () = assert!(
    PIECE_BYTES + 2 * (64 << 10) + (4 << 10) + 256 <= PAYLOAD_BYTES_MAX,
    "a value that is not cut fits a frame with the longest key and metadata"
);

impl Body<'_> {
    pub(super) const fn kind(&self) -> u16 {
        match self {
            Self::Value { .. } => KIND_VALUE,
            Self::Deleted { .. } => KIND_DELETED,
            Self::Erased { .. } => KIND_ERASED,
            Self::Outcome { .. } => KIND_OUTCOME,
            Self::Prepared { .. } => KIND_PREPARED,
            Self::PreparedDelete { .. } => KIND_PREPARED_DELETE,
        }
    }

    pub(super) const fn value(&self) -> &[u8] {
        match self {
            Self::Value { value, .. } | Self::Prepared { value, .. } => value.value,
            _ => &[],
        }
    }

    pub(super) fn lay(&self, out: &mut Writer) {
        match self {
            Self::Value { seq, value } => lay_value(out.u64(*seq), value),
            Self::Deleted { seq, keyspace, key } => _ = out.u64(*seq).u32(*keyspace).bytes(key),
            Self::Erased { seq, keyspace, from, to } => {
                out.u64(*seq).u32(*keyspace).bytes(from).u8(u8::from(to.is_some())).bytes(to.unwrap_or_default());
            }
            Self::Outcome { seq, xid, prepare, committed } => {
                lay_xid(out.u64(*seq).u64(*prepare).u8(u8::from(*committed)), xid);
            }
            Self::Prepared { xid, value } => {
                lay_xid(out, xid);
                lay_value(out, value);
            }
            Self::PreparedDelete { xid, keyspace, key } => {
                lay_xid(out, xid);
                out.u32(*keyspace).bytes(key);
            }
        }
    }

    pub(super) fn read<'a>(kind: u16, fields: &'a [u8], value: &'a [u8]) -> Result<Body<'a>, Malformed> {
        let mut reader = Reader::new(fields);
        let reader = &mut reader;
        let body = match kind {
            KIND_VALUE => Body::Value { seq: reader.u64("seq")?, value: read_value(reader, value)? },
            KIND_DELETED => {
                Body::Deleted { seq: reader.u64("seq")?, keyspace: reader.u32("keyspace")?, key: key(reader)? }
            }
            KIND_ERASED => {
                let (seq, keyspace) = (reader.u64("seq")?, reader.u32("keyspace")?);
                let (from, ends, to) = (key(reader)?, reader.u8("ends")?, key(reader)?);
                Body::Erased { seq, keyspace, from, to: (ends == 1).then_some(to) }
            }
            KIND_OUTCOME => {
                let (seq, prepare) = (reader.u64("seq")?, reader.u64("prepare")?);
                let committed = reader.u8("committed")? == 1;
                Body::Outcome { seq, xid: read_xid(reader)?, prepare, committed }
            }
            KIND_PREPARED => Body::Prepared { xid: read_xid(reader)?, value: read_value(reader, value)? },
            KIND_PREPARED_DELETE => {
                let xid = read_xid(reader)?;
                Body::PreparedDelete { xid, keyspace: reader.u32("keyspace")?, key: key(reader)? }
            }
            _ => return Err(Malformed { field: "kind" }),
        };
        reader.end()?;
        Ok(body)
    }
}

fn lay_value(out: &mut Writer, value: &Value<'_>) {
    let Value { keyspace, key, modified, expiry, metadata, value, hash } = value;
    out.u32(*keyspace).u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
    out.u64(*modified).u64(*expiry).u64(*hash).bytes(key).bytes(metadata);
}

fn read_value<'a>(reader: &mut Reader<'a>, bytes: &'a [u8]) -> Result<Value<'a>, Malformed> {
    let keyspace = reader.u32("keyspace")?;
    if u32::try_from(bytes.len()) != Ok(reader.u32("value length")?) {
        return Err(Malformed { field: "value length" });
    }
    let (modified, expiry, hash) = (reader.u64("modified")?, reader.u64("expiry")?, reader.u64("hash")?);
    let (key, metadata) = (key(reader)?, reader.bytes("metadata")?);
    if metadata.len() > usize::from(METADATA_BYTES_MAX) {
        return Err(Malformed { field: "metadata" });
    }
    Ok(Value { keyspace, key, modified, expiry, metadata, value: bytes, hash })
}

fn key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let key = reader.bytes("key")?;
    if u32::try_from(key.len()).is_ok_and(|bytes| bytes <= KEY_BYTES_MAX) {
        Ok(key)
    } else {
        Err(Malformed { field: "key" })
    }
}

/// Bytes that a value takes in a volume: what the accounts count for it, wherever it stands.
pub(crate) fn value_bytes(key: usize, metadata: usize, value: usize) -> u64 {
    let fields = 8 + 4 + 4 + 3 * 8 + 4 + key + 4 + metadata;
    let laid = if value <= PIECE_BYTES {
        laid_bytes(fields + 4 + value)
    } else {
        let (whole, rest) = (value / PIECE_BYTES, value % PIECE_BYTES);
        laid_bytes(fields + 4) + whole * laid_bytes(PIECE_BYTES) + if rest > 0 { laid_bytes(rest) } else { 0 }
    };
    u64::try_from(laid).unwrap_or(u64::MAX)
}

/// Bytes that what is remembered of a delete or an erased range takes in a volume.
pub(crate) fn hides_bytes(keys: usize, is_range: bool) -> u64 {
    let fields = 8 + 4 + 4 + keys + if is_range { 1 + 4 } else { 0 };
    u64::try_from(laid_bytes(fields + 4)).unwrap_or(u64::MAX)
}

/// Lays an item: each frame goes through `sink` as it is ready, in one buffer that never holds more than one piece.
///
/// The fields stand behind their own length, so that they are told from the value.
pub(crate) fn lay<E>(item: &Item<'_>, mut sink: impl FnMut(Head, &[&[u8]]) -> Result<(), E>) -> Result<(), E> {
    let mut fields = Writer::new();
    item.body.lay(&mut fields);
    let value = item.body.value();
    let long = value.len() > PIECE_BYTES;
    let flags = if long { PIECES } else { 0 };
    let head = Head { mark: item.address.lsn, kind: item.body.kind(), flags, chain: item.address.at };
    let length = u32::try_from(fields.as_slice().len()).unwrap_or(u32::MAX).to_le_bytes();
    sink(head, &[&length, fields.as_slice(), if long { &[] } else { value }])?;
    if long {
        for piece in value.chunks(PIECE_BYTES) {
            sink(Head { kind: KIND_PIECE, flags: 0, ..head }, &[piece])?;
        }
    }
    Ok(())
}

/// Whether an item begins with this frame, and whether pieces follow.
pub(crate) const fn begins(kind: u16, flags: u16) -> Option<bool> {
    match kind {
        KIND_VALUE..=KIND_PREPARED_DELETE => Some(flags & PIECES != 0),
        _ => None,
    }
}

/// Whether it is a piece of the item before.
pub(crate) const fn continues(kind: u16) -> bool {
    kind == KIND_PIECE
}

/// An item's bytes, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) address: Address,
    kind: u16,
    bytes: Vec<u8>,
    fields: Range<usize>,
    value: Range<usize>,
}

impl Record {
    /// Takes an item's frames apart; the error says what is wrong and where in them.
    pub(crate) fn parse(mut bytes: Vec<u8>, address: Address) -> Result<Self, (usize, String)> {
        let (kind, flags, payload, laid) = frame(&bytes, 0, address)?;
        let Some(pieces) = begins(kind, flags) else { return Err((0, "no item begins there".to_owned())) };
        let malformed = || (0, "its fields end behind it".to_owned());
        let length = bytes.get(payload.start..).and_then(<[u8]>::first_chunk).ok_or_else(malformed)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| malformed())?;
        let fields = payload.start + 4..payload.start.saturating_add(4).saturating_add(length);
        if fields.end > payload.end {
            return Err(malformed());
        }
        let mut value = fields.end..payload.end;
        if pieces {
            let (mut at, most) = (laid, usize::try_from(VALUE_BYTES_MAX).unwrap_or(usize::MAX));
            while at < bytes.len() {
                let (kind, _, piece, laid) = frame(&bytes, at, address)?;
                if !continues(kind) || value.len() + piece.len() > most {
                    return Err((at, "a piece of another item".to_owned()));
                }
                // Together, in place: a long value is not held twice.
                let end = value.end + piece.len();
                bytes.copy_within(piece, value.end);
                value.end = end;
                at += laid;
            }
        }
        let record = Self { address, kind, bytes, fields, value };
        record.body().map_err(|malformed| (0, malformed.to_string()))?;
        Ok(record)
    }

    /// Bytes of its frames.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Gives the bytes away, and says where in them the value stands.
    pub(crate) fn into_value(self) -> (Vec<u8>, Range<usize>) {
        (self.bytes, self.value)
    }

    fn body(&self) -> Result<Body<'_>, Malformed> {
        let part = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        Body::read(self.kind, part(&self.fields), part(&self.value))
    }

    /// What it is.
    ///
    /// # Errors
    /// None that `parse` had not found.
    pub(crate) fn item(&self) -> Result<Item<'_>, VaultError> {
        let body = self.body();
        let body =
            body.map_err(|malformed| VaultError::Record { lsn: assent_ids::Lsn(self.address.lsn), malformed })?;
        Ok(Item { address: self.address, body })
    }
}

type Framed = (u16, u16, Range<usize>, usize);

/// Kind, flags, payload and length of the frame that begins there and was laid for this address.
fn frame(bytes: &[u8], at: usize, address: Address) -> Result<Framed, (usize, String)> {
    match parse(bytes.get(at..).unwrap_or_default(), PAYLOAD_BYTES_MAX) {
        Ok(Some((frame, laid))) if frame.mark == address.lsn && frame.chain == address.at => {
            let from = at + HEADER_BYTES;
            Ok((frame.kind, frame.flags, from..from + frame.payload.len(), laid))
        }
        Ok(Some((frame, _))) => {
            Err((at, format!("it is the record of {}+{}, not of {address}", frame.mark, frame.chain)))
        }
        Ok(None) => Err((at, "it ends behind its place".to_owned())),
        Err(error) => Err((at, error.to_string())),
    }
}
