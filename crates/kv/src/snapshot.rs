//! Reading: what all readers share, a place to look from, and walks over ranges.
//!
//! Walk: [`Shared`] has the log and the ledger · [`Snapshot`] keeps what was visible at its place until it is dropped.
//! A read never waits for a write, a sync or a merge, and takes no lock where no more read than keep the processors busy; where many more do,
//! each has its turn ([`crate::turnstile`]).

use std::fmt;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use assent_ids::Lsn;
use assent_journal::Log;
use xxhash_rust::xxh3::xxh3_64;

use crate::KvError;
use crate::config::Config;
use crate::error::Shown;
use crate::error::within;
use crate::keyed::Key;
use crate::ledger::{self, Ledger};
use crate::record::Place;
use crate::time::{Time, is_over};
use crate::turnstile::{Turnstiles, processors};
use crate::values::{Bytes, Set, Values};
use crate::view::{View, Walk};

/// Who reads a longer value takes nobody's place meanwhile: it may be some hundred milliseconds.
const LONG_BYTES: u32 = 256 << 10;

/// A value with what is kept beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value.
    pub value: Vec<u8>,
    /// The writer's metadata.
    pub metadata: Vec<u8>,
    /// The journal entry that has the value's bytes.
    pub lsn: Lsn,
    /// Where the entry ends that made it visible: what the writer was answered.
    pub committed: Lsn,
    /// When it was written, in milliseconds since 1970; 0 if its record does not say.
    pub modified: u64,
    /// From when on it is no more; 0 for never.
    pub expiry: u64,
}

/// What is known of a key without reading its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The journal entry that has the value's bytes: another one after each write.
    pub lsn: Lsn,
    /// How long the value is.
    pub value_bytes: u32,
    /// XXH3-64 of the value.
    pub hash: u64,
    /// The writer's metadata.
    pub metadata: Vec<u8>,
    /// Where the entry ends that made it visible: what the writer was answered.
    pub committed: Lsn,
    /// When it was written, in milliseconds since 1970; 0 if its record does not say.
    pub modified: u64,
    /// From when on it is no more; 0 for never.
    pub expiry: u64,
}

/// A value, if it is no longer than somebody takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// It is not.
    Value(Found),
    /// It is longer; it was not read.
    Longer(Head),
}

impl From<ledger::Head> for Head {
    fn from(head: ledger::Head) -> Self {
        let ledger::Head { place, metadata, committed } = head;
        let Place { entry, hash, value_bytes, modified, expiry, .. } = place;
        // At once: `into_vec` goes byte by byte.
        let metadata = metadata.to_vec();
        Self { lsn: entry, value_bytes, hash, metadata, committed, modified, expiry }
    }
}

/// Rows of a scan: keys and values in key order.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// How much of a range is gathered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Rows.
    pub rows: usize,
    /// Bytes of them all: keys, values, and `row_bytes` for each.
    pub bytes: u64,
    /// What each takes beside its key and its value.
    pub row_bytes: u64,
}

/// The first rows of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In key order.
    pub rows: Rows,
    /// There are others behind the last of them.
    pub more: bool,
}

/// Why no more is gathered.
enum Ended {
    /// There is no more.
    All,
    /// So many rows are wanted.
    Rows,
    /// With the next one there would be so many bytes.
    Bytes(u64),
}

pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) ledger: Ledger,
    pub(crate) values: Values,
    /// Snapshots that are kept.
    snapshots: AtomicU64,
    scan_bytes_max: u64,
    pub(crate) time: Arc<Time>,
    pub(crate) turns: Turnstiles,
}

