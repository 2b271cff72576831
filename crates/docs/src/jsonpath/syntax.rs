//! The syntax tree of a JSONPath query: what cannot be well-typed cannot be built.
//!
//! Walk: a [`Query`] is segments, a segment selectors · a [`Logic`] is a filter · an [`Operand`] is a value within one.
//! Deliberately absent: how it is read, and what it selects.

/// A query, or one within a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// From the document's value on, and not from the node that a filter looks at.
    pub(super) is_absolute: bool,
    pub(super) segments: Vec<Segment>,
}

/// One step of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// It selects children of the node and of all that is below it, and not of the node alone.
    pub(super) descends: bool,
    pub(super) selectors: Vec<Selector>,
}

/// Which children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    Name(String),
    Wildcard,
    Index(i64),
    Slice(Slice),
    Filter(Logic),
}

/// Children of an array, from here to there, so many apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) step: i64,
}

/// What holds of a node, or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Logic {
    Any(Vec<Logic>),
    All(Vec<Logic>),
    Not(Box<Logic>),
    Compare(Operand, Relation, Operand),
    Exists(Query),
    Match {
        text: Operand,
        pattern: Operand,
        /// All of the text, and not a part of it.
        is_whole: bool,
    },
}

/// How two values stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Null,
    Bool(bool),
    /// By its digits.
    Number(String),
    Text(String),
    /// Of the one node of a singular query.
    Node(Query),
    Length(Box<Operand>),
    Count(Query),
    /// Of the node of a query, if it is one.
    Value(Query),
}

impl Query {
    /// Whether it selects at most one node, whatever the document.
    pub(super) fn is_singular(&self) -> bool {
        self.segments.iter().all(|segment| {
            !segment.descends && matches!(segment.selectors.as_slice(), [Selector::Name(_) | Selector::Index(_)])
        })
    }
}

impl Slice {
    /// The first index and how many, of so many children; each is the step away from the one before.
    /// Source: RFC 9535, 2.3.4.2.2.
    pub(super) fn of(self, children: u64) -> (u64, u64) {
        // Both are below 2^62.
        let length = i64::try_from(children).unwrap_or(i64::MAX);
        let from_end = |index: i64| if index < 0 { length.saturating_add(index) } else { index };
        let Self { start, end, step } = self;
        let (first, last) = match step {
            0 => return (0, 0),
            1.. => {
                let bound = |index: Option<i64>, none| index.map_or(none, from_end).clamp(0, length);
                (bound(start, 0), bound(end, length))
            }
            _ => {
                let bound = |index: Option<i64>, none| index.map_or(none, from_end).clamp(-1, length - 1);
                (bound(start, length - 1), bound(end, -1))
            }
        };
        let distance = if step > 0 { last - first } else { first - last };
        let count = u64::try_from(distance).map_or(0, |distance| distance.div_ceil(step.unsigned_abs()));
        (u64::try_from(first).unwrap_or(0), count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slice_is_what_its_definition_says(
            start in prop::option::of(-9_i64..9), end in prop::option::of(-9_i64..9), step in -4_i64..4, length in 0_i64..7,
        ) {
            let slice = Slice { start, end, step };
            let normal = |index: i64| if index >= 0 { index } else { length + index };
            let mut expected = Vec::new();
            if step > 0 {
                let lower = normal(start.unwrap_or(0)).max(0).min(length);
                let upper = normal(end.unwrap_or(length)).max(0).min(length);
                let mut at = lower;
                while at < upper {
                    expected.push(at);
                    at += step;
                }
            } else if step < 0 {
                let upper = normal(start.unwrap_or(length - 1)).max(-1).min(length - 1);
                let lower = normal(end.unwrap_or(-length - 1)).max(-1).min(length - 1);
                let mut at = upper;
                while lower < at {
                    expected.push(at);
                    at += step;
                }
            }
            let (first, count) = slice.of(u64::try_from(length).unwrap());
            let found: Vec<i64> =
                (0..count).map(|at| i64::try_from(first).unwrap() + i64::try_from(at).unwrap() * step).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_largest_indices_do_not_overflow() {
        const MOST: i64 = (1 << 53) - 1;
        for step in [1, -1, MOST, -MOST] {
            let slice = Slice { start: Some(-MOST), end: Some(MOST), step };
            assert!(slice.of(1 << 61).1 <= 1 << 61);
        }
        assert_eq!(Slice { start: Some(MOST), end: Some(-MOST), step: -MOST }.of(3), (2, 1));
    }
}
