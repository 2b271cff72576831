//! The map: versions that follow each other, one writer, and what a step publishes.
//!
//! ```text
//!   apply   the writer's lock: memtable, then the newest place (or, with a range, a new version)
//!   get     no lock: the current version
//!   step    its lane's while it works; the book's for its commit, in it the writer's for the new version
//! ```
//! Two lanes work at the same time, flushes in one, all else in the other, so that memory never waits for a merge. What they have
//! in common is the commit. Order of locks: lane, book, writer; versions follow each other as the manifests do.
//!
//! Walk: [`Runs::open`] · [`Runs::apply`] and [`Runs::rotate`] write · [`Runs::get`] and [`Runs::view`] read · [`Runs::step`]
//! does what [`crate::policy`] finds most urgent.
//! Deliberately absent: threads, and a lock of the folder: the owner's log has one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};
use assent_kind::Kind;
use assent_world::Disk;

use crate::arena::Spare;
use crate::book::{Book, Change as Commit};
use crate::cache::Cache;
use crate::entry::{Change, Entry, Range};
use crate::facts::{Counts, Opened};
use crate::manifest::Refused;
use crate::memo::Memo;
use crate::memtable::{Memtable, laid_bytes_max};
use crate::nowhere::Nowhere;
use crate::owner::{Owner, Pace, Tally};
use crate::policy;
use crate::ranges::{Erased, erased_bytes};
use crate::run::{RunFacts, RunId};
use crate::run_reader::{OwnedEntry, Run};
use crate::shunned::Shunned;
use crate::step::{Edit, Halt, Step, Task};
use crate::version::{Files, Frozen, Levels, Seen, Version, Wanted};
use crate::view::{Found, View, found};
use crate::{Config, KEY_BYTES_MAX, RunsError, VALUE_BYTES_MAX};

/// So many changes of a batch have their places fetched together.
const FETCHED: usize = 16;

/// Calls of [`Runs::order`] for which a walk is remembered.
pub(crate) const ORDERED_TURNS: u32 = 100;

/// An ordered, persistent map.
#[derive(Debug)]
pub struct Runs {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    pub(crate) config: Config,
    pub(crate) cache: Arc<Cache>,
    pub(crate) counts: Counts,
    /// What merges would have to read, of the levels that are shown: writers ask for it with each batch.
    pub(crate) merge_bytes: AtomicU64,
    /// Memory of memtables that are gone.
    pub(crate) spare: Arc<Spare>,
    /// For how many turns what is applied is put in order.
    ordered_turns: AtomicU32,
    current: ArcSwap<Version>,
    writer: Mutex<Writer>,
    book: Mutex<Book>,
    /// One flush at a time, and one piece of any other work.
    flushing: Mutex<()>,
    merging: Mutex<()>,
    next_id: AtomicU64,
    /// Memtables that are in runs, and that somebody may still look at.
    written_out: Mutex<Vec<Weak<Memtable>>>,
    pub(crate) shunned: Shunned,
    /// Why it takes nothing more.
    pub(crate) closed: OnceLock<String>,
    is_read_only: bool,
}

/// What the one writer knows beside the version.
#[derive(Debug)]
struct Writer {
    /// What is in no active memtable any more.
    mark: u64,
    /// What was erased since then.
    erases: Vec<Range>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs {
    /// Opens the map in a folder; makes an empty one where there is nothing. What was applied behind
    /// [`Opened::applied`] is not in it: the owner applies it again.
    ///
    /// # Errors
    /// `Config`; `Damaged` if no manifest can be believed or a run is missing: then [`Runs::create`] begins anew, or [`crate::Bulk`]
    /// builds it anew; as the disk says.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path, config: Config) -> Result<(Self, Opened), RunsError> {
        let cache = config.check().and_then(|()| Cache::of(&config))?;
        let (book, opened, next_id) = Book::open(&disk, folder, &cache, config.settles_late)?;
        Ok(Self::of(disk, folder, config, cache, (book, opened, next_id)))
    }

