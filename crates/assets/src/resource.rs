//! Assets as a resource manager of a transaction, in the same process.
//!
//! Walk: between start and end operations are collected, and nothing of them is anywhere else · prepare sends them as one command: the
//! vote · commit and rollback are commands too, and so is the commit of an only branch · `send` orders, `receive` confirms: so branches of
//! several stores share their time on disk.
//! Deliberately absent: reads within a branch, which would need a view of their own: results come with the vote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use assent_frame::Writer;
use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_membership::Sequence;
use assent_xa::{Connector, Native, Past, Reply, Resource, Verb, Vote};

use crate::answer::Answer;
use crate::branches::Known;
use crate::command::{Command, OPS_MAX, Op};
use crate::engine::{Engine, Ordered};
use crate::error::AssetsError;
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::trace::Trace;

/// Which coordinators' branches are being resolved here: one connection for each. It is gone with the process, as connections are.
pub(crate) type Claims = Arc<Mutex<BTreeSet<NodeId>>>;

/// What a branch is before its vote.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    pub(crate) ops: Vec<Op>,
    /// `xa_end` with TMFAIL: it can only be rolled back.
    pub(crate) failed: bool,
}

/// A connection to assets in this process. Dropping it drops its branches that are not prepared, and its claim.
pub struct AssetsResource {
    name: String,
    engine: Arc<Engine>,
    current: Option<Xid>,
    begun: BTreeMap<Xid, Begun>,
    answer: Option<(Option<Ordered>, Reply)>,
    /// Of the last vote of yes: the command that it was.
    witness: Vec<u8>,
    claim: Option<NodeId>,
}

impl AssetsResource {
    /// A connection under the registered name.
    #[must_use]
    pub fn new(name: &str, engine: Arc<Engine>) -> Self {
        let (begun, witness) = (BTreeMap::new(), Vec::new());
        Self { name: name.to_owned(), engine, current: None, begun, answer: None, witness, claim: None }
    }

    /// Adds an operation to the started branch. Whether it can be done is said by the vote.
    ///
    /// # Errors
    /// `Invalid` if no branch is started, `Full` beyond [`OPS_MAX`] operations.
    pub fn work(&mut self, op: Op) -> Result<(), (Kind, Native)> {
        let Some(work) = self.current.and_then(|xid| self.begun.get_mut(&xid)) else {
            return Err((Kind::Invalid, native(Kind::Invalid, "no branch is started on this connection".to_owned())));
        };
        if work.ops.len() >= OPS_MAX {
            return Err((Kind::Full, native(Kind::Full, format!("a branch has at most {OPS_MAX} operations"))));
        }
        work.ops.push(op);
        Ok(())
    }

    fn act(&mut self, verb: &Verb) -> (Option<Ordered>, Reply) {
        match verb {
            Verb::Start(xid) => self.start(*xid),
            Verb::End { xid, success } => {
                let Some(work) = self.begun.get_mut(xid) else { return unknown() };
                work.failed |= !success;
                self.current = self.current.filter(|current| current != xid);
                done()
            }
            Verb::Prepare(xid) => self.prepare(xid),
            Verb::CommitOnePhase(xid) => self.commit_one_phase(xid),
            Verb::Commit(xid) => self.outcome(xid, true),
            Verb::Rollback(xid) => match self.take(xid) {
                // Nothing of it is anywhere.
                Some(_) => done(),
                None => self.outcome(xid, false),
            },
            Verb::Recover(node) => {
                let ours = |xid: &Xid| xid.branch().is_some_and(|branch| branch.node == *node);
                let (durable, listed) = self.engine.look(Machine::in_doubt);
                (Some(durable), Reply::Listed(listed.iter().map(|one| one.xid).filter(ours).collect()))
            }
            Verb::Claim(node) => self.take_claim(*node),
            Verb::Inquire { xid, witness } => {
                let (durable, past) = self.engine.look(|machine| past(machine, xid, witness));
                (Some(durable), Reply::Past(past))
            }
            // Nothing keeps a prepared branch from its coordinator.
            Verb::Evict(_) | Verb::Freed { .. } => done(),
            Verb::CommitLast { .. } | Verb::Settle { .. } | Verb::Rows { .. } | Verb::Clear { .. } => {
                (None, Reply::without_rows())
            }
            // Assets never finish a branch on their own, so there is nothing to forget.
            Verb::Forget(_) => unknown(),
        }
    }

