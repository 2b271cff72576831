//! What the adapter knows of a branch's work, and what that saves or forbids.

use ::mysql::consts::CapabilityFlags;
use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};
use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, MariadbClient};
use assent_xa::{Reply, Resource, Verb, Vote};

use super::super::engine::{Engine, MariadbTable, wait, xid};
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
fn a_branch_takes_fewer_messages_than_by_hand() {
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
    assert_eq!(tap.messages(), 0, "the start goes with the work");
    say(&mut branch, &insert());
    assert_eq!(tap.messages(), 1);
    assert_eq!(end(&mut branch, writes), Reply::Done);
    assert_eq!(tap.messages(), 0, "it is known to have written");
    assert_eq!(branch.call(Verb::Prepare(writes)), YES);
    assert_eq!(branch.call(Verb::Commit(writes)), Reply::Done);
    assert_eq!(tap.messages(), 2);
    assert!(!tap.said(";DO ") && !tap.said("; DO "), "its only statement told of all that it wrote");

    let reads = next();
    start(&mut branch, reads);
    say(&mut branch, &select);
    assert_eq!(end(&mut branch, reads), READ_ONLY);
    assert_eq!(tap.messages(), 3);
    assert!(tap.said("SET STATEMENT") && !tap.said("; DO "), "its end told of it");

    let alone = next();
    start(&mut branch, alone);
    say(&mut branch, &insert());
    assert_eq!(end(&mut branch, alone), Reply::Done);
    assert_eq!(branch.call(Verb::CommitOnePhase(alone)), Reply::Done);
    assert_eq!(tap.messages(), 2);

    // One piece of work whose last answer says nothing of what it wrote.
    let hidden = next();
    let both = [insert(), select.clone()];
    start(&mut branch, hidden);
    branch.work(|it| both.iter().try_for_each(|sql| it.query_drop(sql))).unwrap();
    assert_eq!(end(&mut branch, hidden), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(hidden)), YES);
    assert_eq!(branch.call(Verb::Commit(hidden)), Reply::Done);
    assert_eq!(tap.messages(), 4, "two pieces of work, and two");

    let mut branch = branch.detect_read_only(false);
    let unasked = next();
    start(&mut branch, unasked);
    say(&mut branch, &select);
    assert_eq!(end(&mut branch, unasked), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(unasked)), YES);
    assert_eq!(branch.call(Verb::Rollback(unasked)), Reply::Done);
    assert_eq!(tap.messages(), 3);
    assert_eq!(table.rows(), [1, 2, 3]);
}

/// What goes by itself, and what does not go at all.
#[test]
fn parameters_go_behind_the_start_and_a_branch_without_work_says_nothing() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "few_words");
    let tap = Tap::new(&table.url);
    let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    let first = xid("few_words", 1);
    start(&mut branch, first);
    assert_eq!(end(&mut branch, first), READ_ONLY, "the server tells, from now on");
    tap.messages();

    let bound = xid("few_words", 2);
    start(&mut branch, bound);
    let sql = format!("INSERT INTO {} VALUES (?)", table.table);
    branch.work(|it| it.exec_drop(&sql, (7,))).unwrap();
    assert_eq!(tap.messages(), 3, "start, prepare the statement, execute it");
    assert_eq!(end(&mut branch, bound), Reply::Done);
    assert_eq!(branch.call(Verb::Rollback(bound)), Reply::Done);
    assert_eq!(tap.messages(), 1);

    for (number, success, expected) in [(3, true, READ_ONLY), (4, false, Reply::Done)] {
        let empty = xid("few_words", number);
        start(&mut branch, empty);
        assert_eq!(branch.call(Verb::End { xid: empty, success }), expected);
        if !success {
            assert_eq!(branch.call(Verb::Rollback(empty)), Reply::Done);
        }
    }
    assert_eq!(tap.messages(), 0);
    let mut branch = branch.detect_read_only(false);
    let votes = xid("few_words", 5);
    start(&mut branch, votes);
    assert_eq!(end(&mut branch, votes), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(votes)), YES, "who is not asked votes, also without work");
    assert_eq!(branch.call(Verb::Rollback(votes)), Reply::Done);
    assert_eq!(table.rows(), [0_i32; 0]);
}

