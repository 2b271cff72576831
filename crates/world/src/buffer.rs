//! Memory whose address is a multiple of a device block, for writes past the page cache.
//!
//! Without `unsafe`: a plain vector with one block to spare, used from its first aligned byte. It never grows, so its
//! address never changes.

/// The block of every device and file system that Assent knows of, and its alignment.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes that begin at a block boundary.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    first: usize,
    bytes: usize,
}

impl AlignedBuffer {
    /// That many zeroes, rounded up to whole blocks.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let memory = vec![0_u8; bytes + BLOCK_BYTES];
        let first = memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        Self { memory, first, bytes }
    }

    /// All of it.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.memory.get(self.first..self.first + self.bytes).unwrap_or_default()
    }

    /// All of it, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.first..self.first + self.bytes).unwrap_or_default()
    }
}

pub(crate) fn is_aligned(at: u64, bytes: &[u8]) -> bool {
    at.is_multiple_of(4096) && bytes.len().is_multiple_of(BLOCK_BYTES) && bytes.as_ptr().align_offset(BLOCK_BYTES) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_begins_at_a_block() {
        for bytes in [1, 4096, 4097, 1 << 20] {
            let buffer = AlignedBuffer::zeroed(bytes);
            assert!(is_aligned(8192, buffer.as_slice()));
            assert_eq!(buffer.as_slice().len(), bytes.next_multiple_of(BLOCK_BYTES));
        }
    }
}
