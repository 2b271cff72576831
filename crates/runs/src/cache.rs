//! What is kept of run files: blocks, blocks of indexes and filters that were read, within a budget of bytes; rows that were found (`memo`),
//! within one of their own; and the files that are open.
//!
//! Walk: a piece is known by its run and its place · [`Cache::get`], and after a miss [`Cache::insert`] · what every look-up asks for a run
//! holds itself, within the same budget ([`Cache::take_out`], [`Cache::put_back`]) · a row by the hash of its key: [`Cache::row`], and
//! [`Cache::keep_row`] once [`Cache::admits_row`].
//! Deliberately absent: waiting for another reader's miss. Two that miss at once both read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use quick_cache::sync::{Cache as Weighed, DefaultLifecycle};
use quick_cache::{Options, OptionsBuilder, Weighter};

use crate::block::Block;
use crate::doorkeeper::{Doorkeeper, Full};
use crate::filter::{Filter, mix};
use crate::memo::Row;
use crate::open_runs::OpenRuns;
use crate::run::RunId;
use crate::{Config, RunsError};

/// A share of the cache with a lock of its own is at least this large: a filter of a large run fits.
const SHARD_BYTES_MIN: u64 = 4 << 20;
/// One of rows.
const ROWS_SHARD_BYTES_MIN: u64 = 256 << 10;
const SHARDS_MAX: u64 = 64;
/// What an item costs beside its bytes: its slot, key and reference counts.
const ITEM_BYTES: usize = 96;
/// About what a row takes with all that.
const ROW_BYTES: u64 = 256;

/// A piece of a run file, as it is used.
#[derive(Clone, Debug)]
pub(crate) enum Cached {
    /// Entries, or places of an index.
    Block(Arc<Block>),
    /// The run's filter.
    Filter(Arc<Filter>),
}

type Key = (u64, u64);

/// So often a look tries a part of the cache that somebody changes: for about as long as that takes who has a core.
const TRIES: u32 = 32;

/// Somebody changes the part of the cache that was looked at, and that lasts. Who lost his core in there gets it back when it is his turn
/// again, behind all threads that compute, and until then every reader would stand behind him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// What a look finds, if nobody is in its way for long.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Result<T, Busy> {
    for _ in 0..TRIES {
        if let Some(found) = look() {
            return Ok(found);
        }
        std::hint::spin_loop();
    }
    Err(Busy)
}

#[derive(Clone, Debug)]
struct Bytes;

impl Weighter<Key, Cached> for Bytes {
    fn weight(&self, _: &Key, cached: &Cached) -> u64 {
        let bytes = match cached {
            Cached::Block(block) => block.bytes(),
            Cached::Filter(filter) => filter.bytes(),
        };
        weight(bytes)
    }
}

impl Weighter<u64, Row> for Bytes {
    fn weight(&self, _: &u64, row: &Row) -> u64 {
        weight(row.bytes())
    }
}

fn weight(bytes: usize) -> u64 {
    u64::try_from(bytes + ITEM_BYTES).unwrap_or(u64::MAX)
}

/// Readers count in several places, each on lines of the processor's cache of its own: one look-up asks for some six pieces, and two threads
/// that count all of theirs in one place wait for each other.
const COUNTS: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct Count {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The pieces of all runs of a map, and rows that were found in it.
pub(crate) struct Cache {
    pieces: Weighed<Key, Cached, Bytes, RandomState>,
    /// A piece that has more would take the room of too many.
    piece_max: AtomicU64,
    /// Hashed with a secret: hashes of keys are a client's.
    rows: Weighed<u64, Row, Bytes, RandomState, Full>,
    doorkeeper: Doorkeeper,
    counts: [Count; COUNTS],
    /// The budget, and what of it runs hold.
    shares: Mutex<Shares>,
    /// The files that the pieces come from.
    pub(crate) open: OpenRuns,
}

#[derive(Clone, Copy, Debug)]
struct Shares {
    budget: u64,
    rows: u64,
    held: u64,
}

/// What a cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheFacts {
    /// Pieces that were there.
    pub(crate) hits: u64,
    /// Pieces that were not.
    pub(crate) misses: u64,
    /// What it holds.
    pub(crate) bytes: u64,
}

