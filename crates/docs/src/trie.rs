//! The trie of pages: from a page's number to its fragments, copied where it changes.
//!
//! A page of level 0 has 256 nodes (or paths); a page above has, for each of 64 pages below it, the chain that leads to it: few
//! enough that all of it is a kilobyte, for now and then a commit writes all of it. The pages of all levels are of one kind, with
//! fragments of their own: a commit writes of each level what changed.
//!
//! Walk: [`Tree::find`] walks down · [`Tree::write`] lays the changed pages of level 0, then what leads to them, up to the
//! root, and gives the tree that is then · `last` keeps the page that somebody found last.
//! Deliberately absent: reading and keeping: both are asked of the caller.

mod last;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use assent_frame::{Malformed, Reader};

pub(crate) use self::last::Last;
use crate::fragment::Records;
use crate::page::Page;
use crate::place::{Chain, Place};
use crate::record::Record;
use crate::varint;
use crate::versioning::Versioning;

/// A page leads to so many pages below it.
const FAN_BITS: u32 = 6;
/// More levels than keys can ever need.
const HEIGHT_MAX: u8 = 9;

/// Of which tree a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Which {
    Nodes,
    Paths,
}

/// A page of a document: its tree, its level, and its number among those of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageName {
    pub(crate) which: Which,
    pub(crate) level: u8,
    pub(crate) number: u64,
}

impl PageName {
    pub(crate) fn lay(self, out: &mut Vec<u8>) {
        out.push(self.level << 1 | u8::from(self.which == Which::Paths));
        varint::lay(out, self.number);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let first = reader.u8("page")?;
        let which = if first & 1 == 0 { Which::Nodes } else { Which::Paths };
        Ok(Self { which, level: first >> 1, number: varint::read(reader, "page")? })
    }

    /// The number of the page that a slot of this one leads to.
    pub(crate) fn below(self, slot: u8) -> u64 {
        self.number << FAN_BITS | u64::from(slot)
    }
}

impl fmt::Display for PageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if self.which == Which::Nodes { "nodes" } else { "paths" };
        write!(f, "page {} of level {} of the {which}", self.number, self.level)
    }
}

/// A page that cannot be what was written.
#[derive(Debug)]
pub(crate) struct Bad {
    pub(crate) page: PageName,
    pub(crate) what: Malformed,
}

/// A fragment that is to be placed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) page: PageName,
    pub(crate) bytes: Vec<u8>,
    /// Whether it leads to fragments of the entry that it will be in.
    pub(crate) leads_here: bool,
    /// The page before, and how many of its newest fragments are not needed any more.
    pub(crate) before: Arc<Page>,
    pub(crate) superseded: usize,
}

/// What reads pages.
pub(crate) trait Pages {
    type Error;

    /// The page that these fragments are.
    fn page(&self, page: PageName, chain: &Chain) -> Result<Arc<Page>, Self::Error>;

    /// How it says that a page is bad.
    fn bad(&self, bad: Bad) -> Self::Error;
}

/// What takes fragments too.
pub(crate) trait Shelf: Pages {
    /// Takes a fragment in, and says where it stands.
    fn place(&mut self, draft: Draft) -> Result<Place, Self::Error>;
}

/// The pages of one tree at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) height: u8,
    /// What leads to the page at the top.
    pub(crate) top: Chain,
}

/// What changes of pages, by their numbers.
pub(crate) type Changes<'a> = BTreeMap<u64, Records<'a>>;

impl Tree {
    pub(crate) fn lay(&self, out: &mut Vec<u8>) {
        out.push(self.height);
        self.top.lay(out);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let height = reader.u8("height")?;
        if height > HEIGHT_MAX {
            return Err(Malformed { field: "height" });
        }
        Ok(Self { height, top: Chain::read(reader)? })
    }

    /// The page of that level and number, with what leads to it.
    pub(crate) fn find<P: Pages>(
        &self,
        which: Which,
        (to, number): (u8, u64),
        pages: &P,
    ) -> Result<Option<(Chain, Arc<Page>)>, P::Error> {
        if to > self.height || above(number, self.height - to) > 0 || self.top.0.is_empty() {
            return Ok(None);
        }
        let (mut level, mut chain) = (self.height, self.top.clone());
        loop {
            let name = PageName { which, level, number: above(number, level - to) };
            let page = pages.page(name, &chain)?;
            if level == to {
                return Ok(Some((chain, page)));
            }
            level -= 1;
            let bad = |what| pages.bad(Bad { page: name, what });
            let Some(record) = page.get(slot(above(number, level - to))).map_err(bad)? else { return Ok(None) };
            chain = Chain::of(record.text).map_err(bad)?;
        }
    }

