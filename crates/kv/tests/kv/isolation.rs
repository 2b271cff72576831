//! Snapshot isolation, judged from what many threads saw: branches, plain writes, conditions, deletes and erases at once.
//!
//! The order of versions is that of the log. A branch is explained by a place of it if it read what was there then, if all that had
//! been answered before its first read was there then, and if nobody else changed what it wrote between then and its commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use assent_ids::Lsn;
use assent_journal::Journal;
use assent_kind::Kind;
use assent_kv::{Condition, Config, Durability, Expect, Kv, Op};
use assent_sim::{Rng, SimClock, SimDice, SimDisk};

use super::history::Time;
use super::xid;

const KEYS: u64 = 8;
const THREADS: u64 = 8;
const EACH: u64 = 150;

/// What one transaction or plain write saw and did.
#[derive(Clone, Debug, Default)]
struct Done {
    /// Before its first read.
    asked: u64,
    /// The version of each key that it read.
    reads: Vec<(u8, Option<Lsn>)>,
    /// What had to be there when it was committed.
    conditions: Vec<(u8, Option<Lsn>)>,
    /// Keys that it set or removed.
    writes: Vec<(u8, bool)>,
    /// Where its commit ends, and when that was answered; none if it wrote nothing.
    at: Option<Lsn>,
    answered: u64,
}

/// When each key became what.
type Versions = BTreeMap<u8, BTreeMap<Lsn, bool>>;

fn version(versions: &Versions, key: u8, before: Lsn, included: bool) -> Option<Lsn> {
    let of = versions.get(&key)?;
    let last = if included { of.range(..=before).next_back() } else { of.range(..before).next_back() };
    last.filter(|(_, there)| **there).map(|(lsn, _)| *lsn)
}

fn check(history: &[Done]) -> Result<(), String> {
    let mut versions = Versions::new();
    let mut places = vec![Lsn::ZERO];
    for done in history {
        let Some(at) = done.at else { continue };
        places.push(at);
        for (key, there) in &done.writes {
            versions.entry(*key).or_default().insert(at, *there);
        }
    }
    places.sort();
    for done in history {
        let conditions = || done.conditions.iter().zip(std::iter::repeat(done.at.unwrap_or_default()));
        if let Some(((key, _), _)) =
            conditions().find(|((key, seen), at)| version(&versions, *key, *at, false) != *seen)
        {
            return Err(format!("a condition on key {key} did not hold when it was committed: {done:?}"));
        }
        if done.reads.is_empty() {
            continue;
        }
        let earlier = history.iter().filter(|other| other.at.is_some() && other.answered < done.asked);
        let floor = earlier.filter_map(|other| other.at).max().unwrap_or_default();
        let explains = |place: &&Lsn| {
            let read = done.reads.iter().all(|(key, seen)| version(&versions, *key, **place, true) == *seen);
            let first = done.at.is_none_or(|at| {
                let same = |key| version(&versions, key, **place, true) == version(&versions, key, at, false);
                done.writes.iter().all(|(key, _)| same(*key))
            });
            **place >= floor && read && first
        };
        if !places.iter().any(|place| explains(&place)) {
            return Err(format!("no place of the log from {floor} on explains {done:?}"));
        }
    }
    Ok(())
}

fn key(rng: &mut Rng) -> u8 {
    rng.below(KEYS).to_le_bytes()[0]
}

fn plain(kv: &Kv, time: &Time, rng: &mut Rng) -> Option<Done> {
    let (asked, key, other) = (time.tick(), key(rng), key(rng));
    let durability = if rng.below(2) == 0 { Durability::Durable } else { Durability::Buffered };
    let (first, end) = ([key], [key + 3]);
    let (put, erase, delete) = (Op::put(0, &first, b"v"), Op::erase(0, &first, Some(&end)), Op::delete(0, &first));
    let (answer, writes, conditions) = match rng.below(6) {
        0 => (kv.batch(&[erase], durability), (key..key + 3).map(|key| (key, false)).collect(), Vec::new()),
        1 => (kv.batch(&[delete], durability), vec![(key, false)], Vec::new()),
        2 | 3 => {
            let seen = kv.head(0, &[other]).unwrap().map(|head| head.committed);
            let expects = seen.map_or(Expect::Absent, Expect::At);
            let answer = kv.batch_if(&[Condition::new(0, &[other], expects)], &[put], durability);
            (answer, vec![(key, true)], vec![(other, seen)])
        }
        _ => (kv.batch(&[put], durability), vec![(key, true)], Vec::new()),
    };
    match answer {
        Ok(at) => Some(Done { asked, writes, conditions, at: Some(at), answered: time.tick(), ..Done::default() }),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            None
        }
    }
}

