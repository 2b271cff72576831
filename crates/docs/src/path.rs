//! The path summary: each distinct path of a document once, with how many nodes have it.
//!
//! ```text
//!   record   text: the name of a member · numbers: nodes that have it, what step it is, the path before it
//! ```
//! Members with the same path share their name here. A path without nodes stays; it may be used again, or its name gets another number.
//!
//! Walk: [`Path::read`] from a whole record · [`Path::record`] of all of it or of its count.
//! Deliberately absent: values.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use assent_frame::Malformed;

use crate::record::{Record, TEXT, WHOLE, bit};

const REFERENCES: usize = 0;
const STEP: usize = 1;
const BEFORE: usize = 2;

/// The number of a path within its document. The outermost value has 1.
pub(crate) type PathId = u64;

/// What maps by paths hash with, and by places in the log: their numbers are ours, given one after the other, and nobody else's choice.
pub(crate) type PathIds = BuildHasherDefault<PathIdHasher>;

/// Spreads a number over all bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathIdHasher(u64);

impl Hasher for PathIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio; the table looks at the highest bits and at the lowest.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The last step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step<'a> {
    /// To the document's value.
    Root,
    /// To a member.
    Member(&'a str),
    /// To the values of an array.
    Items,
}

impl fmt::Display for Step<'_> {
    /// As in a JSONPath of names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("$"),
            Self::Member(name) => write!(f, "[{name:?}]"),
            Self::Items => f.write_str("[*]"),
        }
    }
}

/// A distinct path of a document, with how many nodes have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCount {
    /// Its number, from 1: it stays the path's own for as long as nodes have it.
    pub id: u64,
    /// Steps from the root, whose own path is at level 1.
    pub level: u32,
    /// The path: `$`, then `["name"]` for a member and `[*]` for the values of an array.
    pub path: String,
    /// How many nodes have it.
    pub references: u64,
}

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    /// The path before the last step; 0 before the first.
    pub(crate) before: PathId,
    pub(crate) step: Step<'a>,
    /// Nodes that have it.
    pub(crate) references: u64,
}

impl<'a> Path<'a> {
    /// # Errors
    /// [`Malformed`] for what no writer lays.
    pub(crate) fn read(record: &Record<'a>) -> Result<Self, Malformed> {
        let step = match (record.number(STEP), record.has(TEXT)) {
            (1, false) => Step::Root,
            (2, true) => {
                Step::Member(std::str::from_utf8(record.text).map_err(|_| Malformed { field: "the name of a member" })?)
            }
            (3, false) => Step::Items,
            _ => return Err(Malformed { field: "the step of a path" }),
        };
        Ok(Self { before: record.number(BEFORE), step, references: record.number(REFERENCES) })
    }

    /// The record of all of it.
    pub(crate) fn record(&self) -> Record<'a> {
        let (number, text) = match self.step {
            Step::Root => (1, None),
            Step::Member(name) => (2, Some(name)),
            Step::Items => (3, None),
        };
        let record = Record { mask: WHOLE, ..Record::default() }.with(STEP, number).with(BEFORE, self.before);
        let record = record.with(REFERENCES, self.references);
        match text {
            Some(name) => Record { mask: record.mask | TEXT, text: name.as_bytes(), ..record },
            None => record,
        }
    }

    /// The record of its count alone.
    pub(crate) fn count(&self) -> Record<'static> {
        Record { mask: bit(REFERENCES), ..Record::default() }.with(REFERENCES, self.references)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_and_their_counts_are_patches() {
        for (before, step) in [(0, Step::Root), (1, Step::Member("")), (1, Step::Member("name")), (7, Step::Items)] {
            let path = Path { before, step, references: 3 };
            assert_eq!(Path::read(&path.record()), Ok(path));
            let more = Path { references: 4, ..path };
            assert_eq!(Path::read(&more.count().over(path.record())), Ok(more));
        }
        assert!(Path::read(&Record::text(b"\xff").with(STEP, 2)).is_err());
        assert!(Path::read(&Record::text(b"a").with(STEP, 3)).is_err());
    }
}
