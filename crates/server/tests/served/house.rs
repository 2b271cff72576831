//! Houses to test in: a coordinator served, a store served, and somebody who commits across them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use assent_client::{Client, ClientConfig, Remote};
use assent_coordinator::{Agent, Config as CoordinatorConfig, Coordinator, Identity};
use assent_door::{Health, Limits, Metrics};
use assent_ids::{Branch, NodeId, ResourceId, TxId, Xid};
use assent_journal::{Config as JournalConfig, Journal, Log};
use assent_kind::Kind;
use assent_kv::{Config as KvConfig, Durability, Kv};
use assent_link::{Arrived, Link, LinkConfig, LinkError};
use assent_resources::RemoteConnector;
use assent_server::{Config, Engines, Server};
use assent_sim::SimDisk;
use assent_wire::{Answer, BranchRecord, Decide, Hello, Op, Outcome, Reply, Request, Role, Session, Write};
use assent_world::net::Address;
use assent_world::{Clock, RealClock, RealDice, RealDisk};
use assent_xa::Connector;
use tempfile::TempDir;

/// The node of stores that serve without a coordinator.
pub(crate) const NODE: NodeId = NodeId(7);

/// Patience of tests with anything that should come.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct House {
    pub(crate) server: Server,
    pub(crate) journal: Arc<Journal>,
    pub(crate) coordinator: Option<Arc<Coordinator>>,
    pub(crate) kv: Option<Arc<Kv>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
}

/// What can be chosen; `Default` is quiet: no heartbeats asked for.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) limits: Limits,
    pub(crate) threads: u32,
    pub(crate) heartbeat_ms: u32,
    pub(crate) client_lost_ms: u64,
    /// Between a coordinator's opening and its door's: as when a large store opens meanwhile.
    pub(crate) opens_for: Duration,
    /// Milliseconds until a journal syncs by itself; 0: before anything is acknowledged.
    pub(crate) rpo_ms: u64,
    /// Whose time engines and servers take.
    pub(crate) clock: Arc<dyn Clock>,
    /// Where it serves; none for a port that is free.
    pub(crate) at: Option<Address>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            threads: 1,
            heartbeat_ms: 0,
            client_lost_ms: 60_000,
            opens_for: Duration::ZERO,
            rpo_ms: 0,
            clock: Arc::new(RealClock),
            at: None,
        }
    }
}

