//! What became of nodes that may differ: new, gone, set, renamed, elsewhere.
//!
//! ```text
//!   in one revision only    its own parent is in both: the top of what is new or gone
//!   in both                 other kind or text: updated · other parent: moved · other name: renamed
//!   other neighbours        of those that stayed in the container: somebody in it was moved. The fewest who can have been are
//!   gone and new            under one name, or as many behind one neighbour that stayed: one was replaced by the other
//! ```
//! Walk: [`Judge::judge`] looks at each key · [`Judge::reorder`] finds who was moved within a container · [`Judge::replace`] pairs ·
//! [`Judge::laid`] puts them in an order in which they can be applied.
//! Deliberately absent: where the keys come from. More of them than have changed do no harm.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::DocsError;
use crate::align::rising;
use crate::diff::{Difference, Spot};
use crate::look::{Item, Look, Text};
use crate::node::{Node, NodeKey};
use crate::revision::Revision;

/// Differences by what they are.
#[derive(Debug)]
pub(super) struct Judge<'r> {
    old: &'r Revision,
    new: &'r Revision,
    removed: BTreeMap<NodeKey, Spot>,
    inserted: BTreeMap<NodeKey, Spot>,
    moved: BTreeMap<NodeKey, (Spot, Spot)>,
    /// What was put in its place, of each that is gone: by the new one.
    replaced: BTreeMap<NodeKey, NodeKey>,
    updated: BTreeSet<NodeKey>,
    renamed: BTreeSet<NodeKey>,
}

fn spot(node: &Node) -> Spot {
    Spot { parent: node.parent, left: node.left }
}

#[derive(Clone, Copy)]
enum To {
    Left,
    Right,
}

impl To {
    const fn from(self, node: &Node) -> Option<NodeKey> {
        match self {
            Self::Left => node.left,
            Self::Right => node.right,
        }
    }
}

