//! JSON out: a subtree of any revision, whole or cut, with or without what is known of its nodes.
//!
//! Walk: [`Form`] says how · [`Form::write`] walks once, in document order, in memory for the way down only · [`Form::page`] says
//! where the next page begins too · [`Form::chunks`] for whoever asks for bytes when there is room for them (`chunks`) ·
//! [`Form::envelope`] several revisions (`envelope`) · `seen` is what is written of a node, read from its page without a copy ·
//! `heads` what stands before a value, made once for all members of a path · `text` the letters.
//! Deliberately absent: changing numbers: their digits come out as they came in.

mod chunks;
mod envelope;
mod heads;
mod seen;
mod text;

use std::io::Write;
use std::sync::Arc;

pub use chunks::Chunks;
pub(crate) use text::quoted;

use self::heads::Heads;
use self::seen::Seen;
use crate::DocsError;
use crate::look::{Item, Leaf, Look};
use crate::node::{Kind, NodeKey};
use crate::page::{Page, SLOTS};

/// What was written goes to the stream when it is that long.
const FLUSH_BYTES: usize = 16 << 10;
/// Deeper lines are indented no further, so that a deep document does not become a vast one.
const INDENT_LEVELS_MAX: usize = 64;

/// What is written of a node beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// Nothing: plain JSON.
    #[default]
    None,
    /// Its key.
    NodeKey,
    /// Its key, and of a container the number of its children.
    NodeKeyAndChildCount,
    /// Key, kind, hash, and of a container the numbers of its children and of all nodes below it.
    All,
}

/// How a subtree is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// From this node on; the document's value where there is none.
    pub start: Option<NodeKey>,
    /// So many levels; the first node is on level 1. Containers on the last one are written empty.
    pub max_level: Option<u32>,
    /// So many children of each container.
    pub max_children: Option<u64>,
    /// So many nodes, in document order.
    pub max_nodes: Option<u64>,
    /// Of the first node's children only those behind this one.
    pub after: Option<NodeKey>,
    /// Of the first node's children so many.
    pub max_top: Option<u64>,
    /// What is written beside values. With any, an object is the array of its members, each `{"key", "metadata", "value"}`.
    pub metadata: Metadata,
    /// In lines, indented by two blanks.
    pub pretty: bool,
}

/// What was written of a subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How many nodes.
    pub nodes: u64,
    /// Where there are more of the first node's children: [`Form::after`] of the next page. That is the last one that was begun; where
    /// the page had room for none, what it was asked to be behind itself.
    pub next: Option<NodeKey>,
    /// Whether there are more of the first node's children.
    pub more: bool,
    /// Whether [`Form::max_nodes`] left out something within them. The next page goes on behind the last one that was begun.
    pub is_short: bool,
}

/// A container that is being written.
#[derive(Clone, Copy)]
struct Open {
    kind: Kind,
    /// The child that comes next.
    next: Option<NodeKey>,
    /// Children written so far, and how many at most.
    written: u64,
    most: u64,
}

/// The walk over what is written.
struct Writing<L> {
    look: L,
    /// The page that was looked at last, and its number.
    page: Option<(u64, Arc<Page>)>,
    pen: Pen,
}

/// What writes, apart from where nodes stand: so that a node is written out of its page, which nobody takes along.
struct Pen {
    form: Form,
    /// What was written and nobody has taken yet.
    out: Vec<u8>,
    heads: Heads,
    open: Vec<Open>,
    written: Written,
    /// The newest child of the first node.
    top: Option<NodeKey>,
}

impl Form {
    /// Writes a subtree as JSON. An empty document is written as nothing.
    ///
    /// # Errors
    /// [`DocsError::NoNode`] for a start that is not there; [`DocsError::Unfit`] for an `after` that is no child of it;
    /// [`DocsError::Stream`]; as [`Look::find`].
    pub fn write<L: Look, W: Write>(&self, look: &L, out: &mut W) -> Result<(), DocsError> {
        self.page(look, out).map(drop)
    }

