//! Many threads on a real disk: money moves between accounts, auditors look at snapshots, checkpoints are written.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, KvError};
use assent_sim::Rng;
use assent_world::{RealClock, RealDice, RealDisk};
use assent_xa::Vote;

use super::xid;

const ACCOUNTS: u64 = 20;
const EACH: u64 = 100;

fn balance(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn sum(rows: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    rows.iter().map(|(_, value)| balance(value)).sum()
}

fn open(folder: &Path) -> (Arc<Journal>, Kv) {
    let (disk, clock, dice) = (Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice));
    let config = assent_journal::Config { log_size: 1 << 20, max_buffer_log_size: 64 << 10, ..Default::default() };
    let (journal, _) = Journal::open(disk, clock, dice, &folder.join("journal"), config).unwrap();
    let log: Arc<dyn Log> = Arc::<Journal>::clone(&journal);
    let kv = Kv::open(log, Arc::new(RealDisk), Arc::new(RealClock), &folder.join("kv"), Config::default()).unwrap();
    (journal, kv)
}

/// As `assent` looks into the folder of a stopped store.
fn look(folder: &Path) -> Kv {
    let (archive, _) = Journal::open_read_only(Arc::new(RealDisk), &RealClock, &folder.join("journal")).unwrap();
    Kv::open_read_only(
        Arc::new(archive),
        Arc::new(RealDisk),
        Arc::new(RealClock),
        &folder.join("kv"),
        Config::default(),
    )
    .unwrap()
}

/// One transfer in one or two phases; whether it was committed.
fn transfer(kv: &Kv, number: u64, rng: &mut Rng) -> Result<bool, KvError> {
    let branch = xid(number);
    let (from, to) = (rng.below(ACCOUNTS).to_be_bytes(), rng.below(ACCOUNTS).to_be_bytes());
    kv.start(&branch)?;
    let read = |key| Ok::<u64, KvError>(balance(&kv.branch_get(&branch, 0, key)?.unwrap()));
    let amount = rng.below(10).min(read(&from)?);
    kv.branch_put(&branch, 0, &from, &(read(&from)? - amount).to_le_bytes())?;
    kv.branch_put(&branch, 0, &to, &(read(&to)? + amount).to_le_bytes())?;
    kv.end(&branch, true)?;
    if rng.below(3) == 0 {
        kv.wait(kv.commit_one_phase_begin(&branch)?)?;
        return Ok(true);
    }
    let voted = kv.prepare_begin(&branch)?;
    kv.wait(voted.pending)?;
    assert_eq!(voted.vote, Vote::Yes);
    let commits = rng.below(4) > 0;
    let pending = if commits { kv.commit_begin(&branch)? } else { kv.rollback_begin(&branch)? };
    kv.wait(pending)?;
    Ok(commits)
}

/// What a thread in the background does.
fn work(kv: &Kv, done: &AtomicBool) {
    let pace = kv.throttle(|| false);
    while !done.load(Ordering::Relaxed) {
        kv.work(&pace);
        thread::yield_now();
    }
}

#[test]
fn no_money_is_made_or_lost_and_every_snapshot_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, kv) = open(folder.path());
    for account in 0..ACCOUNTS {
        kv.put(0, &account.to_be_bytes(), &EACH.to_le_bytes(), Durability::Durable).unwrap();
    }
    let (committed, conflicts) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let everything = || kv.snapshot().scan(0, Bound::Unbounded, Bound::Unbounded, 1000).unwrap();
    thread::scope(|scope| {
        let movers: Vec<_> = (0..4_u64)
            .map(|mover| {
                let (kv, committed, conflicts) = (&kv, &committed, &conflicts);
                scope.spawn(move || {
                    let mut rng = Rng::new(mover);
                    for number in 0..150 {
                        match transfer(kv, mover * 1000 + number, &mut rng) {
                            Ok(true) => _ = committed.fetch_add(1, Ordering::Relaxed),
                            Ok(false) => {}
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::Conflict, "{error}");
                                conflicts.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        kv.put(1, &number.to_be_bytes(), b"noise", Durability::Buffered).unwrap();
                    }
                })
            })
            .collect();
        let auditor = scope.spawn(|| {
            let mut audits = 0;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(sum(&everything()), ACCOUNTS * EACH);
                audits += 1;
            }
            audits
        });
        let keeper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                kv.tick();
                kv.checkpoint().unwrap();
                thread::yield_now();
            }
        });
        scope.spawn(|| work(&kv, &done));
        // Whoever asks for numbers comes at any time, also while a manifest is on its way to the disk.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(kv.stats().broken, 0);
            }
        });
        let ends: Vec<_> = movers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        keeper.join().unwrap();
        assert!(auditor.join().unwrap() > 0);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    assert!(committed.load(Ordering::Relaxed) > 50, "{committed:?} committed, {conflicts:?} conflicts");
    let (before, rows) = (kv.stats(), everything());
    assert_eq!((before.branches, before.snapshots, before.held_keys, before.unpublished), (0, 0, 0, 0));
    assert_eq!(rows.len() as u64, ACCOUNTS);
    assert!(before.keys >= ACCOUNTS + 150, "the noise too: {before:?}");
    drop(kv);
    journal.close().unwrap();
    for kv in [look(folder.path()), open(folder.path()).1] {
        assert_eq!(kv.stats().published, before.published);
        assert_eq!(kv.snapshot().scan(0, Bound::Unbounded, Bound::Unbounded, 1000).unwrap(), rows);
    }
    assert_eq!(sum(&rows), ACCOUNTS * EACH);
}
