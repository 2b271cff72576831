//! How many messages a branch costs: counted between the adapter and the real server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::postgres::SimpleQueryMessage;
use assent_resources::{Limits, Postgres};
use assent_xa::{Reply, Resource, Verb, Vote};

use super::super::engine::{Engine as _, PostgresTable, xid};
use super::super::servers::{alone, shared};
use super::{YES, run};

const READ_ONLY: Reply = Reply::Vote(Vote::ReadOnly);

/// Hands everything on, and counts what asks for an answer. Gives the URL through it.
fn counting(url: &str) -> (String, Arc<AtomicUsize>) {
    let (before, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let (server, asked) = (server.to_owned(), Arc::new(AtomicUsize::new(0)));
    #[allow(clippy::disallowed_methods, reason = "a proxy outside of what is tested")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let through = format!("{before}@{}/{database}", listener.local_addr().unwrap());
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            #[allow(clippy::disallowed_methods, reason = "a proxy outside of what is tested")]
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ended = std::io::copy(&mut from, &mut to);
                let _gone = to.shutdown(Shutdown::Both);
            });
            let count = Arc::clone(&count);
            std::thread::spawn(move || hand_on(client, server, &count));
        }
    });
    (through, asked)
}

/// A simple query, or the Sync that ends an extended one, is one round trip.
fn hand_on(mut client: TcpStream, mut server: TcpStream, count: &AtomicUsize) -> Option<()> {
    let mut is_first = true;
    loop {
        // The first message has no kind.
        let mut head = vec![0; if is_first { 4 } else { 5 }];
        client.read_exact(&mut head).ok()?;
        let bytes = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(bytes).unwrap() - 4];
        client.read_exact(&mut body).ok()?;
        if !is_first && matches!(head[0], b'Q' | b'S') {
            count.fetch_add(1, Ordering::Relaxed);
        }
        is_first = false;
        server.write_all(&[head, body].concat()).ok()?;
    }
}

struct Counted {
    branch: Postgres,
    asked: Arc<AtomicUsize>,
    number: u16,
}

impl Counted {
    /// A branch in two phases, or one that drops out. How many messages, and whether it dropped out.
    fn branch(&mut self, sql: &str) -> (usize, bool) {
        let before = self.asked.load(Ordering::Relaxed);
        let xid = xid("counted", self.number);
        self.number += 1;
        assert_eq!(self.branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut self.branch, sql).unwrap();
        let dropped_out = match self.branch.call(Verb::End { xid, success: true }) {
            READ_ONLY => true,
            reply => {
                assert_eq!(reply, Reply::Done);
                assert_eq!(self.branch.call(Verb::Prepare(xid)), YES);
                assert!(!self.branch.witness().is_empty());
                assert_eq!(self.branch.call(Verb::Commit(xid)), Reply::Done);
                false
            }
        };
        (self.asked.load(Ordering::Relaxed) - before, dropped_out)
    }
}

/// By hand there are four: BEGIN, the statement, PREPARE TRANSACTION, COMMIT PREPARED. Here BEGIN goes with the statement.
#[test]
fn a_connection_that_writes_sends_a_message_less_than_one_would_by_hand() {
    // A foreign table of another test's would be asked about.
    let servers = alone();
    let table = PostgresTable::new(&servers, "counted");
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let (url, asked) = counting(&table.url);
    let mut counted = Counted { branch: Postgres::connect("bank", &url, Limits::WORK).unwrap(), asked, number: 0 };
    // Nothing is known of a new connection.
    for _ in 0..8 {
        assert_eq!(counted.branch(&insert), (4, false));
    }
    for _ in 0..8 {
        assert_eq!(counted.branch(&insert), (3, false));
    }
    // One that only read is found out by its vote, and then they are asked again.
    assert_eq!(counted.branch("SELECT 1"), (3, false));
    for _ in 0..3 {
        // The statement, the question, COMMIT; and no sync.
        assert_eq!(counted.branch("SELECT 1"), (3, true));
    }
    for _ in 0..8 {
        assert_eq!(counted.branch(&insert), (4, false));
    }
    assert_eq!(counted.branch(&insert), (3, false));

    // Who knows better says so.
    counted.branch = counted.branch.detect_read_only(true);
    for _ in 0..10 {
        assert_eq!(counted.branch(&insert), (4, false));
    }
    counted.branch = counted.branch.detect_read_only(false);
    assert_eq!(counted.branch("SELECT 1"), (3, false));
    assert_eq!(counted.branch(&insert), (3, false));

    // What a vote is asked is prepared once a connection. Where others let that go, the server tells.
    for lets_go in ["DEALLOCATE ALL", "DISCARD ALL"] {
        run(&mut counted.branch, lets_go).unwrap();
        assert_eq!(counted.branch(&insert), (3, false));
        assert_eq!(counted.branch(&format!("{insert}; DEALLOCATE ALL")), (3, false), "in the branch itself");
        assert_eq!(counted.branch(&insert), (3, false));
    }

    // Words that may end the transaction, and questions with parameters, go behind a BEGIN of its own.
    assert_eq!(counted.branch(&format!("{insert}; SELECT 'the end'")), (4, false));
    let xid = xid("counted", 500);
    let before = counted.asked.load(Ordering::Relaxed);
    assert_eq!(counted.branch.call(Verb::Start(xid)), Reply::Done);
    assert_eq!(counted.asked.load(Ordering::Relaxed) - before, 0);
    counted.branch.work(|it| it.query_one("SELECT $1::int", &[&1_i32])).unwrap();
    // BEGIN, and two for the statement.
    assert_eq!(counted.asked.load(Ordering::Relaxed) - before, 3);
    assert_eq!(counted.branch.call(Verb::Rollback(xid)), Reply::Done);
}

