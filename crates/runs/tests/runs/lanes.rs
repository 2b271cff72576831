//! A flush and a merge at the same time: neither waits for the other, neither undoes what the other did.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use assent_runs::{AtOnce, Change, Config, Go, Pace, Runs, Step};
use assent_sim::SimDisk;

use super::beside::Beside;
use super::script::{Batch, Model, Op};
use super::{Accounts, open, settle, small};

fn put(key: &str, value: &str) -> Op {
    Op::Put(key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

/// Two runs at level 0, which have to be merged.
fn two_runs() -> (SimDisk, Runs, Accounts, Vec<Batch>) {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    let log = vec![
        Batch { seq: 1, ops: vec![put("a", "v1"), put("b", "v1"), put("c", "v1"), put("d", "v1")] },
        Batch { seq: 2, ops: vec![put("b", "v2"), Op::Delete(b"c".to_vec())] },
    ];
    for batch in &log {
        batch.apply(&runs).unwrap();
        runs.rotate(batch.seq);
        assert!(matches!(runs.flush(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    }
    (disk, runs, accounts, log)
}

fn check(disk: &SimDisk, runs: &Runs, accounts: &Accounts, log: &[Batch]) {
    assert_eq!(Model::of(log).compare(&runs.view()), Ok(()));
    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
    let (again, opened, accounts) = open(disk, small()).unwrap();
    let durable = log.iter().filter(|batch| batch.seq <= opened.applied);
    assert_eq!(Model::of(durable).compare(&again.view()), Ok(()), "reopened at {}", opened.applied);
    assert_eq!(accounts.agree_with(&again.facts()), Ok(()));
}

#[test]
fn what_a_flush_brings_while_a_merge_is_under_way_stays() {
    for entries in 1..=4 {
        let (disk, runs, accounts, mut log) = two_runs();
        let behind = [
            Batch { seq: 3, ops: vec![put("a", "v3"), put("c", "v3"), Op::Delete(b"d".to_vec())] },
            Batch { seq: 5, ops: vec![Op::Erase(b"b".to_vec(), Some(b"d".to_vec()))] },
        ];
        let beside = Beside::new(&accounts, entries, || {
            for batch in &behind {
                batch.apply(&runs).unwrap();
                runs.rotate(batch.seq);
                assert!(matches!(runs.flush(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
            }
        });
        assert!(matches!(runs.merge(&beside, &AtOnce), Ok(Some(Step::Merged { .. }))));
        assert!(beside.is_done(), "a merge of fewer than {entries} entries");
        drop(beside);
        log.extend(behind);
        assert_eq!(runs.applied(), 5);
        // The merge did not know of the range: it still hides what the merge wrote again.
        assert_eq!(runs.facts().ranges, 1);
        check(&disk, &runs, &accounts, &log);
        settle(&runs, &accounts);
        check(&disk, &runs, &accounts, &log);
    }
}

#[test]
fn what_a_merge_did_while_a_flush_is_under_way_stays() {
    for entries in 1..=2 {
        let (disk, runs, accounts, mut log) = two_runs();
        let erase = Op::Erase(b"d".to_vec(), None);
        let last = Batch { seq: 3, ops: vec![put("a", "v3"), Op::Delete(b"b".to_vec()), put("c", "v3"), erase] };
        last.apply(&runs).unwrap();
        log.push(last);
        runs.rotate(3);
        let beside = Beside::new(&accounts, entries, || {
            assert!(matches!(runs.merge(&accounts, &AtOnce), Ok(Some(Step::Merged { .. }))));
            // Written and not closed: the flush must not take it along.
            runs.apply(4, &[Change::Put { key: b"e", value: b"v4" }]).unwrap();
        });
        assert!(matches!(runs.flush(&beside, &AtOnce), Ok(Some(Step::Flushed { .. }))));
        assert!(beside.is_done());
        log.push(Batch { seq: 4, ops: vec![put("e", "v4")] });
        assert_eq!(runs.applied(), 3);
        check(&disk, &runs, &accounts, &log);
        runs.rotate(4);
        settle(&runs, &accounts);
        check(&disk, &runs, &accounts, &log);
    }
}

/// A pace that waits for a word.
struct Waits {
    asked: mpsc::SyncSender<()>,
    go: AtomicBool,
}

impl Pace for Waits {
    fn wrote(&self, _: u64) -> Go {
        _ = self.asked.try_send(());
        while !self.go.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Go::On
    }
}

#[test]
fn a_merge_that_takes_its_time_keeps_no_flush_waiting() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, Config { level0_runs: 2, ..Config::default() }).unwrap();
    let value = vec![b'v'; 100 << 10];
    let write = |seq: u64| {
        (0..4_u8).for_each(|key| {
            runs.apply(seq * 8 + u64::from(key), &[Change::Put { key: &[key], value: &value }]).unwrap();
        });
        runs.rotate(runs.seq());
    };
    for seq in 1..=2 {
        write(seq);
        assert!(matches!(runs.flush(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    }
    let (asked, told) = mpsc::sync_channel(1);
    let pace = Waits { asked, go: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let merging = scope.spawn(|| runs.merge(&accounts, &pace));
        told.recv().unwrap();
        for seq in 3..=6 {
            write(seq);
            assert!(matches!(runs.flush(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
            assert_eq!((runs.applied(), runs.memory_bytes()), (runs.seq(), 0));
        }
        pace.go.store(true, Ordering::Release);
        assert!(matches!(merging.join().unwrap(), Ok(Some(Step::Merged { .. }))));
    });
    assert_eq!(runs.debt().level0_runs, 4);
    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
    settle(&runs, &accounts);
    assert_eq!(runs.facts().levels.iter().map(|level| level.entries).sum::<u64>(), 4);
}

#[test]
fn two_threads_flush_and_merge_and_a_third_writes_and_all_of_it_is_there() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    let mut rng = assent_sim::Rng::new(5);
    let log: Vec<Batch> = (1..3_000).map(|seq| Batch::roll(&mut rng, seq, 24)).collect();
    let done = AtomicBool::new(false);
    let did = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let lane = |at: usize| {
            let (runs, accounts, done, did) = (&runs, &accounts, &done, &did);
            move || {
                while !done.load(Ordering::Acquire) {
                    let step = if at == 0 { runs.flush(accounts, &AtOnce) } else { runs.merge(accounts, &AtOnce) };
                    match step.unwrap() {
                        Some(_) => _ = did[at].fetch_add(1, Ordering::Relaxed),
                        None => std::thread::yield_now(),
                    }
                }
            }
        };
        scope.spawn(lane(0));
        scope.spawn(lane(1));
        for batch in &log {
            while batch.apply(&runs).is_err() {
                std::thread::yield_now();
            }
        }
        // Nobody hurries the lanes: they have had their turns before it ends.
        runs.rotate(runs.seq());
        while did.iter().any(|did| did.load(Ordering::Relaxed) < 10) || runs.memory_bytes() > 0 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
    });
    check(&disk, &runs, &accounts, &log);
    settle(&runs, &accounts);
    check(&disk, &runs, &accounts, &log);
    let mut told = Vec::new();
    assert_eq!((runs.verify(&mut |error| told.push(error.to_string())).damaged, told), (0, Vec::new()));
}
