//! The verbs in MariaDB's words, over one connection.
//!
//! Walk: XA START · the caller's work · XA END, where a branch that wrote nothing may commit and drop out · XA PREPARE ·
//! XA COMMIT or XA ROLLBACK. From XA START to the end of phase two the session belongs to the branch: a prepared branch
//! stays attached to it and takes no other statement, and until the session ends nobody else can finish the branch.
//! Trap: 1397 to XA COMMIT says "gone" and "attached to a living session" with the same number; XA RECOVER in the
//! same call tells them apart.
//! Trap: XA ROLLBACK of a prepared branch is not flushed; after a crash of the server the branch may be back.
//! Deliberately absent: what an error means (`codes.rs`), which verb is allowed when (`stand.rs`), what only recovery
//! asks (`recovery.rs`).

use assent_ids::{ResourceId, Xid};
use assent_kind::Kind;
use assent_xa::{Native, Reply, Verb, Vote};
use mysql::Conn;
use mysql::prelude::Queryable as _;

use crate::kept::{self, said};
use crate::mariadb::codes::{Says, Step, judge, native};
use crate::mariadb::owner::Mark;
use crate::mariadb::witness::Seen;
use crate::mariadb::written::{self, Written};
use crate::mariadb::xids::literal;
use crate::stand::{Plan, Stand, unreachable};

/// One connection.
pub(crate) struct Session {
    /// Dropped when it breaks, so that the server lets go of the branch and a late answer is read by nobody.
    connection: Result<Conn, Native>,
    stand: Stand,
    /// Whether a branch is looked at for what it wrote.
    pub(crate) detect_read_only: bool,
    /// What the session had written when its branch started; nothing where it was not asked.
    before: Option<Written>,
    /// Whose branches the connection works on.
    pub(super) mark: Option<Mark>,
    /// Whether the caller has had the connection between branches since the mark was taken.
    pub(super) lent: bool,
    pub(super) resource: ResourceId,
    /// The server as it was when the connection was opened.
    pub(super) seen: Seen,
}

/// An error as the verbs see it.
pub(crate) enum Failure {
    /// The server's own.
    Server(u16, String),
    /// The connection is over.
    Lost(Native),
}

impl Failure {
    pub(crate) fn of(error: &mysql::Error) -> Self {
        match error {
            mysql::Error::MySqlError(error) => Self::Server(error.code, error.message.clone()),
            other => Self::Lost(said(other.to_string())),
        }
    }

    pub(crate) fn native(&self) -> Native {
        match self {
            Self::Server(code, message) => native(*code, message),
            Self::Lost(native) => native.clone(),
        }
    }

    fn says(&self, step: Step) -> Says {
        match self {
            Self::Server(code, message) => judge(step, *code, message),
            Self::Lost(_) => Says::Lost,
        }
    }
}

impl Session {
    pub(crate) fn new(connection: Conn, resource: ResourceId, seen: Seen) -> Self {
        Self {
            connection: Ok(connection),
            stand: Stand::Idle,
            detect_read_only: false,
            before: None,
            mark: None,
            lent: false,
            resource,
            seen,
        }
    }

    /// The connection for the caller's own statements.
    pub(crate) fn work<T>(
        &mut self,
        work: impl FnOnce(&mut Conn) -> Result<T, mysql::Error>,
    ) -> Result<Result<T, Failure>, Native> {
        self.lent |= self.stand.occupant().is_none();
        self.lend(work)
    }

    /// The connection, while it is whole.
    pub(crate) fn lend<T>(
        &mut self,
        work: impl FnOnce(&mut Conn) -> Result<T, mysql::Error>,
    ) -> Result<Result<T, Failure>, Native> {
        let connection = self.connection.as_mut().map_err(|native| native.clone())?;
        Ok(work(connection).map_err(|error| {
            let broken = matches!(&error, mysql::Error::IoError(_) | mysql::Error::CodecError(_))
                || matches!(&error, mysql::Error::DriverError(driver) if out_of_step(driver));
            let failure = Failure::of(&error);
            if broken || failure.says(Step::Open) == Says::Lost {
                self.connection = Err(failure.native());
            }
            failure
        }))
    }

