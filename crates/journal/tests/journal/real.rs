//! Real threads on a real disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_journal::{Config, Journal, JournalError, Keeper, Log, Recovery};
use assent_world::{Clock, RealClock, RealDice, RealDisk};

fn open(folder: &Path, config: Config) -> Result<(Arc<Journal>, Recovery), JournalError> {
    Journal::open(Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice), folder, config)
}

/// Appends from many threads, some of it long; returns what was acknowledged.
fn crowd(journal: &Journal, threads: u64, each: u64) -> Vec<(u64, Vec<u8>)> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    for number in 0..each {
                        let long = thread % 16 == 3 && number % 8 == 5;
                        let size = if long { 150_000 } else { 40 + (thread * 31 + number * 7) % 400 };
                        let mut payload = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                        payload.resize(usize::try_from(size).unwrap(), thread.to_le_bytes()[0]);
                        let ticket = journal.append(3, &[&payload]).unwrap();
                        journal.wait(ticket).unwrap();
                        acknowledged.push((ticket.lsn.0, payload));
                    }
                    acknowledged
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn what_sixty_four_threads_were_promised_is_there_after_a_reopen() {
    let base = Config { log_size: 256 << 10, max_buffer_log_size: 64 << 10, ..Config::default() };
    for config in [
        base.clone(),
        Config { writes_in_flight: 4, dsync: true, ..base.clone() },
        Config { direct: false, ..base.clone() },
        Config { max_elapsed_sync_time: 5, ..base },
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = open(folder.path(), config.clone()).unwrap();
        let keeper = Keeper::start(Arc::clone(&journal), Arc::new(RealClock));
        let stop = AtomicBool::new(false);
        let mut acknowledged = std::thread::scope(|scope| {
            // A reader looks on and sees only whole entries, in order.
            let reader = scope.spawn(|| {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds == 0 {
                    let ends = journal.read(journal.start()).unwrap().map(|entry| entry.unwrap().end);
                    assert!(ends.is_sorted());
                    rounds += 1;
                }
            });
            let acknowledged = crowd(&journal, 64, 24);
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            acknowledged
        });
        let counts = journal.counts();
        assert_eq!(counts.entries, 64 * 24);
        if config.lazy() {
            assert!(counts.syncs < counts.writes);
        } else {
            assert!(counts.syncs < 64 * 24, "a group shares a sync: {counts:?}");
        }
        // Without a close, as after a kill.
        keeper.stop();
        drop(journal);
        let (journal, recovery) = open(folder.path(), config.clone()).unwrap();
        assert_eq!(recovery.entries, 64 * 24, "{config:?}");
        acknowledged.sort();
        let mut found: Vec<_> =
            journal.read(journal.start()).unwrap().map(Result::unwrap).map(|e| (e.lsn.0, e.payload)).collect();
        found.sort();
        assert!(found == acknowledged, "{config:?}");
        for (lsn, payload) in acknowledged.iter().step_by(37) {
            assert_eq!(&journal.read_at(assent_ids::Lsn(*lsn)).unwrap().payload, payload);
        }
    }
}

#[test]
fn readers_and_trim_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { log_size: 64 << 10, max_buffer_log_size: 32 << 10, ..Config::default() };
    let (journal, _) = open(folder.path(), config).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let start = journal.start();
                let Ok(entries) = journal.read(start) else { continue };
                for entry in entries {
                    // Trimmed under the reader's feet is an error of its own; a wrong entry would be another thing.
                    let Ok(entry) = entry else { break };
                    assert!(entry.payload.iter().all(|byte| *byte == entry.payload[0]));
                }
            }
        });
        for number in 0..1500_u32 {
            let payload = vec![number.to_le_bytes()[0]; 1000];
            let ticket = journal.append(1, &[&payload]).unwrap();
            journal.wait(ticket).unwrap();
            if number % 50 == 0 {
                journal.trim(ticket.lsn).unwrap();
                assert_eq!(journal.read_at(ticket.lsn).unwrap().payload, payload);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(files < 10, "{files} files are left");
}

#[test]
fn the_keeper_makes_segments_ahead_and_keeps_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { max_elapsed_sync_time: 20, log_size: 64 << 10, ..Config::default() };
    let (journal, _) = open(folder.path(), config).unwrap();
    let keeper = Keeper::start(Arc::clone(&journal), Arc::new(RealClock));
    let ticket = journal.append(1, &[b"traffic stops here"]).unwrap();
    journal.wait(ticket).unwrap();
    let start = RealClock.now();
    while journal.durable() < ticket.end || journal.counts().segments == 0 {
        assert!(RealClock.now().since(start) < Duration::from_secs(20), "nobody synced");
        std::thread::yield_now();
    }
    keeper.stop();
    journal.close().unwrap();
}

#[test]
fn an_entry_of_the_longest_value_goes_through() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = open(folder.path(), Config::default()).unwrap();
    let value: Vec<u8> = (0..64_u32 << 18).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let ticket = journal.append(1, &[b"key", &value]).unwrap();
    journal.wait(ticket).unwrap();
    let entry = journal.read_at(ticket.lsn).unwrap();
    assert!(entry.end == ticket.end && entry.payload[..3] == *b"key" && entry.payload[3..] == value);
    journal.trim(journal.durable()).unwrap();
}

/// `cp -al` of what has no writer any more is a backup that costs nothing, and stays what it is.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test is who has the backup")]
fn a_segment_that_has_another_name_is_not_written_again() {
    let (folder, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings =
        Config { log_size: 64 << 10, max_buffer_log_size: 16 << 10, kept_until_released: true, ..Config::default() };
    let (journal, _) = open(folder.path(), settings).unwrap();
    let fill = |from: u64, to: u64| {
        let put = |number: u64| journal.append(3, &[&number.to_le_bytes().repeat(200)]).unwrap();
        let tickets: Vec<_> = (from..to).map(put).collect();
        journal.sync().unwrap();
        tickets
    };
    let tickets = fill(0, 400);
    journal.trim(tickets[390].lsn).unwrap();
    let mut copies = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "kept") {
            let link = backup.path().join(path.file_name().unwrap());
            std::fs::hard_link(&path, &link).unwrap();
            copies.push((std::fs::read(&link).unwrap(), link));
        }
    }
    assert!(copies.len() > 4, "{}", copies.len());
    for span in journal.sealed() {
        journal.release(span.first).unwrap();
    }
    fill(1_000, 2_000);
    for (bytes, link) in copies {
        assert!(std::fs::read(&link).unwrap() == bytes, "{}", link.display());
    }
}
