//! The open batch: frames laid into memory that a direct write can take as it is.
//!
//! The memory's first byte is a block boundary of the log. What stands in that block before the batch has landed, and is written
//! again with it where whole blocks are needed: past the page cache, and where the page may be in it no more.
//!
//! Walk: [`Batch::begin`] places it · [`Batch::push`] lays a frame · [`Batch::lead`] lays what stands before it ·
//! [`Batch::seal`] lays the header last, when it is known what is durable.

use assent_frame::{Head, lay_at};
use assent_world::AlignedBuffer;

use crate::layout::{
    BATCH_BYTES, BLOCK_BYTES, BatchHead, FIRST, LAST, block_from, block_of, bytes, fold, length, stored_checksum,
};

/// So much behind its blocks a batch clears of what a larger one left.
const CLEARED_BYTES: usize = 64 << 10;

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct Batch {
    memory: AlignedBuffer,
    /// The place of the memory's first byte.
    base: u64,
    lsn: u64,
    end: u64,
    entries: u32,
    digest: u32,
    skipped: u64,
    /// No long entry is under way where it begins; and so many more begin in it than end.
    divides: bool,
    chains: i32,
    /// It is written with what stands before it in its block.
    is_led: bool,
    /// From this place on the memory has what the log has.
    whole_from: u64,
    /// From this byte of the memory on there are zeroes.
    clean_from: usize,
}

