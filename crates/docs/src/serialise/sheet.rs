//! What is being written, in few and short moves: a copy of a length that is known beforehand is a few moves, any other one is a call.
//!
//! Walk: [`Sheet::put`] a few bytes · [`Sheet::put_first`] the beginning of what may be copied as a block, with some bytes that stand behind it
//! and are taken back · [`Sheet::put_all`] any · [`Sheet::taken`].
//! Deliberately absent: an end of its own within bytes that were filled with zeros beforehand.

#[derive(Debug, Default)]
pub(super) struct Sheet(Vec<u8>);

impl Sheet {
    pub(super) fn with_room(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.0
    }

    /// Forgets what was written.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What was written.
    pub(super) fn taken(self) -> Vec<u8> {
        self.0
    }

    /// Puts these behind what is there.
    #[inline]
    pub(super) fn put<const MANY: usize>(&mut self, bytes: &[u8; MANY]) {
        self.0.extend_from_slice(bytes);
    }

    /// Puts so many of these. With few the whole block is copied, with what stands behind them.
    #[inline]
    pub(super) fn put_first<const BLOCK: usize>(&mut self, bytes: &[u8], many: usize) {
        match bytes.first_chunk::<BLOCK>() {
            Some(block) if many <= BLOCK => self.put_block(block, many),
            _ => self.put_all(bytes.get(..many).unwrap_or_default()),
        }
    }

    #[inline]
    pub(super) fn put_block<const BLOCK: usize>(&mut self, block: &[u8; BLOCK], many: usize) {
        let end = self.0.len() + many;
        self.0.extend_from_slice(block);
        self.0.truncate(end);
    }

    pub(super) fn put_all(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_so_many_bytes_of_it_whatever_stands_behind_them_and_however_much_room_there_is() {
        let all: Vec<u8> = (b'a'..=b'z').chain(b'A'..=b'Z').collect();
        for room in [0, 6, 7, 40, 100] {
            for whence in 0..=all.len() {
                for many in 0..=whence {
                    let mut sheet = Sheet::with_room(room);
                    sheet.put(b"before");
                    sheet.put_first::<32>(&all[..whence], many);
                    sheet.put(b".");
                    let expected = [b"before", &all[..many], b"."].concat();
                    assert_eq!(sheet.written(), expected, "{many} of {whence} where {room} had room");
                    assert_eq!((sheet.len(), sheet.taken()), (expected.len(), expected));
                }
            }
        }
    }
}
