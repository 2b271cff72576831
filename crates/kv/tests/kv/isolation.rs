//! Snapshot isolation, judged from what many threads saw: branches, plain writes, conditions, deletes, erases and expiry at once.
//!
//! The order of versions is that of the log. A branch is explained by a place of it, and a time between its first question and the
//! answer, if it read what was there then, if all that had been answered before its first read was there then, and if nobody else
//! changed what it wrote between then and its commit. That its time is over is no change of a key: what had expired may be as it was, and
//! what came since and has expired again is gone, once a merge has buried it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assent_ids::Lsn;
use assent_journal::Journal;
use assent_kind::Kind;
use assent_kv::{Condition, Config, Durability, Expect, Kv, Op};
use assent_runs::AtOnce;
use assent_sim::{Rng, SimClock, SimDice, SimDisk};
use assent_world::Clock;
use assent_xa::Vote;

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
    /// The version of each key that it read; the clock before and behind the first of these reads.
    reads: Vec<(u8, Option<Lsn>)>,
    read_ms: (u64, u64),
    /// What had to be there when it was committed; the clock before and behind that.
    conditions: Vec<(u8, Option<Lsn>)>,
    judged_ms: (u64, u64),
    /// Keys that it set, until when (0: for ever), or removed.
    writes: Vec<(u8, Option<u64>)>,
    /// Where its commit ends, and when that was answered; none if it wrote nothing.
    at: Option<Lsn>,
    answered: u64,
    /// The clock then.
    answered_ms: u64,
}

/// When each key became what.
type Versions = BTreeMap<u8, BTreeMap<Lsn, Option<u64>>>;

/// The version of a key at a place or just before it, expired or not, and until when it is there.
fn written(versions: &Versions, key: u8, before: Lsn, included: bool) -> Option<(Lsn, u64)> {
    let of = versions.get(&key)?;
    let last = if included { of.range(..=before).next_back() } else { of.range(..before).next_back() };
    last.and_then(|(lsn, until)| Some((*lsn, (*until)?)))
}

fn is_there((_, until): (Lsn, u64), at_ms: u64) -> bool {
    until == 0 || until > at_ms
}

/// The times at which what is there may have been another: the first, and each expiry behind it.
fn times(versions: &Versions, (from, to): (u64, u64)) -> Vec<u64> {
    let ends = versions.values().flat_map(BTreeMap::values).filter_map(|until| *until);
    [from].into_iter().chain(ends.filter(|until| from < *until && *until <= to)).collect()
}

fn check(history: &[Done]) -> Result<(), String> {
    let mut versions = Versions::new();
    let mut places = vec![Lsn::ZERO];
    for done in history {
        let Some(at) = done.at else { continue };
        places.push(at);
        for (key, until) in &done.writes {
            versions.entry(*key).or_default().insert(at, *until);
        }
    }
    places.sort();
    for done in history {
        let at = done.at.unwrap_or_default();
        let version = |key, place, included, at_ms| {
            written(&versions, key, place, included).filter(|version| is_there(*version, at_ms)).map(|(lsn, _)| lsn)
        };
        let held = |at_ms: &u64| done.conditions.iter().all(|(key, seen)| version(*key, at, false, *at_ms) == *seen);
        if !times(&versions, done.judged_ms).iter().any(held) {
            return Err(format!("a condition did not hold when it was committed: {done:?}"));
        }
        if done.reads.is_empty() {
            continue;
        }
        let earlier = history.iter().filter(|other| other.at.is_some() && other.answered < done.asked);
        let floor = earlier.filter_map(|other| other.at).max().unwrap_or_default();
        let explains = |place: Lsn, at_ms: u64| {
            let read = done.reads.iter().all(|(key, seen)| version(*key, place, true, at_ms) == *seen);
            let first = done.at.is_none_or(|at| {
                let same = |key| {
                    let (seen, now) = (written(&versions, key, place, true), written(&versions, key, at, false));
                    let went = now.filter(|version| is_there(*version, done.answered_ms)).is_none();
                    let is_over = |seen: Option<(Lsn, u64)>| !seen.is_some_and(|version| is_there(version, at_ms));
                    seen.map(|(lsn, _)| lsn) == now.map(|(lsn, _)| lsn) || went && is_over(seen)
                };
                done.writes.iter().all(|(key, _)| same(*key))
            });
            read && first
        };
        let times = times(&versions, done.read_ms);
        let from = places.partition_point(|place| *place < floor);
        if !places[from..].iter().any(|place| times.iter().any(|at_ms| explains(*place, *at_ms))) {
            let keys: Vec<u8> =
                done.reads.iter().map(|(key, _)| *key).chain(done.writes.iter().map(|(key, _)| *key)).collect();
            let near: BTreeMap<u8, Vec<_>> = keys
                .into_iter()
                .map(|key| {
                    (
                        key,
                        versions
                            .get(&key)
                            .into_iter()
                            .flatten()
                            .filter(|(lsn, _)| lsn.0 + 9000 > floor.0 && **lsn <= at)
                            .collect(),
                    )
                })
                .collect();
            return Err(format!("no place of the log from {floor} on explains {done:?}: {near:?}"));
        }
    }
    Ok(())
}