/// What the first words say when the server does not start the branch: nothing of them is done, nor of what comes next.
#[test]
fn a_start_that_is_refused_takes_the_first_words_with_it() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "refused");
    let insert = |row: u16| format!("INSERT INTO {} VALUES ({row})", table.table);
    let (mut branch, mut other) = (table.resource(), table.resource());
    let twice = xid("refused", 1);
    // Both have learnt that the server tells; then they take one name.
    for (it, number) in [(&mut branch, 2), (&mut other, 3)] {
        start(it, xid("refused", number));
        assert_eq!(end(it, xid("refused", number)), READ_ONLY);
    }
    start(&mut branch, twice);
    say(&mut branch, &insert(1));
    start(&mut other, twice);
    for row in [2, 3] {
        let refused = other.work(|it| it.query_drop(insert(row))).unwrap_err();
        assert_eq!(refused.into_native().1.code, "1440", "a branch of that name is there");
    }
    let reply = end(&mut other, twice);
    assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
    assert_eq!(other.call(Verb::Rollback(twice)), Reply::Done);
    assert_eq!(end(&mut branch, twice), Reply::Done);
    assert_eq!(branch.call(Verb::CommitOnePhase(twice)), Reply::Done);
    say(&mut other, &insert(4));
    assert_eq!(table.rows(), [1, 4], "free again, for work outside of a branch");
}

/// Which verb votes.
type Votes = fn(Xid) -> Verb;
/// How a statement is said.
type Way = fn(&mut MariadbClient<'_>, &str) -> ::mysql::Result<()>;

/// Whoever keeps the refusal to himself and goes on would work outside of any branch.
#[test]
fn nothing_is_said_behind_a_start_that_was_refused_within_one_piece_of_work() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "unstarted");
    let ways: [Way; 5] = [
        |it, sql| it.query_drop(sql),
        |it, sql| it.query_iter(sql).map(drop),
        |it, sql| it.exec_drop(sql, ()),
        |it, sql| it.exec_batch(sql, [()]),
        |it, sql| it.native()?.query_drop(sql),
    ];
    let (mut branch, mut other) = (table.resource(), table.resource());
    let twice = xid("unstarted", 1);
    start(&mut branch, twice);
    say(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table));
    for (number, (first, second)) in (2..).zip(ways.iter().flat_map(|first| ways.map(|second| (first, second)))) {
        // It learns that the server tells.
        start(&mut other, xid("unstarted", number));
        assert_eq!(end(&mut other, xid("unstarted", number)), READ_ONLY);
        start(&mut other, twice);
        let insert = |row: u16| format!("INSERT INTO {} VALUES ({})", table.table, number * 10 + row);
        let worked = other.work(|it| if first(it, &insert(1)).is_err() { second(it, &insert(2)) } else { Ok(()) });
        assert_eq!(worked.unwrap_err().into_native().1.code, "1440");
        let kept = other.work(|it| Ok(second(it, &insert(3)).is_err()));
        assert_eq!(kept.unwrap_err().into_native().1.code, "1440");
        let reply = end(&mut other, twice);
        assert!(matches!(&reply, Reply::RolledBack(native) if native.code == "1440"), "{reply:?}");
        assert_eq!(branch.work(|it| it.query_first::<u8, _>("SELECT 1")).unwrap(), Some(1));
    }
    assert_eq!(end(&mut branch, twice), Reply::Done);
    assert_eq!(branch.call(Verb::CommitOnePhase(twice)), Reply::Done);
    assert_eq!(table.rows(), [1], "of the branch that was there");
}

