//! What writers share: the branches, the keys they hold, and what is appended but not yet published.
//!
//! Walk: a writer asks [`Desk::refuse_held`] and [`Desk::has_room`] before it appends · [`Desk::stage`] puts the
//! entry behind those before it · [`Desk::ready`] gives entries out in log order once they are safe.
//! Because appending and staging happen under one lock, the queue's order is the log's order.
//! Deliberately absent: the lock itself, and I/O.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use assent_ids::{Lsn, Xid};
use assent_journal::Ticket;
use assent_runs::RunsError;

use crate::branch::{Branch, Ending, Work};
use crate::config::{Config, PREPARED_ROWS_BYTES_MAX, ROWS_BYTES_MAX};
use crate::covers::Covers;
use crate::error::Shown;
use crate::finished::Finished;
use crate::keyed::{Key, Keyed};
use crate::keyspaces::Names;
use crate::ledger::Ledger;
use crate::line::{Line, Place};
use crate::note::Moment;
use crate::op::{Durability, Op};
use crate::record::{Became, Effect, Effects};
use crate::under_way::{Newest, UNKNOWN_MAX, UnderWay};
use crate::{KvError, Pending};

/// What an outcome takes of the journal, at most: a block.
const OUTCOME_BYTES: u64 = 4096;

/// What publishing an entry means to a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It was a plain write.
    Plain,
    /// The branch may be listed as prepared.
    Prepared(Xid),
    /// The branch has its outcome and is forgotten.
    Finished(Xid),
}

/// An entry that is appended and not yet published.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) ticket: Ticket,
    pub(crate) durability: Durability,
    pub(crate) effects: Effects,
    pub(crate) turn: Turn,
}

/// What a key will be, once the queue is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnItsWay {
    /// Where the entry ends.
    pub(crate) end: Lsn,
    /// It has a value, and when that expires (0: never).
    pub(crate) lives: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) branches: BTreeMap<Xid, Branch>,
    /// Keys written by prepared branches, and by which.
    held: Keyed<Xid>,
    /// Who waits for them.
    pub(crate) line: Arc<Line>,
    /// Keys of the queue, as far as somebody asked.
    under_way: RefCell<UnderWay>,
    /// Ranges that entries of the queue erase, and the end of the newest one over each key.
    erased: Covers<Lsn>,
    queue: VecDeque<Staged>,
    /// What the rows of the queue will take in the ledger's memory.
    rows_bytes: u64,
    /// What those of prepared branches will take, and how many of these there are.
    prepared_bytes: u64,
    undecided: u64,
    /// Why nothing more can become visible.
    broken: Option<RunsError>,
    /// How far the log has been acknowledged under its policy.
    acknowledged: Lsn,
    /// Bytes of all working branches' writes.
    pub(crate) bytes: u64,
    pub(crate) finished: Finished,
    /// Named keyspaces, as of the end of the queue.
    pub(crate) names: Names,
}

impl Desk {
    /// Nothing but what is remembered.
    pub(crate) fn new(finished: Finished) -> Self {
        Self {
            branches: BTreeMap::new(),
            held: Keyed::default(),
            line: Arc::default(),
            under_way: RefCell::default(),
            erased: Covers::default(),
            queue: VecDeque::new(),
            rows_bytes: 0,
            prepared_bytes: 0,
            undecided: 0,
            broken: None,
            acknowledged: Lsn::ZERO,
            bytes: 0,
            finished,
            names: Names::default(),
        }
    }

    /// The branch, or the word for an unknown one.
    pub(crate) fn branch(&mut self, xid: &Xid) -> Result<&mut Branch, KvError> {
        self.branches.get_mut(xid).ok_or(KvError::Unknown { xid: Box::new(*xid) })
    }

    /// Takes a branch out that has nothing in the journal; any other stays.
    pub(crate) fn take(&mut self, xid: &Xid) -> Option<Work> {
        if !matches!(self.branches.get(xid), Some(Branch::Working(_))) {
            return None;
        }
        let Some(Branch::Working(work)) = self.branches.remove(xid) else { return None };
        self.bytes = self.bytes.saturating_sub(work.memory_bytes());
        Some(work)
    }

