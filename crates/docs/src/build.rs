//! Building a subtree apart: node after node in document order, hung in one go when it is whole.
//!
//! A node is drafted once, when its right sibling is known: so links, counts and hashes cost nothing twice, and what is beside
//! the way down to the newest node can be laid into the journal while more comes. What fails leaves nothing behind.
//!
//! Walk: [`Build::open`], [`Build::leaf`], [`Build::close`] · [`Edit::insert_built`] checks the place, builds, and hangs.
//! Deliberately absent: where values come from.

mod lately;

use std::collections::HashMap;

use self::lately::Lately;
use crate::edit::{At, Draft, Edit, Value};
use crate::entry::What;
use crate::error::within;
use crate::link::{Hook, number};
use crate::look::{Item, Look, Text};
use crate::node::{Node, NodeKey, field};
use crate::page::SLOTS;
use crate::path::{PathId, PathIds};
use crate::record::length;
use crate::trie::Tree;
use crate::{DocsError, hash};

/// So many nodes on, what is full of them is laid, while it is still near the processor.
const NODES_AHEAD: u64 = 16 * SLOTS;
/// Steps are remembered in builds of more nodes.
const NODES_FEW: u64 = 64;

/// A container that is being filled.
#[derive(Debug)]
struct Frame {
    node: Node,
    name: Option<Box<str>>,
    /// Its newest child, which does not know its right sibling yet.
    last: Option<Item>,
}

/// The nodes of one path.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    nodes: i64,
    /// In which container the newest one is. No other one of that path is open as long as this one is.
    parent: NodeKey,
}

/// A subtree under way.
#[derive(Debug)]
pub(crate) struct Build<'e> {
    edit: &'e mut Edit,
    parent: NodeKey,
    /// The path before that of the subtree's own value.
    before: PathId,
    /// Levels above it.
    depth: usize,
    frames: Vec<Frame>,
    done: Option<Item>,
    counts: HashMap<PathId, Counted, PathIds>,
    first_node: u64,
    first_path: PathId,
    /// The trees before the first piece of it was laid.
    trees: Option<(Tree, Tree)>,
    /// Full pages are laid before the node with this key.
    lay_at: u64,
    lately: Lately,
}

