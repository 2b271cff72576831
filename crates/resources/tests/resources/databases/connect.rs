//! How connections fail, and servers that do not answer.

use std::net::TcpListener;

use assent_kind::Kind;
use assent_resources::{Limits, MariadbConnector, Postgres, PostgresConnector};
use assent_xa::{Connector, Native, Reply, Resource, Verb};

use super::engine::{code, node, other_database, xid};
use super::fake::{self, Behaviour};
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

/// What ends a session says nothing about the verb, whatever code it carries.
#[test]
fn a_session_that_ends_in_a_vote_has_neither_voted_nor_rolled_back() {
    let urls = [
        fake::postgres(&[("SAVEPOINT assent_vote", Behaviour::Close)]),
        fake::postgres(&[("SAVEPOINT assent_vote", Behaviour::Error("FATAL", "57P01"))]),
        fake::postgres(&[("SAVEPOINT assent_vote", Behaviour::Error("FATAL", "40001"))]),
        fake::postgres(&[("SAVEPOINT assent_vote", Behaviour::Error("PANIC", "53100"))]),
    ];
    for url in urls {
        for vote in [Verb::Prepare(xid("end", 0)), Verb::CommitOnePhase(xid("end", 0))] {
            let mut branch = Postgres::connect("bank", &url, Limits::WORK).unwrap();
            assert_eq!(branch.call(Verb::Start(xid("end", 0))), Reply::Done);
            branch.work(|client| client.batch_execute("SELECT 1")).unwrap();
            assert_eq!(branch.call(Verb::End { xid: xid("end", 0), success: true }), Reply::Done);
            let reply = branch.call(vote);
            assert!(matches!(reply, Reply::Lost(_)), "{reply:?}");
        }
    }
}

#[test]
fn all_slots_taken_is_a_no() {
    const SLOTS: &[(&str, Behaviour)] = &[("SAVEPOINT assent_vote", Behaviour::Error("ERROR", "53200"))];
    let mut branch = Postgres::connect("bank", &fake::postgres(SLOTS), Limits::WORK).unwrap();
    assert_eq!(branch.call(Verb::Start(xid("slots", 0))), Reply::Done);
    branch.work(|client| client.batch_execute("SELECT 1")).unwrap();
    assert_eq!(branch.call(Verb::End { xid: xid("slots", 0), success: true }), Reply::Done);
    let reply = branch.call(Verb::Prepare(xid("slots", 0)));
    assert!(matches!(reply, Reply::RolledBack(_)), "{reply:?}");
    assert_eq!(code(&reply), "53200");
}
