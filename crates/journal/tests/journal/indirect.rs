//! A file system that refuses O_DIRECT: one of several syncs behind the page cache can swallow another's write-back
//! error, so only one write may be in flight there.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use assent_journal::{Config, Journal, Log};
use assent_world::{Barrier, Disk, Durably, File, Lock, Open, RealClock, RealDice, RealDisk};

#[derive(Debug, Default)]
struct Meter {
    now: AtomicU32,
    most: AtomicU32,
}

/// The real disk, which says of its files whether they are direct, and counts durable writes under way.
#[derive(Debug)]
struct Says(bool, Arc<Meter>);

#[derive(Debug)]
struct Counted(Arc<dyn File>, bool, Arc<Meter>);

impl Disk for Says {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Counted(RealDisk.open(path, open)?, self.0, Arc::clone(&self.1))))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(folder)
    }
    fn sync_dir(&self, folder: &Path, barrier: Barrier) -> io::Result<()> {
        RealDisk.sync_dir(folder, barrier)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        RealDisk.lock(path)
    }
}

impl File for Counted {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn is_direct(&self) -> bool {
        self.1
    }
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(at, buffer)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(at, bytes)
    }
    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        let now = self.2.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.2.most.fetch_max(now, Ordering::SeqCst);
        let written = self.0.write_durable_at(at, bytes, how, barrier);
        self.2.now.fetch_sub(1, Ordering::SeqCst);
        written
    }
    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.0.preallocate_zeroed(bytes)
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.0.set_size(bytes)
    }
    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.0.sync_data(barrier)
    }
    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.0.sync_all(barrier)
    }
}

/// The most durable writes that were under way at once, with eight threads that append and wait.
fn most_in_flight(is_direct: bool) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let meter = Arc::new(Meter::default());
    let disk = Arc::new(Says(is_direct, Arc::clone(&meter)));
    let config = Config { log_size: 1 << 20, ..Config::default() };
    let (journal, _) = Journal::open(disk, Arc::new(RealClock), Arc::new(RealDice), folder.path(), config).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let ticket = journal.append(1, &[b"an entry"]).unwrap();
                    journal.wait(ticket).unwrap();
                }
            });
        }
    });
    meter.most.load(Ordering::SeqCst)
}

#[test]
fn where_direct_writes_are_refused_one_write_is_in_flight() {
    assert_eq!(most_in_flight(false), 1);
    assert_eq!(most_in_flight(true), 2, "the count sees two where two are allowed");
}
