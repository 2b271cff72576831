//! One client process of the demo: transfers, one after the other, each a distributed transaction.
//!
//! It says on stdout what became of each: `c MICROSECONDS` committed, `r` rolled back, `a` asked again for an answer that
//! was lost (the outcome follows). It never gives up: a store or a coordinator that is away comes back.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use assent_client::{Client, ClientConfig, Known};
use assent_ids::TxId;
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};

use super::bank::Bank;
use super::plan::{Chance, Plan, Transfer};
use super::scene::now;
use crate::args::DemoClient;
use crate::failure::Failure;

/// Between two tries at something that is away.
const PAUSE: Duration = Duration::from_millis(20);
/// A transfer whose outcome cannot be learned for that long is an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Committed,
    RolledBack,
}

/// Runs the transfers.
pub(crate) fn run(arguments: &DemoClient) -> Result<ExitCode, Failure> {
    let plan = Plan::load(&arguments.plan)?;
    let address = plan
        .coordinator
        .parse()
        .map_err(|error| Failure::invalid(format!("coordinator {:?}: {error}", plan.coordinator)))?;
    let client = Client::connect(ClientConfig {
        resources: plan.stores.iter().map(|store| store.name.clone()).collect(),
        ..ClientConfig::new(address, &format!("demo-client-{}", arguments.number))
    });
    let mut teller = Teller { client, banks: plan.stores.iter().map(|_| None).collect(), plan };
    let mut chance = Chance::new(teller.plan.seed, arguments.number, arguments.run);
    for _ in 0..arguments.transfers {
        let transfer = Transfer::pick(&mut chance, teller.plan.stores.len(), teller.plan.accounts);
        let began = now();
        let line = match teller.transfer(transfer)? {
            Fate::Committed => format!("c {}", began.elapsed().as_micros()),
            Fate::RolledBack => "r".to_owned(),
        };
        say(&line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Each line at once: this process may be killed before the next.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").map_err(|error| Failure::io("write to", "stdout", &error))
}

struct Teller {
    plan: Plan,
    client: Client,
    /// Connections, opened when they are needed and again after trouble.
    banks: Vec<Option<Bank>>,
}

impl Teller {
    fn transfer(&mut self, transfer: Transfer) -> Result<Fate, Failure> {
        let amount = i64::try_from(transfer.amount).unwrap_or(0);
        let mut steps = [(transfer.from, -amount), (transfer.to, amount)];
        // Always in the order of stores: two transfers never wait for each other in a circle.
        steps.sort_by_key(|((store, _), _)| *store);
        let [first, second] = steps;
        if self.open(first.0.0).is_err() || self.open(second.0.0).is_err() {
            RealClock.sleep(PAUSE);
            return Ok(Fate::RolledBack);
        }
        let outcome = self.attempt(first, second);
        match outcome {
            Ok(fate) => Ok(fate),
            Err(Trouble::Undone) => {
                self.forget_broken(first.0.0, second.0.0);
                Ok(Fate::RolledBack)
            }
            Err(Trouble::InDoubt(tx)) => {
                self.forget_broken(first.0.0, second.0.0);
                self.learn(tx)
            }
            Err(Trouble::Broken(failure)) => Err(failure),
        }
    }

    fn open(&mut self, store: usize) -> Result<(), Failure> {
        let (Some(place), Some(known)) = (self.banks.get_mut(store), self.plan.stores.get(store)) else {
            return Err(Failure::new(Kind::Internal, format!("there is no store {store}")));
        };
        if place.is_none() {
            *place = Some(Bank::open(known, &self.plan)?);
        }
        Ok(())
    }

    /// After trouble both connections are opened anew: a MariaDB session may still be bound to its branch.
    fn forget_broken(&mut self, first: usize, second: usize) {
        for store in [first, second] {
            if let Some(place) = self.banks.get_mut(store) {
                *place = None;
            }
        }
        RealClock.sleep(PAUSE);
    }

    fn attempt(&mut self, first: Step, second: Step) -> Result<Fate, Trouble> {
        let ((first, account_1), amount_1) = first;
        let ((second, account_2), amount_2) = second;
        let Ok([Some(bank_1), Some(bank_2)]) = self.banks.get_disjoint_mut([first, second]) else {
            return Err(Trouble::Broken(Failure::new(Kind::Internal, "a transfer needs two open stores")));
        };
        let mut tx = self.client.begin().map_err(|_| Trouble::Undone)?;
        let (one, two) = (tx.enlist(bank_1), tx.enlist(bank_2));
        let worked = (|| -> Result<bool, Failure> {
            Ok(one.work()?.add(account_1, amount_1)? && two.work()?.add(account_2, amount_2)?)
        })();
        match worked {
            Ok(true) => match tx.commit() {
                Ok(_) => Ok(Fate::Committed),
                Err(error) if error.kind == Kind::InDoubt => Err(Trouble::InDoubt(error.tx)),
                Err(error) if error.kind == Kind::Heuristic => Err(Trouble::Broken(error.into())),
                Err(_) => Err(Trouble::Undone),
            },
            Ok(false) => tx.rollback().map(|_| Fate::RolledBack).map_err(|_| Trouble::Undone),
            Err(failure) if failure.kind == Kind::Corrupt => Err(Trouble::Broken(failure)),
            Err(_) => {
                // What the rollback cannot reach, recovery does.
                _ = tx.rollback();
                Err(Trouble::Undone)
            }
        }
    }

    /// Asks until the outcome of a transaction in doubt is known.
    fn learn(&self, tx: TxId) -> Result<Fate, Failure> {
        let began = now();
        loop {
            say("a")?;
            match self.client.ask(tx) {
                Ok(Known::Committed) => return Ok(Fate::Committed),
                // Forgotten means finished; a client that has not been told of a commit is not forgotten.
                Ok(Known::RolledBack | Known::Unknown) => return Ok(Fate::RolledBack),
                Ok(Known::Undecided | Known::InDoubt) | Err(_) if began.elapsed() < PATIENCE => RealClock.sleep(PAUSE),
                Ok(_) => return Err(Failure::new(Kind::InDoubt, format!("nobody decides transaction {tx}"))),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Which account of which store changes by how much.
type Step = ((usize, u32), i64);

enum Trouble {
    /// It is rolled back, or will be.
    Undone,
    /// It may be either.
    InDoubt(TxId),
    /// The demo cannot go on.
    Broken(Failure),
}
