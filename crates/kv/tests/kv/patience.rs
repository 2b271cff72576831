//! Who meets a key of a prepared branch waits for it, as long as he was told, in his turn, and is woken.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use assent_kind::Kind;
use assent_kv::{Condition, Durability, Expect, Kv, KvError, Op, Place};
use assent_xa::{Reply, Resource as _, Verb, Vote};

use super::branches::{commit, ended, prepare, rollback};
use super::{all, fresh, rows, xid};

/// Of time that does not pass: who is not woken waits for ever.
const FOR_EVER: Duration = Duration::from_secs(3_600);

fn waits(kv: &Kv, many: u64) {
    while kv.stats().waiting != many {
        thread::yield_now();
    }
}

fn hold(kv: &Kv, branch: u64, key: &[u8]) {
    ended(kv, &xid(branch), key, b"held");
    assert_eq!(prepare(kv, &xid(branch)), Ok(Vote::Yes));
}

#[test]
fn a_write_waits_for_the_outcome_and_then_stands_behind_it() {
    type Write = fn(&Kv) -> Result<(), KvError>;
    let ways: [(&str, Write); 5] = [
        ("put", |kv| kv.batch_within(FOR_EVER, &[Op::put(0, b"k", b"new")], Durability::Durable).map(drop)),
        ("erase", |kv| kv.batch_within(FOR_EVER, &[Op::erase(0, b"a", Some(b"z"))], Durability::Durable).map(drop)),
        ("condition", |kv| {
            let present = [Condition::new(0, b"k", Expect::Present)];
            kv.batch_if_within(FOR_EVER, &present, &[Op::put(0, b"other", b"")], Durability::Durable).map(drop)
        }),
        ("one phase", |kv| {
            ended(kv, &xid(2), b"k", b"new");
            kv.wait(kv.commit_one_phase_within(FOR_EVER, &xid(2))?)
        }),
        ("vote", |kv| {
            ended(kv, &xid(2), b"k", b"new");
            kv.wait(kv.prepare_within(FOR_EVER, &xid(2))?.pending)?;
            commit(kv, &xid(2))
        }),
    ];
    for (name, write) in ways {
        for commits in [true, false] {
            let kv = fresh().kv;
            hold(&kv, 1, b"k");
            let done = thread::scope(|scope| {
                let writer = scope.spawn(|| write(&kv));
                waits(&kv, 1);
                if commits {
                    commit(&kv, &xid(1)).unwrap()
                } else {
                    rollback(&kv, &xid(1)).unwrap()
                }
                writer.join().unwrap()
            });
            match (name, commits) {
                ("condition", false) => assert!(matches!(done, Err(KvError::Unmet { .. })), "{done:?}"),
                _ => assert_eq!(done, Ok(()), "{name}"),
            }
            let expected = match (name, commits) {
                ("erase", _) | ("condition", false) => rows(&[]),
                ("condition", true) => rows(&[("k", "held"), ("other", "")]),
                _ => rows(&[("k", "new")]),
            };
            assert_eq!((all(&kv, 0), kv.stats().waiting), (expected, 0), "{name}, {commits}");
        }
    }
}

#[test]
fn when_the_time_is_over_it_is_a_conflict_that_names_the_key_and_the_branch_is_gone() {
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let desk = fresh();
        let kv = &desk.kv;
        hold(kv, 1, b"the key");
        ended(kv, &xid(2), b"the key", b"");
        let put = [Op::put(0, b"the key", b"")];
        thread::scope(|scope| {
            let write = scope.spawn(|| kv.batch_within(limit, &put, Durability::Durable).map(drop));
            let vote = scope.spawn(|| kv.prepare_within(limit, &xid(2)).map(drop));
            if !limit.is_zero() {
                waits(kv, 2);
                assert!(!write.is_finished() && !vote.is_finished());
                desk.clock.advance(limit);
            }
            for refused in [write.join().unwrap(), vote.join().unwrap()] {
                let error = refused.unwrap_err();
                assert_eq!(error.kind(), Kind::Conflict);
                let said = error.to_string();
                assert!(said.contains("the key") && said.contains(&xid(1).to_string()), "{said}");
            }
        });
        assert_eq!((kv.stats().waiting, kv.stats().branches), (0, 1));
        commit(kv, &xid(1)).unwrap();
    }
}

#[test]
fn a_branch_that_waits_can_be_rolled_back() {
    let kv = fresh().kv;
    hold(&kv, 1, b"k");
    ended(&kv, &xid(2), b"k", b"");
    thread::scope(|scope| {
        let vote = scope.spawn(|| kv.prepare_within(FOR_EVER, &xid(2)).map(drop));
        waits(&kv, 1);
        rollback(&kv, &xid(2)).unwrap();
        rollback(&kv, &xid(1)).unwrap();
        assert_eq!(vote.join().unwrap().unwrap_err().kind(), Kind::NotFound);
    });
    assert_eq!(kv.stats().waiting, 0);
}

/// One try of a vote that must not come about yet.
fn still_waits(kv: &Kv, place: &mut Place, branch: u64) -> bool {
    let refused = kv.prepare_begin_at(place, &xid(branch)).unwrap_err();
    place.waits_for(&refused)
}

