//! An ordered map from (keyspace, key): what the branches' writes and the held keys are kept in.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A key's bytes, shared by all who keep it.
pub(crate) type Key = Arc<[u8]>;

#[derive(Debug)]
pub(crate) struct Keyed<T> {
    spaces: BTreeMap<u32, BTreeMap<Key, T>>,
}

impl<T> Default for Keyed<T> {
    fn default() -> Self {
        Self { spaces: BTreeMap::new() }
    }
}

impl<T> Keyed<T> {
    pub(crate) fn get(&self, keyspace: u32, key: &[u8]) -> Option<&T> {
        self.spaces.get(&keyspace)?.get(key)
    }

    pub(crate) fn insert(&mut self, keyspace: u32, key: Key, value: T) -> Option<T> {
        self.spaces.entry(keyspace).or_default().insert(key, value)
    }

    pub(crate) fn remove(&mut self, keyspace: u32, key: &[u8]) -> Option<T> {
        let space = self.spaces.get_mut(&keyspace)?;
        let removed = space.remove(key);
        if space.is_empty() {
            self.spaces.remove(&keyspace);
        }
        removed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.spaces.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Key, &T)> {
        self.spaces.iter().flat_map(|(keyspace, space)| space.iter().map(|(key, value)| (*keyspace, key, value)))
    }

    /// Nothing for bounds that hold nothing, in whatever order they come.
    pub(crate) fn range(
        &self,
        keyspace: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Key, &T)> {
        let space = self.spaces.get(&keyspace).filter(|_| holds(from, to));
        space.into_iter().flat_map(move |space| space.range::<[u8], _>((from, to)))
    }
}

/// Whether anything can lie between the bounds. `BTreeMap::range` panics where nothing can.
fn holds(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from < to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Keyed<u32> {
        let mut keyed = Keyed::default();
        for (keyspace, key, value) in [(0, "a", 1), (0, "b", 2), (2, "", 3), (2, "z", 4)] {
            keyed.insert(keyspace, key.as_bytes().into(), value);
        }
        keyed
    }

    #[test]
    fn bounds_in_the_wrong_order_hold_nothing() {
        let keyed = sample();
        let between = |from, to| keyed.range(0, from, to).count();
        let (a, b) = (&b"a"[..], &b"b"[..]);
        assert_eq!(between(Bound::Included(a), Bound::Included(b)), 2);
        assert_eq!(between(Bound::Excluded(a), Bound::Included(b)), 1);
        assert_eq!(between(Bound::Included(a), Bound::Excluded(a)), 0);
        assert_eq!(between(Bound::Excluded(a), Bound::Excluded(a)), 0);
        assert_eq!(between(Bound::Included(b), Bound::Included(a)), 0);
        assert_eq!(between(Bound::Unbounded, Bound::Excluded(b)), 1);
        assert_eq!(keyed.range(1, Bound::Unbounded, Bound::Unbounded).count(), 0);
    }

    #[test]
    fn the_last_key_takes_its_keyspace_along() {
        let mut keyed = sample();
        assert_eq!((keyed.remove(0, b"a"), keyed.remove(0, b"a"), keyed.remove(0, b"b")), (Some(1), None, Some(2)));
        assert_eq!((keyed.len(), keyed.spaces.len()), (2, 1));
    }
}
