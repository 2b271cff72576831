//! Reading values: which volume holds a place, or the journal itself.
//!
//! ```text
//!   a read   pin the set, THEN ask the ledger -> place -> lsn < raw_from ? the volume of that range : the journal
//!            (and the journal for a range that no compaction could read: a kept stretch)
//! ```
//! A set of volumes is one immutable value. Whoever pins one before he asks the ledger finds all that the ledger names in it: what
//! lived then is in its volumes, and what was written since is in the journal. So there is no race to lose and nothing to try
//! again. A set keeps its volumes' files, and no stretch of the journal is released that a set reads which somebody pins.
//!
//! Small values that were read and were right are kept beside their rows ([`crate::ledger::Ledger::keep`]), long ones where there is room
//! for them ([`Longs`]): these are read past the system's cache then.
//!
//! Walk: [`Values::pin`] · [`Values::read`] · [`Values::publish`] after a compaction · [`Values::unread`] says what may be released.
//! Deliberately absent: what lives; that is the accounts'.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ahash::RandomState;
use arc_swap::{ArcSwap, Guard};
use assent_journal::{Log, Span};
use assent_runs::{OpenFiles, Pinned};
use assent_world::Disk;
use quick_cache::sync::{Cache, DefaultLifecycle, LockContention};
use quick_cache::{OptionsBuilder, Weighter};

use crate::ledger::Ledger;
use crate::long::Longs;
use crate::record::Place;
use crate::vault::{Account, Accounts, Address, Blocks, VaultError, Volume, count_unknown, remove_unknown};
use crate::{Config, KvError};

/// What an item costs in a cache beside its bytes.
const EXTRA_BYTES: usize = 96;
/// About what a block takes.
const BLOCK_BYTES: u64 = 4096;
const SHARD_BYTES_MIN: u64 = 256 << 10;
/// So often a look tries a part of the cache that somebody changes: for about as long as that takes who has a core.
const TRIES: u32 = 32;

/// A volume of a set.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) account: Account,
    /// Why it cannot be read, if it cannot.
    pub(crate) volume: Result<Arc<Volume>, VaultError>,
}

/// All volumes of one moment, in order.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// From here on values are read from the journal.
    pub(crate) raw_from: u64,
    pub(crate) volumes: Vec<Arc<Held>>,
}

/// Where volumes are, and what is known of them.
#[derive(Clone, Copy)]
pub(crate) struct Shelf<'a> {
    pub(crate) disk: &'a Arc<dyn Disk>,
    pub(crate) folder: &'a Path,
    pub(crate) open: &'a Arc<OpenFiles>,
    pub(crate) accounts: &'a Accounts,
}

impl Shelf<'_> {
    /// The volume that the account names. One that cannot be opened, or is another one, is told by whoever reads a value of it.
    fn held(self, account: &Account) -> Arc<Held> {
        let Self { disk, folder, open, accounts } = self;
        let volume = Volume::open_among(open, disk, folder, account.first, account.generation);
        let volume = volume.and_then(|volume| {
            let facts = *volume.facts();
            if accounts.says(&facts) { Ok(volume) } else { Err(volume.another()) }
        });
        Arc::new(Held { account: *account, volume })
    }
}

impl Held {
    /// Whether it was not opened for a reason that may have passed: want of descriptors, above all.
    fn is_missed(&self) -> bool {
        !self.account.is_kept() && self.volume.as_ref().is_err_and(VaultError::is_unopened)
    }
}

impl Set {
    /// Opens what the accounts name.
    pub(crate) fn open(shelf: Shelf<'_>) -> Self {
        let held = |account: &Account| shelf.held(account);
        let accounts = shelf.accounts;
        Self { raw_from: accounts.raw_from(), volumes: accounts.compacted().map(held).collect() }
    }

    /// Whether it has volumes that were not opened, and might be now.
    pub(crate) fn misses_any(&self) -> bool {
        self.volumes.iter().any(|held| held.is_missed())
    }

