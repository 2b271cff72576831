//! Calls that fail, and what they leave.

use std::io::ErrorKind;

use assent_sim::{Call, Fault, Operation, Stale, Survival};
use assent_world::{Durably, write_all_at};

use super::*;

#[test]
fn the_nth_call_fails_once_of_any_operation_or_of_one() {
    let disk = SimDisk::new();
    disk.inject(Call::any(2), Fault::Io);
    let file = create(&disk, "file");
    assert_eq!(file.write_at(0, b"a").unwrap_err().raw_os_error(), Some(5));
    assert_eq!(file.size().unwrap(), 0);
    assert_eq!(file.write_at(0, b"a").unwrap(), 1);
    disk.inject(Call::of(Operation::Write, 2), Fault::Full);
    disk.inject(Call::of(Operation::Rename, 1), Fault::Io);
    assert_eq!(file.size().unwrap(), 1);
    assert_eq!(file.write_at(1, b"b").unwrap(), 1);
    assert_eq!(file.write_at(2, b"c").unwrap_err().kind(), ErrorKind::StorageFull);
    assert!(disk.rename(path("file"), path("other")).is_err());
    assert_eq!(disk.list(path("")).unwrap(), ["file"]);
    assert_eq!(read(&disk, "file").unwrap(), b"ab");
}

#[test]
fn every_operation_can_fail() {
    // A run of every operation there is, cut short by an error at each of its calls in turn.
    let run = |disk: &SimDisk| -> std::io::Result<()> {
        disk.create_dir(path("d"))?;
        let _lock = disk.lock(path("d/LOCK"))?;
        let file = disk.open(path("d/a"), Open { access: Access::Create, direct: true })?;
        file.preallocate_zeroed(4096)?;
        file.write_at(0, b"a")?;
        file.write_durable_at(1, b"b", Durably::Dsync, SYNC)?;
        file.set_size(100)?;
        file.sync_data(SYNC)?;
        file.sync_all(SYNC)?;
        disk.rename(path("d/a"), path("d/b"))?;
        disk.sync_dir(path("d"), SYNC)?;
        let file = disk.open(path("d/b"), Open { access: Access::Read, direct: false })?;
        file.size()?;
        file.read_at(0, &mut [0])?;
        disk.list(path("d"))?;
        disk.unlink(path("d/b"))
    };
    let disk = SimDisk::new();
    run(&disk).unwrap();
    assert_eq!(disk.calls(), 16);
    assert_eq!(disk.barriers().into_iter().collect::<Vec<_>>(), [SYNC]);
    for call in 1..=16 {
        let disk = SimDisk::new();
        disk.inject(Call::any(call), Fault::Io);
        assert_eq!(run(&disk).unwrap_err().raw_os_error(), Some(5), "call {call}");
        assert_eq!(disk.calls(), call);
    }
}

#[test]
fn short_reads_and_writes_do_half_and_at_least_one_byte() {
    let disk = SimDisk::new();
    let file = create(&disk, "file");
    for (bytes, half) in [(10, 5), (5, 3), (1, 1)] {
        disk.inject(Call::of(Operation::Write, 1), Fault::Short);
        disk.inject(Call::of(Operation::Read, 1), Fault::Short);
        assert_eq!(file.write_at(0, &vec![7; bytes]).unwrap(), half);
        assert_eq!(file.size().unwrap(), if bytes == 10 { 5 } else { 10 });
        write_all_at(&*file, 0, &[8; 10]).unwrap();
        assert_eq!(file.read_at(0, &mut vec![0; bytes]).unwrap(), half);
    }
    disk.inject(Call::at(SYNC, 1), Fault::Short);
    assert_eq!(file.write_durable_at(0, &[9; 4], Durably::Dsync, SYNC).unwrap(), 2);
}

#[test]
fn a_full_disk_writes_what_fits_refuses_the_rest_and_can_be_given_room() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(3 * 4096));
    let file = create(&disk, "file");
    let other = create(&disk, "other");
    assert_eq!(file.write_at(100, &vec![1; 4096 * 2 - 100]).unwrap(), 4096 * 2 - 100);
    assert_eq!(other.preallocate_zeroed(4096 * 2).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(other.size().unwrap(), 0);
    assert_eq!(other.write_at(4000, &[2; 1000]).unwrap(), 96);
    assert_eq!(other.write_at(4096, &[2; 904]).unwrap_err().kind(), ErrorKind::StorageFull);
    // Blocks that it has can be written again; no new file finds room.
    assert_eq!(file.write_at(0, &[3; 4096]).unwrap(), 4096);
    let refused = disk.open(path("third"), Open { access: Access::Create, direct: false });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::StorageFull);
    // An unlinked file keeps its blocks until its last handle goes.
    disk.unlink(path("file")).unwrap();
    assert_eq!(other.write_at(4096, &[2; 904]).unwrap_err().kind(), ErrorKind::StorageFull);
    drop(file);
    assert_eq!(other.write_at(4096, &[2; 904]).unwrap(), 904);
    assert_eq!(disk.used_bytes(), 4096 * 2);
    disk.set_capacity(Some(4096 * 4));
    other.preallocate_zeroed(4096 * 4).unwrap();
    other.set_size(1).unwrap();
    assert_eq!(disk.used_bytes(), 4096);
}

