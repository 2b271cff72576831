//! The store as a resource manager of a transaction, in the same process.
//!
//! Walk: `send` appends, `receive` waits: so branches of several stores share their time on disk. Between start and end
//! the resource's own reads and writes belong to the branch.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_xa::{Connector, Native, Reply, Resource, Verb, Vote};

use crate::{Claim, Condition, Kv, KvError, Op, Pending, Rows};

/// A connection to a store in this process. Dropping it drops its branches that are not prepared, and its claim.
pub struct KvResource {
    name: String,
    kv: Arc<Kv>,
    /// The branch that work belongs to.
    current: Option<Xid>,
    /// Branches begun here that are neither prepared nor finished.
    begun: BTreeSet<Xid>,
    answer: Option<(Pending, Reply)>,
    /// Of the last vote of yes.
    witness: Vec<u8>,
    /// For how long a vote waits for keys that other prepared branches hold.
    patience: Duration,
    /// The node whose branches this connection resolves.
    claim: Option<Claim>,
}

impl KvResource {
    /// A connection under the registered name.
    #[must_use]
    pub fn new(name: &str, kv: Arc<Kv>) -> Self {
        Self {
            name: name.to_owned(),
            kv,
            current: None,
            begun: BTreeSet::new(),
            answer: None,
            witness: Vec::new(),
            patience: Duration::ZERO,
            claim: None,
        }
    }

    /// Its votes wait at most so long for keys that other prepared branches hold; then, and without this at once, they are no.
    #[must_use]
    pub const fn patient(mut self, at_most: Duration) -> Self {
        self.patience = at_most;
        self
    }

    /// The value of a key, within the branch if one is started, else as it is now.
    ///
    /// # Errors
    /// As [`Kv::branch_get`].
    pub fn get(&self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match &self.current {
            Some(xid) => self.kv.branch_get(xid, keyspace, key),
            None => self.kv.get(keyspace, key),
        }
    }

    /// A range, within the branch if one is started, else as it is now.
    ///
    /// # Errors
    /// As [`Kv::branch_scan`].
    pub fn scan(&self, keyspace: u32, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, KvError> {
        match &self.current {
            Some(xid) => self.kv.branch_scan(xid, keyspace, from, to, limit),
            None => self.kv.scan(keyspace, from, to, limit),
        }
    }

    /// Sets a key within the started branch.
    ///
    /// # Errors
    /// As [`Kv::branch_write`]; [`KvError::NoBranch`] if none is started.
    pub fn put(&self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.write(&Op::put(keyspace, key, value))
    }

    /// Removes a key within the started branch.
    ///
    /// # Errors
    /// As [`KvResource::put`].
    pub fn delete(&self, keyspace: u32, key: &[u8]) -> Result<(), KvError> {
        self.write(&Op::delete(keyspace, key))
    }

    /// The started branch commits only if this holds when it votes.
    ///
    /// # Errors
    /// As [`Kv::branch_expect`]; [`KvError::NoBranch`] if none is started.
    pub fn expect(&self, condition: Condition<'_>) -> Result<(), KvError> {
        self.kv.branch_expect(self.current.as_ref().ok_or(KvError::NoBranch)?, condition)
    }

    fn write(&self, op: &Op<'_>) -> Result<(), KvError> {
        self.kv.branch_write(self.current.as_ref().ok_or(KvError::NoBranch)?, op)
    }

    fn act(&mut self, verb: &Verb) -> Result<(Pending, Reply), KvError> {
        let done = |pending| (pending, Reply::Done);
        match verb {
            Verb::Start(xid) => {
                self.kv.start(xid)?;
                self.current = Some(*xid);
                self.begun.insert(*xid);
                Ok(done(Pending::NOTHING))
            }
            Verb::End { xid, success } => {
                self.kv.end(xid, *success)?;
                self.current = self.current.filter(|current| current != xid);
                Ok(done(Pending::NOTHING))
            }
            Verb::Prepare(xid) => {
                let voted = self.kv.prepare_within(self.patience, xid)?;
                self.witness = if voted.vote == Vote::Yes { self.kv.witness(voted.pending) } else { Vec::new() };
                Ok((voted.pending, Reply::Vote(voted.vote)))
            }
            Verb::Commit(xid) => self.kv.commit_begin(xid).map(done),
            Verb::CommitOnePhase(xid) => self.kv.commit_one_phase_within(self.patience, xid).map(done),
            Verb::Rollback(xid) => self.kv.rollback_begin(xid).map(done),
            Verb::Recover(node) => Ok((Pending::NOTHING, Reply::Listed(self.kv.recover(*node)))),
            Verb::Claim(node) => {
                if self.claim.as_ref().map(Claim::node) != Some(*node) {
                    self.claim = Some(self.kv.claim(*node)?);
                }
                Ok(done(Pending::NOTHING))
            }
            Verb::Inquire { xid, witness } => Ok((Pending::NOTHING, Reply::Past(self.kv.inquire(xid, witness)))),
            // Nothing keeps a prepared branch from its coordinator.
            Verb::Evict(_) | Verb::Freed { .. } => Ok(done(Pending::NOTHING)),
            Verb::CommitLast { .. } | Verb::Settle { .. } | Verb::Rows { .. } | Verb::Clear { .. } => {
                Ok((Pending::NOTHING, Reply::without_rows()))
            }
            // This store never finishes a branch on its own, so there is nothing to forget.
            Verb::Forget(xid) => Err(KvError::Unknown { xid: Box::new(*xid) }),
        }
    }

    /// The branch left this connection's care: it is prepared, finished or gone.
    fn settle(&mut self, verb: &Verb, reply: &Reply) {
        let (Verb::Prepare(xid) | Verb::CommitOnePhase(xid) | Verb::Rollback(xid)) = verb else { return };
        if matches!(reply, Reply::Done | Reply::Vote(Vote::Yes | Vote::ReadOnly) | Reply::RolledBack(_)) {
            self.begun.remove(xid);
            self.current = self.current.filter(|current| current != xid);
        }
    }
}

impl Resource for KvResource {
    fn name(&self) -> &str {
        &self.name
    }

