//! A disk that syncs a file when it is shut and not before: a history is filled in seconds that durable commits would take minutes for. The bytes
//! are the same; only what is measured afterwards is measured on the disk itself.
//!
//! Walk: [`Unsynced`] opens the machine's files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_world::{Barrier, Disk, Durably, File, Lock, Open, RealDisk};

const SHUT: Barrier = Barrier::new("bench: a filled file when it is shut");

#[derive(Debug)]
pub(super) struct Unsynced;

#[derive(Debug)]
struct Filled(Arc<dyn File>);

impl Drop for Filled {
    fn drop(&mut self) {
        // What comes next must not wait for what was filled. A file that was only read has nothing to write.
        _ = self.0.sync_data(SHUT);
    }
}

impl Disk for Unsynced {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }

    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Filled(RealDisk.open(path, Open { direct: false, ..open })?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }

    fn has_other_names(&self, path: &Path) -> io::Result<bool> {
        RealDisk.has_other_names(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(folder)
    }

    fn sync_dir(&self, _: &Path, _: Barrier) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        RealDisk.lock(path)
    }
}

impl File for Filled {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(at, buffer)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(at, bytes)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8], _: Durably, _: Barrier) -> io::Result<usize> {
        self.0.write_at(at, bytes)
    }

    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.0.preallocate_zeroed(bytes)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }

    fn sync_data(&self, _: Barrier) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self, _: Barrier) -> io::Result<()> {
        Ok(())
    }
}