    fn start(&mut self, xid: Xid) -> (Option<Ordered>, Reply) {
        if self.begun.contains_key(&xid) || self.engine.look(|machine| machine.branch(&xid)).1 == Known::Prepared {
            return refused(Kind::Conflict, "a branch of this name is known already".to_owned());
        }
        self.begun.insert(xid, Begun::default());
        self.current = Some(xid);
        done()
    }

    /// The branch's work leaves this connection.
    fn take(&mut self, xid: &Xid) -> Option<Begun> {
        self.current = self.current.filter(|current| current != xid);
        self.begun.remove(xid)
    }

    fn prepare(&mut self, xid: &Xid) -> (Option<Ordered>, Reply) {
        let Some(Begun { ops, failed }) = self.take(xid) else { return unknown() };
        if failed {
            return (None, Reply::RolledBack(native(Kind::RolledBack, "its work had failed".to_owned())));
        }
        if ops.is_empty() {
            return (None, Reply::Vote(Vote::ReadOnly));
        }
        match self.ordered(|out| Command::lay_prepare(out, xid, &ops)) {
            Ok((ordered, Answer::Voted(_), place)) => {
                self.witness = place.to_le_bytes().to_vec();
                (Some(ordered), Reply::Vote(Vote::Yes))
            }
            Ok((ordered, Answer::ReadOnly(_), _)) => (Some(ordered), Reply::Vote(Vote::ReadOnly)),
            Ok((ordered, Answer::Refused { refusal, .. }, _)) => (Some(ordered), Reply::RolledBack(said(&refusal))),
            Ok((_, other, _)) => refused(Kind::Internal, format!("a vote was answered {other:?}")),
            Err(error) => (None, Reply::RolledBack(native(error.kind(), error.to_string()))),
        }
    }

    fn commit_one_phase(&mut self, xid: &Xid) -> (Option<Ordered>, Reply) {
        let Some(Begun { ops, failed }) = self.take(xid) else { return unknown() };
        if failed {
            return (None, Reply::RolledBack(native(Kind::RolledBack, "its work had failed".to_owned())));
        }
        if ops.is_empty() {
            return done();
        }
        match self.ordered(|out| Command::lay_batch(out, None, &ops)) {
            // DESIGN, 5: a branch's commit is durable in every policy.
            Ok((ordered, Answer::Done(_), _)) => (Some(ordered.durably()), Reply::Done),
            Ok((ordered, Answer::Refused { refusal, .. }, _)) => (Some(ordered), Reply::RolledBack(said(&refusal))),
            Ok((_, other, _)) => refused(Kind::Internal, format!("a commit was answered {other:?}")),
            Err(error) => (None, Reply::RolledBack(native(error.kind(), error.to_string()))),
        }
    }

    fn outcome(&self, xid: &Xid, committed: bool) -> (Option<Ordered>, Reply) {
        match self.ordered(|out| Command::lay_outcome(out, xid, committed)) {
            Ok((ordered, Answer::Done(_), _)) => (Some(ordered), Reply::Done),
            Ok((ordered, Answer::Refused { refusal: Refusal::BranchFinished { committed: false }, .. }, _)) => {
                (Some(ordered), Reply::RolledBack(said(&Refusal::BranchFinished { committed: false })))
            }
            Ok((ordered, Answer::Refused { refusal: Refusal::BranchUnknown, .. }, _)) => (Some(ordered), unknown().1),
            Ok((ordered, Answer::Refused { refusal, .. }, _)) => {
                (Some(ordered), refused(refusal.kind(), refusal.to_string()).1)
            }
            Ok((_, other, _)) => refused(Kind::Internal, format!("an outcome was answered {other:?}")),
            Err(error) => refused(error.kind(), error.to_string()),
        }
    }

