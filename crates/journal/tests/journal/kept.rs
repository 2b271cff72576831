//! Trimmed and kept until released: each stretch for itself, in any order, and a hole never shows what once stood there.

use std::path::Path;
use std::sync::Arc;

use assent_ids::Lsn;
use assent_journal::{Config, Entry, Journal, JournalError, Kept, Leaves, Log, Span, State, Ticket};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, SimClock, SimDisk, Survival};
use assent_world::Disk;

use super::stage::{FOLDER, in_two_files, open, put, small};

pub(super) fn keeping() -> Config {
    Config { kept_until_released: true, ..small() }
}

/// Entries of 1000 bytes, each of its number; some segments full.
fn fill(journal: &Journal, numbers: std::ops::Range<u8>) -> Vec<Ticket> {
    numbers.map(|number| put(journal, &[number; 1000])).collect()
}

pub(super) fn holds(span: &Span, ticket: &Ticket) -> bool {
    span.first <= ticket.lsn && ticket.lsn < span.end
}

/// The next opening of the same folder, after the process died.
fn again(journal: Arc<Journal>, disk: &SimDisk, seed: u64) -> Arc<Journal> {
    drop(journal);
    disk.kill();
    open(disk, seed, &keeping()).unwrap().0
}

#[test]
fn each_stretch_is_released_for_itself_and_stays_gone() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&journal, 0..100);
    journal.trim(tickets[90].lsn).unwrap();
    let spans = journal.sealed();
    assert!(spans.len() > 4 && spans[0].first == Lsn(0), "{spans:?}");
    assert!(spans.windows(2).all(|two| two[0].end == two[1].first), "{spans:?}");
    assert_eq!((spans[spans.len() - 1].end, spans[0].bytes), (journal.start(), small().log_size));
    let mut gone: Vec<Span> = Vec::new();
    for (life, index) in [3, 0, 2].into_iter().enumerate() {
        journal.release(spans[index].first).unwrap();
        gone.push(spans[index]);
        if life == 1 {
            journal = again(journal, &disk, 2);
        }
        let left: Vec<Span> = spans.iter().filter(|span| !gone.contains(span)).copied().collect();
        assert_eq!(journal.sealed(), left);
        for (ticket, number) in tickets.iter().zip(0..) {
            let found = journal.read_at(ticket.lsn);
            if gone.iter().any(|span| holds(span, ticket)) {
                assert_eq!(found.unwrap_err(), JournalError::NotFound { lsn: ticket.lsn });
            } else {
                assert_eq!(found.unwrap().payload, [number; 1000]);
            }
        }
    }
    let twice = journal.release(spans[3].first).unwrap_err();
    assert_eq!(twice.kind(), Kind::NotFound, "it is gone already");
    assert_eq!(
        journal.release(journal.start()).unwrap_err().kind(),
        Kind::NotFound,
        "the live log is nobody's to release"
    );
    assert_eq!(journal.release(Lsn(spans[1].first.0 + 8)).unwrap_err().kind(), Kind::NotFound);
    // A walk says where the hole is and goes on behind it, as over any archive.
    let before: Vec<_> = journal.read(spans[1].first).unwrap().collect();
    let error = before.last().unwrap().clone().unwrap_err();
    let hole = format!("the log from {} to {} is missing", spans[2].first, spans[4].first);
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains(&hole), "{error}");
    let behind: Vec<Entry> = journal.read(spans[4].first).unwrap().map(Result::unwrap).collect();
    assert_eq!((behind[0].lsn, behind.last().unwrap().lsn), (first_in(&tickets, &spans[4]), tickets[99].lsn));
    // Offline it is all there is, and nothing can be released.
    let clock = SimClock::new();
    let (offline, _) = Journal::open_read_only(Arc::new(disk), &clock, Path::new(FOLDER)).unwrap();
    assert_eq!(offline.sealed(), journal.sealed());
    assert_eq!(offline.release(spans[1].first).unwrap_err().kind(), Kind::Closed);
}

pub(super) fn first_in(tickets: &[Ticket], span: &Span) -> Lsn {
    tickets.iter().find(|ticket| holds(span, ticket)).unwrap().lsn
}

