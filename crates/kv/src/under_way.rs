//! Keys of entries that are appended and not yet visible: how many there are of each, where the newest ends, and what it is of its entry.
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
    newest: Newest,
}

/// The last write of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    /// Where its entry ends.
    pub(crate) end: Lsn,
    /// Which of the entry's effects it is.
    pub(crate) nth: usize,
}

impl UnderWay {
    fn hash(&self, keyspace: u32, key: &[u8]) -> u64 {
        self.keys.hash_one((keyspace, key))
    }

    /// An effect of an entry has the key. Entries come in the order of their ends, and effects in that of their entry.
    pub(crate) fn add(&mut self, keyspace: u32, key: &[u8], newest: Newest) {
        let way = self.ways.entry(self.hash(keyspace, key)).or_insert(Way { count: 0, newest });
        way.count += 1;
        way.newest = newest;
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

    /// The newest write that may be the key's: no later one is. None: no entry has it.
    pub(crate) fn newest(&self, keyspace: u32, key: &[u8]) -> Option<Newest> {
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
        let at = |end, nth| Newest { end: Lsn(end), nth };
        ways.add(1, b"k", at(10, 0));
        ways.add(1, b"k", at(10, 3));
        assert_eq!(ways.newest(1, b"k"), Some(at(10, 3)));
        ways.add(1, b"k", at(20, 1));
        assert_eq!(
            [(1, &b"k"[..]), (2, b"k"), (1, b"")].map(|(space, key)| ways.newest(space, key)),
            [Some(at(20, 1)), None, None]
        );
        ways.remove(1, b"k");
        ways.remove(1, b"k");
        assert_eq!(ways.newest(1, b"k"), Some(at(20, 1)));
        ways.remove(1, b"l");
        ways.remove(1, b"k");
        assert!(ways.newest(1, b"k").is_none() && ways.is_empty());
    }
}
