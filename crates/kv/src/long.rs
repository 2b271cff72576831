//! Long values in memory, for a store that is given room for them ([`crate::Config::value_cache_bytes`]): they are read past the system's cache
//! then, which keeps three pages of what a value of two takes, and nothing of one that was just written.
//!
//! ```text
//!   a read   key -> kept, and of the place that the ledger names ? copied : read past the page cache, checked, kept
//!   a put    of a key whose value is kept: the new one is kept in its place, as what will be asked for again
//! ```
//! A value that is kept is found by its key and believed if it is of the place that the ledger says: places are for ever, so what is kept is
//! never wrong, and a snapshot that reads an older one reads it from the disk. Memory is cut into pieces of one length once, and a value takes as many
//! as it needs: nothing is left between values that no other fits.
//!
//! Walk: [`Longs::find`] · [`Longs::keep`] what was read and was right · [`Longs::renewals`] of a batch before it is appended,
//! [`Longs::renew`] once it has a place.
//! Deliberately absent: short values, which are kept beside their rows ([`crate::ledger::Ledger::keep`]), and those that are longer than a piece of a
//! volume: the system's cache has them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use assent_ids::Lsn;
use bytes::BytesMut;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use smallvec::SmallVec;

use crate::ledger::KEPT_BYTES_MAX;
use crate::op::Op;
use crate::record::{Became, Effect, Place};
use crate::values::tried;
use crate::vault::VALUE_PIECE_BYTES;
use crate::{KvError, ValueCache};

/// Longer ones lie in a volume in pieces of so much, and are read as a long file is.
const BYTES_MAX: u32 = 256 << 10;
/// Memory is cut so.
const CUT_BYTES: usize = 2 << 10;
const _: () = assert!(BYTES_MAX as usize == VALUE_PIECE_BYTES, "what a volume has in pieces is not read at once");
/// What a piece costs: itself, and its holder where it waits and where it is used.
const PIECE_COSTS: usize = CUT_BYTES + 2 * size_of::<BytesMut>();
/// What a value costs beside its pieces, in here and in the cache's tables.
const EXTRA_BYTES: usize = 256;
/// Of the memory such a part, or so much, or at least such a part, is that of values that were left and are still copied, and of those that come in their stead.
const RESERVE_PARTS: u64 = 4;
const RESERVE_BYTES: u64 = 1 << 20;
const RESERVE_PARTS_LEAST: u64 = 64;
/// Such a part of the memory is that of what the cache's tables take beside.
const EXTRA_PARTS: u64 = 32;
/// Each part of the cache holds a few of the longest.
const SHARD_BYTES_MIN: u64 = 4 << 20;
const SHARDS_MAX: u64 = 64;
/// Whoever gives pieces back finds one of so many stacks that nobody else has.
const STACKS: usize = 8;
/// So much memory is asked for at a time, which the system gives as it is used and takes back whole: the library for memory asks it for each piece of
/// more than 32 MiB.
const SLAB_BYTES: usize = 64 << 20;

/// A value in memory.
struct Kept {
    entry: u64,
    at: u32,
    hash: u64,
    bytes: usize,
    pieces: Vec<BytesMut>,
    pool: Arc<Pool>,
}

impl Kept {
    fn is_of(&self, place: &Place) -> bool {
        let Self { entry, at, hash, bytes, .. } = *self;
        (entry, at, hash) == (place.entry.0, place.at, place.hash) && u32::try_from(bytes) == Ok(place.value_bytes)
    }

    fn copied(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.bytes);
        for piece in &self.pieces {
            let part = piece.len().min(self.bytes - value.len());
            value.extend_from_slice(piece.get(..part).unwrap_or_default());
        }
        value
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.pool.give_back(&mut self.pieces);
    }
}

/// Pieces that no value has.
struct Pool {
    stacks: [Mutex<Stack>; STACKS],
}

#[derive(Default)]
struct Stack {
    pieces: Vec<BytesMut>,
    /// Memory that was not cut yet, and how many pieces more may be asked for.
    slab: BytesMut,
    left: usize,
}

