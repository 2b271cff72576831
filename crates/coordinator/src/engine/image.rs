//! Rows in blocks, as they will be on the disk: which block holds what, and which were touched. No I/O.
//!
//! Walk: [`Image::lacks`] says how many more blocks a row may need · [`Image::put`] and [`Image::remove`] change rows and
//! say which blocks they touch · [`Image::seal`] ends a group: touched blocks get their checksums, the sum follows.
//! A row goes where it costs the least: into a block that the next group writes anyway, else into the fullest with room.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use assent_frame::Writer;

use crate::engine::layout::{self, BLOCK, BLOCK_HEAD_BYTES, Key, PIECE_BYTES_MAX, Piece, piece_bytes};

const ROOM_MAX: usize = BLOCK - BLOCK_HEAD_BYTES;
/// So many blocks that are written anyway are looked at for room.
const LOOKS_MAX: usize = 16;

struct Block {
    bytes: Box<[u8]>,
    used: usize,
    count: u16,
    sum: u64,
}

/// All rows. Blocks are numbered from 1, as in a file.
pub(crate) struct Image {
    id: u128,
    blocks: Vec<Block>,
    /// The blocks of each row's pieces, in order.
    rows: BTreeMap<Key, Vec<u32>>,
    by_room: BTreeSet<(usize, u32)>,
    empty: u32,
    /// Touched since the last seal.
    touched: BTreeSet<u32>,
    digest: u64,
}

// Megabytes of rows are no help in a message.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, blocks) = (self.rows.len(), self.blocks.len());
        f.debug_struct("Image").field("rows", &rows).field("blocks", &blocks).finish_non_exhaustive()
    }
}

impl Image {
    pub(crate) const fn new(id: u128) -> Self {
        Self {
            id,
            blocks: Vec::new(),
            rows: BTreeMap::new(),
            by_room: BTreeSet::new(),
            empty: 0,
            touched: BTreeSet::new(),
            digest: 0,
        }
    }

    /// Blocks in use or emptied.
    pub(crate) fn blocks(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Blocks without rows.
    pub(crate) const fn empty(&self) -> u32 {
        self.empty
    }

    /// The sum of the checksums of all blocks, as of the last seal.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) const fn touched(&self) -> &BTreeSet<u32> {
        &self.touched
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.rows.keys().copied()
    }

    /// Those of one kind.
    pub(crate) fn keys_of(&self, kind: u8) -> impl Iterator<Item = Key> + '_ {
        let (first, last) = (Key { kind, id: [0; 16] }, Key { kind, id: [0xff; 16] });
        self.rows.range(first..=last).map(|(key, _)| *key)
    }

    /// How many blocks beyond [`Image::blocks`] rows of these lengths may need together, at most.
    pub(crate) fn lacks(&self, rows: impl Iterator<Item = usize>) -> u32 {
        let (mut count, mut full, mut large, mut small, mut last) = (0, 0, 0, 0, 0);
        for bytes in rows {
            last = piece_bytes(bytes % PIECE_BYTES_MAX);
            let is_small = last <= ROOM_MAX / 4;
            (count, full) = (count + 1, full + bytes / PIECE_BYTES_MAX);
            (large, small) = if is_small { (large, small + last) } else { (large + 1, small) };
        }
        let has_room = || self.by_room.range((last, 0)..).next().is_some();
        if count == 0 || (count == 1 && full == 0 && has_room()) {
            return 0;
        }
        // Small ones leave at most a quarter of a block unused.
        let shared = if small == 0 { 0 } else { 1 + small / (ROOM_MAX - ROOM_MAX / 4) };
        u32::try_from(full + large + shared).unwrap_or(u32::MAX).saturating_sub(self.empty)
    }

    pub(crate) fn get(&self, key: Key) -> Option<Vec<u8>> {
        let mut row = Vec::new();
        for number in self.rows.get(&key)? {
            let pieces = layout::pieces(self.bytes(*number)).ok()?;
            let (_, piece) = pieces.into_iter().find(|(_, piece)| piece.key == key)?;
            row.extend_from_slice(piece.bytes);
        }
        Some(row)
    }

    /// Replaces a row. `soon` are the blocks that the next group writes anyway.
    pub(crate) fn put(&mut self, key: Key, bytes: &[u8], soon: &BTreeSet<u32>) {
        self.remove(key);
        let chunks: Vec<&[u8]> = if bytes.is_empty() { vec![bytes] } else { bytes.chunks(PIECE_BYTES_MAX).collect() };
        let of = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        let mut places = Vec::with_capacity(chunks.len());
        for (number, bytes) in (0..).zip(chunks) {
            let place = self.place(piece_bytes(bytes.len()), soon);
            self.add(place, &Piece { key, number, of, bytes });
            places.push(place);
        }
        _ = self.rows.insert(key, places);
    }

    /// Whether there was such a row.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        let Some(places) = self.rows.remove(&key) else { return false };
        places.into_iter().for_each(|number| self.take_out(number, key));
        true
    }

    fn place(&mut self, needed: usize, soon: &BTreeSet<u32>) -> u32 {
        let has_room = |number: &&u32| self.room(**number).is_some_and(|room| room >= needed);
        if let Some(number) = self.touched.iter().chain(soon).take(LOOKS_MAX).find(has_room) {
            return *number;
        }
        if let Some((_, number)) = self.by_room.range((needed, 0)..).next() {
            return *number;
        }
        self.blocks.push(Block { bytes: vec![0; BLOCK].into_boxed_slice(), used: 0, count: 0, sum: 0 });
        let number = self.blocks();
        _ = self.by_room.insert((ROOM_MAX, number));
        self.empty += 1;
        number
    }

    fn add(&mut self, number: u32, piece: &Piece<'_>) {
        let mut laid = Writer::new();
        layout::lay_piece(&mut laid, piece);
        let laid = laid.as_slice();
        self.change(number, |block| {
            let at = BLOCK_HEAD_BYTES + block.used;
            block.bytes.iter_mut().skip(at).zip(laid).for_each(|(to, from)| *to = *from);
            block.used += laid.len();
            block.count += 1;
        });
    }

    fn take_out(&mut self, number: u32, key: Key) {
        self.change(number, |block| {
            block.mark();
            let pieces = layout::pieces(&block.bytes).unwrap_or_default();
            let found = pieces.iter().find(|(_, piece)| piece.key == key);
            let Some((at, length)) = found.map(|(at, piece)| (*at, piece_bytes(piece.bytes.len()))) else { return };
            let (from, end) = (BLOCK_HEAD_BYTES + at, BLOCK_HEAD_BYTES + block.used);
            block.bytes.copy_within(from + length..end, from);
            block.used -= length;
            block.count -= 1;
            // What is gone is gone from the disk, too.
            block.bytes.iter_mut().skip(BLOCK_HEAD_BYTES + block.used).take(length).for_each(|byte| *byte = 0);
        });
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut Block)) {
        let Some(block) = at(number).and_then(|at| self.blocks.get_mut(at)) else { return };
        _ = self.by_room.remove(&(ROOM_MAX - block.used, number));
        self.empty -= u32::from(block.used == 0);
        change(block);
        block.mark();
        self.empty += u32::from(block.used == 0);
        _ = self.by_room.insert((ROOM_MAX - block.used, number));
        _ = self.touched.insert(number);
    }

    fn room(&self, number: u32) -> Option<usize> {
        at(number).and_then(|at| self.blocks.get(at)).map(|block| ROOM_MAX - block.used)
    }

    /// A block as it was sealed last; touched since, as it will be sealed but for its head.
    pub(crate) fn bytes(&self, number: u32) -> &[u8] {
        at(number).and_then(|at| self.blocks.get(at)).map_or(&[], |block| &block.bytes)
    }

    /// Ends a group: touched blocks are as they go to the disk. Returns which.
    pub(crate) fn seal(&mut self, generation: u64) -> BTreeSet<u32> {
        let touched = std::mem::take(&mut self.touched);
        for number in &touched {
            let Some(block) = at(*number).and_then(|at| self.blocks.get_mut(at)) else { continue };
            let used = u16::try_from(block.used).unwrap_or(u16::MAX);
            let before = block.sum;
            block.sum = layout::seal_block(self.id, &mut block.bytes, *number, used, block.count, generation);
            self.digest = self.digest.wrapping_sub(before).wrapping_add(block.sum);
        }
        touched
    }
}

