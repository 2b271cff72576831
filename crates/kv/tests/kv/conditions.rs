//! Compare-and-set: what counts as current, what is told, and that nothing is lost among many threads.

use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};

use assent_ids::Lsn;
use assent_journal::Journal;
use assent_kind::Kind;
use assent_kv::{CONDITIONS_MAX, Condition, Config, Durability, Expect, Judged, Kv, KvError, Op};
use assent_sim::{Rng, SimClock, SimDice, SimDisk, Survival};
use assent_xa::Vote;

use super::branches::prepare;
use super::history::{Answer, Event, Time, check};
use super::{fresh, xid};

fn unmet(answer: Result<Lsn, KvError>) -> Option<Lsn> {
    match answer {
        Err(KvError::Unmet { found, .. }) => found,
        other => panic!("{other:?}"),
    }
}

fn set(kv: &Kv, key: &[u8], expects: Expect, value: &[u8]) -> Result<Lsn, KvError> {
    kv.batch_if(&[Condition::new(0, key, expects)], &[Op::put(0, key, value)], Durability::Durable)
}

#[test]
fn a_condition_holds_or_says_what_is_there_and_nothing_is_written() {
    let kv = fresh().kv;
    assert_eq!(unmet(set(&kv, b"k", Expect::Present, b"v")), None);
    assert_eq!(unmet(set(&kv, b"k", Expect::At(Lsn(9)), b"v")), None);
    let first = set(&kv, b"k", Expect::Absent, b"first").unwrap();
    assert_eq!(kv.head(0, b"k").unwrap().unwrap().committed, first);
    assert_eq!(unmet(set(&kv, b"k", Expect::Absent, b"v")), Some(first));
    let second = set(&kv, b"k", Expect::At(first), b"second").unwrap();
    let refused = set(&kv, b"k", Expect::At(first), b"v").unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    let told = format!("key \"k\" of keyspace 0 was expected as committed at {first}, and was committed at {second}");
    assert_eq!(refused.to_string(), told);
    set(&kv, b"k", Expect::Present, b"third").unwrap();
    // Of many conditions each must hold, and they may be on keys that are not written.
    let both = [Condition::new(0, b"k", Expect::Present), Condition::new(0, b"l", Expect::Present)];
    assert_eq!(unmet(kv.batch_if(&both, &[Op::delete(0, b"k")], Durability::Buffered)), None);
    assert_eq!(kv.get(0, b"k").unwrap().unwrap(), b"third");
    kv.batch_if(&both[..1], &[Op::delete(0, b"k"), Op::put(0, b"", b"v")], Durability::Buffered).unwrap();
    set(&kv, b"k", Expect::Absent, b"again").unwrap();
    kv.erase(0, b"", None, Durability::Durable).unwrap();
    set(&kv, b"k", Expect::Absent, b"after an erase").unwrap();
    assert!(matches!(kv.batch_if(&[], &[], Durability::Durable), Err(KvError::Empty)));
    let many = vec![both[0]; CONDITIONS_MAX as usize + 1];
    kv.batch_if(&many[1..], &[Op::put(0, b"k", b"v")], Durability::Durable).unwrap();
    let refused = kv.batch_if(&many, &[Op::put(0, b"k", b"v")], Durability::Durable).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().as_str()),
        (Kind::Invalid, "4097 conditions; at most 4096 are taken")
    );
}

#[test]
fn what_is_on_its_way_is_current_and_is_told_of_only_once_it_is_visible() {
    for (ops, found) in [
        (vec![Op::put(0, b"k", b"new")], true),
        (vec![Op::delete(0, b"k")], false),
        (vec![Op::erase(0, b"a", None)], false),
        (vec![Op::erase(0, b"a", None), Op::put(0, b"k", b"new")], true),
        (vec![Op::put(0, b"k", b"new"), Op::erase(0, b"a", None)], false),
    ] {
        let desk = fresh();
        let before = desk.kv.put(0, b"k", b"old", Durability::Durable).unwrap();
        let on_its_way = desk.kv.batch_begin(&ops, Durability::Durable).unwrap();
        let found = found.then(|| on_its_way.lsn().unwrap());
        let durable = desk.log.counts().syncs;
        let stale = [Condition::new(0, b"k", Expect::At(before))];
        let judged = desk.kv.batch_if_begin(&stale, &[Op::put(0, b"k", b"lost")], Durability::Buffered).unwrap();
        assert!(matches!(judged, Judged::Unmet { .. }), "{judged:?}");
        assert_eq!((desk.log.counts().syncs, desk.kv.get(0, b"k").unwrap().unwrap()), (durable, b"old".to_vec()));
        assert_eq!(unmet(desk.kv.wait_judged(judged)), found, "{ops:?}");
        assert!(desk.log.counts().syncs > durable, "it told of what a crash could take back");
        assert_eq!(desk.kv.head(0, b"k").unwrap().map(|head| head.committed), found);
        // And who expects what is on its way stands behind it.
        let next = desk.kv.batch_begin(&[Op::put(0, b"k", b"next")], Durability::Durable).unwrap();
        let expected = [Condition::new(0, b"k", Expect::At(next.lsn().unwrap()))];
        desk.kv.batch_if(&expected, &[Op::put(0, b"k", b"behind")], Durability::Durable).unwrap();
        assert_eq!(desk.kv.get(0, b"k").unwrap().unwrap(), b"behind");
    }
}

