//! Branches that only read: what tells so, what they leave on their way, and connections that are told to.

use ::mysql::prelude::Queryable;
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, ResourceError};
use assent_xa::{Reply, Resource, Verb, Vote};

use super::super::engine::{Engine, MariadbTable, node, wait, xid};
use super::super::servers::shared;
use super::Apart;
use super::tap::Tap;

const YES: Reply = Reply::Vote(Vote::Yes);
const READ_ONLY: Reply = Reply::Vote(Vote::ReadOnly);

fn start(branch: &mut Mariadb, xid: Xid) {
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
}

fn say(branch: &mut Mariadb, sql: &str) {
    branch.work(|connection| connection.query_drop(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// As a transaction's commit does it: on the thread that asks, within the connection's own time limit.
fn end(branch: &mut Mariadb, xid: Xid) -> Reply {
    if let Some(verb) = branch.defer(Verb::End { xid, success: true }) {
        branch.send(verb);
    }
    branch.receive()
}

fn refused(branch: &mut Mariadb, sql: &str) -> String {
    branch.work(|connection| connection.query_drop(sql)).expect_err(sql).into_native().1.code
}

/// The end of the branch tells, in one message; where it cannot, it is asked.
#[test]
fn what_rows_have_hidden_is_told_with_the_end() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "told_at_end");
    let t = &table.table;
    let mut plain = table.plain();
    plain.query_drop(format!("INSERT INTO {t} VALUES (1)")).unwrap();
    let writes = format!("BEGIN UPDATE {t} SET id = id + 1; RETURN 1; END");
    plain.query_drop(format!("CREATE FUNCTION {t}_w() RETURNS int {writes}")).unwrap();
    let hides =
        format!("BEGIN SET SESSION session_track_transaction_info = OFF; UPDATE {t} SET id = id + 1; RETURN 1; END");
    plain.query_drop(format!("CREATE FUNCTION {t}_h() RETURNS int {hides}")).unwrap();
    let read = format!("SELECT * FROM {t}");
    let (function, hidden) = (format!("SELECT {t}_w()"), format!("SELECT {t}_h()"));
    let back = format!(
        "BEGIN DECLARE n int; SET n = {t}_h(); SET SESSION session_track_transaction_info = STATE; RETURN n; END"
    );
    plain.query_drop(format!("CREATE FUNCTION {t}_b() RETURNS int {back}")).unwrap();
    let back = format!("SELECT {t}_b()");
    let off = "SET SESSION session_track_transaction_info = OFF";
    let write = format!("UPDATE {t} SET id = id + 1");
    plain.query_drop(format!("CREATE PROCEDURE {t}_p() BEGIN {off}; {write}; END")).unwrap();
    let procedure = format!("CALL {t}_p()");
    let untracked = "SET SESSION session_track_system_variables = ''";
    // What is said before the branch, in it, whether it counts as one that only read, and whether its end told.
    let cases: [(&str, &[&str], bool, bool); 11] = [
        ("DO 1", &[&read], true, true),
        ("DO 1", &[&read, &read, "SELECT 1"], true, true),
        ("DO 1", &["SET @x = 1"], true, false),
        ("DO 1", &[&read, &function], false, true),
        ("DO 1", &[&function, &read], false, true),
        ("DO 1", &[&read, &hidden], false, false),
        ("DO 1", &[&read, &back], false, false),
        ("DO 1", &[&read, off, &write], false, false),
        ("DO 1", &[&read, &procedure], false, false),
        ("DO 1", &[&read, off, &write, "SET SESSION session_track_transaction_info = STATE", &read], false, false),
        (untracked, &[&read], true, true),
    ];
    for (number, (before, statements, only_read, told)) in (0_u16..).zip(cases) {
        let tap = Tap::new(&table.url);
        let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
        say(&mut branch, before);
        for turn in 0..2_u16 {
            let xid = xid("told_at_end", number * 2 + turn);
            start(&mut branch, xid);
            statements.iter().for_each(|sql| say(&mut branch, sql));
            let expected = if only_read { READ_ONLY } else { Reply::Done };
            let asked = tap.times("DO UUID()");
            assert_eq!(end(&mut branch, xid), expected, "{before} {statements:?}");
            let asked = tap.times("DO UUID()") - asked;
            assert_eq!(asked, usize::from(!told), "{before} {statements:?}");
            if !only_read {
                assert_eq!(branch.call(Verb::Prepare(xid)), YES);
                assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
            }
        }
        assert_eq!(tap.times("SET STATEMENT"), 2, "{before} {statements:?}");
    }
    assert_eq!(table.rows(), [1]);
}

/// MySQL, and whoever stands between, may not know the statement.
#[test]
fn a_server_that_does_not_know_how_to_tell_is_asked() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "no_telling");
    let tap = Tap::new(&table.url);
    tap.garble(Some(("SET STATEMENT", "SET SENTENCE")));
    let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    for (number, writes) in [(0, false), (1, true), (2, false)] {
        let xid = xid("no_telling", number);
        start(&mut branch, xid);
        say(&mut branch, &format!("SELECT * FROM {}", table.table));
        if writes {
            say(&mut branch, &format!("SELECT * FROM {} FOR UPDATE", table.table));
        }
        assert_eq!(end(&mut branch, xid), if writes { Reply::Done } else { READ_ONLY });
        if writes {
            assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        }
    }
    assert_eq!((tap.times("SET STATEMENT"), tap.times("DO UUID()")), (1, 3), "once, and then as before");
}