    /// The same with those, and where they begin; none if none of them is to be had yet.
    pub(crate) fn opened_anew(&self, shelf: Shelf<'_>) -> Option<(Self, Vec<u64>)> {
        let mut opened = Vec::new();
        let anew = |held: &Arc<Held>| {
            if !held.is_missed() {
                return Arc::clone(held);
            }
            let again = shelf.held(&held.account);
            if !again.is_missed() {
                opened.push(again.account.first);
            }
            again
        };
        let volumes = self.volumes.iter().map(anew).collect();
        (!opened.is_empty()).then_some((Self { raw_from: self.raw_from, volumes }, opened))
    }

    /// Volumes that it keeps and a newer set does not.
    pub(crate) fn pinned_beyond(&self, newer: &Self) -> Arc<[Pinned]> {
        let kept: BTreeSet<usize> = newer.volumes.iter().map(|held| Arc::as_ptr(held).addr()).collect();
        let pinned = |held: &Arc<Held>| {
            let memory_bytes = held.volume.as_ref().map_or(0, |volume| volume.memory_bytes());
            Pinned { id: Arc::as_ptr(held).addr(), memory_bytes, file_bytes: held.account.disk_bytes() }
        };
        self.volumes.iter().map(pinned).filter(|pinned| !kept.contains(&pinned.id)).collect()
    }

    /// Kept stretches of the journal, in order.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Account> {
        self.volumes.iter().map(|held| &held.account).filter(|account| account.is_kept())
    }

    /// Where kept stretches begin, in order, and how far the journal is kept for those up to each.
    fn keeps(&self) -> Vec<(u64, u64)> {
        let reach = |to: &mut u64, account: &Account| {
            *to = account.end.max(account.until).max(*to);
            Some((account.first, *to))
        };
        self.kept().scan(0, reach).collect()
    }

    /// The volume that holds a place before `raw_from`; none if nothing was left there.
    pub(crate) fn holder(&self, lsn: u64) -> Option<&Arc<Held>> {
        let behind = self.volumes.partition_point(|held| held.account.first <= lsn);
        let held = self.volumes.get(behind.checked_sub(1)?)?;
        (lsn < held.account.end).then_some(held)
    }
}

/// The bytes of a value, where they stand in what was read.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    range: Range<usize>,
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }

    /// In place where it is most of what was read: a long value is not copied once more.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        let Self { mut bytes, range } = self;
        if range.len() < bytes.len() / 2 {
            return bytes.get(range).unwrap_or_default().to_vec();
        }
        bytes.truncate(range.end);
        bytes.drain(..range.start);
        bytes
    }
}

/// Where all values are read.
pub(crate) struct Values {
    pub(crate) log: Arc<dyn Log>,
    current: ArcSwap<Set>,
    /// Sets that were current before, while somebody may pin them.
    before: Mutex<Vec<Weak<Set>>>,
    blocks: Kept,
    /// None: the system's cache has them.
    pub(crate) longs: Option<Longs>,
    pub(crate) open: Arc<OpenFiles>,
}

impl Values {
    /// Over a log and a first set, with what the configuration gives to the indexes of volumes.
    ///
    /// # Errors
    /// [`KvError::Config`] if the cache's library refuses the number.
    pub(crate) fn new(log: Arc<dyn Log>, open: Arc<OpenFiles>, set: Set, config: &Config) -> Result<Self, KvError> {
        let blocks = Kept::new(config.index_cache_bytes())?;
        let longs = Longs::new(config.value_cache_bytes)?;
        Ok(Self { log, current: ArcSwap::from_pointee(set), before: Mutex::default(), blocks, longs, open })
    }

    /// The set as it is now, for one read: taken before the ledger is asked.
    pub(crate) fn look(&self) -> Guard<Arc<Set>> {
        self.current.load()
    }

    /// The same, for as long as somebody keeps it.
    pub(crate) fn pin(&self) -> Arc<Set> {
        self.current.load_full()
    }

