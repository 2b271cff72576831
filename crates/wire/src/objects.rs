//! What version 2 says of a store's objects: heads and values with what is kept beside them, many at once.
//!
//! Walk: [`Look`] asks for keys, [`Rows`] for a range · [`Object`] is what is known of one.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Lsn;

use crate::field;
use crate::work::Scan;

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its place in the journal, as the writer was answered: another one after each write.
    pub lsn: Lsn,
    /// When it was written, in milliseconds since 1970.
    pub modified_ms: u64,
    /// When it expires, likewise; 0: never.
    pub expiry_ms: u64,
    /// XXH3-64 of the value.
    pub hash: u64,
    /// How long the value is.
    pub value_bytes: u32,
    /// The writer's metadata.
    pub metadata: &'a [u8],
    /// The value, if it was asked for and fits the answer. One that does not is asked for with `Get`.
    pub value: Option<&'a [u8]>,
}

/// What is known of these keys, all of one moment. One answer holds what fits a message, and 64 keys at most; ask on for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look<'a> {
    /// With their values.
    pub values: bool,
    /// Keyspaces and keys.
    pub keys: Vec<(u32, &'a [u8])>,
}

/// What is known of the keys of a range. One answer holds what fits a message, and 64 values at most; ask on behind its last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    /// With their values.
    pub values: bool,
    /// Which; not within a branch.
    pub scan: Scan<'a>,
}

/// A key and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What is known of it.
    pub object: Object<'a>,
}

impl<'a> Object<'a> {
    fn put(&self, to: &mut Writer) {
        to.u64(self.lsn.0).u64(self.modified_ms).u64(self.expiry_ms).u64(self.hash).u32(self.value_bytes);
        to.bytes(self.metadata);
        field::put_option(to, self.value.as_ref(), |to, value| _ = to.bytes(value));
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            lsn: Lsn(from.u64("lsn")?),
            modified_ms: from.u64("modified")?,
            expiry_ms: from.u64("expiry")?,
            hash: from.u64("hash")?,
            value_bytes: from.u32("value length")?,
            metadata: from.bytes("metadata")?,
            value: field::option(from, "value", |from| from.bytes("value"))?,
        })
    }

    /// Bytes of an answer that it takes without key and value, for whoever fills one.
    #[must_use]
    pub const fn laid_bytes(&self) -> usize {
        // The flag before it, four numbers of 8, the value's length, the metadata, and whether a value follows.
        1 + 32 + 4 + 4 + self.metadata.len() + 1
    }
}

pub(crate) fn put_objects(to: &mut Writer, objects: &[Option<Object<'_>>]) {
    objects.iter().for_each(|object| field::put_option(to, object.as_ref(), |to, object| object.put(to)));
}

pub(crate) fn objects<'a>(from: &mut Reader<'a>) -> Result<Vec<Option<Object<'a>>>, Malformed> {
    field::rest(from, |from| field::option(from, "object", Object::take))
}

impl<'a> Row<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.bytes(self.key);
        self.object.put(to);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { key: from.bytes("key")?, object: Object::take(from)? })
    }
}

impl<'a> Look<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.u8(u8::from(self.values));
        self.keys.iter().for_each(|(keyspace, key)| _ = to.u32(*keyspace).bytes(key));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            values: field::flag(from, "values")?,
            keys: field::rest(from, |from| Ok((from.u32("keyspace")?, from.bytes("key")?)))?,
        })
    }
}

impl<'a> Rows<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.u8(u8::from(self.values));
        self.scan.put(to);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { values: field::flag(from, "values")?, scan: Scan::take(from)? })
    }
}
