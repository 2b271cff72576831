//! Group commit of a table: the thread that waits is the thread that writes, one group at a time.
//!
//! Not two groups in flight: the next one goes into the file that holds the state before this one, and that file must stay
//! whole until this one is durable.
//!
//! Walk: [`TableLog::reach`] waits until a place has landed and leads the group if nobody does · [`TableLog::sync_written`]
//! is RPO > 0, and whatever is strict in that policy.
//! Deliberately absent: a flusher thread, a timer before an acknowledgement of RPO 0, a retry after a failure.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use assent_ids::Lsn;
use assent_journal::JournalError;
use assent_world::{Durably, write_all_at, write_all_durable_at};

use crate::engine::barrier;
use crate::engine::core::{Core, Flight};
use crate::engine::layout::{BLOCK, BLOCK_BYTES};
use crate::engine::table_log::TableLog;

impl TableLog {
    /// Waits until everything before `end` has landed: durable where RPO is 0, else in the kernel.
    pub(crate) fn reach(&self, end: u64) -> Result<(), JournalError> {
        loop {
            if self.landed.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            let core = self.core();
            if self.landed.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            self.writable(&core)?;
            if end > core.end {
                return Err(JournalError::NotFound { lsn: Lsn(end) });
            }
            if core.is_busy {
                let (gate, seen) = core.seat(end);
                drop(core);
                gate.wait(seen, None);
            } else {
                self.lead(core, false);
            }
        }
    }

    /// Ends the group, writes it and lands it. Without a change it brings the other file up to date.
    pub(crate) fn lead(&self, mut core: MutexGuard<'_, Core>, is_closing: bool) {
        let Some(flight) = core.close(self.opening, is_closing) else { return };
        drop(core);
        let result = self.write(&flight);
        let end = flight.end;
        let mut core = self.core();
        core.land(flight, result, self.config.max_buffer_log_size);
        let mut is_first = false;
        if core.closed.is_none() {
            if self.config.is_lazy() {
                is_first = core.since.is_none();
                _ = core.since.get_or_insert(self.clock.now());
            } else {
                self.durable.store(end, Ordering::Release);
            }
            self.landed.store(end, Ordering::Release);
        }
        core.wake();
        drop(core);
        if is_first {
            self.call_keeper();
        }
    }

    /// Writes a group: all runs of blocks, and one sync behind them where RPO is 0.
    fn write(&self, flight: &Flight) -> Result<(), String> {
        let most = self.config.max_buffer_log_size;
        let mut writes: Vec<(u64, &[u8])> = Vec::new();
        let mut rest = flight.buffer.as_slice();
        for (first, count) in &flight.runs {
            let (run, behind) = rest.split_at_checked(count * BLOCK).ok_or("a group longer than its buffer")?;
            rest = behind;
            let mut at = u64::from(*first) * BLOCK_BYTES;
            for bytes in run.chunks(most) {
                writes.push((at, bytes));
                at += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            }
        }
        let last = writes.len().saturating_sub(1);
        let how = if self.config.dsync { Durably::Dsync } else { Durably::DataSync };
        let file = &*flight.file;
        for (number, (at, bytes)) in writes.into_iter().enumerate() {
            _ = self.counters.writes.fetch_add(1, Ordering::Relaxed);
            _ = self.counters.bytes.fetch_add(u64::try_from(bytes.len()).unwrap_or(0), Ordering::Relaxed);
            // RWF_DSYNC makes its own bytes durable; fdatasync, those of every write before it.
            let written = if !self.config.is_lazy() && (self.config.dsync || number == last) {
                _ = self.counters.syncs.fetch_add(1, Ordering::Relaxed);
                write_all_durable_at(file, at, bytes, how, barrier::GROUP)
            } else {
                write_all_at(file, at, bytes)
            };
            written.map_err(|error| format!("writing {} at {at}: {error}", flight.path.display()))?;
        }
        Ok(())
    }

    /// Makes everything that has landed durable (RPO > 0); one sync for all who wait.
    pub(crate) fn sync_written(&self, end: u64) -> Result<(), JournalError> {
        loop {
            if self.durable.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            let core = self.core();
            if self.durable.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            self.writable(&core)?;
            if core.is_busy {
                let (gate, seen) = core.seat(0);
                drop(core);
                gate.wait(seen, None);
            } else {
                self.sync_newest(core);
            }
        }
    }

    /// Syncs the file with the newest group: from then on it is the one that nobody touches.
    pub(crate) fn sync_newest(&self, mut core: MutexGuard<'_, Core>) {
        let (newest, generation, landed) = (core.newest, core.generation, self.landed.load(Ordering::Acquire));
        let Some((file, path)) = core.copies.get(newest).map(|copy| (copy.file.clone(), copy.path.clone())) else {
            return;
        };
        core.is_busy = true;
        // What is under way is durability alone: nobody's place but that of those who wait for it.
        core.flight = std::sync::Arc::default();
        core.flying = landed;
        core.since = None;
        drop(core);
        _ = self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let result = file.sync_data(barrier::BACKLOG).map_err(|error| format!("syncing {}: {error}", path.display()));
        let mut core = self.core();
        core.is_busy = false;
        core.last_sync = self.clock.now();
        match result {
            Ok(()) => {
                (core.kept, core.synced) = (newest, generation);
                self.durable.store(landed, Ordering::Release);
            }
            Err(reason) => _ = core.closed.get_or_insert(reason),
        }
        core.wake();
    }
}
