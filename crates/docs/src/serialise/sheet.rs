//! What is being written, in few and short moves: a copy of a length that is known beforehand is a few moves, any other one is a call.
//!
//! Whoever writes a node takes [`Room`] for all that is short of it, and asks for no more room until that is done. A block is laid whole, with
//! what stands behind its bytes; what comes next is laid over that.
//!
//! Walk: [`Sheet::room`], [`Room::put`], [`Sheet::pass`] · [`Sheet::put_all`] any bytes · [`Sheet::taken`].
//! Deliberately absent: a vector's own end. It would be asked and moved with each block.

/// The longest block.
pub(super) const BLOCK_BYTES_MAX: usize = 64;
/// Room for as many bytes as a [`Room`] counts, and a block behind them.
const ROOM_BYTES: usize = u8::MAX as usize + BLOCK_BYTES_MAX;
/// So many bytes are filled with zeros at a time, of a short text fewer. Of more than 2 KB the C library makes one instruction, which takes longer to begin.
const FILL_BYTES: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// What was written, and behind it what is filled and may be written on.
    bytes: Vec<u8>,
    end: usize,
}

/// Room for a node whose parts are short.
#[derive(Debug)]
pub(super) struct Room<'s> {
    free: &'s mut [u8; ROOM_BYTES],
    /// So many bytes of it are written.
    many: u8,
}

impl Room<'_> {
    /// Puts so many of these bytes behind what is there.
    #[inline(always)]
    pub(super) fn put<const BLOCK: usize>(&mut self, block: &[u8; BLOCK], many: u8) {
        const { assert!(BLOCK <= BLOCK_BYTES_MAX, "wherever its bytes begin there is room for the whole block") };
        debug_assert!(usize::from(many) <= BLOCK, "{many} bytes of a block of {BLOCK}");
        let from = usize::from(self.many);
        if let Some(place) = self.free.get_mut(from..from + BLOCK) {
            place.copy_from_slice(block);
        }
        self.many += many;
    }

    /// Puts these, which are no more than a block.
    #[inline(always)]
    pub(super) fn put_few(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= BLOCK_BYTES_MAX, "{} bytes are no more than a block", bytes.len());
        let mut block = [0; BLOCK_BYTES_MAX];
        let many = block.iter_mut().zip(bytes).map(|(place, byte)| *place = *byte).fold(0, |many, ()| many + 1);
        self.put(&block, many);
    }

    /// How many bytes are written there: [`Sheet::pass`] them.
    #[inline(always)]
    pub(super) const fn many(&self) -> u8 {
        self.many
    }
}

impl Sheet {
    pub(super) fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), end: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.end
    }

    pub(super) fn written(&self) -> &[u8] {
        self.bytes.get(..self.end).unwrap_or_default()
    }

    /// Forgets what was written.
    pub(super) const fn clear(&mut self) {
        self.end = 0;
    }

    /// What was written.
    pub(super) fn taken(mut self) -> Vec<u8> {
        self.bytes.truncate(self.end);
        self.bytes
    }

    /// Room behind what is there.
    #[inline(always)]
    pub(super) fn room(&mut self) -> Room<'_> {
        if self.bytes.len() < self.end || self.bytes.len() - self.end < ROOM_BYTES {
            self.lengthen();
        }
        let free = self.bytes.get_mut(self.end..).and_then(<[u8]>::first_chunk_mut);
        #[expect(clippy::expect_used, reason = "it was made long enough, and its end is within it")]
        let free = free.expect("a sheet has room behind its end");
        Room { free, many: 0 }
    }

    /// So many bytes of the room are written.
    #[inline(always)]
    pub(super) fn pass(&mut self, many: u8) {
        self.end += usize::from(many);
    }

    /// Fills what comes next, within the room that was taken beforehand if there is some.
    #[cold]
    #[inline(never)]
    fn lengthen(&mut self) {
        let filled = self.bytes.len() + self.bytes.len().min(FILL_BYTES);
        self.bytes.resize(filled.min(self.bytes.capacity()).max(self.end + ROOM_BYTES), 0);
    }

    /// Puts these bytes behind what is there.
    pub(super) fn put_all(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        match self.bytes.get_mut(self.end..end) {
            Some(place) => place.copy_from_slice(bytes),
            None => {
                self.bytes.truncate(self.end);
                self.bytes.extend_from_slice(bytes);
            }
        }
        self.end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_so_many_bytes_of_it_whatever_stands_behind_them_and_however_much_room_there_is() {
        let block: [u8; 64] = std::array::from_fn(|at| b'0' + u8::try_from(at).unwrap());
        for bytes in [0, 6, 7, 40, 400, 3_000] {
            for part in 0..=64 {
                let (mut sheet, mut expected) = (Sheet::with_room(bytes), Vec::new());
                for round in 0..100 {
                    let text = vec![b'a'; round * usize::from(part)];
                    sheet.put_all(&text);
                    let mut room = sheet.room();
                    room.put(&block, part);
                    room.put(b".", 1);
                    room.put(&block, part);
                    room.put(b"?", 0);
                    let many = room.many();
                    sheet.pass(many);
                    let block = &block[..part.into()];
                    expected.extend([&text, block, b".", block].concat());
                    assert_eq!(sheet.len(), expected.len());
                }
                assert!(sheet.written() == expected, "{part} bytes where {bytes} had room");
                sheet.clear();
                sheet.put_all(b"anew");
                assert_eq!((sheet.written(), sheet.len()), (&b"anew"[..], 4));
                assert_eq!(sheet.taken(), b"anew");
            }
        }
    }

    #[test]
    fn a_node_as_long_as_a_room_counts_fits_wherever_the_sheet_ends() {
        let mut sheet = Sheet::default();
        let mut expected = Vec::new();
        for gap in 0..2_000_usize {
            sheet.put_all(&b"gap"[..gap % 4 % 3]);
            let mut room = sheet.room();
            (0..3).for_each(|_| room.put(&[b'a'; 64], 64));
            room.put(&[b'b'; 64], 63);
            room.put(&[b'c'; 64], 0);
            let many = room.many();
            sheet.pass(many);
            expected.extend([&b"gap"[..gap % 4 % 3], &[b'a'; 192], &[b'b'; 63]].concat());
        }
        assert!(sheet.taken() == expected);
    }
}
