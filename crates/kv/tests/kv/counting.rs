//! A disk whose reads are counted, by what is read: pieces no longer than a few blocks, as look-ups read them, and longer ones.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assent_sim::SimDisk;
use assent_world::{Barrier, Disk, Durably, File, Lock, Open};

/// What is longer is read ahead, by merges.
const PIECE_BYTES: usize = 12 << 10;

/// Counts of reads of one folder.
#[derive(Debug, Default)]
pub struct Reads {
    pieces: AtomicU64,
    piece_bytes: AtomicU64,
    long_bytes: AtomicU64,
    direct: AtomicU64,
}

impl Reads {
    /// Pieces, their bytes, and those of longer ones.
    pub fn counts(&self) -> [u64; 3] {
        [&self.pieces, &self.piece_bytes, &self.long_bytes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Those of either that were asked for past the system's cache.
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        if bytes > PIECE_BYTES {
            self.long_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        } else {
            self.pieces.fetch_add(1, Ordering::Relaxed);
            self.piece_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

/// The disk, and the folder whose reads are counted.
#[derive(Clone, Debug)]
pub struct Counting {
    pub disk: SimDisk,
    pub folder: &'static str,
    pub reads: Arc<Reads>,
}

#[derive(Debug)]
struct Counted {
    file: Arc<dyn File>,
    direct: bool,
    reads: Arc<Reads>,
}

impl Disk for Counting {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, open)?;
        let is_counted = path.parent() == Some(Path::new(self.folder));
        Ok(if is_counted {
            Arc::new(Counted { file, direct: open.direct, reads: Arc::clone(&self.reads) })
        } else {
            file
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn sync_dir(&self, folder: &Path, barrier: Barrier) -> io::Result<()> {
        self.disk.sync_dir(folder, barrier)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}

impl File for Counted {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn is_direct(&self) -> bool {
        self.direct && self.file.is_direct()
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads.add(buffer.len());
        self.file.read_at(at, buffer)
    }

    fn read_direct_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads.direct.fetch_add(1, Ordering::Relaxed);
        self.read_at(at, buffer)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(at, bytes)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        self.file.write_durable_at(at, bytes, how, barrier)
    }

    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.file.preallocate_zeroed(bytes)
    }

    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve_zeroed(bytes)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes)
    }

    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.file.sync_data(barrier)
    }

    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.file.sync_all(barrier)
    }

    fn expect_random_reads(&self) {
        self.file.expect_random_reads();
    }

    fn give_back(&self) {
        self.file.give_back();
    }
}
