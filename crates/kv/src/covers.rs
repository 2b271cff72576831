//! Ranges of keys, each with what was laid over it last: what erases in flight cover.
//!
//! Walk: [`Covers::insert`] lays a range over what is there and cuts it · [`Covers::get`] asks for one key, with
//! one look into a tree of disjoint pieces · [`Covers::pass`] lets all go that was laid up to a place: nobody sees it any more, and it is
//! swept out when as many pieces have come again, so that a piece is visited a few times however many ranges came and went.
//! Deliberately absent: keys. Those are in [`crate::keyed`].

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::keyed::Key;

/// Pieces that are never swept out.
const FEW: usize = 64;

/// From a key to an exclusive end, or to the last key of the keyspace.
pub(crate) type Span<'a> = (&'a [u8], Option<&'a [u8]>);

/// Where a piece ends, and what lies over it.
type Piece<T> = (Option<Key>, T);

#[derive(Debug)]
pub(crate) struct Covers<T> {
    /// Disjoint, none of them empty.
    spaces: BTreeMap<u32, BTreeMap<Key, Piece<T>>>,
    /// What was laid with this, or with less, lies there no more.
    passed: Option<T>,
    pieces: usize,
    /// So many are swept.
    sweeps_at: usize,
}

impl<T> Default for Covers<T> {
    fn default() -> Self {
        Self { spaces: BTreeMap::new(), passed: None, pieces: 0, sweeps_at: FEW }
    }
}

impl<T: Copy + Ord> Covers<T> {
    /// What lies over this key.
    pub(crate) fn get(&self, keyspace: u32, key: &[u8]) -> Option<T> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (_, (to, what)) = self.spaces.get(&keyspace)?.range::<[u8], _>(up_to).next_back()?;
        (ends_behind(to.as_deref(), key) && Some(*what) > self.passed).then_some(*what)
    }

    /// Lays a range over all that is there. An empty one covers nothing.
    pub(crate) fn insert(&mut self, keyspace: u32, (from, to): Span<'_>, what: T) {
        if !ends_behind(to, from) {
            return;
        }
        if self.pieces >= self.sweeps_at {
            self.sweep();
        }
        let space = self.spaces.entry(keyspace).or_default();
        let before_it = space.len();
        // What begins before it and reaches into it keeps what is before it, and what is behind it.
        let before = (Bound::Unbounded, Bound::Excluded(from));
        let reaching = space.range_mut::<[u8], _>(before).next_back();
        let tail = reaching.filter(|(_, (end, _))| ends_behind(end.as_deref(), from)).map(|(_, piece)| {
            let tail = piece.clone();
            piece.0 = Some(from.into());
            tail
        });
        let inside: Vec<Key> = space.range::<[u8], _>(between(from, to)).map(|(key, _)| key.clone()).collect();
        let last = inside.iter().filter_map(|key| space.remove(key)).last();
        if let (Some((end, old)), Some(to)) = (last.or(tail), to)
            && ends_behind(end.as_deref(), to)
        {
            space.insert(to.into(), (end, old));
        }
        space.insert(from.into(), (to.map(Key::from), what));
        self.pieces = self.pieces - before_it + space.len();
    }

    /// What was laid with this or with less lies there no more; what will be laid is laid with more.
    pub(crate) fn pass(&mut self, what: T) {
        self.passed = self.passed.max(Some(what));
    }

    fn sweep(&mut self) {
        for space in self.spaces.values_mut() {
            space.retain(|_, (_, what)| Some(*what) > self.passed);
        }
        self.spaces.retain(|_, space| !space.is_empty());
        self.pieces = self.spaces.values().map(BTreeMap::len).sum();
        self.sweeps_at = FEW.max(self.pieces.saturating_mul(2));
    }
}

const fn between<'a>(from: &'a [u8], to: Option<&'a [u8]>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let to = match to {
        Some(to) => Bound::Excluded(to),
        None => Bound::Unbounded,
    };
    (Bound::Included(from), to)
}

/// Whether a range that ends there has a key at this one or behind it.
pub(crate) fn ends_behind(to: Option<&[u8]>, key: &[u8]) -> bool {
    to.is_none_or(|to| to > key)
}

#[cfg(test)]
mod tests {
    use assent_sim::Rng;

    use super::*;

    #[test]
    fn ranges_laid_over_ranges_say_what_came_last() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut covers = Covers::default();
            let mut plain: [Option<u64>; 16] = [None; 16];
            for what in 0..30 {
                let (from, to) = (rng.index(16), rng.index(17));
                let ends = rng.below(4) > 0;
                let (first, end) = ([u8::try_from(from).unwrap()], [u8::try_from(to).unwrap()]);
                let span: Span<'_> = (&first, ends.then_some(&end));
                let end = if ends { to } else { 16 };
                covers.insert(0, span, what);
                plain.get_mut(from..end).into_iter().flatten().for_each(|at| *at = Some(what));
                if rng.below(3) == 0 {
                    let passed = rng.below(what + 1);
                    covers.pass(passed);
                    plain.iter_mut().filter(|at| at.is_some_and(|what| what <= passed)).for_each(|at| *at = None);
                }
                if rng.below(5) == 0 {
                    covers.sweep();
                }
                for (key, what) in plain.iter().enumerate() {
                    assert_eq!(covers.get(0, &[u8::try_from(key).unwrap()]), *what, "seed {seed}, key {key}");
                    assert_eq!(covers.get(1, &[0]), None);
                }
            }
            assert_eq!(covers.pieces, covers.spaces.values().map(BTreeMap::len).sum::<usize>(), "seed {seed}");
            covers.pass(30);
            covers.sweep();
            assert!(covers.spaces.is_empty(), "seed {seed}");
        }
    }
    #[test]
    fn however_many_ranges_come_and_go_a_piece_is_visited_a_few_times() {
        const MANY: u64 = 20_000;
        let mut covers = Covers::default();
        let key = |number: u64| number.to_be_bytes();
        // The same wide range again and again, then as many small ones in it: one by one, each that goes would look at all of these.
        (0..MANY).for_each(|_| covers.insert(0, (&key(0), Some(&key(2 * MANY))), 1));
        for number in 0..MANY {
            covers.insert(0, (&key(2 * number), Some(&key(2 * number + 1))), 2);
        }
        (0..MANY).for_each(|_| covers.pass(1));
        assert_eq!([0, 1, 2, 3].map(|number| covers.get(0, &key(number))), [Some(2), None, Some(2), None]);
        covers.pass(2);
        assert_eq!(covers.get(0, &key(0)), None);
        // And what went makes room when others come.
        (0..=4 * MANY).for_each(|number| covers.insert(1, (&key(number), Some(&key(number + 1))), 3));
        assert_eq!(covers.spaces.keys().collect::<Vec<_>>(), [&1]);
    }
}
