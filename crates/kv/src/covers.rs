//! Ranges of keys, each with what was laid over it last: what erases in flight cover.
//!
//! Walk: [`Covers::insert`] lays a range over what is there and cuts it · [`Covers::get`] asks for one key, with
//! one look into a tree of disjoint pieces.
//! Deliberately absent: keys. Those are in [`crate::keyed`].

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::keyed::Key;

/// From a key to an exclusive end, or to the last key of the keyspace.
pub(crate) type Span<'a> = (&'a [u8], Option<&'a [u8]>);

/// Where a piece ends, and what lies over it.
type Piece<T> = (Option<Key>, T);

#[derive(Debug)]
pub(crate) struct Covers<T> {
    /// Disjoint, none of them empty.
    spaces: BTreeMap<u32, BTreeMap<Key, Piece<T>>>,
}

impl<T> Default for Covers<T> {
    fn default() -> Self {
        Self { spaces: BTreeMap::new() }
    }
}

impl<T: Copy + PartialEq> Covers<T> {
    /// What lies over this key.
    pub(crate) fn get(&self, keyspace: u32, key: &[u8]) -> Option<T> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (_, (to, what)) = self.spaces.get(&keyspace)?.range::<[u8], _>(up_to).next_back()?;
        ends_behind(to.as_deref(), key).then_some(*what)
    }

    /// Lays a range over all that is there. An empty one covers nothing.
    pub(crate) fn insert(&mut self, keyspace: u32, (from, to): Span<'_>, what: T) {
        if !ends_behind(to, from) {
            return;
        }
        let space = self.spaces.entry(keyspace).or_default();
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
    }

    /// Takes away what still lies there of a range that was laid with this.
    pub(crate) fn remove(&mut self, keyspace: u32, (from, to): Span<'_>, what: T) {
        let Some(space) = self.spaces.get_mut(&keyspace) else { return };
        if ends_behind(to, from) {
            let pieces = space.range::<[u8], _>(between(from, to)).filter(|(_, (_, over))| *over == what);
            let pieces: Vec<Key> = pieces.map(|(key, _)| key.clone()).collect();
            pieces.iter().for_each(|key| _ = space.remove(key));
        }
        if space.is_empty() {
            self.spaces.remove(&keyspace);
        }
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
            let mut laid = Vec::new();
            for what in 0..30 {
                let (from, to) = (rng.index(16), rng.index(17));
                let ends = rng.below(4) > 0;
                let (first, end) = ([u8::try_from(from).unwrap()], [u8::try_from(to).unwrap()]);
                let span: Span<'_> = (&first, ends.then_some(&end));
                let end = if ends { to } else { 16 };
                covers.insert(0, span, what);
                plain.get_mut(from..end).into_iter().flatten().for_each(|at| *at = Some(what));
                laid.push((first, ends.then_some([u8::try_from(to).unwrap()]), what));
                if rng.below(3) == 0 {
                    let (first, to, what) = laid.swap_remove(rng.index(laid.len()));
                    covers.remove(0, (&first, to.as_ref().map(<[u8; 1]>::as_slice)), what);
                    plain.iter_mut().filter(|at| **at == Some(what)).for_each(|at| *at = None);
                }
                for (key, what) in plain.iter().enumerate() {
                    assert_eq!(covers.get(0, &[u8::try_from(key).unwrap()]), *what, "seed {seed}, key {key}");
                    assert_eq!(covers.get(1, &[0]), None);
                }
            }
            laid.drain(..)
                .for_each(|(first, to, what)| covers.remove(0, (&first, to.as_ref().map(|to| &to[..])), what));
            assert!(covers.spaces.is_empty(), "seed {seed}");
        }
    }
}
