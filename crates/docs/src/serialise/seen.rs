//! What is written of a node, where it was read.
//!
//! Walk: [`Seen::among`] takes what its page keeps of a node ([`Brief`]) · [`Seen::of`] too, or takes its record apart in one go, without the fields
//! that nobody writes. Whatever is not as a writer lays it is not seen: then the node is asked for as everywhere else, and that says what is wrong with it.

use super::text::Letters;
use crate::look::Item;
use crate::node::{Kind, Node, NodeKey, field};
use crate::page::{Brief, Briefs, Page, SLOTS};
use crate::path::PathId;
use crate::record::length;
use crate::varint::{far, near};

/// A node with its text, borrowed from its page.
#[derive(Clone, Copy)]
pub(super) struct Seen<'p> {
    pub(super) key: NodeKey,
    pub(super) kind: Kind,
    pub(super) path: PathId,
    pub(super) right: Option<NodeKey>,
    /// As in a [`Brief`], and the bytes that have its letters. Who writes it asks for what is of its kind alone.
    first: u64,
    many: u64,
    bytes: &'p [u8],
    is_plain: bool,
}

impl<'p> Seen<'p> {
    /// A text, or the digits of a number.
    #[inline(always)]
    pub(super) fn text(&self) -> Letters<'p> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let whence = self.bytes.get(place(self.first)..).unwrap_or_default();
        // What is kept of a node was read from these very bytes.
        debug_assert!(place(self.many) <= whence.len(), "{} letters of {}", self.many, whence.len());
        Letters::known(whence, place(self.many), self.is_plain)
    }

    /// Of a container the first child.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<NodeKey> {
        link(self.first, self.key)
    }

    /// Of a container how many children.
    pub(super) const fn children(&self) -> u64 {
        self.many
    }

    /// The node of this page; none if it is not there or is not as a writer lays it.
    #[inline]
    pub(super) fn of(page: &'p Page, key: NodeKey) -> Option<Self> {
        let (number, slot) = key.page();
        let make =
            |slot: u8, bytes: &[u8], start: usize| Seen::brief(NodeKey(number * SLOTS + u64::from(slot)), bytes, start);
        let kept = page.brief(slot, make).and_then(|(brief, bytes)| Self::kept(key, brief, bytes));
        kept.or_else(|| Self::read(key, page.laid(slot)?))
    }

    /// The same, of a page that keeps its nodes.
    #[inline(always)]
    pub(super) fn among(briefs: &Briefs<'p>, key: NodeKey) -> Option<Self> {
        Self::kept(key, briefs.get(key.page().1)?, briefs.bytes)
    }

    /// As its page keeps it.
    #[inline(always)]
    fn kept(key: NodeKey, brief: &Brief, bytes: &'p [u8]) -> Option<Self> {
        let Brief { first, many, right, path, kind, is_plain } = *brief;
        let (kind, right) = (kind?, link(right.into(), key));
        Some(Self { key, kind, path: path.into(), right, first: first.into(), many: many.into(), bytes, is_plain })
    }

    /// What is kept of it.
    fn brief(key: NodeKey, bytes: &'p [u8], start: usize) -> Brief {
        let made = || {
            let Self { kind, path, right, mut first, many, bytes: letters, is_plain, .. } =
                Self::read(key, bytes.get(start..)?)?;
            if has_letters(kind) {
                // Their place: they are a part of the bytes.
                first = u64::try_from(letters.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?).ok()?;
            }
            let (first, many) = (u32::try_from(first).ok()?, u32::try_from(many).ok()?);
            let right = u32::try_from(right.map_or(0, |right| near(right.0, key.0))).ok()?;
            Some(Brief { first, many, right, path: u16::try_from(path).ok()?, kind: Some(kind), is_plain })
        };
        made().unwrap_or_default()
    }

    fn read(key: NodeKey, mut rest: &'p [u8]) -> Option<Self> {
        let mask = u16::try_from(number(&mut rest)?).ok()?;
        let mut text = None;
        if mask & field::TEXT != 0 {
            let length = usize::try_from(number(&mut rest)?).ok()?;
            (text, rest) = (Some(Letters::read(rest, length)?), rest.get(length..)?);
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
        let has_children = children > 0;
        let is_sound = mask & field::WHOLE != 0
            && mask >> 12 == 0
            && parent != 0
            && text.is_some() == has_letters(kind)
            && (first != 0, last != 0) == (has_children, has_children)
            && (!has_children || kind.is_container())
            && descendants >= children
            && far(parent, key.0) < NodeKey::END;
        let right = link(right, key);
        let seen = Self { key, kind, path, right, first, many: children, bytes: &[], is_plain: true };
        is_sound.then(|| text.map_or(seen, |text| seen.with(text)))
    }

    fn with(self, text: Letters<'p>) -> Self {
        Self { first: 0, many: length(text.bytes()), bytes: text.whence(), is_plain: text.is_plain(), ..self }
    }

    pub(super) fn whole(item: &'p Item) -> Self {
        let Node { key, kind, path, right, first, children, .. } = item.node;
        let first = first.map_or(0, |first| near(first.0, key.0));
        let seen = Self { key, kind, path, right, first, many: children, bytes: &[], is_plain: true };
        if has_letters(kind) { seen.with(Letters::of(item.text())) } else { seen }
    }
}

const fn has_letters(kind: Kind) -> bool {
    matches!(kind, Kind::String | Kind::Number)
}

