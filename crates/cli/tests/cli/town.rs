//! A coordinator process over a real PostgreSQL and a real MariaDB, and a client whose steps the test takes one by one.
//!
//! Walk: [`shared`] or [`alone`] the databases · [`Town::new`] tables, configuration, process · [`Town::voted`] a transaction
//! with a row in both, prepared · [`Voted::decide`] · [`Town::listed`] and its like: what a person is shown.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use assent_ids::{Branch, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_link::{Link, LinkConfig, LinkError};
use assent_resources::{Limits, Mariadb, Postgres};
use assent_wire::{Answer, BranchRecord, Decide, Hello, Op, Outcome, Request, Role, Write};
use assent_world::{Clock as _, RealClock};
use assent_xa::{Reply, Resource as _, Verb, Vote};
use mysql::prelude::Queryable as _;
use mysql::{Conn, Opts, OptsBuilder};
use postgres::{Client, NoTls};
use serde_json::Value;
use tempfile::TempDir;

use super::assent::{command, json, run, write};
use super::served::{Served, start};

/// Who kills a database or changes what it is, is alone with it; everybody else shares.
static QUIET: RwLock<()> = RwLock::new(());

/// The registered names.
pub(crate) const BANK: &str = "bank";
pub(crate) const SHOP: &str = "shop";
pub(crate) const KEYS: &str = "keys";

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
}

pub(crate) fn shared() -> RwLockReadGuard<'static, ()> {
    QUIET.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    QUIET.write().unwrap_or_else(PoisonError::into_inner)
}

/// `scripts/servers`, or whatever stands in for it.
pub(crate) fn servers(verb: &str, name: &str) -> String {
    let (program, folder) = (variable("ASSENT_TEST_SERVERS"), variable("ASSENT_TEST_SERVERS_DIR"));
    let output = Command::new(program).args([verb, &folder, name]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{verb} {name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = RealClock.now().after(Duration::from_secs(60));
    while !is_so() {
        assert!(RealClock.now() < until, "never: {what}");
        RealClock.sleep(Duration::from_millis(50));
    }
}

pub(crate) fn superuser(url: &str) -> Client {
    Client::connect(&url.replace("//assent@", "//postgres@"), NoTls).unwrap()
}

pub(crate) fn mariadb(url: &str) -> Conn {
    // Over TCP: over the socket it would be another account.
    let options = OptsBuilder::from_opts(Opts::from_url(url).unwrap()).prefer_socket(false);
    Conn::new(options).unwrap()
}

pub(crate) fn root() -> Conn {
    mariadb(&variable("ASSENT_TEST_MARIADB").replace("//assent:assent@", "//root@"))
}

/// Whether PostgreSQL and MariaDB list these branches.
pub(crate) fn prepared(bank: &str, xids: &[Xid; 2]) -> (bool, bool) {
    let mut bank = Client::connect(bank, NoTls).unwrap();
    let sql = "SELECT 1 FROM pg_prepared_xacts WHERE gid = $1";
    let is_there = !bank.query(sql, &[&xids[0].to_gid()]).unwrap().is_empty();
    let shop: Vec<(i64, i64, i64, Vec<u8>)> = mariadb(&variable("ASSENT_TEST_MARIADB")).query("XA RECOVER").unwrap();
    let data = [xids[1].gtrid(), xids[1].bqual()].concat();
    (is_there, shop.iter().any(|(.., one)| *one == data))
}

pub(crate) fn tx(served: &Served, arguments: &[&str]) -> Output {
    run(&[&["--json", "tx"], arguments, &["--server", &served.protocol]].concat())
}

/// The same as a person reads it, without the table's lines and breaks.
pub(crate) fn text(served: &Served, arguments: &[&str]) -> String {
    let output = run(&[&["tx"], arguments, &["--server", &served.protocol]].concat());
    String::from_utf8(output.stdout).unwrap()
}

/// A number of /metrics.
pub(crate) fn number(served: &Served, metric: &str) -> u64 {
    let text = served.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{metric} in {text}")).parse().unwrap()
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let there = to.join(entry.file_name());
        // What is being made is not there yet, and may have its name by now.
        if entry.path().extension().is_some_and(|it| it == "tmp") {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &there);
        } else {
            std::fs::copy(entry.path(), there).unwrap();
        }
    }
}

/// How this server sends it away.
pub(crate) fn refused(served: &Served, role: Role<'_>) -> (Kind, String) {
    match Link::connect(&served.protocol.parse().unwrap(), &Hello::new(role), &LinkConfig::default()) {
        Err(LinkError::Refused { kind, message }) => (kind, message),
        other => panic!("not refused: {other:?}"),
    }
}

fn link(served: &Served, role: Role<'_>) -> Link {
    Link::connect(&served.protocol.parse().unwrap(), &Hello::new(role), &LinkConfig::default()).unwrap()
}