#[test]
fn a_failed_sync_marks_dirty_pages_clean() {
    for full in [false, true] {
        let disk = SimDisk::new();
        let file = durable(&disk, "file", &[b'a'; 1024]);
        file.write_at(0, &[b'b'; 1024]).unwrap();
        disk.inject(Call::at(SYNC, 1), Fault::Io);
        let failed = if full { file.sync_all(SYNC) } else { file.sync_data(SYNC) };
        assert!(failed.is_err());
        // The page cache still shows the new bytes, and the next sync is content.
        assert_eq!(letters(&read(&disk, "file").unwrap()), "bb");
        file.sync_all(SYNC).unwrap();
        file.sync_data(SYNC).unwrap();
        assert_eq!(letter_fates(&disk, "file"), ["aa", "ab", "ba", "bb"]);
        // Only writing again and syncing helps.
        file.write_at(0, &[b'c'; 512]).unwrap();
        file.sync_data(SYNC).unwrap();
        assert_eq!(letter_fates(&disk, "file"), ["ca", "cb"]);
        disk.kill();
        assert_eq!(letters(&read(&disk, "file").unwrap()), "cb");
        disk.cut_power(Survival::Nothing);
        assert_eq!(letters(&read(&disk, "file").unwrap()), "ca");
    }
}

#[test]
fn zeroes_whose_sync_failed_are_not_there_although_a_later_sync_succeeds() {
    let disk = SimDisk::new();
    let file = durable(&disk, "file", b"");
    file.preallocate_zeroed(512).unwrap();
    disk.inject(Call::of(Operation::SyncAll, 1), Fault::Io);
    assert!(file.sync_all(SYNC).is_err());
    file.sync_all(SYNC).unwrap();
    file.write_at(0, &[b'b'; 512]).unwrap();
    assert_eq!(letter_fates(&disk, "file"), [".", "?", "b"]);
}

#[test]
fn a_failed_durable_write_leaves_its_sectors_in_doubt_and_with_a_data_sync_all_others_too() {
    for (how, fates) in [(Durably::Dsync, &["xaa", "xab"][..]), (Durably::DataSync, &["aaa", "aab", "xaa", "xab"])] {
        let disk = SimDisk::new();
        let file = durable(&disk, "file", &[b'a'; 512 * 3]);
        file.write_at(0, &[b'x'; 512]).unwrap();
        disk.inject(Call::of(Operation::WriteDurable, 1), Fault::Io);
        assert!(file.write_durable_at(1024, &[b'b'; 512], how, SYNC).is_err());
        assert_eq!(letters(&read(&disk, "file").unwrap()), "xab");
        file.sync_all(SYNC).unwrap();
        assert_eq!(letter_fates(&disk, "file"), fates);
    }
}

#[test]
fn a_failed_sync_of_a_folder_promises_nothing() {
    let disk = SimDisk::new();
    create(&disk, "file");
    disk.inject(Call::of(Operation::SyncDir, 1), Fault::Io);
    assert!(disk.sync_dir(path(""), SYNC).is_err());
    assert_eq!(letter_fates(&disk, "file"), ["", "-"]);
}

#[test]
fn a_kill_keeps_the_page_cache_and_ends_handles_and_locks() {
    let disk = SimDisk::new();
    let lock = disk.lock(path("LOCK")).unwrap();
    assert_eq!(disk.lock(path("LOCK")).unwrap_err().kind(), ErrorKind::WouldBlock);
    let file = create(&disk, "file");
    file.write_at(0, b"unsynced").unwrap();
    disk.kill();
    assert!(file.write_at(0, b"dead").is_err() && file.sync_all(SYNC).is_err() && file.read_at(0, &mut [0]).is_err());
    assert_eq!(read(&disk, "file").unwrap(), b"unsynced");
    let next = disk.lock(path("LOCK")).unwrap();
    // The dead process's lock is dropped late: it is not the living one's.
    drop(lock);
    assert_eq!(disk.lock(path("LOCK")).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(next);
    assert!(disk.lock(path("LOCK")).is_ok());
    assert!(letter_fates(&disk, "file").contains(&"-".to_owned()), "still not durable");
}

#[test]
fn an_ignored_barrier_answers_ok_and_does_nothing() {
    const IGNORED: Barrier = Barrier::new("test: the ignored one");
    let disk = SimDisk::new();
    disk.set_stale(Stale::ZEROES);
    let file = durable(&disk, "file", &[b'a'; 512]);
    disk.ignore(IGNORED);
    file.write_at(0, &[b'b'; 512]).unwrap();
    file.sync_all(IGNORED).unwrap();
    file.sync_data(IGNORED).unwrap();
    file.write_durable_at(0, &[b'c'; 512], Durably::Dsync, IGNORED).unwrap();
    create(&disk, "other");
    disk.sync_dir(path(""), IGNORED).unwrap();
    assert_eq!(letter_fates(&disk, "file"), ["a", "b", "c"]);
    assert_eq!(letter_fates(&disk, "other"), ["", "-"]);
    assert!(disk.barriers().contains(&IGNORED));
    file.sync_data(SYNC).unwrap();
    disk.sync_dir(path(""), SYNC).unwrap();
    assert_eq!(disk.survivors(64, 1).len(), 1);
}

#[test]
fn a_handle_to_read_writes_nothing_and_wrong_names_are_refused() {
    let disk = SimDisk::new();
    durable(&disk, "file", b"a");
    let file = disk.open(path("file"), Open { access: Access::Read, direct: false }).unwrap();
    assert!(file.write_at(0, b"b").is_err() && file.set_size(0).is_err());
    assert!(disk.open(path("../file"), Open { access: Access::Read, direct: false }).is_err());
    assert!(disk.open(path(""), Open { access: Access::Read, direct: false }).is_err());
    assert_eq!(disk.create_dir(path("file")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    disk.create_dir(path("d")).unwrap();
    assert_eq!(disk.rename(path("file"), path("d/file")).unwrap_err().kind(), ErrorKind::CrossesDevices);
    assert_eq!(file.write_at(u64::MAX, b"b").unwrap_err().raw_os_error(), Some(9));
}
