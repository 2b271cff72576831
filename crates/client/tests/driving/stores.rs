//! A coordinator and two stores, all served over sockets; branches by `Remote`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_client::resources::RemoteConnector;
use assent_client::{Client, ClientConfig, Known, LinkConfig, Remote, Retries};
use assent_coordinator::{Config as CoordinatorConfig, Coordinator, Identity};
use assent_door::{Health, Metrics};
use assent_ids::NodeId;
use assent_journal::{Config as JournalConfig, Journal, Log};
use assent_kind::Kind;
use assent_kv::{Config as KvConfig, Kv};
use assent_server::{Config, Engines, Server};
use assent_wire::{Bound, Op};
use assent_world::net::Address;
use assent_world::{RealClock, RealDice, RealDisk};
use assent_xa::{Connector, Reply, Resource, Verb, Vote};
use tempfile::TempDir;

const STORE: NodeId = NodeId(7);

fn journal(folder: &Path) -> Arc<dyn Log> {
    let config = JournalConfig { log_size: 1 << 20, ..JournalConfig::default() };
    Journal::open(Arc::new(RealDisk), Arc::new(RealClock), Arc::new(RealDice), folder, config).unwrap().0
}

fn serve(config: &Config, engines: Engines) -> Server {
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    Server::start(config, engines, Arc::new(RealClock), &metrics, &health).unwrap()
}

fn store(folder: &Path, at: Address) -> Server {
    let log = journal(&folder.join("kv.log"));
    let kv =
        Kv::open(Arc::clone(&log), Arc::new(RealDisk), Arc::new(RealClock), &folder.join("kv"), KvConfig::default())
            .unwrap();
    let engines = Engines { kv: Some(Arc::new(kv)), kv_log: Some(log), ..Engines::of(STORE) };
    serve(&Config::new(at), engines)
}

fn coordinator(folder: &Path) -> Server {
    let log = journal(&folder.join("tx.log"));
    let identity = Identity::load_or_create(&RealDisk, &RealDice, folder).unwrap();
    let node = identity.node;
    let config = CoordinatorConfig::default();
    let coordinator = Coordinator::open(Arc::clone(&log), Arc::new(RealClock), identity, config).unwrap();
    let engines = Engines { coordinator: Some(Arc::new(coordinator)), coordinator_log: Some(log), ..Engines::of(node) };
    let resources = vec!["a".to_owned(), "b".to_owned()];
    serve(&Config { resources, ..Config::new("127.0.0.1:0".parse().unwrap()) }, engines)
}

struct Town {
    client: Client,
    a: Remote,
    b: Remote,
    store_a: Server,
    store_b: Server,
    coordinator: Server,
    folder: TempDir,
}

fn remote(name: &str, at: &Address) -> Remote {
    Remote::new(name, at.clone(), LinkConfig::default())
}

