//! What is off the commit path: files that grow, the bound of RPO > 0, the second file of an idle table, a clean close.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use assent_journal::{JournalError, Kept};
use assent_world::{Gate, write_all_at};

use crate::engine::copies::refused;
use crate::engine::layout::{BLOCK_BYTES, BLOCKS_MAX};
use crate::engine::table_log::TableLog;

/// How often an open table is looked after, if nothing is due before.
const PAUSE: Duration = Duration::from_millis(100);
/// Zeroes of one write.
const ZEROES: usize = 1 << 18;

impl Kept for TableLog {
    /// Grows the files ahead, syncs what RPO > 0 has left unsynced for long enough, and brings the other file up to date
    /// once nothing was appended since the last call.
    fn maintain(&self) -> Duration {
        let (end, is_short) = {
            let mut core = self.core();
            if core.closed.is_some() {
                return PAUSE;
            }
            let free = core.room.saturating_sub(core.image.blocks()) + core.image.empty();
            let is_short = u64::from(free) * 2 * BLOCK_BYTES < self.config.log_size;
            // What is forgotten makes room as growing does, also where nobody asks for it.
            core.is_full &= is_short;
            (core.end, is_short)
        };
        if is_short {
            // Full is told to the append that needs it.
            _ = self.grow();
        }
        let is_idle = self.idle.swap(end, Ordering::Relaxed) == end;
        let pause = if self.config.is_lazy() { self.sync_if_due(end) } else { PAUSE };
        if is_idle {
            self.double();
        }
        pause.min(PAUSE)
    }

    fn tell_keeper(&self, gate: &Arc<Gate>) {
        _ = self.keeper.set(Arc::clone(gate));
    }
}

impl TableLog {
    pub(crate) fn call_keeper(&self) {
        if let Some(gate) = self.keeper.get() {
            gate.bump();
            gate.wake(1);
        }
    }

    fn sync_if_due(&self, end: u64) -> Duration {
        // What nobody waits for is written here, so that the bound holds for it too.
        if self.reach(end).is_err() {
            return PAUSE;
        }
        let core = self.core();
        let Some(since) = core.since else { return PAUSE };
        // At half of the longest time, so that a sync that takes its time still ends within it.
        let due = since.after(self.config.sync_max() / 2).max(core.last_sync.after(self.config.sync_min()));
        let now = self.clock.now();
        if due > now {
            return due.since(now);
        }
        drop(core);
        _ = self.sync_written(self.landed.load(Ordering::Acquire));
        PAUSE
    }

    /// Brings the other file up to date: from then on a damaged block is healed from either.
    fn double(&self) {
        let end = self.core().end;
        if self.reach(end).is_err() {
            return;
        }
        let core = self.core();
        let is_quiet = !core.is_busy && core.end == end && core.closed.is_none();
        // With RPO > 0 the sync comes in its own time, and the next quiet call does this.
        if !is_quiet || core.is_doubled || self.durable.load(Ordering::Acquire) < end {
            return;
        }
        self.lead(core, false);
        if self.config.is_lazy() {
            self.sync_if_free();
            let mut core = self.core();
            core.is_doubled = core.end == end && core.closed.is_none() && core.synced == core.generation;
        }
    }

    /// Syncs the newest group, unless somebody is at the files.
    fn sync_if_free(&self) {
        let core = self.core();
        if !core.is_busy && core.closed.is_none() {
            self.sync_newest(core);
        }
    }

    /// Makes the files longer. The length need not be durable before a group is: the sync of a group covers it.
    pub(crate) fn grow(&self) -> Result<(), JournalError> {
        let _one_at_a_time = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let (room, files) = {
            let core = self.core();
            let files: Vec<_> = core.copies.iter().map(|copy| (copy.path.clone(), Arc::clone(&copy.file))).collect();
            (core.room, files)
        };
        let more = u32::try_from(self.config.log_size / BLOCK_BYTES).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX - room);
        if more == 0 {
            return Err(JournalError::Busy { bytes: u64::from(BLOCKS_MAX) * BLOCK_BYTES });
        }
        let zeroes = vec![0; ZEROES];
        for (path, file) in files {
            let (mut at, end) = ((u64::from(room) + 1) * BLOCK_BYTES, (u64::from(room + more) + 1) * BLOCK_BYTES);
            while at < end {
                let bytes = usize::try_from(end - at).unwrap_or(ZEROES).min(ZEROES);
                let written = write_all_at(&*file, at, zeroes.get(..bytes).unwrap_or_default());
                if let Err(error) = written {
                    let error = refused("growing", &path, &error);
                    if error.kind() != assent_kind::Kind::Full {
                        return Err(error);
                    }
                    return Err(JournalError::Full { folder: self.folder.display().to_string() });
                }
                at += u64::try_from(bytes).unwrap_or(u64::MAX);
            }
        }
        _ = self.counters.segments.fetch_add(1, Ordering::Relaxed);
        let mut core = self.core();
        (core.room, core.is_full) = (room + more, false);
        Ok(())
    }

    /// Makes everything durable in two files, the second of which says that it was closed, and takes nothing more.
    ///
    /// # Errors
    /// `Closed` if it was already, or a write failed.
    pub fn close(&self) -> Result<(), JournalError> {
        let result = self.leave();
        _ = self.core().closed.get_or_insert_with(|| "it was closed".to_owned());
        _ = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        result
    }

    fn leave(&self) -> Result<(), JournalError> {
        loop {
            let end = self.core().end;
            self.writable(&self.core())?;
            self.reach(end)?;
            if self.config.is_lazy() {
                self.sync_written(end)?;
            }
            let core = self.core();
            self.writable(&core)?;
            if core.end == end && !core.is_busy && core.image.touched().is_empty() {
                self.lead(core, true);
                break;
            }
        }
        if self.config.is_lazy() {
            self.sync_if_free();
        }
        self.writable(&self.core())
    }
}