    /// Opens the map in a folder and changes nothing on the disk, now or later: what is applied stays in memory. A folder that
    /// is not there, or has no map, is an empty one.
    ///
    /// # Errors
    /// As [`Runs::open`].
    pub fn open_read_only(disk: Arc<dyn Disk>, folder: &Path, config: Config) -> Result<(Self, Opened), RunsError> {
        let cache = config.check().and_then(|()| Cache::of(&config))?;
        let (book, opened) = Book::open_read_only(&*disk, folder)?;
        Ok(Self::of(disk, folder, config, cache, (book, opened, 0)))
    }

    /// Makes an empty map in a folder, whatever was there, and removes the runs that it had.
    ///
    /// # Errors
    /// `Config`; as the disk says: the folder's map is the new one or what it was.
    pub fn create(disk: Arc<dyn Disk>, folder: &Path, config: Config) -> Result<(Self, Opened), RunsError> {
        config.check()?;
        Book::create(&*disk, folder)?;
        Self::open(disk, folder, config)
    }

    /// An empty map without a folder: what is applied stays in memory.
    ///
    /// # Errors
    /// `Config`.
    pub fn in_memory(config: Config) -> Result<(Self, Opened), RunsError> {
        Self::open_read_only(Arc::new(Nowhere), Path::new(""), config)
    }

    fn of(
        disk: Arc<dyn Disk>,
        folder: &Path,
        config: Config,
        cache: Arc<Cache>,
        (book, opened, next_id): (Book, Opened, u64),
    ) -> (Self, Opened) {
        let run = |facts: &RunFacts| Run::open(&disk, folder, facts.clone(), &cache);
        let levels = book.contents().levels.iter().map(|level| level.iter().map(run).collect());
        let levels: Levels = levels.collect();
        let merge_bytes = debt_bytes(&levels, &config);
        let spare = Arc::new(Spare::new(config.memory_bytes_kept));
        let active = Arc::new(Memtable::with_room(config.memory_bytes_max, 0, &spare));
        let applied = opened.applied;
        let files = (Arc::new(levels), Memo::new(&cache));
        let version = Version::new(applied, active, Vec::new(), files, Arc::clone(book.erased()));
        let runs = Self {
            disk,
            folder: folder.to_path_buf(),
            config,
            cache,
            counts: Counts::default(),
            merge_bytes: AtomicU64::new(merge_bytes),
            spare,
            ordered_turns: AtomicU32::new(0),
            current: ArcSwap::from_pointee(version),
            writer: Mutex::new(Writer { mark: applied, erases: Vec::new() }),
            is_read_only: book.is_read_only(),
            book: Mutex::new(book),
            flushing: Mutex::default(),
            merging: Mutex::default(),
            next_id: AtomicU64::new(next_id),
            written_out: Mutex::default(),
            shunned: Shunned::default(),
            closed: OnceLock::new(),
        };
        (runs, opened)
    }

