//! What goes in comes out, in order and for ever at the same place.

use assent_journal::{JournalError, Log, State};
use assent_sim::SimDisk;

use super::stage::{all, open, payloads, put, small};

#[test]
fn entries_come_back_in_order_at_their_places_also_after_a_reopen() {
    for direct in [true, false] {
        let disk = SimDisk::new();
        let config = assent_journal::Config { direct, ..small() };
        let mut expected = Vec::new();
        for life in 0..4_u8 {
            let (journal, recovery) = open(&disk, u64::from(life), &config).unwrap();
            assert!(recovery.clean, "{recovery:?}");
            assert_eq!(recovery.entries, expected.len() as u64);
            for number in 0..60_u8 {
                let payload = vec![number; 1 + usize::from(number) * 13];
                let ticket = put(&*journal, &payload);
                assert!(journal.durable() >= ticket.end);
                expected.push((ticket, payload));
            }
            let found = all(&*journal);
            assert_eq!(found.len(), expected.len());
            for (entry, (ticket, payload)) in found.iter().zip(&expected) {
                assert_eq!((entry.lsn, entry.end, &entry.payload), (ticket.lsn, ticket.end, payload));
                assert_eq!(&journal.read_at(ticket.lsn).unwrap(), entry);
            }
            journal.close().unwrap();
            assert_eq!(journal.state(), State::Closed);
            assert!(matches!(journal.append(1, &[b"x"]), Err(JournalError::Closed { .. })));
        }
    }
}

#[test]
fn a_long_entry_is_a_chain_and_one_sync_covers_it() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let long: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    let (front, back) = long.split_at(777);
    put(&*journal, b"before");
    let ticket = journal.append(9, &[front, back]).unwrap();
    journal.wait(ticket).unwrap();
    put(&*journal, b"after");
    assert_eq!(journal.read_at(ticket.lsn).unwrap().payload, long);
    assert_eq!(payloads(&*journal), [b"before".to_vec(), long.clone(), b"after".to_vec()]);
    // Resumed from an entry's end, nothing comes twice and nothing is left out.
    let ends: Vec<_> = all(&*journal).iter().map(|entry| entry.end).collect();
    for (read, end) in ends.iter().enumerate() {
        let rest: Vec<_> = journal.read(*end).unwrap().map(|entry| entry.unwrap().end).collect();
        assert_eq!(rest, ends[read + 1..]);
    }
    drop(journal);
    disk.kill();
    let (journal, _) = open(&disk, 2, &small()).unwrap();
    assert_eq!(payloads(&*journal), [b"before".to_vec(), long, b"after".to_vec()]);
}

/// To look through the room that is made ahead for a proof of loss took most of an open: 45 ms of 64 MiB. Where the last opening said that it
/// is over there is nothing to find; where it did not, everything is looked at.
#[test]
fn a_closed_log_opens_without_a_look_at_the_room_ahead() {
    let calls_to_open = |log_size: u64, is_closed: bool| {
        let disk = SimDisk::new();
        let config = assent_journal::Config { log_size, ..small() };
        for life in 0..2 {
            let (journal, _) = open(&disk, life, &config).unwrap();
            put(&*journal, b"one");
            journal.maintain();
            if is_closed || life == 0 {
                journal.close().unwrap();
            }
        }
        let before = disk.calls();
        let (journal, recovery) = open(&disk, 9, &config).unwrap();
        assert_eq!((recovery.clean, payloads(&*journal)), (is_closed, vec![b"one".to_vec(); 2]));
        disk.calls() - before
    };
    let (small, large) = (256 << 10, 16 << 20);
    assert!(calls_to_open(large, true) <= calls_to_open(small, true), "an open reads more of a larger segment");
    assert!(calls_to_open(large, false) > calls_to_open(small, false) + 100, "nobody looked behind what is in doubt");
}

#[test]
fn who_may_not_wait_for_a_disk_is_told_so_and_nothing_is_written_for_him() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let (mut taken, mut full, mut roomless) = (Vec::new(), 0, 0);
    for number in 0..200_u8 {
        let payload = vec![number; 700];
        let before = (journal.counts(), journal.end());
        let ticket = match journal.try_append(1, &[&payload]).unwrap() {
            Some(ticket) => ticket,
            None => {
                assert_eq!((journal.counts(), journal.end()), before, "a disk was asked, or something was laid");
                // What waits is written by somebody else.
                journal.sync().unwrap();
                full += 1;
                match journal.try_append(1, &[&payload]).unwrap() {
                    Some(ticket) => ticket,
                    None => {
                        assert_eq!(journal.end(), before.1, "nothing was laid where a segment is missing");
                        journal.make_room(payload.len()).unwrap();
                        roomless += 1;
                        journal.try_append(1, &[&payload]).unwrap().unwrap()
                    }
                }
            }
        };
        assert!(ticket.end > journal.landed(), "it is in memory");
        taken.push(payload);
        // What has landed can be read without a write; the rest is not waited for.
        let writes = journal.counts().writes;
        let landed: Vec<_> =
            journal.read_landed(journal.start()).unwrap().map(|entry| entry.unwrap().payload).collect();
        assert!(landed.len() < taken.len() && landed == taken[..landed.len()], "{} of {number}", landed.len());
        assert_eq!(journal.counts().writes, writes);
    }
    assert!(full > 20 && roomless > 3, "{full} {roomless}");
    assert_eq!(payloads(&*journal), taken);
    journal.close().unwrap();
    let made = journal.counts().segments;
    assert!(matches!(journal.make_room(1 << 20), Err(JournalError::Closed { .. })));
    assert_eq!(journal.counts().segments, made, "the folder may be somebody else's");
    assert!(matches!(journal.try_append(1, &[b"x"]), Err(JournalError::Closed { .. })));
}
