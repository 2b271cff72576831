//! DESIGN.md, section 4: one test a sentence.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::Lsn;
use assent_journal::{BARRIERS, Config, Journal, JournalError, KIND_RESERVED, Log, State, stepping};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, SimClock, SimDisk, Survival};
use assent_world::{Clock as _, Disk, RealClock};

use super::stage::{FOLDER, all, bytes, offset, open, open_at, payloads, put, rot, segments, small};

#[test]
fn segments_are_zeroed_ahead_of_use_so_that_a_sync_touches_no_metadata() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    for _ in 0..100 {
        journal.maintain();
        let (calls, made) = (disk.calls(), journal.counts().segments);
        put(&*journal, &[7; 1000]);
        assert_eq!(disk.calls() - calls, 1, "an append and its wait are one call of the disk, also into a new segment");
        assert_eq!(journal.counts().segments, made);
    }
    assert!(segments(&disk).len() > 5, "it went through several segments");
}

#[test]
fn a_segment_that_is_not_ready_is_made_by_the_append_that_needs_it() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let expected: Vec<_> = (0..100_u8).map(|number| vec![number; 1000]).collect();
    expected.iter().for_each(|payload| _ = put(&*journal, payload));
    assert_eq!(payloads(&*journal), expected);
}

#[test]
fn each_open_starts_a_new_epoch() {
    let disk = SimDisk::new();
    for epoch in 1..6 {
        let (journal, recovery) = open(&disk, u64::from(epoch), &small()).unwrap();
        assert_eq!((journal.epoch().0, recovery.epoch.0), (epoch, epoch));
        drop(journal);
        disk.kill();
    }
}

#[test]
fn recycled_segments_do_not_pass_for_records() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let mut kept = Vec::new();
    for round in 0..200_u8 {
        let ticket = put(&*journal, &[round; 900]);
        kept.push((ticket, round));
        if round % 10 == 9 {
            let from = kept[kept.len() - 5].0.lsn;
            journal.trim(from).unwrap();
            kept.retain(|(ticket, _)| ticket.lsn >= from);
        }
        journal.maintain();
    }
    let made = journal.counts().segments;
    assert!(made > 10 && disk.used_bytes() < 12 * 5 * 4096, "{made} segments in {} bytes", disk.used_bytes());
    drop(journal);
    disk.kill();
    let (journal, recovery) = open(&disk, 2, &small()).unwrap();
    let found = all(&*journal);
    let last: Vec<_> = found[found.len() - kept.len()..].iter().map(|e| (e.lsn, e.payload[0])).collect();
    assert_eq!(last, kept.iter().map(|(ticket, round)| (ticket.lsn, *round)).collect::<Vec<_>>());
    assert_eq!(recovery.torn, None, "stale bytes are no torn tail");
}

#[test]
fn a_stale_entry_at_the_right_place_does_not_complete_a_torn_batch() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"kept");
    journal.append(1, &[&[1; 100]]).unwrap();
    let second = journal.append(1, &[&[2; 100]]).unwrap();
    journal.sync().unwrap();
    drop(journal);
    disk.kill();
    // The header and the first entry of the last batch did not reach the platter, its second entry did.
    let file = segments(&disk).pop().unwrap();
    let stale = bytes(&disk, &file)[usize::try_from(offset(second)).unwrap()..][..128].to_vec();
    rot(&disk, &file, offset(second) - 128 - 64, &[0; 64]);
    let (journal, recovery) = open(&disk, 2, &small()).unwrap();
    assert_eq!(payloads(&*journal), [b"kept"]);
    assert_eq!(recovery.torn, None, "a header of zeroes: nothing had begun");
    // A new batch of the same shape, torn before its second entry: the stale one stands there, sound in itself.
    journal.append(1, &[&[3; 100]]).unwrap();
    let torn = journal.append(1, &[&[4; 100]]).unwrap();
    assert_eq!(torn.lsn, second.lsn);
    journal.sync().unwrap();
    drop(journal);
    disk.kill();
    let file = segments(&disk).pop().unwrap();
    rot(&disk, &file, offset(torn), &stale);
    let (journal, recovery) = open(&disk, 3, &small()).unwrap();
    assert_eq!(payloads(&*journal), [b"kept"], "the batch is valid only wholly");
    assert!(recovery.torn.is_some(), "{recovery:?}");
}

