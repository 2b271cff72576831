//! Seeded histories of a last resource: clients that decide by a row of bank-a, or in the log; whose row comes late, whose answer is
//! lost, who freeze for ever and wake, who die while what they sent is still on its way; a coordinator that restarts and loses what was
//! not synced; listings that are old when they are read; rows that go. Whatever the order, a transaction goes one way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assent_coordinator::{Config, Coordinator, Known, Session};
use assent_ids::{Mark, ResourceId, TxId};
use assent_kind::Kind;
use assent_sim::Rng;
use assent_xa::{BranchRecord, Decision, Outcome, Resource, Verb, lay_votes};

use crate::bank::{Bank, TABLE};
use crate::stand::{IDENTITY, NAMES, Stand, branch, commit, tx};

const SEEDS: u64 = 1_500;
const STEPS: u64 = 150;

pub(crate) fn mark() -> Mark {
    Mark { resource: ResourceId::of(NAMES[0]), table: TABLE, timeline: 1 }
}

pub(crate) fn marked(name: &str, number: u16) -> BranchRecord {
    BranchRecord { mark: Some(mark()), ..branch(name, number) }
}

/// Where one client's current transaction stands. The last resource is bank-a, the others are bank-b and bank-c.
#[derive(Clone, Debug)]
enum Work {
    Idle,
    /// So many of the others are prepared.
    Preparing(u16),
    /// All are; it decides by the row, or in the log as it would without.
    Ready {
        by_row: bool,
    },
    /// The row is on its way, or written and not committed.
    Sent,
    /// The answer is lost: the row tells.
    Asking,
    /// In the log, for the first time or not.
    Deciding {
        first: bool,
    },
    /// Known; so many branches are told.
    Telling(Outcome, u16),
    GivenUp,
}

struct Client {
    session: Session,
    is_connected: bool,
    counter: u64,
    work: Work,
}

struct Clients {
    coordinator: Arc<Coordinator>,
    banks: Vec<Bank>,
    list: Vec<Client>,
    told: BTreeMap<TxId, BTreeSet<Outcome>>,
    seen: BTreeSet<TxId>,
    rows: u64,
    /// How many of a hundred arrive when they may.
    arriving: u64,
    rng: Rng,
}

impl Clients {
    fn connect(&mut self) {
        let session = self.coordinator.handshake("client").unwrap();
        self.list.push(Client { session, is_connected: true, counter: 0, work: Work::Idle });
    }

    /// What clients have sent arrives, whether they live or not.
    fn arrive(&mut self) {
        let mut vault = self.banks[0].vault();
        let (on_their_way, chance) = (vault.rows.sent.len(), self.rng.below(100));
        if on_their_way > 0 && chance < self.arriving {
            let at = self.rng.index(on_their_way);
            vault.rows.arrives(at);
        }
    }

    fn step(&mut self) {
        let at = self.rng.index(self.list.len());
        let chance = self.rng.below(100);
        let Some(client) = self.list.get_mut(at) else { return };
        if !client.is_connected {
            if chance < 50 {
                client.is_connected =
                    self.coordinator.resume(client.session.incarnation, client.session.secret).is_ok();
            }
            // Frozen; but it may be its coordinator alone that it has lost.
            if !client.is_connected && chance.is_multiple_of(2) {
                return;
            }
        } else if chance < 6 {
            self.coordinator.lost(client.session.incarnation);
            client.is_connected = false;
            return;
        }
        let (work, is_connected) = (client.work.clone(), client.is_connected);
        if matches!(work, Work::Idle | Work::GivenUp) && is_connected {
            client.counter += 1;
        }
        let mine = tx(&client.session, client.counter);
        let next = self.next(mine, work, is_connected, chance);
        self.list[at].work = next;
        self.look(mine);
    }

