//! One client process of the demo: transfers, one after the other, each a distributed transaction.
//!
//! It says on stdout what became of each: `c MICROSECONDS` committed, `r` rolled back, `a` asked again for an answer that
//! was lost (the outcome follows). It never gives up: a store or a coordinator that is away comes back.

use std::process::ExitCode;
use std::time::Duration;

use assent_client::{Client, ClientConfig};
use assent_kind::Kind;
use assent_world::{Clock as _, RealClock};

use super::bank::Bank;
use super::plan::{Chance, Plan, Transfer};
use super::scene::now;
use crate::args::DemoClient;
use crate::failure::Failure;

/// Between two tries at something that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of one transfer.
enum Fate {
    Committed,
    RolledBack,
}

/// Runs the transfers.
pub(crate) fn run(arguments: &DemoClient) -> Result<ExitCode, Failure> {
    let plan = Plan::load(&arguments.plan)?;
    let mut chance = Chance::new(plan.seed, arguments.number, arguments.run);
    let client = Client::connect(ClientConfig {
        label: format!("demo-client-{}", arguments.number),
        resources: plan.stores.iter().map(|store| store.name.clone()).collect(),
        ..ClientConfig::new(plan.coordinator.parse().map_err(|error| Failure::invalid(format!("{error}")))?)
    });
    let mut banks: Vec<Option<Bank>> = plan.stores.iter().map(|_| None).collect();
    let mut out = std::io::stdout().lock();
    for _ in 0..arguments.transfers {
        let transfer = Transfer::pick(&mut chance, plan.stores.len(), plan.accounts);
        let began = now();
        let line = match make(&client, &plan, &mut banks, transfer, &mut out)? {
            Fate::Committed => format!("c {}", began.elapsed().as_micros()),
            Fate::RolledBack => "r".to_owned(),
        };
        say(&mut out, &line)?;
    }
    Ok(ExitCode::SUCCESS)
}