/// It would end over what the next opening has written there.
#[test]
fn a_folder_is_nobody_elses_while_a_write_into_it_is_under_way() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"kept");
    journal.append(1, &[&[1; 5000]]).unwrap();
    let hangs = stepping::close(&journal).unwrap();
    journal.append(1, &[b"fails"]).unwrap();
    let fails = stepping::close(&journal).unwrap();
    disk.inject(Call::of(Operation::WriteDurable, 1), Fault::Io);
    fails.land();
    let closes = std::thread::spawn({
        let journal = Arc::clone(&journal);
        move || journal.close()
    });
    for _ in 0..50 {
        let refused = open(&disk, 2, &small()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        RealClock.sleep(Duration::from_millis(1));
    }
    assert!(!closes.is_finished());
    hangs.land();
    assert_eq!(closes.join().unwrap().unwrap_err().kind(), Kind::Closed);
    drop(journal);
    let (journal, _) = open(&disk, 2, &small()).unwrap();
    assert_eq!(payloads(&*journal)[0], b"kept");
}

#[test]
fn a_batch_that_was_cut_away_does_not_follow_a_later_epoch() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"kept");
    (0..3).for_each(|_| _ = journal.maintain());
    // Two writes in flight; only the later reaches the platter before the process dies.
    let first = journal.append(1, &[&[1; 100]]).unwrap();
    let lost = stepping::close(&journal).unwrap();
    journal.append(1, &[b"cut away"]).unwrap();
    stepping::close(&journal).unwrap().write();
    drop(lost);
    drop(journal);
    disk.kill();
    let (journal, recovery) = open(&disk, 2, &small()).unwrap();
    assert_eq!(payloads(&*journal), [b"kept"]);
    assert_eq!(recovery.rescued_bytes, 0, "claimed by the idle journal: the same file goes on");
    // The new epoch's batch ends where the lost one ended: the link of the cut one fits it.
    assert_eq!(put(&*journal, &[2; 100]), first);
    drop(journal);
    disk.kill();
    let (journal, _) = open(&disk, 3, &small()).unwrap();
    assert_eq!(payloads(&*journal), [b"kept".to_vec(), vec![2; 100]]);
}

#[test]
fn batches_of_an_unknown_salt_are_not_of_this_log() {
    let [ours, theirs] = [(); 2].map(|()| SimDisk::new());
    for (seed, disk) in [(1, &ours), (2, &theirs)] {
        let (journal, _) = open(disk, seed, &small()).unwrap();
        put(&*journal, b"the same in both");
        if seed == 2 {
            (0..5).for_each(|_| _ = put(&*journal, b"theirs"));
        }
        drop(journal);
        disk.kill();
    }
    // All of their later batches at their places, linked, of the same epoch, with claims: only the salt is another.
    let file = segments(&ours).pop().unwrap();
    let end = 4096 + 64 + 40;
    rot(&ours, &file, end, &bytes(&theirs, &file)[usize::try_from(end).unwrap()..]);
    let (journal, _) = open(&ours, 3, &small()).unwrap();
    assert_eq!(payloads(&*journal), [b"the same in both"]);
    assert_eq!(open(&theirs, 3, &small()).unwrap().1.entries, 6);
}

#[test]
fn bytes_that_a_user_put_into_a_value_do_not_pass_for_records() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"first");
    drop(journal);
    disk.kill();
    let file = segments(&disk).pop().unwrap();
    let stolen = bytes(&disk, &file)[4096..].to_vec();
    let (journal, _) = open(&disk, 2, &small()).unwrap();
    let expected: Vec<_> = (0..20).map(|_| stolen[..600].to_vec()).collect();
    expected.iter().for_each(|payload| _ = put(&*journal, payload));
    let entry = all(&*journal)[5].clone();
    for inside in (entry.lsn.0 + 8..entry.end.0).step_by(8) {
        assert_eq!(journal.read_at(Lsn(inside)), Err(JournalError::NotFound { lsn: Lsn(inside) }));
    }
    drop(journal);
    disk.kill();
    let (journal, _) = open(&disk, 3, &small()).unwrap();
    assert_eq!(payloads(&*journal)[1..], expected);
}