impl<'r> Judge<'r> {
    pub(super) fn of(
        old: &'r Revision,
        new: &'r Revision,
        keys: impl IntoIterator<Item = NodeKey>,
    ) -> Result<Vec<Difference>, DocsError> {
        let (removed, inserted, moved) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (replaced, updated, renamed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut judge = Self { old, new, removed, inserted, moved, replaced, updated, renamed };
        let mut reordered = BTreeSet::new();
        for key in keys {
            judge.judge(key, &mut reordered)?;
        }
        for parent in reordered {
            judge.reorder(parent)?;
        }
        judge.replace()?;
        judge.laid()
    }

    fn judge(&mut self, key: NodeKey, reordered: &mut BTreeSet<NodeKey>) -> Result<(), DocsError> {
        let is_there = |look: &Revision, key| -> Result<bool, DocsError> {
            Ok(key == NodeKey::DOCUMENT || look.find(key)?.is_some())
        };
        match (self.old.find(key)?, self.new.find(key)?) {
            (None, None) => {}
            (Some(Item { node, .. }), None) => {
                if is_there(self.new, node.parent)? {
                    self.removed.insert(key, spot(&node));
                }
            }
            (None, Some(Item { node, .. })) => {
                if is_there(self.old, node.parent)? {
                    self.inserted.insert(key, spot(&node));
                }
            }
            (Some(before), Some(after)) => self.judge_both(&before, &after, reordered)?,
        }
        Ok(())
    }

    fn judge_both(&mut self, before: &Item, after: &Item, reordered: &mut BTreeSet<NodeKey>) -> Result<(), DocsError> {
        let (a, b) = (&before.node, &after.node);
        if a.kind != b.kind || before.text() != after.text() {
            self.updated.insert(a.key);
        }
        if a.parent != b.parent {
            self.moved.insert(a.key, (spot(a), spot(b)));
            return Ok(());
        }
        // By name and not by path: of a dropped revision a path's number may mean another one.
        if !same_name(self.old, a, self.new, b)? {
            self.renamed.insert(a.key);
        }
        let beside = |to: To| -> Result<bool, DocsError> {
            // Whoever is beside it in both has stayed, too.
            Ok(to.from(a) == to.from(b) || stayed(self.old, self.new, a, to)? == stayed(self.new, self.old, b, to)?)
        };
        if !(beside(To::Left)? && beside(To::Right)?) {
            reordered.insert(a.parent);
        }
        Ok(())
    }

    /// The fewest children of a container that were moved within it.
    fn reorder(&mut self, parent: NodeKey) -> Result<(), DocsError> {
        let (before, after) = (children(self.old, parent)?, children(self.new, parent)?);
        let places: HashMap<NodeKey, usize> = (0..).zip(&before).map(|(at, node)| (node.key, at)).collect();
        let kept: Vec<(usize, &Node)> = after.iter().filter_map(|node| Some((*places.get(&node.key)?, node))).collect();
        let olds: Vec<usize> = kept.iter().map(|(place, _)| *place).collect();
        let still: BTreeSet<usize> = rising(&olds).into_iter().filter_map(|at| olds.get(at).copied()).collect();
        for (place, node) in kept.into_iter().filter(|(place, _)| !still.contains(place)) {
            if let Some(was) = before.get(place) {
                // Its name may be another one now: a move says that too.
                self.renamed.remove(&node.key);
                self.moved.insert(node.key, (spot(was), spot(node)));
            }
        }
        Ok(())
    }

    /// Pairs what is gone with what is new in its place.
    fn replace(&mut self) -> Result<(), DocsError> {
        let parents: BTreeSet<NodeKey> = self.removed.values().map(|spot| spot.parent).collect();
        let new: Vec<(NodeKey, NodeKey)> = self.inserted.iter().map(|(key, spot)| (*key, spot.parent)).collect();
        let new: Vec<(NodeKey, NodeKey)> = new.into_iter().filter(|(_, parent)| parents.contains(parent)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let common: BTreeSet<NodeKey> = new.iter().map(|(_, parent)| *parent).collect();
        let old = self.removed.iter().filter(|(_, spot)| common.contains(&spot.parent)).map(|(key, _)| *key);
        let mut gone: HashMap<Place, NodeKey> = HashMap::new();
        for (key, place) in self.places(self.old, old.collect())? {
            gone.insert(place, key);
        }
        for (key, place) in self.places(self.new, new.into_iter().map(|(key, _)| key).collect())? {
            if let Some(before) = gone.remove(&place) {
                self.replaced.insert(key, before);
            }
        }
        Ok(())
    }

    /// Where these nodes of one revision are, said so that it can be compared with the other.
    fn places(&self, look: &Revision, keys: BTreeSet<NodeKey>) -> Result<Vec<(NodeKey, Place)>, DocsError> {
        let mut numbered: HashMap<NodeKey, (Option<NodeKey>, u64)> = HashMap::new();
        let mut places = Vec::with_capacity(keys.len());
        for key in &keys {
            let node = look.item(*key)?.node;
            if node.parent == NodeKey::DOCUMENT {
                places.push((*key, Place::Value));
            } else if let Some(name) = look.name(&node)? {
                places.push((*key, Place::Member(node.parent, name.as_str().to_owned())));
            } else {
                self.number(look, &node, &keys, &mut numbered)?;
                if let Some((behind, number)) = numbered.get(key) {
                    places.push((*key, Place::Behind(node.parent, *behind, *number)));
                }
            }
        }
        Ok(places)
    }

    /// Numbers the nodes between a value of an array and the next one to its left that stayed.
    fn number(
        &self,
        look: &Revision,
        node: &Node,
        keys: &BTreeSet<NodeKey>,
        numbered: &mut HashMap<NodeKey, (Option<NodeKey>, u64)>,
    ) -> Result<(), DocsError> {
        let mut run = Vec::new();
        let mut at = Some(node.key);
        let (behind, mut number) = loop {
            let Some(key) = at else { break (None, 0) };
            if let Some((behind, number)) = numbered.get(&key) {
                break (*behind, number + 1);
            }
            let own = look.item(key)?.node;
            if keys.contains(&key) {
                run.push(key);
            } else if self.is_still(key, own.parent)? {
                break (Some(key), 0);
            }
            at = own.left;
        };
        for key in run.into_iter().rev() {
            numbered.insert(key, (behind, number));
            number += 1;
        }
        Ok(())
    }

    /// Whether a node stayed where it was in its container.
    fn is_still(&self, key: NodeKey, parent: NodeKey) -> Result<bool, DocsError> {
        let within = |look: &Revision| -> Result<bool, DocsError> {
            Ok(look.find(key)?.is_some_and(|item| item.node.parent == parent))
        };
        Ok(!self.moved.contains_key(&key) && within(self.old)? && within(self.new)?)
    }

    /// What is gone, what was changed in place, then what was put somewhere: of neighbours the left one first.
    fn laid(&self) -> Result<Vec<Difference>, DocsError> {
        let replaced: BTreeSet<NodeKey> = self.replaced.values().copied().collect();
        let gone = self.removed.iter().filter(|(key, _)| !replaced.contains(key));
        let mut laid: Vec<Difference> =
            gone.map(|(key, from)| Difference::Removed { key: *key, from: *from }).collect();
        laid.extend(self.renamed.iter().map(|key| Difference::Renamed { key: *key }));
        laid.extend(self.updated.iter().map(|key| Difference::Updated { key: *key }));
        let is_placed = |key: NodeKey| self.inserted.contains_key(&key) || self.moved.contains_key(&key);
        for key in self.inserted.keys().chain(self.moved.keys()) {
            let mut node = self.new.item(*key)?.node;
            if node.left.is_some_and(is_placed) {
                continue;
            }
            loop {
                laid.extend(self.placed(node.key));
                match node.right.filter(|right| is_placed(*right)) {
                    Some(right) => node = self.new.item(right)?.node,
                    None => break,
                }
            }
        }
        Ok(laid)
    }

    fn placed(&self, key: NodeKey) -> Option<Difference> {
        if let Some((from, to)) = self.moved.get(&key) {
            return Some(Difference::Moved { key, from: *from, to: *to });
        }
        let to = *self.inserted.get(&key)?;
        let Some(old) = self.replaced.get(&key) else { return Some(Difference::Inserted { key, to }) };
        Some(Difference::Replaced { old: *old, new: key, from: *self.removed.get(old)?, to })
    }
}

/// A place among those that stayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The document's value.
    Value,
    Member(NodeKey, String),
    /// In an array: behind one that stayed, and so many behind that.
    Behind(NodeKey, Option<NodeKey>, u64),
}

/// Whether two nodes have the same name, or both none.
pub(super) fn same_name(old: &impl Look, a: &Node, new: &impl Look, b: &Node) -> Result<bool, DocsError> {
    let (a, b) = (old.name(a)?, new.name(b)?);
    Ok(a.as_ref().map(Text::as_str) == b.as_ref().map(Text::as_str))
}

/// The nearest sibling that is in the same container in the other revision.
fn stayed(look: &impl Look, other: &impl Look, node: &Node, to: To) -> Result<Option<NodeKey>, DocsError> {
    let mut at = to.from(node);
    while let Some(key) = at {
        if other.find(key)?.is_some_and(|item| item.node.parent == node.parent) {
            return Ok(Some(key));
        }
        at = to.from(&look.item(key)?.node);
    }
    Ok(None)
}

/// The children of a container, in order.
pub(crate) fn children(look: &impl Look, parent: NodeKey) -> Result<Vec<Node>, DocsError> {
    let mut next = if parent == NodeKey::DOCUMENT { look.value() } else { look.item(parent)?.node.first };
    let mut children = Vec::new();
    while let Some(key) = next {
        let node = look.item(key)?.node;
        children.push(node);
        next = node.right;
    }
    Ok(children)
}
