//! What was written last: a skip list in an arena, read by anybody while one writer adds to it.
//!
//! ```text
//!   a node, in words   | seq | key bytes, height, value bytes + 1 | links, one for each height | key | value |
//! ```
//! Keys are laid big-endian and padded with zeroes, so that comparing words compares bytes. Order: by key, then the newest
//! first; of two entries with the same key and seq, the one that came later first.
//!
//! Walk: [`Memtable::insert`] lays a node, links it from below and notes its place · [`Memtable::get`] looks a key up as of a seq
//! ([`Places`]) · [`MemCursor`] walks.
//! Deliberately absent: removal. A table is dropped as a whole, when nobody looks at it any more.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use crate::arena::{Arena, CHUNK_WORDS, WORD_BYTES};
use crate::entry::{Cursor, Entry};
use crate::filter;
use crate::places::{Known, Places};
use crate::run_reader::{OwnedEntry, Row};
use crate::{KEY_BYTES_MAX, RunsError, VALUE_BYTES_MAX};

/// One in four nodes is higher than its neighbour: twelve levels are enough for sixteen million.
const HEIGHT_MAX: usize = 12;
/// The place before the first node, and behind the last one.
const NOWHERE: u64 = 0;
const HEAD_WORDS: usize = 2;

const _: () = assert!(
    HEAD_WORDS + HEIGHT_MAX + KEY_BYTES_MAX.div_ceil(WORD_BYTES) + VALUE_BYTES_MAX.div_ceil(WORD_BYTES) <= CHUNK_WORDS,
    "any entry fits an empty chunk"
);
const _: () = assert!(KEY_BYTES_MAX < 1 << 24 && VALUE_BYTES_MAX < 1 << 31, "the sizes fit their word");

#[derive(Debug)]
pub(crate) struct Memtable {
    arena: Arena,
    heads: [AtomicU64; HEIGHT_MAX],
    places: Places,
    entries: AtomicU64,
}

/// The most bytes that an entry takes.
pub(crate) const fn laid_bytes_max(key: &[u8], value: Option<&[u8]>) -> u64 {
    let value = match value {
        Some(value) => value.len(),
        None => 0,
    };
    let words = HEAD_WORDS + HEIGHT_MAX + key.len().div_ceil(WORD_BYTES) + value.div_ceil(WORD_BYTES);
    (words * WORD_BYTES) as u64
}

#[derive(Clone, Copy)]
struct Node<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Node<'a> {
    fn word(self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Memory::Relaxed))
    }

    fn seq(self) -> u64 {
        self.word(0)
    }

    fn sizes(self) -> Sizes {
        Sizes::unpack(self.word(1))
    }

    fn link(self, level: usize) -> Option<&'a AtomicU64> {
        self.words.get(HEAD_WORDS + level)
    }

    /// Where it stands to a key and seq that somebody looks for.
    fn order(self, key: &[u8], seq: u64) -> Ordering {
        // The newer one comes first.
        self.key_order(key).then_with(|| seq.cmp(&self.seq()))
    }

    fn key_order(self, key: &[u8]) -> Ordering {
        let sizes = self.sizes();
        let own = self.words.get(sizes.key_at()..sizes.value_at()).unwrap_or_default();
        for (own, sought) in own.iter().zip(words_of(key)) {
            match own.load(Memory::Relaxed).cmp(&sought) {
                Ordering::Equal => {}
                other => return other,
            }
        }
        // Equal as far as the shorter one goes, padding included: the shorter one comes first.
        sizes.key.cmp(&key.len())
    }

    fn copy_key(self, out: &mut Vec<u8>) {
        let sizes = self.sizes();
        copy(self.words.get(sizes.key_at()..sizes.value_at()), sizes.key, out);
    }

    /// Nothing for a tombstone.
    fn row(self) -> Option<Row> {
        let sizes = self.sizes();
        let (at, value) = (sizes.value_at(), sizes.value?);
        let words = self.words.get(at..at + value.div_ceil(WORD_BYTES)).unwrap_or_default();
        let mut row = Row::from_elem(0, words.len() * WORD_BYTES);
        let (chunks, _) = row.as_chunks_mut();
        chunks.iter_mut().zip(words).for_each(|(to, word)| *to = word.load(Memory::Relaxed).to_be_bytes());
        row.truncate(value);
        Some(row)
    }

    /// False for a tombstone.
    fn copy_value(self, out: &mut Vec<u8>) -> bool {
        let sizes = self.sizes();
        let Some(value) = sizes.value else { return false };
        let end = sizes.value_at() + value.div_ceil(WORD_BYTES);
        copy(self.words.get(sizes.value_at()..end), value, out);
        true
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
    let rest = (!rest.is_empty()).then(|| {
        let mut padded = [0; WORD_BYTES];
        padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        padded
    });
    whole.iter().copied().chain(rest).map(u64::from_be_bytes)
}

