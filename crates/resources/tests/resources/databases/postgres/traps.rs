//! What PostgreSQL does that a coordinator does not expect, each seen on the real server.

use assent_ids::{Branch, FORMAT_ID, Xid};
use assent_kind::Kind;
use assent_xa::{Reply, Resource, Verb};

use super::super::engine::{Engine, PostgresTable, code, node, wait, work, xid};
use super::super::servers::{alone, shared};
use super::{YES, process, run};

#[test]
fn what_cannot_be_prepared_votes_no_and_says_why() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "temporary");
    let cases = [
        ("CREATE TEMP TABLE assent_temporary (id int)", "temporary"),
        ("LISTEN assent_trap", "LISTEN"),
        ("NOTIFY assent_trap", "NOTIFY"),
        ("SELECT pg_export_snapshot()", "snapshot"),
        ("DECLARE assent_held CURSOR WITH HOLD FOR SELECT 1", "WITH HOLD"),
        (
            "SELECT pg_advisory_lock(7391), pg_advisory_xact_lock(7391)",
            "both session-level and transaction-level locks",
        ),
    ];
    for (number, (sql, words)) in (0_u16..).zip(cases) {
        let xid = xid("temporary", number);
        let mut branch = table.resource();
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, &format!("INSERT INTO {} VALUES (1); {sql}", table.table)).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        let reply = branch.call(Verb::Prepare(xid));
        assert_eq!(code(&reply), "0A000", "{sql}");
        let Reply::RolledBack(native) = reply else { panic!("{sql}: {reply:?}") };
        assert!(native.message.contains(words), "{sql}: {}", native.message);
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done, "there is nothing to roll back");
        assert_eq!(branch.witness(), b"", "a no leaves no witness");
        drop(branch);
        // Alone in its transaction the same work commits.
        let mut branch = table.resource();
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, &format!("INSERT INTO {} VALUES ({number}); {sql}", table.table)).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::CommitOnePhase(xid)), Reply::Done, "{sql}");
    }
    assert_eq!(table.rows(), (0..i32::try_from(cases.len()).unwrap()).collect::<Vec<_>>());
}

/// It ends a session whose transaction has not voted, and never takes a vote back.
#[test]
fn an_idle_timeout_ends_what_has_not_voted_and_nothing_else() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "idle");
    let [voted, not_yet] = [0, 1].map(|number| xid("idle", number));
    let [mut first, mut second] = [0, 1].map(|_| table.resource());
    let mut processes = Vec::new();
    for (branch, xid, row) in [(&mut first, voted, 1), (&mut second, not_yet, 2)] {
        run(branch, "SET idle_in_transaction_session_timeout = 2000").unwrap();
        processes.push(process(branch));
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(branch, &format!("INSERT INTO {} VALUES ({row})", table.table)).unwrap();
        if xid == voted {
            assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
            assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        }
    }
    let mut plain = table.plain();
    wait("the idle session to be ended", || {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1";
        plain.query(sql, &[&processes[1]]).unwrap().is_empty().then_some(())
    });
    let end = second.call(Verb::End { xid: not_yet, success: true });
    let vote = if end == Reply::Done { second.call(Verb::Prepare(not_yet)) } else { end };
    assert!(matches!(vote, Reply::Lost(_) | Reply::RolledBack(_)), "{vote:?}");
    assert_eq!(first.call(Verb::Recover(node("idle"))), Reply::Listed(vec![voted]));
    assert_eq!(first.call(Verb::Commit(voted)), Reply::Done);
    assert_eq!(table.rows(), [1]);
}

/// A lock of the transaction's goes into the prepared branch, and its wait with it.
#[test]
fn a_transactions_advisory_lock_is_kept_by_the_prepared_branch() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "advisory");
    let key = i64::from(std::process::id());
    let xid = xid("advisory", 0);
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    run(&mut branch, &format!("INSERT INTO {} VALUES (1); SELECT pg_advisory_xact_lock({key})", table.table)).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    let free = || -> bool { table.plain().query_one("SELECT pg_try_advisory_xact_lock($1)", &[&key]).unwrap().get(0) };
    assert!(!free());
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    assert!(free());
}

