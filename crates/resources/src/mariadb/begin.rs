//! How a branch begins on its session, and the caller's work.
//!
//! Walk: [`Session::unstarted`] answers a start without a word · [`Session::work`] lends the connection behind a [`Gate`],
//! which has XA START said with the caller's first words · [`Session::start`] says it by itself: to a server that has not told
//! of a transaction yet.
//! Nothing of the caller's passes the gate before the server has said yes to the start: until that answer is in, the start
//! counts as refused, also where the caller's code panics. A start that is refused takes its words with it, as the server
//! does nothing more of a message behind an error, and the gate is shut until a verb ends the branch.
//! Deliberately absent: how the words are put together (`client.rs`).

use assent_ids::Xid;
use assent_xa::{Native, Reply, Vote};
use mysql::prelude::Queryable as _;
use mysql::{Conn, QueryResult, Text};

use super::client::{MariadbClient, finish};
use super::codes::Step;
use super::failure::{Failure, plain};
use super::known::Known;
use super::session::Session;
use super::wire::Wire;
use super::xids::literal;
use crate::kept::said;
use crate::stand::{Plan, Stand};

/// Longer words go by themselves: with the start they might be more than the server takes in one message.
const WITH_START_BYTES_MAX: usize = 64 << 10;

/// How far the server has heard of the branch's start.
#[derive(Debug, Default)]
pub(super) enum Start {
    /// It has said yes to it; or there is no branch.
    #[default]
    Heard,
    /// These words go with the caller's first ones.
    Owed(String),
    /// The branch is not there, or nobody knows.
    Refused(Failure),
}

impl Start {
    /// What must be said first. It counts as refused until [`Start::answered`].
    fn take(&mut self) -> mysql::Result<Option<String>> {
        let unanswered = Self::Refused(Failure::Lost(said("the start of the branch was cut short".to_owned())));
        match std::mem::replace(self, unanswered) {
            Self::Heard => {
                *self = Self::Heard;
                Ok(None)
            }
            Self::Owed(words) => Ok(Some(words)),
            Self::Refused(why) => {
                let error = why.as_error();
                *self = Self::Refused(why);
                Err(error)
            }
        }
    }

    fn answered<T>(&mut self, answer: &mysql::Result<T>) {
        *self = answer.as_ref().err().map_or(Self::Heard, |error| Self::Refused(Failure::of(error)));
    }
}

/// The only way to the driver's connection while a branch is worked on.
#[derive(Debug)]
pub(super) struct Gate<'s> {
    connection: &'s mut Conn,
    start: &'s mut Start,
}

impl Gate<'_> {
    /// The connection, with the branch started on it.
    pub(super) fn pass(&mut self) -> mysql::Result<&mut Conn> {
        if let Some(start) = self.start.take()? {
            // Of several statements each.
            let said = self.connection.query_iter(start).and_then(finish);
            self.start.answered(&said);
            said?;
        }
        Ok(self.connection)
    }

    /// These words, with the start in front of them in one message if it has not been said.
    pub(super) fn pass_with(&mut self, words: &str) -> mysql::Result<QueryResult<'_, '_, '_, Text>> {
        // Of the answers to both only the first one is the start's.
        let is_long = matches!(&*self.start, Start::Owed(start) if start.contains(';'));
        if is_long || words.len() > WITH_START_BYTES_MAX {
            return self.pass()?.query_iter(words);
        }
        let Some(start) = self.start.take()? else { return self.connection.query_iter(words) };
        let said = self.connection.query_iter([start.as_str(), "; ", words].concat());
        // The first answer is that to the start.
        self.start.answered(&said);
        said
    }

    /// For what the driver knows of the last answer.
    pub(super) const fn connection(&self) -> &Conn {
        self.connection
    }
}

/// What of a connection is ours as long as nobody else has had it.
#[derive(Debug, Default)]
pub(super) struct Grip {
    /// For the verbs.
    pub(super) wire: Option<Wire>,
    /// Whether there may be one.
    pub(super) is_own: bool,
    /// Whether the caller has had the connection between branches since the mark was taken.
    pub(super) lent: bool,
    /// The commit of a branch that only read is on its way, and nobody has read its answer.
    pub(super) leaves: bool,
}

impl Grip {
    /// The caller gets the driver's connection itself: another socket may be behind it then, and the mark gone.
    pub(super) fn loosen(&mut self) {
        *self = Self { lent: true, ..Self::default() };
    }
}

