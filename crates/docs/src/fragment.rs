//! A fragment: the records of a page that one commit wrote, in the order of their slots.
//!
//! ```text
//!   how many (varint) · for each: slots since the one before (varint) · record
//! ```
//! Walk: [`lay`] · [`records`] · [`folded`] puts newer records over older fragments, for one new fragment instead of several.
//! Deliberately absent: where a fragment stands.

use std::collections::BTreeMap;

use assent_frame::{Malformed, Reader};

use crate::record::Record;
use crate::varint;

/// The records of a page, by slot.
pub(crate) type Records<'a> = BTreeMap<u8, Record<'a>>;

/// Lays records as a fragment.
pub(crate) fn lay(records: &Records<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + 24 * records.len());
    varint::lay(&mut out, u64::try_from(records.len()).unwrap_or(u64::MAX));
    let mut next = 0;
    for (slot, record) in records {
        varint::lay(&mut out, u64::from(*slot) - next);
        record.lay(&mut out);
        next = u64::from(*slot) + 1;
    }
    out
}

/// Walks the records of a fragment; it ends after the first that cannot be read.
pub(crate) fn records(bytes: &[u8]) -> Result<Walk<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let left = varint::read(&mut reader, "fragment")?;
    Ok(Walk { reader, left, next: 0, all: bytes.len() })
}

/// A walk over the records of a fragment.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    reader: Reader<'a>,
    left: u64,
    next: u64,
    all: usize,
}

impl<'a> Walk<'a> {
    /// Where in the fragment the next bytes to read are.
    pub(crate) const fn at(&self) -> usize {
        self.all - self.reader.rest().len()
    }

    /// The next slot; its record follows.
    pub(crate) fn slot(&mut self) -> Result<Option<u8>, Malformed> {
        if self.left == 0 {
            return self.reader.end().map(|()| None);
        }
        let slot = self.next.checked_add(varint::read(&mut self.reader, "slot")?);
        let slot = slot.and_then(|slot| u8::try_from(slot).ok()).ok_or(Malformed { field: "slot" })?;
        (self.left, self.next) = (self.left - 1, u64::from(slot) + 1);
        Ok(Some(slot))
    }

    /// The record of the slot just read.
    pub(crate) fn record(&mut self) -> Result<Record<'a>, Malformed> {
        Record::read(&mut self.reader)
    }

    fn step(&mut self) -> Result<Option<(u8, Record<'a>)>, Malformed> {
        let Some(slot) = self.slot()? else { return Ok(None) };
        Ok(Some((slot, self.record()?)))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<(u8, Record<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, Some(Err(_))) {
            self.left = 0;
            self.reader = Reader::new(&[]);
        }
        step
    }
}

/// Newer records over older fragments, the newest of those first.
///
/// # Errors
/// [`Malformed`] if a fragment cannot be read.
pub(crate) fn folded<'a, B: AsRef<[u8]>>(newer: &Records<'a>, older: &'a [B]) -> Result<Records<'a>, Malformed> {
    let mut all = newer.clone();
    for fragment in older {
        for item in records(fragment.as_ref())? {
            let (slot, record) = item?;
            all.entry(slot).and_modify(|newer| *newer = newer.over(record)).or_insert(record);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TEXT;

    #[test]
    fn records_come_back_in_order_and_every_cut_is_refused() {
        let laid = lay(&Records::from([(0, Record::text(b"a")), (7, Record::GONE), (255, Record::text(b"z"))]));
        let back: Result<Vec<_>, _> = records(&laid).unwrap().collect();
        assert_eq!(back.unwrap(), [(0, Record::text(b"a")), (7, Record::GONE), (255, Record::text(b"z"))]);
        for end in 0..laid.len() {
            let read = records(&laid[..end]).and_then(|walk| walk.collect::<Result<Vec<_>, _>>());
            assert!(read.is_err(), "{end}");
        }
        let beyond = [2, 255, 1, 1, 0, 1];
        assert!(records(&beyond).unwrap().any(|record| record.is_err()), "a slot behind the last one");
    }

    #[test]
    fn folding_keeps_the_newest_of_each_field() {
        let older = lay(&Records::from([(1, Record::text(b"old").with(0, 3)), (2, Record::text(b"stays"))]));
        let patch = Record { mask: TEXT, text: b"new", ..Record::default() };
        let older = [older];
        let folded = folded(&Records::from([(1, patch)]), &older).unwrap();
        assert_eq!(folded[&1], Record::text(b"new").with(0, 3));
        assert_eq!(folded[&2], Record::text(b"stays"));
    }
}
