//! A log that is killed and opened again: it takes no more room for that, and what earlier releases left goes on.

use assent_journal::{Config, Log, Ticket};
use assent_kind::Kind;
use assent_sim::{SimDisk, Survival};

use super::stage::{FOLDER, all, bytes, in_two_files, open, payloads, put, segments, small};

fn configs() -> [Config; 3] {
    [small(), Config { direct: false, ..small() }, Config { max_elapsed_sync_time: 10, ..small() }]
}

/// What was written: one command, and its node was killed; sixty times. Each next open took what nobody claimed to be durable to a file of its own,
/// and the one before kept the room of a whole segment. What the user saw: no space, behind sixty commands on a disk of 256 MiB.
#[test]
fn a_log_that_is_killed_again_and_again_takes_the_room_of_what_it_holds() {
    for config in configs() {
        let disk = SimDisk::new();
        let (mut most, mut rescued) = (0, 0);
        for round in 0..100_u8 {
            let (journal, recovery) = open(&disk, u64::from(round), &config).unwrap();
            rescued += u64::from(recovery.rescued_bytes > 0);
            let expected: Vec<Vec<u8>> = (0..round).map(|number| vec![number; 40]).collect();
            assert_eq!(payloads(&*journal), expected);
            journal.maintain();
            put(&*journal, &[round; 40]);
            most = most.max(disk.used_bytes());
            drop(journal);
            if config.max_elapsed_sync_time == 0 && round % 2 == 0 {
                disk.cut_power(Survival::Nothing);
            } else {
                disk.kill();
            }
        }
        assert_eq!(rescued, 99, "nobody claims that the last one is durable");
        // The segment that it is in, one ahead, the epochs twice.
        assert!(most <= 2 * config.log_size + 2 * 8192, "{most} bytes of {config:?}");
        assert_eq!(segments(&disk).len(), 2);
    }
}

/// What stood above the last claimed place was copied to a file of its own by earlier releases, which took over the end of the one before.
#[test]
fn what_earlier_releases_rescued_into_a_file_of_its_own_is_read_written_and_rescued_again() {
    for config in configs() {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &config).unwrap();
        let tickets: Vec<Ticket> = (0..12_u8).map(|number| put(&*journal, &[number; 300])).collect();
        drop(journal);
        disk.kill();
        // Twice, as two kills did.
        in_two_files(&disk, tickets[3].end).unwrap();
        in_two_files(&disk, tickets[7].end).unwrap();
        assert_eq!(segments(&disk).len(), 3);
        let mut expected: Vec<Vec<u8>> = (0..12).map(|number| vec![number; 300]).collect();
        for round in 12..60 {
            let (journal, recovery) = open(&disk, u64::from(round), &config).unwrap();
            assert_eq!(payloads(&*journal), expected);
            assert!(recovery.rescued_bytes > 0);
            for ticket in &tickets {
                assert_eq!(journal.read_at(ticket.lsn).unwrap().end, ticket.end);
            }
            put(&*journal, &[round; 300]);
            expected.push(vec![round; 300]);
            drop(journal);
            disk.kill();
        }
        let (journal, _) = open(&disk, 99, &config).unwrap();
        journal.sync().unwrap();
        let entries = all(&*journal);
        assert_eq!(
            bytes(&disk, &segments(&disk)[0]).len() as u64,
            config.log_size,
            "it keeps its length until it goes"
        );
        journal.trim(entries[8].lsn).unwrap();
        assert_eq!(payloads(&*journal), expected[8..], "the files before are gone, and nothing of them shows");
        journal.trim(entries[50].lsn).unwrap();
        assert!(journal.start() > entries[8].lsn && payloads(&*journal).ends_with(&expected[50..]));
    }
}

/// Without it the open is refused, nothing is lost, and it goes through once there is room.
#[test]
fn an_open_behind_a_kill_asks_for_the_room_of_one_segment() {
    for config in configs() {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &config).unwrap();
        put(&*journal, &[7; 300]);
        drop(journal);
        disk.kill();
        disk.set_capacity(Some(disk.used_bytes() + config.log_size - 4096));
        assert_eq!(open(&disk, 2, &config).map(drop).unwrap_err().kind(), Kind::Full);
        disk.set_capacity(None);
        let (journal, recovery) = open(&disk, 3, &config).unwrap();
        assert!(recovery.rescued_bytes > 0);
        assert_eq!(payloads(&*journal), [[7; 300]]);
    }
}

/// A lazy log may have several segments that nobody claims to be durable: each gives its room back before the next is copied.
#[test]
fn an_open_behind_a_kill_asks_for_no_more_room_the_more_segments_are_in_doubt() {
    let config = Config { max_elapsed_sync_time: 10, ..small() };
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &config).unwrap();
    let expected: Vec<Vec<u8>> = (0..250_u8).map(|number| vec![number; 300]).collect();
    for payload in &expected {
        put(&*journal, payload);
    }
    drop(journal);
    disk.kill();
    assert!(segments(&disk).len() >= 5);
    disk.set_capacity(Some(disk.used_bytes() + 2 * config.log_size + 8192));
    let (journal, recovery) = open(&disk, 2, &config).unwrap();
    assert!(recovery.rescued_bytes > 4 * config.log_size);
    assert_eq!(payloads(&*journal), expected);
}

