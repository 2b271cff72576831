//! A database as a resource manager of a transaction, in the same process.
//!
//! Walk: between start and end [`DocsResource::edit`] gives the branch's own edit of a document, and so its one writer's seat, and
//! [`DocsResource::let_go`] takes it back · `send` appends, `receive` waits: so branches of several stores share their time on disk. What a
//! branch has written to documents beside the one that it writes just now stays in memory up to what one edit may keep, and is laid beyond.
//! Deliberately absent: a memory of finished branches. What became of one that is not listed is told by the witness of its vote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};

use assent_ids::{NodeId, Xid};
use assent_kind::Kind;
use assent_xa::{Connector, Native, Reply, Resource, Verb, Vote};

use crate::branch::{Appended, Voted};
use crate::{Database, DocsError, Edit, Meta};

/// The work of a branch that is not prepared. Nothing of it is in the journal but what means nothing.
#[derive(Default)]
struct Work {
    edits: BTreeMap<String, Edit>,
    /// The document that is written just now, and what those beside it keep in memory.
    at: String,
    beside_bytes: u64,
    is_ended: bool,
    has_failed: bool,
}

impl Work {
    fn held_bytes(&self, document: &str) -> u64 {
        self.edits.get(document).map_or(0, Edit::held_bytes)
    }

    /// From now on this document is written: those beside it are laid where they keep more than one edit may.
    fn turn_to(&mut self, document: &str) -> Result<(), DocsError> {
        if self.at == document {
            return Ok(());
        }
        let beside = self.beside_bytes + self.held_bytes(&self.at);
        self.beside_bytes = beside.saturating_sub(self.held_bytes(document));
        document.clone_into(&mut self.at);
        if self.edits.get(document).is_some_and(|edit| self.beside_bytes > edit.held_bytes_max()) {
            let others = self.edits.iter_mut().filter(|(name, edit)| *name != document && edit.held_bytes() > 0);
            for (_, edit) in others {
                edit.lay_drafts(true)?;
            }
            self.beside_bytes = 0;
        }
        Ok(())
    }
}

/// A connection to a database in this process. Dropping it drops its branches that are not prepared.
pub struct DocsResource {
    name: String,
    db: Arc<Database>,
    /// What its commits say.
    meta: Meta,
    /// The branch that work belongs to.
    current: Option<Xid>,
    begun: BTreeMap<Xid, Work>,
    answer: Option<(Appended, Reply)>,
    /// Of its newest vote of yes.
    witness: Vec<u8>,
    /// The node whose branches this connection resolves.
    claim: Option<Claim>,
}

/// No other connection resolves the branches of this node, until it is dropped.
struct Claim {
    db: Arc<Database>,
    node: NodeId,
}

impl Claim {
    fn of(db: &Arc<Database>, node: NodeId) -> Result<Self, DocsError> {
        if !claims(db).insert(node) {
            return Err(DocsError::Claimed { node });
        }
        Ok(Self { db: Arc::clone(db), node })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        claims(&self.db).remove(&self.node);
    }
}

