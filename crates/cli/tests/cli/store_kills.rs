//! The served store killed by SIGKILL under 64 clients, again and again: what was acknowledged is there, whole, and nothing that
//! nobody asked for.
//!
//! Each client has keys of its own and counts. A batch sets two keys to one number; a conditional batch raises a counter that
//! eight clients share together with the client's own count of raises; a branch, driven by hand, sets two keys. After each kill:
//! a number is between the last one acknowledged and the last one sent, both keys of a pair have the same one, a shared counter
//! is the sum of its clients' counts, and a branch that voted is prepared or committed.
//! `ASSENT_KILLS` kills (5), and as many more as `ASSENT_KILLS_SECONDS` give time for.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test helpers fail by panicking")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_ids::{Branch, Epoch, Incarnation, Lsn, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_link::{Link, LinkConfig, LinkError};
use assent_wire::{Answer, Condition, Expect, Hello, Look, Op, Reply, Request, Role, Write, WriteIf};
use assent_world::{Clock as _, Dice as _, RealClock, RealDice};

use super::served::serve;
use super::store::{configure, metric};

const CLIENTS: u32 = 64;
const GROUPS: u32 = 8;
const NODE: NodeId = NodeId(9);
/// Bytes of a value that travels in parts.
const LONG_BYTES: usize = 3 << 19;

/// How far a branch was when its client heard the last of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its vote was not heard.
    Asked,
    /// It voted yes, and so it is decided: commit.
    Voted,
}

/// What a client knows for sure, and what it may have done.
#[derive(Debug)]
struct Client {
    number: u32,
    step: u64,
    /// Of the pair and of the long value: acknowledged, and sent.
    pair: [u64; 2],
    long: [u64; 2],
    raised: [u64; 2],
    committed: u64,
    branch: Option<(Xid, u64, Stage)>,
}

fn key(client: u32, name: &str) -> Vec<u8> {
    format!("c{client:02}/{name}").into_bytes()
}

fn shared(client: u32) -> Vec<u8> {
    format!("shared/{}", client % GROUPS).into_bytes()
}

/// The number, and as many bytes behind it as it says itself.
fn value(number: u64, long: bool) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    let bytes = if long { LONG_BYTES } else { usize::try_from(number * 37 % 900).unwrap() };
    value.extend((0..bytes).map(|at| u8::try_from((at ^ usize::try_from(number).unwrap()) % 256).unwrap()));
    value
}

/// The number of a value, all of whose bytes must be right.
fn number(found: Option<&[u8]>, long: bool) -> u64 {
    let Some(found) = found else { return 0 };
    let number = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert!(found == value(number, long), "the value of {number} is not as it was written");
    number
}

fn connect(protocol: &str) -> Result<Link, LinkError> {
    let config = LinkConfig { connect_ms: 20_000, answer_ms: 120_000, ..LinkConfig::default() };
    Link::connect(&protocol.parse().unwrap(), &Hello::new(Role::Store { label: "kills" }), &config)
}

/// A value, and the place of its write.
type Found = (Option<Vec<u8>>, Option<Lsn>);

/// Values of these keys, each as of now.
fn read(link: &Link, keys: &[Vec<u8>]) -> Result<Vec<Found>, LinkError> {
    let mut all = Vec::new();
    for key in keys {
        let arrived = link.request(&Request::Look(Look { values: true, keys: vec![(0, key)] }))?;
        let Answer::Objects(found) = arrived.answer()? else { panic!("no objects") };
        let lsn = found[0].map(|object| object.lsn);
        let value = match found[0] {
            Some(object) if object.value.is_none() => {
                let arrived = link.request(&Request::Get { xid: None, keyspace: 0, key })?;
                let Answer::Value(value) = arrived.answer()? else { panic!("no value") };
                value.map(<[u8]>::to_vec)
            }
            found => found.and_then(|object| object.value).map(<[u8]>::to_vec),
        };
        all.push((value, lsn));
    }
    Ok(all)
}

fn written(link: &Link, request: &Request<'_>) -> Result<(), LinkError> {
    let arrived = link.request(request)?;
    assert!(matches!(arrived.answer()?, Answer::Written(_)));
    Ok(())
}

fn reply(link: &Link, request: &Request<'_>) -> Result<bool, LinkError> {
    let arrived = link.request(request)?;
    let Answer::Branch(reply) = arrived.answer()? else { panic!("no reply") };
    assert!(matches!(reply, Reply::Done | Reply::Yes(_)), "{request:?}: {reply:?}");
    Ok(matches!(reply, Reply::Yes(_)))
}

