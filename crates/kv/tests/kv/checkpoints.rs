//! What is written out shortens the replay and is never needed: the journal has everything.

use std::path::Path;
use std::time::Duration;

use assent_kind::Kind;
use assent_kv::{Config, Durability, KvError, Rows};
use assent_sim::{Call, Fault, Operation, SimDisk};
use assent_world::{Access, Clock, Disk, Open, RealClock, read_exact_at, write_all_at};

use super::branches::{commit, ended, prepare};
use super::{Desk, all, fresh, open, xid};

fn filled() -> Desk {
    let desk = fresh();
    for number in 0..3000_u32 {
        let key = number.to_be_bytes();
        desk.kv.put(number % 3, &key, &[7; 20], Durability::Buffered).unwrap();
    }
    desk.kv.delete(0, &0_u32.to_be_bytes(), Durability::Durable).unwrap();
    ended(&desk.kv, &xid(1), b"prepared", b"value");
    prepare(&desk.kv, &xid(1)).unwrap();
    desk
}

fn contents(desk: &Desk) -> [Rows; 3] {
    [0, 1, 2].map(|keyspace| all(&desk.kv, keyspace))
}

#[test]
fn an_open_replays_only_what_follows_what_was_written_out() {
    let desk = filled();
    desk.kv.checkpoint().unwrap();
    assert_eq!((desk.kv.stats().keys, desk.kv.stats().checkpoint), (2999, desk.kv.stats().published));
    desk.kv.put(0, b"after", b"1", Durability::Durable).unwrap();
    let expected = contents(&desk);
    let before = desk.kv.stats();
    let desk = desk.again();
    let after = desk.kv.stats();
    assert_eq!((after.replayed, after.checkpoint, after.rebuilt), (1, before.checkpoint, 0));
    assert_eq!((after.keys, after.value_bytes, after.held_keys), (before.keys, before.value_bytes, 1));
    assert_eq!(contents(&desk), expected);
    assert_eq!(
        desk.kv.put(0, b"prepared", b"", Durability::Durable).unwrap_err().to_string(),
        format!("key \"prepared\" of keyspace 0 is held by the prepared branch {}", xid(1))
    );
    commit(&desk.kv, &xid(1)).unwrap();
    assert_eq!(desk.kv.get(0, b"prepared").unwrap().as_deref(), Some(&b"value"[..]));
    desk.kv.checkpoint().unwrap();
    assert_eq!(desk.kv.stats().checkpoints, 1);
    let desk = desk.again();
    assert_eq!((desk.kv.stats().replayed, desk.kv.stats().prepared), (0, 0));
    assert_eq!(desk.kv.get(0, b"prepared").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_branch_that_is_being_committed_while_memory_is_written_out_is_not_lost() {
    let desk = fresh();
    ended(&desk.kv, &xid(1), b"k", b"v");
    prepare(&desk.kv, &xid(1)).unwrap();
    let pending = desk.kv.commit_begin(&xid(1)).unwrap();
    desk.kv.checkpoint().unwrap();
    desk.kv.wait(pending).unwrap();
    let desk = desk.again();
    assert_eq!((desk.kv.stats().replayed, desk.kv.get(0, b"k").unwrap().is_some()), (1, true));
}

/// A byte of a file flipped, or the file cut there: contents are as they were, or an error names the file.
#[test]
fn a_ledger_file_cut_or_flipped_anywhere_is_healed_or_named() {
    let desk = fresh();
    for number in 0..20_u8 {
        desk.kv.put(0, &[number], &[number; 5], Durability::Durable).unwrap();
    }
    ended(&desk.kv, &xid(1), b"prepared", b"value");
    prepare(&desk.kv, &xid(1)).unwrap();
    desk.kv.checkpoint().unwrap();
    let expected = all(&desk.kv, 0);
    let Desk { disk, .. } = desk;
    let (mut healed, mut named) = (0, 0);
    for name in disk.list(Path::new("kv")).unwrap() {
        let path = Path::new("kv").join(&name);
        let read = |disk: &SimDisk| {
            let file = disk.open(&path, Open { access: Access::Read, direct: false }).unwrap();
            let mut bytes = vec![0; file.size().unwrap() as usize];
            read_exact_at(&*file, 0, &mut bytes).unwrap();
            bytes
        };
        let good = read(&disk);
        for at in 0..good.len() {
            let mut bad = good.clone();
            if at % 2 == 0 {
                bad.truncate(at);
            } else {
                bad[at] ^= 0x10;
            }
            // Another disk each time: who builds anew writes.
            let disk = disk.copy();
            let file = disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
            file.set_size(bad.len() as u64).unwrap();
            write_all_at(&*file, 0, &bad).unwrap();
            drop(file);
            let desk = open(&disk, Config::default());
            assert_eq!(desk.kv.prepared(), vec![xid(1)], "{name}, byte {at}");
            match desk.kv.scan(0, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, 100) {
                Ok(rows) => {
                    assert_eq!(rows, expected, "{name}, byte {at}");
                    healed += 1;
                }
                Err(error @ KvError::Ledger(_)) => {
                    assert_eq!(error.kind(), Kind::Corrupt);
                    assert!(error.to_string().contains(&name), "{error}");
                    named += 1;
                }
                Err(error) => panic!("{name}, byte {at}: {error}"),
            }
        }
    }
    assert!(healed > 0 && named > 0, "{healed} healed and {named} named");
}

/// All the files of one kind are gone, or the manifests cut: the journal has everything.
#[test]
fn a_lost_ledger_is_built_anew() {
    let desk = filled();
    desk.kv.checkpoint().unwrap();
    let expected = contents(&desk);
    let Desk { disk, log, kv, .. } = desk;
    drop((log, kv));
    let names = disk.list(Path::new("kv")).unwrap();
    let of = |part: &str| names.iter().filter(|name| name.contains(part)).collect::<Vec<_>>();
    assert_eq!((of(".run").len(), of("manifest").len()), (1, 2), "{names:?}");
    for (gone, cut) in [(of(".run"), false), (of("manifest"), false), (of("manifest"), true)] {
        let disk = disk.copy();
        for name in gone {
            let path = Path::new("kv").join(name);
            if cut {
                disk.open(&path, Open { access: Access::Write, direct: false }).unwrap().set_size(40).unwrap();
            } else {
                disk.unlink(&path).unwrap();
            }
        }
        let desk = open(&disk, Config::default());
        assert_eq!((contents(&desk), desk.kv.prepared()), (expected.clone(), vec![xid(1)]), "cut {cut}");
        assert_eq!((desk.kv.stats().rebuilt, desk.kv.stats().replayed), (1, 3002));
        // And it is a ledger again.
        desk.kv.checkpoint().unwrap();
        let desk = desk.again();
        assert_eq!((contents(&desk), desk.kv.stats().rebuilt, desk.kv.stats().replayed), (expected.clone(), 0, 0));
    }
}

#[test]
fn a_ledger_of_another_journal_is_built_anew() {
    let desk = filled();
    desk.kv.checkpoint().unwrap();
    let Desk { disk, log, kv, .. } = desk;
    drop((log, kv));
    disk.unlink(Path::new("log")).unwrap();
    let desk = open(&disk, Config::default());
    assert_eq!((desk.kv.stats().keys, desk.kv.stats().rebuilt), (0, 1));
    desk.kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    desk.kv.checkpoint().unwrap();
    let desk = desk.again();
    assert_eq!((desk.kv.stats().rebuilt, desk.kv.stats().replayed, all(&desk.kv, 0).len()), (0, 0, 1));
}

/// It slept its 100 ms whatever came: what writers brought meanwhile stood above a half of all memory, and they waited for it.
#[test]
fn whoever_ticks_hears_at_once_that_memory_is_full_and_rests_behind_a_failure() {
    let disk = SimDisk::new();
    let config = Config { memory_bytes: 64 << 10, ..Config::default() };
    let desk = open(&disk, config);
    // It sleeps in the kernel, whatever a store's clock says: this asks the machine's.
    let clock = RealClock;
    let waited = |at_most: Duration| {
        let from = clock.now();
        desk.kv.wait_due(at_most);
        clock.now().since(from)
    };
    let hears_at_once = || assert!(waited(Duration::from_secs(60)) < Duration::from_secs(30), "nobody woke it");
    let mut number = 0_u32;
    let mut fill = || {
        while desk.kv.stats().memory_bytes < config.memory_bytes {
            number += 1;
            desk.kv.put(0, &number.to_be_bytes(), b"v", Durability::Durable).unwrap();
        }
        number += 1;
        desk.kv.put(0, &number.to_be_bytes(), b"v", Durability::Durable).unwrap();
    };
    for round in 1..4 {
        fill();
        hears_at_once();
        desk.kv.tick();
        assert_eq!((desk.kv.stats().checkpoints, desk.kv.stats().memory_bytes), (round, 0));
    }
    fill();
    disk.inject(Call::of(Operation::Create, 1), Fault::Full);
    hears_at_once();
    desk.kv.tick();
    fill();
    // It sleeps: nobody wakes it for the next try.
    let rest = Duration::from_millis(50);
    let rested = waited(rest);
    assert!(rested >= rest, "behind a failure it was woken after {rested:?}");
    assert_eq!(desk.kv.stats().checkpoints_failed, 1);
    (0..20).for_each(|_| desk.kv.tick());
    assert_eq!((desk.kv.stats().checkpoints, desk.kv.stats().memory_bytes), (4, 0));
    fill();
    hears_at_once();
}

/// A full disk under a store that goes on: what cannot be written out does not pile up, and goes out when there is room.
#[test]
fn a_full_disk_costs_no_memory_but_the_rows_and_is_made_up_for() {
    let disk = SimDisk::new();
    let config = Config { checkpoint_bytes: 1 << 20, memory_bytes: 64 << 10, ..Config::default() };
    let desk = open(&disk, config);
    let mut number = 0_u32;
    let mut put = || {
        number += 1;
        desk.kv.put(0, &(number % 500).to_be_bytes(), b"v", Durability::Durable)
    };
    while desk.kv.stats().memory_bytes < config.memory_bytes {
        put().unwrap();
    }
    disk.inject(Call::of(Operation::Create, 1), Fault::Full);
    for _ in 0..5 {
        desk.kv.tick();
        put().unwrap();
    }
    // One try, and then a rest: nothing is closed beside what waits already.
    let stats = desk.kv.stats();
    assert_eq!((stats.checkpoints, stats.checkpoints_failed), (0, 1), "{stats:?}");
    assert!(stats.memory_bytes < 2 * config.memory_bytes, "{stats:?}");
    for _ in 0..20 {
        desk.kv.tick();
    }
    let stats = desk.kv.stats();
    assert_eq!((stats.checkpoint, stats.checkpoints_failed, stats.memory_bytes), (stats.published, 1, 0), "{stats:?}");
    assert_eq!(all(&desk.kv, 0).len(), 500);
    let desk = desk.again();
    assert_eq!((all(&desk.kv, 0).len(), desk.kv.stats().replayed), (500, 0));
}

/// A branch keeps its work where what it must compare with cannot be read.
#[test]
fn a_vote_that_cannot_be_checked_changes_nothing() {
    let desk = fresh();
    for number in 0..2000_u32 {
        desk.kv.put(0, &number.to_be_bytes(), b"v", Durability::Buffered).unwrap();
    }
    desk.kv.checkpoint().unwrap();
    // Nothing is in memory.
    let desk = desk.again();
    desk.kv.start(&xid(1)).unwrap();
    desk.kv.branch_get(&xid(1), 0, b"elsewhere").unwrap();
    desk.kv.branch_put(&xid(1), 0, &1500_u32.to_be_bytes(), b"mine").unwrap();
    desk.kv.end(&xid(1), true).unwrap();
    // The first read is of what all look-ups of a run ask, and would be made again in pieces: the second is of the key's block.
    desk.disk.inject(Call::of(Operation::Read, 2), Fault::Io);
    let refused = desk.kv.prepare_begin(&xid(1)).unwrap_err();
    assert!(matches!(refused.kind(), Kind::Unavailable | Kind::Corrupt), "{refused}");
    prepare(&desk.kv, &xid(1)).unwrap();
    commit(&desk.kv, &xid(1)).unwrap();
    assert_eq!(desk.kv.get(0, &1500_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"mine"[..]));
}

#[test]
fn a_tick_writes_out_when_it_is_due_and_a_failure_is_counted_and_tried_later() {
    let disk = SimDisk::new();
    let config = Config { checkpoint_bytes: 1000, ..Config::default() };
    let desk = open(&disk, config);
    desk.kv.tick();
    assert_eq!(desk.kv.stats().checkpoints, 0);
    disk.inject(Call::of(Operation::Create, 1), Fault::Full);
    desk.kv.put(0, b"k", &[0; 1000], Durability::Durable).unwrap();
    desk.kv.tick();
    assert_eq!((desk.kv.stats().checkpoints, desk.kv.stats().checkpoints_failed), (0, 1));
    assert_eq!(desk.kv.get(0, b"k").unwrap().unwrap().len(), 1000);
    desk.kv.put(0, b"k", &[0; 1000], Durability::Durable).unwrap();
    desk.kv.tick();
    desk.kv.tick();
    assert_eq!(desk.kv.stats().checkpoint, desk.kv.stats().published);
    assert_eq!(desk.kv.stats().checkpoints_failed, 1);
    // Nothing new: nothing to write.
    let before = desk.kv.stats().checkpoints;
    desk.kv.checkpoint().unwrap();
    assert_eq!(desk.kv.stats().checkpoints, before);
}