#[test]
fn an_invalid_last_batch_is_a_torn_tail_cut_and_reported() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"one");
    let last = put(&*journal, b"two");
    drop(journal);
    disk.kill();
    let file = segments(&disk).pop().unwrap();
    rot(&disk, &file, offset(last) + 24, b"T");
    let (journal, recovery) = open(&disk, 2, &small()).unwrap();
    let torn = recovery.torn.unwrap();
    assert_eq!((torn.file.as_path(), torn.offset), (Path::new(&file), offset(last) - 64));
    assert_eq!(payloads(&*journal), [b"one"]);
}

/// Rots one byte of a durable entry; the open must refuse, name the place and change nothing.
fn refuses(disk: &SimDisk, place: u64) {
    let file = segments(disk)[0].clone();
    rot(disk, &file, place + 24, b"\xee");
    let before = disk.hash();
    let error = open(disk, 2, &small()).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(matches!(&error, JournalError::Corrupt { file: named, offset, .. } if *named == file && *offset < place));
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(disk.hash(), before, "nothing was changed");
    let error = Journal::open_read_only(Arc::new(disk.clone()), &SimClock::new(), Path::new(FOLDER)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[test]
fn an_invalid_batch_before_a_claim_is_corruption_and_the_open_refuses() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"one");
    let damaged = put(&*journal, b"two");
    put(&*journal, b"three");
    drop(journal);
    disk.kill();
    refuses(&disk, offset(damaged));
}

#[test]
fn an_idle_journal_claims_its_last_batch() {
    for direct in [true, false] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &Config { direct, ..small() }).unwrap();
        put(&*journal, b"one");
        let damaged = put(&*journal, b"two");
        (0..3).for_each(|_| _ = journal.maintain());
        assert_eq!(journal.counts().writes, 3, "one claim, once");
        drop(journal);
        disk.kill();
        refuses(&disk, offset(damaged));
    }
}

#[test]
fn a_clean_close_syncs_a_claim_and_the_next_open_rescues_nothing() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let damaged = put(&*journal, b"one");
    journal.close().unwrap();
    disk.cut_power(Survival::Nothing);
    let (journal, recovery) = open(&disk, 2, &small()).unwrap();
    assert!(recovery.clean && recovery.rescued_bytes == 0, "{recovery:?}");
    journal.close().unwrap();
    refuses(&disk, offset(damaged));
}

#[test]
fn a_claim_is_overwritten_and_takes_no_place_in_the_log() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let mut expected = Vec::new();
    for number in 0..60_u8 {
        let end = journal.end();
        (0..3).for_each(|_| _ = journal.maintain());
        assert_eq!(journal.end(), end);
        let ticket = put(&*journal, &[number; 900]);
        assert!(ticket.lsn.0 >= end.0 + 64);
        expected.push(vec![number; 900]);
    }
    assert_eq!(payloads(&*journal), expected);
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(payloads(&*open(&disk, 2, &small()).unwrap().0), expected);
}

#[test]
fn many_appenders_share_one_write_and_one_sync() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &Config::default()).unwrap();
    let tickets: Vec<_> = (0..100).map(|_| journal.append(1, &[&[7; 256]]).unwrap()).collect();
    tickets.iter().for_each(|ticket| journal.wait(*ticket).unwrap());
    assert_eq!(journal.sync().unwrap(), tickets[99].end, "nothing waits: no second write");
    let counts = journal.counts();
    assert_eq!((counts.entries, counts.writes, counts.syncs), (100, 1, 1));
}

