//! The smallest `Log` that keeps its contract on any disk: one file, one lock, no group commit. It counts what it is
//! asked, and can be lazy (acknowledged is in the kernel, not durable), which the journal's helper thread makes hard to
//! simulate. Each entry says what came before it, and each opening that appends lays a salt of its own first, durable
//! and in sectors that are never written again: so no stale bytes pass for entries.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assent_ids::{Epoch, Lsn};
use assent_journal::{Entry, JournalError, Log, State, Ticket};
use assent_kind::Kind;
use assent_world::{Access, Barrier, Disk, File, Open, read_exact_at, write_all_at};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SYNC: Barrier = Barrier::new("scripted log: entries before they are durable");
const NAME: Barrier = Barrier::new("scripted log: its name before anything in it");
const SALT: Barrier = Barrier::new("scripted log: the salt before anything behind it");
const HEAD: usize = 32;
const KIND_SALT: u16 = u16::MAX;
const SECTOR: usize = 512;

#[derive(Debug)]
pub struct ScriptedLog {
    file: Arc<dyn File>,
    lazy: bool,
    salt: u64,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    unwritten: Vec<u8>,
    written: u64,
    durable: u64,
    /// The hash of the last entry.
    last: u64,
    salted: bool,
    closed: bool,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub appends: u64,
    pub syncs: u64,
}

fn disk_error(error: &std::io::Error) -> JournalError {
    JournalError::Disk { doing: "test", path: "log".to_owned(), error: error.to_string(), kind: Kind::Unavailable }
}

fn closed() -> JournalError {
    JournalError::Closed { folder: "log".to_owned(), reason: "a write or sync failed".to_owned() }
}

impl ScriptedLog {
    pub fn open(disk: &dyn Disk, lazy: bool, salt: u64) -> std::io::Result<Self> {
        Self::open_at(disk, &PathBuf::from("log"), lazy, salt)
    }

    pub fn open_at(disk: &dyn Disk, path: &Path, lazy: bool, salt: u64) -> std::io::Result<Self> {
        let open = |access| disk.open(path, Open { access, direct: false });
        let file = match open(Access::Write) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => open(Access::Create)?,
            other => other?,
        };
        let (mut end, mut last) = (0, 0);
        while let Ok(Some((entry, before, hash))) = entry_at(&*file, end) {
            if before != last {
                break;
            }
            (end, last) = (entry.end.0, hash);
        }
        file.set_size(end)?;
        file.sync_all(SYNC)?;
        disk.sync_dir(path.parent().unwrap_or(Path::new("")), NAME)?;
        let inside = Mutex::new(Inside { written: end, durable: end, last, ..Inside::default() });
        Ok(Self { file, lazy, salt, inside })
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

type Linked = (Entry, u64, u64);

/// An entry with the hash of the one before it and its own.
fn entry_at(file: &dyn File, at: u64) -> Result<Option<Linked>, JournalError> {
    let mut head = [0; HEAD];
    if read_exact_at(file, at, &mut head).map_err(|error| disk_error(&error))? < HEAD {
        return Ok(None);
    }
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let (length, kind, before, hash) = (word(0), word(8), word(16), word(24));
    let damaged = || JournalError::Corrupt { file: "log".to_owned(), offset: at, what: "its hash is wrong".to_owned() };
    if length > file.size().map_err(|error| disk_error(&error))? {
        return Err(damaged());
    }
    let mut payload = vec![0; length as usize];
    let read = read_exact_at(file, at + HEAD as u64, &mut payload).map_err(|error| disk_error(&error))?;
    if read < payload.len() || xxh3_64_with_seed(&payload, seed(at, kind, before)) != hash {
        return Err(damaged());
    }
    let end = Lsn(at + (HEAD as u64 + length).next_multiple_of(8));
    Ok(Some((Entry { lsn: Lsn(at), end, kind: kind as u16, payload }, before, hash)))
}

fn seed(at: u64, kind: u64, before: u64) -> u64 {
    at ^ (kind << 48) ^ before.rotate_left(7)
}

impl Inside {
    fn lay(&mut self, kind: u16, payload: &[u8]) -> Ticket {
        let lsn = self.written + self.unwritten.len() as u64;
        let hash = xxh3_64_with_seed(payload, seed(lsn, kind.into(), self.last));
        for word in [payload.len() as u64, u64::from(kind), self.last, hash] {
            self.unwritten.extend_from_slice(&word.to_le_bytes());
        }
        self.last = hash;
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
        if !inside.salted {
            let at = inside.written as usize + HEAD;
            let mut payload = self.salt.to_le_bytes().to_vec();
            payload.resize((at + payload.len()).next_multiple_of(SECTOR) - at, 0);
            inside.lay(KIND_SALT, &payload);
            self.write(&mut inside)?;
            self.file.sync_all(SALT).map_err(|error| disk_error(&error))?;
            inside.durable = inside.written;
            inside.salted = true;
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
        let entries = std::iter::from_fn(move || {
            let next = (at < end).then(|| self.read_at(Lsn(at)))?;
            at = next.as_ref().map_or(end, |entry| entry.end.0);
            Some(next)
        });
        Ok(Box::new(entries.filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.kind == KIND_SALT))))
    }

    fn read_at(&self, lsn: Lsn) -> Result<Entry, JournalError> {
        let mut inside = self.inside.lock().unwrap();
        if !inside.closed && !inside.unwritten.is_empty() {
            self.write(&mut inside)?;
        }
        drop(inside);
        entry_at(&*self.file, lsn.0)?.map(|(entry, ..)| entry).ok_or(JournalError::NotFound { lsn })
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
