//! The key-value store served: branch verbs, reads, writes.
//!
//! Walk: [`step`] begins what must be durable and owes the answer; reads are answered at once. The store is passive: it
//! knows no coordinator, and a branch belongs to the connection that started it only until it is prepared. What meets a key of a
//! prepared branch is refused, or kept for a while and stepped again ([`crate::deferred`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_kv::{Claim, Durability, Kv, KvError, Lease, Place, Snapshot};
use assent_wire::{
    Answer, Condition, Expect, Expected, KeyspaceQuery, Native, Op, Past, Reply, Request, Write, WriteIf,
};
use assent_world::stop::{self, Stop};
use assent_xa::Vote;

use crate::deferred::Waits;
use crate::inquiry::{self, Inquiry};
use crate::objects;
use crate::owed::Due;
use crate::range;
use crate::role::{Role, Visit};

/// Whether a store takes this request at all.
pub(crate) const fn knows(request: &Request<'_>) -> bool {
    use Request as R;
    matches!(
        request,
        R::Start(_)
            | R::End { .. }
            | R::Prepare(_)
            | R::Commit(_)
            | R::CommitOnePhase(_)
            | R::Rollback(_)
            | R::Recover(_)
            | R::Forget(_)
            | R::Claim(_)
            | R::Inquire { .. }
            | R::Get { .. }
            | R::Write(_)
            | R::Scan(_)
            | R::Look(_)
            | R::Rows(_)
            | R::WriteIf(_)
            | R::Expect(_)
            | R::Patience(_)
            | R::AsOf(_)
            | R::KeyspaceCreate(_)
            | R::KeyspaceDrop(_)
            | R::Keyspaces(_)
            | R::StoreVerify
            | R::StoreCompact
    )
}

/// What a connection to the store has of it.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// Its branches, from their start until they are finished here.
    pub(crate) branches: BTreeSet<Xid>,
    /// For how long its writes and votes wait for keys that prepared branches hold.
    pub(crate) patience: Duration,
    /// As of when it reads, if not as of each request.
    as_of: Option<Lease>,
    /// The node whose branches it resolves.
    claim: Option<Claim>,
}

impl Seat {
    pub(crate) const fn has_claim(&self) -> bool {
        self.claim.is_some()
    }

    /// What it has asked to read, outside of branches.
    pub(crate) fn kept(&self) -> Result<Option<Arc<Snapshot>>, KvError> {
        self.as_of.as_ref().map(Lease::look).transpose()
    }
}

pub(crate) fn step(visit: &mut Visit<'_>, request: Request<'_>) {
    let Some(kv) = &visit.shared.kv else { return };
    match request {
        Request::Start(xid) => start(visit, kv, xid),
        Request::End { xid, success } => branch(visit, kv.end(&xid, success).map(|()| Reply::Done), false),
        Request::Recover(node) => branch(visit, Ok(Reply::Listed(kv.recover(node))), false),
        Request::Claim(node) => claim(visit, kv, node),
        Request::Inquire { xid, witness } => inquire(visit, kv, &xid, witness),
        // This store never finishes a branch on its own, so there is nothing to forget.
        Request::Forget(xid) => branch(visit, Err(KvError::Unknown { xid: Box::new(xid) }), false),
        Request::Prepare(xid) => prepare(visit, kv, xid),
        Request::Commit(xid) => {
            // Decided: it waits for nobody.
            commit(visit, xid, None, |_| kv.commit_begin(&xid));
        }
        Request::CommitOnePhase(xid) => {
            let waits = visit.waits_for(kv);
            commit(visit, xid, Some(waits), |place| kv.commit_one_phase_begin_at(place, &xid));
        }
        Request::Rollback(xid) => rollback(visit, kv, xid),
        Request::Get { xid, keyspace, key } => objects::get(visit, kv, xid.as_ref(), keyspace, key),
        Request::Look(look) => objects::look(visit, kv, &look),
        Request::Rows(rows) => objects::rows(visit, kv, &rows),
        Request::Write(write) => self::write(visit, kv, &write),
        Request::WriteIf(write) => write_if(visit, kv, &write),
        Request::Expect(expected) => expect(visit, kv, &expected),
        Request::Patience(ms) => be_patient(visit, ms),
        Request::AsOf(ms) => as_of(visit, kv, ms),
        Request::KeyspaceCreate(name) => inquiry::ask_store(visit, Inquiry::Create(name.to_owned())),
        Request::KeyspaceDrop(name) => inquiry::ask_store(visit, Inquiry::Drop(name.to_owned())),
        Request::StoreVerify => inquiry::ask_chore(visit, Inquiry::Check),
        Request::StoreCompact => inquiry::ask_chore(visit, Inquiry::Compact),
        Request::Keyspaces(KeyspaceQuery { name, after }) => {
            let (name, after) = (name.map(str::to_owned), after.map(str::to_owned));
            inquiry::ask_store(visit, Inquiry::Keyspaces { name, after });
        }
        Request::Scan(scan) => range::scan(visit, kv, &scan),
        // `knows` is the list of the above.
        _ => {}
    }
}