#[test]
fn batches_in_flight_together_never_share_a_block_and_are_acknowledged_in_order() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let lone = [put(&*journal, b"lone"), put(&*journal, b"lone")];
    assert_eq!(lone[1].lsn.0, lone[0].end.0 + 64, "small lone commits are packed");
    let first = journal.append(1, &[b"first"]).unwrap();
    let mut one = stepping::close(&journal).unwrap();
    let second = journal.append(1, &[b"second"]).unwrap();
    let mut two = stepping::close(&journal).unwrap();
    assert_eq!(second.lsn.0 / 4096, first.end.0 / 4096 + 1, "a new block while another write is in flight");
    journal.append(1, &[b"third"]).unwrap();
    assert!(stepping::close(&journal).is_none(), "two in flight are the most");
    two.write();
    two.land();
    assert_eq!(journal.durable(), lone[1].end, "the later write is done first and waits for the earlier");
    one.write();
    one.land();
    assert_eq!(journal.durable(), second.end);
    journal.sync().unwrap();
    assert_eq!(payloads(&*journal), [&b"lone"[..], b"lone", b"first", b"second", b"third"]);
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(open(&disk, 2, &small()).unwrap().1.entries, 5);
}

/// Values of 8 KiB take a little more than two blocks: each in a batch at the next block, as beside another write, took three, and so did the
/// zeroes ahead of them.
#[test]
fn where_room_counts_long_entries_wait_for_the_write_under_way_rather_than_leave_blocks_free() {
    let entry = [7; 8200];
    for (kept_until_released, most) in [(false, 12_288), (true, 8_400)] {
        let disk = SimDisk::new();
        let config = Config { kept_until_released, ..Config::default() };
        let (journal, _) = open(&disk, 1, &config).unwrap();
        let mut under_way = None;
        for _ in 0..100 {
            journal.append(1, &[&entry]).unwrap();
            let next = stepping::close(&journal);
            if let Some(before) = std::mem::replace(&mut under_way, next) {
                before.land();
            }
        }
        if let Some(last) = under_way {
            last.land();
        }
        journal.sync().unwrap();
        let each = journal.end().0 / 100;
        assert!((most - 200..=most).contains(&each), "{each} bytes an entry of {}", entry.len());
        assert_eq!(payloads(&*journal), vec![entry.to_vec(); 100]);
        drop(journal);
        disk.cut_power(Survival::Nothing);
        assert_eq!(open(&disk, 2, &config).unwrap().1.entries, 100);
    }
}

#[test]
fn a_batch_that_shares_a_block_is_written_behind_it_and_short_ones_beside_it() {
    let disk = SimDisk::new();
    let keeping = Config { kept_until_released: true, ..Config::default() };
    let (journal, _) = open(&disk, 1, &keeping).unwrap();
    journal.append(1, &[b"first"]).unwrap();
    let one = stepping::close(&journal).unwrap();
    let short = journal.append(1, &[b"short"]).unwrap();
    let two = stepping::close(&journal).unwrap();
    assert_eq!(short.lsn.0 % 4096, 64, "a short one takes a block of its own, and does not wait");
    let long = journal.append(1, &[&[7; 5000]]).unwrap();
    assert_eq!(long.lsn.0, short.end.0 + 64, "packed");
    one.land();
    assert!(stepping::close(&journal).is_none(), "the block that it begins in is being written");
    two.land();
    let three = stepping::close(&journal).unwrap();
    three.land();
    assert_eq!(journal.durable(), long.end);
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(open(&disk, 2, &keeping).unwrap().1.entries, 3);
}

#[test]
fn a_reader_sees_everything_appended_before_the_call() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let ticket = journal.append(1, &[b"not waited for"]).unwrap();
    assert_eq!(journal.read_at(ticket.lsn).unwrap().payload, b"not waited for");
    let ticket = journal.append(1, &[b"nor this"]).unwrap();
    assert_eq!(payloads(&*journal), [&b"not waited for"[..], b"nor this"]);
    assert_eq!(journal.read(ticket.end).unwrap().count(), 0);
}