impl Rules {
    pub(crate) fn limited(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn config(&self, resources: &[&str]) -> Config {
        Config {
            limits: self.limits,
            threads: self.threads,
            heartbeat_ms: self.heartbeat_ms,
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
            client_lost_ms: u32::try_from(self.client_lost_ms).unwrap(),
            ..Config::new(self.at.clone().unwrap_or_else(|| "127.0.0.1:0".parse().unwrap()))
        }
    }
}

fn journal(folder: &Path, rules: &Rules) -> Arc<Journal> {
    let config = JournalConfig {
        log_size: 1 << 20,
        min_elapsed_sync_time: rules.rpo_ms,
        max_elapsed_sync_time: rules.rpo_ms,
        ..JournalConfig::default()
    };
    Journal::open(Arc::new(RealDisk), Arc::clone(&rules.clock), Arc::new(RealDice), folder, config).unwrap().0
}

fn served(rules: &Rules, resources: &[&str], engines: Engines, journal: Arc<Journal>) -> House {
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let (coordinator, kv) = (engines.coordinator.clone(), engines.kv.clone());
    let clock = Arc::clone(&rules.clock);
    let server = Server::start(&rules.config(resources), engines, clock, &metrics, &health).unwrap();
    House { server, journal, coordinator, kv, metrics, health }
}

pub(crate) fn store(folder: &Path, rules: &Rules) -> House {
    let journal = journal(&folder.join("kv.log"), rules);
    let log: Arc<dyn Log> = Arc::clone(&journal) as _;
    let disk = Arc::new(RealDisk);
    let kv = Arc::new(
        Kv::open(Arc::clone(&log), disk, Arc::new(RealClock), &folder.join("kv"), KvConfig::default()).unwrap(),
    );
    let engines = Engines { kv: Some(kv), kv_log: Some(log), ..Engines::of(NODE) };
    served(rules, &[], engines, journal)
}

/// A store that is behind and stays so: too many files of its ledger wait to be merged, and the disk has no room for that.
pub(crate) fn store_behind(folder: &Path, rules: &Rules) -> House {
    let journal = journal(&folder.join("kv.log"), rules);
    let (log, disk): (Arc<dyn Log>, _) = (Arc::clone(&journal) as _, SimDisk::new());
    let opened =
        Kv::open(Arc::clone(&log), Arc::new(disk.clone()), Arc::new(RealClock), Path::new("kv"), KvConfig::default());
    let kv = opened.unwrap();
    for number in 0..20_u64 {
        kv.put(0, b"k", &number.to_le_bytes(), Durability::Durable).unwrap();
        kv.checkpoint().unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    assert!(kv.delay(&[]) > Duration::ZERO);
    let engines = Engines { kv: Some(Arc::new(kv)), kv_log: Some(log), ..Engines::of(NODE) };
    served(rules, &[], engines, journal)
}

/// A coordinator whose agent reaches these stores over connections of its own.
pub(crate) fn coordinator(folder: &Path, rules: &Rules, stores: &[(&str, &House)]) -> House {
    let journal = journal(&folder.join("tx.log"), rules);
    let log: Arc<dyn Log> = Arc::clone(&journal) as _;
    let identity = Identity::load_or_create(&RealDisk, &RealDice, folder).unwrap();
    let node = identity.node;
    let clock = Arc::clone(&rules.clock);
    let config = CoordinatorConfig { client_lost_ms: rules.client_lost_ms, ..CoordinatorConfig::default() };
    let coordinator = Arc::new(Coordinator::open(Arc::clone(&log), clock.clone(), identity, config).unwrap());
    clock.sleep(rules.opens_for);
    let connect = |(name, house): &(&str, &House)| -> Box<dyn Connector> {
        Box::new(RemoteConnector::new(name, house.address().clone(), LinkConfig::default()))
    };
    let agent = Agent::new(Arc::clone(&coordinator), stores.iter().map(connect).collect(), clock);
    let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
    let engines =
        Engines { coordinator: Some(coordinator), coordinator_log: Some(log), agent: Some(agent), ..Engines::of(node) };
    served(rules, &names, engines, journal)
}

impl House {
    pub(crate) fn address(&self) -> &Address {
        self.server.address()
    }

    pub(crate) fn link(&self, role: Role<'_>) -> Link {
        self.try_link(role).unwrap()
    }

    pub(crate) fn try_link(&self, role: Role<'_>) -> Result<Link, LinkError> {
        Link::connect(self.address(), &Hello::new(role), &LinkConfig { connect_ms: 10_000, ..LinkConfig::default() })
    }

    pub(crate) fn store_link(&self) -> Link {
        self.link(Role::Store { label: "test" })
    }

    pub(crate) fn client_link(&self, resume: Option<Session>) -> Link {
        self.link(Role::Client { label: "test", resume, resources: vec![] })
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        let link = self.link(Role::Admin);
        let arrived = link.request(&Request::Stats).unwrap();
        let Answer::Stats(gauges) = arrived.answer().unwrap() else { panic!("no stats") };
        gauges.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no gauge {name}")).1
    }

    /// A whole number of `/metrics`.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let number = self.number(name);
        format!("{number:.0}").parse().unwrap()
    }

    /// A number of `/metrics`.
    pub(crate) fn number(&self, name: &str) -> f64 {
        let text = self.metrics.text();
        let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// Waits for something to become true, looking again and again.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < LONG, "{what} did not happen");
        std::thread::yield_now();
    }
}

pub(crate) fn xid(node: NodeId, tx: TxId, resource: &str, number: u16) -> Xid {
    Branch { node, tx, resource: ResourceId::of(resource), number, flags: 0, mark: None }.xid()
}

pub(crate) fn put<'a>(xid: Option<Xid>, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request::Write(Write { xid, durable: true, ops: vec![Op::Put { keyspace: 0, key, value }] })
}

pub(crate) fn get(link: &Link, key: &[u8]) -> Option<Vec<u8>> {
    let arrived = link.request(&Request::Get { xid: None, keyspace: 0, key }).unwrap();
    let Answer::Value(value) = arrived.answer().unwrap() else { panic!("no value") };
    value.map(<[u8]>::to_vec)
}

pub(crate) fn branch(arrived: &Arrived) -> Reply<'_> {
    let Answer::Branch(reply) = arrived.answer().unwrap() else { panic!("no branch answer: {arrived:?}") };
    reply
}

/// A vote of yes leaves a witness with the coordinator.
pub(crate) fn is_yes(arrived: &Arrived) -> bool {
    matches!(branch(arrived), Reply::Yes(witness) if !witness.is_empty())
}

pub(crate) fn expect(link: &Link, request: &Request<'_>, reply: &Reply<'_>) {
    assert_eq!(&branch(&link.request(request).unwrap()), reply, "to {request:?}");
}

pub(crate) fn refusal<T: std::fmt::Debug>(refused: Result<T, LinkError>) -> (Kind, String) {
    match refused {
        Err(LinkError::Refused { kind, message }) => (kind, message),
        other => panic!("not refused: {other:?}"),
    }
}

/// A program that commits across stores, as short as it can be: it holds one connection to the coordinator and one to
/// each store.
pub(crate) struct Committer {
    pub(crate) decisions: Link,
    pub(crate) stores: BTreeMap<&'static str, Link>,
    pub(crate) counter: u64,
}

