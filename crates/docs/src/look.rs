//! Looking at a tree of nodes, committed or under way: items, texts, names.
//!
//! Walk: [`Look`] is what revisions and edits have in common · an [`Item`] is a node with its text · [`Sample`] an object that
//! others are held against.
//! Deliberately absent: walking. The cursor does that over any [`Look`].

mod sample;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::node::{Kind, Node, NodeKey};
use crate::page::Page;
use crate::path::{PathId, Step};
use crate::pointer::Pointer;
use crate::{DocsError, hash};

pub use sample::Sample;

/// A text where it was read: no copy.
#[derive(Clone)]
pub struct Text(Held);

#[derive(Clone)]
enum Held {
    Page(Arc<Page>, Range<usize>),
    /// So many of these bytes: as many as the others take.
    Short(u8, [u8; SHORT_BYTES]),
    Own(Arc<str>),
}

const SHORT_BYTES: usize = 30;
const _: () = assert!(size_of::<Held>() == 32, "a short text takes no more than a place in a page");

impl Text {
    /// A text within a page; none if it is not UTF-8.
    pub(crate) fn within(page: &Arc<Page>, range: Range<usize>) -> Option<Self> {
        std::str::from_utf8(page.bytes(&range)).ok()?;
        Some(Self(Held::Page(Arc::clone(page), range)))
    }

    pub(crate) fn own(text: &str) -> Self {
        let mut short = [0; SHORT_BYTES];
        match (short.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(text.as_bytes());
                Self(Held::Short(length, short))
            }
            _ => Self(Held::Own(text.into())),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Held::Page(page, range) => page.bytes(range),
            Held::Short(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Held::Own(text) => text.as_bytes(),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Held::Own(text) => text,
            // It was checked when it was found, or was a text.
            Held::Page(..) | Held::Short(..) => std::str::from_utf8(self.bytes()).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A node with its text.
#[derive(Clone, Debug)]
pub struct Item {
    /// The node.
    pub node: Node,
    pub(crate) text: Text,
}

impl Item {
    /// A string, or the digits of a number; nothing for any other kind.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.as_str()
    }

    /// The rolling hash of a node with this name, with all that is below it.
    pub(crate) fn hash(&self, name: Option<&Text>) -> u64 {
        let Node { kind, sum, children, .. } = self.node;
        hash::of(kind, name.map(Text::as_str), self.text.bytes(), sum, children)
    }
}

/// A path with its name, where it was read.
#[derive(Clone, Debug)]
pub struct Named {
    pub(crate) before: PathId,
    pub(crate) step: Stepped,
    pub(crate) name: Text,
    pub(crate) references: u64,
}

/// A step without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    Root,
    Member,
    Items,
}

impl Named {
    pub(crate) fn step(&self) -> Step<'_> {
        match self.step {
            Stepped::Root => Step::Root,
            Stepped::Member => Step::Member(self.name.as_str()),
            Stepped::Items => Step::Items,
        }
    }
}

/// A page of nodes, held for as long as somebody reads it.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Leaf(pub(crate) Arc<Page>);

/// A tree of nodes that can be looked at.
pub trait Look {
    /// The document's value; none if it is empty.
    fn value(&self) -> Option<NodeKey>;

    /// The revision that is looked at, or is being changed.
    fn revision(&self) -> u32;

    /// A node, if it is there.
    ///
    /// # Errors
    /// [`DocsError::Damaged`] naming document, revision, page and place; as the disk says. So for all below.
    fn find(&self, key: NodeKey) -> Result<Option<Item>, DocsError>;

    /// A path by its number.
    #[doc(hidden)]
    fn path(&self, path: PathId) -> Result<Option<Named>, DocsError>;

    /// The page of nodes with this number, where every node of it is as the page says. None: ask for each node.
    #[doc(hidden)]
    fn leaf(&self, _number: u64) -> Result<Option<Leaf>, DocsError> {
        Ok(None)
    }

    /// A node that must be there.
    ///
    /// # Errors
    /// [`DocsError::NoNode`].
    fn item(&self, key: NodeKey) -> Result<Item, DocsError> {
        self.find(key)?.ok_or(DocsError::NoNode { key, revision: self.revision() })
    }

