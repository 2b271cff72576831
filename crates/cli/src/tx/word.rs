//! A person's word: commit, rollback, forget. Without `--yes` it only says what it would do.
//!
//! Walk: the transaction is looked at first · [`choices`] says what the word would do · with `--yes` the coordinator is told
//! who and why, and keeps that in its log before anything follows from it.

use assent_ids::TxId;
use assent_kind::Kind;
use assent_wire::{Answer, OperatorWord, Outcome, Request};
use rustix::process::getuid;

use super::seen::{self, Transaction};
use super::{admin, choices, source, unexpected, unknown};
use crate::args::Word;
use crate::bench::print_json;
use crate::failure::Failure;
use crate::say;

/// Decides what nobody has decided.
pub(super) fn decide(tx: TxId, outcome: Outcome, word: &Word, json: bool) -> Result<(), Failure> {
    let name = match outcome {
        Outcome::Committed => "commit",
        Outcome::RolledBack => "rollback",
    };
    let who = confirmed(tx, name, word, json)?;
    let said = OperatorWord { who: &who, reason: &word.reason };
    let arrived = admin(&word.server)?.request(&Request::TxForce { tx, outcome, word: said })?;
    let Answer::Decided(decided) = arrived.answer()? else { return Err(unexpected()) };
    if decided != outcome {
        let message = format!("{tx} had been decided before: {}; nothing was changed", seen::outcome(decided));
        return Err(Failure::new(Kind::Conflict, message));
    }
    let is_decided = format!("{tx} is decided: {}, by {who}", seen::outcome(decided));
    say::done(&is_decided, told(tx, decided, &who, word, json))
}

/// Decided is not done: a branch stays prepared, with its locks, until its store has been told.
fn told(tx: TxId, decided: Outcome, who: &str, word: &Word, json: bool) -> Result<(), Failure> {
    let (open, outcome) =
        (source::ask(&word.server, tx)?.map(|one| one.open()).unwrap_or_default(), seen::outcome(decided));
    if json {
        return print_json(&serde_json::json!({"tx": tx.to_string(), "outcome": outcome, "by": who, "open": open}));
    }
    let told = if open.is_empty() {
        "no branch of it is open any more".to_owned()
    } else {
        format!("recovery tells {} now; assent tx show {tx} says what is left", open.join(", "))
    };
    say!("{tx} is decided: {outcome}, by {who}; {told}")
}

/// Lets heuristic outcomes go.
pub(super) fn forget(tx: TxId, word: &Word, json: bool) -> Result<(), Failure> {
    let who = confirmed(tx, "forget", word, json)?;
    let said = OperatorWord { who: &who, reason: &word.reason };
    let arrived = admin(&word.server)?.request(&Request::TxForget { tx, word: said })?;
    let Answer::Forgotten = arrived.answer()? else { return Err(unexpected()) };
    let what = format!("{tx}: the branches that ended on their own are forgotten, by {who}");
    let said = if json {
        print_json(&serde_json::json!({"tx": tx.to_string(), "forgotten": true, "by": who}))
    } else {
        say!("{what}; the log keeps what was")
    };
    say::done(what, said)
}

/// Who speaks, if the word was meant; else what it would do.
fn confirmed(tx: TxId, choice: &'static str, word: &Word, json: bool) -> Result<String, Failure> {
    let who = word.by.clone().unwrap_or_else(user);
    if word.yes {
        return Ok(who);
    }
    let one: Transaction = source::ask(&word.server, tx)?.ok_or_else(|| unknown(tx, false))?;
    let would = choices::of(&one).into_iter().find(|it| it.choice == choice);
    let (is_possible, what) = would.map_or((false, String::new()), |it| (it.is_possible, it.what));
    if !is_possible {
        return Err(Failure::new(Kind::Conflict, format!("{choice} {tx}: not possible: {what}")));
    }
    if !json {
        seen::print_facts(&one)?;
        say!("{choice} would do this: {what}")?;
    }
    Err(Failure::invalid(format!("nothing was done: add --yes to {choice} {tx} in the name of {who:?} ({what})")))
}

/// The user of the operating system.
pub(crate) fn user() -> String {
    let name = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).or_else(|_| std::env::var("LOGNAME"));
    name.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| format!("uid {}", getuid().as_raw()))
}
