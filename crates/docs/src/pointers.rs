//! Pointers to many nodes of one tree: the values of an array are numbered once, not for each that is asked for.
//!
//! Walk: [`Pointers::to`] goes up from a node, and counts where it must.
//! Deliberately absent: changes. The tree is a revision, or an edit that stands still.

use std::collections::HashMap;

use crate::DocsError;
use crate::look::{Look, Text, escaped};
use crate::node::{Kind, NodeKey};

/// An array that was looked into is numbered the second time.
#[derive(Debug)]
enum Array {
    Seen,
    Numbered(HashMap<NodeKey, u64>),
}

/// What was numbered of a tree.
#[derive(Debug)]
pub struct Pointers<'l, L> {
    look: &'l L,
    arrays: HashMap<NodeKey, Array>,
}

impl<'l, L: Look> Pointers<'l, L> {
    /// Nothing yet.
    #[must_use]
    pub fn of(look: &'l L) -> Self {
        Self { look, arrays: HashMap::new() }
    }

    /// The path of a node from the document's value on, as [`Look::pointer`] has it.
    ///
    /// # Errors
    /// As [`Look::pointer`].
    pub fn to(&mut self, key: NodeKey) -> Result<String, DocsError> {
        let mut steps = Vec::new();
        let mut item = self.look.item(key)?;
        while item.node.parent != NodeKey::DOCUMENT {
            let parent = self.look.item(item.node.parent)?;
            steps.push(match parent.node.kind {
                Kind::Array => self.place(parent.node.key, item.node.key)?.to_string(),
                _ => self.look.name(&item.node)?.as_ref().map_or_else(String::new, |name| escaped(Text::as_str(name))),
            });
            item = parent;
        }
        Ok(steps.iter().rev().fold(String::new(), |pointer, step| format!("{pointer}/{step}")))
    }

    fn place(&mut self, array: NodeKey, key: NodeKey) -> Result<u64, DocsError> {
        match self.arrays.get(&array) {
            Some(Array::Numbered(numbers)) => {
                let none = DocsError::NoNode { key, revision: self.look.revision() };
                return numbers.get(&key).copied().ok_or(none);
            }
            None => {
                self.arrays.insert(array, Array::Seen);
                return self.look.index(&self.look.item(key)?.node);
            }
            Some(Array::Seen) => {}
        }
        let (mut numbers, mut next) = (HashMap::new(), self.look.item(array)?.node.first);
        while let Some(at) = next {
            numbers.insert(at, u64::try_from(numbers.len()).unwrap_or(u64::MAX));
            next = self.look.item(at)?.node.right;
        }
        self.arrays.insert(array, Array::Numbered(numbers));
        self.place(array, key)
    }
}