fn key(rng: &mut Rng) -> u8 {
    rng.below(KEYS).to_le_bytes()[0]
}

/// Until when a write lives: often for ever, or for a while.
fn until(clock: &SimClock, rng: &mut Rng) -> u64 {
    if rng.below(3) == 0 { clock.wall_ms() + rng.range(1..6) } else { 0 }
}

fn plain(kv: &Kv, (time, clock): (&Time, &SimClock), rng: &mut Rng) -> Option<Done> {
    let (asked, key, other) = (time.tick(), key(rng), key(rng));
    let (until, from_ms) = (until(clock, rng), clock.wall_ms());
    let durability = if rng.below(2) == 0 { Durability::Durable } else { Durability::Buffered };
    let (first, end) = ([key], [key + 3]);
    let put = Op::put(0, &first, b"v").expiring(until);
    let (erase, delete) = (Op::erase(0, &first, Some(&end)), Op::delete(0, &first));
    let (answer, writes, conditions) = match rng.below(6) {
        0 => (kv.batch(&[erase], durability), (key..key + 3).map(|key| (key, None)).collect(), Vec::new()),
        1 => (kv.batch(&[delete], durability), vec![(key, None)], Vec::new()),
        2 | 3 => {
            let seen = kv.head(0, &[other]).unwrap().map(|head| head.committed);
            let expects = seen.map_or(Expect::Absent, Expect::At);
            let answer = kv.batch_if(&[Condition::new(0, &[other], expects)], &[put], durability);
            (answer, vec![(key, Some(until))], vec![(other, seen)])
        }
        _ => (kv.batch(&[put], durability), vec![(key, Some(until))], Vec::new()),
    };
    let judged_ms = (from_ms, clock.wall_ms());
    match answer {
        Ok(at) => {
            let answered = time.tick();
            Some(Done { asked, writes, conditions, judged_ms, at: Some(at), answered, ..Done::default() })
        }
        Err(error) => {
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            None
        }
    }
}

fn branch(kv: &Kv, (time, clock): (&Time, &SimClock), rng: &mut Rng, number: u64) -> Done {
    let xid = xid(number);
    kv.start(&xid).unwrap();
    let mut done = Done { asked: time.tick(), ..Done::default() };
    let from_ms = clock.wall_ms();
    for _ in 0..rng.range(1..4) {
        let key = key(rng);
        let found = kv.branch_entry(&xid, 0, &[key]).unwrap();
        if done.reads.is_empty() {
            done.read_ms = (from_ms, clock.wall_ms());
        }
        done.reads.push((key, found.map(|found| found.committed)));
        std::thread::yield_now();
    }
    let mut writes = BTreeMap::new();
    for _ in 0..rng.below(3) {
        let (key, there) = (key(rng), rng.below(3) > 0);
        let (key_bytes, until) = ([key], there.then(|| until(clock, rng)));
        let op = until.map_or(Op::delete(0, &key_bytes), |until| Op::put(0, &key_bytes, b"v").expiring(until));
        kv.branch_write(&xid, &op).unwrap();
        writes.insert(key, until);
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
            if voted.vote == Vote::ReadOnly { Ok(voted.pending) } else { kv.commit_begin(&xid) }
        })
    };
    match ended {
        Ok(pending) => {
            kv.wait(pending).unwrap();
            // One that wrote nothing may have waited for others; no place of the log is its own.
            done.at = pending.lsn().filter(|_| !writes.is_empty());
            done.writes = writes.into_iter().collect();
        }
        Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
    }
    (done.answered, done.answered_ms) = (time.tick(), clock.wall_ms());
    done
}