fn lay(words: Option<&[AtomicU64]>, bytes: &[u8]) {
    for (word, value) in words.unwrap_or_default().iter().zip(words_of(bytes)) {
        word.store(value, Memory::Relaxed);
    }
}

fn copy(words: Option<&[AtomicU64]>, length: usize, out: &mut Vec<u8>) {
    let words = words.unwrap_or_default();
    out.clear();
    // At once: it would grow four times on its way to the length of a row.
    out.reserve(words.len() * WORD_BYTES);
    for word in words {
        out.extend_from_slice(&word.load(Memory::Relaxed).to_be_bytes());
    }
    out.truncate(length);
}

struct Sizes {
    key: usize,
    height: usize,
    value: Option<usize>,
}

impl Sizes {
    fn pack(&self) -> u64 {
        let word = |length: usize| u64::try_from(length).unwrap_or(0);
        word(self.key) | word(self.height) << 24 | self.value.map_or(0, |value| word(value) + 1) << 32
    }

    fn unpack(word: u64) -> Self {
        let length = |word: u64| usize::try_from(word).unwrap_or(0);
        let value = (word >> 32).checked_sub(1).map(length);
        Self { key: length(word & 0xff_ffff), height: length(word >> 24 & 0xff), value }
    }

    fn key_at(&self) -> usize {
        HEAD_WORDS + self.height
    }

    fn value_at(&self) -> usize {
        self.key_at() + self.key.div_ceil(WORD_BYTES)
    }
}

/// The last node before a place, at each level.
type Before = [u64; HEIGHT_MAX];

impl Memtable {
    /// A table with room for entries that take so many bytes together ([`laid_bytes_max`]).
    pub(crate) fn with_room(bytes: u64) -> Self {
        let words = usize::try_from(bytes).unwrap_or(usize::MAX / 4).div_ceil(WORD_BYTES);
        let heads = std::array::from_fn(|_| AtomicU64::new(NOWHERE));
        Self { arena: Arena::with_room(words), heads, places: Places::default(), entries: AtomicU64::new(0) }
    }

    /// Adds an entry; false if there is no room. One writer at a time. Who looks as of an older seq sees what it saw before.
    pub(crate) fn insert(&self, entry: &Entry<'_>) -> bool {
        let Entry { key, seq, value } = *entry;
        let height = height_at(self.arena.end());
        let sizes = Sizes { key: key.len(), height, value: value.map(<[u8]>::len) };
        let words = sizes.value_at() + sizes.value.unwrap_or(0).div_ceil(WORD_BYTES);
        let mut before = [NOWHERE; HEIGHT_MAX];
        self.seek(key, seq, &mut before);
        let Some((at, piece)) = self.arena.take(words) else { return false };
        for (word, value) in piece.iter().zip([seq, sizes.pack()]) {
            word.store(value, Memory::Relaxed);
        }
        lay(piece.get(sizes.key_at()..sizes.value_at()), key);
        lay(piece.get(sizes.value_at()..), value.unwrap_or_default());
        for (level, before) in before.iter().enumerate().take(height) {
            let Some(link) = self.link(*before, level) else { continue };
            if let Some(own) = piece.get(HEAD_WORDS + level) {
                own.store(link.load(Memory::Relaxed), Memory::Relaxed);
            }
            // Release: who finds the node by this link finds all of its words.
            link.store(at, Memory::Release);
        }
        self.note(key, seq, at);
        self.entries.fetch_add(1, Memory::Relaxed);
        true
    }

