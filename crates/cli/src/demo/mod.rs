//! `assent demo`: moves money between several stores while processes are killed, and counts it afterwards.
//!
//! Walk: [`run`] sets the stage with two stores, the SQL databases it was given and a coordinator, lets the clients play,
//! waits until nothing is in doubt, stops everything and counts · [`client`] is one client process · `scene` directs,
//! `process` starts, hears and kills, `bank` is one store, `plan` what is to be done, `report` what was found.
//! Deliberately absent: any shortcut. Processes, kills, sockets and files are real; sums come from the stopped stores.

pub(crate) mod bank;
mod client;
mod count;
pub(crate) mod kill;
pub(crate) mod plan;
pub(crate) mod process;
mod report;
mod scene;
pub(crate) mod sql;

use std::path::Path;
use std::process::ExitCode;

use assent_kind::Kind;
use assent_world::{Dice as _, RealDice};

use self::bank::Bank;
use self::count::Counted;
pub(crate) use self::kill::Kill;
pub(crate) use self::plan::write;
use self::plan::{BALANCE, Plan, Store, StoreKind};
use self::report::{Report, StoreReport};
use self::scene::Scene;
pub(crate) use self::scene::now;
use self::sql::Hook;
use crate::args::{Demo, DemoClient};
use crate::bench::{bar, print_json};
use crate::failure::Failure;

/// Runs one client process.
pub(crate) fn client(arguments: &DemoClient) -> Result<ExitCode, Failure> {
    client::run(arguments)
}

/// Runs the demo; exit 0 only if every promise was kept.
pub(crate) fn run(arguments: &Demo, json: bool) -> Result<ExitCode, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("assent-demo-")
        .tempdir()
        .map_err(|error| Failure::io("make", "a temporary folder", &error))?;
    let outcome = play(arguments, folder.path(), json);
    let good = matches!(&outcome, Ok(report) if report.is_good());
    // What was refused before anything moved leaves nothing to look at.
    let refused = matches!(
        &outcome,
        Err(Failure { kind: Kind::Invalid | Kind::NotFound | Kind::Denied | Kind::Full | Kind::Unavailable, .. })
    );
    if arguments.keep || !(good || refused) {
        let kept = folder.keep();
        aside!("journals, configurations and plan are in {}", kept.display());
    }
    let report = outcome?;
    if json {
        print_json(&report)?;
    } else {
        report.print()?;
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { Kind::Corrupt.exit_code().into() })
}

fn play(arguments: &Demo, folder: &Path, json: bool) -> Result<Report, Failure> {
    let say = |text: &str| {
        if !json {
            aside!("{text}");
        }
    };
    let hook = match (&arguments.kill_hook, &arguments.kill_dir) {
        (Some(program), Some(folder)) => Some(Hook::new(program, folder)),
        _ => None,
    };
    let mut scene = Scene::new(folder, hook.clone());
    let stores = ["bank-a", "bank-b"].map(str::to_owned);
    scene.order(kills(arguments, hook.is_some()), &stores, arguments.clients);
    let plan = set(&mut scene, arguments, &stores)?;
    let names: Vec<&str> = plan.stores.iter().map(|store| store.name.as_str()).collect();
    say(&format!(
        "{} accounts of {BALANCE} in each of {}; {} transfers by {} clients",
        plan.accounts,
        names.join(", "),
        arguments.transfers,
        arguments.clients
    ));
    let progress = if json { indicatif::ProgressBar::hidden() } else { bar(arguments.transfers, "transfers") };
    let outcome = finish(&mut scene, &plan, arguments, &progress, folder);
    // The user's databases are left as they were found, whatever happened.
    let dropped = drop_tables(&plan);
    let report = outcome?;
    dropped.map(|()| report)
}

