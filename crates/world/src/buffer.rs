//! Memory whose address is a multiple of a device block, for writes and reads past the page cache.
//!
//! Without `unsafe`: a plain vector with one block to spare, used from its first aligned byte. It never grows, so its
//! address never changes.

use std::cell::RefCell;
use std::io;

use crate::disk::{File, read_exact_at};

/// A thread keeps so much to read into; what takes more gets memory of its own.
const KEPT_BYTES: usize = 32 << 10;

thread_local! {
    static KEPT: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(KEPT_BYTES));
}

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

/// So many bytes from a position, or as many as there are before the end of the file, past the page cache where the system can: whole blocks
/// are read, and what was wanted of them is copied.
///
/// # Errors
/// As the operating system says, of these bytes alone: that others of their blocks are not read is nothing to who did not ask for them.
pub fn read_direct(file: &dyn File, at: u64, wanted: usize) -> io::Result<Vec<u8>> {
    let ahead = usize::try_from(at % 4096).unwrap_or(0);
    let whole = ahead.saturating_add(wanted).next_multiple_of(BLOCK_BYTES);
    let read = |buffer: &mut AlignedBuffer| -> Option<Vec<u8>> {
        let blocks = buffer.as_mut_slice().get_mut(..whole)?;
        let read = file.read_direct_at(at - u64::try_from(ahead).ok()?, blocks).ok()?;
        // All that is wanted, at once; else it is read as it comes.
        (read >= ahead + wanted).then(|| blocks.get(ahead..ahead + wanted).unwrap_or_default().to_vec())
    };
    let alone = || read(&mut AlignedBuffer::zeroed(whole));
    let at_once = if whole <= KEPT_BYTES {
        // Who is asked to read while he reads, by a file that watches, has a buffer of his own.
        KEPT.with(|kept| kept.try_borrow_mut().map_or_else(|_| alone(), |mut kept| read(&mut kept)))
    } else {
        alone()
    };
    at_once.map_or_else(
        || {
            let mut memory = vec![0; wanted];
            let read = read_exact_at(file, at, &mut memory)?;
            memory.truncate(read);
            Ok(memory)
        },
        Ok,
    )
}

pub(crate) fn is_aligned(at: u64, bytes: &[u8]) -> bool {
    at.is_multiple_of(4096) && bytes.len().is_multiple_of(BLOCK_BYTES) && bytes.as_ptr().align_offset(BLOCK_BYTES) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Barrier, Disk, Durably, Open, RealDisk, write_all_at};

    /// Counts what is asked for, and refuses what it is told to.
    #[derive(Debug)]
    struct Counted {
        file: std::sync::Arc<dyn File>,
        asked: std::sync::Mutex<Vec<(u64, usize)>>,
        most: usize,
    }

    impl File for Counted {
        fn size(&self) -> io::Result<u64> {
            self.file.size()
        }
        fn is_direct(&self) -> bool {
            false
        }
        fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
            self.file.read_at(at, buffer)
        }
        fn read_direct_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(is_aligned(at, buffer), "{at}, {}", buffer.len());
            self.asked.lock().unwrap().push((at, buffer.len()));
            if buffer.len() > self.most {
                return Err(io::Error::other("an unreadable neighbour"));
            }
            self.file.read_direct_at(at, buffer)
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<usize> {
            unreachable!()
        }
        fn write_durable_at(&self, _: u64, _: &[u8], _: Durably, _: Barrier) -> io::Result<usize> {
            unreachable!()
        }
        fn preallocate_zeroed(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn set_size(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn sync_data(&self, _: Barrier) -> io::Result<()> {
            unreachable!()
        }
        fn sync_all(&self, _: Barrier) -> io::Result<()> {
            unreachable!()
        }
        fn give_back(&self) {
            unreachable!()
        }
    }

    #[test]
    fn any_piece_of_a_file_is_read_in_whole_blocks_and_what_is_not_read_so_is_read_as_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let file = RealDisk.open(&path, Open { access: Access::Create, direct: false }).unwrap();
        let bytes: Vec<u8> = (0..100_001_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        write_all_at(&*file, 0, &bytes).unwrap();
        // Its name may go while it is read.
        RealDisk.unlink(&path).unwrap();
        let counted = Counted { file, asked: std::sync::Mutex::default(), most: 40_960 };
        for (at, wanted, blocks) in [
            (0, 0, (0, 0)),
            (0, 1, (0, 4096)),
            (4095, 2, (0, 8192)),
            (4096, 8192, (4096, 8192)),
            (5000, 8272, (4096, 12_288)),
            (1, 40_000, (0, 40_960)),
            (8200, 70_000, (8192, 73_728)),
            (99_000, 1001, (98_304, 4096)),
            (99_000, 5000, (98_304, 8192)),
            (200_000, 9, (196_608, 4096)),
        ] {
            let read = read_direct(&counted, at, wanted).unwrap();
            let from = usize::try_from(at).unwrap().min(bytes.len());
            assert!(read == bytes[from..(from + wanted).min(bytes.len())], "{at}, {wanted}");
            assert_eq!(counted.asked.lock().unwrap().pop(), Some(blocks), "{at}, {wanted}");
        }
    }

    #[test]
    fn every_buffer_begins_at_a_block() {
        for bytes in [1, 4096, 4097, 1 << 20] {
            let buffer = AlignedBuffer::zeroed(bytes);
            assert!(is_aligned(8192, buffer.as_slice()));
            assert_eq!(buffer.as_slice().len(), bytes.next_multiple_of(BLOCK_BYTES));
        }
    }
}