    /// A key's newest entry stands here now, if none of it is newer.
    fn note(&self, key: &[u8], seq: u64, at: u64) {
        let hash = filter::hash(key);
        match self.places.find(hash, |place| self.is_of(place, key)) {
            Known::At(place) if self.node(place).is_some_and(|node| node.seq() > seq) => {}
            _ => self.places.put(hash, at, |place| self.is_of(place, key)),
        }
    }

    fn is_of(&self, place: u64, key: &[u8]) -> bool {
        self.node(place).is_some_and(|node| node.key_order(key) == Ordering::Equal)
    }

    /// What a key of this hash became as of a seq, if that is here.
    pub(crate) fn get(&self, key: &[u8], hash: u64, as_of: u64) -> Option<OwnedEntry> {
        let mut at = match self.places.find(hash, |place| self.is_of(place, key)) {
            Known::Absent => return None,
            Known::At(place) => place,
            Known::Unknown => NOWHERE,
        };
        // Older ones stand behind it; not one by one where they are many.
        let mut older = 0;
        while older < OLDER_MAX && self.node(at).is_some_and(|node| node.seq() > as_of) {
            at = self.behind(at, 0);
            older += 1;
        }
        if at == NOWHERE || older == OLDER_MAX {
            at = self.seek(key, as_of, &mut [NOWHERE; HEIGHT_MAX]);
        }
        let node = self.node(at)?;
        if node.key_order(key) != Ordering::Equal {
            return None;
        }
        Some(OwnedEntry { seq: node.seq(), value: node.row() })
    }

    /// How many entries it holds, those that nobody sees any more among them.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Memory::Relaxed)
    }

    /// Bytes that entries take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.arena.used_bytes()
    }

    /// Bytes of the process that it holds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.arena.memory_bytes() + self.places.memory_bytes()
    }

    fn node(&self, at: u64) -> Option<Node<'_>> {
        (at != NOWHERE).then(|| Node { words: self.arena.piece(at) })
    }

    fn link(&self, at: u64, level: usize) -> Option<&AtomicU64> {
        match self.node(at) {
            None => self.heads.get(level),
            Some(node) => node.link(level),
        }
    }

    fn behind(&self, at: u64, level: usize) -> u64 {
        self.link(at, level).map_or(NOWHERE, |link| link.load(Memory::Acquire))
    }

    /// The first node at a key and seq or behind them.
    fn seek(&self, key: &[u8], seq: u64, before: &mut Before) -> u64 {
        self.seek_by(|node| node.order(key, seq) == Ordering::Less, before)
    }

    /// The first node of which it is not true that it comes before.
    fn seek_by(&self, comes_before: impl Fn(Node<'_>) -> bool, before: &mut Before) -> u64 {
        let (mut at, mut next, mut bound) = (NOWHERE, NOWHERE, NOWHERE);
        for (level, before) in before.iter_mut().enumerate().rev() {
            loop {
                next = self.behind(at, level);
                // What stopped the level above stops this one too, and need not be compared again.
                match self.node(next) {
                    Some(node) if next != bound && comes_before(node) => at = next,
                    _ => break,
                }
            }
            bound = next;
            *before = at;
        }
        next
    }
}

