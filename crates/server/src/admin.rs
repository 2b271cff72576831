//! What an operator asks: lists, a round of recovery, gauges.

use assent_coordinator::{By, Coordinator, Fate, Finish, Standing, TransactionView};
use assent_ids::{Branch, NodeId, ResourceId, TxId};
use assent_kind::Kind;
use assent_wire::{Answer, Outcome};
use assent_xa::Heuristic;

use crate::role::Visit;
use crate::shared::{Asked, Shared};

/// Answers the transactions behind `after`, as many as are wanted and fit a message.
pub(crate) fn list(visit: &mut Visit<'_>, after: Option<TxId>, limit: u32) {
    let Some(coordinator) = coordinator(visit) else { return };
    let mut all = coordinator.list();
    all.sort_by_key(|view| view.tx);
    all.retain(|view| after.is_none_or(|after| view.tx > after));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = all.len() > limit;
    all.truncate(limit);
    transactions(visit, &all, more);
}

/// Answers one transaction, or none.
pub(crate) fn show(visit: &mut Visit<'_>, tx: TxId) {
    let Some(coordinator) = coordinator(visit) else { return };
    let found: Vec<TransactionView> = coordinator.show(tx).into_iter().collect();
    transactions(visit, &found, false);
}

/// Asks for a round of the recovery agent; it is answered when that has ended.
pub(crate) fn recover(visit: &mut Visit<'_>) {
    if visit.shared.recovery.attendance().is_none() {
        return visit.error(Kind::NotFound, "this server has no recovery agent; ask the coordinator's server");
    }
    if visit.has_room() {
        visit.connection.pending += 1;
        visit.shared.recovery.ask(Asked { desk: visit.desk, token: visit.token, request: visit.mark });
    }
}

/// Answers every gauge by its name.
pub(crate) fn stats(visit: &mut Visit<'_>) {
    let gauges = gauges(visit.shared);
    visit.answer(&Answer::Stats(gauges));
}

fn coordinator<'a>(visit: &mut Visit<'a>) -> Option<&'a Coordinator> {
    let coordinator = visit.shared.coordinator.as_deref();
    if coordinator.is_none() {
        visit.error(Kind::NotFound, "this server has no coordinator; connect to one that has");
    }
    coordinator
}

/// A view's texts, which the message borrows.
struct Texts {
    state: String,
    branches: Vec<(String, &'static str)>,
}

fn transactions(visit: &mut Visit<'_>, views: &[TransactionView], mut more: bool) {
    let (shared, node) = (visit.shared, visit.shared.node);
    let mut views = views;
    let limit = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(usize::MAX);
    loop {
        let texts: Vec<Texts> = views.iter().map(|view| texts(shared, view)).collect();
        let list = views.iter().zip(&texts).map(|(view, texts)| laid(node, view, texts)).collect();
        let answer = Answer::Transactions { more, list };
        // Half as many until they fit: one alone that does not is answered with the limit it breaks.
        if views.len() < 2 || answer.lay(&mut visit.connection.out, visit.mark, limit).is_err() {
            if views.len() < 2 {
                return visit.answer(&answer);
            }
            views = views.get(..views.len() / 2).unwrap_or_default();
            more = true;
        } else {
            return;
        }
    }
}

fn laid<'a>(node: NodeId, view: &'a TransactionView, texts: &'a Texts) -> assent_wire::TransactionView<'a> {
    let branch = |(branch, (resource, state)): (&assent_coordinator::BranchView, &'a (String, &'static str))| {
        let assent_coordinator::BranchView { resource: id, number, flags, .. } = branch;
        let xid = Branch { node, tx: view.tx, resource: *id, number: *number, flags: *flags }.xid();
        assent_wire::BranchView { resource, xid, state }
    };
    assent_wire::TransactionView {
        tx: view.tx,
        outcome: view.decided.map(|(outcome, _)| match outcome {
            assent_xa::Outcome::Committed => Outcome::Committed,
            assent_xa::Outcome::RolledBack => Outcome::RolledBack,
        }),
        state: &texts.state,
        client: &view.label,
        age_ms: u64::try_from(view.age.as_millis()).unwrap_or(u64::MAX),
        branches: view.branches.iter().zip(&texts.branches).map(branch).collect(),
    }
}

