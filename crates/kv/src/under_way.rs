//! Keys of entries that are appended and not yet visible: how many there are of each, where the newest ends, and what it is of its entry.
//!
//! Known by their hashes, so that a write costs no copy of its key. Where one is asked for, the queue says whether it is that key's. Most are never
//! asked for at all, so entries are learnt when somebody asks, or when too many are not: of a plain write that is published at once no key is
//! even hashed.
//!
//! Walk: [`UnderWay::comes`] with each entry · [`UnderWay::learn`] goes through the next one · [`UnderWay::newest`] · [`UnderWay::goes`].
//! Deliberately absent: what a key becomes; the queue has it, and learning is the desk's, who has both.

use std::collections::HashMap;

use ahash::RandomState;
use assent_ids::Lsn;

use crate::record::{Became, Effect};

/// So many effects may be unknown: whoever asks then waits no longer than it takes to hash as many keys.
pub(crate) const UNKNOWN_MAX: usize = 1 << 10;

#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// Entries that were learnt: the oldest ones that are under way.
    learnt: usize,
    /// Effects of the others.
    unknown: usize,
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

    /// An entry with so many effects stands behind the others.
    pub(crate) const fn comes(&mut self, effects: usize) {
        self.unknown += effects;
    }

    /// Which entry of those under way is to be learnt next, while more effects than so many are unknown.
    pub(crate) fn next(&self, unknown: usize) -> Option<usize> {
        (self.unknown > unknown).then_some(self.learnt)
    }

    /// Learns it: these are its effects, and there it ends.
    pub(crate) fn learn(&mut self, end: Lsn, effects: &[Effect]) {
        self.learnt += 1;
        self.unknown = self.unknown.saturating_sub(effects.len());
        for (nth, Effect { keyspace, key, .. }) in
            effects.iter().enumerate().filter(|(_, effect)| names_its_key(effect))
        {
            self.add(*keyspace, key, Newest { end, nth });
        }
    }

    /// The oldest entry is visible now; these were its effects.
    pub(crate) fn goes(&mut self, effects: &[Effect]) {
        let Some(learnt) = self.learnt.checked_sub(1) else {
            self.unknown = self.unknown.saturating_sub(effects.len());
            return;
        };
        self.learnt = learnt;
        effects
            .iter()
            .filter(|effect| names_its_key(effect))
            .for_each(|effect| self.remove(effect.keyspace, &effect.key));
    }

    /// An effect of an entry has the key. Entries come in the order of their ends, and effects in that of their entry.
    pub(crate) fn add(&mut self, keyspace: u32, key: &[u8], newest: Newest) {
        let way = self.ways.entry(self.hash(keyspace, key)).or_insert(Way { count: 0, newest });
        way.count += 1;
        way.newest = newest;
    }

    fn remove(&mut self, keyspace: u32, key: &[u8]) {
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

/// What is erased is known by its range.
const fn names_its_key(effect: &Effect) -> bool {
    !matches!(effect.became, Became::Erased { .. })
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
