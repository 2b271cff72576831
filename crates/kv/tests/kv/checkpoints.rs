//! Checkpoints shorten the replay and are never needed.

use std::path::Path;

use assent_kv::{Config, Durability};
use assent_sim::{Call, Fault, Operation, SimDisk};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

use super::branches::{commit, ended, prepare};
use super::{Desk, all, fresh, open, xid};

fn names(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("kv")).unwrap()
}

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

#[test]
fn an_open_replays_only_what_follows_the_newest_checkpoint() {
    let desk = filled();
    desk.kv.checkpoint().unwrap();
    assert_eq!(names(&desk.disk), [format!("checkpoint-{:016x}", desk.kv.stats().published.0)]);
    desk.kv.put(0, b"after", b"1", Durability::Durable).unwrap();
    let expected = (all(&desk.kv, 0), all(&desk.kv, 1), all(&desk.kv, 2));
    let before = desk.kv.stats();
    let desk = desk.again();
    let after = desk.kv.stats();
    assert_eq!((after.replayed, after.checkpoint), (1, before.checkpoint));
    assert_eq!((after.keys, after.value_bytes, after.held_keys), (before.keys, before.value_bytes, 1));
    assert_eq!((all(&desk.kv, 0), all(&desk.kv, 1), all(&desk.kv, 2)), expected);
    assert_eq!(
        desk.kv.put(0, b"prepared", b"", Durability::Durable).unwrap_err().to_string(),
        format!("key \"prepared\" of keyspace 0 is held by the prepared branch {}", xid(1))
    );
    commit(&desk.kv, &xid(1)).unwrap();
    assert_eq!(desk.kv.get(0, b"prepared").unwrap().as_deref(), Some(&b"value"[..]));
    // The next one removes its elder.
    desk.kv.checkpoint().unwrap();
    assert_eq!((names(&desk.disk).len(), desk.kv.stats().checkpoints), (1, 1));
    let desk = desk.again();
    assert_eq!((desk.kv.stats().replayed, desk.kv.stats().prepared), (0, 0));
    assert_eq!(desk.kv.get(0, b"prepared").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_branch_that_is_being_committed_while_a_checkpoint_is_written_is_not_lost() {
    let desk = fresh();
    ended(&desk.kv, &xid(1), b"k", b"v");
    prepare(&desk.kv, &xid(1)).unwrap();
    let pending = desk.kv.commit_begin(&xid(1)).unwrap();
    desk.kv.checkpoint().unwrap();
    desk.kv.wait(pending).unwrap();
    let desk = desk.again();
    assert_eq!((desk.kv.stats().replayed, desk.kv.get(0, b"k").unwrap().is_some()), (1, true));
}

#[test]
fn a_checkpoint_cut_or_flipped_anywhere_is_ignored_and_nothing_is_missing() {
    let desk = fresh();
    for number in 0..20_u8 {
        desk.kv.put(0, &[number], &[number; 5], Durability::Durable).unwrap();
    }
    ended(&desk.kv, &xid(1), b"prepared", b"value");
    prepare(&desk.kv, &xid(1)).unwrap();
    desk.kv.checkpoint().unwrap();
    let expected = all(&desk.kv, 0);
    let Desk { disk, .. } = desk;
    let path = Path::new("kv").join(&names(&disk)[0]);
    let write = |bytes: &[u8]| {
        let file = disk.open(&path, Open { access: Access::Write, direct: false }).unwrap();
        file.set_size(bytes.len() as u64).unwrap();
        write_all_at(&*file, 0, bytes).unwrap();
    };
    let file = disk.open(&path, Open { access: Access::Read, direct: false }).unwrap();
    let mut good = vec![0; file.size().unwrap() as usize];
    read_exact_at(&*file, 0, &mut good).unwrap();
    let mut ignored = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        if at % 2 == 0 {
            bad.truncate(at);
        } else {
            bad[at] ^= 0x10;
        }
        write(&bad);
        let desk = open(&disk, Config::default());
        assert_eq!((all(&desk.kv, 0), desk.kv.prepared()), (expected.clone(), vec![xid(1)]), "byte {at}");
        ignored += desk.kv.stats().checkpoints_ignored;
    }
    // Only flips in the padding between frames go unseen.
    assert!(ignored > good.len() as u64 * 9 / 10, "{ignored} of {}", good.len());
    write(&good);
    assert_eq!(open(&disk, Config::default()).kv.stats().replayed, 0);
}

#[test]
fn a_checkpoint_of_another_journal_is_ignored() {
    let desk = filled();
    desk.kv.checkpoint().unwrap();
    let Desk { disk, log, kv } = desk;
    drop((log, kv));
    disk.unlink(Path::new("log")).unwrap();
    let desk = open(&disk, Config::default());
    assert_eq!((desk.kv.stats().keys, desk.kv.stats().checkpoints_ignored), (0, 1));
    desk.kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    desk.kv.checkpoint().unwrap();
    assert_eq!(names(&disk).len(), 1);
}

#[test]
fn a_tick_writes_one_when_it_is_due_and_a_failure_is_counted_and_tried_later() {
    let disk = SimDisk::new();
    let config = Config { checkpoint_bytes: 1000, ..Config::default() };
    let desk = open(&disk, config);
    desk.kv.tick();
    assert_eq!(desk.kv.stats().checkpoints, 0);
    disk.inject(Call::of(Operation::Create, 1), Fault::Full);
    desk.kv.put(0, b"k", &[0; 1000], Durability::Durable).unwrap();
    desk.kv.tick();
    desk.kv.tick();
    assert_eq!((desk.kv.stats().checkpoints, desk.kv.stats().checkpoints_failed), (0, 1));
    desk.kv.put(0, b"k", &[0; 1000], Durability::Durable).unwrap();
    desk.kv.tick();
    desk.kv.tick();
    assert_eq!((desk.kv.stats().checkpoints, desk.kv.stats().checkpoints_failed), (1, 1));
    // Nothing new: nothing to write.
    desk.kv.checkpoint().unwrap();
    assert_eq!(desk.kv.stats().checkpoints, 1);
}
