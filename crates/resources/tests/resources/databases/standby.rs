//! Servers that follow another one, or are set not to keep what they say: their word counts nothing.

use ::postgres::{Client, NoTls};
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, MariadbConnector, Postgres, PostgresConnector, ResourceError};
use assent_xa::{Connector, Reply, Resource as _, Verb, Vote};

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};

use super::engine::{Engine, MariadbTable, PostgresTable, node, wait, work, xid};
use super::servers::{Alone, Own, alone, shared};

fn superuser(url: &str) -> Client {
    Client::connect(&url.replace("//assent@", "//postgres@"), NoTls).unwrap()
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
    wait("the standby to catch up", || there.query_one(&caught_up, &[]).unwrap().get::<_, bool>(0).then_some(()));
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

/// A MariaDB server with a setting that everybody there has, until this goes.
struct Set<'s> {
    _alone: &'s Alone,
    root: Conn,
    back: &'static str,
}

impl<'s> Set<'s> {
    fn new(alone: &'s Alone, there: &str, back: &'static str) -> Self {
        let url = alone.mariadb.replace("//assent:assent@", "//root@");
        let options = OptsBuilder::from_opts(Opts::from_url(&url).unwrap()).prefer_socket(false);
        let mut root = Conn::new(options).unwrap();
        root.query_drop(format!("SET GLOBAL {there}")).unwrap();
        Self { _alone: alone, root, back }
    }
}

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.root.query_drop(format!("SET GLOBAL {}", self.back)).unwrap();
    }
}

#[test]
fn a_read_only_mariadb_is_refused_and_its_list_is_no_proof() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "replica");
    let connector = MariadbConnector::new("shop", &servers.mariadb).unwrap();
    // It was opened to a primary, and somebody has made that a replica.
    let mut opened = connector.connect().unwrap();
    let turned = Set::new(&servers, "read_only = 1", "read_only = 0");
    for verb in [Verb::Recover(node("replica")), Verb::Commit(xid("replica", 0)), Verb::Rollback(xid("replica", 0))] {
        let reply = opened.call(verb);
        let Reply::Refused(Kind::Unavailable, native) = reply else { panic!("{reply:?}") };
        assert!(native.message.contains("read_only = 1"), "{}", native.message);
    }
    let Err((Kind::Unavailable, native)) = connector.connect() else { panic!("a replica was taken for the shop") };
    assert!(native.message.contains("name the primary"), "{}", native.message);
    let given = Mariadb::over("shop", table.plain(), Limits::WORK);
    assert_eq!(given.unwrap_err().kind(), Kind::Unavailable);
    drop(turned);
    assert_eq!(opened.call(Verb::Recover(node("replica"))), Reply::Listed(vec![]));
    assert!(matches!(opened.call(Verb::Commit(xid("replica", 0))), Reply::Unknown(_)));
}

/// It lists nothing, and knows no branch that it is asked for: taken for proof, that was a commit that had been done.
#[test]
fn a_mariadb_that_leaves_out_a_part_of_its_own_recovery_is_refused() {
    drop(shared()); // The binaries are there from here on.
    let mut own = Own::start("mariadb", "");
    let table = MariadbTable::of(&own.url, "rescued");
    let xid = xid("rescued", 0);
    let mut branch = table.resource();
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    branch.work(|connection| connection.query_drop(format!("INSERT INTO {} VALUES (1)", table.table))).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(branch.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));
    let connector = MariadbConnector::new("shop", &own.url).unwrap();
    for options in ["--innodb-force-recovery=5", "--innodb-force-recovery=1", "--innodb-read-only=1"] {
        own.again(options);
        let Err((Kind::Unavailable, native)) = connector.connect() else { panic!("taken with {options}") };
        assert!(native.message.contains("innodb_force_recovery"), "{}", native.message);
    }
    own.again("");
    assert_eq!(connector.connect().unwrap().call(Verb::Recover(node("rescued"))), Reply::Listed(vec![xid]));
}

/// With any other value a power cut takes back votes and commits that were told as done.
#[test]
fn a_mariadb_that_does_not_flush_its_votes_is_refused_and_says_what_to_set() {
    let servers = alone();
    let table = MariadbTable::new(&servers, "lazy");
    let connector = MariadbConnector::new("shop", &servers.mariadb).unwrap();
    for there in ["innodb_flush_log_at_trx_commit = 0", "innodb_flush_log_at_trx_commit = 2"] {
        let lazy = Set::new(&servers, there, "innodb_flush_log_at_trx_commit = 1");
        let Err((Kind::Invalid, native)) = connector.connect() else { panic!("votes that are not kept were taken") };
        assert!(native.message.contains(there), "{}", native.message);
        assert!(native.message.contains("set it to 1"), "{}", native.message);
        assert_eq!(Mariadb::over("shop", table.plain(), Limits::WORK).unwrap_err().kind(), Kind::Invalid);
        drop(lazy);
    }
    assert!(connector.connect().is_ok());
}
