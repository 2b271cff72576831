//! JSON Merge Patch (RFC 7396): what an object should say, null for what it should not have.
//!
//! Walk: [`Edit::merge_patch`] goes down the patch and the stored form together, and changes what differs: all else keeps its
//! node.
//! Deliberately absent: recursion; and members that should be null, which this kind of patch cannot say.

use std::collections::HashMap;

use crate::DocsError;
use crate::edit::{At, Edit, Value};
use crate::flat::Flat;
use crate::look::{Look, Text};
use crate::node::{Kind, NodeKey};

impl Edit {
    /// Merges a patch into the document, all of it or nothing.
    ///
    /// # Errors
    /// [`DocsError::Json`], [`DocsError::Size`], also beyond [`Edit::PATCH_BYTES_MAX`]. Nothing has changed then.
    pub fn merge_patch(&mut self, patch: &[u8]) -> Result<(), DocsError> {
        let patch = Flat::of(patch, self.store.config.depth_max)?;
        self.all_or_nothing(|edit| edit.merge(&patch))
    }

    fn merge(&mut self, patch: &Flat) -> Result<(), DocsError> {
        let mut open = Vec::new();
        let top = self.merge_one(patch, Flat::TOP, (NodeKey::DOCUMENT, self.value()))?;
        open.extend(top.map(|object| (object, Flat::TOP)));
        while let Some((object, at)) = open.pop() {
            let mut members = self.members_named(patch, object, at)?;
            for child in patch.children(at) {
                let member = members.remove(&child);
                match (patch.kind(child), member) {
                    (Kind::Null, Some(member)) => self.remove(member)?,
                    (Kind::Null, None) => {}
                    (_, member) => {
                        let merged = self.merge_one(patch, child, (object, member))?;
                        open.extend(merged.map(|object| (object, child)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes one value what the patch says; of an object only that it is one: its members are still to be merged.
    fn merge_one(
        &mut self,
        patch: &Flat,
        at: usize,
        (parent, member): (NodeKey, Option<NodeKey>),
    ) -> Result<Option<NodeKey>, DocsError> {
        let is_object = patch.kind(at) == Kind::Object;
        let name = (parent != NodeKey::DOCUMENT).then(|| patch.name(at));
        match member {
            Some(key) if is_object && self.item(key)?.node.kind == Kind::Object => Ok(Some(key)),
            Some(key) if is_object => {
                let empty = self.replace_built(key, |build, name| {
                    build.open(Value::Object, name)?;
                    build.close()
                })?;
                Ok(Some(empty))
            }
            Some(key) => self.replace_with(key, patch, at).map(|_| None),
            // No member has that name: it was looked for with all others of the patch.
            None if is_object => {
                let empty = self.insert_new(At::Last(parent), |build| {
                    build.open(Value::Object, name)?;
                    build.close()
                })?;
                Ok(Some(empty))
            }
            None => self.insert_new(At::Last(parent), |build| patch.fill(build, name, at)).map(|_| None),
        }
    }

    /// The members of a stored object that the patch names, by their place in the patch.
    fn members_named(&self, patch: &Flat, object: NodeKey, at: usize) -> Result<HashMap<usize, NodeKey>, DocsError> {
        let wanted: HashMap<&str, usize> = patch.children(at).map(|child| (patch.name(child), child)).collect();
        let mut members = HashMap::new();
        let mut next = self.item(object)?.node.first.filter(|_| !wanted.is_empty());
        while let Some(key) = next {
            let node = self.item(key)?.node;
            let name = self.name(&node)?;
            if let Some(child) = name.as_ref().and_then(|name| wanted.get(Text::as_str(name))) {
                members.insert(*child, key);
            }
            next = node.right;
        }
        Ok(members)
    }
}
