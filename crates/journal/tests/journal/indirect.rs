//! A file system that refuses O_DIRECT: one of several syncs behind the page cache can swallow another's write-back
//! error, so only one write may be in flight there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use assent_journal::{Config, Journal, Log};
use assent_sim::{Operation, Watch, WatchedDisk};
use assent_world::{RealClock, RealDice, RealDisk};

/// Counts durable writes under way, and says of all files whether they are direct.
#[derive(Debug)]
struct Meter {
    says_direct: bool,
    now: AtomicU32,
    most: AtomicU32,
}

impl Watch for Meter {
    fn begins(&self, _: &Path, operation: Operation) {
        if operation == Operation::WriteDurable {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
        }
    }
    fn ended(&self, _: &Path, operation: Operation) {
        if operation == Operation::WriteDurable {
            self.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
    fn is_direct(&self, _: bool) -> bool {
        self.says_direct
    }
}

/// The most durable writes that were under way at once, with eight threads that append and wait.
fn most_in_flight(is_direct: bool) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let meter = Arc::new(Meter { says_direct: is_direct, now: AtomicU32::new(0), most: AtomicU32::new(0) });
    let disk = Arc::new(WatchedDisk::new(RealDisk, Arc::clone(&meter)));
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
