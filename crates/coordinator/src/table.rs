//! What has been decided and must still be known. No I/O.
//!
//! The rule of forgetting: an entry goes when every branch is finished **and** (its client has acknowledged the outcome
//! **or** its client is durably fenced). One that the agent has just seen prepared stays until the agent has looked
//! again, so that an old listing never makes a finished transaction look undecided. One with a heuristic outcome stays
//! until a person clears it, whatever else is said of it.
//!
//! Walk: [`Table::insert`] is the one place where a decision becomes known · [`Table::finish`], [`Table::acknowledge`],
//! [`Table::fenced`], [`Table::watch`] each end in the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use assent_ids::{Incarnation, ResourceId, TxId};
use assent_journal::Ticket;
use assent_world::Moment;
use assent_xa::{Heuristic, Native, Outcome};

use crate::bygone::Bygones;
use crate::late::Late;
use crate::note::{Note, Place};

/// So many rows of one resource may wait for going.
const CLEARED_MAX: usize = 65_536;

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum By {
    /// The client that began the transaction.
    Client,
    /// The recovery agent: the client is fenced.
    Agent,
    /// The recovery agent: a branch had been prepared for too long.
    Timeout,
    /// A person.
    Operator,
}

impl By {
    /// The byte in a record. Never renumbered.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            By::Client => 1,
            By::Agent => 2,
            By::Timeout => 3,
            By::Operator => 4,
        }
    }

    /// Reads that byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(By::Client),
            2 => Some(By::Agent),
            3 => Some(By::Timeout),
            4 => Some(By::Operator),
            _ => None,
        }
    }
}

/// How the agent left a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not seen yet.
    Open,
    /// Seen prepared.
    Prepared,
    /// Nothing is left to do.
    Finished(Finish),
    /// It ended on its own, otherwise than decided. Stays until a person clears it.
    Heuristic(Heuristic, Native),
    /// That has been cleared; its resource is told to forget it.
    Cleared,
}

/// How a branch became finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finish {
    /// The agent committed it.
    Committed,
    /// The agent was told that there is no such branch, after a durable commit and a vote of yes.
    CommittedInferred,
    /// The agent rolled it back.
    RolledBack,
    /// Its resource, asked twice after the decision, does not list it.
    NotListed,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) outcome: Outcome,
    pub(crate) by: By,
    /// Where its record ends; `None` if it was recovered, or is a client's own abort, which needs no record.
    pub(crate) ticket: Option<Ticket>,
    /// Whether the log has a record of it.
    pub(crate) is_logged: bool,
    /// As `record::branches` lays them.
    pub(crate) branches: Box<[u8]>,
    pub(crate) since: Moment,
    /// When it was decided, in milliseconds since 1970; 0: an earlier program did not note it.
    pub(crate) at_ms: u64,
    pub(crate) is_acknowledged: bool,
    pub(crate) is_finished: bool,
    /// A person has had its heuristic outcomes forgotten.
    pub(crate) is_cleared: bool,
    /// Where its decision may be a row, too.
    pub(crate) row: Option<ResourceId>,
    /// How its branches were left. Heuristic outcomes survive a restart; for the others a restarted agent looks again.
    pub(crate) progress: BTreeMap<Place, Note>,
}

