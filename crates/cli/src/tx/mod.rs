//! `assent tx`: what a coordinator knows, what a person may do about it, and what it has decided so far.
//!
//! Walk: [`run`] the verbs · `source` where it comes from, a server or a stopped one's folder · `seen` a transaction in doubt
//! as people read it, `head` the line above many · `choices` what each choice would do · `word` a person's decision · `log` the history and its chain ·
//! `moment` times as people write them.
//! Deliberately absent: any deciding. The coordinator refuses what may not be done, also to a person.

mod choices;
mod head;
mod log;
pub(crate) mod moment;
mod seen;
pub(crate) mod source;
mod word;

pub(crate) use word::user;

use std::process::ExitCode;

use self::head::UNDECIDED;

use assent_ids::TxId;
use assent_kind::Kind;
use assent_link::{Link, LinkConfig};
use assent_wire::{Answer, Hello, Request, Role};
use serde::Serialize;

use crate::args::{Source, Tx};
use crate::bench::{print_json, table};
use crate::failure::Failure;
use crate::say::plain;

/// A day.
const LOG_MS: u64 = 86_400_000;

/// Runs the command.
pub(crate) fn run(command: Tx, json: bool) -> Result<ExitCode, Failure> {
    match command {
        Tx::List { from } => {
            let (head, list) = source::list(&from)?;
            seen::print(&head, &list, json)?;
            hint(&from, json || list.is_empty())?;
            Ok(())
        }
        Tx::Show { tx, from } => {
            let tx = transaction(&tx)?;
            let mut found = source::show(&from, tx)?.ok_or_else(|| unknown(tx, from.data.is_some()))?;
            let votes = log::votes(&from, tx, &mut |resource, number, vote| found.voted(resource, number, vote));
            seen::print_one(&found, json)?;
            // History, beside what a person needs now.
            if let Err(failure) = votes {
                aside!("assent: what its branches voted cannot be read: {}", plain(&failure.message));
            }
            hint(&from, json)?;
            Ok(())
        }
        Tx::Commit { tx, word } => word::decide(transaction(&tx)?, assent_wire::Outcome::Committed, &word, json),
        Tx::Rollback { tx, word } => word::decide(transaction(&tx)?, assent_wire::Outcome::RolledBack, &word, json),
        Tx::Forget { tx, word } => word::forget(transaction(&tx)?, &word, json),
        Tx::Recover { server } => recover(&server, json),
        Tx::Log(arguments) => log::run(&arguments, json),
        Tx::Verify { kept, from } => log::verify(kept.as_deref(), &from, json),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Says how names are shown, where only ids are.
fn hint(from: &Source, is_needless: bool) -> Result<(), Failure> {
    if let Some(hint) = source::unnamed(from).filter(|_| !is_needless) {
        say!("{hint}")?;
    }
    Ok(())
}

fn transaction(text: &str) -> Result<TxId, Failure> {
    text.parse().map_err(Failure::invalid)
}

fn unknown(tx: TxId, is_of_a_folder: bool) -> Failure {
    let told = format!("`assent tx log --tx {tx}` tells what became of it");
    let message = if is_of_a_folder {
        format!(
            "transaction {tx} is not decided and unfinished here: it is over and forgotten, never was, or was not \
             decided; {told}, and {UNDECIDED}"
        )
    } else {
        format!(
            "transaction {tx} is neither in doubt nor unfinished here: it is over and forgotten, or never was; {told}"
        )
    };
    Failure::new(Kind::NotFound, message)
}

/// A connection as an operator.
pub(crate) fn admin(server: &str) -> Result<Link, Failure> {
    connect(server, LinkConfig::default())
}

/// The same for what reads all of a log: on a slow disk, and behind others who do, that takes as long as it takes.
pub(crate) fn patient(server: &str) -> Result<Link, Failure> {
    connect(server, LinkConfig { answer_ms: LOG_MS, ..LinkConfig::default() })
}

fn connect(server: &str, config: LinkConfig) -> Result<Link, Failure> {
    let address = server
        .parse()
        .map_err(|error: assent_world::net::AddressError| Failure::invalid(format!("--server {server:?}: {error}")))?;
    Ok(Link::connect(&address, &Hello::new(Role::Admin), &config)?)
}

fn unexpected() -> Failure {
    Failure::new(Kind::Internal, "the server answered something else than was asked")
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
    say!("{}", told(&resolved, &round.unreachable))
}

/// What a round did, for a terminal.
fn told(resolved: &[Resolved], unreachable: &[(&str, &str)]) -> String {
    let mut told = if resolved.is_empty() {
        "no branch of this coordinator is left prepared where it could be asked".to_owned()
    } else {
        let mut rows = table(&["transaction", "resource", "what became of it"]);
        for one in resolved {
            rows.add_row([one.tx.clone().unwrap_or_default(), plain(&one.resource), plain(&one.fate)]);
        }
        rows.to_string()
    };
    for (resource, why) in unreachable {
        told.extend(["\n", &plain(resource), " could not be asked: ", &plain(why)]);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_resource_said_to_recovery_moves_no_cursor() {
        let said = || "gone\x1b[2J\u{9b}\u{202e}".to_owned();
        let one = Resolved { tx: None, xid: String::new(), resource: said(), fate: said() };
        let told = told(&[one], &[("shop\r", &said())]);
        assert!(!told.contains(['\x1b', '\u{9b}', '\u{202e}', '\r']), "{told:?}");
        assert!(told.ends_with("shop\\r could not be asked: gone\\u{1b}[2J\\u{9b}\\u{202e}"), "{told:?}");
    }
}
