//! Looking without touching: lists for people, counters for meters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use assent_ids::TxId;
use assent_xa::BranchRecord;

use crate::attended::Seen;
use crate::coordinator::State;
use crate::note::Place;
use crate::record;
use crate::table::Entry;
use crate::{BranchView, Coordinator, Fate, Gauges, TransactionView};

impl Coordinator {
    /// Every transaction that is decided and not forgotten, or has branches that the agent saw prepared, in order, but for those whose branches are
    /// finished and that a person has seen to. Walks
    /// all of them under the lock: for tests and stopped coordinators; a server asks for pages.
    #[must_use]
    pub fn list(&self) -> Vec<TransactionView> {
        self.page(None, usize::MAX).0
    }

    /// The first `limit` of them behind `after`, and whether there are more. Walks no others.
    #[must_use]
    pub fn page(&self, after: Option<TxId>, limit: usize) -> (Vec<TransactionView>, bool) {
        let state = self.state();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut decided, mut watched) =
            (state.table.behind(after).peekable(), state.table.watched_behind(after).peekable());
        let mut list = Vec::new();
        loop {
            let next = match (decided.peek(), watched.peek()) {
                (Some(one), Some(other)) => *one.min(other),
                (Some(one), None) | (None, Some(one)) => *one,
                (None, None) => return (list, false),
            };
            if list.len() >= limit {
                return (list, true);
            }
            _ = decided.next_if_eq(&next);
            _ = watched.next_if_eq(&next);
            // What is finished, and a person has seen to, waits for its client alone.
            let waits = |entry: &Entry| entry.is_finished && entry.is_cleared;
            if state.table.is_watched(next) || !state.table.get(next).is_some_and(waits) {
                list.extend(self.view(&state, next));
            }
        }
    }

    /// One of them.
    #[must_use]
    pub fn show(&self, tx: TxId) -> Option<TransactionView> {
        self.view(&self.state(), tx)
    }

    /// Counters and levels.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut state = self.state();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Gauges {
            forgotten: state.table.forgotten_count(),
            live: count(state.table.len()),
            heuristic: count(state.table.heuristics()),
            prepared: count(state.table.watched_count()),
            clients: count(state.clients.connected()),
            decisions_unsynced: state.unsynced(self.log.durable()),
            held: self.held(&state),
            rows_awaited: state.rows_awaited(),
            ..state.gauges
        }
    }

    /// How often recovery was given something that it need not wait for: clients were fenced, also those of an earlier
    /// epoch whose time to come back is over and who never did. Whoever rings for it looks at this.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    fn view(&self, state: &State, tx: TxId) -> Option<TransactionView> {
        let entry = state.table.get(tx);
        let sight = state.attended.seen(tx).filter(|_| state.table.is_watched(tx));
        let since = match (entry, &sight) {
            (Some(entry), _) => entry.since,
            (None, Some((since, _))) => *since,
            (None, None) => return None,
        };
        let seen = sight.map(|(_, seen)| seen).unwrap_or_default();
        // What is known since before a restart says more than this process's own time.
        let decided_ms = entry.map(|entry| entry.at_ms).filter(|at_ms| *at_ms > 0);
        let prepared_ms = seen.iter().map(|one| one.stay.since_ms).filter(|since_ms| *since_ms > 0);
        let before = decided_ms.into_iter().chain(prepared_ms).min();
        let before = before.map_or(Duration::ZERO, |ms| Duration::from_millis(self.clock.wall_ms().saturating_sub(ms)));
        let known = entry.map(|entry| record::read_branches(&entry.branches).unwrap_or_default()).unwrap_or_default();
        let durable = |entry: &Entry| entry.ticket.is_none_or(|ticket| ticket.end <= self.log.durable());
        Some(TransactionView {
            tx,
            client: state.clients.standing(tx.incarnation),
            label: state.clients.label(tx.incarnation).to_owned(),
            decided: entry.map(|entry| (entry.outcome, entry.by)),
            decided_ms,
            is_durable: entry.is_some_and(durable),
            is_acknowledged: entry.is_some_and(|entry| entry.is_acknowledged),
            age: self.clock.now().since(since).max(before),
            may_be_lost: state.is_left(tx),
            branches: branches(known, &seen, entry),
        })
    }
}

/// What the decision names and what the agent saw, each branch once.
fn branches(known: Vec<BranchRecord>, seen: &[Seen], entry: Option<&Entry>) -> Vec<BranchView> {
    let place = |branch: &BranchRecord| (branch.resource, branch.number);
    let here: BTreeMap<Place, &Seen> = seen.iter().map(|one| (place(&one.record), one)).collect();
    let named: BTreeSet<Place> = known.iter().map(place).collect();
    let extra = seen.iter().map(|one| &one.record).filter(|one| !named.contains(&place(one))).cloned();
    let view = |branch: BranchRecord| {
        let done = entry.and_then(|entry| entry.progress.get(&place(&branch)));
        let here = here.get(&place(&branch));
        let fate = match (done, here) {
            (Some(note), _) => note.fate.clone(),
            (None, Some(_)) => Fate::Prepared,
            (None, None) => Fate::Open,
        };
        BranchView {
            resource: branch.resource,
            number: branch.number,
            flags: branch.flags,
            mark: branch.mark,
            fate,
            by: done.map(|note| note.by),
            retries: done.map(|note| note.retries).or(here.map(|one| one.failures)).unwrap_or_default(),
            native: done.map(|note| note.native.clone()).or_else(|| here?.trouble.clone()).unwrap_or_default(),
            stay: here.map(|one| one.stay.clone()).unwrap_or_default(),
            witness: branch.witness,
        }
    };
    known.into_iter().chain(extra).map(view).collect()
}
