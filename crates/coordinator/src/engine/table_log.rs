//! The table as a log: what is appended changes rows, what is read are the rows.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use assent_ids::{Epoch, Lsn};
use assent_journal::{Counts, Entry, JournalError, Log, State, Ticket};
use assent_kind::Kind;
use assent_world::{Clock, Dice, Disk, Gate, Lock};

use crate::engine::copies::{self, Believed, Engine, Found, Making, NAMES, is_foreign, make, refused};
use crate::engine::core::{Core, Opening};
use crate::engine::image::Image;
use crate::engine::layout::{BLOCK, BLOCK_BYTES, BLOCKS_MAX, Head};
use crate::engine::rows::{self, Change, Unplanned};
use crate::engine::{TableConfig, barrier};

/// The file whose lock says that the folder is open; the journal's too.
const LOCK: &str = "LOCK";

type Reading<'a> = Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send + 'a>;

/// A state table updated in place, under the contract of a log. Keeps no history: [`Log::keeps_history`] says so.
#[derive(Debug)]
pub struct TableLog {
    pub(crate) config: TableConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) folder: PathBuf,
    pub(crate) opening: Opening,
    pub(crate) core: Mutex<Core>,
    pub(crate) growing: Mutex<()>,
    pub(crate) keeper: OnceLock<Arc<Gate>>,
    pub(crate) lock: Mutex<Option<Box<dyn Lock>>>,
    /// Everything before this is in the kernel; where RPO is 0, durable.
    pub(crate) landed: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) idle: AtomicU64,
    pub(crate) counters: Counters,
    may_have_lost: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) entries: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) segments: AtomicU64,
}