#[inline(always)]
fn link(near: u64, key: NodeKey) -> Option<NodeKey> {
    (near != 0).then(|| NodeKey(far(near, key.0)))
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
    use crate::record::tests::{any, record};
    use crate::record::{Record, TEXT};

    /// A page full of nodes of every kind, some of which do not fit in sixteen bytes.
    fn nodes() -> Vec<(Node, &'static str)> {
        let kinds = [Kind::Object, Kind::Array, Kind::String, Kind::Number, Kind::True, Kind::False, Kind::Null];
        let texts = ["", "plain", "é", "a \"quote\"", "a long and plain one"];
        let node = |at: usize| {
            let (kind, key) = (kinds[at % 7], 256 + u64::try_from(at).unwrap());
            let path = if at.is_multiple_of(11) { 1 << 16 } else { key % 5 };
            let mut node = Node::new(NodeKey(key), kind, path, NodeKey(key - 1));
            node.right = [None, Some(NodeKey(key + 1)), Some(NodeKey(key - 1)), Some(NodeKey(1 << 40))][at % 4];
            if kind.is_container() && !at.is_multiple_of(3) {
                let last = NodeKey(key + 7);
                (node.first, node.last) = (Some(NodeKey(key + 1)), Some(last));
                node.children = if at.is_multiple_of(5) { 1 << 32 } else { 3 };
                node.descendants = node.children;
            }
            (node, if matches!(kind, Kind::String | Kind::Number) { texts[at % 5] } else { "" })
        };
        (0..256).map(node).collect()
    }

    /// What is written of a node: of a text its letters, of any other its children.
    type Told<'t> = (NodeKey, Kind, PathId, Option<NodeKey>, Result<Letters<'t>, (Option<NodeKey>, u64)>);

    fn expected<'t>(node: &Node, text: &'t str) -> Told<'t> {
        let Node { key, kind, path, right, first, children, .. } = *node;
        (key, kind, path, right, if has_letters(kind) { Ok(Letters::of(text)) } else { Err((first, children)) })
    }

    fn seen(page: &Page, key: NodeKey) -> Option<Told<'_>> {
        let seen = Seen::of(page, key)?;
        let Seen { key, kind, path, right, .. } = seen;
        let told = if has_letters(kind) { Ok(seen.text()) } else { Err((seen.first(), seen.children())) };
        Some((key, kind, path, right, told))
    }

    #[test]
    fn a_page_that_is_read_again_is_taken_apart_once_and_says_the_same() {
        let nodes = nodes();
        let laid = fragment::lay_all(&nodes, |(node, text), out| node.lay(text.as_bytes(), out));
        let page = Page::combine(vec![laid.into()]).unwrap();
        for round in 0..3 {
            for (node, text) in &nodes {
                assert_eq!(seen(&page, node.key), Some(expected(node, text)), "{round}");
            }
        }
        let fits = |node: &Node| node.path < 1 << 16 && node.children < 1 << 32 && node.right != Some(NodeKey(1 << 40));
        let is_kept = |page: &Page, node: &Node| {
            let kept = page.brief(node.key.page().1, |_, _, _| panic!("it is taken apart a second time"));
            kept.is_some_and(|(brief, _)| brief.kind.is_some())
        };
        assert!(nodes.iter().filter(|(node, _)| fits(node)).count() > 100);
        assert!(nodes.iter().all(|(node, _)| is_kept(&page, node) == fits(node)));
        // A commit changes one of them: all others are still kept.
        let (changed, _) = nodes[2];
        assert!(fits(&changed) && changed.kind == Kind::String);
        let patch = Record { mask: TEXT, text: b"another", ..Record::default() };
        let patch = fragment::lay(&fragment::Records::from([(2, patch)]));
        let after = page.after(patch.into(), 0).unwrap();
        assert_eq!(seen(&after, changed.key), Some(expected(&changed, "another")));
        let others = nodes.iter().filter(|(node, _)| node.key != changed.key);
        assert!(!is_kept(&after, &changed) && { others }.all(|(node, _)| is_kept(&after, node) == fits(node)));
    }

    #[test]
    fn a_page_with_few_nodes_far_apart_keeps_nothing_and_one_that_is_seldom_read_neither() {
        let nodes = nodes();
        let page = |nodes: &[(Node, &str)]| {
            let records = nodes.iter().map(|(node, text)| (node.key.page().1, node.record(1, text.as_bytes())));
            Page::combine(vec![fragment::lay(&records.collect()).into()]).unwrap()
        };
        let read = |page: &Page, node: &Node, times: usize| {
            (0..times).for_each(|_| assert!(Seen::of(page, node.key).is_some()));
            page.brief(node.key.page().1, |_, _, _| panic!("nobody has made them")).is_some()
        };
        let apart = page(&[nodes[4], nodes[254]]);
        let full = page(&nodes);
        let whole = full.held_bytes();
        let last = nodes[254].0;
        assert!(!read(&apart, &last, 10_000) && !read(&full, &last, 255) && read(&full, &last, 2));
        assert_eq!(full.held_bytes(), whole, "the memory is counted before it is taken");
    }

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
            let seen = seen(&page, key);
            prop_assert_eq!(seen.is_some(), read.is_some());
            if let Some((node, text)) = read {
                prop_assert_eq!(seen, Some(expected(&node, text)));
            }
            prop_assert!(Seen::of(&page, NodeKey(key.0 ^ 1)).is_none());
        }
    }
}