impl Client {
    fn new(number: u32) -> Self {
        Self { number, step: 0, pair: [0; 2], long: [0; 2], raised: [0; 2], committed: 0, branch: None }
    }

    /// Works until the server is gone.
    fn works(&mut self, protocol: &str, answers: &AtomicU64) {
        let Ok(link) = connect(protocol) else { return };
        loop {
            self.step += 1;
            let done = match self.step % 8 {
                3 | 5 => self.raise(&link),
                6 => self.branch(&link),
                7 if self.number < 4 => self.put_long(&link),
                step => self.put_pair(&link, step != 0),
            };
            match done {
                Ok(()) => _ = answers.fetch_add(1, Ordering::Relaxed),
                Err(LinkError::Unavailable { .. } | LinkError::InDoubt { .. }) => return,
                Err(error) => panic!("client {}: {error}", self.number),
            }
        }
    }

    fn put_pair(&mut self, link: &Link, durable: bool) -> Result<(), LinkError> {
        self.pair[1] += 1;
        let (a, b, value) = (key(self.number, "a"), key(self.number, "b"), value(self.pair[1], false));
        let ops = [&a, &b].map(|key| Op::Put { keyspace: 0, key, value: &value }).to_vec();
        // Also one that is only with the kernel outlives the process.
        written(link, &Request::Write(Write { xid: None, durable, ops }))?;
        self.pair[0] = self.pair[1];
        Ok(())
    }

    fn put_long(&mut self, link: &Link) -> Result<(), LinkError> {
        self.long[1] += 1;
        let (key, value) = (key(self.number, "long"), value(self.long[1], true));
        let ops = vec![Op::Put { keyspace: 0, key: &key, value: &value }];
        written(link, &Request::Write(Write { xid: None, durable: true, ops }))?;
        self.long[0] = self.long[1];
        Ok(())
    }

    fn raise(&mut self, link: &Link) -> Result<(), LinkError> {
        let (counter, mine) = (shared(self.number), key(self.number, "raised"));
        let found = read(link, std::slice::from_ref(&counter))?.remove(0);
        let next = value(number(found.0.as_deref(), false) + 1, false);
        self.raised[1] += 1;
        let count = value(self.raised[1], false);
        let expects = found.1.map_or(Expect::Absent, Expect::At);
        let raised = written(
            link,
            &Request::WriteIf(WriteIf {
                durable: true,
                conditions: vec![Condition { keyspace: 0, key: &counter, expects }],
                ops: vec![
                    Op::Put { keyspace: 0, key: &counter, value: &next },
                    Op::Put { keyspace: 0, key: &mine, value: &count },
                ],
            }),
        );
        match raised {
            // Another one was first.
            Err(LinkError::Refused { kind: Kind::Conflict, .. }) => self.raised[1] -= 1,
            raised => {
                raised?;
                self.raised[0] = self.raised[1];
            }
        }
        Ok(())
    }

    fn branch(&mut self, link: &Link) -> Result<(), LinkError> {
        let next = self.committed + 1;
        let incarnation = Incarnation { epoch: Epoch(1), number: self.number };
        let tx = TxId { incarnation, counter: self.step };
        let xid = Branch { node: NODE, tx, resource: ResourceId::of("kv"), number: 0, flags: 0, mark: None }.xid();
        self.branch = Some((xid, next, Stage::Asked));
        reply(link, &Request::Start(xid))?;
        let (x, y, value) = (key(self.number, "x"), key(self.number, "y"), value(next, false));
        let ops = [&x, &y].map(|key| Op::Put { keyspace: 0, key, value: &value }).to_vec();
        written(link, &Request::Write(Write { xid: Some(xid), durable: true, ops }))?;
        reply(link, &Request::End { xid, success: true })?;
        assert!(reply(link, &Request::Prepare(xid))?, "it votes yes");
        self.branch = Some((xid, next, Stage::Voted));
        reply(link, &Request::Commit(xid))?;
        (self.branch, self.committed) = (None, next);
        Ok(())
    }