fn start(visit: &mut Visit<'_>, kv: &Kv, xid: Xid) {
    if visit.shared.drain.until().is_some() {
        let message = "this server is stopping and starts no branch";
        let native = Native { code: Kind::Unavailable.name(), message };
        return visit.answer(&Answer::Branch(Reply::Refused(Kind::Unavailable, native)));
    }
    let started = kv.start(&xid);
    if let (Ok(()), Role::Store(seat)) = (&started, &mut visit.connection.role) {
        seat.branches.insert(xid);
    }
    branch(visit, started.map(|()| Reply::Done), false);
}

/// The claim is the connection's, and goes with it: when it ends, or has been silent for too long.
fn claim(visit: &mut Visit<'_>, kv: &Kv, node: NodeId) {
    let Role::Store(seat) = &mut visit.connection.role else { return };
    let claimed = match &seat.claim {
        Some(claim) if claim.node() == node => Ok(()),
        _ => kv.claim(node).map(|claim| seat.claim = Some(claim)),
    };
    branch(visit, claimed.map(|()| Reply::Done), false);
}

fn inquire(visit: &mut Visit<'_>, kv: &Kv, xid: &Xid, witness: &[u8]) {
    use assent_xa::Past as Is;
    let past = kv.inquire(xid, witness);
    let past = match &past {
        Is::Committed => Past::Committed,
        Is::RolledBack => Past::RolledBack,
        Is::Open => Past::Open,
        Is::Forgotten => Past::Forgotten,
        Is::Elsewhere(native) => Past::Elsewhere(Native { code: &native.code, message: &native.message }),
    };
    visit.answer(&Answer::Branch(Reply::Past(past)));
}

fn prepare(visit: &mut Visit<'_>, kv: &Kv, xid: Xid) {
    if !visit.has_room() {
        return;
    }
    stop::about(Stop::StoreBeforePrepare, || xid);
    let mut waits = visit.waits_for(kv);
    match kv.prepare_begin_at(&mut waits.place, &xid) {
        Ok(voted) if voted.vote == Vote::ReadOnly => {
            // Nothing was written, and the branch is gone. There is something to wait for if it had conditions.
            forget(visit, xid);
            if voted.pending.lsn().is_some() {
                return visit.owe(Due::ReadOnly(voted.pending, xid));
            }
            stop::about(Stop::StoreAfterPrepare, || xid);
            visit.answer(&Answer::Branch(Reply::ReadOnly));
        }
        Ok(voted) => visit.owe(Due::Vote(voted.pending, xid)),
        Err(error) if waits.place.waits_for(&error) => visit.defer(waits),
        Err(error) => {
            if matches!(error.kind(), Kind::Conflict | Kind::RolledBack) {
                forget(visit, xid);
            }
            branch(visit, Err(error), true);
        }
    }
}

fn commit(
    visit: &mut Visit<'_>,
    xid: Xid,
    one_phase: Option<Waits>,
    begin: impl FnOnce(&mut Place) -> Result<assent_kv::Pending, KvError>,
) {
    if !visit.has_room() {
        return;
    }
    stop::about(Stop::StoreBeforeCommit, || xid);
    let is_one_phase = one_phase.is_some();
    let mut waits = one_phase.unwrap_or_else(Waits::never);
    match begin(&mut waits.place) {
        Ok(pending) => {
            forget(visit, xid);
            owe(visit, pending, Due::Committed(pending, xid));
        }
        Err(error) if waits.place.waits_for(&error) => visit.defer(waits),
        Err(error) => {
            // Another connection, or the agent, may have ended it.
            let is_gone = error.kind() == Kind::NotFound;
            if is_gone || is_one_phase && matches!(error.kind(), Kind::Conflict | Kind::RolledBack) {
                forget(visit, xid);
            }
            branch(visit, Err(error), is_one_phase);
        }
    }
}

fn rollback(visit: &mut Visit<'_>, kv: &Kv, xid: Xid) {
    if !visit.has_room() {
        return;
    }
    match kv.rollback_begin(&xid) {
        Ok(pending) => {
            forget(visit, xid);
            owe(visit, pending, Due::RolledBack(pending));
        }
        Err(error) => {
            if error.kind() == Kind::NotFound {
                forget(visit, xid);
            }
            branch(visit, Err(error), false);
        }
    }
}

/// Answers at the end of the turn, or at once where nothing was written and so nothing is waited for.
fn owe(visit: &mut Visit<'_>, pending: assent_kv::Pending, due: Due) {
    if pending.lsn().is_some() {
        visit.owe(due);
    } else {
        visit.answer(&Answer::Branch(Reply::Done));
    }
}

/// The branch has left this connection's care.
fn forget(visit: &mut Visit<'_>, xid: Xid) {
    if let Role::Store(seat) = &mut visit.connection.role {
        seat.branches.remove(&xid);
    }
}