    fn witness(&mut self) -> Vec<u8> {
        self.witness.clone()
    }

    fn send(&mut self, verb: Verb) {
        let (pending, reply) = match self.act(&verb) {
            Ok(acted) => acted,
            Err(error) => (Pending::NOTHING, refusal(&verb, &error)),
        };
        self.settle(&verb, &reply);
        self.answer = Some((pending, reply));
    }

    fn receive(&mut self) -> Reply {
        let Some((pending, reply)) = self.answer.take() else {
            let message = "nothing was asked of this resource".to_owned();
            return Reply::Refused(Kind::Internal, Native { code: Kind::Internal.to_string(), message });
        };
        match self.kv.wait(pending) {
            Ok(()) => reply,
            Err(error) => Reply::Lost(native(&error)),
        }
    }
}

impl Drop for KvResource {
    fn drop(&mut self) {
        self.begun.iter().for_each(|xid| self.kv.abandon(xid));
    }
}

impl fmt::Debug for KvResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvResource").field("name", &self.name).field("current", &self.current).finish_non_exhaustive()
    }
}

fn native(error: &KvError) -> Native {
    Native { code: error.kind().to_string(), message: error.to_string() }
}

fn refusal(verb: &Verb, error: &KvError) -> Reply {
    let ends = matches!(verb, Verb::Prepare(_) | Verb::CommitOnePhase(_));
    match error.kind() {
        Kind::NotFound => Reply::Unknown(native(error)),
        Kind::RolledBack => Reply::RolledBack(native(error)),
        Kind::Conflict if ends => Reply::RolledBack(native(error)),
        kind => Reply::Refused(kind, native(error)),
    }
}

/// Opens connections to a store in this process.
#[derive(Clone, Debug)]
pub struct KvConnector {
    name: String,
    kv: Arc<Kv>,
}

impl KvConnector {
    /// For the store under its registered name.
    #[must_use]
    pub fn new(name: &str, kv: Arc<Kv>) -> Self {
        Self { name: name.to_owned(), kv }
    }
}

impl Connector for KvConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        Ok(Box::new(KvResource::new(&self.name, Arc::clone(&self.kv))))
    }
}