    /// Writes what changes, page by page, and gives the tree that is then. The top is at the level that the highest page needs.
    pub(crate) fn write<'a, S: Shelf>(
        &self,
        which: Which,
        versioning: Versioning,
        changes: impl IntoIterator<Item = (u64, Records<'a>)>,
        shelf: &mut S,
    ) -> Result<Self, S::Error> {
        let chains = self.write_level((which, 0), versioning, changes, shelf)?;
        self.lead(which, chains, shelf)
    }

    /// Writes what leads to these pages of level 0, up to the top.
    pub(crate) fn lead<S: Shelf>(
        &self,
        which: Which,
        mut chains: BTreeMap<u64, Chain>,
        shelf: &mut S,
    ) -> Result<Self, S::Error> {
        let Some(highest) = chains.keys().next_back().copied() else { return Ok(self.clone()) };
        let height = (0..HEIGHT_MAX).find(|height| above(highest, *height) == 0).unwrap_or(HEIGHT_MAX);
        let height = height.max(self.height);
        for level in 1..=height {
            if level == self.height + 1 && !self.top.0.is_empty() {
                chains.entry(0).or_insert_with(|| self.top.clone());
            }
            let laid: Vec<(u64, Vec<u8>)> = chains.iter().map(|(number, chain)| (*number, chain.laid())).collect();
            let mut changes = Changes::new();
            for (number, chain) in &laid {
                changes.entry(above(*number, 1)).or_default().insert(slot(*number), Record::text(chain));
            }
            chains = self.write_level((which, level), Versioning::default(), changes, shelf)?;
        }
        Ok(Self { height, top: chains.remove(&0).unwrap_or_default() })
    }

    /// Writes the pages of one level; what leads to each of them.
    fn write_level<'a, S: Shelf>(
        &self,
        (which, level): (Which, u8),
        versioning: Versioning,
        changes: impl IntoIterator<Item = (u64, Records<'a>)>,
        shelf: &mut S,
    ) -> Result<BTreeMap<u64, Chain>, S::Error> {
        let mut chains = BTreeMap::new();
        for (number, records) in changes {
            let page = PageName { which, level, number };
            let (chain, before) = self.find(which, (level, number), &*shelf)?.unwrap_or_default();
            let changed = before.change(versioning, &records);
            let changed = changed.map_err(|what| shelf.bad(Bad { page, what }))?;
            let here = |record: &Record<'_>| Chain::of(record.text).ok().and_then(|chain| chain.newest());
            let leads_here = level > 0 && records.values().filter_map(here).any(|place| place.is_here());
            let draft = Draft { page, bytes: changed.fragment, leads_here, before, superseded: changed.superseded };
            let newest = shelf.place(draft)?;
            let older = chain.0.get(changed.superseded..).unwrap_or_default();
            chains.insert(number, std::iter::once(newest).chain(older.iter().copied()).collect());
        }
        Ok(chains)
    }
}

/// The number of the page so many levels above.
fn above(number: u64, levels: u8) -> u64 {
    number.checked_shr(FAN_BITS * u32::from(levels)).unwrap_or(0)
}

/// The slot of a page in the one above it.
fn slot(number: u64) -> u8 {
    let [slot, ..] = (number & ((1 << FAN_BITS) - 1)).to_le_bytes();
    slot
}

#[cfg(test)]
mod tests {
    use assent_ids::Lsn;
    use proptest::prelude::*;

    use super::*;
    use crate::place::{Entry, resolve};

    type Fragment = (PageName, Arc<[u8]>);

    /// Entries of fragments in memory.
    #[derive(Debug, Default)]
    struct Memory {
        entries: BTreeMap<Lsn, Vec<Fragment>>,
        open: Vec<(PageName, Vec<u8>)>,
        most: std::cell::Cell<usize>,
    }

