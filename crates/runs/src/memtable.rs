//! What was written last: nodes in an arena, found by the hash of their key, and a skip list through them for who walks. Read by anybody
//! while one writer adds to it.
//!
//! ```text
//!   a node, in words   | seq | key bytes, height, value bytes + 1 | older | key | links, one for each height | value |
//! ```
//! Keys are laid big-endian and padded with zeroes, so that comparing words compares bytes. Order: by key, then the newest
//! first; of two entries with the same key and seq, the one that came later first. `older` is the place of the key's entry before.
//!
//! A writer keeps no order: most entries are asked for by their key, and are walked through once, by their flush. To find the place of one
//! of them among a hundred thousand costs some twenty misses of the processor's cache; to sort them all once, about one each.
//!
//! Walk: [`Memtable::insert`] lays a node and notes its place · [`Memtable::get`] looks a key up as of a seq ([`Places`]) ·
//! [`Memtable::order`] links what came since the last time, in order · [`MemCursor`] walks, behind that · [`Memtable::sorted`] is for
//! who goes through all of it once, and [`Memtable::each`] where order does not matter: they link nothing.
//! Deliberately absent: removal. A table is dropped as a whole, when nobody looks at it any more.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use self::cursor::{MemCursor, Sorted};
use crate::arena::{Arena, CHUNK_WORDS, Spare, WORD_BYTES};
use crate::entry::Entry;
use crate::places::{Known, Places};
use crate::run_reader::{OwnedEntry, Row};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

mod cursor;

/// One in four nodes is higher than its neighbour: twelve levels are enough for sixteen million.
const HEIGHT_MAX: usize = 12;
/// The place before the first node, and behind the last one.
const NOWHERE: u64 = 0;
/// The first node stands here: word zero is never given away.
const FIRST: u64 = 1;
/// Entries of a key that are stepped over one by one, towards older ones or to the next key; behind more of them that is looked for.
const OLDER_MAX: u32 = 8;
const OLDER: usize = 2;
const HEAD_WORDS: usize = 3;

/// So many nodes are put in order at once: what that takes is in no budget, and is no more than 1.5 MiB so.
const PIECE_NODES: usize = if cfg!(test) { 100 } else { 1 << 16 };

/// A node's place behind the front of its key: what most of them differ in. Sorted, without the bits that all of them have in common.
type Fronted = ([u64; 2], u64);

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
    /// What stands before is laid.
    laid: AtomicU64,
    /// What stands before is linked.
    ordered: AtomicU64,
    /// The last node that came behind a newer one of its key.
    late: AtomicU64,
    /// Held by whoever links. No writer does.
    ordering: Mutex<()>,
    /// Somebody walked it since that was asked, or stepped over many versions of a key.
    walked: AtomicBool,
    /// What the ranges take that were erased beside it.
    erases_bytes: AtomicU64,
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

    /// The place of the key's entry before.
    fn older(self) -> u64 {
        self.words.get(OLDER).map_or(NOWHERE, |word| word.load(Memory::Acquire))
    }

    fn link(self, level: usize) -> Option<&'a AtomicU64> {
        self.words.get(self.sizes().links_at() + level)
    }

    fn key(self) -> &'a [AtomicU64] {
        let sizes = self.sizes();
        self.words.get(HEAD_WORDS..sizes.links_at()).unwrap_or_default()
    }

    /// Where it stands to a key and seq that somebody looks for.
    fn order(self, key: &[u8], seq: u64) -> Ordering {
        // The newer one comes first.
        self.key_order(key).then_with(|| seq.cmp(&self.seq()))
    }

    fn key_order(self, key: &[u8]) -> Ordering {
        let sizes = self.sizes();
        for (own, sought) in self.key().iter().zip(words_of(key)) {
            match own.load(Memory::Relaxed).cmp(&sought) {
                Ordering::Equal => {}
                other => return other,
            }
        }
        // Equal as far as the shorter one goes, padding included: the shorter one comes first.
        sizes.key.cmp(&key.len())
    }

    /// Where it stands to another node; each with its place, which tells what came later.
    fn order_to(self, at: u64, other: Self, other_at: u64) -> Ordering {
        let load = |word: &AtomicU64| word.load(Memory::Relaxed);
        let keys = self.key().iter().map(load).cmp(other.key().iter().map(load));
        // As many words, all of them alike: what is padding of one may be zeroes of the other.
        let keys = keys.then_with(|| self.sizes().key.cmp(&other.sizes().key));
        keys.then_with(|| other.seq().cmp(&self.seq())).then_with(|| other_at.cmp(&at))
    }

    fn copy_key(self, out: &mut Vec<u8>) {
        let length = self.lay_key(out);
        out.truncate(length);
    }

    /// Lays the key, and what it is padded with behind it; how long it is.
    fn lay_key(self, out: &mut Vec<u8>) -> usize {
        copy(self.key(), out);
        self.sizes().key
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
        let length = self.lay_value(out);
        out.truncate(length.unwrap_or(0));
        length.is_some()
    }

    /// As [`Node::lay_key`]; nothing for a tombstone.
    fn lay_value(self, out: &mut Vec<u8>) -> Option<usize> {
        let sizes = self.sizes();
        let value = sizes.value?;
        let end = sizes.value_at() + value.div_ceil(WORD_BYTES);
        copy(self.words.get(sizes.value_at()..end).unwrap_or_default(), out);
        Some(value)
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
    let rest = (!rest.is_empty()).then(|| padded(bytes, rest));
    whole.iter().map(|word| u64::from_be_bytes(*word)).chain(rest)
}

