//! What business logic keeps beside the assets: short bytes by book and key, in order within a book.
//!
//! Walk: a snapshot clones the list of books; a book that is changed while a snapshot has it is copied once, which is why
//! its length has a limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use assent_frame::Writer;
use xxhash_rust::xxh3::xxh3_64;

use crate::refusal::Refusal;

/// Notes of one book, at most.
pub const NOTES_PER_BOOK_MAX: usize = 16_384;
/// Bytes of one note, at most.
pub const NOTE_BYTES_MAX: usize = 1 << 16;

/// A note's bytes, shared with snapshots.
pub(crate) type Note = Arc<[u8]>;
type Book = BTreeMap<u64, Note>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    books: BTreeMap<u64, Arc<Book>>,
    digest: u64,
}

impl Notes {
    pub(crate) fn get(&self, book: u64, key: u64) -> Option<&Note> {
        self.books.get(&book)?.get(&key)
    }

    pub(crate) fn first(&self, book: u64) -> Option<(u64, &Note)> {
        self.books.get(&book)?.first_key_value().map(|(key, note)| (*key, note))
    }

    pub(crate) fn refuse_more(&self, book: u64, key: u64, bytes: usize) -> Result<(), Refusal> {
        if bytes > NOTE_BYTES_MAX {
            return Err(Refusal::Limit { limit: u64::try_from(NOTE_BYTES_MAX).unwrap_or(u64::MAX) });
        }
        match self.books.get(&book) {
            Some(notes) if notes.len() >= NOTES_PER_BOOK_MAX && !notes.contains_key(&key) => {
                Err(Refusal::Limit { limit: u64::try_from(NOTES_PER_BOOK_MAX).unwrap_or(u64::MAX) })
            }
            _ => Ok(()),
        }
    }

    /// The note is this one, or none; what it was.
    pub(crate) fn put(&mut self, book: u64, key: u64, note: Option<Note>) -> Option<Note> {
        if note.is_none() && self.get(book, key).is_none() {
            return None;
        }
        let added = note.as_ref().map_or(0, |note| hash(book, key, note));
        let notes = Arc::make_mut(self.books.entry(book).or_default());
        let before = match note {
            Some(note) => notes.insert(key, note),
            None => notes.remove(&key),
        };
        if notes.is_empty() {
            self.books.remove(&book);
        }
        let removed = before.as_ref().map_or(0, |note| hash(book, key, note));
        self.digest = self.digest.wrapping_add(added).wrapping_sub(removed);
        before
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64, &Note)> {
        self.books.iter().flat_map(|(book, notes)| notes.iter().map(|(key, note)| (*book, *key, note)))
    }

    pub(crate) fn len(&self) -> usize {
        self.books.values().map(|notes| notes.len()).sum()
    }
}

fn hash(book: u64, key: u64, note: &[u8]) -> u64 {
    let mut out = Writer::new();
    out.u64(book).u64(key).raw(note);
    xxh3_64(out.as_slice())
}
