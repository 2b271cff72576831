//! The verbs in PostgreSQL's words, over one connection.
//!
//! Walk: BEGIN · the caller's work · its end, where a branch that wrote nothing commits and drops out · PREPARE
//! TRANSACTION, or COMMIT of the only branch · COMMIT PREPARED or ROLLBACK PREPARED, which any connection to the same
//! database with the same role may send.
//! Read-only: a transaction has a number of its own as soon as it wrote or locked a row. What it wrote through a foreign
//! table gives it none, and would be committed with it: so one that locked a foreign table for writing counts as writing.
//! Trap: NOTIFY gives no number either. A branch that did nothing else notifies at its end, whatever becomes of the
//! others; one that is prepared may not notify at all.
//! Trap: PREPARE TRANSACTION and COMMIT of a failed transaction, or outside one, answer *ROLLBACK* as a command tag
//! and no error, and the driver does not tell tags. So a SAVEPOINT goes before them in the same message: it fails
//! exactly there (25P02, 25P01), and the server then skips the rest of the message.
//! Trap: a standby lists no prepared transactions, whatever its primary holds; they appear when it is promoted. So
//! every list asks first whether this is one: a list that lacks a branch counts as a proof that it is finished.
//! Deliberately absent: what an error means (`codes.rs`), which verb is allowed when (`stand.rs`).

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assent_ids::{Branch, FORMAT_ID, NodeId, Xid};
use assent_kind::Kind;
use assent_xa::{Native, Past, Reply, Verb, Vote};
use postgres::error::Severity;
use postgres::{Client, SimpleQueryMessage};

use crate::kept::{self, said};
use crate::postgres::codes::{Step, judge};
use crate::stand::{Plan, Stand, unreachable};

/// SQLSTATE of a savepoint outside of a transaction.
const NO_TRANSACTION: &str = "25P01";
/// Whether the branch has a transaction number. By the old name of the function, which every server since 10 has. Where
/// no transaction is open the savepoint fails, as before a vote.
const WROTE: &str = "SAVEPOINT assent_end; SELECT pg_catalog.txid_current_if_assigned() IS NOT NULL";
/// Whether it may have written elsewhere, through a foreign table. Planned only for a branch that has no number.
const WROTE_ELSEWHERE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_foreign_table) AND EXISTS (SELECT FROM \
     pg_catalog.pg_locks AS held JOIN pg_catalog.pg_foreign_table AS foreign_table \
     ON foreign_table.ftrelid OPERATOR(pg_catalog.=) held.relation \
     WHERE held.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() \
     AND held.mode OPERATOR(pg_catalog.<>) 'AccessShareLock' AND held.mode OPERATOR(pg_catalog.<>) 'RowShareLock')";

/// One connection.
pub(crate) struct Session {
    pub(crate) client: Client,
    stand: Stand,
    /// Whether a branch is asked at its end if it wrote anything.
    pub(crate) detect_read_only: bool,
    /// Set by the server's notice that BEGIN found a transaction open. Never set on a connection of the caller's,
    /// whose notices go elsewhere.
    was_open: Arc<AtomicBool>,
}

impl Session {
    pub(crate) fn new(client: Client, was_open: Arc<AtomicBool>) -> Self {
        Self { client, stand: Stand::Idle, detect_read_only: true, was_open }
    }

    /// One message. An error of the server, or the loss of the connection.
    fn say(&mut self, sql: &str) -> Result<(), Failure> {
        self.client.batch_execute(sql).map_err(|error| Failure::of(&error))
    }

    fn begin(&mut self, xid: Xid) -> Reply {
        self.was_open.store(false, Ordering::Relaxed);
        match self.say("BEGIN") {
            Ok(()) if self.was_open.load(Ordering::Relaxed) => {
                // XA, xa_start [XAER_OUTSIDE]: that work is not ours to vote on.
                let message = "a transaction is open on this connection; end it before a branch starts".to_owned();
                Reply::Refused(Kind::Invalid, Native { code: "25001".to_owned(), message })
            }
            Ok(()) => {
                self.stand = Stand::Active(xid);
                Reply::Done
            }
            Err(failure) => failure.judged(Step::Other),
        }
    }

