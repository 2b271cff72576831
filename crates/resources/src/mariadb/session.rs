//! The verbs in MariaDB's words, over one connection.
//!
//! Walk: XA START, in one message with the caller's first words where it can · the caller's work · XA END, which tells what it wrote: a branch that wrote nothing commits and drops out; of one that is
//! known to have written, in one message with what follows · XA PREPARE · XA COMMIT or XA ROLLBACK. From XA START to the end of phase two the session belongs to the branch: a prepared branch
//! stays attached to it and takes no other statement, and until the session ends nobody else can finish the branch.
//! Votes and second phases go ahead of their `receive` on a connection of our own (`wire.rs`); else the driver's call does both.
//! There the commit of a branch that only read is not waited for (`reader.rs`).
//! Trap: 1397 to XA COMMIT says "gone" and "attached to a living session" with the same number; XA RECOVER in the
//! same call tells them apart.
//! Trap: XA ROLLBACK of a prepared branch is not flushed; after a crash of the server the branch may be back.
//! Deliberately absent: what an error means (`codes.rs`), which verb is allowed when (`stand.rs`), what only recovery
//! asks (`recovery.rs`).

use std::collections::HashSet;
use std::time::Duration;

use assent_ids::{ResourceId, Xid};
use assent_kind::Kind;
use assent_world::net::{self, ReadLimit};
use assent_world::{Clock as _, Moment, RealClock};
use assent_xa::{Native, Reply, Verb, Vote};
use mysql::Conn;
use mysql::prelude::Queryable as _;

use crate::kept::{self, said};
use crate::mariadb::begin::{Grip, Start};
use crate::mariadb::codes::{Says, Step};
use crate::mariadb::failure::{Failure, is_broken, plain};
use crate::mariadb::known::{self, Known, State};
use crate::mariadb::owner::Mark;
use crate::mariadb::place::Place;
use crate::mariadb::recovery::Leavers;
use crate::mariadb::wire::Wire;
use crate::mariadb::witness::{LOG_PLACE, Seen};
use crate::mariadb::xids::literal;
use crate::stand::{Plan, Stand, unreachable};

/// How old the place in the log may be that a vote keeps, unless told otherwise: to be asked for it costs the server as
/// much as a branch does.
const PLACE_AGE_MAX: Duration = Duration::from_secs(1);

/// One connection.
pub(crate) struct Session {
    /// Dropped when it breaks, so that the server lets go of the branch and a late answer is read by nobody.
    pub(super) connection: Result<Conn, Native>,
    pub(super) stand: Stand,
    /// Whether a branch that is not known to have written is asked for it when it ends.
    pub(crate) detect_read_only: bool,
    /// Whether a branch that wrote to a table without transactions may vote yes.
    pub(crate) allow_plain_tables: bool,
    /// Whether the server may know how to tell with the end of a branch.
    ends_telling: bool,
    /// Whether its branches are said to read only (`reader.rs`).
    pub(super) only_reads: bool,
    /// Of the branch that occupies the connection.
    pub(super) known: Known,
    /// Of the branch that occupies the connection.
    pub(super) start: Start,
    /// Whether the server has told of a transaction here.
    pub(super) tells: bool,
    pub(super) grip: Grip,
    /// Whose branches the connection works on.
    pub(super) mark: Option<Mark>,
    pub(super) resource: ResourceId,
    /// The server as it was when the connection was opened; its place in its log as it was last asked for.
    pub(super) seen: Seen,
    /// How old that place may be when a branch votes.
    pub(super) place_age_max: Duration,
    place: Place,
    /// Kept from one verb to the next, as it is dear to set; gone before the caller works.
    pub(super) limit: Option<ReadLimit>,
    /// Connections that were looked for and not there any more; numbers never come again while the server runs.
    pub(super) gone: HashSet<u64>,
    /// Those of them behind which an outcome waits.
    pub(super) leavers: Leavers,
}

impl Session {
    /// `at` which address, and when that was asked which `seen` answers.
    pub(crate) fn new(
        connection: Conn,
        resource: ResourceId,
        (seen, asked): (Seen, Moment),
        is_own: bool,
        at: Option<&str>,
    ) -> Self {
        Self {
            start: Start::Heard,
            tells: false,
            grip: Grip { is_own, ..Grip::default() },
            connection: Ok(connection),
            stand: Stand::Idle,
            detect_read_only: true,
            allow_plain_tables: false,
            ends_telling: true,
            only_reads: false,
            known: Known::default(),
            mark: None,
            resource,
            place: Place::new(&seen, at, asked),
            seen,
            place_age_max: PLACE_AGE_MAX,
            limit: None,
            gone: HashSet::new(),
            leavers: Leavers::default(),
        }
    }