/// The last word of some bytes, of which it has fewer than it could.
fn padded(bytes: &[u8], rest: &[u8]) -> u64 {
    if let Some(last) = bytes.last_chunk() {
        return u64::from_be_bytes(*last) << ((WORD_BYTES - rest.len()) * 8);
    }
    let mut padded = [0; WORD_BYTES];
    padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(padded)
}

fn lay(words: Option<&[AtomicU64]>, bytes: &[u8]) {
    let words = words.unwrap_or_default();
    let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
    for (word, value) in words.iter().zip(whole) {
        word.store(u64::from_be_bytes(*value), Memory::Relaxed);
    }
    if let (Some(word), false) = (words.get(whole.len()), rest.is_empty()) {
        word.store(padded(bytes, rest), Memory::Relaxed);
    }
}

fn copy(words: &[AtomicU64], out: &mut Vec<u8>) {
    // What stood there is written over: most rows are as long as the one before.
    out.resize(words.len() * WORD_BYTES, 0);
    let (chunks, _) = out.as_chunks_mut();
    chunks.iter_mut().zip(words).for_each(|(to, word)| *to = word.load(Memory::Relaxed).to_be_bytes());
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

    const fn links_at(&self) -> usize {
        HEAD_WORDS + self.key.div_ceil(WORD_BYTES)
    }

    const fn value_at(&self) -> usize {
        self.links_at() + self.height
    }

    fn words(&self) -> usize {
        self.value_at() + self.value.unwrap_or(0).div_ceil(WORD_BYTES)
    }
}

/// The last node before a place, at each level.
type Before = [u64; HEIGHT_MAX];

impl Memtable {
    /// A table with room for entries that take so many bytes together ([`laid_bytes_max`]), of about so many keys, in memory of tables
    /// that are gone.
    pub(crate) fn with_room(bytes: u64, keys: u64, spare: &Arc<Spare>) -> Self {
        let words = usize::try_from(bytes).unwrap_or(usize::MAX / 4).div_ceil(WORD_BYTES);
        let heads = std::array::from_fn(|_| AtomicU64::new(NOWHERE));
        Self {
            arena: Arena::with_room(words, spare),
            heads,
            places: Places::for_keys(keys),
            entries: AtomicU64::new(0),
            laid: AtomicU64::new(FIRST),
            ordered: AtomicU64::new(FIRST),
            late: AtomicU64::new(NOWHERE),
            ordering: Mutex::default(),
            walked: AtomicBool::new(false),
            erases_bytes: AtomicU64::new(0),
        }
    }

