//! Assets as a resource manager of a transaction, in other processes: a server alone, or a group that goes on at another node.
//!
//! Walk: between start and end operations are collected here, and nothing of them is anywhere else · prepare is one command, which the log
//! of the group holds before its vote is told, so that the branch and what it holds survive a fail-over · `send` lays, `receive`
//! waits: so branches of several stores share their time.
//! A vote whose answer is lost is told as lost, and its coordinator rolls back; outcomes are told again until they are answered, at whichever
//! node leads. Deliberately absent: claims: that one coordinator resolves the branches of its node is kept by its own folder.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_world::Clock;
use assent_xa::{Connector, Native, Reply, Resource, Verb, Vote};

use crate::answer::Answer;
use crate::client::Client;
use crate::command::{Command, OPS_MAX, Op};
use crate::line::ClientError;
use crate::options::Options;
use crate::refusal::Refusal;
use crate::resource::{Begun, native, past_of, said};

/// What was sent, and so how its answer is read.
#[derive(Clone, Debug)]
enum Asked {
    Nothing,
    Ready(Reply),
    /// The vote, and behind it what is known then.
    Vote,
    CommitOnePhase,
    Outcome,
    Recover(assent_ids::NodeId),
    Inquire(Vec<u8>),
}

/// A connection to assets elsewhere.
pub struct RemoteAssets {
    name: String,
    options: Options,
    clock: Arc<dyn Clock>,
    client: Client,
    current: Option<Xid>,
    begun: BTreeMap<Xid, Begun>,
    asked: Asked,
    witness: Vec<u8>,
}

impl RemoteAssets {
    /// A connection under the registered name.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(name: &str, options: Options, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let client = Client::connect(options.clone(), Arc::clone(&clock))?;
        let (begun, witness) = (BTreeMap::new(), Vec::new());
        Ok(Self { name: name.to_owned(), options, clock, client, current: None, begun, asked: Asked::Nothing, witness })
    }

    /// Adds an operation to the started branch. Whether it can be done is said by the vote.
    ///
    /// # Errors
    /// `Invalid` if no branch is started, `Full` beyond [`OPS_MAX`] operations.
    pub fn work(&mut self, op: Op) -> Result<(), (Kind, Native)> {
        let Some(begun) = self.current.and_then(|xid| self.begun.get_mut(&xid)) else {
            return Err((Kind::Invalid, native(Kind::Invalid, "no branch is started on this connection".to_owned())));
        };
        if begun.ops.len() >= OPS_MAX {
            return Err((Kind::Full, native(Kind::Full, format!("a branch has at most {OPS_MAX} operations"))));
        }
        begun.ops.push(op);
        Ok(())
    }

    fn take(&mut self, xid: &Xid) -> Option<Begun> {
        self.current = self.current.filter(|current| current != xid);
        self.begun.remove(xid)
    }

    /// Lays what the verb needs; how its answer will be read.
    fn lay(&mut self, verb: Verb) -> Result<Asked, ClientError> {
        let ready = |reply| Ok(Asked::Ready(reply));
        match verb {
            Verb::Start(xid) => {
                if self.begun.contains_key(&xid) {
                    let text = "a branch of this name is known already".to_owned();
                    return ready(Reply::Refused(Kind::Conflict, native(Kind::Conflict, text)));
                }
                self.begun.insert(xid, Begun::default());
                self.current = Some(xid);
                ready(Reply::Done)
            }
            Verb::End { xid, success } => {
                let Some(begun) = self.begun.get_mut(&xid) else { return ready(unknown()) };
                begun.failed |= !success;
                self.current = self.current.filter(|current| *current != xid);
                ready(Reply::Done)
            }
            Verb::Prepare(xid) => {
                let Some(begun) = self.take(&xid) else { return ready(unknown()) };
                if begun.failed {
                    return ready(failed());
                }
                if begun.ops.is_empty() {
                    return ready(Reply::Vote(Vote::ReadOnly));
                }
                self.client.send_laid(false, |out| Command::lay_prepare(out, &xid, &begun.ops))?;
                self.client.send_laid(true, |out| Command::lay_branch(out, &xid))?;
                Ok(Asked::Vote)
            }
            Verb::CommitOnePhase(xid) => {
                let Some(begun) = self.take(&xid) else { return ready(unknown()) };
                if begun.failed {
                    return ready(failed());
                }
                if begun.ops.is_empty() {
                    return ready(Reply::Done);
                }
                self.client.send_one_phase(&begun.ops)?;
                Ok(Asked::CommitOnePhase)
            }
            Verb::Rollback(xid) if self.take(&xid).is_some() => ready(Reply::Done),
            Verb::Commit(xid) => self.outcome(&xid, true),
            Verb::Rollback(xid) => self.outcome(&xid, false),
            Verb::Recover(node) => {
                self.client.send_laid(true, Command::lay_in_doubt)?;
                Ok(Asked::Recover(node))
            }
            Verb::Inquire { xid, witness } => {
                self.client.send_laid(true, |out| Command::lay_branch(out, &xid))?;
                Ok(Asked::Inquire(witness))
            }
            // Nothing keeps a prepared branch from its coordinator.
            Verb::Claim(_) | Verb::Evict(_) | Verb::Freed { .. } => ready(Reply::Done),
            Verb::CommitLast { .. } | Verb::Settle { .. } | Verb::Rows { .. } | Verb::Clear { .. } => {
                ready(Reply::without_rows())
            }
            // Assets never finish a branch on their own, so there is nothing to forget.
            Verb::Forget(_) => ready(unknown()),
        }
    }

    /// What a verb before has left without an answer would be answered in the next one's place: that connection is given up.
    fn alone(&mut self) -> Result<(), ClientError> {
        if self.client.waiting() != 0 {
            self.client = Client::connect(self.options.clone(), Arc::clone(&self.clock))?;
        }
        Ok(())
    }

    fn outcome(&mut self, xid: &Xid, committed: bool) -> Result<Asked, ClientError> {
        self.client.send_laid(true, |out| Command::lay_outcome(out, xid, committed))?;
        Ok(Asked::Outcome)
    }

    fn hear(&mut self, asked: Asked) -> Result<Reply, ClientError> {
        match asked {
            Asked::Nothing => {
                let text = "nothing was asked of this resource".to_owned();
                return Ok(Reply::Refused(Kind::Internal, native(Kind::Internal, text)));
            }
            Asked::Ready(reply) => return Ok(reply),
            _ => {}
        }
        let answer = self.client.receive();
        if matches!(asked, Asked::Vote) {
            // It was laid behind the vote, and is taken whatever the vote is; not in its place, where that has none.
            let known = (self.client.waiting() == 1).then(|| self.client.receive());
            self.witness = match known {
                Some(Ok((_, Answer::Branch { at, .. }))) => at.0.to_le_bytes().to_vec(),
                _ => Vec::new(),
            };
        }
        let (_, answer) = answer?;
        Ok(match (asked, answer) {
            (Asked::Vote, Answer::Voted(_)) => Reply::Vote(Vote::Yes),
            (Asked::Vote, Answer::ReadOnly(_)) => Reply::Vote(Vote::ReadOnly),
            (Asked::Vote | Asked::CommitOnePhase, Answer::Refused { refusal, .. }) => Reply::RolledBack(said(&refusal)),
            (Asked::CommitOnePhase | Asked::Outcome, Answer::Done(_)) => Reply::Done,
            (Asked::Outcome, Answer::Refused { refusal: Refusal::BranchUnknown, .. }) => unknown(),
            (Asked::Outcome, Answer::Refused { refusal, .. }) => match refusal {
                Refusal::BranchFinished { committed: false } => Reply::RolledBack(said(&refusal)),
                _ => Reply::Refused(refusal.kind(), said(&refusal)),
            },
            (Asked::Recover(node), Answer::Listed(names)) => {
                let ours = |xid: &Xid| xid.branch().is_some_and(|branch| branch.node == node);
                Reply::Listed(names.into_iter().filter(ours).collect())
            }
            (Asked::Inquire(witness), Answer::Branch { known, at }) => Reply::Past(past_of(known, at, &witness)),
            (_, Answer::InDoubt) => {
                Reply::Lost(native(Kind::InDoubt, "its session is forgotten: it was done or not".to_owned()))
            }
            (_, other) => {
                Reply::Refused(Kind::Internal, native(Kind::Internal, format!("the server answered {other:?}")))
            }
        })
    }
}

