//! A connection of Assent's own is spoken on by the thread that holds it, over a blocking socket.

use std::time::Duration;

use ::postgres::{Client, NoTls};
use assent_kind::Kind;
use assent_resources::{Limits, Postgres};
use assent_xa::{Reply, Resource, Verb};

use super::super::engine::{Engine as _, PostgresTable, wait, xid};
use super::super::fake::{self, Behaviour};
use super::super::servers::shared;
use super::{YES, run};

const SHORT: Limits = Limits { answer_ms_max: 300, ..Limits::WORK };

/// The first server hangs until its branch is given up. The second one answers meanwhile, and to the same thread.
#[test]
fn two_servers_work_at_the_same_time_for_one_thread() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "overlap");
    let url = fake::postgres(&[("COMMIT PREPARED", Behaviour::Hang)]);
    let mut hanging = Postgres::connect("bank", &url, SHORT).unwrap();
    let mut branch = table.resource();
    let xid = xid("overlap", 0);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    branch.send(Verb::Commit(xid));
    hanging.send(Verb::Commit(xid));
    assert!(matches!(hanging.receive(), Reply::Lost(_)));
    // Before anybody has waited for its answer.
    wait("it is committed", || (table.rows() == [1]).then_some(()));
    assert_eq!(branch.receive(), Reply::Done);
}

/// The limit is for verbs: the caller's own statement may take longer, and the verb behind it may not.
#[test]
fn work_has_no_limit_and_the_verb_behind_it_has() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "patience");
    let mut branch = Postgres::connect("bank", &table.url, SHORT).unwrap();
    let xid = xid("patience", 0);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    run(&mut branch, "SELECT pg_sleep(1)").unwrap();
    // What is deferred is done by the vote.
    run(
        &mut branch,
        &format!(
            "CREATE FUNCTION pg_temp.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(20); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION pg_temp.slow(); INSERT INTO {} VALUES (1)",
            table.table, table.table
        ),
    )
    .unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    let reply = branch.call(Verb::Prepare(xid));
    assert!(matches!(&reply, Reply::Lost(native) if native.message.contains("no answer within 300 ms")), "{reply:?}");
    assert_eq!(run(&mut branch, "SELECT 1").unwrap_err().kind(), Kind::Unavailable);
    assert!(matches!(branch.call(Verb::Rollback(xid)), Reply::Lost(_)), "it may have voted");
}

/// More rows than the driver's channels and any buffer hold, notices in between, a long question: nobody waits for what is
/// not to come.
#[test]
fn long_answers_notices_and_questions_pass() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "long");
    let mut branch = table.resource();
    let long = "SELECT number, repeat('x', 500) FROM generate_series(1, 20000) AS number";
    assert_eq!(branch.work(|client| client.query(long, &[])).unwrap().len(), 20_000);
    // Each row's notice comes before the rows that follow it.
    let noisy =
        "DO 'BEGIN FOR i IN 1..2000 LOOP RAISE NOTICE ''%'', repeat(''n'', 200); END LOOP; END'; SELECT 1; SELECT 2";
    let answered = branch.work(|client| client.simple_query(noisy)).unwrap();
    assert!(answered.len() >= 4, "{answered:?}");
    let long = format!("SELECT length('{}')", "q".repeat(8 << 20));
    assert_eq!(branch.work(|client| client.query_one(&long, &[])).unwrap().get::<_, i32>(0), 8 << 20);
    assert_eq!(branch.call(Verb::Start(xid("long", 0))), Reply::Done, "and it is in step");
}

