//! What holds for both databases.

use ::mysql::prelude::Queryable;
use assent_kind::Kind;
use assent_xa::{Reply, Resource, Verb, Vote};

use super::engine::{Engine, MariadbTable, PostgresTable, freed, node, wait, work, xid};
use super::servers::{Servers, alone, shared};

const YES: Reply = Reply::Vote(Vote::Yes);

fn both(servers: &Servers, test: &str) -> [Box<dyn Engine>; 2] {
    [Box::new(PostgresTable::new(servers, test)), Box::new(MariadbTable::new(servers, test))]
}

/// Repeats while another session still holds the branch: an ended connection is noticed by the server a little later.
fn insist(resource: &mut dyn Resource, verb: Verb) -> Reply {
    wait("another session to let go of the branch", || match resource.call(verb.clone()) {
        Reply::Refused(Kind::Busy, _) => None,
        reply => Some(reply),
    })
}

#[test]
fn a_branch_votes_is_listed_and_commits() {
    let servers = shared();
    for engine in both(&servers, "full") {
        let xid = xid("full", 0);
        let mut branch = engine.open();
        let mut other = engine.connector().connect().unwrap();
        work(&mut *branch, xid, 1);
        assert_eq!(other.call(Verb::Recover(node("full"))), Reply::Listed(vec![]), "not yet prepared");
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        assert_eq!(other.call(Verb::Recover(node("full"))), Reply::Listed(vec![xid]));
        assert_eq!(engine.rows(), [0_i32; 0]);
        assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
        assert_eq!(engine.rows(), [1]);
        assert_eq!(other.call(Verb::Recover(node("full"))), Reply::Listed(vec![]));
        assert!(matches!(branch.call(Verb::Commit(xid)), Reply::Unknown(_)), "a second commit is no success");
        assert_eq!(branch.call(Verb::Forget(xid)), Reply::Done);
        // The connection takes the next branch.
        let next = super::engine::xid("full", 1);
        work(&mut *branch, next, 2);
        assert_eq!(branch.call(Verb::CommitOnePhase(next)), Reply::Done);
        assert_eq!(engine.rows(), [1, 2]);
    }
}

#[test]
fn a_branch_rolls_back_at_every_point() {
    let servers = shared();
    for engine in both(&servers, "back") {
        let mut branch = engine.open();
        // While active.
        assert_eq!(branch.call(Verb::Start(xid("back", 0))), Reply::Done);
        branch.add(1).unwrap();
        assert_eq!(branch.call(Verb::Rollback(xid("back", 0))), Reply::Done);
        // Ended.
        work(&mut *branch, xid("back", 1), 1);
        assert_eq!(branch.call(Verb::Rollback(xid("back", 1))), Reply::Done);
        // Prepared.
        work(&mut *branch, xid("back", 2), 1);
        assert_eq!(branch.call(Verb::Prepare(xid("back", 2))), YES);
        assert_eq!(branch.call(Verb::Rollback(xid("back", 2))), Reply::Done);
        // Reported failed: it can only say no.
        for (number, vote) in [(3, Verb::Prepare(xid("back", 3))), (4, Verb::CommitOnePhase(xid("back", 4)))] {
            assert_eq!(branch.call(Verb::Start(xid("back", number))), Reply::Done);
            branch.add(1).unwrap();
            assert_eq!(branch.call(Verb::End { xid: xid("back", number), success: false }), Reply::Done);
            assert!(matches!(branch.call(vote), Reply::RolledBack(_)));
        }
        assert_eq!(engine.rows(), [0_i32; 0]);
        assert_eq!(branch.call(Verb::Recover(node("back"))), Reply::Listed(vec![]));
    }
}

