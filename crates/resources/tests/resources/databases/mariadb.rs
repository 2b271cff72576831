//! What MariaDB does in its own way. `mariadb/work` what is known of a branch's work, `kinds` by every statement, `tap`
//! counts its messages, `places` what
//! its connections know by one another, `readers` branches that only read, `traps` what the server does to branches that have voted.

mod kinds;
mod places;
mod readers;
mod tap;
mod traps;
mod work;

pub(super) use tap::Tap;

use ::mysql::prelude::Queryable;
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb};
use assent_xa::{Reply, Resource, Verb, Vote};

use super::engine::{Engine, MariadbTable, code, literal, node, other_database, work, xid};
use super::servers::{Servers, shared};

const YES: Reply = Reply::Vote(Vote::Yes);

/// A table in a database of its own, so that nobody else finds what stands beside it.
struct Apart(MariadbTable);

impl Apart {
    fn new(servers: &Servers, test: &str) -> Self {
        let database = format!("assent_resources_{test}_{}", std::process::id());
        MariadbTable { url: servers.mariadb.clone(), table: String::new() }
            .plain()
            .query_drop(format!("CREATE DATABASE {database}"))
            .unwrap();
        let url = other_database(&servers.mariadb, &database);
        let table = MariadbTable { url, table: "t".to_owned() };
        table.plain().query_drop("CREATE TABLE t (id int PRIMARY KEY) ENGINE=InnoDB").unwrap();
        Self(table)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let (_, database) = self.0.url.rsplit_once('/').unwrap();
        let _ = self.0.plain().query_drop(format!("DROP DATABASE {database}"));
    }
}

/// To everybody else a branch whose session lives is 1397, as if it were finished.
#[test]
fn an_attached_branch_is_busy_and_not_unknown() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "attached");
    let xid = xid("attached", 0);
    let mut owner = table.open();
    work(&mut *owner, xid, 1);
    assert_eq!(owner.call(Verb::Prepare(xid)), YES);
    let mut other = table.connector().connect().unwrap();
    assert_eq!(other.call(Verb::Recover(node("attached"))), Reply::Listed(vec![xid]));
    for verb in [Verb::Commit(xid), Verb::Rollback(xid)] {
        let reply = other.call(verb);
        assert!(matches!(reply, Reply::Refused(Kind::Busy, _)), "{reply:?}");
        assert_eq!(code(&reply), "1397");
    }
    assert_eq!(owner.call(Verb::Commit(xid)), Reply::Done);
    assert!(matches!(other.call(Verb::Commit(xid)), Reply::Unknown(_)), "now it is really gone");
    assert_eq!(table.rows(), [1]);
}

#[test]
fn a_prepared_branch_pins_its_connection() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "pinned");
    let (one, two) = (xid("pinned", 1), xid("pinned", 2));
    let mut branch = table.open();
    work(&mut *branch, one, 1);
    assert_eq!(branch.call(Verb::Prepare(one)), YES);
    assert!(matches!(branch.call(Verb::Start(two)), Reply::Refused(Kind::Invalid, _)));
    assert!(matches!(branch.call(Verb::Commit(two)), Reply::Refused(Kind::Busy, _)));
    assert!(matches!(branch.call(Verb::Prepare(one)), Reply::Refused(Kind::Invalid, _)));
    assert_eq!(branch.add(2), Err("1399".to_owned()));
    assert_eq!(branch.call(Verb::Rollback(one)), Reply::Done);
    branch.add(3).unwrap();
    assert_eq!(table.rows(), [3]);
}

/// A branch that wrote nothing is rolled back when its session ends, and answers 1402 to the commit. It did all that
/// it had to do: no damage, no heuristic.
#[test]
fn a_detached_branch_that_wrote_nothing_is_committed_without_a_heuristic() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "empty");
    for (number, verb) in [(0, Verb::Commit as fn(_) -> _), (1, Verb::Rollback as fn(_) -> _)] {
        let xid = xid("empty", number);
        let mut owner = table.resource().detect_read_only(false);
        assert_eq!(owner.call(Verb::Start(xid)), Reply::Done);
        owner.work(|connection| connection.query_drop(format!("SELECT * FROM {}", table.table))).unwrap();
        assert_eq!(owner.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(owner.call(Verb::Prepare(xid)), YES);
        drop(owner);
        let mut other = table.connector().connect().unwrap();
        let reply = loop {
            match other.call(verb(xid)) {
                Reply::Refused(Kind::Busy, _) => std::thread::yield_now(),
                reply => break reply,
            }
        };
        assert_eq!(reply, Reply::Done);
        assert_eq!(other.call(Verb::Recover(node("empty"))), Reply::Listed(vec![]));
    }
}

