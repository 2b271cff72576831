//! Verifying a revision: every node is read, and every link, count, hash and path is held against what is found.
//!
//! Walk: [`Revision::verify`] walks in document order; a node is judged when all below it has been · [`Document::verify`] walks
//! back from revision to revision, each of which says what its predecessor was.
//! Deliberately absent: repair.

use std::collections::BTreeMap;

use crate::document::Document;
use crate::entry::Root;
use crate::look::{Item, Look, Text};
use crate::node::{Kind, Node, NodeKey};
use crate::path::PathId;
use crate::place::Entry;
use crate::revision::Revision;
use crate::{DocsError, hash};

/// A node whose children are being walked.
struct Open {
    item: Item,
    sum: u64,
    children: u64,
    descendants: u64,
    last: Option<NodeKey>,
}

impl Open {
    const fn of(item: Item) -> Self {
        Self { item, sum: 0, children: 0, descendants: 0, last: None }
    }
}

impl Document {
    /// Reads the commits of all revisions, the newest first, and holds each against what its successor says of it and against the
    /// index. Not their nodes: [`Revision::verify`] does that of one. Gives how many there are.
    ///
    /// # Errors
    /// [`DocsError::Damaged`] naming the first revision that is not what it should be; as the disk says.
    pub fn verify(&self) -> Result<u32, DocsError> {
        loop {
            let newest = self.doc.head.get();
            let verified = self.verify_from(&newest);
            // Cut back meanwhile: other revisions have the numbers now.
            if verified.is_ok() || self.doc.head.get().epoch == newest.epoch {
                return verified.map(|()| newest.revision);
            }
        }
    }

    fn verify_from(&self, newest: &Root) -> Result<(), DocsError> {
        let Root { mut revision, mut entry, mut hash, .. } = *newest;
        while revision > 0 {
            let wrong = |what| self.doc.damaged(revision, entry.lsn(), what);
            let row = self.store.index.row(self.doc.id, revision)?;
            let row = row.ok_or_else(|| wrong("the index does not know it"))?;
            if (row.entry, row.hash) != (entry, hash) {
                return Err(wrong("its successor stands on another one than is there"));
            }
            let root = self.store.read_root(&self.doc, &row)?;
            (revision, entry, hash) = (revision - 1, root.previous, root.previous_hash);
        }
        match (entry, hash) {
            (Entry::HERE, 0) => Ok(()),
            _ => Err(self.doc.damaged(0, entry.lsn(), "the first revision stands on another one")),
        }
    }
}

impl Revision {
    /// Reads all of it and holds it against itself. Gives how many nodes there are.
    ///
    /// # Errors
    /// [`DocsError::Damaged`] naming the first node that is not what it should be; as the disk says.
    pub fn verify(&self) -> Result<u64, DocsError> {
        let mut paths = BTreeMap::<PathId, u64>::new();
        let mut open: Vec<Open> = Vec::new();
        let mut next = self.value();
        let (mut parent, mut left, mut nodes) = (NodeKey::DOCUMENT, None, 0);
        loop {
            if let Some(key) = next {
                let item = self.find(key)?.ok_or_else(|| self.wrong(key, "it is not there"))?;
                if (item.node.parent, item.node.left) != (parent, left) {
                    return Err(self.wrong(key, "it does not lead back to where it hangs"));
                }
                if key.0 >= self.root.next_node {
                    return Err(self.wrong(key, "its key will be given to another node"));
                }
                *paths.entry(item.node.path).or_default() += 1;
                nodes += 1;
                (parent, left, next) = (key, None, item.node.first);
                open.push(Open::of(item));
                continue;
            }
            let Some(done) = open.pop() else { break };
            let hash = self.judge(&done)?;
            let node = done.item.node;
            (left, next) = (Some(node.key), node.right);
            let Some(above) = open.last_mut() else { break };
            parent = above.item.node.key;
            above.sum = above.sum.wrapping_add(hash::share(node.key.0, node.left.map_or(0, |left| left.0), hash));
            above.children += 1;
            above.descendants += 1 + done.descendants;
            above.last = Some(node.key);
        }
        self.verify_paths(&paths)?;
        Ok(nodes)
    }

    /// The hash of a node that is what is below it.
    fn judge(&self, done: &Open) -> Result<u64, DocsError> {
        let Node { key, kind, sum, children, descendants, last, path, parent, .. } = done.item.node;
        if (children, descendants, last) != (done.children, done.descendants, done.last) {
            return Err(self.wrong(key, "it counts other nodes than there are below it"));
        }
        if sum != done.sum {
            return Err(self.wrong(key, "its hash is not that of what is below it"));
        }
        let named = self.path(path)?.ok_or_else(|| self.wrong(key, "its path is not there"))?;
        let (before, in_object) = match parent {
            NodeKey::DOCUMENT => (0, false),
            parent => {
                let parent = self.item(parent)?.node;
                (parent.path, parent.kind == Kind::Object)
            }
        };
        let name = self.name(&done.item.node)?;
        if named.before != before || name.is_some() != in_object {
            return Err(self.wrong(key, "its path is not where it is"));
        }
        Ok(hash::of(kind, name.as_ref().map(Text::as_str), done.item.text.bytes(), done.sum, children))
    }

    fn verify_paths(&self, found: &BTreeMap<PathId, u64>) -> Result<(), DocsError> {
        for path in 1..self.root.next_path {
            let references = self.path(path)?.map_or(0, |named| named.references);
            if found.get(&path).copied().unwrap_or_default() != references {
                let what = format!("path {path} counts {references} nodes, which is wrong");
                return Err(self.doc.damaged(self.root.revision, self.root.entry.lsn(), what));
            }
        }
        Ok(())
    }

    fn wrong(&self, key: NodeKey, what: &str) -> DocsError {
        self.doc.damaged(self.root.revision, self.root.entry.lsn(), format!("node {key}: {what}"))
    }
}
