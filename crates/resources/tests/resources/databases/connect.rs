//! How connections fail, and servers that do not answer.

use std::net::TcpListener;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_resources::{Limits, MariadbConnector, Postgres, PostgresConnector};
use assent_xa::{Connector, Native, Reply, Resource, Verb, Vote};

use super::engine::{code, node, other_database, xid};
use super::fake::{self, Behaviour, Tells};
use super::servers::shared;

/// Long enough for what answers, short enough to wait for what does not.
const SHORT: Limits = Limits { connect_ms_max: 300, answer_ms_max: 300 };

fn refused(connector: &dyn Connector) -> (Kind, Native) {
    connector.connect().map(|_| ()).unwrap_err()
}

#[test]
fn a_missing_server_is_unavailable_and_named() {
    // A port that was free a moment ago.
    #[allow(clippy::disallowed_methods, reason = "finds a port where nobody listens")]
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let connectors: [Box<dyn Connector>; 2] = [
        Box::new(PostgresConnector::new("bank", &format!("postgresql://u:secret@127.0.0.1:{port}/db")).unwrap()),
        Box::new(MariadbConnector::new("shop", &format!("mysql://u:secret@127.0.0.1:{port}/db")).unwrap()),
    ];
    for connector in connectors {
        let (kind, native) = refused(&*connector);
        assert_eq!(kind, Kind::Unavailable);
        assert!(native.message.contains(&format!("127.0.0.1:{port}")), "{}", native.message);
        assert!(native.message.contains(connector.name()) && !native.message.contains("secret"));
    }
}

#[test]
fn a_wrong_account_and_a_missing_database_are_told_apart() {
    let servers = shared();
    let postgres = |url: &str| refused(&PostgresConnector::new("bank", url).unwrap());
    let (kind, native) = postgres(&servers.postgres.replace("//assent@", "//assent_nobody@"));
    assert_eq!((kind, native.code.as_str()), (Kind::Denied, "28000"));
    let (kind, native) = postgres(&other_database(&servers.postgres, "assent_nowhere"));
    assert_eq!((kind, native.code.as_str()), (Kind::NotFound, "3D000"));

    let mariadb = |url: &str| refused(&MariadbConnector::new("shop", url).unwrap());
    let (kind, native) = mariadb(&servers.mariadb.replace(":assent@", ":wrong_word@"));
    assert_eq!((kind, native.code.as_str()), (Kind::Denied, "1045"));
    assert!(!native.message.contains("wrong_word"));
    let (kind, native) = mariadb(&other_database(&servers.mariadb, "assent_nowhere"));
    assert_eq!((kind, native.code.as_str()), (Kind::NotFound, "1049"));
}

#[test]
fn a_server_that_can_prepare_nothing_says_what_to_set() {
    let url = fake::postgres(&[("SHOW max_prepared_transactions", Behaviour::Rows(&["0", "f"]))]);
    let (kind, native) = refused(&PostgresConnector::new("bank", &url).unwrap());
    assert_eq!(kind, Kind::Invalid);
    assert!(native.message.contains("max_prepared_transactions = 0"), "{}", native.message);
    assert!(native.message.contains("postgresql.conf and restart"), "{}", native.message);
}

/// A pool, or an address that wandered, can put a standby behind a connection that was opened to the primary.
#[test]
fn a_list_of_a_standby_is_refused_and_not_empty() {
    let url = fake::postgres(&[("SELECT pg_catalog.pg_is_in_recovery()", Behaviour::Rows(&["t"]))]);
    let mut recovery = PostgresConnector::new("bank", &url).unwrap().connect().unwrap();
    let reply = recovery.call(Verb::Recover(node("wandered")));
    let Reply::Refused(Kind::Unavailable, native) = reply else { panic!("{reply:?}") };
    assert!(native.message.contains("is a standby"), "{}", native.message);
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let url = fake::postgres(&[("SHOW", Behaviour::Hang)]);
    let connector = PostgresConnector::new("bank", &url).unwrap().limited(SHORT);
    let (kind, native) = refused(&connector);
    assert_eq!(kind, Kind::Unavailable);
    assert!(native.message.contains("no answer within 300 ms"), "{}", native.message);

    // It listens and says nothing: not even the greeting comes.
    #[allow(clippy::disallowed_methods, reason = "a server that says nothing")]
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let connector = MariadbConnector::new("shop", &format!("mysql://u:p@127.0.0.1:{port}/db")).unwrap().limited(SHORT);
    assert_eq!(refused(&connector).0, Kind::Unavailable);
}

