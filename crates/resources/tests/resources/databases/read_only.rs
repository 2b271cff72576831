//! Branches that wrote nothing, and such as only look like it.

use ::mysql::prelude::Queryable;
use ::postgres::{Client, NoTls};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, Postgres, ResourceError};
use assent_xa::{Command, Commit, Event, Pace, Reply, Resource, Task, Trust, Verb, Verdict, Vote};

use super::engine::{Engine, MariadbTable, PostgresTable, node, work, xid};
use super::fake::{self, Behaviour, Tells};
use super::servers::{alone, shared};

const READ_ONLY: Reply = Reply::Vote(Vote::ReadOnly);
const COMMITTED: [i32; 1] = [1];

/// Commits, and tells what was sent. A decision must not be needed.
fn commit(branches: &mut [(Box<dyn Resource>, Xid)]) -> Vec<Task> {
    let mut commit = Commit::new(&vec![Trust::KeepsVotes; branches.len()], Pace::Together);
    let mut commands = commit.step(Event::Commit).unwrap();
    let mut sent = Vec::new();
    while !commands.is_empty() {
        let mut next = Vec::new();
        for command in commands {
            let Command::Send { branch, task } = command else { panic!("{command:?}") };
            let (resource, xid) = &mut branches[usize::from(branch)];
            let reply = resource.call(task.verb(*xid));
            sent.push(task);
            next.extend(commit.step(Event::Answer { branch, reply }).unwrap());
        }
        commands = next;
    }
    let report = commit.report().unwrap();
    assert_eq!((report.verdict, report.decided), (Verdict::Committed, None));
    sent
}

fn postgres_reader(table: &PostgresTable, xid: Xid) -> Postgres {
    postgres_after(table, xid, &format!("SELECT count(*) FROM {}", table.table))
}

/// A branch that has started and done this.
fn postgres_after(table: &PostgresTable, xid: Xid, sql: &str) -> Postgres {
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    branch.work(|client| client.batch_execute(sql)).unwrap();
    branch
}

fn mariadb_after(table: &MariadbTable, xid: Xid, statements: &[&str]) -> Mariadb {
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    for sql in statements {
        branch.work(|connection| connection.query_drop(sql)).unwrap();
    }
    branch
}

fn mariadb_reader(table: &MariadbTable, xid: Xid) -> Mariadb {
    // Sorted and grouped, so that the server needs tables of its own.
    let sql = format!("SELECT id % 2 AS odd, count(*) FROM {} GROUP BY odd ORDER BY 2", table.table);
    mariadb_after(table, xid, &[&sql])
}

/// Without the question at the end both would vote, and a decision would be made for one of them.
#[test]
fn beside_a_branch_that_only_read_the_other_commits_in_one_phase() {
    let servers = shared();
    let (bank, shop) = (PostgresTable::new(&servers, "ro_pair"), MariadbTable::new(&servers, "ro_pair"));
    for writing_first in [true, false] {
        for (writer_of, row) in [(&bank as &dyn Engine, 1), (&shop as &dyn Engine, 1)] {
            let number = u16::from(writing_first) * 2;
            let (read, write) = (xid("ro_pair", number), xid("ro_pair", number + 1));
            let mut writer = writer_of.open();
            assert_eq!(writer.call(Verb::Start(write)), Reply::Done);
            writer.add(row + i32::from(writing_first)).unwrap();
            let reader: Box<dyn Resource> = if writer_of.name() == "postgres" {
                Box::new(mariadb_reader(&shop, read))
            } else {
                Box::new(postgres_reader(&bank, read))
            };
            let mut branches: Vec<(Box<dyn Resource>, Xid)> = vec![(Box::new(Upcast(writer)), write), (reader, read)];
            if !writing_first {
                branches.reverse();
            }
            let end = Task::End { success: true };
            assert_eq!(commit(&mut branches), [end, end, Task::CommitOnePhase], "{} writes", writer_of.name());
            // Both connections are free.
            for (number, (branch, _)) in (10..).zip(&mut branches) {
                assert_eq!(branch.call(Verb::Recover(node("ro_pair"))), Reply::Listed(vec![]));
                assert_eq!(branch.call(Verb::Start(xid("ro_pair", number))), Reply::Done);
            }
        }
    }
    assert_eq!((bank.rows(), shop.rows()), (vec![1, 2], vec![1, 2]));
}

