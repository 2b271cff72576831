//! What the adapter knows of a branch's work, and what that saves or forbids.

use ::mysql::consts::CapabilityFlags;
use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb};
use assent_xa::{Reply, Resource, Verb, Vote};

use super::super::engine::{Engine, MariadbTable, xid};
use super::super::servers::shared;
use super::Apart;
use super::tap::Tap;

const YES: Reply = Reply::Vote(Vote::Yes);
const READ_ONLY: Reply = Reply::Vote(Vote::ReadOnly);

fn start(branch: &mut Mariadb, xid: Xid) {
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
}

fn end(branch: &mut Mariadb, xid: Xid) -> Reply {
    branch.call(Verb::End { xid, success: true })
}

fn say(branch: &mut Mariadb, sql: &str) {
    branch.work(|connection| connection.query_drop(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// By hand a branch takes five: start, work, end, prepare, commit. Four with one phase.
#[test]
fn no_branch_takes_more_messages_than_by_hand() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "messages");
    let tap = Tap::new(&table.url);
    let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    let [mut number, mut row] = [0; 2];
    let mut next = || {
        number += 1;
        xid("messages", number)
    };
    let mut insert = || {
        row += 1;
        format!("INSERT INTO {} VALUES ({row})", table.table)
    };
    let select = format!("SELECT * FROM {}", table.table);
    let first = next();
    tap.messages();
    start(&mut branch, first);
    assert_eq!(tap.messages(), 2, "the first of a client takes the mark");
    assert_eq!(branch.call(Verb::Rollback(first)), Reply::Done);
    assert_eq!(tap.messages(), 1, "end and rollback");

    let writes = next();
    start(&mut branch, writes);
    say(&mut branch, &insert());
    assert_eq!(tap.messages(), 2);
    assert_eq!(end(&mut branch, writes), Reply::Done);
    assert_eq!(tap.messages(), 0, "it is known to have written");
    assert_eq!(branch.call(Verb::Prepare(writes)), YES);
    assert_eq!(branch.call(Verb::Commit(writes)), Reply::Done);
    assert_eq!(tap.messages(), 2);

    let reads = next();
    start(&mut branch, reads);
    say(&mut branch, &select);
    assert_eq!(end(&mut branch, reads), READ_ONLY);
    assert_eq!(tap.messages(), 4);

    let alone = next();
    start(&mut branch, alone);
    say(&mut branch, &insert());
    assert_eq!(end(&mut branch, alone), Reply::Done);
    assert_eq!(branch.call(Verb::CommitOnePhase(alone)), Reply::Done);
    assert_eq!(tap.messages(), 3);

    // One piece of work whose last answer says nothing of what it wrote.
    let hidden = next();
    let both = [insert(), select.clone()];
    start(&mut branch, hidden);
    branch.work(|it| both.iter().try_for_each(|sql| it.query_drop(sql))).unwrap();
    assert_eq!(end(&mut branch, hidden), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(hidden)), YES);
    assert_eq!(branch.call(Verb::Commit(hidden)), Reply::Done);
    assert_eq!(tap.messages(), 6, "two pieces of work, and four as by hand");

    let mut branch = branch.detect_read_only(false);
    let unasked = next();
    start(&mut branch, unasked);
    say(&mut branch, &select);
    assert_eq!(end(&mut branch, unasked), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(unasked)), YES);
    assert_eq!(branch.call(Verb::Rollback(unasked)), Reply::Done);
    assert_eq!(tap.messages(), 4);
    assert_eq!(table.rows(), [1, 2, 3]);
}

/// A statement of the caller's own that takes the server's account away must not make a writer a reader.
#[test]
fn what_is_not_told_is_asked_to_vote() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "untold");
    let mut branch = table.resource();
    let insert = |row: u16| format!("INSERT INTO {} VALUES ({row})", table.table);
    let off_and_on = [
        "SET session_track_transaction_info = OFF".to_owned(),
        insert(1),
        "SET session_track_transaction_info = 'STATE'".to_owned(),
        "SELECT 1".to_owned(),
    ];
    let off = ["SET session_track_transaction_info = OFF".to_owned(), insert(1)];
    let told_before = [insert(1), "SET @x = UUID()".to_owned(), "SELECT 1".to_owned()];
    let cases = [&off[..], &off_and_on, &told_before];
    for (number, statements) in (0..).zip(cases) {
        let xid = xid("untold", number);
        start(&mut branch, xid);
        branch.work(|it| statements.iter().try_for_each(|sql| it.query_drop(sql))).unwrap();
        assert_eq!(end(&mut branch, xid), Reply::Done, "{statements:?}");
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
}