impl Cache {
    /// A map's cache, empty.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub(crate) fn of(config: &Config) -> Result<Arc<Self>, RunsError> {
        let Config { cache_bytes, rows_bytes, block_bytes, open_runs_max, .. } = *config;
        Self::new(cache_bytes, rows_bytes, block_bytes, open_runs_max)
    }

    /// An empty cache.
    ///
    /// # Errors
    /// `Config`, if the library refuses the numbers.
    pub(crate) fn new(
        cache_bytes: u64,
        rows_bytes: u64,
        block_bytes: u32,
        open_runs_max: u32,
    ) -> Result<Arc<Self>, RunsError> {
        let of_pieces = options("cache_bytes", cache_bytes, SHARD_BYTES_MIN, block_bytes.into())?;
        let pieces = Weighed::with_options(of_pieces, Bytes, RandomState::new(), DefaultLifecycle::default());
        // Twice as many as there will be: it may get more later.
        let doorkeeper = Doorkeeper::new(rows_bytes / (ROW_BYTES / 2));
        let of_rows = options("rows_bytes", rows_bytes, ROWS_SHARD_BYTES_MIN, ROW_BYTES)?;
        let rows = Weighed::with_options(of_rows, Bytes, RandomState::new(), doorkeeper.full());
        rows.set_capacity(rows_bytes.saturating_sub(doorkeeper.bytes()));
        let open = OpenRuns::new(open_runs_max);
        let shares = Mutex::new(Shares { budget: cache_bytes, rows: rows_bytes, held: 0 });
        let piece_max = AtomicU64::new(pieces.shard_capacity() / 2);
        Ok(Arc::new(Cache { pieces, piece_max, rows, doorkeeper, counts: Default::default(), shares, open }))
    }

    /// Takes so many bytes out of the budget for a run that holds them itself; not where less than half of it would be left.
    pub(crate) fn take_out(&self, bytes: u64) -> bool {
        let mut shares = self.shares();
        let held = shares.held.saturating_add(bytes);
        let fits = held <= shares.budget / 2;
        if fits {
            shares.held = held;
            self.resize(shares.budget - held);
        }
        fits
    }

    /// And back.
    pub(crate) fn put_back(&self, bytes: u64) {
        let mut shares = self.shares();
        shares.held = shares.held.saturating_sub(bytes);
        self.resize(shares.budget.saturating_sub(shares.held));
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece, if it is there. Only what was looked for counts as found or missing.
    pub(crate) fn get(&self, id: RunId, offset: u64) -> Result<Option<Cached>, Busy> {
        let found = soon(|| self.pieces.try_get(&(id.0, offset)).ok())?;
        self.count(id.0 ^ offset, found.is_some());
        Ok(found)
    }

    /// What happens while somebody changes the part of the cache that a piece stands in, which must be there.
    #[cfg(test)]
    pub(crate) fn meanwhile<T>(&self, id: RunId, offset: u64, then: impl FnOnce() -> T) -> Option<T> {
        let (mut then, mut seen) = (Some(then), None);
        _ = self.pieces.remove_if(&(id.0, offset), |_| {
            seen = then.take().map(|then| then());
            false
        });
        seen
    }

    /// Keeps a piece, if it fits and nobody is in that part of the cache now; others may go. Who waited there would wait for whoever lost
    /// its core in it, for a turn of all threads, and every reader behind.
    pub(crate) fn insert(&self, id: RunId, offset: u64, piece: Cached) {
        _ = self.pieces.try_insert((id.0, offset), piece);
    }

    /// The row of a key of this hash, if it is there and can be looked for: it is read where it is not.
    pub(crate) fn row(&self, hash: u64) -> Option<Row> {
        let row = soon(|| self.rows.try_get(&hash).ok()).ok().flatten()?;
        self.count(hash, true);
        Some(row)
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> u64 {
        u64::try_from(self.rows.len()).unwrap_or(u64::MAX)
    }

    /// Takes all rows away but those of which it is true.
    pub(crate) fn retain_rows(&self, is_kept: impl Fn(&Row) -> bool) {
        self.rows.retain(|_, row| is_kept(row));
    }

    /// Whether a row that is not there should be: while there is room each, and then those that are asked for a second time.
    pub(crate) fn admits_row(&self, hash: u64) -> bool {
        self.doorkeeper.admits(hash)
    }

    /// Keeps a row, as [`Cache::insert`] does a piece.
    pub(crate) fn keep_row(&self, hash: u64, row: Row) {
        _ = self.rows.try_insert(hash, row);
    }

    /// Takes a row away, if that is so of it.
    pub(crate) fn drop_row(&self, hash: u64, is_over: impl Fn(&Row) -> bool) {
        if self.rows.contains_key(&hash) {
            _ = self.rows.remove_if(&hash, is_over);
        }
    }

    fn count(&self, place: u64, is_hit: bool) {
        let place = usize::try_from(mix(place)).unwrap_or(0) % COUNTS;
        if let Some(Count { hits, misses }) = self.counts.get(place) {
            let count = if is_hit { hits } else { misses };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on it holds no more than so many bytes, with what runs hold; those stay. And so many of rows.
    pub(crate) fn hold(&self, bytes: u64, rows_bytes: u64) {
        let mut shares = self.shares();
        let (grows, rows_grow) = (bytes > shares.budget, rows_bytes > shares.rows);
        shares.rows = rows_bytes;
        let hold_rows = || {
            self.rows.set_capacity(rows_bytes.saturating_sub(self.doorkeeper.bytes()));
            if rows_grow {
                self.doorkeeper.there_is_room();
            }
        };
        // Who gives goes first: together they never have more.
        if grows {
            hold_rows();
        }
        shares.budget = bytes;
        self.resize(bytes.saturating_sub(shares.held));
        if !grows {
            hold_rows();
        }
    }

    /// Whether a piece of so many bytes would be kept, and leave room for others.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        bytes <= self.piece_max.load(Ordering::Relaxed)
    }

    /// Pieces may have so many bytes. What each may have stands here: to ask the library is to wait for whoever changes the first part.
    fn resize(&self, bytes: u64) {
        self.pieces.set_capacity(bytes);
        self.piece_max.store(self.pieces.shard_capacity() / 2, Ordering::Relaxed);
    }

    /// What it did.
    pub(crate) fn facts(&self) -> CacheFacts {
        let sum =
            |of: fn(&Count) -> &AtomicU64| self.counts.iter().map(|count| of(count).load(Ordering::Relaxed)).sum();
        let bytes = self.pieces.weight() + self.shares().held + self.rows.weight() + self.doorkeeper.bytes();
        CacheFacts { hits: sum(|count| &count.hits), misses: sum(|count| &count.misses), bytes }
    }
}

/// Of a cache of so many bytes, in shares of no fewer than that, of items of about so many.
fn options(name: &'static str, bytes: u64, shard_bytes: u64, item_bytes: u64) -> Result<Options, RunsError> {
    let shards = (bytes / shard_bytes).clamp(1, SHARDS_MAX);
    let items = (bytes / item_bytes.max(1)).max(1);
    let options = OptionsBuilder::new()
        .shards(1 << usize::try_from(shards.ilog2()).unwrap_or(0))
        .estimated_items_capacity(usize::try_from(items).unwrap_or(usize::MAX))
        .weight_capacity(bytes)
        .build();
    options.map_err(|_| RunsError::Config { name, value: bytes, rule: "a number of bytes that memory can hold" })
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("facts", &self.facts()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memo::Kept;

    fn piece(bytes: usize) -> Cached {
        let mut builder = crate::block::BlockBuilder::default();
        builder.push(&crate::Entry { key: b"k", seq: 1, value: Some(&vec![7; bytes]) });
        Cached::Block(Arc::new(Block::parse(&builder.finish()).unwrap()))
    }

    fn is_there(cache: &Cache, run: u64, offset: u64) -> bool {
        cache.get(RunId(run), offset).unwrap().is_some()
    }

    #[test]
    fn it_keeps_what_fits_and_never_more_than_its_bytes() {
        let cache = Cache::new(1 << 20, 0, 4096, 64).unwrap();
        for offset in 0..1_000 {
            cache.insert(RunId(1), offset, piece(4000));
            assert!(cache.facts().bytes <= 1 << 20, "{:?}", cache.facts());
        }
        assert!(cache.facts().bytes > 1 << 19, "{:?}", cache.facts());
        let kept = (0..1_000).filter(|offset| is_there(&cache, 1, *offset)).count();
        assert!((100..300).contains(&kept), "{kept} pieces of 4,000 bytes");
        assert!(!is_there(&cache, 2, 999), "another run's piece is another one");
        let facts = cache.facts();
        cache.hold(1 << 18, 0);
        assert!(cache.facts().bytes <= 1 << 18, "{:?}", cache.facts());
        assert_eq!((facts.hits, facts.misses), (u64::try_from(kept).unwrap(), u64::try_from(1_001 - kept).unwrap()));
    }

    #[test]
    fn what_runs_hold_comes_out_of_the_same_budget_and_is_never_more_than_half_of_it() {
        let cache = Cache::new(1 << 20, 0, 4096, 64).unwrap();
        (0..1_000).for_each(|offset| cache.insert(RunId(1), offset, piece(4000)));
        assert!(cache.take_out(300 << 10) && cache.take_out(212 << 10));
        assert!(!cache.take_out(1), "one beyond half");
        assert!(cache.facts().bytes <= 1 << 20 && cache.pieces.weight() <= 1 << 19, "{:?}", cache.facts());
        cache.hold(600 << 10, 0);
        assert!(cache.facts().bytes <= 600 << 10, "{:?}", cache.facts());
        cache.put_back(512 << 10);
        (0..1_000).for_each(|offset| cache.insert(RunId(1), offset, piece(4000)));
        assert!((500 << 10..=600 << 10).contains(&cache.facts().bytes), "{:?}", cache.facts());
    }

    fn row(beside: usize) -> Row {
        Row::lay(&Kept::of(b"k", 1, b"v").with(&vec![7; beside])).unwrap()
    }

    #[test]
    fn rows_have_bytes_of_their_own_and_what_is_asked_for_once_pushes_nobody_out() {
        let cache = Cache::new(1 << 20, 1 << 20, 4096, 64).unwrap();
        (0..1_000).for_each(|offset| cache.insert(RunId(1), offset, piece(4000)));
        let pieces = cache.facts().bytes;
        let ask = |hash: u64| {
            let hash = mix(hash);
            let is_there = cache.row(hash).is_some();
            if !is_there && cache.admits_row(hash) {
                cache.keep_row(hash, row(100));
            }
            assert!(cache.facts().bytes <= 2 << 20, "{:?}", cache.facts());
            is_there
        };
        // More than fit: the first ones are let in at once.
        (0..10_000).for_each(|hash| _ = ask(hash));
        let kept = (0..10_000).filter(|hash| ask(*hash)).count();
        assert!((3_000..6_000).contains(&kept), "{kept} rows of some 200 bytes");
        (0..100_000).for_each(|once| _ = ask(1_000_000 + once));
        let stayed = (0..10_000).filter(|hash| cache.row(mix(*hash)).is_some()).count();
        assert!(stayed > kept * 9 / 10, "{stayed} of {kept}");
        let rows = cache.facts().bytes - pieces;
        assert!(rows <= 1 << 20 && rows > 900 << 10, "{rows} bytes of rows");
        cache.hold(3 << 19, 1 << 19);
        assert!(cache.facts().bytes <= pieces + (1 << 19), "{:?}", cache.facts());
        cache.hold(1 << 19, 3 << 19);
        (0..20_000).for_each(|hash| _ = ask(hash));
        let bytes = cache.facts().bytes;
        assert!(bytes <= 2 << 20 && bytes > 15 << 17, "{bytes} bytes: what one gave the other has");
    }

    /// The thread that wrote memory out lost its core in a part of the cache, and whoever looked there waited for its turn.
    #[test]
    fn no_look_waits_for_whoever_changes_the_part_that_it_looks_at() {
        let cache = Cache::new(1 << 20, 1 << 20, 4096, 64).unwrap();
        cache.keep_row(7, row(100));
        cache.insert(RunId(1), 0, piece(100));
        let look = |cache: &Cache| (cache.row(7).is_some(), cache.get(RunId(1), 0).map(|piece| piece.is_some()));
        let beside = || {
            let ((told, heard), cache) = (std::sync::mpsc::channel(), Arc::clone(&cache));
            std::thread::spawn(move || told.send(look(&cache)));
            heard.recv_timeout(std::time::Duration::from_secs(20))
        };
        let mut seen = Vec::new();
        _ = cache.rows.remove_if(&7, |_| {
            seen.push(beside());
            false
        });
        _ = cache.pieces.remove_if(&(1, 0), |_| {
            seen.push(beside());
            false
        });
        let facts = cache.facts();
        assert_eq!(
            seen,
            [Ok((false, Ok(true))), Ok((true, Err(Busy)))],
            "what cannot be looked at is not there for now"
        );
        assert_eq!((facts.hits, facts.misses), (2, 0), "and not missing either");
        assert_eq!(look(&cache), (true, Ok(true)));
    }

    #[test]
    fn no_bytes_keep_nothing() {
        let cache = Cache::new(0, 0, 4096, 64).unwrap();
        assert!(!cache.take_out(1));
        cache.insert(RunId(1), 0, piece(10));
        assert!(!is_there(&cache, 1, 0));
        assert!(!cache.admits_row(1) && !cache.admits_row(1));
        cache.keep_row(1, row(10));
        assert_eq!((cache.row(1).is_none(), cache.facts().bytes), (true, 0));
    }

    #[test]
    fn a_filter_of_a_large_run_fits_a_share() {
        let cache = Cache::new(32 << 20, 0, 4096, 64).unwrap();
        let hashes = &mut (0..1_000_000).map(mix).collect();
        let filter = Arc::new(Filter::parse(&crate::filter::lay(hashes)).unwrap());
        cache.insert(RunId(1), 0, Cached::Filter(filter));
        assert!(is_there(&cache, 1, 0));
        assert!(cache.takes(2 << 20) && !cache.takes((2 << 20) + 1), "half a share");
    }
}
