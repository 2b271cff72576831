//! Rearranging: rename, move, copy, replace.
//!
//! Walk: [`Edit::rename`] and [`Edit::relocate`] keep the keys of what they take along and give it new paths ·
//! [`Edit::insert_copy`] and [`Edit::replace`] make new nodes.
//! Deliberately absent: copies that keep keys. A key is one node's.

use std::io::Read;

use crate::DocsError;
use crate::build::Build;
use crate::edit::{At, Edit, Value, Way};
use crate::entry::What;
use crate::error::within;
use crate::link::{Hook, rehashed};
use crate::look::{Item, Look};
use crate::node::{Kind, Node, NodeKey, field};
use crate::parse::fill;
use crate::path::PathId;
use crate::record::length;

impl Edit {
    /// Gives a member another name.
    ///
    /// # Errors
    /// [`DocsError::NoNode`], [`DocsError::Unfit`] if it is no member, [`DocsError::Duplicate`]: nothing has changed then.
    pub fn rename(&mut self, key: NodeKey, name: &str) -> Result<(), DocsError> {
        self.whole(|edit| edit.rename_member(key, name))
    }

    fn rename_member(&mut self, key: NodeKey, name: &str) -> Result<(), DocsError> {
        self.make_room()?;
        let item = self.item(key)?;
        let Node { parent, left, right, .. } = item.node;
        let Some(before) = self.name(&item.node)? else {
            return Err(DocsError::Unfit { key, why: "it is no member of an object, and has no name" });
        };
        if before.as_str() == name {
            return Ok(());
        }
        self.fits(Hook { parent, left, right }, Some(name), Some(key))?;
        self.check_text(Kind::Null, "", Some(name))?;
        let old = self.hash(&item)?;
        self.repath(key, Some(name))?;
        let new = self.hash(&self.item(key)?)?;
        self.bubble(parent, rehashed(&item.node, old, new))?;
        self.note(What::Renamed, key);
        Ok(())
    }

    /// Puts a node with all that is below it somewhere else; their keys stay. In an object it needs a name, elsewhere it has none.
    ///
    /// # Errors
    /// As [`Edit::insert`]; [`DocsError::Unfit`] for a place within itself. Nothing has changed then.
    pub fn relocate(&mut self, key: NodeKey, at: At, name: Option<&str>) -> Result<(), DocsError> {
        self.whole(|edit| edit.move_node(key, at, name))
    }

    fn move_node(&mut self, key: NodeKey, at: At, name: Option<&str>) -> Result<(), DocsError> {
        self.make_room()?;
        let item = self.item(key)?;
        let hook = self.hook_for(&item, at)?;
        self.fits(hook, name, Some(key))?;
        self.check_text(Kind::Null, "", name)?;
        let levels = self.levels_above(hook.parent, key)? + self.levels_below(key)?;
        within("nesting", levels, self.store.config.depth_max.into())?;
        self.unlink(&item)?;
        // Now its siblings hang together, and perhaps the place is between them.
        let hook = self.hook_for(&item, at)?;
        self.change(key, field::TO_PARENT, |node| node.parent = hook.parent)?;
        let repathed = self.repath(key, name);
        self.amid(repathed)?;
        self.link(key, hook)?;
        self.note(What::Moved, key);
        Ok(())
    }

    /// Puts a copy of a node of some revision somewhere, with all that is below it, and gives the copy's key.
    ///
    /// # Errors
    /// As [`Edit::insert`], and as the revision is read.
    pub fn insert_copy(
        &mut self,
        at: At,
        name: Option<&str>,
        from: &impl Look,
        node: NodeKey,
    ) -> Result<NodeKey, DocsError> {
        self.insert_built(at, name, |build| copy(build, name, from, node))
    }

    /// Puts a value that is read as JSON in a node's place, under its name, and gives its key. The node is gone.
    ///
    /// # Errors
    /// As [`Edit::insert_json`]: nothing has changed then.
    pub fn replace(&mut self, key: NodeKey, json: impl Read) -> Result<NodeKey, DocsError> {
        let text_bytes_max = self.store.config.text_bytes_max;
        self.replace_built(key, |build, name| fill(build, name, json, text_bytes_max))
    }

