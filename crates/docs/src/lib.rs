//! Documents: versioned JSON, every revision as near as the newest.
//!
//! ```text
//!   node      a key that is never used again · parent, siblings, children, counts, a rolling hash      (node, hash)
//!   record    what one slot of a page says: a node, a path, what leads to a page; whole or a patch      (record)
//!   fragment  the records of a page that one commit wrote                                              (fragment)
//!   page      256 slots: what at most N fragments say together                                 (page, versioning)
//!   tree      from a page's number to its fragments, copied where it changes                         (trie, place)
//! ```
//! Walk: [`Versioning`] decides what a commit writes of a changed page and so how many fragments a reader combines.
//! Deliberately absent: XML, queries, secondary indexes.
#![forbid(unsafe_code)]
#![expect(dead_code, unused_imports, reason = "the store that stands on it follows; its tests are beside it")]

mod fragment;
mod hash;
mod node;
mod page;
mod path;
mod place;
mod record;
mod trie;
mod varint;
mod versioning;

pub use node::{Kind, Node, NodeKey};
pub use trie::PageName;
pub use versioning::{Versioning, WINDOW_MAX};
