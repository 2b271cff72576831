//! RPO > 0: acknowledged from the kernel, durable within the bound.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_journal::{Config, Journal, Log, stepping};
use assent_sim::{Operation, SimClock, SimDice, SimDisk, Survival, Watch, WatchedDisk};

use super::stage::{FOLDER, bytes, open_at, payloads, put, segments, small};

fn lazy() -> Config {
    Config { max_elapsed_sync_time: 100, min_elapsed_sync_time: 60, ..small() }
}

#[test]
fn an_acknowledged_entry_survives_a_kill_and_says_when_it_may_not_have_survived_the_power() {
    let disk = SimDisk::new();
    let clock = Arc::new(SimClock::new());
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    let ticket = put(&*journal, b"in the kernel");
    assert!(journal.durable() < ticket.end);
    assert_eq!(journal.counts().syncs, 0);
    drop(journal);
    disk.kill();
    let (journal, recovery) = open_at(&disk, Arc::clone(&clock), 2, &lazy()).unwrap();
    assert_eq!(payloads(&*journal), [b"in the kernel"]);
    assert!(!recovery.clean && recovery.same_boot && !recovery.may_have_lost);
    assert!(journal.durable() >= ticket.end, "what an open shows is durable");
    put(&*journal, b"lost");
    drop(journal);
    disk.cut_power(Survival::Nothing);
    clock.reboot();
    let (journal, recovery) = open_at(&disk, clock, 3, &lazy()).unwrap();
    assert_eq!(payloads(&*journal), [b"in the kernel"]);
    assert!(recovery.may_have_lost, "{recovery:?}");
}

#[test]
fn a_closed_journal_has_lost_nothing_in_any_policy() {
    let disk = SimDisk::new();
    let clock = Arc::new(SimClock::new());
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    put(&*journal, b"kept");
    journal.close().unwrap();
    disk.cut_power(Survival::Nothing);
    clock.reboot();
    let (journal, recovery) = open_at(&disk, clock, 2, &lazy()).unwrap();
    assert_eq!(payloads(&*journal), [b"kept"]);
    assert!(recovery.clean && !recovery.may_have_lost);
}

#[test]
fn a_closed_opening_says_nothing_of_what_the_next_one_has_lost() {
    let disk = SimDisk::new();
    let clock = Arc::new(SimClock::new());
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    put(&*journal, b"kept");
    journal.close().unwrap();
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 2, &lazy()).unwrap();
    // Where the closing batch of the one before stands, and in the page cache alone.
    put(&*journal, b"lost");
    drop(journal);
    disk.cut_power(Survival::Nothing);
    clock.reboot();
    let (journal, recovery) = open_at(&disk, clock, 3, &lazy()).unwrap();
    assert_eq!(payloads(&*journal), [b"kept"]);
    assert!(recovery.may_have_lost && !recovery.clean, "{recovery:?}");
}

#[test]
fn a_timer_syncs_when_traffic_stops_and_not_within_the_shortest_time() {
    let disk = SimDisk::new();
    let clock = Arc::new(SimClock::new());
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    let mut syncs = 0;
    for _ in 0..20 {
        let ticket = put(&*journal, b"something");
        let mut waited = Duration::ZERO;
        loop {
            let pause = journal.maintain();
            if journal.durable() >= ticket.end {
                break;
            }
            clock.advance(pause);
            waited += pause;
            assert!(waited <= Duration::from_millis(100), "the bound is real");
        }
        syncs += 1;
        assert_eq!(journal.counts().syncs, syncs);
        // Traffic at once: the next sync may not come within 60 ms of this one.
        let ticket = put(&*journal, b"at once");
        clock.advance(Duration::from_millis(59));
        journal.maintain();
        assert!(journal.durable() < ticket.end);
        clock.advance(Duration::from_millis(1));
        journal.maintain();
        assert!(journal.durable() >= ticket.end);
        syncs += 1;
        clock.advance(Duration::from_millis(200));
    }
}

#[test]
fn votes_are_durable_in_every_policy() {
    let disk = SimDisk::new();
    let clock = Arc::new(SimClock::new());
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    put(&*journal, b"before");
    let vote = journal.append(2, &[b"yes"]).unwrap();
    journal.wait_durable(vote).unwrap();
    put(&*journal, b"after");
    assert_eq!(journal.counts().syncs, 1, "one sync covers all before");
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(payloads(&*open_at(&disk, clock, 2, &lazy()).unwrap().0), [&b"before"[..], b"yes"]);
}

#[test]
fn a_backlog_over_several_segments_is_synced_in_all_of_them() {
    let disk = SimDisk::new();
    let clock = Arc::new(SimClock::new());
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    let expected: Vec<_> = (0..100_u8).map(|number| vec![number; 1000]).collect();
    expected.iter().for_each(|payload| _ = put(&*journal, payload));
    journal.sync().unwrap();
    drop(journal);
    disk.cut_power(Survival::Nothing);
    assert_eq!(payloads(&*open_at(&disk, clock, 2, &lazy()).unwrap().0), expected);
}

#[test]
fn no_timer_delays_an_acknowledgement_of_rpo_0() {
    let disk = SimDisk::new();
    // The clock stands still and nobody calls `maintain`.
    let (journal, _) = open_at(&disk, Arc::default(), 1, &small()).unwrap();
    let ticket = put(&*journal, b"now");
    assert!(journal.durable() >= ticket.end);
}

