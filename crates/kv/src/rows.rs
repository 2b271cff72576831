//! Effects as the ledger's map takes them: keys and rows, laid one behind the other; and rows, read. The row is drawn in `ledger`.
//!
//! Walk: [`Laid::of`] lays what one entry of the journal does · [`Laid::changes`] shows it · [`head`] reads a row, [`place`] what most ask of it.

use std::ops::Range;

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Lsn;
use assent_runs::Change;
use smallvec::SmallVec;

use crate::KvError;
use crate::ledger::{Head, laid_key};
use crate::record::{Became, Effect, Metadata, Place};
use crate::vault::Address;

const ROW_VERSION: u8 = 2;
/// What a row has before its metadata, and before its expiry.
const ROW_HEAD_BYTES: usize = 43;
const ENTRY_AT: usize = 1;
const PLACE_AT: usize = 17;
const EXPIRY_AT: usize = 33;

/// Effects as the map takes them: their keys and rows in one piece of memory, which is all of it for a single one.
pub(crate) struct Laid {
    bytes: Vec<u8>,
    rows: SmallVec<[(Range<usize>, To); 1]>,
}

enum To {
    Value(Range<usize>),
    Nothing,
    Erased { to: Option<Vec<u8>> },
}

impl Laid {
    /// Behind what stands in this memory.
    pub(crate) fn of(effects: &[Effect], mut memory: Vec<u8>) -> Self {
        memory.reserve(effects.iter().map(row_bytes_max).sum());
        let mut writer = Writer::behind(memory);
        let mut rows = SmallVec::with_capacity(effects.len());
        for effect in effects {
            let from = writer.as_slice().len();
            writer.raw(&effect.keyspace.to_be_bytes()).raw(&effect.key);
            let key = from..writer.as_slice().len();
            let to = match &effect.became {
                Became::Value { place, metadata } => {
                    writer.raw(&fixed(place)).raw(metadata);
                    To::Value(key.end..writer.as_slice().len())
                }
                Became::Nothing => To::Nothing,
                Became::Erased { to: Some(to) } => To::Erased { to: Some(laid_key(effect.keyspace, to)) },
                Became::Erased { to: None } => To::Erased { to: behind(effect.keyspace) },
            };
            rows.push((key, to));
        }
        Self { bytes: writer.into_vec(), rows }
    }

    /// Its memory, to be used again.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        let mut memory = self.bytes;
        memory.clear();
        memory
    }

    pub(crate) fn changes(&self) -> SmallVec<[Change<'_>; 1]> {
        let slice = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        let rows = self.rows.iter().map(|(key, to)| match to {
            To::Value(value) => Change::Put { key: slice(key), value: slice(value) },
            To::Nothing => Change::Delete { key: slice(key) },
            To::Erased { to } => Change::Erase { from: slice(key), to: to.as_deref() },
        });
        rows.collect()
    }
}

/// What a row has before its metadata. Laid at once: whoever lays many asks for room with each piece.
fn fixed(place: &Place) -> [u8; ROW_HEAD_BYTES] {
    let mut fixed = [0; ROW_HEAD_BYTES];
    let mut rest = fixed.as_mut_slice();
    let mut lay = |bytes: &[u8]| {
        let (to, behind) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        rest = behind;
    };
    lay(&[ROW_VERSION]);
    lay(&place.entry.0.to_le_bytes());
    lay(&place.hash.to_le_bytes());
    lay(&place.at.to_le_bytes());
    lay(&place.value_bytes.to_le_bytes());
    lay(&place.modified.to_le_bytes());
    lay(&place.expiry.to_le_bytes());
    lay(&place.metadata_bytes.to_le_bytes());
    fixed
}

fn row_bytes_max(effect: &Effect) -> usize {
    let metadata = match &effect.became {
        Became::Value { metadata, .. } => metadata.len(),
        Became::Nothing | Became::Erased { .. } => 0,
    };
    4 + effect.key.len() + ROW_HEAD_BYTES + metadata
}

pub(crate) fn head(seq: u64, row: &[u8]) -> Result<Head, KvError> {
    split(seq, row).map(|(place, metadata)| laid(seq, place, metadata))
}

/// The same without its metadata.
pub(crate) fn place(seq: u64, row: &[u8]) -> Result<Place, KvError> {
    split(seq, row).map(|(place, _)| place)
}

/// What is booked of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Booked {
    pub(crate) address: Address,
    pub(crate) metadata_bytes: u16,
    pub(crate) value_bytes: u32,
    /// Its value is no more from some time on.
    pub(crate) expires: bool,
}

/// Nothing of what is no row. Each flush and each merge asks it of most rows: no field is looked at that they do not need.
pub(crate) fn booked(row: &[u8]) -> Option<Booked> {
    let (fixed, metadata) = row.split_first_chunk::<ROW_HEAD_BYTES>()?;
    let lsn = u64::from_le_bytes(*fixed.get(ENTRY_AT..)?.first_chunk()?);
    let at = u32::from_le_bytes(*fixed.get(PLACE_AT..)?.first_chunk()?);
    let value_bytes = u32::from_le_bytes(*fixed.get(PLACE_AT + 4..)?.first_chunk()?);
    let expires = fixed.get(EXPIRY_AT..)?.first_chunk() != Some(&[0; 8]);
    let metadata_bytes = u16::from_le_bytes(*fixed.last_chunk()?);
    let is_row = fixed.first() == Some(&ROW_VERSION) && metadata.len() == usize::from(metadata_bytes);
    is_row.then_some(Booked { address: Address::new(lsn, at), metadata_bytes, value_bytes, expires })
}

