//! A branch in another Assent process: its key-value store, over the binary protocol.
//!
//! Walk: `send` puts a verb on its way, `receive` reads its answer, so that branches overlap on one thread ·
//! [`Remote::get`], [`Remote::write`], [`Remote::write_if`], [`Remote::scan`] work within the branch that was started, else at once.
//! Nothing travels alone that can travel with something else: start goes with the first work, end with prepare. A branch
//! without work costs no message, one without writes is read-only before it is asked.
//! A lost connection takes the work of an unprepared branch with it (the store drops it); verbs that any connection can
//! bring (commit, rollback, recover) go over a new one. Not where it had a claim: the claim ended with it, and whoever
//! believes to have it must hear so.
//! Deliberately absent: retries. Who drives knows what may be sent again.

mod connector;
mod error;
mod replies;
#[cfg(test)]
mod tests;

use std::time::Duration;

use assent_ids::Xid;
use assent_kind::Kind;
use assent_link::{Address, Link, LinkConfig, LinkError, Ticket};
use assent_wire::{Answer, Bound, Condition, Expected, Hello, Op, Request, Role, Scan, Write, WriteIf};
use assent_xa::{Reply, Resource, Verb, Vote};

pub use self::connector::RemoteConnector;
pub use self::error::RemoteError;
use self::replies::{native, reply_of, trouble};
use crate::dummy::unsent;

/// Keys with their values, in their order.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A connection that was quiet for so long may have been closed meanwhile: it is looked at before it is used.
const QUIET: Duration = Duration::from_millis(50);

/// Where the branch of this connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// The store has not heard of it.
    Fresh,
    /// It has been read.
    Read,
    /// It may have been written.
    Written,
    /// Its connection ended before it was prepared.
    Dropped,
    /// Its work is over.
    Ended,
}

#[derive(Debug)]
enum Sent {
    /// The answer is known here.
    Known(Reply),
    /// It will come.
    Asked(Ticket),
    /// It will come, and may be that the claim is ours.
    Claimed(Ticket),
}

/// A connection to a store, for one branch after the other.
#[derive(Debug)]
pub struct Remote {
    name: String,
    address: Address,
    config: LinkConfig,
    link: Option<Link>,
    branch: Option<(Xid, Stand)>,
    /// Answers that change nothing: those to ends, whose refusal the next verb's answer shows.
    passed: Vec<Ticket>,
    sent: Option<Sent>,
    /// Of the last vote of yes, in the store's own form.
    witness: Vec<u8>,
    /// It was given a claim, which is its first connection's: it makes no other one.
    is_claimed: bool,
    /// For how long its writes and votes wait for keys that other prepared branches hold.
    patience_ms: u32,
}

impl Remote {
    /// A store by its registered name. Connects when there is something to say.
    #[must_use]
    pub fn new(name: &str, address: Address, config: LinkConfig) -> Self {
        Self {
            name: name.to_owned(),
            address,
            config,
            link: None,
            branch: None,
            passed: Vec::new(),
            sent: None,
            witness: Vec::new(),
            is_claimed: false,
            patience_ms: 0,
        }
    }

    /// Its writes and votes wait at most so long for keys that other prepared branches hold, and then say `Conflict`; without this, at
    /// once. An answer may come so much later.
    #[must_use]
    pub fn patient(mut self, at_most: Duration) -> Self {
        self.patience_ms = u32::try_from(at_most.as_millis()).unwrap_or(u32::MAX);
        self.config.answer_ms = self.config.answer_ms.saturating_add(self.patience_ms.into());
        self
    }

    /// What its connection has done so far; nothing if there is none.
    #[must_use]
    pub fn counts(&self) -> Option<assent_link::Counts> {
        self.link.as_ref().map(Link::counts)
    }

