//! Aligning two sequences: what stays in order, and what is common to both.
//!
//! Walk: [`rising`] finds the most places that stay in order · [`common`] pairs equal values of two sequences in order, exactly
//! while that is cheap, else by occurrence: never more than a sort of what is there.
//! Deliberately absent: what the values are.

use std::collections::HashMap;

/// So many cells of a table are filled for an exact answer: a few milliseconds.
const CELLS_MAX: usize = 1 << 20;

/// The indices of a longest run of values that rise: what may stay where it is when all the others are moved.
pub(crate) fn rising(values: &[usize]) -> Vec<usize> {
    // Of each length the run whose last value is the smallest; what came before each value in its run.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(values.len());
    let value = |index: &usize| values.get(*index).copied().unwrap_or_default();
    for (index, own) in values.iter().enumerate() {
        let length = ends.partition_point(|end| value(end) < *own);
        before.push(length.checked_sub(1).and_then(|last| ends.get(last)).copied());
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut run = Vec::with_capacity(ends.len());
    let mut at = ends.last().copied();
    while let Some(index) = at {
        run.push(index);
        at = before.get(index).copied().flatten();
    }
    run.reverse();
    run
}

/// Pairs of indices with equal values, both rising: a longest such row where the sequences, without what is equal at both ends,
/// are short; else one by the occurrences of each value.
pub(crate) fn common(old: &[u64], new: &[u64]) -> Vec<(usize, usize)> {
    let same = |(old, new): &(&u64, &u64)| old == new;
    let head = old.iter().zip(new).take_while(same).count();
    let (rest_old, rest_new) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = rest_old.iter().rev().zip(rest_new.iter().rev()).take_while(same).count();
    let middle_old = rest_old.get(..rest_old.len() - tail).unwrap_or_default();
    let middle_new = rest_new.get(..rest_new.len() - tail).unwrap_or_default();
    let inner = if middle_old.len().saturating_mul(middle_new.len()) <= CELLS_MAX {
        exact(middle_old, middle_new)
    } else {
        by_occurrence(middle_old, middle_new)
    };
    let mut pairs: Vec<(usize, usize)> = (0..head).map(|index| (index, index)).collect();
    pairs.extend(inner.into_iter().map(|(a, b)| (head + a, head + b)));
    pairs.extend((0..tail).map(|index| (old.len() - tail + index, new.len() - tail + index)));
    pairs
}

/// The longest, by a table of what is left.
fn exact(old: &[u64], new: &[u64]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    let mut best = vec![0_u32; (old.len() + 1) * width];
    let at = |best: &[u32], a: usize, b: usize| best.get(a * width + b).copied().unwrap_or_default();
    for (a, value) in old.iter().enumerate().rev() {
        for (b, other) in new.iter().enumerate().rev() {
            let length =
                if value == other { at(&best, a + 1, b + 1) + 1 } else { at(&best, a + 1, b).max(at(&best, a, b + 1)) };
            if let Some(cell) = best.get_mut(a * width + b) {
                *cell = length;
            }
        }
    }
    let (mut a, mut b, mut pairs) = (0, 0, Vec::new());
    while let (Some(value), Some(other)) = (old.get(a), new.get(b)) {
        if value == other {
            pairs.push((a, b));
            (a, b) = (a + 1, b + 1);
        } else if at(&best, a + 1, b) >= at(&best, a, b + 1) {
            a += 1;
        } else {
            b += 1;
        }
    }
    pairs
}

/// The first occurrence of a value with the first, the second with the second; of those the longest row that rises.
fn by_occurrence(old: &[u64], new: &[u64]) -> Vec<(usize, usize)> {
    let mut places: HashMap<u64, std::collections::VecDeque<usize>> = HashMap::new();
    for (index, value) in old.iter().enumerate() {
        places.entry(*value).or_default().push_back(index);
    }
    let mut paired = Vec::new();
    for (index, value) in new.iter().enumerate() {
        if let Some(place) = places.get_mut(value).and_then(std::collections::VecDeque::pop_front) {
            paired.push((place, index));
        }
    }
    let olds: Vec<usize> = paired.iter().map(|(old, _)| *old).collect();
    rising(&olds).into_iter().filter_map(|index| paired.get(index).copied()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_common(pairs: &[(usize, usize)], old: &[u64], new: &[u64]) -> bool {
        pairs.iter().all(|(a, b)| old[*a] == new[*b]) && pairs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1)
    }

    /// The length of a longest one, the slow way.
    fn longest(old: &[u64], new: &[u64]) -> usize {
        match (old.split_first(), new.split_first()) {
            (Some((a, rest)), Some((b, others))) if a == b => 1 + longest(rest, others),
            (Some((_, rest)), Some((_, others))) => longest(rest, new).max(longest(old, others)),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn what_is_common_is_the_longest(
            old in prop::collection::vec(0_u64..4, 0..9), new in prop::collection::vec(0_u64..4, 0..9),
        ) {
            let pairs = common(&old, &new);
            prop_assert!(is_common(&pairs, &old, &new));
            prop_assert_eq!(pairs.len(), longest(&old, &new));
            let pairs = by_occurrence(&old, &new);
            prop_assert!(is_common(&pairs, &old, &new), "{:?}", pairs);
        }

        #[test]
        fn what_rises_is_the_longest(values in prop::collection::vec(0_usize..9, 0..9)) {
            let run = rising(&values);
            prop_assert!(run.windows(2).all(|w| w[0] < w[1] && values[w[0]] < values[w[1]]));
            let most = (0..1_u32 << values.len()).filter_map(|mask| {
                let kept: Vec<usize> =
                    values.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, value)| *value).collect();
                kept.windows(2).all(|w| w[0] < w[1]).then_some(kept.len())
            });
            prop_assert_eq!(run.len(), most.max().unwrap_or_default());
        }
    }

    #[test]
    fn long_sequences_cost_no_table() {
        let old: Vec<u64> = (0..200_000).collect();
        let mut new = old.clone();
        new.rotate_left(1);
        new[100_000] = u64::MAX;
        let pairs = common(&old, &new);
        assert!(is_common(&pairs, &old, &new));
        assert_eq!(pairs.len(), 199_998);
    }
}