#[test]
fn released_files_become_segments_again_and_room() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    for round in 0..40_u8 {
        let tickets: Vec<Ticket> = (0..10).map(|_| put(&*journal, &[round; 1000])).collect();
        journal.trim(tickets[9].lsn).unwrap();
        for span in journal.sealed() {
            journal.release(span.first).unwrap();
        }
        journal.maintain();
        assert_eq!(journal.read_at(tickets[9].lsn).unwrap().payload, [round; 1000]);
    }
    assert!(disk.used_bytes() <= 6 * small().log_size, "{}", disk.used_bytes());
    assert_eq!(journal.sealed(), []);
}

#[test]
fn without_the_setting_the_log_itself_decides_and_releases_nothing() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &Config { archive_bytes_max: 1 << 20, ..small() }).unwrap();
    let tickets = fill(&journal, 0..60);
    journal.trim(tickets[50].lsn).unwrap();
    assert_eq!(journal.sealed(), []);
    assert_eq!(journal.release(Lsn(0)).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(journal.read_at(tickets[0].lsn).unwrap().payload, [0; 1000]);
    // To an opening that keeps until released, what was archived is kept like the rest.
    let journal = again(journal, &disk, 2);
    assert!(journal.sealed().len() > 2);
    journal.release(Lsn(0)).unwrap();
    assert_eq!(journal.read_at(tickets[0].lsn).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_long_entry_is_gone_with_any_stretch_that_it_crosses_and_hides_nothing_else() {
    for released in 0..3 {
        let disk = SimDisk::new();
        let (mut journal, _) = open(&disk, 1, &keeping()).unwrap();
        fill(&journal, 0..10);
        let long = journal.append(1, &[&[77; 50_000]]).unwrap();
        let tickets = fill(&journal, 10..40);
        journal.trim(tickets[29].lsn).unwrap();
        let crossed: Vec<Span> =
            journal.sealed().into_iter().filter(|span| span.first < long.end && span.end > long.lsn).collect();
        assert!(crossed.len() > 2, "{crossed:?}");
        assert_eq!(journal.read_at(long.lsn).unwrap().payload, vec![77; 50_000]);
        let at = [0, 1, crossed.len() - 1][released];
        journal.release(crossed[at].first).unwrap();
        for life in 0..2 {
            let gone = journal.read_at(long.lsn).unwrap_err();
            assert_eq!(gone.kind(), Kind::NotFound, "{gone}");
            let next = journal.sealed().into_iter().map(|span| span.first).find(|first| *first > crossed[at].first);
            let behind = next.unwrap_or(journal.start());
            for entries in [journal.read(behind).unwrap(), journal.begun(behind, journal.end(), journal.end()).unwrap()]
            {
                let found: Vec<Entry> = entries.map(Result::unwrap).collect();
                assert_eq!(found.last().map(|entry| entry.payload[0]), Some(39));
                assert!(found.iter().all(|entry| entry.payload.len() == 1000), "no half of a long one");
            }
            if at > 0 {
                // It begins in what is there, and may be complete: nobody takes the others for all that begins there. Who knows that nothing
                // goes on behind, or that it is not there, says so.
                let Span { first, end, .. } = crossed[0];
                let mut begun: Vec<_> = journal.begun(first, end, Lsn(u64::MAX)).unwrap().collect();
                assert_eq!(begun.pop().unwrap().unwrap_err().kind(), Kind::Corrupt);
                let others: Vec<Entry> = begun.into_iter().map(Result::unwrap).collect();
                let by_its_end: Vec<Entry> = journal.begun(first, end, end).unwrap().map(Result::unwrap).collect();
                assert!(others == by_its_end && others.iter().all(|entry| entry.payload.len() == 1000));
            }
            if life == 0 {
                journal = again(journal, &disk, 2);
            }
        }
    }
}

#[test]
fn a_segment_whose_end_was_taken_over_does_not_show_again_what_stands_behind() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let first = fill(&journal, 0..5);
    drop(journal);
    disk.kill();
    // Nobody claims that the last one is durable: an open of an earlier release copied it, and the old file kept its own.
    in_two_files(&disk, first[3].end).unwrap();
    let (journal, _) = open(&disk, 2, &keeping()).unwrap();
    let tickets = fill(&journal, 5..60);
    journal.trim(tickets[50].lsn).unwrap();
    let spans = journal.sealed();
    let short = spans.iter().position(|span| span.end.0 - span.first.0 < 4 * 4096).unwrap();
    assert!(holds(&spans[short + 1], &first[4]), "the tail was taken over: {spans:?}");
    journal.release(spans[short + 1].first).unwrap();
    let left = journal.sealed();
    assert_eq!(left[short], spans[short]);
    assert_eq!(journal.read_at(first[4].lsn).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(journal.read_at(first[0].lsn).unwrap().payload, [0; 1000]);
    let journal = again(journal, &disk, 3);
    assert_eq!(journal.sealed()[..left.len()], left[..]);
    assert_eq!(journal.read_at(first[4].lsn).unwrap_err().kind(), Kind::NotFound, "also after a restart");
    let hole = journal.read(Lsn(0)).unwrap().last().unwrap().unwrap_err();
    assert!(hole.to_string().contains(&format!("the log from {} to", spans[short].end)), "{hole}");
}

#[test]
fn a_full_disk_takes_nothing_that_is_kept_and_a_release_makes_room() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&journal, 0..60);
    journal.trim(tickets[40].lsn).unwrap();
    let kept = journal.sealed();
    disk.set_capacity(Some(disk.used_bytes()));
    let more = (60..120).take_while(|number| journal.append(1, &[&[*number; 1000]]).is_ok()).count();
    assert!(more < 60);
    assert_eq!((journal.state(), journal.sealed()), (State::Full, kept.clone()));
    journal.sync().unwrap();
    journal.release(kept[1].first).unwrap();
    put(&*journal, &[7; 4000]);
    assert_eq!(journal.state(), State::Open);
    // Nor does an open on a full disk.
    let kept = journal.sealed();
    drop(journal);
    disk.kill();
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(open(&disk, 2, &keeping()).unwrap_err().kind(), Kind::Full);
    disk.set_capacity(None);
    let (journal, _) = open(&disk, 3, &keeping()).unwrap();
    assert_eq!(journal.sealed()[..kept.len()], kept[..]);
}

