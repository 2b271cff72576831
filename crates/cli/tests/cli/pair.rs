//! A pair of `assent assets serve` as a user meets it: answered, killed, taken over, told, and its numbers the same on both.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use assent_assets::{Answer, AssetId, Client, Event, Op, Options, RemoteAssets, RemoteAssetsConnector};
use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId};
use assent_world::{Clock as _, RealClock};
use assent_xa::{Connector as _, Past, Reply, Resource as _, Verb, Vote};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::assent::{command, fails, json as shown, run};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Process {
    child: Child,
    ready: String,
}

fn start(arguments: &[String]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "), "{arguments:?}: {line:?}");
    Process { child, ready: line.trim().to_owned() }
}

impl Process {
    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A witness and two nodes or more, all on sockets in a folder: no port is anybody else's.
pub(crate) struct Pair {
    folder: tempfile::TempDir,
    members: Vec<u8>,
    nodes: BTreeMap<u8, Process>,
    witness: Option<Process>,
    more: Vec<String>,
}

impl Pair {
    pub(crate) fn new(more: &[&str]) -> Self {
        Self::of(&[1, 2], more)
    }

    pub(crate) fn of(members: &[u8], more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut more: Vec<String> = more.iter().map(|one| (*one).to_owned()).collect();
        if !more.iter().any(|one| one == "--silent-ms") {
            // A killed one is heard of at once; one that gets no core for a while has not gone.
            more.extend(["--silent-ms", "3000"].map(str::to_owned));
        }
        let mut pair = Self { folder, members: members.to_vec(), nodes: BTreeMap::new(), witness: None, more };
        pair.start_witness("witness");
        members.iter().for_each(|node| pair.start(*node));
        pair
    }

    /// On that folder; what it had before is gone, if that is another one.
    pub(crate) fn start_witness(&mut self, data: &str) {
        self.witness = None;
        let (data, at) = (self.path(data).display().to_string(), self.path("witness.socket").display().to_string());
        let witness = ["witness", "--data", &data, "--listen", &format!("unix:{at}")].map(str::to_owned);
        self.witness = Some(start(&witness));
    }

    pub(crate) fn witness_dies(&mut self) {
        self.witness = None;
    }