/// What the closure had the server do is the branch's, and goes with it.
#[test]
fn work_that_panics_leaves_a_branch_that_can_be_rolled_back() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "panics");
    let insert = |row: u16| format!("INSERT INTO {} VALUES ({row})", table.table);
    let mut branch = table.resource();
    start(&mut branch, xid("panics", 1));
    assert_eq!(end(&mut branch, xid("panics", 1)), READ_ONLY);
    for (number, success) in [(2, true), (3, false)] {
        let xid = xid("panics", number);
        start(&mut branch, xid);
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            branch.work(|it| {
                it.query_drop(insert(7))?;
                // As the driver does with a row that does not fit.
                it.query_first::<u8, _>("SELECT 'no number'")
            })
        }));
        assert!(worked.is_err());
        assert_eq!(branch.call(Verb::End { xid, success }), Reply::Done, "it wrote");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    let mut plain = table.plain();
    plain.query_drop("SET innodb_lock_wait_timeout = 1").unwrap();
    plain.query_drop(insert(7)).unwrap();
    assert_eq!(table.rows(), [7], "and kept no lock");
}

/// A server that cannot be understood, or that says that the connection is over, is not spoken to again.
#[test]
fn a_connection_that_may_still_have_its_branch_is_ended() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "ended");
    let tap = Tap::new(&table.url);
    let over = "SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1927";
    let cases: [(_, _, Votes); 3] = [
        ("XA END", "XA EMD", Verb::CommitOnePhase),
        ("XA PREPARE", over, Verb::Prepare),
        ("XA COMMIT", over, Verb::CommitOnePhase),
    ];
    for (number, (from, to, vote)) in (1..).zip(cases) {
        let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
        let (first, xid, next) = (xid("ended", number), xid("ended", number + 10), xid("ended", number + 20));
        start(&mut branch, first);
        assert_eq!(end(&mut branch, first), READ_ONLY);
        start(&mut branch, xid);
        say(&mut branch, &format!("INSERT INTO {} VALUES ({number})", table.table));
        assert_eq!(end(&mut branch, xid), Reply::Done);
        tap.garble(Some((from, to)));
        let reply = branch.call(vote(xid));
        assert!(matches!(reply, Reply::Lost(_)), "{from}: {reply:?}");
        tap.garble(None);
        assert!(branch.has_ended(), "{from}");
        let reply = branch.call(Verb::Rollback(xid));
        assert!(matches!(reply, Reply::Lost(_)), "{from}: nobody knows, {reply:?}");
        assert_ne!(branch.call(Verb::Start(next)), Reply::Done, "{from}: the next one would be in the last one");
    }
    assert_eq!(table.rows(), [0_i32; 0]);
}

/// A rollback that was refused leaves the branch on its session, and the next one would find it there.
#[test]
fn a_branch_that_cannot_be_cleaned_up_goes_with_its_connection() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "unclean");
    let tap = Tap::new(&table.url);
    let mut branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    let xid = xid("unclean", 1);
    start(&mut branch, xid);
    say(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table));
    // So the end of the branch is said by itself.
    assert!(branch.work(|it| it.query_drop("no such words")).is_err());
    assert_eq!(end(&mut branch, xid), Reply::Done);
    tap.garble(Some(("XA ", "XA NO")));
    let vote = branch.call(Verb::Prepare(xid));
    assert!(matches!(&vote, Reply::RolledBack(native) if native.code == "1064"), "{vote:?}");
    assert!(branch.has_ended());
    wait("the row's lock to be free", || table.rows().is_empty().then_some(()));
}

/// Who counts fewer answers than statements has read an older one for its own.
#[test]
fn a_vote_with_fewer_answers_than_statements_is_lost() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "fewer");
    let tap = Tap::new(&table.url);
    // It asks behind each vote, and by the driver.
    let branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    let mut branch = branch.log_place_age_max(std::time::Duration::ZERO);
    let xid = xid("fewer", 1);
    start(&mut branch, xid);
    say(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table));
    assert_eq!(end(&mut branch, xid), Reply::Done);
    tap.garble(Some(("SHOW GLOBAL", "")));
    let vote = branch.call(Verb::Prepare(xid));
    tap.garble(None);
    assert!(matches!(vote, Reply::Lost(_)), "{vote:?}");
    assert!(branch.has_ended());
    let mut agent = table.connector().connect().unwrap();
    wait("its session to go", || (agent.call(Verb::Rollback(xid)) == Reply::Done).then_some(()));
}