/// Words whose rows nobody wants go past the driver, and what is not answered plainly is the driver's after all: the same
/// error as with rows, the notice, and the line in step behind it, whatever of the answer had come by then.
#[test]
fn a_batch_says_what_the_driver_says() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "batch");
    let mut branch = table.resource();
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let rows = |number: u32| format!("SELECT repeat('x', 500) FROM generate_series(1, {number})");
    let failing = [
        "SELECT 1/0".to_owned(),
        format!("{}; SELECT 1/0", rows(1)),
        // More than a read, more than is kept, more than the driver's channels hold.
        format!("{}; SELECT 1/0; SELECT 2", rows(10)),
        format!("{}; SELECT 1/0", rows(20_000)),
        "SELECT 1 FROM no_such_table".to_owned(),
        "no such words".to_owned(),
        "SELECT '\0'".to_owned(),
    ];
    for (number, words) in (0..).zip(failing.iter().cycle().take(5 * failing.len())) {
        let xid = xid("batch", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        let with_rows = branch.work(|it| it.simple_query(words).map(drop)).unwrap_err();
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        assert_eq!(run(&mut branch, words).unwrap_err(), with_rows, "{words}");
        // Words that the driver does not send begin nothing.
        let behind = if words.contains('\0') { "3B001" } else { "25P02" };
        assert_eq!(run(&mut branch, "SELECT 1").unwrap_err().into_native().1.code, behind, "{words}");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    let noisy = "DO 'BEGIN RAISE NOTICE ''heard''; END'";
    for (number, words) in (100..).zip(["", ";", noisy, "SET application_name = 'another'", &rows(20_000)]) {
        let xid = xid("batch", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, words).unwrap();
        run(&mut branch, &format!("{insert}; {noisy}; {insert}")).unwrap();
        assert_eq!(branch.work(|it| it.query("SELECT 7", &[])).unwrap().len(), 1);
        run(&mut branch, words).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [1; 10]);
}

/// What the driver has still to say of a statement that was dropped, and what it reads of an error, keep nobody waiting: not
/// the caller's next words, not the vote behind them, not the next branch.
#[test]
fn statements_that_are_dropped_keep_nobody_waiting() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "dropped");
    let (url, name) = (table.url.clone(), table.table.clone());
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (is_asked, is_kept) in [(true, false), (true, true), (false, false), (false, true)] {
            let branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
            drop_statements(&mut branch.detect_read_only(is_asked), &name, is_asked, is_kept);
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("somebody waits for ever, or found something else");
    assert_eq!(table.rows(), [[2; 4], [3; 4]].concat());
}

fn drop_statements(branch: &mut Postgres, table: &str, is_asked: bool, is_kept: bool) {
    let insert = format!("INSERT INTO {table} VALUES ($1)");
    let xids = [0, 1, 2].map(|number| xid("dropped", number));
    let [failing, voting, after] = xids;
    assert_eq!(branch.call(Verb::Start(failing)), Reply::Done);
    let failed = branch.work(|it| {
        it.execute(&insert, &[&1_i32])?;
        // A row keeps its statement.
        let _kept = if is_kept { Some(it.query_one("SELECT $1::int", &[&1_i32])?) } else { None };
        it.batch_execute("SELECT 1/0")
    });
    assert_eq!(failed.unwrap_err().into_native().1.code, "22012");
    assert_eq!(run(branch, "SELECT 1").unwrap_err().into_native().1.code, "25P02");
    let end = branch.call(Verb::End { xid: failing, success: true });
    let no = if is_asked { end } else { branch.call(Verb::Prepare(failing)) };
    assert!(matches!(&no, Reply::RolledBack(native) if native.code == "25P02"), "{no:?}");
    assert_eq!(branch.call(Verb::Rollback(failing)), Reply::Done);

    assert_eq!(branch.call(Verb::Start(voting)), Reply::Done);
    let kept = branch.work(|it| {
        let kept = it.query_one("SELECT $1::int", &[&1_i32])?;
        it.execute(&insert, &[&2_i32])?;
        Ok(is_kept.then_some(kept))
    });
    assert_eq!(branch.call(Verb::End { xid: voting, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(voting)), YES);
    drop(kept);
    assert_eq!(branch.call(Verb::Commit(voting)), Reply::Done);

    assert_eq!(branch.call(Verb::Start(after)), Reply::Done);
    run(branch, &format!("INSERT INTO {table} VALUES (3)")).unwrap();
    assert_eq!(branch.call(Verb::End { xid: after, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(after)), YES);
    assert_eq!(branch.call(Verb::Commit(after)), Reply::Done);
    let left = branch.work(|it| it.simple_query("SELECT 1/count(*) FROM pg_prepared_statements WHERE name LIKE 's%'"));
    assert_eq!(left.unwrap_err().into_native().1.code, "22012", "the driver's are gone");
}

/// The server is told that nobody asks any more: it need not find out, and nothing is left open there.
#[test]
fn a_connection_that_is_dropped_takes_leave() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "leave");
    let mut superuser = Client::connect(&super::as_superuser(&table.url), NoTls).unwrap();
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid("leave", 0))), Reply::Done);
    let process = super::process(&mut branch);
    run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    drop(branch);
    let mut is_there = || -> bool {
        let asked = superuser.query_one("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", &[&process]);
        asked.unwrap().get(0)
    };
    wait("the session to end", || (!is_there()).then_some(()));
    assert_eq!(table.rows(), [0_i32; 0]);
}