    impl Memory {
        /// The entry is appended: what is here is resolved.
        fn append(&mut self, tree: Tree) -> Tree {
            let entry = Entry::new(Lsn(8 * (self.entries.len() as u64 + 1)), 0);
            let mut fragments = std::mem::take(&mut self.open);
            for (page, bytes) in fragments.iter_mut().filter(|(page, _)| page.level > 0) {
                resolve(bytes, entry).unwrap_or_else(|error| panic!("{page}: {error}"));
            }
            self.entries.insert(entry.lsn(), fragments.into_iter().map(|(page, bytes)| (page, bytes.into())).collect());
            Tree { top: tree.top.resolved(entry), ..tree }
        }
    }

    impl Pages for Memory {
        type Error = String;

        fn bad(&self, bad: Bad) -> String {
            format!("{}: {}", bad.page, bad.what)
        }

        fn page(&self, page: PageName, chain: &Chain) -> Result<Arc<Page>, String> {
            self.most.set(self.most.get().max(chain.0.len()));
            let fragment = |place: &Place| {
                let (of, bytes) = &self.entries[&place.entry.lsn()][place.index as usize];
                assert_eq!(*of, page);
                Arc::clone(bytes)
            };
            Page::combine(chain.0.iter().map(fragment).collect()).map(Arc::new).map_err(|error| error.to_string())
        }
    }

    impl Shelf for Memory {
        fn place(&mut self, draft: Draft) -> Result<Place, String> {
            let chain = |record: Record<'_>| Chain::of(record.text).unwrap().0[0].is_here();
            let leads = || crate::fragment::records(&draft.bytes).unwrap().any(|record| chain(record.unwrap().1));
            assert_eq!(draft.leads_here, draft.page.level > 0 && leads());
            self.open.push((draft.page, draft.bytes));
            Ok(Place::here(u32::try_from(self.open.len()).unwrap() - 1))
        }
    }

    proptest! {
        #[test]
        fn every_page_of_every_revision_is_found_again(
            window in 1_u8..4,
            commits in prop::collection::vec(
                prop::collection::btree_map(prop_oneof![0_u64..4, 60_u64..70, 4_090_u64..4_100, 262_140_u64..262_150], 0_u8..4, 1..4),
                1..20,
            ),
        ) {
            let mut memory = Memory::default();
            let (mut tree, mut model) = (Tree::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (revision, commit) in commits.iter().enumerate() {
                let text = revision.to_string();
                let mut changes = Changes::new();
                for (number, slot) in commit {
                    changes.entry(*number).or_default().insert(*slot, Record::text(text.as_bytes()));
                    model.insert((*number, *slot), text.clone());
                }
                let versioning = Versioning::SlidingSnapshot { window };
                tree = tree.write(Which::Nodes, versioning, changes, &mut memory).unwrap();
                tree = memory.append(tree);
                kept.push((tree.clone(), model.clone()));
            }
            for (tree, model) in kept {
                for ((number, slot), text) in &model {
                    let (_, page) = tree.find(Which::Nodes, (0, *number), &memory).unwrap().unwrap();
                    prop_assert_eq!(page.get(*slot).unwrap().unwrap().text, text.as_bytes());
                }
                prop_assert!(tree.find(Which::Nodes, (0, 777), &memory).unwrap().is_none());
                prop_assert!(tree.find(Which::Nodes, (0, 1 << 40), &memory).unwrap().is_none());
                let mut laid = Vec::new();
                tree.lay(&mut laid);
                prop_assert_eq!(Tree::read(&mut Reader::new(&laid)), Ok(tree));
            }
            prop_assert!(memory.most.get() <= 3, "{} fragments", memory.most.get());
        }
    }

    #[test]
    fn one_change_far_down_writes_little_on_each_level() {
        let mut memory = Memory::default();
        let mut changes = Changes::new();
        for number in 0..70_000 {
            changes.entry(number).or_default().insert(0, Record::text(b"a"));
        }
        let tree = Tree::default().write(Which::Nodes, Versioning::default(), changes, &mut memory).unwrap();
        let tree = memory.append(tree);
        assert_eq!(tree.height, 3);
        let change = Changes::from([(65_537, Records::from([(7, Record::text(b"b"))]))]);
        tree.write(Which::Nodes, Versioning::default(), change, &mut memory).unwrap();
        let written: Vec<usize> = memory.open.iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(written.len(), 4);
        assert!(written.iter().sum::<usize>() < 90, "{written:?}");
    }
}
