//! A page as it is read: for each slot what all of its fragments say together.
//!
//! The fragment that has all of the page is kept as it is, and shared by the page's revisions; what younger fragments say lies over it as
//! whole records. So a commit costs what it changes, not what its pages have.
//!
//! Walk: [`Page::combine`] puts fragments together · [`Page::get`] finds a slot's record · [`Page::change`] says what to write
//! of it · [`Page::after`] is what it is afterwards · [`Page::brief`] keeps what a reader makes of the records of a page that is read again and again.
//! Deliberately absent: where fragments stand.

mod brief;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use assent_frame::{Malformed, Reader};

use self::brief::Slots;
pub(crate) use self::brief::{Brief, Briefs};
use crate::fragment::{self, Records};
use crate::record::{Record, WHOLE, length};
use crate::varint;
use crate::versioning::{Plan, Versioning};

/// Slots of a page: so many nodes, paths, or pages below it.
pub(crate) const SLOTS: u64 = 256;
const NOWHERE: u32 = u32::MAX;
/// Room for what most changes lay over a page.
const NEXT_BYTES: usize = 64;

/// One page of one revision.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The fragment that has all of it; none: there is no page yet.
    base: Option<Arc<Base>>,
    /// What younger fragments speak of: slots, in order, and where in `newer` a slot's record begins. It ends where the next one begins; of
    /// a slot that is gone it is empty.
    over: Vec<(u8, u32)>,
    /// The same slots, for who asks for each of many.
    is_over: Slots,
    newer: Vec<u8>,
    /// The younger fragments, the newest first.
    deltas: Vec<Arc<[u8]>>,
}

/// A fragment of whole records.
#[derive(Debug)]
struct Base {
    bytes: Arc<[u8]>,
    /// Where a slot's record begins; slots behind the last record have no place here. Not before somebody looks: of what is loaded most
    /// is not looked at soon.
    starts: OnceLock<Result<Vec<u32>, Malformed>>,
    /// Its nodes as they are written, once as many were asked for as it has: of most pages few ever are.
    briefs: OnceLock<Box<[Brief]>>,
    asked: AtomicUsize,
}

impl Base {
    const fn of(bytes: Arc<[u8]>) -> Self {
        Self { bytes, starts: OnceLock::new(), briefs: OnceLock::new(), asked: AtomicUsize::new(0) }
    }

    fn starts(&self) -> Result<&[u32], Malformed> {
        self.starts.get_or_init(|| starts(&self.bytes)).as_deref().map_err(|malformed| *malformed)
    }

    #[inline]
    fn briefs(&self, make: impl Fn(u8, &[u8], usize) -> Brief) -> Option<&[Brief]> {
        self.briefs.get().map(|briefs| &**briefs).or_else(|| self.ask(make))
    }

    /// They are made by whoever asks when as much was spent as that takes.
    #[cold]
    fn ask(&self, make: impl Fn(u8, &[u8], usize) -> Brief) -> Option<&[Brief]> {
        let starts = self.starts().ok()?;
        // Not counted where there will be none: who counts waits for whoever else does.
        let may_have = size_of::<Brief>() * starts.len() <= briefs_bytes_max(&self.bytes);
        if !may_have || self.asked.fetch_add(1, Ordering::Relaxed) < starts.len() {
            return None;
        }
        let made = |(slot, start): (u8, &u32)| make(slot, &self.bytes, usize::try_from(*start).unwrap_or(usize::MAX));
        Some(self.briefs.get_or_init(|| (0..=u8::MAX).zip(starts).map(made).collect()))
    }
}

/// They take at most twice as much as what they are made of: a page with few nodes far apart has none.
fn briefs_bytes_max(base: &[u8]) -> usize {
    (2 * base.len()).min(256 * size_of::<Brief>())
}

fn start_of(at: usize) -> Result<u32, Malformed> {
    u32::try_from(at).map_err(|_| Malformed { field: "page" })
}

