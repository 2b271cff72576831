//! Looking without touching: lists for people, counters for meters.

use assent_ids::{ResourceId, TxId};
use assent_xa::BranchRecord;

use crate::coordinator::State;
use crate::record;
use crate::table::{Entry, Progress};
use crate::{BranchView, Coordinator, Fate, Gauges, TransactionView};

impl Coordinator {
    /// Every transaction that is decided and not forgotten, or has branches that the agent saw prepared.
    #[must_use]
    pub fn list(&self) -> Vec<TransactionView> {
        let state = self.state();
        let decided = state.table.iter().map(|(tx, _)| tx);
        let undecided = state.table.watched().filter(|tx| state.table.get(*tx).is_none());
        let mut list: Vec<TxId> = decided.chain(undecided).collect();
        list.sort_unstable();
        list.into_iter().filter_map(|tx| self.view(&state, tx)).collect()
    }

    /// One of them.
    #[must_use]
    pub fn show(&self, tx: TxId) -> Option<TransactionView> {
        self.view(&self.state(), tx)
    }

    /// Counters and levels.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let state = self.state();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Gauges {
            forgotten: state.table.forgotten_count(),
            live: count(state.table.len()),
            heuristic: count(state.table.iter().filter(|(_, entry)| entry.is_heuristic()).count()),
            prepared: count(state.table.watched().count()),
            clients: count(state.clients.connected()),
            ..state.gauges
        }
    }

    fn view(&self, state: &State, tx: TxId) -> Option<TransactionView> {
        let entry = state.table.get(tx);
        let sight = state.sights.get(&tx).filter(|_| state.table.is_watched(tx));
        let since = match (entry, sight) {
            (Some(entry), _) => entry.since,
            (None, Some((since, _))) => *since,
            (None, None) => return None,
        };
        let known = entry.map(|entry| record::read_branches(&entry.branches).unwrap_or_default()).unwrap_or_default();
        let seen = sight.map(|(_, seen)| seen.as_slice()).unwrap_or_default();
        let progress = entry.map(|entry| entry.progress.as_slice()).unwrap_or_default();
        let durable = |entry: &Entry| entry.ticket.is_none_or(|ticket| ticket.end <= self.log.durable());
        Some(TransactionView {
            tx,
            client: state.clients.standing(tx.incarnation),
            label: state.clients.label(tx.incarnation).to_owned(),
            decided: entry.map(|entry| (entry.outcome, entry.by)),
            is_durable: entry.is_some_and(durable),
            is_acknowledged: entry.is_some_and(|entry| entry.is_acknowledged),
            age: self.clock.now().since(since),
            branches: branches(known, seen, progress),
        })
    }
}

/// What the decision names and what the agent saw, each branch once.
fn branches(known: Vec<BranchRecord>, seen: &[BranchRecord], progress: &[Progress]) -> Vec<BranchView> {
    let same = |resource: ResourceId, number: u16| {
        move |branch: &BranchRecord| branch.resource == resource && branch.number == number
    };
    let extra = seen.iter().filter(|one| !known.iter().any(same(one.resource, one.number))).cloned();
    let extra: Vec<BranchRecord> = extra.collect();
    let mut all = known;
    all.extend(extra);
    let view = |branch: BranchRecord| {
        let done = progress.iter().find(|one| one.resource == branch.resource && one.number == branch.number);
        let is_seen = seen.iter().any(same(branch.resource, branch.number));
        let fate = match done {
            Some(progress) => progress.fate.clone(),
            None if is_seen => Fate::Prepared,
            None => Fate::Open,
        };
        BranchView { resource: branch.resource, number: branch.number, flags: branch.flags, fate }
    };
    all.into_iter().map(view).collect()
}