#[test]
fn a_condition_on_a_key_that_a_prepared_branch_holds_is_a_conflict() {
    let kv = fresh().kv;
    kv.start(&xid(1)).unwrap();
    kv.branch_put(&xid(1), 0, b"held", b"v").unwrap();
    kv.end(&xid(1), true).unwrap();
    prepare(&kv, &xid(1)).unwrap();
    let condition = [Condition::new(0, b"held", Expect::Absent)];
    let refused = kv.batch_if(&condition, &[Op::put(0, b"other", b"v")], Durability::Durable).unwrap_err();
    assert!(matches!(refused, KvError::Held { .. }), "{refused}");
    let commit = kv.commit_begin(&xid(1)).unwrap();
    // Decided, if not visible yet: it is there.
    let found = unmet(kv.batch_if(&condition, &[Op::put(0, b"other", b"v")], Durability::Durable));
    assert_eq!(found, commit.lsn());
    kv.wait(commit).unwrap();
}

#[test]
fn a_branch_votes_no_if_a_condition_does_not_hold() {
    let kv = fresh().kv;
    let at = kv.put(0, b"k", b"v", Durability::Durable).unwrap();
    for (number, expects, votes, writes) in [
        (1, Expect::At(at), true, true),
        (2, Expect::Absent, false, true),
        (3, Expect::Present, true, false),
        (4, Expect::Absent, false, false),
    ] {
        kv.start(&xid(number)).unwrap();
        kv.branch_expect(&xid(number), Condition::new(0, b"k", expects)).unwrap();
        if writes {
            kv.branch_put(&xid(number), 0, &[number.to_le_bytes()[0]], b"v").unwrap();
        }
        assert!(kv.stats().branches_bytes > 0);
        kv.end(&xid(number), true).unwrap();
        let answer = if number == 2 {
            kv.commit_one_phase_begin(&xid(number)).map(drop)
        } else {
            prepare(&kv, &xid(number)).map(drop)
        };
        assert_eq!(
            answer.as_ref().map_err(KvError::kind),
            if votes { Ok(&()) } else { Err(Kind::Conflict) },
            "{number}"
        );
        assert_eq!(kv.stats().branches_bytes, 0);
    }
    assert_eq!(kv.prepared(), [xid(1)]);
    let config = Config { branch_bytes_max: 100, ..Config::default() };
    let kv = super::open(&SimDisk::new(), config).kv;
    kv.start(&xid(1)).unwrap();
    kv.branch_expect(&xid(1), Condition::new(0, &[7; 84], Expect::Absent)).unwrap();
    let refused = kv.branch_expect(&xid(1), Condition::new(0, b"", Expect::Absent)).unwrap_err();
    assert_eq!(refused.to_string(), "branch of 116 bytes; at most 100 are taken");
}

/// A store whose log acknowledges what only the kernel has.
fn lazy(disk: &SimDisk, salt: u64) -> Kv {
    let settings = assent_journal::Config {
        max_elapsed_sync_time: 1000,
        kept_until_released: true,
        ..assent_journal::Config::default()
    };
    let (clock, dice) = (Arc::new(SimClock::new()), Arc::new(SimDice::new(salt)));
    let (log, _) = Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), settings).unwrap();
    Kv::open(log, Arc::new(disk.clone()), clock, Path::new("kv"), Config::default()).unwrap()
}