    fn next(&mut self, mine: TxId, work: Work, is_connected: bool, chance: u64) -> Work {
        match work {
            Work::Idle | Work::GivenUp if !is_connected => Work::Idle,
            Work::Idle | Work::GivenUp => {
                self.seen.insert(mine);
                // It writes, and has a number, before anybody is asked to prepare.
                self.banks[0].vault().rows.begin(mine);
                Work::Preparing(0)
            }
            Work::Preparing(done @ 0..2) => {
                self.banks[usize::from(done) + 1].prepare_marked(IDENTITY.node, mine, done + 1, mark());
                Work::Preparing(done + 1)
            }
            Work::Preparing(_) if chance < 80 => Work::Ready { by_row: true },
            Work::Preparing(_) if chance < 90 => Work::Ready { by_row: false },
            Work::Preparing(_) => Work::Telling(Outcome::RolledBack, 0),
            Work::Ready { by_row: true } => {
                let votes = lay_votes(&[marked(NAMES[1], 1), marked(NAMES[2], 2)]);
                self.banks[0].vault().rows.sent.push((mine, votes));
                self.rows += 1;
                Work::Sent
            }
            Work::Ready { by_row: false } => {
                // It only read there: what decides is the log.
                self.banks[0].vault().rows.end(mine);
                Work::Deciding { first: true }
            }
            // Its connection breaks, and what was sent may still arrive.
            Work::Sent if chance < 25 => Work::Asking,
            Work::Sent => self.heard(mine, is_connected && chance < 80),
            Work::Asking => match self.coordinator.settle(mine, mark()) {
                Ok(Known::Committed) => Work::Telling(Outcome::Committed, 0),
                Ok(Known::RolledBack) => Work::Telling(Outcome::RolledBack, 0),
                Ok(_) if chance < 90 => Work::Asking,
                Ok(_) | Err(_) => Work::GivenUp,
            },
            Work::Deciding { first } => {
                let branches = vec![marked(NAMES[1], 1), marked(NAMES[2], 2)];
                let decision = Decision { tx: mine, outcome: Outcome::Committed, first, branches };
                match self.coordinator.decide(&decision) {
                    Ok(outcome) => Work::Telling(outcome, 0),
                    Err(error) if error.kind == Kind::InDoubt => Work::GivenUp,
                    Err(_) => Work::Deciding { first: false },
                }
            }
            Work::Telling(outcome, done @ 0..2) => self.tell(mine, outcome, done),
            Work::Telling(outcome, _) => {
                if outcome == Outcome::RolledBack {
                    self.banks[0].vault().rows.end(mine);
                }
                self.coordinator.finished(mine);
                Work::Idle
            }
        }
    }

    /// The answer to the row, if it is there; the coordinator hears of it, or the message is lost.
    fn heard(&mut self, mine: TxId, is_told: bool) -> Work {
        let answer = self.banks[0].vault().rows.answer(mine);
        match answer {
            None => Work::Sent,
            Some(false) => Work::Telling(Outcome::RolledBack, 0),
            Some(true) => {
                self.told.entry(mine).or_default().insert(Outcome::Committed);
                let branches = vec![marked(NAMES[0], 0), marked(NAMES[1], 1), marked(NAMES[2], 2)];
                if is_told {
                    self.coordinator.noted(&Decision { branches, ..commit(mine) });
                }
                Work::Telling(Outcome::Committed, 0)
            }
        }
    }

    fn tell(&mut self, mine: TxId, outcome: Outcome, done: u16) -> Work {
        self.told.entry(mine).or_default().insert(outcome);
        let bank = &self.banks[usize::from(done) + 1];
        let xid = bank.marked(IDENTITY.node, mine, done + 1, mark());
        let verb = match outcome {
            Outcome::Committed => Verb::Commit(xid),
            Outcome::RolledBack => Verb::Rollback(xid),
        };
        bank.teller().call(verb);
        Work::Telling(outcome, done + 1)
    }

    fn look(&mut self, tx: TxId) {
        let outcome = match self.coordinator.ask(tx) {
            Known::Committed => Outcome::Committed,
            Known::RolledBack => Outcome::RolledBack,
            Known::Undecided | Known::InDoubt | Known::Unknown => return,
        };
        self.told.entry(tx).or_default().insert(outcome);
    }

    fn check(&self, seed: u64) {
        let vault = self.banks[0].vault();
        for tx in &self.seen {
            let mut told = self.told.get(tx).cloned().unwrap_or_default();
            for (number, bank) in (1..).zip(&self.banks[1..]) {
                let xid = bank.marked(IDENTITY.node, *tx, number, mark());
                let vault = bank.vault();
                told.extend(vault.committed.contains(&xid).then_some(Outcome::Committed));
                told.extend(vault.rolled_back.contains(&xid).then_some(Outcome::RolledBack));
            }
            told.extend(vault.rows.committed.contains(tx).then_some(Outcome::Committed));
            assert!(told.len() <= 1, "seed {seed}: {tx} went both ways");
        }
    }
}

