//! A piece of a run file: bytes, and behind them a checksum that ties them to their file and place.
//!
//! Walk: [`seal`] closes a piece that is about to be written at its place · [`unseal`] believes it, or not.
//! Deliberately absent: what a piece means.

use crate::run::RunId;

/// Bytes of the checksum behind a piece.
pub(crate) const SEAL_BYTES: usize = 4;

/// Where a piece stands in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its first byte.
    pub(crate) offset: u64,
    /// Its bytes, the checksum included.
    pub(crate) length: u32,
}

impl Place {
    /// Bytes of a place, as a value of an index.
    pub(crate) const BYTES: usize = 12;

    /// As it stands in an index.
    pub(crate) fn lay(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (front, back) = bytes.split_at_mut(8);
        front.copy_from_slice(&self.offset.to_le_bytes());
        back.copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// What [`Place::lay`] laid.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        rest.is_empty().then_some(Place { offset: u64::from_le_bytes(*offset), length: u32::from_le_bytes(*length) })
    }
}

/// Closes a piece for its place in a file.
pub(crate) fn seal(piece: &mut Vec<u8>, id: RunId, offset: u64) {
    let sum = sum(piece, id, offset);
    piece.extend_from_slice(&sum.to_le_bytes());
}

/// The bytes of a sealed piece; `None` if they, or their place, are not those that were sealed.
pub(crate) fn unseal(piece: &[u8], id: RunId, offset: u64) -> Option<&[u8]> {
    let (bytes, stored) = piece.split_last_chunk::<SEAL_BYTES>()?;
    (u32::from_le_bytes(*stored) == sum(bytes, id, offset)).then_some(bytes)
}

// The bytes' checksum, and then one over it and the place: a block that a disk wrote elsewhere is sound in itself.
fn sum(bytes: &[u8], id: RunId, offset: u64) -> u32 {
    let mut tied = [0; 20];
    let (front, rest) = tied.split_at_mut(4);
    let (middle, back) = rest.split_at_mut(8);
    front.copy_from_slice(&assent_frame::crc32c(bytes).to_le_bytes());
    middle.copy_from_slice(&id.0.to_le_bytes());
    back.copy_from_slice(&offset.to_le_bytes());
    assent_frame::crc32c(&tied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_believed_in_its_own_place_only() {
        let mut piece = b"some bytes".to_vec();
        seal(&mut piece, RunId(7), 4096);
        assert_eq!(unseal(&piece, RunId(7), 4096), Some(&b"some bytes"[..]));
        assert_eq!(unseal(&piece, RunId(8), 4096), None);
        assert_eq!(unseal(&piece, RunId(7), 0), None);
        for bit in 0..piece.len() * 8 {
            let mut bad = piece.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&bad, RunId(7), 4096), None, "bit {bit}");
        }
        for end in 0..piece.len() {
            assert_eq!(unseal(&piece[..end], RunId(7), 4096), None);
        }
    }

    #[test]
    fn a_place_survives_and_no_other_length_is_one() {
        let place = Place { offset: 1 << 40, length: 4100 };
        let bytes = place.lay();
        assert_eq!(Place::read(&bytes), Some(place));
        assert_eq!(Place::read(&bytes[..11]), None);
        assert_eq!(Place::read(&[0; 13]), None);
    }
}