impl Shared {
    pub(crate) fn new(ledger: Ledger, values: Values, time: Time, config: &Config) -> Self {
        let time = Arc::new(time);
        ledger.tell_time(&time);
        let log = Arc::clone(&values.log);
        let turns = Turnstiles::new(time.clock(), config.readers_per_processor, processors());
        let scan_bytes_max = config.scan_bytes_max;
        Self { log, ledger, values, snapshots: AtomicU64::new(0), scan_bytes_max, time, turns }
    }

    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        // In this order: all that the view names is in the set, and what ends here or before is in the view.
        let set = self.values.pin();
        let published = self.ledger.published();
        let view = self.ledger.view(self.time.now_ms());
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        Snapshot { at: published.max(view.lsn()), view, set, shared: Arc::clone(self) }
    }

    pub(crate) fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::Relaxed)
    }

    /// A key now, if it has not expired.
    pub(crate) fn head(&self, keyspace: u32, key: &[u8]) -> Result<Option<ledger::Head>, KvError> {
        let found = self.ledger.find(keyspace, key)?;
        Ok(found.filter(|head| !self.is_over(&head.place)))
    }

    pub(crate) fn get(&self, keyspace: u32, key: &[u8]) -> Result<Option<Found>, KvError> {
        // In this order: all that the ledger names is in the set.
        let set = self.values.look();
        let both = self.ledger.find_with_value(keyspace, key)?;
        let Some((head, kept)) = both.filter(|(head, _)| !self.is_over(&head.place)) else { return Ok(None) };
        let value = kept.map_or_else(|| self.read(&set, keyspace, key, &head), Ok)?;
        Ok(Some(found(head, value)))
    }

    /// The value alone.
    pub(crate) fn value(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let set = self.values.look();
        match self.ledger.find_value(keyspace, key, |place| self.is_over(place))? {
            Some(ledger::Found::Kept(value)) => Ok(Some(value)),
            Some(ledger::Found::Elsewhere(head)) => self.read(&set, keyspace, key, &head).map(Some),
            None => Ok(None),
        }
    }

    /// Most never expire: the clock is not asked for them.
    fn is_over(&self, place: &Place) -> bool {
        place.expiry != 0 && self.time.is_over(place.expiry, self.time.now_ms())
    }

    /// The same, if it is no longer than so many bytes: one look-up for both.
    pub(crate) fn get_within(&self, keyspace: u32, key: &[u8], most: u64) -> Result<Option<Within>, KvError> {
        let set = self.values.look();
        let both = self.ledger.find_with_value(keyspace, key)?;
        let Some((head, kept)) = both.filter(|(head, _)| !self.is_over(&head.place)) else { return Ok(None) };
        if u64::from(head.place.value_bytes) > most {
            return Ok(Some(Within::Longer(head.into())));
        }
        let value = kept.map_or_else(|| self.read(&set, keyspace, key, &head), Ok)?;
        Ok(Some(Within::Value(found(head, value))))
    }

    /// The value of a row that was found after its set was pinned. Damage names the key and the LSN and is never "not found".
    fn fetch(&self, set: &Set, keyspace: u32, key: &[u8], head: ledger::Head) -> Result<Found, KvError> {
        let value = self.value_of(set, keyspace, key, &head)?;
        Ok(found(head, value))
    }

    /// As [`Shared::fetch`], the value alone.
    fn value_of(&self, set: &Set, keyspace: u32, key: &[u8], head: &ledger::Head) -> Result<Vec<u8>, KvError> {
        self.ledger.kept(keyspace, key, head).map_or_else(|| self.read(set, keyspace, key, head), Ok)
    }

    /// The same of one that is not kept.
    fn read(&self, set: &Set, keyspace: u32, key: &[u8], head: &ledger::Head) -> Result<Vec<u8>, KvError> {
        let place = &head.place;
        let longs = self.values.longs.as_ref();
        if let Some(kept) = longs.and_then(|longs| longs.find(keyspace, key, place)) {
            return Ok(kept);
        }
        let bytes = self.look(set, place).map_err(|what| damaged(keyspace, key, place, what))?;
        self.ledger.keep(keyspace, key, head, bytes.as_slice());
        longs.into_iter().for_each(|longs| longs.keep(keyspace, key, place, bytes.as_slice()));
        Ok(bytes.into_vec())
    }

    /// For who reads everything once: it takes nobody's place in memory.
    fn value_once(&self, set: &Set, keyspace: u32, key: &[u8], head: &ledger::Head) -> Result<Vec<u8>, KvError> {
        let read = || {
            let longs = self.values.longs.as_ref();
            if let Some(kept) = longs.and_then(|longs| longs.find_once(keyspace, key, &head.place)) {
                return Ok(kept);
            }
            let bytes = self.look(set, &head.place).map_err(|what| damaged(keyspace, key, &head.place, what))?;
            Ok(bytes.into_vec())
        };
        self.ledger.kept(keyspace, key, head).map_or_else(read, Ok)
    }

    /// The value at a place as it stands there, checked.
    fn look(&self, set: &Set, place: &Place) -> Result<Bytes, String> {
        if place.value_bytes > LONG_BYTES {
            self.turns.go_early();
        }
        let bytes = self.values.read(set, place)?;
        let computed = xxh3_64(bytes.as_slice());
        if computed != place.hash {
            return Err(format!("it hashes to {computed:#018x}, the ledger says {:#018x}", place.hash));
        }
        Ok(bytes)
    }

    /// A range of a view, with a branch's own writes laid over it. No value is read that is not gathered.
    fn gather(
        &self,
        (set, view): (&Set, &View),
        keyspace: u32,
        bounds: Bounds<'_>,
        most: Most,
        own: Vec<Own>,
        passes: &mut u64,
    ) -> Result<(Rows, Ended), KvError> {
        let theirs = view.range(keyspace, bounds).within(*passes);
        let mut both = Both { theirs, next: None, own: own.into_iter().peekable() };
        let (mut rows, mut gathered) = (Rows::new(), 0_u64);
        let ended = loop {
            let Some((key, value)) = both.step()? else { break Ended::All };
            if rows.len() >= most.rows {
                break Ended::Rows;
            }
            let value_bytes = match &value {
                Seen::Own(value) => u64::try_from(value.len()).unwrap_or(u64::MAX),
                Seen::Theirs(head) => head.place.value_bytes.into(),
            };
            let row_bytes = most.row_bytes.saturating_add(u64::try_from(key.len()).unwrap_or(u64::MAX));
            gathered = gathered.saturating_add(row_bytes).saturating_add(value_bytes);
            if gathered > most.bytes {
                break Ended::Bytes(gathered);
            }
            let value = match value {
                Seen::Own(value) => value,
                Seen::Theirs(head) => self.fetch(set, keyspace, &key, head)?.value,
            };
            rows.push((key.to_vec(), value));
        };
        *passes = both.theirs.passes_left();
        Ok((rows, ended))
    }
}

