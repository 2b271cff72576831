//! How many bytes wait for a sync: never more than a little, however long a run is, so that nobody's commit stands behind them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use assent_runs::{AtOnce, Change, Config, Runs, Step};
use assent_sim::SimDisk;
use assent_world::{Barrier, Disk, Durably, File, Lock, Open};

use super::{Accounts, FOLDER};

/// A disk that counts what was written to a file since its last sync.
#[derive(Debug)]
struct Counted {
    disk: SimDisk,
    /// The most of any file, and the syncs of files.
    most: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    unsynced: Mutex<u64>,
    most: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
}

impl CountedFile {
    fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        *self.unsynced.lock().unwrap() = 0;
    }
}

impl File for CountedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(at, buffer)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(at, bytes)?;
        if self.path.extension().is_some_and(|extension| extension == "run") {
            let mut unsynced = self.unsynced.lock().unwrap();
            *unsynced += written as u64;
            self.most.fetch_max(*unsynced, Ordering::Relaxed);
        }
        Ok(written)
    }
    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        self.file.write_durable_at(at, bytes, how, barrier)
    }
    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.file.preallocate_zeroed(bytes)
    }
    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_size(bytes)
    }
    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.synced();
        self.file.sync_data(barrier)
    }
    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.synced();
        self.file.sync_all(barrier)
    }
}

impl Disk for Counted {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, open)?;
        let (most, syncs) = (Arc::clone(&self.most), Arc::clone(&self.syncs));
        Ok(Arc::new(CountedFile { file, path: path.to_owned(), unsynced: Mutex::default(), most, syncs }))
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

/// Syncs of a flush beside a log that nobody waits for took longer than all else it does: writers waited for the memory that it frees.
#[test]
fn a_flush_is_synced_once_where_nobody_waits_for_a_sync_and_a_merge_is_not() {
    let (most, syncs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let disk = Counted { disk: SimDisk::new(), most: Arc::clone(&most), syncs: Arc::clone(&syncs) };
    let config = Config { level0_runs: 2, run_bytes: 16 << 20, ..Config::default() };
    let (runs, opened) = Runs::open(Arc::new(disk), Path::new(FOLDER), config).unwrap();
    let accounts = Accounts::of(&opened.note);
    accounts.is_lazy.store(true, Ordering::SeqCst);
    let synced = |step: Option<Step>, before: u64| (step, syncs.load(Ordering::Relaxed) - before);
    for seq in 1..=2 {
        let keys: Vec<_> = (0..32_000_u32).map(u32::to_be_bytes).collect();
        runs.apply(seq, &keys.iter().map(|key| Change::Put { key, value: &[7; 100] }).collect::<Vec<_>>()).unwrap();
        runs.rotate(seq);
        let before = syncs.load(Ordering::Relaxed);
        let (step, syncs) = synced(runs.flush(&accounts, &AtOnce).unwrap(), before);
        assert!(matches!(step, Some(Step::Flushed { bytes }) if bytes > 3 << 20), "{step:?}");
        assert_eq!(syncs, 2, "the run's, and the manifest's");
    }
    let before = syncs.load(Ordering::Relaxed);
    let (step, syncs) = synced(runs.merge(&accounts, &AtOnce).unwrap(), before);
    assert!(matches!(step, Some(Step::Merged { .. })) && syncs > 4, "{step:?}, {syncs}");
}

#[test]
fn a_long_flush_and_a_long_merge_are_synced_a_little_at_a_time() {
    let (most, syncs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let disk = Counted { disk: SimDisk::new(), most: Arc::clone(&most), syncs: Arc::clone(&syncs) };
    let config = Config { level0_runs: 2, run_bytes: 16 << 20, ..Config::default() };
    let (runs, opened) = Runs::open(Arc::new(disk), Path::new(FOLDER), config).unwrap();
    let accounts = Accounts::of(&opened.note);
    for seq in 1..=2 {
        let keys: Vec<_> = (0..64_000_u32).map(u32::to_be_bytes).collect();
        runs.apply(seq, &keys.iter().map(|key| Change::Put { key, value: &[7; 100] }).collect::<Vec<_>>()).unwrap();
        runs.rotate(seq);
        let before = syncs.load(Ordering::Relaxed);
        let step = runs.flush(&accounts, &AtOnce).unwrap();
        assert!(matches!(step, Some(Step::Flushed { bytes }) if bytes > 6 << 20), "{step:?}");
        // One for each MiB, the last one, and the manifest's.
        let syncs = syncs.load(Ordering::Relaxed) - before;
        assert!((7..=10).contains(&syncs), "{syncs}");
    }
    let step = runs.merge(&accounts, &AtOnce).unwrap();
    assert!(matches!(step, Some(Step::Merged { written_bytes, .. }) if written_bytes > 6 << 20), "{step:?}");
    let most = most.load(Ordering::Relaxed);
    assert!(most <= (1 << 20) + (256 << 10), "{most} bytes waited for a sync");
}
