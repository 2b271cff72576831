//! The ordered index: key to place, with the few older versions that live snapshots still need.
//!
//! Walk: [`Index::publish`] applies one journal entry, whole · [`Index::find`] is a key now or as of a place in the log
//! · [`Index::sweep`] drops versions once the oldest snapshot has moved on.
//! A version is known by the end of the entry that committed it, so "as of P" is: every entry that ends at or before P.
//! Deliberately absent: values, I/O, locks.

use std::collections::BTreeMap;
use std::ops::Bound;

use assent_ids::Lsn;

use crate::keyed::{Key, Keyed};
use crate::record::{Effect, Place};

/// The places that snapshots look from, and how many look from each.
#[derive(Debug, Default)]
pub(crate) struct Live {
    at: BTreeMap<Lsn, u32>,
}

impl Live {
    pub(crate) fn take(&mut self, at: Lsn) {
        *self.at.entry(at).or_default() += 1;
    }

    pub(crate) fn release(&mut self, at: Lsn) {
        if let Some(count) = self.at.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&at);
            }
        }
    }

    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.at.first_key_value().map(|(at, _)| *at)
    }

    pub(crate) fn count(&self) -> u64 {
        self.at.values().map(|count| u64::from(*count)).sum()
    }

    /// Whether anybody looks from `from` or later, but before `to`: needs what was valid then.
    fn within(&self, from: Lsn, to: Lsn) -> bool {
        from < to && self.at.range(from..to).next().is_some()
    }
}

#[derive(Clone, Copy, Debug)]
struct Version {
    lsn: Lsn,
    place: Option<Place>,
}

#[derive(Debug)]
struct Slot {
    newest: Version,
    /// Oldest first; empty unless a snapshot needs them.
    older: Vec<Version>,
    /// Whether it stands in `superseded`, once.
    watched: bool,
}

impl Slot {
    /// Keeps only versions that somebody can see; whether anything is left to say about the key.
    fn prune(&mut self, live: &Live) -> bool {
        let mut next = self.newest.lsn;
        for at in (0..self.older.len()).rev() {
            let Some(lsn) = self.older.get(at).map(|version| version.lsn) else { break };
            if !live.within(lsn, next) {
                self.older.remove(at);
            }
            next = lsn;
        }
        // A delete is remembered while somebody looks from before it: his own write of the key must conflict.
        self.newest.place.is_some() || !self.older.is_empty() || live.oldest().is_some_and(|at| at < self.newest.lsn)
    }
}

/// How much the index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) keys: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    pub(crate) versions: u64,
}

/// Versions with the time of each, and where the walk goes on, if it does.
pub(crate) type Chunk = (Vec<(Lsn, Effect)>, Option<(u32, Key)>);

#[derive(Debug, Default)]
pub(crate) struct Index {
    slots: Keyed<Slot>,
    /// Keys to look at again once no snapshot is older than the place.
    superseded: BTreeMap<Lsn, Vec<(u32, Key)>>,
    held: Held,
    older: u64,
    /// The last published entry: where it begins and ends.
    entry: Lsn,
    published: Lsn,
}

impl Index {
    /// An index whose state is that of a place in the log.
    pub(crate) fn starting_at(entry: Lsn, published: Lsn) -> Self {
        Self { entry, published, ..Self::default() }
    }

    /// Everything that ends here or before is in the index, nothing else.
    pub(crate) const fn published(&self) -> Lsn {
        self.published
    }

    /// Where the last published entry begins.
    pub(crate) const fn entry(&self) -> Lsn {
        self.entry
    }

    /// One entry becomes visible.
    pub(crate) fn publish(&mut self, entry: Lsn, end: Lsn, effects: Vec<Effect>, live: &Live) {
        for effect in effects {
            self.apply(end, effect, live);
        }
        self.entry = entry;
        self.published = end;
    }

    /// A version as a checkpoint has it.
    pub(crate) fn load(&mut self, lsn: Lsn, effect: Effect) {
        self.apply(lsn, effect, &Live::default());
    }