    /// The connection, while it is whole.
    pub(crate) fn lend<T>(
        &mut self,
        work: impl FnOnce(&mut Conn) -> Result<T, mysql::Error>,
    ) -> Result<Result<T, Failure>, Native> {
        let connection = self.connection.as_mut().map_err(|native| native.clone())?;
        let worked = work(connection);
        Ok(self.judged(worked))
    }

    pub(super) fn judged<T>(&mut self, worked: Result<T, mysql::Error>) -> Result<T, Failure> {
        worked.map_err(|error| {
            let failure = Failure::of(&error);
            if is_broken(&error) || failure.says(Step::Open) == Says::Lost {
                self.break_off(failure.native());
            }
            failure
        })
    }

    pub(super) fn break_off(&mut self, why: Native) {
        self.connection = Err(why);
        // They would keep the broken connection open.
        (self.limit, self.grip.wire) = (None, None);
    }

    /// The caller's own work may take as long as it likes.
    pub(super) fn unlimit(&mut self) -> Result<(), Native> {
        if self.grip.wire.as_mut().is_none_or(|wire| wire.limit(None)) {
            return Ok(());
        }
        let native = said("the time limit of its socket cannot be set".to_owned());
        self.break_off(native.clone());
        Err(native)
    }

    pub(super) fn say(&mut self, sql: &str) -> Result<(), Failure> {
        self.lend(|connection| connection.query_drop(sql)).unwrap_or_else(|gone| Err(Failure::Lost(gone)))
    }

    /// Several statements in one message, as far as the first that fails: which one that was. What the last answer tells.
    /// They are neither composed nor said again if they are on their way.
    pub(super) fn say_all(
        &mut self,
        statements: impl FnOnce(&Self) -> Vec<String>,
    ) -> Result<Option<State>, (usize, Failure)> {
        let (mut done, mut place) = (0, None);
        if let Some(wire) = self.grip.wire.as_mut().filter(|wire| wire.is_awaited()) {
            let told = wire.receive(&mut done, &mut self.known);
            // Or the server says that the connection is over: then nothing it said before is the end of it.
            if let Some(failure) = told.as_ref().err().filter(|failure| failure.says(Step::Open) == Says::Lost) {
                self.break_off(failure.native());
            }
            return told.map_err(|failure| (done, failure));
        }
        let statements = statements(self);
        let said = self
            .lend(|connection| known::say_all(connection, &statements, &mut done, &mut place))
            .unwrap_or_else(|gone| Err(Failure::Lost(gone)))
            .map_err(|failure| (done, failure));
        // Only `LOG_PLACE` answers with rows.
        self.seen.voted_at(place);
        said.map(|()| self.connection.as_ref().ok().and_then(known::state))
    }

    /// Whether the server is told at once that the branch has ended, or together with the next verb, whose answer then
    /// tells what it thinks of that.
    fn end_is_owed(&self, success: bool) -> bool {
        let ask = self.known.in_question() || (self.detect_read_only && self.known.may_be_read_only());
        !(success && ask)
    }

    fn end(&mut self, xid: Xid) -> Reply {
        if let Start::Owed(_) = std::mem::take(&mut self.start) {
            let started = self.start(xid);
            if started != Reply::Done {
                self.stand = Stand::Over(xid);
                return started;
            }
        }
        if let Some(half) = self.known.half.take() {
            let message = format!("a statement was undone and the branch has the rest: {}", half.message);
            return match self.roll_back_open(xid) {
                Reply::Done => Reply::RolledBack(Native { message, ..half }),
                other => other,
            };
        }
        let asks = self.known.told && self.detect_read_only;
        match self.say_end(&xid, asks) {
            Ok(()) => {
                self.stand = Stand::Ended { xid, success: true };
                if self.known.read_only() { self.finish_read_only(xid) } else { Reply::Done }
            }
            Err((0, failure)) => self.not_ended(xid, &failure),
            Err((_, Failure::Lost(native))) => Reply::Lost(native),
            Err((_, Failure::Server(..))) => {
                self.stand = Stand::Ended { xid, success: true };
                Reply::Done
            }
        }
    }