    /// The bytes of the value at a place that the ledger named after this set was pinned.
    ///
    /// # Errors
    /// What is wrong, naming the file. Never nothing for a value.
    pub(crate) fn read(&self, set: &Set, place: &Place) -> Result<Bytes, String> {
        let directly = self.longs.as_ref().is_some_and(|longs| longs.takes(place.value_bytes));
        if place.entry.0 >= set.raw_from {
            return self.read_journal(place, directly);
        }
        let held = set.holder(place.entry.0).ok_or_else(|| "no volume holds its place".to_owned())?;
        if held.account.is_kept() {
            return self.read_journal(place, directly);
        }
        let volume = held.volume.as_ref().map_err(VaultError::to_string)?;
        let address = Address::new(place.entry.0, place.at);
        let record =
            if directly { volume.get_directly(&self.blocks, address) } else { volume.get(&self.blocks, address) };
        let record = record.map_err(|error| error.to_string())?;
        let record = record.ok_or_else(|| format!("{} has nothing at {address}", volume.path().display()))?;
        let (bytes, range) = record.into_value();
        if range.len() != usize::try_from(place.value_bytes).unwrap_or(usize::MAX) {
            let path = volume.path().display();
            return Err(format!(
                "{path} has {} bytes at {address}, the ledger says {}",
                range.len(),
                place.value_bytes
            ));
        }
        Ok(Bytes { bytes, range })
    }

    fn read_journal(&self, place: &Place, directly: bool) -> Result<Bytes, String> {
        let length = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let start = length(place.at).saturating_add(place.metadata_bytes.into());
        let part = start..start.saturating_add(length(place.value_bytes));
        let read =
            if directly { self.log.read_part_direct(place.entry, part) } else { self.log.read_part(place.entry, part) };
        let (bytes, range) = read.map_err(|error| error.to_string())?;
        if range.len() < length(place.value_bytes) {
            return Err("it ends behind its journal entry".to_owned());
        }
        Ok(Bytes { bytes, range })
    }

    /// From now on values are read from these volumes. Whoever pins the set before goes on with it.
    pub(crate) fn publish(&self, set: Set) {
        let mut before = self.before();
        before.push(Arc::downgrade(&self.pin()));
        // Behind this every reader of the set before has it pinned or will never have it.
        drop(self.current.swap(Arc::new(set)));
    }

    /// Those of these stretches of the journal, in order, that nobody reads by any set, nor will.
    pub(crate) fn unread<'a>(&self, sealed: &'a [Span]) -> Vec<&'a Span> {
        let mut before = self.before();
        before.retain(|set| set.strong_count() > 0);
        let mut sets: Vec<Arc<Set>> = before.iter().filter_map(Weak::upgrade).collect();
        drop(before);
        sets.push(self.pin());
        let pinned = sets.iter().map(|set| set.raw_from).min().unwrap_or(0);
        let unread = sealed.iter().take_while(|span| span.end.0 <= pinned);
        // They may be as many as the spans.
        let kept: Vec<Vec<(u64, u64)>> = sets.iter().map(|set| set.keeps()).collect();
        unread.filter(|span| !kept.iter().any(|kept| is_within(kept, span))).collect()
    }

    /// Bytes of the journal that stay for kept stretches beyond those that are theirs: of stretches of which they have a part.
    pub(crate) fn kept_beside(&self, sealed: impl FnOnce() -> Vec<Span>) -> u64 {
        let set = self.look();
        let kept = set.keeps();
        if kept.is_empty() {
            return 0;
        }
        let stays = |span: &&Span| span.end.0 <= set.raw_from && is_within(&kept, span);
        let stay: u64 = sealed().iter().filter(stays).map(|span| span.bytes).sum();
        stay.saturating_sub(set.kept().map(|account| account.end - account.first).sum())
    }

    fn before(&self) -> MutexGuard<'_, Vec<Weak<Set>>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an entry of a kept stretch may stand in it.
