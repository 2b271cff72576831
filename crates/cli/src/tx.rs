//! `assent tx`: what a coordinator knows, asked over the wire or read from a stopped one's folder.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use assent_coordinator::{Coordinator, Identity};
use assent_ids::TxId;
use assent_journal::Journal;
use assent_kind::Kind;
use assent_link::{Link, LinkConfig};
use assent_wire::{Answer, Hello, Request, Role};
use assent_world::{RealClock, RealDice, RealDisk};
use serde::Serialize;

use crate::args::Tx;
use crate::bench::{print_json, table};
use crate::failure::Failure;

/// Transactions asked for in one message.
const PAGE: u32 = 1_000;

/// Runs the command.
pub(crate) fn run(command: Tx, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Tx::List { from } => {
            let list = match &from.data {
                Some(folder) => offline(folder)?,
                None => list(&admin(&from.server)?)?,
            };
            print(&list, json)
        }
        Tx::Show { tx, from } => {
            let tx: TxId = tx.parse().map_err(Failure::invalid)?;
            let all = match &from.data {
                Some(folder) => offline(folder)?,
                None => show(&admin(&from.server)?, tx)?,
            };
            let found: Vec<Transaction> = all.into_iter().filter(|one| one.tx == tx.to_string()).collect();
            if found.is_empty() {
                let message = format!("transaction {tx} is not known: it is finished and forgotten, or never was");
                return Err(Failure::new(Kind::NotFound, message));
            }
            print(&found, json)
        }
        Tx::Recover { server } => recover(&server, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Serialize)]
struct Transaction {
    tx: String,
    /// `committed`, `rolled_back` or nothing yet.
    outcome: Option<&'static str>,
    state: String,
    client: String,
    age_ms: u64,
    branches: Vec<Branch>,
}

#[derive(Debug, Serialize)]
struct Branch {
    resource: String,
    number: u16,
    state: String,
}

fn print(list: &[Transaction], json: bool) -> Result<(), Failure> {
    if json {
        return print_json(&serde_json::json!({ "transactions": list }));
    }
    if list.is_empty() {
        println!("no transaction is in doubt or unfinished");
        return Ok(());
    }
    let mut rows = table(&["transaction", "outcome", "state", "client", "age", "branches"]);
    for one in list {
        let branches: Vec<String> = one
            .branches
            .iter()
            .map(|branch| format!("{}#{} {}", branch.resource, branch.number, branch.state))
            .collect();
        rows.add_row([
            one.tx.clone(),
            one.outcome.unwrap_or("undecided").to_owned(),
            one.state.clone(),
            one.client.clone(),
            format!("{} s", one.age_ms / 1_000),
            branches.join("\n"),
        ]);
    }
    println!("{rows}");
    Ok(())
}

/// A connection as an operator.
pub(crate) fn admin(server: &str) -> Result<Link, Failure> {
    let address = server
        .parse()
        .map_err(|error: assent_world::net::AddressError| Failure::invalid(format!("--server {server:?}: {error}")))?;
    Ok(Link::connect(&address, &Hello::new(Role::Admin), &LinkConfig::default())?)
}

fn list(link: &Link) -> Result<Vec<Transaction>, Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let arrived = link.request(&Request::TxList { after, limit: PAGE })?;
        let Answer::Transactions { more, list } = arrived.answer()? else { return Err(unexpected()) };
        after = list.last().map(|one| one.tx);
        all.extend(list.iter().map(seen));
        if !more || after.is_none() {
            return Ok(all);
        }
    }
}

fn show(link: &Link, tx: TxId) -> Result<Vec<Transaction>, Failure> {
    let arrived = link.request(&Request::TxShow(tx))?;
    let Answer::Transactions { list, .. } = arrived.answer()? else { return Err(unexpected()) };
    Ok(list.iter().map(seen).collect())
}

fn unexpected() -> Failure {
    Failure::new(Kind::Internal, "the server answered something else than was asked")
}