fn claims(db: &Database) -> MutexGuard<'_, BTreeSet<NodeId>> {
    db.store.claims.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DocsResource {
    /// A connection under the registered name, whose commits say this.
    #[must_use]
    pub fn new(name: &str, db: Arc<Database>, meta: Meta) -> Self {
        let (name, begun) = (name.to_owned(), BTreeMap::new());
        Self { name, db, meta, current: None, begun, answer: None, witness: Vec::new(), claim: None }
    }

    /// From now on its commits say this.
    pub fn say(&mut self, meta: Meta) {
        self.meta = meta;
    }

    /// The started branch's edit of a document.
    ///
    /// # Errors
    /// [`DocsError::NoBranch`] if none is started; as [`Database::edit`]; `Full`, `Busy` or `Closed` as
    /// the journal says, where what the branch has written to other documents goes there.
    pub fn edit(&mut self, document: &str) -> Result<&mut Edit, DocsError> {
        let work = self.current.and_then(|xid| self.begun.get_mut(&xid)).ok_or(DocsError::NoBranch)?;
        if !work.edits.contains_key(document) {
            work.edits.insert(document.to_owned(), self.db.edit(document)?);
        }
        work.turn_to(document)?;
        work.edits.get_mut(document).ok_or(DocsError::NoBranch)
    }

    /// Whether the started branch has an edit of this document.
    #[must_use]
    pub fn has(&self, document: &str) -> bool {
        let work = self.current.and_then(|xid| self.begun.get(&xid));
        work.is_some_and(|work| work.edits.contains_key(document))
    }

    /// Lets the started branch's edit of a document go, with all that it has changed there, and the document's seat: the branch says
    /// nothing of it.
    pub fn let_go(&mut self, document: &str) {
        let Some(work) = self.current.and_then(|xid| self.begun.get_mut(&xid)) else { return };
        if let Some(edit) = work.edits.remove(document)
            && work.at != document
        {
            work.beside_bytes = work.beside_bytes.saturating_sub(edit.held_bytes());
        }
    }

    /// Bytes in memory of what its branches have written and what is not laid, about.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let own = |work: &Work| {
            let edits = u64::try_from(work.edits.len() * size_of::<Edit>()).unwrap_or(u64::MAX);
            work.beside_bytes.saturating_add(work.held_bytes(&work.at)).saturating_add(edits)
        };
        self.begun.values().map(own).sum()
    }

    fn act(&mut self, verb: &Verb) -> Result<(Appended, Reply), DocsError> {
        let done = |appended| (appended, Reply::Done);
        match verb {
            Verb::Start(xid) => {
                if self.begun.contains_key(xid) || self.db.knows(xid) {
                    return Err(DocsError::Known { xid: Box::new(*xid) });
                }
                self.begun.insert(*xid, Work::default());
                self.current = Some(*xid);
                Ok(done(Appended::NOTHING))
            }
            Verb::End { xid, success } => {
                let work = self.begun.get_mut(xid).ok_or_else(|| unknown(xid))?;
                if work.is_ended {
                    return Err(DocsError::State { xid: Box::new(*xid), state: "ended", verb: "end" });
                }
                (work.is_ended, work.has_failed) = (true, !success);
                self.current = self.current.filter(|current| current != xid);
                Ok(done(Appended::NOTHING))
            }
            Verb::Prepare(xid) => {
                let edits = self.ended(xid, "prepare")?;
                let Voted { vote, appended, witness } = self.db.prepare_begin(xid, edits, &self.meta)?;
                self.witness = witness;
                Ok((appended, Reply::Vote(vote)))
            }
            Verb::CommitOnePhase(xid) => self.one_phase(xid).map(done),
            Verb::Commit(xid) => self.db.commit_prepared_begin(xid).map(done),
            Verb::Rollback(xid) if self.begun.remove(xid).is_some() => {
                self.current = self.current.filter(|current| current != xid);
                Ok(done(Appended::NOTHING))
            }
            Verb::Rollback(xid) => self.db.rollback_prepared_begin(xid).map(done),
            Verb::Recover(node) => Ok((Appended::NOTHING, Reply::Listed(self.db.recover(*node)))),
            Verb::Inquire { xid, witness } => Ok((Appended::NOTHING, Reply::Past(self.db.inquire(xid, witness)?))),
            Verb::Claim(node) => {
                if self.claim.as_ref().map(|claim| claim.node) != Some(*node) {
                    self.claim = Some(Claim::of(&self.db, *node)?);
                }
                Ok(done(Appended::NOTHING))
            }
            // Nothing keeps a prepared branch from its coordinator.
            Verb::Evict(_) | Verb::Freed { .. } => Ok(done(Appended::NOTHING)),
            Verb::CommitLast { .. } | Verb::Settle { .. } | Verb::Rows { .. } | Verb::Clear { .. } => {
                Ok((Appended::NOTHING, Reply::without_rows()))
            }
            // This store never finishes a branch on its own, so there is nothing to forget.
            Verb::Forget(xid) => Err(unknown(xid)),
        }
    }

    /// The edits of a branch that is ended; it is no longer this connection's.
    fn ended(&mut self, xid: &Xid, verb: &'static str) -> Result<Vec<Edit>, DocsError> {
        match self.begun.get(xid) {
            None if self.db.knows(xid) => {
                Err(DocsError::State { xid: Box::new(*xid), state: "prepared or being finished", verb })
            }
            None => Err(unknown(xid)),
            Some(work) if !work.is_ended => Err(DocsError::State { xid: Box::new(*xid), state: "active", verb }),
            Some(work) => {
                let has_failed = work.has_failed;
                let work = self.begun.remove(xid).unwrap_or_default();
                if has_failed {
                    Err(DocsError::RolledBack { xid: Box::new(*xid) })
                } else {
                    Ok(work.edits.into_values().collect())
                }
            }
        }
    }

    /// The only branch decides for itself: of one document a plain commit, of several a vote and its outcome, durable with one sync.
    fn one_phase(&mut self, xid: &Xid) -> Result<Appended, DocsError> {
        let edits = self.ended(xid, "commit in one phase")?;
        let edits = match <[Edit; 1]>::try_from(edits) {
            Ok([edit]) => return edit.commit_begin(&self.meta).map(|pending| Appended::of(&pending)),
            Err(edits) => edits,
        };
        if self.db.prepare_begin(xid, edits, &self.meta)?.vote == Vote::ReadOnly {
            return Ok(Appended::NOTHING);
        }
        self.db.commit_prepared_begin(xid).map_err(|error| {
            // It has no outcome yet: a rollback is one, and without that either it waits for one.
            match self.db.rollback_prepared_begin(xid) {
                Ok(_) => error,
                Err(_) => DocsError::Left { xid: Box::new(*xid), error: Box::new(error) },
            }
        })
    }
}

