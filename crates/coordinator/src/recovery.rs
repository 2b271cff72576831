//! What the agent needs of the coordinator: where things stand, and where to note what it did.

use std::collections::{BTreeMap, BTreeSet};

use assent_ids::{Incarnation, ResourceId, TxId};
use assent_world::Moment;
use assent_xa::{BranchRecord, DecideError, Native, Outcome};

use crate::coordinator::pending;
use crate::note::Note;
use crate::record;
use crate::table::Entry;
use crate::{By, Coordinator, Fate, Pending, Standing};

/// Branches seen prepared, by transaction, and since when.
pub(crate) type Sights = BTreeMap<TxId, (Moment, Vec<BranchRecord>)>;

impl Coordinator {
    /// Where a client stands.
    #[must_use]
    pub fn standing(&self, incarnation: Incarnation) -> Standing {
        self.state().clients.standing(incarnation)
    }

    /// What is decided; durable when this returns.
    pub(crate) fn decided(&self, tx: TxId) -> Result<Option<Outcome>, DecideError> {
        let Some(pending) = self.state().table.get(tx).map(pending) else { return Ok(None) };
        self.decide_strictly(pending).map(Some)
    }

    /// Decided transactions whose client does not drive them: the agent has to find out what became of their branches.
    /// Each is durable when this returns; one that cannot become so is left out.
    pub(crate) fn orphans(&self) -> Vec<(TxId, Vec<BranchRecord>)> {
        let left: Vec<(TxId, Pending, Vec<BranchRecord>)> = {
            let state = self.state();
            let left = state.table.iter().filter(|(tx, entry)| {
                let driven = state.clients.standing(tx.incarnation) == Standing::Connected && !entry.is_acknowledged;
                !entry.is_finished && !driven
            });
            let branches = |entry: &Entry| record::read_branches(&entry.branches).unwrap_or_default();
            left.map(|(tx, entry)| (tx, pending(entry), branches(entry))).collect()
        };
        // Its client died before it waited: what is concluded from a listing must not outlive the decision.
        let durable = left.into_iter().filter(|(_, pending, _)| self.decide_strictly(*pending).is_ok());
        durable.map(|(tx, _, branches)| (tx, branches)).collect()
    }

    /// All that the agent's latest look has found prepared. None of it is forgotten before the next look.
    pub(crate) fn sighted(&self, sights: Sights) {
        let state = &mut *self.state();
        let seen: BTreeSet<TxId> = sights.keys().copied().collect();
        state.sights = sights;
        let clients = &state.clients;
        state.table.watch(seen, |incarnation| clients.standing(incarnation) == Standing::Fenced);
    }

    /// How the agent left a branch of a decided transaction. Whether that is news.
    pub(crate) fn progress(&self, tx: TxId, resource: ResourceId, number: u16, fate: Fate) -> bool {
        self.note(tx, Note { resource, number, fate, by: By::Agent, retries: 0, native: Native::default() })
    }

    /// How a branch of a decided transaction was left.
    pub(crate) fn fate(&self, tx: TxId, resource: ResourceId, number: u16) -> Option<Fate> {
        let state = self.state();
        let mut progress = state.table.get(tx)?.progress.iter();
        progress.find(|one| one.resource == resource && one.number == number).map(|one| one.fate.clone())
    }

    /// Forgets an orphan if all these branches of it are finished, as far as the rule allows. Where it is not: the
    /// resources that recovery still waits for; a heuristic outcome waits for a person instead.
    pub(crate) fn settle(&self, tx: TxId, branches: &[BranchRecord]) -> Vec<ResourceId> {
        let state = &mut *self.state();
        let Some(entry) = state.table.get(tx) else { return Vec::new() };
        let is_done = |branch: &&BranchRecord| {
            let same = |one: &&Note| one.resource == branch.resource && one.number == branch.number;
            entry.progress.iter().find(same).is_some_and(|one| matches!(one.fate, Fate::Finished(_)))
        };
        let is_heuristic = |branch: &&BranchRecord| {
            let same = |one: &&Note| one.resource == branch.resource && one.number == branch.number;
            entry.progress.iter().find(same).is_some_and(|one| matches!(one.fate, Fate::Heuristic(..)))
        };
        let left: Vec<&BranchRecord> = branches.iter().filter(|branch| !is_done(branch)).collect();
        let open = left.iter().filter(|branch| !is_heuristic(branch)).map(|branch| branch.resource).collect();
        if left.is_empty() {
            let is_fenced = state.clients.standing(tx.incarnation) == Standing::Fenced;
            state.table.finish(tx, is_fenced);
        }
        open
    }
}
