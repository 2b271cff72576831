//! Nodes: what a document is made of, each with a key of its own that never changes and is never used again.
//!
//! ```text
//!   record   text: a string, or a number's digits · hash: the sum of the children's shares · numbers: children,
//!            descendants, right, last, kind, path, parent, left, first; keys as their distance from the node's own
//! ```
//! A member of an object and its value are one node: its name is the last step of its path. What no field says is: no sibling,
//! no child, none below.
//!
//! Walk: [`Node::read`] from a whole record · [`Node::record`] of what changed.
//! Deliberately absent: the text, which stays where it was read, and the hash, which `hash` computes.

use std::fmt;

use assent_frame::Malformed;

use crate::page::SLOTS;
use crate::record::{HASH, NUMBERS, Record, TEXT, WHOLE, bit, length};
use crate::varint::{self, far, near};

const CHILDREN: usize = 0;
const DESCENDANTS: usize = 1;
const RIGHT: usize = 2;
const LAST: usize = 3;
const KIND: usize = 4;
const PATH: usize = 5;
const PARENT: usize = 6;
const LEFT: usize = 7;
const FIRST: usize = 8;
const ALL_NUMBERS: u16 = bit(NUMBERS) - bit(0);

/// Bits of a node's record that may change on their own.
pub(crate) mod field {
    use super::{CHILDREN, DESCENDANTS, FIRST, KIND, LAST, LEFT, PARENT, PATH, RIGHT, bit};

    pub(crate) use crate::record::{HASH as SUM, TEXT, WHOLE};
    pub(crate) const CHILD_COUNT: u16 = bit(CHILDREN);
    pub(crate) const DESCENDANT_COUNT: u16 = bit(DESCENDANTS);
    pub(crate) const TO_RIGHT: u16 = bit(RIGHT);
    pub(crate) const TO_LEFT: u16 = bit(LEFT);
    pub(crate) const TO_LAST: u16 = bit(LAST);
    pub(crate) const TO_FIRST: u16 = bit(FIRST);
    pub(crate) const TO_PARENT: u16 = bit(PARENT);
    pub(crate) const ITS_PATH: u16 = bit(PATH);
    pub(crate) const ITS_KIND: u16 = bit(KIND);
}

/// The name of a node within its document, for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u64);

impl NodeKey {
    /// The document itself: the parent of its value.
    pub const DOCUMENT: NodeKey = NodeKey(0);
    /// Keys end before this.
    pub(crate) const END: u64 = 1 << 62;

    /// The page that has it, and its slot there.
    pub(crate) fn page(self) -> (u64, u8) {
        let [slot, ..] = self.0.to_le_bytes();
        (self.0 / SLOTS, slot)
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Members, each with a name.
    Object,
    /// Values, one after the other.
    Array,
    /// A text.
    String,
    /// A number, by its digits.
    Number,
    /// True.
    True,
    /// False.
    False,
    /// Null.
    Null,
}

impl Kind {
    /// In the order of their numbers.
    const ALL: [Kind; 7] = [Kind::Object, Kind::Array, Kind::String, Kind::Number, Kind::True, Kind::False, Kind::Null];

    /// Whether it has children.
    #[must_use]
    pub const fn is_container(self) -> bool {
        matches!(self, Self::Object | Self::Array)
    }

    /// Its name in messages and metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::True | Self::False => "boolean",
            Self::Null => "null",
        }
    }

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Object => 1,
            Self::Array => 2,
            Self::String => 3,
            Self::Number => 4,
            Self::True => 5,
            Self::False => 6,
            Self::Null => 7,
        }
    }

    pub(crate) fn of(number: u64) -> Option<Self> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(at).copied()
    }
}

/// A node without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub key: NodeKey,
    /// What it is.
    pub kind: Kind,
    /// Its path, and so its name in an object.
    pub(crate) path: u64,
    /// What it is in; the document for the outermost value.
    pub parent: NodeKey,
    /// The sibling before it.
    pub left: Option<NodeKey>,
    /// The sibling behind it.
    pub right: Option<NodeKey>,
    /// Its first child.
    pub first: Option<NodeKey>,
    /// Its last child.
    pub last: Option<NodeKey>,
    /// How many children it has.
    pub children: u64,
    /// How many nodes are below it.
    pub descendants: u64,
    /// The sum of its children's shares.
    pub(crate) sum: u64,
}

impl Node {
    /// A node without siblings and children.
    pub(crate) const fn new(key: NodeKey, kind: Kind, path: u64, parent: NodeKey) -> Self {
        let (left, right, first, last) = (None, None, None, None);
        Self { key, kind, path, parent, left, right, first, last, children: 0, descendants: 0, sum: 0 }
    }

    /// # Errors
    /// [`Malformed`] for what no writer lays.
    pub(crate) fn read(key: NodeKey, record: &Record<'_>) -> Result<Self, Malformed> {
        let wrong = |field| Malformed { field };
        let kind = Kind::of(record.number(KIND)).ok_or(wrong("kind"))?;
        let link = |number: usize| match record.number(number) {
            0 => None,
            near => Some(NodeKey(far(near, key.0))),
        };
        let parent = link(PARENT).filter(|parent| parent.0 < NodeKey::END).ok_or(wrong("parent"))?;
        let node = Self {
            key,
            kind,
            path: record.number(PATH),
            parent,
            left: link(LEFT),
            right: link(RIGHT),
            first: link(FIRST),
            last: link(LAST),
            children: record.number(CHILDREN),
            descendants: record.number(DESCENDANTS),
            sum: record.hash,
        };
        let counts = (node.first.is_some(), node.last.is_some(), node.descendants >= node.children);
        if counts != (node.children > 0, node.children > 0, true) || (node.children > 0 && !kind.is_container()) {
            return Err(wrong("children"));
        }
        if record.has(TEXT) != matches!(kind, Kind::String | Kind::Number) {
            return Err(wrong("text"));
        }
        Ok(node)
    }

