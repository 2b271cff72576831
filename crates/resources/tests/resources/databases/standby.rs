//! Servers that follow another one. What they list is not what there is.

use std::time::{Duration, Instant};

use ::postgres::{Client, NoTls};
use assent_kind::Kind;
use assent_resources::{Limits, Postgres, PostgresConnector, ResourceError};
use assent_xa::{Connector, Reply, Verb, Vote};

use super::engine::{Engine, PostgresTable, node, work, xid};
use super::servers::alone;

fn superuser(url: &str) -> Client {
    Client::connect(&url.replace("//assent@", "//postgres@"), NoTls).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} has not happened within 60 s");
        std::thread::yield_now();
    }
}

/// A standby knows of a prepared branch and lists none. Who believed it would forget a decided commit, and roll the
/// branch back when it appears after the promotion: half a commit.
#[test]
fn a_standby_is_refused_until_it_is_promoted_and_then_lists_what_was_prepared() {
    let servers = alone();
    let table = PostgresTable::new(&servers, "standby");
    let standby = servers.standby();
    let xid = xid("standby", 0);
    let mut branch = table.open();
    work(&mut *branch, xid, 1);
    assert_eq!(branch.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));

    // It has got everything, and a plain look shows nothing.
    let position: String = table.plain().query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).unwrap().get(0);
    let mut there = superuser(&standby.url);
    let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
    until("catching up", || there.query_one(&caught_up, &[]).unwrap().get(0));
    assert_eq!(there.query("SELECT gid FROM pg_prepared_xacts", &[]).unwrap().len(), 0);

    let connector = PostgresConnector::new("bank", &standby.url).unwrap();
    let Err((Kind::Unavailable, native)) = connector.connect() else { panic!("a standby was taken for the bank") };
    assert!(native.message.contains("it is a standby"), "{}", native.message);
    let given = Client::connect(&standby.url, NoTls).unwrap();
    let Err(ResourceError::Connect { kind: Kind::Unavailable, native, .. }) =
        Postgres::over("bank", given, Limits::WORK)
    else {
        panic!("a connection to a standby was taken for one to the bank")
    };
    assert!(native.message.contains("it is a standby"), "{}", native.message);

    // Of several hosts it takes the one that can say what there is.
    let host = |url: &str| url.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let both = format!("{},{}", host(&standby.url), host(&table.url));
    let both = table.url.replace(&host(&table.url), &both);
    let mut recovery = PostgresConnector::new("bank", &both).unwrap().connect().unwrap();
    assert_eq!(recovery.call(Verb::Recover(node("standby"))), Reply::Listed(vec![xid]));

    assert!(there.query_one("SELECT pg_promote()", &[]).unwrap().get::<_, bool>(0));
    let mut promoted = connector.connect().unwrap();
    assert_eq!(promoted.call(Verb::Recover(node("standby"))), Reply::Listed(vec![xid]));
    assert_eq!(promoted.call(Verb::Commit(xid)), Reply::Done);
    let rows = PostgresTable { url: standby.url.clone(), table: table.table.clone() };
    assert_eq!(rows.rows(), [1]);
    // The old primary still holds it.
    assert_eq!(branch.call(Verb::Commit(xid)), Reply::Done);
}