/// Answers a verb. `ends`: it was prepare or one phase, where another writer's win means that the branch is gone.
fn branch(visit: &mut Visit<'_>, done: Result<Reply<'static>, KvError>, ends: bool) {
    match done {
        Ok(reply) => visit.answer(&Answer::Branch(reply)),
        Err(error) => {
            let (kind, message) = (error.kind(), error.to_string());
            visit.refused(kind);
            let native = Native { code: kind.name(), message: &message };
            let reply = match kind {
                Kind::NotFound => Reply::Unknown(native),
                Kind::RolledBack => Reply::RolledBack(native),
                Kind::Conflict if ends => Reply::RolledBack(native),
                kind => Reply::Refused(kind, native),
            };
            visit.answer(&Answer::Branch(reply));
        }
    }
}

fn refuse(visit: &mut Visit<'_>, error: &KvError) {
    visit.error(error.kind(), &error.to_string());
}

fn write(visit: &mut Visit<'_>, kv: &Kv, write: &Write<'_>) {
    let ops: Vec<assent_kv::Op<'_>> = write.ops.iter().copied().map(op).collect();
    if let Some(xid) = &write.xid {
        // One after the other: a branch that is refused one of them has those before it, and can be rolled back.
        return match ops.iter().try_for_each(|op| kv.branch_write(xid, op)) {
            Ok(()) => visit.answer(&Answer::Written(assent_ids::Lsn::ZERO)),
            Err(error) => refuse(visit, &error),
        };
    }
    if !visit.has_room() {
        return;
    }
    let durability = if write.durable { Durability::Durable } else { Durability::Buffered };
    let mut waits = visit.waits_for(kv);
    match kv.batch_begin_at(&mut waits.place, &ops, durability) {
        Ok(pending) => visit.owe(Due::Write(pending)),
        Err(error) if waits.place.waits_for(&error) => visit.defer(waits),
        Err(error) => refuse(visit, &error),
    }
}

fn write_if(visit: &mut Visit<'_>, kv: &Kv, write: &WriteIf<'_>) {
    if !visit.has_room() {
        return;
    }
    let ops: Vec<assent_kv::Op<'_>> = write.ops.iter().copied().map(op).collect();
    let conditions: Vec<assent_kv::Condition<'_>> = write.conditions.iter().copied().map(condition).collect();
    let durability = if write.durable { Durability::Durable } else { Durability::Buffered };
    let mut waits = visit.waits_for(kv);
    match kv.batch_if_begin_at(&mut waits.place, &conditions, &ops, durability) {
        // Also one that does not hold: what it tells of must be visible first.
        Ok(judged) => visit.owe(Due::Judged(judged)),
        Err(error) if waits.place.waits_for(&error) => visit.defer(waits),
        Err(error) => refuse(visit, &error),
    }
}

/// From now on, for this connection.
fn be_patient(visit: &mut Visit<'_>, ms: u32) {
    if let Role::Store(seat) = &mut visit.connection.role {
        seat.patience = Duration::from_millis(ms.into());
    }
    visit.answer(&Answer::Pong);
}

fn as_of(visit: &mut Visit<'_>, kv: &Kv, ms: u32) {
    let lease = (ms > 0).then(|| kv.lease(Duration::from_millis(ms.into())));
    let place = lease.as_ref().map_or_else(|| kv.snapshot().lsn(), Lease::at);
    if let Role::Store(seat) = &mut visit.connection.role {
        seat.as_of = lease;
    }
    visit.answer(&Answer::Written(place));
}

/// One after the other, as writes within a branch: whether they hold its vote says.
fn expect(visit: &mut Visit<'_>, kv: &Kv, Expected { xid, conditions }: &Expected<'_>) {
    match conditions.iter().copied().map(condition).try_for_each(|condition| kv.branch_expect(xid, condition)) {
        Ok(()) => visit.answer(&Answer::Written(assent_ids::Lsn::ZERO)),
        Err(error) => refuse(visit, &error),
    }
}

const fn condition(condition: Condition<'_>) -> assent_kv::Condition<'_> {
    let expects = match condition.expects {
        Expect::Absent => assent_kv::Expect::Absent,
        Expect::Present => assent_kv::Expect::Present,
        Expect::At(lsn) => assent_kv::Expect::At(lsn),
    };
    assent_kv::Condition::new(condition.keyspace, condition.key, expects)
}

const fn op<'a>(op: Op<'a>) -> assent_kv::Op<'a> {
    match op {
        Op::Put { keyspace, key, value } => assent_kv::Op::put(keyspace, key, value),
        Op::Set { keyspace, key, metadata, expiry_ms: expiry, value } => {
            assent_kv::Op::Put { keyspace, key, metadata, value, expiry }
        }
        Op::Delete { keyspace, key } => assent_kv::Op::delete(keyspace, key),
        Op::Erase { keyspace, from, to } => assent_kv::Op::Erase { keyspace, from, to },
    }
}
