//! The coordinator served: decide, finished, ask.

use assent_coordinator::Known;
use assent_ids::{Incarnation, Mark, TxId};
use assent_kind::Kind;
use assent_wire::{Answer, Decide, Outcome, Vote};
use assent_world::stop::{self, Stop};
use assent_xa::{Ballot, BranchRecord, Decision, Deviation, Heuristic, Native, Voice, Voted};

use crate::connection::Phase;
use crate::owed::Due;
use crate::role::Visit;
use crate::seats::Seat;
use crate::shared::Shared;

/// Appends a decision; it is answered when it is durable.
pub(crate) fn decide(visit: &mut Visit<'_>, seat: Seat, decide: &Decide<'_>) {
    let Some(coordinator) = &visit.shared.coordinator else { return };
    let tx = decide.tx;
    if tx.incarnation != seat.client {
        let message = format!("transaction {tx} is not one of client {}; ask for its outcome instead", seat.client);
        return visit.error(Kind::Denied, &message);
    }
    if let Some(stranger) = visit.shared.stranger(decide) {
        // Decided, it could never be finished after its client's death: nobody here could reach that resource.
        let message = format!(
            "transaction {tx} has a branch, or its decision, in a resource (id {stranger}) that is not registered here; register it in \
             assent.toml under the name the application gives it"
        );
        return visit.error(Kind::Invalid, &message);
    }
    if !visit.has_room() {
        return;
    }
    let commits = decide.outcome == Outcome::Committed;
    let outcome = outcome(decide.outcome);
    let mut branches = records(decide);
    // A rollback that names what nobody here can reach would never be finished. What is not named is rolled back all the same: presumed.
    branches.retain(|branch| commits || visit.shared.is_registered(branch.resource));
    if commits {
        stop::about(Stop::CoordinatorBeforeDecision, || tx);
    }
    let Some(held) = visit.shared.seats.hold(seat) else {
        // Its client has resumed on another connection and asks there; this question may be older than the answer.
        visit.connection.phase = Phase::Closing;
        return;
    };
    let begun = coordinator.decide_begin(&Decision { tx, outcome, first: decide.first, branches });
    drop(held);
    match begun {
        Ok(pending) if commits => visit.owe(Due::Commit(pending, tx)),
        Ok(pending) => visit.owe(Due::Rollback(pending)),
        Err(error) => visit.error(error.kind, &error.message),
    }
}

fn records(decide: &Decide<'_>) -> Vec<BranchRecord> {
    let record = |branch: &assent_wire::BranchRecord<'_>| BranchRecord {
        resource: branch.resource,
        number: branch.number,
        flags: branch.flags,
        mark: branch.mark,
        witness: branch.witness.to_vec(),
    };
    decide.branches.iter().map(record).collect()
}

/// A last resource has decided. One way: a transaction of somebody else is passed over, and one that has to do with what is not registered.
pub(crate) fn noted(shared: &Shared, client: Incarnation, noted: &Decide<'_>) {
    let is_its = noted.tx.incarnation == client && shared.stranger(noted).is_none();
    let Some(coordinator) = shared.coordinator.as_ref().filter(|_| is_its) else { return };
    let (tx, outcome, branches) = (noted.tx, outcome(noted.outcome), records(noted));
    coordinator.noted(&Decision { tx, outcome, first: true, branches });
}

/// What a last resource has decided that has not answered its client.
pub(crate) fn settle(visit: &mut Visit<'_>, client: Incarnation, tx: TxId, mark: Mark) {
    let Some(coordinator) = &visit.shared.coordinator else { return };
    if tx.incarnation != client {
        return visit.error(Kind::Denied, &format!("transaction {tx} is not one of client {client}"));
    }
    match coordinator.settle(tx, mark) {
        Ok(known) => told(visit, known),
        Err(error) => visit.error(error.kind, &error.message),
    }
}

/// Lets outcomes be forgotten. One way: a transaction of somebody else is passed over.
pub(crate) fn finished(shared: &Shared, client: Incarnation, list: &[TxId]) {
    if let Some(coordinator) = &shared.coordinator {
        list.iter().filter(|tx| tx.incarnation == client).for_each(|tx| coordinator.finished(*tx));
    }
}

/// The client knows these outcomes; recovery finishes what is left. One way, as above.
pub(crate) fn acknowledged(shared: &Shared, client: Incarnation, list: &[TxId]) {
    if let Some(coordinator) = &shared.coordinator {
        list.iter().filter(|tx| tx.incarnation == client).for_each(|tx| coordinator.acknowledged(*tx));
    }
}

/// Branches of this one ended otherwise than its client told them. One way, as above.
pub(crate) fn heuristic(
    shared: &Shared,
    client: Incarnation,
    tx: TxId,
    told: Outcome,
    branches: &[assent_wire::Deviation<'_>],
) {
    let Some(coordinator) = shared.coordinator.as_ref().filter(|_| tx.incarnation == client) else { return };
    let deviation = |it: &assent_wire::Deviation<'_>| Deviation {
        resource: it.resource,
        number: it.number,
        flags: it.flags,
        heuristic: match it.heuristic {
            assent_wire::Heuristic::Committed => Heuristic::Committed,
            assent_wire::Heuristic::RolledBack => Heuristic::RolledBack,
            assent_wire::Heuristic::Mixed => Heuristic::Mixed,
            assent_wire::Heuristic::Hazard => Heuristic::Hazard,
        },
        native: Native { code: it.native.code.to_owned(), message: it.native.message.to_owned() },
    };
    let branches: Vec<Deviation> = branches.iter().map(deviation).collect();
    coordinator.heuristic(tx, outcome(told), &branches);
}

/// What its branches voted, for history. One way, as above.
pub(crate) fn voted(shared: &Shared, client: Incarnation, tx: TxId, ended: Outcome, votes: &[assent_wire::Voted<'_>]) {
    let Some(coordinator) = shared.coordinator.as_ref().filter(|_| tx.incarnation == client) else { return };
    let voted = |it: &assent_wire::Voted<'_>| {
        let ballot = match it.vote {
            Vote::Yes => Ballot::Yes,
            Vote::ReadOnly => Ballot::ReadOnly,
            Vote::No => Ballot::No,
        };
        let native = Native { code: it.native.code.to_owned(), message: it.native.message.to_owned() };
        let voice = Voice { ballot, retries: it.retries, native };
        Voted { resource: it.resource, number: it.number, voice }
    };
    let votes: Vec<Voted> = votes.iter().map(voted).collect();
    coordinator.voted(tx, outcome(ended), &votes);
}

/// The outcome in the coordinator's words.
pub(crate) const fn outcome(outcome: Outcome) -> assent_xa::Outcome {
    match outcome {
        Outcome::Committed => assent_xa::Outcome::Committed,
        Outcome::RolledBack => assent_xa::Outcome::RolledBack,
    }
}

/// What became of a transaction.
pub(crate) fn ask(visit: &mut Visit<'_>, tx: TxId) {
    let Some(coordinator) = &visit.shared.coordinator else {
        return visit.error(Kind::NotFound, "this server has no coordinator; connect to one that has");
    };
    let known = coordinator.ask(tx);
    told(visit, known);
}

fn told(visit: &mut Visit<'_>, known: Known) {
    let known = match known {
        Known::Committed => assent_wire::Known::Committed,
        Known::RolledBack => assent_wire::Known::RolledBack,
        Known::Undecided => assent_wire::Known::Undecided,
        Known::Unknown => assent_wire::Known::Unknown,
        Known::InDoubt => assent_wire::Known::InDoubt,
    };
    visit.answer(&Answer::Known(known));
}