/// A server that talks and does not answer has no more time than one that is silent.
#[test]
fn a_vote_that_only_sends_notices_is_given_up() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "chatter");
    let mut branch = Postgres::connect("bank", &table.url, SHORT).unwrap();
    let xid = xid("chatter", 0);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    let setup = format!(
        "CREATE FUNCTION pg_temp.chatter() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN FOR i IN 1..600 LOOP RAISE NOTICE ''still here''; PERFORM pg_sleep(0.1); END LOOP; RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER chatter AFTER INSERT ON {0} DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION pg_temp.chatter(); INSERT INTO {0} VALUES (1)",
        table.table
    );
    run(&mut branch, &setup).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    let reply = branch.call(Verb::Prepare(xid));
    assert!(matches!(&reply, Reply::Lost(native) if native.message.contains("no answer within 300 ms")), "{reply:?}");
}

/// A host without an address, and one where nobody listens, do not hide the one behind them.
#[test]
fn the_first_host_that_answers_is_taken() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "hosts");
    let (before, rest) = table.url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let (_, port) = server.split_once(':').unwrap();
    for dead in [format!("no-such-host.invalid:{port}"), "127.0.0.1:1".to_owned()] {
        let url = format!("{before}@{dead},{server}/{database}");
        let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
        run(&mut branch, "SELECT 1").unwrap();
    }
    let error = Postgres::connect("bank", &format!("{before}@h1:1,h2:2,h3/{database}?port=1,2"), SHORT).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
}

/// An answer that belongs to nothing that was said is not believed, and the connection not used again.
#[test]
fn an_answer_without_a_statement_is_lost() {
    let xid = xid("empty", 0);
    for (tells, begins) in fake::WAYS {
        for (vote, begins) in [Verb::Prepare(xid), Verb::CommitOnePhase(xid)].into_iter().zip(begins) {
            let url = fake::postgres_that_tells(tells, &[(begins, Behaviour::Rows(&[]))]);
            let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
            assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
            run(&mut branch, "SELECT 1").unwrap();
            assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
            let reply = branch.call(vote);
            assert!(matches!(reply, Reply::Lost(_)), "{tells:?}: {reply:?}");
            assert!(matches!(branch.call(Verb::Commit(xid)), Reply::Lost(_)));
            assert_eq!(run(&mut branch, "SELECT 1").unwrap_err().kind(), Kind::Unavailable);
        }
    }
}

