//! What the agent needs of the coordinator: where things stand, and where to note what it did.

use std::collections::BTreeSet;
use std::time::Duration;

use assent_ids::{Incarnation, ResourceId, TxId};
use assent_xa::{BranchRecord, DecideError, Native, Outcome};

use crate::attended::{Claim, FIRST_PASS_MAX, Seen, Sights};
use crate::coordinator::{State, pending};
use crate::note::Note;
use crate::record;
use crate::table::Entry;
use crate::{BRANCHES_MAX, By, Coordinator, Fate, Pending, Standing, Stopped};

/// A branch of a decided transaction whose client does not drive it, and whose end nobody has noted.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    pub(crate) tx: TxId,
    pub(crate) outcome: Outcome,
    pub(crate) record: BranchRecord,
    /// It ended otherwise than decided, and a person has cleared that.
    pub(crate) is_cleared: bool,
}

/// What a look at all orphans shows.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// Branches at resources that are not registered.
    pub(crate) unregistered: Vec<(TxId, ResourceId)>,
    /// Resources that recovery still waits for.
    pub(crate) open: BTreeSet<ResourceId>,
}

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

    /// These resources are attended from now on.
    pub(crate) fn attend(&self, names: &[(ResourceId, String)]) {
        let now = self.clock.now();
        let mut state = self.state();
        state.attended.expect(names, now);
        state.table.expect(names.iter().map(|(id, _)| *id));
    }

    /// The branches at this resource of decided transactions whose client does not drive them: its attendant has to find
    /// out what became of them. Each is durable when this returns; one that cannot become so is left out.
    pub(crate) fn orphans(&self, resource: ResourceId) -> Vec<Orphan> {
        let left: Vec<(Pending, Vec<Orphan>)> = {
            let state = self.state();
            let left = state.table.iter().filter(|(tx, entry)| is_orphan(&state, *tx, entry));
            let left = left.map(|(tx, entry)| (pending(entry), open_branches(tx, entry, resource)));
            left.filter(|(_, branches)| !branches.is_empty()).collect()
        };
        // Its client died before it waited: what is concluded from a listing must not outlive the decision.
        let durable = left.into_iter().filter(|(pending, _)| self.decide_strictly(*pending).is_ok());
        durable.flat_map(|(_, branches)| branches).collect()
    }

    /// All that an attendant's latest look has found prepared. None of it is forgotten before its next look.
    pub(crate) fn sighted(&self, resource: ResourceId, sights: Sights) {
        let state = &mut *self.state();
        let seen = state.attended.saw(resource, sights);
        let clients = &state.clients;
        let is_fenced = |incarnation| clients.standing(incarnation) == Standing::Fenced;
        state.table.watch(seen, is_fenced);
        state.table.listed(resource, is_fenced);
    }

    /// How a claim went. Whether that is the first rival.
    pub(crate) fn claimed(&self, resource: ResourceId, claim: Claim) -> bool {
        let now = self.clock.now();
        self.state().attended.claimed(resource, claim, now)
    }

    /// To which resource's rival this one is left, if to any.
    pub(crate) fn yields(&self, resource: ResourceId) -> Option<String> {
        let now = self.clock.now();
        self.state().attended.yields(resource, now).map(str::to_owned)
    }

    /// A listing with a branch that nobody here can have begun, or one without.
    ///
    /// From the first one on nothing up to its epoch is presumed, over restarts, durably before this returns: what it was decided by is not here,
    /// and clients that come after the next start may be given its name.
    pub(crate) fn stranger(&self, resource: ResourceId, stranger: Option<Stopped>) {
        let at_ms = self.clock.wall_ms();
        let ticket = {
            let mut state = self.state();
            let epoch = stranger.as_ref().map(|stopped| stopped.tx.incarnation.epoch);
            state.attended.stranger(resource, stranger);
            // A log that takes nothing now is asked again at the next look: it is there still.
            epoch.and_then(|epoch| state.loses_up_to(&*self.log, epoch, at_ms).ok().flatten())
        };
        if let Some(ticket) = ticket {
            // A log that fails here has closed itself, and decides nothing any more.
            _ = self.log.wait_durable(ticket);
        }
    }

    /// Such a branch, wherever it is.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.state().attended.stopped().cloned()
    }

    /// Where another process of this node resolves, each resource by its registered name, and what it says of the other
    /// one. While there is any, new clients and commits are refused `Unavailable`.
    #[must_use]
    pub fn rivals(&self) -> Vec<(String, Native)> {
        self.state().attended.rivals().map(|(name, native)| (name.to_owned(), native.clone())).collect()
    }

    /// Why no new client and no new commit is taken now: another process of this node is at work, the agent has not asked
    /// every resource yet, or it has found a branch that nobody here can have begun. None if they are.
    #[must_use]
    pub fn unclaimed(&self) -> Option<String> {
        let now = self.clock.now();
        self.state().attended.refusal(now)
    }

    /// Waits until every resource has been asked for its claim, or a second has passed: whoever is told that this
    /// coordinator is there finds it so. Why it takes no commit all the same, if it does not.
    #[must_use]
    pub fn first_claims(&self) -> Option<String> {
        let until = self.clock.now().after(FIRST_PASS_MAX);
        loop {
            let why = self.unclaimed();
            if why.is_none() || self.clock.now() >= until {
                return why;
            }
            self.clock.sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn is_rivalled(&self) -> bool {
        self.state().attended.is_rivalled()
    }

    /// Decides rollback of what is seen prepared, unless it is decided already. Nobody is told before it is waited for.
    pub(crate) fn abort_begin(&self, tx: TxId, by: By) -> Result<Pending, DecideError> {
        let mut seen = self.state().attended.seen(tx).map(|(_, branches)| records(branches)).unwrap_or_default();
        // Those beyond are told what their transaction was told, too.
        seen.truncate(BRANCHES_MAX);
        self.decide_abort_begin(tx, by, &seen)
    }

    /// How the agent left a branch of a decided transaction, after how many failures. Whether that is news.
    pub(crate) fn progress(&self, tx: TxId, resource: ResourceId, number: u16, fate: Fate, retries: u32) -> bool {
        self.note(tx, Note { resource, number, fate, by: By::Agent, retries, native: Native::default() })
    }

    /// How a branch of a decided transaction was left.
    pub(crate) fn fate(&self, tx: TxId, resource: ResourceId, number: u16) -> Option<Fate> {
        self.state().table.get(tx)?.fate(resource, number).cloned()
    }

    /// What the decision keeps for asking about this branch; empty if it does not name it.
    pub(crate) fn witness(&self, tx: TxId, resource: ResourceId, number: u16) -> Vec<u8> {
        let state = self.state();
        let branches = state.table.get(tx).and_then(|entry| record::read_branches(&entry.branches).ok());
        let same = |branch: &BranchRecord| branch.resource == resource && branch.number == number;
        branches.unwrap_or_default().into_iter().find(same).map(|branch| branch.witness).unwrap_or_default()
    }

    /// Lets every orphan go whose branches are all finished, as far as the rule allows; a heuristic outcome waits for a
    /// person. What is left.
    pub(crate) fn sweep(&self, registered: &[ResourceId]) -> Swept {
        let durable = self.log.durable();
        let state = &mut *self.state();
        let (mut swept, mut done) = (Swept::default(), Vec::new());
        for (tx, entry) in state.table.iter().filter(|(tx, entry)| is_orphan(state, *tx, entry)) {
            if entry.ticket.is_some_and(|ticket| ticket.end > durable) {
                continue;
            }
            let mut is_done = true;
            for branch in record::read_branches(&entry.branches).unwrap_or_default() {
                let fate = entry.fate(branch.resource, branch.number);
                let is_registered = registered.contains(&branch.resource);
                // No attendant will ever tell an unregistered resource what a person has cleared.
                let is_let_go = !is_registered && matches!(fate, Some(Fate::Cleared));
                is_done &= is_let_go || matches!(fate, Some(Fate::Finished(_)));
                if is_let_go {
                    continue;
                }
                if !is_registered {
                    swept.unregistered.push((tx, branch.resource));
                } else if !matches!(fate, Some(Fate::Finished(_) | Fate::Heuristic(..))) {
                    _ = swept.open.insert(branch.resource);
                }
            }
            if is_done {
                done.push((tx, state.clients.standing(tx.incarnation) == Standing::Fenced));
            }
        }
        done.into_iter().for_each(|(tx, is_fenced)| state.table.finish(tx, is_fenced));
        swept
    }
}

/// What a decision names of branches that were seen.
pub(crate) fn records(seen: Vec<Seen>) -> Vec<BranchRecord> {
    seen.into_iter().map(|one| one.record).collect()
}

/// Decided, not finished, and not driven by its client.
fn is_orphan(state: &State, tx: TxId, entry: &Entry) -> bool {
    !entry.is_finished && (entry.is_acknowledged || state.clients.standing(tx.incarnation) != Standing::Connected)
}

fn open_branches(tx: TxId, entry: &Entry, resource: ResourceId) -> Vec<Orphan> {
    let outcome = entry.outcome;
    let here = record::read_branches(&entry.branches).unwrap_or_default().into_iter();
    let here = here.filter(|branch| branch.resource == resource);
    let orphan = |record: BranchRecord| match entry.fate(record.resource, record.number) {
        Some(Fate::Finished(_) | Fate::Heuristic(..)) => None,
        Some(Fate::Cleared) => Some(Orphan { tx, outcome, record, is_cleared: true }),
        Some(Fate::Open | Fate::Prepared) | None => Some(Orphan { tx, outcome, record, is_cleared: false }),
    };
    here.filter_map(orphan).collect()
}

impl Entry {
    /// How a branch of it was left.
    fn fate(&self, resource: ResourceId, number: u16) -> Option<&Fate> {
        self.progress.get(&(resource, number)).map(|one| &one.fate)
    }

    /// Whether as many branches are noted as a transaction has at most, and this is not one of them.
    pub(crate) fn is_full(&self, resource: ResourceId, number: u16) -> bool {
        self.progress.len() >= BRANCHES_MAX && self.fate(resource, number).is_none()
    }
}