/// What a process is told; `Default` is quick to fence and freezes nowhere.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) client_lost_ms: u32,
    /// More of its section `[coordinator]`.
    pub(crate) coordinator: &'static str,
    /// Where it freezes.
    pub(crate) stop: &'static str,
    /// Where PostgreSQL is.
    pub(crate) bank: String,
    /// Where a store of ours is, if there is one: a third resource.
    pub(crate) keys: Option<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { client_lost_ms: 200, coordinator: "", stop: "", bank: variable("ASSENT_TEST_POSTGRES"), keys: None }
    }
}

impl Rules {
    pub(crate) fn frozen_at(stop: &'static str) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Starts a process over this folder.
    pub(crate) fn serve(&self, folder: &Path) -> Served {
        start(&mut self.command(folder))
    }

    /// How it is started.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let resource = |name: &str, kind: &str, url: &str| {
            format!("[[resource]]\nname = {name:?}\nkind = {kind:?}\nurl = {url:?}\n")
        };
        let text = format!(
            "data_dir = \"data\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[server]\nlisten = \"127.0.0.1:0\"\n\
             client_lost_ms = {}\n[coordinator]\n{}{}{}{}",
            self.client_lost_ms,
            self.coordinator,
            resource(BANK, "postgres", &self.bank),
            resource(SHOP, "mariadb", &variable("ASSENT_TEST_MARIADB")),
            self.keys.as_ref().map(|url| resource(KEYS, "assent", url)).unwrap_or_default(),
        );
        let file = folder.join("assent.toml");
        write(&file, &text);
        let mut command = command(&["serve", "--config", file.to_str().unwrap()]);
        command.env("ASSENT_STOP", self.stop);
        command
    }
}

/// A data folder, a table in each database, and the process over them.
pub(crate) struct Town {
    pub(crate) served: Served,
    pub(crate) folder: TempDir,
    pub(crate) rules: Rules,
    pub(crate) table: String,
}

impl Town {
    pub(crate) fn new(test: &str, rules: Rules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = format!("assent_cli_{test}_{}", std::process::id());
        let sql = format!("CREATE TABLE {table} (id int PRIMARY KEY)");
        Client::connect(&rules.bank, NoTls).unwrap().batch_execute(&sql).unwrap();
        mariadb(&variable("ASSENT_TEST_MARIADB")).query_drop(format!("{sql} ENGINE=InnoDB")).unwrap();
        let served = rules.serve(folder.path());
        Self { served, folder, rules, table }
    }

    /// The data folder as it is now, at another place. While a process runs over it, it must be at rest.
    pub(crate) fn copy(&self, name: &str) -> PathBuf {
        let there = self.folder.path().join(name);
        std::fs::create_dir(&there).unwrap();
        copy(&self.folder.path().join("data"), &there.join("data"));
        there
    }

    /// SIGKILL, and a start by other rules.
    pub(crate) fn again(self, rules: Rules) -> Self {
        let Self { served, folder, table, .. } = self;
        served.kill();
        let served = rules.serve(folder.path());
        Self { served, folder, rules, table }
    }

    pub(crate) fn tx(&self, arguments: &[&str]) -> Output {
        tx(&self.served, arguments)
    }

    /// What `assent tx list` has.
    pub(crate) fn listed(&self) -> Value {
        json(&self.tx(&["list"]))["transactions"].clone()
    }

