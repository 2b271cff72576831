//! Where the newest entry of each key of a memtable stands: a table of hashes, read by anybody while one writer adds to it.
//!
//! ```text
//!   a slot   | 32 bits of the key's hash | place of its newest entry |    zero: free, and nothing stands behind it
//! ```
//! A skip list of a hundred thousand keys is some twenty steps deep, each a miss of the processor's cache, and most look-ups are
//! for keys that it does not have. Here both are about one.
//!
//! The keys are a client's: a table hashes them with a secret of its own. Of a hash that everybody knows a client can write down keys that all
//! have the same, and every look-up and every write would walk through the row of them; no salt behind the hash would tell them apart.
//!
//! Walk: [`Places::put`] · [`Places::find`]. A table that is half full is laid anew, twice as large, and the old one stays for
//! who still looks at it. The first one is as large as it will have to be, where that can be guessed: who writes waits while a table is laid.
//! Deliberately absent: removal, order; they are the skip list's and the memtable's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;

/// Slots of the first table.
const SLOTS_FIRST: usize = 1 << 9;
/// The last one has two thousand million slots.
const TABLES_MAX: usize = 23;
/// What a key takes at most of a table that is laid once for all of its keys: four slots.
const KEY_BYTES: u64 = 32;
/// Places beyond these do not fit a slot.
const PLACE_MAX: u64 = u32::MAX as u64;

type Table = Box<[AtomicU64]>;

#[derive(Debug)]
pub(crate) struct Places {
    /// Nobody else's.
    secret: RandomState,
    tables: [OnceLock<Table>; TABLES_MAX],
    /// The table that counts.
    current: AtomicUsize,
    keys: AtomicUsize,
    /// Some entry is not here: whoever looks must look elsewhere.
    has_holes: AtomicBool,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its newest entry stands here.
    At(u64),
    /// It has none.
    Absent,
    /// Nothing is known.
    Unknown,
}

impl Places {
    /// No places yet, and a first table that holds so many without being laid anew.
    pub(crate) fn for_keys(keys: u64) -> Self {
        let holds = |at: &usize| keys < u64::try_from(slots(*at) / 2).unwrap_or(u64::MAX);
        let first = (0..TABLES_MAX).find(holds).unwrap_or(TABLES_MAX - 1);
        Self {
            secret: RandomState::new(),
            tables: Default::default(),
            current: AtomicUsize::new(first),
            keys: AtomicUsize::new(0),
            has_holes: AtomicBool::new(false),
        }
    }

    /// How many keys have a place.
    pub(crate) fn keys(&self) -> u64 {
        u64::try_from(self.keys.load(Ordering::Relaxed)).unwrap_or(u64::MAX)
    }

    /// Of a key, in this table.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.secret.hash_one(key)
    }

    /// Where the key of this hash stands, of which `is_it` is true.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u64) -> bool) -> Known {
        // A key that is missing, or has newer entries than the one that stands here: nobody can tell which.
        if self.has_holes.load(Ordering::Acquire) {
            return Known::Unknown;
        }
        let Some(table) = self.table() else { return Known::Absent };
        match probe(table, hash, is_it) {
            Some((_, 0)) | None => Known::Absent,
            Some((_, slot)) => Known::At(slot & PLACE_MAX),
        }
    }

    /// Looks at the slots where keys of these hashes would be. Nothing is found by it: they are in the processor's cache then.
    pub(crate) fn fetch(&self, hashes: impl Iterator<Item = u64>) {
        let Some(table) = self.table() else { return };
        let slots = hashes.filter_map(|hash| table.get(first(table, hash))).map(|slot| slot.load(Ordering::Relaxed));
        std::hint::black_box(slots.fold(0, |all, slot| all ^ slot));
    }

    /// The key of this hash stands here from now on; `is_it` says which slot of the same hash is that key's. `takes_over` is told the
    /// place where it stood (0: nowhere), and may leave it so. One writer at a time.
    pub(crate) fn put(&self, hash: u64, place: u64, is_it: impl Fn(u64) -> bool, takes_over: impl FnOnce(u64) -> bool) {
        let found = self.roomy().filter(|_| place <= PLACE_MAX).and_then(|table| probe(table, hash, is_it));
        let Some((slot, before)) = found else {
            self.has_holes.store(true, Ordering::Release);
            return;
        };
        if !takes_over(before & PLACE_MAX) {
            return;
        }
        if before == 0 {
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
        // Release: who finds the place by this slot finds the entry's words.
        slot.store(tag(hash) | place, Ordering::Release);
    }

    /// What its keys are counted as against a budget: never in a leap, as a table comes. Those that were laid before one that was not
    /// large enough come beside it.
    pub(crate) fn counted_bytes(&self) -> u64 {
        self.keys() * KEY_BYTES
    }

    /// Bytes of the process that it holds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots: usize = self.tables.iter().filter_map(OnceLock::get).map(|table| table.len()).sum();
        u64::try_from(slots * size_of::<u64>()).unwrap_or(u64::MAX)
    }

    fn table(&self) -> Option<&Table> {
        self.tables.get(self.current.load(Ordering::Acquire)).and_then(OnceLock::get)
    }

    /// The table that counts, less than half full: a new one if it must be. None if there is none larger.
    fn roomy(&self) -> Option<&Table> {
        let current = self.current.load(Ordering::Relaxed);
        let table = self.tables.get(current)?.get_or_init(|| empty(slots(current)));
        if 2 * self.keys.load(Ordering::Relaxed) < table.len() {
            return Some(table);
        }
        let larger = self.tables.get(current + 1)?.get_or_init(|| {
            let larger = empty(slots(current + 1));
            for slot in table.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|slot| *slot != 0) {
                // No two slots are of one key: the first free one is its own.
                if let Some((free, _)) = probe(&larger, slot, |_| false) {
                    free.store(slot, Ordering::Relaxed);
                }
            }
            larger
        });
        self.current.store(current + 1, Ordering::Release);
        Some(larger)
    }
}

