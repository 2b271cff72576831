//! A document between two revisions: what has been taken out, put and renamed so far, and so the pointer of each node by now.
//!
//! Walk: [`Work::pointer`] · [`Work::take`], [`Work::put`], [`Work::substitute`] change it.
//! Deliberately absent: values. Whatever is put as a value is not looked into.

use std::collections::HashMap;

use crate::DocsError;
use crate::diff::judge::children;
use crate::diff::row::Row;
use crate::look::{Look, Text, escaped};
use crate::node::{Kind, NodeKey};
use crate::revision::Revision;

#[derive(Debug)]
pub(super) struct Work<'r> {
    old: &'r Revision,
    /// The values of each array that was looked into.
    lists: HashMap<NodeKey, Row>,
    /// What was put somewhere, and under which name.
    put: HashMap<NodeKey, (NodeKey, Option<String>)>,
}

impl<'r> Work<'r> {
    pub(super) fn of(old: &'r Revision) -> Self {
        Self { old, lists: HashMap::new(), put: HashMap::new() }
    }

    fn parent(&self, key: NodeKey) -> Result<NodeKey, DocsError> {
        match self.put.get(&key) {
            Some((parent, _)) => Ok(*parent),
            None => Ok(self.old.item(key)?.node.parent),
        }
    }

    fn is_array(&self, container: NodeKey) -> Result<bool, DocsError> {
        Ok(container != NodeKey::DOCUMENT && self.old.item(container)?.node.kind == Kind::Array)
    }

    fn list(&mut self, array: NodeKey) -> Result<&mut Row, DocsError> {
        if !self.lists.contains_key(&array) {
            let list: Vec<NodeKey> = children(self.old, array)?.iter().map(|node| node.key).collect();
            self.lists.insert(array, Row::of(&list));
        }
        Ok(self.lists.entry(array).or_default())
    }

    /// Where a node is by now, as a JSON Pointer.
    pub(super) fn pointer(&mut self, key: NodeKey) -> Result<String, DocsError> {
        let mut steps = Vec::new();
        let (mut at, mut parent) = (key, self.parent(key)?);
        while parent != NodeKey::DOCUMENT {
            steps.push(if self.is_array(parent)? {
                let place = self.list(parent)?.place(at);
                place.ok_or(DocsError::NoNode { key: at, revision: self.old.number() })?.to_string()
            } else {
                match self.put.get(&at) {
                    Some((_, name)) => escaped(name.as_deref().unwrap_or_default()),
                    None => escaped(self.old.name(&self.old.item(at)?.node)?.as_ref().map_or("", Text::as_str)),
                }
            });
            (at, parent) = (parent, self.parent(parent)?);
        }
        Ok(steps.iter().rev().fold(String::new(), |pointer, step| format!("{pointer}/{step}")))
    }

    /// Takes a node out of where it is.
    pub(super) fn take(&mut self, key: NodeKey) -> Result<(), DocsError> {
        let parent = self.parent(key)?;
        if self.is_array(parent)? {
            self.list(parent)?.take(key);
        }
        Ok(())
    }

    /// Puts a node into a container: in an array behind this one, or first.
    pub(super) fn put(
        &mut self,
        key: NodeKey,
        parent: NodeKey,
        left: Option<NodeKey>,
        name: Option<&str>,
    ) -> Result<(), DocsError> {
        self.put.insert(key, (parent, name.map(str::to_owned)));
        if self.is_array(parent)? {
            self.list(parent)?.put(key, left);
        }
        Ok(())
    }

    /// Puts a node behind all of an array; its pointer.
    pub(super) fn put_last(&mut self, key: NodeKey, array: NodeKey) -> Result<String, DocsError> {
        self.put.insert(key, (array, None));
        self.list(array)?.put_last(key);
        self.pointer(key)
    }

    /// Puts a node where another one is.
    pub(super) fn substitute(&mut self, old: NodeKey, new: NodeKey, name: Option<&str>) -> Result<(), DocsError> {
        let parent = self.parent(old)?;
        self.put.insert(new, (parent, name.map(str::to_owned)));
        if self.is_array(parent)? {
            self.list(parent)?.substitute(old, new);
        }
        Ok(())
    }
}