fn branch(kv: &Kv, time: &Time, rng: &mut Rng, number: u64) -> Done {
    let xid = xid(number);
    kv.start(&xid).unwrap();
    let mut done = Done { asked: time.tick(), ..Done::default() };
    for _ in 0..rng.range(1..4) {
        let key = key(rng);
        let found = kv.branch_entry(&xid, 0, &[key]).unwrap();
        done.reads.push((key, found.map(|found| found.committed)));
        std::thread::yield_now();
    }
    let mut writes = BTreeMap::new();
    for _ in 0..rng.below(3) {
        let (key, there) = (key(rng), rng.below(3) > 0);
        let key_bytes = [key];
        let op = if there { Op::put(0, &key_bytes, b"v") } else { Op::delete(0, &key_bytes) };
        kv.branch_write(&xid, &op).unwrap();
        writes.insert(key, there);
    }
    if rng.below(4) == 0 {
        let (key, seen) = done.reads[0];
        let condition = [key];
        kv.branch_expect(&xid, Condition::new(0, &condition, seen.map_or(Expect::Absent, Expect::At))).unwrap();
    }
    kv.end(&xid, true).unwrap();
    let ended = if rng.below(2) == 0 {
        kv.commit_one_phase_begin(&xid)
    } else {
        kv.prepare_begin(&xid).and_then(|voted| {
            kv.wait(voted.pending)?;
            if voted.pending.lsn().is_none() { Ok(voted.pending) } else { kv.commit_begin(&xid) }
        })
    };
    match ended {
        Ok(pending) => {
            kv.wait(pending).unwrap();
            done.at = pending.lsn();
            done.writes = writes.into_iter().collect();
        }
        Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
    }
    done.answered = time.tick();
    done
}

#[test]
fn what_many_threads_saw_is_snapshot_isolation() {
    for seed in 0..4 {
        let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
        let config = assent_journal::Config::default();
        let (journal, _) =
            Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), config).unwrap();
        let kv = Kv::open(journal, Arc::new(disk), clock, Path::new("kv"), Config::default()).unwrap();
        let (time, history) = (Time::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (kv, time, history) = (&kv, &time, &history);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * THREADS + thread);
                    let mut own = Vec::new();
                    for step in 0..EACH {
                        match rng.below(3) {
                            0 => own.extend(plain(kv, time, &mut rng)),
                            _ => own.push(branch(kv, time, &mut rng, thread * EACH + step)),
                        }
                        if thread == 0 && step % 40 == 0 {
                            kv.checkpoint().unwrap();
                        }
                    }
                    history.lock().unwrap().append(&mut own);
                });
            }
        });
        let history = history.into_inner().unwrap();
        check(&history).unwrap();
        assert!(history.iter().filter(|done| done.at.is_some()).count() > 100);
    }
}

#[test]
fn histories_that_are_not_snapshot_isolation_are_told() {
    let write = |asked, key, at, answered| Done {
        asked,
        writes: vec![(key, true)],
        at: Some(Lsn(at)),
        answered,
        ..Done::default()
    };
    let (first, second, other) = (write(0, 1, 10, 1), write(2, 1, 20, 3), write(4, 2, 30, 5));
    let reads = |reads: &[(u8, u64)]| reads.iter().map(|(key, lsn)| (*key, (*lsn > 0).then_some(Lsn(*lsn)))).collect();
    let seen = |asked, read: &[(u8, u64)]| Done { asked, reads: reads(read), ..Done::default() };
    let fine = Done { at: Some(Lsn(40)), writes: vec![(3, true)], answered: 9, ..seen(0, &[(1, 10), (2, 0)]) };
    assert_eq!(check(&[first.clone(), second.clone(), other.clone(), fine]), Ok(()));
    for bad in [
        // Of two moments; older than what was answered; a lost update; a condition that did not hold.
        seen(0, &[(1, 10), (2, 30)]),
        seen(6, &[(1, 10)]),
        Done { at: Some(Lsn(40)), writes: vec![(1, true)], answered: 9, ..seen(0, &[(1, 10)]) },
        Done { conditions: reads(&[(1, 10)]), ..write(0, 3, 40, 9) },
    ] {
        assert!(check(&[first.clone(), second.clone(), other.clone(), bad.clone()]).is_err(), "{bad:?}");
    }
}
