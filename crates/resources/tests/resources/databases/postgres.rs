//! What PostgreSQL does in its own way.

use ::postgres::{Client, NoTls};
use assent_kind::Kind;
use assent_resources::{Limits, Postgres, PostgresConnector, ResourceError};
use assent_xa::{Connector, Reply, Resource, Verb, Vote};

mod claim;
mod counted;
mod kills;
mod last;
mod line;
mod rights;
mod traps;
mod truth;

use super::engine::{Engine, PostgresTable, code, node, other_database, work, xid};
use super::servers::shared;

const YES: Reply = Reply::Vote(Vote::Yes);

/// The same server as another account, or another database of it.
fn as_superuser(url: &str) -> String {
    url.replace("//assent@", "//postgres@")
}

fn superuser(url: &str) -> Client {
    Client::connect(&as_superuser(url), NoTls).unwrap()
}

/// The server's process behind a connection.
fn process(resource: &mut Postgres) -> i32 {
    resource.work(|client| client.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0)
}

fn run(resource: &mut Postgres, sql: &str) -> Result<(), ResourceError> {
    resource.work(|client| client.batch_execute(sql))
}

/// PREPARE TRANSACTION of a failed transaction answers "ROLLBACK" and no error. Whoever believes it commits nothing.
#[test]
fn a_failed_transaction_votes_no_and_not_yes() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "tag");
    let mut branch = table.resource();
    let votes = [Verb::Prepare as fn(_) -> _, Verb::CommitOnePhase as fn(_) -> _];
    for (number, (detect, vote)) in (0..).zip([true, false].into_iter().flat_map(|on| votes.map(|vote| (on, vote)))) {
        let xid = xid("tag", number);
        branch = branch.detect_read_only(detect);
        let vote = vote(xid);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
        let failed = run(&mut branch, "SELECT 1/0").unwrap_err();
        assert_eq!((failed.kind(), failed.into_native().1.code.as_str()), (Kind::Invalid, "22012"));
        let end = branch.call(Verb::End { xid, success: true });
        let reply = branch.call(vote);
        assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
        // Who asks what it wrote hears it first.
        assert!(if detect { matches!(end, Reply::RolledBack(_)) } else { end == Reply::Done }, "{end:?}");
        assert_eq!(code(if detect { &end } else { &reply }), "25P02");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done, "there is nothing to roll back");
    }
    assert_eq!(branch.call(Verb::Recover(node("tag"))), Reply::Listed(vec![]));
    assert_eq!(table.rows(), [0_i32; 0]);
    run(&mut branch, &format!("INSERT INTO {} VALUES (2)", table.table)).unwrap();
    assert_eq!(table.rows(), [2], "the connection is free again");
}

/// Outside a transaction there is a warning, and again the tag "ROLLBACK".
#[test]
fn a_transaction_that_the_application_ended_itself_is_unknown_and_in_doubt_if_it_is_the_only_one() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "absent");
    let mut branch = table.resource();
    for (number, vote) in [(0, Verb::Prepare(xid("absent", 0))), (1, Verb::CommitOnePhase(xid("absent", 1)))] {
        let xid = xid("absent", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, &format!("INSERT INTO {} VALUES ({number}); COMMIT", table.table)).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        let reply = branch.call(vote);
        // To the only branch "unknown" would count as rolled back.
        let expected = if number == 0 { matches!(reply, Reply::Unknown(_)) } else { matches!(reply, Reply::Lost(_)) };
        assert!(expected, "{reply:?}");
        assert_eq!(code(&reply), "25P01");
    }
    assert_eq!(table.rows(), [0, 1]);
    assert_eq!(branch.call(Verb::Start(xid("absent", 2))), Reply::Done, "the connection takes the next branch");
}

#[test]
fn a_deferred_constraint_fires_in_the_vote_and_leaves_nothing() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "deferred");
    let sql = format!("ALTER TABLE {} ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED", table.table);
    table.plain().batch_execute(&sql).unwrap();
    let mut branch = table.resource();
    for (number, vote) in [(0, Verb::Prepare(xid("deferred", 0))), (1, Verb::CommitOnePhase(xid("deferred", 1)))] {
        let xid = xid("deferred", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, &format!("INSERT INTO {} VALUES (1), (1)", table.table)).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        let reply = branch.call(vote);
        assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
        assert_eq!(code(&reply), "23505");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done, "the connection takes the next branch");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [0_i32; 0]);
}

