//! What writes, apart from where nodes stand: so that a node is written out of its page, which nobody takes along.
//!
//! Walk: [`Pen::next`] the node that comes next; what is over is closed on the way · [`Pen::value`] a value, or the beginning of a container.

use super::digits::{DIGITS_MAX, Digits};
use super::heads::{HEAD_BLOCK_BYTES, Heads};
use super::seen::Seen;
use super::sheet::{BLOCK_BYTES_MAX, Room, Sheet};
use super::text::FEW;
use super::{Form, Metadata, Written};
use crate::DocsError;
use crate::look::Look;
use crate::node::{Kind, NodeKey};

/// Deeper lines are indented no further, so that a deep document does not become a vast one.
const INDENT_LEVELS_MAX: usize = 64;
const BLANKS: [u8; 2 * INDENT_LEVELS_MAX] = [b' '; 2 * INDENT_LEVELS_MAX];

/// All that is short of a container with all metadata: comma, head, key, hash and kind, both counts with their names, what stands
/// before its value, and how that begins. Of a text [`FEW`] letters and their quotes stand where those counts do.
const SHORT_BYTES_MAX: usize =
    1 + HEAD_BLOCK_BYTES + DIGITS_MAX + BLOCK_BYTES_MAX + (14 + DIGITS_MAX) + (19 + DIGITS_MAX) + 11 + 1;
const _: () =
    assert!(SHORT_BYTES_MAX <= u8::MAX as usize, "what is short of a node fits in the room that is asked for once");
const _: () =
    assert!(FEW as usize + 3 <= 14 + 19 + 2 * DIGITS_MAX + 1, "a text is no longer than what a container has instead");

/// A container that is being written.
#[derive(Clone, Copy)]
pub(super) struct Open {
    kind: Kind,
    /// The child that comes next, and the one that was begun last.
    pub(super) next: Option<NodeKey>,
    last: Option<NodeKey>,
    /// Children written so far, and how many at most.
    written: u64,
    most: u64,
}

/// What is the same for all nodes.
struct Style {
    has_metadata: bool,
    has_counts: bool,
    is_pretty: bool,
    /// What stands between what is known of a node and its value.
    before: [u8; 16],
    before_many: u8,
}

impl Style {
    const fn of(form: Form) -> Self {
        let (before, before_many) = match (form.metadata, form.pretty) {
            (Metadata::None, _) => ([b' '; 16], 0),
            (_, false) => (*b"},\"value\":      ", 10),
            (_, true) => (*b"},\"value\":      ", 11),
        };
        let has_metadata = !matches!(form.metadata, Metadata::None);
        let has_counts = has_metadata && !matches!(form.metadata, Metadata::NodeKey);
        Self { has_metadata, has_counts, is_pretty: form.pretty, before, before_many }
    }
}

/// Digits of keys and of counts.
#[derive(Default)]
struct Numbers {
    keys: Digits,
    counts: Digits,
}

impl Numbers {
    /// Puts what is known of a node, behind its head.
    #[inline(always)]
    fn put(&mut self, node: &Seen<'_>, more: Option<(u64, u64)>, has_counts: bool, room: &mut Room<'_>) {
        self.keys.put(node.key.0, room);
        if let Some((hash, _)) = more {
            room.put_few(format!(",\"hash\":\"{hash:016x}\",\"type\":\"{}\"", node.kind.name()).as_bytes());
        }
        if node.kind.is_container() && has_counts {
            room.put(b",\"childCount\":", 14);
            self.counts.put(node.children(), room);
            if let Some((_, descendants)) = more {
                room.put(b",\"descendantCount\":", 19);
                self.counts.put(descendants, room);
            }
        }
    }
}

pub(super) struct Pen {
    pub(super) form: Form,
    /// What was written and nobody has taken yet.
    pub(super) out: Sheet,
    heads: Heads,
    numbers: Numbers,
    style: Style,
    nodes_max: u64,
    pub(super) open: Vec<Open>,
    pub(super) written: Written,
}

impl Pen {
    pub(super) fn new(form: Form, out: Sheet) -> Self {
        let (heads, style, nodes_max) = (Heads::new(form), Style::of(form), form.max_nodes.unwrap_or(u64::MAX));
        let (numbers, open, written) = (Numbers::default(), Vec::new(), Written::default());
        Self { form, out, heads, numbers, style, nodes_max, open, written }
    }

    /// The node that comes next, behind the ends of what has no more. None: all is written, or as much as that.
    #[inline(always)]
    pub(super) fn next(&mut self, until: usize) -> Option<NodeKey> {
        while self.out.len() < until {
            let open = self.open.last()?;
            if let Some(child) = open.next
                && open.written < open.most
                && self.written.nodes < self.nodes_max
            {
                return Some(child);
            }
            self.close();
        }
        None
    }

