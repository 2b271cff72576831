//! How a branch begins on its session, and the caller's work.
//!
//! Walk: [`Session::unstarted`] answers a start without a word · [`Session::work`] lends the connection, and has XA START said
//! with the caller's first words · [`Session::start`] says it by itself: to a server that has not told of a transaction yet.
//! Trap: a start that is refused takes those words with it, and whoever did not hear that must not work outside of the
//! branch: all work is refused until a verb ends it.
//! Deliberately absent: how the words are put together (`client.rs`).

use assent_ids::Xid;
use assent_xa::{Native, Reply, Vote};

use super::client::MariadbClient;
use super::codes::Step;
use super::failure::{Failure, plain};
use super::known::Known;
use super::session::Session;
use super::wire::Wire;
use super::xids::literal;
use crate::stand::{Plan, Stand};

impl Session {
    /// The connection for the caller's own statements.
    pub(crate) fn work<T>(
        &mut self,
        work: impl FnOnce(&mut MariadbClient<'_>) -> Result<T, mysql::Error>,
    ) -> Result<Result<T, Failure>, Native> {
        if let Some(why) = &self.not_started {
            return Ok(Err(why.clone()));
        }
        // Not later: the caller may change the socket behind the connection.
        self.limit = None;
        self.wire.as_mut().map(|wire| wire.limit(None));
        match self.stand {
            Stand::Active(_) => {}
            // What is said now must not become the branch's. If the server objects, it does to the work too.
            Stand::Ended { xid, .. } if self.known.end_owed => {
                self.known.end_owed = self.say(&format!("XA END {}", literal(&xid))).is_err();
            }
            _ => self.lent |= self.stand.occupant().is_none(),
        }
        let worked = self.lend_to(work)?;
        if matches!(self.stand, Stand::Active(_)) {
            self.known.note(self.connection.as_ref().ok(), &worked);
        }
        Ok(worked)
    }

    /// The same, with what starts the branch if that has not been said.
    fn lend_to<T>(
        &mut self,
        work: impl FnOnce(&mut MariadbClient<'_>) -> Result<T, mysql::Error>,
    ) -> Result<Result<T, Failure>, Native> {
        let xid = self.stand.occupant().filter(|_| self.start_owed);
        let start = xid.map(|xid| format!("XA START {}", literal(&xid)));
        let (mut known, mut left) = (std::mem::take(&mut self.known), (false, None, false));
        let worked = self.lend(|connection| {
            let mut client = MariadbClient::new(connection, &mut known, start);
            let worked = work(&mut client);
            left = client.leave();
            worked
        });
        self.known = known;
        let (is_unsaid, refused, is_changed) = left;
        self.start_owed &= is_unsaid;
        if is_changed {
            // Perhaps it is another socket now, and the mark gone.
            (self.wire, self.lent) = (None, true);
        }
        if let (Some(why), Some(xid)) = (refused, xid) {
            self.not_started = Some(why);
            self.stand = Stand::Over(xid);
        }
        worked
    }

    /// The caller has dealt with the statement that was cut short.
    pub(crate) fn carry_on(&mut self) {
        self.known.half = None;
    }

    pub(super) fn start(&mut self, xid: Xid) -> Reply {
        if let Err(reply) = self.mark(&xid) {
            return reply;
        }
        match self.say(&format!("XA START {}", literal(&xid))) {
            Ok(()) => {
                self.known = self.connection.as_ref().map(Known::at_start).unwrap_or_default();
                self.tells = self.known.told;
                if self.is_own && self.tells && self.wire.is_none() {
                    self.wire = self.connection.as_ref().ok().and_then(Wire::of);
                }
                self.stand = Stand::Active(xid);
                Reply::Done
            }
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    /// What needs no word as long as the server has not heard of the branch: its start, where the session is marked and the
    /// server has told of a transaction before; the end of one without any work.
    pub(super) fn unstarted(&mut self, plan: &Plan) -> Option<Reply> {
        match *plan {
            Plan::Start(xid) if self.tells && self.is_marked(&xid) => {
                (self.known, self.start_owed) = (Known::to_start(), true);
                self.stand = Stand::Active(xid);
                Some(Reply::Done)
            }
            // Who wants every branch to vote has this one start now.
            Plan::End { success: true, .. } if self.start_owed && self.detect_read_only => {
                self.start_owed = false;
                self.stand = Stand::Idle;
                Some(Reply::Vote(Vote::ReadOnly))
            }
            Plan::End { xid, success: false } | Plan::RollbackOpen(xid) if self.start_owed => {
                self.start_owed = false;
                self.stand = Stand::Over(xid);
                Some(Reply::Done)
            }
            _ => None,
        }
    }
}
