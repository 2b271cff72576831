//! Transaction branches: the verbs of XA over the store.
//!
//! Walk: [`Kv::start`] · reads see the snapshot of the first read and the branch's own writes · [`Kv::end`] ·
//! [`Kv::prepare_begin`] checks that nobody was first, appends everything in one entry and holds the keys ·
//! [`Kv::commit_begin`] or [`Kv::rollback_begin`] append the outcome · [`Kv::wait`] for each of the three: votes and
//! outcomes are durable in every policy. One phase is one batch.
//! A branch that never read has no snapshot: its writes win over whatever was there, unless a prepared branch holds a
//! key. The last writer of such a key wins, as with plain writes.

use std::ops::Bound;
use std::sync::Arc;

use assent_ids::{Branch as Ours, Lsn, NodeId, Xid};
use assent_journal::Ticket;
use assent_kind::Kind;
use assent_xa::{Past, Vote};

use crate::branch::{Branch, Ending, Phase, Put, Work};
use crate::config::ROW_BYTES;
use crate::desk::{Desk, Staged, Turn};
use crate::error::{rows_fit, within};
use crate::finished::{Voucher, witness};
use crate::keyed::Key;
use crate::lease::Lease;
use crate::line::Place;
use crate::op::{Durability, Op};
use crate::record::{self, Effects, KIND_BATCH, KIND_COMMIT, KIND_PREPARE, KIND_ROLLBACK, Laid};
use crate::snapshot::{Bounds, Found, Most, Own, Page, Rows, Snapshot};
use crate::time::is_over;
use crate::{Kv, KvError, Pending};

/// A vote that holds once it was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voted {
    /// What the branch will do.
    pub vote: Vote,
    /// Wait for this before the vote is told.
    pub pending: Pending,
}

/// What a branch comes with to its end.
enum Admitted {
    /// To be appended.
    Work(Work),
    /// Nothing, and what has to be waited for before that is told.
    Nothing(Pending),
}

/// A branch's own word on a key, or the snapshot that has it.
#[derive(Debug)]
pub enum InBranch {
    /// It wrote the key, or removed it.
    Own(Option<Found>),
    /// It did neither, and sees what stands here.
    Before(Arc<Snapshot>),
}

impl Kv {
    /// Begins a branch.
    ///
    /// # Errors
    /// `Conflict` if the XID is known, `Busy` if `branches_max` are.
    pub fn start(&self, xid: &Xid) -> Result<(), KvError> {
        self.refuse_read_only()?;
        let mut desk = self.desk();
        if desk.branches.contains_key(xid) {
            return Err(KvError::Known { xid: Box::new(*xid) });
        }
        let limit = self.config.branches_max;
        if u32::try_from(desk.branches.len()).map_or(true, |open| open >= limit) {
            return Err(KvError::Busy { what: "branches", limit: limit.into() });
        }
        desk.branches.insert(*xid, Branch::Working(Work::new()));
        Ok(())
    }

