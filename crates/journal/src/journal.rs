//! The local-disk form of the [`Log`] contract.
//!
//! Walk: [`Journal::open`] examines, makes the new epoch durable (or leaves that to the first write), rescues what is in doubt, and only then
//! serves · `append` lays frames · `commit` makes them durable · `reader` reads them · `upkeep` does what is off the commit path · `cut` moves
//! the end back · [`Journal::close`] leaves a claim that everything is durable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use assent_ids::{Epoch, Lsn};
use assent_kind::Kind;
use assent_world::{Clock, Dice, Disk, Gate, Lock, read_exact_at};

use crate::backlog::Backlog;
use crate::config::Config;
use crate::epochs::{self, Epochs, Opening};
use crate::error::{damaged, refused};
use crate::group::Core;
use crate::layout::{BLOCK_BYTES, SegmentHead, block_of, length};
use crate::listing;
use crate::reader::Source;
use crate::recovery::{self, Found, Recovery};
use crate::restamp::restamp;
use crate::segment::{self, Files, Leaving, Segment, Segments};
use crate::{JournalError, append, barrier, cut};

/// A log on this machine's disk. Shared by [`Arc`]; all methods may be called from many threads.
#[derive(Debug)]
pub struct Journal {
    pub(crate) files: Arc<Files>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) folder: PathBuf,
    pub(crate) config: Config,
    /// A longer entry is laid as a chain.
    pub(crate) frame_bytes_max: usize,
    pub(crate) epoch: u32,
    pub(crate) salt: u64,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) may_have_lost: bool,
    /// All segments in order: the archived ones first, those made ahead last.
    pub(crate) segments: RwLock<Segments>,
    /// Held while segments are made or given back: one thread does so at a time.
    pub(crate) making: Mutex<Making>,
    core: Mutex<Core>,
    backlog: Mutex<Backlog>,
    /// Everything before has landed: it is in the kernel, and durable where RPO is 0.
    pub(crate) landed: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) idle: AtomicU64,
    /// Somebody looks for a landing before he sleeps.
    pub(crate) looking: AtomicBool,
    pub(crate) counters: Counters,
    /// Bytes of the disk that its owner wants to stay free.
    pub(crate) leaves_bytes: AtomicU64,
    /// Where the keeper sleeps.
    keeper: OnceLock<Arc<Gate>>,
    /// This opening's epoch is durable: before that nothing of it is written.
    is_settled: AtomicBool,
    settling: Mutex<()>,
    pub(crate) lock: Mutex<Option<Box<dyn Lock>>>,
}

/// What the one thread that makes or gives back segments knows.
#[derive(Debug, Default)]
pub(crate) struct Making {
    /// Trimmed segments that wait to be used again, each under a name of its own.
    pub(crate) recycled: Vec<(PathBuf, Arc<Segment>)>,
    /// The bytes of all archived segments that nobody else has to release.
    pub(crate) archived_bytes: u64,
    /// Released ones that are read by somebody: one for each who was about it at that moment.
    pub(crate) leaving: Vec<Leaving>,
    /// Whether a trimmed segment is gone is unknown.
    pub(crate) trim_failed: Option<JournalError>,
    /// It was closed: its folder may be another opening's.
    pub(crate) is_left: bool,
}

/// What a journal has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) writes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) zeroed: AtomicU64,
    /// Not since it was opened: segments that wait to be used again now.
    pub(crate) waiting: AtomicUsize,
}

/// What a journal has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries appended.
    pub entries: u64,
    /// Batches written.
    pub writes: u64,
    /// Syncs and durable writes.
    pub syncs: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Segments made.
    pub segments: u64,
    /// Bytes of zeroes written ahead for them: not for those that were used before, nor where room is reserved and not written.
    pub zeroed_bytes: u64,
}

/// So often a close looks whether what was under way has ended, where nobody tells it.
const STILL_EVERY: Duration = Duration::from_millis(10);
/// The file whose lock says that the folder is open.
pub(crate) const LOCK: &str = "LOCK";

