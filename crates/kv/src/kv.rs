//! The store itself: open, plain reads and writes, numbers about it.
//!
//! Walk: [`Kv::batch_begin`] checks, and what it does at the desk stands in [`crate::writers`], as [`Kv::wait`] does.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use assent_ids::Lsn;
use assent_journal::{Log, Ticket};
use assent_kind::Kind;
use assent_runs::OpenFiles;
use assent_world::{Clock, Disk};

use crate::KvError;
use crate::claims::Claims;
use crate::compaction::{Done, Unread};
use crate::config::{Config, METADATA_BYTES_MAX};
use crate::errand::Counter;
use crate::error::{rows_fit, within};
use crate::facts::percent;
use crate::full::Full;
use crate::keyspaces::{Names, refuse_system};
use crate::lease::Leases;
use crate::line::{Line, Place};
use crate::op::{Durability, Op};
use crate::progress::Progress;
use crate::record::batch_bytes;
use crate::recover::{Opened, recover};
use crate::snapshot::{Found, Head, Rows, Shared, Snapshot, Within};
use crate::time::Time;
use crate::upkeep::Counts;
use crate::values::{Held, Set, Shelf, Values, remove_strangers, volumes_folder};
use crate::vault::Front;
use crate::vault::volumes;

/// A key-value store over a log. All methods may be called from many threads.
pub struct Kv {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counter: Counter,
    /// The desk's: who waits sleeps at it.
    pub(crate) line: Arc<Line>,
    pub(crate) claims: Claims,
    folder: PathBuf,
    pub(crate) config: Config,
    pub(crate) counts: Mutex<Counts>,
    /// The ledger's memory is full.
    pub(crate) full: Full,
    /// Writers wait for dead values, or memory was written out.
    pub(crate) wanted: Full,
    /// Held by whoever writes the ledger's memory out.
    pub(crate) stepping: Mutex<()>,
    pub(crate) leases: Arc<Leases>,
    /// Held by whoever makes or drops a keyspace.
    pub(crate) naming: Mutex<()>,
    opened: Opened,
    pub(crate) read_only: bool,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) volumes_folder: PathBuf,
    /// Whether that is there, durably.
    pub(crate) has_folder: AtomicBool,
    /// The front of the journal that was read and could not be passed: an entry ends behind it, or cannot be read.
    pub(crate) unpassable: Mutex<Option<Front>>,
    /// Held by whoever compacts.
    pub(crate) compacting: Mutex<()>,
    /// Volumes that were replaced and that a manifest may still name.
    pub(crate) leaving: Mutex<Vec<Arc<Held>>>,
    pub(crate) damaged: Mutex<BTreeSet<u64>>,
    pub(crate) unread: Mutex<Unread>,
    pub(crate) done: Mutex<Done>,
}

/// Something that was appended and must be waited for before it is answered; or nothing, where nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is neither durable nor visible before Kv::wait"]
pub struct Pending {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) durability: Durability,
}

impl Pending {
    pub(crate) const NOTHING: Pending = Pending { ticket: None, durability: Durability::Durable };

    pub(crate) const fn durable(ticket: Ticket) -> Self {
        Self { ticket: Some(ticket), durability: Durability::Durable }
    }

    /// A snapshot at this place or behind it sees the entry.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        self.ticket.map(|ticket| ticket.end)
    }
}

/// What is kept of long values, and how often it was of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueCache {
    /// Memory that it takes, of that which it may take.
    pub bytes: u64,
    /// Looks that found their value, since the open.
    pub hits: u64,
    /// And those that had to read it.
    pub misses: u64,
}