impl TableLog {
    /// Opens a folder, made if missing, and tells what was found. What it then serves is durable.
    ///
    /// # Errors
    /// `Config`; `Locked` if another process has it open; `Corrupt`, naming file and offset, if durable bytes are damaged
    /// in all files (nothing has been changed then); `Disk` as the disk says, and for a folder of another engine.
    pub fn open(
        disk: &dyn Disk,
        clock: Arc<dyn Clock>,
        dice: &dyn Dice,
        folder: &Path,
        config: TableConfig,
    ) -> Result<(Arc<Self>, Found), JournalError> {
        config.check()?;
        foreign(disk, folder)?;
        let lock = enter(disk, folder)?;
        let believed = copies::examine(disk, folder)?;
        let next = |epoch: u32| epoch.saturating_add(1).saturating_add(config.epochs_skipped);
        let found = report(folder, believed.as_ref(), &*clock, next);
        let id =
            believed.as_ref().map_or_else(|| u128::from(dice.roll()) << 64 | u128::from(dice.roll()), |it| it.head.id);
        let opening = Opening { id, boot: clock.boot_id(), epoch: found.epoch };
        let (mut head, image) = again(opening, config.is_lazy(), believed.as_ref());
        let bytes = (u64::from(image.blocks()) + 1) * BLOCK_BYTES;
        let (count, bytes) = (config.files(), bytes.next_multiple_of(config.log_size));
        let making = Making { disk, folder, count, bytes, direct: config.is_direct() };
        let copies = make(making, &image, &mut head, believed.as_ref().map(|it| it.file))?;
        let newest = (0..copies.len()).max_by_key(|at| copies.get(*at).map(|copy| copy.generation)).unwrap_or(0);
        let room = u32::try_from(bytes / BLOCK_BYTES - 1).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX);
        let mut core = Self::core_of(image, &head, clock.now());
        (core.copies, core.newest, core.kept, core.room) = (copies, newest, newest, room);
        (core.is_lazy, core.is_doubled) = (config.is_lazy(), true);
        Ok((Arc::new(Self::of(core, config, clock, folder, opening, found.may_have_lost, Some(lock))), found))
    }

    /// What its next opening would read, and nothing is written: for a stopped coordinator's folder.
    ///
    /// # Errors
    /// As [`TableLog::open`]; `NotFound` if there is no table.
    pub fn open_read_only(
        disk: &dyn Disk,
        clock: Arc<dyn Clock>,
        folder: &Path,
    ) -> Result<(Self, Found), JournalError> {
        let Some(believed) = copies::examine(disk, folder)? else {
            let missing = std::io::ErrorKind::NotFound.into();
            return Err(refused("opening", &folder.join(NAMES[0]), &missing));
        };
        let found = report(folder, Some(&believed), &*clock, |epoch| epoch);
        let opening = Opening { id: believed.head.id, boot: believed.head.boot, epoch: found.epoch };
        let (head, image) = again(opening, believed.head.is_lazy, Some(&believed));
        let mut core = Self::core_of(image, &head, clock.now());
        core.closed = Some("it was opened to read".to_owned());
        let table = Self::of(core, TableConfig::default(), clock, folder, opening, found.may_have_lost, None);
        Ok((table, found))
    }

    fn core_of(image: Image, head: &Head, now: assent_world::Moment) -> Core {
        Core {
            image,
            copies: Vec::new(),
            newest: 0,
            kept: 0,
            generation: head.generation,
            synced: head.generation,
            end: head.end,
            flying: head.end,
            is_busy: false,
            flight: Arc::default(),
            open: Arc::default(),
            closed: None,
            is_full: false,
            room: 0,
            is_doubled: false,
            since: None,
            last_sync: now,
            buffer: None,
            is_lazy: false,
        }
    }

    fn of(
        core: Core,
        config: TableConfig,
        clock: Arc<dyn Clock>,
        folder: &Path,
        opening: Opening,
        may_have_lost: bool,
        lock: Option<Box<dyn Lock>>,
    ) -> Self {
        let end = core.end;
        Self {
            config,
            clock,
            folder: folder.to_path_buf(),
            opening,
            core: Mutex::new(core),
            growing: Mutex::new(()),
            keeper: OnceLock::new(),
            lock: Mutex::new(lock),
            landed: AtomicU64::new(end),
            durable: AtomicU64::new(end),
            idle: AtomicU64::new(u64::MAX),
            counters: Counters::default(),
            may_have_lost,
        }
    }

    /// What it has done since it was opened. An entry is a record that changed rows, a write a run of neighbouring blocks, a
    /// segment a piece of every file made ahead.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { entries, writes, syncs, bytes, segments } = &self.counters;
        Counts {
            entries: read(entries),
            writes: read(writes),
            syncs: read(syncs),
            bytes: read(bytes),
            segments: read(segments),
            ..Counts::default()
        }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn writable(&self, core: &Core) -> Result<(), JournalError> {
        let folder = || self.folder.display().to_string();
        core.closed.clone().map_or(Ok(()), |reason| Err(JournalError::Closed { folder: folder(), reason }))
    }

    /// Changes the table, if there is room; else how often the caller must make some is told by `None`.
    fn change(&self, kind: u16, payload: &[u8]) -> Result<Option<Ticket>, JournalError> {
        let core = &mut *self.core();
        self.writable(core)?;
        let changes = rows::plan(&core.image, kind, payload).map_err(|why| match why {
            Unplanned::Kind => JournalError::EntryKind { kind },
            Unplanned::Malformed(malformed) => JournalError::Corrupt {
                file: self.folder.display().to_string(),
                offset: core.end,
                what: malformed.to_string(),
            },
        })?;
        let lsn = Lsn(core.end);
        if changes.is_empty() {
            return Ok(Some(Ticket { lsn, end: lsn }));
        }
        let puts = changes.iter().filter_map(|change| match change {
            Change::Put(_, row) => Some(row.len()),
            Change::Remove(_) => None,
        });
        let lacks = core.image.lacks(puts);
        if core.image.blocks().saturating_add(lacks) > core.room {
            return Ok(None);
        }
        // A row that went in says that there is room.
        core.is_full &= changes.iter().all(|change| matches!(change, Change::Remove(_)));
        let none = std::collections::BTreeSet::new();
        let target = core.target();
        let soon = target.and_then(|at| core.copies.get(at)).map_or(&none, |copy| &copy.stale);
        for change in changes {
            match change {
                Change::Put(key, row) => core.image.put(key, &row, soon),
                Change::Remove(key) => _ = core.image.remove(key),
            }
        }
        core.is_doubled = false;
        core.end += 1;
        _ = self.counters.entries.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Ticket { lsn, end: Lsn(core.end) }))
    }
}

impl Log for TableLog {
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        let payload = match parts {
            [one] => Cow::Borrowed(*one),
            parts => Cow::Owned(parts.concat()),
        };
        loop {
            if let Some(ticket) = self.change(kind, &payload)? {
                return Ok(ticket);
            }
            self.grow().inspect_err(|error| self.core().is_full |= error.kind() == Kind::Full)?;
        }
    }

    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.reach(ticket.end.0)
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.reach(ticket.end.0)?;
        if self.config.is_lazy() { self.sync_written(ticket.end.0) } else { Ok(()) }
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        let end = Lsn(self.core().end);
        self.wait_durable(Ticket { lsn: end, end })?;
        Ok(self.durable())
    }

    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn end(&self) -> Lsn {
        Lsn(self.core().end)
    }

    fn start(&self) -> Lsn {
        Lsn(0)
    }

    fn read(&self, from: Lsn) -> Result<Reading<'_>, JournalError> {
        let records = rows::records(&self.core().image);
        let entries = (0..)
            .zip(records)
            .map(|(number, (kind, payload))| Ok(Entry { lsn: Lsn(number), end: Lsn(number + 1), kind, payload }));
        Ok(Box::new(entries.skip_while(move |entry: &Result<Entry, _>| matches!(entry, Ok(entry) if entry.lsn < from))))
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        Err(JournalError::NotFound { lsn })
    }

    /// There is nothing to trim.
    fn trim(&self, _: Lsn) -> Result<(), JournalError> {
        Ok(())
    }

    fn epoch(&self) -> Epoch {
        self.opening.epoch
    }

    fn state(&self) -> State {
        let core = self.core();
        match (&core.closed, core.is_full) {
            (Some(_), _) => State::Closed,
            (None, true) => State::Full,
            (None, false) => State::Open,
        }
    }

    fn is_lazy(&self) -> bool {
        self.config.is_lazy()
    }

    fn may_have_lost(&self) -> bool {
        self.may_have_lost
    }

    fn keeps_history(&self) -> bool {
        false
    }
}

