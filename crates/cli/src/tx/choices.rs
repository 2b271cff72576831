//! What each choice of a person would do to a transaction, in plain words: commit, rollback, forget, wait.
//!
//! Walk: [`of`] is the table from where the transaction stands to four sentences. The coordinator has the last word: what is
//! not possible here it refuses too.

use assent_wire::Standing;
use serde::Serialize;

use super::seen::Transaction;

/// A choice and what it would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    /// `commit`, `rollback`, `forget` or `wait`.
    pub(super) choice: &'static str,
    pub(super) is_possible: bool,
    /// What it would do, or why it cannot be.
    pub(super) what: String,
}

const fn can(choice: &'static str, what: String) -> Choice {
    Choice { choice, is_possible: true, what }
}

const fn cannot(choice: &'static str, what: String) -> Choice {
    Choice { choice, is_possible: false, what }
}

/// The four choices.
pub(super) fn of(one: &Transaction) -> [Choice; 4] {
    let [commit, rollback] = decisions(one);
    [commit, rollback, forget(one), can("wait", wait(one))]
}

fn decisions(one: &Transaction) -> [Choice; 2] {
    if let Some(outcome) = one.outcome {
        let why = format!("it is decided ({outcome}), and a decision is never taken back");
        return [cannot("commit", why.clone()), cannot("rollback", why)];
    }
    if one.standing == Standing::Connected {
        let why = "its client is connected and decides itself; stop that program first".to_owned();
        return [cannot("commit", why.clone()), cannot("rollback", why)];
    }
    let stores = names(one);
    let commit = if one.may_be_lost {
        format!(
            "every branch that is still prepared is committed ({stores}). Right if the application was told that it \
             committed, or if any of its stores shows its work; otherwise stores that never prepared it stay without"
        )
    } else {
        format!(
            "every branch that is prepared is committed ({stores}). A store where it never prepared stays without its \
             part, and its client, if it comes back, is told that it committed"
        )
    };
    let rollback = if one.may_be_lost {
        format!(
            "every branch that is still prepared is rolled back ({stores}). Right only if none of its stores has \
             committed its part: look there first, a part that is committed stays"
        )
    } else {
        format!("every prepared branch is rolled back ({stores}); what recovery does too once the client is fenced")
    };
    [can("commit", commit), can("rollback", rollback)]
}

fn names(one: &Transaction) -> String {
    let mut names: Vec<&str> =
        one.branches.iter().filter(|branch| branch.is_open).map(|branch| branch.resource.as_str()).collect();
    names.dedup();
    if names.is_empty() { "none is seen now".to_owned() } else { names.join(", ") }
}

fn forget(one: &Transaction) -> Choice {
    if one.is_heuristic() {
        let what =
            "the branches that ended on their own leave this list, and their stores may forget them. It repairs \
                    nothing: first bring the data in order by hand; the log keeps what was"
                .to_owned();
        return can("forget", what);
    }
    cannot("forget", "no branch of it ended on its own; only that is forgotten by a person".to_owned())
}

fn wait(one: &Transaction) -> String {
    let is_open = one.branches.iter().any(|branch| branch.is_open);
    match (one.outcome, one.standing) {
        _ if one.is_heuristic() && !is_open => {
            "it stays in this list, over restarts, until a person has seen to it and forgets it".to_owned()
        }
        (Some(outcome), _) => {
            format!("recovery tells each open branch ({outcome}) until it has done so, whenever its store answers")
        }
        (None, Standing::Connected) => "its client decides, or is fenced once it is lost".to_owned(),
        (None, _) if one.may_be_lost => {
            "it stays prepared and keeps its locks; recovery commits it if it finds a committed branch of it elsewhere"
                .to_owned()
        }
        (None, Standing::Lost | Standing::Resumable) => {
            "its client may come back and decide; after client_lost_ms it is fenced, and recovery rolls back".to_owned()
        }
        (None, _) => "recovery decides rollback and does it, at its next look".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId};
    use assent_wire::{BranchView, By, Fate, Heuristic, Native, Outcome, TransactionView};

    use super::*;

    fn choices(decided: Option<(Outcome, By)>, standing: Standing, may_be_lost: bool, fate: Fate) -> [Choice; 4] {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter: 1 };
        let xid = Branch { node: NodeId(1), tx, resource: ResourceId::of("a"), number: 0, flags: 0, mark: None }.xid();
        let branch = BranchView {
            resource: "orders",
            xid,
            fate,
            by: None,
            retries: 0,
            native: Native::default(),
            place: "",
            prepared_ms: 0,
            listed: "",
            witness: b"",
        };
        of(&Transaction::of(&TransactionView {
            tx,
            decided,
            decided_ms: 0,
            is_durable: true,
            is_acknowledged: false,
            may_be_lost,
            client: "shop",
            standing,
            age_ms: 1,
            branches: vec![branch],
        }))
    }

    fn possible(choices: &[Choice; 4]) -> Vec<&'static str> {
        choices.iter().filter(|choice| choice.is_possible).map(|choice| choice.choice).collect()
    }

    #[test]
    fn a_person_may_decide_only_what_nobody_else_does_and_forget_only_what_went_its_own_way() {
        let open = |standing| choices(None, standing, false, Fate::Prepared);
        assert_eq!(possible(&open(Standing::Connected)), ["wait"]);
        assert_eq!(possible(&open(Standing::Lost)), ["commit", "rollback", "wait"]);
        assert_eq!(possible(&open(Standing::Fenced)), ["commit", "rollback", "wait"]);
        let decided = Some((Outcome::Committed, By::Client));
        assert_eq!(possible(&choices(decided, Standing::Fenced, false, Fate::Prepared)), ["wait"]);
        let strayed = choices(decided, Standing::Fenced, false, Fate::Heuristic(Heuristic::RolledBack));
        assert_eq!(possible(&strayed), ["forget", "wait"]);
    }

    #[test]
    fn a_held_one_says_where_to_look_before_it_is_decided_and_which_stores_wait() {
        let held = choices(None, Standing::Fenced, true, Fate::Prepared);
        assert!(held[0].what.contains("orders") && held[0].what.contains("was told"), "{held:?}");
        assert!(held[1].what.contains("look there first"), "{held:?}");
        assert!(held[3].what.contains("keeps its locks"), "{held:?}");
    }
}
