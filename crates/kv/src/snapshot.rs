//! Reading: what all readers share, a place to look from, and walks over ranges.
//!
//! Walk: [`Shared`] has the log and the published index · [`Snapshot`] keeps what was visible at its place until it is
//! dropped · `Places` walks a range a few hundred keys at a time, so that no lock is held for long.
//! A read takes the index lock for a look-up and never waits for a disk sync.

use std::fmt;
use std::ops::{Bound, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use assent_ids::Lsn;
use assent_journal::Log;
use xxhash_rust::xxh3::xxh3_64;

use crate::KvError;
use crate::error::Shown;
use crate::index::{Chunk, Index, Live};
use crate::keyed::Key;
use crate::record::Place;

/// Keys looked at under one hold of the index lock.
const CHUNK_KEYS: usize = 256;

/// A value with what is kept beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value.
    pub value: Vec<u8>,
    /// The writer's metadata.
    pub metadata: Vec<u8>,
    /// The journal entry that has the value's bytes.
    pub lsn: Lsn,
}

/// Rows of a scan: keys and values in key order.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) log: Arc<dyn Log>,
    index: RwLock<Index>,
    live: Mutex<Live>,
    scan_bytes_max: u64,
}

impl Shared {
    pub(crate) fn new(log: Arc<dyn Log>, index: Index, scan_bytes_max: u64) -> Self {
        Self { log, index: RwLock::new(index), live: Mutex::default(), scan_bytes_max }
    }

    // A thread that died in a lock broke a promise of ours and said so; what it guards is whole between operations.
    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Taken inside the index lock, never around it.
    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        let index = self.index();
        let at = index.published();
        self.live().take(at);
        drop(index);
        Snapshot { shared: Arc::clone(self), at }
    }

    fn release(&self, at: Lsn) {
        self.live().release(at);
        if self.index().is_swept() {
            return;
        }
        loop {
            let mut index = self.index_mut();
            let more = index.sweep(&self.live(), CHUNK_KEYS);
            drop(index);
            if !more {
                return;
            }
        }
    }

    pub(crate) fn get(&self, keyspace: u32, key: &[u8], at: Option<Lsn>) -> Result<Option<Found>, KvError> {
        let place = self.index().find(keyspace, key, at);
        place.map(|place| self.fetch(keyspace, key, place)).transpose()
    }

    /// The value at a place. Damage names the key and the LSN and is never "not found".
    fn fetch(&self, keyspace: u32, key: &[u8], place: Place) -> Result<Found, KvError> {
        let damaged = |what: String| KvError::Damaged { key: Shown::of(keyspace, key), lsn: place.entry, what };
        let payload = self.log.read_at(place.entry).map_err(|error| damaged(error.to_string()))?.payload;
        let outside = || damaged("it ends behind its journal entry".to_owned());
        let at = usize::try_from(place.at).map_err(|_| outside())?;
        let bytes = usize::try_from(place.value_bytes).map_err(|_| outside())?;
        let start = at.saturating_add(place.metadata_bytes.into());
        let range = start..start.saturating_add(bytes);
        let metadata = payload.get(at..start).ok_or_else(outside)?.to_vec();
        let computed = xxh3_64(payload.get(range.clone()).ok_or_else(outside)?);
        if computed != place.hash {
            return Err(damaged(format!("it hashes to {computed:#018x}, the index says {:#018x}", place.hash)));
        }
        Ok(Found { value: cut(payload, range), metadata, lsn: place.entry })
    }

    /// A range as of a place, with a branch's own writes laid over it.
    pub(crate) fn scan(
        &self,
        keyspace: u32,
        bounds: Bounds<'_>,
        at: Lsn,
        limit: usize,
        own: Vec<(Key, Option<Vec<u8>>)>,
    ) -> Result<Rows, KvError> {
        let mut places = Places::new(self, keyspace, bounds, at).peekable();
        let mut own = own.into_iter().peekable();
        let mut rows = Rows::new();
        let mut gathered = 0_u64;
        while rows.len() < limit {
            let first_is_own = match (own.peek(), places.peek()) {
                (None, None) => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((mine, _)), Some((theirs, _))) => mine <= theirs,
            };
            let row = if first_is_own {
                own.next().and_then(|(key, value)| {
                    places.next_if(|(theirs, _)| *theirs == key);
                    value.map(|value| (key.to_vec(), value))
                })
            } else {
                places
                    .next()
                    .map(|(key, place)| self.fetch(keyspace, &key, place).map(|found| (key.to_vec(), found.value)))
                    .transpose()?
            };
            let Some((key, value)) = row else { continue };
            gathered += u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX);
            if gathered > self.scan_bytes_max {
                return Err(KvError::Size { part: "scan", bytes: gathered, limit: self.scan_bytes_max });
            }
            rows.push((key, value));
        }
        Ok(rows)
    }
}

