//! A fragment: the records of a page that one commit wrote, in the order of their slots.
//!
//! ```text
//!   how many (varint) · for each: slots since the one before (varint) · record
//! ```
//! Walk: [`lay`] · [`records`] · [`folded`] puts newer records over older fragments, for one new fragment instead of several.
//! Deliberately absent: where a fragment stands.

use assent_frame::{Malformed, Reader};

use crate::record::Record;
use crate::varint;

/// The records of a page, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records<'a>(Vec<(u8, Record<'a>)>);

impl<'a> Records<'a> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// None yet, with room for that many.
    pub(crate) fn of(room: usize) -> Self {
        Self(Vec::with_capacity(room))
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, slot: u8) -> Option<&Record<'a>> {
        let found = self.0.binary_search_by_key(&slot, |(of, _)| *of).ok()?;
        self.0.get(found).map(|(_, record)| record)
    }

    pub(crate) fn insert(&mut self, slot: u8, record: Record<'a>) {
        self.put(slot, record, |_| record);
    }

    /// Puts a record where none is; else what is made of the one that is there.
    fn put(&mut self, slot: u8, record: Record<'a>, made: impl FnOnce(Record<'a>) -> Record<'a>) {
        // Most come in order.
        if self.0.last().is_none_or(|(last, _)| *last < slot) {
            self.0.push((slot, record));
            return;
        }
        match self.0.binary_search_by_key(&slot, |(of, _)| *of) {
            Ok(found) => {
                if let Some((_, place)) = self.0.get_mut(found) {
                    *place = made(*place);
                }
            }
            Err(behind) => self.0.insert(behind, (slot, record)),
        }
    }

    /// In the order of their slots.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (u8, &Record<'a>)> {
        self.0.iter().map(|(slot, record)| (*slot, record))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Record<'a>> {
        self.0.iter().map(|(_, record)| record)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Record<'a>) -> bool) {
        self.0.retain(|(_, record)| keep(record));
    }
}

impl<'a> IntoIterator for Records<'a> {
    type Item = (u8, Record<'a>);
    type IntoIter = std::vec::IntoIter<(u8, Record<'a>)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
impl<'a> FromIterator<(u8, Record<'a>)> for Records<'a> {
    fn from_iter<I: IntoIterator<Item = (u8, Record<'a>)>>(records: I) -> Self {
        let mut all = Self::new();
        records.into_iter().for_each(|(slot, record)| all.insert(slot, record));
        all
    }
}

#[cfg(test)]
impl<'a, const N: usize> From<[(u8, Record<'a>); N]> for Records<'a> {
    fn from(records: [(u8, Record<'a>); N]) -> Self {
        records.into_iter().collect()
    }
}

/// Lays records as a fragment.
pub(crate) fn lay(records: &Records<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + 32 * records.len());
    varint::lay(&mut out, u64::try_from(records.len()).unwrap_or(u64::MAX));
    let mut next = 0;
    for (slot, record) in records.iter() {
        varint::lay(&mut out, u64::from(slot) - next);
        record.lay(&mut out);
        next = u64::from(slot) + 1;
    }
    out
}

/// Lays a fragment that has all of a page, each record by what lays it.
pub(crate) fn lay_all<T>(all: &[T], lay: impl Fn(&T, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + 40 * all.len());
    varint::lay(&mut out, u64::try_from(all.len()).unwrap_or(u64::MAX));
    for one in all {
        // No slot between it and the one before.
        varint::lay(&mut out, 0);
        lay(one, &mut out);
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

    /// Goes past the record of the slot just read; its mask.
    pub(crate) fn pass(&mut self) -> Result<u16, Malformed> {
        Record::pass(&mut self.reader)
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
            all.put(slot, record, |newer| newer.over(record));
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
    fn what_is_laid_for_all_slots_is_what_their_records_are() {
        let texts: Vec<Vec<u8>> = (0..=255).map(|slot| vec![slot; usize::from(slot)]).collect();
        let records = (0..=255).zip(&texts).map(|(slot, text)| (slot, Record::text(text))).collect();
        assert_eq!(lay_all(&texts, |text, out| Record::text(text).lay(out)), lay(&records));
    }

    #[test]
    fn folding_keeps_the_newest_of_each_field() {
        let older = lay(&Records::from([(1, Record::text(b"old").with(0, 3)), (2, Record::text(b"stays"))]));
        let patch = Record { mask: TEXT, text: b"new", ..Record::default() };
        let older = [older];
        let folded = folded(&Records::from([(1, patch)]), &older).unwrap();
        assert_eq!(*folded.get(1).unwrap(), Record::text(b"new").with(0, 3));
        assert_eq!(*folded.get(2).unwrap(), Record::text(b"stays"));
    }
}