#[test]
fn an_xid_that_is_in_use_is_a_conflict() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "taken");
    let xid = xid("taken", 0);
    let mut first = table.open();
    assert_eq!(first.call(Verb::Start(xid)), Reply::Done);
    let mut second = table.open();
    let reply = second.call(Verb::Start(xid));
    assert!(matches!(reply, Reply::Refused(Kind::Conflict, _)), "{reply:?}");
    assert_eq!(code(&reply), "1440");
    assert!(matches!(second.call(Verb::Prepare(xid)), Reply::Unknown(_)), "it has no branch");
    assert_eq!(first.call(Verb::Rollback(xid)), Reply::Done);
}

/// So nobody else goes on with a branch that has not voted, and a branch of ours begins and ends on one connection.
#[test]
fn joining_resuming_and_suspending_are_refused_by_the_server() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "join");
    let at = literal(&xid("join", 0));
    let mut one = table.plain();
    let refused = |connection: &mut ::mysql::Conn, sql: String| {
        let said = connection.query_drop(&sql).unwrap_err().to_string();
        assert!(said.contains("1398"), "{sql}: {said}");
    };
    one.query_drop(format!("XA START {at}")).unwrap();
    one.query_drop(format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    let mut other = table.plain();
    for how in ["JOIN", "RESUME"] {
        refused(&mut other, format!("XA START {at} {how}"));
    }
    for how in ["SUSPEND", "SUSPEND FOR MIGRATE"] {
        refused(&mut one, format!("XA END {at} {how}"));
    }
    one.query_drop(format!("XA END {at}")).unwrap();
    one.query_drop(format!("XA ROLLBACK {at}")).unwrap();
    assert_eq!(table.rows(), [0_i32; 0]);
}

#[test]
fn a_branch_does_not_start_in_somebodys_open_transaction() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "open");
    let mut branch = Mariadb::over("shop", table.plain(), Limits::WORK).unwrap();
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    branch.work(|connection| connection.query_drop("BEGIN").and_then(|()| connection.query_drop(insert))).unwrap();
    let reply = branch.call(Verb::Start(xid("open", 0)));
    assert!(matches!(reply, Reply::Refused(Kind::Invalid, _)), "{reply:?}");
    assert_eq!(code(&reply), "1400");
    branch.work(|connection| connection.query_drop("COMMIT")).unwrap();
    assert_eq!(branch.name(), "shop");
    assert_eq!(branch.call(Verb::Start(xid("open", 0))), Reply::Done);
    assert_eq!(table.rows(), [1]);
}

/// The victim of a deadlock is in the state ROLLBACK ONLY, which the server reports as 1399, "wrong state".
#[test]
fn the_victim_of_a_deadlock_is_rolled_back_when_it_ends() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "deadlock");
    let mut rows = table.plain();
    rows.query_drop(format!("INSERT INTO {} VALUES (1), (2), (3), (4)", table.table)).unwrap();
    let update = |id: i32| format!("UPDATE {} SET id = id + 10 WHERE id = {id}", table.table);
    let (a, b) = (xid("deadlock", 0), xid("deadlock", 1));
    let (mut first, mut second) = (table.resource(), table.resource());
    for (branch, xid, id) in [(&mut first, a, 1), (&mut second, b, 2)] {
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        branch.work(|connection| connection.query_drop(update(id))).unwrap();
    }
    // Each now wants the other's row; the server lets one of them go.
    let cross = |branch: &mut Mariadb, id: i32| {
        branch.work(|connection| connection.query_drop(update(id))).map_err(|error| error.into_native())
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| cross(&mut first, 2));
        let two = cross(&mut second, 1);
        (one.join().unwrap(), two)
    });
    let (victim, xid, survivor, other, said) = match (one, two) {
        (Err(said), Ok(())) => (&mut first, a, &mut second, b, said),
        (Ok(()), Err(said)) => (&mut second, b, &mut first, a, said),
        both => panic!("one must be the victim: {both:?}"),
    };
    assert_eq!((said.0, said.1.code.as_str()), (Kind::Conflict, "1213"));
    let reply = victim.call(Verb::End { xid, success: true });
    assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
    assert!(matches!(victim.call(Verb::Prepare(xid)), Reply::RolledBack(_)));
    assert_eq!(victim.call(Verb::Rollback(xid)), Reply::Done);
    assert_eq!(victim.call(Verb::Start(xid)), Reply::Done, "its connection is free");
    assert_eq!(survivor.call(Verb::End { xid: other, success: true }), Reply::Done);
    assert_eq!(survivor.call(Verb::CommitOnePhase(other)), Reply::Done);
    assert_eq!(table.rows(), [3, 4, 11, 12]);
}