#[test]
fn what_is_to_stay_free_is_taken_for_no_segment_but_one_that_waits_needs_none() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let (tickets, log_size) = (fill(&journal, 0..60), small().log_size);
    journal.trim(tickets[40].lsn).unwrap();
    let kept = journal.sealed();
    disk.set_capacity(Some(disk.used_bytes() + 40 * log_size));
    let free = || disk.room(Path::new(FOLDER)).unwrap().unwrap().free_bytes;
    let append = || journal.append_leaving(1, &[&[7; 1000]], Leaves::Room { room_bytes: 0, spare_bytes: 0 });
    let fill_up = || {
        while append().is_ok() {}
        assert_eq!(journal.state(), State::Full);
        free()
    };
    journal.leave_free(2 * log_size);
    assert!((2 * log_size..3 * log_size).contains(&fill_up()));
    journal.sync().unwrap();
    journal.release(kept[0].first).unwrap();
    append().unwrap();
    assert!((2 * log_size..3 * log_size).contains(&fill_up()), "it was used again");
    // What may not be refused takes what there is.
    journal.append(1, &[&[8; 1000]]).unwrap();
    assert!((log_size..2 * log_size).contains(&free()) && append().is_ok());
    while journal.append(1, &[&[8; 1000]]).is_ok() {}
    assert!(free() < log_size && append().is_err());
    // What is to stay free is free first: a released one goes then.
    journal.sync().unwrap();
    journal.release(kept[1].first).unwrap();
    assert_eq!(journal.waiting().map(|(waiting, _)| waiting), Some(0));
    // However much is wished for, no more than an eighth.
    disk.set_capacity(Some(disk.used_bytes() * 2));
    journal.leave_free(u64::MAX);
    let eighth = disk.room(Path::new(FOLDER)).unwrap().unwrap().bytes / 8;
    assert!((eighth..eighth + log_size).contains(&fill_up()));
}