/// Cancelled, out of memory, a pooler without a server: what the caller says next would be done outside of the branch, at
/// once and for good.
#[test]
fn nothing_of_the_callers_is_said_before_the_server_has_begun() {
    const REFUSED: Behaviour = Behaviour::Error("ERROR", "57014");
    const ALWAYS: &[(&str, Behaviour)] = &[("BEGIN", REFUSED)];
    const ONCE: &[(&str, Behaviour)] = &[("BEGIN; INSERT", REFUSED)];
    let work = |branch: &mut Postgres| {
        let worked = branch.work(|it| {
            let first = it.batch_execute("INSERT 1");
            it.batch_execute("INSERT 2").and(first)
        });
        worked.map_err(|error| error.into_native().1.code)
    };
    for number in 0..3 {
        let (url, heard) = fake::postgres_that_hears(ALWAYS);
        let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap().detect_read_only(number != 1);
        let xid = xid("unbegun", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        heard.lock().unwrap().clear();
        // With parameters, and words that may end their transaction, go behind a BEGIN of their own.
        let first = match number {
            0 => run(&mut branch, "INSERT 0"),
            1 => run(&mut branch, "INSERT 'the end'"),
            _ => branch.work(|it| it.execute("INSERT 0", &[]).map(drop)),
        };
        assert_eq!(first.unwrap_err().into_native().1.code, "57014");
        assert_eq!(work(&mut branch), Err("57014".to_owned()));
        assert!(branch.work(|it| it.query("INSERT 3", &[]).map(drop)).is_err());
        let bare = |text: &String| text.contains("INSERT") && !text.starts_with("BEGIN; ");
        assert_eq!(heard.lock().unwrap().iter().find(|text| bare(text)), None);
        let reply = branch.call(Verb::End { xid, success: true });
        assert!(matches!(&reply, Reply::RolledBack(native) if native.code == "57014"), "{reply:?}");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    // Nor behind a rollback that is refused too: a verb ends the branch when the server says so.
    const BOTH: &[(&str, Behaviour)] = &[("BEGIN", REFUSED), ("ROLLBACK", REFUSED)];
    let (url, heard) = fake::postgres_that_hears(BOTH);
    let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
    let shut = xid("unbegun", 8);
    assert_eq!(branch.call(Verb::Start(shut)), Reply::Done);
    heard.lock().unwrap().clear();
    for verb in [Verb::End { xid: shut, success: true }, Verb::Rollback(shut)] {
        assert!(work(&mut branch).is_err());
        let reply = branch.call(verb);
        assert!(matches!(reply, Reply::Refused(..)), "{reply:?}");
        assert!(work(&mut branch).is_err());
    }
    assert!(heard.lock().unwrap().iter().all(|text| !text.starts_with("INSERT")));
    // Refused for once: the transaction that is begun then has all of the words, in their order.
    let (url, heard) = fake::postgres_that_hears(ONCE);
    let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
    assert_eq!(branch.call(Verb::Start(xid("unbegun", 9))), Reply::Done);
    heard.lock().unwrap().clear();
    assert_eq!(work(&mut branch), Ok(()));
    assert_eq!(*heard.lock().unwrap(), ["BEGIN; INSERT 1", "BEGIN", "INSERT 1", "INSERT 2"]);
}

/// The server then waits for rows that nobody can send, and would take every question for one of them.
#[test]
fn a_copy_that_nobody_can_feed_ends_the_connection() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "copy");
    let mut branch = table.resource();
    let xid = xid("copy", 0);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    let mut other = table.resource();
    assert_eq!(other.call(Verb::Start(super::super::engine::xid("copy", 1))), Reply::Done);
    let first = run(&mut other, &format!("COPY {} FROM STDIN", table.table)).unwrap_err();
    assert_eq!(first.kind(), Kind::InDoubt, "{first}: as the first words of a branch too");
    assert_eq!(run(&mut other, "SELECT 1").unwrap_err().kind(), Kind::Unavailable);
    let refused = run(&mut branch, &format!("COPY {} FROM STDIN", table.table)).unwrap_err();
    assert_eq!(refused.kind(), Kind::InDoubt, "{refused}");
    assert_eq!(run(&mut branch, "SELECT 1").unwrap_err().kind(), Kind::Unavailable);
    assert!(matches!(branch.call(Verb::End { xid, success: true }), Reply::Lost(_) | Reply::Done));
    assert!(!matches!(branch.call(Verb::Prepare(xid)), Reply::Vote(_)));
    drop(branch);
    wait("its session to end", || table.rows().is_empty().then_some(()));
}
