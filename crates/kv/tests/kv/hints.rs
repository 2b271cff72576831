//! Values that are read here and there are read from files of which the system knows that: else it reads up to as much again ahead, and
//! the disk is busy with what nobody asks for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use assent_journal::{Journal, Log};
use assent_kv::{Durability, Kv};
use assent_runs::AtOnce;
use assent_sim::{Operation, SimClock, SimDice, SimDisk, Watch, WatchedDisk};

/// Files that were said to be read at random, and those that were read.
#[derive(Debug, Default)]
struct Heard {
    said: Mutex<BTreeSet<PathBuf>>,
    read: Mutex<BTreeSet<PathBuf>>,
}

impl Watch for Heard {
    fn begins(&self, path: &Path, operation: Operation) {
        let add = |files: &Mutex<BTreeSet<PathBuf>>| _ = files.lock().unwrap().insert(path.to_owned());
        match operation {
            Operation::ExpectRandomReads => add(&self.said),
            Operation::Read => add(&self.read),
            _ => {}
        }
    }
}

impl Heard {
    /// Of what is read from now on.
    fn forget_reads(&self) {
        self.read.lock().unwrap().clear();
    }

    /// How many files of a folder were read, all of which were said to be.
    fn read(&self, folder: &str) -> usize {
        let (said, read) = (self.said.lock().unwrap(), self.read.lock().unwrap());
        let files: Vec<_> = read.iter().filter(|path| path.starts_with(folder)).collect();
        files.iter().for_each(|path| assert!(said.contains(*path), "{path:?}"));
        files.len()
    }
}

fn store(disk: &SimDisk, salt: u64) -> (Arc<Heard>, Kv) {
    let heard = Arc::new(Heard::default());
    let watched = Arc::new(WatchedDisk::new(disk.clone(), Arc::clone(&heard)));
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
    let journal = assent_journal::Config {
        log_size: 5 * 4096,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Default::default()
    };
    let (log, _) =
        Journal::open(Arc::<WatchedDisk<_, _>>::clone(&watched), clock.clone(), dice, Path::new("log"), journal)
            .unwrap();
    let log: Arc<dyn Log> = log;
    (heard, Kv::open(log, watched, clock, Path::new("kv"), super::compactions::config()).unwrap())
}

fn read_all(kv: &Kv) {
    (0..40_u8).for_each(|key| assert!(kv.get(0, &[key]).unwrap().is_some()));
}

#[test]
fn the_system_is_told_that_values_are_read_here_and_there_in_the_journal_and_in_volumes() {
    let disk = SimDisk::new();
    let (heard, kv) = store(&disk, 1);
    // Longer than what is kept beside a row.
    (0..40_u8).for_each(|key| _ = kv.put(0, &[key], &[key; 5000], Durability::Durable).unwrap());
    heard.forget_reads();
    read_all(&kv);
    assert!(heard.read("log") > 1, "by who has just written them");
    drop(kv);
    disk.kill();
    let (heard, kv) = store(&disk, 2);
    heard.forget_reads();
    read_all(&kv);
    assert!(heard.read("log") > 1, "by who has only opened them");
    for round in 0..4 {
        (0..20_u8).for_each(|key| _ = kv.put(0, &[key], &[round; 5000], Durability::Durable).unwrap());
        kv.checkpoint().unwrap();
    }
    while kv.compact_once(&AtOnce).unwrap() {}
    heard.forget_reads();
    read_all(&kv);
    assert!(heard.read("kv-values") > 0, "values have moved");
}
