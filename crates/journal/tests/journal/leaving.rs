//! What is released while somebody reads or lists it: its room comes back in steps, never under a reader, and by none of them.

use assent_ids::Lsn;
use assent_journal::{Config, Log, Ticket};
use assent_kind::Kind;
use assent_sim::SimDisk;

use super::kept::{first_in, holds, keeping};
use super::stage::{open, put};

/// A client's read lists all stretches for as long as it takes: what was released beside it went all at once, when that client was done.
#[test]
fn what_is_released_beside_readers_is_shut_by_none_of_them() {
    let disk = SimDisk::new();
    // A segment is longer than what is read ahead.
    let config = Config { log_size: 192 << 10, max_buffer_log_size: 64 << 10, ..keeping() };
    let (journal, _) = open(&disk, 1, &config).unwrap();
    let long = |number: u64| put(&*journal, &number.to_le_bytes().repeat(5000));
    let mut tickets: Vec<Ticket> = (0..2).map(long).collect();
    // One reads what is still written to, by the writer's file.
    let mut early = journal.read(Lsn(0)).unwrap();
    assert_eq!(early.next().unwrap().unwrap().lsn, tickets[0].lsn);
    tickets.extend((2..120).map(long));
    journal.trim(tickets[119].lsn).unwrap();
    let spans = journal.sealed();
    assert!(spans.len() > 20, "{}", spans.len());
    spans.iter().for_each(|span| _ = journal.read_at(first_in(&tickets, span)).unwrap());
    let mut late = journal.read(first_in(&tickets, &spans[20])).unwrap();
    assert_eq!(late.next().unwrap().unwrap().lsn, first_in(&tickets, &spans[20]));
    // These wait to be used again.
    spans[1..4].iter().for_each(|span| journal.release(span.first).unwrap());
    let (files, room) = (disk.open_files(), disk.used_bytes());
    let released = [&spans[..1], &spans[4..]].concat();
    released.iter().for_each(|span| journal.release(span.first).unwrap());
    let unread = released.len() - 2;
    assert_eq!(room - disk.used_bytes(), unread as u64 * config.log_size, "at once, though both list them");
    // Of the others there is the file that a reader has, and the one that will be cut; of the first, two were open.
    assert_eq!(disk.open_files(), files - unread + 1);
    assert_eq!(early.next().unwrap().unwrap().lsn, tickets[1].lsn);
    let inside = tickets.iter().filter(|ticket| holds(&spans[20], ticket)).skip(1);
    inside.for_each(|ticket| assert_eq!(late.next().unwrap().unwrap().lsn, ticket.lsn));
    drop((early, late));
    assert_eq!(room - disk.used_bytes(), unread as u64 * config.log_size, "they have shut nothing");
    journal.maintain();
    assert_eq!(room - disk.used_bytes(), released.len() as u64 * config.log_size);
    assert_eq!(disk.open_files(), files - released.len() - 1);
}

/// Each of them has a writer for as long as it is listed.
#[test]
fn what_an_opening_has_written_anew_is_not_cut_under_its_reader() {
    let disk = SimDisk::new();
    // A segment is longer than what is read ahead.
    let config =
        Config { log_size: 192 << 10, max_buffer_log_size: 64 << 10, max_elapsed_sync_time: 1000, ..keeping() };
    let (journal, _) = open(&disk, 1, &config).unwrap();
    let tickets: Vec<Ticket> = (0..60_u64).map(|number| put(&*journal, &number.to_le_bytes().repeat(5000))).collect();
    drop(journal);
    disk.kill();
    let (journal, recovery) = open(&disk, 2, &config).unwrap();
    assert!(recovery.rescued_bytes > 8 * config.log_size, "{}", recovery.rescued_bytes);
    journal.sync().unwrap();
    journal.trim(tickets[59].lsn).unwrap();
    let spans = journal.sealed();
    let inside: Vec<Lsn> = tickets.iter().filter(|ticket| holds(&spans[1], ticket)).map(|ticket| ticket.lsn).collect();
    let mut walk = journal.read(inside[0]).unwrap();
    assert_eq!(walk.next().unwrap().unwrap().lsn, inside[0]);
    // The first ones wait to be used again.
    spans[2..].iter().for_each(|span| journal.release(span.first).unwrap());
    journal.release(spans[1].first).unwrap();
    inside[1..].iter().for_each(|lsn| assert_eq!(walk.next().unwrap().unwrap().lsn, *lsn));
    assert_eq!(journal.read_at(inside[0]).unwrap_err().kind(), Kind::NotFound);
}

/// A log that takes nothing more is read still, and gives back what was read when it was released.
#[test]
fn what_waits_for_its_reader_goes_also_once_the_journal_is_closed() {
    let disk = SimDisk::new();
    let config = Config { log_size: 192 << 10, max_buffer_log_size: 64 << 10, ..keeping() };
    let (journal, _) = open(&disk, 1, &config).unwrap();
    let tickets: Vec<Ticket> = (0..60_u64).map(|number| put(&*journal, &number.to_le_bytes().repeat(5000))).collect();
    journal.trim(tickets[59].lsn).unwrap();
    let spans = journal.sealed();
    let mut walk = journal.read(first_in(&tickets, &spans[6])).unwrap();
    walk.next().unwrap().unwrap();
    spans[1..].iter().for_each(|span| journal.release(span.first).unwrap());
    journal.close().unwrap();
    let room = disk.used_bytes();
    drop(walk);
    assert_eq!(disk.used_bytes(), room);
    journal.maintain();
    assert_eq!(room - disk.used_bytes(), config.log_size);
}
