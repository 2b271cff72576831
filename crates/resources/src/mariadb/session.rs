//! The verbs in MariaDB's words, over one connection.
//!
//! Walk: XA START · the caller's work · XA END, where a branch that wrote nothing may commit and drop out · XA PREPARE ·
//! XA COMMIT or XA ROLLBACK. From XA START to the end of phase two the session belongs to the branch: a prepared branch
//! stays attached to it and takes no other statement, and until the session ends nobody else can finish the branch.
//! Trap: 1397 to XA COMMIT says "gone" and "attached to a living session" with the same number; XA RECOVER in the
//! same call tells them apart.
//! Trap: XA ROLLBACK of a prepared branch is not flushed; after a crash of the server the branch may be back.
//! Trap: a replica lists what it has replayed, which need not be what its primary holds. So no list of a server that is
//! read-only counts, and neither does its 1397; a replica that may be written to looks like a primary.
//! Deliberately absent: what an error means (`codes.rs`), which verb is allowed when (`stand.rs`).

use std::fmt::Write as _;

use assent_ids::{Branch, FORMAT_ID, NodeId, Xid};
use assent_kind::Kind;
use assent_xa::{Native, Past, Reply, Verb, Vote};
use mysql::prelude::Queryable;
use mysql::{Conn, Row};

use crate::kept::{self, said};
use crate::mariadb::codes::{Says, Step, judge, native};
use crate::mariadb::written::{self, Written};
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

/// Why there is no list.
enum Unlisted {
    ReadOnly,
    Failed(Failure),
}

impl Session {
    pub(crate) fn new(connection: Conn) -> Self {
        Self { connection: Ok(connection), stand: Stand::Idle, detect_read_only: false, before: None }
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
            Err(failure) if failure.says(step) == Says::NotHere => return self.seek(&xid, failure.native()),
            Err(failure) => plain(step, &failure),
        };
        if matches!(reply, Reply::Done | Reply::RolledBack(_)) {
            self.stand = Stand::Idle;
        }
        reply
    }

    /// 1397 means both: finished, or attached to a session that lives (or is being finished by one).
    fn seek(&mut self, xid: &Xid, gone: Native) -> Reply {
        match self.prepared() {
            Ok(xids) if xids.contains(xid) => {
                let message = format!("branch {xid} is attached to a living session; come again ({})", gone.message);
                Reply::Refused(Kind::Busy, Native { message, ..gone })
            }
            Ok(_) => {
                self.stand = Stand::Idle;
                Reply::Unknown(gone)
            }
            Err(Unlisted::ReadOnly) => Reply::Refused(Kind::Unavailable, replica()),
            Err(Unlisted::Failed(Failure::Lost(native))) => Reply::Lost(native),
            // Not to be told apart now.
            Err(Unlisted::Failed(failure)) => Reply::Refused(Kind::Busy, failure.native()),
        }
    }

    /// Everything that is prepared here, and nothing if that cannot be known.
    fn prepared(&mut self) -> Result<Vec<Xid>, Unlisted> {
        let listed =
            self.lend(
                |connection| {
                    if is_read_only(connection)? { Ok(None) } else { connection.query("XA RECOVER").map(Some) }
                },
            );
        let rows: Option<Vec<Row>> =
            listed.unwrap_or_else(|gone| Err(Failure::Lost(gone))).map_err(Unlisted::Failed)?;
        let rows = rows.ok_or(Unlisted::ReadOnly)?;
        Ok(rows.into_iter().filter_map(read_row).collect())
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
            Plan::Recovery => match verb {
                Verb::Inquire { .. } => Reply::Past(Past::Forgotten),
                _ => Reply::Done,
            },
            Plan::Recover => match (verb, self.prepared()) {
                (Verb::Recover(node), Ok(xids)) => Reply::Listed(ours(*node, xids)),
                (_, Err(Unlisted::ReadOnly)) => Reply::Refused(Kind::Unavailable, replica()),
                (_, Err(Unlisted::Failed(failure))) => plain(Step::Open, &failure),
                (_, Ok(_)) => Reply::Refused(Kind::Internal, said("only recover asks for a list".to_owned())),
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

/// Whether the server is a replica, as far as it shows.
pub(crate) fn is_read_only(connection: &mut Conn) -> Result<bool, mysql::Error> {
    let found: Option<String> = connection.query_first("SELECT @@GLOBAL.read_only")?;
    // A number, or in newer versions a word.
    Ok(!matches!(found.as_deref(), Some("0" | "OFF")))
}

/// Why nothing that this server says about branches counts.
pub(crate) fn replica() -> Native {
    let message = "it has read_only = 1, as a replica has, which need not show what its primary has prepared; name the \
                   primary";
    native(1290, message)
}

/// The reply where the error needs no second look.
fn plain(step: Step, failure: &Failure) -> Reply {
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

/// The XID as `X'gtrid',X'bqual',format`.
fn literal(xid: &Xid) -> String {
    let mut text = String::from("X'");
    let hex = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing into a String cannot fail.
            let _ok = write!(text, "{byte:02x}");
        }
    };
    hex(&mut text, xid.gtrid());
    text.push_str("',X'");
    hex(&mut text, xid.bqual());
    let _ok = write!(text, "',{}", xid.format());
    text
}

/// formatID, gtrid_length, bqual_length, and the bytes of both, glued.
fn read_row(row: Row) -> Option<Xid> {
    let (format, gtrid_bytes, bqual_bytes, data): (i64, usize, usize, Vec<u8>) = mysql::from_row_opt(row).ok()?;
    glued(format, gtrid_bytes, bqual_bytes, &data)
}

/// Nothing for what can be no XID of ours.
fn glued(format: i64, gtrid_bytes: usize, bqual_bytes: usize, data: &[u8]) -> Option<Xid> {
    let (gtrid, bqual) = data.split_at_checked(gtrid_bytes)?;
    if bqual.len() != bqual_bytes {
        return None;
    }
    Xid::new(i32::try_from(format).ok()?, gtrid, bqual).ok()
}

fn ours(node: NodeId, xids: Vec<Xid>) -> Vec<Xid> {
    let mine = |xid: &Xid| xid.format() == FORMAT_ID && xid.gtrid().starts_with(&Branch::prefix(node));
    xids.into_iter().filter(mine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glued_bytes_are_cut_by_their_lengths_or_ignored() {
        let xid = Xid::new(7, b"gt'\0rid", b"\xffb").unwrap();
        assert_eq!(literal(&xid), "X'6774270072696 4',X'ff62',7".replace(' ', ""));
        assert_eq!(glued(7, 7, 2, b"gt'\0rid\xffb"), Some(xid));
        assert_eq!(glued(7, 7, 0, b"gt'\0rid"), Xid::new(7, b"gt'\0rid", b"").ok());
        assert_eq!(glued(7, 8, 2, b"gt'\0rid\xffb"), None, "more bytes than lengths");
        assert_eq!(glued(7, 70, 2, b"short"), None);
        assert_eq!(glued(7, 0, 2, b"ab"), None, "no gtrid");
        assert_eq!(glued(1 << 31, 1, 1, b"ab"), None, "MySQL's formats go further");
    }
}
