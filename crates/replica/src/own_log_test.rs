//! A member's log over a journal in which nothing lands before it is durable: what is appended waits for no disk, and is all there.

use std::path::Path;
use std::sync::Arc;

use assent_ids::Epoch;
use assent_journal::{Config, Counts, Journal};
use assent_membership::{Ack, Sequence};
use assent_sim::{SimClock, SimDice, SimDisk, Survival};

use crate::{Base, Entry, Mark, OwnLog};

const ENTRIES: u64 = 200;

fn open(disk: &SimDisk, ack: Ack) -> OwnLog {
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let small = Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Config::default() };
    let config = OwnLog::config(ack, 10, small);
    let (journal, _) = Journal::open(Arc::new(disk.clone()), clock, dice.clone(), Path::new("member"), config).unwrap();
    OwnLog::open(journal, dice, &Base::default()).unwrap().0
}

fn entry(after: Mark) -> Entry {
    let bytes = usize::try_from(after.sequence.0 % 7 * 100).unwrap();
    Entry::behind(after, Epoch(1), 1, vec![7; bytes].into())
}

/// Many more than a batch holds.
fn append(log: &mut OwnLog) -> Vec<Entry> {
    let mut entries = Vec::new();
    for _ in 0..ENTRIES {
        entries.push(entry(log.end()));
        log.append(&entries[entries.len() - 1]).unwrap();
    }
    entries
}

fn counts(log: &OwnLog) -> Counts {
    Counts { entries: 0, ..log.journal().counts() }
}

#[test]
fn an_append_waits_for_no_disk_however_much_is_appended() {
    let disk = SimDisk::new();
    let mut log = open(&disk, Ack::Durable);
    let before = counts(&log);
    let entries = append(&mut log);
    assert_eq!(counts(&log), before, "a write, a sync, a segment");
    assert_eq!((log.end().sequence, log.held()), (Sequence(ENTRIES), (Sequence(0), Sequence(0))));
    assert!(log.held_back_bytes().is_some(), "a batch does not hold all of it");
    // What the log's thread does, order by order, until nothing is left.
    let mut rounds = 0;
    while log.held().1 < Sequence(ENTRIES) {
        if let Some((_, ticket)) = log.last_open() {
            assent_journal::Log::wait_durable(&**log.journal(), ticket).unwrap();
        }
        if let Some(bytes) = log.held_back_bytes() {
            log.journal().make_room(bytes).unwrap();
        }
        let held = log.held().1;
        log.look();
        let (durable, last) = (log.held().1, log.last_open());
        log.go_on().unwrap();
        assert!(durable > held || log.last_open() > last, "each order brings it on");
        rounds += 1;
    }
    assert!(rounds > 5, "{rounds}");
    assert_eq!(log.fetch(Sequence(0), u64::MAX).unwrap().entries, entries);
    drop(log);
    disk.cut_power(Survival::Nothing);
    let log = open(&disk, Ack::Durable);
    assert_eq!(log.end(), entries[entries.len() - 1].mark(), "what was said to be durable is");
}

#[test]
fn what_has_landed_is_read_without_waiting_for_what_has_not() {
    let disk = SimDisk::new();
    let mut log = open(&disk, Ack::Durable);
    for _ in 0..10 {
        log.append(&entry(log.end())).unwrap();
    }
    log.sync().unwrap();
    let durable = log.end();
    append(&mut log);
    let before = counts(&log);
    let fetched = log.fetch(Sequence(4), u64::MAX).unwrap();
    assert_eq!(fetched.entries.iter().map(|entry| entry.sequence.0).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10]);
    let mut read = Vec::new();
    log.reading(Sequence(4))
        .unwrap()
        .each::<crate::ReplicaError>(Sequence(90), |entry| {
            read.push(entry.sequence.0);
            Ok(true)
        })
        .unwrap();
    assert_eq!(read, [5, 6, 7, 8, 9, 10]);
    // Who has all that is durable, and asks what its end is: what follows is in memory.
    let fetched = log.fetch(Sequence(10), u64::MAX).unwrap();
    assert_eq!((fetched.chain, fetched.entries), (Some(durable.chain), Vec::new()));
    // A snapshot may stand where the log is not durable yet: its place is known.
    assert!(log.let_go(Sequence(7)).unwrap() < log.let_go(Sequence(12)).unwrap());
    assert_eq!(log.let_go(Sequence(ENTRIES)).unwrap(), None, "the journal has not taken that one");
    assert_eq!(counts(&log), before, "the disk was asked to write");
    // And a cut takes what it has not taken too.
    let end = log.cut(Sequence(13)).unwrap();
    assert_eq!((end.sequence, log.held(), log.held_back_bytes()), (Sequence(13), (Sequence(13), Sequence(13)), None));
    log.append(&entry(end)).unwrap();
    log.sync().unwrap();
    assert_eq!(log.fetch(Sequence(13), u64::MAX).unwrap().entries.len(), 1);
}

#[test]
fn what_a_kernel_holds_may_be_written_by_whoever_appends() {
    let mut log = open(&SimDisk::new(), Ack::Written);
    append(&mut log);
    assert_eq!(log.held_back_bytes(), None);
    assert!(counts(&log).writes > 5 && counts(&log).syncs == 0, "{:?}", counts(&log));
}