    /// Applies a batch at a place of the owner's order: visible at once and whole. If a batch has a key twice, the last one
    /// counts. An empty batch moves the place.
    ///
    /// # Errors
    /// `Size`, `Order`; `Busy` while memtables hold too much; `Closed`. Nothing was applied.
    pub fn apply(&self, seq: u64, changes: &[Change<'_>]) -> Result<(), RunsError> {
        changes.iter().try_for_each(check)?;
        self.refuse_closed()?;
        let mut writer = lock(&self.writer);
        // Not counted as somebody who holds it: writers would change that number in turn.
        let now = self.current.load();
        let newest = now.seq();
        if seq <= newest {
            return Err(RunsError::Order { seq, newest });
        }
        let erased: u64 = changes.iter().map(erased_bytes).sum();
        let bytes: u64 = entries(changes, seq).map(|entry| laid_bytes_max(entry.key, entry.value)).sum();
        let roomy = self.make_room(&now, bytes + erased)?;
        let version = roomy.as_ref().unwrap_or(&now);
        for part in changes.chunks(FETCHED) {
            if part.len() > 1 {
                version.active.fetch(entries(part, seq).map(|entry| entry.key));
            }
            if !entries(part, seq).all(|entry| version.active.insert(&entry)) {
                // Room was counted before; half a batch must never be seen.
                return Err(self.close("a memtable has less room than it promised".to_owned()));
            }
        }
        let before = writer.erases.len();
        writer.erases.extend(changes.iter().filter_map(|change| match *change {
            Change::Erase { from, to } => Some(Range { from: from.to_vec(), to: to.map(<[u8]>::to_vec), seq }),
            Change::Put { .. } | Change::Delete { .. } => None,
        }));
        let erases = writer.erases.get(before..).unwrap_or_default();
        if erases.is_empty() {
            version.show(seq);
            return Ok(());
        }
        version.active.count_erases(erased);
        let mut all = Erased::clone(&version.erased);
        all.erase(erases);
        let Version { active, frozen, .. } = &**version;
        self.publish(seq, active, frozen.clone(), version.files(), Arc::new(all));
        Ok(())
    }

    /// Closes the active memtable at a place, so that a step flushes it and [`Runs::applied`] comes there: also where nothing was
    /// applied, for a log has entries that are no changes. Only the owner does, for it knows what its note must say of
    /// that place. Nothing if there is nothing up to there that is not closed, and on a map that is read-only.
    pub fn rotate(&self, seq: u64) {
        let mut writer = lock(&self.writer);
        let version = self.current.load_full();
        let mark = version.seq().max(seq);
        if self.is_read_only || mark == writer.mark {
            return;
        }
        let erases = std::mem::take(&mut writer.erases);
        writer.mark = mark;
        let closed = Arc::new(Frozen { table: Arc::clone(&version.active), mark, erases });
        let frozen = std::iter::once(closed).chain(version.frozen.iter().cloned()).collect();
        // About as many as the one before, but for one that had far more than it should.
        let keys = version.active.keys().min(self.config.keys_ahead_max());
        let active = Arc::new(Memtable::with_room(self.config.memory_bytes_max, keys, &self.spare));
        self.publish(mark, &active, frozen, version.files(), Arc::clone(&version.erased));
    }

    /// The version that has the room, if it is a new one. Refuses a batch beyond the memory that there is, but for one that finds all of it empty.
    fn make_room(&self, version: &Version, bytes: u64) -> Result<Option<Arc<Version>>, RunsError> {
        let frozen: u64 = version.frozen.iter().map(|frozen| frozen.table.used_bytes()).sum();
        let held = frozen + version.active.used_bytes();
        let limit = self.config.memory_bytes_max;
        if held + bytes <= limit {
            return Ok(None);
        }
        if held > 0 {
            return Err(RunsError::Busy { what: "memtables", bytes: held + bytes, limit });
        }
        let Version { frozen, erased, .. } = version;
        let active = Arc::new(Memtable::with_room(bytes, 0, &self.spare));
        self.publish(version.seq(), &active, frozen.clone(), version.files(), Arc::clone(erased));
        Ok(Some(self.current.load_full()))
    }

    /// The next version. The caller holds the writer's lock.
    fn publish(&self, seq: u64, active: &Arc<Memtable>, frozen: Vec<Arc<Frozen>>, files: Files, erased: Arc<Erased>) {
        let version = Version::new(seq, Arc::clone(active), frozen, files, erased);
        self.current.store(Arc::new(version));
    }

    /// The newest place that was applied.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.current.load().seq()
    }

    /// The map as it is now, for as long as somebody looks.
    #[must_use]
    pub fn view(&self) -> View {
        View::of(self.current.load_full())
    }

    /// Puts what was applied since the last time in the order of keys, if anybody has walked in the last hundred calls: whoever
    /// walks would do it, and wait for so long. Without walks a memtable is put in order once, by its flush, which costs less.
    pub fn order(&self) {
        let version = self.version();
        let tables = std::iter::once(&version.active).chain(version.frozen.iter().map(|frozen| &frozen.table));
        if tables.filter(|table| table.take_walked()).count() > 0 {
            self.ordered_turns.store(ORDERED_TURNS, Ordering::Relaxed);
        }
        let turns = self.ordered_turns.load(Ordering::Relaxed);
        if turns > 0 {
            self.ordered_turns.store(turns - 1, Ordering::Relaxed);
            version.active.order();
        }
    }

