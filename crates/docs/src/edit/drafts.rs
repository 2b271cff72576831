//! The nodes that an edit has in memory, page by page, as they will be laid.
//!
//! Walk: most come in the order of their keys, so that one is put behind all others of its page · [`Drafts::iter`] gives them in that order.
//! Deliberately absent: a tree of single nodes: to find places in one took more than a tenth of a load.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;

use super::Draft;
use crate::node::NodeKey;
use crate::page::SLOTS;

/// Room for so many comes by itself; then for all of a page.
const FEW: usize = 8;
/// As many as a page has slots.
const FULL: usize = 256;
const _: () = assert!(FULL as u64 == SLOTS, "a page that is full has a node in each slot");

/// Drafts by their nodes' keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafts {
    /// By page, and there by slot, in order.
    pages: BTreeMap<u64, Vec<Draft>>,
    count: usize,
}

fn slot(draft: &Draft) -> u8 {
    draft.item.node.key.page().1
}

impl Drafts {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Draft> {
        let (page, at) = NodeKey(key).page();
        let drafts = self.pages.get(&page)?;
        drafts.get(drafts.binary_search_by_key(&at, slot).ok()?)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut Draft> {
        let (page, at) = NodeKey(key).page();
        let drafts = self.pages.get_mut(&page)?;
        let found = drafts.binary_search_by_key(&at, slot).ok()?;
        drafts.get_mut(found)
    }

    /// Takes the draft of a node in, or in the place of the one that it has.
    #[inline]
    pub(crate) fn insert(&mut self, draft: Draft) {
        let (page, at) = draft.item.node.key.page();
        let is_newest = self.pages.last_key_value().is_some_and(|(newest, _)| *newest == page);
        let newest = if is_newest { self.pages.last_entry().map(OccupiedEntry::into_mut) } else { None };
        let drafts = match newest {
            Some(drafts) => drafts,
            None => self.pages.entry(page).or_default(),
        };
        if drafts.len() >= FEW && drafts.len() == drafts.capacity() {
            drafts.reserve_exact(FULL.saturating_sub(drafts.len()).max(1));
        }
        self.count += 1;
        if drafts.last().is_none_or(|last| slot(last) < at) {
            drafts.push(draft);
            return;
        }
        match drafts.binary_search_by_key(&at, slot) {
            Ok(found) => {
                self.count -= 1;
                drafts.iter_mut().skip(found).take(1).zip([draft]).for_each(|(place, draft)| *place = draft);
            }
            Err(behind) => drafts.insert(behind, draft),
        }
    }

    /// Takes out those of pages from this one on of which all nodes are here.
    pub(crate) fn take_full(&mut self, first: u64) -> Self {
        let mut full = Self::default();
        let is_full = |(page, drafts): (&u64, &Vec<_>)| (drafts.len() == FULL).then_some(*page);
        let pages: Vec<u64> = self.pages.range(first..).filter_map(is_full).collect();
        for page in pages {
            full.pages.extend(self.pages.remove_entry(&page));
        }
        full.count = full.pages.len() * FULL;
        self.count -= full.count;
        full
    }

    /// In the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Draft)> {
        self.pages.values().flatten().map(|draft| (draft.item.node.key.0, draft))
    }

    /// The same by pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, &[Draft])> {
        self.pages.iter().map(|(page, drafts)| (*page, drafts.as_slice()))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes out those from this key on.
    pub(crate) fn split_off(&mut self, first: u64) -> Self {
        let (page, at) = NodeKey(first).page();
        let mut pages = self.pages.split_off(&page);
        if let Some(drafts) = pages.get_mut(&page) {
            let rest = drafts.split_off(drafts.partition_point(|draft| slot(draft) < at));
            let before = std::mem::replace(drafts, rest);
            self.pages.insert(page, before);
        }
        let all = self.count;
        self.count = self.pages.values().map(Vec::len).sum();
        Self { pages, count: all - self.count }
    }

    /// Takes others in, that are behind all of these.
    pub(crate) fn extend(&mut self, others: Self) {
        self.count += others.count;
        for (page, drafts) in others.pages {
            self.pages.entry(page).or_default().extend(drafts);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::look::{Item, Text};
    use crate::node::{Kind, Node};

    fn draft(key: u64, mask: u16) -> Draft {
        let node = Node::new(NodeKey(key), Kind::Null, 1, NodeKey(1));
        Draft { item: Item { node, text: Text::own("") }, mask, is_gone: false }
    }

    fn all(drafts: &Drafts) -> Vec<(u64, u16)> {
        drafts.iter().map(|(key, draft)| (key, draft.mask)).collect()
    }

    proptest! {
        #[test]
        fn they_are_what_a_map_of_them_is(keys in prop::collection::vec((0_u64..600, 0_u16..9), 0..200), cut in 0_u64..600) {
            let (mut drafts, mut model) = (Drafts::default(), BTreeMap::new());
            for (key, mask) in keys {
                drafts.insert(draft(key, mask));
                model.insert(key, mask);
            }
            let whole: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!((all(&drafts), drafts.len()), (whole.clone(), whole.len()));
            for key in 0..600 {
                prop_assert_eq!(drafts.get(key).map(|draft| draft.mask), model.get(&key).copied());
                prop_assert_eq!(drafts.get_mut(key).map(|draft| draft.mask), model.get(&key).copied());
            }
            let rest = drafts.split_off(cut);
            let above: Vec<_> = model.split_off(&cut).into_iter().collect();
            prop_assert_eq!((all(&rest), rest.len()), (above.clone(), above.len()));
            let below: Vec<_> = model.into_iter().collect();
            prop_assert_eq!((all(&drafts), drafts.len()), (below.clone(), below.len()));
            drafts.extend(rest);
            prop_assert_eq!((all(&drafts), drafts.len()), (whole.clone(), whole.len()));
        }
    }
}