    fn say(&mut self, sql: &str) -> Result<(), Failure> {
        self.lend(|connection| connection.query_drop(sql)).unwrap_or_else(|gone| Err(Failure::Lost(gone)))
    }

    /// The same, and with it in one message what the session has written after it, if that is wanted.
    fn say_and_count(&mut self, sql: &str, count: bool) -> Result<Option<Written>, Failure> {
        if !count {
            return self.say(sql).map(|()| None);
        }
        self.lend(|connection| written::after(connection, sql)).unwrap_or_else(|gone| Err(Failure::Lost(gone)))
    }

    fn start(&mut self, xid: Xid) -> Reply {
        if let Err(reply) = self.mark(&xid) {
            return reply;
        }
        match self.say_and_count(&format!("XA START {}", literal(&xid)), self.detect_read_only) {
            Ok(written) => {
                self.before = written;
                self.stand = Stand::Active(xid);
                Reply::Done
            }
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    fn end(&mut self, xid: Xid, success: bool) -> Reply {
        let before = self.before.take();
        match self.say_and_count(&format!("XA END {}", literal(&xid)), success && before.is_some()) {
            Ok(after) => {
                self.stand = Stand::Ended { xid, success };
                if success && before.is_some() && before == after { self.finish_read_only(xid) } else { Reply::Done }
            }
            Err(failure) => {
                let reply = plain(Step::Open, &failure);
                if matches!(reply, Reply::RolledBack(_)) {
                    // The branch lingers in ROLLBACK ONLY; nothing but its rollback frees the connection.
                    return self.clean_up(xid, reply);
                }
                reply
            }
        }
    }

    /// A commit, so that even if the server had not counted something it would not be lost.
    fn finish_read_only(&mut self, xid: Xid) -> Reply {
        match self.commit_one_phase(xid) {
            Reply::Done => Reply::Vote(Vote::ReadOnly),
            other => other,
        }
    }

    fn prepare(&mut self, xid: Xid) -> Reply {
        match self.say(&format!("XA PREPARE {}", literal(&xid))) {
            Ok(()) => {
                self.stand = Stand::Prepared(xid);
                Reply::Vote(Vote::Yes)
            }
            Err(failure) => match failure.says(Step::Vote) {
                // A branch that is prepared is attached to this very session and could be rolled back from it; so
                // whatever the rollback answers, if it answers, nothing is left prepared.
                Says::RolledBack | Says::Unclear => {
                    let reply = Reply::RolledBack(failure.native());
                    self.clean_up(xid, reply)
                }
                _ => plain(Step::Vote, &failure),
            },
        }
    }

    fn commit_one_phase(&mut self, xid: Xid) -> Reply {
        match self.say(&format!("XA COMMIT {} ONE PHASE", literal(&xid))) {
            Ok(()) => {
                self.stand = Stand::Idle;
                Reply::Done
            }
            Err(failure) => match failure.says(Step::Vote) {
                Says::RolledBack => {
                    let reply = Reply::RolledBack(failure.native());
                    self.clean_up(xid, reply)
                }
                // 1398 says that it is not here, as 1397 does elsewhere: the application has ended it on its own.
                Says::Unclear | Says::NotHere | Says::Refused(_) => {
                    // If it can still be rolled back, it was not committed. If not, nobody can tell.
                    match self.say(&format!("XA ROLLBACK {}", literal(&xid))) {
                        Ok(()) => {
                            self.stand = Stand::Over(xid);
                            Reply::RolledBack(failure.native())
                        }
                        Err(_) => {
                            self.stand = Stand::Idle;
                            Reply::Lost(failure.native())
                        }
                    }
                }
                _ => plain(Step::Vote, &failure),
            },
        }
    }

    /// Rolls back what the server has already given up, so that the connection is free, and passes the reply on.
    fn clean_up(&mut self, xid: Xid, reply: Reply) -> Reply {
        match self.say(&format!("XA ROLLBACK {}", literal(&xid))) {
            Err(Failure::Lost(native)) => Reply::Lost(native),
            // Mostly 1397: the server had rolled it back and forgotten it.
            Ok(()) | Err(Failure::Server(..)) => {
                self.stand = Stand::Over(xid);
                reply
            }
        }
    }

    fn roll_back_open(&mut self, xid: Xid) -> Reply {
        if matches!(self.stand, Stand::Active(_)) {
            // XA ROLLBACK refuses an active branch. An error here may say that it is rolled back; the next tells.
            if let Err(Failure::Lost(native)) = self.say(&format!("XA END {}", literal(&xid))) {
                return Reply::Lost(native);
            }
        }
        let reply = match self.say(&format!("XA ROLLBACK {}", literal(&xid))) {
            Ok(()) => Reply::Done,
            Err(failure) => match failure.says(Step::Rollback) {
                // It was never prepared: a branch that the server has forgotten is rolled back.
                Says::NotHere => Reply::Done,
                _ => plain(Step::Rollback, &failure),
            },
        };
        if reply == Reply::Done {
            self.stand = Stand::Over(xid);
        }
        reply
    }

    fn finish(&mut self, step: Step, xid: Xid) -> Reply {
        let word = if step == Step::Commit { "COMMIT" } else { "ROLLBACK" };
        let reply = match self.say(&format!("XA {word} {}", literal(&xid))) {
            Ok(()) => Reply::Done,
            Err(failure) if failure.says(step) == Says::NotHere => {
                let gone = failure.native();
                return self.attached(&xid, &gone).unwrap_or_else(|| {
                    self.stand = Stand::Idle;
                    Reply::Unknown(gone)
                });
            }
            Err(failure) => plain(step, &failure),
        };
        if matches!(reply, Reply::Done | Reply::RolledBack(_)) {
            self.stand = Stand::Idle;
        }
        reply
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
            Plan::Start(xid) => self.start(xid),
            Plan::End { xid, success } => self.end(xid, success),
            Plan::Prepare(xid) => self.prepare(xid),
            Plan::CommitOnePhase(xid) => self.commit_one_phase(xid),
            Plan::VoteNo(xid) => match self.roll_back_open(xid) {
                Reply::Done => Reply::RolledBack(said("the work was reported failed when it ended".to_owned())),
                other => other,
            },
            Plan::CommitPrepared(xid) => self.finish(Step::Commit, xid),
            Plan::RollbackPrepared(xid) => self.finish(Step::Rollback, xid),
            Plan::RollbackOpen(xid) => self.roll_back_open(xid),
            Plan::Recover | Plan::Recovery => match verb {
                Verb::Recover(node) => self.recover(*node),
                Verb::Claim(node) => self.claim(*node),
                Verb::Inquire { xid, witness } => self.inquire(xid, witness),
                Verb::Evict(xid) => self.evict(xid),
                _ => Reply::Refused(Kind::Internal, said("only recovery asks this".to_owned())),
            },
        }
    }

    fn at_once(&mut self, verb: &Verb) -> Option<Reply> {
        match (self.stand.plan(verb), &self.connection) {
            (plan, Err(gone)) => Some(unreachable(verb, plan, gone.clone())),
            (Plan::Answer(reply), Ok(_)) => Some(reply),
            (_, Ok(_)) => None,
        }
    }
}

/// The reply where the error needs no second look.
pub(super) fn plain(step: Step, failure: &Failure) -> Reply {
    let native = failure.native();
    match failure.says(step) {
        Says::Lost => Reply::Lost(native),
        Says::RolledBack => Reply::RolledBack(native),
        Says::NotHere => Reply::Unknown(native),
        Says::Done => Reply::Done,
        Says::Refused(kind) => Reply::Refused(kind, native),
        Says::Unclear => Reply::Refused(Kind::Internal, native),
    }
}

/// The driver no longer knows which answer belongs to which question.
fn out_of_step(driver: &mysql::DriverError) -> bool {
    matches!(driver, mysql::DriverError::PacketOutOfSync | mysql::DriverError::UnexpectedPacket)
}
