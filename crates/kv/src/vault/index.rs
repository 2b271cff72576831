//! Which address stands where in a volume: sorted rows in blocks of 4096 bytes, each with a checksum, and a small top that
//! stays in memory.
//!
//! ```text
//!   block | frame: mark = first LSN, chain = its number | offset of the first item 8 | first LSN 8 | first at 4 |
//!         | (LSN delta, at or its delta, length / 8) as varints, to the end of the payload | zeroes to 4096 |
//!   top   | frames: (first LSN 8 | first at 4 | offset 8) for each block |
//! ```
//! Items stand packed, so a row's offset is where the one before ends. Blocks have one length: a damaged one hides no other,
//! and the top can be had again from the blocks.
//!
//! Walk: [`Building::add`] while items are written · [`Building::lay`] at the end · [`rows`] of a block · [`Top::find`].

use assent_frame::{Head, Malformed, PAYLOAD_BYTES_MAX, Reader, Writer, laid_bytes, lay, parse};

use crate::vault::Address;
use crate::vault::seal::BLOCK_BYTES;

const KIND_BLOCK: u16 = 0x42;
const KIND_TOP: u16 = 0x43;
/// The longest row: ten, five and five bytes of varints.
const ROW_BYTES_MAX: usize = 20;
const BLOCK_PAYLOAD_BYTES: usize = BLOCK_BYTES - laid_bytes(0);
const TOP_ROW_BYTES: usize = 20;
const TOP_ROWS_PER_FRAME: usize = 40_000;

const _: () =
    assert!(TOP_ROW_BYTES * TOP_ROWS_PER_FRAME <= PAYLOAD_BYTES_MAX, "a frame of the top is one that can be read");

/// One item: its address, and where its frames stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) address: Address,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The first row of each block, and where its item stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Top {
    firsts: Vec<(Address, u64)>,
}

impl Top {
    /// The block in which an address would be.
    pub(crate) fn find(&self, address: Address) -> Option<usize> {
        self.firsts.partition_point(|(first, _)| *first <= address).checked_sub(1)
    }

    /// Where the items of a block stand; they end where those of the next begin, or the index does.
    pub(crate) fn region(&self, block: usize, index_at: u64) -> (u64, u64) {
        let offset = |at: usize| self.firsts.get(at).map_or(index_at, |(_, offset)| *offset);
        (offset(block), offset(block + 1))
    }

    pub(crate) fn len(&self) -> usize {
        self.firsts.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<(Address, u64)>()
    }

    pub(crate) fn add(&mut self, address: Address, offset: u64) {
        self.firsts.push((address, offset));
    }

    fn lay(&self, out: &mut Vec<u8>) {
        for (number, rows) in (0..).zip(self.firsts.chunks(TOP_ROWS_PER_FRAME)) {
            let mut fields = Writer::new();
            for (address, offset) in rows {
                fields.u64(address.lsn).u32(address.at).u64(*offset);
            }
            lay(out, Head { mark: number, kind: KIND_TOP, flags: 0, chain: 0 }, &[fields.as_slice()]);
        }
    }

    /// The whole top, or nothing.
    pub(crate) fn parse(mut bytes: &[u8], blocks: usize) -> Option<Self> {
        let mut top = Self::default();
        let mut number = 0;
        while !bytes.is_empty() {
            let (frame, laid) = parse(bytes, PAYLOAD_BYTES_MAX).ok()??;
            if frame.kind != KIND_TOP || frame.mark != number {
                return None;
            }
            let mut reader = Reader::new(frame.payload);
            while !reader.rest().is_empty() {
                let address = Address::new(reader.u64("lsn").ok()?, reader.u32("at").ok()?);
                top.add(address, reader.u64("offset").ok()?);
            }
            bytes = bytes.get(laid..)?;
            number += 1;
        }
        (top.firsts.len() == blocks).then_some(top)
    }
}

/// An index that grows with the items of a volume: some six bytes each until the volume is done.
#[derive(Debug, Default)]
pub(crate) struct Building {
    blocks: Vec<u8>,
    top: Top,
    payload: Writer,
    first: Address,
    last: Address,
}

impl Building {
    /// One more item, behind all others.
    pub(crate) fn add(&mut self, row: Row) {
        if self.payload.as_slice().len() + ROW_BYTES_MAX > BLOCK_PAYLOAD_BYTES {
            self.close();
        }
        let Row { address, offset, bytes } = row;
        if self.payload.as_slice().is_empty() {
            self.payload.u64(offset).u64(address.lsn).u32(address.at);
            self.top.add(address, offset);
            (self.first, self.last) = (address, address);
        }
        let ahead = address.lsn - self.last.lsn;
        varint(&mut self.payload, ahead);
        varint(&mut self.payload, u64::from(if ahead == 0 { address.at - self.last.at } else { address.at }));
        varint(&mut self.payload, bytes / 8);
        self.last = address;
    }

    fn close(&mut self) {
        if self.payload.as_slice().is_empty() {
            return;
        }
        let number = u32::try_from(self.top.len() - 1).unwrap_or(u32::MAX);
        let head = Head { mark: self.first.lsn, kind: KIND_BLOCK, flags: 0, chain: number };
        lay(&mut self.blocks, head, &[self.payload.as_slice()]);
        self.blocks.resize(self.blocks.len().next_multiple_of(BLOCK_BYTES), 0);
        self.payload.clear();
    }