impl Stack {
    /// As many as there are, until the other has so many.
    fn give(&mut self, taken: &mut Vec<BytesMut>, count: usize) {
        let wanted = count.saturating_sub(taken.len());
        taken.extend(self.pieces.drain(self.pieces.len().saturating_sub(wanted)..));
        while taken.len() < count {
            if self.slab.is_empty() {
                let pieces = self.left.min(SLAB_BYTES / CUT_BYTES);
                if pieces == 0 {
                    return;
                }
                self.left -= pieces;
                self.slab = BytesMut::zeroed(pieces * CUT_BYTES);
            }
            taken.push(self.slab.split_to(CUT_BYTES));
        }
    }
}

impl Pool {
    fn new(pieces: usize) -> Self {
        let stack = |at| Stack { left: pieces / STACKS + usize::from(at < pieces % STACKS), ..Stack::default() };
        Self { stacks: std::array::from_fn(|at| Mutex::new(stack(at))) }
    }

    /// So many, if there are as many on stacks that nobody has just now.
    fn take(&self, count: usize, first: usize) -> Option<Vec<BytesMut>> {
        let mut taken = Vec::with_capacity(count);
        for at in 0..STACKS {
            self.tried(first.wrapping_add(at)).into_iter().for_each(|mut stack| stack.give(&mut taken, count));
            if taken.len() == count {
                return Some(taken);
            }
        }
        self.give_back(&mut taken);
        None
    }

    fn give_back(&self, pieces: &mut Vec<BytesMut>) {
        let first = pieces.first().map_or(0, |piece| piece.as_ptr().addr() / CUT_BYTES);
        let free = (0..STACKS).find_map(|at| self.tried(first.wrapping_add(at)));
        // It is had for as long as it takes to move a few holders.
        let stack = free.or_else(|| Some(self.stack(first)?.lock().unwrap_or_else(PoisonError::into_inner)));
        stack.into_iter().for_each(|mut stack| stack.pieces.append(pieces));
    }

    fn stack(&self, at: usize) -> Option<&Mutex<Stack>> {
        self.stacks.get(at % STACKS)
    }

    fn tried(&self, at: usize) -> Option<MutexGuard<'_, Stack>> {
        self.stack(at)?.try_lock().ok()
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<u64, Arc<Kept>> for ByBytes {
    fn weight(&self, _: &u64, kept: &Arc<Kept>) -> u64 {
        u64::try_from(kept.pieces.len() * PIECE_COSTS + EXTRA_BYTES).unwrap_or(u64::MAX)
    }
}

/// Long values in memory.
pub(crate) struct Longs {
    cache: Cache<u64, Arc<Kept>, ByBytes, RandomState>,
    /// Nobody outside knows which keys have one name.
    names: RandomState,
    pool: Arc<Pool>,
    bytes_max: u32,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Puts of a batch whose keys have kept values: which of its operations, and where they will stand in an entry that has no place yet.
pub(crate) type Renewals = SmallVec<[(usize, Place); 1]>;

impl Longs {
    /// Within so many bytes; none of 0.
    ///
    /// # Errors
    /// [`KvError::Config`] if the cache's library refuses the number.
    pub(crate) fn new(bytes: u64) -> Result<Option<Self>, KvError> {
        if bytes == 0 {
            return Ok(None);
        }
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let pieces_in = |bytes: u64| bytes / u64::try_from(PIECE_COSTS).unwrap_or(u64::MAX);
        let usable = bytes - bytes / EXTRA_PARTS;
        let reserve = (bytes / RESERVE_PARTS).min(RESERVE_BYTES.max(bytes / RESERVE_PARTS_LEAST));
        // More than all that is kept can have: what comes finds room before anything has left for it.
        let pieces = pieces_in(usable);
        let longest = count(pieces_in(reserve)).saturating_mul(CUT_BYTES);
        let bytes_max = BYTES_MAX.min(u32::try_from(longest).unwrap_or(u32::MAX));
        let options = OptionsBuilder::new()
            .shards(1 << (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).ilog2())
            .estimated_items_capacity(count((pieces / 4).max(1)))
            .weight_capacity(usable - reserve)
            .build();
        let rule = "a number of bytes that memory can hold";
        let options = options.map_err(|_| KvError::Config { name: "value_cache_bytes", value: bytes, rule })?;
        let cache = Cache::with_options(options, ByBytes, RandomState::new(), DefaultLifecycle::default());
        let pool = Arc::new(Pool::new(count(pieces)));
        let (names, hits, misses) = (RandomState::new(), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Some(Self { cache, names, pool, bytes_max, hits, misses }))
    }

