//! The smallest `Log` that keeps its contract on any disk: one file, one lock, no group commit. It counts what it is
//! asked, and can be lazy (acknowledged is in the kernel, not durable). A process may die over it, power may not: it
//! has none of the journal's salts.

use std::path::Path;
use std::sync::{Arc, Mutex};

use assent_ids::{Epoch, Lsn};
use assent_journal::{Entry, JournalError, Log, State, Ticket};
use assent_kind::Kind;
use assent_world::{Access, Barrier, Disk, File, Open, read_exact_at, write_all_at};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SYNC: Barrier = Barrier::new("scripted log: entries before they are durable");
const NAME: Barrier = Barrier::new("scripted log: its name before anything in it");
const HEAD: usize = 24;

#[derive(Debug)]
pub struct ScriptedLog {
    file: Arc<dyn File>,
    lazy: bool,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    unwritten: Vec<u8>,
    written: u64,
    durable: u64,
    closed: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub appends: u64,
    pub syncs: u64,
    /// Entries that were asked for.
    pub reads: u64,
}

fn disk_error(error: &std::io::Error) -> JournalError {
    let (path, error) = ("log".to_owned(), error.to_string());
    JournalError::Disk { doing: "test", path, error, kind: Kind::Unavailable, short: false }
}

fn closed() -> JournalError {
    JournalError::Closed { folder: "log".to_owned(), reason: "a write or sync failed".to_owned() }
}

impl ScriptedLog {
    pub fn open(disk: &dyn Disk, lazy: bool) -> std::io::Result<Self> {
        let path = Path::new("log");
        let open = |access| disk.open(path, Open { access, direct: false });
        let file = match open(Access::Write) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => open(Access::Create)?,
            other => other?,
        };
        let mut end = 0;
        while let Ok(Some(entry)) = entry_at(&*file, end) {
            end = entry.end.0;
        }
        file.set_size(end)?;
        file.sync_all(SYNC)?;
        disk.sync_dir(Path::new("."), NAME)?;
        let inside = Mutex::new(Inside { written: end, durable: end, ..Inside::default() });
        Ok(Self { file, lazy, inside })
    }

    pub fn counts(&self) -> Counts {
        self.inside.lock().unwrap().counts
    }

    /// Changes one byte of the last occurrence of these on disk.
    pub fn damage(&self, bytes: &[u8]) {
        let mut file = vec![0; self.file.size().unwrap() as usize];
        read_exact_at(&*self.file, 0, &mut file).unwrap();
        let at = file.windows(bytes.len()).rposition(|window| window == bytes).unwrap();
        write_all_at(&*self.file, at as u64, &[file[at] ^ 1]).unwrap();
    }

    fn write(&self, inside: &mut Inside) -> Result<(), JournalError> {
        if inside.closed {
            return Err(closed());
        }
        if write_all_at(&*self.file, inside.written, &inside.unwritten).is_err() {
            inside.closed = true;
            return Err(closed());
        }
        inside.written += inside.unwritten.len() as u64;
        inside.unwritten.clear();
        Ok(())
    }

    fn make_durable(&self, inside: &mut Inside, end: u64) -> Result<(), JournalError> {
        if inside.durable >= end {
            return Ok(());
        }
        self.write(inside)?;
        inside.counts.syncs += 1;
        if self.file.sync_data(SYNC).is_err() {
            inside.closed = true;
            return Err(closed());
        }
        inside.durable = inside.written;
        Ok(())
    }
}

fn entry_at(file: &dyn File, at: u64) -> Result<Option<Entry>, JournalError> {
    let mut head = [0; HEAD];
    if read_exact_at(file, at, &mut head).map_err(|error| disk_error(&error))? < HEAD {
        return Ok(None);
    }
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let (length, kind, hash) = (word(0), word(8), word(16));
    let damaged = || JournalError::Corrupt { file: "log".to_owned(), offset: at, what: "its hash is wrong".to_owned() };
    if length > file.size().map_err(|error| disk_error(&error))? {
        return Err(damaged());
    }
    let mut payload = vec![0; length as usize];
    let read = read_exact_at(file, at + HEAD as u64, &mut payload).map_err(|error| disk_error(&error))?;
    if read < payload.len() || xxh3_64_with_seed(&payload, seed(at, kind)) != hash {
        return Err(damaged());
    }
    let end = Lsn(at + (HEAD as u64 + length).next_multiple_of(8));
    Ok(Some(Entry { lsn: Lsn(at), end, kind: kind as u16, payload }))
}

const fn seed(at: u64, kind: u64) -> u64 {
    at ^ (kind << 48)
}

impl Inside {
    fn lay(&mut self, kind: u16, payload: &[u8]) -> Ticket {
        let lsn = self.written + self.unwritten.len() as u64;
        let hash = xxh3_64_with_seed(payload, seed(lsn, kind.into()));
        for word in [payload.len() as u64, u64::from(kind), hash] {
            self.unwritten.extend_from_slice(&word.to_le_bytes());
        }
        self.unwritten.extend_from_slice(payload);
        let length = self.unwritten.len().next_multiple_of(8);
        self.unwritten.resize(length, 0);
        Ticket { lsn: Lsn(lsn), end: Lsn(self.written + length as u64) }
    }
}

impl Log for ScriptedLog {
    fn append(&self, kind: u16, parts: &[&[u8]]) -> Result<Ticket, JournalError> {
        let mut inside = self.inside.lock().unwrap();
        if inside.closed {
            return Err(closed());
        }
        inside.counts.appends += 1;
        Ok(inside.lay(kind, &parts.concat()))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), JournalError> {
        if !self.lazy {
            return self.wait_durable(ticket);
        }
        let mut inside = self.inside.lock().unwrap();
        if inside.written >= ticket.end.0 { Ok(()) } else { self.write(&mut inside) }
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<(), JournalError> {
        self.make_durable(&mut self.inside.lock().unwrap(), ticket.end.0)
    }

    fn sync(&self) -> Result<Lsn, JournalError> {
        let mut inside = self.inside.lock().unwrap();
        let end = inside.written + inside.unwritten.len() as u64;
        self.make_durable(&mut inside, end)?;
        Ok(Lsn(inside.durable))
    }

    fn durable(&self) -> Lsn {
        Lsn(self.inside.lock().unwrap().durable)
    }

    fn end(&self) -> Lsn {
        let inside = self.inside.lock().unwrap();
        Lsn(inside.written + inside.unwritten.len() as u64)
    }

    fn start(&self) -> Lsn {
        Lsn::ZERO
    }

    fn read(
        &self,
        from: Lsn,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + Send + '_>, JournalError> {
        let mut at = from.0;
        let end = self.end().0;
        Ok(Box::new(std::iter::from_fn(move || {
            let next = (at < end).then(|| self.read_at(Lsn(at)))?;
            at = next.as_ref().map_or(end, |entry| entry.end.0);
            Some(next)
        })))
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        let mut inside = self.inside.lock().unwrap();
        inside.counts.reads += 1;
        if !inside.closed && !inside.unwritten.is_empty() {
            self.write(&mut inside)?;
        }
        drop(inside);
        entry_at(&*self.file, lsn.0)?.ok_or(JournalError::NotFound { lsn })
    }

    fn trim(&self, _: Lsn) -> Result<(), JournalError> {
        Ok(())
    }

    fn epoch(&self) -> Epoch {
        Epoch(1)
    }

    fn state(&self) -> State {
        if self.inside.lock().unwrap().closed { State::Closed } else { State::Open }
    }
}
