//! Any disk with somebody beside it who hears of its files' calls: who counts them, or holds them up.
//!
//! Walk: [`WatchedDisk`] opens files that say to their [`Watch`] what begins and what has ended; the disk behind it does all else.
//! Deliberately absent: faults. [`SimDisk`](crate::SimDisk) has those.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_world::{Barrier, Disk, DiskRoom, Durably, File, Lock, Open};

use crate::fault::Operation;

/// Who hears of the calls of files, on the thread that makes them.
pub trait Watch: Send + Sync + Debug {
    /// A call of the file that was opened under this path is about to be made: not before this returns.
    fn begins(&self, path: &Path, operation: Operation);

    /// It has ended, well or not.
    fn ended(&self, path: &Path, operation: Operation) {
        _ = (path, operation);
    }

    /// What a file is to say of itself, which is this.
    fn is_direct(&self, is_direct: bool) -> bool {
        is_direct
    }
}

/// A disk whose files' calls somebody hears of.
#[derive(Debug)]
pub struct WatchedDisk<D, W> {
    disk: D,
    watch: Arc<W>,
}

#[derive(Debug)]
struct WatchedFile<W> {
    file: Arc<dyn File>,
    path: PathBuf,
    watch: Arc<W>,
}

impl<D: Disk, W: Watch> WatchedDisk<D, W> {
    /// This disk, and who hears.
    pub const fn new(disk: D, watch: Arc<W>) -> Self {
        Self { disk, watch }
    }
}

impl<D: Disk, W: Watch + 'static> Disk for WatchedDisk<D, W> {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, open)?;
        Ok(Arc::new(WatchedFile { file, path: path.to_owned(), watch: Arc::clone(&self.watch) }))
    }
    fn room(&self, folder: &Path) -> io::Result<Option<DiskRoom>> {
        self.disk.room(folder)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn has_other_names(&self, path: &Path) -> io::Result<bool> {
        self.disk.has_other_names(path)
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

impl<W: Watch> WatchedFile<W> {
    fn call<T>(&self, operation: Operation, call: impl FnOnce(&dyn File) -> io::Result<T>) -> io::Result<T> {
        self.watch.begins(&self.path, operation);
        let answer = call(&*self.file);
        self.watch.ended(&self.path, operation);
        answer
    }
}

impl<W: Watch> File for WatchedFile<W> {
    fn size(&self) -> io::Result<u64> {
        self.call(Operation::Size, |file| file.size())
    }
    fn is_direct(&self) -> bool {
        self.watch.is_direct(self.file.is_direct())
    }
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(Operation::Read, |file| file.read_at(at, buffer))
    }
    fn read_direct_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(Operation::Read, |file| file.read_direct_at(at, buffer))
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.call(Operation::Write, |file| file.write_at(at, bytes))
    }
    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        self.call(Operation::WriteDurable, |file| file.write_durable_at(at, bytes, how, barrier))
    }
    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.call(Operation::Preallocate, |file| file.preallocate_zeroed(bytes))
    }
    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.call(Operation::Preallocate, |file| file.reserve_zeroed(bytes))
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.call(Operation::SetSize, |file| file.set_size(bytes))
    }
    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.call(Operation::SyncData, |file| file.sync_data(barrier))
    }
    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.call(Operation::SyncAll, |file| file.sync_all(barrier))
    }
    fn expect_random_reads(&self) {
        self.watch.begins(&self.path, Operation::ExpectRandomReads);
        self.file.expect_random_reads();
        self.watch.ended(&self.path, Operation::ExpectRandomReads);
    }
    fn will_read(&self, at: u64, bytes: u64) {
        self.file.will_read(at, bytes);
    }
    fn begin_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.file.begin_write_back(at, bytes)
    }
    fn await_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.call(Operation::WriteBack, |file| file.await_write_back(at, bytes))
    }
    fn give_back(&self) {
        self.file.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use assent_world::{Access, write_all_at};

    use super::*;
    use crate::SimDisk;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<(Operation, bool)>>);

    impl Watch for Heard {
        fn begins(&self, path: &Path, operation: Operation) {
            assert_eq!(path, Path::new("file"));
            self.0.lock().unwrap().push((operation, false));
        }
        fn ended(&self, _: &Path, operation: Operation) {
            self.0.lock().unwrap().push((operation, true));
        }
        fn is_direct(&self, is_direct: bool) -> bool {
            !is_direct
        }
    }

    #[test]
    fn who_watches_hears_what_begins_and_what_has_ended_and_the_disk_does_it() {
        let (disk, heard) = (SimDisk::new(), Arc::new(Heard::default()));
        let watched = WatchedDisk::new(disk.clone(), Arc::clone(&heard));
        let file = watched.open(Path::new("file"), Open { access: Access::Create, direct: false }).unwrap();
        assert!(!file.is_direct());
        write_all_at(&*file, 3, b"bytes").unwrap();
        assert_eq!(file.size().unwrap(), 8);
        let expected = [Operation::Write, Operation::Size].map(|one| [(one, false), (one, true)]);
        assert_eq!(*heard.0.lock().unwrap(), expected.concat());
        let mut read = [0; 5];
        let there = disk.open(Path::new("file"), Open { access: Access::Read, direct: false }).unwrap();
        there.read_at(3, &mut read).unwrap();
        assert_eq!(&read, b"bytes");
    }
}