#[test]
fn a_verb_without_an_answer_is_lost_in_time() {
    let url = fake::postgres(&[("COMMIT PREPARED", Behaviour::Hang)]);
    let mut branch = Postgres::connect("bank", &url, Limits { answer_ms_max: 300, ..Limits::WORK }).unwrap();
    let reply = branch.call(Verb::Commit(xid("hang", 0)));
    assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
    assert!(matches!(branch.call(Verb::Commit(xid("hang", 0))), Reply::Lost(_)));
    assert!(matches!(branch.call(Verb::Start(xid("hang", 1))), Reply::Refused(Kind::Unavailable, _)));
    assert_eq!(branch.work(|client| client.batch_execute("SELECT 1")).unwrap_err().kind(), Kind::Unavailable);
}

/// A branch that worked and ended, on a server that tells so much and behaves so where it votes.
fn ended(tells: Tells, behaviours: &[(&'static str, Behaviour)], xid: Xid) -> Postgres {
    let mut branch = Postgres::connect("bank", &fake::postgres_that_tells(tells, behaviours), Limits::WORK).unwrap();
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    branch.work(|client| client.batch_execute("SELECT 1")).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    branch
}

/// What ends a session says nothing about the verb, whatever code it carries.
#[test]
fn a_session_that_ends_in_a_vote_has_neither_voted_nor_rolled_back() {
    let ends = [
        Behaviour::Close,
        Behaviour::Error("FATAL", "57P01"),
        Behaviour::Error("FATAL", "40001"),
        Behaviour::Error("PANIC", "53100"),
    ];
    let xid = xid("end", 0);
    for (end, (tells, begins)) in ends.into_iter().flat_map(|end| fake::WAYS.map(|way| (end, way))) {
        for (vote, begins) in [Verb::Prepare(xid), Verb::CommitOnePhase(xid)].into_iter().zip(begins) {
            let reply = ended(tells, &[(begins, end)], xid).call(vote);
            assert!(matches!(reply, Reply::Lost(_)), "{tells:?} {begins}: {reply:?}");
        }
        // Its question in front of it, which is kept prepared.
        let reply = ended(Tells::Process, &[(fake::VOTES, end)], xid).call(Verb::Prepare(xid));
        assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
    }
}

#[test]
fn all_slots_taken_is_a_no() {
    const FULL: Behaviour = Behaviour::Error("ERROR", "53200");
    let xid = xid("slots", 0);
    let ways = fake::WAYS.map(|(tells, [begins, _])| (tells, begins));
    for (tells, begins) in ways.into_iter().chain([(Tells::Process, fake::VOTES)]) {
        let mut branch = ended(tells, &[(begins, FULL)], xid);
        let reply = branch.call(Verb::Prepare(xid));
        assert!(matches!(reply, Reply::RolledBack(_)), "{tells:?} {begins}: {reply:?}");
        assert_eq!(code(&reply), "53200");
        assert_eq!(branch.call(Verb::Rollback(xid)), Reply::Done);
        branch.work(|client| client.batch_execute("SELECT 1")).unwrap();
    }
}

/// Bare words are believed by their tag alone: what is done was something else, or nothing.
#[test]
fn an_end_that_is_called_something_else_is_lost() {
    let xid = xid("foreign", 0);
    for tells in [Tells::Open, Tells::Process] {
        for (vote, begins) in [
            (Verb::Prepare(xid), &["PREPARE TRANSACTION", fake::VOTES][..usize::from(tells == Tells::Open) + 1]),
            (Verb::CommitOnePhase(xid), &["COMMIT"]),
        ] {
            let foreign: Vec<_> = begins.iter().map(|begins| (*begins, Behaviour::Rows(&["7"]))).collect();
            let mut branch = ended(tells, &foreign, xid);
            let reply = branch.call(vote);
            assert!(matches!(reply, Reply::Lost(_)), "{tells:?}: {reply:?}");
            assert!(branch.work(|client| client.batch_execute("SELECT 1")).is_err(), "it is closed");
        }
    }
}

/// What fakes them votes yes and commits where nothing is wrong, and is spoken to as each of the ways says.
#[test]
fn each_way_is_the_one_that_it_says() {
    let xid = xid("ways", 0);
    for (tells, begins) in fake::WAYS {
        for (vote, begins) in [Verb::Prepare(xid), Verb::CommitOnePhase(xid)].into_iter().zip(begins) {
            let is_done = vote == Verb::CommitOnePhase(xid);
            let reply = ended(tells, &[], xid).call(vote.clone());
            assert_eq!(reply, if is_done { Reply::Done } else { Reply::Vote(Vote::Yes) }, "{tells:?}");
            let reply = ended(tells, &[(begins, Behaviour::Error("ERROR", "40001"))], xid).call(vote);
            assert_eq!(code(&reply), "40001", "{tells:?} says {begins}");
        }
    }
}