    /// Waits until that is so of `assent tx list`.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let until = RealClock.now().after(Duration::from_secs(60));
        loop {
            let listed = self.listed();
            if is_so(&listed) {
                return listed;
            }
            assert!(RealClock.now() < until, "never: {what}: {listed}");
            RealClock.sleep(Duration::from_millis(50));
        }
    }

    /// Waits until nothing is in doubt.
    pub(crate) fn settles(&self) {
        self.until("nothing is left", |listed| *listed == serde_json::json!([]));
    }

    /// The rows that are committed, in PostgreSQL and MariaDB.
    pub(crate) fn rows(&self) -> (Vec<i32>, Vec<i32>) {
        let sql = format!("SELECT id FROM {} ORDER BY id", self.table);
        let mut bank = Client::connect(&self.rules.bank, NoTls).unwrap();
        let bank = bank.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        (bank, mariadb(&variable("ASSENT_TEST_MARIADB")).query(&sql).unwrap())
    }

    /// A client that has a row in both databases and both votes.
    pub(crate) fn voted(&self, row: i32) -> Voted {
        let resources = if self.rules.keys.is_some() { vec![BANK, SHOP, KEYS] } else { vec![BANK, SHOP] };
        let role = Role::Client { label: "shop", resume: None, resources };
        // Whoever is silent for a second is lost: what may take a while goes first, and it pings behind each disk.
        let mut bank = Postgres::connect(BANK, &self.rules.bank, Limits::WORK).unwrap();
        let mut shop = Mariadb::connect(SHOP, &variable("ASSENT_TEST_MARIADB"), Limits::WORK).unwrap();
        let decisions = link(&self.served, role);
        let ping = || _ = decisions.request(&Request::Ping).unwrap();
        let (node, session) = (decisions.welcome().node, decisions.welcome().session.unwrap());
        let tx = TxId { incarnation: session.incarnation, counter: 1 };
        let name = |resource: &str, number| {
            Branch { node, tx, resource: ResourceId::of(resource), number, flags: 0, mark: None }.xid()
        };
        let xids = [name(BANK, 0), name(SHOP, 1)];
        let sql = format!("INSERT INTO {} VALUES ({row})", self.table);
        assert_eq!(bank.call(Verb::Start(xids[0])), Reply::Done);
        assert_eq!(shop.call(Verb::Start(xids[1])), Reply::Done);
        bank.work(|client| client.batch_execute(&sql)).unwrap();
        shop.work(|connection| connection.query_drop(&sql)).unwrap();
        assert_eq!(bank.call(Verb::End { xid: xids[0], success: true }), Reply::Done);
        assert_eq!(shop.call(Verb::End { xid: xids[1], success: true }), Reply::Done);
        ping();
        assert_eq!(bank.call(Verb::Prepare(xids[0])), Reply::Vote(Vote::Yes));
        ping();
        assert_eq!(shop.call(Verb::Prepare(xids[1])), Reply::Vote(Vote::Yes));
        ping();
        let keys = self.rules.keys.as_ref().map(|url| {
            let address = url.parse().unwrap();
            let link =
                Link::connect(&address, &Hello::new(Role::Store { label: "shop" }), &LinkConfig::default()).unwrap();
            let xid = name(KEYS, 2);
            let ops = vec![Op::Put { keyspace: 0, key: b"row", value: b"there" }];
            let steps = [
                Request::Start(xid),
                Request::Write(Write { xid: Some(xid), durable: true, ops }),
                Request::End { xid, success: true },
                Request::Prepare(xid),
            ];
            let last = steps.map(|step| link.request(&step).unwrap()).into_iter().last().unwrap();
            assert!(matches!(last.answer().unwrap(), Answer::Branch(assent_wire::Reply::Yes(_))), "{last:?}");
            (link, xid)
        });
        ping();
        Voted { decisions, tx, xids, bank, shop, keys }
    }
}

/// A client between its votes and the end.
pub(crate) struct Voted {
    decisions: Link,
    pub(crate) tx: TxId,
    pub(crate) xids: [Xid; 2],
    bank: Postgres,
    shop: Mariadb,
    keys: Option<(Link, Xid)>,
}

impl Voted {
    /// Asks for the decision; it is answered, and nobody is told.
    pub(crate) fn decide(&mut self) {
        let witnesses = [self.bank.witness(), self.shop.witness()];
        let record = |(xid, witness): (&Xid, &'_ Vec<u8>)| {
            let Branch { resource, number, flags, .. } = xid.branch().unwrap();
            (resource, number, flags, witness.clone())
        };
        let mut records: Vec<_> = self.xids.iter().zip(&witnesses).map(record).collect();
        records.extend(self.keys.iter().map(|(_, xid)| record((xid, &Vec::new()))));
        let branches = records
            .iter()
            .map(|(resource, number, flags, witness)| BranchRecord {
                resource: *resource,
                number: *number,
                flags: *flags,
                mark: None,
                witness,
            })
            .collect();
        let decide = Decide { tx: self.tx, outcome: Outcome::Committed, first: true, branches };
        let arrived = self.decisions.request(&Request::Decide(decide)).unwrap();
        assert_eq!(arrived.answer().unwrap(), Answer::Decided(Outcome::Committed));
    }

    /// Tells PostgreSQL's branch to commit.
    pub(crate) fn commit_bank(&mut self) -> Reply {
        self.bank.call(Verb::Commit(self.xids[0]))
    }

    /// Tells the store's branch to commit.
    pub(crate) fn commit_keys(&self) {
        let (link, xid) = self.keys.as_ref().unwrap();
        let arrived = link.request(&Request::Commit(*xid)).unwrap();
        assert!(matches!(arrived.answer().unwrap(), Answer::Branch(assent_wire::Reply::Done)), "{arrived:?}");
    }

    /// MariaDB's number of its session there.
    pub(crate) fn shop_session(&mut self) -> u32 {
        self.shop.work(|connection| Ok(connection.connection_id())).unwrap()
    }

    /// The client's process dies: its connections end.
    pub(crate) fn dies(self) -> (TxId, [Xid; 2]) {
        (self.tx, self.xids)
    }
}