/// A worker where any resource will do.
struct Upcast(Box<dyn super::engine::Worker>);

impl Resource for Upcast {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn send(&mut self, verb: Verb) {
        self.0.send(verb);
    }
    fn receive(&mut self) -> Reply {
        self.0.receive()
    }
}

/// Prepared and committed they would cost four syncs a pair. A session hands its figures in when it ends.
#[test]
fn a_pair_that_only_read_costs_no_sync() {
    const PAIRS: u16 = 40;
    let servers = alone();
    let table = PostgresTable::new(&servers, "ro_syncs");
    let mut plain = table.plain();
    let mut syncs = || -> i64 {
        plain.batch_execute("SELECT pg_stat_force_next_flush()").unwrap();
        plain.query_one("SELECT wal_sync FROM pg_stat_wal", &[]).unwrap().get(0)
    };
    let before = syncs();
    for pair in 0..PAIRS {
        let mut branches: Vec<(Box<dyn Resource>, Xid)> = Vec::new();
        for xid in [xid("ro_syncs", pair * 2), xid("ro_syncs", pair * 2 + 1)] {
            branches.push((Box::new(postgres_reader(&table, xid)), xid));
        }
        assert_eq!(commit(&mut branches), [Task::End { success: true }; 2]);
    }
    let between = syncs();
    for number in 0..PAIRS {
        let xid = xid("ro_syncs", number);
        let mut branch = postgres_reader(&table, xid).detect_read_only(false);
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));
        assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    }
    let (found, not_looked_for) = (between - before, syncs() - between);
    // The server's background syncs now and then as well.
    assert!(found < i64::from(PAIRS) / 2, "{found} syncs by {PAIRS} pairs");
    assert!(not_looked_for > i64::from(PAIRS), "{not_looked_for} syncs by {PAIRS} branches that were prepared");
}

#[test]
fn locks_are_let_go_at_the_end_and_rows_that_were_locked_count_as_written() {
    let servers = shared();
    let bank = PostgresTable::new(&servers, "ro_locks");
    bank.open().add(1).unwrap();
    let table = &bank.table;
    let end = |number| Verb::End { xid: xid("ro_locks", number), success: true };
    let sql = format!("LOCK TABLE {table} IN SHARE MODE; SELECT pg_advisory_xact_lock(hashtext('{table}'))");
    let mut branch = postgres_after(&bank, xid("ro_locks", 0), &sql);
    assert_eq!(branch.call(end(0)), READ_ONLY);
    let free = format!(
        "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT; SELECT pg_advisory_xact_lock(hashtext('{table}'))"
    );
    bank.plain().batch_execute(&free).unwrap();

    let sql = format!("SELECT * FROM {table} FOR UPDATE");
    let mut branch = postgres_after(&bank, xid("ro_locks", 1), &sql);
    assert_eq!(branch.call(end(1)), Reply::Done, "the lock stands in the row");
    assert_eq!(branch.call(Verb::CommitOnePhase(xid("ro_locks", 1))), Reply::Done);

    let shop = MariadbTable::new(&servers, "ro_locks");
    shop.open().add(1).unwrap();
    for (number, how, expected) in [(2, "LOCK IN SHARE MODE", READ_ONLY), (3, "FOR UPDATE", Reply::Done)] {
        let mut branch =
            mariadb_after(&shop, xid("ro_locks", number), &[&format!("SELECT * FROM {} {how}", shop.table)]);
        let sql = format!("SELECT * FROM {} FOR UPDATE NOWAIT", shop.table);
        let mut other = shop.plain();
        other.query_drop("SET autocommit = 0").unwrap();
        let taken = other.query::<i32, _>(&sql).unwrap_err();
        assert!(taken.to_string().contains("1205"), "{taken}");
        assert_eq!(branch.call(end(number)), expected, "{how}");
        if expected == Reply::Done {
            assert_eq!(branch.call(Verb::CommitOnePhase(xid("ro_locks", number))), Reply::Done);
        }
        assert_eq!(other.query::<i32, _>(&sql).unwrap(), [1]);
    }
}

