//! A flush and a merge at the same time: neither waits for the other, neither undoes what the other did.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use assent_runs::{AtOnce, Change, Config, Go, Pace, Runs, RunsError, Step};
use assent_sim::{Call, Fault, Operation, SimDisk};
use assent_world::{Access, Clock, Disk, Open, RealClock, read_exact_at};

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
        // Nothing else in the range: only what the merge wrote keeps the range from being forgotten.
        let behind = [
            Batch { seq: 3, ops: vec![put("a", "v3")] },
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
        assert!(runs.view().get(b"b").unwrap().is_none());
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

/// Says so when it is dropped: also where an assertion fails, so that nobody waits for ever.
struct AtLast<'a>(&'a AtomicBool);

impl Drop for AtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
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
        let go = AtLast(&pace.go);
        told.recv().unwrap();
        for seq in 3..=6 {
            write(seq);
            let flushed = std::thread::scope(|scope| {
                let flushing = scope.spawn(|| runs.flush(&accounts, &AtOnce));
                for _ in 0..60_000 {
                    if flushing.is_finished() {
                        break;
                    }
                    RealClock.sleep(std::time::Duration::from_millis(1));
                }
                // One that waits for the merge would wait for ever.
                assert!(
                    flushing.is_finished() || {
                        pace.go.store(true, Ordering::Release);
                        false
                    },
                    "it waits for the merge"
                );
                flushing.join().unwrap()
            });
            assert!(matches!(flushed, Ok(Some(Step::Flushed { .. }))));
            // Nor does the merge keep what has been written out meanwhile.
            assert_eq!((runs.applied(), runs.memory_bytes(), runs.pinned_bytes()), (runs.seq(), 0, 0));
        }
        drop(go);
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
    let mut log: Vec<Batch> = Vec::new();
    let done = AtomicBool::new(false);
    let did = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let lane = |at: usize| {
            let (runs, accounts, done, did) = (&runs, &accounts, &done, &did);
            move || {
                // Whoever dies ends all of it.
                let _last = AtLast(done);
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
        let _last = AtLast(&done);
        let is_done = || done.load(Ordering::Acquire);
        // Until both have had their turns, however seldom they run.
        while !is_done() && (log.len() < 3_000 || did.iter().any(|did| did.load(Ordering::Relaxed) < 10)) {
            let batch = Batch::roll(&mut rng, log.len() as u64 + 1, 24);
            while let Err(error) = batch.apply(&runs) {
                assert!(matches!(error, RunsError::Busy { .. }), "{error}");
                std::thread::yield_now();
                if is_done() {
                    return;
                }
            }
            log.push(batch);
        }
        runs.rotate(runs.seq());
        while !is_done() && runs.memory_bytes() > 0 {
            std::thread::yield_now();
        }
    });
    check(&disk, &runs, &accounts, &log);
    settle(&runs, &accounts);
    check(&disk, &runs, &accounts, &log);
    let mut told = Vec::new();
    assert_eq!((runs.verify(&mut |error| told.push(error.to_string())).damaged, told), (0, Vec::new()));
}

fn the_manifests() -> assent_world::Barrier {
    *assent_runs::BARRIERS.iter().find(|barrier| barrier.label().contains("before what it says counts")).unwrap()
}

/// A sync of a manifest fails in one lane while the other one works: nobody knows whether it counts, so nothing may be built on it.
#[test]
fn behind_a_commit_of_which_nobody_knows_the_other_lane_commits_nothing() {
    let (disk, runs, accounts, mut log) = two_runs();
    let next = Batch { seq: 3, ops: vec![put("a", "v3")] };
    next.apply(&runs).unwrap();
    log.push(next);
    runs.rotate(3);
    let copies = || ["manifest-a", "manifest-b"].map(|name| bytes(&disk, name));
    let left = std::sync::Mutex::new(None);
    let beside = Beside::new(&accounts, 2, || {
        disk.inject(Call::at(the_manifests(), 1), Fault::Io);
        assert!(matches!(runs.flush(&accounts, &AtOnce), Err(RunsError::Closed { .. })));
        *left.lock().unwrap() = Some(copies());
    });
    assert!(matches!(runs.merge(&beside, &AtOnce), Err(RunsError::Closed { .. })));
    assert!(beside.is_done());
    drop(beside);
    assert_eq!(Some(copies()), left.into_inner().unwrap(), "neither copy was written");
    drop(runs);
    let (runs, opened, accounts) = open(&disk, small()).unwrap();
    let durable = log.iter().filter(|batch| batch.seq <= opened.applied);
    assert_eq!(Model::of(durable).compare(&runs.view()), Ok(()));
    assert_eq!(accounts.agree_with(&runs.facts()), Ok(()));
}

/// A manifest that could not be written at all changes nothing: the other lane's commit writes the same copy.
#[test]
fn a_manifest_that_one_lane_could_not_write_is_the_other_ones() {
    let (disk, runs, accounts, mut log) = two_runs();
    let next = Batch { seq: 3, ops: vec![put("a", "v3")] };
    next.apply(&runs).unwrap();
    log.push(next);
    runs.rotate(3);
    let beside = Beside::new(&accounts, 2, || {
        // The run's one write, then the manifest's.
        disk.inject(Call::of(Operation::Write, 2), Fault::Io);
        assert!(matches!(runs.flush(&accounts, &AtOnce), Err(RunsError::Disk { .. })));
    });
    assert!(matches!(runs.merge(&beside, &AtOnce), Ok(Some(Step::Merged { .. }))));
    assert!(beside.is_done());
    drop(beside);
    assert_eq!(runs.applied(), 2);
    check(&disk, &runs, &accounts, &log);
    settle(&runs, &accounts);
    assert_eq!(runs.applied(), 3);
    check(&disk, &runs, &accounts, &log);
}

fn bytes(disk: &SimDisk, name: &str) -> Vec<u8> {
    let path = std::path::Path::new(super::FOLDER).join(name);
    let file = disk.open(&path, Open { access: Access::Read, direct: false }).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    read_exact_at(&*file, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_view_pins_the_memory_that_it_sees_and_nobody_else_does() {
    let disk = SimDisk::new();
    let (runs, _, accounts) = open(&disk, small()).unwrap();
    let write = |seq: u64| {
        runs.apply(seq, &[Change::Put { key: b"k", value: &[b'v'; 600] }]).unwrap();
        runs.rotate(seq);
        assert!(matches!(runs.flush(&accounts, &AtOnce), Ok(Some(Step::Flushed { .. }))));
    };
    runs.apply(1, &[Change::Put { key: b"k", value: b"before" }]).unwrap();
    let view = runs.view();
    assert_eq!(runs.pinned_bytes(), 0, "it is memory that counts anyway");
    write(2);
    let pinned = runs.pinned_bytes();
    assert!(pinned >= 600 && runs.memory_bytes() == 0, "{pinned}");
    write(3);
    assert_eq!(runs.pinned_bytes(), pinned, "what the view does not see is not pinned");
    assert_eq!(view.get(b"k").unwrap().unwrap().value, b"before");
    drop(view);
    assert_eq!(runs.pinned_bytes(), 0);
}