    fn end(&mut self, xid: Xid) -> Reply {
        self.stand = Stand::Ended { xid, success: true };
        match self.commit_if_read_only() {
            Ok(true) => {
                self.stand = Stand::Idle;
                Reply::Vote(Vote::ReadOnly)
            }
            Ok(false) => Reply::Done,
            Err(failure) if failure.lost => Reply::Lost(failure.native),
            // The application has ended the transaction itself, and what it ended must not be taken for nothing: the
            // vote finds it again.
            Err(failure) if failure.native.code == NO_TRANSACTION => Reply::Done,
            // Any error leaves a failed transaction, or none: 25P02 where the work had failed, 40001 where a
            // serializable one that only read must not commit.
            Err(failure) => {
                self.stand = Stand::Over(xid);
                // A connection that breaks now takes nothing back: it is rolled back in any case.
                let _freed = self.say("ROLLBACK");
                Reply::RolledBack(failure.native)
            }
        }
    }

    fn commit_if_read_only(&mut self) -> Result<bool, Failure> {
        if self.answers_no(WROTE)? && self.answers_no(WROTE_ELSEWHERE)? {
            self.say("COMMIT")?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Only a plain no counts.
    fn answers_no(&mut self, question: &str) -> Result<bool, Failure> {
        let messages = self.client.simple_query(question).map_err(|error| Failure::of(&error))?;
        Ok(messages.iter().filter_map(first_column).eq(["f"]))
    }

    fn prepare(&mut self, xid: Xid) -> Reply {
        match self.say(&format!("SAVEPOINT assent_vote; PREPARE TRANSACTION {}", gid(&xid))) {
            Ok(()) => {
                // The connection is free at once; the branch no longer belongs to it.
                self.stand = Stand::Idle;
                Reply::Vote(Vote::Yes)
            }
            Err(failure) => self.failed_vote(Step::Vote, xid, failure),
        }
    }

    fn commit_one_phase(&mut self, xid: Xid) -> Reply {
        match self.say("SAVEPOINT assent_vote; COMMIT") {
            Ok(()) => {
                self.stand = Stand::Idle;
                Reply::Done
            }
            Err(failure) => self.failed_vote(Step::OnePhase, xid, failure),
        }
    }

    fn failed_vote(&mut self, step: Step, xid: Xid, failure: Failure) -> Reply {
        // A lost vote may have been a yes: then the stand stays, and nothing more is said on a dead connection.
        let session_ended = failure.lost;
        let reply = failure.judged(step);
        if !session_ended {
            self.stand = if matches!(reply, Reply::Lost(_)) { Stand::Idle } else { Stand::Over(xid) };
            // When the SAVEPOINT failed, the failed transaction is still there; else this only earns a warning. A
            // connection that breaks now takes nothing back: the no was definite.
            let _freed = self.say("ROLLBACK");
        }
        reply
    }

    fn roll_back_open(&mut self, xid: Xid) -> Reply {
        match self.say("ROLLBACK") {
            Ok(()) => {
                self.stand = Stand::Over(xid);
                Reply::Done
            }
            Err(failure) => failure.judged(Step::Other),
        }
    }

    fn finish(&mut self, sql: &str) -> Reply {
        match self.say(sql) {
            Ok(()) => Reply::Done,
            Err(failure) => failure.judged(Step::Second),
        }
    }

    fn list(&mut self, node: NodeId) -> Reply {
        // One message, so that no pool puts another server between the two. A server never goes back to being a
        // standby without a restart, and has its prepared transactions before it says that it is none any more.
        // Everybody sees the branches of all databases, but a branch can only be finished from its own.
        let sql = "SELECT pg_catalog.pg_is_in_recovery(); SELECT gid FROM pg_catalog.pg_prepared_xacts \
                   WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database()";
        let messages = match self.client.simple_query(sql) {
            Ok(messages) => messages,
            Err(error) => return Failure::of(&error).judged(Step::Other),
        };
        let mut columns = messages.iter().filter_map(first_column);
        match columns.next() {
            Some("f") => Reply::Listed(ours(node, columns)),
            Some("t") => Reply::Refused(Kind::Unavailable, standby()),
            _ => Reply::Refused(Kind::Internal, said("pg_is_in_recovery() had no answer".to_owned())),
        }
    }
}

impl kept::Session for Session {
    fn occupant(&self) -> Option<Xid> {
        self.stand.occupant()
    }

    fn step(&mut self, verb: &Verb) -> Reply {
        if let Some(reply) = self.at_once(verb) {
            return reply;
        }
        match self.stand.plan(verb) {
            Plan::Answer(reply) => reply,
            Plan::Start(xid) => self.begin(xid),
            Plan::End { xid, .. } => self.end(xid),
            Plan::Prepare(xid) => self.prepare(xid),
            Plan::CommitOnePhase(xid) => self.commit_one_phase(xid),
            Plan::VoteNo(xid) => match self.roll_back_open(xid) {
                Reply::Done => Reply::RolledBack(said("the work was reported failed when it ended".to_owned())),
                other => other,
            },
            Plan::CommitPrepared(xid) => self.finish(&format!("COMMIT PREPARED {}", gid(&xid))),
            Plan::RollbackPrepared(xid) => self.finish(&format!("ROLLBACK PREPARED {}", gid(&xid))),
            Plan::RollbackOpen(xid) => self.roll_back_open(xid),
            Plan::Recovery => match verb {
                Verb::Inquire { .. } => Reply::Past(Past::Forgotten),
                _ => Reply::Done,
            },
            Plan::Recover => match verb {
                Verb::Recover(node) => self.list(*node),
                _ => Reply::Refused(Kind::Internal, said("only recover asks for a list".to_owned())),
            },
        }
    }

    fn at_once(&mut self, verb: &Verb) -> Option<Reply> {
        let plan = self.stand.plan(verb);
        if self.client.is_closed() {
            return Some(unreachable(verb, plan, said("the connection was closed".to_owned())));
        }
        match plan {
            Plan::Answer(reply) => Some(reply),
            Plan::End { xid, success } if !(success && self.detect_read_only) => {
                // PostgreSQL has no word for it.
                self.stand = Stand::Ended { xid, success };
                Some(Reply::Done)
            }
            _ => None,
        }
    }
}

/// An error as the verbs see it.
pub(crate) struct Failure {
    pub(crate) native: Native,
    /// The session is over, whatever the code says.
    pub(crate) lost: bool,
}

impl Failure {
    pub(crate) fn of(error: &postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) => Self {
                native: Native { code: said.code().code().to_owned(), message: said.message().to_owned() },
                lost: matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic)),
            },
            None => {
                // The driver's own words name the operation, its source the reason.
                let message = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
                Self { native: said(message), lost: true }
            }
        }
    }

    fn judged(self, step: Step) -> Reply {
        if self.lost { Reply::Lost(self.native) } else { judge(step, self.native) }
    }
}

