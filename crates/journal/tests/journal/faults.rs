//! The disk fails: what was acknowledged stays, what was not is never acknowledged later, and nobody is fooled by the
//! page cache.

use std::sync::Arc;

use assent_journal::{BARRIERS, Config, Entry, Journal, JournalError, Log, State};
use assent_kind::Kind;
use assent_sim::{Call, Fault, Operation, Rng, SimDisk, Survival, fuzz};

use super::stage::{FOLDER, all, bytes, open, payloads, put, segments, small};

fn barrier(words: &str) -> assent_world::Barrier {
    *BARRIERS.iter().find(|barrier| barrier.label().contains(words)).unwrap()
}

#[test]
fn a_failed_sync_poisons_and_the_page_cache_is_no_evidence() {
    for (config, words) in [
        (small(), "a batch before"),
        (Config { direct: false, ..small() }, "a batch before"),
        (Config { max_elapsed_sync_time: 9, ..small() }, "the written backlog"),
    ] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk, 1, &config).unwrap();
        let kept = journal.append(1, &[b"kept"]).unwrap();
        journal.wait_durable(kept).unwrap();
        disk.inject(Call::at(barrier(words), 1), Fault::Io);
        let doubtful = journal.append(1, &[b"doubtful"]).unwrap();
        assert_eq!(journal.wait_durable(doubtful).unwrap_err().kind(), Kind::Closed);
        // No retry, no further acknowledgement; readers go on.
        assert_eq!(journal.state(), State::Closed);
        assert_eq!(journal.wait_durable(doubtful).unwrap_err().kind(), Kind::Closed);
        assert_eq!(journal.sync().unwrap_err().kind(), Kind::Closed);
        assert_eq!(journal.append(1, &[b"no"]).unwrap_err().kind(), Kind::Closed);
        assert_eq!(journal.close().unwrap_err().kind(), Kind::Closed);
        assert_eq!(journal.read_at(kept.lsn).unwrap().payload, b"kept");
        assert_eq!(payloads(&*journal)[0], b"kept");
        drop(journal);
        disk.kill();
        // The next process sees the page cache. Whatever it shows must survive the power from then on.
        let (journal, _) = open(&disk, 2, &config).unwrap();
        let shown = payloads(&*journal);
        drop(journal);
        disk.cut_power(Survival::Nothing);
        let (journal, _) = open(&disk, 3, &config).unwrap();
        assert_eq!(payloads(&*journal), shown, "{config:?}");
        assert_eq!(shown[0], b"kept");
    }
}

#[test]
fn a_full_disk_refuses_before_the_append_and_goes_on_by_itself() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"first");
    disk.set_capacity(Some(disk.used_bytes() + 3 * 5 * 4096));
    let mut written = 1;
    let error = loop {
        match journal.append(1, &[&[7; 1000]]) {
            Ok(ticket) => journal.wait(ticket).unwrap(),
            Err(error) => break error,
        }
        written += 1;
    };
    assert_eq!(error, JournalError::Full { folder: FOLDER.to_owned() });
    assert_eq!((journal.state(), all(&*journal).len()), (State::Full, written));
    // A long entry is refused before its first piece.
    let end = journal.end();
    assert_eq!(journal.append(1, &[&vec![1; 60_000]]).unwrap_err().kind(), Kind::Full);
    assert_eq!(journal.end(), end);
    journal.maintain();
    assert_eq!(journal.state(), State::Full);
    disk.set_capacity(None);
    put(&*journal, &[8; 1000]);
    assert_eq!((journal.state(), all(&*journal).len()), (State::Open, written + 1));
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(all(&*open(&disk, 2, &small()).unwrap().0).len(), written + 1);
}

#[test]
fn an_unclosed_chain_is_invisible_and_dropped() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    put(&*journal, b"before");
    disk.inject(Call::at(barrier("a batch before"), 4), Fault::Io);
    assert_eq!(journal.append(1, &[&vec![9; 60_000]]).unwrap_err().kind(), Kind::Closed);
    assert_eq!(payloads(&*journal), [b"before"]);
    let pieces = journal.durable();
    assert!(pieces.0 > 10_000, "some pieces were laid");
    drop(journal);
    disk.kill();
    let (journal, recovery) = open(&disk, 2, &small()).unwrap();
    assert_eq!((payloads(&*journal), recovery.entries), (vec![b"before".to_vec()], 1));
    // The next opening's first chain has the same id.
    put(&*journal, &vec![5; 40_000]);
    assert_eq!(payloads(&*journal), [b"before".to_vec(), vec![5; 40_000]]);
}

#[test]
fn whatever_call_fails_nothing_acknowledged_is_lost_and_what_is_shown_stays() {
    let configs = [
        small(),
        Config { direct: false, ..small() },
        Config { max_elapsed_sync_time: 3, ..small() },
        // On a disk that history fills.
        Config { archive_bytes_max: u64::MAX, ..small() },
    ];
    for (number, config) in configs.iter().enumerate() {
        for fault in [Fault::Io, Fault::Full, Fault::Short] {
            for nth in 1..240 {
                one_fault(config, fault, nth, u64::try_from(number).unwrap());
            }
        }
    }
}

