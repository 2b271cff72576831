//! Rolling hashes: one number for a node with all that is below it, kept up to date by what changed.
//!
//! A container holds the sum of its children's shares. A share mixes a child's hash with its node key and that of its left
//! sibling, so equal hashes mean the same nodes, with the same content, in the same order; and a change costs one subtraction
//! and one addition on each level above it, however many siblings there are.
//!
//! Walk: [`of`] a node · [`share`] of a child in its parent's sum.
//! Deliberately absent: proof against forgery. XXH3-64 finds changes and damage, nothing more.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::node::Kind;

/// The hash of a node: its kind, its member's name, its text, and of a container the sum and the number of its children.
pub(crate) fn of(kind: Kind, name: Option<&str>, text: &[u8], sum: u64, children: u64) -> u64 {
    let seed = u64::from(kind.number()) << 1;
    let seed = name.map_or(seed, |name| xxh3_64_with_seed(name.as_bytes(), seed | 1));
    if kind.is_container() { xxh3_64_with_seed(&both(sum, children), seed) } else { xxh3_64_with_seed(text, seed) }
}

/// What a child adds to its parent's sum. `left` is 0 for the first child.
pub(crate) fn share(child: u64, left: u64, hash: u64) -> u64 {
    xxh3_64_with_seed(&both(child, left), hash)
}

fn both(first: u64, second: u64) -> [u8; 16] {
    ((u128::from(second) << 64) | u128::from(first)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_differs() {
        let hashes = [
            of(Kind::String, None, b"1", 0, 0),
            of(Kind::Number, None, b"1", 0, 0),
            of(Kind::Number, Some("a"), b"1", 0, 0),
            of(Kind::Number, Some("b"), b"1", 0, 0),
            of(Kind::Number, Some(""), b"1", 0, 0),
            of(Kind::Object, None, b"", 0, 0),
            of(Kind::Array, None, b"", 0, 0),
            of(Kind::Array, None, b"", 5, 1),
            of(Kind::Null, None, b"", 0, 0),
            share(1, 0, 7),
            share(2, 1, 7),
            share(2, 0, 7),
            share(2, 0, 8),
        ];
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash), "{at}");
        }
    }
}