    pub(crate) fn signal(&self, node: u8, signal: Signal) {
        kill_process(Pid::from_raw(self.nodes[&node].child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// What a node said when it was ready.
    pub(crate) fn ready(&self, node: u8) -> &str {
        &self.nodes[&node].ready
    }

    /// A node's folder.
    pub(crate) fn data(&self, node: u8) -> PathBuf {
        self.path(&format!("data-{node}"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn arguments(&self, node: u8) -> Vec<String> {
        let place = |name: String| format!("unix:{}", self.path(&name).display());
        let mut arguments = ["assets", "serve", "--witness"].map(str::to_owned).to_vec();
        arguments.extend([place("witness.socket".to_owned()), "--node".to_owned(), node.to_string()]);
        for other in &self.members {
            let member = format!("{other}={},{}", place(format!("peer-{other}")), place(format!("client-{other}")));
            arguments.extend(["--member".to_owned(), member]);
        }
        arguments.extend(self.more.clone());
        arguments
    }

    pub(crate) fn start(&mut self, node: u8) {
        let data = self.data(node).display().to_string();
        let process = start(&[self.arguments(node), vec!["--data".to_owned(), data]].concat());
        assert!(process.ready.contains(&format!(" node={node} members=unix:")), "{}", process.ready);
        self.nodes.insert(node, process);
    }

    pub(crate) fn end(&mut self, node: u8, signal: Signal) {
        self.nodes.remove(&node).unwrap().end(signal);
    }

    pub(crate) fn at(&self, node: u8) -> String {
        format!("unix:{}", self.path(&format!("client-{node}")).display())
    }

    pub(crate) fn both(&self) -> String {
        self.members.iter().map(|node| self.at(*node)).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn says(&self, arguments: &[&str], at: &str) -> Value {
        let output = run(&[&["assets"][..], arguments, &["--json", "--server", at]].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        shown(&output)
    }

    pub(crate) fn status(&self, node: u8) -> Value {
        self.says(&["status"], &self.at(node))
    }

    /// Waits until a node says of itself what is asked for.
    pub(crate) fn until(&self, node: u8, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let until = RealClock.now().after(LIMIT);
        loop {
            let status = self.status(node);
            if is(&status) {
                return status;
            }
            assert!(RealClock.now() < until, "node {node} is never {what}: {status}");
        }
    }

    /// Node 1 leads, and both hold everything.
    pub(crate) fn settled(&self) -> Value {
        self.until(1, "primary of both", |status| {
            status["role"] == "primary" && status["in_sync"] == json!(self.members)
        })
    }

    pub(crate) fn client(&self) -> Client {
        let servers = [2, 1].map(|node| self.at(node).parse().unwrap()).to_vec();
        let options = Options { patience: LIMIT, ..Options::to_all(servers) };
        Client::connect(options, Arc::new(RealClock)).unwrap()
    }

    /// Both have executed the same, to the same state.
    pub(crate) fn are_the_same(&self, assets: usize) {
        let one = self.status(1);
        let is = |status: &Value| status["sequence"] == one["sequence"] && status["hash"] == one["hash"];
        assert_eq!(one["assets"], json!(assets));
        self.members.iter().skip(1).for_each(|node| _ = self.until(*node, "as far as the first", is));
    }
}

const ONE: AssetId = AssetId(1);

#[test]
fn a_standby_goes_on_where_a_killed_primary_was_and_nothing_is_lost_or_done_twice() {
    let mut pair = Pair::new(&["--ack", "received"]);
    pair.settled();
    let mut client = pair.client();
    client.execute(&[Op::Create { id: ONE, value: 0 }]).unwrap();
    let mut expected = 0_i64;
    let mut leader = 1;
    for round in 0..3 {
        (0..100).for_each(|_| _ = client.send(&[Op::Add { id: ONE, by: 1 }]).unwrap());
        client.flush().unwrap();
        let mut received = 0;
        while client.waiting() > 0 {
            if received == 10 * round {
                // In the middle of what was sent; what comes behind it has nobody to go to.
                pair.end(leader, Signal::KILL);
                (0..50).for_each(|_| _ = client.send(&[Op::Add { id: ONE, by: 1 }]).unwrap());
            }
            let (_, answer) = client.receive().unwrap();
            let Answer::Done(results) = answer else { panic!("{answer:?}") };
            (expected, received) = (expected + 1, received + 1);
            let asset = results.assets[0];
            assert_eq!((asset.value, asset.updates), (expected, u64::try_from(expected).unwrap()), "once, in order");
        }
        let (dead, other) = (leader, 3 - leader);
        let events = client.events();
        let is_there = |event: &Event| matches!(event, Event::FailedOver { to, .. } if *to == pair.at(other));
        assert!(events.iter().any(is_there), "{events:?}");
        pair.start(dead);
        leader = other;
        pair.until(leader, "in sync again", |status| status["in_sync"] == json!([1, 2]));
    }
    assert_eq!(expected, 450);
    pair.are_the_same(1);
    let found = pair.says(&["get", "1"], &pair.both());
    assert_eq!(found["assets"], json!([{"id": 1, "value": 450, "updates": 450}]));
    assert!(pair.status(leader)["epoch"].as_u64().unwrap() >= 4, "each takeover is an epoch");
}

#[test]
fn what_a_person_says_is_followed_and_a_status_is_true_on_every_node() {
    let mut pair = Pair::new(&["--ack", "durable", "--trace-every", "1"]);
    let first = pair.settled();
    assert_eq!((&first["ack"], &first["node"], &first["primary"]), (&json!("durable"), &json!(1), &json!(1)));
    pair.says(&["create", "1=100", "2=0"], &pair.both());
    // Named alone, a standby says who leads.
    let standby = pair.at(2);
    fails(&["assets", "add", "1=1", "--server", &standby], 8, "node 2 is a standby of node 1: ask there");
    let status = pair.status(2);
    assert_eq!((&status["role"], &status["primary"], &status["why"]), (&json!("standby"), &json!(1), &Value::Null));
    let led = pair.says(&["hand-over", "2"], &pair.both());
    assert_eq!((&led["role"], &led["node"], &led["forced"]), (&json!("primary"), &json!(2), &json!(false)));
    assert!(led["epoch"].as_u64() > first["epoch"].as_u64());
    let added = pair.says(&["add", "1=-30", "2=30", "--min=0"], &pair.both());
    assert_eq!(added["assets"][1], json!({"id": 2, "value": 30, "updates": 1}));
    // Held out, a node is counted on for nothing; and the primary answers alone.
    let out = pair.says(&["hold-out"], &pair.at(1));
    assert_eq!(out["node"], json!(1));
    pair.until(2, "alone in its set", |status| status["in_sync"] == json!([2]));
    pair.says(&["add", "1=1"], &pair.both());
    pair.says(&["release"], &pair.at(1));
    let both = pair.until(2, "in sync with both", |status| status["in_sync"] == json!([1, 2]));
    assert_eq!(both["standbys"][0]["node"], json!(1));
    fails(&["assets", "force", "--server", &pair.both()], 2, "names 2 nodes");
    fails(&["assets", "hand-over", "7", "--server", &pair.both()], 8, "7");
    // A stop hands over, so that nobody waits.
    pair.end(2, Signal::TERM);
    pair.until(1, "primary", |status| status["role"] == "primary");
    assert_eq!(pair.says(&["get", "1"], &pair.both())["assets"][0]["value"], json!(71));
    pair.start(2);
    pair.until(1, "in sync with both", |status| status["in_sync"] == json!([1, 2]));
    pair.are_the_same(2);
    let table = run(&["assets", "status", "--server", &pair.at(1)]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("1, primary") && text.contains("durable: on the disk of each node in sync"), "{text}");
}

#[test]
fn a_node_alone_says_why_nothing_goes_on_until_a_person_forces_it() {
    let mut pair = Pair::new(&["--ack", "durable"]);
    pair.settled();
    pair.says(&["create", "1=5"], &pair.both());
    // Both go, the primary last: what it alone may know is not on the other.
    pair.end(2, Signal::KILL);
    pair.until(1, "alone in its set", |status| status["in_sync"] == json!([1]));
    pair.says(&["add", "1=1"], &pair.at(1));
    pair.end(1, Signal::KILL);
    pair.start(2);
    let waits = pair.until(2, "waiting", |status| {
        status["role"] == "waiting" && status["why"].as_str().is_some_and(|why| why.contains("node 1"))
    });
    assert_eq!(waits["primary"], json!(1), "{waits}");
    let why = run(&["assets", "get", "1", "--server", &pair.at(2)]);
    assert_eq!(why.status.code(), Some(8), "{why:?}");
    // Its disk is put into another machine: the same number, and everything is there.
    let left = pair.path("data-1").display().to_string();
    let mut arguments = pair.arguments(1);
    arguments.extend(["--take-over".to_owned(), left]);
    let taken = start(&arguments);
    pair.nodes.insert(1, taken);
    pair.settled();
    assert_eq!(pair.says(&["get", "1"], &pair.both())["assets"][0]["value"], json!(6));
    // The same again, and this time its disk is lost, too.
    pair.end(2, Signal::KILL);
    pair.until(1, "alone in its set", |status| status["in_sync"] == json!([1]));
    pair.says(&["add", "1=1"], &pair.at(1));
    pair.end(1, Signal::KILL);
    pair.start(2);
    pair.until(2, "waiting", |status| status["role"] == "waiting");
    pair.says(&["force"], &pair.at(2));
    let forced = pair.until(2, "primary", |status| status["role"] == "primary");
    assert_eq!((&forced["forced"], &forced["in_sync"]), (&json!(true), &json!([2])));
    let says =
        |pair: &Pair| String::from_utf8_lossy(&run(&["assets", "status", "--server", &pair.at(2)]).stdout).into_owned();
    assert!(says(&pair).contains("by a person's force"), "{}", says(&pair));
    pair.says(&["settle"], &pair.at(2));
    pair.until(2, "settled", |status| status["forced"] == json!(false));
    assert!(!says(&pair).contains("by a person's force"), "{}", says(&pair));
    assert_eq!(pair.says(&["get", "1"], &pair.at(2))["assets"][0]["value"], json!(6), "what only node 1 had is lost");
}

#[test]
fn a_prepared_branch_holds_its_assets_through_a_fail_over_and_is_resolved_at_the_new_primary() {
    let mut pair = Pair::new(&["--ack", "durable"]);
    pair.settled();
    pair.says(&["create", "1=100", "2=0"], &pair.both());
    let options =
        || Options { patience: LIMIT, ..Options::to_all([1, 2].map(|node| pair.at(node).parse().unwrap()).to_vec()) };
    let node = NodeId(7);
    let name = |counter| {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
        Branch { node, tx, resource: ResourceId::of("assets"), number: 0, flags: 0, mark: None }.xid()
    };
    let connector = RemoteAssetsConnector::new("assets", options(), Arc::new(RealClock));
    let mut one = RemoteAssets::connect("assets", options(), Arc::new(RealClock)).unwrap();
    for (counter, asset) in [(1, 1), (2, 2)] {
        assert_eq!(one.call(Verb::Start(name(counter))), Reply::Done);
        one.work(Op::Add { id: AssetId(asset), by: -5 }).unwrap();
        assert_eq!(one.call(Verb::End { xid: name(counter), success: true }), Reply::Done);
        assert_eq!(one.call(Verb::Prepare(name(counter))), Reply::Vote(Vote::Yes));
    }
    let witness = one.witness();
    assert_eq!(witness.len(), 8);
    pair.end(1, Signal::KILL);
    // Who voted for the connection is gone with its primary; recovery asks the next one.
    let mut agent = connector.connect().unwrap();
    assert_eq!(agent.call(Verb::Recover(node)), Reply::Listed(vec![name(1), name(2)]));
    assert_eq!(agent.call(Verb::Recover(NodeId(8))), Reply::Listed(Vec::new()), "of another node");
    fails(&["assets", "add", "1=1", "--server", &pair.at(2)], 4, "asset 1 is held");
    let inquire = || Verb::Inquire { xid: name(2), witness: witness.clone() };
    assert_eq!(agent.call(inquire()), Reply::Past(Past::Open));
    assert_eq!(agent.call(Verb::Commit(name(1))), Reply::Done);
    assert_eq!(one.call(Verb::Rollback(name(2))), Reply::Done, "the old connection finds the new primary, too");
    assert_eq!(agent.call(inquire()), Reply::Past(Past::RolledBack));
    assert_eq!(agent.call(Verb::Commit(name(1))), Reply::Done, "told again");
    let found = pair.says(&["get", "1", "2"], &pair.at(2));
    assert_eq!((&found["assets"][0]["value"], &found["assets"][1]["value"]), (&json!(95), &json!(0)));
}

#[test]
fn what_cannot_be_a_node_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let socket = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let member = format!("1={},{}", socket("p"), socket("c"));
    let witness = socket("w");
    let serve = |more: &[&str], code: i32, says: &str| {
        fails(&[&["assets", "serve", "--data", data][..], more].concat(), code, says);
    };
    serve(&["--ack", "received"], 2, "it is a group's word");
    serve(&["--node", "1"], 2, "--witness");
    serve(&["--node", "2", "--member", &member, "--witness", &witness], 2, "no --member 2=");
    serve(&["--node", "1", "--member", &member, "--member", &member, "--witness", &witness], 2, "another one's too");
    serve(&["--node", "1", "--member", &member, "--witness", "ftp://x"], 2, "no such kind of arbiter");
    serve(&["--node", "1", "--member", "1=0.0.0.0:1,127.0.0.1:2", "--witness", &witness], 6, "--insecure");
    serve(&["--node", "1", "--member", "1=127.0.0.1:0,127.0.0.1:2", "--witness", &witness], 2, "cannot be 0");
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let take = ["assets", "serve", "--node", "1", "--member", &member, "--witness", &witness, "--take-over"];
    fails(&[&take[..], &[empty.to_str().unwrap()]].concat(), 3, "empty");
    // A folder is of one kind.
    std::fs::create_dir_all(folder.path().join("data/log")).unwrap();
    serve(&["--node", "1", "--member", &member, "--witness", &witness], 4, "a server alone");
}
