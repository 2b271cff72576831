//! Trimmed and kept: history is the log itself, read in its order, bounded, and never in the way of the live log.

use std::path::Path;
use std::sync::Arc;

use assent_ids::Lsn;
use assent_journal::{Archive, Config, Entry, Journal, JournalError, Log, State, Ticket};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, SimClock, SimDisk, Survival};
use assent_world::{Access, Disk, Open};

use super::stage::{FOLDER, bytes, open, put, rot, segments, small};

const SEGMENT: u64 = 5 * 4096;

fn keeping(segments: u64) -> Config {
    Config { archive_bytes_max: segments * SEGMENT, ..small() }
}

/// Entries of 1000 bytes, each of its number; some segments full.
fn fill(journal: &Journal, numbers: std::ops::Range<u8>) -> Vec<Ticket> {
    numbers.map(|number| put(journal, &[number; 1000])).collect()
}

fn history(log: &dyn Log) -> Vec<u8> {
    let entries = log.read(log.oldest()).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.payload[0]).collect()
}

fn archived(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(Path::new(FOLDER)).unwrap();
    names.into_iter().filter(|name| name.ends_with(".archived")).collect()
}

fn look(disk: &SimDisk) -> Archive {
    Journal::open_read_only(Arc::new(disk.clone()), &SimClock::new(), Path::new(FOLDER)).unwrap().0
}

#[test]
fn what_was_trimmed_is_read_before_the_live_log_by_the_server_after_a_restart_and_offline() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(1000)).unwrap();
    let tickets = fill(&journal, 0..100);
    journal.trim(tickets[90].lsn).unwrap();
    assert_eq!(journal.oldest(), Lsn(0));
    assert!(journal.start() > tickets[80].lsn && journal.start() <= tickets[90].lsn);
    let all: Vec<u8> = (0..100).collect();
    assert_eq!(history(&*journal), all);
    // One entry, and on from the middle of what is archived.
    assert_eq!(journal.read_at(tickets[3].lsn).unwrap().payload, [3; 1000]);
    assert_eq!(journal.read(tickets[40].end).unwrap().next().unwrap().unwrap().lsn, tickets[41].lsn);
    // A replay sees the live log only.
    let first = journal.read(journal.start()).unwrap().next().unwrap().unwrap();
    assert!(first.payload[0] > 80, "{}", first.payload[0]);
    let (start, syncs) = (journal.start(), journal.counts().syncs);
    journal.trim(tickets[90].lsn).unwrap();
    assert_eq!((journal.start(), journal.counts().syncs), (start, syncs), "nothing twice");
    drop(journal);
    disk.kill();
    let offline = look(&disk);
    assert_eq!((offline.oldest(), offline.start(), history(&offline)), (Lsn(0), start, all.clone()));
    assert!(offline.batches().all(|batch| batch.is_ok()));
    assert_eq!(offline.batches().next().unwrap().unwrap().file.extension().unwrap(), "archived");
    let (journal, recovery) = open(&disk, 2, &keeping(1000)).unwrap();
    assert_eq!((recovery.start, journal.start(), journal.oldest()), (start, start, Lsn(0)));
    assert_eq!(history(&*journal), all);
}

#[test]
fn the_oldest_make_room_before_the_bound_is_passed_and_their_files_are_used_again() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(3)).unwrap();
    let mut tickets = Vec::new();
    for round in 0..20 {
        tickets.extend(fill(&journal, round * 10..round * 10 + 10));
        journal.trim(tickets[tickets.len() - 1].lsn).unwrap();
        journal.maintain();
        assert!(archived(&disk).len() <= 3);
    }
    assert_eq!(archived(&disk).len(), 3);
    assert!(disk.used_bytes() <= 9 * SEGMENT, "{}", disk.used_bytes());
    let found = history(&*journal);
    assert_eq!(found.last(), Some(&199));
    assert!(found.len() > 45 && found.windows(2).all(|two| two[0] + 1 == two[1]), "{found:?}");
    let gone = journal.read(Lsn(0)).map(|_| ()).unwrap_err();
    assert_eq!(gone, JournalError::NotFound { lsn: Lsn(0) });
    assert_eq!(journal.read_at(tickets[0].lsn).unwrap_err().kind(), Kind::NotFound);
    // The bound counts what an earlier opening has archived, and a smaller one holds from the next trim on.
    drop(journal);
    disk.kill();
    let (journal, _) = open(&disk, 2, &keeping(1)).unwrap();
    assert_eq!(history(&*journal), found);
    let tickets = fill(&journal, 200..240);
    journal.trim(tickets[39].lsn).unwrap();
    assert_eq!(archived(&disk).len(), 1);
    drop(journal);
    disk.kill();
    let (journal, _) = open(&disk, 3, &small()).unwrap();
    let tickets = fill(&journal, 0..20);
    journal.trim(tickets[19].lsn).unwrap();
    assert_eq!((archived(&disk).len(), journal.oldest()), (0, journal.start()), "0 keeps none");
}