/// 53200, an out-of-memory code, is here "no room for one more": the branch is gone, the connection is not.
#[test]
fn with_all_slots_taken_the_vote_is_no_and_the_next_one_finds_the_slot_that_was_freed() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "full_slots");
    let mut plain = table.plain();
    let slots: i64 =
        plain.query_one("SELECT current_setting('max_prepared_transactions')::bigint", &[]).unwrap().get(0);
    let taken: i64 = plain.query_one("SELECT count(*) FROM pg_prepared_xacts", &[]).unwrap().get(0);
    let names: Vec<String> = (taken..slots).map(|slot| format!("assent-slot-{slot}")).collect();
    for name in &names {
        plain.batch_execute(&format!("BEGIN; PREPARE TRANSACTION '{name}'")).unwrap();
    }
    let mut branch = table.open();
    work(&mut *branch, xid("full_slots", 0), 1);
    let reply = branch.call(Verb::Prepare(xid("full_slots", 0)));
    assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
    assert_eq!(code(&reply), "53200");
    for name in &names {
        plain.batch_execute(&format!("ROLLBACK PREPARED '{name}'")).unwrap();
    }
    work(&mut *branch, xid("full_slots", 1), 2);
    assert_eq!(branch.call(Verb::Prepare(xid("full_slots", 1))), YES);
    assert_eq!(branch.call(Verb::Commit(xid("full_slots", 1))), Reply::Done);
    assert_eq!(table.rows(), [2]);
}

/// A gid takes 199 bytes; in hexadecimal the longest XID would not fit.
#[test]
fn the_longest_xid_fits_into_a_gid() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "longest");
    let prefix = Branch::prefix(node("longest"));
    let gtrid = [&prefix[..], &[0xff; 64][prefix.len()..]].concat();
    let xid = Xid::new(FORMAT_ID, &gtrid, &[0xff; 64]).unwrap();
    let mut branch = table.open();
    work(&mut *branch, xid, 1);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    assert_eq!(branch.call(Verb::Recover(node("longest"))), Reply::Listed(vec![xid]));
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    assert_eq!(table.rows(), [1]);
}

#[test]
fn of_twenty_five_sessions_that_finish_one_branch_exactly_one_hears_done() {
    const SESSIONS: usize = 25;
    let servers = shared();
    let table = PostgresTable::new(&servers, "crowd");
    let mut sessions: Vec<_> = (0..SESSIONS).map(|_| table.connector().connect().unwrap()).collect();
    for round in 0..5 {
        let xid = xid("crowd", round);
        let mut branch = table.open();
        work(&mut *branch, xid, i32::from(round));
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        // Whoever decides, decides for all of them; here the first to be heard.
        sessions.iter_mut().for_each(|session| session.send(Verb::Commit(xid)));
        let mut done = 0;
        for session in &mut sessions {
            let mut reply = session.receive();
            if matches!(reply, Reply::Refused(Kind::Busy, _)) {
                reply = wait("the one that finishes it", || match session.call(Verb::Commit(xid)) {
                    Reply::Refused(Kind::Busy, _) => None,
                    reply => Some(reply),
                });
            }
            match reply {
                Reply::Done => done += 1,
                Reply::Unknown(native) => assert_eq!(native.code, "42704"),
                reply => panic!("{reply:?}"),
            }
        }
        assert_eq!(done, 1);
    }
    assert_eq!(table.rows(), [0, 1, 2, 3, 4]);
}

/// Whoever wants its rows waits until it is finished, by whomever.
#[test]
fn a_prepared_branch_keeps_its_rows_from_others_while_its_connection_does_other_work() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "holds");
    let mut branch = table.resource();
    run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    let [voted, next] = [0, 1].map(|number| xid("holds", number));
    let update = format!("UPDATE {} SET id = 2", table.table);
    assert_eq!(branch.call(Verb::Start(voted)), Reply::Done);
    run(&mut branch, &update).unwrap();
    assert_eq!(branch.call(Verb::End { xid: voted, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(voted)), YES);
    // The connection is free at once, and is no exception.
    assert_eq!(branch.call(Verb::Start(next)), Reply::Done);
    let kept = run(&mut branch, &format!("SET LOCAL lock_timeout = 100; {update}")).unwrap_err();
    assert_eq!((kept.kind(), kept.into_native().1.code.as_str()), (Kind::Busy, "55P03"));
    assert_eq!(branch.call(Verb::Rollback(next)), Reply::Done);
    assert_eq!(branch.call(Verb::Commit(voted)), Reply::Done);
    run(&mut branch, &update).unwrap();
    assert_eq!(table.rows(), [2]);
}