fn starts(fragment: &[u8]) -> Result<Vec<u32>, Malformed> {
    let mut starts = Vec::new();
    let mut walk = fragment::records(fragment)?;
    while let Some(slot) = walk.slot()? {
        let start = start_of(walk.at())?;
        let mask = walk.pass()?;
        if mask & WHOLE == 0 {
            return Err(Malformed { field: "a patch of nothing" });
        }
        starts.resize(usize::from(slot), NOWHERE);
        starts.push(if mask == WHOLE { NOWHERE } else { start });
    }
    Ok(starts)
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
        let base = Base::of(base);
        base.starts()?;
        let page = Self { base: Some(Arc::new(base)), ..Self::default() };
        let newer = fragment::folded(&Records::new(), &fragments)?;
        page.under(newer.into_iter().map(Ok), fragments.clone())
    }

    /// The page when these records lie over it; its younger fragments are these then.
    fn under<'r>(
        &self,
        records: impl Iterator<Item = Result<(u8, Record<'r>), Malformed>>,
        deltas: Vec<Arc<[u8]>>,
    ) -> Result<Self, Malformed> {
        let (over, newer) =
            (Vec::with_capacity(self.over.len() + 1), Vec::with_capacity(self.newer.len() + NEXT_BYTES));
        let mut page = Self { base: self.base.clone(), over, is_over: Slots::default(), newer, deltas };
        // Slots come in order, so what lies between two of them is taken at once. What nobody looks at any more is left behind.
        let mut from = 0;
        for item in records {
            let (slot, record) = item?;
            let (to, behind) = match self.over.binary_search_by_key(&slot, |(of, _)| *of) {
                Ok(found) => (found, found + 1),
                Err(behind) => (behind, behind),
            };
            page.take(self, from..to)?;
            page.lay(slot, &record.over(self.get(slot)?.unwrap_or_default()))?;
            from = behind;
        }
        page.take(self, from..self.over.len())?;
        Ok(page)
    }

    /// Lays these places of what lies over another page behind what lies over this one.
    fn take(&mut self, other: &Self, places: Range<usize>) -> Result<(), Malformed> {
        let (from, to, at) = (other.newer_from(places.start), other.newer_from(places.end), self.newer.len());
        self.newer.extend_from_slice(other.newer.get(from..to).unwrap_or_default());
        for place in places {
            let Some((slot, _)) = other.over.get(place) else { break };
            self.over.push((*slot, start_of(at + other.newer_from(place) - from)?));
            self.is_over.put(*slot);
        }
        Ok(())
    }

    /// Lays a slot's whole record behind what lies over this page.
    fn lay(&mut self, slot: u8, record: &Record<'_>) -> Result<(), Malformed> {
        if !record.is_whole() {
            return Err(Malformed { field: "a patch of nothing" });
        }
        self.over.push((slot, start_of(self.newer.len())?));
        self.is_over.put(slot);
        if !record.is_gone() {
            record.lay(&mut self.newer);
        }
        Ok(())
    }

    /// Where in `newer` the record of that place of `over` begins.
    #[inline]
    fn newer_from(&self, place: usize) -> usize {
        let start = |(_, start): &(u8, u32)| usize::try_from(*start).unwrap_or(usize::MAX);
        self.over.get(place).map_or(self.newer.len(), start)
    }

    /// The record of that place of `over`, laid; none: its slot is gone.
    #[inline]
    fn newer_at(&self, place: usize) -> Option<Range<usize>> {
        Some(self.newer_from(place)..self.newer_from(place + 1)).filter(|range| !range.is_empty())
    }

    fn base_bytes(&self) -> &[u8] {
        self.base.as_ref().map_or(&[], |base| &base.bytes)
    }

    /// Where a slot's record begins: in the base, or behind it in what is newer.
    fn start(&self, slot: u8) -> Result<Option<usize>, Malformed> {
        if let Ok(found) = self.over.binary_search_by_key(&slot, |(of, _)| *of) {
            return Ok(self.newer_at(found).map(|range| self.base_bytes().len() + range.start));
        }
        let Some(base) = &self.base else { return Ok(None) };
        let start = base.starts()?.get(usize::from(slot)).filter(|start| **start != NOWHERE);
        Ok(start.and_then(|start| usize::try_from(*start).ok()))
    }

    fn from(&self, start: usize) -> &[u8] {
        let base = self.base_bytes();
        let bytes = start.checked_sub(base.len()).map_or_else(|| base.get(start..), |start| self.newer.get(start..));
        bytes.unwrap_or_default()
    }

    /// What a slot says.
    ///
    /// # Errors
    /// [`Malformed`] if its record cannot be read.
    pub(crate) fn get(&self, slot: u8) -> Result<Option<Record<'_>>, Malformed> {
        let Some(start) = self.start(slot)? else { return Ok(None) };
        Record::read(&mut Reader::new(self.from(start))).map(Some)
    }

    /// The bytes from a slot's record on; what may be behind the record is of other slots.
    #[inline]
    pub(crate) fn laid(&self, slot: u8) -> Option<&[u8]> {
        if let Ok(found) = self.over.binary_search_by_key(&slot, |(of, _)| *of) {
            return self.newer.get(self.newer_at(found)?);
        }
        let base = self.base.as_ref()?;
        base.bytes.get(usize::try_from(*base.starts().ok()?.get(usize::from(slot))?).ok()?..)
    }

    /// What was made of a slot's record once as many were asked for as the page has, and the bytes that it was made of; `make` is told
    /// them, and where in them the record begins. None: look at [`Page::laid`]. All who ask must make the same.
    #[inline]
    pub(crate) fn brief(&self, slot: u8, make: impl Fn(u8, &[u8], usize) -> Brief) -> Option<(&Brief, &[u8])> {
        if self.is_over.has(slot) {
            return None;
        }
        let base = self.base.as_ref()?;
        Some((base.briefs(make)?.get(usize::from(slot))?, &base.bytes))
    }

    /// What was made of its records, where that is done.
    pub(crate) fn briefs(&self) -> Option<Briefs<'_>> {
        let base = self.base.as_ref()?;
        Some(Briefs { all: base.briefs.get()?, over: &self.is_over, bytes: &base.bytes })
    }

    /// What a slot says, and where in the page's bytes its text stands.
    ///
    /// # Errors
    /// As [`Page::get`].
    pub(crate) fn placed(&self, slot: u8) -> Result<Option<(Record<'_>, Range<usize>)>, Malformed> {
        let Some(start) = self.start(slot)? else { return Ok(None) };
        let record = Record::read(&mut Reader::new(self.from(start)))?;
        let head = varint::bytes(record.mask.into()) + varint::bytes(length(record.text));
        let from = start + usize::try_from(head).map_err(|_| Malformed { field: "text" })?;
        Ok(Some((record, from..from + record.text.len())))
    }

    /// All of its records take no more than this.
    pub(crate) fn bytes_max(&self) -> u64 {
        length(self.base_bytes()).saturating_add(length(&self.newer))
    }

    /// Bytes of its records.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.from(range.start).get(..range.len()).unwrap_or_default()
    }

    /// The slots that say something, with what they say.
    ///
    /// # Errors
    /// As [`Page::get`].
    pub(crate) fn records(&self) -> Result<Records<'_>, Malformed> {
        let mut records = Records::new();
        // Most pages are full, but those of a small document are not.
        let base = self.base.as_ref().map_or(Ok(0), |base| base.starts().map(<[u32]>::len))?;
        let over = self.over.last().map_or(0, |(slot, _)| usize::from(*slot) + 1);
        for slot in (0..=u8::MAX).take(base.max(over)) {
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
        sizes.extend(self.base.as_ref().map(|base| length(&base.bytes)));
        match versioning.plan(&sizes, length(&laid)) {
            Plan::Changes { fold: 0 } => Ok(Changed { fragment: laid, superseded: 0 }),
            Plan::Changes { fold } => {
                let older = self.deltas.get(..fold).unwrap_or(&self.deltas);
                let folded = fragment::folded(changes, older)?;
                Ok(Changed { fragment: fragment::lay(&folded), superseded: fold })
            }
            // All of a new page: it is laid already.
            Plan::Whole
                if sizes.is_empty() && changes.values().all(|record| record.is_whole() && !record.is_gone()) =>
            {
                Ok(Changed { fragment: laid, superseded: 0 })
            }
            Plan::Whole => {
                let mut all = self.records()?;
                for (slot, change) in changes.iter() {
                    let older = all.get(slot).copied().unwrap_or_default();
                    all.insert(slot, change.over(older));
                }
                all.retain(|record| !record.is_gone());
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
        let Some(deltas) = self.deltas.get(superseded..).filter(|_| self.base.is_some()) else {
            return Ok(Self { base: Some(Arc::new(Base::of(fragment))), ..Self::default() });
        };
        let newest = Arc::clone(&fragment);
        let deltas = std::iter::once(fragment).chain(deltas.iter().cloned()).collect();
        self.under(fragment::records(&newest)?, deltas)
    }

    /// What it takes in memory. The base counts in each page that shares it: rather too much than too little.
    pub(crate) fn held_bytes(&self) -> usize {
        let deltas: usize = self.deltas.iter().map(|delta| delta.len() + 32).sum();
        let base = self.base_bytes();
        let over = self.newer.capacity() + 8 * self.over.capacity();
        base.len() + briefs_bytes_max(base) + 4 * 256 + over + deltas + 224
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

    #[test]
    fn asks_are_counted_only_where_briefs_will_come_of_them() {
        let text = b"some text that is written";
        let whole = Record { mask: Record::text(text).mask | HASH | bit(3), text, hash: 1, ..Record::default() };
        let base = |slots: &[u8]| {
            let mut changes = Records::new();
            slots.iter().for_each(|slot| changes.insert(*slot, whole));
            Base::of(Page::default().change(Versioning::Full, &changes).unwrap().fragment.into())
        };
        let asked = |base: &Base| (0..4).map(|_| base.briefs(|_, _, _| Brief::default()).is_some()).collect::<Vec<_>>();
        let (near, far) = (base(&[0, 1, 2]), base(&[0, 1, 200]));
        assert_eq!(asked(&near), [false, false, false, true]);
        assert_eq!(asked(&far), [false; 4], "they would take more than what they are made of");
        assert_eq!([near, far].map(|base| base.asked.into_inner()), [4, 0]);
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
            // And over the page lies this record alone: each revision's page is kept.
            assert_eq!((page.over.len(), page.newer.len()), (1, 1 + 1 + 5));
        }
        assert_eq!(page.get(77).unwrap().unwrap().text, b"12345");
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
