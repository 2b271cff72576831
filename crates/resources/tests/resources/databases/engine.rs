//! Both databases behind one face, so that one story is told of both.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};
use ::postgres::{Client, NoTls};
use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, MariadbConnector, Postgres, PostgresConnector};
use assent_world::{Clock, RealClock};
use assent_xa::{Connector, Native, Reply, Resource, Verb};

use super::servers::Servers;

/// A database with one table for one test.
pub(crate) trait Engine {
    fn name(&self) -> &'static str;
    fn open(&self) -> Box<dyn Worker>;
    fn connector(&self) -> Box<dyn Connector>;
    /// The committed rows, in order.
    fn rows(&self) -> Vec<i32>;
}

/// A resource on which one can also work.
pub(crate) trait Worker: Resource {
    /// Adds a row; the code of the error otherwise.
    fn add(&mut self, row: i32) -> Result<(), String>;
}

fn native_code(error: assent_resources::ResourceError) -> String {
    error.into_native().1.code
}

pub(crate) struct PostgresTable {
    pub(crate) url: String,
    pub(crate) table: String,
}

pub(crate) struct MariadbTable {
    pub(crate) url: String,
    pub(crate) table: String,
}

/// The same server, another database.
pub(crate) fn other_database(url: &str, database: &str) -> String {
    format!("{}/{database}", url.rsplit_once('/').unwrap().0)
}

/// A name of this run and this test.
fn own_name(test: &str) -> String {
    format!("assent_resources_{test}_{}", std::process::id())
}

impl PostgresTable {
    pub(crate) fn new(servers: &Servers, test: &str) -> Self {
        Self::of(&servers.postgres, test)
    }

    pub(crate) fn of(url: &str, test: &str) -> Self {
        let it = Self { url: url.to_owned(), table: own_name(test) };
        it.plain().batch_execute(&format!("CREATE TABLE {} (id int)", it.table)).unwrap();
        it
    }

    pub(crate) fn plain(&self) -> Client {
        Client::connect(&self.url, NoTls).unwrap()
    }

    pub(crate) fn resource(&self) -> Postgres {
        Postgres::connect("bank", &self.url, Limits::WORK).unwrap()
    }
}

impl MariadbTable {
    pub(crate) fn new(servers: &Servers, test: &str) -> Self {
        Self::of(&servers.mariadb, test)
    }

    pub(crate) fn of(url: &str, test: &str) -> Self {
        let it = Self { url: url.to_owned(), table: own_name(test) };
        it.plain().query_drop(format!("CREATE TABLE {} (id int PRIMARY KEY) ENGINE=InnoDB", it.table)).unwrap();
        it
    }

    pub(crate) fn plain(&self) -> Conn {
        // Over TCP, as the adapter: over the socket it would be another account.
        let options = OptsBuilder::from_opts(Opts::from_url(&self.url).unwrap()).prefer_socket(false);
        Conn::new(options).unwrap()
    }

    pub(crate) fn resource(&self) -> Mariadb {
        Mariadb::connect("shop", &self.url, Limits::WORK).unwrap()
    }
}

impl Engine for PostgresTable {
    fn name(&self) -> &'static str {
        "postgres"
    }
    fn open(&self) -> Box<dyn Worker> {
        Box::new(PostgresWorker(self.resource(), self.table.clone()))
    }
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(PostgresConnector::new("bank", &self.url).unwrap())
    }
    fn rows(&self) -> Vec<i32> {
        let rows = self.plain().query(&format!("SELECT id FROM {} ORDER BY id", self.table), &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Engine for MariadbTable {
    fn name(&self) -> &'static str {
        "mariadb"
    }
    fn open(&self) -> Box<dyn Worker> {
        Box::new(MariadbWorker(self.resource(), self.table.clone()))
    }
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(MariadbConnector::new("shop", &self.url).unwrap())
    }
    fn rows(&self) -> Vec<i32> {
        self.plain().query(format!("SELECT id FROM {} ORDER BY id", self.table)).unwrap()
    }
}

struct PostgresWorker(Postgres, String);
struct MariadbWorker(Mariadb, String);

