//! An owner that sums what is in runs: after any crash its note must say what the runs hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use assent_runs::{Entry, Facts, Fate, Owner, Tally};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub entries: i64,
    pub bytes: i64,
    /// Of the owner's own.
    pub word: u64,
}

impl Sums {
    pub fn lay(self) -> Vec<u8> {
        let mut note = [self.entries.to_le_bytes(), self.bytes.to_le_bytes(), self.word.to_le_bytes()].concat();
        // So long that manifests end in sectors that are the same: the next commit may make one whole that a crash tore.
        note.resize(1100, 7);
        note
    }

    pub fn read(note: &[u8]) -> Self {
        if note.is_empty() {
            return Self::default();
        }
        let number = |at: usize| i64::from_le_bytes(note[at..at + 8].try_into().unwrap());
        Self { entries: number(0), bytes: number(8), word: number(16).cast_unsigned() }
    }
}

#[derive(Debug, Default)]
pub struct Accounts {
    sums: Mutex<Sums>,
    /// How far the log is durable.
    pub durable: AtomicU64,
    pub gathers: AtomicBool,
    pub is_lazy: AtomicBool,
}

/// A value that has expired: it may go at any time.
pub fn is_expired(value: &[u8]) -> bool {
    value.first() == Some(&b'!')
}

impl Accounts {
    pub fn of(note: &[u8]) -> Self {
        let sums = Mutex::new(Sums::read(note));
        Self { sums, durable: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    pub fn sums(&self) -> Sums {
        *self.sums.lock().unwrap()
    }

    pub fn set_word(&self, word: u64) -> Vec<u8> {
        let mut sums = self.sums.lock().unwrap();
        sums.word = word;
        sums.lay()
    }

    /// Whether the sums are what the runs hold.
    pub fn agree_with(&self, facts: &Facts) -> Result<(), String> {
        let entries: u64 = facts.levels.iter().map(|level| level.entries - level.tombstones).sum();
        let bytes: u64 = facts.levels.iter().map(|level| level.value_bytes).sum();
        let Sums { entries: told, bytes: told_bytes, .. } = self.sums();
        if (told, told_bytes) == (entries as i64, bytes as i64) {
            return Ok(());
        }
        Err(format!("the note says {told} values of {told_bytes} bytes, runs hold {entries} of {bytes}"))
    }
}

struct Account<'a> {
    owner: &'a Accounts,
    entries: i64,
    bytes: i64,
}

fn length(entry: &Entry<'_>) -> i64 {
    entry.value.expect("nobody is told of tombstones").len() as i64
}

impl Owner for Accounts {
    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::new(Account { owner: self, entries: 0, bytes: 0 })
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    fn gathers(&self) -> bool {
        self.gathers.load(Ordering::SeqCst)
    }

    fn is_lazy(&self) -> bool {
        self.is_lazy.load(Ordering::SeqCst)
    }
}

impl Tally for Account<'_> {
    fn enters(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.bytes += length(entry);
    }

    fn leaves(&mut self, entry: &Entry<'_>) {
        self.entries -= 1;
        self.bytes -= length(entry);
    }

    fn judge(&mut self, entry: &Entry<'_>) -> Fate {
        if is_expired(entry.value.unwrap()) { Fate::Bury } else { Fate::Keep }
    }

    fn note(&mut self, _: u64) -> Vec<u8> {
        let sums = self.owner.sums();
        Sums { entries: sums.entries + self.entries, bytes: sums.bytes + self.bytes, word: sums.word }.lay()
    }

    fn committed(self: Box<Self>) {
        let mut sums = self.owner.sums.lock().unwrap();
        sums.entries += self.entries;
        sums.bytes += self.bytes;
    }
}