    /// The value of a key within a branch: its own write, else as of its snapshot.
    ///
    /// # Errors
    /// `NotFound` for an unknown branch, `Invalid` for one that is not active, `Corrupt` as [`Kv::get`].
    pub fn branch_get(&self, xid: &Xid, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.branch_entry(xid, keyspace, key)?.map(|found| found.value))
    }

    /// As [`Kv::branch_get`], with the metadata. A value of the branch's own has no place yet: its LSN is zero.
    ///
    /// # Errors
    /// As [`Kv::branch_get`].
    pub fn branch_entry(&self, xid: &Xid, keyspace: u32, key: &[u8]) -> Result<Option<Found>, KvError> {
        match self.branch_look(xid, keyspace, key)? {
            InBranch::Own(found) => Ok(found),
            InBranch::Before(snapshot) => snapshot.entry(keyspace, key),
        }
    }

    /// What a branch itself made of a key, else where it looks for it: for somebody who may not read for long, or wants to read elsewhere.
    ///
    /// # Errors
    /// As [`Kv::branch_get`]; no value is read.
    pub fn branch_look(&self, xid: &Xid, keyspace: u32, key: &[u8]) -> Result<InBranch, KvError> {
        let lives = |expiry| expiry == 0 || !is_over(expiry, self.shared.time.now_ms());
        let view = {
            let mut desk = self.desk();
            let work = active(&mut desk, xid, "a read")?;
            if let Some(own) = work.writes.get(keyspace, key) {
                let put = own.as_ref().filter(|put| lives(put.expiry));
                return Ok(InBranch::Own(put.map(|Put { value, metadata, expiry }| Found {
                    value: value.clone(),
                    metadata: metadata.clone(),
                    lsn: Lsn::ZERO,
                    committed: Lsn::ZERO,
                    modified: 0,
                    expiry: *expiry,
                })));
            }
            self.view(work)
        };
        view.look().map(InBranch::Before)
    }

    /// A range within a branch: as of its snapshot, its own writes laid over it.
    ///
    /// # Errors
    /// As [`Kv::branch_get`]; [`KvError::Size`] as [`crate::Snapshot::scan`].
    pub fn branch_scan(
        &self,
        xid: &Xid,
        keyspace: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Rows, KvError> {
        let (view, own) = self.branch_range(xid, keyspace, (from, to), (limit, u64::MAX))?;
        view.look()?.scan_over(keyspace, (from, to), limit, own)
    }

    /// As many rows of a range within a branch as that, as [`crate::Snapshot::page`]; it steps over all dead keys.
    ///
    /// # Errors
    /// As [`Kv::branch_get`]; [`KvError::Size`] if the first row alone is more.
    pub fn branch_page(
        &self,
        xid: &Xid,
        keyspace: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        most: Most,
    ) -> Result<Page, KvError> {
        let (view, own) = self.branch_range(xid, keyspace, (from, to), (most.rows.saturating_add(1), most.bytes))?;
        let mut passes = u64::MAX;
        view.look()?.page_over(keyspace, (from, to), most, own, &mut passes)
    }

    /// What a branch looks from, and of what it wrote itself so many puts and bytes of a range, or one more.
    fn branch_range(
        &self,
        xid: &Xid,
        keyspace: u32,
        bounds: Bounds<'_>,
        most: (usize, u64),
    ) -> Result<(Arc<Lease>, Vec<Own>), KvError> {
        let mut desk = self.desk();
        let work = active(&mut desk, xid, "a scan")?;
        let now = self.shared.time.now_ms();
        Ok((self.view(work), work.own(keyspace, bounds, most, now)))
    }

    fn view(&self, work: &mut Work) -> Arc<Lease> {
        Arc::clone(work.snapshot.get_or_insert_with(|| Arc::new(self.branch_lease())))
    }

    /// Sets a key within a branch. Kept in memory until it is prepared.
    ///
    /// # Errors
    /// As [`Kv::branch_write`].
    pub fn branch_put(&self, xid: &Xid, keyspace: u32, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.branch_write(xid, &Op::put(keyspace, key, value))
    }

    /// Removes a key within a branch.
    ///
    /// # Errors
    /// As [`Kv::branch_write`].
    pub fn branch_delete(&self, xid: &Xid, keyspace: u32, key: &[u8]) -> Result<(), KvError> {
        self.branch_write(xid, &Op::delete(keyspace, key))
    }

    /// One write within a branch.
    ///
    /// # Errors
    /// `NotFound` for an unknown branch; `Invalid` for one that is not active, for an erase or a size beyond a limit; `Busy` if
    /// all branches together keep too much. The branch is as it was.
    pub fn branch_write(&self, xid: &Xid, op: &Op<'_>) -> Result<(), KvError> {
        self.check(op)?;
        if matches!(op, Op::Erase { .. }) {
            return Err(KvError::Unbranched { verb: "an erase" });
        }
        let mut desk = self.desk();
        let all = desk.bytes;
        let work = active(&mut desk, xid, "a write")?;
        let bytes = work.bytes_with(op);
        within("branch", bytes, self.config.branch_bytes_max.into())?;
        let (keyspace, key) = op.key();
        let row = if work.writes.get(keyspace, key).is_some() { 0 } else { ROW_BYTES };
        let all = all.saturating_sub(work.bytes).saturating_add(bytes).saturating_add(row);
        if all > self.config.branches_bytes_max {
            return Err(KvError::Busy { what: "bytes of open branches", limit: self.config.branches_bytes_max });
        }
        work.write(op);
        desk.bytes = all;
        Ok(())
    }

    /// The work of a branch is done; without success it can only be rolled back.
    ///
    /// # Errors
    /// `NotFound` for an unknown branch, `Invalid` for one that is not active.
    pub fn end(&self, xid: &Xid, success: bool) -> Result<(), KvError> {
        active(&mut self.desk(), xid, "end")?.phase = if success { Phase::Ended } else { Phase::Failed };
        Ok(())
    }

    /// Votes. Nothing written: `ReadOnly`, and the branch is gone; if it had conditions, what they hold by is waited for. Otherwise
    /// everything it wrote is appended and its keys are held, through any crash, until it is told its outcome.
    ///
    /// # Errors
    /// `Conflict` (somebody was first, or a keyspace was dropped) or `RolledBack` (its work had failed): the branch is rolled back and gone.
    /// `NotFound` or `Invalid`: it is unknown or was not ended. `Busy`, `Full`, `Closed`: it is as it was.
    pub fn prepare_begin(&self, xid: &Xid) -> Result<Voted, KvError> {
        self.prepare_begin_at(&mut Place::nowhere(), xid)
    }

    /// As [`Kv::prepare_begin`], of somebody who may wait for what prepared branches hold ([`Kv::patiently`]).
    ///
    /// # Errors
    /// As [`Kv::prepare_begin`]. While it waits ([`Place::waits_for`]) the branch is as it was.
    pub fn prepare_begin_at(&self, place: &mut Place, xid: &Xid) -> Result<Voted, KvError> {
        self.look_ahead(xid, place, true)?;
        let mut desk = self.writer()?;
        let work = match self.admit(&mut desk, xid, ("prepare", true), place)? {
            Admitted::Work(work) => work,
            Admitted::Nothing(pending) => return Ok(Voted { vote: Vote::ReadOnly, pending }),
        };
        let rows_bytes = work.ops().iter().map(Op::row_bytes).sum();
        if let Err(error) = rows_fit(&work.ops()).and_then(|()| desk.has_room_to_prepare(rows_bytes)) {
            desk.keep(*xid, work);
            return Err(error);
        }
        let (ticket, effects) = {
            let ops = work.ops();
            let laid = Laid::prepare(
                &ops,
                xid,
                work.snapshot.as_ref().and_then(|lease| lease.lsn().ok()),
                self.shared.time.now_ms(),
            );
            let room = self.leaves(&desk, &ops, 1);
            let appended = self.appended(self.shared.log.append_leaving(KIND_PREPARE, &laid.parts(&ops), room));
            match appended {
                Ok(ticket) => (ticket, laid.placed(ticket.lsn)),
                Err(error) => {
                    drop(ops);
                    desk.keep(*xid, work);
                    return Err(error.into());
                }
            }
        };
        desk.hold(*xid, &effects);
        desk.branches.insert(*xid, Branch::Prepared { entry: ticket.lsn, effects: effects.into_vec(), listed: false });
        desk.stage(Staged {
            ticket,
            durability: Durability::Durable,
            effects: Effects::new(),
            turn: Turn::Prepared(*xid),
        });
        Ok(Voted { vote: Vote::Yes, pending: Pending::durable(ticket) })
    }

    /// The only branch of a transaction decides for itself: one batch.
    ///
    /// # Errors
    /// As [`Kv::prepare_begin`].
    pub fn commit_one_phase_begin(&self, xid: &Xid) -> Result<Pending, KvError> {
        self.commit_one_phase_begin_at(&mut Place::nowhere(), xid)
    }

    /// As [`Kv::commit_one_phase_begin`], of somebody who may wait for what prepared branches hold ([`Kv::patiently`]).
    ///
    /// # Errors
    /// As [`Kv::prepare_begin_at`].
    pub fn commit_one_phase_begin_at(&self, place: &mut Place, xid: &Xid) -> Result<Pending, KvError> {
        self.look_ahead(xid, place, false)?;
        let mut desk = self.writer()?;
        if let Some(Branch::Finishing { ticket, ending: Ending::Commit, prepare: None, .. }) = desk.branches.get(xid) {
            return Ok(Pending::durable(*ticket));
        }
        let work = match self.admit(&mut desk, xid, ("commit in one phase", false), place)? {
            Admitted::Work(work) => work,
            Admitted::Nothing(pending) => return Ok(pending),
        };
        if let Err(error) = rows_fit(&work.ops()) {
            desk.keep(*xid, work);
            return Err(error);
        }
        let (ticket, effects) = {
            let ops = work.ops();
            let laid = Laid::batch(&ops, Durability::Durable, self.shared.time.now_ms());
            let room = self.leaves(&desk, &ops, 0);
            let appended = self.appended(self.shared.log.append_leaving(KIND_BATCH, &laid.parts(&ops), room));
            match appended {
                Ok(ticket) => (ticket, laid.placed(ticket.lsn)),
                Err(error) => {
                    drop(ops);
                    desk.keep(*xid, work);
                    return Err(error.into());
                }
            }
        };
        let finishing = Branch::Finishing { ticket, ending: Ending::Commit, prepare: None, listed: false };
        desk.branches.insert(*xid, finishing);
        desk.stage(Staged { ticket, durability: Durability::Durable, effects, turn: Turn::Finished(*xid) });
        Ok(Pending::durable(ticket))
    }

    /// Takes the work of an ended branch out if it may commit.
    fn admit(
        &self,
        desk: &mut Desk,
        xid: &Xid,
        (verb, holds): (&'static str, bool),
        place: &mut Place,
    ) -> Result<Admitted, KvError> {
        let work = match desk.branch(xid)? {
            Branch::Working(work) if work.phase != Phase::Open => work,
            branch => return Err(branch.refuse(*xid, verb)),
        };
        if work.phase == Phase::Failed {
            desk.take(xid);
            return Err(KvError::RolledBack { xid: Box::new(*xid) });
        }
        let Some(work) = desk.take(xid) else { return Err(KvError::Unknown { xid: Box::new(*xid) }) };
        let ledger = &self.shared.ledger;
        let dropped = desk.refuse_dropped(work.each());
        let held = dropped.and_then(|()| desk.refuse_held(work.each(), place, holds));
        let newer = held.and_then(|()| desk.refuse_newer(&work, ledger));
        match newer.and_then(|()| desk.refuse_unmet(&work, ledger, self.shared.time.now_ms(), place)) {
            Ok(()) if work.writes.is_empty() => {
                Ok(Admitted::Nothing(if work.conditions.is_empty() { Pending::NOTHING } else { self.all_so_far() }))
            }
            Ok(()) => Ok(Admitted::Work(work)),
            // A conflict is the end of the branch: its work is dropped here.
            Err(error) if error.kind() == Kind::Conflict && !place.waits_for(&error) => Err(error),
            Err(error) => {
                desk.keep(*xid, work);
                Err(error)
            }
        }
    }

    /// Everything that the log has so far, durable. A condition may hold by any of it, or by its not being there any more, and others commit
    /// because it held: what is appended behind it says so for itself, a branch that appends nothing has to wait.
    fn all_so_far(&self) -> Pending {
        let end = self.shared.log.end();
        if self.shared.log.durable() >= end { Pending::NOTHING } else { Pending::durable(Ticket { lsn: end, end }) }
    }

    /// Looks for the rows that a vote compares before anybody has to wait for it: under the desk's lock they are in memory
    /// then. Not for one who has waited and has to wait on, which he is asked first.
    fn look_ahead(&self, xid: &Xid, place: &mut Place, holds: bool) -> Result<(), KvError> {
        let (snapshot, keys) = {
            let desk = self.desk();
            let Some(Branch::Working(work)) = desk.branches.get(xid) else { return Ok(()) };
            if place.id().is_some() && work.phase == Phase::Ended {
                desk.refuse_held(work.each(), place, holds)?;
            }
            let expected = work.expected().map(|(keyspace, key)| (keyspace, key.clone()));
            let written = work.writes.iter().filter(|_| work.snapshot.is_some());
            let keys: Vec<(u32, Key)> =
                written.map(|(keyspace, key, _)| (keyspace, key.clone())).chain(expected).collect();
            (work.snapshot.clone(), keys)
        };
        // One that was ended has nothing to look at: the vote says so.
        if let Some(snapshot) = snapshot.and_then(|lease| lease.look().ok()) {
            for (keyspace, key) in &keys {
                snapshot.written(*keyspace, key)?;
            }
        }
        self.look_at(keys.iter().map(|(keyspace, key)| (*keyspace, &**key)))
    }

    /// Commits a prepared branch.
    ///
    /// # Errors
    /// `NotFound` for an unknown branch, `Invalid` for one that is not prepared; `Busy`, `Closed`: it is as it was. Not `Full`, unless the
    /// disk was full when the store was opened: room for the outcomes of all prepared branches is kept.
    pub fn commit_begin(&self, xid: &Xid) -> Result<Pending, KvError> {
        self.finish(xid, Ending::Commit)
    }

    /// Rolls a branch back, prepared or not. An unprepared one is gone at once, a prepared one once this is durable.
    ///
    /// # Errors
    /// As [`Kv::commit_begin`]; `Invalid` for one that is being committed.
    pub fn rollback_begin(&self, xid: &Xid) -> Result<Pending, KvError> {
        self.finish(xid, Ending::Rollback)
    }

    fn finish(&self, xid: &Xid, wanted: Ending) -> Result<Pending, KvError> {
        // What was never appended needs no room to go.
        if wanted == Ending::Rollback && !self.read_only && self.desk().take(xid).is_some() {
            return Ok(Pending::NOTHING);
        }
        let mut desk = self.finisher()?;
        let (kind, verb) = match wanted {
            Ending::Commit => (KIND_COMMIT, "commit"),
            Ending::Rollback => (KIND_ROLLBACK, "rollback"),
        };
        let entry = match desk.branch(xid)? {
            Branch::Prepared { entry, .. } => *entry,
            // Asked again: the answer is that of the first time.
            Branch::Finishing { ticket, ending, prepare: Some(_), .. } if *ending == wanted => {
                return Ok(Pending::durable(*ticket));
            }
            branch => return Err(branch.refuse(*xid, verb)),
        };
        // POINT OF NO RETURN for a commit: once this record is durable, we only ever complete.
        let ticket = self.appended(self.shared.log.append(kind, &[&record::outcome(xid, entry)]))?;
        let effects = desk.finish(xid, ticket, wanted);
        let effects = if wanted == Ending::Commit { Effects::from_vec(effects) } else { Effects::new() };
        desk.stage(Staged { ticket, durability: Durability::Durable, effects, turn: Turn::Finished(*xid) });
        Ok(Pending::durable(ticket))
    }

    /// The owner's connection ended: an unprepared branch is dropped, a prepared one stays.
    pub fn abandon(&self, xid: &Xid) {
        self.desk().take(xid);
    }

    /// Prepared branches of one coordinator's node.
    #[must_use]
    pub fn recover(&self, node: NodeId) -> Vec<Xid> {
        let prefix = Ours::prefix(node);
        self.prepared().into_iter().filter(|xid| xid.gtrid().starts_with(&prefix) && xid.branch().is_some()).collect()
    }

    /// What became of a branch that is not listed, as far as the latest finished ones tell. `witness`: what
    /// [`Kv::witness`] gave when it voted, or empty.
    #[must_use]
    pub fn inquire(&self, xid: &Xid, witness: &[u8]) -> Past {
        let desk = self.desk();
        let is_here = desk.branches.contains_key(xid);
        desk.finished.became(xid, &Voucher::read(witness), self.config.store, is_here, self.shared.log.end())
    }

    /// What a vote of yes leaves with the coordinator: which store voted, and where in its journal.
    #[must_use]
    pub fn witness(&self, vote: Pending) -> Vec<u8> {
        vote.ticket.map_or_else(Vec::new, |ticket| witness(self.config.store, ticket.lsn))
    }

    /// All prepared branches: those whose vote is durable and whose outcome is not.
    #[must_use]
    pub fn prepared(&self) -> Vec<Xid> {
        self.desk().prepared().map(|(xid, _)| xid).collect()
    }
}

/// The work of a branch that goes on.
pub(crate) fn active<'a>(desk: &'a mut Desk, xid: &Xid, verb: &'static str) -> Result<&'a mut Work, KvError> {
    match desk.branch(xid)? {
        Branch::Working(work) if work.phase != Phase::Open => {
            Err(KvError::State { xid: Box::new(*xid), state: work.phase.name(), verb })
        }
        Branch::Working(work) => Ok(work),
        branch => Err(branch.refuse(*xid, verb)),
    }
}