    /// Writes the end of the innermost container; it may have more children than were to be written.
    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        if open.next.is_some() && self.open.is_empty() {
            (self.written.next, self.written.more) = (open.last.or(self.form.after), true);
        } else if open.next.is_some() && self.written.nodes >= self.nodes_max {
            self.written.is_short = true;
        }
        if self.style.is_pretty && open.written > 0 {
            self.line();
        }
        let mut room = self.out.room();
        match (self.style.has_metadata, open.kind) {
            (true, _) => room.put(b"]}", 2),
            (false, Kind::Object) => room.put(b"}", 1),
            (false, _) => room.put(b"]", 1),
        }
        let many = room.many();
        self.out.pass(many);
    }

    /// Begins a line.
    #[inline(never)]
    fn line(&mut self) {
        let indent = BLANKS.get(..2 * self.open.len()).unwrap_or(&BLANKS);
        self.out.put_all(b"\n");
        self.out.put_all(indent);
    }

    /// Counts a node; whether it is the first one where it is, and whether it is a member of an object.
    #[inline(always)]
    fn count(&mut self, node: &Seen<'_>) -> (bool, bool) {
        self.written.nodes += 1;
        let Some(open) = self.open.last_mut() else { return (true, false) };
        let is_first = open.written == 0;
        open.written += 1;
        (open.next, open.last) = (node.right, Some(node.key));
        (is_first, open.kind == Kind::Object)
    }

    /// Writes a value, or the beginning of a container; with all metadata its hash and its descendants are known.
    // Within the loop over nodes: what is seen of a node is never laid together then, but goes where it belongs.
    #[inline(always)]
    pub(super) fn value<L: Look>(
        &mut self,
        look: &L,
        node: &Seen<'_>,
        more: Option<(u64, u64)>,
    ) -> Result<(), DocsError> {
        let (is_first, is_member) = self.count(node);
        // All that is short of a node fits ([`SHORT_BYTES_MAX`]).
        let mut room = self.out.room();
        room.put(b",", u8::from(!is_first));
        if self.style.is_pretty && !self.open.is_empty() {
            let many = room.many();
            self.out.pass(many);
            self.line();
            room = self.out.room();
        }
        if is_member {
            if !self.heads.put(node.path, &mut room) {
                let many = room.many();
                self.out.pass(many);
                self.heads.member(look, node.path, &mut self.out)?;
                room = self.out.room();
            }
        } else if self.style.has_metadata {
            self.heads.item(&mut room);
        }
        if self.style.has_metadata {
            self.numbers.put(node, more, self.style.has_counts, &mut room);
        }
        room.put(&self.style.before, self.style.before_many);
        let end = u8::from(self.style.has_metadata);
        match node.kind {
            Kind::Object | Kind::Array => {
                let is_plain = node.kind == Kind::Object && end == 0;
                room.put(if is_plain { b"{" } else { b"[" }, 1);
                let many = room.many();
                self.out.pass(many);
                self.enter(node);
                return Ok(());
            }
            Kind::String => {
                room.put(b"\"", 1);
                let text = node.text();
                if !(text.is_plain() && text.put(&mut room)) {
                    let many = room.many();
                    self.out.pass(many);
                    text.put_escaped(&mut self.out);
                    room = self.out.room();
                }
                room.put(b"\"}", 1 + end);
            }
            Kind::Number => {
                let text = node.text();
                if !text.put(&mut room) {
                    let many = room.many();
                    self.out.pass(many);
                    self.out.put_all(text.bytes());
                    room = self.out.room();
                }
                room.put(b"}", end);
            }
            Kind::True => room.put(b"true}", 4 + end),
            Kind::False => room.put(b"false}", 5 + end),
            Kind::Null => room.put(b"null}", 4 + end),
        }
        let many = room.many();
        self.out.pass(many);
        Ok(())
    }

    /// What is in a container comes next.
    #[inline(always)]
    fn enter(&mut self, node: &Seen<'_>) {
        let Form { max_level, max_children, max_top, .. } = self.form;
        let level = u32::try_from(self.open.len() + 1).unwrap_or(u32::MAX);
        let next = node.first().filter(|_| max_level.is_none_or(|most| level < most));
        let most = max_children.unwrap_or(u64::MAX);
        let most = if level == 1 { most.min(max_top.unwrap_or(u64::MAX)) } else { most };
        self.open.push(Open { kind: node.kind, next, last: None, written: 0, most });
    }
}
