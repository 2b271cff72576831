//! Snapshots for as long as one likes, within a budget: leases.
//!
//! A snapshot keeps memory and files that the store has done with. A lease is one that the store may end: the oldest goes when there
//! are too many of them, when it is too old, or when all of them together keep too much. Whoever asks it then is told so, and
//! nothing that it kept is kept for his sake: a lease holds its snapshot only while it reads.
//!
//! Walk: [`Kv::lease`] · reads as of a [`Snapshot`], [`Lease::fold`] walks (`fold.rs`) · [`Lease::refresh`]: the same lease, as of
//! now · [`Leases::end_due`] with each tick · a branch reads through one too.
//! Deliberately absent: a renewal. Age counts from the snapshot, because that is what it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use assent_ids::Lsn;
use assent_runs::Pinned;
use assent_world::Moment;

use crate::config::Config;
use crate::snapshot::{Found, Head, Rows, Shared, Snapshot};
use crate::{Kv, KvError};

/// A snapshot that the store may end. May be shared by many threads.
pub struct Lease {
    held: Arc<Held>,
    leases: Arc<Leases>,
    shared: Arc<Shared>,
}

/// What a lease holds, until it is ended.
#[derive(Debug)]
struct Held {
    number: u64,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Live { snapshot: Arc<Snapshot>, since: Moment },
    Ended { at: Lsn, what: &'static str, limit: u64 },
}

/// All leases of a store.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The oldest first.
    live: Mutex<Live>,
    count_max: u32,
    memory_bytes_max: u64,
    file_bytes_max: u64,
    pub(crate) fold_bytes: u64,
}

#[derive(Debug, Default)]
struct Live {
    next: u64,
    held: BTreeMap<u64, Weak<Held>>,
    ended: u64,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what it keeps, if it keeps it since then. What that was; none if it was ended or refreshed before.
    fn end(&self, kept_since: Moment, what: &'static str, limit: u64) -> Option<Arc<Snapshot>> {
        let mut state = self.state();
        let State::Live { snapshot, since } = &*state else { return None };
        if *since != kept_since {
            return None;
        }
        let at = snapshot.lsn();
        match std::mem::replace(&mut *state, State::Ended { at, what, limit }) {
            State::Live { snapshot, .. } => Some(snapshot),
            State::Ended { .. } => None,
        }
    }

    fn is_live(&self) -> bool {
        matches!(&*self.state(), State::Live { .. })
    }

    fn live(&self) -> Option<(Arc<Snapshot>, Moment)> {
        match &*self.state() {
            State::Live { snapshot, since } => Some((Arc::clone(snapshot), *since)),
            State::Ended { .. } => None,
        }
    }
}

