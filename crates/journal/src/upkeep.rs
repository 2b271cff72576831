//! What is off the commit path: segments made ahead, the bound of RPO > 0, the claim of an idle log, trimmed segments.
//!
//! Walk: [`Journal::maintain`] does what is due and says when to come back; the [`Keeper`](crate::Keeper) does so for all
//! journals of a process · [`Journal::give_back`] trims · [`Journal::let_go`] releases one that was kept ·
//! [`Journal::give_way`] makes room on a full disk · [`Journal::leave`] is the last word of a clean close.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use assent_ids::Lsn;
use assent_kind::Kind;
use assent_world::{Access, Barrier, File, Open};

use crate::JournalError;
use crate::barrier;
use crate::buffer::Batch;
use crate::closed;
use crate::error::refused;
use crate::group::Landed;
use crate::journal::{Journal, Making};
use crate::segment::{self, Leaving, Segment};

/// How often an open journal is looked after, if nothing is due before.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a segment was not given back.
#[derive(Debug)]
struct Undone {
    error: JournalError,
    /// Everything is as it was, and may be tried again. Else what the disk holds is unknown.
    is_known: bool,
}

impl Undone {
    /// The disk refused to change a name. That there is no room for another one says that nothing was changed.
    fn of_a_name(error: JournalError) -> Self {
        Self { is_known: error.kind() == Kind::Full, error }
    }
}

impl From<JournalError> for Undone {
    fn from(error: JournalError) -> Self {
        Self { error, is_known: false }
    }
}

impl Journal {
    /// Does what is due: makes the next segment ahead, syncs what RPO > 0 has left unsynced for long enough, and claims that
    /// everything is durable once the log has been idle since the last call. Returns after which pause to call again.
    ///
    /// Failures show in [`Log::state`](crate::Log::state) and at the next append.
    pub fn maintain(&self) -> Duration {
        // Also of one that takes nothing more: readers go on.
        self.let_leave();
        let (end, stocked) = {
            let core = self.core();
            if core.closed.is_some() {
                return PAUSE;
            }
            (core.segment.end(), !core.spares.is_empty())
        };
        // Who has written nothing so far may only read.
        if !stocked && self.is_settled() {
            // Full is told to the append that needs it.
            _ = self.extend(end, true);
        }
        if self.config.lazy() {
            self.sync_if_due();
        }
        self.claim_if_idle();
        if self.config.lazy() { self.backlog().left(self.clock.now(), PAUSE, &self.config) } else { PAUSE }
    }

    fn sync_if_due(&self) {
        // What was appended and is waited for by nobody is written here, so that the bound holds for it too.
        let end = self.core().end();
        if self.reach(end).is_err() {
            return;
        }
        let due = self.backlog().due(&self.config);
        if due.is_some_and(|due| due <= self.clock.now()) {
            _ = self.sync_backlog(self.landed.load(Ordering::Acquire));
        }
    }