/// A pool's reset switches the account off, a driver without the capability never hears it.
#[test]
fn a_connection_of_the_callers_own_tells_if_its_driver_asks_for_it() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "own");
    let select = format!("SELECT * FROM {}", table.table);
    let options = OptsBuilder::from_opts(Opts::from_url(&table.url).unwrap())
        .prefer_socket(false)
        .additional_capabilities(CapabilityFlags::CLIENT_SESSION_TRACK);
    let tells = Conn::new(options).unwrap();
    let cases = [(table.plain(), false, Reply::Done), (tells, true, READ_ONLY)];
    for (number, (connection, reset, expected)) in (0..).zip(cases) {
        let mut branch = Mariadb::over("shop", connection, Limits::WORK).unwrap();
        if reset {
            branch.work(Conn::reset).unwrap();
        }
        let xid = xid("own", number);
        start(&mut branch, xid);
        say(&mut branch, &select);
        assert_eq!(end(&mut branch, xid), expected);
        if expected == Reply::Done {
            assert_eq!(branch.call(Verb::CommitOnePhase(xid)), Reply::Done);
        }
    }
}

/// Rows of tables without transactions stay after a rollback, so a yes would promise what cannot be kept.
#[test]
fn a_branch_that_wrote_to_a_plain_table_votes_no_unless_that_is_allowed() {
    let servers = shared();
    let apart = Apart::new(&servers, "plain");
    let table = &apart.0;
    let t = &table.table;
    let mut plain = table.plain();
    plain.query_drop(format!("CREATE TABLE {t}_m (id int) ENGINE=MyISAM")).unwrap();
    plain.query_drop(format!("CREATE TABLE {t}_a (id int) ENGINE=Aria TRANSACTIONAL=1")).unwrap();
    plain.query_drop(format!("CREATE TABLE {t}_c (id int) ENGINE=InnoDB")).unwrap();
    let trigger = format!("CREATE TRIGGER {t}_t AFTER INSERT ON {t}_c FOR EACH ROW INSERT INTO {t}_m VALUES (NEW.id)");
    plain.query_drop(trigger).unwrap();
    let works = [
        vec![format!("INSERT INTO {t}_m VALUES (1)")],
        vec![format!("INSERT INTO {t}_a VALUES (1)")],
        vec![format!("INSERT INTO {t} VALUES (1)"), format!("INSERT INTO {t}_m VALUES (1)")],
        vec![format!("INSERT INTO {t} VALUES (1)"), format!("INSERT INTO {t}_m VALUES (1)"), "SELECT 1".to_owned()],
        vec![format!("INSERT INTO {t}_c VALUES (2)")],
        vec![format!("INSERT INTO {t}_c VALUES (2)"), "SELECT 1".to_owned()],
    ];
    let mut branch = table.resource();
    for (number, statements) in (0..).zip(&works) {
        for (variant, at_once) in [(0, true), (1, false)] {
            let xid = xid("plain", number * 2 + variant);
            start(&mut branch, xid);
            if at_once {
                branch.work(|it| statements.iter().try_for_each(|sql| it.query_drop(sql))).unwrap();
            } else {
                statements.iter().for_each(|sql| say(&mut branch, sql));
            }
            assert_eq!(end(&mut branch, xid), Reply::Done);
            let vote = branch.call(Verb::Prepare(xid));
            let Reply::RolledBack(native) = &vote else { panic!("{statements:?}: {vote:?}") };
            assert!(native.message.contains("MyISAM"), "{}", native.message);
            assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        }
    }
    assert_eq!(table.rows(), [0_i32; 0]);
    let kept: u32 = plain.query_first(format!("SELECT COUNT(*) FROM {t}_m")).unwrap().unwrap();
    assert!(kept > 0, "the rows that no rollback takes back");

    let mut branch = branch.allow_plain_tables(true);
    let xid = xid("plain", 100);
    start(&mut branch, xid);
    say(&mut branch, &format!("INSERT INTO {t}_m VALUES (3)"));
    assert_eq!(end(&mut branch, xid), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
}

/// The server undoes only the statement, and would prepare the rest.
#[test]
fn a_branch_that_lost_a_statement_to_a_lock_wait_does_not_vote_yes_unawares() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "half");
    let mut other = table.plain();
    other.query_drop(format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
    let select = format!("SELECT * FROM {} WHERE id = 1 FOR UPDATE", table.table);
    other.query_drop("BEGIN").unwrap();
    other.query_drop(&select).unwrap();
    let mut branch = table.resource();
    say(&mut branch, "SET SESSION innodb_lock_wait_timeout = 1");
    for (number, carries_on) in [(0, false), (1, true)] {
        let xid = xid("half", number);
        start(&mut branch, xid);
        say(&mut branch, &format!("INSERT INTO {} VALUES ({})", table.table, number + 10));
        let update = format!("UPDATE {} SET id = 2 WHERE id = 1", table.table);
        let error = branch.work(|connection| connection.query_drop(&update)).unwrap_err();
        assert_eq!((error.kind(), error.into_native().1.code.as_str()), (Kind::Busy, "1205"));
        if carries_on {
            other.query_drop("ROLLBACK").unwrap();
            say(&mut branch, &update);
            branch.carry_on();
            assert_eq!(end(&mut branch, xid), Reply::Done);
            assert_eq!(branch.call(Verb::Prepare(xid)), YES);
            assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
        } else {
            let reply = end(&mut branch, xid);
            let Reply::RolledBack(native) = &reply else { panic!("{reply:?}") };
            assert_eq!(native.code, "1205");
            assert!(native.message.contains("a statement was undone"), "{}", native.message);
            assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        }
    }
    assert_eq!(table.rows(), [2, 11]);
}