    /// A command's place, its answer, and the number of the last command then.
    fn ordered(&self, lay: impl FnOnce(&mut Writer)) -> Result<(Ordered, Answer, u64), AssetsError> {
        let (mut command, mut answer, mut trace) = (Writer::new(), Vec::new(), Trace::default());
        lay(&mut command);
        let ordered = self.engine.order(command.as_slice(), &mut answer, &mut trace)?;
        Ok((ordered, Answer::read(&answer)?, trace.sequence.0))
    }

    fn take_claim(&mut self, node: NodeId) -> (Option<Ordered>, Reply) {
        if self.claim == Some(node) {
            return done();
        }
        let claims = self.engine.claims();
        if !claims.lock().unwrap_or_else(PoisonError::into_inner).insert(node) {
            return refused(
                Kind::Conflict,
                format!("the branches of node {node} are being resolved by another connection"),
            );
        }
        self.give_claim();
        self.claim = Some(node);
        done()
    }

    fn give_claim(&mut self) {
        if let Some(node) = self.claim.take() {
            self.engine.claims().lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        }
    }
}

/// What became of a branch, as far as its vote's witness lets it be known.
fn past(machine: &Machine, xid: &Xid, witness: &[u8]) -> Past {
    past_of(machine.branch(xid), machine.sequence(), witness)
}

/// The same, from what is known behind this command.
pub(crate) fn past_of(known: Known, at: Sequence, witness: &[u8]) -> Past {
    let elsewhere = |what: &str| Past::Elsewhere(native(Kind::NotFound, what.to_owned()));
    let since = match known {
        Known::Prepared => return Past::Open,
        Known::Committed => return Past::Committed,
        Known::RolledBack => return Past::RolledBack,
        Known::Nothing { since } => since,
    };
    let Some(voted) = witness.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
        return elsewhere("nothing was kept of its vote");
    };
    if voted > at.0 {
        return elsewhere("these assets were set back to before its vote");
    }
    // Everything that ended since is remembered. What voted before may have ended before.
    if voted < since.0 { Past::Forgotten } else { elsewhere("another server's assets had its vote") }
}

const fn done() -> (Option<Ordered>, Reply) {
    (None, Reply::Done)
}

pub(crate) fn native(kind: Kind, message: String) -> Native {
    Native { code: kind.to_string(), message }
}

pub(crate) fn said(refusal: &Refusal) -> Native {
    native(refusal.kind(), refusal.to_string())
}

fn unknown() -> (Option<Ordered>, Reply) {
    (None, Reply::Unknown(said(&Refusal::BranchUnknown)))
}

fn refused(kind: Kind, message: String) -> (Option<Ordered>, Reply) {
    (None, Reply::Refused(kind, native(kind, message)))
}

impl Resource for AssetsResource {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        self.answer = Some(self.act(&verb));
    }

    fn receive(&mut self) -> Reply {
        match self.answer.take() {
            None => refused(Kind::Internal, "nothing was asked of this resource".to_owned()).1,
            Some((None, reply)) => reply,
            Some((Some(ordered), reply)) => match self.engine.confirm(ordered) {
                Ok(()) => reply,
                Err(error) => Reply::Lost(native(error.kind(), error.to_string())),
            },
        }
    }

    fn witness(&mut self) -> Vec<u8> {
        self.witness.clone()
    }
}

impl Drop for AssetsResource {
    fn drop(&mut self) {
        self.give_claim();
    }
}

impl fmt::Debug for AssetsResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssetsResource")
            .field("name", &self.name)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

/// Opens connections to assets in this process.
#[derive(Clone, Debug)]
pub struct AssetsConnector {
    name: String,
    engine: Arc<Engine>,
}

impl AssetsConnector {
    /// For assets under their registered name.
    #[must_use]
    pub fn new(name: &str, engine: Arc<Engine>) -> Self {
        Self { name: name.to_owned(), engine }
    }
}

impl Connector for AssetsConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        Ok(Box::new(AssetsResource::new(&self.name, Arc::clone(&self.engine))))
    }
}