    /// The value of a key now.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Found>, RunsError> {
        let version = self.current.load();
        Ok(found(version.find(key, version.seq())?))
    }

    /// The same for whoever only looks at it: `then` is told the place in the owner's order and the value. A short value takes no
    /// memory.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn look<R>(&self, key: &[u8], then: impl FnOnce(u64, &[u8]) -> R) -> Result<Option<R>, RunsError> {
        let version = self.current.load();
        let seen = |Seen { seq, value, .. }: Seen<'_>| value.map(|value| then(seq, value));
        Ok(version.look(key, version.seq(), Wanted::Value, seen)?.flatten())
    }

    /// What a key became last, a deletion too, as far as that is still known: deletions that have nothing more to hide are forgotten by
    /// merges. `then` is told the place in the owner's order, and the value if it was not deleted or erased there.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn newest<R>(&self, key: &[u8], then: impl FnOnce(u64, Option<&[u8]>) -> R) -> Result<Option<R>, RunsError> {
        let version = self.current.load();
        let newest = version.newest(key, version.seq())?;
        Ok(newest.map(|OwnedEntry { seq, value }| then(seq, value.as_deref())))
    }

    /// The same, and `then` is told too what is kept beside the row ([`Runs::keep_beside`]), or nothing.
    ///
    /// # Errors
    /// As [`View::get`].
    pub fn look_beside<R>(
        &self,
        key: &[u8],
        then: impl FnOnce(u64, &[u8], &[u8]) -> R,
    ) -> Result<Option<R>, RunsError> {
        let version = self.current.load();
        let seen = |Seen { seq, value, beside }: Seen<'_>| value.map(|value| then(seq, value, beside));
        Ok(version.look(key, version.seq(), Wanted::Beside, seen)?.flatten())
    }

    /// Keeps something beside the row that a key became at a place, for as long as that row is kept in memory: nothing, if it is not.
    /// Whoever finds the row finds both with one look. It must be true of that place for ever, for it is never asked for again.
    pub fn keep_beside(&self, key: &[u8], seq: u64, beside: &[u8]) {
        self.current.load().keep_beside(key, seq, beside);
    }

    /// What is kept beside the row that a key became at a place.
    pub fn beside<R>(&self, key: &[u8], seq: u64, then: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.current.load().beside(key, seq, then)
    }

    /// Bytes of entries that only memory has, and of the places of their keys.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let version = self.current.load();
        let frozen: u64 = version.frozen.iter().map(|frozen| frozen.table.counted_bytes()).sum();
        frozen + version.active.counted_bytes()
    }

    /// From now on the cache of its files holds no more than so many bytes, and its rows so many.
    pub fn hold_cache_bytes(&self, bytes: u64, rows_bytes: u64) {
        self.cache.hold(bytes, rows_bytes);
    }

    /// What the cache of its files may hold, as it was opened.
    #[must_use]
    pub const fn cache_bytes_max(&self) -> u64 {
        self.config.cache_bytes
    }

    /// Bytes of the process that only views keep: memtables that were written out, and that somebody still looks at. They come beside
    /// [`Runs::memory_bytes`], and go with the last view that sees them, but for what then waits for the next memtable.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        lock(&self.written_out).iter().filter_map(Weak::upgrade).map(|table| table.memory_bytes()).sum()
    }

    /// Up to here everything is in durable runs: the owner replays what follows.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.book().contents().applied
    }

    /// Up to here the owner may let its log go: no manifest, not even the older one that counts if the newest is damaged, asks
    /// for what is before.
    #[must_use]
    pub fn replay_floor(&self) -> u64 {
        self.book().floor()
    }

    /// Commits another note, and nothing else. What it says is made under the manifest's lock, and under the same hold of it
    /// `committed` is called once it is durable: no step commits meanwhile.
    ///
    /// # Errors
    /// `ReadOnly`; as the disk says; nothing was changed. `Closed` from then on, if it cannot be known whether it was.
    pub fn renote(&self, note: impl FnOnce() -> Vec<u8>, committed: impl FnOnce()) -> Result<(), RunsError> {
        if self.is_read_only {
            return Err(RunsError::ReadOnly);
        }
        let mut book = self.open_book()?;
        let next_id = self.next_id.load(Ordering::Relaxed);
        let note = note();
        self.wholly(|| {
            let done = book.renote(next_id, note);
            self.judge_commit(done).map(|()| committed())
        })
    }

    /// Does the most urgent piece of work, as [`Runs::flush`] or [`Runs::merge`] does it: for whoever has one thread for both.
    ///
    /// # Errors
    /// As [`Runs::flush`].
    pub fn step(&self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Option<Step>, RunsError> {
        if !self.is_read_only && Task::is_flush_first(self, owner) {
            let flushed = self.flush(owner, pace)?;
            if flushed.is_some() {
                return Ok(flushed);
            }
        }
        self.merge(owner, pace)
    }

    /// Flushes the oldest memtable that is closed. Waits for no merge: one may be under way in another thread. `None`: none
    /// waits, or nothing yet, for what waits is not durable in the owner's log; and always so on a map that is read-only.
    ///
    /// # Errors
    /// As the disk says, `Damaged` naming what could not be read: nothing was changed, and it may be tried again. `Closed`
    /// from then on, if it cannot be known whether the change counts.
    pub fn flush(&self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Option<Step>, RunsError> {
        self.work(&self.flushing, owner, pace, Task::flush_next)
    }

    /// Does the most urgent piece of work that is no flush: a drop, a move, a merge. A flush may be under way meanwhile. `None`:
    /// there is nothing to do.
    ///
    /// Runs that only the older manifest names keep their room until a commit. One that has nothing to do, or a step that finds
    /// the disk full, commits the same contents once more if there are such runs, and after a full disk it tries once more.
    ///
    /// # Errors
    /// As [`Runs::flush`].
    pub fn merge(&self, owner: &dyn Owner, pace: &dyn Pace) -> Result<Option<Step>, RunsError> {
        let done = self.work(&self.merging, owner, pace, Task::merge_next)?;
        if done.is_none() && !self.is_read_only {
            self.give_back()?;
        }
        Ok(done)
    }

    fn work<'a>(
        &'a self,
        lane: &Mutex<()>,
        owner: &dyn Owner,
        pace: &dyn Pace,
        next: impl Fn(&'a Self, &dyn Owner) -> Option<Task<'a>>,
    ) -> Result<Option<Step>, RunsError> {
        let _alone = lock(lane);
        self.refuse_closed()?;
        if self.is_read_only {
            return Ok(None);
        }
        let work = || next(self, owner).map(|task| task.run(owner, pace));
        let done = match work() {
            Some(Err(Halt::Failed(error))) if error.kind() == Kind::Full => match self.give_back() {
                Ok(true) => work(),
                Err(closed @ RunsError::Closed { .. }) => return Err(closed),
                Ok(false) | Err(_) => return Err(error),
            },
            done => done,
        };
        match done {
            None => Ok(None),
            Some(Ok(step)) => Ok(Some(step)),
            Some(Err(Halt::Stopped)) => Ok(Some(Step::Stopped)),
            Some(Err(Halt::Failed(error))) => Err(error),
        }
    }

    /// Commits what counts already once more, if runs wait to be named by no manifest: their files go, and their room comes back.
    /// Whether there were any.
    fn give_back(&self) -> Result<bool, RunsError> {
        let mut book = self.open_book()?;
        if book.leaving().is_empty() {
            return Ok(false);
        }
        let note = book.contents().note.clone();
        let done = self.wholly(|| book.renote(self.next_id.load(Ordering::Relaxed), note));
        self.judge_commit(done).map(|()| true)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// The book of a map that is not closed: behind a commit of which nobody knows whether it counts there is no other.
    fn open_book(&self) -> Result<MutexGuard<'_, Book>, RunsError> {
        let book = self.book();
        self.refuse_closed()?;
        Ok(book)
    }

    /// The version, without pinning it.
    pub(crate) fn now(&self) -> Guard<Arc<Version>> {
        self.current.load()
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        self.current.load_full()
    }

    pub(crate) fn new_id(&self) -> RunId {
        RunId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes what a step did durable, and then visible: what is there by now, with the step's change.
    pub(crate) fn commit(&self, edit: Edit, mut tally: Box<dyn Tally + '_>) -> Result<(), RunsError> {
        let mut book = self.open_book()?;
        let now = self.version();
        let levels = edit.levels(&book.contents().levels);
        let mut erased = Erased::clone(book.erased());
        let applied = edit.flushed.as_ref().map_or(book.contents().applied, |flushed| flushed.mark);
        erased.erase(edit.flushed.iter().flat_map(|flushed| &flushed.erases));
        let remembered = erased.fragments().len();
        erased.retain(|fragment| policy::is_needed(&levels, fragment));
        let has_forgotten = erased.fragments().len() < remembered;
        let old: BTreeMap<RunId, &Arc<Run>> =
            now.levels.iter().flat_map(|level| level.iter()).map(|run| (run.id(), run)).collect();
        let open = |facts: &RunFacts| match old.get(&facts.id) {
            Some(run) => Arc::clone(run),
            None => Run::open(&self.disk, &self.folder, facts.clone(), &self.cache),
        };
        let opened: Levels = levels.iter().map(|level| level.iter().map(open).collect()).collect();
        let kept: BTreeSet<RunId> = levels.iter().flatten().map(|run| run.id).collect();
        let removed = old.iter().filter(|(id, _)| !kept.contains(id)).map(|(_, run)| Arc::clone(run)).collect();
        let next_id = self.next_id.load(Ordering::Relaxed);
        let change = Commit { applied, levels, erased, removed };
        let note = tally.note(applied);
        // Before the book is let go: who commits next would work on what nobody is shown.
        self.wholly(|| {
            let done = book.commit(change, next_id, note);
            self.judge_commit(done)?;
            tally.committed();
            let memo = now.memo.after(edit.flushed.as_deref(), has_forgotten);
            self.show((opened, memo), book.erased(), edit.flushed.as_ref());
            Ok(())
        })
    }

    /// The version of what has just been committed. The caller holds the book: of two commits the later one is shown later.
    fn show(&self, (levels, memo): (Levels, Memo), durable: &Erased, flushed: Option<&Arc<Frozen>>) {
        let writer = lock(&self.writer);
        let version = self.current.load_full();
        let waits = |frozen: &&Arc<Frozen>| flushed.is_none_or(|flushed| !Arc::ptr_eq(frozen, flushed));
        let frozen: Vec<_> = version.frozen.iter().filter(waits).cloned().collect();
        if let Some(flushed) = flushed {
            let mut written_out = lock(&self.written_out);
            written_out.retain(|table| table.strong_count() > 0);
            written_out.push(Arc::downgrade(&flushed.table));
        }
        let mut erased = Erased::clone(durable);
        erased.erase(frozen.iter().flat_map(|frozen| &frozen.erases).chain(&writer.erases));
        self.merge_bytes.store(debt_bytes(&levels, &self.config), Ordering::Relaxed);
        self.publish(version.seq(), &version.active, frozen, (Arc::new(levels), memo), Arc::new(erased));
    }

    fn judge_commit(&self, done: Result<(), Refused>) -> Result<(), RunsError> {
        match done {
            Ok(()) => {
                Counts::add(&self.counts.commits, 1);
                Ok(())
            }
            Err(Refused::Nothing(error)) => Err(error),
            Err(Refused::Unknown(error)) => Err(self.close(error.to_string())),
        }
    }
}

fn debt_bytes(levels: &Levels, config: &Config) -> u64 {
    let full = |runs: &Arc<[Arc<Run>]>| (runs.len(), runs.iter().map(|run| run.facts().bytes).sum());
    policy::debt_bytes(levels.iter().map(full), config)
}

fn entries<'a>(changes: &'a [Change<'a>], seq: u64) -> impl Iterator<Item = Entry<'a>> {
    changes.iter().filter_map(move |change| match *change {
        Change::Put { key, value } => Some(Entry { key, seq, value: Some(value) }),
        Change::Delete { key } => Some(Entry { key, seq, value: None }),
        Change::Erase { .. } => None,
    })
}

fn check(change: &Change<'_>) -> Result<(), RunsError> {
    let within = |part, bytes: usize, limit: usize| {
        let number = |bytes| u64::try_from(bytes).unwrap_or(u64::MAX);
        let error = RunsError::Size { part, bytes: number(bytes), limit: number(limit) };
        if bytes <= limit { Ok(()) } else { Err(error) }
    };
    match *change {
        Change::Put { key, value } => {
            within("key", key.len(), KEY_BYTES_MAX)?;
            within("value", value.len(), VALUE_BYTES_MAX)
        }
        Change::Delete { key } => within("key", key.len(), KEY_BYTES_MAX),
        Change::Erase { from, to } => {
            within("key", from.len(), KEY_BYTES_MAX)?;
            within("key", to.map_or(0, <[u8]>::len), KEY_BYTES_MAX)
        }
    }
}