impl Session {
    /// The connection for the caller's own statements.
    pub(crate) fn work<T>(
        &mut self,
        work: impl FnOnce(&mut MariadbClient<'_>) -> Result<T, mysql::Error>,
    ) -> Result<Result<T, Failure>, Native> {
        if let Start::Refused(why) = &self.start {
            return Ok(Err(why.clone()));
        }
        self.clear();
        // Not later: the caller may change the socket behind the connection.
        self.limit = None;
        self.unlimit()?;
        match self.stand {
            Stand::Active(_) => {}
            // What is said now must not become the branch's. Where the server objects nothing is.
            Stand::Ended { xid, .. } if self.known.end_owed => {
                match self.say(&format!("XA END {}", literal(&xid))) {
                    Ok(()) => {}
                    Err(Failure::Lost(native)) => return Err(native),
                    Err(failure) => return Ok(Err(failure)),
                }
                self.known.end_owed = false;
            }
            _ => self.grip.lent |= self.stand.occupant().is_none(),
        }
        let connection = self.connection.as_mut().map_err(|native| native.clone())?;
        // So it stays where the caller's code panics.
        let had_failed = self.known.suspect();
        let gate = Gate { connection, start: &mut self.start };
        let mut client = MariadbClient::new(gate, &mut self.known, &mut self.grip);
        let worked = work(&mut client);
        let broken = client.leave();
        self.known.settle(had_failed);
        let worked = self.judged(worked);
        if let (Some(why), Ok(_)) = (broken, &self.connection) {
            // Whatever the caller made of it.
            self.break_off(why.native());
        }
        if matches!(self.stand, Stand::Active(_)) {
            self.known.note(self.connection.as_ref().ok(), &worked);
        }
        Ok(worked)
    }

    /// The caller has dealt with the statement that was cut short.
    pub(crate) fn carry_on(&mut self) {
        self.known.half = None;
    }

    /// Where nobody else has the connection.
    pub(super) fn open_wire(&mut self) {
        if self.grip.is_own && self.grip.wire.is_none() {
            self.grip.wire = self.connection.as_ref().ok().and_then(Wire::of);
        }
    }

    pub(super) fn start(&mut self, xid: Xid) -> Reply {
        if let Err(reply) = self.mark(&xid) {
            return reply;
        }
        match self.say(&format!("XA START {}", literal(&xid))) {
            Ok(()) => {
                self.known = self.connection.as_ref().map(Known::at_start).unwrap_or_default();
                self.tells = self.known.told;
                if self.tells {
                    self.open_wire();
                }
                self.stand = Stand::Active(xid);
                Reply::Done
            }
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    /// What needs no word as long as the server has not heard of the branch: its start, where the session is marked and the
    /// server has told of a transaction before; the end of one without any work, or of one that the server refused.
    pub(super) fn unstarted(&mut self, plan: &Plan) -> Option<Reply> {
        match (plan, &self.start) {
            (Plan::Start(xid), Start::Heard) if self.only_reads => {
                (self.known, self.start) = (Known::to_start(), Start::Owed(self.opening()));
                self.grip.lent = false;
                self.stand = Stand::Active(*xid);
                Some(Reply::Done)
            }
            (Plan::Start(xid), Start::Heard) if self.tells && self.is_marked(xid) => {
                (self.known, self.start) = (Known::to_start(), Start::Owed(["XA START ", &literal(xid)].concat()));
                self.stand = Stand::Active(*xid);
                Some(Reply::Done)
            }
            // Who wants every branch to vote has this one start now.
            (Plan::End { success: true, .. }, Start::Owed(_)) if self.detect_read_only || self.only_reads => {
                (self.start, self.stand) = (Start::Heard, Stand::Idle);
                self.grip.lent |= self.only_reads;
                Some(Reply::Vote(Vote::ReadOnly))
            }
            (Plan::End { xid, success: false } | Plan::RollbackOpen(xid), Start::Owed(_)) => {
                self.grip.lent |= self.only_reads;
                (self.start, self.stand) = (Start::Heard, Stand::Over(*xid));
                Some(Reply::Done)
            }
            (Plan::End { xid, .. } | Plan::RollbackOpen(xid), Start::Refused(why)) => {
                let why = why.clone();
                self.grip.lent |= self.only_reads;
                (self.start, self.stand) = (Start::Heard, Stand::Over(*xid));
                // The next one says it by itself. Perhaps an older branch is on the session, or none can be.
                self.tells = false;
                if let Failure::Lost(native) = &why {
                    self.break_off(native.clone());
                }
                let is_good = matches!(plan, Plan::End { success: true, .. });
                Some(if is_good { Reply::RolledBack(why.native()) } else { Reply::Done })
            }
            _ => None,
        }
    }
}