/// MariaDB locks the table for writing before it looks for the row: the safe side.
#[test]
fn an_update_that_found_no_row_wrote_nothing_in_postgresql() {
    let servers = shared();
    let bank = PostgresTable::new(&servers, "ro_none");
    let update = format!("UPDATE {} SET id = 2 WHERE id = 1", bank.table);
    let xid = xid("ro_none", 0);
    let mut branch = postgres_after(&bank, xid, &update);
    assert_eq!(branch.call(Verb::End { xid, success: true }), READ_ONLY);
    assert!(matches!(branch.call(Verb::Prepare(xid)), Reply::Unknown(_)), "it is finished");
}

/// What was undone within the branch, or goes with the session, was still written: the safe side.
#[test]
fn what_looks_like_writing_is_asked_to_vote() {
    let servers = shared();
    let (bank, shop) = (PostgresTable::new(&servers, "ro_undone"), MariadbTable::new(&servers, "ro_undone"));
    let a = xid("ro_undone", 0);
    let sql = format!("SAVEPOINT s; INSERT INTO {} VALUES (1); ROLLBACK TO s", bank.table);
    let mut branch = postgres_after(&bank, a, &sql);
    assert_eq!(branch.call(Verb::End { xid: a, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(a)), Reply::Vote(Vote::Yes));
    assert_eq!(branch.call(Verb::Commit(a)), Reply::Done);

    let insert = format!("INSERT INTO {} VALUES (1)", shop.table);
    let undone: &[&str] = &["SAVEPOINT s", &insert, "ROLLBACK TO SAVEPOINT s"];
    let temporary: &[&str] = &["INSERT INTO ro_kept_aside VALUES (1)"];
    for (number, statements) in [(1, undone), (2, temporary)] {
        let xid = xid("ro_undone", number);
        let mut branch = shop.resource();
        branch.work(|it| it.query_drop("CREATE TEMPORARY TABLE ro_kept_aside (id int) ENGINE=InnoDB")).unwrap();
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        for sql in statements {
            branch.work(|connection| connection.query_drop(sql)).unwrap();
        }
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done, "{statements:?}");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    assert_eq!((bank.rows(), shop.rows()), (vec![], vec![]));
}

/// What was written before the branch, or in an earlier one, must not count.
#[test]
fn what_was_written_before_the_branch_is_not_its_own() {
    let servers = shared();
    let bank = PostgresTable::new(&servers, "ro_before");
    let mut branch = bank.open();
    branch.add(1).unwrap();
    work(&mut *branch, xid("ro_before", 0), 2);
    assert_eq!(branch.call(Verb::Rollback(xid("ro_before", 0))), Reply::Done);
    assert_eq!(branch.call(Verb::Start(xid("ro_before", 1))), Reply::Done);
    assert_eq!(branch.call(Verb::End { xid: xid("ro_before", 1), success: true }), READ_ONLY);
    assert_eq!(bank.rows(), COMMITTED);

    let shop = MariadbTable::new(&servers, "ro_before");
    let mut branch = shop.resource();
    let insert = |row: i32| format!("INSERT INTO {} VALUES ({row})", shop.table);
    branch.work(|it| it.query_drop(insert(1))).unwrap();
    for (number, written) in [(2, false), (3, true), (4, false)] {
        let xid = xid("ro_before", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        if written {
            branch.work(|it| it.query_drop(insert(2))).unwrap();
        }
        let expected = if written { Reply::Done } else { READ_ONLY };
        assert_eq!(branch.call(Verb::End { xid, success: true }), expected);
        if written {
            assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        }
    }
    assert_eq!(shop.rows(), COMMITTED);
}

/// What goes to another server through a foreign table gives the transaction no number, and would be committed with it.
#[test]
fn a_foreign_table_that_was_written_to_is_not_committed_before_the_vote() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "ro_foreign");
    let name = &table.table;
    let address = table.url.parse::<::postgres::Config>().unwrap();
    let (port, database) = (address.get_ports()[0], address.get_dbname().unwrap());
    let mut superuser = Client::connect(&table.url.replace("//assent@", "//postgres@"), NoTls).unwrap();
    let setup = format!(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;
         CREATE SERVER {name}_s FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '127.0.0.1', port '{port}', dbname '{database}');
         CREATE USER MAPPING FOR assent SERVER {name}_s OPTIONS (user 'assent', password_required 'false');
         CREATE FOREIGN TABLE {name}_f (id int) SERVER {name}_s OPTIONS (table_name '{name}');
         GRANT ALL ON {name}_f TO assent"
    );
    superuser.batch_execute(&setup).unwrap();
    let (read, write) = (xid("ro_foreign", 0), xid("ro_foreign", 1));
    let mut reader = postgres_after(&table, read, &format!("SELECT * FROM {name}_f"));
    assert_eq!(reader.call(Verb::End { xid: read, success: true }), READ_ONLY);
    let mut writer = postgres_after(&table, write, &format!("INSERT INTO {name}_f VALUES (1)"));
    assert_eq!(writer.call(Verb::End { xid: write, success: true }), Reply::Done);
    assert_eq!(table.rows(), [0_i32; 0]);
    let vote = writer.call(Verb::Prepare(write));
    assert!(matches!(vote, Reply::RolledBack(_)), "postgres_fdw prepares nothing: {vote:?}");
    assert_eq!(table.rows(), [0_i32; 0]);
    superuser.batch_execute(&format!("DROP SERVER {name}_s CASCADE")).unwrap();
}

