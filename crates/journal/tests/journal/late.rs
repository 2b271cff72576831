//! What an open leaves to its first write: behind a close it changes nothing on the disk, and looks at the end alone.

use std::path::Path;

use assent_journal::{Config, Log};
use assent_kind::Kind;
use assent_sim::{Call, Fault, SimDisk, Survival};
use assent_world::{Access, Disk, Open, write_all_at};

use super::stage::{FOLDER, bytes, open, payloads, put, small};

fn late() -> Config {
    Config { settles_late: true, ..small() }
}

/// A log of so many entries that was closed.
fn closed(entries: u8) -> SimDisk {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &late()).unwrap();
    (0..entries).for_each(|number| _ = put(&*journal, &[number; 300]));
    journal.close().unwrap();
    disk
}

fn numbers(entries: u8) -> Vec<Vec<u8>> {
    (0..entries).map(|number| vec![number; 300]).collect()
}

#[test]
fn an_open_behind_a_close_changes_nothing_and_its_first_entry_is_as_durable_as_any() {
    let disk = closed(100);
    let before = disk.hash();
    for seed in 2..6 {
        let (journal, recovery) = open(&disk, seed, &late()).unwrap();
        assert_eq!((recovery.clean, recovery.end), (true, journal.durable()));
        assert_eq!(payloads(&*journal), numbers(100));
        journal.maintain();
        if seed % 2 == 0 {
            journal.close().unwrap();
        }
        drop(journal);
        disk.kill();
        assert_eq!(disk.hash(), before, "an opening that wrote nothing");
    }
    for number in 100..110 {
        // Each opening writes one entry and is closed, or not; then the power goes.
        let (journal, _) = open(&disk, number.into(), &late()).unwrap();
        assert_eq!(payloads(&*journal), numbers(number));
        put(&*journal, &[number; 300]);
        if number % 3 == 0 {
            journal.close().unwrap();
        }
        drop(journal);
        disk.cut_power(Survival::Nothing);
    }
    assert_eq!(payloads(&*open(&disk, 7, &small()).unwrap().0), numbers(110));
}

#[test]
fn an_open_behind_a_close_reads_as_little_of_a_long_log_as_of_a_short_one() {
    let calls = |entries: u32| {
        let (disk, config) = (SimDisk::new(), Config { log_size: 4 << 20, ..late() });
        let (journal, _) = open(&disk, 1, &config).unwrap();
        (0..entries).for_each(|number| _ = put(&*journal, &number.to_le_bytes()));
        journal.close().unwrap();
        drop(journal);
        let before = disk.calls();
        let (journal, recovery) = open(&disk, 2, &config).unwrap();
        let calls = disk.calls() - before;
        assert_eq!(journal.read(recovery.end).unwrap().count(), 0);
        assert_eq!(disk.calls() - before, calls, "behind the end is nothing to look for");
        assert_eq!(payloads(&*journal).len(), entries as usize);
        calls
    };
    assert_eq!(calls(10), calls(10_000));
}

#[test]
fn a_hint_that_is_old_or_rotten_or_gone_costs_a_walk_and_nothing_else() {
    let disk = closed(20);
    let hint = format!("{FOLDER}/closed");
    let old = bytes(&disk, &hint);
    let write = |content: &[u8]| {
        let file = disk.open(Path::new(&hint), Open { access: Access::Write, direct: false }).unwrap();
        write_all_at(&*file, 0, content).unwrap();
    };
    let all = |count: u8, seed| assert_eq!(payloads(&*open(&disk, seed, &late()).unwrap().0), numbers(count));
    // By an opening that is not late, and died.
    put(&*open(&disk, 2, &small()).unwrap().0, &[20; 300]);
    disk.kill();
    all(21, 3);
    disk.kill();
    let (journal, _) = open(&disk, 4, &late()).unwrap();
    put(&*journal, &[21; 300]);
    journal.close().unwrap();
    for content in [old.clone(), vec![0; old.len()], vec![0xff; old.len()]] {
        write(&content);
        all(22, 5);
        disk.kill();
    }
    disk.unlink(Path::new(&hint)).unwrap();
    all(22, 6);
}

#[test]
fn where_there_is_no_room_for_the_epoch_nothing_is_appended_and_later_it_is() {
    let disk = closed(20);
    let (journal, _) = open(&disk, 2, &late()).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(journal.append(1, &[&[20; 300]]).unwrap_err().kind(), Kind::Full);
    disk.set_capacity(None);
    put(&*journal, &[20; 300]);
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(payloads(&*open(&disk, 3, &late()).unwrap().0), numbers(21));
}

#[test]
fn an_epoch_of_which_nobody_knows_whether_it_is_durable_closes_the_journal() {
    for nth in 1..=2 {
        let disk = closed(20);
        let (journal, _) = open(&disk, 2, &late()).unwrap();
        let barriers = disk.barriers();
        let of_epochs: Vec<_> = barriers.into_iter().filter(|one| one.label().contains("epoch")).collect();
        assert_eq!(of_epochs.len(), 2);
        disk.inject(Call::at(of_epochs[nth - 1], 1), Fault::Io);
        assert_eq!(journal.append(1, &[&[20; 300]]).unwrap_err().kind(), Kind::Closed);
        assert_eq!(journal.append(1, &[&[20; 300]]).unwrap_err().kind(), Kind::Closed);
        assert_eq!(payloads(&*journal), numbers(20));
        drop(journal);
        disk.kill();
        let (journal, _) = open(&disk, 3, &late()).unwrap();
        put(&*journal, &[20; 300]);
        drop(journal);
        disk.cut_power(Survival::Nothing);
        assert_eq!(payloads(&*open(&disk, 4, &late()).unwrap().0), numbers(21));
    }
}