fn town() -> Town {
    let folder = tempfile::tempdir().unwrap();
    let at = |part: &str| {
        let path = folder.path().join(part);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let anywhere: Address = "127.0.0.1:0".parse().unwrap();
    let (store_a, store_b) = (store(&at("a"), anywhere.clone()), store(&at("b"), anywhere));
    let coordinator = coordinator(&at("tx"));
    let client = Client::connect(ClientConfig {
        resources: vec!["a".to_owned(), "b".to_owned()],
        retries: Retries { pause_ms: 1, ..Retries::default() },
        ..ClientConfig::new(coordinator.address().clone(), "test")
    });
    let (a, b) = (remote("a", store_a.address()), remote("b", store_b.address()));
    Town { client, a, b, store_a, store_b, coordinator, folder }
}

#[test]
fn a_transfer_happens_in_both_stores_in_few_messages() {
    let mut town = town();
    town.a.get(0, b"warm up").unwrap();
    town.b.get(0, b"warm up").unwrap();
    let before = (town.a.counts().unwrap(), town.b.counts().unwrap());
    let mut tx = town.client.begin().unwrap();
    let (a, b) = (tx.enlist(&mut town.a), tx.enlist(&mut town.b));
    a.work().unwrap().put(0, b"k", b"1").unwrap();
    b.work().unwrap().put(0, b"k", b"2").unwrap();
    assert_eq!(a.work().unwrap().get(0, b"k").unwrap().as_deref(), Some(&b"1"[..]), "own writes are seen");
    tx.commit().unwrap();
    assert_eq!(town.client.counts().round_trips, 1);
    let (a, b) = (town.a.counts().unwrap(), town.b.counts().unwrap());
    assert_eq!(b.requests - before.1.requests, 5, "start, write, end, prepare, commit");
    assert_eq!(b.writes - before.1.writes, 3, "start with the write, end with prepare");
    assert_eq!(a.writes - before.0.writes, 4, "and a read");
    for store in [&mut town.a, &mut town.b] {
        assert!(store.get(0, b"k").unwrap().is_some());
    }
}

#[test]
fn a_rolled_back_transfer_leaves_nothing_and_readers_cost_nothing() {
    let mut town = town();
    town.a.put(0, b"k", b"old").unwrap();
    let mut tx = town.client.begin().unwrap();
    let (a, b) = (tx.enlist(&mut town.a), tx.enlist(&mut town.b));
    a.work().unwrap().put(0, b"k", b"new").unwrap();
    b.work().unwrap().delete(0, b"k").unwrap();
    tx.rollback().unwrap();
    assert_eq!(town.a.get(0, b"k").unwrap().as_deref(), Some(&b"old"[..]));

    let before = (town.a.counts().unwrap(), town.b.counts().unwrap());
    let mut tx = town.client.begin().unwrap();
    let (a, b) = (tx.enlist(&mut town.a), tx.enlist(&mut town.b));
    assert!(a.work().unwrap().get(0, b"k").unwrap().is_some());
    drop(b);
    tx.commit().unwrap();
    let (a, b) = (town.a.counts().unwrap(), town.b.counts().unwrap());
    assert_eq!(b, before.1, "a branch without work costs no message");
    assert_eq!(a.requests - before.0.requests, 3, "start, get, and that its snapshot may go");
    assert_eq!(town.client.counts().round_trips, 0);

    for _ in 0..1_100 {
        let mut tx = town.client.begin().unwrap();
        let a = tx.enlist(&mut town.a);
        a.work().unwrap().get(0, b"k").unwrap();
        tx.commit().unwrap();
    }
}

#[test]
fn the_first_committer_of_a_key_wins_and_the_other_is_undone_everywhere() {
    let mut town = town();
    let mut tx = town.client.begin().unwrap();
    let (a, b) = (tx.enlist(&mut town.a), tx.enlist(&mut town.b));
    assert_eq!(a.work().unwrap().get(0, b"k").unwrap(), None);
    a.work().unwrap().put(0, b"k", b"slow").unwrap();
    b.work().unwrap().put(0, b"k", b"slow").unwrap();
    remote("a", town.store_a.address()).put(0, b"k", b"fast").unwrap();
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind, Kind::RolledBack);
    assert!(error.message.contains("\"a\""), "{error}");
    assert_eq!(town.a.get(0, b"k").unwrap().as_deref(), Some(&b"fast"[..]));
    assert_eq!(town.b.get(0, b"k").unwrap(), None);
    assert_eq!(town.client.counts().round_trips, 0);
}