/// Numbers about a store, each of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys: exact for what is written out and merged, and each write in memory counts as one more. Never too few.
    pub keys: u64,
    /// Bytes of their values, counted likewise.
    pub value_bytes: u64,
    /// Branches that are known, in whatever state.
    pub branches: u64,
    /// Those of them that are prepared.
    pub prepared: u64,
    /// Bytes of writes of branches that are not prepared.
    pub branches_bytes: u64,
    /// Keys that prepared branches hold.
    pub held_keys: u64,
    /// Writers that wait for such keys.
    pub waiting: u64,
    /// Snapshots that are kept, branches' ones among them.
    pub snapshots: u64,
    /// Leases that are kept, branches' ones among them.
    pub leases: u64,
    /// Leases that were ended since the open, because a limit was reached.
    pub leases_ended: u64,
    /// Entries appended and not yet published.
    pub unpublished: u64,
    /// Everything that ends here or before is visible.
    pub published: Lsn,
    /// The next open replays from here.
    pub checkpoint: Lsn,
    /// How often the ledger's memory was written out on time since the open.
    pub checkpoints: u64,
    /// How often that failed since the open; the store goes on without it.
    pub checkpoints_failed: u64,
    /// Batches that waited for what was behind in the background ([`Kv::delay`]), and microseconds that they waited together.
    pub delayed: u64,
    /// Those microseconds.
    pub delayed_us: u64,
    /// How often a read, or a piece of a walk, stood in line behind others since the open ([`Config::readers_per_processor`]).
    pub readers_stood: u64,
    /// Merges of the ledger's files that failed since the open. They are tried again; reads go through more files meanwhile.
    pub merges_failed: u64,
    /// Panics of work in the background since the open: broken promises of ours. It is tried again, unless the store is broken by it.
    pub panics: u64,
    /// 1 if nothing more becomes visible until the store is reopened: a commit failed so that nobody knows whether it counts, or a thread
    /// panicked in the midst of a change.
    pub broken: u64,
    /// 1 if the open found the ledger damaged or of another journal, and built it anew.
    pub rebuilt: u64,
    /// Journal entries that the open replayed.
    pub replayed: u64,
    /// What the ledger counted that did not fit its accounts of where values live: broken promises of ours. Nothing is lost by it but
    /// room; [`Kv::broken_account`] names the first.
    pub broken_accounts: u64,
    /// Finished branches that are remembered.
    pub finished: u64,
    /// Bytes of the ledger's rows that only memory has, and of the places of their keys.
    pub memory_bytes: u64,
    /// Memory beside that which only snapshots keep, branches' ones among them: rows that were written out since they were taken.
    /// In neither is what of such memory nobody uses and the next rows take ([`Kv::ledger_facts`] has it): with what is used no more than
    /// twice [`Config::memory_bytes`].
    pub pinned_bytes: u64,
    /// Bytes of values that became visible since the open; not those that it replayed.
    pub put_bytes: u64,
    /// Bytes of values, with what is kept beside them, that the ledger's files point to.
    pub live_bytes: u64,
    /// Bytes on disk in which they stand: volumes, and the journal that is not compacted.
    pub value_bytes_on_disk: u64,
    /// Of these, what is more than `space_amplification_max_percent` and `space_room_bytes_min` allow. Compactions begin sooner: the ledger and segments that wait count too.
    pub value_debt_bytes: u64,
    /// Bytes on disk in which values stand up to the checkpoint, for each hundred of those that live there without what is known to
    /// be superseded: 100 at least, as small ones of one batch share what each is counted with; 0 where none do.
    pub space_amplification_percent: u64,
    /// Compacted volumes.
    pub volumes: u64,
    /// 1 if values can be compacted: the log keeps what it trims until it is released.
    pub compacts: u64,
    /// Stretches of the journal that were left as they are, for they are full and others behind them are not: they are compacted later.
    pub passed_stretches: u64,
    /// Stretches of the journal that a compaction could not read: they stay as they are, and so does what can be read in them.
    pub unreadable_stretches: u64,
    /// Compactions since the open.
    pub compactions: u64,
    /// Those that failed.
    pub compactions_failed: u64,
    /// How often room could not be given back, of volumes or of the journal. It is tried again; compactions go on.
    pub releases_failed: u64,
    /// Bytes that they read, of volumes and journal.
    pub compacted_bytes_in: u64,
    /// Bytes that they wrote.
    pub compacted_bytes_out: u64,
    /// Bytes of volumes and of the journal that were given back since the open.
    pub reclaimed_bytes: u64,
    /// Sorted files of the ledger, and their bytes.
    pub runs: u64,
    /// Their bytes.
    pub runs_bytes: u64,
}