#[test]
fn the_order_of_verbs_is_kept() {
    let servers = shared();
    for engine in both(&servers, "order") {
        let (one, two) = (xid("order", 1), xid("order", 2));
        let mut branch = engine.open();
        assert!(matches!(branch.call(Verb::Prepare(one)), Reply::Unknown(_)), "never started");
        assert!(matches!(branch.call(Verb::End { xid: one, success: true }), Reply::Unknown(_)));
        assert_eq!(branch.call(Verb::Start(one)), Reply::Done);
        assert!(matches!(branch.call(Verb::Start(two)), Reply::Refused(Kind::Invalid, _)));
        assert!(matches!(branch.call(Verb::Prepare(one)), Reply::Refused(Kind::Invalid, _)), "not ended");
        assert!(matches!(branch.call(Verb::Commit(one)), Reply::Refused(Kind::Invalid, _)), "not prepared");
        assert!(matches!(branch.call(Verb::Commit(two)), Reply::Refused(Kind::Busy, _)), "occupied");
        assert!(matches!(branch.call(Verb::Recover(node("order"))), Reply::Refused(Kind::Busy, _)));
        assert_eq!(branch.call(Verb::Rollback(one)), Reply::Done);
        assert!(matches!(branch.receive(), Reply::Refused(Kind::Internal, _)), "no verb is under way");
    }
}

#[test]
fn nobody_works_while_a_verb_is_under_way() {
    let servers = shared();
    for engine in both(&servers, "under_way") {
        let xid = xid("under_way", 0);
        let mut branch = engine.open();
        work(&mut *branch, xid, 1);
        branch.send(Verb::CommitOnePhase(xid));
        assert_eq!(branch.add(2), Err(String::new()), "refused without a word of the server");
        assert_eq!(branch.receive(), Reply::Done);
        branch.add(3).unwrap();
        assert_eq!(engine.rows(), [1, 3]);
    }
}

#[test]
fn another_connection_finishes_what_a_lost_one_prepared() {
    let servers = shared();
    for engine in both(&servers, "lost") {
        let mut witnesses = Vec::new();
        for (number, row) in [(0, 1), (1, 2)] {
            let mut branch = engine.open();
            work(&mut *branch, xid("lost", number), row);
            assert_eq!(branch.call(Verb::Prepare(xid("lost", number))), YES);
            witnesses.push(branch.witness());
        }
        // A connection that goes before the vote leaves nothing.
        let mut branch = engine.open();
        work(&mut *branch, xid("lost", 2), 3);
        drop(branch);

        let mut other = engine.connector().connect().unwrap();
        let Reply::Listed(mut listed) = other.call(Verb::Recover(node("lost"))) else { panic!() };
        listed.sort();
        assert_eq!(listed, [xid("lost", 0), xid("lost", 1)], "{}", engine.name());
        for (number, witness) in (0..).zip(&witnesses) {
            freed(&mut *other, xid("lost", number), witness);
        }
        assert_eq!(other.call(Verb::Commit(xid("lost", 0))), Reply::Done);
        assert_eq!(other.call(Verb::Rollback(xid("lost", 1))), Reply::Done);
        assert_eq!(engine.rows(), [1]);
        assert_eq!(other.call(Verb::Recover(node("lost"))), Reply::Listed(vec![]));
    }
}

/// An application that gave up a branch may live for years, and its connection with it.
#[test]
fn recovery_finishes_what_a_living_connection_was_told_to_let_go() {
    let servers = shared();
    for engine in both(&servers, "let_go") {
        let (voted, open) = (xid("let_go", 0), xid("let_go", 1));
        let mut owner = engine.open();
        work(&mut *owner, voted, 1);
        assert_eq!(owner.call(Verb::Prepare(voted)), YES);
        let witness = owner.witness();
        owner.let_go();
        let mut other = engine.connector().connect().unwrap();
        freed(&mut *other, voted, &witness);
        assert_eq!(other.call(Verb::Commit(voted)), Reply::Done, "{}", engine.name());
        assert_eq!(engine.rows(), [1]);
        match owner.call(Verb::Start(open)) {
            // PostgreSQL's connection was free since the vote.
            Reply::Done => {}
            Reply::Refused(Kind::Unavailable, native) => {
                assert!(native.message.contains("left to recovery"), "{}", native.message);
                assert_eq!(owner.add(2), Err(String::new()), "no work either");
                owner = engine.open();
                assert_eq!(owner.call(Verb::Start(open)), Reply::Done);
            }
            other => panic!("{}: {other:?}", engine.name()),
        }
        // A branch that has not voted goes with its connection, and so do its locks.
        owner.add(2).unwrap();
        owner.let_go();
        assert!(matches!(owner.call(Verb::Commit(open)), Reply::Lost(_)));
        let mut next = engine.open();
        work(&mut *next, xid("let_go", 2), 2);
        assert_eq!(next.call(Verb::CommitOnePhase(xid("let_go", 2))), Reply::Done);
        next.let_go();
        next.add(3).unwrap();
        assert_eq!(engine.rows(), [1, 2, 3], "{}: a finished branch keeps nobody", engine.name());
    }
}

