//! A page as it is read: for each slot what all of its fragments say together.
//!
//! Walk: [`Page::combine`] puts fragments together · [`Page::get`] finds a slot's record · [`Page::change`] says what to write
//! of it and what it is afterwards.
//! Deliberately absent: the bytes of the fragment that has all of it, once they are combined.

use std::ops::Range;
use std::sync::Arc;

use assent_frame::{Malformed, Reader};

use crate::fragment::{self, Records};
use crate::record::{Record, length};
use crate::varint;
use crate::versioning::{Plan, Versioning};

/// Slots of a page: so many nodes, paths, or pages below it.
pub(crate) const SLOTS: u64 = 256;
const NOWHERE: u32 = u32::MAX;

/// One page of one revision.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Where in the bytes a slot's record begins; slots behind the last record have no place here.
    starts: Vec<u32>,
    bytes: Vec<u8>,
    /// The fragments that do not have all of it, the newest first.
    deltas: Vec<Arc<[u8]>>,
    /// Bytes of the one that has.
    base_bytes: u64,
}

/// A change of a page: what is written, what stays behind it, and what the page is then.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) fragment: Vec<u8>,
    /// So many of the newest fragments are not needed any more.
    pub(crate) superseded: usize,
}

impl Page {
    /// # Errors
    /// [`Malformed`] if a fragment cannot be read, or patches what is not there.
    pub(crate) fn combine(mut fragments: Vec<Arc<[u8]>>) -> Result<Self, Malformed> {
        let Some(base) = fragments.pop() else { return Err(Malformed { field: "fragments" }) };
        let merged = fragment::folded(&fragment::folded(&Records::new(), &fragments)?, std::slice::from_ref(&base))?;
        let mut page = Self { base_bytes: length(&base), deltas: Vec::new(), ..Self::of(&merged)? };
        page.deltas = fragments;
        Ok(page)
    }

    /// A page of whole records.
    fn of(records: &Records<'_>) -> Result<Self, Malformed> {
        let mut page = Self::default();
        for (slot, record) in records.iter().filter(|(_, record)| !record.is_gone()) {
            if !record.is_whole() {
                return Err(Malformed { field: "a patch of nothing" });
            }
            page.starts.resize(usize::from(*slot), NOWHERE);
            page.starts.push(u32::try_from(page.bytes.len()).map_err(|_| Malformed { field: "page" })?);
            record.lay(&mut page.bytes);
        }
        Ok(page)
    }

