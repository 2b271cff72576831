//! What writes, apart from where nodes stand: so that a node is written out of its page, which nobody takes along.
//!
//! Walk: [`Pen::value`] a value, or the beginning of a container · [`Pen::close`] its end.

use super::digits::Digits;
use super::heads::Heads;
use super::seen::Seen;
use super::sheet::Sheet;
use super::{Form, Metadata, Written};
use crate::DocsError;
use crate::look::Look;
use crate::node::{Kind, NodeKey};

/// Deeper lines are indented no further, so that a deep document does not become a vast one.
const INDENT_LEVELS_MAX: usize = 64;

/// A container that is being written.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) kind: Kind,
    /// The child that comes next.
    pub(super) next: Option<NodeKey>,
    /// Children written so far, and how many at most.
    pub(super) written: u64,
    pub(super) most: u64,
}

pub(super) struct Pen {
    pub(super) form: Form,
    /// What was written and nobody has taken yet.
    pub(super) out: Sheet,
    heads: Heads,
    keys: Digits,
    counts: Digits,
    pub(super) open: Vec<Open>,
    pub(super) written: Written,
    /// The newest child of the first node.
    pub(super) top: Option<NodeKey>,
}

impl Pen {
    pub(super) fn new(form: Form, out: Sheet) -> Self {
        let (keys, counts) = (Digits::default(), Digits::default());
        let (heads, written) = (Heads::new(form), Written::default());
        Self { form, out, heads, keys, counts, open: Vec::new(), written, top: None }
    }

    #[inline]
    pub(super) fn line(&mut self) {
        if self.form.pretty {
            self.out.put(b"\n");
            for _ in 0..self.open.len().min(INDENT_LEVELS_MAX) {
                self.out.put(b"  ");
            }
        }
    }

    /// Writes the end of the innermost container; it may have more children than were to be written.
    pub(super) fn close(&mut self, is_full: bool) {
        let Some(open) = self.open.pop() else { return };
        if open.next.is_some() && self.open.is_empty() {
            (self.written.next, self.written.more) = (self.top.or(self.form.after), true);
        } else if open.next.is_some() && is_full {
            self.written.is_short = true;
        }
        if open.written > 0 {
            self.line();
        }
        match (self.form.metadata, open.kind) {
            (Metadata::None, Kind::Object) => self.out.put(b"}"),
            (Metadata::None, _) => self.out.put(b"]"),
            _ => self.out.put(b"]}"),
        }
    }

    /// Writes a value, or the beginning of a container; with all metadata its hash and its descendants are known.
    // Within the loop over siblings: what is seen of a node is never laid together then, but goes where it belongs.
    #[inline(always)]
    pub(super) fn value<L: Look>(
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
            Kind::True => self.out.put(b"true"),
            Kind::False => self.out.put(b"false"),
            Kind::Null => self.out.put(b"null"),
        }
        if !is_plain {
            self.out.put(b"}");
        }
        Ok(())
    }

    /// Writes the beginning of a container, and what is in it comes next.
    fn enter(&mut self, node: &Seen<'_>, is_plain: bool) {
        self.out.put(if node.kind == Kind::Object && is_plain { b"{" } else { b"[" });
        let Form { max_level, max_children, max_top, .. } = self.form;
        let level = u32::try_from(self.open.len() + 1).unwrap_or(u32::MAX);
        let next = node.first.filter(|_| max_level.is_none_or(|most| level < most));
        let most = max_children.unwrap_or(u64::MAX);
        let most = if level == 1 { most.min(max_top.unwrap_or(u64::MAX)) } else { most };
        self.open.push(Open { kind: node.kind, next, written: 0, most });
    }

    /// What is known of a node, behind its head, up to its value.
    #[inline(always)]
    fn metadata(&mut self, node: &Seen<'_>, more: Option<(u64, u64)>) {
        self.keys.put(node.key.0, &mut self.out);
        if let Some((hash, _)) = more {
            self.out.put_all(format!(",\"hash\":\"{hash:016x}\",\"type\":\"{}\"", node.kind.name()).as_bytes());
        }
        if node.kind.is_container() && self.form.metadata != Metadata::NodeKey {
            self.out.put(b",\"childCount\":");
            self.counts.put(node.children, &mut self.out);
            if let Some((_, descendants)) = more {
                self.out.put_all(format!(",\"descendantCount\":{descendants}").as_bytes());
            }
        }
        self.out.put(b"},\"value\":");
        if self.form.pretty {
            self.out.put(b" ");
        }
    }
}