    /// In the order of their bits.
    fn numbers(&self) -> [u64; NUMBERS] {
        let link = |link: Option<NodeKey>| link.map_or(0, |link| near(link.0, self.key.0));
        [
            self.children,
            self.descendants,
            link(self.right),
            link(self.last),
            self.kind.number().into(),
            self.path,
            near(self.parent.0, self.key.0),
            link(self.left),
            link(self.first),
        ]
    }

    const fn has_text(&self) -> bool {
        matches!(self.kind, Kind::String | Kind::Number)
    }

    /// Lays its whole record, which is not made first: of a load that is what most nodes are.
    pub(crate) fn lay(&self, text: &[u8], out: &mut Vec<u8>) {
        let numbers = self.numbers();
        let bits = numbers.iter().enumerate().map(|(number, value)| bit(number) * u16::from(*value != 0));
        let mask = bits.sum::<u16>() | WHOLE | if self.has_text() { TEXT } else { 0 };
        let mask = mask | if self.children > 0 { HASH } else { 0 };
        varint::lay(out, mask.into());
        if self.has_text() {
            varint::lay(out, length(text));
            out.extend_from_slice(text);
        }
        if self.children > 0 {
            out.extend_from_slice(&self.sum.to_le_bytes());
        }
        for value in numbers.into_iter().filter(|value| *value != 0) {
            varint::lay(out, value);
        }
    }

    /// The record of the fields that this mask names; a whole one names what is not zero.
    pub(crate) fn record<'a>(&self, mask: u16, text: &'a [u8]) -> Record<'a> {
        let whole = mask & WHOLE != 0;
        let mut numbers = self.numbers();
        let mut named = mask & (WHOLE | ALL_NUMBERS);
        for (number, value) in numbers.iter_mut().enumerate() {
            if whole {
                named |= bit(number) * u16::from(*value != 0);
            } else if named & bit(number) == 0 {
                *value = 0;
            }
        }
        let mut record = Record { mask: named, numbers, ..Record::default() };
        if mask & HASH != 0 || (whole && self.children > 0) {
            (record.mask, record.hash) = (record.mask | HASH, self.sum);
        }
        if self.has_text() && mask & (TEXT | WHOLE) != 0 {
            (record.mask, record.text) = (record.mask | TEXT, text);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = NodeKey> {
        (1..1000_u64).prop_map(NodeKey)
    }

    proptest! {
        #[test]
        fn a_node_comes_back_whole_and_by_its_patches(
            key in keys(), left in prop::option::of(keys()), right in prop::option::of(keys()), parent in keys(),
            first in prop::option::of(keys()), more in 0_u64..9, sum in any::<u64>(), path in 1_u64..300,
        ) {
            prop_assume!(![left, right, first, Some(parent)].contains(&Some(key)));
            let mut node = Node::new(key, Kind::Object, path, parent);
            (node.left, node.right) = (left, right);
            let before = node;
            if first.is_some() {
                (node.first, node.last, node.children, node.descendants) = (first, first, 1, 1 + more);
                node.sum = sum;
            }
            let whole = node.record(WHOLE, b"");
            prop_assert_eq!(Node::read(key, &whole), Ok(node));
            let (mut laid, mut at_once) = (Vec::new(), Vec::new());
            whole.lay(&mut laid);
            node.lay(b"", &mut at_once);
            prop_assert_eq!(laid, at_once);
            let mask = field::TO_FIRST | field::TO_LAST | field::CHILD_COUNT | field::DESCENDANT_COUNT | field::SUM;
            let patched = node.record(mask, b"").over(before.record(WHOLE, b""));
            prop_assert_eq!(Node::read(key, &patched), Ok(node));
            // And back to none.
            let patched = before.record(mask, b"").over(whole);
            prop_assert_eq!(Node::read(key, &patched), Ok(before));
        }
    }

    #[test]
    fn a_changed_number_is_a_record_of_its_digits() {
        let node = Node::new(NodeKey(5), Kind::Number, 3, NodeKey(1));
        let mut laid = Vec::new();
        node.record(TEXT, b"12345").lay(&mut laid);
        assert_eq!(laid.len(), 1 + 1 + 5);
        let mut laid = Vec::new();
        node.record(WHOLE, b"12345").lay(&mut laid);
        assert_eq!(laid.len(), 2 + 1 + 5 + 3, "mask, text, and kind, path and parent");
        let mut at_once = Vec::new();
        node.lay(b"12345", &mut at_once);
        assert_eq!(laid, at_once);
    }

    #[test]
    fn what_no_writer_lays_is_refused() {
        let leaf = Node::new(NodeKey(5), Kind::Null, 3, NodeKey(1)).record(WHOLE, b"");
        assert!(Node::read(NodeKey(5), &leaf).is_ok());
        let refused = [
            leaf.with(KIND, 8),
            leaf.with(PARENT, 0),
            leaf.with(CHILDREN, 1),
            leaf.with(FIRST, 4),
            Record { mask: leaf.mask | TEXT, ..leaf },
            leaf.with(KIND, 3),
        ];
        for (at, record) in refused.iter().enumerate() {
            assert!(Node::read(NodeKey(5), record).is_err(), "{at}");
        }
    }
}