    /// Adds an entry; false if there is no room. One writer at a time. Who looks as of an older seq sees what it saw before.
    pub(crate) fn insert(&self, entry: &Entry<'_>) -> bool {
        let Entry { key, seq, value } = *entry;
        let sizes = Sizes { key: key.len(), height: height_at(self.arena.end()), value: value.map(<[u8]>::len) };
        let Some((at, piece)) = self.arena.take(sizes.words()) else { return false };
        for (word, value) in piece.iter().zip([seq, sizes.pack(), NOWHERE]) {
            word.store(value, Memory::Relaxed);
        }
        lay(piece.get(HEAD_WORDS..sizes.links_at()), key);
        // The piece may be memory of a table that is gone, as that left it.
        let links = piece.get(sizes.links_at()..sizes.value_at()).unwrap_or_default();
        links.iter().for_each(|link| link.store(NOWHERE, Memory::Relaxed));
        lay(piece.get(sizes.value_at()..), value.unwrap_or_default());
        let node = Node { words: piece };
        self.places.put(
            self.places.hash(key),
            at,
            |place| self.is_of(place, key),
            |newest| self.stands_over(newest, node, at),
        );
        self.entries.fetch_add(1, Memory::Relaxed);
        // Release: who links the node finds all of its words.
        self.laid.store(self.arena.end(), Memory::Release);
        true
    }