    fn apply(&mut self, lsn: Lsn, effect: Effect, live: &Live) {
        let Effect { keyspace, key, place } = effect;
        let version = Version { lsn, place };
        let key_bytes = bytes(key.len());
        let Some(slot) = self.slots.get_mut(keyspace, &key) else {
            if place.is_some() || live.oldest().is_some() {
                self.held.add(key_bytes, place);
                let watched = place.is_none();
                if watched {
                    self.superseded.entry(lsn).or_default().push((keyspace, key.clone()));
                }
                self.slots.insert(keyspace, key, Slot { newest: version, older: Vec::new(), watched });
            }
            return;
        };
        let before = slot.older.len();
        let old = std::mem::replace(&mut slot.newest, version);
        // Two writes of one key in one batch: the last counts, the first never was.
        if old.lsn != lsn && live.within(old.lsn, lsn) {
            slot.older.push(old);
        }
        let stays = slot.prune(live);
        let after = slot.older.len();
        let watch = !slot.watched && (after > 0 || place.is_none());
        slot.watched |= watch;
        self.held.remove(key_bytes, old.place);
        self.held.add(key_bytes, place);
        self.older = self.older + bytes(after) - bytes(before);
        if !stays {
            self.slots.remove(keyspace, &key);
        } else if watch {
            self.superseded.entry(lsn).or_default().push((keyspace, key));
        }
    }

    /// A key now, or as of a place in the log.
    pub(crate) fn find(&self, keyspace: u32, key: &[u8], at: Option<Lsn>) -> Option<Place> {
        visible(self.slots.get(keyspace, key)?, at)?.place
    }

    /// When the newest version of a key was committed.
    pub(crate) fn written(&self, keyspace: u32, key: &[u8]) -> Option<Lsn> {
        self.slots.get(keyspace, key).map(|slot| slot.newest.lsn)
    }

    /// The next keys of a range as of a place, at most `most` of them looked at; where the walk goes on, if it does.
    pub(crate) fn range(
        &self,
        keyspace: u32,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        at: Lsn,
        most: usize,
    ) -> (Vec<(Key, Place)>, Option<Key>) {
        let mut found = Vec::new();
        let mut last = None;
        for (seen, (key, slot)) in self.slots.range(keyspace, from, to).enumerate() {
            if seen == most {
                return (found, last);
            }
            if let Some(place) = visible(slot, Some(at)).and_then(|version| version.place) {
                found.push((key.clone(), place));
            }
            last = Some(key.clone());
        }
        (found, None)
    }

    /// The next live keys of all keyspaces as of a place, with the time of each, for a checkpoint.
    pub(crate) fn after(&self, cursor: Option<&(u32, Key)>, at: Lsn, most: usize) -> Chunk {
        let mut found = Vec::new();
        let mut last = None;
        for (seen, (keyspace, key, slot)) in self.slots.after(cursor).enumerate() {
            if seen == most {
                return (found, last);
            }
            if let Some(Version { lsn, place: Some(place) }) = visible(slot, Some(at)) {
                found.push((*lsn, Effect { keyspace, key: key.clone(), place: Some(*place) }));
            }
            last = Some((keyspace, key.clone()));
        }
        (found, None)
    }

    /// Whether older versions are kept at all.
    pub(crate) fn is_swept(&self) -> bool {
        self.superseded.is_empty()
    }

    /// Drops what the oldest snapshot no longer needs, about `most` keys of it; whether there may be more.
    pub(crate) fn sweep(&mut self, live: &Live, most: usize) -> bool {
        let oldest = live.oldest();
        let mut looked = 0;
        while let Some(first) = self.superseded.first_entry() {
            if oldest.is_some_and(|oldest| oldest < *first.key()) {
                return false;
            }
            if looked >= most {
                return true;
            }
            let keys = first.remove();
            looked += keys.len();
            for (keyspace, key) in keys {
                self.look_again(keyspace, key, live);
            }
        }
        false
    }

    fn look_again(&mut self, keyspace: u32, key: Key, live: &Live) {
        let Some(slot) = self.slots.get_mut(keyspace, &key) else { return };
        let before = slot.older.len();
        let stays = slot.prune(live);
        self.older = self.older + bytes(slot.older.len()) - bytes(before);
        slot.watched = stays && (slot.newest.place.is_none() || !slot.older.is_empty());
        let (watched, newest) = (slot.watched, slot.newest.lsn);
        if watched {
            // Somebody still looks from before the newest version, so this lies behind the oldest snapshot.
            self.superseded.entry(newest).or_default().push((keyspace, key));
        } else if !stays {
            self.slots.remove(keyspace, &key);
        }
    }