#[test]
fn a_taken_gid_is_a_conflict_and_the_first_branch_stays() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "taken");
    let xid = xid("taken", 0);
    let mut first = table.open();
    work(&mut *first, xid, 1);
    assert_eq!(first.call(Verb::Prepare(xid)), YES);
    let mut second = table.open();
    work(&mut *second, xid, 2);
    let reply = second.call(Verb::Prepare(xid));
    assert!(matches!(reply, Reply::Refused(Kind::Conflict, _)), "{reply:?}");
    assert_eq!(code(&reply), "42710");
    // The names are the whole server's: also from another database of it.
    let mut beside = Postgres::connect("bank", &other_database(&servers.postgres, "postgres"), Limits::WORK).unwrap();
    assert_eq!(beside.call(Verb::Start(xid)), Reply::Done);
    run(&mut beside, "SELECT pg_current_xact_id()").unwrap();
    assert_eq!(beside.call(Verb::End { xid, success: true }), Reply::Done);
    let reply = beside.call(Verb::Prepare(xid));
    assert!(matches!(reply, Reply::Refused(Kind::Conflict, _)), "{reply:?}");
    assert_eq!(code(&reply), "42710");
    assert_eq!(beside.call(Verb::Rollback(xid)), Reply::Done);
    // The rollback means the second's own transaction, which is gone already, and not the first's branch.
    assert_eq!(second.call(Verb::Rollback(xid)), Reply::Done);
    assert_eq!(first.call(Verb::Recover(node("taken"))), Reply::Listed(vec![xid]));
    assert_eq!(first.call(Verb::Commit(xid)), Reply::Done);
    assert_eq!(table.rows(), [1]);
}

#[test]
fn foreign_gids_other_nodes_and_other_databases_are_not_listed() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "foreign");
    let foreign = format!("nightly-{}", std::process::id());
    let mut plain = table.plain();
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    plain.batch_execute(&format!("BEGIN; {insert}; PREPARE TRANSACTION '{foreign}'")).unwrap();
    let mut branch = table.open();
    work(&mut *branch, xid("foreign_node", 0), 2);
    assert_eq!(branch.call(Verb::Prepare(xid("foreign_node", 0))), YES);
    work(&mut *branch, xid("foreign", 0), 3);
    assert_eq!(branch.call(Verb::Prepare(xid("foreign", 0))), YES);
    assert_eq!(branch.call(Verb::Recover(node("foreign"))), Reply::Listed(vec![xid("foreign", 0)]));

    // From another database it is seen by nobody, and cannot be finished: refused, and kept.
    let elsewhere = PostgresConnector::new("bank", &other_database(&as_superuser(&table.url), "postgres")).unwrap();
    let mut elsewhere = elsewhere.connect().unwrap();
    assert_eq!(elsewhere.call(Verb::Recover(node("foreign"))), Reply::Listed(vec![]));
    let reply = elsewhere.call(Verb::Commit(xid("foreign", 0)));
    assert!(matches!(reply, Reply::Refused(Kind::Invalid, _)), "{reply:?}");
    assert_eq!(code(&reply), "0A000");

    assert_eq!(branch.call(Verb::Rollback(xid("foreign", 0))), Reply::Done);
    assert_eq!(branch.call(Verb::Rollback(xid("foreign_node", 0))), Reply::Done);
    plain.batch_execute(&format!("ROLLBACK PREPARED '{foreign}'")).unwrap();
}

#[test]
fn two_databases_of_one_cluster_take_part_in_one_transaction() {
    let servers = shared();
    let first = PostgresTable::new(&servers, "pair");
    let database = format!("assent_resources_pair_{}", std::process::id());
    first.plain().batch_execute(&format!("CREATE DATABASE {database}")).unwrap();
    let second = PostgresTable { url: other_database(&first.url, &database), table: "t".to_owned() };
    second.plain().batch_execute("CREATE TABLE t (id int)").unwrap();

    // The gids are unique in the cluster, so the branches must differ in their qualifier.
    let mut branches = [(first.open(), xid("pair", 0)), (second.open(), xid("pair", 1))];
    for (branch, xid) in &mut branches {
        work(&mut **branch, *xid, 1);
    }
    for (verb, answer) in [(Verb::Prepare as fn(_) -> _, YES), (Verb::Commit as fn(_) -> _, Reply::Done)] {
        branches.iter_mut().for_each(|(branch, xid)| branch.send(verb(*xid)));
        assert!(branches.iter_mut().all(|(branch, _)| branch.receive() == answer));
    }
    assert_eq!((first.rows(), second.rows()), (vec![1], vec![1]));
    drop(branches);
    first.plain().batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).unwrap();
}