#[test]
fn nobody_who_would_hold_a_key_goes_before_one_who_waits_for_it() {
    let kv = fresh().kv;
    hold(&kv, 1, b"k");
    for branch in 2..5 {
        ended(&kv, &xid(branch), b"k", b"");
    }
    let (mut second, mut third) = (kv.place(), kv.place());
    assert!(still_waits(&kv, &mut second, 2));
    assert!(still_waits(&kv, &mut third, 3));
    let seen = kv.freed();
    rollback(&kv, &xid(1)).unwrap();
    assert_ne!(kv.freed(), seen);
    // The key is nobody's now, and who comes does not wait: it is refused all the same.
    let refused = kv.prepare_begin(&xid(4)).unwrap_err();
    assert!(matches!(refused, KvError::Awaited { .. }) && refused.kind() == Kind::Conflict, "{refused}");
    assert!(refused.to_string().contains("\"k\""), "{refused}");
    assert!(still_waits(&kv, &mut third, 3), "not its turn");
    // A plain write holds nothing.
    kv.put(0, b"k", b"", Durability::Durable).unwrap();
    kv.wait(kv.prepare_begin_at(&mut second, &xid(2)).unwrap().pending).unwrap();
    let seen = kv.freed();
    drop(second);
    assert_ne!(kv.freed(), seen, "who stood behind it looks again");
    assert!(still_waits(&kv, &mut third, 3));
    commit(&kv, &xid(2)).unwrap();
    kv.wait(kv.prepare_begin_at(&mut third, &xid(3)).unwrap().pending).unwrap();
    commit(&kv, &xid(3)).unwrap();
}

#[test]
fn who_came_first_goes_first() {
    const BRANCHES: u64 = 6;
    let kv = fresh().kv;
    hold(&kv, 0, b"k");
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for branch in 1..=BRANCHES {
            let (kv, order) = (&kv, &order);
            ended(kv, &xid(branch), b"k", &branch.to_le_bytes());
            scope.spawn(move || {
                kv.wait(kv.prepare_within(FOR_EVER, &xid(branch)).unwrap().pending).unwrap();
                order.lock().unwrap().push(branch);
                commit(kv, &xid(branch)).unwrap();
            });
            waits(kv, branch);
        }
        commit(&kv, &xid(0)).unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), (1..=BRANCHES).collect::<Vec<_>>());
}

#[test]
fn no_wake_up_is_lost_among_many_who_want_the_same_few_keys() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 150;
    const KEYS: u64 = 3;
    let kv = fresh().kv;
    let next = AtomicU64::new(1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (kv, next) = (&kv, &next);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let (one, other) = ((thread + round) % KEYS, (thread * 7 + round * 5 + 1) % KEYS);
                    if round % 5 == 4 {
                        let key = one.to_le_bytes();
                        kv.batch_within(FOR_EVER, &[Op::put(0, &key, b"plain")], Durability::Durable).unwrap();
                        continue;
                    }
                    let own = xid(next.fetch_add(1, Ordering::Relaxed));
                    kv.start(&own).unwrap();
                    for key in [one, other] {
                        kv.branch_put(&own, 0, &key.to_le_bytes(), b"branch").unwrap();
                    }
                    kv.end(&own, true).unwrap();
                    kv.wait(kv.prepare_within(FOR_EVER, &own).unwrap().pending).unwrap();
                    thread::yield_now();
                    if round.is_multiple_of(3) { rollback(kv, &own).unwrap() } else { commit(kv, &own).unwrap() }
                }
            });
        }
    });
    let stats = kv.stats();
    assert_eq!((stats.waiting, stats.held_keys, stats.prepared), (0, 0, 0));
}

#[test]
fn a_patient_resource_votes_when_the_key_is_free_and_its_conditions_are_judged_then() {
    let kv = fresh().kv;
    hold(&kv, 1, b"k");
    let mut resource = assent_kv::KvResource::new("kv", std::sync::Arc::clone(&kv)).patient(FOR_EVER);
    assert!(matches!(resource.expect(Condition::new(0, b"k", Expect::Present)), Err(KvError::NoBranch)));
    for (branch, expects, vote) in [(2, Expect::Present, true), (3, Expect::Absent, false)] {
        assert_eq!(resource.call(Verb::Start(xid(branch))), Reply::Done);
        resource.expect(Condition::new(0, b"k", expects)).unwrap();
        resource.put(0, b"other", b"").unwrap();
        assert_eq!(resource.call(Verb::End { xid: xid(branch), success: true }), Reply::Done);
        let reply = thread::scope(|scope| {
            let voting = scope.spawn(|| resource.call(Verb::Prepare(xid(branch))));
            if branch == 2 {
                waits(&kv, 1);
                commit(&kv, &xid(1)).unwrap();
            }
            voting.join().unwrap()
        });
        assert_eq!(reply == Reply::Vote(Vote::Yes), vote, "{reply:?}");
        if vote {
            assert_eq!(resource.call(Verb::Commit(xid(branch))), Reply::Done);
        } else {
            assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
        }
    }
}