/// Where nobody makes segments ahead it is made by who is to leave its room; else he asks the disk, and does not wait for it.
#[test]
fn what_is_left_to_others_is_left_once_the_disk_has_no_room_for_another_segment() {
    for has_keeper in [false, true] {
        let disk = SimDisk::new();
        let log_size = 65 * 4096;
        let (journal, _) = open(&disk, 1, &Config { log_size, ..keeping() }).unwrap();
        if has_keeper {
            // One that is late.
            Kept::tell_keeper(&*journal, &Arc::default());
        }
        let append = |spare_bytes| {
            let ticket = journal.append_leaving(1, &[&[7; 1000]], Leaves::Room { room_bytes: 0, spare_bytes })?;
            journal.wait(ticket)
        };
        let segments = || journal.counts().segments;
        let before = segments();
        let count = (0..).take_while(|_| append(log_size / 2).is_ok() && segments() == before).count();
        assert!(if has_keeper { 180..260 } else { 90..130 }.contains(&count), "{has_keeper}: {count}");
        // Others have taken the disk.
        disk.set_capacity(Some(disk.used_bytes() + log_size / 2));
        journal.leave_free(log_size);
        while append(log_size / 2).is_ok() {}
        let left = (0..).take_while(|_| append(0).is_ok()).count();
        assert!(left > 90 && segments() == before + 1, "{has_keeper}: {left}, {}", segments());
    }
}

#[test]
fn a_refused_release_ends_trimming_until_the_next_open_knows() {
    for operation in [Operation::Rename, Operation::SyncDir] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &keeping()).unwrap();
        let tickets = fill(&journal, 0..60);
        journal.trim(tickets[50].lsn).unwrap();
        let spans = journal.sealed();
        disk.inject(Call::of(operation, 1), Fault::Io);
        journal.release(spans[1].first).unwrap_err();
        assert_ne!(journal.release(spans[2].first).unwrap_err().kind(), Kind::NotFound, "no other may go");
        put(&*journal, b"the live log goes on");
        drop(journal);
        disk.cut_power(Survival::Nothing);
        let (journal, _) = open(&disk, 2, &keeping()).unwrap();
        // It may be gone or not; no other is.
        let left = journal.sealed();
        let others: Vec<Span> = spans.iter().filter(|span| **span != spans[1]).copied().collect();
        assert!(left == spans || left == others, "{operation:?}: {left:?}");
        journal.release(spans[2].first).unwrap();
    }
}

/// A name that finds no room is as it was: the journal stood still until it was opened again, though room had been made long ago.
#[test]
fn where_there_is_no_room_for_a_name_nothing_is_changed_and_the_next_try_counts() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&journal, 0..60);
    let full =
        |what: &str, tried: Result<(), JournalError>| assert_eq!(tried.unwrap_err().kind(), Kind::Full, "{what}");
    disk.inject(Call::of(Operation::Rename, 2), Fault::Full);
    full("the second that is trimmed", journal.trim(tickets[50].lsn));
    assert_eq!(journal.sealed().len(), 1);
    journal.trim(tickets[50].lsn).unwrap();
    let spans = journal.sealed();
    assert!(spans.len() > 2);
    disk.inject(Call::of(Operation::Rename, 1), Fault::Full);
    full("one that is released", journal.release(spans[1].first));
    assert_eq!(journal.sealed(), spans, "it is there");
    assert_eq!(journal.read_at(first_in(&tickets, &spans[1])).unwrap().payload.len(), 1000);
    journal.release(spans[1].first).unwrap();
    assert_eq!(journal.sealed().len(), spans.len() - 1);
    // A new segment's name: the append is refused, and the next one has it.
    let before = journal.counts().segments;
    disk.inject(Call::of(Operation::Rename, 1), Fault::Full);
    let refused = (0..40).find_map(|_| journal.append(1, &[&[7; 1000]]).and_then(|ticket| journal.wait(ticket)).err());
    let went_on = fill(&journal, 0..40);
    assert!(refused.is_none_or(|error| error.kind() == Kind::Full) && journal.counts().segments > before);
    let journal = again(journal, &disk, 2);
    assert_eq!(journal.read_at(went_on[39].lsn).unwrap().payload, [39; 1000]);
    assert_eq!(journal.sealed().len(), spans.len() - 1);
}

#[test]
fn once_it_was_closed_it_changes_nothing_in_a_folder_that_may_be_anothers() {
    let disk = SimDisk::new();
    let (old, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&old, 0..60);
    old.trim(tickets[20].lsn).unwrap();
    let spans = old.sealed();
    old.close().unwrap();
    let (new, _) = open(&disk, 2, &keeping()).unwrap();
    let names = disk.list(Path::new(FOLDER)).unwrap();
    assert_eq!(old.trim(tickets[50].lsn).unwrap_err().kind(), Kind::Closed);
    assert_eq!(old.release(spans[0].first).unwrap_err().kind(), Kind::Closed);
    assert_eq!(disk.list(Path::new(FOLDER)).unwrap(), names);
    new.release(spans[0].first).unwrap();
}