#[test]
fn a_branch_that_writes_nothing_is_told_its_vote_when_its_conditions_hold_for_good() {
    for expects in [Expect::Present, Expect::Absent] {
        for (is_visible, is_one_phase) in [(false, false), (false, true), (true, false), (true, true)] {
            let disk = SimDisk::new();
            let kv = lazy(&disk, 1);
            kv.put(0, b"gone", b"v", Durability::Durable).unwrap();
            let (key, op): (&[u8], _) = match expects {
                Expect::Absent => (b"gone", Op::delete(0, b"gone")),
                _ => (b"there", Op::put(0, b"there", b"v")),
            };
            let on_its_way = kv.batch_begin(&[op], Durability::Buffered).unwrap();
            if is_visible {
                kv.wait(on_its_way).unwrap();
            }
            kv.start(&xid(1)).unwrap();
            kv.branch_expect(&xid(1), Condition::new(0, key, expects)).unwrap();
            kv.end(&xid(1), true).unwrap();
            if is_one_phase {
                kv.wait(kv.commit_one_phase_begin(&xid(1)).unwrap()).unwrap();
            } else {
                assert_eq!(prepare(&kv, &xid(1)).unwrap(), Vote::ReadOnly);
            }
            let after = disk.copy();
            after.cut_power(Survival::Nothing);
            let found = lazy(&after, 2).get(0, key).unwrap();
            let says = format!("{expects}, visible: {is_visible}, one phase: {is_one_phase}");
            assert_eq!(found.is_some(), expects == Expect::Present, "{says}");
        }
    }
    // Who asked for nothing waits for nothing.
    let kv = lazy(&SimDisk::new(), 1);
    let on_its_way = kv.batch_begin(&[Op::put(0, b"k", b"v")], Durability::Buffered).unwrap();
    kv.start(&xid(1)).unwrap();
    kv.end(&xid(1), true).unwrap();
    assert_eq!(kv.prepare_begin(&xid(1)).unwrap().pending.lsn(), None);
    kv.wait(on_its_way).unwrap();
}

const THREADS: u64 = 64;
const EACH: u64 = 15;

/// One thread's share: so many increments, each by compare-and-set on what it has read or was told.
/// At first all of them read before anybody writes.
fn count(kv: &Kv, time: &Time, start: &Barrier, seed: u64) -> Vec<Event> {
    let mut rng = Rng::new(seed);
    let mut events = Vec::new();
    let mut done = 0;
    let mut start = Some(start);
    while done < EACH {
        let key = [rng.below(2).to_le_bytes()[0]];
        let (asked, found) = (time.tick(), kv.entry(0, &key).unwrap());
        let seen = found.as_ref().map(|found| found.committed);
        events.push(Event { key: key[0], asked, answered: time.tick(), answer: Answer::Found(seen) });
        if let Some(start) = start.take() {
            start.wait();
        }
        let counted = found.map_or(0, |found| u64::from_le_bytes(*found.value.first_chunk().unwrap()));
        let next = (counted + 1).to_le_bytes();
        let expects = seen.map_or(Expect::Absent, Expect::At);
        let durability = if rng.below(2) == 0 { Durability::Durable } else { Durability::Buffered };
        let asked = time.tick();
        let answer = kv.batch_if(&[Condition::new(0, &key, expects)], &[Op::put(0, &key, &next)], durability);
        let answer = match answer {
            Ok(made) => {
                done += 1;
                Answer::Replaced(seen, made)
            }
            answer => Answer::Found(unmet(answer)),
        };
        events.push(Event { key: key[0], asked, answered: time.tick(), answer });
    }
    events
}

#[test]
fn sixty_four_threads_count_by_compare_and_set_and_one_order_explains_what_each_was_told() {
    let (disk, clock, dice) = (SimDisk::new(), Arc::new(SimClock::new()), Arc::new(SimDice::new(1)));
    let config = assent_journal::Config::default();
    let (journal, _) = Journal::open(Arc::new(disk.clone()), clock.clone(), dice, Path::new("log"), config).unwrap();
    let kv = Kv::open(journal, Arc::new(disk), clock, Path::new("kv"), Config::default()).unwrap();
    let (time, events, start) = (Time::default(), Mutex::new(Vec::new()), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (kv, time, events, start) = (&kv, &time, &events, &start);
            scope.spawn(move || {
                let mut own = count(kv, time, start, thread);
                events.lock().unwrap().append(&mut own);
            });
        }
    });
    let events = events.into_inner().unwrap();
    check(&events).unwrap();
    let told = |key: u8| u64::from_le_bytes(*kv.get(0, &[key]).unwrap().unwrap().first_chunk().unwrap());
    assert_eq!(told(0) + told(1), THREADS * EACH);
    let calls = events.len() as u64 / 2;
    assert!(calls >= THREADS * EACH + THREADS - 2, "all but one of each key were too late at first: {calls}");
}