    /// Also has the server tell what the branch wrote, if that is asked. Which statement failed, the end being the first.
    fn say_end(&mut self, xid: &Xid, asks: bool) -> Result<(), (usize, Failure)> {
        let name = literal(xid);
        let mut statements = vec![["XA END ", &name].concat()];
        if asks && self.ends_telling {
            match self.say_all(|_| vec![known::end_telling(&name)]) {
                Ok(told) if self.known.told_at_end(told) => return Ok(()),
                Ok(_) => statements.clear(),
                // It does not know the statement.
                Err((_, failure)) if failure.says(Step::Open) == Says::Unclear => self.ends_telling = false,
                Err(failed) => return Err(failed),
            }
        }
        let before = usize::from(statements.is_empty());
        statements.extend(asks.then(|| known::ASK.to_owned()));
        let told = self.say_all(|_| statements).map_err(|(failed, failure)| (before + failed, failure))?;
        if asks {
            self.known.asked(told);
        }
        Ok(())
    }

    fn not_ended(&mut self, xid: Xid, failure: &Failure) -> Reply {
        let reply = plain(Step::Open, failure);
        if matches!(reply, Reply::RolledBack(_)) {
            // The branch lingers in ROLLBACK ONLY; nothing but its rollback frees the connection.
            return self.clean_up(xid, reply);
        }
        reply
    }

    /// What ends an open branch, behind the XA END that is still owed.
    fn with_end(&self, xid: &Xid, [word, more]: [&str; 2]) -> Vec<String> {
        let name = literal(xid);
        let end = self.known.end_owed.then(|| ["XA END ", &name].concat());
        end.into_iter().chain([[word, " ", &name, more].concat()]).collect()
    }

    fn place_is_due(&self) -> bool {
        self.place.is_due(RealClock.now(), self.place_age_max)
    }

    fn catch_up(&mut self) {
        self.place.catch_up(&mut self.seen, RealClock.now(), self.place_age_max);
    }

    /// Whether the vote asks for tables without transactions.
    fn asks_of_plain(&self) -> bool {
        self.known.plain_may_be_told() && !self.allow_plain_tables
    }

    fn vote(&self, xid: &Xid, asks_place: bool) -> Vec<String> {
        let mut statements = self.with_end(xid, ["XA PREPARE", ""]);
        statements.extend(asks_place.then(|| LOG_PLACE.to_owned()));
        // The last, as the last answer tells.
        statements.extend(self.asks_of_plain().then(|| known::ASK.to_owned()));
        statements
    }

    fn is_awaited(&self) -> bool {
        self.grip.wire.as_ref().is_some_and(Wire::is_awaited)
    }

    /// Whether what `step` will say can be said before anybody waits for it.
    fn may_go_ahead(&self, plan: &Plan) -> bool {
        // The pause comes before the words.
        if self.grip.wire.is_none() || self.leavers.are_due() {
            return false;
        }
        match plan {
            Plan::Prepare(_) => (self.allow_plain_tables || !self.known.wrote_plain) && !self.place_is_due(),
            Plan::CommitOnePhase(_) | Plan::CommitPrepared(_) | Plan::RollbackPrepared(_) => true,
            _ => false,
        }
    }