/// When the value of a row is no more, 0 for never; nothing of what is no row. A merge asks it of each.
pub(crate) fn expiry(row: &[u8]) -> Option<u64> {
    let (fixed, metadata) = row.split_first_chunk::<ROW_HEAD_BYTES>()?;
    let (version, rest) = fixed.split_first()?;
    let mut reader = Reader::new(rest.get(EXPIRY_AT - 1..)?);
    let expiry = reader.u64("expiry").ok()?;
    let metadata_bytes = usize::from(reader.u16("metadata length").ok()?);
    (*version == ROW_VERSION && metadata.len() == metadata_bytes).then_some(expiry)
}

pub(crate) fn laid(seq: u64, place: Place, metadata: &[u8]) -> Head {
    Head { place, metadata: Metadata::from_slice(metadata), committed: Lsn(seq) }
}

pub(crate) fn split(seq: u64, row: &[u8]) -> Result<(Place, &[u8]), KvError> {
    let read = || -> Result<(Place, &[u8]), Malformed> {
        // Its length is looked at once, not with each field.
        let (fixed, metadata) = row.split_first_chunk::<ROW_HEAD_BYTES>().ok_or(Malformed { field: "row" })?;
        let mut reader = Reader::new(fixed);
        if reader.u8("version")? != ROW_VERSION {
            return Err(Malformed { field: "version" });
        }
        let entry = Lsn(reader.u64("entry")?);
        let hash = reader.u64("hash")?;
        let at = reader.u32("place")?;
        let value_bytes = reader.u32("value length")?;
        let (modified, expiry) = (reader.u64("modified")?, reader.u64("expiry")?);
        let metadata_bytes = reader.u16("metadata length")?;
        if metadata.len() != usize::from(metadata_bytes) {
            return Err(Malformed { field: "metadata" });
        }
        Ok((Place { entry, hash, at, value_bytes, metadata_bytes, modified, expiry }, metadata))
    };
    read().map_err(|malformed| KvError::Row { committed: Lsn(seq), what: malformed.to_string() })
}

/// The first key behind a keyspace.
pub(crate) fn behind(keyspace: u32) -> Option<Vec<u8>> {
    keyspace.checked_add(1).map(|next| laid_key(next, b""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::Key;

    #[test]
    fn a_row_comes_back_as_it_was_laid() {
        let place =
            Place { entry: Lsn(64), hash: 5, at: 24, value_bytes: 10, metadata_bytes: 4, modified: 6, expiry: 7 };
        let became = Became::Value { place, metadata: b"meta"[..].into() };
        let put = Effect { keyspace: 3, key: b"k"[..].into(), became };
        let other = Effect { keyspace: 4, key: b"other"[..].into(), became: Became::Nothing };
        let laid = Laid::of(&[other.clone(), put.clone(), other], b"before".to_vec());
        let changes = laid.changes();
        let [_, Change::Put { key: b"\0\0\0\x03k", value }, Change::Delete { key: b"\0\0\0\x04other" }] = changes[..]
        else {
            panic!("{changes:?}")
        };
        let read = head(9, value).unwrap();
        let erased = |keyspace, to: Option<&[u8]>| {
            let became = Became::Erased { to: to.map(Key::from) };
            Laid::of(&[Effect { keyspace, key: b"k"[..].into(), became }], Vec::new())
        };
        let ends = |laid: &Laid| match laid.changes()[..] {
            [Change::Erase { to, .. }] => to.map(<[u8]>::to_vec),
            ref changes => panic!("{changes:?}"),
        };
        assert_eq!(ends(&erased(3, Some(b"m"))), Some(b"\0\0\0\x03m".to_vec()));
        assert_eq!(ends(&erased(3, None)), Some(b"\0\0\0\x04".to_vec()));
        assert_eq!(ends(&erased(u32::MAX, None)), None);
        let other_version = [&[ROW_VERSION + 1], &value[1..]].concat();
        let rows = [value, &value[..value.len() - 1], &value[..ROW_HEAD_BYTES - 1], &[], &other_version];
        assert_eq!(rows.map(expiry), [Some(7), None, None, None, None]);
        let of = Booked { address: Address::new(64, 24), metadata_bytes: 4, value_bytes: 10, expires: true };
        assert_eq!(rows.map(booked), [Some(of), None, None, None, None]);
        let lasts = Laid::of(
            &[Effect {
                became: Became::Value { place: Place { expiry: 0, ..place }, metadata: Metadata::new() },
                ..put
            }],
            Vec::new(),
        );
        let [Change::Put { value: lasts, .. }] = lasts.changes()[..] else { panic!() };
        assert_eq!(booked(&[lasts, b"meta"].concat()), Some(Booked { expires: false, ..of }));
        assert!(rows[1..].iter().all(|row| split(9, row).is_err()));
        assert_eq!(read, Head { place, metadata: Metadata::from_slice(b"meta"), committed: Lsn(9) });
    }
}
