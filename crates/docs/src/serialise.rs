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
use crate::look::{Item, Look};
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
struct Open {
    kind: Kind,
    /// The child that comes next.
    next: Option<NodeKey>,
    /// Children written so far.
    written: u64,
}

struct Writing<L> {
    form: Form,
    look: L,
    /// What was written and nobody has taken yet.
    out: Vec<u8>,
    /// The page that was looked at last, and its number.
    page: Option<(u64, Arc<Page>)>,
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
        while writing.step()? {
            if writing.out.len() >= FLUSH_BYTES {
                out.write_all(&writing.out).map_err(stream)?;
                writing.out.clear();
            }
        }
        out.write_all(&writing.out).map_err(stream)?;
        Ok(writing.written)
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
        Self { form, look, out, page: None, heads, open: Vec::new(), written, top: None }
    }

    /// Writes the first node, or its beginning.
    fn begin(&mut self) -> Result<(), DocsError> {
        let Some(start) = self.form.start.or_else(|| self.look.value()) else { return Ok(()) };
        let item = self.look.item(start)?;
        let behind = match self.form.after {
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
        if let (Some(open), Some(right)) = (self.open.last_mut(), behind)
            && open.next.is_some()
        {
            open.next = right;
        }
        Ok(())
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn line(&mut self) {
        if self.form.pretty {
            self.put("\n");
            for _ in 0..self.open.len().min(INDENT_LEVELS_MAX) {
                self.put("  ");
            }
        }
    }

    /// Writes the next child of the innermost container, or its end. Whether there is more.
    fn step(&mut self) -> Result<bool, DocsError> {
        let Form { max_children, max_nodes, max_top, metadata, after, .. } = self.form;
        let is_top = self.open.len() == 1;
        let Some(open) = self.open.last_mut() else { return Ok(false) };
        let is_cut = max_children.is_some_and(|most| open.written >= most)
            || max_nodes.is_some_and(|most| self.written.nodes >= most)
            || (is_top && max_top.is_some_and(|most| open.written >= most));
        let (kind, written) = (open.kind, open.written);
        if open.next.is_some() && is_cut {
            if is_top {
                (self.written.next, self.written.more) = (self.top.or(after), true);
            } else if max_nodes.is_some_and(|most| self.written.nodes >= most) {
                self.written.is_short = true;
            }
        }
        let Some(next) = open.next.filter(|_| !is_cut) else {
            self.open.pop();
            if written > 0 {
                self.line();
            }
            self.put(if metadata == Metadata::None { end(kind) } else { "]}" });
            return Ok(true);
        };
        if is_top {
            self.top = Some(next);
        }
        open.written += 1;
        let depth = self.open.len();
        if written > 0 {
            self.out.push(b',');
        }
        self.line();
        let right = self.child(next, kind == Kind::Object)?;
        // Behind it may stand the child's own children now.
        if let Some(open) = self.open.get_mut(depth - 1) {
            open.next = right;
        }
        Ok(true)
    }

    /// Writes a node, or its beginning; the sibling behind it.
    fn child(&mut self, key: NodeKey, is_member: bool) -> Result<Option<NodeKey>, DocsError> {
        let number = key.0 / SLOTS;
        let page = match self.page.take() {
            Some((of, page)) if of == number => Some(page),
            // With all metadata the hash is asked for, which takes a whole item.
            _ if self.form.metadata == Metadata::All => None,
            _ => self.look.leaf(number)?.map(|leaf| leaf.0),
        };
        let Some(page) = page else { return self.whole(&self.look.item(key)?, is_member) };
        // What cannot be read is asked for once more, by who knows how to say why.
        let right = match Seen::of(&page, key) {
            Some(seen) => {
                self.value(&seen, is_member, None)?;
                seen.right
            }
            None => self.whole(&self.look.item(key)?, is_member)?,
        };
        self.page = Some((number, page));
        Ok(right)
    }

    /// The same from an item.
    fn whole(&mut self, item: &Item, is_member: bool) -> Result<Option<NodeKey>, DocsError> {
        let hash = if self.form.metadata == Metadata::All { Some(self.look.hash(item)?) } else { None };
        self.value(&Seen::whole(item), is_member, hash)?;
        Ok(item.node.right)
    }

    /// Writes a value, or the beginning of a container.
    fn value(&mut self, node: &Seen<'_>, is_member: bool, hash: Option<u64>) -> Result<(), DocsError> {
        self.written.nodes += 1;
        let is_plain = self.form.metadata == Metadata::None;
        if is_member {
            self.heads.member(&self.look, node.path, &mut self.out)?;
        } else if !is_plain {
            self.heads.item(&mut self.out);
        }
        if !is_plain {
            self.metadata(node, hash);
        }
        let level = u32::try_from(self.open.len() + 1).unwrap_or(u32::MAX);
        match node.kind {
            Kind::Object | Kind::Array => {
                self.put(if node.kind == Kind::Object && is_plain { "{" } else { "[" });
                let is_last = self.form.max_level.is_some_and(|most| level >= most);
                let next = if is_last { None } else { node.first };
                self.open.push(Open { kind: node.kind, next, written: 0 });
                return Ok(());
            }
            Kind::String => text::quote(&mut self.out, node.text),
            Kind::Number => self.put(node.text),
            Kind::True => self.put("true"),
            Kind::False => self.put("false"),
            Kind::Null => self.put("null"),
        }
        if !is_plain {
            self.out.push(b'}');
        }
        Ok(())
    }

    /// What is known of a node, behind its head, up to its value.
    fn metadata(&mut self, node: &Seen<'_>, hash: Option<u64>) {
        text::digits(&mut self.out, node.key.0);
        if let Some(hash) = hash {
            self.put(&format!(",\"hash\":\"{hash:016x}\",\"type\":\"{}\"", node.kind.name()));
        }
        if node.kind.is_container() && self.form.metadata != Metadata::NodeKey {
            self.put(",\"childCount\":");
            text::digits(&mut self.out, node.children);
            if self.form.metadata == Metadata::All {
                self.put(",\"descendantCount\":");
                text::digits(&mut self.out, node.descendants);
            }
        }
        self.put(if self.form.pretty { "},\"value\": " } else { "},\"value\":" });
    }
}

const fn end(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Object) { "}" } else { "]" }
}