/// XA END goes ahead of the vote in its message; work in between is not the branch's.
#[test]
fn work_behind_the_end_is_not_the_branchs() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "behind");
    let mut branch = table.resource();
    let insert = |row: u16| format!("INSERT INTO {} VALUES ({row})", table.table);
    for (number, vote) in [(0, Verb::Prepare as fn(_) -> _), (1, Verb::CommitOnePhase as fn(_) -> _)] {
        let xid = xid("behind", number);
        start(&mut branch, xid);
        say(&mut branch, &insert(number));
        assert_eq!(end(&mut branch, xid), Reply::Done);
        let refused = branch.work(|connection| connection.query_drop(insert(number + 10))).unwrap_err();
        assert_eq!(refused.into_native().1.code, "1399");
        let answer = branch.call(vote(xid));
        if answer == YES {
            assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
        }
    }
    assert_eq!(table.rows(), [0, 1]);
}

/// An application that keeps the error of a deadlock to itself, behind a branch that is known to have written.
#[test]
fn a_deadlock_that_the_application_kept_to_itself_shows_at_the_vote() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "kept");
    table.plain().query_drop(format!("INSERT INTO {} VALUES (1), (2), (3)", table.table)).unwrap();
    let update = |id: u16| format!("UPDATE {} SET id = id + 10 WHERE id = {id}", table.table);
    for (number, vote) in [(0, Verb::Prepare as fn(_) -> _), (1, Verb::CommitOnePhase as fn(_) -> _)] {
        let victim = xid("kept", number);
        let mut branch = table.resource();
        start(&mut branch, victim);
        say(&mut branch, &update(1));
        // The heavier one survives.
        let mut other = table.plain();
        other.query_drop("BEGIN").unwrap();
        (100..140).for_each(|row| {
            other.query_drop(format!("INSERT INTO {} VALUES ({row})", table.table)).unwrap();
        });
        other.query_drop(update(2)).unwrap();
        let (branch, rest) = std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let _kept = branch.work(|connection| Ok(connection.query_drop(update(2)).is_err())).unwrap();
                branch
            });
            let rest = other.query_drop(update(1));
            let branch = waits.join();
            other.query_drop("ROLLBACK").unwrap();
            (branch.unwrap(), rest)
        });
        rest.unwrap();
        let mut branch = branch;
        assert_eq!(end(&mut branch, victim), Reply::Done, "nothing was seen");
        let reply = branch.call(vote(victim));
        assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
        assert_eq!(branch.call(Verb::Rollback(victim)), Reply::Done);
        assert_eq!(table.rows(), [1, 2, 3]);
    }
}