#[test]
fn a_reader_under_way_keeps_its_file_whoever_opens_others_meanwhile() {
    let disk = SimDisk::new();
    // A segment is longer than what is read ahead.
    let config = Config { log_size: 192 << 10, max_buffer_log_size: 64 << 10, ..keeping() };
    let (journal, _) = open(&disk, 1, &config).unwrap();
    let tickets: Vec<Ticket> = (0..600_u64).map(|number| put(&*journal, &number.to_le_bytes().repeat(5000))).collect();
    journal.trim(tickets[599].lsn).unwrap();
    let spans = journal.sealed();
    let mut reader = journal.read(Lsn(0)).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().lsn, tickets[0].lsn);
    // More files than are kept open: the first one's reader is shut, and then it is gone.
    assert!(spans.len() > 135, "{}", spans.len());
    for span in &spans[1..] {
        journal.read_at(first_in(&tickets, span)).unwrap();
    }
    // As many as may wait to be used again do: the first one's room comes back, but not under its reader.
    while journal.waiting().is_some_and(|(waiting, most)| waiting < most) {
        journal.release(journal.sealed()[1].first).unwrap();
    }
    journal.release(spans[0].first).unwrap();
    let inside: Vec<Ticket> = tickets.iter().skip(1).filter(|ticket| holds(&spans[0], ticket)).copied().collect();
    for ticket in &inside {
        assert_eq!(reader.next().unwrap().unwrap().lsn, ticket.lsn);
    }
    assert_eq!(journal.read_at(inside[0].lsn).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn a_read_that_knows_the_length_is_one_read_and_a_wrong_guess_only_costs_another() {
    let disk = SimDisk::new();
    let config = Config { log_size: 256 << 10, max_buffer_log_size: 64 << 10, ..keeping() };
    let (journal, _) = open(&disk, 1, &config).unwrap();
    let payload: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).take(20_000).collect();
    let ticket = put(&*journal, &payload);
    let small = put(&*journal, b"small");
    let long = put(&*journal, &[9; 200_000]);
    for (said, calls) in [(20_000, 1), (24_000, 1), (19_000, 2), (0, 2)] {
        let before = disk.calls();
        assert_eq!(journal.read_at_sized(ticket.lsn, said).unwrap().payload(), payload);
        assert_eq!(disk.calls() - before, calls, "{said} said of 20000");
    }
    for (lsn, said) in [(ticket.lsn, 20_000), (small.lsn, 5), (small.lsn, 1 << 30), (long.lsn, 200_000), (long.lsn, 3)]
    {
        let fetched = journal.read_at_sized(lsn, said).unwrap();
        assert_eq!(Entry::from(fetched.clone()), journal.read_at(lsn).unwrap());
        let (bytes, from) = fetched.clone().into_bytes();
        assert_eq!(bytes[from..], *fetched.payload());
    }
    let inside = Lsn(ticket.lsn.0 + 8);
    assert_eq!(journal.read_at_sized(inside, 20_000).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn entries_come_in_the_order_in_which_they_begin_when_asked_so() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..3_u8 {
            let journal = &journal;
            scope.spawn(move || {
                for round in 0..12_usize {
                    let bytes = if number == 0 { 60_000 } else { 300 + round };
                    put(&**journal, &vec![number; bytes]);
                }
            });
        }
    });
    let mut complete: Vec<Entry> = journal.read(Lsn(0)).unwrap().map(Result::unwrap).collect();
    let begun: Vec<Entry> = journal.begun(Lsn(0), journal.end(), Lsn(u64::MAX)).unwrap().map(Result::unwrap).collect();
    complete.sort_by_key(|entry| entry.lsn);
    assert_eq!(begun.len(), 36);
    assert!(begun == complete, "the same entries, by where they begin");
    let (from, to) = (begun[7].lsn, begun[20].lsn);
    let part: Vec<Lsn> = journal.begun(from, to, journal.end()).unwrap().map(|entry| entry.unwrap().lsn).collect();
    assert_eq!(part, begun[7..20].iter().map(|entry| entry.lsn).collect::<Vec<_>>());
    // One that begins within and ends behind is there.
    let long = begun.iter().rposition(|entry| entry.payload.len() == 60_000).unwrap();
    let just = journal.begun(begun[long].lsn, Lsn(begun[long].lsn.0 + 8), Lsn(u64::MAX)).unwrap();
    assert_eq!(just.map(|entry| entry.unwrap().payload.len()).collect::<Vec<_>>(), [60_000]);
}