impl Kv {
    /// Opens the store over its log; `folder` holds the ledger and is made if it is missing. A ledger that is damaged, or
    /// another journal's, is built anew from the journal. `clock`: its wall time says when something was modified, and when
    /// it expires.
    ///
    /// # Errors
    /// [`KvError::Config`]; [`KvError::Record`] or `Corrupt` if the journal has what no store wrote; as the disk says.
    pub fn open(
        log: Arc<dyn Log>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        folder: &Path,
        config: Config,
    ) -> Result<Self, KvError> {
        Self::open_telling(log, disk, clock, folder, config, &mut |_| {})
    }

    /// As [`Kv::open`]; tells how far it is while it builds a ledger anew, or reads all of a journal because there is none.
    ///
    /// # Errors
    /// As [`Kv::open`].
    pub fn open_telling(
        log: Arc<dyn Log>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        folder: &Path,
        config: Config,
        told: &mut dyn FnMut(Progress),
    ) -> Result<Self, KvError> {
        config.check()?;
        Self::over(log, (&disk, clock), folder, (config, false), told)
    }

    /// Opens a stopped store to look at it: over a log that was opened read-only. Changes nothing in the folder.
    ///
    /// # Errors
    /// As [`Kv::open`].
    pub fn open_read_only(
        log: Arc<dyn Log>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        folder: &Path,
        config: Config,
    ) -> Result<Self, KvError> {
        config.check()?;
        Self::over(log, (&disk, clock), folder, (config, true), &mut |_| {})
    }

    fn over(
        log: Arc<dyn Log>,
        (disk, clock): (&Arc<dyn Disk>, Arc<dyn Clock>),
        folder: &Path,
        (config, read_only): (Config, bool),
        told: &mut dyn FnMut(Progress),
    ) -> Result<Self, KvError> {
        let volumes_folder = volumes_folder(folder);
        if !read_only && log.stretch_bytes().is_none() && !volumes(&**disk, &volumes_folder)?.is_empty() {
            // It would remove stretches in which values live.
            let what = "this store has compacted values: its journal must keep what it trims until it is released \
                        (kept_until_released)";
            return Err(KvError::Volume { kind: Kind::Invalid, what: what.to_owned() });
        }
        let (ledger, mut desk, opened) = recover(&*log, disk, (folder, &volumes_folder), (&config, read_only), told)?;
        if !read_only && log.stretch_bytes().is_some() {
            ledger.remember_dead(config.memory_bytes);
        }
        let files_max = disk.files_max();
        disk.expect_files(files_max);
        let open = Arc::new(OpenFiles::new(files_max));
        let accounts = &ledger.accounts();
        let set = Set::open(Shelf { disk, folder: &volumes_folder, open: &open, accounts });
        if !read_only {
            remove_strangers(&ledger, &set, &**disk, &volumes_folder)?;
        }
        let values = Values::new(log, open, set, &config)?;
        desk.names = Names::read(&ledger);
        let counts = Counts { tried: ledger.durable().0, ..Counts::default() };
        let kv = Self {
            shared: Arc::new(Shared::new(ledger, values, Time::new(clock, opened.latest_ms), &config)),
            line: Arc::clone(&desk.line),
            counter: Counter::new(desk),
            claims: Claims::default(),
            folder: folder.to_owned(),
            config,
            counts: Mutex::new(counts),
            full: Full::default(),
            wanted: Full::default(),
            stepping: Mutex::default(),
            leases: Arc::new(Leases::new(&config)),
            naming: Mutex::default(),
            opened,
            read_only,
            disk: Arc::clone(disk),
            volumes_folder,
            has_folder: AtomicBool::new(false),
            unpassable: Mutex::default(),
            compacting: Mutex::default(),
            leaving: Mutex::default(),
            damaged: Mutex::default(),
            unread: Mutex::default(),
            done: Mutex::default(),
        };
        if !read_only {
            kv.leave_free(kv.volume_bytes());
        }
        Ok(kv)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`KvError::Damaged`], naming key and LSN, if its bytes are not those that were written.
    pub fn get(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let _pass = self.shared.turns.enter();
        self.shared.value(keyspace, key)
    }