fn finish(
    scene: &mut Scene,
    plan: &Plan,
    arguments: &Demo,
    progress: &indicatif::ProgressBar,
    folder: &Path,
) -> Result<Report, Failure> {
    let began = now();
    scene.play(plan, arguments.transfers, arguments.clients, progress)?;
    let elapsed = began.elapsed();
    let began = now();
    scene.settle(&plan.coordinator)?;
    let settled = began.elapsed();
    scene.stop()?;
    let counted = Counted::read(folder, plan)?;
    let before = u64::from(plan.accounts) * BALANCE;
    let count = u64::try_from(plan.stores.len()).unwrap_or(u64::MAX);
    let sum_after = counted.stores.iter().map(|store| store.sum).sum();
    let left_prepared: u64 = counted.stores.iter().map(|store| store.prepared).sum();
    let tally = &mut scene.tally;
    tally.kills.iter_mut().for_each(|kill| kill.fate = counted.fate(&kill.about, &tally.resolved));
    Ok(Report {
        // Not only the sum: an account that vanished with its counterpart would keep it.
        conserved: sum_after == before * count
            && counted.stores.iter().all(|store| store.accounts == u64::from(plan.accounts)),
        left_prepared,
        sum_before: before * count,
        sum_after,
        stores: plan
            .stores
            .iter()
            .zip(&counted.stores)
            .map(|(store, seen)| StoreReport {
                name: store.name.clone(),
                kind: store.kind.name(),
                accounts: seen.accounts,
                sum_before: before,
                sum_after: seen.sum,
                left_prepared: seen.prepared,
            })
            .collect(),
        transfers: arguments.transfers,
        committed: tally.committed,
        rolled_back: tally.rolled_back,
        asked_again: tally.asked_again,
        in_doubt: std::mem::take(&mut tally.resolved),
        kills: std::mem::take(&mut tally.kills),
        tps: assent_bench::stats::per_second(usize::try_from(tally.committed).unwrap_or(usize::MAX), elapsed),
        latency_us: tally.latency.latency(),
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        settled_ms: u64::try_from(settled.as_millis()).unwrap_or(u64::MAX),
        seed: arguments.seed,
        kills_missed: scene.missed(),
    })
}

fn kills(arguments: &Demo, has_hook: bool) -> Vec<Kill> {
    if !arguments.kill.is_empty() {
        return arguments.kill.clone();
    }
    let given = [arguments.postgres.as_ref().map(|_| "postgres"), arguments.mariadb.as_ref().map(|_| "mariadb")];
    let servers: Vec<&str> = given.into_iter().flatten().filter(|_| has_hook).collect();
    let stores = given_stores(arguments);
    Kill::plan(arguments.transfers, arguments.clients, stores, &servers)
}

/// Two of the demo's own, and the databases it was given.
fn given_stores(arguments: &Demo) -> usize {
    2 + usize::from(arguments.postgres.is_some()) + usize::from(arguments.mariadb.is_some())
}

/// Starts the stores, fills all accounts, starts the coordinator.
fn set(scene: &mut Scene, arguments: &Demo, names: &[String]) -> Result<Plan, Failure> {
    let quiet = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let mut stores = Vec::new();
    for name in names {
        let url = scene.serve(name, &format!("data_dir = \"data\"\n{quiet}[kv]\n"))?;
        stores.push(Store { name: name.clone(), kind: StoreKind::Assent, url });
    }
    for (kind, url) in [(StoreKind::Postgres, &arguments.postgres), (StoreKind::Mariadb, &arguments.mariadb)] {
        if let Some(url) = url {
            stores.push(Store { name: kind.name().to_owned(), kind, url: url.clone() });
        }
    }
    let mut plan = Plan {
        coordinator: String::new(),
        stores,
        accounts: arguments.accounts,
        seed: arguments.seed,
        table: format!("assent_demo_{:016x}", RealDice.roll()),
        last_resource: false,
    };
    for store in &plan.stores {
        Bank::open(store, &plan)?.fill(plan.accounts)?;
    }
    let engine = &arguments.engine;
    let mut configuration = format!("data_dir = \"data\"\n{quiet}[coordinator]\nengine = \"{engine}\"\n");
    for store in &plan.stores {
        let url = toml::Value::String(store.url.clone());
        configuration +=
            &format!("[[resource]]\nname = \"{}\"\nkind = \"{}\"\nurl = {url}\n", store.name, store.kind.name());
    }
    plan.coordinator = scene.serve("coordinator", &configuration)?;
    Ok(plan)
}

fn drop_tables(plan: &Plan) -> Result<(), Failure> {
    let sql = plan.stores.iter().filter(|store| store.kind != StoreKind::Assent);
    let mut outcome = Ok(());
    for store in sql {
        // A branch that is left prepared would hold the table for ever: said, not waited for.
        let dropped = Bank::open(store, plan).and_then(|mut bank| bank.drop_table());
        outcome = outcome.and(dropped);
    }
    outcome
}