impl Leases {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            live: Mutex::default(),
            count_max: config.leases_max,
            memory_bytes_max: config.leases_memory_bytes_max,
            file_bytes_max: config.leases_file_bytes_max,
            fold_bytes: config.fold_bytes,
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, shared: &Arc<Shared>, limit: Duration) -> Lease {
        let (snapshot, since) = (Arc::new(shared.snapshot()), shared.time.clock().now());
        let mut live = self.live();
        let number = live.next;
        live.next += 1;
        let held = Arc::new(Held { number, limit, state: Mutex::new(State::Live { snapshot, since }) });
        live.held.insert(number, Arc::downgrade(&held));
        drop(live);
        self.end_too_many();
        Lease { held, leases: Arc::clone(self), shared: Arc::clone(shared) }
    }

    fn end_too_many(&self) {
        loop {
            let oldest = {
                let live = self.live();
                let too_many = u32::try_from(live.held.len()).map_or(true, |count| count > self.count_max);
                if too_many { live.held.first_key_value().map(|(number, held)| (*number, held.clone())) } else { None }
            };
            let Some((number, held)) = oldest else { return };
            let since = held.upgrade().and_then(|held| held.live()).map_or(Moment::default(), |(_, since)| since);
            self.end((number, since), &held, "the number of leases", self.count_max.into());
        }
    }

    fn end(&self, (number, since): (u64, Moment), held: &Weak<Held>, what: &'static str, limit: u64) {
        // What it kept goes outside of the lock: files may be removed with it.
        let held = held.upgrade();
        let ended = held.as_ref().and_then(|held| held.end(since, what, limit));
        let mut live = self.live();
        // Under this lock, under which one that is refreshed comes back: else it would go from here and be kept for ever.
        let stays = held.as_ref().is_some_and(|held| held.is_live());
        if !stays {
            live.held.remove(&number);
        }
        live.ended += u64::from(ended.is_some());
        drop(live);
        drop(ended);
    }

    /// Ends those that are too old, and the oldest ones while all together keep too much: on a disk that has no room for writers, anything.
    pub(crate) fn end_due(&self, shared: &Arc<Shared>, is_full: bool) {
        let all: Vec<(u64, Weak<Held>)> =
            self.live().held.iter().map(|(number, held)| (*number, held.clone())).collect();
        if all.is_empty() {
            return;
        }
        let file_bytes_max = if is_full { 0 } else { self.file_bytes_max };
        let (now, mut pins) = (shared.time.clock().now(), Vec::new());
        let newest = shared.snapshot();
        let (mut by_version, mut looked_at) = (BTreeMap::<usize, Arc<[Pinned]>>::new(), Vec::new());
        let mut by_set = BTreeMap::<usize, Arc<[Pinned]>>::new();
        for (number, weak) in all {
            let Some(held) = weak.upgrade() else { continue };
            let Some((snapshot, since)) = held.live() else { continue };
            if now.since(since) >= held.limit {
                self.end((number, since), &weak, "its age in milliseconds", milliseconds(held.limit));
            } else {
                let version = snapshot.view().version();
                let pinned = by_version.entry(version).or_insert_with(|| snapshot.view().pinned_beyond(newest.view()));
                let set = snapshot.set();
                let volumes =
                    by_set.entry(std::ptr::from_ref(set).addr()).or_insert_with(|| set.pinned_beyond(newest.set()));
                pins.push((since, number, weak, [Arc::clone(pinned), Arc::clone(volumes)], set.raw_from));
                // So that no other version gets its address meanwhile.
                looked_at.push(snapshot);
            }
        }
        drop(looked_at);
        // A refreshed one is as young as its snapshot.
        pins.sort_by_key(|(since, number, ..)| (*since, *number));
        let mut kept = BTreeSet::new();
        let (mut memory_bytes, mut file_bytes) = (0_u64, 0_u64);
        // The journal from the oldest set's place on stays; what is compacted since would go.
        let newest_from = newest.set().raw_from;
        let mut raw_from = newest_from;
        // The youngest first: what fits the budget stays, from there on all older ones go.
        let mut over = None;
        for (since, number, held, pinned, reads_from) in pins.iter().rev() {
            file_bytes = file_bytes.saturating_add(raw_from.saturating_sub(*reads_from));
            raw_from = raw_from.min(*reads_from);
            for pin in pinned.iter().flat_map(|pins| pins.iter()) {
                if kept.insert(pin.id) {
                    memory_bytes = memory_bytes.saturating_add(pin.memory_bytes);
                    file_bytes = file_bytes.saturating_add(pin.file_bytes);
                }
            }
            if memory_bytes > self.memory_bytes_max {
                over.get_or_insert(("bytes of memory that leases keep", self.memory_bytes_max));
            } else if file_bytes > file_bytes_max {
                let what =
                    if is_full { "room that a full disk lacks, bytes" } else { "bytes of files that leases keep" };
                over.get_or_insert((what, file_bytes_max));
            }
            // Whoever goes gives some of it back.
            let keeps = |pins: &Arc<[Pinned]>| pins.iter().any(|pin| !is_full || pin.file_bytes > 0);
            if let Some((what, limit)) = over
                && (*reads_from < newest_from || pinned.iter().any(keeps))
            {
                self.end((*number, *since), held, what, limit);
            }
        }
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        let live = self.live();
        (u64::try_from(live.held.len()).unwrap_or(u64::MAX), live.ended)
    }
}

fn milliseconds(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}

