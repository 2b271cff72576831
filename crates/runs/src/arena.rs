//! The memory of a memtable: words that are laid once, and neither moved nor freed before all of it is.
//!
//! Walk: [`Arena::take`] gives the one writer a piece · [`Arena::piece`] shows it to anybody. Chunks are made when they are
//! needed; a piece lies in one chunk, so that it is one slice. An arena that is gone leaves its chunks to those that come
//! ([`Spare`]): the system would take them away and give them back page by page, each page at the cost of two writes. What waits so never
//! makes all of it more than the budget: where arenas hold that already, theirs goes back to the system.
//! Deliberately absent: `unsafe`, and reclamation: who holds the arena holds all of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Words of one chunk: a quarter of a MiB.
pub(crate) const CHUNK_WORDS: usize = 1 << 15;
pub(crate) const WORD_BYTES: usize = 8;

/// Chunks of one list: room for many is asked for, and few are made.
const LIST_CHUNKS: usize = 64;

type Words = Box<[AtomicU64]>;
type Chunk = OnceLock<Words>;
type List = OnceLock<Box<[Chunk]>>;

/// Chunks of all arenas: those that nobody uses now, and how many are used.
#[derive(Debug)]
pub(crate) struct Spare {
    /// Of both together.
    chunks_max: usize,
    chunks: Mutex<Chunks>,
}

#[derive(Debug, Default)]
struct Chunks {
    waiting: Vec<Words>,
    used: usize,
}