impl Edit {
    /// Builds a subtree and hangs it somewhere.
    pub(crate) fn insert_built(
        &mut self,
        at: At,
        name: Option<&str>,
        fill: impl FnOnce(&mut Build<'_>) -> Result<(), DocsError>,
    ) -> Result<NodeKey, DocsError> {
        self.whole(|edit| {
            edit.make_room()?;
            let hook = edit.hook(at, name)?;
            edit.hang(hook, fill)
        })
    }

    /// The same where it is known that it fits: that no member has its name is not looked for.
    pub(crate) fn insert_new(
        &mut self,
        at: At,
        fill: impl FnOnce(&mut Build<'_>) -> Result<(), DocsError>,
    ) -> Result<NodeKey, DocsError> {
        self.whole(|edit| {
            edit.make_room()?;
            let hook = edit.place(at)?;
            edit.hang(hook, fill)
        })
    }

    fn hang(
        &mut self,
        hook: Hook,
        fill: impl FnOnce(&mut Build<'_>) -> Result<(), DocsError>,
    ) -> Result<NodeKey, DocsError> {
        let key = self.built(hook.parent, fill)?;
        self.link(key, hook)?;
        self.note(What::Inserted, key);
        Ok(key)
    }

    /// Builds a subtree that will hang in this parent.
    pub(crate) fn built(
        &mut self,
        parent: NodeKey,
        fill: impl FnOnce(&mut Build<'_>) -> Result<(), DocsError>,
    ) -> Result<NodeKey, DocsError> {
        let (mut depth, mut above, mut before) = (0, parent, 0);
        while above != NodeKey::DOCUMENT {
            let node = self.item(above)?.node;
            before = if depth == 0 { node.path } else { before };
            (depth, above) = (depth + 1, node.parent);
        }
        let (first_node, first_path, text_bytes) = (self.next_node, self.paths.next, self.text_bytes);
        let mut build = Build {
            edit: self,
            parent,
            before,
            depth,
            frames: Vec::new(),
            done: None,
            counts: HashMap::default(),
            first_node,
            first_path,
            trees: None,
            lay_at: first_node.saturating_add(NODES_AHEAD),
            lately: Lately::default(),
        };
        match fill(&mut build).and_then(|()| build.finish()) {
            Ok(key) => Ok(key),
            Err(error) => {
                let trees = build.trees.take();
                // All that was before it is laid, or as it was.
                self.text_bytes = if trees.is_some() { 0 } else { text_bytes };
                self.undo(first_node, first_path, trees);
                Err(error)
            }
        }
    }

    /// Forgets what was built: all its nodes and paths are new.
    fn undo(&mut self, first_node: u64, first_path: PathId, trees: Option<(Tree, Tree)>) {
        drop(self.drafts.split_off(first_node));
        self.next_node = first_node;
        self.paths.forget_from(first_path);
        if let Some((nodes, paths)) = trees {
            (self.nodes, self.paths.tree, self.unlaid_from) = (nodes, paths, first_node);
        }
    }
}

impl Build<'_> {
    /// A container begins.
    pub(crate) fn open(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError> {
        let node = self.node(value, name)?;
        self.frames.push(Frame { node, name: name.map(Box::from), last: None });
        Ok(())
    }

    /// A value that is no container.
    pub(crate) fn leaf(&mut self, value: Value<'_>, name: Option<&str>) -> Result<(), DocsError> {
        let node = self.node(value, name)?;
        let (_, text) = value.parts();
        self.give(Item { node, text: Text::own(text) }, name)
    }

    /// The innermost container ends.
    pub(crate) fn close(&mut self) -> Result<(), DocsError> {
        let Some(Frame { node, name, last, .. }) = self.frames.pop() else { return Ok(()) };
        if let Some(last) = last {
            self.draft(last);
        }
        self.give(Item { node, text: Text::own("") }, name.as_deref())
    }

    fn node(&mut self, value: Value<'_>, name: Option<&str>) -> Result<Node, DocsError> {
        let (kind, text) = value.parts();
        let levels = u64::try_from(self.depth + self.frames.len() + 1).unwrap_or(u64::MAX);
        within("nesting", levels, self.edit.store.config.depth_max.into())?;
        self.edit.check_text(kind, text, name)?;
        let (parent, before) =
            self.frames.last().map_or((self.parent, self.before), |frame| (frame.node.key, frame.node.path));
        if self.done.is_some() {
            return Err(DocsError::Json { what: "one value was expected, another one follows".to_owned() });
        }
        let path = self.step(before, name)?;
        let counted = self.counts.entry(path).or_default();
        if let Some(name) = name
            && !self.frames.is_empty()
            && counted.parent == parent
        {
            return Err(DocsError::Duplicate { key: parent, name: name.to_owned() });
        }
        *counted = Counted { nodes: counted.nodes + 1, parent };
        let key = self.edit.new_key(text)?;
        Ok(Node::new(key, kind, path, parent))
    }

    /// The path one step behind another.
    fn step(&mut self, before: PathId, name: Option<&str>) -> Result<PathId, DocsError> {
        if let Some(path) = self.lately.find(before, name) {
            return Ok(path);
        }
        let path = self.edit.step(before, name)?;
        // A table for few nodes would cost more than it gives.
        if self.edit.next_node - self.first_node > NODES_FEW {
            self.lately.keep(before, name, path);
        }
        Ok(path)
    }

    /// A node is whole but for its right sibling: the container has it.
    fn give(&mut self, mut item: Item, name: Option<&str>) -> Result<(), DocsError> {
        let Some(frame) = self.frames.last_mut() else {
            self.done = Some(item);
            return Ok(());
        };
        let key = item.node.key;
        let before = frame.last.take();
        item.node.left = before.as_ref().map(|before| before.node.key);
        let Node { kind, sum, children, descendants, left, .. } = item.node;
        let hash = hash::of(kind, name, item.text.bytes(), sum, children);
        frame.node.sum = frame.node.sum.wrapping_add(hash::share(key.0, number(left), hash));
        frame.node.children += 1;
        frame.node.descendants += 1 + descendants;
        frame.node.first = frame.node.first.or(Some(key));
        frame.node.last = Some(key);
        frame.last = Some(item);
        if let Some(mut before) = before {
            before.node.right = Some(key);
            self.draft(before);
            return self.make_room();
        }
        Ok(())
    }

    fn draft(&mut self, item: Item) {
        self.edit.text_bytes = self.edit.text_bytes.saturating_add(length(item.text.bytes()));
        self.edit.drafts.insert(Draft { item, mask: field::WHOLE, is_gone: false });
    }

    /// Lays what is drafted, if it is much; what was drafted before the build goes first, so that it stays if the build fails.
    fn make_room(&mut self) -> Result<(), DocsError> {
        let is_large = self.edit.is_large();
        if !is_large && self.edit.next_node < self.lay_at {
            return Ok(());
        }
        self.lay_at = self.edit.next_node.saturating_add(NODES_AHEAD);
        if self.trees.is_none() {
            let nodes = self.edit.drafts.split_off(self.first_node);
            let paths = self.edit.paths.drafts.split_off(&self.first_path);
            let laid = self.edit.lay_drafts(true);
            self.edit.drafts.extend(nodes);
            self.edit.paths.drafts.extend(paths);
            laid?;
            self.trees = Some((self.edit.nodes.clone(), self.edit.paths.tree.clone()));
        }
        // A page of which a node is open, or from before, waits: it would be written twice.
        if is_large {
            self.edit.lay_drafts(true).map(drop)
        } else {
            self.edit.lay_full(self.first_node.div_ceil(SLOTS))
        }
    }

    fn finish(&mut self) -> Result<NodeKey, DocsError> {
        let Some(item) = self.done.take().filter(|_| self.frames.is_empty()) else {
            return Err(DocsError::Json { what: "a value was expected".to_owned() });
        };
        let key = item.node.key;
        self.draft(item);
        // Nothing is counted of what is refused for its length.
        self.make_room()?;
        // In the order of their pages, and no more of them in memory than of nodes.
        let mut counts: Vec<(PathId, i64)> = self.counts.drain().map(|(path, counted)| (path, counted.nodes)).collect();
        counts.sort_unstable_by_key(|(path, _)| *path);
        for (path, nodes) in counts {
            self.edit.count_path(path, nodes)?;
            if let Err(error) = self.make_room() {
                // Some of it is counted on paths that were there before.
                self.edit.failed.get_or_insert_with(|| error.clone());
                return Err(error);
            }
        }
        Ok(key)
    }
}