impl Entry {
    /// Whether a branch ended otherwise than decided, and no person has cleared that.
    pub(crate) fn is_heuristic(&self) -> bool {
        self.progress.values().any(|one| matches!(one.fate, Fate::Heuristic(..)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<TxId, Entry>,
    /// Transactions with branches that the agent saw prepared in its last look.
    watched: BTreeSet<TxId>,
    /// Forgotten, logged, and not yet told to the log: their bytes one after the other.
    forgotten: Vec<u8>,
    /// Entries with a heuristic outcome that no person has cleared.
    heuristic: BTreeSet<TxId>,
    /// Of the branches and the notes of all entries.
    bytes: usize,
    /// Ever forgotten in this opening.
    forgotten_count: u64,
    bygones: Bygones,
    late: Late,
    /// Forgotten ones that have a row, until it goes.
    cleared: BTreeMap<ResourceId, Vec<TxId>>,
}

impl Table {
    pub(crate) fn get(&self, tx: TxId) -> Option<&Entry> {
        self.entries.get(&tx)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TxId, &Entry)> {
        self.entries.iter().map(|(tx, entry)| (*tx, entry))
    }

    /// Those behind a place, in order.
    pub(crate) fn behind(&self, after: Bound<TxId>) -> impl Iterator<Item = TxId> + '_ {
        self.entries.range((after, Bound::Unbounded)).map(|(tx, _)| *tx)
    }

    pub(crate) fn insert(&mut self, tx: TxId, entry: Entry) {
        _ = self.remove(tx);
        self.bytes += bytes_of(&entry);
        // It names what was seen; a client's names all. Where a decision may be lost nothing is presumed, so a person's rollback is as a commit.
        if entry.by == By::Operator || (entry.outcome == Outcome::Committed && entry.by != By::Client) {
            self.late.mark(tx);
        }
        if entry.is_heuristic() {
            _ = self.heuristic.insert(tx);
        }
        _ = self.entries.insert(tx, entry);
    }

    /// Bytes of the branches and the notes of all entries.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, tx: TxId) -> Option<Entry> {
        let entry = self.entries.remove(&tx)?;
        self.bytes -= bytes_of(&entry);
        _ = self.heuristic.remove(&tx);
        self.late.gone(tx);
        Some(entry)
    }

    /// Transactions with a heuristic outcome that no person has cleared.
    pub(crate) fn heuristics(&self) -> usize {
        self.heuristic.len()
    }

    /// How a branch was left. Whether that is news.
    pub(crate) fn note(&mut self, tx: TxId, note: &Note) -> bool {
        let Some(entry) = self.entries.get_mut(&tx) else { return false };
        let is_heuristic = matches!(note.fate, Fate::Heuristic(..));
        // Its client may have called all finished while the agent was at work.
        entry.is_finished &= !is_heuristic;
        if entry.progress.get(&note.place()).is_some_and(|known| !is_news(&known.fate, &note.fate)) {
            return false;
        }
        self.bytes += note.bytes();
        let before = entry.progress.insert(note.place(), note.clone());
        self.bytes -= before.as_ref().map_or(0, Note::bytes);
        if is_heuristic {
            _ = self.heuristic.insert(tx);
        }
        true
    }

    /// A person has seen to its heuristic outcomes.
    pub(crate) fn clear_heuristics(&mut self, tx: TxId) {
        let Some(entry) = self.entries.get_mut(&tx) else { return };
        for note in entry.progress.values_mut().filter(|note| matches!(note.fate, Fate::Heuristic(..))) {
            let native = note.words().clone();
            (note.fate, note.native) = (Fate::Cleared, native);
            entry.is_cleared = true;
        }
        _ = self.heuristic.remove(&tx);
    }

    /// A record of it has been laid after all.
    pub(crate) fn logged(&mut self, tx: TxId, ticket: Ticket) {
        if let Some(entry) = self.entries.get_mut(&tx) {
            (entry.is_logged, entry.ticket) = (true, Some(ticket));
        }
    }

    /// The client: all is finished, and it knows how. Where the agent saw a branch end otherwise, it knows better.
    /// Whether so many rows wait for going now that a look is due.
    pub(crate) fn finish_all(&mut self, tx: TxId) -> bool {
        let before = self.rows_to_go();
        if let Some(entry) = self.entries.get_mut(&tx) {
            entry.is_finished = !entry.is_heuristic();
            entry.is_acknowledged = true;
            self.forget_if(tx, false);
        }
        before < CLEARED_MAX / 2 && self.rows_to_go() >= CLEARED_MAX / 2
    }

    fn rows_to_go(&self) -> usize {
        self.cleared.values().map(Vec::len).sum()
    }

    /// The agent: all branches that the decision names are finished; one that it does not name may have ended otherwise.
    pub(crate) fn finish(&mut self, tx: TxId, is_fenced: bool) {
        if let Some(entry) = self.entries.get_mut(&tx) {
            entry.is_finished = !entry.is_heuristic();
            self.forget_if(tx, is_fenced);
        }
    }

    /// The client knows the outcome and leaves the branches to the agent.
    pub(crate) fn acknowledge(&mut self, tx: TxId) {
        if let Some(entry) = self.entries.get_mut(&tx) {
            entry.is_acknowledged = true;
            self.forget_if(tx, false);
        }
    }

    /// What was decided of a forgotten transaction whose client never acknowledged it, if it is among the latest. For
    /// answers only: no decision may look here.
    pub(crate) fn bygone(&self, tx: TxId) -> Option<Outcome> {
        self.bygones.outcome(tx)
    }

    /// Some clients have been fenced, durably.
    pub(crate) fn fenced(&mut self, is_fenced: impl Fn(Incarnation) -> bool) {
        let finished = self.entries.iter().filter(|(_, entry)| entry.is_finished);
        let list: Vec<TxId> = finished.map(|(tx, _)| *tx).filter(|tx| is_fenced(tx.incarnation)).collect();
        list.into_iter().for_each(|tx| self.forget_if(tx, true));
    }

    /// What the agent has seen prepared in its latest look, in place of what it had seen before.
    pub(crate) fn watch(&mut self, seen: BTreeSet<TxId>, is_fenced: impl Fn(Incarnation) -> bool) {
        let before = std::mem::replace(&mut self.watched, seen);
        before.into_iter().for_each(|tx| self.forget_if(tx, is_fenced(tx.incarnation)));
    }

    /// These resources may hold branches that no decision names.
    pub(crate) fn expect(&mut self, resources: impl Iterator<Item = ResourceId>) {
        self.late.expect(resources);
    }

    /// A resource has listed, and the table watches what it has shown.
    pub(crate) fn listed(&mut self, resource: ResourceId, is_fenced: impl Fn(Incarnation) -> bool) {
        self.late.listed(resource);
        self.late.shown_all().into_iter().for_each(|tx| self.forget_if(tx, is_fenced(tx.incarnation)));
    }

    pub(crate) fn is_watched(&self, tx: TxId) -> bool {
        self.watched.contains(&tx)
    }

    /// Those behind a place, in order.
    pub(crate) fn watched_behind(&self, after: Bound<TxId>) -> impl Iterator<Item = TxId> + '_ {
        self.watched.range((after, Bound::Unbounded)).copied()
    }