impl Spare {
    /// Keeps chunks for those that come while all of them take no more than so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let chunks_max = usize::try_from(bytes_max).unwrap_or(usize::MAX) / (CHUNK_WORDS * WORD_BYTES);
        Self { chunks_max, chunks: Mutex::default() }
    }

    fn take(&self) -> Words {
        let spare = {
            let mut chunks = self.chunks();
            chunks.used += 1;
            chunks.waiting.pop()
        };
        spare.unwrap_or_else(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn give(&self, mut given: Vec<Words>) {
        let mut chunks = self.chunks();
        chunks.used = chunks.used.saturating_sub(given.len());
        let room = self.chunks_max.saturating_sub(chunks.used + chunks.waiting.len());
        let beyond = given.split_off(room.min(given.len()));
        chunks.waiting.append(&mut given);
        drop(chunks);
        // With no lock held: the system takes its time.
        drop(beyond);
    }

    /// Bytes of the process that those take which nobody uses.
    pub(crate) fn memory_bytes(&self) -> u64 {
        u64::try_from(self.chunks().waiting.len() * CHUNK_WORDS * WORD_BYTES).unwrap_or(u64::MAX)
    }

    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Arena {
    /// Lists of chunks; both are made one after the other.
    lists: Box<[List]>,
    /// The first free word; only the writer moves it. Word zero is never given away: links say "nothing" by it.
    end: AtomicU64,
    /// Where chunks come from, and where they go.
    spare: Arc<Spare>,
}

impl Arena {
    /// An arena that has room for pieces of so many words together, however they fit.
    pub(crate) fn with_room(words: usize, spare: &Arc<Spare>) -> Self {
        // A piece that did not fit began the next chunk: any two neighbours hold more than one chunk together.
        let count = 2 * words.div_ceil(CHUNK_WORDS) + 2;
        let lists = (0..count.div_ceil(LIST_CHUNKS)).map(|_| List::new()).collect();
        Self { lists, end: AtomicU64::new(1), spare: Arc::clone(spare) }
    }

    /// The first word that is free.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// So many words in one piece, in which anything may stand; nothing if there is no room. Where the chunk before has room left, its
    /// first two words are zero. One writer at a time.
    pub(crate) fn take(&self, words: usize) -> Option<(u64, &[AtomicU64])> {
        let mut at = usize::try_from(self.end()).ok()?;
        if words > CHUNK_WORDS {
            return None;
        }
        if at % CHUNK_WORDS + words > CHUNK_WORDS {
            self.piece(u64::try_from(at).ok()?).iter().take(2).for_each(|word| word.store(0, Ordering::Relaxed));
            at = at.next_multiple_of(CHUNK_WORDS);
        }
        let list = self.lists.get(at / CHUNK_WORDS / LIST_CHUNKS)?;
        let list = list.get_or_init(|| (0..LIST_CHUNKS).map(|_| Chunk::new()).collect());
        let chunk = list.get(at / CHUNK_WORDS % LIST_CHUNKS)?.get_or_init(|| self.spare.take());
        let piece = chunk.get(at % CHUNK_WORDS..)?.get(..words)?;
        self.end.store(u64::try_from(at + words).ok()?, Ordering::Relaxed);
        Some((u64::try_from(at).ok()?, piece))
    }

    /// The words from a place to the end of its chunk.
    pub(crate) fn piece(&self, at: u64) -> &[AtomicU64] {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let list = self.lists.get(at / CHUNK_WORDS / LIST_CHUNKS).and_then(List::get);
        let chunk = list.and_then(|list| list.get(at / CHUNK_WORDS % LIST_CHUNKS)).and_then(Chunk::get);
        chunk.and_then(|chunk| chunk.get(at % CHUNK_WORDS..)).unwrap_or_default()
    }

    /// Bytes that are taken, with those at the ends of chunks that nothing fitted into.
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.end() - 1) * 8
    }

    /// Bytes of the process that it holds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lists = || self.lists.iter().map_while(List::get);
        let made = lists().flatten().take_while(|chunk| chunk.get().is_some()).count();
        let listed = self.lists.len() * size_of::<List>() + lists().count() * LIST_CHUNKS * size_of::<Chunk>();
        u64::try_from(made * CHUNK_WORDS * WORD_BYTES + listed).unwrap_or(u64::MAX)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let chunks = self.lists.iter_mut().filter_map(OnceLock::take).flatten();
        self.spare.give(chunks.filter_map(OnceLock::into_inner).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare() -> Arc<Spare> {
        Arc::new(Spare::new(0))
    }

    #[test]
    fn an_arena_leaves_its_chunks_to_the_next_one_and_no_more_wait_than_may() {
        let chunk_bytes = u64::try_from(CHUNK_WORDS * WORD_BYTES).unwrap();
        let spare = Arc::new(Spare::new(70 * chunk_bytes + 1));
        let fill = |chunks: usize| {
            let arena = Arena::with_room(chunks * CHUNK_WORDS, &spare);
            for _ in 0..chunks {
                let (_, piece) = arena.take(CHUNK_WORDS - 1).unwrap();
                piece.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            }
            arena
        };
        let (first, second) = (fill(3), fill(2));
        assert_eq!(spare.memory_bytes(), 0);
        drop(first);
        assert_eq!(spare.memory_bytes(), 3 * chunk_bytes);
        let third = fill(2);
        assert_eq!(spare.memory_bytes(), chunk_bytes, "two of them are used again");
        drop((second, third));
        assert_eq!(spare.memory_bytes(), 5 * chunk_bytes);
        drop(fill(71));
        assert_eq!(spare.memory_bytes(), 70 * chunk_bytes);
        let (first, second) = (fill(50), fill(40));
        assert_eq!(spare.memory_bytes(), 0);
        drop(first);
        assert_eq!(spare.memory_bytes(), 30 * chunk_bytes, "with what is used 70");
        let third = fill(60);
        drop(second);
        assert_eq!(spare.memory_bytes(), 10 * chunk_bytes);
        drop(third);
        assert_eq!(spare.memory_bytes(), 70 * chunk_bytes);
    }

    #[test]
    fn what_is_left_of_a_chunk_begins_with_zeroes_whatever_an_arena_before_left_there() {
        let spare = Arc::new(Spare::new(1 << 30));
        for rest in [0, 1, 2, 3, 100] {
            for _ in 0..2 {
                let arena = Arena::with_room(3 * CHUNK_WORDS, &spare);
                let (at, piece) = arena.take(CHUNK_WORDS - 1 - rest).unwrap();
                piece.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
                let (next, piece) = arena.take(rest + 1).unwrap();
                piece.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
                assert_eq!(next, u64::try_from(CHUNK_WORDS).unwrap());
                let behind = at + u64::try_from(CHUNK_WORDS - 1 - rest).unwrap();
                let left: Vec<u64> = if rest == 0 {
                    Vec::new()
                } else {
                    arena.piece(behind).iter().map(|word| word.load(Ordering::Relaxed)).collect()
                };
                assert_eq!(left.len(), rest);
                assert!(left.iter().take(2).all(|word| *word == 0), "{rest}: {left:?}");
                // All of the chunk is written over: the next arena finds nothing of that.
                arena.piece(1).iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            }
        }
    }

    #[test]
    fn room_for_much_takes_little_until_it_is_used() {
        let arena = Arena::with_room((5 << 30) / WORD_BYTES, &spare());
        assert!(arena.memory_bytes() < 32 << 10, "{}", arena.memory_bytes());
        for _ in 0..LIST_CHUNKS {
            assert!(arena.take(CHUNK_WORDS - 1).is_some());
        }
        let before = arena.memory_bytes();
        assert!(arena.take(CHUNK_WORDS).is_some());
        let list = LIST_CHUNKS * size_of::<Chunk>() + CHUNK_WORDS * WORD_BYTES;
        assert_eq!(arena.memory_bytes() - before, u64::try_from(list).unwrap(), "a chunk in the next list");
    }

    #[test]
    fn a_piece_lies_in_one_chunk_and_the_room_that_was_promised_is_there_however_pieces_fit() {
        for sizes in [
            vec![1],
            vec![CHUNK_WORDS],
            vec![CHUNK_WORDS / 2 + 1],
            vec![CHUNK_WORDS / 4, CHUNK_WORDS - 9],
            vec![7, 1000, 24_000],
        ] {
            let words = 20 * CHUNK_WORDS;
            let arena = Arena::with_room(words, &spare());
            let (mut taken, mut behind) = (0, 1);
            for size in sizes.iter().cycle() {
                if taken + size > words {
                    break;
                }
                taken += size;
                let (at, piece) = arena.take(*size).unwrap();
                assert!(at >= behind && piece.len() == *size, "{at} {behind} {sizes:?}");
                assert_eq!(arena.piece(at).get(..*size).map(<[AtomicU64]>::as_ptr), Some(piece.as_ptr()));
                behind = at + u64::try_from(*size).unwrap();
                assert_eq!(arena.used_bytes(), (behind - 1) * 8);
            }
        }
    }

    #[test]
    fn memory_is_what_was_made_and_an_arena_that_is_full_says_so() {
        let arena = Arena::with_room(1, &spare());
        let table = arena.memory_bytes();
        assert!(arena.take(1).is_some());
        let list = LIST_CHUNKS * size_of::<Chunk>() + CHUNK_WORDS * WORD_BYTES;
        assert_eq!(arena.memory_bytes() - table, u64::try_from(list).unwrap());
        assert!(arena.take(CHUNK_WORDS + 1).is_none());
        while arena.take(CHUNK_WORDS / 2).is_some() {}
        assert!(arena.take(CHUNK_WORDS).is_none());
    }
}