impl Block {
    /// Says in its bytes how much is used, so that its pieces can be read before it is sealed.
    fn mark(&mut self) {
        let used = u16::try_from(self.used).unwrap_or(u16::MAX).to_le_bytes();
        let words = used.into_iter().chain(self.count.to_le_bytes());
        self.bytes.iter_mut().skip(12).zip(words).for_each(|(to, from)| *to = from);
    }
}

/// Where a block of that number is kept.
fn at(number: u32) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn key(number: u8) -> Key {
        Key { kind: 5, id: [number; 16] }
    }

    #[test]
    fn a_row_of_any_length_comes_back_and_leaves_its_room_behind() {
        let mut image = Image::new(1);
        let none = BTreeSet::new();
        for bytes in [0, 1, PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 5 * PIECE_BYTES_MAX] {
            let row: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let (before, lacks) = (image.blocks(), image.lacks([bytes].into_iter()));
            image.put(key(1), &row, &none);
            assert_eq!(image.get(key(1)), Some(row), "{bytes}");
            assert!(
                image.blocks() - before <= lacks,
                "{bytes} bytes: {lacks} foretold, {} made",
                image.blocks() - before
            );
        }
        assert!(image.remove(key(1)) && !image.remove(key(1)));
        assert_eq!((image.get(key(1)), image.empty()), (None, image.blocks()));
        image.put(key(2), &[3; 9 * PIECE_BYTES_MAX / 2], &none);
        assert_eq!(image.blocks(), 5, "emptied blocks are used again");
    }

    #[test]
    fn the_sum_follows_the_touched_blocks_alone() {
        let mut image = Image::new(1);
        let none = BTreeSet::new();
        (0..200).for_each(|number| image.put(key(number), &[number; 100], &none));
        assert_eq!(image.seal(1).len(), usize::try_from(image.blocks()).unwrap());
        let all = |image: &Image| {
            let sums = (1..=image.blocks()).map(|number| layout::whole(1, image.bytes(number), number).unwrap());
            sums.fold(0_u64, u64::wrapping_add)
        };
        assert_eq!(image.digest(), all(&image));
        assert!(image.remove(key(7)));
        image.put(key(201), &[1; 100], &none);
        assert_eq!(image.seal(2).len(), 1, "what goes makes room for what comes");
        assert_eq!(image.digest(), all(&image));
    }
}