/// A serializable transaction that only read may still be refused when it commits.
#[test]
fn a_refused_commit_at_the_end_is_a_no_and_a_lost_one_is_lost() {
    const ASKS: &str = "SELECT pg_catalog.txid_current_if_assigned(), EXISTS";
    let fatal = Behaviour::Error("FATAL", "57P01");
    let ways = [(Tells::Nothing, "SAVEPOINT assent_end"), (Tells::Open, ASKS), (Tells::Process, ASKS)];
    for (tells, asks) in ways {
        let elsewhere = "SELECT EXISTS";
        let cases = [
            (vec![(asks, NO_NUMBER), (elsewhere, NO), ("COMMIT", SERIALIZATION)], true),
            (vec![(asks, NO_NUMBER), (elsewhere, SERIALIZATION)], true),
            (vec![(asks, SERIALIZATION)], true),
            (vec![(asks, NO_NUMBER), (elsewhere, NO), ("COMMIT", Behaviour::Close)], false),
            (vec![(asks, fatal)], false),
            (vec![(asks, Behaviour::Close)], false),
        ];
        for (behaviours, no) in cases {
            let xid = xid("ro_refused", 0);
            let url = fake::postgres_that_tells(tells, &behaviours);
            let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
            assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
            branch.work(|client| client.batch_execute("SELECT 1")).unwrap();
            let reply = branch.call(Verb::End { xid, success: true });
            assert_eq!(
                matches!(&reply, Reply::RolledBack(native) if native.code == "40001"),
                no,
                "{tells:?} {reply:?}"
            );
            assert_eq!(matches!(reply, Reply::Lost(_)), !no, "{tells:?} {reply:?}");
            assert_eq!(branch.call(Verb::Rollback(xid)) == Reply::Done, no, "told so next");
        }
    }
}

