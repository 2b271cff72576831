//! The coordinator's words as JSON, in the shape that `assent tx --json` prints, with times as numbers.
//!
//! Walk: [`transaction`] one that is in doubt or unfinished · [`past`] one as the log tells it.

use assent_coordinator::history::{Past, PastBranch, PastWord, Vote};
use assent_coordinator::{Action, BranchView, By, Fate, Finish, Standing, TransactionView};
use assent_ids::Branch;
use assent_xa::{Heuristic, Outcome};
use serde_json::{Value, json};

use super::House;

pub(super) const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "rolled_back",
    }
}

const fn by(by: By) -> &'static str {
    match by {
        By::Client => "client",
        By::Agent => "agent",
        By::Timeout => "timeout",
        By::Operator => "operator",
    }
}

const fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Connected => "connected",
        Standing::Lost => "lost",
        Standing::Resumable => "resumable",
        Standing::Fencing => "fencing",
        Standing::Fenced => "fenced",
        Standing::Never => "unknown",
    }
}

const fn heuristic(heuristic: Heuristic) -> &'static str {
    match heuristic {
        Heuristic::Committed => "committed",
        Heuristic::RolledBack => "rolled_back",
        Heuristic::Mixed => "mixed",
        Heuristic::Hazard => "hazard",
    }
}

const fn fate(fate: &Fate) -> &'static str {
    match fate {
        Fate::Open => "open",
        Fate::Prepared => "prepared",
        Fate::Finished(Finish::Committed) => "committed",
        Fate::Finished(Finish::CommittedInferred) => "committed_inferred",
        Fate::Finished(Finish::RolledBack) => "rolled_back",
        Fate::Finished(Finish::NotListed) => "finished",
        Fate::Heuristic(..) => "heuristic",
        Fate::Cleared => "heuristic_forgotten",
    }
}

pub(super) fn transaction(house: &House, view: &TransactionView) -> Value {
    let branch = |one: &BranchView| {
        let BranchView { resource, number, flags, mark, .. } = one;
        let (resource, number, flags, mark) = (*resource, *number, *flags, *mark);
        let xid = Branch { node: house.node, tx: view.tx, resource, number, flags, mark }.xid();
        let (how, native) = match &one.fate {
            Fate::Heuristic(how, native) => (Some(heuristic(*how)), native),
            _ => (None, &one.native),
        };
        json!({
            "resource": house.resource(resource), "number": number, "xid": xid.to_string(), "state": fate(&one.fate),
            "heuristic": how, "by": one.by.map(by), "retries": one.retries, "code": native.code,
            "message": native.message, "prepared_ms": Some(one.stay.since_ms).filter(|ms| *ms > 0), "listed": one.stay.words,
            "witness": String::from_utf8_lossy(&one.witness).replace('\0', " "),
        })
    };
    let branches: Vec<Value> = view.branches.iter().map(branch).collect();
    let state = match (view.decided, view.may_be_lost) {
        (Some((decided, _)), _) => outcome(decided),
        (None, true) => "held",
        (None, false) => "undecided",
    };
    json!({
        "tx": view.tx.to_string(),
        "state": state,
        "outcome": view.decided.map(|(it, _)| outcome(it)),
        "decided_by": view.decided.map(|(_, who)| by(who)),
        "decided_ms": view.decided_ms,
        "is_durable": view.is_durable,
        "is_acknowledged": view.is_acknowledged,
        "may_be_lost": view.may_be_lost && view.decided.is_none(),
        "client": view.label,
        "client_is": standing(view.client),
        "age_ms": u64::try_from(view.age.as_millis()).unwrap_or(u64::MAX),
        "branches": branches,
    })
}

const fn vote(vote: Vote) -> &'static str {
    match vote {
        Vote::Yes => "yes",
        Vote::ReadOnly => "read_only",
        Vote::No => "no",
    }
}

pub(super) fn past(house: &House, past: &Past) -> Value {
    let branch = |one: &PastBranch| {
        json!({
            "resource": house.resource(one.resource), "number": one.number, "has_witness": !one.witness.is_empty(),
            "vote": one.vote.map(vote),
            "state": one.fate.as_ref().map(fate), "heuristic": one.heuristic.map(heuristic), "by": one.by.map(by),
            "retries": one.retries, "code": one.native.code, "message": one.native.message, "noted_ms": one.noted_ms,
        })
    };
    let word = |one: &PastWord| {
        let action = match one.action {
            Action::Commit => "commit",
            Action::Rollback => "rollback",
            Action::Forget => "forget",
        };
        json!({"at_ms": one.at_ms, "action": action, "who": one.who, "reason": one.reason})
    };
    json!({
        "tx": past.tx.to_string(),
        "outcome": outcome(past.outcome),
        "by": by(past.by),
        "client": past.client,
        "decided_ms": past.decided_ms,
        "finished_ms": past.finished_ms.filter(|ms| *ms > 0),
        "is_finished": past.finished_ms.is_some(),
        "branches": past.branches.iter().map(branch).collect::<Vec<_>>(),
        "operators": past.words.iter().map(word).collect::<Vec<_>>(),
    })
}
