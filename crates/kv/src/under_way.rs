//! Keys of entries that are appended and not yet visible: how many there are of each, and where the newest ends.
//!
//! Known by their hashes, so that a write costs no copy of its key: most are never asked for. Where one is, the queue says whether it is
//! that key's.
//!
//! Walk: [`UnderWay::add`] · [`UnderWay::newest`] · [`UnderWay::remove`].
//! Deliberately absent: what a key becomes; the queue has it.

use std::collections::HashMap;

use ahash::RandomState;
use assent_ids::Lsn;

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// How keys are hashed, which no client knows.
    keys: RandomState,
    ways: HashMap<u64, Way, RandomState>,
}

#[derive(Debug)]
struct Way {
    count: u32,
    newest: Lsn,
}

impl UnderWay {
    fn hash(&self, keyspace: u32, key: &[u8]) -> u64 {
        self.keys.hash_one((keyspace, key))
    }

    /// An entry that ends there has the key.
    pub(crate) fn add(&mut self, keyspace: u32, key: &[u8], end: Lsn) {
        let way = self.ways.entry(self.hash(keyspace, key)).or_insert(Way { count: 0, newest: end });
        way.count += 1;
        way.newest = end;
    }

    /// It is visible now.
    pub(crate) fn remove(&mut self, keyspace: u32, key: &[u8]) {
        let hash = self.hash(keyspace, key);
        let Some(way) = self.ways.get_mut(&hash) else { return };
        way.count -= 1;
        if way.count == 0 {
            self.ways.remove(&hash);
        }
    }

    /// The end of the newest entry that may have the key: no later one has. None: no entry has.
    pub(crate) fn newest(&self, keyspace: u32, key: &[u8]) -> Option<Lsn> {
        self.ways.get(&self.hash(keyspace, key)).map(|way| way.newest)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_under_way_as_long_as_any_of_its_entries_is() {
        let mut ways = UnderWay::default();
        ways.add(1, b"k", Lsn(10));
        ways.add(1, b"k", Lsn(10));
        ways.add(1, b"k", Lsn(20));
        assert_eq!(
            [(1, &b"k"[..]), (2, b"k"), (1, b"")].map(|(space, key)| ways.newest(space, key)),
            [Some(Lsn(20)), None, None]
        );
        ways.remove(1, b"k");
        ways.remove(1, b"k");
        assert_eq!(ways.newest(1, b"k"), Some(Lsn(20)));
        ways.remove(1, b"l");
        ways.remove(1, b"k");
        assert!(ways.newest(1, b"k").is_none() && ways.is_empty());
    }
}
