//! Which nodes differ: the trees of two revisions are walked together, and a page that both share is not read.
//!
//! Walk: [`differing`] asks [`walk`], which goes down where the newest fragments are not the same; on the lowest level slot is held
//! against slot.
//! Deliberately absent: hashes. A fragment's place says that two pages are one, and nobody can forge that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::DocsError;
use crate::node::{Node, NodeKey};
use crate::page::{Page, SLOTS};
use crate::path::Path;
use crate::place::Chain;
use crate::record::Record;
use crate::revision::Revision;
use crate::trie::{Bad, PageName, Pages, Tree, Which};

/// What one revision has where a pair of pages is looked at.
#[derive(Clone, Debug)]
enum Side {
    Nothing,
    /// The tree is not that high: its top is further down.
    Above,
    There(Chain),
}

impl Side {
    fn of(tree: &Tree, level: u8) -> Self {
        match (tree.top.0.is_empty(), tree.height < level) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Above,
            (false, false) => Self::There(tree.top.clone()),
        }
    }

    /// The same page, or none on either side. What is newest says what is behind it.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::There(chain), Self::There(other)) => chain.newest() == other.newest(),
            _ => false,
        }
    }
}

/// The keys of nodes that are in one revision only, or that differ in more than what is counted and hashed below them.
pub(super) fn differing(old: &Revision, new: &Revision) -> Result<Box<dyn Iterator<Item = NodeKey>>, DocsError> {
    let is_same = paths_agree(old, new)?;
    if !is_same {
        let end = old.root.next_node.max(new.root.next_node);
        return Ok(Box::new((1..end).map(NodeKey)));
    }
    let mut keys = Vec::new();
    walk([old, new], Which::Nodes, |name, slot, [a, b]| {
        let key = NodeKey(name.number * SLOTS + u64::from(slot));
        let is_alike = match (a, b) {
            (Some(a), Some(b)) => {
                let bad = |revision: &Revision, what| revision.reading().bad(Bad { page: name, what });
                let one = Node::read(key, &a).map_err(|what| bad(old, what))?;
                let other = Node::read(key, &b).map_err(|what| bad(new, what))?;
                let told = |node: &Node| (node.kind, node.path, node.parent, node.left, node.right);
                told(&one) == told(&other) && a.text == b.text
            }
            _ => false,
        };
        if !is_alike {
            keys.push(key);
        }
        Ok(())
    })?;
    Ok(Box::new(keys.into_iter()))
}

/// Whether a path's number means the same in both. It does but for a revision that was dropped and is still held: after a
/// truncation numbers are given again.
fn paths_agree(old: &Revision, new: &Revision) -> Result<bool, DocsError> {
    let mut agree = true;
    walk([old, new], Which::Paths, |name, _, records| {
        if let [Some(a), Some(b)] = records {
            let bad = |revision: &Revision, what| revision.reading().bad(Bad { page: name, what });
            let one = Path::read(&a).map_err(|what| bad(old, what))?;
            let other = Path::read(&b).map_err(|what| bad(new, what))?;
            agree &= (one.before, one.step) == (other.before, other.step);
        }
        Ok(())
    })?;
    Ok(agree)
}

/// Walks over the slots that are not the same in both, of pages that are not shared.
fn walk(
    [old, new]: [&Revision; 2],
    which: Which,
    mut each: impl FnMut(PageName, u8, [Option<Record<'_>>; 2]) -> Result<(), DocsError>,
) -> Result<(), DocsError> {
    let trees = [tree(old, which), tree(new, which)];
    let top = trees.iter().map(|tree| tree.height).max().unwrap_or_default();
    let mut open = vec![(top, 0, trees.map(|tree| Side::of(tree, top)))];
    while let Some((level, number, [before, after])) = open.pop() {
        if before.is(&after) {
            continue;
        }
        let name = PageName { which, level, number };
        if level == 0 {
            let (before, after) = (page(old, name, &before)?, page(new, name, &after)?);
            for slot in 0..=u8::MAX {
                let records = [record(old, name, before.as_ref(), slot)?, record(new, name, after.as_ref(), slot)?];
                let [a, b] = &records;
                if a != b {
                    each(name, slot, records)?;
                }
            }
            continue;
        }
        let (mut before, mut after) = (below(old, name, &before)?, below(new, name, &after)?);
        let slots: BTreeSet<u8> = before.keys().chain(after.keys()).copied().collect();
        for slot in slots {
            let side = |sides: &mut BTreeMap<u8, Side>| sides.remove(&slot).unwrap_or(Side::Nothing);
            open.push((level - 1, name.below(slot), [side(&mut before), side(&mut after)]));
        }
    }
    Ok(())
}

fn tree(revision: &Revision, which: Which) -> &Tree {
    match which {
        Which::Nodes => &revision.root.nodes,
        Which::Paths => &revision.root.paths,
    }
}

fn page(revision: &Revision, name: PageName, side: &Side) -> Result<Option<Arc<Page>>, DocsError> {
    let Side::There(chain) = side else { return Ok(None) };
    revision.refuse_unwanted()?;
    revision.reading().page(name, chain).map(Some)
}

fn record<'p>(
    revision: &Revision,
    name: PageName,
    page: Option<&'p Arc<Page>>,
    slot: u8,
) -> Result<Option<Record<'p>>, DocsError> {
    let Some(page) = page else { return Ok(None) };
    page.get(slot).map_err(|what| revision.reading().bad(Bad { page: name, what }))
}

/// What leads to the pages below one.
fn below(revision: &Revision, name: PageName, side: &Side) -> Result<BTreeMap<u8, Side>, DocsError> {
    let chain = match side {
        Side::Nothing => return Ok(BTreeMap::new()),
        Side::Above => return Ok(BTreeMap::from([(0, Side::of(tree(revision, name.which), name.level - 1))])),
        Side::There(chain) => chain,
    };
    revision.refuse_unwanted()?;
    let reading = revision.reading();
    let page = reading.page(name, chain)?;
    let bad = |what| reading.bad(Bad { page: name, what });
    let mut sides = BTreeMap::new();
    for (slot, record) in page.records().map_err(bad)? {
        sides.insert(slot, Side::There(Chain::of(record.text).map_err(bad)?));
    }
    Ok(sides)
}
