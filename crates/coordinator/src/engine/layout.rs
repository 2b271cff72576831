//! The bytes of a table's file. Drawn in docs/format.md, section "State table".

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::Epoch;
use siphasher::sip::SipHasher13;

pub(crate) const BLOCK_BYTES: u64 = 4096;
pub(crate) const BLOCK: usize = assent_world::BLOCK_BYTES;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "one block, counted in two types");
/// The most blocks of rows: 256 MiB, several times what a coordinator takes.
pub(crate) const BLOCKS_MAX: u32 = 65_536;
const _: () = assert!(BLOCKS_MAX as u64 * BLOCK_BYTES > 3 * crate::TABLE_BYTES_MAX as u64, "what is taken fits");

const MAGIC: [u8; 8] = *b"ASNTTABL";
const VERSION: u16 = 1;
const LAZY: u16 = 1;
const CLOSED: u16 = 2;
/// Checksum, number, used, count, changed.
pub(crate) const BLOCK_HEAD_BYTES: usize = 24;
/// Kind, id, number, of how many, length.
const PIECE_HEAD_BYTES: usize = 27;
/// The most bytes of one piece: it fills a block.
pub(crate) const PIECE_BYTES_MAX: usize = BLOCK - BLOCK_HEAD_BYTES - PIECE_HEAD_BYTES;

/// What a row is known by: its kind, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: u8,
    pub(crate) id: [u8; 16],
}

/// The head of a file: block 0, part of every group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Random, the same in all files of a table: the key of all checksums.
    pub(crate) id: u128,
    /// The run of the operating system.
    pub(crate) boot: u128,
    pub(crate) epoch: Epoch,
    /// The opening may acknowledge before it syncs.
    pub(crate) is_lazy: bool,
    /// It was closed properly; everything is durable.
    pub(crate) is_closed: bool,
    /// Which group this is.
    pub(crate) generation: u64,
    /// This group was durable, in another file, when this one was written.
    pub(crate) synced: u64,
    /// Records that changed the table, ever.
    pub(crate) end: u64,
    /// Blocks of rows behind this one.
    pub(crate) blocks: u32,
    /// The sum of their checksums.
    pub(crate) digest: u64,
}

impl Head {
    pub(crate) fn lay(&self, block: &mut [u8]) {
        let flags = u16::from(self.is_lazy) * LAZY + u16::from(self.is_closed) * CLOSED;
        let mut out = Writer::new();
        out.raw(&MAGIC).u16(VERSION).u16(flags).u32(self.epoch.0).u128(self.id).u128(self.boot);
        out.u64(self.generation).u64(self.synced).u64(self.end).u64(self.digest).u32(self.blocks);
        block.fill(0);
        block.iter_mut().skip(8).zip(out.as_slice()).for_each(|(to, from)| *to = *from);
        _ = seal(self.id, block);
    }

    pub(crate) fn read(block: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(block);
        let sum = reader.u64("checksum")?;
        let from = &mut reader;
        if from.raw(MAGIC.len(), "magic")? != MAGIC || from.u16("version")? != VERSION {
            return Err(Malformed { field: "magic" });
        }
        let flags = from.u16("flags")?;
        let epoch = Epoch(from.u32("epoch")?);
        let (id, boot) = (from.u128("id")?, from.u128("boot")?);
        let (generation, synced) = (from.u64("generation")?, from.u64("synced")?);
        let (end, digest, blocks) = (from.u64("end")?, from.u64("digest")?, from.u32("blocks")?);
        if sum != checksum(id, block) || blocks > BLOCKS_MAX {
            return Err(Malformed { field: "checksum" });
        }
        let (is_lazy, is_closed) = (flags & LAZY != 0, flags & CLOSED != 0);
        Ok(Self { id, boot, epoch, is_lazy, is_closed, generation, synced, end, blocks, digest })
    }
}

/// Over everything behind the checksum's own place.
fn checksum(id: u128, block: &[u8]) -> u64 {
    let key = id.to_le_bytes();
    SipHasher13::new_with_key(&key).hash(block.get(8..BLOCK).unwrap_or_default())
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
}

/// Lays the checksum of a block, and returns it.
fn seal(id: u128, block: &mut [u8]) -> u64 {
    let sum = checksum(id, block);
    put(block, 0, &sum.to_le_bytes());
    sum
}