    /// Writes a page of a subtree as JSON, and says where the next one begins.
    ///
    /// # Errors
    /// As [`Form::write`].
    pub fn page<L: Look, W: Write>(&self, look: &L, out: &mut W) -> Result<Written, DocsError> {
        let stream = |error: std::io::Error| DocsError::Stream { doing: "writing JSON", error: error.to_string() };
        let mut writing = Writing::new(*self, look, Vec::new());
        writing.begin()?;
        while writing.step(FLUSH_BYTES)? {
            if writing.pen.out.len() >= FLUSH_BYTES {
                out.write_all(&writing.pen.out).map_err(stream)?;
                writing.pen.out.clear();
            }
        }
        out.write_all(&writing.pen.out).map_err(stream)?;
        Ok(writing.pen.written)
    }

    /// As a text.
    ///
    /// # Errors
    /// As [`Form::write`].
    pub fn text<L: Look>(&self, look: &L) -> Result<String, DocsError> {
        let mut out = Vec::new();
        self.write(look, &mut out)?;
        // Every part of it was one.
        Ok(String::from_utf8(out).unwrap_or_default())
    }
}

impl<L: Look> Writing<L> {
    fn new(form: Form, look: L, out: Vec<u8>) -> Self {
        let (heads, written) = (Heads::new(form), Written::default());
        Self { look, page: None, pen: Pen { form, out, heads, open: Vec::new(), written, top: None } }
    }

    /// Writes the first node, or its beginning.
    fn begin(&mut self) -> Result<(), DocsError> {
        let Form { start, after, .. } = self.pen.form;
        let Some(start) = start.or_else(|| self.look.value()) else { return Ok(()) };
        let item = self.look.item(start)?;
        let behind = match after {
            Some(after) => {
                let node = self.look.item(after)?.node;
                if node.parent != start {
                    return Err(DocsError::Unfit { key: after, why: "it is no child of the node that is written" });
                }
                Some(node.right)
            }
            None => None,
        };
        self.whole(&item, false)?;
        if let (Some(open), Some(right)) = (self.pen.open.last_mut(), behind)
            && open.next.is_some()
        {
            open.next = right;
        }
        Ok(())
    }

    /// Writes children of the innermost container, up to one that has children of its own, or until so much is written; or writes its end.
    /// Whether there is more.
    fn step(&mut self, until: usize) -> Result<bool, DocsError> {
        let depth = self.pen.open.len();
        let Some(Open { kind, mut next, mut written, most }) = self.pen.open.last().copied() else { return Ok(false) };
        let is_over = loop {
            let is_full = self.pen.form.max_nodes.is_some_and(|most| self.pen.written.nodes >= most);
            let Some(child) = next.filter(|_| written < most && !is_full) else { break Some(is_full) };
            if depth == 1 {
                self.pen.top = Some(child);
            }
            if written > 0 {
                self.pen.out.push(b',');
            }
            written += 1;
            self.pen.line();
            next = self.child(child, kind == Kind::Object)?;
            if self.pen.open.len() > depth || self.pen.out.len() >= until {
                break None;
            }
        };
        // Behind it may stand the child's own children now.
        if let Some(open) = self.pen.open.get_mut(depth - 1) {
            (open.next, open.written) = (next, written);
        }
        if let Some(is_full) = is_over {
            self.pen.close(is_full);
        }
        Ok(true)
    }

    /// Writes a node, or its beginning; the sibling behind it.
    #[inline]
    fn child(&mut self, key: NodeKey, is_member: bool) -> Result<Option<NodeKey>, DocsError> {
        let number = key.0 / SLOTS;
        if self.page.as_ref().is_none_or(|(of, _)| *of != number) {
            self.turn_to(number)?;
        }
        if let Some((_, page)) = &self.page
            && let Some(seen) = Seen::of(page, key)
        {
            self.pen.value(&self.look, &seen, is_member, None)?;
            return Ok(seen.right);
        }
        // What cannot be read is asked for once more, by who knows how to say why.
        self.whole(&self.look.item(key)?, is_member)
    }

