//! What was erased: disjoint fragments in the order of their keys, each with the newest place at which all of it was erased.
//!
//! Walk: [`Erased::erase`] lays ranges over what is there, in one pass however many they are, [`together`] · [`Erased::over`] asks for one key,
//! [`Erased::over_all`] for all keys between two. Both are a binary search, however many ranges there were.
//! Deliberately absent: who still needs a fragment; that is [`crate::policy`]'s.

use std::sync::Arc;

use crate::entry::{Change, Range};

/// Keys from here to there, erased at a seq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) from: Arc<[u8]>,
    /// The first key behind it; `None`: there is none.
    pub(crate) to: Option<Arc<[u8]>>,
    pub(crate) seq: u64,
}

/// All that was erased.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Erased {
    /// Sorted and disjoint.
    fragments: Vec<Fragment>,
}

/// What a range takes that was erased, until it is written out with the memtable: with it, and as one fragment and two cut by it.
pub(crate) fn erased_bytes(change: &Change<'_>) -> u64 {
    let Change::Erase { from, to } = change else { return 0 };
    let keys = from.len() + to.map_or(0, <[u8]>::len);
    (2 * keys + size_of::<Range>() + 3 * size_of::<Fragment>() + 4 * size_of::<usize>()) as u64
}

impl Fragment {
    /// None: there are no keys in it.
    fn of(range: &Range) -> Option<Self> {
        let Range { from, to, seq } = range;
        let has_keys = to.as_ref().is_none_or(|to| to > from);
        has_keys.then(|| Self { from: Arc::from(from.as_slice()), to: to.as_deref().map(Arc::from), seq: *seq })
    }

    fn ends_behind(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| &**to > key)
    }

    /// Whether it has keys between two, both of them included.
    pub(crate) fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        &*self.from <= last && self.ends_behind(first)
    }

    pub(crate) fn range(&self) -> Range {
        Range { from: self.from.to_vec(), to: self.to.as_ref().map(|to| to.to_vec()), seq: self.seq }
    }
}

impl Erased {
    /// What these ranges erase together.
    pub(crate) fn of<'a>(ranges: impl IntoIterator<Item = &'a Range>) -> Self {
        let mut erased = Self::default();
        erased.erase(ranges);
        erased
    }

    /// Lays ranges, in whatever order, over what was erased before: as long as it takes to sort them and to pass over what stands between the
    /// first and the last of them. Of many, one by one would move what is behind each.
    pub(crate) fn erase<'a>(&mut self, ranges: impl IntoIterator<Item = &'a Range>) {
        let laid: Vec<Fragment> = ranges.into_iter().filter_map(Fragment::of).collect();
        let laid = all(&laid);
        let (Some(first), Some(last)) = (laid.first(), laid.last()) else { return };
        let start = self.fragments.partition_point(|fragment| !fragment.ends_behind(&first.from));
        let is_before_end = |fragment: &Fragment| last.to.as_ref().is_none_or(|to| fragment.from < *to);
        let count = self.fragments.get(start..).unwrap_or_default().partition_point(is_before_end);
        let pieces = together(self.fragments.get(start..start + count).unwrap_or_default(), &laid);
        self.fragments.splice(start..start + count, pieces);
    }

    fn at(&self, key: &[u8]) -> Option<(usize, &Fragment)> {
        let at = self.fragments.partition_point(|fragment| !fragment.ends_behind(key));
        let fragment = self.fragments.get(at).filter(|fragment| &*fragment.from <= key)?;
        Some((at, fragment))
    }

    /// The newest place at which this key was erased; zero if never.
    pub(crate) fn over(&self, key: &[u8]) -> u64 {
        self.at(key).map_or(0, |(_, fragment)| fragment.seq)
    }

    /// A place at which, or behind which, every key between these two was erased, both of them included; zero if there is none.
    pub(crate) fn over_all(&self, first: &[u8], last: &[u8]) -> u64 {
        let Some((start, fragment)) = self.at(first) else { return 0 };
        let mut seq = fragment.seq;
        let mut end = fragment.to.as_ref();
        for next in self.fragments.iter().skip(start + 1) {
            match end {
                Some(to) if &**to <= last => {}
                _ => break,
            }
            if end != Some(&next.from) {
                return 0;
            }
            seq = seq.min(next.seq);
            end = next.to.as_ref();
        }
        if end.is_none_or(|to| &**to > last) { seq } else { 0 }
    }

    /// Leaves only those that somebody needs.
    pub(crate) fn retain(&mut self, is_needed: impl FnMut(&Fragment) -> bool) {
        self.fragments.retain(is_needed);
    }

    pub(crate) fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    pub(crate) fn ranges(&self) -> Vec<Range> {
        self.fragments.iter().map(Fragment::range).collect()
    }
}

/// What each of these erases, in one list.
fn all(fragments: &[Fragment]) -> Vec<Fragment> {
    if fragments.len() < 2 {
        return fragments.to_vec();
    }
    let (one, other) = fragments.split_at(fragments.len() / 2);
    together(&all(one), &all(other))
}

/// What two sorted lists erase: of what both do, the newer place.
fn together(one: &[Fragment], other: &[Fragment]) -> Vec<Fragment> {
    let mut pieces: Vec<Fragment> = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (Ahead { rest: one, cut: None }, Ahead { rest: other, cut: None });
    loop {
        let piece = match (one.first(), other.first()) {
            (None, None) => return pieces,
            (Some(first), None) | (None, Some(first)) => first,
            (Some(first), Some(second)) => first.until(second),
        };
        // Where one of both goes on, it is not cut for no reason.
        let goes_on = one.cut.is_some() || other.cut.is_some();
        one.pass(&piece);
        other.pass(&piece);
        match pieces.last_mut() {
            Some(last) if goes_on && last.seq == piece.seq => last.to = piece.to,
            _ => pieces.push(piece),
        }
    }
}

