//! A disk that takes so many turns a second, one after the other, as one with a single head does.
//!
//! A durable write, a sync and every whole MiB written in between take a turn each; who writes or syncs waits for its turn. Reads take none: they
//! are the page cache's, and the race cannot know which of them is not.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use assent_world::{Barrier, Clock, Disk, DiskRoom, Durably, File, Lock, Moment, Open};

/// Bytes that a turn writes on its way.
const TURN_BYTES: u64 = 1 << 20;

/// Another disk, slower.
pub struct SlowDisk {
    disk: Arc<dyn Disk>,
    turns: Arc<Turns>,
}

struct Turns {
    clock: Arc<dyn Clock>,
    each: Duration,
    /// When the last turn that is taken ends.
    end: Mutex<Moment>,
    /// Bytes written since the last whole turn of them.
    bytes: AtomicU64,
}

struct SlowFile {
    file: Arc<dyn File>,
    turns: Arc<Turns>,
}

impl SlowDisk {
    /// `disk` with so many turns a second.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, per_s: f64) -> Self {
        let each = Duration::from_secs_f64(1.0 / per_s.max(1e-3));
        Self { disk, turns: Arc::new(Turns { clock, each, end: Mutex::default(), bytes: AtomicU64::new(0) }) }
    }
}

impl Turns {
    /// Waits until `count` turns are over.
    fn take(&self, count: u64) {
        let now = self.clock.now();
        let end = {
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            let turns = u32::try_from(count).unwrap_or(u32::MAX);
            *end = (*end).max(now).after(self.each.saturating_mul(turns));
            *end
        };
        self.clock.sleep(end.since(now));
    }

    /// Accounts bytes that went to the page cache.
    fn written(&self, bytes: usize) {
        let bytes = super::length(bytes);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match (before + bytes) / TURN_BYTES - before / TURN_BYTES {
            0 => {}
            turns => self.take(turns),
        }
    }
}

impl Disk for SlowDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile { file: self.disk.open(path, open)?, turns: Arc::clone(&self.turns) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn has_other_names(&self, path: &Path) -> io::Result<bool> {
        self.disk.has_other_names(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn sync_dir(&self, folder: &Path, barrier: Barrier) -> io::Result<()> {
        self.turns.take(1);
        self.disk.sync_dir(folder, barrier)
    }

    fn room(&self, folder: &Path) -> io::Result<Option<DiskRoom>> {
        self.disk.room(folder)
    }

    fn files_max(&self) -> u32 {
        self.disk.files_max()
    }

    fn expect_files(&self, many: u32) {
        self.disk.expect_files(many);
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}

impl File for SlowFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(at, buffer)
    }

    fn read_direct_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_direct_at(at, buffer)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.turns.written(bytes.len());
        self.file.write_at(at, bytes)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        self.turns.take(super::length(bytes.len()).div_ceil(TURN_BYTES).max(1));
        self.file.write_durable_at(at, bytes, how, barrier)
    }

    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.turns.take(bytes.div_ceil(TURN_BYTES));
        self.file.preallocate_zeroed(bytes)
    }

    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.turns.take(1);
        self.file.reserve_zeroed(bytes)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes)
    }

    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.turns.take(1);
        self.file.sync_data(barrier)
    }

    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.turns.take(1);
        self.file.sync_all(barrier)
    }

    fn expect_random_reads(&self) {
        self.file.expect_random_reads();
    }

    fn will_read(&self, at: u64, bytes: u64) {
        self.file.will_read(at, bytes);
    }
    fn begin_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.file.begin_write_back(at, bytes)
    }

    fn await_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.file.await_write_back(at, bytes)
    }

    fn give_back(&self) {
        self.file.give_back();
    }
}

impl fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowDisk({:?} a turn)", self.turns.each)
    }
}

impl fmt::Debug for SlowFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowFile({:?})", self.file)
    }
}

#[cfg(test)]
mod tests {
    use assent_world::{Access, RealDisk, write_all_at, write_all_durable_at};

    use super::*;

    const TEST: Barrier = Barrier::new("bench: a test of the slow disk");

    /// A clock that sleeps by moving its hands.
    #[derive(Debug, Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Moment {
            Moment(self.0.load(Ordering::Relaxed))
        }

        fn wall_ms(&self) -> u64 {
            0
        }

        fn sleep(&self, pause: Duration) {
            self.0.fetch_add(u64::try_from(pause.as_micros()).unwrap(), Ordering::Relaxed);
        }

        fn boot_id(&self) -> u128 {
            0
        }
    }

    #[test]
    fn syncs_and_every_written_mib_take_a_turn_and_reads_none() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hands::default());
        let disk = SlowDisk::new(Arc::new(RealDisk), clock.clone(), 100.0);
        let file = disk.open(&folder.path().join("file"), Open { access: Access::Create, direct: false }).unwrap();
        let turns = |work: &dyn Fn()| {
            let before = clock.now();
            work();
            clock.now().since(before).as_millis() / 10
        };
        let block = vec![1; 1 << 19];
        assert_eq!(turns(&|| write_all_at(&*file, 0, &block).unwrap()), 0, "half a MiB");
        assert_eq!(turns(&|| write_all_at(&*file, 1 << 19, &block).unwrap()), 1, "the other half");
        assert_eq!(turns(&|| file.sync_data(TEST).unwrap()), 1);
        assert_eq!(turns(&|| _ = file.read_at(0, &mut [0; 9]).unwrap()), 0);
        let durable = || write_all_durable_at(&*file, 0, &block, Durably::DataSync, TEST).unwrap();
        assert_eq!(turns(&durable), 1);
        assert_eq!(turns(&|| file.preallocate_zeroed(3 << 20).unwrap()), 3);
    }
}