/// What a branch wrote; none if it deletes.
pub(crate) type Own = (Key, Option<Vec<u8>>);

/// A value of a range, or where it is.
enum Seen {
    Own(Vec<u8>),
    Theirs(ledger::Head),
}

/// What a branch sees of a range.
struct Both<'v> {
    theirs: Walk<'v>,
    /// The next of theirs, once that was looked for.
    next: Option<Option<(Key, ledger::Head)>>,
    own: Peekable<vec::IntoIter<Own>>,
}

impl Both<'_> {
    fn step(&mut self) -> Result<Option<(Key, Seen)>, KvError> {
        loop {
            let next = match &mut self.next {
                Some(next) => next,
                empty => empty.insert(self.theirs.step()?),
            };
            let theirs = next.as_ref().map(|(key, _)| key);
            let Some((mine, value)) = self.own.next_if(|(mine, _)| theirs.is_none_or(|theirs| mine <= theirs)) else {
                let Some((key, head)) = next.take() else { return Ok(None) };
                self.next = None;
                return Ok(Some((key, Seen::Theirs(head))));
            };
            // Its own write stands over the one that it saw.
            if theirs == Some(&mine) {
                self.next = None;
            }
            if let Some(value) = value {
                return Ok(Some((mine, Seen::Own(value))));
            }
        }
    }
}

