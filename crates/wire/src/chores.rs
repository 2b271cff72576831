//! What a store is told to do at once: to read everything, to give back its room. Since version 2.

use assent_frame::{Malformed, Reader, Writer};

use crate::field;

/// What a look at everything in the store has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked<'a> {
    /// Files of the ledger that were read.
    pub runs: u64,
    /// Compacted volumes that were read.
    pub volumes: u64,
    /// Whole items in them.
    pub items: u64,
    /// Entries of the journal.
    pub entries: u64,
    /// Keys whose values are as they were written.
    pub values: u64,
    /// Places that are damaged.
    pub damaged: u64,
    /// The first of them, each in one sentence.
    pub damages: Vec<&'a str>,
}

/// What was compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Compactions.
    pub compactions: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Bytes that the file system got back.
    pub reclaimed_bytes: u64,
}

impl<'a> Checked<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        let Self { runs, volumes, items, entries, values, damaged, damages } = self;
        [runs, volumes, items, entries, values, damaged].iter().for_each(|number| _ = to.u64(**number));
        damages.iter().for_each(|damage| _ = to.text(damage));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            runs: from.u64("runs")?,
            volumes: from.u64("volumes")?,
            items: from.u64("items")?,
            entries: from.u64("entries")?,
            values: from.u64("values")?,
            damaged: from.u64("damaged")?,
            damages: field::rest(from, |from| from.text("damage"))?,
        })
    }
}

impl Compacted {
    pub(crate) fn put(self, to: &mut Writer) {
        let Self { compactions, read_bytes, written_bytes, reclaimed_bytes } = self;
        to.u64(compactions).u64(read_bytes).u64(written_bytes).u64(reclaimed_bytes);
    }

    pub(crate) fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            compactions: from.u64("compactions")?,
            read_bytes: from.u64("read bytes")?,
            written_bytes: from.u64("written bytes")?,
            reclaimed_bytes: from.u64("reclaimed bytes")?,
        })
    }
}
