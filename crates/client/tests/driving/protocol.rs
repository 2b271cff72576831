//! The whole protocol in a simulated world: clients that drive `xa::Commit`, a coordinator with its agent, two real stores,
//! each on its own disk, and messages that are late, lost, doubled and overtaken. Every party dies and comes back, with a
//! power cut or without; with RPO > 0 the coordinator loses what it had not synced.
//!
//! Walk: [`World::step`] lets one thing happen, by the seed · [`World::quiet`] ends all clients and lets recovery finish ·
//! [`World::judge`] asks the stores themselves: a transaction is in all that it wrote or in none, nothing stays prepared
//! but what is reported, and what a client was told holds.
//! Deliberately absent: sockets (`wire`, `stores`), and agents over doubles (`coordinator`'s own histories).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::{Agent, Identity, Known, Operator, Session};
use assent_ids::{Branch, Epoch, ResourceId, TxId, Xid};
use assent_kv::KvResource;
use assent_sim::{Rng, SimDice};
use assent_xa::{
    BranchRecord, Command, Commit, DecideError, Decision, Event, Native, Outcome, Pace, Reply, Resource, Trust, Verb,
    Verdict,
};

use super::machines::{House, Machine, NAMES, Slot, Store, open_house};

const SPACE: u32 = 1;

struct Work {
    commit: Commit,
    xids: [Xid; 2],
    witness: [Vec<u8>; 2],
    /// The message whose answer is awaited: of each branch, and of the decision.
    awaited: [Option<u64>; 3],
    has_asked: bool,
    owes: bool,
}

struct Client {
    session: Session,
    epoch: Epoch,
    counter: u64,
    work: Option<(TxId, Work)>,
}

#[derive(Clone, Debug)]
enum Message {
    Verb {
        client: usize,
        branch: usize,
        tx: TxId,
        id: u64,
        verb: Verb,
    },
    Reply {
        client: usize,
        branch: usize,
        id: u64,
        reply: Reply,
        witness: Vec<u8>,
    },
    Decide {
        client: usize,
        id: u64,
        decision: Decision,
    },
    Decided {
        client: usize,
        id: u64,
        answer: Result<Outcome, DecideError>,
    },
    Finished(TxId),
    Acknowledged(TxId),
    /// The client's connections end.
    Bye(TxId),
}

/// What was written and what was told.
#[derive(Default)]
struct Ledger {
    wrote: BTreeMap<TxId, [bool; 2]>,
    told: BTreeMap<TxId, Outcome>,
}

struct World {
    rng: Rng,
    lazy: bool,
    stores: [Store; 2],
    house: House,
    clients: Vec<Client>,
    net: Vec<Message>,
    ids: u64,
    ledger: Ledger,
}

impl World {
    fn new(seed: u64, lazy: bool) -> Self {
        let rng = Rng::new(seed);
        let mut stores =
            [0, 1].map(|_| Store { machine: Machine::new(), slot: Slot::default(), connections: BTreeMap::new() });
        stores.iter_mut().enumerate().for_each(|(at, store)| store.rises(at));
        let mut machine = Machine::new();
        let identity = Identity::load_or_create(&machine.disk, &SimDice::new(5), Path::new("")).unwrap();
        let slots = [0, 1].map(|at: usize| Arc::clone(&stores[at].slot));
        let (journal, coordinator, agent) = open_house(&mut machine, identity, lazy, &slots);
        let house = House { machine, identity, journal, coordinator, agent };
        Self { rng, lazy, stores, house, clients: Vec::new(), net: Vec::new(), ids: 0, ledger: Ledger::default() }
    }

    fn house_falls(&mut self) {
        let slots = [0, 1].map(|at: usize| Arc::clone(&self.stores[at].slot));
        // Its connections end with it, and their claims.
        self.house.agent =
            Agent::new(Arc::clone(&self.house.coordinator), Vec::new(), Arc::new(self.house.machine.clock.clone()));
        self.house.machine.dies(&mut self.rng);
        let opened = open_house(&mut self.house.machine, self.house.identity, self.lazy, &slots);
        (self.house.journal, self.house.coordinator, self.house.agent) = opened;
    }

