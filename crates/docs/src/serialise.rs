//! JSON out: a subtree of any revision, whole or cut, with or without what is known of its nodes.
//!
//! Walk: [`Form`] says how · [`Form::write`] walks once, in document order, in memory for the way down only · [`Form::page`] says
//! where the next page begins too · [`Form::chunks`] for whoever asks for bytes when there is room for them (`chunks`) ·
//! [`Form::envelope`] several revisions (`envelope`).
//! Deliberately absent: changing numbers: their digits come out as they came in.

mod chunks;
mod envelope;

use std::collections::HashMap;
use std::io::Write;

pub use chunks::Chunks;

use crate::DocsError;
use crate::look::{Item, Look, Text};
use crate::node::{Kind, Node, NodeKey};
use crate::path::{PathId, PathIds};

/// So many names are remembered on the way.
const NAMES_MAX: usize = 4096;
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

struct Writing<L, W> {
    form: Form,
    look: L,
    out: W,
    /// Names that were looked up.
    names: HashMap<PathId, Option<Text>, PathIds>,
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
        let mut writing = Writing::new(*self, look, out);
        writing.begin()?;
        while writing.step()? {}
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

impl<L: Look, W: Write> Writing<L, W> {
    fn new(form: Form, look: L, out: W) -> Self {
        let (names, written) = (HashMap::default(), Written::default());
        Self { form, look, out, names, open: Vec::new(), written, top: None }
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
        self.value(&item, None)?;
        if let (Some(open), Some(right)) = (self.open.last_mut(), behind)
            && open.next.is_some()
        {
            open.next = right;
        }
        Ok(())
    }

    fn put(&mut self, text: &str) -> Result<(), DocsError> {
        let stream = |error: std::io::Error| DocsError::Stream { doing: "writing JSON", error: error.to_string() };
        self.out.write_all(text.as_bytes()).map_err(stream)
    }

    /// Most texts have nothing to escape: they go out as they stand.
    fn put_quoted(&mut self, text: &str) -> Result<(), DocsError> {
        if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
            return self.put(&quoted(text));
        }
        self.put("\"")?;
        self.put(text)?;
        self.put("\"")
    }

    fn line(&mut self) -> Result<(), DocsError> {
        if self.form.pretty {
            self.put("\n")?;
            for _ in 0..self.open.len().min(INDENT_LEVELS_MAX) {
                self.put("  ")?;
            }
        }
        Ok(())
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
                self.line()?;
            }
            self.put(if metadata == Metadata::None { end(kind) } else { "]}" })?;
            return Ok(true);
        };
        if is_top {
            self.top = Some(next);
        }
        open.written += 1;
        let item = self.look.item(next)?;
        if let Some(open) = self.open.last_mut() {
            open.next = item.node.right;
        }
        if written > 0 {
            self.put(",")?;
        }
        self.line()?;
        let name = if kind == Kind::Object { self.name(&item.node)? } else { None };
        self.value(&item, name.as_ref().map(Text::as_str))?;
        Ok(true)
    }

    /// Writes a value, or the beginning of a container.
    fn value(&mut self, item: &Item, name: Option<&str>) -> Result<(), DocsError> {
        let Item { node, .. } = item;
        self.written.nodes += 1;
        let colon = if self.form.pretty { ": " } else { ":" };
        let is_plain = self.form.metadata == Metadata::None;
        if is_plain {
            if let Some(name) = name {
                self.put_quoted(name)?;
                self.put(colon)?;
            }
        } else {
            self.put("{")?;
            if let Some(name) = name {
                self.put(&format!("\"key\"{colon}{},", quoted(name)))?;
            }
            let metadata = self.metadata(item)?;
            self.put(&format!("\"metadata\"{colon}{metadata},\"value\"{colon}"))?;
        }
        let level = u32::try_from(self.open.len() + 1).unwrap_or(u32::MAX);
        match node.kind {
            Kind::Object | Kind::Array => {
                self.put(if node.kind == Kind::Object && is_plain { "{" } else { "[" })?;
                let is_last = self.form.max_level.is_some_and(|most| level >= most);
                let next = if is_last { None } else { node.first };
                self.open.push(Open { kind: node.kind, next, written: 0 });
                return Ok(());
            }
            Kind::String => self.put_quoted(item.text())?,
            Kind::Number => self.put(item.text())?,
            Kind::True => self.put("true")?,
            Kind::False => self.put("false")?,
            Kind::Null => self.put("null")?,
        }
        if is_plain { Ok(()) } else { self.put("}") }
    }

    fn metadata(&self, item: &Item) -> Result<String, DocsError> {
        let Node { key, kind, children, descendants, .. } = item.node;
        let mut all = format!("{{\"nodeKey\":{key}");
        if self.form.metadata == Metadata::All {
            let hash = self.look.hash(item)?;
            all.push_str(&format!(",\"hash\":\"{hash:016x}\",\"type\":\"{}\"", kind.name()));
        }
        if kind.is_container() && self.form.metadata != Metadata::NodeKey {
            all.push_str(&format!(",\"childCount\":{children}"));
            if self.form.metadata == Metadata::All {
                all.push_str(&format!(",\"descendantCount\":{descendants}"));
            }
        }
        all.push('}');
        Ok(all)
    }

    fn name(&mut self, node: &Node) -> Result<Option<Text>, DocsError> {
        if let Some(name) = self.names.get(&node.path) {
            return Ok(name.clone());
        }
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let name = self.look.name(node)?;
        self.names.insert(node.path, name.clone());
        Ok(name)
    }
}

const fn end(kind: Kind) -> &'static str {
    if matches!(kind, Kind::Object) { "}" } else { "]" }
}

/// A text as JSON: with no more escapes than it needs.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