/// One history; how many rows were sent, and how many of them committed.
fn history(seed: u64, spoil: fn(&Stand)) -> (u64, u64) {
    let config = Config { prepared_ms_max: 4_000, checkpoint_bytes: 700, ..Config::default() };
    let mut stand = Stand::with(config);
    spoil(&stand);
    let clients = Clients {
        coordinator: Arc::clone(&stand.coordinator),
        banks: stand.banks.clone(),
        list: Vec::new(),
        told: BTreeMap::new(),
        seen: BTreeSet::new(),
        rows: 0,
        // In one history of two the network is slow, and clients freeze for long.
        arriving: if seed.is_multiple_of(2) { 70 } else { 4 },
        rng: Rng::new(seed ^ 0x51ab),
    };
    let clients = Arc::new(Mutex::new(clients));
    let mut rng = Rng::new(seed);
    (0..3).for_each(|_| clients.lock().unwrap().connect());
    for _ in 0..STEPS {
        turn(&mut stand, &clients, &mut rng);
        clients.lock().unwrap().check(seed);
    }
    // Everybody dies; what is on its way arrives, or not, and their sessions end.
    for _ in 0..2 {
        restart(&mut stand, &clients, &mut rng);
        stand.fence();
    }
    for _ in 0..3 {
        stand.round();
        clients.lock().unwrap().arrive();
    }
    stand.banks[0].vault().rows.all_end();
    for _ in 0..200 {
        stand.round();
    }
    let mut clients = clients.lock().unwrap();
    clients.seen.clone().into_iter().for_each(|tx| clients.look(tx));
    clients.check(seed);
    let left: usize = stand.banks.iter().map(|bank| bank.vault().prepared.len()).sum();
    let rows = stand.banks[0].vault().rows.standing.len();
    assert_eq!((left, stand.coordinator.gauges().live, rows), (0, 0, 0), "seed {seed}: recovery leaves nothing");
    // Who committed by a row committed everywhere.
    let vault = stand.banks[0].vault();
    for tx in &vault.rows.committed {
        for (number, bank) in (1..).zip(&stand.banks[1..]) {
            let xid = bank.marked(IDENTITY.node, *tx, number, mark());
            assert!(bank.vault().committed.contains(&xid), "seed {seed}: {tx} is committed in bank-a alone");
        }
    }
    (clients.rows, u64::try_from(vault.rows.committed.len()).unwrap())
}

/// Something happens.
fn turn(stand: &mut Stand, clients: &Arc<Mutex<Clients>>, rng: &mut Rng) {
    match rng.below(100) {
        0..60 => clients.lock().unwrap().step(),
        60..70 => clients.lock().unwrap().arrive(),
        70..80 => {
            stand.clock.advance(Duration::from_millis(rng.below(700)));
            stand.coordinator.tick().unwrap();
        }
        80..96 => {
            for bank in &stand.banks {
                let (clients, steps) = (Arc::clone(clients), rng.below(6));
                let meanwhile = move || {
                    let mut clients = clients.lock().unwrap();
                    for _ in 0..steps {
                        clients.step();
                        clients.arrive();
                    }
                };
                bank.vault().meanwhile = Some(Box::new(meanwhile));
            }
            stand.agent.round();
        }
        96..98 => clients.lock().unwrap().connect(),
        _ => restart(stand, clients, rng),
    }
}

fn restart(stand: &mut Stand, clients: &Arc<Mutex<Clients>>, rng: &mut Rng) {
    let kept = rng.index(6);
    stand.log = stand.log.reopen_keeping(kept);
    stand.dies();
    (stand.coordinator, stand.agent) = crate::stand::open(&stand.log, &stand.clock, &stand.banks, stand.config);
    let mut clients = clients.lock().unwrap();
    clients.coordinator = Arc::clone(&stand.coordinator);
    for client in &mut clients.list {
        client.is_connected = false;
    }
}

#[test]
fn whatever_the_order_a_transaction_goes_as_its_row_says() {
    let (mut sent, mut committed) = (0, 0);
    for seed in 1..=SEEDS {
        let (one, other) = history(seed, |_| {});
        sent += one;
        committed += other;
    }
    assert!(committed > SEEDS && sent - committed > SEEDS / 4, "{sent} rows were sent, {committed} committed");
}

/// A rule, and what leaves it out.
type Rule = (&'static str, fn(&Stand));

/// The rules of the bank that the coordinator relies on, each left out: what goes wrong is seen.
#[test]
fn a_table_that_breaks_a_rule_is_seen() {
    let rules: [Rule; 3] = [
        ("recovery's row goes while its client's transaction is open", |stand| {
            stand.banks[0].vault().rows.drops_early = true;
        }),
        ("recovery's row stands beside the client's", |stand| stand.banks[0].vault().rows.overwrites = true),
        ("recovery does not wait for a row that is not committed", |stand| {
            stand.banks[0].vault().rows.does_not_wait = true;
        }),
    ];
    for (rule, spoil) in rules {
        let goes_wrong = |seed| std::panic::catch_unwind(|| history(seed, spoil)).is_err();
        assert!((1..=SEEDS).any(goes_wrong), "{rule}: nobody sees it");
    }
}