fn foreign(disk: &dyn Disk, folder: &Path) -> Result<(), JournalError> {
    match is_foreign(disk, folder, Engine::Table)? {
        None => Ok(()),
        Some(_) => Err(JournalError::Config {
            name: "engine",
            value: "\"table\"".to_owned(),
            rule: "this folder holds a journal: write engine = \"journal\", or give the coordinator another data folder",
        }),
    }
}

/// Makes the folder if it is missing and locks it.
fn enter(disk: &dyn Disk, folder: &Path) -> Result<Box<dyn Lock>, JournalError> {
    let is_settled = disk.list(folder).is_ok_and(|names| names.iter().any(|name| NAMES.contains(&name.as_str())));
    if !is_settled {
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
        std::io::ErrorKind::WouldBlock => JournalError::Locked { folder: folder.display().to_string() },
        _ => refused("locking", &path, &error),
    })
}

/// The rows laid anew, and the head of the first fresh file.
fn again(opening: Opening, is_lazy: bool, believed: Option<&Believed>) -> (Head, Image) {
    let mut image = Image::new(opening.id);
    let before = believed.map(|it| &it.head);
    let generation = before.map_or(0, |head| head.generation) + 1;
    let none = std::collections::BTreeSet::new();
    for (key, row) in believed.iter().flat_map(|it| &it.rows) {
        image.put(*key, row, &none);
    }
    _ = image.seal(generation);
    let Opening { id, boot, epoch } = opening;
    let head = Head {
        id,
        boot,
        epoch,
        is_lazy,
        is_closed: false,
        generation,
        synced: before.map_or(0, |head| head.synced),
        end: before.map_or(0, |head| head.end),
        blocks: image.blocks(),
        digest: image.digest(),
    };
    (head, image)
}

fn report(folder: &Path, believed: Option<&Believed>, clock: &dyn Clock, next: impl FnOnce(u32) -> u32) -> Found {
    let head = believed.map(|it| &it.head);
    let path = |file: usize| NAMES.get(file).map(|name| folder.join(name)).unwrap_or_default();
    let is_clean = head.is_none_or(|head| head.is_closed);
    let is_same_boot = head.is_none_or(|head| head.boot == clock.boot_id() && head.boot != 0);
    let healed =
        |it: &Believed| it.healed.iter().map(|number| (path(it.file), u64::from(*number) * BLOCK_BYTES)).collect();
    Found {
        epoch: Epoch(next(head.map_or(0, |head| head.epoch.0))),
        rows: believed.map_or(0, |it| u64::try_from(it.rows.len()).unwrap_or(u64::MAX)),
        is_clean,
        is_same_boot,
        may_have_lost: !is_clean && !is_same_boot && head.is_some_and(|head| head.is_lazy),
        torn: believed.and_then(|it| it.torn).map(path),
        healed: believed.map(healed).unwrap_or_default(),
    }
}

/// Two files of any bytes, read as an opening reads them: what is believed, laid anew, is the same.
pub(crate) fn believe_again(one: &[u8], other: &[u8]) {
    let files = [Some(one.to_vec()), Some(other.to_vec()), None];
    let Ok(Some(believed)) = copies::examine_bytes(&files) else { return };
    let Head { id, boot, epoch, is_lazy, .. } = believed.head;
    let (head, image) = again(Opening { id, boot, epoch }, is_lazy, Some(&believed));
    let mut bytes = vec![0; BLOCK];
    head.lay(&mut bytes);
    (1..=image.blocks()).for_each(|number| bytes.extend_from_slice(image.bytes(number)));
    let read = copies::examine_bytes(&[None, None, Some(bytes)]).ok().flatten();
    assert!(read.is_some_and(|again| again.rows == believed.rows), "a table is not what it was");
    rows::records(&image).into_iter().for_each(|(kind, row)| _ = crate::record::Record::read(kind, &row));
}
