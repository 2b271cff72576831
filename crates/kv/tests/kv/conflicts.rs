//! First committer wins, and prepared branches hold what they wrote.

use assent_ids::Xid;
use assent_kind::Kind;
use assent_kv::{Durability, Kv, KvError};

use super::branches::{commit, ended, prepare, rollback};
use super::{fresh, xid};

/// What the other one does to the key between the first's read and its vote.
#[derive(Clone, Copy, Debug)]
enum Other {
    Nothing,
    PlainPut,
    PlainDelete,
    OnePhase,
    Prepares,
    PreparesAndCommits,
    PreparesAndRollsBack,
    WritesAnotherKey,
    OnlyWrites,
}

fn act(kv: &Kv, other: Other) {
    let second = xid(2);
    match other {
        Other::Nothing => {}
        Other::PlainPut => _ = kv.put(0, b"k", b"other", Durability::Durable).unwrap(),
        Other::PlainDelete => _ = kv.delete(0, b"k", Durability::Durable).unwrap(),
        Other::WritesAnotherKey => _ = kv.put(0, b"l", b"other", Durability::Durable).unwrap(),
        Other::OnePhase => {
            ended(kv, &second, b"k", b"other");
            kv.wait(kv.commit_one_phase_begin(&second).unwrap()).unwrap();
        }
        Other::OnlyWrites => ended(kv, &second, b"k", b"other"),
        Other::Prepares | Other::PreparesAndCommits | Other::PreparesAndRollsBack => {
            ended(kv, &second, b"k", b"other");
            prepare(kv, &second).unwrap();
            match other {
                Other::PreparesAndCommits => commit(kv, &second).unwrap(),
                Other::PreparesAndRollsBack => rollback(kv, &second).unwrap(),
                _ => {}
            }
        }
    }
}

#[test]
fn who_wins_is_a_table() {
    use Other::{
        Nothing, OnePhase, OnlyWrites, PlainDelete, PlainPut, Prepares, PreparesAndCommits, PreparesAndRollsBack,
        WritesAnotherKey,
    };
    // Whether the first loses: (it read and then wrote, it only wrote, it only read and wrote elsewhere).
    let table = [
        (Nothing, [false, false, false]),
        (PlainPut, [true, false, false]),
        (PlainDelete, [true, false, false]),
        (OnePhase, [true, false, false]),
        (Prepares, [true, true, false]),
        (PreparesAndCommits, [true, false, false]),
        (PreparesAndRollsBack, [false, false, false]),
        (WritesAnotherKey, [false, false, false]),
        (OnlyWrites, [false, false, false]),
    ];
    type Vote = fn(&Kv, &Xid) -> Result<(), KvError>;
    let votes: [Vote; 2] = [|kv, xid| prepare(kv, xid).map(|_| ()), |kv, xid| kv.wait(kv.commit_one_phase_begin(xid)?)];
    for (other, loses) in table {
        for (how, loses) in loses.into_iter().enumerate() {
            for vote in votes {
                for there in [false, true] {
                    let kv = fresh().kv;
                    if there {
                        kv.put(0, b"k", b"before", Durability::Durable).unwrap();
                    }
                    let first = xid(1);
                    kv.start(&first).unwrap();
                    if how != 1 {
                        kv.branch_get(&first, 0, b"k").unwrap();
                    }
                    act(&kv, other);
                    kv.branch_put(&first, 0, if how == 2 { b"elsewhere" } else { b"k" }, b"first").unwrap();
                    kv.end(&first, true).unwrap();
                    // Deleting a key that was not there leaves it as it was.
                    let loses = loses && (there || !matches!(other, PlainDelete));
                    let answer = vote(&kv, &first);
                    let kind = answer.as_ref().err().map(KvError::kind);
                    assert_eq!(kind, loses.then_some(Kind::Conflict), "{other:?}, way {how}, key there: {there}");
                    if loses {
                        assert_eq!(kv.rollback_begin(&first).unwrap_err().kind(), Kind::NotFound, "it is gone");
                    }
                }
            }
        }
    }
}

#[test]
fn a_key_that_came_and_went_since_the_snapshot_is_as_it_was_and_one_that_came_again_is_not() {
    for (there, again) in [(false, false), (false, true), (true, true)] {
        let kv = fresh().kv;
        if there {
            kv.put(0, b"k", b"v", Durability::Durable).unwrap();
        }
        kv.start(&xid(1)).unwrap();
        kv.branch_get(&xid(1), 0, b"k").unwrap();
        kv.put(0, b"k", b"v", Durability::Durable).unwrap();
        kv.delete(0, b"k", Durability::Durable).unwrap();
        if again {
            kv.put(0, b"k", b"v", Durability::Durable).unwrap();
        }
        // Also when the ledger remembers no delete any more.
        kv.checkpoint().unwrap();
        kv.tick();
        kv.branch_put(&xid(1), 0, b"k", b"first").unwrap();
        kv.end(&xid(1), true).unwrap();
        let kind = prepare(&kv, &xid(1)).err().map(|error| error.kind());
        assert_eq!(kind, again.then_some(Kind::Conflict), "there {there}, again {again}");
    }
}

#[test]
fn a_prepared_branch_s_keys_are_refused_to_plain_writes_until_its_outcome() {
    for outcome in [commit, rollback] {
        let kv = fresh().kv;
        ended(&kv, &xid(1), b"k", b"v");
        prepare(&kv, &xid(1)).unwrap();
        for refused in [kv.put(0, b"k", b"", Durability::Durable), kv.delete(0, b"k", Durability::Buffered)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict);
            assert!(error.to_string().contains(&xid(1).to_string()), "{error}");
        }
        kv.put(1, b"k", b"another keyspace", Durability::Durable).unwrap();
        outcome(&kv, &xid(1)).unwrap();
        kv.put(0, b"k", b"free", Durability::Durable).unwrap();
        assert_eq!(kv.get(0, b"k").unwrap().as_deref(), Some(&b"free"[..]));
    }
}

#[test]
fn a_write_that_is_on_its_way_to_the_disk_is_newer_too() {
    let kv = fresh().kv;
    kv.start(&xid(1)).unwrap();
    kv.branch_get(&xid(1), 0, b"k").unwrap();
    kv.branch_put(&xid(1), 0, b"k", b"first").unwrap();
    kv.end(&xid(1), true).unwrap();
    let pending = kv.batch_begin(&[assent_kv::Op::put(0, b"k", b"appended")], Durability::Durable).unwrap();
    assert_eq!(kv.prepare_begin(&xid(1)).unwrap_err().kind(), Kind::Conflict);
    kv.wait(pending).unwrap();
}

#[test]
fn keys_that_were_only_read_are_not_protected() {
    // Snapshot isolation: two branches read both keys and each writes the other one. Both commit (write skew).
    let kv = fresh().kv;
    for (branch, write) in [(xid(1), b"a"), (xid(2), b"b")] {
        kv.start(&branch).unwrap();
        kv.branch_get(&branch, 0, b"a").unwrap();
        kv.branch_get(&branch, 0, b"b").unwrap();
        kv.branch_put(&branch, 0, write, b"").unwrap();
        kv.end(&branch, true).unwrap();
    }
    for branch in [xid(1), xid(2)] {
        prepare(&kv, &branch).unwrap();
        commit(&kv, &branch).unwrap();
    }
    assert_eq!(kv.stats().keys, 2);
}