/// A function lets go of what a vote asks, and no tag says so: its vote is a no, the connection is in step, and from then on it
/// asks in full words, however often that function is called.
#[test]
fn what_a_function_lets_go_of_costs_one_vote_and_no_more() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "lets_go");
    let mut branch = table.resource().detect_read_only(false);
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let dark = format!("{insert}; DO 'BEGIN EXECUTE ''DEALLOCATE ALL''; END'");
    let is_one_phase = [false, true, false];
    for (number, (sql, gone)) in
        (0..).zip([(&insert, false), (&dark, true), (&dark, false), (&dark, false), (&insert, false)])
    {
        let xid = xid("lets_go", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, sql).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        let vote = branch.call(Verb::Prepare(xid));
        if gone {
            assert!(matches!(&vote, Reply::RolledBack(native) if native.code == "26000"), "{vote:?}");
            assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        } else {
            assert_eq!(vote, YES, "{number}");
            assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
        }
    }
    assert_eq!(table.rows(), [1; 4]);
    // One phase asks for nothing.
    for (number, is_dark) in (10..).zip(is_one_phase) {
        let xid = xid("lets_go", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        run(&mut branch, if is_dark { &dark } else { &insert }).unwrap();
        assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
        assert_eq!(branch.call(Verb::CommitOnePhase(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [1; 7]);
}

/// Behind a pool the next message may reach another process of the server, which has nothing of ours prepared.
#[test]
fn nothing_is_left_prepared_where_another_process_answers_than_greeted() {
    let servers = shared();
    let table = PostgresTable::new(&servers, "pooled");
    for (url, expected) in [(table.url.clone(), 2), (pooling(&table.url), 0)] {
        let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap().detect_read_only(true);
        let xids = [1, 2].map(|number| xid("pooled", number));
        for (xid, is_asked) in xids.into_iter().zip([true, false]) {
            assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
            run(&mut branch, &format!("INSERT INTO {} VALUES (1)", table.table)).unwrap();
            assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
            assert_eq!(branch.call(Verb::Prepare(xid)), YES);
            assert!(!branch.witness().is_empty());
            assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
            branch = branch.detect_read_only(!is_asked);
        }
        let prepared =
            branch.work(|it| it.simple_query("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'assent%'"));
        let prepared = prepared.unwrap().iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        assert_eq!(prepared, Some(expected.to_string()), "{url}");
    }
}

/// A proxy that greets with a process of its own, as a pool does.
pub(super) fn pooling(url: &str) -> String {
    let (before, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let server = server.to_owned();
    #[allow(clippy::disallowed_methods, reason = "a proxy outside of what is tested")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let through = format!("{before}@{}/{database}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            #[allow(clippy::disallowed_methods, reason = "a proxy outside of what is tested")]
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ended = std::io::copy(&mut from, &mut to);
                let _gone = to.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || greet(&mut server, &mut client));
        }
    });
    through
}

/// Hands on what the server says, the process in its greeting changed.
fn greet(server: &mut TcpStream, client: &mut TcpStream) -> Option<()> {
    loop {
        let mut head = [0; 5];
        server.read_exact(&mut head).ok()?;
        let bytes = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(bytes).unwrap() - 4];
        server.read_exact(&mut body).ok()?;
        if head[0] == b'K' {
            body[3] ^= 1;
        }
        client.write_all(&[&head[..], &body].concat()).ok()?;
    }
}

/// Nothing was said, so there is nothing to ask.
#[test]
fn a_branch_without_work_costs_no_message() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "counted_none");
    let (url, asked) = counting(&table.url);
    let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
    let before = asked.load(Ordering::Relaxed);
    for (number, success, expected) in [(1, true, READ_ONLY), (2, false, Reply::Done)] {
        let xid = xid("counted_none", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        assert_eq!(branch.call(Verb::End { xid, success }), expected);
        if !success {
            assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), before);
    // Who wants every branch to vote has it.
    let mut branch = branch.detect_read_only(false);
    let xid = xid("counted_none", 3);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), YES);
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
}

/// The server begins nothing of a message that it cannot read. What follows must not run outside of a transaction.
#[test]
fn first_words_that_cannot_be_read_fail_the_branch_and_nothing_else() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "counted_words");
    let insert = format!("INSERT INTO {} VALUES (1)", table.table);
    let mut branch = table.resource();
    // Not to be read, not to be understood, not to be done.
    let words = ["no such words", "SELECT * FROM no_such_table", "SELECT 1/0"];
    let cases = [(words[0], "42601"), (words[1], "42P01"), (words[2], "22012")];
    // Again and again: an error and the end of its answer may come together or apart.
    for (number, (words, code)) in (100..).zip(cases.into_iter().cycle().take(60)) {
        let xid = xid("counted_words", number);
        assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
        assert_eq!(run(&mut branch, words).unwrap_err().into_native().1.code, code);
        assert_eq!(run(&mut branch, &insert).unwrap_err().into_native().1.code, "25P02", "behind {words}");
        let ended = branch.call(Verb::End { xid, success: true });
        assert!(matches!(&ended, Reply::RolledBack(native) if native.code == "25P02"), "{ended:?}");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
    }
    assert_eq!(table.rows(), [0_i32; 0]);
    let answered = branch.work(|it| it.simple_query("SELECT 7")).unwrap().len();
    let xid = xid("counted_words", 4);
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    assert_eq!(
        branch.work(|it| it.simple_query("SELECT 7")).unwrap().len(),
        answered,
        "BEGIN's answer is not the caller's"
    );
    assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
}