    fn prepare(&mut self, xid: Xid) -> Reply {
        if self.known.wrote_plain && !self.allow_plain_tables {
            return self.refuse_plain(xid, Plan::RollbackOpen(xid));
        }
        let verb = usize::from(self.known.end_owed);
        let asks = self.asks_of_plain();
        // What is on its way already goes without it, and with the place that was known then.
        let goes_now = !self.is_awaited();
        let asks_place = goes_now && self.place_is_due();
        if goes_now {
            self.catch_up();
        }
        // Before it is asked: the answer may come late, and all connections trust its age.
        let asked = RealClock.now();
        let said_all = self.say_all(|it| it.vote(&xid, asks_place));
        if asks_place && said_all.is_ok() {
            self.place.told(&self.seen, asked);
        }
        let answered = match said_all {
            // Whether rows would stay must be known; where its log stands need not.
            Err((failed, Failure::Server(..))) if asks && verb < failed => {
                self.say_all(|_| vec![known::ASK.to_owned()]).map_err(|(_, failure)| (failed, failure))
            }
            answered => answered,
        };
        match answered {
            Err((failed, failure)) if failed < verb => self.not_ended(xid, &failure),
            Err((failed, failure)) if failed == verb => {
                self.known.end_owed = false;
                match failure.says(Step::Vote) {
                    // A branch that is prepared is attached to this very session and could be rolled back from it; so
                    // whatever the rollback answers, if it answers, nothing is left prepared.
                    Says::RolledBack | Says::Unclear => {
                        let reply = Reply::RolledBack(failure.native());
                        self.clean_up(xid, reply)
                    }
                    _ => plain(Step::Vote, &failure),
                }
            }
            Err((_, Failure::Lost(native))) => Reply::Lost(native),
            Err((_, failure)) if asks => {
                self.known.end_owed = false;
                self.stand = Stand::Prepared(xid);
                let native = failure.native();
                let message = format!("it does not say which tables the branch wrote to: {}", native.message);
                self.refuse(xid, Plan::RollbackPrepared(xid), Native { message, ..native })
            }
            answered => {
                self.known.end_owed = false;
                self.stand = Stand::Prepared(xid);
                if let (true, Ok(told)) = (asks, answered) {
                    self.known.asked(told);
                }
                if self.known.wrote_plain && !self.allow_plain_tables {
                    return self.refuse_plain(xid, Plan::RollbackPrepared(xid));
                }
                Reply::Vote(Vote::Yes)
            }
        }
    }

    /// What a rollback would not undo gets no vote. It is the application's word against it.
    fn refuse_plain(&mut self, xid: Xid, how: Plan) -> Reply {
        let why = "the branch wrote to a table without transactions (MyISAM, Aria, MEMORY), and those rows stay \
                   whatever is decided; convert the table, or allow it by allow_plain_tables";
        self.refuse(xid, how, said(why.to_owned()))
    }

    /// Says no instead of a vote.
    fn refuse(&mut self, xid: Xid, how: Plan, why: Native) -> Reply {
        let rolled_back = match how {
            Plan::RollbackPrepared(_) => self.finish(Step::Rollback, xid),
            _ => self.roll_back_open(xid),
        };
        match rolled_back {
            Reply::Done | Reply::RolledBack(_) | Reply::Unknown(_) => {
                self.stand = Stand::Over(xid);
                Reply::RolledBack(why)
            }
            other => other,
        }
    }

    pub(super) fn one_phase(&self, xid: &Xid) -> Vec<String> {
        self.with_end(xid, ["XA COMMIT", " ONE PHASE"])
    }

