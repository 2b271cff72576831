//! The state table of a branch, its isolation, and that a vote survives.

use std::ops::Bound;

use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError};
use assent_sim::{Call, Fault, Operation};
use assent_xa::Vote;

use super::{Desk, NODE, all, fresh, rows, xid};

pub fn prepare(kv: &Kv, xid: &Xid) -> Result<Vote, KvError> {
    let voted = kv.prepare_begin(xid)?;
    kv.wait(voted.pending)?;
    Ok(voted.vote)
}

pub fn commit(kv: &Kv, xid: &Xid) -> Result<(), KvError> {
    kv.wait(kv.commit_begin(xid)?)
}

pub fn rollback(kv: &Kv, xid: &Xid) -> Result<(), KvError> {
    kv.wait(kv.rollback_begin(xid)?)
}

/// A branch that has put one key and ended.
pub fn ended(kv: &Kv, xid: &Xid, key: &[u8], value: &[u8]) {
    kv.start(xid).unwrap();
    kv.branch_put(xid, 0, key, value).unwrap();
    kv.end(xid, true).unwrap();
}

type Make = fn(&Kv, &Xid);
type Do = fn(&Kv, &Xid) -> Result<(), KvError>;

fn states() -> [(&'static str, Make); 7] {
    [
        ("unknown", |_, _| ()),
        ("active", |kv, xid| {
            kv.start(xid).unwrap();
            kv.branch_put(xid, 0, b"k", b"v").unwrap();
        }),
        ("ended", |kv, xid| ended(kv, xid, b"k", b"v")),
        ("failed", |kv, xid| {
            kv.start(xid).unwrap();
            kv.end(xid, false).unwrap();
        }),
        ("nothing written", |kv, xid| {
            kv.start(xid).unwrap();
            kv.end(xid, true).unwrap();
        }),
        ("prepared", |kv, xid| {
            ended(kv, xid, b"k", b"v");
            assert_eq!(prepare(kv, xid), Ok(Vote::Yes));
        }),
        ("committed", |kv, xid| {
            ended(kv, xid, b"k", b"v");
            prepare(kv, xid).unwrap();
            commit(kv, xid).unwrap();
        }),
    ]
}

fn verbs() -> [(&'static str, Do); 8] {
    [
        ("start", |kv, xid| kv.start(xid)),
        ("get", |kv, xid| kv.branch_get(xid, 0, b"k").map(|_| ())),
        ("put", |kv, xid| kv.branch_put(xid, 0, b"k", b"w")),
        ("end", |kv, xid| kv.end(xid, true)),
        ("prepare", |kv, xid| prepare(kv, xid).map(|_| ())),
        ("commit", commit),
        ("one phase", |kv, xid| kv.wait(kv.commit_one_phase_begin(xid)?)),
        ("rollback", rollback),
    ]
}

/// What each verb answers in each state; nothing is a success.
fn table() -> [[Option<Kind>; 8]; 7] {
    use Kind::{Conflict, Invalid, NotFound, RolledBack};
    const OK: Option<Kind> = None;
    [
        // start, get, put, end, prepare, commit, one phase, rollback
        [
            OK,
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
        ],
        [Some(Conflict), OK, OK, OK, Some(Invalid), Some(Invalid), Some(Invalid), OK],
        [Some(Conflict), Some(Invalid), Some(Invalid), Some(Invalid), OK, Some(Invalid), OK, OK],
        [
            Some(Conflict),
            Some(Invalid),
            Some(Invalid),
            Some(Invalid),
            Some(RolledBack),
            Some(Invalid),
            Some(RolledBack),
            OK,
        ],
        [Some(Conflict), Some(Invalid), Some(Invalid), Some(Invalid), OK, Some(Invalid), OK, OK],
        [Some(Conflict), Some(Invalid), Some(Invalid), Some(Invalid), Some(Invalid), OK, Some(Invalid), OK],
        [
            OK,
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
            Some(NotFound),
        ],
    ]
}

#[test]
fn every_verb_in_every_state_does_what_the_table_says() {
    use Kind::{Conflict, Invalid, NotFound, RolledBack};
    for ((state, make), row) in states().iter().zip(table()) {
        for ((verb, act), expected) in verbs().iter().zip(row) {
            let desk = fresh();
            make(&desk.kv, &xid(1));
            let before = (desk.kv.stats(), desk.log.counts());
            let answer = act(&desk.kv, &xid(1));
            assert_eq!(answer.as_ref().err().map(KvError::kind), expected, "{verb} when {state}: {answer:?}");
            if matches!(expected, Some(Conflict | Invalid | NotFound)) {
                assert_eq!((desk.kv.stats(), desk.log.counts()), before, "{verb} when {state} changed something");
            }
            let gone =
                matches!((*state, *verb, expected), (_, "rollback" | "one phase", None) | (_, _, Some(RolledBack)))
                    || matches!((*state, *verb), ("nothing written", "prepare") | ("prepared", "commit"));
            if gone {
                assert_eq!(desk.kv.stats().branches, 0, "{verb} when {state}");
            }
            let committed =
                *state == "committed" || matches!((*state, *verb), ("ended", "one phase") | ("prepared", "commit"));
            assert_eq!(desk.kv.get(0, b"k").unwrap().is_some(), committed, "{verb} when {state}");
        }
    }
}

#[test]
fn a_branch_sees_its_first_read_s_time_and_its_own_writes() {
    let kv = fresh().kv;
    let put = |key: &str, value: &str| kv.put(0, key.as_bytes(), value.as_bytes(), Durability::Durable).unwrap();
    put("a", "1");
    put("b", "1");
    put("c", "1");
    let branch = xid(1);
    kv.start(&branch).unwrap();
    put("a", "2");
    // The snapshot is taken here, not at the start.
    assert_eq!(kv.branch_get(&branch, 0, b"a").unwrap().as_deref(), Some(&b"2"[..]));
    put("a", "3");
    put("d", "new");
    kv.branch_put(&branch, 0, b"b", b"mine").unwrap();
    kv.branch_delete(&branch, 0, b"c").unwrap();
    kv.branch_put(&branch, 0, b"e", b"mine").unwrap();
    let seen = |limit| kv.branch_scan(&branch, 0, Bound::Unbounded, Bound::Unbounded, limit).unwrap();
    assert_eq!(seen(9), rows(&[("a", "2"), ("b", "mine"), ("e", "mine")]));
    assert_eq!(seen(2), rows(&[("a", "2"), ("b", "mine")]));
    assert_eq!(kv.branch_get(&branch, 0, b"c").unwrap(), None);
    assert_eq!(kv.branch_get(&branch, 0, b"d").unwrap(), None);
    assert_eq!(all(&kv, 0), rows(&[("a", "3"), ("b", "1"), ("c", "1"), ("d", "new")]));
    kv.end(&branch, true).unwrap();
    assert_eq!(prepare(&kv, &branch), Ok(Vote::Yes));
    assert_eq!(all(&kv, 0), rows(&[("a", "3"), ("b", "1"), ("c", "1"), ("d", "new")]));
    commit(&kv, &branch).unwrap();
    assert_eq!(all(&kv, 0), rows(&[("a", "3"), ("b", "mine"), ("d", "new"), ("e", "mine")]));
    assert_eq!((kv.stats().snapshots, kv.stats().held_keys), (0, 0));
}

#[test]
fn a_vote_survives_restarts_with_its_keys_until_it_is_told() {
    let mut desk = fresh();
    desk.kv.put(0, b"kept", b"old", Durability::Durable).unwrap();
    for (number, key) in [(1, "one"), (2, "two"), (3, "kept")] {
        ended(&desk.kv, &xid(number), key.as_bytes(), b"branch");
        prepare(&desk.kv, &xid(number)).unwrap();
    }
    let foreign = Xid::new(7, &NODE.0.to_be_bytes(), b"").unwrap();
    ended(&desk.kv, &foreign, b"foreign", b"");
    prepare(&desk.kv, &foreign).unwrap();
    ended(&desk.kv, &xid(4), b"not prepared", b"");
    let check = |desk: &Desk, left: &[u64]| {
        let ours: Vec<Xid> = left.iter().map(|number| xid(*number)).collect();
        assert_eq!(desk.kv.recover(NODE), ours);
        assert_eq!(desk.kv.recover(NodeId(1)), []);
        assert_eq!(desk.kv.prepared().len(), ours.len() + 1);
    };
    for restart in 0..2 {
        check(&desk, &[1, 2, 3]);
        desk = desk.again();
        let held = desk.kv.put(0, b"two", b"", Durability::Durable).unwrap_err();
        assert_eq!(held.kind(), Kind::Conflict, "restart {restart}");
        assert_eq!(desk.kv.rollback_begin(&xid(4)).unwrap_err().kind(), Kind::NotFound);
    }
    commit(&desk.kv, &xid(1)).unwrap();
    rollback(&desk.kv, &xid(2)).unwrap();
    check(&desk, &[3]);
    desk = desk.again();
    check(&desk, &[3]);
    commit(&desk.kv, &xid(3)).unwrap();
    desk = desk.again();
    check(&desk, &[]);
    assert_eq!(all(&desk.kv, 0), rows(&[("kept", "branch"), ("one", "branch")]));
    assert_eq!(desk.kv.stats().held_keys, 1);
}

#[test]
fn an_outcome_asked_for_twice_waits_for_the_first_and_never_turns() {
    let desk = fresh();
    ended(&desk.kv, &xid(1), b"k", b"v");
    prepare(&desk.kv, &xid(1)).unwrap();
    let first = desk.kv.commit_begin(&xid(1)).unwrap();
    assert_eq!(desk.kv.commit_begin(&xid(1)), Ok(first));
    assert_eq!(desk.kv.rollback_begin(&xid(1)).unwrap_err().kind(), Kind::Invalid);
    // Until it is durable, the branch is still listed: nobody may take its absence for an outcome.
    assert_eq!(desk.kv.prepared(), [xid(1)]);
    assert_eq!(desk.kv.get(0, b"k").unwrap(), None);
    desk.kv.wait(first).unwrap();
    assert_eq!((desk.kv.prepared(), desk.kv.commit_begin(&xid(1)).unwrap_err().kind()), (vec![], Kind::NotFound));
    assert_eq!(desk.log.counts().appends, 2);
}

#[test]
fn when_the_log_fails_the_fate_of_a_commit_is_in_doubt_and_never_unknown() {
    let desk = fresh();
    ended(&desk.kv, &xid(1), b"k", b"v");
    prepare(&desk.kv, &xid(1)).unwrap();
    desk.disk.inject(Call::of(Operation::SyncData, 1), Fault::Io);
    assert_eq!(commit(&desk.kv, &xid(1)).unwrap_err().kind(), Kind::InDoubt);
    assert_eq!(commit(&desk.kv, &xid(1)).unwrap_err().kind(), Kind::InDoubt);
    assert_eq!(desk.kv.prepared(), [xid(1)]);
    let desk = desk.again();
    // The failed sync kept or lost the record: either way the branch is whole.
    match desk.kv.prepared().is_empty() {
        true => assert_eq!(all(&desk.kv, 0), rows(&[("k", "v")])),
        false => {
            assert_eq!(all(&desk.kv, 0), rows(&[]));
            commit(&desk.kv, &xid(1)).unwrap();
            assert_eq!(all(&desk.kv, 0), rows(&[("k", "v")]));
        }
    }
}

#[test]
fn an_abandoned_branch_is_dropped_and_a_prepared_one_stays() {
    let kv = fresh().kv;
    kv.start(&xid(1)).unwrap();
    ended(&kv, &xid(2), b"k", b"v");
    prepare(&kv, &xid(2)).unwrap();
    for number in 1..4 {
        kv.abandon(&xid(number));
    }
    assert_eq!((kv.stats().branches, kv.prepared()), (1, vec![xid(2)]));
}
