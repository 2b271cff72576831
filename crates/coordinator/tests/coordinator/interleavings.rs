//! Seeded histories: clients that decide late, lose answers, die, come back; a coordinator that restarts and loses what
//! was not synced; an agent whose listings are old when it reads them. Whatever the order, a transaction goes one way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assent_coordinator::{Config, Coordinator, Known, Pending, Session};
use assent_ids::TxId;
use assent_kind::Kind;
use assent_sim::Rng;
use assent_xa::{Decision, Outcome, Resource, Verb};

use crate::bank::Bank;
use crate::stand::{IDENTITY, Stand, branch, tx};

const SEEDS: u64 = 1_500;
const STEPS: u64 = 120;

/// Where one client's current transaction stands.
#[derive(Clone, Debug)]
enum Work {
    Idle,
    /// So many branches are prepared.
    Preparing(usize),
    /// Ready to ask, for the first time or not. Who once asked for a rollback never asks for a commit again.
    Asking {
        wish: Outcome,
        first: bool,
    },
    /// Laid, not yet waited for.
    Waiting(Outcome, Pending),
    /// Told; so many branches are finished.
    Telling(Outcome, usize),
    /// Told that nobody knows any more; recovery finishes it.
    GivenUp,
}

struct Client {
    session: Session,
    is_connected: bool,
    counter: u64,
    work: Work,
}

/// What everybody has been told, and what was done.
#[derive(Default)]
struct Ledger {
    told: BTreeMap<TxId, BTreeSet<Outcome>>,
    seen: BTreeSet<TxId>,
}

struct Clients {
    coordinator: Arc<Coordinator>,
    banks: Vec<Bank>,
    list: Vec<Client>,
    ledger: Ledger,
    rng: Rng,
}

impl Clients {
    fn connect(&mut self) {
        let session = self.coordinator.handshake("client").unwrap();
        self.list.push(Client { session, is_connected: true, counter: 0, work: Work::Idle });
    }

    fn step(&mut self) {
        let at = self.rng.index(self.list.len());
        let chance = self.rng.below(100);
        let Some(client) = self.list.get_mut(at) else { return };
        let mine = tx(&client.session, client.counter);
        if !client.is_connected {
            // Comes back in time, or learns that it came too late and goes on asking all the same.
            if chance < 50 {
                client.is_connected =
                    self.coordinator.resume(client.session.incarnation, client.session.secret).is_ok();
            }
            if !client.is_connected && chance.is_multiple_of(2) {
                return;
            }
        } else if chance < 6 {
            self.coordinator.lost(client.session.incarnation);
            client.is_connected = false;
            // An answer on its way is lost with the connection.
            if let Work::Waiting(wish, _) = client.work {
                client.work = Work::Asking { wish, first: false };
            }
            return;
        }
        let banks = &self.banks[..2];
        client.work = match client.work.clone() {
            Work::Idle if !client.is_connected => Work::Idle,
            Work::Idle | Work::GivenUp => {
                client.counter += 1;
                self.ledger.seen.insert(tx(&client.session, client.counter));
                Work::Preparing(0)
            }
            Work::Preparing(done) => match banks.get(done) {
                Some(bank) => {
                    bank.prepare(IDENTITY.node, mine, u16::try_from(done).unwrap());
                    Work::Preparing(done + 1)
                }
                None if chance < 90 => Work::Asking { wish: Outcome::Committed, first: true },
                // The application gave up without asking.
                None => Work::Telling(Outcome::RolledBack, 0),
            },
            // The request is lost on its way.
            Work::Asking { wish, .. } if chance < 15 => Work::Asking { wish, first: false },
            Work::Asking { wish, first } => {
                let branches = vec![branch("bank-a", 0), branch("bank-b", 1)];
                let wish = if chance > 95 { Outcome::RolledBack } else { wish };
                match self.coordinator.decide_begin(&Decision { tx: mine, outcome: wish, first, branches }) {
                    Ok(pending) => Work::Waiting(wish, pending),
                    Err(error) if error.kind == Kind::InDoubt => Work::GivenUp,
                    // Not resumed yet, or no room: ask again later.
                    Err(_) => Work::Asking { wish, first: false },
                }
            }
            Work::Waiting(_, pending) => {
                let outcome = self.coordinator.decide_end(pending).unwrap();
                self.ledger.told.entry(mine).or_default().insert(outcome);
                Work::Telling(outcome, 0)
            }
            Work::Telling(outcome, done) => match banks.get(done) {
                Some(bank) => {
                    let xid = bank.xid(IDENTITY.node, mine, u16::try_from(done).unwrap());
                    let verb = match outcome {
                        Outcome::Committed => Verb::Commit(xid),
                        Outcome::RolledBack => Verb::Rollback(xid),
                    };
                    bank.teller().call(verb);
                    Work::Telling(outcome, done + 1)
                }
                None => {
                    self.coordinator.finished(mine);
                    Work::Idle
                }
            },
        };
        self.look(mine);
    }