    fn pass(&self, ms: u64) {
        self.house.machine.clock.advance(Duration::from_millis(ms));
        self.stores.iter().for_each(|store| store.machine.clock.advance(Duration::from_millis(ms)));
        self.house.journal.maintain();
        _ = self.house.coordinator.tick();
        self.stores.iter().filter_map(Store::kv).for_each(|kv| kv.tick());
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..=69 => self.deliver(),
            70..=73 => _ = self.take(),
            74..=77 => {
                if let Some(message) = self.net.get(self.rng.index(self.net.len())).cloned() {
                    self.net.push(message);
                }
            }
            78..=84 => self.begin(),
            85..=87 => self.impatient(),
            88 => self.client_dies(),
            89 | 90 => {
                let at = self.rng.index(2);
                self.stores[at].falls(&mut self.rng);
            }
            91..=94 => self
                .stores
                .iter_mut()
                .enumerate()
                .filter(|(_, store)| store.kv().is_none())
                .for_each(|(at, store)| store.rises(at)),
            95 => self.house_falls(),
            96 | 97 => {
                let ms = self.rng.range(20..700);
                self.pass(ms);
            }
            _ => _ = self.house.agent.round(),
        }
    }

    /// Any message: late ones are overtaken.
    fn take(&mut self) -> Option<Message> {
        let at = self.rng.index(self.net.len());
        (at < self.net.len()).then(|| self.net.swap_remove(at))
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn deliver(&mut self) {
        match self.take() {
            Some(Message::Verb { client, branch, tx, id, verb }) => {
                let Some(kv) = self.stores[branch].kv() else { return };
                let connections = &mut self.stores[branch].connections;
                let resource = connections.entry(tx).or_insert_with(|| KvResource::new(NAMES[branch], kv));
                let reply = resource.call(verb);
                let witness = resource.witness();
                self.net.push(Message::Reply { client, branch, id, reply, witness });
            }
            Some(Message::Reply { client, branch, id, reply, witness }) => {
                let Some((_, work)) = &mut self.clients[client].work else { return };
                if work.awaited[branch] == Some(id) {
                    work.awaited[branch] = None;
                    work.witness[branch] = witness;
                    self.event(client, Event::Answer { branch: number(branch), reply });
                }
            }
            Some(Message::Decide { client, id, decision }) => {
                let coordinator = Arc::clone(&self.house.coordinator);
                let one = &mut self.clients[client];
                // A stale copy comes from whoever this client was before.
                if one.session.incarnation == decision.tx.incarnation && one.epoch != coordinator.epoch() {
                    one.epoch = coordinator.epoch();
                    _ = coordinator.resume(one.session.incarnation, one.session.secret);
                }
                let answer = coordinator.decide(&decision);
                self.net.push(Message::Decided { client, id, answer });
            }
            Some(Message::Decided { client, id, answer }) => {
                let Some((_, work)) = &mut self.clients[client].work else { return };
                if work.awaited[2] == Some(id) {
                    work.awaited[2] = None;
                    self.event(client, answer.into());
                }
            }
            Some(Message::Finished(tx)) => self.house.coordinator.finished(tx),
            Some(Message::Acknowledged(tx)) => self.house.coordinator.acknowledged(tx),
            Some(Message::Bye(tx)) => self.stores.iter_mut().for_each(|store| _ = store.connections.remove(&tx)),
            None => self.begin(),
        }
    }

    /// A new transaction of an idle client, worked on at once; what cannot be worked on is rolled back.
    fn begin(&mut self) {
        if self.clients.len() < 3
            && let Ok(session) = self.house.coordinator.handshake("client")
        {
            let epoch = self.house.coordinator.epoch();
            self.clients.push(Client { session, epoch, counter: 0, work: None });
        }
        let Some(client) = self.clients.iter().position(|client| client.work.is_none()) else { return };
        let one = &mut self.clients[client];
        one.counter += 1;
        let tx = TxId { incarnation: one.session.incarnation, counter: one.counter };
        let node = self.house.coordinator.node();
        let xid = |at: usize| {
            Branch { node, tx, resource: ResourceId::of(NAMES[at]), number: number(at), flags: 0, mark: None }.xid()
        };
        let xids = [xid(0), xid(1)];
        let wrote = [true, self.rng.below(6) > 0];
        let mut word = Event::Commit;
        for at in [0, 1] {
            let Some(kv) = self.stores[at].kv() else {
                word = Event::Rollback;
                continue;
            };
            let mut resource = KvResource::new(NAMES[at], kv);
            let started = resource.call(Verb::Start(xids[at]));
            if started != Reply::Done || wrote[at] && resource.put(SPACE, tx.to_string().as_bytes(), b"1").is_err() {
                word = Event::Rollback;
            }
            self.stores[at].connections.insert(tx, resource);
        }
        if self.rng.below(12) == 0 {
            word = Event::Rollback;
        }
        self.ledger.wrote.insert(tx, wrote);
        let commit = Commit::new(&[Trust::KeepsVotes; 2], Pace::Together);
        let work =
            Work { commit, xids, witness: Default::default(), awaited: [None; 3], has_asked: false, owes: false };
        self.clients[client].work = Some((tx, work));
        self.event(client, word);
    }

    /// What `client`'s drive does with an event, but for waiting.
    fn event(&mut self, client: usize, event: Event) {
        let Some((tx, mut work)) = self.clients[client].work.take() else { return };
        for command in work.commit.step(event).unwrap() {
            let id = self.id();
            match command {
                Command::Send { branch, task } => {
                    let branch = usize::from(branch);
                    work.awaited[branch] = Some(id);
                    let verb = task.verb(work.xids[branch]);
                    self.net.push(Message::Verb { client, branch, tx, id, verb });
                }
                Command::Decide { yes, first } => {
                    work.awaited[2] = Some(id);
                    work.has_asked = true;
                    let branches = yes.iter().map(|branch| record(&work, usize::from(*branch))).collect();
                    let decision = Decision { tx, outcome: Outcome::Committed, first, branches };
                    self.net.push(Message::Decide { client, id, decision });
                }
                Command::Settle => unreachable!("nobody is a last resource here"),
                Command::Finished => {
                    work.owes = false;
                    self.net.push(Message::Finished(tx));
                }
                Command::Acknowledged => work.owes = true,
            }
        }
        let Some(report) = work.commit.report() else {
            self.clients[client].work = Some((tx, work));
            return;
        };
        let in_doubt = matches!(report.verdict, Verdict::InDoubt(_));
        let again = !report.unfinished.is_empty() || in_doubt && report.decided.is_none() && work.has_asked;
        if again && self.rng.below(3) > 0 {
            self.clients[client].work = Some((tx, work));
            return self.event(client, Event::Retry);
        }
        match report.verdict {
            Verdict::Committed => _ = self.ledger.told.insert(tx, Outcome::Committed),
            Verdict::RolledBack(_) => _ = self.ledger.told.insert(tx, Outcome::RolledBack),
            Verdict::InDoubt(_) => {}
            Verdict::Heuristic(list) => panic!("{tx}: these stores decide nothing by themselves: {list:?}"),
        }
        let gave_up = report.decided.is_none() && !report.unfinished.is_empty() && !in_doubt;
        if gave_up {
            let branches = report.unfinished.iter().map(|left| record(&work, usize::from(left.branch))).collect();
            let decision = Decision { tx, outcome: Outcome::RolledBack, first: !work.has_asked, branches };
            let id = self.id();
            self.net.push(Message::Decide { client, id, decision });
        }
        if gave_up || work.owes {
            self.net.push(Message::Acknowledged(tx));
        }
        self.net.push(Message::Bye(tx));
    }

    /// A client waits for one answer no longer.
    fn impatient(&mut self) {
        let client = self.rng.index(self.clients.len());
        let Some((_, work)) = self.clients.get_mut(client).and_then(|client| client.work.as_mut()) else { return };
        let at = self.rng.index(3);
        if work.awaited[at].take().is_some() {
            let lost = Event::Answer { branch: number(at), reply: Reply::Lost(Native::default()) };
            self.event(client, if at == 2 { Event::DecisionInDoubt } else { lost });
        }
    }

    fn client_dies(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.rng.index(self.clients.len());
        if let Some((tx, _)) = self.clients[at].work.take() {
            self.net.push(Message::Bye(tx));
        }
        let (coordinator, gone) = (&self.house.coordinator, self.clients[at].session.incarnation);
        if self.clients[at].epoch == coordinator.epoch() {
            coordinator.lost(gone);
        }
        // The place stays: messages on their way know it.
        if let Ok(session) = coordinator.handshake("client") {
            self.clients[at] = Client { session, epoch: coordinator.epoch(), counter: 0, work: None };
        }
    }

    /// No more faults and no more clients; what is on its way arrives or not. Recovery has as long as it needs, up to a limit.
    fn quiet(&mut self) {
        for (at, store) in self.stores.iter_mut().enumerate() {
            if store.kv().is_none() {
                store.rises(at);
            }
        }
        self.clients.iter_mut().for_each(|client| client.work = None);
        while !self.net.is_empty() {
            if self.rng.below(2) == 0 {
                self.deliver()
            } else {
                _ = self.take()
            }
            self.clients.iter_mut().for_each(|client| client.work = None);
        }
        let coordinator = Arc::clone(&self.house.coordinator);
        self.clients.drain(..).for_each(|client| coordinator.lost(client.session.incarnation));
        self.stores.iter_mut().for_each(|store| store.connections.clear());
        for _ in 0..80 {
            self.pass(1_100);
            self.house.agent.round();
            if self.left().is_empty() {
                return;
            }
        }
    }

    /// What is still prepared, and where.
    fn left(&self) -> BTreeMap<TxId, BTreeSet<usize>> {
        let mut left: BTreeMap<TxId, BTreeSet<usize>> = BTreeMap::new();
        for (at, store) in self.stores.iter().enumerate() {
            for xid in store.kv().unwrap().prepared() {
                left.entry(xid.branch().unwrap().tx).or_default().insert(at);
            }
        }
        left
    }

    fn has(&self, at: usize, tx: TxId) -> bool {
        self.stores[at].kv().unwrap().get(SPACE, tx.to_string().as_bytes()).unwrap().is_some()
    }

    /// How many transactions were committed, rolled back, and held for a person.
    fn judge(&mut self) -> Result<[usize; 3], String> {
        let held = self.left();
        for (tx, places) in &held {
            if !(self.lazy && self.house.coordinator.may_be_lost(*tx)) {
                let round = self.house.agent.round();
                let standing = self.house.coordinator.standing(tx.incarnation);
                return Err(format!(
                    "{tx} ({standing:?}) is left prepared at {places:?}, and nothing says why: {round:?}"
                ));
            }
            if (0..2).any(|at| self.has(at, *tx)) {
                return Err(format!("{tx} is held although a sibling is committed"));
            }
            let operator = Operator { who: "a person".to_owned(), reason: "no sibling is committed".to_owned() };
            self.house.coordinator.force(*tx, Outcome::RolledBack, &operator).map_err(|error| error.to_string())?;
        }
        for _ in 0..20 {
            self.pass(1_100);
            self.house.agent.round();
        }
        if !self.left().is_empty() {
            return Err(format!("{:?} stay prepared after a person has decided", self.left()));
        }
        let mut counts = [0, 0, held.len()];
        for (tx, wrote) in &self.ledger.wrote {
            let seen = [0, 1].map(|at| self.has(at, *tx));
            let told = self.ledger.told.get(tx);
            let known = self.house.coordinator.ask(*tx);
            if seen != *wrote && seen != [false; 2] {
                return Err(format!("half of {tx}: wrote {wrote:?}, is {seen:?}, told {told:?}, known {known:?}"));
            }
            let committed = seen == *wrote;
            let is_wrong = match told {
                Some(Outcome::Committed) => !committed && !held.contains_key(tx),
                Some(Outcome::RolledBack) => committed,
                None => false,
            };
            if is_wrong || known == Known::Committed && !committed || known == Known::RolledBack && committed {
                return Err(format!("{tx}: told {told:?}, known {known:?}, wrote {wrote:?}, is {seen:?}"));
            }
            counts[usize::from(!committed)] += 1;
        }
        Ok(counts)
    }

    /// Where everybody stands, as one number.
    fn shape(&self) -> u64 {
        let works = self.clients.iter().map(|client| {
            let work =
                client.work.as_ref().map(|(_, work)| (work.commit.phase() as u64, work.awaited.map(|id| id.is_some())));
            work.map_or(0, |(phase, awaited)| {
                1 + phase * 8 + awaited.iter().fold(0, |sum, one| sum * 2 + u64::from(*one))
            })
        });
        let mut works: Vec<u64> = works.collect();
        works.sort_unstable();
        let prepared = self.stores.iter().map(|store| store.kv().map_or(9, |kv| kv.prepared().len().min(8) as u64));
        let net = self.net.iter().map(|message| match message {
            Message::Verb { verb: Verb::Prepare(_), .. } => 1,
            Message::Verb { verb: Verb::Commit(_), .. } => 1 << 3,
            Message::Verb { verb: Verb::Rollback(_), .. } => 1 << 6,
            Message::Decide { .. } => 1 << 9,
            Message::Decided { .. } => 1 << 12,
            _ => 0,
        });
        let net = net.sum::<u64>();
        works
            .into_iter()
            .chain(prepared)
            .chain([net, u64::from(self.lazy)])
            .fold(0, |sum, one| (sum ^ one).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
    }
}

fn record(work: &Work, at: usize) -> BranchRecord {
    let resource = ResourceId::of(NAMES[at]);
    BranchRecord { resource, number: number(at), flags: 0, mark: None, witness: work.witness[at].clone() }
}

fn number(at: usize) -> u16 {
    u16::try_from(at).unwrap()
}

/// Lives of so many seeds: in how many distinct states they were, and what they came to (committed, rolled back, held).
fn histories(seeds: std::ops::Range<u64>, lazy: bool) -> (usize, [usize; 3]) {
    let only = std::env::var("ASSENT_PROTOCOL_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let (mut shapes, mut sums) = (BTreeSet::new(), [0; 3]);
    for seed in only.map_or(seeds, |seed| seed..seed + 1) {
        let mut world = World::new(seed, lazy);
        for _ in 0..400 {
            world.step();
            shapes.insert(world.shape());
        }
        world.quiet();
        let counts = world.judge().unwrap_or_else(|error| panic!("ASSENT_PROTOCOL_SEED={seed}: {error}"));
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [committed, rolled_back, _] = sums;
    assert!(
        only.is_some() || shapes.len() > 10_000 && committed > 1_000 && rolled_back > 1_000,
        "{sums:?} {}",
        shapes.len()
    );
    (shapes.len(), sums)
}

#[test]
fn no_transaction_is_ever_half_done_or_left_behind() {
    let (states, [committed, rolled_back, held]) = histories(0..1_000, false);
    println!("{states} distinct states; {committed} committed, {rolled_back} rolled back");
    assert_eq!(held, 0, "nothing waits for a person");
}

#[test]
fn with_rpo_above_0_no_transaction_is_half_done_unreported() {
    let (states, [committed, rolled_back, held]) = histories(0..1_000, true);
    println!("{states} distinct states; {committed} committed, {rolled_back} rolled back, {held} held for a person");
}
