//! A log in memory that counts, fails when told to, and forgets what was not synced when it is opened again.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use assent_coordinator::engine::{TableConfig, TableLog};
use assent_ids::{Epoch, Lsn};
use assent_journal::{Entry, JournalError, Log, State, Ticket};
use assent_sim::{SimClock, SimDice, SimDisk};

#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) entries: Vec<Entry>,
    pub(crate) end: u64,
    pub(crate) durable: u64,
    pub(crate) start: u64,
    pub(crate) epoch: u32,
    pub(crate) appends: u64,
    pub(crate) syncs: u64,
    pub(crate) refuses: Option<JournalError>,
    pub(crate) is_closed: bool,
    /// Its sync policy lets an entry be acknowledged before it is durable.
    pub(crate) is_lazy: bool,
    /// The last opening may have lost what it had acknowledged.
    pub(crate) may_have_lost: bool,
    /// It keeps what its entries led to, as a state table does; the entries stay for the tests.
    pub(crate) is_table: bool,
    /// What is trimmed stays readable, as in an archive.
    pub(crate) is_archived: bool,
    /// Of a table: one that refuses what it would.
    table: Option<Arc<TableLog>>,
}

/// Clones are the same log; [`MemoryLog::reopen`] is the next opening of it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLog {
    stored: Arc<Mutex<Stored>>,
    epoch: Epoch,
}

impl MemoryLog {
    pub(crate) fn new() -> Self {
        let stored = Stored { epoch: 1, ..Stored::default() };
        Self { stored: Arc::new(Mutex::new(stored)), epoch: Epoch(1) }
    }

    /// Appends and syncs.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let stored = self.stored();
        (stored.appends, stored.syncs)
    }

    /// The machine dies; what was not synced is gone or stays.
    pub(crate) fn reopen(&self, keeps: bool) -> Self {
        self.reopen_keeping(if keeps { usize::MAX } else { 0 })
    }

    /// The machine dies; of what was not synced, so many entries stay.
    pub(crate) fn reopen_keeping(&self, count: usize) -> Self {
        let mut stored = self.stored();
        let durable = stored.durable;
        let synced = stored.entries.iter().filter(|entry| entry.end.0 <= durable).count();
        stored.entries.truncate(synced.saturating_add(count));
        stored.end = stored.entries.last().map_or(durable, |entry| entry.end.0.max(durable));
        stored.durable = stored.end;
        stored.epoch += 1;
        stored.is_closed = false;
        stored.refuses = None;
        let epoch = Epoch(stored.epoch);
        drop(stored);
        Self { stored: Arc::clone(&self.stored), epoch }
    }

    /// Somebody has copied the data folder: the next opening of the copy, as the next opening of this one would be.
    pub(crate) fn copied(&self) -> Self {
        let stored = self.stored();
        let (entries, epoch) = (stored.entries.clone(), stored.epoch + 1);
        let (end, durable, start) = (stored.end, stored.durable, stored.start);
        let is_table = stored.is_table;
        let stored = Stored { entries, end, durable, start, epoch, is_table, ..Stored::default() };
        Self { stored: Arc::new(Mutex::new(stored)), epoch: Epoch(epoch) }
    }

    pub(crate) fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap()
    }
}

/// What a state table tells after these entries, when it is opened again.
fn rows(entries: &[Entry]) -> Vec<Entry> {
    let (disk, clock, dice) = (SimDisk::new(), SimClock::new(), SimDice::new(1));
    let open = || TableLog::open(&disk, Arc::new(clock.clone()), &dice, Path::new("table"), TableConfig::default());
    let (table, _) = open().unwrap();
    for entry in entries {
        table.append(entry.kind, &[&entry.payload]).unwrap();
    }
    table.close().unwrap();
    drop(table);
    disk.kill();
    let (table, found) = open().unwrap();
    assert!(found.is_clean && found.healed.is_empty() && found.torn.is_none(), "{found:?}");
    table.read(table.start()).unwrap().map(Result::unwrap).collect()
}

fn closed() -> JournalError {
    JournalError::Closed { folder: "memory".to_owned(), reason: "told to".to_owned() }
}

impl Log for MemoryLog {
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        let mut stored = self.stored();
        if let Some(error) = &stored.refuses {
            return Err(error.clone());
        }
        let payload = parts.concat();
        if stored.is_table {
            let scratch = || {
                let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), SimDice::new(1));
                TableLog::open(&disk, clock, &dice, Path::new("table"), TableConfig::default()).unwrap().0
            };
            stored.table.get_or_insert_with(scratch).append(kind, &[&payload])?;
        }
        let lsn = Lsn(stored.end);
        stored.end += u64::try_from(payload.len()).unwrap() + 24;
        let end = Lsn(stored.end);
        stored.appends += 1;
        stored.entries.push(Entry { lsn, end, kind, payload });
        Ok(Ticket { lsn, end })
    }

    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        let is_lazy = self.stored().is_lazy;
        if is_lazy { Ok(()) } else { self.wait_durable(ticket) }
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        let mut stored = self.stored();
        if stored.is_closed {
            return Err(closed());
        }
        if stored.durable < ticket.end.0 {
            stored.durable = stored.end;
            stored.syncs += 1;
        }
        Ok(())
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        let mut stored = self.stored();
        if stored.is_closed {
            return Err(closed());
        }
        stored.durable = stored.end;
        Ok(Lsn(stored.end))
    }

    fn durable(&self) -> Lsn {
        Lsn(self.stored().durable)
    }

    fn end(&self) -> Lsn {
        Lsn(self.stored().end)
    }

    fn start(&self) -> Lsn {
        Lsn(self.stored().start)
    }

    fn read(
        &self,
        from: Lsn,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send + '_>, JournalError> {
        let stored = self.stored();
        let entries: Vec<_> = stored.entries.iter().filter(|entry| entry.lsn >= from).cloned().collect();
        let entries = if stored.is_table { rows(&entries) } else { entries };
        Ok(Box::new(entries.into_iter().map(Ok)))
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        let found = self.stored().entries.iter().find(|entry| entry.lsn == lsn).cloned();
        found.ok_or(JournalError::NotFound { lsn })
    }

    fn trim(&self, to: Lsn) -> Result<(), JournalError> {
        let mut stored = self.stored();
        if stored.is_archived {
            return Ok(());
        }
        stored.start = to.0;
        stored.entries.retain(|entry| entry.lsn >= to);
        Ok(())
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn state(&self) -> State {
        if self.stored().is_closed { State::Closed } else { State::Open }
    }

    fn keeps_history(&self) -> bool {
        !self.stored().is_table
    }

    fn is_lazy(&self) -> bool {
        self.stored().is_lazy
    }

    fn may_have_lost(&self) -> bool {
        self.stored().may_have_lost
    }
}
