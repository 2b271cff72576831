//! Keys and rows as they are laid in the index (docs/format.md).

use assent_frame::{Malformed, Reader};
use assent_ids::Xid;
use assent_runs::Change;

use super::tags::tag_key;
use super::{Named, Row, VERSION};
use crate::act::lay_xid;
use crate::entry::Root;
use crate::place::{Entry, lay_lsn, read_lsn};
use crate::versioning::Versioning;
use crate::{Told, varint};

pub(super) fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// Where the index has what there is of a document, but for its name.
pub(super) struct Keys {
    pub(super) floor: [u8; 9],
    pub(super) rows: [[u8; 13]; 2],
    pub(super) tags: [Vec<u8>; 2],
}

impl Keys {
    pub(super) fn of(document: u64) -> Self {
        let behind = document.saturating_add(1);
        let tags = [tag_key(document, ""), tag_key(behind, "")];
        Self { floor: floor_key(document), rows: [row_key(document, 0), row_key(behind, 0)], tags }
    }

    /// It goes.
    pub(super) fn gone(&self) -> [Change<'_>; 3] {
        let Self { floor, rows: [first, end], tags: [tag, behind] } = self;
        let rows = Change::Erase { from: first, to: Some(end) };
        [Change::Delete { key: floor }, rows, Change::Erase { from: tag, to: Some(behind) }]
    }
}

pub(super) fn lay_named(Named { document, versioning }: Named) -> Vec<u8> {
    let mut row = vec![VERSION];
    varint::lay(&mut row, document);
    row.extend_from_slice(&versioning.laid());
    row
}

pub(super) fn xid_key(xid: &Xid) -> Vec<u8> {
    let mut key = vec![b'p'];
    lay_xid(&mut key, xid);
    key
}

pub(super) fn read_prepared(row: &[u8]) -> Result<Entry, Malformed> {
    let mut reader = Reader::new(row);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let entry = Entry::of(read_lsn(&mut reader, "entry")?);
    reader.end()?;
    Ok(entry)
}

pub(super) fn floor_key(document: u64) -> [u8; 9] {
    let mut key = [b'k'; 9];
    if let Some(place) = key.get_mut(1..) {
        place.copy_from_slice(&document.to_be_bytes());
    }
    key
}

pub(super) fn read_floor(row: &[u8]) -> Result<u64, Malformed> {
    let mut reader = Reader::new(row);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let next_node = varint::read(&mut reader, "next node")?;
    reader.end()?;
    Ok(next_node)
}

pub(super) fn row_key(document: u64, revision: u32) -> [u8; 13] {
    let mut key = [b'r'; 13];
    if let Some(place) = key.get_mut(1..9) {
        place.copy_from_slice(&document.to_be_bytes());
    }
    if let Some(place) = key.get_mut(9..13) {
        place.copy_from_slice(&revision.to_be_bytes());
    }
    key
}

pub(super) fn read_named(row: &[u8]) -> Result<Named, Malformed> {
    let mut reader = Reader::new(row);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let document = varint::read(&mut reader, "document")?;
    let laid = [reader.u8("versioning")?, reader.u8("versioning")?];
    reader.end()?;
    Ok(Named { document, versioning: Versioning::of(laid).ok_or(Malformed { field: "versioning" })? })
}

pub(super) fn lay_row(root: &Root) -> Vec<u8> {
    let (author, message) = (root.meta.author.as_bytes(), root.meta.message.as_bytes());
    let mut row = Vec::with_capacity(22 + author.len() + message.len());
    row.push(VERSION);
    lay_lsn(&mut row, root.entry.laid());
    lay_lsn(&mut row, root.time_ms);
    row.extend_from_slice(&root.hash.to_le_bytes());
    row.push(u8::try_from(author.len()).unwrap_or(u8::MAX));
    row.extend_from_slice(author);
    row.extend_from_slice(message);
    row
}

pub(super) fn read_row(revision: u32, row: &[u8]) -> Result<Row, Malformed> {
    let (entry, hash, Told { revision, time_ms, author, message }) = read_parts(revision, row)?;
    Ok(Row { revision, entry, time_ms, hash, author, message })
}

pub(super) fn read_told(revision: u32, row: &[u8]) -> Result<Told, Malformed> {
    read_parts(revision, row).map(|(_, _, told)| told)
}

#[inline]
fn read_parts(revision: u32, row: &[u8]) -> Result<(Entry, u64, Told), Malformed> {
    let mut reader = Reader::new(row);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    // Most say neither, and an empty text takes no memory.
    let text = |bytes: &[u8]| match bytes {
        [] => Ok(String::new()),
        bytes => std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed { field: "text" }),
    };
    let (entry, time_ms) = (Entry::of(read_lsn(&mut reader, "entry")?), read_lsn(&mut reader, "time")?);
    let hash = reader.u64("hash")?;
    let author = reader.u8("author")?;
    let author = text(reader.raw(author.into(), "author")?)?;
    Ok((entry, hash, Told { revision, time_ms, author, message: text(reader.rest())? }))
}
