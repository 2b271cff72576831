//! What survives: owners that are terminated, servers that are killed, at each step of a branch.

use assent_resources::Postgres;
use assent_xa::{Past, Reply, Resource, Verb};

use super::super::engine::{Engine, PostgresTable, node, wait, xid};
use super::super::servers::{alone, shared};
use super::{YES, process, run, superuser};

fn inserted(table: &PostgresTable, number: u16) -> Postgres {
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid(&table.table, number))), Reply::Done);
    run(&mut branch, &format!("INSERT INTO {} VALUES ({number})", table.table)).unwrap();
    branch
}

fn ended(table: &PostgresTable, number: u16) -> Postgres {
    let mut branch = inserted(table, number);
    assert_eq!(branch.call(Verb::End { xid: xid(&table.table, number), success: true }), Reply::Done);
    branch
}

/// With what its decision would keep.
fn prepared(table: &PostgresTable, number: u16) -> (Postgres, Vec<u8>) {
    let mut branch = ended(table, number);
    assert_eq!(branch.call(Verb::Prepare(xid(&table.table, number))), YES);
    let witness = branch.witness();
    (branch, witness)
}

#[test]
fn a_branch_outlives_the_session_that_prepared_it_however_that_ends() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "outlives");
    let mut superuser = superuser(&table.url);
    let (mut terminated, _) = prepared(&table, 0);
    let (dropped, _) = prepared(&table, 1);
    let not_voted = ended(&table, 2);
    let ended: bool =
        superuser.query_one("SELECT pg_terminate_backend($1, 60000)", &[&process(&mut terminated)]).unwrap().get(0);
    assert!(ended);
    drop((dropped, not_voted));
    let mut recovery = table.connector().connect().unwrap();
    let Reply::Listed(mut listed) = recovery.call(Verb::Recover(node(&table.table))) else { panic!("no list") };
    listed.sort();
    assert_eq!(listed, [0, 1].map(|number| xid(&table.table, number)));
    assert!(matches!(terminated.call(Verb::Commit(listed[0])), Reply::Lost(_)), "the owner cannot know");
    for xid in listed {
        assert_eq!(recovery.call(Verb::Commit(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [0, 1]);
}

#[test]
fn a_server_killed_at_each_step_keeps_votes_and_answers_and_tells_what_became_of_each_branch() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "steps");
    let of = |number| xid(&table.table, number);
    let (working, over) = (inserted(&table, 0), ended(&table, 1));
    let (voted, voted_witness) = prepared(&table, 2);
    let (mut committed, committed_witness) = prepared(&table, 3);
    assert_eq!(committed.call(Verb::Commit(of(3))), Reply::Done);
    let (mut back, back_witness) = prepared(&table, 4);
    assert_eq!(back.call(Verb::Rollback(of(4))), Reply::Done);
    let mut one = ended(&table, 5);
    assert_eq!(one.call(Verb::CommitOnePhase(of(5))), Reply::Done);
    servers.kill("postgres");
    servers.revive("postgres");
    drop((working, over, voted, committed, back, one));

    let mut recovery = wait("the server to be back", || table.connector().connect().ok());
    assert_eq!(recovery.call(Verb::Recover(node(&table.table))), Reply::Listed(vec![of(2)]));
    let asked = [(2, &voted_witness, Past::Open), (3, &committed_witness, Past::Committed)];
    for (number, witness, past) in asked.into_iter().chain([(4, &back_witness, Past::RolledBack)]) {
        let verb = Verb::Inquire { xid: of(number), witness: witness.clone() };
        assert_eq!(recovery.call(verb), Reply::Past(past), "branch {number}");
    }
    // Its locks are back with it.
    let mut other = table.plain();
    let lock = format!("SET lock_timeout = 100; LOCK TABLE {} IN SHARE MODE", table.table);
    let kept = other.batch_execute(&format!("BEGIN; {lock}")).unwrap_err();
    assert_eq!(kept.code().map(|it| it.code().to_owned()).as_deref(), Some("55P03"), "{kept}");
    assert_eq!(recovery.call(Verb::Commit(of(2))), Reply::Done);
    assert_eq!(table.rows(), [2, 3, 5]);
}