fn seen(view: &assent_wire::TransactionView<'_>) -> Transaction {
    Transaction {
        tx: view.tx.to_string(),
        outcome: view.outcome.map(|outcome| match outcome {
            assent_wire::Outcome::Committed => "committed",
            assent_wire::Outcome::RolledBack => "rolled_back",
        }),
        state: view.state.to_owned(),
        client: view.client.to_owned(),
        age_ms: view.age_ms,
        branches: view
            .branches
            .iter()
            .map(|branch| Branch {
                resource: branch.resource.to_owned(),
                number: branch.xid.branch().map_or(0, |it| it.number),
                state: branch.state.to_owned(),
            })
            .collect(),
    }
}

/// A stopped coordinator's folder, read as its next start would.
fn offline(folder: &Path) -> Result<Vec<Transaction>, Failure> {
    let journal = folder.join("coordinator");
    if !folder.join("node").is_file() || !journal.is_dir() {
        let message = format!("{} is no coordinator's data folder: it has no node file", folder.display());
        return Err(Failure::new(Kind::NotFound, message));
    }
    let identity = Identity::load_or_create(&RealDisk, &RealDice, folder)?;
    let (archive, _) = Journal::open_read_only(Arc::new(RealDisk), &RealClock, &journal)?;
    let settings = assent_coordinator::Config::default();
    let coordinator = Coordinator::open(Arc::new(archive), Arc::new(RealClock), identity, settings)?;
    let view = |one: assent_coordinator::TransactionView| Transaction {
        tx: one.tx.to_string(),
        outcome: one.decided.map(|(outcome, _)| match outcome {
            assent_xa::Outcome::Committed => "committed",
            assent_xa::Outcome::RolledBack => "rolled_back",
        }),
        state: one
            .decided
            .map_or_else(|| "undecided".to_owned(), |(_, by)| format!("decided by the {by:?}").to_lowercase()),
        client: one.label,
        age_ms: u64::try_from(one.age.as_millis()).unwrap_or(u64::MAX),
        branches: one
            .branches
            .iter()
            .map(|branch| Branch {
                // A stopped server's journal knows ids; names stand in its configuration.
                resource: branch.resource.to_string(),
                number: branch.number,
                state: "to be finished".to_owned(),
            })
            .collect(),
    };
    Ok(coordinator.list().into_iter().map(view).collect())
}

#[derive(Debug, Serialize)]
struct Resolved {
    tx: Option<String>,
    xid: String,
    resource: String,
    fate: String,
}

fn recover(server: &str, json: bool) -> Result<(), Failure> {
    let link = admin(server)?;
    let arrived = link.request(&Request::TxRecover)?;
    let Answer::Round(round) = arrived.answer()? else { return Err(unexpected()) };
    let resolved: Vec<Resolved> = round
        .resolved
        .iter()
        .map(|one| Resolved {
            tx: one.xid.branch().map(|branch| branch.tx.to_string()),
            xid: one.xid.to_string(),
            resource: one.resource.to_owned(),
            fate: one.fate.to_owned(),
        })
        .collect();
    if json {
        let unreachable: Vec<_> = round
            .unreachable
            .iter()
            .map(|(resource, why)| serde_json::json!({"resource": resource, "why": why}))
            .collect();
        return print_json(&serde_json::json!({"resolved": resolved, "unreachable": unreachable}));
    }
    if resolved.is_empty() {
        println!("no branch of this coordinator is left prepared where it could be asked");
    } else {
        let mut rows = table(&["transaction", "resource", "what became of it"]);
        for one in &resolved {
            rows.add_row([one.tx.clone().unwrap_or_default(), one.resource.clone(), one.fate.clone()]);
        }
        println!("{rows}");
    }
    round.unreachable.iter().for_each(|(resource, why)| println!("{resource} could not be asked: {why}"));
    Ok(())
}
