//! What a commit takes of the kernel beyond a bare durable write of a block: writes, reads, sleeps, page faults, and whom it wakes.
//!
//! A process of its own commits and writes bare blocks in turn, on one thread, beside readers that never sleep; this test itself, started again
//! with the folder in its environment. Deliberately absent: time and instructions. What both cost the readers is of the disk, its interrupts and the machine.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use assent_docs::{Config, Database, Document, Look as _, Meta, NodeKey, Value, Versioning};
use assent_journal::{Journal, Keeper};
use assent_world::{
    Access, AlignedBuffer, BLOCK_BYTES, Barrier, Clock as _, Disk as _, Durably, File, Open, RealClock, RealDice,
    RealDisk, wake_soon, write_all_durable_at,
};

use super::tree::push;

const FOLDER: &str = "ASSENT_DOCS_BESIDE";
const SLICES: u64 = 8;
const WRITES: u64 = 50;
const READERS: usize = 2;
const BARE: Barrier = Barrier::new("docs: a test's bare write");

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    reads: u64,
    writes: u64,
    sleeps: u64,
    faults: u64,
}

impl Taken {
    fn of(thread: &Path) -> Self {
        let said = |name: &str| fs::read_to_string(thread.join(name)).unwrap();
        let (io, status, stat) = (said("io"), said("status"), said("stat"));
        let number = |text: &str, name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse::<u64>().unwrap()
        };
        let (_, behind_name) = stat.rsplit_once(')').unwrap();
        Self {
            reads: number(&io, "syscr:"),
            writes: number(&io, "syscw:"),
            sleeps: number(&status, "voluntary_ctxt_switches:"),
            faults: behind_name.split_whitespace().nth(7).unwrap().parse().unwrap(),
        }
    }

    fn with(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: with(self.reads, other.reads),
            writes: with(self.writes, other.writes),
            sleeps: with(self.sleeps, other.sleeps),
            faults: with(self.faults, other.faults),
        }
    }

    /// What some work takes, without what it takes to ask.
    fn by(work: impl FnOnce()) -> Self {
        let own = Path::new("/proc/thread-self");
        let before = [(); 2].map(|()| Self::of(own));
        work();
        let [first, second] = before;
        Self::of(own).with(second, u64::wrapping_sub).with(second.with(first, u64::wrapping_sub), u64::saturating_sub)
    }
}

/// How often the other threads of this process have gone to sleep.
fn sleeps_of_others() -> u64 {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let all = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    let others = all.filter(|thread| thread.file_name() != own.file_name());
    others.map(|thread| Taken::of(&thread).sleeps).sum()
}

fn set(doc: &Document, key: NodeKey, number: u64) {
    let mut edit = doc.edit().unwrap();
    edit.set(key, Value::Number(&number.to_string())).unwrap();
    edit.commit(&Meta::default()).unwrap();
}

/// A file that is written block by block, each at once durable.
fn bare(folder: &Path) -> (Arc<dyn File>, AlignedBuffer) {
    let file = RealDisk.open(&folder.join("bare"), Open { access: Access::Create, direct: true }).unwrap();
    file.preallocate_zeroed((SLICES + 1) * WRITES * BLOCK_BYTES as u64).unwrap();
    file.sync_all(BARE).unwrap();
    (file, AlignedBuffer::zeroed(BLOCK_BYTES))
}

/// The process that counts. As a test of its own it does nothing.
#[test]
fn the_process_that_counts() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (folder, disk, clock) = (Path::new(&folder), Arc::new(RealDisk), Arc::new(RealClock));
    let kept = assent_journal::Config { kept_until_released: true, log_size: 4 << 20, ..Default::default() };
    let opened = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), kept);
    let (log, _) = opened.unwrap();
    let _keeper = Keeper::start(log.clone(), clock.clone());
    let db = Database::open(log, disk, clock, &folder.join("index"), Config::default()).unwrap();
    let doc = db.create("tiny", Versioning::default()).unwrap();
    let mut edit = doc.edit().unwrap();
    let root = push(&mut edit, NodeKey::DOCUMENT, None, Value::Object);
    let count = push(&mut edit, root, Some("count"), Value::Number("10000"));
    edit.commit(&Meta::default()).unwrap();
    let (file, block) = bare(folder);
    let is_over = AtomicBool::new(false);
    let (mut commits, mut blocks, mut others, mut spent) = (Taken::default(), Taken::default(), 0, Duration::ZERO);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for revision in 1..=doc.latest().number() {
                        assert!(doc.at(revision).unwrap().item(count).unwrap().text().starts_with('1'));
                    }
                }
            });
        }
        let writer = scope.spawn(|| {
            wake_soon();
            // The first slice is not counted: what comes up only once comes up there.
            for slice in 0..=SLICES {
                let (before, begun) = (sleeps_of_others(), RealClock.now());
                // In turn, so that a disk that is busy with others for a while is busy for both.
                for number in slice * WRITES..(slice + 1) * WRITES {
                    let commit = Taken::by(|| set(&doc, count, 10_000 + number));
                    let write = Taken::by(|| {
                        let at = number * BLOCK_BYTES as u64;
                        write_all_durable_at(&*file, at, block.as_slice(), Durably::DataSync, BARE).unwrap();
                    });
                    if slice > 0 {
                        commits = commits.with(commit, u64::wrapping_add);
                        blocks = blocks.with(write, u64::wrapping_add);
                    }
                }
                if slice > 0 {
                    others += sleeps_of_others() - before;
                    spent += RealClock.now().since(begun);
                }
            }
        });
        let done = writer.join();
        is_over.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    let ms = u64::try_from(spent.as_millis()).unwrap();
    println!(
        "{} commits {commits:?}, bare {blocks:?}, other threads slept {others} times in {ms} ms of both",
        SLICES * WRITES
    );
    let all = SLICES * WRITES;
    assert_eq!((commits.writes, blocks.writes), (all, all), "one write each");
    // One of 5,200 commits did on a loaded machine; each third or fourth where pages that found no place are not kept aside.
    assert!(commits.reads <= all / 40, "a commit hardly ever reads what the one before has written");
    assert!(commits.sleeps <= blocks.sleeps + all / 2, "a commit sleeps for the disk, and for nobody else");
    assert!(commits.faults <= all / 2, "what a commit leaves in memory is less than a kilobyte");
    // The keeper looks ten times a second by itself: twice that, and four in each slice of fifty commits.
    assert!(others <= ms / 50 + 4 * SLICES, "nobody is woken by a commit, and no reader waits for one");
}

#[test]
fn a_commit_writes_reads_and_sleeps_as_a_bare_durable_write_does_and_wakes_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "beside::the_process_that_counts", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    println!("{said}");
    assert!(child.status.success() && said.contains("commits Taken"), "{}", String::from_utf8_lossy(&child.stderr));
}