#[test]
fn in_the_page_cache_a_block_that_was_written_just_now_gets_what_is_new_and_any_other_is_written_whole() {
    for config in [lazy(), Config { direct: false, ..small() }] {
        let (disk, clock) = (SimDisk::new(), Arc::new(SimClock::new()));
        let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &config).unwrap();
        let written = |after: u64| {
            clock.advance(Duration::from_micros(after));
            let before = journal.counts().bytes;
            let ticket = put(&*journal, &[7; 40]);
            (journal.counts().bytes - before, ticket.end.0)
        };
        let (begun, end) = written(0);
        assert_eq!((begun, end), (4096, 128));
        assert_eq!([0, 50_000, 50_001, 1].map(|after| written(after).0), [128, 128, 4096, 128]);
        drop(journal);
        let (journal, _) = open_at(&disk, clock, 2, &config).unwrap();
        assert_eq!(put(&*journal, &[7; 40]).end.0, 6 * 128);
        assert_eq!(journal.counts().bytes, 4096, "another opening may be of long ago");
        assert_eq!(payloads(&*journal), [[7; 40]; 6]);
    }
}

#[test]
fn behind_the_end_of_a_lazy_log_there_are_zeroes_to_the_end_of_the_block_whatever_the_segment_was_before() {
    let (disk, clock) = (SimDisk::new(), Arc::new(SimClock::new()));
    let (journal, _) = open_at(&disk, Arc::clone(&clock), 1, &lazy()).unwrap();
    let mut recycled = 0;
    for round in 0..600_u64 {
        clock.advance(Duration::from_millis([1, 1, 60][usize::try_from(round % 3).unwrap()]));
        let ticket = put(&*journal, &vec![0xff; [40, 300, 1_000][usize::try_from(round / 3 % 3).unwrap()]]);
        let end = usize::try_from(ticket.end.0).unwrap();
        let holds = |name: &&String| name.get(8..24).is_some_and(|at| usize::from_str_radix(at, 16).unwrap() < end);
        let names = segments(&disk);
        let name = names.iter().rfind(holds).unwrap();
        let first = usize::from_str_radix(&name[8..24], 16).unwrap();
        let file = bytes(&disk, name);
        let at = 4096 + end - first;
        assert!(file[at..at.next_multiple_of(4096)].iter().all(|byte| *byte == 0), "round {round}");
        recycled += usize::from(file[at.next_multiple_of(4096)..].iter().any(|byte| *byte != 0));
        if round % 20 == 19 {
            journal.sync().unwrap();
            journal.trim(ticket.lsn).unwrap();
        }
        journal.maintain();
    }
    assert!(recycled > 100, "{recycled}: it stood in segments that were used before");
}

#[test]
fn what_comes_while_a_write_is_under_way_begins_a_block_only_where_both_may_be() {
    for (config, skipped) in [(lazy(), 0), (Config { direct: false, ..small() }, 0), (small(), 4096 - 128)] {
        let (journal, _) = open_at(&SimDisk::new(), Arc::default(), 1, &config).unwrap();
        let one = journal.append(1, &[&[7; 40]]).unwrap();
        let write = stepping::close(&journal).unwrap();
        let two = journal.append(1, &[&[8; 40]]).unwrap();
        write.land();
        journal.wait(two).unwrap();
        assert_eq!(two.lsn.0 - one.end.0, skipped + 64);
        assert_eq!(payloads(&*journal), [[7; 40], [8; 40]]);
    }
}

thread_local! {
    /// Writes of batches that this thread has made.
    static WRITES: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Writes;

impl Watch for Writes {
    fn begins(&self, path: &Path, operation: Operation) {
        if matches!(operation, Operation::Write | Operation::WriteDurable)
            && path.extension().is_some_and(|it| it == "log")
        {
            WRITES.set(WRITES.get() + 1);
            // Long enough for others to come and wait.
            (0..50).for_each(|_| std::thread::yield_now());
        }
    }
}

#[test]
fn who_writes_into_the_page_cache_goes_on_for_those_who_wait_and_not_for_ever() {
    const GOES_ON: u32 = 5;
    for (max_elapsed_sync_time, expected) in [(100, 2..=GOES_ON), (0, 1..=1)] {
        let disk = WatchedDisk::new(SimDisk::new(), Arc::new(Writes));
        let config = Config { log_size: 4 << 20, max_elapsed_sync_time, ..Config::default() };
        let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
        let (journal, _) = Journal::open(Arc::new(disk), clock, dice, Path::new(FOLDER), config).unwrap();
        let most = std::thread::scope(|scope| {
            let writer = || {
                let writes = (0..300).map(|_| {
                    WRITES.set(0);
                    put(&*journal, b"something");
                    WRITES.get()
                });
                writes.max().unwrap()
            };
            let writers: Vec<_> = (0..8).map(|_| scope.spawn(writer)).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
        });
        assert!(expected.contains(&most), "{most} writes of one put, {max_elapsed_sync_time} ms");
        assert_eq!(payloads(&*journal).len(), 8 * 300);
    }
}