#[test]
fn history_outlives_the_openings_that_wrote_it() {
    let disk = SimDisk::new();
    let mut all = Vec::new();
    for life in 0..12_u8 {
        let (journal, _) = open(&disk, u64::from(life), &keeping(1000)).unwrap();
        let tickets = fill(&journal, life * 20..life * 20 + 20);
        all.extend(life * 20..life * 20 + 20);
        journal.trim(tickets[19].lsn).unwrap();
        assert_eq!(history(&*journal), all, "life {life}");
        drop(journal);
        disk.kill();
    }
    assert_eq!(history(&look(&disk)), all);
}

#[test]
fn a_reader_under_way_follows_its_segments_into_the_archive_and_is_told_when_they_are_gone() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(20)).unwrap();
    let tickets = fill(&journal, 0..60);
    let mut moved = journal.read(Lsn(0)).unwrap();
    assert_eq!(moved.next().unwrap().unwrap().payload[0], 0);
    journal.trim(tickets[59].lsn).unwrap();
    assert_eq!(moved.map(|entry| entry.unwrap().payload[0]).collect::<Vec<_>>(), (1..60).collect::<Vec<_>>());
    drop(journal);
    disk.kill();
    let (journal, _) = open(&disk, 2, &small()).unwrap();
    let reader = journal.read(Lsn(0)).unwrap();
    fill(&journal, 60..70);
    journal.trim(journal.end()).unwrap();
    let last = reader.last().unwrap();
    assert!(matches!(last, Err(JournalError::NotFound { .. })), "{last:?}");
}

#[test]
fn a_missing_middle_names_its_places_and_neither_stops_the_server_nor_hides_what_follows() {
    for rotten in [false, true] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &keeping(20)).unwrap();
        let tickets = fill(&journal, 0..100);
        journal.trim(tickets[90].lsn).unwrap();
        drop(journal);
        disk.kill();
        let names = archived(&disk);
        let (lost, next) = (format!("{FOLDER}/{}", names[2]), first_of(&names[3]));
        if rotten {
            rot(&disk, &lost, 9, b"rot");
        } else {
            disk.unlink(Path::new(&lost)).unwrap();
        }
        let (journal, _) = open(&disk, 2, &keeping(20)).unwrap();
        for log in [&*journal as &dyn Log, &look(&disk)] {
            let found: Vec<Result<Entry, JournalError>> = log.read(log.oldest()).unwrap().collect();
            let error = found.last().unwrap().clone().unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            let named = format!("the log from {} to {next} is missing", Lsn(first_of(&names[2])));
            assert!(error.to_string().contains(&named), "{error}");
            assert!(found.len() > 20, "what stands before the hole is read");
            let behind = log.read(Lsn(next)).unwrap();
            assert_eq!(behind.map(|entry| entry.unwrap().payload[0]).last(), Some(99));
        }
        assert_eq!(look(&disk).batches().last().unwrap().unwrap_err().kind(), Kind::Corrupt);
        put(&*journal, b"the live log goes on");
    }
}

fn first_of(name: &str) -> u64 {
    u64::from_str_radix(name.split_once('.').unwrap().0, 16).unwrap()
}