    /// Whatever anybody can see goes one way.
    fn look(&mut self, tx: TxId) {
        let outcome = match self.coordinator.ask(tx) {
            Known::Committed => Outcome::Committed,
            Known::RolledBack => Outcome::RolledBack,
            Known::Undecided | Known::InDoubt | Known::Unknown => return,
        };
        self.ledger.told.entry(tx).or_default().insert(outcome);
    }

    fn check(&self, seed: u64) {
        for tx in &self.ledger.seen {
            let told = self.ledger.told.get(tx).cloned().unwrap_or_default();
            assert!(told.len() <= 1, "seed {seed}: {tx} was told {told:?}");
            let (mut committed, mut rolled_back) = (0, 0);
            for (number, bank) in (0..).zip(&self.banks[..2]) {
                let xid = bank.xid(IDENTITY.node, *tx, number);
                let vault = bank.vault();
                committed += u32::from(vault.committed.contains(&xid));
                rolled_back += u32::from(vault.rolled_back.contains(&xid));
            }
            assert!(committed == 0 || rolled_back == 0, "seed {seed}: {tx} went both ways");
            assert!(
                committed == 0 || told.contains(&Outcome::Committed),
                "seed {seed}: {tx} committed, nobody decided"
            );
            assert!(rolled_back == 0 || !told.contains(&Outcome::Committed), "seed {seed}: {tx} is rolled back");
        }
    }
}

/// One history; how many transactions committed, and how many the agent rolled back.
fn history(seed: u64) -> (u64, u64) {
    let config = Config { prepared_ms_max: 4_000, checkpoint_bytes: 500, ..Config::default() };
    let mut stand = Stand::with(config);
    let clients = Clients {
        coordinator: Arc::clone(&stand.coordinator),
        banks: stand.banks.clone(),
        list: Vec::new(),
        ledger: Ledger::default(),
        rng: Rng::new(seed ^ 0x9e37),
    };
    let clients = Arc::new(Mutex::new(clients));
    let mut rng = Rng::new(seed);
    (0..3).for_each(|_| clients.lock().unwrap().connect());
    for _ in 0..STEPS {
        match rng.below(100) {
            0..70 => clients.lock().unwrap().step(),
            70..80 => {
                stand.clock.advance(Duration::from_millis(rng.below(700)));
                stand.coordinator.tick().unwrap();
            }
            80..96 => {
                // While the listing is on its way, clients go on.
                for bank in &stand.banks {
                    let (clients, steps) = (Arc::clone(&clients), rng.below(6));
                    let meanwhile = move || (0..steps).for_each(|_| clients.lock().unwrap().step());
                    bank.vault().meanwhile = Some(Box::new(meanwhile));
                }
                stand.agent.round();
            }
            96..98 => clients.lock().unwrap().connect(),
            _ => restart(&mut stand, &clients, &mut rng),
        }
        clients.lock().unwrap().check(seed);
    }
    // Everybody dies; what is left is recovery's.
    for _ in 0..2 {
        restart(&mut stand, &clients, &mut rng);
        stand.fence();
    }
    for _ in 0..6 {
        stand.round();
    }
    let mut clients = clients.lock().unwrap();
    clients.ledger.seen.clone().into_iter().for_each(|tx| clients.look(tx));
    clients.check(seed);
    let left: usize = stand.banks.iter().map(|bank| bank.vault().prepared.len()).sum();
    assert_eq!((left, stand.coordinator.gauges().live), (0, 0), "seed {seed}: recovery leaves nothing");
    for (tx, told) in &clients.ledger.told {
        let is_committed =
            |(number, bank): (u16, &Bank)| bank.vault().committed.contains(&bank.xid(IDENTITY.node, *tx, number));
        let all = (0..).zip(&clients.banks[..2]).all(is_committed);
        assert_eq!(all, told.contains(&Outcome::Committed), "seed {seed}: {tx}");
    }
    let count = |outcome| clients.ledger.told.values().filter(|told| told.contains(&outcome)).count();
    let [committed, rolled_back] = [Outcome::Committed, Outcome::RolledBack].map(count);
    (u64::try_from(committed).unwrap(), u64::try_from(rolled_back).unwrap())
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
        if let Work::Waiting(wish, _) = client.work {
            client.work = Work::Asking { wish, first: false };
        }
    }
}

#[test]
fn whatever_the_order_a_transaction_goes_one_way() {
    let (mut committed, mut rolled_back) = (0, 0);
    for seed in 1..=SEEDS {
        let (one, other) = history(seed);
        committed += one;
        rolled_back += other;
    }
    assert!(committed > SEEDS * 2 && rolled_back > SEEDS, "{committed} committed, {rolled_back} rolled back");
}
