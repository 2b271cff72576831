//! Aligning two sequences: what stays in order.
//!
//! Walk: [`rising`] finds the most places that stay in order.
//! Deliberately absent: what the values are.

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
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
}
