//! A last resource: the row that says commit and the work beside it are one, recovery's row keeps it out, and goes when nobody can
//! come too late.

use assent_ids::{Branch, Mark, TxId, Xid};
use assent_xa::{BranchRecord, Heuristic, Past, lay_votes, read_votes};

use super::counted::pooling;
use super::truth::{short_recovery, waits_for_nobody, without_its_standby};
use super::*;
use crate::databases::engine::wait;
use crate::databases::servers::{Own, alone};

fn tx_of(xid: Xid) -> TxId {
    xid.branch().unwrap().tx
}

/// Another transaction of the same node.
fn at(test: &str, counter: u64) -> Xid {
    let branch = xid(test, 0).branch().unwrap();
    Branch { tx: TxId { counter, ..branch.tx }, ..branch }.xid()
}

fn votes(mark: Mark) -> Vec<BranchRecord> {
    let mark = Some(mark);
    let record = |number, mark| BranchRecord {
        resource: assent_ids::ResourceId(5),
        number,
        flags: 0,
        mark,
        witness: b"w'\\\0".to_vec(),
    };
    vec![record(1, mark), record(2, None)]
}

struct Desk {
    table: PostgresTable,
    agent: Box<dyn Resource>,
    mark: Mark,
    test: &'static str,
}

impl Desk {
    fn new(test: &'static str) -> Self {
        let table = PostgresTable::new(&shared(), test);
        let mut last = table.resource().last_resource().unwrap();
        let mark = last.decides().unwrap();
        assert_eq!(table.resource().decides(), None, "asked for one connection at a time");
        let agent = PostgresConnector::new("bank", &table.url).unwrap().connect().unwrap();
        Self { table, agent, mark, test }
    }

    fn worker(&self) -> Postgres {
        self.table.resource().last_resource().unwrap()
    }

    /// A branch that has written a row, and has ended.
    fn ended(&self, xid: Xid, row: u32) -> Postgres {
        let mut worker = self.worker();
        assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
        run(&mut worker, &format!("INSERT INTO {} VALUES ({row})", self.table.table)).unwrap();
        assert_eq!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
        worker
    }

    fn commit(&self, worker: &mut Postgres, xid: Xid) -> Reply {
        worker.call(Verb::CommitLast { xid, votes: lay_votes(&votes(self.mark)) })
    }

    fn settle(&mut self, xid: Xid) -> Reply {
        let (node, tx, mark) = (node(self.test), tx_of(xid), self.mark);
        self.agent.call(Verb::Settle { node, tx, mark })
    }