impl Resource for DocsResource {
    fn name(&self) -> &str {
        &self.name
    }

    fn witness(&mut self) -> Vec<u8> {
        self.witness.clone()
    }

    fn send(&mut self, verb: Verb) {
        let acted = self.act(&verb);
        self.answer = Some(acted.unwrap_or_else(|error| (Appended::NOTHING, refusal(&verb, &error))));
    }

    fn receive(&mut self) -> Reply {
        let Some((appended, reply)) = self.answer.take() else {
            let message = "nothing was asked of this resource".to_owned();
            return Reply::Refused(Kind::Internal, Native { code: Kind::Internal.to_string(), message });
        };
        match self.db.wait(appended) {
            Ok(()) => reply,
            Err(error) => Reply::Lost(native(&error)),
        }
    }
}

impl fmt::Debug for DocsResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocsResource").field("name", &self.name).field("current", &self.current).finish_non_exhaustive()
    }
}

fn unknown(xid: &Xid) -> DocsError {
    DocsError::Unknown { xid: Box::new(*xid) }
}

fn native(error: &DocsError) -> Native {
    Native { code: error.kind().to_string(), message: error.to_string() }
}

fn refusal(verb: &Verb, error: &DocsError) -> Reply {
    // Whatever a vote fails for, its edits are gone.
    let ends = matches!(verb, Verb::Prepare(_) | Verb::CommitOnePhase(_));
    match error {
        DocsError::Unknown { .. } => Reply::Unknown(native(error)),
        DocsError::RolledBack { .. } => Reply::RolledBack(native(error)),
        DocsError::InDoubt(_) | DocsError::Left { .. } => Reply::Lost(native(error)),
        DocsError::State { .. } | DocsError::Known { .. } | DocsError::Claimed { .. } => {
            Reply::Refused(error.kind(), native(error))
        }
        _ if ends => Reply::RolledBack(native(error)),
        _ => Reply::Refused(error.kind(), native(error)),
    }
}

/// Opens connections to a database in this process.
#[derive(Clone, Debug)]
pub struct DocsConnector {
    name: String,
    db: Arc<Database>,
    meta: Meta,
}

impl DocsConnector {
    /// For the database under its registered name, with what its commits say.
    #[must_use]
    pub fn new(name: &str, db: Arc<Database>, meta: Meta) -> Self {
        Self { name: name.to_owned(), db, meta }
    }
}

impl Connector for DocsConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        Ok(Box::new(DocsResource::new(&self.name, Arc::clone(&self.db), self.meta.clone())))
    }
}