impl Batch {
    pub(crate) fn new(memory_bytes: usize) -> Self {
        let memory = AlignedBuffer::zeroed(memory_bytes);
        Self {
            memory,
            base: 0,
            lsn: 0,
            end: 0,
            entries: 0,
            digest: 0,
            skipped: 0,
            divides: false,
            chains: 0,
            is_led: false,
            whole_from: 0,
            clean_from: 0,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(crate) const fn entries(&self) -> u32 {
        self.entries
    }

    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// So many more long entries begin in it than end.
    pub(crate) const fn chains(&self) -> i32 {
        self.chains
    }

    /// No long entry is under way where it begins.
    pub(crate) const fn divides(&mut self, divides: bool) {
        self.divides = divides;
    }

    /// Places the batch. Where the one before it was in this memory, and ends in the block that this one begins in, what stands there
    /// before it is here already.
    pub(crate) fn begin(&mut self, lsn: u64, skipped: u64) {
        let goes_on = lsn == self.end && block_of(lsn) == self.base;
        self.whole_from = if goes_on { self.whole_from } else { lsn };
        self.base = block_of(lsn);
        self.lsn = lsn;
        self.end = lsn + BATCH_BYTES;
        self.entries = 0;
        self.digest = 0;
        self.skipped = skipped;
        (self.divides, self.chains) = (false, 0);
        self.is_led = false;
    }

    /// It is written in whole blocks; `lead` are the bytes that stand in its first one before it.
    pub(crate) fn lead(&mut self, lead: &[u8]) {
        self.is_led = true;
        let Some(place) = self.memory.as_mut_slice().get_mut(..lead.len()) else { return };
        if self.whole_from == self.base {
            debug_assert!(place == lead, "the memory has another block before {} than the log", self.lsn);
            return;
        }
        place.copy_from_slice(lead);
        if self.base + bytes(lead.len()) == self.lsn {
            self.whole_from = self.base;
        }
    }

    /// Empties it.
    pub(crate) fn reset(&mut self) {
        self.entries = 0;
    }

    /// How many bytes of frames would fit behind a header at this place.
    pub(crate) fn room_at(&self, lsn: u64) -> u64 {
        bytes(self.memory.as_slice().len()).saturating_sub(lsn % BLOCK_BYTES + BATCH_BYTES)
    }

    /// How many bytes of frames still fit.
    pub(crate) fn room(&self) -> u64 {
        (self.base + bytes(self.memory.as_slice().len())).saturating_sub(self.end)
    }

    /// Lays a frame; its mark is its place. Returns the place and the checksum; nothing if it does not fit.
    pub(crate) fn push(&mut self, kind: u16, flags: u16, chain: u32, parts: &[&[u8]]) -> Option<(u64, u32)> {
        let lsn = self.end;
        let place = self.memory.as_mut_slice().get_mut(length(lsn - self.base)..)?;
        let laid = lay_at(place, Head { mark: lsn, kind, flags, chain }, parts)?;
        let checksum = stored_checksum(place)?;
        self.end += bytes(laid);
        self.entries += 1;
        self.digest = fold(self.digest, checksum);
        self.chains += i32::from(flags & FIRST != 0) - i32::from(flags & LAST != 0);
        Some((lsn, checksum))
    }

    /// Lays the header and clears what is left of the last block: what an earlier batch left there.
    pub(crate) fn seal(&mut self, epoch: u32, salt: u64, synced: u64, close: bool) {
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let head = BatchHead {
            lsn: self.lsn,
            epoch,
            salt,
            synced,
            entries: self.entries,
            body: small(self.end - self.lsn - BATCH_BYTES),
            skipped: small(self.skipped),
            digest: self.digest,
            close,
            divides: self.divides,
        };
        let from = length(self.lsn - self.base);
        let end = length(self.end - self.base);
        let blocks = length(block_from(self.end) - self.base);
        let memory = self.memory.as_mut_slice();
        head.lay(memory.get_mut(from..).unwrap_or_default());
        // All of it where that is little, so that it is clean the next time; a large batch is not paid for by a small one.
        let clears_all = self.clean_from <= blocks + CLEARED_BYTES;
        let to = if clears_all { self.clean_from } else { blocks };
        memory.get_mut(end..to).unwrap_or_default().fill(0);
        if clears_all {
            self.clean_from = end;
        }
    }

    /// The batch alone, and its place.
    pub(crate) fn exact(&self) -> (u64, &[u8]) {
        let (from, end) = (length(self.lsn - self.base), length(self.end - self.base));
        (self.lsn, self.memory.as_slice().get(from..end).unwrap_or_default())
    }

    /// Where it stands.
    pub(crate) const fn lsn(&self) -> u64 {
        self.lsn
    }

    /// What of its memory is written, and where. With a lead the whole blocks that hold it. Else what is new, and the whole of each block
    /// that it begins: a part of a block that is not in the page cache would first be read from the disk.
    pub(crate) fn to_write(&self) -> (u64, &[u8]) {
        let (base, blocks) = self.blocks();
        if self.is_led {
            return (base, blocks);
        }
        let (lsn, exact) = self.exact();
        let begins_a_block = lsn == base || block_of(self.end) > base;
        (lsn, if begins_a_block { blocks.get(length(lsn - base)..).unwrap_or_default() } else { exact })
    }

    /// The whole blocks that hold it, and their place.
    fn blocks(&self) -> (u64, &[u8]) {
        let end = length(block_from(self.end) - self.base);
        (self.base, self.memory.as_slice().get(..end).unwrap_or_default())
    }

    /// Makes of the bytes that stand in a block before this batch those that stand in one before the batch behind it.
    pub(crate) fn move_tail(&self, block: &mut Vec<u8>) {
        let from = block_of(self.end).max(self.lsn);
        block.resize(length(from - block_of(self.end)), 0);
        let (from, end) = (length(from - self.base), length(self.end - self.base));
        block.extend_from_slice(self.memory.as_slice().get(from..end).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_laid_behind_the_durable_bytes_of_its_block() {
        let mut batch = Batch::new(8192);
        batch.begin(4096 + 128, 8);
        batch.lead(&[7; 128]);
        let (lsn, _) = batch.push(3, 0, 0, &[b"one"]).unwrap();
        batch.push(3, 0, 0, &[b"two", b"!"]).unwrap();
        batch.seal(2, 9, 4096, false);
        assert_eq!(lsn, 4096 + 128 + 64);
        let (place, blocks) = batch.blocks();
        assert_eq!((place, blocks.len()), (4096, 4096));
        assert_eq!(&blocks[..128], &[7; 128]);
        let head = BatchHead::parse(&blocks[128..], 4096 + 128).unwrap();
        assert_eq!((head.entries, head.skipped, head.synced), (2, 8, 4096));
        assert!(head.holds(&batch.exact().1[64..]));
        let mut tail = vec![7; 128];
        batch.move_tail(&mut tail);
        assert_eq!(tail, &blocks[..length(batch.end() - 4096)]);
    }

    #[test]
    fn without_a_lead_a_block_is_written_whole_by_the_batch_that_begins_it_and_by_no_other() {
        // Where it begins, its payload, and the place and length of what is written with a lead and without.
        let rows = [
            (8192, 100, (8192, 4096), (8192, 4096)),
            (8192 + 192, 100, (8192, 4096), (8192 + 192, 192)),
            (8192 + 192, 3_000, (8192, 4096), (8192 + 192, 3_088)),
            (8192 + 192, 4_000, (8192, 8192), (8192 + 192, 8_000)),
            (8192 + 192, 4096 - 192 - 64 - 24, (8192, 4096), (8192 + 192, 4096 - 192)),
            (8192, 4096 - 64 - 24, (8192, 4096), (8192, 4096)),
        ];
        for (lsn, payload, led, alone) in rows {
            let before = vec![7; length(lsn % 4096)];
            let mut batch = Batch::new(4 * 4096);
            batch.begin(lsn, 0);
            batch.push(3, 0, 0, &[&vec![9; payload]]).unwrap();
            batch.seal(2, 9, 4096, false);
            let (at, bytes) = batch.to_write();
            let (base, blocks) = batch.blocks();
            assert_eq!((at, bytes.len()), alone, "{payload} bytes at {lsn}");
            assert_eq!(bytes, &blocks[length(at - base)..][..bytes.len()]);
            batch.lead(&before);
            let (at, bytes) = batch.to_write();
            assert_eq!((at, bytes.len()), led, "{payload} bytes at {lsn}");
            assert_eq!(&bytes[..before.len()], before);
            let mut tail = before;
            batch.move_tail(&mut tail);
            assert_eq!(tail, &bytes[length(block_of(batch.end()) - at)..][..length(batch.end() % 4096)]);
        }
    }

    #[test]
    fn behind_a_batch_of_the_same_memory_and_block_nothing_is_copied_and_the_same_is_written() {
        let (mut same, mut tail, mut at) = (Batch::new(4 * 4096), vec![7; 512], 8192 + 512);
        let mut copied = Vec::new();
        // One ends where a block does, some reach into the next one.
        for payload in [100, 200, 3_016, 8, 2_000, 2_376, 50, 4_000, 900, 30] {
            let mut fresh = Batch::new(4 * 4096);
            for batch in [&mut same, &mut fresh] {
                batch.begin(at, 0);
                batch.push(3, 0, 0, &[&vec![9; payload]]).unwrap();
                copied.push(batch.whole_from > batch.base);
                batch.lead(&tail);
                batch.seal(2, 9, 4096, false);
            }
            assert!(same.to_write() == fresh.to_write(), "{payload} bytes at {at}");
            same.move_tail(&mut tail);
            at = same.end();
            same.reset();
        }
        let (same, fresh): (Vec<_>, Vec<_>) = copied.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
        assert_eq!(same.iter().filter(|copied| **copied).count(), 3, "the first, and who begins within another block");
        assert_eq!(fresh.iter().filter(|copied| !**copied).count(), 1, "who begins a block");
    }

    #[test]
    fn memory_that_is_used_again_has_zeroes_behind_its_batch_whatever_stood_there() {
        let mut batch = Batch::new(40 * 4096);
        // Some leave more behind them than is cleared at once.
        for bytes in [150_000, 100, 70_000, 100, 5_000, 4_000, 10, 90_000, 120_000, 8_200, 24, 3_900] {
            batch.begin(4096, 0);
            batch.push(3, 0, 0, &[&vec![7; bytes]]).unwrap();
            batch.seal(2, 9, 4096, false);
            let (_, exact) = batch.exact();
            let (_, blocks) = batch.blocks();
            assert!(blocks.len() % 4096 == 0 && blocks[exact.len()..].iter().all(|byte| *byte == 0), "{bytes} bytes");
            batch.reset();
        }
    }

    #[test]
    fn a_full_batch_takes_nothing_more() {
        let mut batch = Batch::new(4096);
        batch.begin(0, 0);
        let room = batch.room();
        assert_eq!(room, batch.room_at(0));
        assert_eq!(batch.push(1, 0, 0, &[&vec![0; length(room) - 23]]), None);
        assert!(batch.push(1, 0, 0, &[&vec![0; length(room) - 24]]).is_some());
        assert_eq!(batch.room(), 0);
    }
}