    pub(super) fn commit_one_phase(&mut self, xid: Xid) -> Reply {
        let verb = usize::from(self.known.end_owed);
        let failure = match self.say_all(|it| it.one_phase(&xid)) {
            Ok(_) => {
                self.stand = Stand::Idle;
                return Reply::Done;
            }
            Err((failed, failure)) if failed < verb => {
                if failure.says(Step::Open) == Says::RolledBack {
                    return self.not_ended(xid, &failure);
                }
                failure
            }
            Err((_, failure)) => {
                self.known.end_owed = false;
                failure
            }
        };
        match failure.says(Step::Vote) {
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
                    Err(undone) => {
                        self.stand = Stand::Idle;
                        if undone.says(Step::Rollback) != Says::NotHere {
                            // It may still be there, and the next one's words would get into it.
                            self.break_off(failure.native());
                        }
                        Reply::Lost(failure.native())
                    }
                }
            }
            _ => plain(Step::Vote, &failure),
        }
    }

    /// Rolls back what the server has already given up, so that the connection is free, and passes the reply on.
    fn clean_up(&mut self, xid: Xid, reply: Reply) -> Reply {
        match self.say(&format!("XA ROLLBACK {}", literal(&xid))) {
            Err(Failure::Lost(native)) => Reply::Lost(native),
            undone => {
                self.stand = Stand::Over(xid);
                // Mostly 1397: the server had rolled it back and forgotten it. Else it ends with its session.
                if let Err(failure) = undone
                    && !matches!(failure.says(Step::Rollback), Says::NotHere | Says::Done)
                {
                    self.break_off(failure.native());
                }
                reply
            }
        }
    }

    fn roll_back_open(&mut self, xid: Xid) -> Reply {
        if self.only_reads {
            return self.roll_back_reading(xid);
        }
        // XA ROLLBACK refuses an active branch.
        self.known.end_owed |= matches!(self.stand, Stand::Active(_));
        let ends = self.known.end_owed;
        let answer = match self.say_all(|it| it.with_end(&xid, ["XA ROLLBACK", ""])) {
            // An error to XA END may say that it is rolled back; the rollback tells.
            Err((0, Failure::Server(..))) if ends => self.say(&second(Step::Rollback, &xid)),
            answer => answer.map(drop).map_err(|(_, failure)| failure),
        };
        let reply = match answer {
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
        match self.let_leave() {
            Ok(()) => {}
            Err(Failure::Lost(native)) => return Reply::Lost(native),
            // The branch has been told nothing.
            Err(failure) => return Reply::Refused(Kind::Busy, failure.native()),
        }
        let reply = match self.say_all(|_| vec![second(step, &xid)]).map_err(|(_, failure)| failure) {
            Ok(_) => Reply::Done,
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

/// A word of phase two to a branch.
fn second(step: Step, xid: &Xid) -> String {
    let word = if step == Step::Commit { "COMMIT" } else { "ROLLBACK" };
    ["XA ", word, " ", &literal(xid)].concat()
}

impl kept::Session for Session {
    fn goes_ahead(&self, verb: &Verb) -> bool {
        self.may_go_ahead(&self.stand.plan(verb))
    }

    fn ahead(&mut self, verb: &Verb, longest: Duration) -> bool {
        let plan = self.stand.plan(verb);
        if !self.may_go_ahead(&plan) {
            return false;
        }
        self.clear();
        // As `step` would say it.
        let words = match plan {
            Plan::Prepare(xid) => {
                // Behind the vote another one may be told of a place that a copy with this branch in it has not.
                self.catch_up();
                self.vote(&xid, false)
            }
            Plan::CommitOnePhase(xid) => self.one_phase(&xid),
            Plan::CommitPrepared(xid) => vec![second(Step::Commit, &xid)],
            Plan::RollbackPrepared(xid) => vec![second(Step::Rollback, &xid)],
            _ => return false,
        };
        let sent = self.grip.wire.as_mut().map_or(Ok(()), |wire| wire.send(&words, longest));
        if let Err(failure) = sent {
            // The answer says so.
            self.break_off(failure.native());
        }
        true
    }

    fn limit(&mut self, longest: Duration) -> bool {
        if let Some(wire) = &mut self.grip.wire {
            return wire.limit(Some(longest));
        }
        if self.limit.is_none() {
            self.limit = self.connection.as_ref().ok().and_then(|connection| ReadLimit::new(connection, longest).ok());
        }
        self.limit.is_some()
    }

    fn occupant(&self) -> Option<Xid> {
        self.stand.occupant()
    }

    fn has_ended(&self) -> bool {
        self.connection.as_ref().map_or(true, net::has_ended)
    }

    fn step(&mut self, verb: &Verb) -> Reply {
        self.clear();
        if let Some(reply) = self.at_once(verb) {
            return reply;
        }
        match self.stand.plan(verb) {
            Plan::Answer(reply) => reply,
            Plan::Start(xid) => self.start(xid),
            Plan::End { xid, success } if self.only_reads => self.end_reading(xid, success),
            Plan::End { xid, .. } => self.end(xid),
            Plan::Prepare(xid) => self.prepare(xid),
            Plan::CommitOnePhase(xid) => self.commit_one_phase(xid),
            Plan::CommitLast(_) => Reply::without_rows(),
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
                Verb::Freed { xid, witness } => self.freed(xid, witness),
                _ => Reply::without_rows(),
            },
        }
    }

    fn at_once(&mut self, verb: &Verb) -> Option<Reply> {
        let plan = self.stand.plan(verb);
        if let Some(reply) = self.connection.is_ok().then(|| self.unstarted(&plan)).flatten() {
            return Some(reply);
        }
        match (plan, &self.connection) {
            (plan, Err(gone)) => Some(unreachable(verb, plan, gone.clone())),
            (Plan::Answer(reply), Ok(_)) => Some(reply),
            (Plan::End { xid, success }, Ok(_))
                if !self.only_reads && matches!(self.start, Start::Heard) && self.end_is_owed(success) =>
            {
                self.known.end_owed = true;
                self.stand = Stand::Ended { xid, success };
                Some(Reply::Done)
            }
            (_, Ok(_)) => None,
        }
    }
}