/// Why nothing that this server says about branches counts.
pub(crate) fn standby() -> Native {
    let message = "it is a standby, which does not show its primary's prepared transactions; name the primary";
    Native { code: "25006".to_owned(), message: message.to_owned() }
}

/// A gid as a literal.
fn gid(xid: &Xid) -> String {
    format!("'{}'", xid.to_gid().replace('\'', "''"))
}

/// Of the prepared gids those that this node gave; all others belong to somebody else.
fn ours<'a>(node: NodeId, gids: impl Iterator<Item = &'a str>) -> Vec<Xid> {
    gids.filter_map(|gid| Xid::from_gid(gid).ok())
        .filter(|xid| xid.format() == FORMAT_ID && xid.gtrid().starts_with(&Branch::prefix(node)))
        .collect()
}

pub(crate) fn first_column(message: &SimpleQueryMessage) -> Option<&str> {
    match message {
        SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation, ResourceId, TxId};

    use super::*;

    #[test]
    fn foreign_gids_are_ignored() {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 2 }, counter: 3 };
        let of = |node| Branch { node: NodeId(node), tx, resource: ResourceId::of("a"), number: 0, flags: 0 }.xid();
        let (mine, other) = (of(7), of(8));
        let same_bytes = Xid::new(1, mine.gtrid(), mine.bqual()).unwrap();
        let gids = [mine, other, same_bytes].map(|xid| xid.to_gid());
        let foreign = ["nightly-batch", "", "1_2", "131077_@@_@@"];
        let all = gids.iter().map(String::as_str).chain(foreign);
        assert_eq!(ours(NodeId(7), all), [mine]);
    }
}