impl Committer {
    pub(crate) fn new(coordinator: &House, stores: &[(&'static str, &House)]) -> Self {
        let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
        let decisions = coordinator.link(Role::Client { label: "committer", resume: None, resources: names });
        let stores = stores.iter().map(|(name, house)| (*name, house.store_link())).collect();
        Self { decisions, stores, counter: 0 }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.decisions.welcome().node
    }

    pub(crate) fn session(&self) -> Session {
        self.decisions.welcome().session.unwrap()
    }

    pub(crate) fn begin(&mut self) -> TxId {
        self.counter += 1;
        TxId { incarnation: self.session().incarnation, counter: self.counter }
    }

    pub(crate) fn branches(&self, tx: TxId) -> Vec<(Xid, &Link)> {
        self.stores.iter().zip(0..).map(|((name, link), number)| (xid(self.node(), tx, name, number), link)).collect()
    }

    /// Starts, writes one key in each store, ends.
    pub(crate) fn work(&self, tx: TxId, key: &[u8], value: &[u8]) {
        for (xid, link) in self.branches(tx) {
            let tickets = [
                link.lay(&Request::Start(xid)).unwrap(),
                link.lay(&put(Some(xid), key, value)).unwrap(),
                link.lay(&Request::End { xid, success: true }).unwrap(),
            ];
            for ticket in tickets {
                link.receive(ticket).unwrap().answer().unwrap();
            }
        }
    }

    /// Sends to all, then reads all.
    pub(crate) fn all(&self, tx: TxId, request: impl Fn(Xid) -> Request<'static>) -> Vec<Arrived> {
        let sent: Vec<_> =
            self.branches(tx).into_iter().map(|(xid, link)| (link, link.send(&request(xid)).unwrap())).collect();
        sent.into_iter().map(|(link, ticket)| link.receive(ticket).unwrap()).collect()
    }

    pub(crate) fn decide_request(&self, tx: TxId) -> Decide<'static> {
        let record = |(name, number): (&&str, u16)| BranchRecord {
            resource: ResourceId::of(name),
            number,
            flags: 0,
            mark: None,
            witness: &[],
        };
        let branches = self.stores.keys().zip(0..).map(record).collect();
        Decide { tx, outcome: Outcome::Committed, first: true, branches }
    }

    pub(crate) fn decide(&self, tx: TxId) -> Outcome {
        let arrived = self.decisions.request(&Request::Decide(self.decide_request(tx))).unwrap();
        let Answer::Decided(outcome) = arrived.answer().unwrap() else { panic!("no decision") };
        outcome
    }

    /// A whole transaction: one key in each store.
    pub(crate) fn commit(&mut self, key: &[u8], value: &[u8]) -> TxId {
        let tx = self.begin();
        self.work(tx, key, value);
        assert!(self.all(tx, Request::Prepare).iter().all(is_yes));
        assert_eq!(self.decide(tx), Outcome::Committed);
        // Unknown: recovery was faster, which it may be once all has stood still for a while.
        let done = |reply: &Arrived| matches!(branch(reply), Reply::Done | Reply::Unknown(_));
        assert!(self.all(tx, Request::Commit).iter().all(done));
        self.decisions.one_way(&Request::Finished(vec![tx])).unwrap();
        tx
    }
}

/// Two stores and a coordinator, each served in this process.
pub(crate) struct Street {
    pub(crate) a: House,
    pub(crate) b: House,
    pub(crate) coordinator: House,
    pub(crate) folder: PathBuf,
    _temporary: Option<TempDir>,
}

pub(crate) fn street(rules: &Rules) -> Street {
    let temporary = tempfile::tempdir().unwrap();
    let street = street_in(temporary.path(), rules);
    Street { _temporary: Some(temporary), ..street }
}

/// The same in a folder that stays; what an earlier one left there is found again.
pub(crate) fn street_in(folder: &Path, rules: &Rules) -> Street {
    let make = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let (a, b) = (store(&make("a"), rules), store(&make("b"), rules));
    let coordinator = coordinator(&make("c"), rules, &[("a", &a), ("b", &b)]);
    Street { a, b, coordinator, folder: folder.to_owned(), _temporary: None }
}

impl Street {
    pub(crate) fn committer(&self) -> Committer {
        Committer::new(&self.coordinator, &[("a", &self.a), ("b", &self.b)])
    }

    /// What an application links.
    pub(crate) fn client(&self) -> Client {
        let config = ClientConfig::new(self.coordinator.address().clone(), "test");
        Client::connect(ClientConfig { resources: vec!["a".to_owned(), "b".to_owned()], ..config })
    }

    /// A connection to each store, as an application has them.
    pub(crate) fn remotes(&self) -> [Remote; 2] {
        [("a", &self.a), ("b", &self.b)]
            .map(|(name, house)| Remote::new(name, house.address().clone(), LinkConfig::default()))
    }

    pub(crate) fn prepared(&self) -> u64 {
        self.a.stat("kv.prepared") + self.b.stat("kv.prepared")
    }
}
