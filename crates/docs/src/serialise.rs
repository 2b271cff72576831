//! JSON out: a subtree of any revision, whole or cut, with or without what is known of its nodes.
//!
//! Walk: [`Form`] says how · [`Form::write`] walks once, in document order, in memory for the way down only · [`Form::page`] says
//! where the next page begins too · [`Form::chunks`] for whoever asks for bytes when there is room for them (`chunks`) ·
//! [`Form::envelope`] several revisions (`envelope`) · `seen` is what is written of a node, read from its page without a copy ·
//! `pen` writes it, onto a `sheet` · `heads` what stands before a value, made once for all members of a path · `text` the letters,
//! `digits` those of keys and counts.
//! Deliberately absent: changing numbers: their digits come out as they came in.

mod chunks;
mod digits;
mod envelope;
mod heads;
mod pen;
mod seen;
mod sheet;
mod text;

use std::io::Write;
use std::sync::Arc;

pub use chunks::Chunks;
pub(crate) use text::quoted;

use self::pen::Pen;
use self::seen::Seen;
use self::sheet::Sheet;
use crate::DocsError;
use crate::look::{Item, Leaf, Look};
use crate::node::NodeKey;
use crate::page::{Page, SLOTS};

/// What was written goes to the stream when it is that long.
const FLUSH_BYTES: usize = 16 << 10;

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

/// The walk over what is written.
struct Writing<L> {
    look: L,
    /// The page that was looked at last, and its number.
    page: Option<(u64, Arc<Page>)>,
    pen: Pen,
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
        let mut writing = Writing::new(*self, look, Sheet::default());
        writing.begin()?;
        while writing.step(FLUSH_BYTES)? {
            out.write_all(writing.pen.out.written()).map_err(stream)?;
            writing.pen.out.clear();
        }
        out.write_all(writing.pen.out.written()).map_err(stream)?;
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
    fn new(form: Form, look: L, out: Sheet) -> Self {
        Self { look, page: None, pen: Pen::new(form, out) }
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
        self.whole(&item)?;
        if let (Some(open), Some(right)) = (self.pen.open.last_mut(), behind)
            && open.next.is_some()
        {
            open.next = right;
        }
        Ok(())
    }

    /// Writes what comes next, until so much is written. Whether there is more.
    fn step(&mut self, until: usize) -> Result<bool, DocsError> {
        while let Some(next) = self.pen.next(until) {
            let number = next.0 / SLOTS;
            if self.page.as_ref().is_none_or(|(of, _)| *of != number) {
                self.turn_to(number)?;
            }
            // Out of the walk for as long as it is read.
            let page = self.page.take();
            let written = self.nodes_of(page.as_ref().map(|(_, page)| &**page), number, until);
            self.page = page;
            written?;
        }
        Ok(!self.pen.open.is_empty())
    }

    /// Writes what comes next for as long as it is of one page.
    fn nodes_of(&mut self, page: Option<&Page>, number: u64, until: usize) -> Result<(), DocsError> {
        let briefs = page.and_then(Page::briefs);
        while let Some(key) = self.pen.next(until).filter(|key| key.0 / SLOTS == number) {
            match briefs.as_ref().and_then(|briefs| Seen::among(briefs, key)) {
                Some(seen) => self.pen.value(&self.look, &seen, None)?,
                None => self.node(page, key)?,
            }
        }
        Ok(())
    }

    /// Writes a node of which nothing is kept, or its beginning.
    #[inline(never)]
    fn node(&mut self, page: Option<&Page>, key: NodeKey) -> Result<(), DocsError> {
        if let Some(seen) = page.and_then(|page| Seen::of(page, key)) {
            return self.pen.value(&self.look, &seen, None);
        }
        // What cannot be read is asked for once more, by who knows how to say why.
        self.whole(&self.look.item(key)?)
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
    #[inline(never)]
    fn whole(&mut self, item: &Item) -> Result<(), DocsError> {
        let is_all = self.pen.form.metadata == Metadata::All;
        let more = if is_all { Some((self.look.hash(item)?, item.node.descendants)) } else { None };
        self.pen.value(&self.look, &Seen::whole(item), more)
    }
}