    /// How much there is. Versions count the newest of every live key and all older ones.
    pub(crate) const fn held(&self) -> Held {
        Held { versions: self.held.keys + self.older, ..self.held }
    }
}

fn visible(slot: &Slot, at: Option<Lsn>) -> Option<&Version> {
    match at {
        Some(at) if slot.newest.lsn > at => slot.older.iter().rev().find(|version| version.lsn <= at),
        _ => Some(&slot.newest),
    }
}

const fn bytes(length: usize) -> u64 {
    length as u64
}

impl Held {
    fn add(&mut self, key_bytes: u64, place: Option<Place>) {
        if let Some(place) = place {
            self.keys += 1;
            self.key_bytes += key_bytes;
            self.value_bytes += u64::from(place.value_bytes);
        }
    }

    fn remove(&mut self, key_bytes: u64, place: Option<Place>) {
        if let Some(place) = place {
            self.keys -= 1;
            self.key_bytes -= key_bytes;
            self.value_bytes -= u64::from(place.value_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: &mut Index, live: &Live, lsn: u64, key: &str) {
        let place = Place { entry: Lsn(lsn), hash: 0, at: 0, value_bytes: 10, metadata_bytes: 0 };
        let effect = Effect { keyspace: 0, key: key.as_bytes().into(), place: Some(place) };
        index.publish(Lsn(lsn), Lsn(lsn), vec![effect], live);
    }

    fn delete(index: &mut Index, live: &Live, lsn: u64, key: &str) {
        let effect = Effect { keyspace: 0, key: key.as_bytes().into(), place: None };
        index.publish(Lsn(lsn), Lsn(lsn), vec![effect], live);
    }

    fn at(index: &Index, key: &str, at: Option<u64>) -> Option<u64> {
        index.find(0, key.as_bytes(), at.map(Lsn)).map(|place| place.entry.0)
    }

    #[test]
    fn a_snapshot_sees_its_time_and_only_needed_versions_are_kept() {
        let (mut index, mut live) = (Index::default(), Live::default());
        put(&mut index, &live, 1, "k");
        put(&mut index, &live, 2, "k");
        assert_eq!(index.held().versions, 1);
        live.take(Lsn(2));
        put(&mut index, &live, 3, "k");
        put(&mut index, &live, 4, "k");
        delete(&mut index, &live, 5, "k");
        assert_eq!((at(&index, "k", Some(2)), at(&index, "k", Some(5)), at(&index, "k", None)), (Some(2), None, None));
        assert_eq!((index.held().keys, index.held().versions, index.held().value_bytes), (0, 1, 0));
        live.release(Lsn(2));
        assert!(!index.sweep(&live, 100));
        assert_eq!(index.held(), Held::default());
        assert!(index.slots.is_empty() && index.is_swept());
    }

    #[test]
    fn a_delete_is_remembered_while_somebody_looks_from_before_it() {
        let (mut index, mut live) = (Index::default(), Live::default());
        put(&mut index, &live, 1, "other");
        live.take(Lsn(1));
        delete(&mut index, &live, 2, "never there");
        assert_eq!(index.written(0, b"never there"), Some(Lsn(2)));
        live.release(Lsn(1));
        index.sweep(&live, 1);
        assert_eq!(index.written(0, b"never there"), None);
    }

    #[test]
    fn a_long_snapshot_does_not_keep_what_short_ones_saw() {
        let (mut index, mut live) = (Index::default(), Live::default());
        put(&mut index, &live, 1, "hot");
        live.take(Lsn(1));
        for lsn in 2..100 {
            live.take(Lsn(lsn - 1));
            put(&mut index, &live, lsn, "hot");
            live.release(Lsn(lsn - 1));
        }
        assert!(index.held().versions <= 3, "{:?}", index.held());
        assert_eq!(at(&index, "hot", Some(1)), Some(1));
    }
}