    /// Builds a subtree and hangs it in a node's place, under its name. The node is gone.
    pub(crate) fn replace_built(
        &mut self,
        key: NodeKey,
        fill: impl FnOnce(&mut Build<'_>, Option<&str>) -> Result<(), DocsError>,
    ) -> Result<NodeKey, DocsError> {
        self.whole(|edit| {
            edit.make_room()?;
            let item = edit.item(key)?;
            let name = edit.name(&item.node)?;
            let name = name.as_ref().map(crate::Text::as_str);
            let new = edit.built(item.node.parent, |build| fill(build, name))?;
            edit.unlink(&item)?;
            edit.forget(key)?;
            let Node { parent, left, right, .. } = item.node;
            edit.link(new, Hook { parent, left, right })?;
            edit.note(What::Removed, key);
            edit.note(What::Inserted, new);
            Ok(new)
        })
    }

    /// Where a node that is there already would hang.
    fn hook_for(&self, item: &Item, at: At) -> Result<Hook, DocsError> {
        let key = item.node.key;
        let unfit = |why| Err(DocsError::Unfit { key, why });
        let hook = match at {
            At::First(NodeKey::DOCUMENT) | At::Last(NodeKey::DOCUMENT) => {
                return unfit("the document's value is replaced, nothing is moved there");
            }
            At::First(parent) => Hook { parent, left: None, right: self.item(parent)?.node.first },
            At::Last(parent) => Hook { parent, left: self.item(parent)?.node.last, right: None },
            At::Before(sibling) | At::After(sibling) if sibling == key => {
                return unfit("a place beside itself is no other place");
            }
            At::Before(sibling) => {
                let Node { parent, left, .. } = self.item(sibling)?.node;
                Hook { parent, left, right: Some(sibling) }
            }
            At::After(sibling) => {
                let Node { parent, right, .. } = self.item(sibling)?.node;
                Hook { parent, left: Some(sibling), right }
            }
        };
        Ok(hook)
    }

    /// How many containers a new child of this one is within.
    pub(crate) fn levels_above(&self, parent: NodeKey, moved: NodeKey) -> Result<u64, DocsError> {
        let (mut at, mut levels) = (parent, 0);
        while at != NodeKey::DOCUMENT {
            if at == moved {
                return Err(DocsError::Unfit { key: moved, why: "it cannot be put into itself" });
            }
            (at, levels) = (self.item(at)?.node.parent, levels + 1);
        }
        Ok(levels)
    }

    /// How many levels a subtree has.
    pub(crate) fn levels_below(&self, top: NodeKey) -> Result<u64, DocsError> {
        let (mut node, mut level, mut levels) = (self.item(top)?.node, 1, 1);
        while let Some(next) = self.after(&node, top)? {
            let found = self.item(next)?.node;
            if found.parent == node.key {
                level += 1;
            } else {
                let mut left = node;
                while left.parent != found.parent {
                    (left, level) = (self.item(left.parent)?.node, level - 1);
                }
            }
            (node, levels) = (found, levels.max(level));
        }
        Ok(levels)
    }

    /// Gives a subtree the paths that it has where its top now is, and lays that if it is much.
    pub(crate) fn repath(&mut self, top: NodeKey, name: Option<&str>) -> Result<(), DocsError> {
        let (mut next, mut way) = (Some(top), Way::of(top));
        while let Some(key) = next {
            let item = self.item(key)?;
            let mut node = item.node;
            let before = match way.parent() {
                Some(parent) => parent.path,
                None if node.parent == NodeKey::DOCUMENT => 0,
                None => self.item(node.parent)?.node.path,
            };
            let own = if key == top { None } else { self.name(&node)? };
            let name = if key == top { name } else { own.as_ref().map(crate::Text::as_str) };
            let stepped = self.step(before, name);
            // What is above has its new path already.
            let path: PathId = if key == top { stepped? } else { self.amid(stepped)? };
            if path != node.path {
                self.count_path(node.path, -1)?;
                self.count_path(path, 1)?;
                if self.drafts.get(key.0).is_none() {
                    // A draft holds its text, or the page that has it.
                    self.text_bytes = self.text_bytes.saturating_add(length(item.text.bytes()));
                }
                let draft = self.draft_of(item)?;
                draft.item.node.path = path;
                draft.mask |= field::ITS_PATH;
                node.path = path;
            }
            next = way.next(node);
            self.make_room_amid()?;
        }
        Ok(())
    }
}

/// Walks a subtree of something else into a build.
fn copy(build: &mut Build<'_>, name: Option<&str>, from: &impl Look, top: NodeKey) -> Result<(), DocsError> {
    let mut open: Vec<Node> = Vec::new();
    let mut next = Some(top);
    loop {
        let Some(key) = next else {
            let Some(done) = open.pop() else { return Ok(()) };
            build.close()?;
            next = if done.key == top { None } else { done.right };
            continue;
        };
        let item = from.item(key)?;
        let own = if key == top { None } else { from.name(&item.node)? };
        let name = if key == top { name } else { own.as_ref().map(crate::Text::as_str) };
        let value = match item.node.kind {
            Kind::Object => Value::Object,
            Kind::Array => Value::Array,
            Kind::String => Value::String(item.text()),
            Kind::Number => Value::Number(item.text()),
            Kind::True => Value::Bool(true),
            Kind::False => Value::Bool(false),
            Kind::Null => Value::Null,
        };
        if item.node.kind.is_container() {
            build.open(value, name)?;
            next = item.node.first;
            open.push(item.node);
        } else {
            build.leaf(value, name)?;
            next = if key == top { None } else { item.node.right };
        }
    }
}