/// Branches of one transaction share no locks, also in one server: the second one waits for the first, which waits for the
/// commit. It hears its own limit, and all of it is rolled back.
#[test]
fn two_branches_of_one_transaction_on_the_same_row_are_rolled_back_and_nobody_hangs() {
    let servers = shared();
    let (bank, shop) = (PostgresTable::new(&servers, "same_row"), MariadbTable::new(&servers, "same_row"));
    bank.plain().batch_execute(&format!("INSERT INTO {} VALUES (1)", bank.table)).unwrap();
    shop.plain().query_drop(format!("INSERT INTO {} VALUES (1)", shop.table)).unwrap();
    let [a, b] = [0, 1].map(|number| xid("same_row", number));
    let (mut first, mut second) = (bank.resource(), bank.resource());
    let update = format!("UPDATE {} SET id = id + 1", bank.table);
    assert_eq!(first.call(Verb::Start(a)), Reply::Done);
    first.work(|client| client.batch_execute(&update)).unwrap();
    assert_eq!(first.call(Verb::End { xid: a, success: true }), Reply::Done);
    assert_eq!(first.call(Verb::Prepare(a)), YES);
    assert_eq!(second.call(Verb::Start(b)), Reply::Done);
    let waited = second.work(|client| client.batch_execute(&format!("SET LOCAL lock_timeout = 100; {update}")));
    assert_eq!(waited.unwrap_err().into_native().1.code, "55P03");
    let end = second.call(Verb::End { xid: b, success: true });
    let vote = if end == Reply::Done { second.call(Verb::Prepare(b)) } else { end };
    assert!(matches!(vote, Reply::RolledBack(_)), "{vote:?}");
    assert_eq!(second.call(Verb::Rollback(b)), Reply::Done);
    assert_eq!(first.call(Verb::Rollback(a)), Reply::Done);
    assert_eq!(first.call(Verb::Recover(node("same_row"))), Reply::Listed(vec![]));
    assert_eq!(bank.rows(), [1]);

    let (mut first, mut second) = (shop.resource(), shop.resource());
    let update = format!("UPDATE {} SET id = id + 1", shop.table);
    second.work(|it| it.query_drop("SET SESSION innodb_lock_wait_timeout = 1")).unwrap();
    assert_eq!(first.call(Verb::Start(a)), Reply::Done);
    first.work(|it| it.query_drop(&update)).unwrap();
    assert_eq!(first.call(Verb::End { xid: a, success: true }), Reply::Done);
    assert_eq!(first.call(Verb::Prepare(a)), YES);
    assert_eq!(second.call(Verb::Start(b)), Reply::Done);
    assert_eq!(second.work(|it| it.query_drop(&update)).unwrap_err().into_native().1.code, "1205");
    let end = second.call(Verb::End { xid: b, success: true });
    let vote = if end == Reply::Done { second.call(Verb::Prepare(b)) } else { end };
    assert!(matches!(vote, Reply::RolledBack(_)), "{vote:?}");
    assert_eq!(second.call(Verb::Rollback(b)), Reply::Done);
    assert_eq!(first.call(Verb::Rollback(a)), Reply::Done);
    assert_eq!(first.call(Verb::Recover(node("same_row"))), Reply::Listed(vec![]));
    assert_eq!(shop.rows(), [1]);
}