    /// All blocks, the bytes of the top behind them, and how many blocks there are.
    pub(crate) fn lay(mut self) -> (Vec<u8>, u64, u32) {
        self.close();
        let before = self.blocks.len();
        self.top.lay(&mut self.blocks);
        let top_bytes = u64::try_from(self.blocks.len() - before).unwrap_or(u64::MAX);
        (self.blocks, top_bytes, u32::try_from(self.top.len()).unwrap_or(u32::MAX))
    }
}

/// The payload of a block, if it is whole and the one of this number.
pub(crate) fn block(bytes: &[u8], number: usize) -> Option<&[u8]> {
    let (frame, _) = parse(bytes, BLOCK_BYTES).ok()??;
    let ours = frame.kind == KIND_BLOCK && u32::try_from(number) == Ok(frame.chain);
    ours.then_some(frame.payload)
}

/// The rows of a block, in order.
pub(crate) fn rows(payload: &[u8]) -> Result<Vec<Row>, Malformed> {
    let mut rows = Vec::new();
    each(payload, |row| {
        rows.push(row);
        true
    })?;
    Ok(rows)
}

/// The row of an address, if the block has one.
pub(crate) fn find(payload: &[u8], address: Address) -> Result<Option<Row>, Malformed> {
    let mut found = None;
    each(payload, |row| {
        found = (row.address == address).then_some(row);
        row.address < address
    })?;
    Ok(found)
}

/// Row after row, while `then` says so.
fn each(payload: &[u8], mut then: impl FnMut(Row) -> bool) -> Result<(), Malformed> {
    let mut reader = Reader::new(payload);
    let mut offset = reader.u64("offset")?;
    let mut address = Address::new(reader.u64("lsn")?, reader.u32("at")?);
    let wrong = |field| Malformed { field };
    while !reader.rest().is_empty() {
        let ahead = read_varint(&mut reader)?;
        let at = u32::try_from(read_varint(&mut reader)?).map_err(|_| wrong("at"))?;
        let from = if ahead == 0 { address.at } else { 0 };
        let lsn = address.lsn.checked_add(ahead).ok_or(wrong("lsn"))?;
        address = Address::new(lsn, from.checked_add(at).ok_or(wrong("at"))?);
        let bytes = read_varint(&mut reader)?.checked_mul(8).ok_or(wrong("length"))?;
        if !then(Row { address, offset, bytes }) {
            return Ok(());
        }
        offset = offset.checked_add(bytes).ok_or(wrong("length"))?;
    }
    Ok(())
}

/// Seven bits a byte, the lowest first.
pub(crate) fn varint(out: &mut Writer, mut value: u64) {
    while value >= 0x80 {
        out.u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.u8(u8::try_from(value).unwrap_or(0));
}

pub(crate) fn read_varint(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8("varint")?;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed { field: "varint" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_in_blocks_of_one_length_and_the_top_finds_their_block() {
        let mut expected = Vec::new();
        let mut building = Building::default();
        let mut offset = 4096;
        for number in 0..5000_u64 {
            let lsn = 64 + number / 3 * 4096 + ((number / 900) << 40);
            let at = u32::try_from(number % 3 * 70_000).unwrap();
            let row = Row { address: Address::new(lsn, at), offset, bytes: 8 * (3 + number % 2000) };
            offset += row.bytes;
            building.add(row);
            expected.push(row);
        }
        let (bytes, top_bytes, blocks) = building.lay();
        let blocks = usize::try_from(blocks).unwrap();
        assert!(blocks > 5 && bytes.len() == blocks * BLOCK_BYTES + usize::try_from(top_bytes).unwrap());
        let top = Top::parse(&bytes[blocks * BLOCK_BYTES..], blocks).unwrap();
        let mut found = Vec::new();
        for number in 0..blocks {
            let payload = block(&bytes[number * BLOCK_BYTES..][..BLOCK_BYTES], number).unwrap();
            let rows = rows(payload).unwrap();
            let end = rows.last().map(|row| row.offset + row.bytes).unwrap();
            assert_eq!(top.region(number, offset), (rows[0].offset, end));
            assert!(rows.iter().all(|row| top.find(row.address) == Some(number)));
            assert!(rows.iter().all(|row| find(payload, row.address) == Ok(Some(*row))));
            assert_eq!(find(payload, Address::new(rows[0].address.lsn, rows[0].address.at + 1)), Ok(None));
            assert_eq!(block(&bytes[number * BLOCK_BYTES..][..BLOCK_BYTES], number + 1), None);
            found.extend(rows);
        }
        assert_eq!(found, expected);
        assert_eq!(top.find(Address::new(63, 9)), None);
        assert_eq!(Top::parse(&bytes[blocks * BLOCK_BYTES..], blocks + 1), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            _ = (rows(&bytes), block(&bytes, 0), Top::parse(&bytes, 1));
        }

        #[test]
        fn a_number_of_any_size_comes_back(value in proptest::prelude::any::<u64>()) {
            let mut out = Writer::new();
            varint(&mut out, value);
            proptest::prop_assert_eq!(read_varint(&mut Reader::new(out.as_slice())), Ok(value));
        }
    }
}