    /// The value of a key: the branch's own writes are seen within it.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn get(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<Vec<u8>>, RemoteError> {
        self.work(
            Stand::Read,
            |xid| Request::Get { xid, keyspace, key },
            |answer| match answer {
                Answer::Value(value) => Some(value.map(<[u8]>::to_vec)),
                _ => None,
            },
        )
    }

    /// Sets a key: within the branch, else durably at once.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<(), RemoteError> {
        self.write(&[Op::Put { keyspace, key, value }], true)
    }

    /// Removes a key, as [`Remote::put`]; fine if it is not there.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn delete(&mut self, keyspace: u32, key: &[u8]) -> Result<(), RemoteError> {
        self.write(&[Op::Delete { keyspace, key }], true)
    }

    /// Writes, in one message. Outside of a branch all or none, and on disk before the answer if `durable`.
    ///
    /// # Errors
    /// [`RemoteError`]; `InDoubt` outside of a branch if the answer was lost.
    pub fn write(&mut self, ops: &[Op<'_>], durable: bool) -> Result<(), RemoteError> {
        self.work(
            Stand::Written,
            |xid| Request::Write(Write { xid, durable, ops: ops.to_vec() }),
            |answer| matches!(answer, Answer::Written(_)).then_some(()),
        )
    }

    /// The branch commits only if these hold when it votes: else its vote is no, and it is rolled back.
    ///
    /// # Errors
    /// [`RemoteError`]; [`RemoteError::NoBranch`] outside of one.
    pub fn expect(&mut self, conditions: &[Condition<'_>]) -> Result<(), RemoteError> {
        let Some((xid, _)) = self.branch else { return Err(RemoteError::NoBranch { name: self.name.clone() }) };
        self.work(
            // It is asked for its vote, also if it writes nothing.
            Stand::Written,
            |_| Request::Expect(Expected { xid, conditions: conditions.to_vec() }),
            |answer| matches!(answer, Answer::Written(_)).then_some(()),
        )
    }

    /// Writes if all conditions hold. Outside of a branch all or none at once; within it they are judged by its vote
    /// ([`Remote::expect`]).
    ///
    /// # Errors
    /// [`RemoteError`]; `Conflict` outside of a branch if a condition does not hold, and nothing was written.
    pub fn write_if(&mut self, conditions: &[Condition<'_>], ops: &[Op<'_>], durable: bool) -> Result<(), RemoteError> {
        if self.branch.is_some() {
            self.expect(conditions)?;
            return self.write(ops, durable);
        }
        self.work(
            Stand::Written,
            |_| Request::WriteIf(WriteIf { durable, conditions: conditions.to_vec(), ops: ops.to_vec() }),
            |answer| matches!(answer, Answer::Written(_)).then_some(()),
        )
    }

    /// Keys of a range in their order, at most `limit`; and whether there are more behind the last one, which a larger
    /// limit, a full message, or the 64 values that are read for one answer left out.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn scan(
        &mut self,
        keyspace: u32,
        from: Bound<'_>,
        to: Bound<'_>,
        limit: u32,
    ) -> Result<(Rows, bool), RemoteError> {
        self.work(
            Stand::Read,
            |xid| Request::Scan(Scan { xid, keyspace, from, to, limit }),
            |answer| match answer {
                Answer::Pairs { more, pairs } => {
                    Some((pairs.iter().map(|pair| (pair.key.to_vec(), pair.value.to_vec())).collect(), more))
                }
                _ => None,
            },
        )
    }

    fn work<'r, T>(
        &mut self,
        leaves: Stand,
        request: impl FnOnce(Option<Xid>) -> Request<'r>,
        read: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Result<T, RemoteError> {
        let reached = self.connected().map(|_| ());
        let name = || self.name.clone();
        let (xid, is_fresh) = match self.branch {
            Some((_, Stand::Dropped)) => return Err(RemoteError::Dropped { name: name() }),
            Some((xid, Stand::Ended)) => return Err(RemoteError::Ended { name: name(), branch: xid.to_string() }),
            Some((xid, stand)) => (Some(xid), stand == Stand::Fresh),
            None => (None, false),
        };
        let asked = reached.and_then(|()| self.ask(xid.filter(|_| is_fresh), &request(xid), leaves, read));
        self.watch(&asked);
        asked.map_err(|error| RemoteError::Link { name: self.name.clone(), error })
    }

    /// One request and its answer; before it, in the same write, the start of its branch.
    fn ask<T>(
        &mut self,
        start: Option<Xid>,
        request: &Request<'_>,
        leaves: Stand,
        read: impl FnOnce(Answer<'_>) -> Option<T>,
    ) -> Result<T, LinkError> {
        let Some(link) = &self.link else { return Err(LinkError::Unavailable { message: "no connection".to_owned() }) };
        let started = start.map(|xid| link.lay(&Request::Start(xid))).transpose()?;
        let asked = link.send(request);
        if let Some((_, stand)) = &mut self.branch {
            // Also if the answer is lost or bad: what may have been written is not taken for read.
            let wrote = leaves == Stand::Written && asked.is_ok();
            *stand = if wrote || *stand == Stand::Written { Stand::Written } else { Stand::Read };
        }
        for passed in self.passed.drain(..) {
            _ = link.receive(passed);
        }
        let began = started.map(|ticket| link.receive(ticket));
        // Also behind a start that was refused: an answer that nobody receives keeps its place among those that are waited for.
        let is_silent = began.as_ref().is_some_and(|began| began.as_ref().is_err_and(is_lost));
        let arrived = if is_silent { None } else { Some(asked.and_then(|ticket| link.receive(ticket))) };
        if matches!(&arrived, Some(Err(error)) if is_lost(error)) {
            // Though a refusal is told.
            link.close("an answer did not come");
        }
        if let Some(began) = began
            && let Answer::Branch(reply) = began?.answer()?
        {
            started_well(&reply)?;
        }
        let silence = || LinkError::Unavailable { message: "no answer".to_owned() };
        let arrived = arrived.ok_or_else(silence)??;
        let silent = || LinkError::InDoubt { message: "an answer of another kind than asked".to_owned() };
        read(arrived.answer()?).ok_or_else(silent)
    }

    fn connected(&mut self) -> Result<&Link, LinkError> {
        let works = |link: &Link| if link.idle() < QUIET { link.is_whole() } else { link.look() };
        if !self.link.as_ref().is_some_and(works) {
            self.hang_up();
            if self.is_claimed {
                let message = format!("the connection to {} ended, and its claim with it", self.address);
                return Err(LinkError::Unavailable { message });
            }
            let hello = Hello::new(Role::Store { label: &self.name });
            let link = Link::connect(&self.address, &hello, &self.config)?;
            if self.patience_ms > 0 {
                // A store that does not know of it says so to whoever asks for it.
                link.request(&Request::Patience(self.patience_ms))?.answer()?;
            }
            self.link = Some(link);
        }
        let link = self.link.as_ref();
        link.ok_or_else(|| LinkError::Unavailable { message: format!("no connection to {}", self.address) })
    }

    /// After an answer that did not come, the connection is not trusted any more.
    fn watch<T>(&mut self, outcome: &Result<T, LinkError>) {
        if outcome.as_ref().is_err_and(is_lost) {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            link.close("the caller hung up");
            if let Some((_, stand @ (Stand::Read | Stand::Written))) = &mut self.branch {
                *stand = Stand::Dropped;
            }
        }
        self.passed.clear();
    }

    /// Lays a verb whose answer changes nothing.
    fn pass(&mut self, request: &Request<'_>) -> Result<(), LinkError> {
        if let Some(link) = &self.link {
            self.passed.push(link.lay(request)?);
        }
        Ok(())
    }

    fn verb(&mut self, request: &Request<'_>) -> Sent {
        match self.connected().and_then(|link| link.send(request)) {
            Ok(ticket) => Sent::Asked(ticket),
            Err(error) => Sent::Known(self.trouble(&error)),
        }
    }

    /// A claim that is lost with its connection is told as such, whatever became of the verb.
    fn trouble(&self, error: &LinkError) -> Reply {
        match trouble(error) {
            Reply::Refused(Kind::Unavailable, words) if self.is_claimed => Reply::Lost(words),
            reply => reply,
        }
    }

    fn end(&mut self, xid: Xid, success: bool) -> Reply {
        if self.link.as_ref().is_some_and(|link| !link.is_whole()) {
            self.hang_up();
        }
        let Some((_, stand)) = self.branch.filter(|(mine, _)| *mine == xid) else {
            return Reply::Unknown(native("unknown", &format!("branch {xid} was not started on this connection")));
        };
        let reply = match stand {
            Stand::Fresh if success => Reply::Vote(Vote::ReadOnly),
            Stand::Fresh | Stand::Ended => Reply::Done,
            // What was read is known already; the store only lets its snapshot go.
            Stand::Read if success => {
                let gone = self.pass(&Request::Rollback(xid));
                if gone.is_ok()
                    && let Some(link) = &self.link
                {
                    link.flush();
                }
                Reply::Vote(Vote::ReadOnly)
            }
            Stand::Dropped => {
                Reply::RolledBack(native("dropped", "the connection ended before the branch was prepared"))
            }
            Stand::Read | Stand::Written => match self.pass(&Request::End { xid, success }) {
                Ok(()) => Reply::Done,
                Err(error) => trouble(&error),
            },
        };
        let over = matches!(reply, Reply::Vote(_));
        self.branch = match (over, stand) {
            (true, _) => None,
            // To be rolled back here, without a message.
            (false, Stand::Fresh | Stand::Dropped) => self.branch,
            (false, _) => Some((xid, Stand::Ended)),
        };
        reply
    }

    fn begin(&mut self, verb: &Verb) -> Sent {
        match verb {
            Verb::Start(xid) => match (self.branch, self.connected().err()) {
                (Some((mine, _)), _) => {
                    let message = format!("branch {mine} is under way on this connection");
                    Sent::Known(Reply::Refused(Kind::Conflict, native("conflict", &message)))
                }
                (None, Some(error)) => Sent::Known(trouble(&error)),
                (None, None) => {
                    self.branch = Some((*xid, Stand::Fresh));
                    Sent::Known(Reply::Done)
                }
            },
            Verb::End { xid, success } => Sent::Known(self.end(*xid, *success)),
            // The store has not heard of it, or has dropped it with its connection.
            Verb::Rollback(xid) if self.is_unheard(*xid) => {
                self.branch = None;
                Sent::Known(Reply::Done)
            }
            // Their branch went with its connection: no other can bring them.
            Verb::Prepare(xid) | Verb::CommitOnePhase(xid) if self.is_unheard(*xid) => {
                self.branch = None;
                Sent::Known(Reply::RolledBack(native("dropped", "the store has no work of this branch")))
            }
            Verb::Prepare(xid) => self.verb(&Request::Prepare(*xid)),
            Verb::CommitOnePhase(xid) => self.verb(&Request::CommitOnePhase(*xid)),
            Verb::Commit(xid) => self.verb(&Request::Commit(*xid)),
            Verb::Rollback(xid) => self.verb(&Request::Rollback(*xid)),
            Verb::Recover(node) => self.verb(&Request::Recover(*node)),
            Verb::Forget(xid) => self.verb(&Request::Forget(*xid)),
            Verb::Claim(node) => match self.verb(&Request::Claim(*node)) {
                Sent::Asked(ticket) => Sent::Claimed(ticket),
                known => known,
            },
            Verb::Inquire { xid, witness } => self.verb(&Request::Inquire { xid: *xid, witness }),
            Verb::CommitLast { .. } | Verb::Settle { .. } | Verb::Rows { .. } | Verb::Clear { .. } => {
                Sent::Known(Reply::without_rows())
            }
            // A store's branch is nobody's once it is prepared.
            Verb::Evict(_) | Verb::Freed { .. } => Sent::Known(Reply::Done),
        }
    }

    fn is_unheard(&self, xid: Xid) -> bool {
        matches!(self.branch, Some((mine, Stand::Fresh | Stand::Dropped)) if mine == xid)
    }

    fn take(&mut self, ticket: Ticket) -> Reply {
        let Some(link) = &self.link else { return Reply::Lost(native("lost", "the connection ended")) };
        for passed in self.passed.drain(..) {
            // Whatever it says, the verb behind it says it too.
            _ = link.receive(passed);
        }
        let outcome = link.receive(ticket).and_then(|arrived| match arrived.answer()? {
            Answer::Branch(reply) => {
                if let assent_wire::Reply::Yes(witness) = reply {
                    self.witness = witness.to_vec();
                }
                Ok(reply_of(reply))
            }
            _ => Err(LinkError::InDoubt { message: "an answer of another kind than asked".to_owned() }),
        });
        self.watch(&outcome);
        outcome.unwrap_or_else(|error| self.trouble(&error))
    }
}

/// Whether an answer did not come.
const fn is_lost(error: &LinkError) -> bool {
    matches!(error, LinkError::Unavailable { .. } | LinkError::InDoubt { .. })
}

/// A refused start is the answer to the work that travelled with it.
fn started_well(reply: &assent_wire::Reply<'_>) -> Result<(), LinkError> {
    use assent_wire::Reply as R;
    let refused = |kind, native: &assent_wire::Native<'_>| {
        Err(LinkError::Refused { kind, message: format!("the branch was not started: {}", native.message) })
    };
    match reply {
        R::Refused(kind, native) => refused(*kind, native),
        R::RolledBack(native) | R::Unknown(native) | R::Heuristic(_, native) => refused(Kind::RolledBack, native),
        R::Done | R::Yes(_) | R::ReadOnly | R::Listed(_) | R::Past(_) => Ok(()),
    }
}

impl Resource for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn witness(&mut self) -> Vec<u8> {
        self.witness.clone()
    }

    fn send(&mut self, verb: Verb) {
        // A second verb before the answer is not done; the answer that is missing for it says so.
        if self.sent.is_none() {
            let sent = self.begin(&verb);
            // Whatever comes next, this connection is free for another branch.
            if let Verb::Prepare(xid) | Verb::CommitOnePhase(xid) | Verb::Rollback(xid) = verb
                && self.branch.is_some_and(|(mine, _)| mine == xid)
            {
                self.branch = None;
            }
            self.sent = Some(sent);
        }
    }

    fn has_ended(&mut self) -> bool {
        // Who had no claim connects when there is something to say.
        self.sent.is_none() && self.link.as_ref().map_or(self.is_claimed, |link| !link.look())
    }

    fn receive(&mut self) -> Reply {
        match self.sent.take() {
            None => Reply::Refused(Kind::Internal, unsent()),
            Some(Sent::Known(reply)) => reply,
            Some(Sent::Asked(ticket)) => self.take(ticket),
            Some(Sent::Claimed(ticket)) => {
                let reply = self.take(ticket);
                self.is_claimed |= reply == Reply::Done;
                reply
            }
        }
    }
}