    /// What a slot says.
    ///
    /// # Errors
    /// [`Malformed`] if its record cannot be read.
    pub(crate) fn get(&self, slot: u8) -> Result<Option<Record<'_>>, Malformed> {
        let start = self.starts.get(usize::from(slot)).filter(|start| **start != NOWHERE);
        let Some(start) = start.and_then(|start| usize::try_from(*start).ok()) else { return Ok(None) };
        Record::read(&mut Reader::new(self.bytes.get(start..).unwrap_or_default())).map(Some)
    }

    /// What a slot says, and where in the page's bytes its text stands.
    ///
    /// # Errors
    /// As [`Page::get`].
    pub(crate) fn placed(&self, slot: u8) -> Result<Option<(Record<'_>, Range<usize>)>, Malformed> {
        let Some(record) = self.get(slot)? else { return Ok(None) };
        let start = self.starts.get(usize::from(slot)).copied().unwrap_or_default();
        let before = u64::from(start) + varint::bytes(record.mask.into()) + varint::bytes(length(record.text));
        let from = usize::try_from(before).map_err(|_| Malformed { field: "text" })?;
        Ok(Some((record, from..from + record.text.len())))
    }

    /// Bytes of its records.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// The slots that say something, with what they say.
    ///
    /// # Errors
    /// As [`Page::get`].
    pub(crate) fn records(&self) -> Result<Records<'_>, Malformed> {
        let mut records = Records::new();
        for slot in (0..=u8::MAX).take(self.starts.len()) {
            if let Some(record) = self.get(slot)? {
                records.insert(slot, record);
            }
        }
        Ok(records)
    }

    /// What to write so that these changes are made. The changes fit what is there: a patch has something to patch.
    ///
    /// # Errors
    /// As [`Page::get`].
    pub(crate) fn change(&self, versioning: Versioning, changes: &Records<'_>) -> Result<Changed, Malformed> {
        let laid = fragment::lay(changes);
        let mut sizes: Vec<u64> = self.deltas.iter().map(|delta| length(delta)).collect();
        if self.base_bytes > 0 {
            sizes.push(self.base_bytes);
        }
        match versioning.plan(&sizes, length(&laid)) {
            Plan::Changes { fold: 0 } => Ok(Changed { fragment: laid, superseded: 0 }),
            Plan::Changes { fold } => {
                let older = self.deltas.get(..fold).unwrap_or(&self.deltas);
                let folded = fragment::folded(changes, older)?;
                Ok(Changed { fragment: fragment::lay(&folded), superseded: fold })
            }
            Plan::Whole => {
                let mut all = self.records()?;
                for (slot, change) in changes {
                    all.entry(*slot).and_modify(|older| *older = change.over(*older)).or_insert(*change);
                }
                all.retain(|_, record| !record.is_gone());
                if all.values().any(|record| !record.is_whole()) {
                    return Err(Malformed { field: "a patch of nothing" });
                }
                Ok(Changed { fragment: fragment::lay(&all), superseded: sizes.len() })
            }
        }
    }

    /// The page after a change whose fragment is this.
    ///
    /// # Errors
    /// [`Malformed`] if the fragment cannot be read.
    pub(crate) fn after(&self, fragment: Arc<[u8]>, superseded: usize) -> Result<Self, Malformed> {
        let Some(deltas) = self.deltas.get(superseded..).filter(|_| self.base_bytes > 0) else {
            return Self::combine(vec![fragment]);
        };
        let newer = fragment::folded(&Records::new(), std::slice::from_ref(&fragment))?;
        let mut merged = self.records()?;
        for (slot, record) in newer {
            merged.entry(slot).and_modify(|older| *older = record.over(*older)).or_insert(record);
        }
        let page = Self::of(&merged)?;
        let deltas = std::iter::once(fragment).chain(deltas.iter().cloned()).collect();
        Ok(Self { deltas, base_bytes: self.base_bytes, ..page })
    }

    /// What it takes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let deltas: usize = self.deltas.iter().map(|delta| delta.len() + 32).sum();
        self.bytes.capacity() + 4 * self.starts.capacity() + deltas + 128
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::record::{HASH, TEXT, bit};

    type Model = BTreeMap<u8, (Vec<u8>, u64)>;

    fn found(page: &Page) -> Model {
        let of = |(slot, record): (u8, Record<'_>)| (slot, (record.text.to_vec(), record.hash));
        page.records().unwrap().into_iter().map(of).collect()
    }

    fn strategies() -> impl Strategy<Value = Versioning> {
        (0..4, 1_u8..6).prop_map(|(which, window)| match which {
            0 => Versioning::Full,
            1 => Versioning::Incremental { window },
            2 => Versioning::Differential,
            _ => Versioning::SlidingSnapshot { window },
        })
    }

    proptest! {
        /// Every revision is read back from at most as many fragments as the strategy says, and each is as it was written.
        #[test]
        fn every_revision_of_a_page_is_what_was_written(
            versioning in strategies(),
            commits in prop::collection::vec(prop::collection::btree_map(0_u8..20, (0_u8..5, 0_u64..9), 1..4), 1..40),
        ) {
            let mut page = Page::default();
            let mut chain: Vec<Arc<[u8]>> = Vec::new();
            let mut model = Model::new();
            let mut kept = Vec::new();
            for commit in &commits {
                let texts: Vec<Vec<u8>> = commit.values().map(|(_, n)| n.to_string().repeat(9).into_bytes()).collect();
                let mut changes = Records::new();
                for ((slot, (what, number)), text) in commit.iter().zip(&texts) {
                    let there = model.contains_key(slot);
                    let record = match what {
                        0 if there => Record::GONE,
                        1 if there => Record { mask: HASH, hash: *number, ..Record::default() },
                        2 if there => Record { mask: TEXT, text, ..Record::default() },
                        _ => Record { mask: Record::text(text).mask | HASH | bit(3), text, hash: 1, ..Record::default() },
                    };
                    changes.insert(*slot, record);
                    match what {
                        0 if there => _ = model.remove(slot),
                        1 if there => model.get_mut(slot).unwrap().1 = *number,
                        2 if there => model.get_mut(slot).unwrap().0 = text.clone(),
                        _ => _ = model.insert(*slot, (text.clone(), 1)),
                    }
                }
                let Changed { fragment, superseded } = page.change(versioning, &changes).unwrap();
                let fragment: Arc<[u8]> = fragment.into();
                page = page.after(Arc::clone(&fragment), superseded).unwrap();
                chain = std::iter::once(fragment).chain(chain.into_iter().skip(superseded)).collect();
                prop_assert!(chain.len() <= versioning.fragments_max().into(), "{} fragments", chain.len());
                prop_assert_eq!(found(&page), model.clone());
                kept.push((chain.clone(), model.clone()));
            }
            for (chain, model) in kept {
                prop_assert_eq!(found(&Page::combine(chain).unwrap()), model);
            }
        }
    }

    #[test]
    fn a_field_that_changes_again_and_again_stays_one_small_record() {
        let texts: Vec<Vec<u8>> = (0..200_u64).map(|n| n.to_string().into_bytes()).collect();
        let all: Records<'_> = (0..=199).zip(&texts).map(|(slot, text)| (slot, Record::text(text))).collect();
        let first = Page::default().change(Versioning::default(), &all).unwrap();
        let mut page = Page::default().after(first.fragment.into(), first.superseded).unwrap();
        for _ in 0..1000 {
            let patch = Record { mask: TEXT, text: b"12345", ..Record::default() };
            let changed = page.change(Versioning::default(), &Records::from([(77, patch)])).unwrap();
            assert_eq!(changed.fragment.len(), 1 + 1 + 1 + 1 + 5);
            page = page.after(changed.fragment.into(), changed.superseded).unwrap();
        }
    }

    #[test]
    fn a_patch_of_nothing_is_refused() {
        let patch = Record { mask: HASH, hash: 1, ..Record::default() };
        let laid = fragment::lay(&Records::from([(1, patch)]));
        assert_eq!(Page::combine(vec![laid.into()]).unwrap_err(), Malformed { field: "a patch of nothing" });
        assert!(Page::combine(Vec::new()).is_err());
        assert!(Page::default().change(Versioning::Full, &Records::from([(1, patch)])).is_err());
    }
}