fn found(head: ledger::Head, value: Vec<u8>) -> Found {
    let ledger::Head { place: Place { entry: lsn, modified, expiry, .. }, metadata, committed } = head;
    Found { value, metadata: metadata.to_vec(), lsn, committed, modified, expiry }
}

fn damaged(keyspace: u32, key: &[u8], place: &Place, what: String) -> KvError {
    KvError::Damaged { key: Shown::of(keyspace, key), lsn: place.entry, what }
}

/// The store as it was at one place of its log, until dropped. Keeps the files and the memory that it looks at: for one answer. What
/// is kept longer is a [`crate::Lease`], which has a budget.
pub struct Snapshot {
    shared: Arc<Shared>,
    view: View,
    /// Where the values of the view's rows are read.
    set: Arc<Set>,
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
    /// [`KvError::Damaged`] if its bytes are not those that were written; `Corrupt` too if what leads to it is damaged.
    pub fn get(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let _pass = self.shared.turns.enter();
        let head = self.view.find(keyspace, key)?;
        head.map(|head| self.shared.value_of(&self.set, keyspace, key, &head)).transpose()
    }

    /// The value of a key with its metadata.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn entry(&self, keyspace: u32, key: &[u8]) -> Result<Option<Found>, KvError> {
        let _pass = self.shared.turns.enter();
        let head = self.view.find(keyspace, key)?;
        head.map(|head| self.shared.fetch(&self.set, keyspace, key, head)).transpose()
    }

    /// The same, if the value is no longer than so many bytes; else it is not read.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn entry_within(&self, keyspace: u32, key: &[u8], most: u64) -> Result<Option<Within>, KvError> {
        let _pass = self.shared.turns.enter();
        let Some(head) = self.view.find(keyspace, key)? else { return Ok(None) };
        if u64::from(head.place.value_bytes) > most {
            return Ok(Some(Within::Longer(head.into())));
        }
        Ok(Some(Within::Value(self.shared.fetch(&self.set, keyspace, key, head)?)))
    }

    /// What is known of a key; its value is not read.
    ///
    /// # Errors
    /// `Corrupt` if what leads to it is damaged.
    pub fn head(&self, keyspace: u32, key: &[u8]) -> Result<Option<Head>, KvError> {
        let _pass = self.shared.turns.enter();
        Ok(self.view.find(keyspace, key)?.map(Head::from))
    }

    /// The first `limit` keys of a range with their values. Bounds that hold nothing give nothing.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; [`KvError::Size`] if the rows are more than `scan_bytes_max` bytes.
    pub fn scan(&self, keyspace: u32, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, KvError> {
        self.scan_over(keyspace, (from, to), limit, Vec::new())
    }

    /// As many rows of a range as that, for somebody who may not read or walk for long: there may be any number of keys in a range that were
    /// deleted, were erased or have expired, and whose rows are still there. No more than `passes` of them are stepped over; what is
    /// left of those stands there afterwards. No value is read that is not answered.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; [`KvError::Size`] if the first row alone is more; `Busy` where more dead keys stand in between.
    pub fn page(
        &self,
        keyspace: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        most: Most,
        passes: &mut u64,
    ) -> Result<Page, KvError> {
        self.page_over(keyspace, (from, to), most, Vec::new(), passes)
    }

    /// What is known of the first `limit` keys of a range, in key order; no value is read.
    ///
    /// # Errors
    /// As [`Snapshot::head`]; [`KvError::Size`] if keys and metadata are more than `scan_bytes_max` bytes.
    pub fn heads(
        &self,
        keyspace: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Head)>, KvError> {
        let mut passes = u64::MAX;
        self.heads_within(keyspace, from, to, limit, &mut passes)
    }

    /// The same for somebody who may not walk for long, as [`Snapshot::page`].
    ///
    /// # Errors
    /// `Busy` where there are more; as [`Snapshot::heads`].
    pub fn heads_within(
        &self,
        keyspace: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
        passes: &mut u64,
    ) -> Result<Vec<(Vec<u8>, Head)>, KvError> {
        self.shared.turns.line_up();
        let (mut heads, mut gathered, most) = (Vec::new(), 0_u64, self.shared.scan_bytes_max);
        let mut walk = self.view.range(keyspace, (from, to)).within(*passes);
        while heads.len() < limit {
            let Some((key, head)) = walk.step()? else { break };
            gathered += u64::try_from(key.len() + head.metadata.len()).unwrap_or(u64::MAX);
            if gathered > most {
                return Err(KvError::Size { part: "heads", bytes: gathered, limit: most });
            }
            heads.push((key.to_vec(), Head::from(head)));
        }
        *passes = walk.passes_left();
        Ok(heads)
    }

    /// Nothing is gathered without end.
    pub(crate) fn refuse_more(&self, part: &'static str, bytes: u64) -> Result<(), KvError> {
        within(part, bytes, self.shared.scan_bytes_max)
    }

    pub(crate) const fn view(&self) -> &View {
        &self.view
    }

    /// Before a piece of a walk.
    pub(crate) fn line_up(&self) {
        self.shared.turns.line_up();
    }

    /// The value of a row that its view gave, for a fold.
    pub(crate) fn value_of(&self, keyspace: u32, key: &[u8], head: ledger::Head) -> Result<Found, KvError> {
        let value = self.shared.value_once(&self.set, keyspace, key, &head)?;
        Ok(found(head, value))
    }

    /// All of them, or an error.
    pub(crate) fn scan_over(
        &self,
        keyspace: u32,
        bounds: Bounds<'_>,
        rows: usize,
        own: Vec<Own>,
    ) -> Result<Rows, KvError> {
        self.shared.turns.line_up();
        let (bytes, mut passes) = (self.shared.scan_bytes_max, u64::MAX);
        let most = Most { rows, bytes, row_bytes: 0 };
        match self.shared.gather((&self.set, &self.view), keyspace, bounds, most, own, &mut passes)? {
            (_, Ended::Bytes(bytes)) => Err(KvError::Size { part: "scan", bytes, limit: most.bytes }),
            (rows, Ended::All | Ended::Rows) => Ok(rows),
        }
    }

    pub(crate) fn page_over(
        &self,
        keyspace: u32,
        bounds: Bounds<'_>,
        most: Most,
        own: Vec<Own>,
        passes: &mut u64,
    ) -> Result<Page, KvError> {
        self.shared.turns.line_up();
        match self.shared.gather((&self.set, &self.view), keyspace, bounds, most, own, passes)? {
            (rows, Ended::Bytes(bytes)) if rows.is_empty() => {
                Err(KvError::Size { part: "row", bytes, limit: most.bytes })
            }
            (rows, ended) => Ok(Page { rows, more: !matches!(ended, Ended::All) }),
        }
    }

    pub(crate) fn set(&self) -> &Set {
        &self.set
    }

    /// Reads the value of each key from the disk, until it is told to stop.
    pub(crate) fn each_value(&self, is_stopped: &dyn Fn() -> bool, then: &mut dyn FnMut(Result<(), KvError>)) {
        for row in self.view.all().take_while(|_| !is_stopped()) {
            let value = row.and_then(|(keyspace, key, head)| {
                let (key, lsn) = (Shown::of(keyspace, &key), head.place.entry);
                self.shared.look(&self.set, &head.place).map_err(|what| KvError::Damaged { key, lsn, what })
            });
            let ended = matches!(&value, Err(KvError::Ledger(_)));
            then(value.map(drop));
            if ended {
                return;
            }
        }
    }

    /// The newest version of a key that it sees: when it was committed, and whether it had expired by then.
    pub(crate) fn written(&self, keyspace: u32, key: &[u8]) -> Result<Option<(Lsn, bool)>, KvError> {
        let head = self.view.written(keyspace, key)?;
        Ok(head.map(|head| (head.committed, is_over(head.place.expiry, self.view.time()))))
    }

    /// Milliseconds since 1970: what has expired by then is not there.
    #[must_use]
    pub const fn time_ms(&self) -> u64 {
        self.view.time()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shared.snapshots.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.at)
    }
}
