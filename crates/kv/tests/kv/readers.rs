//! Readers, where they are many more than the processors: all of them are answered, in time and rightly, whatever else is going on.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use assent_journal::{Journal, Log};
use assent_kv::{Config, Durability, Fold, Kv, Op, Row, What};
use assent_world::{RealClock, RealDice, RealDisk};

const KEYS: u64 = 200;

/// Many for each processor.
fn readers() -> u64 {
    thread::available_parallelism().map_or(48, |processors| (8 * processors.get() as u64).max(48))
}

/// Whoever ends in a panic ends all.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn open(folder: &Path, readers_per_processor: u32) -> Kv {
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
    let (log, _) =
        Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &folder.join("log"), Default::default())
            .unwrap();
    let log: Arc<dyn Log> = log;
    Kv::open(log, disk, clock, &folder.join("kv"), Config { readers_per_processor, ..Config::default() }).unwrap()
}

fn value(key: u64, version: u64) -> Vec<u8> {
    // Some are longer than what keeps a place.
    let bytes = if key.is_multiple_of(50) { 300 << 10 } else { 500 };
    [key, version].into_iter().flat_map(u64::to_le_bytes).cycle().take(bytes).collect()
}

/// Which version it is; all of it is of that one.
fn version(key: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == value(key, version), "{key}, version {version}");
    version
}

/// One look, each of another kind; the versions that it saw.
fn look(kv: &Kv, number: u64) -> Vec<(u64, u64)> {
    let key = number % KEYS;
    let name = key.to_be_bytes();
    let of = |key: &[u8], value: &[u8]| {
        let key = u64::from_be_bytes(key.try_into().unwrap());
        (key, version(key, value))
    };
    let from = Bound::Included(&name[..]);
    match number % 7 {
        0 => vec![of(&name, &kv.get(0, &name).unwrap().unwrap())],
        1 => vec![of(&name, &kv.entry(0, &name).unwrap().unwrap().value)],
        2 => {
            let head = kv.head(0, &name).unwrap().unwrap();
            assert_eq!(usize::try_from(head.value_bytes).unwrap(), value(key, 0).len());
            vec![]
        }
        3 => kv.scan(0, from, Bound::Unbounded, 20).unwrap().iter().map(|(key, value)| of(key, value)).collect(),
        4 => {
            let many = kv.get_many(&[(0, &name), (0, &7_u64.to_be_bytes())]).unwrap();
            [key, 7].iter().zip(many).map(|(key, found)| (*key, version(*key, &found.unwrap().value))).collect()
        }
        5 => {
            let snapshot = kv.snapshot();
            assert!(!snapshot.heads(0, from, Bound::Unbounded, 20).unwrap().is_empty());
            vec![of(&name, &snapshot.get(0, &name).unwrap().unwrap())]
        }
        _ => {
            let mut seen = Vec::new();
            let lease = kv.lease(Duration::from_secs(60));
            let fold = Fold { from, ..Fold::new(What::Objects, 0) };
            let mut each = |row: Row<'_>| {
                if let Row::Object(key, found) = row {
                    seen.push(of(key, &found.value));
                    // A callback may read, too.
                    kv.head(0, key).unwrap().unwrap();
                }
                if seen.len() < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            _ = lease.fold(&fold, &mut each).unwrap();
            seen
        }
    }
}

#[test]
fn many_more_readers_than_processors_stand_in_line_and_each_sees_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let kv = open(folder.path(), 1);
    let put = |version| {
        let values: Vec<([u8; 8], Vec<u8>)> = (0..KEYS).map(|key| (key.to_be_bytes(), value(key, version))).collect();
        let ops: Vec<Op<'_>> = values.iter().map(|(key, value)| Op::put(0, key, value)).collect();
        kv.batch(&ops, Durability::Buffered).unwrap();
    };
    put(1);
    let (written, done, looks) = (AtomicU64::new(1), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&done);
        for reader in 0..readers() {
            let (kv, written, done, looks) = (&kv, &written, &done, &looks);
            scope.spawn(move || {
                let _ends = Ends(done);
                for number in (reader..).step_by(11) {
                    let before = written.load(Ordering::Acquire);
                    for (key, version) in look(kv, number) {
                        assert!(version >= before, "{key}: {version}, though {before} was written before");
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        // Until they have stood in line, and each version was looked at.
        for version in 2..300 {
            put(version);
            written.store(version, Ordering::Release);
            let seen = looks.load(Ordering::Relaxed);
            while looks.load(Ordering::Relaxed) < seen + readers() && !done.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            if version > 20 && kv.stats().readers_stood > 1_000 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(kv.stats().readers_stood > 0);
}

#[test]
fn where_all_may_read_at_once_nobody_stands_in_line() {
    let folder = tempfile::tempdir().unwrap();
    let kv = open(folder.path(), 0);
    kv.put(0, b"k", b"v", Durability::Buffered).unwrap();
    thread::scope(|scope| {
        for _ in 0..readers() {
            scope.spawn(|| (0..500).for_each(|_| assert_eq!(kv.get(0, b"k").unwrap().unwrap(), b"v")));
        }
    });
    assert_eq!(kv.stats().readers_stood, 0);
    let beyond = Config { readers_per_processor: 1025, ..Config::default() };
    assert!(beyond.check().unwrap_err().to_string().contains("readers_per_processor"));
}