    /// Gives the room of released segments back that were read when they were released. Whoever is at work there does it himself.
    fn let_leave(&self) {
        match self.making.try_lock() {
            Ok(mut making) => making.leaving.retain(Leaving::is_read),
            Err(TryLockError::Poisoned(making)) => making.into_inner().leaving.retain(Leaving::is_read),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn claim_if_idle(&self) {
        let mut core = self.core();
        let (tail, durable) = (core.tail, self.durable.load(Ordering::Acquire));
        let quiet = core.open.is_empty() && core.writing == 0 && !core.idling && core.closed.is_none();
        // Idle: nothing was appended between two calls.
        let idle = self.idle.swap(tail, Ordering::Relaxed) == tail;
        if !(quiet && idle && durable == tail && core.claimed < durable) {
            return;
        }
        let Some((batch, segment)) = core.ghost(self.epoch, self.salt, durable, false) else { return };
        core.idling = true;
        // Now: an append that needs another segment leaves this one, whatever is written here.
        let file = segment.writer();
        drop(core);
        // Past the page cache there are no unsynced writes; a cached page would make the next commit write it back first.
        let written = self.write_ghost(&batch, &segment, file.as_deref(), self.config.direct());
        let mut core = self.core();
        core.idling = false;
        let mut landed = Landed { end: None, gates: Vec::new(), next: core.next_leader(self.config.in_flight()) };
        match written {
            Ok(()) => core.claimed = durable,
            Err(reason) => {
                core.closed.get_or_insert(reason);
                landed.gates = core.everyone();
            }
        }
        drop(core);
        landed.wake();
    }

    fn write_ghost(
        &self,
        batch: &Batch,
        segment: &Segment,
        file: Option<&dyn File>,
        durable: bool,
    ) -> Result<(), String> {
        let (at, bytes) = batch.to_write();
        self.write_bytes(segment, file, at, bytes, durable)
    }

    /// Makes everything durable, shuts the door, and syncs the claim of it.
    pub(crate) fn leave(&self) -> Result<(), JournalError> {
        let (batch, segment) = loop {
            let end = self.core().end();
            self.writable(&self.core())?;
            self.reach(end)?;
            if self.config.lazy() {
                self.sync_backlog(end)?;
            }
            let mut core = self.core();
            self.writable(&core)?;
            if core.end() == end && core.writing == 0 && !core.idling {
                core.closed = Some("it was closed".to_owned());
                // Whoever closes it too waits for what is written here.
                core.idling = true;
                break core.ghost(self.epoch, self.salt, end, true).unzip();
            }
        };
        let left = self.last_word(batch, segment);
        self.core().idling = false;
        left
    }

    fn last_word(&self, batch: Option<Batch>, segment: Option<Arc<Segment>>) -> Result<(), JournalError> {
        // An opening that has written nothing leaves the last word to the one before it.
        let (true, Some(batch), Some(segment)) = (self.is_settled(), batch, segment) else { return Ok(()) };
        self.write_ghost(&batch, &segment, segment.writer().as_deref(), true).map_err(|reason| {
            let mut core = self.core();
            core.closed = Some(reason);
            self.closed_error(&core)
        })?;
        if self.config.settles_late {
            closed::leave(
                &*self.files.disk,
                &self.folder,
                (self.epoch, self.salt),
                self.durable.load(Ordering::Acquire),
            );
        }
        Ok(())
    }

    /// Archives or deletes whole segments before a place, the oldest first, each durably before the next: a hole would be
    /// damage. What is archived makes room before something joins it, so that the bound holds after a crash too.
    pub(crate) fn give_back(&self, to: u64) -> Result<(), JournalError> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.refuse_left(&making)?;
        let to = to.min(self.durable.load(Ordering::Acquire));
        loop {
            if let Some(error) = &making.trim_failed {
                return Err(error.clone());
            }
            let Some((oldest, next)) = self.oldest_before(to) else { return Ok(()) };
            let room = self.config.archive_bytes_max.saturating_sub(making.archived_bytes);
            let done = if oldest.head.size <= room || self.config.kept_until_released {
                self.archive(&oldest, next, &mut making)
            } else {
                drop(oldest);
                self.remove_first(&mut making)
            };
            match done {
                Ok(()) => {}
                Err(Undone { error, is_known: true }) => return Err(error),
                // Whether it is gone is unknown: until the next open no other may go.
                Err(Undone { error, .. }) => making.trim_failed = Some(error),
            }
        }
    }

    /// Its folder is another opening's, once it was closed.
    fn refuse_left(&self, making: &Making) -> Result<(), JournalError> {
        if making.is_left { Err(self.closed_error(&self.core())) } else { Ok(()) }
    }

    /// The first live segment and where the next one begins, if it holds nothing from `to` on and nobody writes to it.
    fn oldest_before(&self, to: u64) -> Option<(Arc<Segment>, u64)> {
        let core = self.core();
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let (_, live) = segments.split_at_checked(segment::archived(&segments))?;
        match live {
            [oldest, next, ..] if next.first() <= to && !Arc::ptr_eq(oldest, &core.segment) => {
                Some((Arc::clone(oldest), next.first()))
            }
            _ => None,
        }
    }

    fn archive(&self, oldest: &Segment, next: u64, making: &mut Making) -> Result<(), Undone> {
        let disk = &*self.files.disk;
        oldest.archive(disk, &self.folder, next, self.config.kept_until_released).map_err(Undone::of_a_name)?;
        if !self.config.kept_until_released {
            oldest.forget_marks();
            making.archived_bytes += oldest.head.size;
        }
        Ok(disk.sync_dir(&self.folder, barrier::ARCHIVE).map_err(|error| refused("syncing", &self.folder, &error))?)
    }

    /// Removes the oldest archived segment, durably, for the room or the file that the live log lacks: without a next
    /// segment nothing could be trimmed either, and the disk would stay full for ever. False if there is none, or if
    /// whether one is gone is unknown.
    pub(crate) fn give_way(&self, making: &mut Making) -> bool {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |segment: &Arc<Segment>| segment.is_archived() && !segment.is_owned();
        let ours = segments.iter().any(is_ours) && !self.config.kept_until_released;
        drop(segments);
        if !ours || making.trim_failed.is_some() {
            return false;
        }
        match self.remove_first(making) {
            Ok(()) => true,
            Err(Undone { error, is_known }) => {
                making.trim_failed = Some(error).filter(|_| !is_known);
                false
            }
        }
    }

    /// Removes the first segment, archived or live, that nobody else has to release.
    fn remove_first(&self, making: &mut Making) -> Result<(), Undone> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let index = segments.iter().position(|segment| !segment.is_owned());
        drop(segments);
        let Some((index, first)) = index.and_then(|index| Some((index, self.take_out(index)?))) else { return Ok(()) };
        let barrier = if first.is_archived() { barrier::PRUNE } else { barrier::TRIM };
        self.remove(&first, barrier, making).inspect_err(|undone| self.put_back(undone, index, &first))
    }