#[test]
fn a_stretch_that_cannot_be_read_at_the_open_fails_it_and_one_that_is_damaged_does_not() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&journal, 0..60);
    journal.trim(tickets[50].lsn).unwrap();
    let spans = journal.sealed();
    drop(journal);
    disk.kill();
    let mut failed = 0;
    for operation in [Operation::Open, Operation::Read] {
        for nth in 1..80 {
            let disk = disk.copy();
            disk.inject(Call::of(operation, nth), Fault::Io);
            match open(&disk, 2, &keeping()) {
                Ok((journal, _)) => assert_eq!(journal.sealed(), spans, "{operation} {nth}"),
                Err(_) => failed += 1,
            }
        }
    }
    assert!(failed > 2 * spans.len(), "{failed}");
    let oldest = format!("{FOLDER}/{:016x}.kept", spans[0].first.0);
    super::stage::rot(&disk, &oldest, 0, &[0x5a; 64]);
    let (journal, _) = open(&disk, 3, &keeping()).unwrap();
    assert_eq!((journal.sealed(), journal.oldest()), (spans[1..].to_vec(), spans[1].first));
}

#[test]
fn what_an_owner_has_to_release_is_removed_by_no_opening_of_another_kind() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&journal, 0..120);
    journal.trim(tickets[100].lsn).unwrap();
    let spans = journal.sealed();
    assert!(spans.len() > 3, "{spans:?}");
    drop(journal);
    disk.kill();
    let kept = || {
        let names = disk.list(Path::new(FOLDER)).unwrap();
        names.into_iter().filter(|name| name.ends_with(".kept")).count()
    };
    for (seed, archive_bytes_max) in [(2, 0), (3, 6 * small().log_size)] {
        let (journal, _) = open(&disk, seed, &Config { archive_bytes_max, ..small() }).unwrap();
        let more = fill(&journal, 60..120);
        journal.trim(more[50].lsn).unwrap();
        assert_eq!(kept(), spans.len(), "a trim removes its own");
        // Nor does a full disk: the log stands still.
        disk.set_capacity(Some(disk.used_bytes()));
        let appended = (0..3000).take_while(|_| journal.append(1, &[&[7; 1000]]).is_ok()).count();
        assert!(appended < 3000, "{appended}");
        assert_eq!(kept(), spans.len());
        drop(journal);
        disk.kill();
        disk.set_capacity(Some(disk.used_bytes()));
        _ = open(&disk, seed + 10, &small());
        assert_eq!(kept(), spans.len(), "nor an open on a full disk");
        disk.kill();
        disk.set_capacity(None);
    }
    let (journal, _) = open(&disk, 4, &keeping()).unwrap();
    assert_eq!(journal.sealed()[..spans.len()], spans[..]);
    for (ticket, number) in tickets.iter().zip(0..).filter(|(ticket, _)| ticket.lsn < spans[spans.len() - 1].first) {
        assert_eq!(journal.read_at(ticket.lsn).unwrap().payload, [number; 1000]);
    }
}

#[test]
fn a_walk_that_somebody_has_left_standing_keeps_no_file_of_what_is_released() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets: Vec<Ticket> = (0..3).flat_map(|_| fill(&journal, 0..150)).collect();
    journal.trim(tickets[440].lsn).unwrap();
    // It lists every stretch, and has read the first.
    let mut walk = journal.read(journal.oldest()).unwrap();
    assert_eq!(walk.next().unwrap().unwrap().lsn, tickets[0].lsn);
    let (spans, files, room) = (journal.sealed(), disk.open_files(), disk.used_bytes());
    assert!(spans.len() > 16, "{spans:?}");
    for span in &spans {
        journal.release(span.first).unwrap();
    }
    assert!(disk.open_files() <= files, "{} files, {files} before", disk.open_files());
    let back = room - disk.used_bytes();
    assert!(back >= (spans.len() as u64 - 10) * small().log_size, "{back} bytes of {} stretches", spans.len());
    drop(walk);
}