fn one_fault(config: &Config, fault: Fault, nth: u64, seed: u64) {
    let story = format!("{fault:?} at call {nth}, {config:?}");
    let disk = SimDisk::new();
    if config.archive_bytes_max > 0 {
        disk.set_capacity(Some(4 * config.log_size));
    }
    disk.inject(Call::any(nth), fault);
    let mut acknowledged = Vec::new();
    let mut rng = Rng::new(nth);
    if let Ok((journal, _)) = open(&disk, seed, config) {
        for number in 0..40_u8 {
            let size = usize::try_from(if number == 20 { 20_000 } else { rng.range(10..1500) }).unwrap();
            let Ok(ticket) = journal.append(1, &[&vec![number; size]]) else { continue };
            if journal.wait_durable(ticket).is_ok() {
                acknowledged.push((ticket.lsn, vec![number; size]));
            }
            journal.maintain();
            if number % 16 == 15 {
                _ = journal.trim(acknowledged.get(3).map_or(journal.start(), |(lsn, _)| *lsn));
            }
        }
        if let (Some((lsn, payload)), Ok(entry)) =
            (acknowledged.last(), acknowledged.last().map_or(Ok(None), |(lsn, _)| journal.read_at(*lsn).map(Some)))
        {
            assert_eq!(entry.map(|entry| entry.payload).as_ref(), Some(payload), "{story}: {lsn}");
        }
    }
    disk.kill();
    // What lives may have filled it.
    disk.set_capacity(None);
    let journal = reopen(&disk, 77, config, &story);
    let shown = read(&journal).or_else(|_| read(&journal)).unwrap();
    for (lsn, payload) in &acknowledged {
        let trimmed = *lsn < journal.start();
        assert!(trimmed || shown.iter().any(|e| e.lsn == *lsn && e.payload == *payload), "{story}: {lsn} is lost");
    }
    let start = journal.start();
    drop(journal);
    disk.cut_power(Survival::Nothing);
    let journal = reopen(&disk, 79, config, &story);
    let mut left = read(&journal).or_else(|_| read(&journal)).unwrap();
    left.retain(|entry| entry.lsn >= start);
    assert_eq!(left, shown, "{story}: what an open showed is gone");
}

fn read(journal: &Journal) -> Result<Vec<Entry>, JournalError> {
    journal.read(journal.start())?.collect()
}

/// Opens; the fault may strike here, once: then the process ends and the next one opens.
fn reopen(disk: &SimDisk, seed: u64, config: &Config, story: &str) -> Arc<Journal> {
    let again = |_| {
        disk.kill();
        open(disk, seed + 1, config)
    };
    open(disk, seed, config).or_else(again).unwrap_or_else(|error| panic!("{story}: {error}")).0
}

#[test]
fn a_failing_folder_sync_stops_trimming_but_not_the_journal() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let tickets: Vec<_> = (0..100).map(|_| put(&*journal, &[7; 1000])).collect();
    disk.inject(Call::at(barrier("a trimmed segment"), 1), Fault::Io);
    assert!(journal.trim(tickets[90].lsn).is_err());
    assert!(journal.trim(tickets[90].lsn).is_err(), "whether the first is gone is unknown: no other may go");
    put(&*journal, b"goes on");
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert!(all(&*open(&disk, 2, &small()).unwrap().0).len() >= 90);
}

#[test]
fn short_writes_and_reads_are_completed() {
    let disk = SimDisk::new();
    for nth in 1..12 {
        disk.inject(Call::of(Operation::WriteDurable, nth), Fault::Short);
        disk.inject(Call::of(Operation::Read, nth * 3), Fault::Short);
    }
    let (journal, _) = open(&disk, 1, &small()).unwrap();
    let expected: Vec<_> = (0..30_u8).map(|number| vec![number; 700]).collect();
    expected.iter().for_each(|payload| _ = put(&*journal, payload));
    assert_eq!(payloads(&*journal), expected);
}

#[test]
fn fuzz_recovery_takes_any_bytes() {
    let disk = SimDisk::new();
    let config = Config { log_size: 9 * 4096, ..small() };
    let (journal, _) = open(&disk, 1, &config).unwrap();
    for number in 0..30_u8 {
        put(&*journal, &vec![number; usize::from(number) * 20]);
    }
    put(&*journal, &vec![9; 9_000]);
    journal.close().unwrap();
    let folder = |segment: &str| {
        let mut good = bytes(&disk, &format!("{FOLDER}/epochs"));
        assert_eq!(good.len(), 8192);
        good.extend(bytes(&disk, segment));
        good
    };
    let good = folder(&segments(&disk)[0]);
    let runs = fuzz(7, &[&good, &good[..8192 + 4096], b"x"], assent_journal::fuzzing::fuzz_recovery);
    assert!(runs > 1000, "{runs} inputs");
}