    /// Fetches what will be asked for these keys into the processor's cache, all of it at once: one by one each would be waited for.
    pub(crate) fn fetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.places.fetch(keys.map(|key| self.places.hash(key)));
    }

    /// Puts a node over the older ones of its key. Whether it is the newest; else it stands behind those that are newer.
    fn stands_over(&self, newest: u64, node: Node<'_>, at: u64) -> bool {
        let is_newer = |place: u64| self.node(place).is_some_and(|other| other.seq() > node.seq());
        let (mut newer, mut older) = (NOWHERE, newest);
        while is_newer(older) {
            (newer, older) = (older, self.node(older).map_or(NOWHERE, Node::older));
        }
        let set = |node: Node<'_>, place| {
            if let Some(word) = node.words.get(OLDER) {
                // Release: who finds a node by this word finds all of its words.
                word.store(place, Memory::Release);
            }
        };
        set(node, older);
        let Some(newer) = self.node(newer) else { return true };
        set(newer, at);
        self.late.store(at, Memory::Release);
        false
    }

    fn is_of(&self, place: u64, key: &[u8]) -> bool {
        self.node(place).is_some_and(|node| node.key_order(key) == Ordering::Equal)
    }

    /// What a key became as of a seq, if that is here.
    pub(crate) fn get(&self, key: &[u8], as_of: u64) -> Option<OwnedEntry> {
        match self.places.find(self.places.hash(key), |place| self.is_of(place, key)) {
            Known::Absent => return None,
            Known::At(mut at) => {
                // Not one by one where they are many and linked; and none is linked for this: somebody may wait for whoever looks.
                let (ordered, mut passed) = (self.ordered.load(Memory::Acquire), 0);
                while passed < OLDER_MAX || at >= ordered {
                    if passed == OLDER_MAX {
                        // The next turn links them: one who looks far back comes again.
                        self.walked.store(true, Memory::Relaxed);
                    }
                    let node = self.node(at)?;
                    if node.seq() <= as_of {
                        return Some(OwnedEntry { seq: node.seq(), value: node.row() });
                    }
                    (at, passed) = (node.older(), passed + 1);
                }
                if self.late.load(Memory::Acquire) >= ordered {
                    // It may stand behind nodes that came before it.
                    self.order();
                }
            }
            Known::Unknown => self.order(),
        }
        let node = self.node(self.seek(key, as_of, &mut [NOWHERE; HEIGHT_MAX]))?;
        (node.key_order(key) == Ordering::Equal).then(|| OwnedEntry { seq: node.seq(), value: node.row() })
    }

    /// Links what came since the last time. Whoever walks needs that, and then waits for nobody but another one who does it; writers go on.
    pub(crate) fn order(&self) {
        // Acquire: links that were made before are seen.
        if self.ordered.load(Memory::Acquire) >= self.laid.load(Memory::Acquire) {
            return;
        }
        let _alone = self.ordering.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut from, end) = (self.ordered.load(Memory::Relaxed), self.laid.load(Memory::Acquire));
        let mut nodes = Vec::new();
        while from < end {
            nodes.clear();
            from = self.nodes(from, end, &mut nodes);
            self.sort(&mut nodes);
            let mut before = [NOWHERE; HEIGHT_MAX];
            nodes.iter().for_each(|(_, at)| self.link_behind(&mut before, *at));
            self.ordered.store(from, Memory::Release);
        }
    }

    /// By key, then the newest first.
    fn sort(&self, nodes: &mut [Fronted]) {
        lead(nodes);
        // By one word, which needs no guess of the processor; few are alike in it.
        nodes.sort_unstable_by_key(|([lead, _], _)| *lead);
        for alike in nodes.chunk_by_mut(|([lead, _], _), ([other, _], _)| lead == other) {
            if alike.len() > 1 {
                alike.sort_unstable_by(|(front, at), (other_front, other_at)| {
                    front.cmp(other_front).then_with(|| match (self.node(*at), self.node(*other_at)) {
                        (Some(node), Some(other)) => node.order_to(*at, other, *other_at),
                        _ => Ordering::Equal,
                    })
                });
            }
        }
    }

    /// The newest entry of each key, in order. Beside the table it takes 24 bytes an entry for as long as that takes, and it touches each
    /// entry once: to link them all for one walk would touch them twice more.
    pub(crate) fn sorted(self: &Arc<Self>) -> Sorted {
        let (mut from, end) = (FIRST, self.laid.load(Memory::Acquire));
        let mut nodes = Vec::with_capacity(usize::try_from(self.entries()).unwrap_or(0));
        while from < end {
            from = self.nodes(from, end, &mut nodes);
        }
        self.sort(&mut nodes);
        Sorted::new(Arc::clone(self), nodes)
    }

    /// Each entry's key and seq, as they came.
    pub(crate) fn each(&self, mut then: impl FnMut(&[u8], u64)) {
        let (mut from, end) = (FIRST, self.laid.load(Memory::Acquire));
        let (mut nodes, mut key) = (Vec::new(), Vec::new());
        while from < end {
            nodes.clear();
            from = self.nodes(from, end, &mut nodes);
            for node in nodes.iter().filter_map(|(_, at)| self.node(*at)) {
                node.copy_key(&mut key);
                then(&key, node.seq());
            }
        }
    }

    /// Gathers nodes of a part of the arena, as many as are linked at once; where the next one stands.
    fn nodes(&self, from: u64, end: u64, nodes: &mut Vec<Fronted>) -> u64 {
        let mut at = from;
        let chunk = u64::try_from(CHUNK_WORDS).unwrap_or(u64::MAX);
        let most = nodes.len() + PIECE_NODES;
        while at < end && nodes.len() < most {
            let node = Node { words: self.arena.piece(at) };
            let sizes = node.sizes();
            if sizes.height == 0 {
                // No node is without height: here the next one did not fit any more.
                at = (at / chunk + 1) * chunk;
                continue;
            }
            let mut front = [0; 2];
            front.iter_mut().zip(node.key()).for_each(|(to, word)| *to = word.load(Memory::Relaxed));
            nodes.push((front, at));
            at += u64::try_from(sizes.words()).unwrap_or(u64::MAX);
        }
        at
    }

    /// Links a node that comes behind the last one that was linked so: `before` knows where that was.
    fn link_behind(&self, before: &mut Before, at: u64) {
        let Some(node) = self.node(at) else { return };
        let (mut last, mut has_moved, mut bound) = (NOWHERE, false, NOWHERE);
        for (level, before) in before.iter_mut().enumerate().rev() {
            // Who has gone on at a higher level is further than it was at this one.
            if !has_moved {
                last = *before;
            }
            bound = loop {
                let next = self.behind(last, level);
                match self.node(next) {
                    Some(other) if next != bound && other.order_to(next, node, at) == Ordering::Less => {
                        (last, has_moved) = (next, true);
                    }
                    _ => break next,
                }
            };
            *before = last;
        }
        for (level, before) in before.iter_mut().enumerate().take(node.sizes().height) {
            let Some(link) = self.link(*before, level) else { continue };
            if let Some(own) = node.link(level) {
                own.store(link.load(Memory::Relaxed), Memory::Relaxed);
            }
            // Release: who finds the node by this link finds all of its words.
            link.store(at, Memory::Release);
            *before = at;
        }
    }

    /// A walk for a reader. One through nothing, as an owner's own at its open, says nothing of what is to come.
    pub(crate) fn walk(self: &Arc<Self>, as_of: u64) -> MemCursor {
        self.walked.fetch_or(self.entries() > 0, Memory::Relaxed);
        MemCursor::new(Arc::clone(self), as_of)
    }

    /// Whether there was one since the last call.
    pub(crate) fn take_walked(&self) -> bool {
        self.walked.load(Memory::Relaxed) && self.walked.swap(false, Memory::Relaxed)
    }

    /// How many entries it holds, those that nobody sees any more among them.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Memory::Relaxed)
    }

    /// How many keys it holds.
    pub(crate) fn keys(&self) -> u64 {
        self.places.keys()
    }

    /// Ranges were erased beside it that take so much more, until it is written out.
    pub(crate) fn count_erases(&self, bytes: u64) {
        self.erases_bytes.fetch_add(bytes, Memory::Relaxed);
    }

    /// Bytes that entries take, and ranges that were erased beside them.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.arena.used_bytes() + self.erases_bytes.load(Memory::Relaxed)
    }

    /// And the places of their keys: what its owner counts against a budget.
    pub(crate) fn counted_bytes(&self) -> u64 {
        self.used_bytes() + self.places.counted_bytes()
    }

    /// Bytes of the process that it holds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.arena.memory_bytes() + self.places.memory_bytes() + self.erases_bytes.load(Memory::Relaxed)
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

/// Moves the bits of fronts to the left by those that all of them have in common: a keyspace, and what a client begins its keys with.
fn lead(nodes: &mut [Fronted]) {
    let joined = |[high, low]: [u64; 2]| u128::from(high) << 64 | u128::from(low);
    let Some(first) = nodes.first().map(|(front, _)| joined(*front)) else { return };
    let differing = nodes.iter().fold(0, |all, (front, _)| all | (joined(*front) ^ first));
    let common = differing.leading_zeros();
    if (1..u128::BITS).contains(&common) {
        let word = |front: u128| u64::try_from(front & u128::from(u64::MAX)).unwrap_or(0);
        for (front, _) in nodes {
            let moved = joined(*front) << common;
            *front = [word(moved >> 64), word(moved)];
        }
    }
}

/// How high the node at a place is: by chance that is the same again, one in four one level more.
fn height_at(place: u64) -> usize {
    let mixed = (place ^ place >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let fours = usize::try_from((mixed ^ mixed >> 32).trailing_zeros() / 2).unwrap_or(0);
    (1 + fours).min(HEIGHT_MAX)
}

#[cfg(test)]
#[path = "memtable_test.rs"]
mod tests;