fn texts(shared: &Shared, view: &TransactionView) -> Texts {
    let client = match view.client {
        Standing::Connected => "its client is connected",
        Standing::Lost => "its client was lost a moment ago and may come back",
        Standing::Resumable => "its client is of an earlier start and may come back",
        Standing::Fencing | Standing::Fenced => "its client is fenced",
        Standing::Never => "its client was never known here",
    };
    let state = match view.decided {
        None => format!("prepared and undecided; {client}"),
        Some((_, by)) => {
            let by = match by {
                By::Client => "its client",
                By::Agent => "recovery, its client being fenced",
                By::Timeout => "recovery, a branch having been prepared for too long",
                By::Operator => "an operator",
            };
            let durable = if view.is_durable { "" } else { ", not on disk yet" };
            let known = if view.is_acknowledged { "; the client knows" } else { "" };
            format!("decided by {by}{durable}{known}; {client}")
        }
    };
    let branches = view.branches.iter().map(|branch| (shared.resource_name(branch.resource), fate(&branch.fate)));
    Texts { state, branches: branches.collect() }
}

const fn fate(fate: &Fate) -> &'static str {
    match fate {
        Fate::Open => "not seen by recovery",
        Fate::Prepared => "prepared",
        Fate::Finished(Finish::Committed) => "committed",
        Fate::Finished(Finish::CommittedInferred) => "committed (inferred)",
        Fate::Finished(Finish::RolledBack) => "rolled back",
        Fate::Finished(Finish::NotListed) => "finished",
        Fate::Cleared => "heuristic, cleared by a person",
        Fate::Heuristic(Heuristic::Committed, _) => "heuristically committed",
        Fate::Heuristic(Heuristic::RolledBack, _) => "heuristically rolled back",
        Fate::Heuristic(Heuristic::Mixed, _) => "heuristically mixed",
        Fate::Heuristic(Heuristic::Hazard, _) => "in hazard: it may have gone either way",
    }
}

fn gauges(shared: &Shared) -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("server.connections", u64::from(shared.slots.taken())),
        ("server.connections_max", u64::from(shared.slots.most())),
    ];
    if let Some(coordinator) = &shared.coordinator {
        let it = coordinator.gauges();
        all.extend([
            ("coordinator.epoch", u64::from(coordinator.epoch().0)),
            ("coordinator.decided_committed", it.decided_committed),
            ("coordinator.decided_rolled_back", it.decided_rolled_back),
            ("coordinator.forgotten", it.forgotten),
            ("coordinator.fenced", it.fenced),
            ("coordinator.checkpoints", it.checkpoints),
            ("coordinator.replayed", it.replayed),
            ("coordinator.live", it.live),
            ("coordinator.heuristic", it.heuristic),
            ("coordinator.prepared", it.prepared),
            ("coordinator.clients", it.clients),
        ]);
    }
    if let Some(kv) = &shared.kv {
        let it = kv.stats();
        all.extend([
            ("kv.keys", it.keys),
            ("kv.key_bytes", it.key_bytes),
            ("kv.value_bytes", it.value_bytes),
            ("kv.versions", it.versions),
            ("kv.branches", it.branches),
            ("kv.prepared", it.prepared),
            ("kv.branches_bytes", it.branches_bytes),
            ("kv.held_keys", it.held_keys),
            ("kv.snapshots", it.snapshots),
            ("kv.unpublished", it.unpublished),
            ("kv.checkpoints", it.checkpoints),
            ("kv.checkpoints_failed", it.checkpoints_failed),
            ("kv.replayed", it.replayed),
        ]);
    }
    all.sort_unstable();
    all
}

impl Shared {
    /// The registered name of a resource, or its id.
    pub(crate) fn resource_name(&self, id: ResourceId) -> String {
        let name = self.registered.iter().find(|(_, known)| **known == id).map(|(name, _)| name.clone());
        name.unwrap_or_else(|| id.to_string())
    }
}
