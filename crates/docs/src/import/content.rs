//! What a value says, as one number: equal values have equal numbers, wherever they are and whatever their keys.
//!
//! Members of an object are summed: their order does not matter here. Only a hint: what it pairs is compared text by text.
//!
//! Walk: [`leaf`] · [`member`] or [`item`] into a container's sum · [`container`] · [`Memory::of`] a node.
//! Deliberately absent: the store's own rolling hashes. Those know keys, and a new version has none.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::DocsError;
use crate::look::{Item, Look, Text};
use crate::node::{Kind, Node, NodeKey};

pub(super) fn leaf(kind: Kind, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), kind.number().into())
}

/// A member's share in the sum of its object.
pub(super) fn member(sum: u64, name: &str, hash: u64) -> u64 {
    sum.wrapping_add(xxh3_64_with_seed(name.as_bytes(), hash))
}

/// The sum of an array with one more value.
pub(super) fn item(sum: u64, hash: u64) -> u64 {
    xxh3_64_with_seed(&hash.to_le_bytes(), sum)
}

pub(super) fn container(kind: Kind, sum: u64) -> u64 {
    xxh3_64_with_seed(&sum.to_le_bytes(), kind.number().into())
}

/// What was computed of containers.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<NodeKey, u64>);

struct Open {
    node: Node,
    name: Option<Text>,
    next: Option<NodeKey>,
    sum: u64,
}

impl Memory {
    /// The number of a node.
    pub(super) fn of(&mut self, look: &impl Look, key: NodeKey) -> Result<u64, DocsError> {
        let mut open: Vec<Open> = Vec::new();
        let mut at = Some(key);
        loop {
            let (hash, name) = match at {
                Some(key) => {
                    let Item { node, text } = look.item(key)?;
                    let name = if open.is_empty() { None } else { look.name(&node)? };
                    match (node.kind.is_container(), self.0.get(&key)) {
                        (true, None) => {
                            at = node.first;
                            open.push(Open { node, name, next: node.first, sum: 0 });
                            continue;
                        }
                        (true, Some(known)) => (*known, name),
                        (false, _) => (leaf(node.kind, text.as_str()), name),
                    }
                }
                None => {
                    let Some(Open { node, name, sum, .. }) = open.pop() else { return Ok(0) };
                    let hash = container(node.kind, sum);
                    self.0.insert(node.key, hash);
                    (hash, name)
                }
            };
            let Some(above) = open.last_mut() else { return Ok(hash) };
            above.sum = match name {
                Some(name) => member(above.sum, name.as_str(), hash),
                None => item(above.sum, hash),
            };
            at = match above.next {
                Some(child) => look.item(child)?.node.right,
                None => None,
            };
            above.next = at;
        }
    }
}