impl Journal {
    /// Opens a folder, made if missing, and tells what was found. What it then serves is durable.
    ///
    /// # Errors
    /// `Config`; `Locked` if another process has it open; `Corrupt`, naming file and offset, if durable bytes are damaged
    /// (nothing has been changed then); `Disk` as the disk says.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dice: Arc<dyn Dice>,
        folder: &Path,
        config: Config,
    ) -> Result<(Arc<Self>, Recovery), JournalError> {
        config.check()?;
        let lock = enter(&*disk, folder)?;
        Self::begin((disk, clock, dice), folder, config, lock, None)
    }

    /// Begins an opening of a folder that is locked; with `cut`, the log ends there.
    pub(crate) fn begin(
        (disk, clock, dice): (Arc<dyn Disk>, Arc<dyn Clock>, Arc<dyn Dice>),
        folder: &Path,
        config: Config,
        lock: Box<dyn Lock>,
        cut: Option<u64>,
    ) -> Result<(Arc<Self>, Recovery), JournalError> {
        let files = Files::new(disk);
        let (mut found, mut epochs) = examine(&files, folder, config.settles_late && cut.is_none())?;
        let restamped = if cut.is_none() { restamp(&files, folder, &mut found, &epochs, &config)? } else { 0 };
        let is_late = config.settles_late && cut.is_none() && found.is_settled() && !epochs.is_full();
        let last = epochs.last();
        let epoch = last.map_or(1, |(epoch, _)| epoch.saturating_add(1)).saturating_add(config.epochs_skipped);
        let opening = Opening { salt: dice.roll(), boot: clock.boot_id(), lazy: config.lazy() };
        epochs.open(epoch, opening, &found.living);
        forget_unused(&*files.disk, folder);
        let (mut segments, rescued) = loop {
            if is_late {
                break (found.segments.to_vec(), 0);
            }
            let settled = epochs::store(&*files.disk, folder, &epochs)
                .and_then(|()| settle(&files, folder, &found, (epoch, opening.salt), &config));
            match settled {
                // Both may be done twice.
                Err(error)
                    if error.kind() == Kind::Full
                        && !config.kept_until_released
                        && give_way(&*files.disk, folder, &found)? => {}
                settled => break settled?,
            }
        };
        let epochs = Arc::new(epochs);
        if let Some(to) = cut.filter(|to| *to < found.end) {
            let source =
                Source { files: Arc::clone(&files), segments: Arc::new(segments), epochs: Arc::clone(&epochs) };
            segments = cut::cut(source, folder, to, (epoch, opening.salt), config.direct())?;
            (found.end, found.synced) = (to, found.synced.min(to));
        }
        let start = segments.first().map_or(0, |segment| segment.first());
        let archived = listing::list_archived(&*files.disk, folder, start, config.kept_until_released)?;
        let removable = archived.iter().filter(|segment| !segment.is_owned());
        let making = Making { archived_bytes: removable.map(|segment| segment.head.size).sum(), ..Making::default() };
        let rescued = rescued.max(restamped);
        let recovery = report(&found, Epoch(epoch), last.map(|(_, opening)| opening), &*clock, start, rescued);
        let mut config = config;
        let core = core(&files, &segments, &found, &mut config)?;
        let journal = Self {
            frame_bytes_max: append::frame_bytes_max(&config, &core.spares),
            epoch,
            salt: opening.salt,
            epochs,
            may_have_lost: recovery.may_have_lost,
            segments: RwLock::new(Arc::new([archived, segments].concat())),
            making: Mutex::new(making),
            keeper: OnceLock::new(),
            core: Mutex::new(core),
            backlog: Mutex::new(Backlog::new(clock.now())),
            landed: AtomicU64::new(found.end),
            durable: AtomicU64::new(found.end),
            idle: AtomicU64::new(u64::MAX),
            looking: AtomicBool::new(false),
            counters: Counters::default(),
            leaves_bytes: AtomicU64::new(0),
            is_settled: AtomicBool::new(!is_late),
            settling: Mutex::default(),
            lock: Mutex::new(Some(lock)),
            folder: folder.to_path_buf(),
            files,
            clock,
            config,
        };
        Ok((Arc::new(journal), recovery))
    }

    /// Makes everything durable, leaves the claim that it is, and takes nothing more. Reads go on. The next open finds
    /// nothing in doubt.
    ///
    /// # Errors
    /// `Closed` if it was already, or a write failed.
    pub fn close(&self) -> Result<(), JournalError> {
        let result = self.leave();
        self.shut("it was closed").is_left = true;
        self.wait_until_still();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        result
    }

    /// What it has done since it was opened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { writes, syncs, bytes, entries, segments, zeroed, waiting: _ } = &self.counters;
        Counts {
            entries: read(entries),
            writes: read(writes),
            syncs: read(syncs),
            bytes: read(bytes),
            segments: read(segments),
            zeroed_bytes: read(zeroed),
        }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes nothing more, for this reason if there is none yet; nobody makes or gives back segments while the answer is held, and after that
    /// none is made: the folder may be somebody else's.
    pub(crate) fn shut(&self, reason: &str) -> MutexGuard<'_, Making> {
        self.core().closed.get_or_insert_with(|| reason.to_owned());
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, behind [`Journal::shut`], until nothing that was begun is on its way to the disk any more. A write that hangs there while the journal
    /// fails would else end over what the next opening wrote at the same place, and an epoch over the next one's.
    pub(crate) fn wait_until_still(&self) {
        drop(self.settling.lock().unwrap_or_else(PoisonError::into_inner));
        loop {
            let mut core = self.core();
            if core.writing == 0 && !core.idling {
                return;
            }
            // Whoever lands on a journal that is closed wakes everyone; who was idle does not.
            let seat = core.seat(u64::MAX);
            drop(core);
            seat.gate.wait(seat.seen, Some(STILL_EVERY));
        }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this keeper is called when something is due that it cannot know.
    pub(crate) fn tell_keeper(&self, gate: &Arc<Gate>) {
        _ = self.keeper.set(Arc::clone(gate));
    }

    pub(crate) fn has_keeper(&self) -> bool {
        self.keeper.get().is_some()
    }

    pub(crate) fn call_keeper(&self) {
        if let Some(gate) = self.keeper.get() {
            gate.bump();
            gate.wake(1);
        }
    }

    /// Whether this opening has made its epoch durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    /// Makes this opening's epoch durable, if that was left to its first write.
    ///
    /// # Errors
    /// `Full`: nothing has happened, and the next write tries again. `Closed` if it may have been made durable or not.
    pub(crate) fn settle(&self) -> Result<(), JournalError> {
        if self.is_settled() {
            return Ok(());
        }
        let _alone = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_settled() {
            return Ok(());
        }
        self.writable(&self.core())?;
        match epochs::store(&*self.files.disk, &self.folder, &self.epochs) {
            Ok(()) => {
                self.is_settled.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) if error.kind() == Kind::Full => Err(error),
            Err(error) => Err(self.poison(error.to_string())),
        }
    }

    /// The segments as they are now, to read from.
    pub(crate) fn source(&self) -> Source {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner).clone();
        Source { files: Arc::clone(&self.files), segments, epochs: Arc::clone(&self.epochs) }
    }

    pub(crate) fn writable(&self, core: &Core) -> Result<(), JournalError> {
        if core.closed.is_some() { Err(self.closed_error(core)) } else { Ok(()) }
    }

    pub(crate) fn closed_error(&self, core: &Core) -> JournalError {
        let reason = core.closed.clone().unwrap_or_else(|| "it was closed".to_owned());
        JournalError::Closed { folder: self.folder.display().to_string(), reason }
    }
}