impl Kv {
    /// The store as of now, for at most so long: a snapshot that the store may end, see [`Config`] (`leases_max` and its like).
    #[must_use]
    pub fn lease(&self, limit: Duration) -> Lease {
        self.leases.take(&self.shared, limit)
    }

    /// The lease that a branch reads through.
    pub(crate) fn branch_lease(&self) -> Lease {
        self.lease(Duration::from_millis(self.config.branch_snapshot_ms))
    }
}

impl Lease {
    /// What it sees, for the length of one read: whoever keeps it for longer keeps what it looks at, although the lease was ended.
    ///
    /// # Errors
    /// [`KvError::SnapshotEnded`].
    pub fn look(&self) -> Result<Arc<Snapshot>, KvError> {
        let (over, since) = match &*self.held.state() {
            State::Ended { at, what, limit } => {
                return Err(KvError::SnapshotEnded { at: *at, what, limit: *limit });
            }
            State::Live { snapshot, since } => {
                if self.shared.time.clock().now().since(*since) < self.held.limit {
                    return Ok(Arc::clone(snapshot));
                }
                let (at, limit) = (snapshot.lsn(), milliseconds(self.held.limit));
                (KvError::SnapshotEnded { at, what: "its age in milliseconds", limit }, *since)
            }
        };
        let held = Arc::downgrade(&self.held);
        self.leases.end((self.held.number, since), &held, "its age in milliseconds", milliseconds(self.held.limit));
        Err(over)
    }

    pub(crate) fn fold_bytes(&self) -> u64 {
        self.leases.fold_bytes
    }

    /// The same lease, as of now; also one that was ended. Its age begins anew.
    pub fn refresh(&self) {
        let (snapshot, since) = (Arc::new(self.shared.snapshot()), self.shared.time.clock().now());
        let before = std::mem::replace(&mut *self.held.state(), State::Live { snapshot, since });
        self.leases.live().held.insert(self.held.number, Arc::downgrade(&self.held));
        self.leases.end_too_many();
        drop(before);
    }

    /// Every entry that ends here or before is visible.
    ///
    /// # Errors
    /// [`KvError::SnapshotEnded`]; so for all below.
    pub fn lsn(&self) -> Result<Lsn, KvError> {
        Ok(self.look()?.lsn())
    }

    /// The same, also once it was ended.
    #[must_use]
    pub fn at(&self) -> Lsn {
        match &*self.held.state() {
            State::Live { snapshot, .. } => snapshot.lsn(),
            State::Ended { at, .. } => *at,
        }
    }

    /// As [`Snapshot::get`].
    ///
    /// # Errors
    /// And [`KvError::SnapshotEnded`].
    pub fn get(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.look()?.get(keyspace, key)
    }

    /// As [`Snapshot::entry`].
    ///
    /// # Errors
    /// And [`KvError::SnapshotEnded`].
    pub fn entry(&self, keyspace: u32, key: &[u8]) -> Result<Option<Found>, KvError> {
        self.look()?.entry(keyspace, key)
    }

    /// As [`Snapshot::head`].
    ///
    /// # Errors
    /// And [`KvError::SnapshotEnded`].
    pub fn head(&self, keyspace: u32, key: &[u8]) -> Result<Option<Head>, KvError> {
        self.look()?.head(keyspace, key)
    }

    /// As [`Snapshot::get_many`].
    ///
    /// # Errors
    /// And [`KvError::SnapshotEnded`].
    pub fn get_many(&self, keys: &[(u32, &[u8])]) -> Result<Vec<Option<Found>>, KvError> {
        self.look()?.get_many(keys)
    }

    /// As [`Snapshot::scan`].
    ///
    /// # Errors
    /// And [`KvError::SnapshotEnded`].
    pub fn scan(&self, keyspace: u32, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, KvError> {
        self.look()?.scan(keyspace, from, to, limit)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.live().held.remove(&self.held.number);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.held.state() {
            State::Live { snapshot, .. } => write!(f, "Lease({})", snapshot.lsn()),
            State::Ended { at, .. } => write!(f, "Lease(ended, {at})"),
        }
    }
}