fn unknown() -> Reply {
    Reply::Unknown(said(&Refusal::BranchUnknown))
}

fn failed() -> Reply {
    Reply::RolledBack(native(Kind::RolledBack, "its work had failed".to_owned()))
}

fn lost(error: ClientError) -> Reply {
    let kind = error.kind;
    let native = native(kind, error.message);
    match kind {
        // It was done or not; or nobody answers, and what was sent may be done yet.
        Kind::InDoubt | Kind::Unavailable | Kind::Internal | Kind::Closed => Reply::Lost(native),
        _ => Reply::Refused(kind, native),
    }
}

impl Resource for RemoteAssets {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, verb: Verb) {
        let laid = self.alone().and_then(|()| self.lay(verb)).and_then(|asked| self.client.flush().map(|()| asked));
        self.asked = laid.unwrap_or_else(|error| Asked::Ready(lost(error)));
    }

    fn receive(&mut self) -> Reply {
        let asked = std::mem::replace(&mut self.asked, Asked::Nothing);
        self.hear(asked).unwrap_or_else(lost)
    }

    fn witness(&mut self) -> Vec<u8> {
        self.witness.clone()
    }
}

impl fmt::Debug for RemoteAssets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAssets").field("name", &self.name).field("current", &self.current).finish_non_exhaustive()
    }
}

/// Opens connections to assets elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteAssetsConnector {
    name: String,
    options: Options,
    clock: Arc<dyn Clock>,
}

impl RemoteAssetsConnector {
    /// For assets under their registered name.
    #[must_use]
    pub fn new(name: &str, options: Options, clock: Arc<dyn Clock>) -> Self {
        Self { name: name.to_owned(), options, clock }
    }
}

impl Connector for RemoteAssetsConnector {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        match RemoteAssets::connect(&self.name, self.options.clone(), Arc::clone(&self.clock)) {
            Ok(resource) => Ok(Box::new(resource)),
            Err(error) => Err((error.kind, native(error.kind, error.message))),
        }
    }
}