#[test]
fn trimmed_places_are_not_found_and_others_stay() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let tickets: Vec<_> = (0..100_u8).map(|number| put(&*journal, &[number; 1000])).collect();
    journal.trim(tickets[50].lsn).unwrap();
    assert!(journal.start() > Lsn(0) && journal.start() <= tickets[50].lsn);
    assert_eq!(journal.read_at(tickets[0].lsn), Err(JournalError::NotFound { lsn: tickets[0].lsn }));
    assert!(matches!(journal.read(Lsn(0)).map(|_| ()), Err(JournalError::NotFound { .. })));
    for reopened in [false, true] {
        let journal = if reopened { open(&disk, 2, &small()).unwrap().0 } else { Arc::clone(&journal) };
        for (number, ticket) in (0..100_u8).zip(&tickets).skip(50) {
            assert_eq!(journal.read_at(ticket.lsn).unwrap().payload, vec![number; 1000]);
        }
        assert_eq!(journal.read(tickets[50].lsn).unwrap().count(), 50);
        assert_eq!(journal.read_at(Lsn(journal.end().0 + 800)).unwrap_err().kind(), Kind::NotFound);
        journal.close().unwrap();
    }
}

#[test]
fn a_folder_is_open_once_and_an_archive_needs_no_lock() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"one");
    assert_eq!(open(&disk, 2, &small()).unwrap_err(), JournalError::Locked { folder: FOLDER.to_owned() });
    journal.close().unwrap();
    let before = disk.hash();
    let (archive, recovery) =
        Journal::open_read_only(Arc::new(disk.clone()), &SimClock::new(), Path::new(FOLDER)).unwrap();
    assert_eq!(disk.hash(), before);
    assert_eq!((recovery.entries, recovery.clean, archive.state()), (1, true, State::Closed));
    assert_eq!(payloads(&archive), [b"one"]);
    let batches: Vec<_> = archive.batches().map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(|batch| (batch.frames, batch.close)).collect::<Vec<_>>(), [(1, false), (0, true)]);
    assert_eq!(archive.append(1, &[b"no"]).unwrap_err().kind(), Kind::Closed);
    assert!(open(&disk, 2, &small()).is_ok(), "a close gives the lock back");
}

#[test]
fn the_door_refuses_reserved_kinds_and_entries_beyond_the_limit() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    assert!(journal.append(KIND_RESERVED - 1, &[b"ok"]).is_ok());
    assert_eq!(journal.append(KIND_RESERVED, &[b"x"]), Err(JournalError::EntryKind { kind: KIND_RESERVED }));
    let part = vec![0; 1 << 20];
    let parts: Vec<&[u8]> = std::iter::repeat_n(part.as_slice(), 257).chain([&[0_u8][..]]).collect();
    let error = journal.append(1, &parts).unwrap_err();
    assert_eq!(error.to_string(), "an entry of 269484033 bytes; a journal takes at most 269484032");
    journal.sync().unwrap();
    assert_eq!(payloads(&*journal).len(), 1);
    assert!(open_at(&disk, Arc::default(), 2, &Config { log_size: 1, ..small() }).is_err());
}

#[test]
fn a_missing_segment_or_epochs_file_is_named() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    (0..100).for_each(|_| _ = put(&*journal, &[7; 1000]));
    journal.close().unwrap();
    let names = segments(&disk);
    disk.unlink(Path::new(&names[2])).unwrap();
    let error = open(&disk, 2, &small()).unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("is missing"), "{error}");
    disk.unlink(&Path::new(FOLDER).join("epochs")).unwrap();
    names[1..].iter().for_each(|name| _ = disk.unlink(Path::new(name)));
    let error = open(&disk, 2, &small()).unwrap_err();
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("epochs"), "{error}");
}

#[test]
fn every_barrier_has_a_label_of_its_own() {
    let labels: std::collections::BTreeSet<_> = BARRIERS.iter().map(|barrier| barrier.label()).collect();
    assert_eq!(labels.len(), BARRIERS.len());
    assert!(labels.iter().all(|label| label.starts_with("journal: ")));
}