#[test]
fn what_is_released_under_a_reader_waits_for_him_and_is_used_again() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &keeping()).unwrap();
    let tickets = fill(&journal, 0..100);
    journal.trim(tickets[90].lsn).unwrap();
    let waiting = || disk.list(Path::new(FOLDER)).unwrap().iter().filter(|name| name.starts_with("recycled-")).count();
    let spans = journal.sealed();
    let mut walk = journal.read(journal.oldest()).unwrap();
    assert_eq!(walk.next().unwrap().unwrap().payload, [0; 1000]);
    spans.iter().take(3).for_each(|span| journal.release(span.first).unwrap());
    assert_eq!(waiting(), 3, "their names are gone, they are not");
    // New segments are made beside them, and what he reads stays what it was.
    let more = fill(&journal, 100..140);
    assert_eq!(waiting(), 3);
    let first = tickets.iter().filter(|ticket| holds(&spans[0], ticket)).count();
    for number in 1..first {
        assert_eq!(walk.next().unwrap().unwrap().payload, [u8::try_from(number).unwrap(); 1000]);
    }
    drop(walk);
    journal.trim(more[30].lsn).unwrap();
    fill(&journal, 140..250);
    assert_eq!(waiting(), 0, "nobody reads them any more");
}

#[test]
fn what_waits_to_be_used_again_is_told_and_no_more_than_a_few_where_new_ones_cost_no_zeroes() {
    for (max_elapsed_sync_time, most) in [(0, 8), (1000, 3)] {
        let disk = SimDisk::new();
        let config = Config { max_elapsed_sync_time, ..keeping() };
        let (journal, _) = open(&disk, 1, &config).unwrap();
        let tickets: Vec<Ticket> = (0..16).flat_map(|_| fill(&journal, 0..250)).collect();
        journal.sync().unwrap();
        journal.trim(tickets[3990].lsn).unwrap();
        // The first blocks of what is sealed are no room behind the end, and go with it.
        let (ahead, sealed) = (journal.idle_bytes(), journal.sealed());
        let begins = u64::try_from(sealed.len()).unwrap() * 4096;
        assert!(ahead - begins < 3 * config.log_size, "{} bytes behind the end", ahead - begins);
        sealed.iter().for_each(|span| journal.release(span.first).unwrap());
        let idle = journal.idle_bytes() + begins - ahead;
        assert_eq!(idle, most * config.log_size, "sync after {max_elapsed_sync_time} ms");
    }
}

/// Who asks need not read all that is before.
#[test]
fn a_segment_says_where_the_last_entry_before_it_ends_if_none_goes_on_in_it() {
    let disk = SimDisk::new();
    let (mut journal, _) = open(&disk, 1, &keeping()).unwrap();
    let mut tickets = fill(&journal, 0..40);
    // Of more than two segments; others stand in between only where several append.
    tickets.push(put(&*journal, &vec![7; 50_000]));
    tickets.extend(fill(&journal, 40..60));
    journal = again(journal, &disk, 2);
    tickets.extend(fill(&journal, 60..100));
    journal.trim(tickets[95].lsn).unwrap();
    let spans = journal.sealed();
    let expected = |at: Lsn| {
        let before = tickets.iter().filter(|ticket| ticket.lsn < at).map(|ticket| ticket.end).max()?;
        (before <= at).then_some(before)
    };
    let expected: Vec<_> = spans.iter().map(|span| expected(span.end)).collect();
    let said = |log: &dyn Log| spans.iter().map(|span| log.divided(span.end).unwrap()).collect::<Vec<_>>();
    assert!(expected.iter().flatten().count() > 4 && expected.iter().any(Option::is_none), "{expected:?}");
    assert_eq!(said(&*journal), expected);
    assert_eq!(journal.divided(tickets[1].lsn).unwrap(), None, "no segment begins there");
    assert_eq!(said(&*again(journal, &disk, 3)), expected);
    let (offline, _) = Journal::open_read_only(Arc::new(disk), &SimClock::new(), Path::new(FOLDER)).unwrap();
    assert_eq!(said(&offline), expected);
}
