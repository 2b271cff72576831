//! A node as it is written, in sixteen bytes: what is kept of a page that is read again and again, so that its records are not taken apart
//! each time.
//!
//! Walk: [`Brief`] is made and read by `serialise::seen`, and kept by `page` · [`Briefs`] all of a page, for who reads several · [`Slots`] which slots.
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

/// Those of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Briefs<'p> {
    pub(super) all: &'p [Brief],
    /// What younger fragments speak of.
    pub(super) over: &'p Slots,
    /// What they were made of.
    pub(crate) bytes: &'p [u8],
}

impl<'p> Briefs<'p> {
    /// What was made of a slot's record. None: nothing, or a younger one says something else.
    #[inline(always)]
    pub(crate) fn get(&self, slot: u8) -> Option<&'p Brief> {
        if self.over.has(slot) { None } else { self.all.get(usize::from(slot)) }
    }
}

/// Some of a page's slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots([u64; 4]);

impl Slots {
    pub(super) fn put(&mut self, slot: u8) {
        self.0.get_mut(usize::from(slot / 64)).into_iter().for_each(|word| *word |= 1 << (slot % 64));
    }

    #[inline(always)]
    pub(super) fn has(&self, slot: u8) -> bool {
        self.0.get(usize::from(slot / 64)).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}