    fn rows(&mut self) -> Vec<TxId> {
        match self.agent.call(Verb::Rows { node: node(self.test), after: None }) {
            Reply::Rows(list) => list.into_iter().map(|(tx, _)| tx).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// All rows of the test's node, recovery's too.
    fn standing(&self) -> i64 {
        let prefix = Branch::prefix(node(self.test)).to_vec();
        let count = "SELECT count(*) FROM assent_rows.decisions WHERE substring(tx FROM 1 FOR 8) = $1";
        self.table.plain().query_one(count, &[&prefix]).unwrap().get(0)
    }
}

#[test]
fn the_row_and_the_work_stand_together_and_recovery_reads_the_votes() {
    let mut desk = Desk::new("last_commits");
    let xid = at("last_commits", 1);
    let mut worker = desk.ended(xid, 7);
    assert_eq!(desk.commit(&mut worker, xid), Reply::Done);
    assert_eq!(desk.table.rows(), [7]);
    let Reply::Row(Some(found)) = desk.settle(xid) else { panic!("the row says commit") };
    let read = read_votes(&found).unwrap();
    assert_eq!(read, votes(desk.mark));
    assert_eq!(desk.rows(), [tx_of(xid)]);
    // It is not prepared, and its witness tells recovery what became of it.
    assert_eq!(desk.agent.call(Verb::Recover(node(desk.test))), Reply::Listed(vec![]));
    let witness = worker.witness();
    assert_eq!(desk.agent.call(Verb::Inquire { xid, witness }), Reply::Past(Past::Committed));
    let node = node(desk.test);
    assert_eq!(desk.agent.call(Verb::Clear { node, txs: vec![tx_of(xid)] }), Reply::Done);
    assert_eq!((desk.rows().len(), desk.standing()), (0, 0));
    // The connection goes on with other work, and with other transactions.
    let next = at("last_commits", 2);
    assert_eq!(worker.call(Verb::Start(next)), Reply::Done);
    run(&mut worker, &format!("INSERT INTO {} VALUES (8)", desk.table.table)).unwrap();
    assert_eq!(worker.call(Verb::End { xid: next, success: true }), Reply::Vote(Vote::Decides));
    assert_eq!(desk.commit(&mut worker, next), Reply::Done);
    assert_eq!(desk.table.rows(), [7, 8]);
}

#[test]
fn recoverys_row_is_first_and_the_work_is_undone() {
    let mut desk = Desk::new("last_late");
    let xid = at("last_late", 1);
    let mut worker = desk.ended(xid, 7);
    assert_eq!(desk.settle(xid), Reply::Row(None));
    assert_eq!(desk.settle(xid), Reply::Row(None), "asked twice, it is the same row");
    assert_eq!((desk.rows().len(), desk.standing()), (0, 1), "its client may still come");
    let reply = desk.commit(&mut worker, xid);
    assert!(matches!(reply, Reply::RolledBack(_)) && code(&reply) == "23505", "{reply:?}");
    assert!(desk.table.rows().is_empty());
    // Others' transactions that began before may be open anywhere in this server.
    wait("recovery's row to go", || {
        desk.rows();
        (desk.standing() == 0).then_some(())
    });
}

/// The client's transaction is open: as long as it is, recovery's row stays, whatever becomes of its session's locks.
#[test]
fn recoverys_row_stays_while_its_client_may_come() {
    let mut desk = Desk::new("last_frozen");
    let xid = at("last_frozen", 1);
    let mut worker = desk.ended(xid, 7);
    assert_eq!(desk.settle(xid), Reply::Row(None));
    // Transactions come and go behind it.
    for row in 100..120 {
        let other = at("last_frozen", row);
        let mut beside = desk.ended(other, u32::try_from(row).unwrap());
        assert_eq!(desk.commit(&mut beside, other), Reply::Done);
        assert_eq!(desk.rows().len(), usize::try_from(row - 99).unwrap());
    }
    assert_eq!(desk.standing(), 21, "twenty commits, and recovery's");
    let reply = desk.commit(&mut worker, xid);
    assert_eq!(code(&reply), "23505", "it wakes to a refusal");
    wait("recovery's row to go", || {
        desk.rows();
        (desk.standing() == 20).then_some(())
    });
}

#[test]
fn recovery_waits_for_a_row_that_is_not_committed_a_moment_and_then_for_its_end() {
    let mut desk = Desk::new("last_open");
    for (counter, commits) in [(1, true), (2, false)] {
        let xid = at("last_open", counter);
        let mut client = desk.table.plain();
        let row = "INSERT INTO assent_rows.decisions VALUES ($1, 'c', pg_catalog.txid_current(), $2)";
        client.batch_execute("BEGIN").unwrap();
        client.execute(row, &[&xid.gtrid(), &lay_votes(&[])]).unwrap();
        let reply = desk.settle(xid);
        assert!(matches!(&reply, Reply::Refused(Kind::Busy, _)), "{reply:?}");
        client.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).unwrap();
        assert_eq!(desk.settle(xid), Reply::Row(commits.then(|| lay_votes(&[]))));
    }
}

/// Whoever wrote nothing, or nothing that its tags tell of, votes as ever.
#[test]
fn only_a_branch_that_has_surely_written_decides() {
    let desk = Desk::new("last_sure");
    let table = &desk.table.table;
    let cases = [
        (String::new(), Reply::Vote(Vote::ReadOnly)),
        (format!("SELECT * FROM {table}"), Reply::Vote(Vote::ReadOnly)),
        (format!("DELETE FROM {table} WHERE id = 0"), Reply::Vote(Vote::ReadOnly)),
        (format!("WITH it AS (INSERT INTO {table} VALUES (1) RETURNING id) SELECT * FROM it"), Reply::Done),
        (format!("INSERT INTO {table} VALUES (1)"), Reply::Vote(Vote::Decides)),
        (format!("INSERT INTO {table} VALUES (1); SELECT 1"), Reply::Vote(Vote::Decides)),
    ];
    for (counter, (sql, expected)) in (1..).zip(cases) {
        let (mut worker, xid) = (desk.worker(), at("last_sure", counter));
        assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
        if !sql.is_empty() {
            run(&mut worker, &sql).unwrap();
        }
        assert_eq!(worker.call(Verb::End { xid, success: true }), expected, "{sql}");
        if expected == Reply::Vote(Vote::Decides) {
            // It can be prepared, too: where another one decides.
            assert_eq!(worker.call(Verb::Prepare(xid)), YES);
            assert_eq!(worker.call(Verb::Rollback(xid)), Reply::Done);
        } else if expected == Reply::Done {
            assert_eq!(worker.call(Verb::Rollback(xid)), Reply::Done);
        }
    }
}

/// A failed transaction, one that the application has ended, one that wrote elsewhere: no row, and a no that is sure.
#[test]
fn a_transaction_that_cannot_commit_leaves_no_row() {
    let mut desk = Desk::new("last_fails");
    let table = desk.table.table.clone();
    let cases = [
        // What comes at its end.
        (
            format!("ALTER TABLE {table} ADD CONSTRAINT {table}_once UNIQUE (id) DEFERRABLE INITIALLY DEFERRED"),
            "",
            "23505",
        ),
        // What it wrote, a trigger has undone: it has no number.
        (
            format!(
                "CREATE FUNCTION {table}_none() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
                 CREATE VIEW {table}_view AS SELECT id FROM {table}; CREATE TRIGGER none INSTEAD OF INSERT ON {table}_view \
                 FOR EACH ROW EXECUTE FUNCTION {table}_none()"
            ),
            "_view",
            "23502",
        ),
    ];
    run(&mut desk.worker(), &format!("INSERT INTO {table} VALUES (7)")).unwrap();
    for (counter, (before, suffix, expected)) in (1..).zip(cases) {
        desk.table.plain().batch_execute(&before).unwrap();
        let (mut worker, xid) = (desk.worker(), at("last_fails", counter));
        assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
        run(&mut worker, &format!("INSERT INTO {table}{suffix} VALUES (7)")).unwrap();
        assert_eq!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
        let reply = desk.commit(&mut worker, xid);
        assert!(matches!(reply, Reply::RolledBack(_)) && code(&reply) == expected, "{reply:?}");
        assert_eq!(
            worker.decides().is_none(),
            expected == "23502",
            "whose tags do not tell is asked to vote from then on"
        );
        assert_eq!(desk.settle(xid), Reply::Row(None));
    }
    assert_eq!(desk.table.rows(), [7]);
    // Ended by the application, within the branch: nobody commits a row alone.
    let (mut worker, xid) = (desk.worker(), at("last_fails", 9));
    assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
    run(&mut worker, &format!("INSERT INTO {table} VALUES (9)")).unwrap();
    run(&mut worker, "ROLLBACK").unwrap();
    assert_ne!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
    let reply = desk.commit(&mut worker, xid);
    assert_ne!(reply, Reply::Done);
    assert_eq!(desk.settle(xid), Reply::Row(None));
}

/// Under synchronous_commit = off a commit is answered before it is durable; one that decides for others is not.
#[test]
fn the_decision_is_durable_whatever_the_session_says() {
    let desk = Desk::new("last_durable");
    let xid = at("last_durable", 1);
    let mut worker = desk.worker();
    run(&mut worker, "SET synchronous_commit = off").unwrap();
    let name = format!("{}_seen", desk.table.table);
    // What holds when it commits: a deferred trigger runs last.
    let seen = format!(
        "CREATE TABLE {name} (setting text); CREATE FUNCTION {name}_note() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO {name} VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER note AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION {name}_note()",
        table = desk.table.table
    );
    desk.table.plain().batch_execute(&seen).unwrap();
    assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
    run(&mut worker, &format!("INSERT INTO {} VALUES (1)", desk.table.table)).unwrap();
    assert_eq!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
    assert_eq!(desk.commit(&mut worker, xid), Reply::Done);
    let setting: String = desk.table.plain().query_one(&format!("SELECT setting FROM {name}"), &[]).unwrap().get(0);
    assert_eq!(setting, "on");
    let after = worker.work(|client| client.query_one("SHOW synchronous_commit", &[])).unwrap();
    assert_eq!(after.get::<_, String>(0), "off", "the session's own again");
}

/// A connection that leads elsewhere would find no row, and put its own where nobody looks.
#[test]
fn another_database_of_the_same_name_answers_nothing() {
    let mut desk = Desk::new("last_elsewhere");
    let xid = at("last_elsewhere", 1);
    let mut worker = desk.ended(xid, 7);
    let (node, tx) = (node(desk.test), tx_of(xid));
    let reply = desk.agent.call(Verb::Settle { node, tx, mark: Mark { table: desk.mark.table ^ 1, ..desk.mark } });
    assert!(matches!(&reply, Reply::Refused(Kind::Invalid, native) if native.message.contains("url")), "{reply:?}");
    let name = format!("assent_elsewhere_{}", std::process::id());
    superuser(&desk.table.url).batch_execute(&format!("CREATE DATABASE {name} OWNER assent")).unwrap();
    let url = other_database(&desk.table.url, &name);
    let mut other = PostgresConnector::new("bank", &url).unwrap().connect().unwrap();
    assert_eq!(other.call(Verb::Rows { node, after: None }), Reply::Rows(vec![]), "there is no table");
    let asked = Verb::Settle { node, tx, mark: desk.mark };
    let reply = other.call(asked.clone());
    assert!(
        matches!(&reply, Reply::Refused(Kind::Invalid, native) if native.message.contains("no table")),
        "{reply:?}"
    );
    // A copy of the table with all that is in it is still another one.
    Postgres::connect("bank", &url, Limits::WORK).unwrap().last_resource().unwrap();
    let home = "SELECT number FROM assent_rows.decisions WHERE tx = ''";
    let number: i64 = desk.table.plain().query_one(home, &[]).unwrap().get(0);
    Client::connect(&url, NoTls)
        .unwrap()
        .batch_execute(&format!("UPDATE assent_rows.decisions SET number = {number}"))
        .unwrap();
    let reply = other.call(asked);
    assert!(matches!(&reply, Reply::Refused(Kind::Invalid, _)), "{reply:?}");
    assert_eq!(desk.commit(&mut worker, xid), Reply::Done, "nobody has kept it out");
}

/// An old primary has the table, and knows nothing of what was decided since: it puts no row, and reads none.
#[test]
fn a_server_that_is_behind_the_clients_timeline_answers_nothing() {
    let mut desk = Desk::new("last_behind");
    let xid = at("last_behind", 1);
    let mut worker = desk.ended(xid, 7);
    let (node, tx, mark) = (node(desk.test), tx_of(xid), desk.mark);
    let later = Mark { timeline: mark.timeline + 1, ..mark };
    let asked = Verb::Settle { node, tx, mark: later };
    for committed in [false, true] {
        let reply = desk.agent.call(asked.clone());
        assert!(
            matches!(&reply, Reply::Refused(Kind::Unavailable, native) if native.message.contains("old primary")),
            "{reply:?}"
        );
        assert_eq!(desk.standing(), i64::from(committed));
        if !committed {
            assert_eq!(desk.commit(&mut worker, xid), Reply::Done, "nobody has kept it out");
        }
    }
    assert_eq!(desk.settle(xid), Reply::Row(Some(lay_votes(&votes(mark)))));
}

/// Rows are listed in their order, from any of them on.
#[test]
fn rows_are_listed_from_where_the_last_list_ended() {
    let mut desk = Desk::new("last_listed");
    for counter in 1..4 {
        let xid = at("last_listed", counter);
        let mut worker = desk.ended(xid, 7);
        assert_eq!(desk.commit(&mut worker, xid), Reply::Done);
    }
    let all = desk.rows();
    let node = node(desk.test);
    for (place, after) in all.iter().enumerate() {
        let Reply::Rows(list) = desk.agent.call(Verb::Rows { node, after: Some(*after) }) else { panic!("a list") };
        assert!(list.iter().map(|(tx, _)| tx).eq(&all[place + 1..]));
    }
}

/// A trigger, a rule, an unlogged table or another key: a row might not stand where it was put.
#[test]
fn a_table_that_somebody_has_changed_keeps_no_decisions() {
    let servers = shared();
    let name = format!("assent_last_changed_{}", std::process::id());
    superuser(&servers.postgres).batch_execute(&format!("CREATE DATABASE {name} OWNER assent")).unwrap();
    let url = other_database(&servers.postgres, &name);
    let open = || Postgres::connect("bank", &url, Limits::WORK).unwrap().last_resource();
    let mut early = open().unwrap();
    let mut client = Client::connect(&url, NoTls).unwrap();
    let rows = "assent_rows.decisions";
    let changes = [
        (format!("ALTER TABLE {rows} SET UNLOGGED"), format!("ALTER TABLE {rows} SET LOGGED")),
        (
            format!("ALTER TABLE {rows} ENABLE ROW LEVEL SECURITY"),
            format!("ALTER TABLE {rows} DISABLE ROW LEVEL SECURITY"),
        ),
        (
            format!("ALTER TABLE {rows} DROP CONSTRAINT decisions_pkey"),
            format!("ALTER TABLE {rows} ADD PRIMARY KEY (tx)"),
        ),
        (
            format!("ALTER TABLE {rows} ALTER COLUMN number DROP NOT NULL"),
            format!("ALTER TABLE {rows} ALTER COLUMN number SET NOT NULL"),
        ),
        (format!("CREATE RULE drops AS ON INSERT TO {rows} DO INSTEAD NOTHING"), format!("DROP RULE drops ON {rows}")),
        (
            format!(
                "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
                 CREATE TRIGGER drops BEFORE INSERT ON {rows} FOR EACH ROW EXECUTE FUNCTION drops()"
            ),
            String::new(),
        ),
    ];
    for (change, back) in changes {
        client.batch_execute(&change).unwrap();
        let refused = open().unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{change}: {refused}");
        if !back.is_empty() {
            client.batch_execute(&back).unwrap();
            assert!(open().is_ok(), "{back}");
        }
    }
    // Changed behind its back: its work is committed, and no row is. It says so: the log decides for the others.
    run(&mut early, "CREATE TABLE work (id int)").unwrap();
    let xid = at("last_changed", 1);
    assert_eq!(early.call(Verb::Start(xid)), Reply::Done);
    run(&mut early, "INSERT INTO work VALUES (1)").unwrap();
    assert_eq!(early.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
    let reply = early.call(Verb::CommitLast { xid, votes: lay_votes(&[]) });
    assert!(
        matches!(&reply, Reply::Heuristic(Heuristic::Committed, native) if native.message.contains("row")),
        "{reply:?}"
    );
    assert_eq!(early.decides(), None);
}

/// Who may not make the table is told how.
#[test]
fn rights_that_are_missing_are_named_with_the_words_that_give_them() {
    let servers = shared();
    let name = format!("assent_last_rights_{}", std::process::id());
    superuser(&servers.postgres).batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
    let url = other_database(&servers.postgres, &name);
    let open = || Postgres::connect("bank", &url, Limits::WORK).unwrap().last_resource();
    let refused = open().unwrap_err();
    assert_eq!(refused.kind(), Kind::Denied, "{refused}");
    assert!(refused.to_string().contains("CREATE TABLE IF NOT EXISTS assent_rows.decisions"), "{refused}");
    let owner = as_superuser(&url);
    Postgres::connect("bank", &owner, Limits::WORK).unwrap().last_resource().unwrap();
    let refused = open().unwrap_err();
    assert!(refused.kind() == Kind::Denied && refused.to_string().contains("GRANT"), "{refused}");
    let grants =
        "GRANT USAGE ON SCHEMA assent_rows TO assent; GRANT SELECT, INSERT, DELETE ON assent_rows.decisions TO assent";
    Client::connect(&owner, NoTls).unwrap().batch_execute(grants).unwrap();
    assert!(open().unwrap().decides().is_some());
    let given = Client::connect(&url, NoTls).unwrap();
    let refused = Postgres::over("bank", given, Limits::WORK).unwrap().last_resource().unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
}

/// A proxy that greets by itself may lead to another server with the next message, and the branches' names would not say so.
#[test]
fn a_pool_keeps_no_decisions() {
    let table = PostgresTable::new(&shared(), "last_pooled");
    let refused = Postgres::connect("bank", &pooling(&table.url), Limits::WORK).unwrap().last_resource().unwrap_err();
    assert!(refused.kind() == Kind::Invalid && refused.to_string().contains("a pool"), "{refused}");
}

/// Recovery looks for the row in the table that the branches' names say: a client's is refused in any other, and its work with it.
#[test]
fn a_row_is_refused_where_nobody_would_look_for_it() {
    let servers = shared();
    let name = format!("assent_last_anew_{}", std::process::id());
    superuser(&servers.postgres).batch_execute(&format!("CREATE DATABASE {name} OWNER assent")).unwrap();
    let url = other_database(&servers.postgres, &name);
    let mut client = Client::connect(&url, NoTls).unwrap();
    Client::connect(&as_superuser(&url), NoTls)
        .unwrap()
        .batch_execute(&format!(
            "CREATE ROLE {name} NOLOGIN; GRANT {name} TO assent; CREATE TABLE work (id int); GRANT ALL ON work TO assent, {name}"
        ))
        .unwrap();
    let made_anew = "DROP TABLE assent_rows.decisions; CREATE TABLE assent_rows.decisions (tx bytea PRIMARY KEY, \
                     outcome \"char\" NOT NULL, number int8 NOT NULL, votes bytea NOT NULL)";
    let as_another = format!("SET LOCAL ROLE {name};");
    let cases = [
        // What somebody does behind the connection's back; what the work begins with; the refusal.
        (made_anew, "", "23502"),
        ("", as_another.as_str(), "42501"),
        ("DROP TABLE assent_rows.decisions", "", "42P01"),
    ];
    for (counter, (change, before, code_of_it)) in (1..).zip(cases) {
        let open = || Postgres::connect("bank", &url, Limits::WORK).unwrap().last_resource().unwrap();
        let (mut worker, xid) = (open(), at("last_anew", counter));
        client.batch_execute(change).unwrap();
        assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
        run(&mut worker, &format!("{before} INSERT INTO work VALUES (1)")).unwrap();
        assert_eq!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
        let reply = worker.call(Verb::CommitLast { xid, votes: lay_votes(&[]) });
        assert!(matches!(reply, Reply::RolledBack(_)) && code(&reply) == code_of_it, "{change}{before}: {reply:?}");
        let Reply::RolledBack(native) = reply else { unreachable!("it is one") };
        assert!(native.message.contains("the next branch on this connection votes"), "{native:?}");
        assert_eq!(worker.decides(), None, "{change}{before}");
        let rows: i64 = client.query_one("SELECT count(*) FROM work", &[]).unwrap().get(0);
        assert_eq!(rows, 0, "{change}{before}");
    }
}

/// Work that overlaps and is serializable conflicts in what it touches, and not where decisions are kept.
#[test]
fn serializable_transactions_that_overlap_do_not_meet_in_the_table() {
    let desk = Desk::new("last_serial");
    superuser(&desk.table.url).batch_execute("VACUUM ANALYZE assent_rows.decisions").unwrap();
    let begun = |counter| {
        let (mut worker, xid) = (desk.worker(), at("last_serial", counter));
        assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
        let row = format!(
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; INSERT INTO {} VALUES ({counter})",
            desk.table.table
        );
        run(&mut worker, &row).unwrap();
        assert_eq!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
        (worker, xid)
    };
    let open: Vec<_> = (1..=4).map(begun).collect();
    for (mut worker, xid) in open {
        assert_eq!(desk.commit(&mut worker, xid), Reply::Done);
    }
    assert_eq!(desk.table.rows(), [1, 2, 3, 4]);
}

/// Recovery's row is durable when it is answered, whatever the database says: a deferred trigger of somebody sees what holds.
#[test]
fn recoverys_own_row_is_durable_whatever_the_database_says() {
    let servers = shared();
    let name = format!("assent_last_lazy_{}", std::process::id());
    let mut root = superuser(&servers.postgres);
    root.batch_execute(&format!("CREATE DATABASE {name} OWNER assent")).unwrap();
    root.batch_execute(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).unwrap();
    let url = other_database(&servers.postgres, &name);
    let mark = Postgres::connect("bank", &url, Limits::WORK).unwrap().last_resource().unwrap().decides().unwrap();
    let mut client = Client::connect(&url, NoTls).unwrap();
    client
        .batch_execute(
            "CREATE TABLE seen (setting text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN INSERT INTO public.seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER note AFTER INSERT ON assent_rows.decisions DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION note()",
        )
        .unwrap();
    let mut agent = PostgresConnector::new("bank", &url).unwrap().connect().unwrap();
    let (node, tx) = (node("last_lazy"), tx_of(at("last_lazy", 1)));
    assert_eq!(agent.call(Verb::Settle { node, tx, mark }), Reply::Row(None));
    let setting: String = client.query_one("SELECT setting FROM seen", &[]).unwrap().get(0);
    assert_eq!(setting, "local", "its disk has it; the standby is waited for behind that");
}

/// What recovery writes and what it reads waited for the standby behind a statement, where no time limit ends that: the session that was given
/// up kept the claim, and its coordinator took itself for another process and committed nothing.
#[test]
fn a_row_is_not_told_before_the_standby_has_it_and_who_asks_gives_its_claim_back() {
    drop(shared()); // The binaries are there from here on.
    let own = Own::start("postgres", "");
    let table = PostgresTable::of(&own.url, "last_unheard");
    let (node, [theirs, ours]) = (node("last_unheard"), [1, 2].map(|counter| at("last_unheard", counter)));
    let mut worker = table.resource().last_resource().unwrap();
    let mark = worker.decides().unwrap();
    assert_eq!(worker.call(Verb::Start(theirs)), Reply::Done);
    run(&mut worker, &format!("INSERT INTO {} VALUES (7)", table.table)).unwrap();
    let process = process(&mut worker);
    assert_eq!(worker.call(Verb::End { xid: theirs, success: true }), Reply::Vote(Vote::Decides));
    without_its_standby(&own.url);
    worker.send(Verb::CommitLast { xid: theirs, votes: lay_votes(&votes(mark)) });
    let mut superuser = superuser(&own.url);
    wait("the commit to wait", || {
        let sql = "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'";
        superuser.query_opt(sql, &[&process]).unwrap()
    });
    let ended: bool = superuser.query_one("SELECT pg_terminate_backend($1, 60000)", &[&process]).unwrap().get(0);
    assert!(ended && matches!(worker.receive(), Reply::Lost(_)));
    assert_eq!(table.rows(), [7], "it is committed here, and nowhere else");
    let settle = |xid| Verb::Settle { node, tx: tx_of(xid), mark };
    let agent = || {
        let mut agent = short_recovery(&own.url);
        wait("the claim to be free", || (agent.call(Verb::Claim(node)) == Reply::Done).then_some(()));
        agent
    };
    for xid in [theirs, ours, theirs, ours] {
        let reply = agent().call(settle(xid));
        assert!(matches!(reply, Reply::Lost(_)), "{xid}: {reply:?}");
    }
    let listed = agent().call(Verb::Rows { node, after: None });
    assert!(matches!(listed, Reply::Lost(_)), "{listed:?}");
    // What lets go of rows waits for nobody: one that a fail-over brings back goes again.
    let mut one = agent();
    assert_eq!(one.call(Verb::Clear { node, txs: vec![tx_of(at("last_unheard", 3))] }), Reply::Done);
    waits_for_nobody(&own.url);
    assert_eq!(one.call(settle(theirs)), Reply::Row(Some(lay_votes(&votes(mark)))));
    assert_eq!(one.call(settle(ours)), Reply::Row(None));
    assert!(matches!(one.call(Verb::Rows { node, after: None }), Reply::Rows(rows) if rows.len() == 1));
    assert_eq!(one.call(Verb::Clear { node, txs: vec![tx_of(theirs)] }), Reply::Done);
    assert_eq!(one.call(Verb::Rows { node, after: None }), Reply::Rows(vec![]));
}

/// Both are the same database of the same cluster, by all their numbers but the timeline.
#[test]
fn after_a_fail_over_the_new_primary_has_the_rows_and_the_old_one_none_of_the_new_ones() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "last_promoted");
    let mut before = table.resource().last_resource().unwrap();
    let commit = |worker: &mut Postgres, xid| {
        assert_eq!(worker.call(Verb::Start(xid)), Reply::Done);
        run(worker, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
        assert_eq!(worker.call(Verb::End { xid, success: true }), Reply::Vote(Vote::Decides));
        let mark = worker.decides().unwrap();
        assert_eq!(worker.call(Verb::CommitLast { xid, votes: lay_votes(&votes(mark)) }), Reply::Done);
        mark
    };
    let early = at("last_promoted", 1);
    let early_mark = commit(&mut before, early);
    let standby = servers.standby();
    let position: String = table.plain().query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).unwrap().get(0);
    let mut there = superuser(&standby.url);
    let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
    wait("the standby to catch up", || there.query_one(&caught_up, &[]).unwrap().get::<_, bool>(0).then_some(()));
    assert!(there.query_one("SELECT pg_promote()", &[]).unwrap().get::<_, bool>(0));

    let mut after = Postgres::connect("bank", &standby.url, Limits::WORK).unwrap().last_resource().unwrap();
    let late = at("last_promoted", 2);
    let late_mark = commit(&mut after, late);
    assert_eq!(late_mark, Mark { timeline: early_mark.timeline + 1, ..early_mark });
    let agent = |url: &str| PostgresConnector::new("bank", url).unwrap().connect().unwrap();
    let (mut old, mut new) = (agent(&table.url), agent(&standby.url));
    let settle = |xid, mark| Verb::Settle { node: node("last_promoted"), tx: tx_of(xid), mark };
    let reply = old.call(settle(late, late_mark));
    assert!(matches!(&reply, Reply::Refused(Kind::Unavailable, _)), "{reply:?}");
    for (xid, mark) in [(early, early_mark), (late, late_mark)] {
        assert_eq!(new.call(settle(xid, mark)), Reply::Row(Some(lay_votes(&votes(mark)))));
    }
}
