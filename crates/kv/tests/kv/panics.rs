//! A promise of ours is broken in the background: whoever runs it goes on, nobody waits for it, and it is tried again; where it was in
//! the midst of a change that others would go on with, the store takes nothing more until it is opened again, and has lost nothing.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assent_journal::{Journal, Log};
use assent_kind::Kind;
use assent_kv::{Config, Durability, Kv, Op};
use assent_runs::AtOnce;
use assent_sim::{Operation, SimClock, SimDice, SimDisk, Watch, WatchedDisk};

use super::all;

/// Panics at the first write below a path, once it is set.
#[derive(Debug, Default)]
struct Bomb(Mutex<Option<&'static str>>);

impl Bomb {
    fn set(&self, folder: &'static str) {
        *self.place() = Some(folder);
    }

    fn place(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Bomb {
    fn begins(&self, path: &Path, operation: Operation) {
        let mut folder = self.place();
        if operation == Operation::Write && folder.is_some_and(|folder| path.starts_with(folder)) {
            *folder = None;
            panic!("a promise is broken at {path:?}");
        }
    }
}

fn store(bomb: &Arc<Bomb>, config: Config) -> (SimDisk, Kv) {
    let disk = SimDisk::new();
    let watched = Arc::new(WatchedDisk::new(disk.clone(), Arc::clone(bomb)));
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
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
    (disk, Kv::open(log, watched, clock, Path::new("kv"), config).unwrap())
}

fn holds(kv: &Kv, round: u8) -> bool {
    all(kv, 0) == (0..10_u8).map(|key| (vec![key], vec![round; 900])).collect::<Vec<_>>()
}

fn overwrite(kv: &Kv, rounds: u8) {
    for round in 0..=rounds {
        for key in 0..10_u8 {
            kv.put(0, &[key], &[round; 900], Durability::Durable).unwrap();
        }
    }
}

/// Writers waited ten milliseconds a batch until the process ended, and nobody compacted any more.
#[test]
fn a_compaction_that_panics_holds_nobody_up_and_is_tried_again() {
    let bomb = Arc::new(Bomb::default());
    let (_disk, kv) = store(&bomb, super::compactions::config());
    for _ in 0..2 {
        overwrite(&kv, 40);
        kv.checkpoint().unwrap();
    }
    bomb.set("kv-values");
    assert!(!kv.work(&AtOnce), "it panics");
    assert_eq!(*bomb.place(), None);
    let stats = kv.stats();
    assert_eq!((stats.panics, stats.compactions), (1, 0));
    assert_eq!(kv.delay(&[Op::put(0, b"key", &[7; 900])]), Duration::ZERO, "nobody works");
    assert!(holds(&kv, 40));
    // It rests, as after a failure.
    let turns = (0..100).take_while(|_| !kv.work(&AtOnce)).count();
    assert_eq!(turns, 10);
    while kv.work(&AtOnce) {}
    let stats = kv.stats();
    assert!(stats.panics == 1 && stats.compactions > 0 && stats.reclaimed_bytes > 0, "{stats:?}");
    assert!(holds(&kv, 40));
    let mut told = Vec::new();
    kv.verify(&mut |error| told.push(error.to_string()));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn so_do_a_merge_and_writing_the_memory_out_and_what_they_left_is_not_believed() {
    let bomb = Arc::new(Bomb::default());
    let (disk, kv) = store(&bomb, Config { checkpoint_bytes: 16 << 10, ..super::compactions::config() });
    overwrite(&kv, 10);
    bomb.set("kv");
    kv.tick();
    let stats = kv.stats();
    assert_eq!((stats.panics, stats.checkpoints), (1, 0));
    assert!(holds(&kv, 10));
    for _ in 0..12 {
        overwrite(&kv, 10);
        kv.tick();
    }
    assert!(kv.stats().checkpoints > 4, "{:?}", kv.stats());
    bomb.set("kv");
    assert!(!kv.work(&AtOnce), "a merge has the first turn");
    assert_eq!(kv.stats().panics, 2);
    (0..11).for_each(|_| _ = kv.work(&AtOnce));
    while kv.work(&AtOnce) {}
    let stats = kv.stats();
    assert!(stats.panics == 2 && stats.compactions > 0, "{stats:?}");
    assert!(holds(&kv, 10));
    drop(kv);
    let kv = again(&disk);
    assert!(holds(&kv, 10) && kv.stats().rebuilt == 0);
}

/// Others went on with what they were shown, and what the manifest named was merged without being read.
#[test]
fn who_panics_in_a_commit_ends_the_store_and_an_open_finds_all_that_was_acknowledged() {
    for manifest in ["kv/manifest-a", "kv/manifest-b"] {
        let bomb = Arc::new(Bomb::default());
        let (disk, kv) = store(&bomb, super::compactions::config());
        overwrite(&kv, 3);
        bomb.set(manifest);
        let mut commits = 0;
        while kv.stats().broken == 0 {
            overwrite(&kv, 3);
            let panics = kv.stats().panics;
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kv.checkpoint())).is_err() || commits < 2);
            commits += 1;
            assert_eq!(kv.stats().panics, panics, "nobody ticked");
        }
        assert_eq!(*bomb.place(), None);
        let refused = kv.put(0, b"key", b"value", Durability::Durable).unwrap_err();
        assert_eq!(refused.kind(), Kind::Closed, "{refused}");
        assert_eq!(kv.checkpoint().unwrap_err().kind(), Kind::Closed);
        for _ in 0..30 {
            kv.tick();
            assert!(!kv.work(&AtOnce));
        }
        let stats = kv.stats();
        assert_eq!((stats.broken, stats.panics, stats.compactions), (1, 0, 0));
        // Whoever reads is told what was shown.
        assert!(holds(&kv, 3));
        drop(kv);
        let kv = again(&disk);
        assert!(holds(&kv, 3) && kv.stats().broken == 0);
        overwrite(&kv, 4);
        kv.checkpoint().unwrap();
        assert!(holds(&kv, 4));
    }
}

/// The next process, without a bomb.
fn again(disk: &SimDisk) -> Kv {
    disk.kill();
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(2)));
    let journal = assent_journal::Config {
        log_size: 5 * 4096,
        max_buffer_log_size: 2 * 4096,
        kept_until_released: true,
        ..Default::default()
    };
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), journal).unwrap();
    Kv::open(log, Arc::new(disk.clone()), clock, Path::new("kv"), super::compactions::config()).unwrap()
}