    /// Removes the kept segment of this name, durably.
    pub(crate) fn let_go(&self, name: u64) -> Result<(), JournalError> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.refuse_left(&making)?;
        let missing = JournalError::NotFound { lsn: Lsn(name) };
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let found = segment::holder(&segments, name).filter(|index| {
            let here = segments.get(*index);
            here.is_some_and(|segment| segment.first() == name && segment.is_archived())
        });
        drop(segments);
        let Some(index) = found.filter(|_| self.config.kept_until_released) else { return Err(missing) };
        if let Some(error) = &making.trim_failed {
            return Err(error.clone());
        }
        // Only who holds `making` takes one out or puts one before: the index still counts.
        let Some(segment) = self.take_out(index) else { return Err(missing) };
        let removed = self.remove(&segment, barrier::RELEASE, &mut making);
        removed.map_err(|undone| {
            self.put_back(&undone, index, &segment);
            making.trim_failed = Some(undone.error.clone()).filter(|_| !undone.is_known);
            undone.error
        })
    }

    /// Its file has the name that it had: it is listed again.
    fn put_back(&self, undone: &Undone, index: usize, segment: &Arc<Segment>) {
        if undone.is_known {
            let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
            Arc::make_mut(&mut segments).insert(index, Arc::clone(segment));
        }
    }

    fn take_out(&self, index: usize) -> Option<Arc<Segment>> {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        (index < segments.len()).then(|| Arc::make_mut(&mut segments).remove(index))
    }

    /// How many segments may wait to be used again. Releases come several at a time, and new segments one by one. But what waits is room that
    /// nobody has, so no more than a small part of what is listed, beyond a few; and those alone where a new one costs no zeroes.
    pub(crate) fn waiting_max(&self) -> usize {
        if !self.config.kept_until_released {
            return 1;
        }
        let many = if self.config.lazy() { segment::RECYCLED_FEW } else { segment::RECYCLED_MAX };
        let listed = self.segments.read().unwrap_or_else(PoisonError::into_inner).len();
        (listed / 12).clamp(segment::RECYCLED_FEW, many)
    }

    /// Removes the file of a segment that is no longer listed, or lets it wait to be used again: whoever reads it meanwhile has it open,
    /// and it waits for him, too.
    fn remove(&self, segment: &Arc<Segment>, barrier: Barrier, making: &mut Making) -> Result<(), Undone> {
        let (archived, disk) = (segment.is_archived(), &*self.files.disk);
        let mut again = making.recycled.len() < self.waiting_max() && segment.head.size == self.config.log_size;
        // What is to stay free comes first. And what somebody else has by another name, as a backup, is his.
        again = again && !self.is_short(0) && !disk.has_other_names(segment.path()).unwrap_or(true);
        let free = (0..).map(segment::recycled_name).map(|name| self.folder.join(name));
        let waits =
            free.into_iter().find(|path| making.recycled.iter().all(|(taken, _)| taken != path)).unwrap_or_default();
        // What cannot be opened goes all at once, with whoever reads it last.
        let to_cut = || disk.open(segment.path(), Open { access: Access::Write, direct: false }).ok();
        let leaving = if again || barrier != barrier::RELEASE { None } else { to_cut() };
        let removed = if again { disk.rename(segment.path(), &waits) } else { disk.unlink(segment.path()) };
        match removed {
            // Somebody has put it elsewhere, as he may do with what is archived.
            Err(error) if archived && error.kind() == io::ErrorKind::NotFound => again = false,
            other => other.map_err(|error| Undone::of_a_name(refused("removing", segment.path(), &error)))?,
        }
        disk.sync_dir(&self.folder, barrier).map_err(|error| refused("syncing", &self.folder, &error))?;
        making.leaving.extend(leaving.map(|file| segment.leave(file)));
        making.leaving.retain(Leaving::is_read);
        if again {
            segment.forget_marks();
            making.recycled.push((waits, Arc::clone(segment)));
            self.counters.waiting.store(making.recycled.len(), Ordering::Relaxed);
        }
        if archived && !segment.is_owned() {
            making.archived_bytes = making.archived_bytes.saturating_sub(segment.head.size);
        }
        Ok(())
    }
}
