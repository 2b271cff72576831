//! What is written of a node, where it was read.
//!
//! Walk: [`Seen::of`] takes a record apart in one go, without the fields that nobody writes. Whatever is not as a writer lays it is
//! not seen: then the node is asked for as everywhere else, and that says what is wrong with it.

use super::text::Letters;
use crate::look::Item;
use crate::node::{Kind, NodeKey, field};
use crate::page::Page;
use crate::path::PathId;
use crate::varint::far;

/// A node with its text, borrowed from its page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen<'p> {
    pub(super) key: NodeKey,
    pub(super) kind: Kind,
    pub(super) path: PathId,
    pub(super) right: Option<NodeKey>,
    pub(super) first: Option<NodeKey>,
    pub(super) children: u64,
    pub(super) descendants: u64,
    pub(super) text: Letters<'p>,
}

impl<'p> Seen<'p> {
    /// The node of this page; none if it is not there or is not as a writer lays it.
    #[inline]
    pub(super) fn of(page: &'p Page, key: NodeKey) -> Option<Self> {
        let mut rest = page.laid(key.page().1)?;
        let mask = u16::try_from(number(&mut rest)?).ok()?;
        let mut text = Letters::NONE;
        if mask & field::TEXT != 0 {
            let length = usize::try_from(number(&mut rest)?).ok()?;
            let (taken, behind) = rest.split_at_checked(length)?;
            (text, rest) = (Letters::read(taken)?, behind);
        }
        if mask & field::SUM != 0 {
            rest = rest.split_first_chunk::<8>()?.1;
        }
        let mut next = |bit: u16| if mask & bit == 0 { Some(0) } else { number(&mut rest) };
        let (children, descendants) = (next(field::CHILD_COUNT)?, next(field::DESCENDANT_COUNT)?);
        let (right, last) = (next(field::TO_RIGHT)?, next(field::TO_LAST)?);
        let kind = Kind::of(next(field::ITS_KIND)?)?;
        let (path, parent, _left) = (next(field::ITS_PATH)?, next(field::TO_PARENT)?, next(field::TO_LEFT)?);
        let first = next(field::TO_FIRST)?;
        let link = |near: u64| (near != 0).then(|| NodeKey(far(near, key.0)));
        let has_text = matches!(kind, Kind::String | Kind::Number);
        let has_children = children > 0;
        let is_sound = mask & field::WHOLE != 0
            && mask >> 12 == 0
            && parent != 0
            && (mask & field::TEXT != 0) == has_text
            && (first != 0, last != 0) == (has_children, has_children)
            && (!has_children || kind.is_container())
            && descendants >= children
            && far(parent, key.0) < NodeKey::END;
        let (right, first) = (link(right), link(first));
        is_sound.then_some(Self { key, kind, path, right, first, children, descendants, text })
    }

    pub(super) fn whole(item: &'p Item) -> Self {
        let node = &item.node;
        Self {
            key: node.key,
            kind: node.kind,
            path: node.path,
            right: node.right,
            first: node.first,
            children: node.children,
            descendants: node.descendants,
            text: Letters::of(item.text()),
        }
    }
}

/// A number of the form that `varint` lays.
#[inline]
fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first()?;
    if *first < 0x80 {
        *rest = behind;
        return Some(u64::from(*first));
    }
    let mut reader = assent_frame::Reader::new(rest);
    let number = crate::varint::read(&mut reader, "number").ok()?;
    *rest = reader.rest();
    Some(number)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::fragment;
    use crate::node::Node;
    use crate::record::tests::{any, record};

    proptest! {
        #[test]
        fn a_node_is_seen_as_it_is_read_or_not_at_all(parts in any(), key in 0_u64..700) {
            let (record, key) = (record(&parts), NodeKey(key));
            prop_assume!(record.is_whole() && !record.is_gone());
            let slot = key.page().1;
            let laid: Arc<[u8]> = fragment::lay(&fragment::Records::from([(slot, record)])).into();
            let page = Page::combine(vec![laid]).unwrap();
            let read = Node::read(key, &record).ok();
            let read = read.and_then(|node| Some((node, std::str::from_utf8(record.text).ok()?)));
            let seen = Seen::of(&page, key);
            prop_assert_eq!(seen.is_some(), read.is_some());
            if let Some((node, text)) = read {
                let Node { key, kind, path, right, first, children, descendants, .. } = node;
                let text = Letters::of(text);
                prop_assert_eq!(seen, Some(Seen { key, kind, path, right, first, children, descendants, text }));
            }
            prop_assert_eq!(Seen::of(&page, NodeKey(key.0 ^ 1)), None);
        }
    }
}