/// Makes the folder if it is missing and locks it.
fn enter(disk: &dyn Disk, folder: &Path) -> Result<Box<dyn Lock>, JournalError> {
    let names = disk.list(folder);
    let settled = names.is_ok_and(|names| names.iter().any(|name| name == epochs::NAME));
    if !settled {
        // Also if the folder is there: who made it may have died before its entry was durable.
        disk.create_dir(folder).map_err(|error| refused("making", folder, &error))?;
        let parent = match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => folder,
        };
        disk.sync_dir(parent, barrier::FOLDER).map_err(|error| refused("syncing", parent, &error))?;
    }
    let path = folder.join(LOCK);
    disk.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => JournalError::Locked { folder: folder.display().to_string() },
        _ => refused("locking", &path, &error),
    })
}

/// Reads what is there; changes nothing. With `is_brief`, only the end where that was left as such.
pub(crate) fn examine(files: &Arc<Files>, folder: &Path, is_brief: bool) -> Result<(Found, Epochs), JournalError> {
    let disk = &*files.disk;
    let names = disk.list(folder).map_err(|error| refused("listing", folder, &error))?;
    let epochs = epochs::load(disk, folder)?;
    let segments = listing::list(disk, folder, &names)?;
    if let (None, Some(segment)) = (&epochs, segments.first()) {
        return Err(damaged(segment.path(), 0, "there are segments, but the file `epochs` beside them is missing"));
    }
    let epochs = epochs.unwrap_or_default();
    let (segments, known) = (Arc::new(segments), Arc::new(epochs.clone()));
    let found = if is_brief { recovery::examine_end(files, folder, &segments, &known)? } else { None };
    let found = found.map_or_else(|| recovery::examine(files, segments, &known), Ok)?;
    Ok((found, epochs))
}