/// Nobody waits for the answer to the commit, and the branch is over all the same, used or not.
#[test]
fn a_branch_that_was_left_is_over_before_anybody_comes_back() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "left");
    let mut plain = table.plain();
    plain.query_drop(format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    plain.query_drop("SET SESSION lock_wait_timeout = 20").unwrap();
    for (number, told) in [(0, false), (10, true)] {
        let mut branch = table.resource();
        if told {
            branch = branch.read_only().unwrap();
        }
        let id = branch.work(|it| Ok(it.connection_id())).unwrap();
        let read = |branch: &mut Mariadb, number: u16| {
            let xid = xid("left", number);
            start(branch, xid);
            say(branch, &format!("SELECT * FROM {}", table.table));
            assert_eq!(end(branch, xid), READ_ONLY);
        };
        read(&mut branch, number);
        // A table that an open transaction has read cannot be changed, and nobody has said anything since.
        plain.query_drop(format!("ALTER TABLE {} COMMENT 'nobody reads'", table.table)).unwrap();
        // Rows, and not the answer that was left.
        let rows: Vec<u32> = branch.work(|it| it.query(format!("SELECT id FROM {}", table.table))).unwrap();
        assert_eq!(rows, [1]);
        read(&mut branch, number + 1);
        let unused = xid("left", number + 2);
        start(&mut branch, unused);
        assert_eq!(branch.call(Verb::Rollback(unused)), Reply::Done);
        // Verbs hear their own answers, too, sent ahead or not.
        read(&mut branch, number + 3);
        let unknown = branch.call(Verb::Rollback(xid("left_unknown", number)));
        assert!(matches!(unknown, Reply::Unknown(_)), "{unknown:?}");
        read(&mut branch, number + 4);
        assert_eq!(branch.call(Verb::Recover(node("left"))), Reply::Listed(vec![]));
        read(&mut branch, number + 5);
        plain.query_drop(format!("KILL CONNECTION {id}")).unwrap();
        wait("the connection to end", || branch.has_ended().then_some(()));
        let gone = branch.work(|it| it.query_drop("SELECT 1")).unwrap_err();
        assert!(gone.to_string().contains("shop"), "{gone}");
    }
}

/// It is none of XA's, and the server refuses what writes, in the branch and outside.
#[test]
fn a_connection_that_only_reads_writes_nothing_anywhere() {
    let servers = shared();
    let apart = Apart::new(&servers, "reader");
    let table = &apart.0;
    let mut plain = table.plain();
    plain.query_drop("CREATE TABLE m (id int) ENGINE=MyISAM").unwrap();
    plain.query_drop("CREATE FUNCTION w() RETURNS int BEGIN INSERT INTO t VALUES (7); RETURN 1; END").unwrap();
    let tap = Tap::new(&table.url);
    let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap().read_only().unwrap();
    tap.messages();
    let writes = [
        "INSERT INTO t VALUES (1)",
        "INSERT INTO m VALUES (1)",
        "SELECT w()",
        "CREATE TABLE n (id int)",
        "DELETE FROM t",
    ];
    for (number, sql) in (0..).zip(writes) {
        let xid = xid("reader", number);
        start(&mut branch, xid);
        say(&mut branch, "SELECT * FROM t");
        assert_eq!(refused(&mut branch, sql), "1792", "{sql}");
        // Its transaction goes on, as the server says; but what defines tables ends every one before it is refused.
        let reply = end(&mut branch, xid);
        assert_eq!(reply == READ_ONLY, !sql.starts_with("CREATE"), "{sql}: {reply:?}");
        assert_eq!(refused(&mut branch, sql), "1792", "{sql}, outside of a branch");
        start(&mut branch, xid);
        say(&mut branch, "COMMIT");
        assert_eq!(refused(&mut branch, sql), "1792", "{sql}, behind a commit of the caller's own");
        let reply = end(&mut branch, xid);
        assert!(matches!(&reply, Reply::RolledBack(why) if why.message.contains("goes on")), "{reply:?}");
    }
    tap.messages();
    let one = xid("reader", 20);
    start(&mut branch, one);
    say(&mut branch, "SELECT * FROM t");
    assert_eq!(end(&mut branch, one), READ_ONLY);
    let mut messages = 0;
    wait("the work, and the end", || {
        messages += tap.messages();
        (messages == 2).then_some(())
    });
    start(&mut branch, one);
    assert_eq!(end(&mut branch, one), READ_ONLY);
    assert_eq!(tap.messages(), 0, "without any work there is nothing to say");
    start(&mut branch, one);
    say(&mut branch, "SELECT * FROM t");
    assert_eq!(branch.call(Verb::End { xid: one, success: false }), Reply::Done);
    assert_eq!(branch.call(Verb::Rollback(one)), Reply::Done);
    assert!(!tap.said("XA "));
    assert_eq!(plain.query::<u32, _>("SELECT id FROM t UNION ALL SELECT id FROM m").unwrap(), [0_u32; 0]);
}

