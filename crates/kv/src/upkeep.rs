//! What is off the commit path: the ledger's memory written out, its runs merged.
//!
//! Walk: [`Kv::tick`] does what is due · [`Kv::checkpoint`] writes out what is visible now, so that the next open replays
//! nothing before it · a writer that finds no room in memory makes it ([`Kv::make_room`]).
//! Deliberately absent: a thread. Whoever owns a loop calls [`Kv::tick`].

use std::sync::{MutexGuard, PoisonError, TryLockError};

use crate::desk::Desk;
use crate::{Kv, KvError};

/// After merges failed, so many ticks pass before the next try: at first, and at most.
const REST_TICKS: u32 = 10;
const REST_TICKS_MAX: u32 = 600;

/// Counts of what was written out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) written: u64,
    pub(crate) failed: u64,
    /// Merges that failed.
    pub(crate) merges_failed: u64,
    /// Where the last try began: after a failure, the next waits as long as after a success.
    pub(crate) tried: u64,
    /// Ticks until merges are tried again, and how long the rest was.
    pub(crate) rest: u32,
    pub(crate) rested: u32,
}

impl Kv {
    /// What is to be done now and then by whoever owns a loop, about every 100 ms: publishes what nobody waited for,
    /// writes out the ledger's memory when it is due, and merges its runs. A failure is counted, not told: the journal
    /// has everything.
    pub fn tick(&self) {
        // A journal that failed says so to every writer.
        _ = self.publish(&mut self.desk());
        if self.read_only {
            return;
        }
        // Memory first, also between two merges.
        loop {
            if self.is_due() {
                _ = self.checkpoint();
            }
            if !self.merge() {
                return;
            }
        }
    }

    fn is_due(&self) -> bool {
        let counts = *self.counts();
        let behind = self.shared.log.end().0.saturating_sub(counts.tried);
        let full = self.shared.ledger.memory_bytes() >= self.config.memory_bytes;
        // What failed is tried again with the rest of a tick in between; what is full and whole, at once.
        behind >= self.config.checkpoint_bytes || full && counts.rest == 0
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes out everything that is visible. Readers and writers go on meanwhile.
    ///
    /// # Errors
    /// `Busy` while another is written; as the disk or the log says. The store goes on without it.
    pub fn checkpoint(&self) -> Result<(), KvError> {
        self.refuse_read_only()?;
        let Some(_alone) = self.alone() else { return Err(KvError::Busy { what: "checkpoints at once", limit: 1 }) };
        self.counts().tried = self.shared.log.end().0;
        let done = self.write_all();
        let mut counts = self.counts();
        match &done {
            Ok(closed) => counts.written += u64::from(*closed),
            Err(_) => {
                counts.failed += 1;
                counts.rest = counts.rest.max(REST_TICKS);
            }
        }
        done.map(drop)
    }

    /// What an earlier try left, and then what is visible now. Whether the latter was anything.
    fn write_all(&self) -> Result<bool, KvError> {
        self.write_out()?;
        let closed = {
            let mut desk = self.desk();
            self.publish(&mut desk)?;
            self.close_memory(&desk)
        };
        self.write_out()?;
        Ok(closed)
    }

    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        match self.stepping.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(alone)) => Some(alone.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The desk is locked: what is visible and what its branches are belong together. Where something could not become
    /// visible they do not.
    fn close_memory(&self, desk: &Desk) -> bool {
        let least = self.config.memory_bytes;
        desk.refuse_broken().is_ok() && self.shared.ledger.close_memory(least, |entry, end| desk.moment(entry, end))
    }

    fn write_out(&self) -> Result<(), KvError> {
        while self.shared.ledger.has_closed() {
            if !self.shared.ledger.flush(&*self.shared.log)? {
                break;
            }
        }
        Ok(())
    }

    /// One piece of work off the memory's way; whether there may be more. After a failure it rests, longer each time.
    fn merge(&self) -> bool {
        {
            let mut counts = self.counts();
            if counts.rest > 0 {
                counts.rest -= 1;
                return false;
            }
        }
        let Some(alone) = self.alone() else { return false };
        let done = self.shared.ledger.step(&*self.shared.log);
        drop(alone);
        let mut counts = self.counts();
        if done.is_err() {
            counts.merges_failed += 1;
            counts.rested = (counts.rested * 2).clamp(REST_TICKS, REST_TICKS_MAX);
            counts.rest = counts.rested;
        } else {
            counts.rested = 0;
        }
        done.is_ok_and(|more| more)
    }

    /// Who finds memory full of what nobody has written out writes it out.
    ///
    /// # Errors
    /// As the disk says: then there is no room for this write.
    pub(crate) fn make_room(&self) -> Result<(), KvError> {
        let is_full = || self.shared.ledger.memory_bytes() >= self.config.memory_bytes_max();
        if !is_full() {
            return Ok(());
        }
        let _alone = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        if is_full() {
            self.close_memory(&self.desk());
            self.write_out()?;
        }
        if is_full() {
            return Err(KvError::Busy { what: "bytes of the ledger in memory", limit: self.config.memory_bytes_max() });
        }
        Ok(())
    }
}