    /// Puts it back.
    pub(crate) fn keep(&mut self, xid: Xid, work: Work) {
        self.bytes = self.bytes.saturating_add(work.memory_bytes());
        self.branches.insert(xid, Branch::Working(work));
    }

    /// A prepared branch holds its keys until it has its outcome: nobody else writes them. Who waits stands at the first that is held
    /// then. `holds`: who asks will hold them, and so goes behind those who wait for them already.
    pub(crate) fn refuse_held<'a>(
        &self,
        ops: impl Iterator<Item = Op<'a>>,
        place: &mut Place,
        holds: bool,
    ) -> Result<(), KvError> {
        let has_order = !self.line.is_empty() && (holds || place.id().is_some());
        if self.held.is_empty() && !has_order {
            return Ok(());
        }
        for op in ops {
            let (keyspace, key) = op.key();
            if let Some((key, by)) = self.holder(&op) {
                place.stand(keyspace, key)?;
                return Err(KvError::Held { key: Shown::of(keyspace, key), by: Box::new(*by) });
            }
            if has_order && place.stand_behind(&self.line, keyspace, key)? {
                return Err(KvError::Awaited { key: Shown::of(keyspace, key) });
            }
        }
        Ok(())
    }

    /// The first key of a write that a prepared branch holds, and which branch that is.
    fn holder<'a>(&'a self, op: &Op<'a>) -> Option<(&'a [u8], &'a Xid)> {
        let (keyspace, key) = op.key();
        match *op {
            Op::Erase { to, .. } => {
                let to = to.map_or(Bound::Unbounded, Bound::Excluded);
                self.held.range(keyspace, Bound::Included(key), to).next().map(|(key, by)| (&**key, by))
            }
            Op::Put { .. } | Op::Delete { .. } => self.held.get(keyspace, key).map(|by| (key, by)),
        }
    }

    /// Whether a prepared branch holds this key.
    pub(crate) fn is_held(&self, keyspace: u32, key: &[u8]) -> bool {
        self.held.get(keyspace, key).is_some()
    }

    /// What the newest entry of the queue makes of this key, if there is one that writes, deletes or erases it.
    pub(crate) fn on_its_way(&self, keyspace: u32, key: &[u8]) -> Option<OnItsWay> {
        let own = self.queued(keyspace, key);
        let erased = self.erased.get(keyspace, key).map(|end| OnItsWay { end, lives: None });
        // In one entry the key's own word counts: what an erase takes there counts as deleted already.
        if erased.map(|way| way.end) > own.map(|way| way.end) { erased } else { own }
    }

    /// The same of entries that name the key themselves.
    fn queued(&self, keyspace: u32, key: &[u8]) -> Option<OnItsWay> {
        self.learn(0);
        let Newest { end, nth } = self.under_way.borrow().newest(keyspace, key)?;
        let count = self.queue.partition_point(|staged| staged.ticket.end <= end);
        let is_it = |effect: &&Effect| {
            effect.keyspace == keyspace && *effect.key == *key && !matches!(effect.became, Became::Erased { .. })
        };
        let way = |ticket: &Ticket, effect: &Effect| OnItsWay {
            end: ticket.end,
            lives: effect.place().map(|place| place.expiry),
        };
        let last = count.checked_sub(1).and_then(|last| self.queue.get(last));
        if let Some((staged, effect)) = last.and_then(|staged| Some((staged, staged.effects.get(nth).filter(is_it)?))) {
            return Some(way(&staged.ticket, effect));
        }
        // Another key's of the same hash. Not for each: a batch has some hundred thousand effects, and nobody writes meanwhile.
        self.queue.range(..count).rev().find_map(|Staged { ticket, effects, .. }| {
            effects.iter().rev().find(is_it).map(|effect| way(ticket, effect))
        })
    }

    /// Has all effects of the queue known by their keys, but for so many of the newest.
    fn learn(&self, unknown: usize) {
        let mut under_way = self.under_way.borrow_mut();
        while let Some(Staged { ticket, effects, .. }) = under_way.next(unknown).and_then(|nth| self.queue.get(nth)) {
            under_way.learn(ticket.end, effects);
        }
    }

    /// What to wait for until the entry that ends there is visible.
    pub(crate) fn waits_for(&self, end: Lsn) -> Option<Pending> {
        let staged = self.queue.iter().find(|staged| staged.ticket.end == end)?;
        Some(Pending { ticket: Some(staged.ticket), durability: staged.durability })
    }

    /// First committer wins: what this branch wrote must not have been written since its snapshot, published or on its
    /// way.
    pub(crate) fn refuse_newer(&self, work: &Work, ledger: &Ledger) -> Result<(), KvError> {
        let Some(lease) = work.snapshot.as_ref().filter(|_| !work.writes.is_empty()) else { return Ok(()) };
        // Ended: nobody knows any more what it saw.
        let snapshot = lease.look()?;
        for (keyspace, key, _) in work.writes.iter() {
            let seen = snapshot.written(keyspace, key)?;
            let now = match self.on_its_way(keyspace, key) {
                Some(way) => Some(way.end),
                None => ledger.find(keyspace, key)?.map(|head| head.committed),
            };
            // A key that was written and deleted again since is as it was, and so is one that had expired and is no more: nothing
            // was lost.
            let same = now == seen.map(|(written, _)| written);
            if !same && (now.is_some() || seen.is_some_and(|(_, expired)| !expired)) {
                let (written, snapshot) = (now.unwrap_or_else(|| ledger.published()), snapshot.lsn());
                return Err(KvError::Newer { key: Shown::of(keyspace, key), written, snapshot });
            }
        }
        Ok(())
    }

    /// An entry that is durable could not become visible: from now on nothing does, for what follows it must not either.
    pub(crate) fn broken(&mut self, error: RunsError) -> KvError {
        KvError::Unpublished(self.broken.insert(error).clone())
    }

    /// The same, where nobody knows any more what belongs before what.
    pub(crate) fn breaks(&mut self, why: &str) {
        let reason = || format!("{why}: open the store again, the journal has everything that was acknowledged");
        self.broken.get_or_insert_with(|| RunsError::Closed { reason: reason() });
    }

    pub(crate) fn refuse_broken(&self) -> Result<(), RunsError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn has_room(&self, config: &Config) -> Result<(), KvError> {
        let limit = config.unpublished_max;
        if u32::try_from(self.queue.len()).map_or(true, |waiting| waiting >= limit) {
            return Err(KvError::Busy { what: "entries that nobody has waited for", limit: limit.into() });
        }
        if self.rows_bytes >= ROWS_BYTES_MAX {
            return Err(KvError::Busy { what: "bytes of rows that nobody has waited for", limit: ROWS_BYTES_MAX });
        }
        Ok(())
    }

    /// A vote is a promise that the outcome can be carried out: its rows need room then, whatever else is full.
    pub(crate) fn has_room_to_prepare(&self, rows_bytes: u64) -> Result<(), KvError> {
        if self.prepared_bytes.saturating_add(rows_bytes) > PREPARED_ROWS_BYTES_MAX {
            let limit = PREPARED_ROWS_BYTES_MAX;
            return Err(KvError::Busy { what: "bytes of rows of prepared branches", limit });
        }
        Ok(())
    }

    /// What of the journal is kept for the outcomes of prepared branches: decided elsewhere, they may not be refused because it is full.
    /// With one more there is a block more.
    pub(crate) const fn outcomes_bytes(&self, more: u64) -> u64 {
        match self.undecided + more {
            0 => 0,
            // Each may be a batch of its own, and two of them the first of their segments.
            branches => (branches + 2) * OUTCOME_BYTES,
        }
    }

    pub(crate) fn hold(&mut self, xid: Xid, effects: &[Effect]) {
        self.undecided += 1;
        for effect in effects {
            self.held.insert(effect.keyspace, Key::from(&*effect.key), xid);
            self.prepared_bytes += effect.row_bytes();
        }
    }

    pub(crate) fn let_go(&mut self, effects: &[Effect]) {
        self.undecided = self.undecided.saturating_sub(1);
        for effect in effects {
            self.held.remove(effect.keyspace, &effect.key);
            self.prepared_bytes = self.prepared_bytes.saturating_sub(effect.row_bytes());
        }
        self.line.freed(effects);
    }

    /// Puts an appended entry behind those before it.
    pub(crate) fn stage(&mut self, staged: Staged) {
        let end = staged.ticket.end;
        for effect @ Effect { keyspace, key, became } in &staged.effects {
            if let Became::Erased { to } = became {
                self.erased.insert(*keyspace, (key, to.as_deref()), end);
            }
            self.names.take(effect);
            self.rows_bytes += effect.row_bytes();
        }
        self.under_way.get_mut().comes(staged.effects.len());
        self.queue.push_back(staged);
        self.learn(UNKNOWN_MAX);
    }

    /// The log has acknowledged up to here under its policy.
    pub(crate) fn acknowledge(&mut self, end: Lsn) {
        self.acknowledged = self.acknowledged.max(end);
    }

    /// The next entry in log order, if it is safe: durable where it must be, else acknowledged.
    pub(crate) fn ready(&mut self, durable: Lsn) -> Option<Staged> {
        let first = self.queue.front()?;
        let safe = match first.durability {
            Durability::Durable => durable,
            Durability::Buffered => durable.max(self.acknowledged),
        };
        if first.ticket.end > safe {
            return None;
        }
        let staged = self.queue.pop_front()?;
        let rows_bytes = staged.effects.iter().map(Effect::row_bytes).sum();
        self.rows_bytes = self.rows_bytes.saturating_sub(rows_bytes);
        self.erased.pass(staged.ticket.end);
        if self.queue.is_empty() {
            self.erased = Covers::default();
        }
        self.under_way.get_mut().goes(&staged.effects);
        match staged.turn {
            Turn::Plain => {}
            Turn::Prepared(xid) => {
                if let Some(Branch::Prepared { listed, .. } | Branch::Finishing { listed, .. }) =
                    self.branches.get_mut(&xid)
                {
                    *listed = true;
                }
            }
            Turn::Finished(xid) => {
                // One phase left no vote behind, so nobody will ask.
                if let Some(Branch::Finishing { ending, prepare: Some(_), .. }) = self.branches.remove(&xid) {
                    self.finished.note(staged.ticket.lsn, &xid, ending);
                }
            }
        }
        Some(staged)
    }

    /// The last entry up to this one that must be durable before this one can be published.
    pub(crate) fn blocker(&self, ticket: Ticket) -> Option<Ticket> {
        let before = self.queue.iter().take_while(|staged| staged.ticket.end <= ticket.end);
        before.filter(|staged| staged.durability == Durability::Durable).map(|staged| staged.ticket).last()
    }

    /// Prepared branches with where their records begin, in the order of their XIDs.
    pub(crate) fn prepared(&self) -> impl Iterator<Item = (Xid, Lsn)> {
        self.branches.iter().filter_map(|(xid, branch)| Some((*xid, branch.prepared_at()?)))
    }

    /// What holds of branches at the place up to which all is visible.
    pub(crate) fn moment(&self, entry: Lsn, end: Lsn, latest_ms: u64) -> Moment {
        let (prepared, floor) = (self.prepared().collect(), self.finished.floor());
        Moment { entry, end, latest_ms, prepared, floor, finished: self.finished.rows(), ..Moment::default() }
    }

    /// A branch that the ledger's note or the journal says is prepared.
    pub(crate) fn restore(&mut self, xid: Xid, entry: Lsn, effects: Vec<Effect>) {
        self.hold(xid, &effects);
        self.branches.insert(xid, Branch::Prepared { entry, effects, listed: true });
    }

    /// Takes a prepared branch out for its outcome; its keys are free behind the record just appended.
    pub(crate) fn finish(&mut self, xid: &Xid, ticket: Ticket, ending: Ending) -> Vec<Effect> {
        let Some(Branch::Prepared { entry, effects, listed }) = self.branches.remove(xid) else { return Vec::new() };
        self.let_go(&effects);
        self.branches.insert(*xid, Branch::Finishing { ticket, ending, prepare: Some(entry), listed });
        effects
    }

    pub(crate) fn held_keys(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(end: u64, keys: &[&[u8]]) -> Staged {
        let effect = |key: &&[u8]| Effect { keyspace: 0, key: (*key).into(), became: Became::Nothing };
        Staged {
            ticket: Ticket { lsn: Lsn(end - 1), end: Lsn(end) },
            durability: Durability::Durable,
            effects: keys.iter().map(effect).collect(),
            turn: Turn::Plain,
        }
    }

    #[test]
    fn what_is_on_its_way_is_found_where_its_entry_has_it_and_elsewhere_if_that_is_another_keys() {
        let mut desk = Desk::new(Finished::new(1, Lsn::ZERO));
        desk.stage(staged(10, &[b"a", b"b"]));
        desk.stage(staged(20, &[b"b", b"c"]));
        let end = |desk: &Desk, key: &[u8]| desk.on_its_way(0, key).map(|way| way.end.0);
        assert_eq!([&b"a"[..], b"b", b"c", b"d"].map(|key| end(&desk, key)), [Some(10), Some(20), Some(20), None]);
        // As if later ones were of the same hashes.
        desk.under_way.get_mut().add(0, b"a", Newest { end: Lsn(20), nth: 1 });
        desk.under_way.get_mut().add(0, b"d", Newest { end: Lsn(20), nth: 0 });
        desk.under_way.get_mut().add(0, b"c", Newest { end: Lsn(20), nth: 7 });
        assert_eq!([&b"a"[..], b"b", b"c", b"d"].map(|key| end(&desk, key)), [Some(10), Some(20), Some(20), None]);
    }

    #[test]
    fn entries_are_learnt_by_who_asks_and_when_too_many_are_not() {
        let mut desk = Desk::new(Finished::new(1, Lsn::ZERO));
        let learnt = |desk: &Desk| desk.under_way.borrow().next(0).unwrap_or(desk.queue.len());
        let keys: Vec<[u8; 4]> = (0..3 * UNKNOWN_MAX).map(|key| u32::try_from(key).unwrap().to_be_bytes()).collect();
        let ends = |desk: &Desk, key: usize| desk.on_its_way(0, &keys[key]).map(|way| way.end.0);
        let stage = |desk: &mut Desk, end: u64, keys: &[[u8; 4]]| {
            desk.stage(staged(end, &keys.iter().map(<[u8; 4]>::as_slice).collect::<Vec<_>>()));
        };
        // Published before anybody asks.
        stage(&mut desk, 10, &keys[..7]);
        assert_eq!((learnt(&desk), desk.ready(Lsn(10)).is_some()), (0, true));
        assert!(desk.under_way.borrow().is_empty());
        for entry in 0..UNKNOWN_MAX / 4 {
            stage(&mut desk, 20 + 10 * u64::try_from(entry).unwrap(), &keys[4 * entry..4 * entry + 4]);
        }
        assert_eq!(learnt(&desk), 0, "as many as may be unknown");
        stage(&mut desk, 1 << 20, &keys[2 * UNKNOWN_MAX..2 * UNKNOWN_MAX + 1]);
        assert_eq!(learnt(&desk), 1, "one beyond");
        stage(&mut desk, 2 << 20, &keys[..2 * UNKNOWN_MAX]);
        assert_eq!(learnt(&desk), desk.queue.len(), "one alone that is longer");
        assert_eq!(
            [0, 2 * UNKNOWN_MAX, 2 * UNKNOWN_MAX + 1].map(|key| ends(&desk, key)),
            [Some(2 << 20), Some(1 << 20), None]
        );
        // Known or not, what is published is gone.
        stage(&mut desk, 3 << 20, &keys[5..6]);
        assert_eq!(ends(&desk, 5), Some(3 << 20));
        stage(&mut desk, 4 << 20, &keys[5..7]);
        while desk.ready(Lsn(3 << 20)).is_some() {}
        assert_eq!((learnt(&desk), desk.queue.len()), (0, 1));
        assert_eq!([4, 5, 6].map(|key| ends(&desk, key)), [None, Some(4 << 20), Some(4 << 20)]);
        assert!(desk.ready(Lsn(4 << 20)).is_some() && desk.under_way.borrow().is_empty());
    }
}