#[test]
fn a_branch_does_not_start_in_somebodys_open_transaction() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "open");
    let mut branch = table.resource();
    run(&mut branch, &format!("BEGIN; INSERT INTO {} VALUES (1)", table.table)).unwrap();
    let reply = branch.call(Verb::Start(xid("open", 0)));
    assert!(matches!(reply, Reply::Refused(Kind::Invalid, _)), "{reply:?}");
    run(&mut branch, "COMMIT").unwrap();
    assert_eq!(branch.call(Verb::Start(xid("open", 0))), Reply::Done);
    // Nothing has been read yet, so the application still chooses how isolated it is.
    run(&mut branch, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").unwrap();
    assert_eq!(table.rows(), [1], "the other work is untouched");
}

/// The work of before was the branch's then, and was committed and rolled back with it.
#[test]
fn a_branch_does_not_start_in_an_open_transaction_of_which_no_warning_tells() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "silent");
    let mut branch = table.resource();
    run(&mut branch, "SET client_min_messages = error").unwrap();
    run(&mut branch, &format!("BEGIN; INSERT INTO {} VALUES (1)", table.table)).unwrap();
    for _ in 0..2 {
        let reply = branch.call(Verb::Start(xid("silent", 0)));
        assert!(matches!(reply, Reply::Refused(Kind::Invalid, _)), "{reply:?}");
        assert_eq!(code(&reply), "25001");
        // The driver has its answer before that has ended, and with it the word of the transaction.
        branch.work(|client| client.prepare("SELECT 1").map(drop)).unwrap();
    }
    run(&mut branch, "COMMIT").unwrap();
    assert_eq!(table.rows(), [1], "the other work is untouched");
    assert_eq!(branch.call(Verb::Start(xid("silent", 0))), Reply::Done);
}

#[test]
fn a_serialization_failure_at_the_vote_is_a_no() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "skew");
    let mut branches = [(table.resource(), xid("skew", 0)), (table.resource(), xid("skew", 1))];
    // Write skew: each reads everything and adds a row the other did not see.
    for (branch, xid) in &mut branches {
        assert_eq!(branch.call(Verb::Start(*xid)), Reply::Done);
        run(branch, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").unwrap();
        run(branch, &format!("SELECT count(*) FROM {}", table.table)).unwrap();
    }
    for (branch, xid) in &mut branches {
        run(branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
        assert_eq!(branch.call(Verb::End { xid: *xid, success: true }), Reply::Done);
    }
    let [(first, a), (second, b)] = &mut branches;
    assert_eq!(first.call(Verb::CommitOnePhase(*a)), Reply::Done);
    let reply = second.call(Verb::Prepare(*b));
    assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
    assert_eq!(code(&reply), "40001");
    assert_eq!(table.rows(), [1]);
}

#[test]
fn a_terminated_session_loses_the_answer() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "terminated");
    let mut superuser = superuser(&table.url);
    for (number, vote) in [(0, Verb::Prepare as fn(_) -> _), (1, Verb::CommitOnePhase as fn(_) -> _)] {
        let xid = xid("terminated", number);
        let mut branch = table.resource();
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
        let process = process(&mut branch);
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        let ended: bool = superuser.query_one("SELECT pg_terminate_backend($1, 60000)", &[&process]).unwrap().get(0);
        assert!(ended);
        assert!(matches!(branch.call(vote(xid)), Reply::Lost(_)));
        assert!(matches!(branch.call(Verb::Rollback(xid)), Reply::Lost(_)));
        let gone = run(&mut branch, "SELECT 1").unwrap_err();
        assert_eq!(gone.kind(), Kind::Unavailable, "known to be gone, so surely not sent");
        assert!(matches!(branch.call(Verb::Start(xid)), Reply::Refused(Kind::Unavailable, _)));
    }
    assert_eq!(table.rows(), [0_i32; 0]);
}

#[test]
fn the_callers_own_connection_takes_part() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "own");
    let mut branch = Postgres::over("bank", table.plain(), Limits::WORK).unwrap();
    let xid = xid("own", 0);
    assert_eq!(branch.name(), "bank");
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    assert_eq!(table.rows(), [1]);
}
