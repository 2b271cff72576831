//! How many run files are open: never more than the configuration says, however many runs there are.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use assent_runs::{Change, Config, Runs};
use assent_sim::SimDisk;
use assent_world::{Barrier, Disk, File, Lock, Open};

use super::{Accounts, FOLDER, close_if_full, settle, small};

/// A disk that knows which of its run files are open.
#[derive(Debug)]
struct Counted {
    disk: SimDisk,
    opened: Mutex<Vec<Weak<dyn File>>>,
}

impl Counted {
    fn open_runs(&self) -> usize {
        let mut opened = self.opened.lock().unwrap();
        opened.retain(|file| file.strong_count() > 0);
        opened.len()
    }
}

impl Disk for Counted {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, open)?;
        if path.extension().is_some_and(|extension| extension == "run") {
            self.opened.lock().unwrap().push(Arc::downgrade(&file));
        }
        Ok(file)
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

#[test]
fn however_many_runs_are_read_few_of_them_are_open() {
    let disk = Arc::new(Counted { disk: SimDisk::new(), opened: Mutex::default() });
    // No cache: every look-up reads a file.
    let config = Config { open_runs_max: 3, cache_bytes: 0, ..small() };
    let (runs, opened) = Runs::open(Arc::clone(&disk) as Arc<dyn Disk>, Path::new(FOLDER), config).unwrap();
    let accounts = Accounts::of(&opened.note);
    let key = |seq: u64| (seq % 400).to_be_bytes();
    for seq in 1..=1200 {
        runs.apply(seq, &[Change::Put { key: &key(seq), value: &seq.to_be_bytes() }]).unwrap();
        close_if_full(&runs);
        settle(&runs, &accounts);
        assert!(disk.open_runs() <= 3, "{} after a step", disk.open_runs());
    }
    assert!(runs.facts().runs > 10, "{} runs", runs.facts().runs);
    for seq in 801..=1200 {
        assert_eq!(runs.get(&key(seq)).unwrap().unwrap().value, seq.to_be_bytes());
        assert!(disk.open_runs() <= 3, "{} after a look-up", disk.open_runs());
    }
    assert_eq!(disk.open_runs(), 3);
    assert_eq!(runs.verify(&mut |error| panic!("{error}")).damaged, 0);
    assert!(disk.open_runs() <= 3, "{} after a check", disk.open_runs());
}
