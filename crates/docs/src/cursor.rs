//! A cursor: one node of a tree, and the steps from it.
//!
//! Walk: each step stands on another node and says so, or stays and says that there is none.
//! Deliberately absent: changes. An edit changes by keys, and a cursor gives them.

use crate::DocsError;
use crate::look::{Item, Look, Text};
use crate::node::{Kind, NodeKey};

/// A place in a tree of nodes. It stands on a node, or on the document before the first step.
#[derive(Clone, Debug)]
pub struct Cursor<'l, L: Look> {
    look: &'l L,
    at: Option<Item>,
}

impl<'l, L: Look> Cursor<'l, L> {
    /// A cursor on the document.
    #[must_use]
    pub const fn new(look: &'l L) -> Self {
        Self { look, at: None }
    }

    /// Where it stands.
    #[must_use]
    pub fn key(&self) -> NodeKey {
        self.at.as_ref().map_or(NodeKey::DOCUMENT, |item| item.node.key)
    }

    /// The node where it stands; none on the document.
    #[must_use]
    pub const fn item(&self) -> Option<&Item> {
        self.at.as_ref()
    }

    /// The name of the member where it stands.
    ///
    /// # Errors
    /// As [`Look::find`]; so for all below. It stays where it was.
    pub fn name(&self) -> Result<Option<Text>, DocsError> {
        self.at.as_ref().map_or(Ok(None), |item| self.look.name(&item.node))
    }

    fn go(&mut self, key: Option<NodeKey>) -> Result<bool, DocsError> {
        let Some(key) = key else { return Ok(false) };
        self.at = Some(self.look.item(key)?);
        Ok(true)
    }

    /// To a node, if it is there.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn to(&mut self, key: NodeKey) -> Result<bool, DocsError> {
        if key == NodeKey::DOCUMENT {
            self.at = None;
            return Ok(true);
        }
        let found = self.look.find(key)?;
        let is_there = found.is_some();
        self.at = found.or_else(|| self.at.take());
        Ok(is_there)
    }

    /// To what it is in: from the document's value to the document.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn parent(&mut self) -> Result<bool, DocsError> {
        match self.at.as_ref().map(|item| item.node.parent) {
            None => Ok(false),
            Some(parent) => self.to(parent),
        }
    }

    /// To the first child: from the document to its value.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn first_child(&mut self) -> Result<bool, DocsError> {
        let first = self.at.as_ref().map_or_else(|| self.look.value(), |item| item.node.first);
        self.go(first)
    }

    /// To the last child.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn last_child(&mut self) -> Result<bool, DocsError> {
        let last = self.at.as_ref().map_or_else(|| self.look.value(), |item| item.node.last);
        self.go(last)
    }

    /// To the left sibling.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn left(&mut self) -> Result<bool, DocsError> {
        self.go(self.at.as_ref().and_then(|item| item.node.left))
    }

    /// To the right sibling.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn right(&mut self) -> Result<bool, DocsError> {
        self.go(self.at.as_ref().and_then(|item| item.node.right))
    }

    /// To the member of that name.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn member(&mut self, name: &str) -> Result<bool, DocsError> {
        let object = self.at.as_ref().filter(|item| item.node.kind == Kind::Object);
        let Some(object) = object.map(|item| item.node.key) else { return Ok(false) };
        self.go(self.look.member(object, name)?)
    }

    /// To the value of an array at that index, from 0; from whichever end is nearer.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn index(&mut self, index: u64) -> Result<bool, DocsError> {
        let array = self.at.as_ref().filter(|item| item.node.kind == Kind::Array && index < item.node.children);
        let Some(array) = array.map(|item| item.node) else { return Ok(false) };
        let from_end = array.children - 1 - index;
        let (mut key, steps) = if index <= from_end { (array.first, index) } else { (array.last, from_end) };
        for _ in 0..steps {
            let Some(at) = key else { break };
            let node = self.look.item(at)?.node;
            key = if index <= from_end { node.right } else { node.left };
        }
        self.go(key)
    }

    /// To the next node in document order; from the document to its value.
    ///
    /// # Errors
    /// As [`Look::find`].
    pub fn next_node(&mut self) -> Result<bool, DocsError> {
        let Some(item) = &self.at else { return self.first_child() };
        if item.node.first.is_some() {
            return self.go(item.node.first);
        }
        let mut node = item.node;
        while node.right.is_none() {
            if node.parent == NodeKey::DOCUMENT {
                return Ok(false);
            }
            node = self.look.item(node.parent)?.node;
        }
        self.go(node.right)
    }
}
