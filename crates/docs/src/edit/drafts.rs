//! The nodes that an edit has in memory, page by page, as they will be laid.
//!
//! Walk: most come in the order of their keys, so that one is put behind all others of its page · [`Drafts::iter`] gives them in that order.
//! Deliberately absent: a tree of single nodes: to find places in one took more than a tenth of a load.

use std::collections::BTreeMap;

use super::Draft;
use crate::node::NodeKey;

/// Drafts by their nodes' keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafts {
    /// By page, and there by slot, in order.
    pages: BTreeMap<u64, Vec<(u8, Draft)>>,
    count: usize,
}

impl Drafts {
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Draft> {
        let (page, slot) = NodeKey(key).page();
        let drafts = self.pages.get(&page)?;
        let found = drafts.binary_search_by_key(&slot, |(of, _)| *of).ok()?;
        drafts.get(found).map(|(_, draft)| draft)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut Draft> {
        let (page, slot) = NodeKey(key).page();
        let drafts = self.pages.get_mut(&page)?;
        let found = drafts.binary_search_by_key(&slot, |(of, _)| *of).ok()?;
        drafts.get_mut(found).map(|(_, draft)| draft)
    }

    pub(crate) fn insert(&mut self, key: u64, draft: Draft) {
        let (page, slot) = NodeKey(key).page();
        let drafts = self.pages.entry(page).or_default();
        let is_last = drafts.last().is_none_or(|(last, _)| *last < slot);
        let found = if is_last { Err(drafts.len()) } else { drafts.binary_search_by_key(&slot, |(of, _)| *of) };
        let behind = match found {
            Err(behind) => behind,
            Ok(found) => {
                if let Some((_, place)) = drafts.get_mut(found) {
                    *place = draft;
                }
                return;
            }
        };
        drafts.insert(behind, (slot, draft));
        self.count += 1;
    }

    /// In the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Draft)> {
        self.pages().flat_map(|(page, drafts)| drafts.map(move |(slot, draft)| (NodeKey::of(page, slot).0, draft)))
    }

    /// The same by pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, impl ExactSizeIterator<Item = (u8, &Draft)>)> {
        self.pages.iter().map(|(page, drafts)| (*page, drafts.iter().map(|(slot, draft)| (*slot, draft))))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes out those from this key on.
    pub(crate) fn split_off(&mut self, first: u64) -> Self {
        let (page, slot) = NodeKey(first).page();
        let mut pages = self.pages.split_off(&page);
        if let Some(drafts) = pages.get_mut(&page) {
            let rest = drafts.split_off(drafts.partition_point(|(of, _)| *of < slot));
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
                drafts.insert(key, draft(key, mask));
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