#[test]
fn a_killed_server_loses_answers_but_no_vote() {
    let servers = alone();
    for engine in both(&servers, "killed") {
        let (voted, working) = (xid("killed", 0), xid("killed", 1));
        let mut branch = engine.open();
        work(&mut *branch, voted, 1);
        assert_eq!(branch.call(Verb::Prepare(voted)), YES);
        let mut unvoted = engine.open();
        work(&mut *unvoted, working, 2);

        servers.kill(engine.name());
        // Whatever the server had done: the answer is lost, and neither done nor rolled back.
        assert!(matches!(branch.call(Verb::Commit(voted)), Reply::Lost(_)));
        assert!(matches!(branch.call(Verb::Commit(voted)), Reply::Lost(_)));
        assert!(matches!(unvoted.call(Verb::Prepare(working)), Reply::Lost(_)));
        assert!(matches!(branch.call(Verb::Recover(node("killed"))), Reply::Refused(Kind::Unavailable, _)));
        assert!(matches!(engine.connector().connect(), Err((Kind::Unavailable, _))));

        servers.revive(engine.name());
        let mut other = engine.connector().connect().unwrap();
        assert_eq!(other.call(Verb::Recover(node("killed"))), Reply::Listed(vec![voted]), "{}", engine.name());
        assert_eq!(other.call(Verb::Commit(voted)), Reply::Done);
        assert!(matches!(other.call(Verb::Commit(working)), Reply::Unknown(_)));
        assert_eq!(engine.rows(), [1]);
    }
}

/// Nobody says a word on it. What its server lists when it is back may be more than it did before.
#[test]
fn a_connection_that_rests_shows_that_its_server_was_killed() {
    let servers = alone();
    for engine in both(&servers, "resting") {
        let mut resting = engine.connector().connect().unwrap();
        assert_eq!(resting.call(Verb::Claim(node("resting"))), Reply::Done);
        assert!(!resting.has_ended(), "{}", engine.name());
        servers.kill(engine.name());
        wait("its end to show", || resting.has_ended().then_some(()));
        servers.revive(engine.name());
        assert!(resting.has_ended(), "{}: this one does not come back", engine.name());
        assert!(!engine.connector().connect().unwrap().has_ended());
    }
}

#[test]
fn an_unknown_branch_is_unknown_to_commit_and_to_rollback() {
    let servers = shared();
    for engine in both(&servers, "unknown") {
        let mut other = engine.connector().connect().unwrap();
        for verb in [Verb::Commit(xid("unknown", 7)), Verb::Rollback(xid("unknown", 7))] {
            assert!(matches!(other.call(verb), Reply::Unknown(_)), "{}", engine.name());
        }
    }
}

#[test]
fn several_recoverers_at_once_commit_once() {
    let servers = shared();
    for engine in both(&servers, "race") {
        let xid = xid("race", 0);
        let mut branch = engine.open();
        work(&mut *branch, xid, 1);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        let witness = branch.witness();
        drop(branch);
        let mut others: Vec<_> = (0..4).map(|_| engine.connector().connect().unwrap()).collect();
        freed(&mut *others[0], xid, &witness);
        others.iter_mut().for_each(|other| other.send(Verb::Commit(xid)));
        let mut done = 0;
        for other in &mut others {
            let reply = match other.receive() {
                Reply::Refused(Kind::Busy, _) => insist(&mut **other, Verb::Commit(xid)),
                reply => reply,
            };
            match reply {
                Reply::Done => done += 1,
                Reply::Unknown(_) => {}
                other => panic!("{}: {other:?}", engine.name()),
            }
        }
        assert_eq!((done, engine.rows()), (1, vec![1]), "{}", engine.name());
    }
}
