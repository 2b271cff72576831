//! What was erased: disjoint fragments in the order of their keys, each with the newest place at which all of it was erased.
//!
//! Walk: [`Erased::erase`] lays a range over what is there · [`Erased::over`] asks for one key, [`Erased::over_all`] for all
//! keys between two. Both are a binary search, however many ranges there were.
//! Deliberately absent: who still needs a fragment; that is [`crate::policy`]'s.

use std::sync::Arc;

use crate::entry::Range;

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

impl Fragment {
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
        for range in ranges {
            erased.erase(range);
        }
        erased
    }

    /// Lays a range over what was erased before.
    pub(crate) fn erase(&mut self, range: &Range) {
        let Range { from, to, seq } = range;
        let to = to.as_deref();
        if to.is_some_and(|to| to <= from.as_slice()) {
            return;
        }
        let start = self.fragments.partition_point(|fragment| !fragment.ends_behind(from));
        let is_before_end = |fragment: &Fragment| to.is_none_or(|to| &*fragment.from < to);
        let count = self.fragments.get(start..).unwrap_or_default().partition_point(is_before_end);
        let mut laid = Lay { pieces: Vec::new(), seq: *seq, next: Some(Arc::from(from.as_slice())) };
        let end: Option<Arc<[u8]>> = to.map(Arc::from);
        for old in self.fragments.get(start..start + count).unwrap_or_default() {
            laid.over(old, from, end.as_ref());
        }
        laid.finish(end.as_ref());
        self.fragments.splice(start..start + count, laid.pieces);
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

/// The pieces that take the place of what a range is laid over.
struct Lay {
    pieces: Vec<Fragment>,
    seq: u64,
    /// Where the part of the range begins that has no piece yet; `None`: all has.
    next: Option<Arc<[u8]>>,
}

impl Lay {
    fn push(&mut self, from: &Arc<[u8]>, to: Option<&Arc<[u8]>>, seq: u64) {
        if to.is_some_and(|to| to <= from) {
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.seq == seq && last.to.as_ref() == Some(from) => last.to = to.cloned(),
            _ => self.pieces.push(Fragment { from: Arc::clone(from), to: to.cloned(), seq }),
        }
    }

    fn over(&mut self, old: &Fragment, from: &[u8], end: Option<&Arc<[u8]>>) {
        let Some(next) = self.next.take() else { return };
        // What it has before the range stays as it is.
        if &*old.from < from {
            self.push(&old.from, Some(&next), old.seq);
        }
        let start = if old.from > next { Arc::clone(&old.from) } else { Arc::clone(&next) };
        self.push(&next, Some(&start), self.seq);
        let (shared_end, rest_from) = match (&old.to, end) {
            (None, None) => (None, None),
            (Some(to), None) => (Some(to), None),
            (None, Some(end)) => (Some(end), Some(end)),
            (Some(to), Some(end)) if to > end => (Some(end), Some(end)),
            (Some(to), Some(_)) => (Some(to), None),
        };
        self.push(&start, shared_end, self.seq.max(old.seq));
        if let Some(rest) = rest_from {
            self.push(rest, old.to.as_ref(), old.seq);
        } else {
            self.next = shared_end.cloned();
        }
    }

    fn finish(&mut self, end: Option<&Arc<[u8]>>) {
        if let Some(next) = self.next.take() {
            self.push(&next, end, self.seq);
        }
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
            for round in 1..=rng.range(1..14) {
                let (from, to) = (rng.below(12), rng.below(13));
                // Not always in order: a rebuild may lay them as they come.
                let seq = if rng.below(3) == 0 { rng.range(1..20) } else { round + 5 };
                let open = to == 12;
                erased.erase(&Range { from: key(from), to: (!open).then(|| key(to)), seq });
                for place in from..to {
                    let place = usize::try_from(place).unwrap();
                    model[place] = model[place].max(seq);
                }
                well_formed(&erased);
            }
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
        erased.erase(&Range { from: key(3), to: Some(key(3)), seq: 1 });
        erased.erase(&Range { from: key(3), to: Some(key(1)), seq: 1 });
        assert!(erased.fragments().is_empty());
        erased.erase(&Range { from: key(3), to: None, seq: 2 });
        assert_eq!((erased.over(&key(2)), erased.over(&key(3)), erased.over(&[0xff; 9])), (0, 2, 2));
        assert_eq!((erased.over_all(&key(3), &[0xff; 9]), erased.over_all(&key(2), &key(4))), (2, 0));
    }
}