    /// The name of a member; none for a node that is none.
    ///
    /// # Errors
    /// As [`Look::find`].
    fn name(&self, node: &Node) -> Result<Option<Text>, DocsError> {
        let named = self.path(node.path)?;
        Ok(named.filter(|named| named.step == Stepped::Member).map(|named| named.name))
    }

    /// The member of an object with this name.
    ///
    /// # Errors
    /// As [`Look::find`].
    fn member(&self, object: NodeKey, name: &str) -> Result<Option<NodeKey>, DocsError> {
        let mut next = self.item(object)?.node.first;
        while let Some(key) = next {
            let node = self.item(key)?.node;
            if self.name(&node)?.is_some_and(|of| of.as_str() == name) {
                return Ok(Some(key));
            }
            next = node.right;
        }
        Ok(None)
    }

    /// The members of an object with these names, each where its name stands. The object is walked once, however many they are.
    ///
    /// # Errors
    /// As [`Look::find`].
    fn members(&self, object: NodeKey, names: &[&str]) -> Result<Vec<Option<NodeKey>>, DocsError> {
        let wanted: HashMap<&str, usize> = names.iter().zip(0..).map(|(name, at)| (*name, at)).collect();
        let (mut found, mut missing) = (vec![None; names.len()], wanted.len());
        let mut next = self.item(object)?.node.first;
        while let Some(key) = next.filter(|_| missing > 0) {
            let node = self.item(key)?.node;
            let name = self.name(&node)?;
            if let Some(at) = name.as_ref().and_then(|name| wanted.get(name.as_str())) {
                found.iter_mut().skip(*at).take(1).for_each(|found| *found = Some(key));
                missing -= 1;
            }
            next = node.right;
        }
        // A name that stands twice is found twice.
        for (at, name) in names.iter().enumerate() {
            let last = wanted.get(name).and_then(|last| found.get(*last).copied()).flatten();
            found.iter_mut().skip(at).take(1).for_each(|found| *found = last);
        }
        Ok(found)
    }

    /// The rolling hash of a node with all that is below it.
    ///
    /// # Errors
    /// As [`Look::find`].
    fn hash(&self, item: &Item) -> Result<u64, DocsError> {
        Ok(item.hash(self.name(&item.node)?.as_ref()))
    }

    /// The path of a node from the document's value on, as a JSON Pointer (RFC 6901).
    ///
    /// # Errors
    /// As [`Look::find`].
    fn pointer(&self, key: NodeKey) -> Result<String, DocsError> {
        let mut steps = Vec::new();
        let mut item = self.item(key)?;
        while item.node.parent != NodeKey::DOCUMENT {
            let parent = self.item(item.node.parent)?;
            steps.push(match parent.node.kind {
                Kind::Array => self.index(&item.node)?.to_string(),
                _ => self.name(&item.node)?.map_or_else(String::new, |name| escaped(name.as_str())),
            });
            item = parent;
        }
        Ok(steps.iter().rev().fold(String::new(), |pointer, step| format!("{pointer}/{step}")))
    }

    /// The value that a JSON Pointer (RFC 6901) leads to.
    ///
    /// # Errors
    /// [`DocsError::Pointer`] for what is none; as [`Look::find`].
    fn at_pointer(&self, pointer: &str) -> Result<Option<NodeKey>, DocsError> {
        let parsed = Pointer::parse(pointer);
        parsed.map_err(|why| DocsError::Pointer { pointer: pointer.to_owned(), why })?.find(self)
    }

    /// How many siblings are before a node.
    ///
    /// # Errors
    /// As [`Look::find`].
    fn index(&self, node: &Node) -> Result<u64, DocsError> {
        let (mut index, mut left) = (0, node.left);
        while let Some(key) = left {
            left = self.item(key)?.node.left;
            index += 1;
        }
        Ok(index)
    }
}

impl<L: Look + ?Sized> Look for &L {
    fn value(&self) -> Option<NodeKey> {
        (**self).value()
    }

    fn revision(&self) -> u32 {
        (**self).revision()
    }

    fn find(&self, key: NodeKey) -> Result<Option<Item>, DocsError> {
        (**self).find(key)
    }

    fn path(&self, path: PathId) -> Result<Option<Named>, DocsError> {
        (**self).path(path)
    }

    fn leaf(&self, number: u64) -> Result<Option<Leaf>, DocsError> {
        (**self).leaf(number)
    }
}

/// A name as a step of a JSON Pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
