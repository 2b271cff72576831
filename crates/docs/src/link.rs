//! Linking: where a node hangs, and what is counted and hashed above it.
//!
//! Walk: [`Edit::link`] hangs a node, [`Edit::unlink`] takes it off · [`Edit::bubble`] takes a change into all containers above.
//! Deliberately absent: what may hang where. Whoever links has asked.

use crate::edit::Edit;
use crate::look::{Item, Look};
use crate::node::{Node, NodeKey, field};
use crate::{DocsError, hash};

/// Where a node hangs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    pub(crate) parent: NodeKey,
    pub(crate) left: Option<NodeKey>,
    pub(crate) right: Option<NodeKey>,
}

/// What changes in a container because of what is below it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta {
    sum: u64,
    children: i64,
    descendants: i64,
}

impl Edit {
    /// Hangs a node, with all that is below it, and counts it in all above.
    pub(crate) fn link(&mut self, key: NodeKey, hook: Hook) -> Result<(), DocsError> {
        let Hook { parent, left, right } = hook;
        self.change(key, field::TO_LEFT | field::TO_RIGHT | field::TO_PARENT, |node| {
            (node.parent, node.left, node.right) = (parent, left, right);
        })?;
        let item = self.item(key)?;
        let mut sum = hash::share(key.0, number(left), self.hash(&item)?);
        if let Some(left) = left {
            self.change(left, field::TO_RIGHT, |node| node.right = Some(key))?;
        }
        if let Some(right) = right {
            sum = sum.wrapping_add(self.reshared(right, left, Some(key))?);
            self.change(right, field::TO_LEFT, |node| node.left = Some(key))?;
        }
        self.ends(hook, Some(key), Some(key))?;
        let descendants = i64::try_from(item.node.descendants).unwrap_or(i64::MAX).saturating_add(1);
        self.bubble(parent, Delta { sum, children: 1, descendants })
    }

    /// Takes a node off where it hangs.
    pub(crate) fn unlink(&mut self, item: &Item) -> Result<(), DocsError> {
        let Node { key, parent, left, right, .. } = item.node;
        let mut sum = hash::share(key.0, number(left), self.hash(item)?).wrapping_neg();
        if let Some(left) = left {
            self.change(left, field::TO_RIGHT, |node| node.right = right)?;
        }
        if let Some(right) = right {
            sum = sum.wrapping_add(self.reshared(right, Some(key), left)?);
            self.change(right, field::TO_LEFT, |node| node.left = left)?;
        }
        self.ends(Hook { parent, left, right }, right, left)?;
        let descendants = i64::try_from(item.node.descendants).unwrap_or(i64::MAX).saturating_add(1);
        self.bubble(parent, Delta { sum, children: -1, descendants: -descendants })
    }

    /// What the parent's sum gains when this child has another left sibling.
    fn reshared(&self, child: NodeKey, from: Option<NodeKey>, to: Option<NodeKey>) -> Result<u64, DocsError> {
        let hash = self.hash(&self.item(child)?)?;
        let (before, after) = (hash::share(child.0, number(from), hash), hash::share(child.0, number(to), hash));
        Ok(after.wrapping_sub(before))
    }

    /// The parent's first child is this where nothing is to the left, and its last that where nothing is to the right.
    fn ends(&mut self, hook: Hook, first: Option<NodeKey>, last: Option<NodeKey>) -> Result<(), DocsError> {
        if hook.parent == NodeKey::DOCUMENT {
            self.value = number(first);
            return Ok(());
        }
        if hook.left.is_none() {
            self.change(hook.parent, field::TO_FIRST, |node| node.first = first)?;
        }
        if hook.right.is_none() {
            self.change(hook.parent, field::TO_LAST, |node| node.last = last)?;
        }
        Ok(())
    }

    /// Takes a change into a container and into all above it.
    pub(crate) fn bubble(&mut self, container: NodeKey, mut delta: Delta) -> Result<(), DocsError> {
        let mut at = container;
        while at != NodeKey::DOCUMENT {
            let item = self.item(at)?;
            let name = self.name(&item.node)?;
            let old = item.hash(name.as_ref());
            let draft = self.draft_of(item)?;
            let node = &mut draft.item.node;
            node.sum = node.sum.wrapping_add(delta.sum);
            node.children = node.children.saturating_add_signed(delta.children);
            node.descendants = node.descendants.saturating_add_signed(delta.descendants);
            draft.mask |= field::SUM;
            draft.mask |= if delta.children == 0 { 0 } else { field::CHILD_COUNT };
            draft.mask |= if delta.descendants == 0 { 0 } else { field::DESCENDANT_COUNT };
            let node = draft.item.node;
            let new = draft.item.hash(name.as_ref());
            delta = Delta { children: 0, descendants: delta.descendants, ..rehashed(&node, old, new) };
            at = node.parent;
        }
        Ok(())
    }
}

pub(crate) fn number(key: Option<NodeKey>) -> u64 {
    key.map_or(0, |key| key.0)
}

/// What a parent's sum gains when this child has another hash.
pub(crate) fn rehashed(node: &Node, old: u64, new: u64) -> Delta {
    let share = |hash| hash::share(node.key.0, number(node.left), hash);
    Delta { sum: share(new).wrapping_sub(share(old)), ..Delta::default() }
}
