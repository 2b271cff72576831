//! One client process of the matrix: transactions that write their name into every store.
//!
//! It says on stdout, before anything can be asked for, `t NAME TX`; then what it was told: `c NAME` committed, `r NAME`
//! rolled back, `d NAME` in doubt, `h NAME` a heuristic outcome. A line that is missing is an answer that never came.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use assent_client::{Client, ClientConfig, Known};
use assent_ids::TxId;
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};

use super::ClientArguments;
use crate::demo::bank::Bank;
use crate::demo::now;
use crate::demo::plan::Plan;
use crate::failure::Failure;

/// Between two tries at something that is away.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the outcome of a transaction in doubt is asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the transactions; ends when all were begun and answered.
pub(super) fn run(arguments: &ClientArguments) -> Result<ExitCode, Failure> {
    let plan = Plan::load(&arguments.plan)?;
    let address = plan
        .coordinator
        .parse()
        .map_err(|error| Failure::invalid(format!("coordinator {:?}: {error}", plan.coordinator)))?;
    let client = Client::connect(ClientConfig {
        resources: plan.stores.iter().map(|store| store.name.clone()).collect(),
        ..ClientConfig::new(address, &format!("matrix-{}", arguments.name))
    });
    std::thread::scope(|scope| {
        let work = |thread| {
            let (client, plan) = (client.clone(), &plan);
            move || {
                let banks = plan.stores.iter().map(|_| None).collect();
                Writer { client, banks, plan }.run(&format!("{}-{thread}", arguments.name), arguments.many)
            }
        };
        let threads: Vec<_> = (0..arguments.threads).map(|thread| scope.spawn(work(thread))).collect();
        let gone = || Failure::new(Kind::Internal, "a thread of the client panicked");
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(gone())))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Each line at once: this process may be killed before the next.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").map_err(|error| Failure::io("write to", "stdout", &error))
}

struct Writer<'p> {
    client: Client,
    /// Connections, opened when they are needed and again after trouble.
    banks: Vec<Option<Bank>>,
    plan: &'p Plan,
}

impl Writer<'_> {
    fn run(&mut self, name: &str, many: u64) -> Result<(), Failure> {
        let mut begun = 0;
        while begun < many {
            if self.open().is_err() {
                RealClock.sleep(PAUSE);
                continue;
            }
            let name = format!("{name}-{begun}");
            // Every fifth of many is given up by the application itself.
            let wants = many == 1 || begun % 5 != 4;
            match self.one(&name, wants)? {
                None => RealClock.sleep(PAUSE),
                Some(line) => {
                    begun += 1;
                    if let Some(line) = line {
                        say(&line)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), Failure> {
        for (place, store) in self.banks.iter_mut().zip(&self.plan.stores) {
            if place.is_none() {
                *place = Some(Bank::open(store, self.plan)?);
            }
        }
        Ok(())
    }

    /// One transaction; nothing if it was not even begun, else the line that is left to say, if there is one.
    fn one(&mut self, name: &str, wants: bool) -> Result<Option<Option<String>>, Failure> {
        let Ok(mut tx) = self.client.begin() else { return Ok(None) };
        let id = tx.tx();
        say(&format!("t {name} {id}"))?;
        let enlisted: Vec<_> = self.banks.iter_mut().flatten().map(|bank| tx.enlist(bank)).collect();
        let worked = enlisted.iter().try_for_each(|bank| bank.work().map_err(Failure::from)?.note(name));
        drop(enlisted);
        let ended = if worked.is_ok() && wants {
            tx.commit().map(|_| Kind::Internal)
        } else {
            tx.rollback().map(|_| Kind::RolledBack)
        };
        let line = match ended {
            Ok(Kind::RolledBack) => format!("r {name}"),
            Ok(_) => format!("c {name}"),
            Err(error) if error.kind == Kind::InDoubt => {
                say(&format!("d {name}"))?;
                self.banks.iter_mut().for_each(|bank| *bank = None);
                return Ok(Some(self.learn(id).map(|word| format!("{word} {name}"))));
            }
            Err(error) if error.kind == Kind::Heuristic => {
                aside!("{error}");
                format!("h {name}")
            }
            // Nothing was done, or it is undone.
            Err(_) => format!("r {name}"),
        };
        if worked.is_err() || !line.starts_with('c') {
            // A connection that saw trouble may be dead, or still bound to its branch.
            self.banks.iter_mut().for_each(|bank| *bank = None);
        }
        Ok(Some(Some(line)))
    }

    /// Asks for the outcome of a transaction in doubt; nothing if it cannot be learned, which both outcomes fit.
    fn learn(&self, tx: TxId) -> Option<char> {
        let began = now();
        while began.elapsed() < PATIENCE {
            match self.client.ask(tx) {
                Ok(Known::Committed) => return Some('c'),
                Ok(Known::RolledBack) => return Some('r'),
                Ok(Known::Unknown) => return None,
                Ok(Known::Undecided | Known::InDoubt) | Err(_) => RealClock.sleep(PAUSE),
            }
        }
        None
    }
}