    pub(crate) fn watched_before(&self, end: TxId) -> impl Iterator<Item = TxId> + '_ {
        self.watched.range(..end).copied()
    }

    pub(crate) fn watched_count(&self) -> usize {
        self.watched.len()
    }

    /// The rule of forgetting.
    fn forget_if(&mut self, tx: TxId, is_fenced: bool) {
        let may = |entry: &Entry| entry.is_finished && (entry.is_acknowledged || is_fenced);
        if self.watched.contains(&tx) || self.late.is_awaited(tx) || !self.entries.get(&tx).is_some_and(may) {
            return;
        }
        if let Some(entry) = self.remove(tx) {
            self.forgotten_count += 1;
            if !entry.is_acknowledged {
                self.bygones.keep(tx, entry.outcome);
            }
            if let Some(resource) = entry.row.filter(|_| entry.outcome == Outcome::Committed) {
                self.give_cleared(resource, vec![tx]);
            }
            if entry.is_logged {
                self.forgotten.extend_from_slice(&crate::lay::tx_bytes(tx));
            }
        }
    }

    /// Finished transactions whose rows at this resource may go, at most so many.
    pub(crate) fn take_cleared(&mut self, resource: ResourceId, most: usize) -> Vec<TxId> {
        let Some(list) = self.cleared.get_mut(&resource) else { return Vec::new() };
        list.split_off(list.len().saturating_sub(most))
    }

    /// Their rows may go, or have not gone. Beyond the limit they are found again when their client is gone.
    pub(crate) fn give_cleared(&mut self, resource: ResourceId, txs: Vec<TxId>) {
        let list = self.cleared.entry(resource).or_default();
        let room = CLEARED_MAX.saturating_sub(list.len());
        list.extend(txs.into_iter().take(room));
    }

    /// Whether a resource has so many that do not go that more would only be found again when their client is gone.
    pub(crate) fn is_clogged(&self) -> bool {
        self.cleared.values().any(|list| list.len() >= CLEARED_MAX)
    }

    /// Forgotten ones that the log has not been told yet.
    pub(crate) fn forgotten(&self) -> &[u8] {
        &self.forgotten
    }

    /// Takes the list out, to lay it; [`Table::give_forgotten`] brings it back.
    pub(crate) fn take_forgotten(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.forgotten)
    }

    /// Back from the log, which was told or not. Its room is kept.
    pub(crate) fn give_forgotten(&mut self, list: Vec<u8>, is_told: bool) {
        self.forgotten = list;
        if is_told {
            self.forgotten.clear();
        }
    }

    /// The log has been told.
    pub(crate) fn told(&mut self) {
        self.forgotten.clear();
    }

    pub(crate) const fn forgotten_count(&self) -> u64 {
        self.forgotten_count
    }

    /// Replay: a record says that this is forgotten.
    pub(crate) fn replay_forgotten(&mut self, tx: TxId) {
        _ = self.remove(tx);
    }

    /// Replay: a checkpoint replaces everything before it.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.heuristic.clear();
        self.late.clear();
        self.bytes = 0;
    }
}

/// What is said first stays, but for a heuristic outcome: it says more than that a branch is finished, and stays when its
/// resource has forgotten it. One that a person has cleared is not news again; its resource lists it until it is told.
const fn is_news(known: &Fate, said: &Fate) -> bool {
    match (known, said) {
        (Fate::Open | Fate::Prepared, _) | (Fate::Finished(_), Fate::Heuristic(..)) => true,
        (Fate::Cleared, Fate::Finished(_)) => true,
        (Fate::Finished(_) | Fate::Heuristic(..) | Fate::Cleared, _) => false,
    }
}

fn bytes_of(entry: &Entry) -> usize {
    entry.branches.len() + entry.progress.values().map(Note::bytes).sum::<usize>()
}