    /// Looks at a page.
    fn turn_to(&mut self, number: u64) -> Result<(), DocsError> {
        // With all metadata the hash is asked for, which takes a whole item.
        let is_all = self.pen.form.metadata == Metadata::All;
        let leaf = if is_all { None } else { self.look.leaf(number)? };
        self.page = leaf.map(|Leaf(page)| (number, page));
        Ok(())
    }

    /// The same from an item.
    fn whole(&mut self, item: &Item, is_member: bool) -> Result<Option<NodeKey>, DocsError> {
        let is_all = self.pen.form.metadata == Metadata::All;
        let more = if is_all { Some((self.look.hash(item)?, item.node.descendants)) } else { None };
        self.pen.value(&self.look, &Seen::whole(item), is_member, more)?;
        Ok(item.node.right)
    }
}

impl Pen {
    #[inline]
    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn line(&mut self) {
        if self.form.pretty {
            self.put("\n");
            for _ in 0..self.open.len().min(INDENT_LEVELS_MAX) {
                self.put("  ");
            }
        }
    }

    /// Writes the end of the innermost container; it may have more children than were to be written.
    fn close(&mut self, is_full: bool) {
        let Some(open) = self.open.pop() else { return };
        if open.next.is_some() && self.open.is_empty() {
            (self.written.next, self.written.more) = (self.top.or(self.form.after), true);
        } else if open.next.is_some() && is_full {
            self.written.is_short = true;
        }
        if open.written > 0 {
            self.line();
        }
        self.put(if self.form.metadata == Metadata::None { end(open.kind) } else { "]}" });
    }

    /// Writes a value, or the beginning of a container; with all metadata its hash and its descendants are known.
    #[inline]
    fn value<L: Look>(
        &mut self,
        look: &L,
        node: &Seen<'_>,
        is_member: bool,
        more: Option<(u64, u64)>,
    ) -> Result<(), DocsError> {
        self.written.nodes += 1;
        let is_plain = self.form.metadata == Metadata::None;
        if is_member {
            self.heads.member(look, node.path, &mut self.out)?;
        } else if !is_plain {
            self.heads.item(&mut self.out);
        }
        if !is_plain {
            self.metadata(node, more);
        }
        match node.kind {
            Kind::Object | Kind::Array => {
                self.enter(node, is_plain);
                return Ok(());
            }
            Kind::String => node.text.quote(&mut self.out),
            Kind::Number => node.text.put(&mut self.out),
            Kind::True => self.put("true"),
            Kind::False => self.put("false"),
            Kind::Null => self.put("null"),
        }
        if !is_plain {
            self.out.push(b'}');
        }
        Ok(())
    }

    /// Writes the beginning of a container, and what is in it comes next.
    fn enter(&mut self, node: &Seen<'_>, is_plain: bool) {
        self.put(if node.kind == Kind::Object && is_plain { "{" } else { "[" });
        let Form { max_level, max_children, max_top, .. } = self.form;
        let level = u32::try_from(self.open.len() + 1).unwrap_or(u32::MAX);
        let next = node.first.filter(|_| max_level.is_none_or(|most| level < most));
        let most = max_children.unwrap_or(u64::MAX);
        let most = if level == 1 { most.min(max_top.unwrap_or(u64::MAX)) } else { most };
        self.open.push(Open { kind: node.kind, next, written: 0, most });
    }

    /// What is known of a node, behind its head, up to its value.
    #[inline]
    fn metadata(&mut self, node: &Seen<'_>, more: Option<(u64, u64)>) {
        self.digits(node.key.0);
        if let Some((hash, _)) = more {
            self.put(&format!(",\"hash\":\"{hash:016x}\",\"type\":\"{}\"", node.kind.name()));
        }
        if node.kind.is_container() && self.form.metadata != Metadata::NodeKey {
            self.put(",\"childCount\":");
            self.digits(node.children);
            if let Some((_, descendants)) = more {
                self.put(",\"descendantCount\":");
                self.digits(descendants);
            }
        }
        self.put("},\"value\":");
        if self.form.pretty {
            self.out.push(b' ');
        }
    }

    fn digits(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number));
    }
}

const fn end(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Object) { "}" } else { "]" }
}