/// Lays what stands before the pieces of a block. Returns the checksum.
pub(crate) fn seal_block(id: u128, block: &mut [u8], number: u32, used: u16, count: u16, changed: u64) -> u64 {
    let mut out = Writer::new();
    out.u32(number).u16(used).u16(count).u64(changed);
    put(block, 8, out.as_slice());
    seal(id, block)
}

/// The checksum of a block of rows, if it is whole and stands where it belongs.
pub(crate) fn whole(id: u128, block: &[u8], number: u32) -> Option<u64> {
    let mut reader = Reader::new(block);
    let (sum, at) = (reader.u64("checksum").ok()?, reader.u32("number").ok()?);
    (block.len() == BLOCK && at == number && sum == checksum(id, block)).then_some(sum)
}

/// A part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) key: Key,
    pub(crate) number: u32,
    pub(crate) of: u32,
    pub(crate) bytes: &'a [u8],
}

/// What a piece takes in a block.
pub(crate) const fn piece_bytes(bytes: usize) -> usize {
    PIECE_HEAD_BYTES + bytes
}

pub(crate) fn lay_piece(out: &mut Writer, piece: &Piece<'_>) {
    let length = u16::try_from(piece.bytes.len()).unwrap_or(u16::MAX);
    out.u8(piece.key.kind).raw(&piece.key.id).u32(piece.number).u32(piece.of).u16(length).raw(piece.bytes);
}

fn read_piece<'a>(from: &mut Reader<'a>) -> Result<Piece<'a>, Malformed> {
    let kind = from.u8("piece.kind")?;
    let id = from.raw(16, "piece.id")?.try_into().map_err(|_| Malformed { field: "piece.id" })?;
    let (number, of) = (from.u32("piece.number")?, from.u32("piece.of")?);
    let length = from.u16("piece.length")?;
    Ok(Piece { key: Key { kind, id }, number, of, bytes: from.raw(usize::from(length), "piece.bytes")? })
}

/// The pieces of a block, with the place of each behind the block's head.
pub(crate) fn pieces(block: &[u8]) -> Result<Vec<(usize, Piece<'_>)>, Malformed> {
    let mut head = Reader::new(block.get(12..).unwrap_or_default());
    let (used, count) = (usize::from(head.u16("used")?), head.u16("count")?);
    let body = block.get(BLOCK_HEAD_BYTES..BLOCK_HEAD_BYTES + used).ok_or(Malformed { field: "used" })?;
    let mut from = Reader::new(body);
    let mut list = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let at = body.len() - from.rest().len();
        list.push((at, read_piece(&mut from)?));
    }
    from.end()?;
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            id: 11,
            boot: 12,
            epoch: Epoch(3),
            is_lazy: true,
            is_closed: false,
            generation: 9,
            synced: 8,
            end: 70,
            blocks: 2,
            digest: 5,
        }
    }

    #[test]
    fn every_flipped_bit_of_a_head_and_of_a_block_is_seen() {
        let mut block = [0; BLOCK];
        head().lay(&mut block);
        assert_eq!(Head::read(&block), Ok(head()));
        let mut rows = [0; BLOCK];
        let mut body = Writer::new();
        lay_piece(&mut body, &Piece { key: Key { kind: 5, id: [7; 16] }, number: 0, of: 1, bytes: b"abc" });
        put(&mut rows, BLOCK_HEAD_BYTES, body.as_slice());
        let used = u16::try_from(body.as_slice().len()).unwrap();
        let sum = seal_block(11, &mut rows, 4, used, 1, 9);
        assert_eq!(whole(11, &rows, 4), Some(sum));
        assert_eq!((whole(11, &rows, 5), whole(12, &rows, 4)), (None, None), "elsewhere, or another table's");
        for bit in 0..BLOCK * 8 {
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            block[byte] ^= mask;
            assert!(Head::read(&block).is_err(), "bit {bit}");
            block[byte] ^= mask;
            rows[byte] ^= mask;
            assert_eq!(whole(11, &rows, 4), None, "bit {bit}");
            rows[byte] ^= mask;
        }
        assert_eq!(pieces(&rows).unwrap().len(), 1);
    }
}