/// Of the table at this place.
const fn slots(at: usize) -> usize {
    SLOTS_FIRST << at
}

fn empty(slots: usize) -> Table {
    (0..slots).map(|_| AtomicU64::new(0)).collect()
}

const fn tag(hash: u64) -> u64 {
    hash & !PLACE_MAX
}

/// Where to look for it first: the uppermost bits, those that chance decides.
fn first(table: &Table, hash: u64) -> usize {
    usize::try_from(hash >> (64 - table.len().ilog2())).unwrap_or(0) & (table.len() - 1)
}

/// The slot of a key, or the free one that would be it; none if all are taken by others.
fn probe(table: &Table, hash: u64, is_it: impl Fn(u64) -> bool) -> Option<(&AtomicU64, u64)> {
    let mask = table.len() - 1;
    let mut at = first(table, hash);
    for _ in 0..table.len() {
        let slot = table.get(at)?;
        let value = slot.load(Ordering::Acquire);
        if value == 0 || (tag(value) == tag(hash) && is_it(value & PLACE_MAX)) {
            return Some((slot, value));
        }
        at = (at + 1) & mask;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn each_key_is_found_at_its_newest_place_however_the_table_grows() {
        for places in [0, 5_000, 20_000].map(Places::for_keys) {
            assert_eq!((places.find(7, |_| true), places.memory_bytes()), (Known::Absent, 0));
            // A place is its key in tens, and a version.
            let is = |key: u64| move |place: u64| place / 10 == key;
            for key in 1..20_000 {
                places.put(spread(key), key * 10, is(key), |before| before == 0);
            }
            for key in (1..20_000).step_by(3) {
                places.put(spread(key), key * 10 + 1, is(key), |before| before == key * 10);
            }
            for key in 1..20_000 {
                let newest = key * 10 + u64::from(key % 3 == 1);
                assert_eq!(places.find(spread(key), is(key)), Known::At(newest));
            }
            assert_eq!(places.find(spread(20_000), is(20_000)), Known::Absent);
            let bytes = places.memory_bytes();
            assert!((2 * 8 * 20_000..120 * 20_000).contains(&bytes), "{bytes}");
            assert_eq!((places.keys(), places.counted_bytes()), (19_999, 19_999 * 32));
        }
        let exact = Places::for_keys(20_000);
        exact.put(1, 1, |_| true, |_| true);
        let bytes = exact.memory_bytes();
        (2..20_000).for_each(|key| exact.put(spread(key), key, |_| false, |_| true));
        assert_eq!((bytes, exact.memory_bytes()), (bytes, bytes), "it was laid once");
        assert!(bytes <= exact.counted_bytes() + 32, "{bytes}");
    }

    /// XXH3 of 17 to 32 bytes multiplies the last eight of them by those before, which may be what takes all of its secret away.
    #[test]
    fn keys_that_have_one_hash_by_a_function_that_everybody_knows_stand_in_no_row() {
        let key = |number: u64| {
            [&b"twelve bytes"[..], &[0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb], &number.to_le_bytes()].concat()
        };
        let places = Places::for_keys(0);
        for number in 1..20_000 {
            assert_eq!(crate::filter::hash(&key(number)), crate::filter::hash(&key(0)), "else this says nothing");
            places.put(places.hash(&key(number)), number, |place| place == number, |_| true);
        }
        let table = places.table().unwrap();
        let rows = table.split(|slot| slot.load(Ordering::Relaxed) == 0);
        let longest = rows.map(<[AtomicU64]>::len).max().unwrap();
        assert!(longest < 200, "{longest}");
        assert_eq!(places.find(places.hash(&key(77)), |place| place == 77), Known::At(77));
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let places = Places::for_keys(0);
        for key in 1..100 {
            places.put(5 << 40, key, |place| place == key, |_| true);
        }
        assert_eq!(places.find(5 << 40, |place| place == 77), Known::At(77));
        assert_eq!(places.find(5 << 40, |place| place == 100), Known::Absent);
    }

    #[test]
    fn what_does_not_take_over_changes_nothing_and_a_place_that_fits_no_slot_makes_everything_unknown() {
        let places = Places::for_keys(0);
        places.put(spread(1), 10, |_| true, |_| true);
        places.put(spread(1), 9, |_| true, |before| before != 10);
        assert_eq!(places.find(spread(1), |_| true), Known::At(10));
        places.put(spread(1), PLACE_MAX + 1, |_| true, |_| true);
        assert_eq!(places.find(spread(1), |_| true), Known::Unknown, "not the older one");
        assert_eq!(Places::for_keys(0).find(1, |_| true), Known::Absent);
    }
}