#[test]
fn a_store_that_dies_before_its_vote_undoes_everything() {
    let mut town = town();
    let mut tx = town.client.begin().unwrap();
    let (a, b) = (tx.enlist(&mut town.a), tx.enlist(&mut town.b));
    a.work().unwrap().put(0, b"k", b"1").unwrap();
    b.work().unwrap().put(0, b"k", b"1").unwrap();
    town.store_b.stop(Duration::ZERO);
    drop(town.store_b);
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind, Kind::RolledBack);
    assert_eq!(town.a.get(0, b"k").unwrap(), None);
    assert_eq!(town.b.get(0, b"k").unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn a_prepared_branch_is_finished_over_any_connection_and_an_unprepared_one_goes_with_its_own() {
    let mut town = town();
    let xid = assent_ids::Xid::new(5, b"somebody", b"a").unwrap();
    let mine = &mut town.a;
    assert_eq!(mine.call(Verb::Start(xid)), Reply::Done);
    mine.put(0, b"k", b"v").unwrap();
    assert_eq!(mine.call(Verb::End { xid, success: true }), Reply::Done);
    assert_eq!(mine.put(0, b"k", b"v").unwrap_err().kind(), Kind::Invalid, "after its end");
    assert_eq!(mine.call(Verb::Prepare(xid)), Reply::Vote(Vote::Yes));
    let mut other = RemoteConnector::new("a", town.store_a.address().clone(), LinkConfig::default()).connect().unwrap();
    assert_eq!(other.call(Verb::Commit(xid)), Reply::Done);
    assert!(matches!(other.call(Verb::Commit(xid)), Reply::Unknown(_) | Reply::Done));
    assert!(town.a.get(0, b"k").unwrap().is_some());

    assert_eq!(town.a.call(Verb::Start(xid)), Reply::Done);
    town.a.put(0, b"k", b"w").unwrap();
    let address = town.store_a.address().clone();
    town.store_a.stop(Duration::ZERO);
    drop(town.store_a);
    assert!(matches!(town.a.get(0, b"k").unwrap_err().kind(), Kind::InDoubt | Kind::Unavailable | Kind::RolledBack));
    let _again = store(&town.folder.path().join("a"), address);
    assert_eq!(town.a.put(0, b"k", b"x").unwrap_err().kind(), Kind::RolledBack, "not outside of the branch, unseen");
    assert!(matches!(town.a.call(Verb::End { xid, success: true }), Reply::RolledBack(_)));
    assert_eq!(town.a.call(Verb::Rollback(xid)), Reply::Done);
    assert_eq!(town.a.get(0, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn keys_are_scanned_in_order_and_values_beyond_the_limit_are_refused_by_their_size() {
    let mut town = town();
    let ops: Vec<(Vec<u8>, Vec<u8>)> = (0..20_u8).map(|key| (vec![key], vec![key; 3])).collect();
    let puts: Vec<Op<'_>> = ops.iter().map(|(key, value)| Op::Put { keyspace: 4, key, value }).collect();
    town.a.write(&puts, true).unwrap();
    let (rows, more) = town.a.scan(4, Bound::Excluded(&[4]), Bound::Included(&[9]), 3).unwrap();
    assert_eq!(rows.iter().map(|(key, _)| key[0]).collect::<Vec<_>>(), [5, 6, 7]);
    assert!(more);
    // Longer than a message: it travels in parts.
    let long = vec![7; 3 << 20];
    town.a.put(4, b"k", &long).unwrap();
    assert!(town.a.get(4, b"k").unwrap() == Some(long), "as it was put");
    let error = town.a.put(4, b"k", &vec![0; (256 << 20) + 1]).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("268435456"), "{error}");
    assert!(town.a.get(4, &[5]).unwrap().is_some(), "the connection is well");
}

#[test]
fn the_coordinator_is_told_what_it_may_forget_and_knows_nothing_of_it_then() {
    let mut town = town();
    let mut tx = town.client.begin().unwrap();
    let (a, b) = (tx.enlist(&mut town.a), tx.enlist(&mut town.b));
    a.work().unwrap().put(0, b"k", b"1").unwrap();
    b.work().unwrap().put(0, b"k", b"1").unwrap();
    let committed = tx.commit().unwrap();
    // The question travels behind what may be forgotten.
    assert_eq!(town.client.ask(committed.tx), Ok(Known::Unknown));
    town.coordinator.stop(Duration::from_secs(5));
}
