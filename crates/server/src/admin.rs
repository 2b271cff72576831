//! What an operator asks: lists, a round of recovery, gauges.

use assent_coordinator::{BranchView, Coordinator, TransactionView};
use assent_ids::{ResourceId, TxId};
use assent_kind::Kind;
use assent_wire::Answer;

use crate::role::Visit;
use crate::shared::{Asked, Shared};
use crate::views::{self, Named};

/// Transactions of one page, however many are asked for: they are gathered under the coordinator's lock.
const LIST_PAGE_MAX: usize = 1_000;

/// Answers the transactions behind `after`, as many as are wanted and fit a message.
pub(crate) fn list(visit: &mut Visit<'_>, after: Option<TxId>, limit: u32) {
    let Some(coordinator) = coordinator(visit) else { return };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(LIST_PAGE_MAX);
    let (page, more) = coordinator.page(after, limit);
    transactions(visit, &page, more);
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

/// Answers the store's gauges to whoever works on it.
pub(crate) fn store_stats(visit: &mut Visit<'_>) {
    let mut gauges = gauges(visit.shared);
    gauges.retain(|(name, _)| name.starts_with("kv."));
    visit.answer(&Answer::Stats(gauges));
}

fn coordinator<'a>(visit: &mut Visit<'a>) -> Option<&'a Coordinator> {
    let coordinator = visit.shared.coordinator.as_deref();
    if coordinator.is_none() {
        visit.error(Kind::NotFound, "this server has no coordinator; connect to one that has");
    }
    coordinator
}

fn transactions(visit: &mut Visit<'_>, views: &[TransactionView], mut more: bool) {
    let (shared, node) = (visit.shared, visit.shared.node);
    let mut views = views;
    let limit = usize::try_from(shared.limits.frame_bytes_max).unwrap_or(usize::MAX);
    let name = |branch: &BranchView| shared.resource_named(branch.resource);
    let names: Vec<Vec<Named>> = views.iter().map(|view| view.branches.iter().map(name).collect()).collect();
    loop {
        let list = views.iter().zip(&names).map(|(view, names)| views::transaction(node, view, names)).collect();
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

fn gauges(shared: &Shared) -> Vec<(&'static str, u64)> {
    let mut all = vec![
        ("server.connections", u64::from(shared.slots.taken())),
        ("server.connections_max", u64::from(shared.slots.most())),
        ("server.long_bytes", shared.budget.taken()),
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
            ("coordinator.decisions_unsynced", it.decisions_unsynced),
            ("coordinator.held", it.held),
            ("coordinator.rows_awaited", it.rows_awaited),
            ("coordinator.rivals", u64::try_from(coordinator.rivals().len()).unwrap_or(u64::MAX)),
        ]);
    }
    if let Some(kv) = &shared.kv {
        all.extend(views::store(&kv.stats()));
        all.extend(views::ledger(kv));
    }
    all.sort_unstable();
    all
}

impl Shared {
    /// A resource as people know it.
    pub(crate) fn resource_named(&self, id: ResourceId) -> Named {
        Named { name: self.resource_name(id), place: self.places.get(&id).cloned().unwrap_or_default() }
    }

    /// The registered name of a resource, or its id.
    pub(crate) fn resource_name(&self, id: ResourceId) -> String {
        let name = self.registered.iter().find(|(_, known)| **known == id).map(|(name, _)| name.clone());
        name.unwrap_or_else(|| id.to_string())
    }
}