impl Worker for PostgresWorker {
    fn add(&mut self, row: i32) -> Result<(), String> {
        let sql = format!("INSERT INTO {} VALUES ($1)", self.1);
        self.0.work(|client| client.execute(&sql, &[&row])).map(|_| ()).map_err(native_code)
    }
}

impl Worker for MariadbWorker {
    fn add(&mut self, row: i32) -> Result<(), String> {
        let sql = format!("INSERT INTO {} VALUES ({row})", self.1);
        self.0.work(|connection| connection.query_drop(&sql)).map_err(native_code)
    }
}

impl Resource for PostgresWorker {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn send(&mut self, verb: Verb) {
        self.0.send(verb);
    }
    fn receive(&mut self) -> Reply {
        self.0.receive()
    }
    fn witness(&mut self) -> Vec<u8> {
        self.0.witness()
    }

    fn let_go(&mut self) {
        self.0.let_go();
    }

    fn has_ended(&mut self) -> bool {
        self.0.has_ended()
    }
}

impl Resource for MariadbWorker {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn send(&mut self, verb: Verb) {
        self.0.send(verb);
    }
    fn receive(&mut self) -> Reply {
        self.0.receive()
    }
    fn witness(&mut self) -> Vec<u8> {
        self.0.witness()
    }

    fn let_go(&mut self) {
        self.0.let_go();
    }

    fn has_ended(&mut self) -> bool {
        self.0.has_ended()
    }
}

/// Asks until there is an answer: what a server does after a connection has ended takes a moment.
pub(crate) fn wait<T>(what: &str, mut asked: impl FnMut() -> Option<T>) -> T {
    let end = RealClock.now().after(Duration::from_secs(60));
    loop {
        if let Some(answer) = asked() {
            return answer;
        }
        assert!(RealClock.now() < end, "waited 60 s for {what}");
        std::thread::yield_now();
    }
}

/// Waits until the connection that voted has gone, as recovery does before it commits: MariaDB answers a commit that comes
/// while it is on its way out, and does nothing.
pub(crate) fn freed(agent: &mut dyn Resource, xid: Xid, witness: &[u8]) {
    let freed = Verb::Freed { xid, witness: witness.to_vec() };
    wait("the connection that voted to be gone", || match agent.call(freed.clone()) {
        Reply::Refused(Kind::Busy, _) => None,
        reply => {
            assert_eq!(reply, Reply::Done);
            Some(())
        }
    });
}

/// A node of this run and this test.
pub(crate) fn node(test: &str) -> NodeId {
    let mut hasher = DefaultHasher::new();
    (test, std::process::id()).hash(&mut hasher);
    NodeId(hasher.finish())
}

/// A branch of the test's node. Its counter has the bytes that text protocols stumble over.
pub(crate) fn xid(test: &str, number: u16) -> Xid {
    let incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    let tx = TxId { incarnation, counter: 0x275c_0022_0d0a_1aff };
    Branch { node: node(test), tx, resource: ResourceId::of("bank"), number, flags: 0, mark: None }.xid()
}

/// Start, one row, end.
pub(crate) fn work(branch: &mut dyn Worker, xid: Xid, row: i32) {
    assert_eq!(branch.call(Verb::Start(xid)), Reply::Done);
    branch.add(row).unwrap();
    assert_eq!(branch.call(Verb::End { xid, success: true }), Reply::Done);
}

/// The code of a reply that has one.
pub(crate) fn code(reply: &Reply) -> &str {
    match reply {
        Reply::RolledBack(native)
        | Reply::Unknown(native)
        | Reply::Refused(_, native)
        | Reply::Lost(native)
        | Reply::Heuristic(_, native) => code_of(native),
        _ => panic!("{reply:?} has no code"),
    }
}

fn code_of(native: &Native) -> &str {
    &native.code
}

/// An XID as MariaDB's statements take it.
pub(crate) fn literal(xid: &Xid) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("X'{}',X'{}',{}", hex(xid.gtrid()), hex(xid.bqual()), xid.format())
}