/// A part of owned bytes. In place where it is most of them: a long value is not copied once more.
fn cut(mut payload: Vec<u8>, range: Range<usize>) -> Vec<u8> {
    if range.len() < payload.len() / 2 {
        return payload.get(range).unwrap_or_default().to_vec();
    }
    payload.truncate(range.end);
    payload.drain(..range.start);
    payload
}

/// The keys of a range as of a place that somebody keeps alive.
struct Places<'a> {
    shared: &'a Shared,
    keyspace: u32,
    from: Bound<Key>,
    to: Bound<&'a [u8]>,
    at: Lsn,
    ready: std::vec::IntoIter<(Key, Place)>,
    ended: bool,
}

impl<'a> Places<'a> {
    fn new(shared: &'a Shared, keyspace: u32, (from, to): Bounds<'a>, at: Lsn) -> Self {
        let ready = Vec::new().into_iter();
        Self { shared, keyspace, from: from.map(Key::from), to, at, ready, ended: false }
    }
}

impl Iterator for Places<'_> {
    type Item = (Key, Place);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(next) = self.ready.next() {
                return Some(next);
            }
            if self.ended {
                return None;
            }
            let from = self.from.as_ref().map(AsRef::as_ref);
            let (found, last) = self.shared.index().range(self.keyspace, (from, self.to), self.at, CHUNK_KEYS);
            self.ready = found.into_iter();
            match last {
                Some(last) => self.from = Bound::Excluded(last),
                None => self.ended = true,
            }
        }
    }
}

/// The store as it was at one place of its log, until dropped. Costs memory only for what is overwritten meanwhile.
pub struct Snapshot {
    shared: Arc<Shared>,
    at: Lsn,
}

impl Snapshot {
    /// Every entry that ends here or before is visible.
    #[must_use]
    pub const fn lsn(&self) -> Lsn {
        self.at
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`KvError::Damaged`] if its bytes are not those that were written.
    pub fn get(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.entry(keyspace, key)?.map(|found| found.value))
    }

    /// The value of a key with its metadata.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn entry(&self, keyspace: u32, key: &[u8]) -> Result<Option<Found>, KvError> {
        self.shared.get(keyspace, key, Some(self.at))
    }

    /// The first `limit` keys of a range with their values. Bounds that hold nothing give nothing.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; [`KvError::Size`] if the rows are more than `scan_bytes_max` bytes.
    pub fn scan(&self, keyspace: u32, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, KvError> {
        self.shared.scan(keyspace, (from, to), self.at, limit, Vec::new())
    }

    pub(crate) fn scan_over(
        &self,
        keyspace: u32,
        bounds: Bounds<'_>,
        limit: usize,
        own: Vec<(Key, Option<Vec<u8>>)>,
    ) -> Result<Rows, KvError> {
        self.shared.scan(keyspace, bounds, self.at, limit, own)
    }

    /// The next live keys for a checkpoint.
    pub(crate) fn chunk(&self, cursor: Option<&(u32, Key)>, most: usize) -> Chunk {
        self.shared.index().after(cursor, self.at, most)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shared.release(self.at);
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.at)
    }
}