#[test]
fn what_many_threads_saw_is_snapshot_isolation() {
    for seed in 0..4 {
        let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
        let config = assent_journal::Config::default();
        let (journal, _) =
            Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), config).unwrap();
        let kv = Kv::open(journal, Arc::new(disk), clock.clone(), Path::new("kv"), Config::default()).unwrap();
        let (time, history) = (Time::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (kv, time, clock, history) = (&kv, &time, &clock, &history);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * THREADS + thread);
                    let mut own = Vec::new();
                    for step in 0..EACH {
                        match rng.below(3) {
                            0 => own.extend(plain(kv, (time, clock), &mut rng)),
                            _ => own.push(branch(kv, (time, clock), &mut rng, thread * EACH + step)),
                        }
                        if rng.below(4) == 0 {
                            clock.advance(Duration::from_millis(1));
                        }
                        if thread == 0 && step % 40 == 0 {
                            kv.checkpoint().unwrap();
                            _ = kv.work(&AtOnce);
                        }
                    }
                    history.lock().unwrap().append(&mut own);
                });
            }
        });
        let history = history.into_inner().unwrap();
        check(&history).unwrap();
        assert!(history.iter().filter(|done| done.at.is_some()).count() > 100);
        let expired = |done: &Done| done.writes.iter().any(|(_, until)| until.is_some_and(|until| until > 0));
        assert!(history.iter().filter(|done| expired(done)).count() > 30);
    }
}

#[test]
fn histories_that_are_not_snapshot_isolation_are_told() {
    let write = |asked, key, at, answered| Done {
        asked,
        writes: vec![(key, Some(0))],
        at: Some(Lsn(at)),
        answered,
        ..Done::default()
    };
    let (first, second, other) = (write(0, 1, 10, 1), write(2, 1, 20, 3), write(4, 2, 30, 5));
    let reads = |reads: &[(u8, u64)]| reads.iter().map(|(key, lsn)| (*key, (*lsn > 0).then_some(Lsn(*lsn)))).collect();
    let seen = |asked, read: &[(u8, u64)]| Done { asked, reads: reads(read), ..Done::default() };
    let fine = Done { at: Some(Lsn(40)), writes: vec![(3, Some(0))], answered: 9, ..seen(0, &[(1, 10), (2, 0)]) };
    assert_eq!(check(&[first.clone(), second.clone(), other.clone(), fine]), Ok(()));
    for bad in [
        // Of two moments; older than what was answered; a lost update; a condition that did not hold.
        seen(0, &[(1, 10), (2, 30)]),
        seen(6, &[(1, 10)]),
        Done { at: Some(Lsn(40)), writes: vec![(1, Some(0))], answered: 9, ..seen(0, &[(1, 10)]) },
        Done { conditions: reads(&[(1, 10)]), ..write(0, 3, 40, 9) },
    ] {
        assert!(check(&[first.clone(), second.clone(), other.clone(), bad.clone()]).is_err(), "{bad:?}");
    }
}

#[test]
fn what_has_expired_is_nobodys_version_and_what_has_not_is_not_overlooked() {
    let brief = Done { writes: vec![(1, Some(50))], at: Some(Lsn(10)), answered: 1, ..Done::default() };
    let seen =
        |read_ms, read: Option<u64>| Done { asked: 2, reads: vec![(1, read.map(Lsn))], read_ms, ..Done::default() };
    for (read_ms, read, is_fine) in [
        ((40, 49), Some(10), true),
        ((40, 49), None, false),
        ((40, 60), Some(10), true),
        ((40, 60), None, true),
        ((50, 60), Some(10), false),
        ((50, 60), None, true),
    ] {
        let history = [brief.clone(), seen(read_ms, read)];
        assert_eq!(check(&history).is_ok(), is_fine, "{read_ms:?} {read:?}");
        let judged =
            Done { at: Some(Lsn(40)), conditions: vec![(1, read.map(Lsn))], judged_ms: read_ms, ..Done::default() };
        assert_eq!(check(&[brief.clone(), judged]).is_ok(), is_fine, "{read_ms:?} {read:?}");
    }
    // It came after the snapshot: a lost update, unless its time was over when the branch was answered.
    for (answered_ms, is_fine) in [(49, false), (50, true)] {
        let reads = vec![(1, None)];
        let write =
            Done { reads, writes: vec![(1, None)], at: Some(Lsn(40)), answered: 9, answered_ms, ..Done::default() };
        assert_eq!(check(&[brief.clone(), write]).is_ok(), is_fine, "{answered_ms}");
    }
}