    /// Whether it is about values of this length.
    pub(crate) const fn takes(&self, value_bytes: u32) -> bool {
        KEPT_BYTES_MAX < value_bytes && value_bytes <= self.bytes_max
    }

    /// Two keys of one name are told apart by their places.
    fn name(&self, keyspace: u32, key: &[u8]) -> u64 {
        self.names.hash_one((keyspace, key))
    }

    /// The value of a place, if it is kept.
    pub(crate) fn find(&self, keyspace: u32, key: &[u8], place: &Place) -> Option<Vec<u8>> {
        if !self.takes(place.value_bytes) {
            return None;
        }
        let kept = tried(|| self.cache.try_get(&self.name(keyspace, key))).flatten();
        let kept = kept.filter(|kept| kept.is_of(place));
        let count = if kept.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        kept.map(|kept| kept.copied())
    }

    /// The same for who reads everything once: it counts for nothing.
    pub(crate) fn find_once(&self, keyspace: u32, key: &[u8], place: &Place) -> Option<Vec<u8>> {
        let kept = self.takes(place.value_bytes).then(|| self.peek(self.name(keyspace, key))).flatten();
        kept.filter(|kept| kept.is_of(place)).map(|kept| kept.copied())
    }

    /// Keeps a value that was right, unless a newer one of its key is kept.
    pub(crate) fn keep(&self, keyspace: u32, key: &[u8], place: &Place, value: &[u8]) {
        let name = self.name(keyspace, key);
        let is_newer = |kept: Arc<Kept>| kept.entry > place.entry.0;
        if !self.takes(place.value_bytes) || self.peek(name).is_some_and(is_newer) {
            return;
        }
        let first = usize::try_from(name % 64).unwrap_or(0);
        let Some(mut pieces) = self.pool.take(value.len().div_ceil(CUT_BYTES), first) else { return };
        for (piece, part) in pieces.iter_mut().zip(value.chunks(CUT_BYTES)) {
            piece.get_mut(..part.len()).into_iter().for_each(|piece| piece.copy_from_slice(part));
        }
        let Place { entry, at, hash, .. } = *place;
        let kept = Kept { entry: entry.0, at, hash, bytes: value.len(), pieces, pool: Arc::clone(&self.pool) };
        // Who is in there now is not waited for.
        _ = self.cache.try_insert(name, Arc::new(kept));
    }

    fn peek(&self, name: u64) -> Option<Arc<Kept>> {
        self.cache.try_peek(&name).ok().flatten()
    }

    /// Which of these operations put a value in the place of one that is kept.
    pub(crate) fn renewals(&self, ops: &[Op<'_>], effects: &[Effect]) -> Renewals {
        let renewed = ops.iter().zip(effects).enumerate().filter_map(|(number, (op, effect))| {
            let (Op::Put { keyspace, key, .. }, Became::Value { place, .. }) = (op, &effect.became) else {
                return None;
            };
            let is_kept = || self.peek(self.name(*keyspace, key)).is_some();
            (self.takes(place.value_bytes) && is_kept()).then_some((number, *place))
        });
        renewed.collect()
    }

    /// Keeps them in their stead, now that their entry has a place: visible or not yet, it is theirs alone.
    pub(crate) fn renew(&self, ops: &[Op<'_>], renewals: &Renewals, entry: Lsn) {
        for (number, place) in renewals {
            if let Some(Op::Put { keyspace, key, value, .. }) = ops.get(*number) {
                self.keep(*keyspace, key, &Place { entry, ..*place }, value);
            }
        }
    }

    pub(crate) fn facts(&self) -> ValueCache {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ValueCache { bytes: self.cache.weight(), hits: count(&self.hits), misses: count(&self.misses) }
    }
}

impl fmt::Debug for Longs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Longs({:?})", self.facts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(entry: u64, value: &[u8]) -> Place {
        let value_bytes = u32::try_from(value.len()).unwrap();
        Place { entry: Lsn(entry), hash: entry, at: 24, value_bytes, metadata_bytes: 0, modified: 0, expiry: 0 }
    }