#[test]
fn a_damaged_batch_in_the_archive_is_told_and_not_skipped() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(20)).unwrap();
    let tickets = fill(&journal, 0..100);
    journal.trim(tickets[90].lsn).unwrap();
    rot(&disk, &format!("{FOLDER}/{}", archived(&disk)[0]), 4096 + tickets[5].lsn.0 + 100, b"rot");
    let found: Vec<_> = journal.read(Lsn(0)).unwrap().collect();
    assert_eq!((found.len(), found[5].clone().unwrap_err().kind()), (6, Kind::Corrupt));
    assert_eq!(journal.read_at(tickets[5].lsn).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_long_entry_over_the_border_of_archive_and_live_log_is_whole() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(1000)).unwrap();
    fill(&journal, 0..10);
    let long = journal.append(1, &[&[77; 50_000]]).unwrap();
    journal.sync().unwrap();
    journal.trim(Lsn(long.end.0 - 100)).unwrap();
    assert!(journal.start() > long.lsn && journal.start() < long.end);
    let read: Vec<_> = journal.read(journal.oldest()).unwrap().map(Result::unwrap).collect();
    assert_eq!((read[10].lsn, read[10].payload.len()), (long.lsn, 50_000));
    assert_eq!(journal.read_at(long.lsn).unwrap().payload, vec![77; 50_000]);
}

#[test]
fn a_refused_archiving_ends_trimming_and_loses_nothing() {
    for operation in [Operation::Rename, Operation::SyncDir] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &keeping(20)).unwrap();
        let tickets = fill(&journal, 0..60);
        disk.inject(Call::of(operation, 1), Fault::Io);
        journal.trim(tickets[50].lsn).unwrap_err();
        journal.trim(tickets[50].lsn).unwrap_err();
        assert!(archived(&disk).len() <= 1, "no other may go");
        put(&*journal, &[60; 1000]);
        assert_eq!(history(&*journal), (0..61).collect::<Vec<_>>(), "{operation:?}");
        drop(journal);
        disk.kill();
        let (journal, _) = open(&disk, 2, &keeping(20)).unwrap();
        journal.trim(tickets[50].lsn).unwrap();
        assert_eq!(history(&*journal), (0..61).collect::<Vec<_>>(), "{operation:?}");
    }
}

#[test]
fn what_somebody_took_out_of_the_archive_does_not_stop_trimming() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(2)).unwrap();
    let tickets = fill(&journal, 0..40);
    journal.trim(tickets[30].lsn).unwrap();
    for name in archived(&disk) {
        disk.unlink(&Path::new(FOLDER).join(name)).unwrap();
    }
    journal.trim(tickets[39].lsn).unwrap();
    let tickets = fill(&journal, 40..80);
    journal.trim(tickets[39].lsn).unwrap();
    assert_eq!(archived(&disk).len(), 2);
    let found = history(&*journal);
    assert!(found.len() > 20 && found.last() == Some(&79), "{found:?}");
    let first = Path::new(FOLDER).join(&archived(&disk)[0]);
    assert!(disk.open(&first, Open { access: Access::Read, direct: false }).is_ok());
}

#[test]
fn a_copy_that_somebody_put_beside_the_live_log_is_none_of_ours() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(20)).unwrap();
    let tickets = fill(&journal, 0..200);
    journal.trim(tickets[30].lsn).unwrap();
    let start = journal.start();
    drop(journal);
    disk.kill();
    // Live segments once more, under the names that they would have in the archive.
    for live in &segments(&disk) {
        let copied = bytes(&disk, live);
        let copy = live.replace(".log", ".archived");
        let file = disk.open(Path::new(&copy), Open { access: Access::Create, direct: false }).unwrap();
        assent_world::write_all_at(&*file, 0, &copied).unwrap();
    }
    let (journal, _) = open(&disk, 2, &keeping(20)).unwrap();
    fill(&journal, 200..220);
    for log in [&*journal as &dyn Log, &look(&disk)] {
        assert_eq!((log.start(), history(log)), (start, (0..220).collect()));
    }
    tickets
        .iter()
        .zip(0..)
        .for_each(|(ticket, number)| assert_eq!(journal.read_at(ticket.lsn).unwrap().payload[0], number));
    // It takes no room from history, and history takes its name.
    journal.trim(journal.end()).unwrap();
    assert!(journal.start() > start);
    assert_eq!(history(&*journal), (0..220).collect::<Vec<_>>());
}