const NO: Behaviour = Behaviour::Rows(&["f"]);
const NO_NUMBER: Behaviour = Behaviour::Rows(&["NULL"]);
const SERIALIZATION: Behaviour = Behaviour::Error("ERROR", "40001");

#[test]
fn who_does_not_want_it_is_not_asked() {
    let servers = shared();
    let (bank, shop) = (PostgresTable::new(&servers, "ro_off"), MariadbTable::new(&servers, "ro_off"));
    let branches: [Box<dyn Resource>; 2] =
        [Box::new(bank.resource().detect_read_only(false)), Box::new(shop.resource().detect_read_only(false))];
    for (number, mut branch) in (0..).zip(branches) {
        let xid = xid("ro_off", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));
        assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    }
}

/// It is asked nothing, and the server refuses what writes, in the branch and outside.
#[test]
fn a_postgresql_that_only_reads_commits_when_its_branch_ends() {
    let servers = shared();
    let bank = PostgresTable::new(&servers, "ro_told");
    let insert = format!("INSERT INTO {} VALUES (1)", bank.table);
    let mut branch = bank.resource().read_only().unwrap();
    let refused = |branch: &mut Postgres| {
        branch.work(|client| client.batch_execute(&insert)).expect_err("it only reads").into_native().1.code
    };
    let read = |branch: &mut Postgres, number: u16| {
        let xid = xid("ro_told", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        branch.work(|client| client.batch_execute(&format!("SELECT count(*) FROM {}", bank.table))).unwrap();
        xid
    };
    for number in 0..3 {
        let xid = read(&mut branch, number);
        assert_eq!(branch.call(Verb::End { xid, success: true }), READ_ONLY);
        assert_eq!(refused(&mut branch), "25006", "outside of a branch");
    }
    let failed = read(&mut branch, 3);
    assert_eq!(refused(&mut branch), "25006");
    let reply = branch.call(Verb::End { xid: failed, success: true });
    assert!(matches!(reply, Reply::RolledBack(_)), "a failed transaction: {reply:?}");
    let ended = read(&mut branch, 4);
    branch.work(|client| client.batch_execute("COMMIT")).unwrap();
    assert_eq!(refused(&mut branch), "25006", "behind a commit of the caller's own");
    assert_eq!(branch.call(Verb::End { xid: ended, success: true }), Reply::Done);
    let reply = branch.call(Verb::Prepare(ended));
    assert!(matches!(reply, Reply::Unknown(_)), "it is not there: {reply:?}");
    let left = read(&mut branch, 5);
    assert_eq!(branch.call(Verb::End { xid: left, success: false }), Reply::Done);
    assert_eq!(branch.call(Verb::Rollback(left)), Reply::Done);
    assert_eq!(bank.rows(), [0_i32; 0]);

    let kind = |made: Result<Postgres, ResourceError>| made.expect_err("not here").into_native().0;
    for (number, resets) in
        [(6, "RESET ALL"), (7, "DISCARD ALL"), (8, "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")]
    {
        branch.work(|client| client.batch_execute(resets)).unwrap();
        let xid = xid("ro_told", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        assert_eq!(refused(&mut branch), "25006", "{resets}");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    assert_eq!(bank.rows(), [0_i32; 0]);
    let mut within = postgres_after(&bank, xid("ro_told", 9), "SELECT 1");
    within = match within.read_only().map_err(|error| error.into_native().0) {
        Err(Kind::Invalid) => bank.resource(),
        other => panic!("within a branch: {other:?}"),
    };
    within.work(|client| client.batch_execute("BEGIN")).unwrap();
    assert!(within.read_only().is_err(), "a transaction is open");

    let given = Postgres::over("bank", bank.plain(), Limits::WORK).unwrap();
    assert_eq!(kind(given.read_only()), Kind::Invalid, "the caller's own may be a pool's");
    assert_eq!(kind(branch.last_resource()), Kind::Invalid, "who only reads does not decide");
}