/// What of a list has no piece yet.
struct Ahead<'a> {
    rest: &'a [Fragment],
    /// Where that begins within its first fragment; `None`: with it.
    cut: Option<Arc<[u8]>>,
}

impl Ahead<'_> {
    fn first(&self) -> Option<Fragment> {
        let first = self.rest.first()?.clone();
        Some(match &self.cut {
            Some(from) => Fragment { from: Arc::clone(from), ..first },
            None => first,
        })
    }

    /// This piece is made. It ends no later than the first that is ahead, if it has any key of that.
    fn pass(&mut self, piece: &Fragment) {
        let Some((first, rest)) = self.rest.split_first() else { return };
        if *self.cut.as_ref().unwrap_or(&first.from) != piece.from {
            return;
        }
        if first.to == piece.to {
            (self.rest, self.cut) = (rest, None);
        } else {
            self.cut.clone_from(&piece.to);
        }
    }
}

impl Fragment {
    /// The first piece of two that are laid together.
    fn until(self, other: Self) -> Self {
        let (first, second) = if self.from <= other.from { (self, other) } else { (other, self) };
        if first.from == second.from {
            let to = match (first.to, second.to) {
                (Some(to), Some(other)) => Some(to.min(other)),
                (to, other) => to.or(other),
            };
            return Self { from: first.from, to, seq: first.seq.max(second.seq) };
        }
        let to = if first.ends_behind(&second.from) { Some(second.from) } else { first.to };
        Self { to, ..first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assent_sim::Rng;

    fn key(number: u64) -> Vec<u8> {
        vec![b'a' + u8::try_from(number).unwrap()]
    }

    fn well_formed(erased: &Erased) {
        for pair in erased.fragments().windows(2) {
            assert!(pair[0].to.as_ref().is_some_and(|to| *to <= pair[1].from), "{erased:?}");
        }
        for fragment in erased.fragments() {
            assert!(fragment.to.as_ref().is_none_or(|to| *to > fragment.from) && fragment.seq > 0, "{erased:?}");
        }
    }

    #[test]
    fn whatever_is_laid_over_whatever_each_key_knows_the_newest_place() {
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let mut erased = Erased::default();
            let mut model = [0_u64; 12];
            let mut waiting = Vec::new();
            for round in 1..=rng.range(1..14) {
                let (from, to) = (rng.below(12), rng.below(13));
                // Not always in order: a rebuild may lay them as they come.
                let seq = if rng.below(3) == 0 { rng.range(1..20) } else { round + 5 };
                let open = to == 12;
                let range = Range { from: key(from), to: (!open).then(|| key(to)), seq };
                for place in from..to {
                    let place = usize::try_from(place).unwrap();
                    model[place] = model[place].max(seq);
                }
                waiting.push(range);
                // One by one, or some together.
                if rng.below(2) == 0 {
                    erased.erase(&std::mem::take(&mut waiting));
                    well_formed(&erased);
                }
            }
            erased.erase(&waiting);
            well_formed(&erased);
            for (place, seq) in (0..).zip(model) {
                assert_eq!(erased.over(&key(place)), seq, "seed {seed}, key {place}: {erased:?}");
            }
            for first in 0..12_usize {
                for last in first..12 {
                    let least = model[first..=last].iter().min().copied().unwrap();
                    let found = erased.over_all(&key(first as u64), &key(last as u64));
                    assert_eq!(found, least, "seed {seed}, {first}..={last}: {erased:?}");
                }
            }
            assert_eq!(Erased::of(&erased.ranges()), erased, "seed {seed}");
        }
    }

    #[test]
    fn a_range_without_keys_erases_nothing_and_one_without_an_end_all_behind() {
        let mut erased = Erased::default();
        erased.erase(&[Range { from: key(3), to: Some(key(3)), seq: 1 }]);
        erased.erase(&[Range { from: key(3), to: Some(key(1)), seq: 1 }]);
        assert!(erased.fragments().is_empty());
        erased.erase(&[Range { from: key(3), to: None, seq: 2 }]);
        assert_eq!((erased.over(&key(2)), erased.over(&key(3)), erased.over(&[0xff; 9])), (0, 2, 2));
        assert_eq!((erased.over_all(&key(3), &[0xff; 9]), erased.over_all(&key(2), &key(4))), (2, 0));
    }

    #[test]
    fn many_ranges_in_whatever_order_are_laid_in_one_pass() {
        const MANY: u32 = 200_000;
        let key = |number: u32| number.to_be_bytes().to_vec();
        let range = |number: u32| Range { from: key(2 * number), to: Some(key(2 * number + 1)), seq: 5 };
        let backwards: Vec<Range> = (0..MANY).rev().map(range).collect();
        let mut erased = Erased::of(&[Range { from: key(0), to: Some(key(MANY)), seq: 3 }]);
        erased.erase(&backwards);
        // One by one, each would move all that is behind it: 20,000,000,000 fragments.
        assert_eq!(erased.fragments().len(), MANY as usize + MANY as usize / 2);
        assert_eq!([0, 1, MANY, MANY + 1, 2 * MANY].map(|number| erased.over(&key(number))), [5, 3, 5, 0, 0]);
        assert_eq!((erased.over_all(&key(0), &key(MANY - 1)), erased.over_all(&key(0), &key(MANY + 1))), (3, 0));
    }
}