#[test]
fn on_a_disk_smaller_than_the_bound_history_gives_way_and_the_log_goes_on_for_ever() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(&disk, 1, &keeping(1_000_000)).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 12 * SEGMENT + 100));
    let mut most = 0;
    for round in 0..200_u8 {
        // What is live is never touched: two rounds of it.
        let before = journal.end();
        let tickets: Vec<_> = (0..8).map(|_| put(&*journal, &[round; 1000])).collect();
        put(&*journal, &[round; 9000]);
        assert_eq!(journal.state(), State::Open);
        assert_eq!(journal.read_at(tickets[0].lsn).unwrap().payload, [round; 1000]);
        let live: Vec<u8> = journal.read(before).unwrap().map(|entry| entry.unwrap().payload[0]).collect();
        assert_eq!(live, [round; 9]);
        journal.trim(before).unwrap();
        journal.maintain();
        let kept = history(&*journal);
        assert!(kept.windows(2).all(|two| two[0] == two[1] || two[0] + 1 == two[1]), "{round}: a hole in {kept:?}");
        assert_eq!(kept.last(), Some(&round));
        most = most.max(archived(&disk).len());
        if round % 50 == 49 {
            drop(journal);
            disk.cut_power(Survival::Nothing);
            journal = open(&disk, u64::from(round), &keeping(1_000_000)).unwrap().0;
            // The rescued tail took room too.
            let after = history(&*journal);
            assert!(kept.ends_with(&after) && after.len() > 60, "{round}: {after:?}");
        }
    }
    assert!((7..=12).contains(&most), "history takes what the live log leaves: {most}");
    assert!(!archived(&disk).is_empty());
}

#[test]
fn a_log_with_history_opens_on_a_full_disk() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping(1000)).unwrap();
    let tickets = fill(&journal, 0..60);
    journal.trim(tickets[40].lsn).unwrap();
    let (start, many) = (journal.start(), archived(&disk).len());
    drop(journal);
    disk.kill();
    // Not one byte: neither for the epoch nor for the tail that no header claims to be durable.
    disk.set_capacity(Some(disk.used_bytes()));
    let (journal, recovery) = open(&disk, 2, &keeping(1000)).unwrap();
    assert!(recovery.rescued_bytes > 0);
    assert_eq!(journal.start(), start);
    assert!(archived(&disk).len() < many && archived(&disk).len() + 4 > many, "no more than it takes");
    let found = history(&*journal);
    assert!(found.last() == Some(&59) && found.windows(2).all(|two| two[0] + 1 == two[1]), "{found:?}");
    drop(journal);
    disk.cut_power(Survival::Nothing);
    // Without history it is the operator's.
    for name in archived(&disk) {
        disk.unlink(&Path::new(FOLDER).join(name)).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(open(&disk, 3, &keeping(1000)).unwrap_err().kind(), Kind::Full);
}

#[test]
fn where_history_cannot_be_removed_the_full_disk_is_told_and_nothing_is_lost() {
    for operation in [Operation::Rename, Operation::SyncDir] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &keeping(1000)).unwrap();
        let tickets = fill(&journal, 0..60);
        journal.trim(tickets[50].lsn).unwrap();
        let (start, many) = (journal.start(), archived(&disk).len());
        disk.set_capacity(Some(disk.used_bytes()));
        disk.inject(Call::of(operation, 1), Fault::Io);
        let mut live: Vec<u8> = (60..90).take_while(|number| journal.append(1, &[&[*number; 1000]]).is_ok()).collect();
        journal.sync().unwrap();
        assert_eq!((journal.state(), journal.append(1, &[&[0; 4000]]).unwrap_err().kind()), (State::Full, Kind::Full));
        assert!(archived(&disk).len() + 1 >= many, "{operation:?}: no other may go");
        drop(journal);
        disk.kill();
        let (journal, _) = open(&disk, 2, &keeping(1000)).unwrap();
        assert_eq!(journal.start(), start);
        live.extend(fill(&journal, 90..120).iter().zip(90..).map(|(_, number)| number));
        let found = history(&*journal);
        assert!(found.ends_with(&live), "{operation:?}: {found:?}");
    }
}