/// One statement is told of a deadlock, and the next ones read outside of the branch.
#[test]
fn a_reader_whose_transaction_has_ended_votes_no() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "reader_over");
    let mut branch = table.resource().read_only().unwrap();
    for (number, ends, no) in [(0, true, true), (1, false, false)] {
        let xid = xid("reader_over", number);
        start(&mut branch, xid);
        say(&mut branch, &format!("SELECT * FROM {}", table.table));
        if ends {
            // As a deadlock does.
            say(&mut branch, "ROLLBACK");
        }
        assert_eq!(refused(&mut branch, "SELECT * FROM no_such_table"), "1146");
        let reply = end(&mut branch, xid);
        assert_eq!(matches!(reply, Reply::RolledBack(_)), no, "{reply:?}");
        assert_eq!(reply == READ_ONLY, !no, "{reply:?}");
    }
}

/// What the caller has set the session to meanwhile, and an answer that nobody has read, make no difference; an open transaction does.
#[test]
fn a_connection_is_told_that_it_reads_between_branches_and_stays_so() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "reader_told");
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let read = format!("SELECT * FROM {}", table.table);
    let kind = |told: Result<Mariadb, ResourceError>| told.expect_err("refused").into_native().0;
    let mut within = table.resource();
    start(&mut within, xid("reader_told", 0));
    say(&mut within, &insert);
    assert_eq!(kind(within.read_only()), Kind::Invalid, "within a branch");
    let mut open = table.resource();
    say(&mut open, "BEGIN");
    say(&mut open, &insert);
    assert_eq!(kind(open.read_only()), Kind::Invalid, "it would be committed");

    let mut branch = table.resource();
    for number in 1..3 {
        let left = xid("reader_told", number);
        start(&mut branch, left);
        say(&mut branch, &read);
        assert_eq!(end(&mut branch, left), READ_ONLY);
    }
    let mut branch = branch.read_only().unwrap();
    for number in 3..6 {
        say(&mut branch, "SET SESSION TRANSACTION READ WRITE");
        let unused = xid("reader_told", number);
        start(&mut branch, unused);
        assert_eq!(end(&mut branch, unused), READ_ONLY, "the server has heard nothing of it");
        let told = xid("reader_told", number + 10);
        start(&mut branch, told);
        assert_eq!(refused(&mut branch, &insert), "1792");
        say(&mut branch, "COMMIT");
        assert_eq!(refused(&mut branch, &insert), "1792");
        assert!(matches!(end(&mut branch, told), Reply::RolledBack(_)));
        assert_eq!(refused(&mut branch, &insert), "1792", "and from then on");
    }
    assert_eq!(table.rows(), [0_i32; 0]);
}

/// Its start would commit what is open, in whatever form the caller speaks first.
#[test]
fn a_reader_does_not_start_in_somebodys_open_transaction() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "reader_open");
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let read = format!("SELECT id FROM {}", table.table);
    let opens = ["START TRANSACTION READ WRITE", "XA START 'somebody'"];
    for (number, (opens, prepared)) in (0..).zip(opens.into_iter().flat_map(|opens| [(opens, false), (opens, true)])) {
        let mut branch = table.resource().read_only().unwrap();
        // What begins as the session says cannot write.
        say(&mut branch, "SET SESSION TRANSACTION READ WRITE");
        say(&mut branch, opens);
        say(&mut branch, &insert);
        let xid = xid("reader_open", number);
        start(&mut branch, xid);
        let first = if prepared {
            branch.work(|it| it.exec_drop(&read, ())).map_err(ResourceError::into_native)
        } else {
            branch.work(|it| it.query_drop(&read)).map_err(ResourceError::into_native)
        };
        assert!(
            matches!(&first, Err((_, native)) if ["1568", "1399"].contains(&native.code.as_str())),
            "{opens}: {first:?}"
        );
        let again = branch.work(|it| it.query_drop(&insert));
        assert!(again.is_err(), "{opens}: nothing passes");
        let reply = end(&mut branch, xid);
        assert!(matches!(reply, Reply::RolledBack(_)), "{opens}: {reply:?}");
        drop(branch);
    }
    wait("what was open to be rolled back", || table.rows().is_empty().then_some(()));
}