/// What was written: an entry of 20,000 bytes, the first one behind an open with longer segments than the one that was made ahead by the opening before.
/// What was lost: that entry, though it was acknowledged. It was longer than that segment, was laid as one frame, and stood where nobody looks. What
/// the user saw: it was not found, and once more was written the log was told to be damaged.
#[test]
fn what_is_longer_than_a_segment_that_is_left_of_a_smaller_log_size_is_found() {
    let befores = configs().into_iter().flat_map(|before| [100, 4_000, 16_000].map(|first| (before.clone(), first)));
    for (before, first) in befores {
        let after = Config { log_size: 16 * 4096, max_buffer_log_size: 16 * 4096, ..before.clone() };
        for longer in [12_000, 16_271, 16_272, 16_320, 20_000, 50_000, 70_000] {
            let disk = SimDisk::new();
            let (journal, _) = open(&disk, 1, &before).unwrap();
            let mut expected = vec![vec![9; first]];
            put(&*journal, &expected[0]);
            journal.maintain();
            assert!(segments(&disk).len() > 1, "one is made ahead");
            journal.close().unwrap();
            let (journal, _) = open(&disk, 2, &after).unwrap();
            for (number, bytes) in (0..).zip([longer, 300, longer, 50_000, 40]) {
                let payload = vec![number; bytes];
                let ticket = put(&*journal, &payload);
                let is_found = journal.read_at(ticket.lsn).is_ok_and(|entry| entry.payload == payload);
                assert!(is_found, "{bytes} bytes, {longer} behind {first}");
                expected.push(payload);
            }
            assert!(payloads(&*journal) == expected, "{longer} behind {first}");
            drop(journal);
            disk.kill();
            assert!(payloads(&*open(&disk, 3, &after).unwrap().0) == expected, "{longer} behind {first}, opened again");
        }
    }
}

/// Rows of the list of openings, which takes no more than 32,768.
fn openings(disk: &SimDisk) -> usize {
    let file = bytes(disk, &format!("{FOLDER}/epochs"));
    let (frame, _) = assent_frame::parse(&file, assent_frame::PAYLOAD_BYTES_MAX).unwrap().unwrap();
    frame.payload.len() / 32
}

/// What was written: one entry by each of 32,768 processes. What the user saw: the folder could be opened to be read only. The entries of all
/// stood in one segment, which nothing trimmed.
#[test]
fn openings_that_write_little_each_do_not_fill_their_list() {
    for config in configs() {
        for openings_max in [2, 7] {
            let config = Config { openings_max, settles_late: openings_max == 7, ..config.clone() };
            let disk = SimDisk::new();
            let mut expected: Vec<Vec<u8>> = Vec::new();
            for round in 0..90_u8 {
                let (journal, recovery) = open(&disk, u64::from(round), &config).unwrap();
                assert_eq!(payloads(&*journal), expected);
                assert!(!recovery.may_have_lost, "{recovery:?}");
                // Every tenth one is longer than a buffer.
                expected.push(vec![round; if round % 10 == 9 { 12_000 } else { 40 }]);
                put(&*journal, &expected[usize::from(round)]);
                match round % 3 {
                    0 => journal.close().unwrap(),
                    1 => drop(journal),
                    _ => {
                        journal.sync().unwrap();
                        drop(journal);
                        disk.cut_power(Survival::Nothing);
                    }
                }
                disk.kill();
                assert!(openings(&disk) <= usize::try_from(openings_max).unwrap() + 1, "{} rows", openings(&disk));
            }
        }
    }
}

/// Without room for a copy nothing is laid anew, and nothing else fails of it.
#[test]
fn an_open_that_finds_no_room_to_lay_many_openings_anew_goes_on_without() {
    let disk = SimDisk::new();
    let (few, many) = (Config { openings_max: 3, ..small() }, small());
    for round in 0..6_u8 {
        let (journal, _) = open(&disk, u64::from(round), &many).unwrap();
        put(&*journal, &[round; 40]);
        journal.close().unwrap();
    }
    assert_eq!(openings(&disk), 6);
    disk.set_capacity(Some(disk.used_bytes() + 2 * 8192));
    let (journal, _) = open(&disk, 6, &few).unwrap();
    put(&*journal, &[6; 40]);
    journal.close().unwrap();
    assert_eq!(openings(&disk), 7);
    disk.set_capacity(None);
    let (journal, _) = open(&disk, 7, &few).unwrap();
    assert_eq!(payloads(&*journal), (0..7).map(|number| vec![number; 40]).collect::<Vec<_>>());
    assert_eq!(openings(&disk), 2, "the last one of before, and this one");
}