    /// The value of a key with its metadata.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn entry(&self, keyspace: u32, key: &[u8]) -> Result<Option<Found>, KvError> {
        let _pass = self.shared.turns.enter();
        self.shared.get(keyspace, key)
    }

    /// The value of a key with its metadata, unless it is longer than so many bytes: then what is known of it.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn entry_within(&self, keyspace: u32, key: &[u8], value_bytes: u64) -> Result<Option<Within>, KvError> {
        let _pass = self.shared.turns.enter();
        self.shared.get_within(keyspace, key, value_bytes)
    }

    /// What is known of a key; its value is not read.
    ///
    /// # Errors
    /// `Corrupt` if what leads to it is damaged.
    pub fn head(&self, keyspace: u32, key: &[u8]) -> Result<Option<Head>, KvError> {
        let _pass = self.shared.turns.enter();
        Ok(self.shared.head(keyspace, key)?.map(Head::from))
    }

    /// The first `limit` keys of a range with their values, as of one moment.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    pub fn scan(&self, keyspace: u32, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, KvError> {
        self.snapshot().scan(keyspace, from, to, limit)
    }

    /// The store as of now, until it is dropped.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// Sets a key and waits. The answer is the place in the log behind the write.
    ///
    /// # Errors
    /// As [`Kv::batch`].
    pub fn put(&self, keyspace: u32, key: &[u8], value: &[u8], durability: Durability) -> Result<Lsn, KvError> {
        self.batch(&[Op::put(keyspace, key, value)], durability)
    }

    /// Removes a key and waits; fine if it is not there.
    ///
    /// # Errors
    /// As [`Kv::batch`].
    pub fn delete(&self, keyspace: u32, key: &[u8], durability: Durability) -> Result<Lsn, KvError> {
        self.batch(&[Op::delete(keyspace, key)], durability)
    }

    /// Removes all keys of a range and waits: one entry, however many there are, and readers see them gone at once. `to` stays;
    /// without it the last key goes too. The space returns by merges and compaction.
    ///
    /// # Errors
    /// As [`Kv::batch`]; `Conflict` if a prepared branch holds any key of the range.
    pub fn erase(&self, keyspace: u32, from: &[u8], to: Option<&[u8]>, durability: Durability) -> Result<Lsn, KvError> {
        self.batch(&[Op::erase(keyspace, from, to)], durability)
    }

    /// Writes all of these or none, and waits. Of several writes of one key the last counts.
    ///
    /// # Errors
    /// As [`Kv::batch_begin`] and [`Kv::wait`].
    pub fn batch(&self, ops: &[Op<'_>], durability: Durability) -> Result<Lsn, KvError> {
        self.pause(ops);
        let pending = self.batch_begin(ops, durability)?;
        self.wait(pending)?;
        Ok(pending.lsn().unwrap_or_default())
    }

    /// Appends a batch and does not wait.
    ///
    /// # Errors
    /// `Invalid` beyond a limit, `Conflict` if a prepared branch holds a key, `Busy`, `Full` or `Closed` as the journal
    /// says. Nothing was appended then. `InDoubt` if a thread has panicked that appended for others: the store takes nothing more then.
    pub fn batch_begin(&self, ops: &[Op<'_>], durability: Durability) -> Result<Pending, KvError> {
        self.batch_begin_at(&mut Place::nowhere(), ops, durability)
    }

    /// Numbers about the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let (ledger, counts) = (&self.shared.ledger, *self.counts());
        // Before the desk is locked: it waits for a commit of the ledger.
        let (held, checkpoint) = (ledger.held(), ledger.durable());
        let (accounts, done) = (ledger.accounts(), *self.done());
        let (value_bytes_on_disk, live_bytes) = accounts.sums(self.shared.log.end().0);
        let (settled, expected) = ledger.expected().sums(checkpoint.0);
        let allowed = self.config.chooser().allowed(expected);
        let (leases, leases_ended) = self.leases.counts();
        let desk = self.desk();
        Stats {
            keys: held.keys,
            value_bytes: held.value_bytes,
            branches: count(desk.branches.len()),
            prepared: count(desk.prepared().count()),
            branches_bytes: desk.bytes,
            held_keys: count(desk.held_keys()),
            waiting: count(self.line.len()),
            snapshots: self.shared.snapshots(),
            leases,
            leases_ended,
            unpublished: count(desk.waiting()),
            published: ledger.published(),
            checkpoint,
            checkpoints: counts.written,
            checkpoints_failed: counts.failed,
            delayed: counts.delayed,
            delayed_us: counts.delayed_us,
            readers_stood: self.shared.turns.stood(),
            merges_failed: counts.merges_failed,
            panics: counts.panics,
            broken: u64::from(desk.refuse_broken().is_err() || ledger.is_closed()),
            rebuilt: u64::from(self.opened.is_rebuilt),
            replayed: self.opened.replayed,
            broken_accounts: ledger.broken().0,
            put_bytes: ledger.made_bytes().saturating_sub(self.opened.made_bytes),
            live_bytes,
            value_bytes_on_disk,
            value_debt_bytes: value_bytes_on_disk.saturating_sub(allowed),
            space_amplification_percent: percent(settled, expected.min(settled)),
            volumes: count(accounts.compacted().filter(|account| !account.is_kept()).count()),
            passed_stretches: count(accounts.compacted().filter(|account| account.is_passed()).count()),
            unreadable_stretches: count(
                accounts.compacted().filter(|account| account.is_kept() && !account.is_passed()).count(),
            ),
            compacts: u64::from(self.shared.log.stretch_bytes().is_some()),
            compactions: done.compactions,
            compactions_failed: done.failed,
            releases_failed: done.releases_failed,
            compacted_bytes_in: done.bytes_in,
            compacted_bytes_out: done.bytes_out,
            reclaimed_bytes: done.reclaimed,
            finished: count(desk.finished.len()),
            memory_bytes: ledger.memory_bytes(),
            pinned_bytes: ledger.pinned_bytes(),
            runs: held.runs,
            runs_bytes: held.runs_bytes,
        }
    }

    /// The first of [`Stats::broken_accounts`], naming the volume.
    #[must_use]
    pub fn broken_account(&self) -> Option<KvError> {
        self.shared.ledger.broken().1.map(KvError::from)
    }

    pub(crate) const fn refuse_read_only(&self) -> Result<(), KvError> {
        if self.read_only { Err(KvError::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn check_batch(&self, ops: &[Op<'_>]) -> Result<(), KvError> {
        if ops.is_empty() {
            return Err(KvError::Empty);
        }
        ops.iter().try_for_each(|op| self.check(op))?;
        within("batch", batch_bytes(ops), self.config.batch_bytes_max.into())?;
        rows_fit(ops)
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), KvError> {
        within("key", u64::try_from(key.len()).unwrap_or(u64::MAX), self.config.key_bytes_max.into())
    }

    /// Whether a write of this key waits for something: a prepared branch for its outcome, or an entry of the log to become visible.
    /// What is read of the key then may be another thing soon.
    #[must_use]
    pub fn is_on_its_way(&self, keyspace: u32, key: &[u8]) -> bool {
        let desk = self.desk();
        desk.is_held(keyspace, key) || desk.on_its_way(keyspace, key).is_some()
    }

    /// Whether a write could be one of a branch, for its sizes and its keyspace alone: so that nothing of a list is written whose last
    /// one is wrong.
    ///
    /// # Errors
    /// As [`Kv::branch_write`].
    pub fn check_write(&self, op: &Op<'_>) -> Result<(), KvError> {
        self.check(op)
    }

    pub(crate) fn check(&self, op: &Op<'_>) -> Result<(), KvError> {
        let size = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        refuse_system(op)?;
        self.check_key(op.key().1)?;
        match op {
            Op::Put { metadata, value, .. } => {
                within("metadata", size(metadata), METADATA_BYTES_MAX.into())?;
                within("value", size(value), self.config.value_bytes_max.into())
            }
            Op::Erase { to: Some(to), .. } => self.check_key(to),
            Op::Delete { .. } | Op::Erase { .. } => Ok(()),
        }
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("folder", &self.folder).field("log", &self.shared.log).finish_non_exhaustive()
    }
}