/// Whether rows would stay after a rollback has to be known for a yes.
#[test]
fn a_vote_whose_question_about_plain_tables_is_refused_is_a_no() {
    let servers = shared();
    let apart = Apart::new(&servers, "unasked");
    let table = &apart.0;
    let t = &table.table;
    table.plain().query_drop(format!("CREATE TABLE {t}_m (id int) ENGINE=MyISAM")).unwrap();
    let tap = Tap::new(&table.url);
    let branch = Mariadb::connect("shop", &tap.url, Limits::WORK).unwrap();
    // Else its end tells.
    let mut branch = branch.detect_read_only(false);
    let xid = xid("unasked", 1);
    start(&mut branch, xid);
    // The last answer is that to rows, which tells nothing.
    branch
        .work(|it| it.query_drop(format!("INSERT INTO {t} VALUES (1); INSERT INTO {t}_m VALUES (1); SELECT 1")))
        .unwrap();
    tap.garble(Some(("DO UUID()", "DO NONE()")));
    assert_eq!(end(&mut branch, xid), Reply::Done);
    let vote = branch.call(Verb::Prepare(xid));
    let Reply::RolledBack(native) = &vote else { panic!("{vote:?}") };
    assert!(native.message.contains("which tables") && native.code == "1630", "{native:?}");
    assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    assert_eq!(table.rows(), [0_i32; 0]);
}

/// What the driver then speaks may be compressed or ciphered: not ours to speak past it.
#[test]
fn a_connection_that_the_caller_exchanged_is_spoken_to_by_its_driver() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "exchanged");
    let mut branch = table.resource();
    for (number, exchanges) in [(1, false), (2, true), (3, false), (4, false)] {
        if exchanges {
            let packed = OptsBuilder::from_opts(Opts::from_url(&table.url).unwrap())
                .prefer_socket(false)
                .additional_capabilities(CapabilityFlags::CLIENT_SESSION_TRACK)
                .compress(Some(::mysql::Compression::default()));
            branch.work(|it| it.native().map(|had| *had = Conn::new(packed).unwrap())).unwrap();
        }
        let xid = xid("exchanged", number);
        start(&mut branch, xid);
        say(&mut branch, &format!("INSERT INTO {} VALUES ({number})", table.table));
        assert_eq!(end(&mut branch, xid), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [1, 2, 3, 4]);
}

/// The error of the words themselves is theirs: the branch is there.
#[test]
fn first_words_that_fail_leave_the_branch_started() {
    let servers = shared();
    let table = MariadbTable::new(&servers, "first_words");
    let mut branch = table.resource();
    start(&mut branch, xid("first_words", 1));
    assert_eq!(end(&mut branch, xid("first_words", 1)), READ_ONLY);
    for (number, words, code) in [(2, "no such words", "1064"), (3, "INSERT INTO no_such_table VALUES (1)", "1146")] {
        let xid = xid("first_words", number);
        start(&mut branch, xid);
        let refused = branch.work(|it| it.query_drop(words)).unwrap_err();
        assert_eq!(refused.into_native().1.code, code);
        say(&mut branch, &format!("INSERT INTO {} VALUES ({number})", table.table));
        assert_eq!(end(&mut branch, xid), Reply::Done);
        assert_eq!(branch.call(Verb::Prepare(xid)), YES);
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [0_i32; 0], "within the branch, and undone with it");
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
            branch.work(|it| it.native()?.reset()).unwrap();
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
        // The answer that told of it is not the last one of its message.
        vec![format!("INSERT INTO {t} VALUES (1)"), format!("INSERT INTO {t}_m VALUES (1); SELECT 1")],
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