/// Removes the oldest archived segment, durably, so that a full disk opens: history gives way to the live log. False if
/// there is none.
fn give_way(disk: &dyn Disk, folder: &Path, found: &Found) -> Result<bool, JournalError> {
    let Some(live) = found.segments.first() else { return Ok(false) };
    let archived = listing::list_archived(disk, folder, live.first(), false)?;
    let Some(oldest) = archived.iter().find(|segment| !segment.is_owned()) else { return Ok(false) };
    disk.unlink(oldest.path()).map_err(|error| refused("removing", oldest.path(), &error))?;
    disk.sync_dir(folder, barrier::PRUNE).map_err(|error| refused("syncing", folder, &error))?;
    Ok(true)
}

/// A trimmed segment that waited to be used again may be of any length and age, and what was to be one may be a part of it: their room is
/// there before any is asked for.
fn forget_unused(disk: &dyn Disk, folder: &Path) {
    _ = disk.unlink(&folder.join(segment::NEXT));
    for others in 0..segment::RECYCLED_MAX {
        _ = disk.unlink(&folder.join(segment::recycled_name(others)));
    }
    // As it was named before there could be several.
    _ = disk.unlink(&folder.join("recycled.tmp"));
}

/// Ends all doubt: the first segment if there is none, else a fresh copy of what nobody claims to be durable.
fn settle(
    files: &Files,
    folder: &Path,
    found: &Found,
    (epoch, salt): (u32, u64),
    config: &Config,
) -> Result<(Vec<Arc<Segment>>, u64), JournalError> {
    let disk = &*files.disk;
    if found.segments.is_empty() {
        let head = SegmentHead { first: 0, size: config.log_size, epoch, salt, recycled: false };
        let barriers = [barrier::SEGMENT, barrier::SEGMENT_ENTRY];
        let first = segment::make(
            disk,
            &segment::Making { folder, head, recycled: None, direct: config.direct(), lazy: config.lazy(), barriers },
            |_, _| Ok(()),
        )
        .map_err(|unmade| unmade.error)?;
        return Ok((vec![first], 0));
    }
    recovery::rescue(files, folder, found, (epoch, salt), config)
}

fn core(files: &Files, segments: &[Arc<Segment>], found: &Found, config: &mut Config) -> Result<Core, JournalError> {
    let tail = found.end;
    let index = segment::holder(segments, tail).unwrap_or(0);
    let (before, spares) = segments.split_at_checked(index + 1).unwrap_or((segments, &[]));
    let Some(segment) = before.last() else {
        return Err(JournalError::NotFound { lsn: Lsn(tail) });
    };
    for segment in spares.iter().chain([segment]) {
        segment.open_writer(&*files.disk, config.direct())?;
    }
    // A file system that refuses O_DIRECT: the journal must know, as behind the page cache it writes one at a time.
    config.direct &= segment.writer().is_none_or(|file| file.is_direct());
    let mut tail_block = vec![0; length(tail % BLOCK_BYTES)];
    let file = files.read(segment)?;
    read_exact_at(&*file, segment.offset(block_of(tail)), &mut tail_block)
        .map_err(|error| refused("reading", segment.path(), &error))?;
    let spares = spares.iter().cloned().collect();
    let memory_bytes = config.max_buffer_log_size;
    let mut core = Core::new(
        (Arc::clone(segment), spares),
        tail,
        tail_block,
        memory_bytes,
        (config.direct(), config.kept_until_released),
    );
    core.claimed = found.synced;
    Ok(core)
}

pub(crate) fn report(
    found: &Found,
    epoch: Epoch,
    last: Option<Opening>,
    clock: &dyn Clock,
    start: u64,
    rescued_bytes: u64,
) -> Recovery {
    let clean = found.closed || last.is_none();
    let same_boot = last.is_none_or(|opening| opening.boot == clock.boot_id() && opening.boot != 0);
    Recovery {
        epoch,
        start: Lsn(start),
        end: Lsn(found.end),
        batches: found.batches,
        entries: found.entries,
        clean,
        same_boot,
        may_have_lost: !clean && !same_boot && last.is_some_and(|opening| opening.lazy),
        torn: found.torn.clone(),
        rescued_bytes,
    }
}
