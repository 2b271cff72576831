//! The way through a subtree in document order, for who changes it as he goes.
//!
//! Walk: [`Way::next`] is told each node as it was found.
//! Deliberately absent: looking. What is above a node may be laid by then, or gone.

use crate::node::{Node, NodeKey};

/// A way through all that is at and below a node.
#[derive(Debug)]
pub(crate) struct Way {
    top: NodeKey,
    /// The containers that the newest node is in.
    above: Vec<Node>,
}

impl Way {
    pub(crate) const fn of(top: NodeKey) -> Self {
        Self { top, above: Vec::new() }
    }

    /// The container that the next node is in, if it is on the way.
    pub(crate) fn parent(&self) -> Option<&Node> {
        self.above.last()
    }

    /// The node behind this one.
    pub(crate) fn next(&mut self, node: Node) -> Option<NodeKey> {
        if node.first.is_some() {
            self.above.push(node);
            return node.first;
        }
        let mut node = node;
        while node.key != self.top {
            if node.right.is_some() {
                return node.right;
            }
            node = self.above.pop()?;
        }
        None
    }
}
