//! A node as it is written, in sixteen bytes: what is kept of a page that is read again and again, so that its records are not taken apart
//! each time.
//!
//! Walk: [`Brief`] is made and read by `serialise::seen`, and kept by `page`.
//! Deliberately absent: nodes that do not fit, and what only some ask for. They are read where they stand.

use crate::node::Kind;

/// What is written of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brief {
    /// Of a text or a number where its letters begin in the page's bytes; of any other the first child's distance (`varint::near`), or 0.
    pub(crate) first: u32,
    /// How many letters, or how many children.
    pub(crate) many: u32,
    /// The distance of the sibling behind it, or 0.
    pub(crate) right: u32,
    pub(crate) path: u16,
    /// None: the record is not as a writer lays it, or does not fit.
    pub(crate) kind: Option<Kind>,
    /// Whether each letter stands for itself between quotes.
    pub(crate) is_plain: bool,
}

const _: () = assert!(size_of::<Brief>() == 16, "a page keeps 256 of them");