/// How high the node at a place is: by chance that is the same again, one in four one level more.
fn height_at(place: u64) -> usize {
    let mixed = (place ^ place >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let fours = usize::try_from((mixed ^ mixed >> 32).trailing_zeros() / 2).unwrap_or(0);
    (1 + fours).min(HEIGHT_MAX)
}

/// A walk over a table as of a seq.
#[derive(Debug)]
pub(crate) struct MemCursor {
    table: Arc<Memtable>,
    as_of: u64,
    stands: Option<Stands>,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Stands {
    at: u64,
    seq: u64,
    is_value: bool,
}

/// Older entries of a key that a walk steps over one by one; behind more of them it looks for the next key.
const OLDER_MAX: u32 = 8;

impl MemCursor {
    pub(crate) const fn new(table: Arc<Memtable>, as_of: u64) -> Self {
        Self { table, as_of, stands: None, key: Vec::new(), value: Vec::new() }
    }

    /// To the newest entry that can be seen, at this node's key or behind it.
    fn settle(&mut self, mut at: u64) {
        self.stands = None;
        while let Some(node) = self.table.node(at) {
            if node.seq() <= self.as_of {
                node.copy_key(&mut self.key);
                let is_value = node.copy_value(&mut self.value);
                self.stands = Some(Stands { at, seq: node.seq(), is_value });
                return;
            }
            at = self.table.behind(at, 0);
        }
    }

    /// To the newest entry that can be seen of the last key that has one, among those of which it is true that they come
    /// before.
    fn settle_back(&mut self, comes_before: impl Fn(Node<'_>) -> bool) {
        self.stands = None;
        let mut before = [NOWHERE; HEIGHT_MAX];
        self.table.seek_by(comes_before, &mut before);
        while let Some(node) = self.table.node(before[0]) {
            // The oldest one of its key; what can be seen of the key is at the seq or behind it.
            node.copy_key(&mut self.key);
            let at = self.table.seek(&self.key, self.as_of, &mut before);
            if let Some(seen) = self.table.node(at)
                && seen.key_order(&self.key) == Ordering::Equal
            {
                let is_value = seen.copy_value(&mut self.value);
                self.stands = Some(Stands { at, seq: seen.seq(), is_value });
                return;
            }
            // All of them are newer: on to the key before.
            self.table.seek(&self.key, u64::MAX, &mut before);
        }
    }
}

impl Cursor for MemCursor {
    fn seek(&mut self, key: &[u8]) -> Result<(), RunsError> {
        let at = self.table.seek(key, u64::MAX, &mut [NOWHERE; HEIGHT_MAX]);
        self.settle(at);
        Ok(())
    }

    fn seek_back(&mut self, key: Option<&[u8]>) -> Result<(), RunsError> {
        self.settle_back(|node| key.is_none_or(|key| node.key_order(key) != Ordering::Greater));
        Ok(())
    }

    fn next(&mut self) -> Result<(), RunsError> {
        let Some(Stands { mut at, .. }) = self.stands else { return Ok(()) };
        let is_older = |node: Node<'_>| node.key_order(&self.key) != Ordering::Greater;
        for _ in 0..OLDER_MAX {
            at = self.table.behind(at, 0);
            if !self.table.node(at).is_some_and(is_older) {
                self.settle(at);
                return Ok(());
            }
        }
        at = self.table.seek_by(is_older, &mut [NOWHERE; HEIGHT_MAX]);
        self.settle(at);
        Ok(())
    }

    fn prev(&mut self) -> Result<(), RunsError> {
        if self.stands.is_some() {
            let key = std::mem::take(&mut self.key);
            self.settle_back(|node| node.key_order(&key) == Ordering::Less);
        }
        Ok(())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let Stands { seq, is_value, .. } = self.stands?;
        Some(Entry { key: &self.key, seq, value: is_value.then_some(self.value.as_slice()) })
    }
}

#[cfg(test)]
#[path = "memtable_test.rs"]
mod tests;