    /// As its coordinator would: what voted is committed, everything else is rolled back.
    fn finishes(&mut self, link: &Link, prepared: &BTreeSet<Xid>) {
        let Some((xid, next, stage)) = self.branch.take() else { return };
        if prepared.contains(&xid) {
            let verb = if stage == Stage::Voted { Request::Commit(xid) } else { Request::Rollback(xid) };
            reply(link, &verb).unwrap();
        }
        // Not listed although it voted: then it must be committed, and the check says whether it is.
        if stage == Stage::Voted {
            self.committed = next;
        }
    }

    /// What is there, held against what it knows; says by how much it has raised its counter.
    fn check(&mut self, link: &Link) -> u64 {
        let names = ["a", "b", "x", "y", "raised", "long"];
        let keys = names.map(|name| key(self.number, name));
        let found = read(link, &keys).unwrap();
        let found: Vec<u64> =
            found.iter().zip(names).map(|((value, _), name)| number(value.as_deref(), name == "long")).collect();
        let [a, b, x, y, raised, long] = found[..] else { panic!("six keys") };
        let who = self.number;
        assert_eq!(a, b, "client {who}: half a batch");
        let between = |name: &str, found: u64, known: [u64; 2]| {
            let [acknowledged, sent] = known;
            assert!((acknowledged..=sent).contains(&found), "client {who}: {name} is {found}, of {known:?}");
        };
        between("the pair", a, self.pair);
        between("the long value", long, self.long);
        between("its raises", raised, self.raised);
        assert_eq!((x, y), (self.committed, self.committed), "client {who}: a branch that voted commits, whole");
        (self.pair, self.long, self.raised) = ([a; 2], [long; 2], [raised; 2]);
        raised
    }
}

fn from_environment(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("{name} = {text:?}")))
}

#[test]
fn a_store_killed_under_64_clients_has_what_it_acknowledged_and_nothing_by_halves() {
    let folder = tempfile::tempdir().unwrap();
    // Small, so that segments end, the ledger is written out and merged and values are compacted under the kills.
    configure(folder.path(), "log_size = 4194304\nmemory_bytes = 65536\nspace_room_bytes_min = 0\n");
    let until = RealClock.now().after(Duration::from_secs(from_environment("ASSENT_KILLS_SECONDS", 0)));
    let least = from_environment("ASSENT_KILLS", 5);
    let mut clients: Vec<Client> = (0..CLIENTS).map(Client::new).collect();
    let (mut kills, mut answered, mut left, mut compacted) = (0, 0, 0, 0.0);
    while kills < least || RealClock.now() < until {
        let served = serve(folder.path());
        let answers = AtomicU64::new(0);
        let enough = 100 + RealDice.roll() % 2_000;
        let protocol = served.protocol.clone();
        std::thread::scope(|scope| {
            for client in &mut clients {
                let (protocol, answers) = (&protocol, &answers);
                scope.spawn(move || client.works(protocol, answers));
            }
            while answers.load(Ordering::Relaxed) < enough {
                RealClock.sleep(Duration::from_millis(1));
            }
            compacted += metric(&served.get("/metrics"), "assent_kv_compactions_total");
            served.kill();
        });
        kills += 1;
        answered += answers.load(Ordering::Relaxed);

        let served = serve(folder.path());
        let link = connect(&served.protocol).unwrap();
        let arrived = link.request(&Request::Recover(NODE)).unwrap();
        let Answer::Branch(Reply::Listed(prepared)) = arrived.answer().unwrap() else { panic!("no list") };
        left += prepared.len();
        let prepared: BTreeSet<Xid> = prepared.into_iter().collect();
        clients.iter_mut().for_each(|client| client.finishes(&link, &prepared));
        let mut sums = [0; GROUPS as usize];
        for client in &mut clients {
            sums[usize::try_from(client.number % GROUPS).unwrap()] += client.check(&link);
        }
        let counters: Vec<Vec<u8>> = (0..GROUPS).map(shared).collect();
        let counters = read(&link, &counters).unwrap();
        let counters: Vec<u64> = counters.iter().map(|(value, _)| number(value.as_deref(), false)).collect();
        assert_eq!(counters, sums, "a raise is there twice, or by half");
        drop(link);
        // Every second time the next one finds what a kill leaves of a store that has just come back.
        if kills % 2 == 0 { served.stop() } else { served.kill() }
    }
    println!("{kills} kills, {answered} acknowledged requests, {left} branches left prepared, {compacted} compactions");
    assert!(clients.iter().any(|client| client.committed > 0) && clients.iter().any(|client| client.raised[0] > 0));
}