fn is_within(kept: &[(u64, u64)], span: &Span) -> bool {
    let before = kept.partition_point(|(first, _)| *first < span.end.0);
    let nearest = before.checked_sub(1).and_then(|at| kept.get(at));
    nearest.is_some_and(|(_, to)| span.first.0 < *to)
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values").field("log", &self.log).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Key, Arc<[u8]>> for ByBytes {
    fn weight(&self, _: &Key, bytes: &Arc<[u8]>) -> u64 {
        u64::try_from(bytes.len() + EXTRA_BYTES).unwrap_or(u64::MAX)
    }
}

type Key = ((u64, u32), usize);

/// Blocks of indexes within a budget of bytes. No two volumes of a store ever have one name.
struct Kept(Cache<Key, Arc<[u8]>, ByBytes, RandomState>);

impl Kept {
    fn new(cache_bytes: u64) -> Result<Self, KvError> {
        let shards = (cache_bytes / SHARD_BYTES_MIN).clamp(1, 64);
        let items = usize::try_from((cache_bytes / BLOCK_BYTES).max(1)).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(1 << usize::try_from(shards.ilog2()).unwrap_or(0))
            .estimated_items_capacity(items)
            .weight_capacity(cache_bytes)
            .build();
        let rule = "a number of bytes that memory can hold";
        let options = options.map_err(|_| KvError::Config { name: "cache_bytes", value: cache_bytes, rule })?;
        Ok(Self(Cache::with_options(options, ByBytes, RandomState::new(), DefaultLifecycle::default())))
    }
}

/// A look into a cache. Nobody waits for who lost his core in there: what cannot be looked at for so long is read again.
pub(crate) fn tried<T>(look: impl Fn() -> Result<T, LockContention>) -> Option<T> {
    (0..TRIES).find_map(|_| look().inspect_err(|_| std::hint::spin_loop()).ok())
}

impl Blocks for Kept {
    fn get(&self, volume: (u64, u32), block: usize) -> Option<Arc<[u8]>> {
        tried(|| self.0.try_get(&(volume, block))).flatten()
    }

    fn keep(&self, volume: (u64, u32), block: usize, payload: &Arc<[u8]>) {
        // Who is in there now is not waited for: it may have lost its core.
        _ = self.0.try_insert((volume, block), Arc::clone(payload));
    }
}

/// Where the volumes are: beside the ledger, so that who removes a ledger to have it built anew removes no value.
pub(crate) fn volumes_folder(ledger: &Path) -> PathBuf {
    let name = ledger.file_name().unwrap_or_default().to_string_lossy();
    ledger.with_file_name(format!("{}-values", name.strip_suffix("-ledger").unwrap_or(&name)))
}

/// Removes the files of volumes that a crash left and that no note names. While the older manifest may name one, it stays.
pub(crate) fn remove_strangers(ledger: &Ledger, set: &Set, disk: &dyn Disk, folder: &Path) -> Result<(), KvError> {
    let known = set.volumes.iter().map(|held| (held.account.first, held.account.generation)).collect();
    if count_unknown(disk, folder, &known)? > 0 && ledger.renote(None).is_ok() {
        remove_unknown(disk, folder, &known)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_look_waits_for_whoever_changes_the_part_of_the_cache_that_it_looks_at() {
        let kept = Arc::new(Kept::new(1 << 20).unwrap());
        kept.keep((1, 1), 0, &Arc::from([7; 9]));
        let mut seen = None;
        _ = kept.0.remove_if(&((1, 1), 0), |_| {
            let ((told, heard), kept) = (std::sync::mpsc::channel(), Arc::clone(&kept));
            std::thread::spawn(move || told.send(kept.get((1, 1), 0)));
            seen = Some(heard.recv_timeout(std::time::Duration::from_secs(20)));
            false
        });
        assert_eq!(seen, Some(Ok(None)), "what cannot be looked at is not there for now");
        assert_eq!(kept.get((1, 1), 0).as_deref(), Some(&[7; 9][..]));
    }
}