#[test]
fn foreign_xids_and_other_nodes_are_not_listed() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "foreign");
    let mine = xid("foreign", 0);
    let mut longest = [0xff; 64];
    longest[..4].copy_from_slice(&std::process::id().to_be_bytes());
    let foreign = [
        // MariaDB tells XIDs apart by their bytes alone, so the same bytes in another format would be a conflict.
        Xid::new(1, mine.gtrid(), b"another").unwrap(),
        Xid::new(i32::MAX, &longest, &std::array::from_fn::<u8, 64, _>(|n| u8::try_from(n * 4).unwrap())).unwrap(),
        Xid::new(0, format!("'{}\\", std::process::id()).as_bytes(), b"").unwrap(),
        xid("foreign_node", 0),
    ];
    let mut branches = Vec::new();
    for (row, xid) in (0..).zip(foreign.into_iter().chain([mine])) {
        let mut branch = table.open();
        work(&mut *branch, xid, row);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        branches.push((branch, xid));
    }
    let mut other = table.connector().connect().unwrap();
    assert_eq!(other.call(Verb::Recover(node("foreign"))), Reply::Listed(vec![mine]));
    for (branch, xid) in &mut branches {
        assert_eq!(branch.call(Verb::Commit(*xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [0, 1, 2, 3, 4]);
}

#[test]
fn two_databases_of_one_server_take_part_in_one_transaction() {
    let servers = shared();
    let first = MariadbTable::new(&servers, "pair");
    let database = format!("assent_resources_pair_{}", std::process::id());
    first.plain().query_drop(format!("CREATE DATABASE {database}")).unwrap();
    let second = MariadbTable { url: other_database(&first.url, &database), table: "t".to_owned() };
    second.plain().query_drop("CREATE TABLE t (id int)").unwrap();

    let mut branches = [(first.open(), xid("pair", 0)), (second.open(), xid("pair", 1))];
    for (branch, xid) in &mut branches {
        work(&mut **branch, *xid, 1);
    }
    for (verb, answer) in [(Verb::Prepare as fn(_) -> _, YES), (Verb::Commit as fn(_) -> _, Reply::Done)] {
        branches.iter_mut().for_each(|(branch, xid)| branch.send(verb(*xid)));
        assert!(branches.iter_mut().all(|(branch, _)| branch.receive() == answer));
    }
    assert_eq!((first.rows(), second.rows()), (vec![1], vec![1]));
    first.plain().query_drop(format!("DROP DATABASE {database}")).unwrap();
}

/// To the only branch "unknown" would count as rolled back.
#[test]
fn an_only_branch_that_the_application_ended_itself_is_in_doubt() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "absent");
    let xid = xid("absent", 0);
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    branch.work(|connection| connection.query_drop(insert)).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let own = format!("XA COMMIT X'{}',X'{}',{} ONE PHASE", hex(xid.gtrid()), hex(xid.bqual()), xid.format());
    branch.work(|connection| connection.query_drop(own)).unwrap();
    let reply = branch.call(Verb::CommitOnePhase(xid));
    assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
    assert_eq!(code(&reply), "1398");
    assert_eq!(table.rows(), [1]);
    assert_eq!(branch.call(Verb::Start(super::engine::xid("absent", 1))), Reply::Done, "the connection is free");
}

#[test]
fn a_killed_session_loses_the_answer() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "terminated");
    for (number, vote) in [(0, Verb::Prepare as fn(_) -> _), (1, Verb::CommitOnePhase as fn(_) -> _)] {
        let xid = xid("terminated", number);
        let mut branch = table.resource();
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        let insert = format!("INSERT INTO {} VALUES (1)", table.table);
        branch.work(|connection| connection.query_drop(insert)).unwrap();
        let session = branch.work(|connection| Ok(connection.connection_id())).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        table.plain().query_drop(format!("KILL CONNECTION {session}")).unwrap();
        assert!(matches!(branch.call(vote(xid)), Reply::Lost(_)));
        assert!(matches!(branch.call(Verb::Rollback(xid)), Reply::Lost(_)));
        let gone = branch.work(|connection| connection.query_drop("SELECT 1")).unwrap_err();
        assert_eq!(gone.kind(), Kind::Unavailable);
    }
    assert_eq!(table.rows(), [0_i32; 0]);
}