    fn free(pool: &Pool) -> usize {
        let stacks = pool.stacks.iter().map(|stack| stack.lock().unwrap());
        stacks.map(|stack| stack.pieces.len() + stack.slab.len() / CUT_BYTES + stack.left).sum()
    }

    fn used(longs: &Longs) -> usize {
        longs.cache.iter().map(|(_, kept)| kept.pieces.len()).sum()
    }

    #[test]
    fn whatever_comes_the_memory_is_what_was_given_and_what_comes_last_is_taken() {
        for (budget, takes) in [
            (1, 0),
            (4096, 0),
            (33_792, 8192),
            (64 << 10, 14_336),
            (1 << 20, 253_952),
            (5 << 20, 262_144),
            (40 << 20, 262_144),
        ] {
            let longs = Longs::new(budget).unwrap().unwrap();
            let longest = (4097..=BYTES_MAX).rev().find(|bytes| longs.takes(*bytes)).unwrap_or(0);
            assert_eq!(longest, takes, "{budget}");
            let (pieces, mut rng) = (free(&longs.pool), budget);
            let mut taken = std::collections::BTreeMap::new();
            for number in 0..4000_u64 {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1);
                let lengths = [4096, 4097, 8192, 10_000, 40_000, 253_952, 262_144, 262_145];
                let length = lengths[usize::try_from(rng >> 61).unwrap()];
                let value = vec![u8::try_from(number % 251).unwrap(); length];
                let (key, place) = ((number % 997).to_le_bytes(), place(number + 1, &value));
                longs.keep(1, &key, &place, &value);
                let found = longs.find(1, &key, &place);
                assert!(found.as_ref().is_none_or(|found| *found == value), "{budget} {number}");
                *taken.entry(length).or_insert(false) |= number >= 3000 && found.is_some();
                assert!(longs.facts().bytes <= budget, "{budget} {number}: {:?}", longs.facts());
                assert_eq!(free(&longs.pool) + used(&longs), pieces, "{budget} {number}");
            }
            for (length, is_taken) in taken {
                let takes = longs.takes(u32::try_from(length).unwrap());
                assert_eq!(is_taken, takes, "{budget}: {length}");
            }
        }
        assert!(Longs::new(0).unwrap().is_none());
        assert!(Longs::new(1 << 40).is_ok(), "nothing of it is asked for before it is used");
    }

    #[test]
    fn what_is_kept_is_of_its_place_alone_and_an_older_one_does_not_take_the_place_of_a_newer() {
        let longs = Longs::new(1 << 20).unwrap().unwrap();
        let value = vec![7; 5000];
        let (older, newer) = (place(3, &value), place(5, &value));
        longs.keep(1, b"key", &newer, &value);
        longs.keep(1, b"key", &older, &value);
        let find = |keyspace, place: &Place| longs.find(keyspace, b"key", place).is_some();
        assert_eq!([find(1, &newer), find(1, &older), find(2, &newer)], [true, false, false]);
        for other in [
            Place { at: 25, ..newer },
            Place { hash: 6, ..newer },
            Place { value_bytes: 5001, ..newer },
            Place { entry: Lsn(6), ..newer },
        ] {
            assert!(!find(1, &other) && longs.find_once(1, b"key", &other).is_none(), "{other:?}");
        }
        let facts = longs.facts();
        assert!((facts.hits, facts.misses) == (1, 6) && longs.find_once(1, b"key", &newer) == Some(value));
        assert_eq!(longs.facts(), facts);
    }

    #[test]
    fn who_finds_too_few_pieces_leaves_them_there() {
        let pool = Pool::new(20);
        let mut taken = pool.take(13, 5).unwrap();
        assert!(pool.take(8, 0).is_none() && free(&pool) == 7);
        let rest = pool.take(7, 63).unwrap();
        assert_eq!((rest.len(), free(&pool)), (7, 0));
        pool.give_back(&mut taken);
        assert_eq!((taken.len(), free(&pool)), (0, 13));
        // Whoever has a stack is not waited for by who takes, and what he has is not there for now.
        let _had = pool.stacks[0].lock().unwrap();
        let all: usize = (1..STACKS).map(|at| pool.stacks[at].lock().unwrap().pieces.len()).sum();
        assert_eq!(pool.take(13, 0).is_some(), all == 13);
    }
}
