//! The verbs in PostgreSQL's words, over one connection.
//!
//! Walk: BEGIN, which goes with the caller's first words where no transaction is open · the caller's work · its end, where a branch that wrote nothing commits and drops out · PREPARE
//! TRANSACTION, or COMMIT of the only branch · COMMIT PREPARED or ROLLBACK PREPARED, which any connection to the same
//! database with the same role may send.
//! Read-only: a transaction has a number of its own as soon as it wrote or locked a row. What it wrote through a foreign
//! table gives it none, and would be committed with it: so one that locked a foreign table for writing counts as writing.
//! Trap: NOTIFY gives no number either. A branch that did nothing else notifies at its end, whatever becomes of the
//! others; one that is prepared may not notify at all.
//! Trap: PREPARE TRANSACTION and COMMIT of a failed transaction, or outside one, answer *ROLLBACK* as a command tag
//! and no error. On a connection of our own the end of each answer says whether a transaction is open: where it is they are
//! said alone, and the tag has to be theirs. Else, and on a connection of the caller's, which does not tell tags, a SAVEPOINT
//! goes before them in the same message: it fails exactly there (25P02, 25P01), and the server then skips the rest.
//! What the vote leaves for later questions rides in a message that goes anyway: the branch's end if that asks, else the
//! vote itself. All three questions are kept prepared where that is safe (`prepared.rs`).
//! Deliberately absent: what an error means (`codes.rs`), which verb is allowed when (`stand.rs`), what only recovery asks
//! (`recovery.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_ids::{ResourceId, Xid};
use assent_kind::Kind;
use assent_world::{Dice as _, RealDice};
use assent_xa::{Native, Reply, Stay, Verb, Vote};

use super::answer::{COMMITTED, NO_TRANSACTION, PREPARED, Row};
use super::client::{PostgresClient, Way};
use super::codes::Step;
use super::failure::Failure;
use super::last::{self, Last};
use super::line::Begin;
use super::pace::Work;
use super::prepared::{NO_STATEMENT, Prepared};
use super::reading::Asking;
use super::witness::{Evidence, Place, Witness};
use super::words::{Question, Words};
use crate::kept::{self, said};
use crate::stand::{Plan, Stand, unreachable};

/// What the driver says of an answer that it did not ask for, as that to COPY ... FROM STDIN in a simple query.
const OUT_OF_STEP: &str = "unexpected message from server";
const ROLLBACK: &str = "ROLLBACK";
const BARE_COMMIT: &str = "COMMIT";
const ONE_PHASE: &str = "SAVEPOINT assent_vote; COMMIT";
const COMMIT: &str = "COMMIT PREPARED";
const UNDO: &str = "ROLLBACK PREPARED";
/// Whether it may have written elsewhere, through a foreign table. Asked only where there is one, of a branch without a
/// number.
const WROTE_ELSEWHERE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS held JOIN pg_catalog.pg_foreign_table AS foreign_table \
     ON foreign_table.ftrelid OPERATOR(pg_catalog.=) held.relation \
     WHERE held.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() \
     AND held.mode OPERATOR(pg_catalog.<>) 'AccessShareLock' AND held.mode OPERATOR(pg_catalog.<>) 'RowShareLock')";

/// One connection.
pub(crate) struct Session {
    pub(super) client: PostgresClient,
    pub(super) resource: ResourceId,
    pub(super) stand: Stand,
    /// Whether a branch is asked at its end if it wrote anything.
    pub(super) asking: Asking,
    /// Set by the server's notice that BEGIN found a transaction open. Never set on a connection of the caller's,
    /// whose notices go elsewhere.
    was_open: Arc<AtomicBool>,
    pub(super) place: Place,
    /// What the branch has said of itself since it ended.
    evidence: Option<Evidence>,
    /// Of the last vote.
    pub(super) witness: Vec<u8>,
    /// The server process that holds recovery's claim for us.
    pub(super) claimed: Option<String>,
    /// By which our claim is told from another's.
    pub(super) mark: Option<u64>,
    /// What a branch's end and its vote ask, where the server keeps that prepared for us.
    pub(super) asks: Option<[Prepared; 3]>,
    /// These, as they are asked here.
    questions: [Arc<str>; 3],
    /// Which of them is on its way, or was asked last.
    asked: Option<Question>,
    /// What the branch that votes has done, by its tags.
    work: Work,
    /// The last vote's, where nothing but rows written has come since: of another one it is asked.
    pub(super) role: Option<String>,
    /// Where a branch may decide.
    pub(super) last: Option<Last>,
    /// What the latest list says of each branch beside its name.
    pub(super) stays: BTreeMap<Xid, Stay>,
}

impl Session {
    /// `process` is the one that answers.
    pub(super) fn new(
        client: PostgresClient,
        resource: ResourceId,
        place: Place,
        process: Option<u32>,
        was_open: Arc<AtomicBool>,
    ) -> Self {
        let (stand, asking) = (Stand::Idle, Asking::ADAPTIVE);
        let (evidence, witness, claimed, mark) = (None, Vec::new(), None, None);
        let asks = match &client.0 {
            // A pool gives another process out than the one that answers, and another one may answer next.
            Way::Line(line) if process.is_some() && line.process() == process => Some(Question::names(RealDice.roll())),
            // A connection of the caller's may outlive this by far, and what is left prepared there stays.
            Way::Line(_) | Way::Given(_) => None,
        };
        let questions = Question::texts(&place);
        Self {
            client,
            resource,
            stand,
            asking,
            was_open,
            place,
            evidence,
            witness,
            claimed,
            mark,
            asks,
            questions,
            asked: None,
            work: Work::default(),
            role: None,
            last: None,
            stays: BTreeMap::new(),
        }
    }

    /// The caller's own statements, which have no time limit of ours.
    pub(super) fn work<T>(
        &mut self,
        work: impl FnOnce(&mut PostgresClient) -> Result<T, tokio_postgres::Error>,
    ) -> Result<Result<T, tokio_postgres::Error>, Native> {
        if self.client.is_closed() {
            return Err(closed());
        }
        if let Way::Line(line) = &mut self.client.0 {
            line.limit(None);
        }
        let worked = work(&mut self.client);
        if let (Err(error), Way::Line(line)) = (&worked, &mut self.client.0)
            && error.to_string() == OUT_OF_STEP
        {
            line.close();
        }
        Ok(worked)
    }

    /// One message. An error of the server, or the loss of the connection.
    fn say(&mut self, sql: &str) -> Result<(), Failure> {
        self.ask(|_| sql).map(drop)
    }

    /// One message, and its rows. It is not composed if it is on its way already.
    pub(super) fn ask<T: AsRef<str>>(&mut self, sql: impl FnOnce(&Self) -> T) -> Result<Vec<Row>, Failure> {
        if let Way::Line(line) = &mut self.client.0
            && let Some(answer) = line.answer()
        {
            return answer;
        }
        let sql = sql(self);
        self.client.ask(sql.as_ref())
    }

    fn begin(&mut self, xid: Xid) -> Reply {
        self.was_open.store(false, Ordering::Relaxed);
        self.evidence = None;
        self.witness.clear();
        match self.say(self.opening()) {
            Ok(()) if self.was_open.load(Ordering::Relaxed) => outside(),
            Ok(()) => {
                if let Way::Line(line) = &self.client.0 {
                    line.pace().begin_branch();
                }
                self.stand = Stand::Active(xid);
                Reply::Done
            }
            Err(failure) => failure.judged(Step::Other),
        }
    }

    /// What needs no word as long as the server has heard of no transaction of ours: its start, and the end of a branch without
    /// any work.
    fn unbegun(&mut self, plan: &Plan) -> Option<Reply> {
        let Way::Line(line) = &mut self.client.0 else { return None };
        match *plan {
            Plan::Start(xid) if line.is_idle() => {
                line.set_begun(Begin::Owed);
                line.pace().begin_branch();
                self.evidence = None;
                self.witness.clear();
                self.stand = Stand::Active(xid);
                Some(Reply::Done)
            }
            // The warning that BEGIN earns then can be switched off (client_min_messages).
            Plan::Start(_) if line.is_open() => Some(outside()),
            // Who wants every branch to vote has this one begin now.
            Plan::End { success: true, .. } if *line.begun() == Begin::Owed && self.asking != Asking::Never => {
                line.set_begun(Begin::Said);
                self.stand = Stand::Idle;
                Some(Reply::Vote(Vote::ReadOnly))
            }
            Plan::End { xid, success: false } | Plan::RollbackOpen(xid) if *line.begun() == Begin::Owed => {
                line.set_begun(Begin::Said);
                self.stand = Stand::Over(xid);
                Some(Reply::Done)
            }
            _ => None,
        }
    }

    fn end(&mut self, xid: Xid) -> Reply {
        match self.begun().clone() {
            Begin::Said => {}
            Begin::Owed => {
                let began = self.say(self.opening());
                self.is_begun();
                return match began {
                    Ok(()) => {
                        self.stand = Stand::Ended { xid, success: true };
                        Reply::Done
                    }
                    Err(failure) if failure.lost => Reply::Lost(failure.native),
                    Err(failure) => {
                        self.stand = Stand::Over(xid);
                        Reply::RolledBack(failure.native)
                    }
                };
            }
            Begin::Refused(why) => {
                return match self.roll_back_open(xid) {
                    Reply::Done => Reply::RolledBack(why),
                    other => other,
                };
            }
        }
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
                let _freed = self.say(ROLLBACK);
                Reply::RolledBack(failure.native)
            }
        }
    }

    fn commit_if_read_only(&mut self) -> Result<bool, Failure> {
        let answer = self.converse(Self::wrote)?;
        if self.asking == Asking::Needless {
            return Ok(true);
        }
        let row = answer.first();
        self.evidence = row.and_then(|row| read_evidence([0, 2, 3].map(|at| row.word(at))));
        let is_all_here = row.and_then(|row| row.word(1)) == Some("f");
        // Only a plain nothing counts.
        let has_number = !row.is_some_and(|row| row.is_null(0));
        let wrote = has_number || !(is_all_here || is_no(&self.ask(|_| WROTE_ELSEWHERE)?));
        self.asking.told(wrote);
        if !wrote {
            self.say("COMMIT")?;
        }
        Ok(!wrote)
    }

    pub(super) const fn begun(&self) -> &Begin {
        match &self.client.0 {
            Way::Line(line) => line.begun(),
            Way::Given(_) => &Begin::Said,
        }
    }

    /// A verb has dealt with BEGIN, and the server has answered it.
    fn is_begun(&mut self) {
        if let Way::Line(line) = &mut self.client.0 {
            line.set_begun(Begin::Said);
        }
    }

    /// Words for the end of an open transaction, and of any other.
    fn wrote(&self, is_open: bool) -> Words {
        let question = Question::End.of(&self.questions);
        match is_open {
            _ if self.asking == Asking::Needless => self.one_phase(is_open),
            true if self.asks.is_some() => Words::Asked(Question::End, Arc::clone(question), None),
            true => Words::Text(question.to_string()),
            false => Words::Text(format!("SAVEPOINT assent_end; {question}")),
        }
    }

    fn vote(&self, xid: &Xid, is_open: bool) -> Words {
        let prepare = second(PREPARED, xid);
        // Who was asked at its end has said it.
        let question = self.evidence.is_none().then(|| Question::Vote.of(&self.questions));
        match (is_open, question) {
            (true, None) => Words::End(prepare, PREPARED),
            (true, Some(_)) if self.asks.is_some() => {
                let is_known = self.work.wrote && self.role.is_some();
                let question = if is_known { Question::Writer } else { Question::Vote };
                Words::Asked(question, Arc::clone(question.of(&self.questions)), Some((prepare, PREPARED)))
            }
            (true, Some(question)) => Words::End(format!("{question}; {prepare}"), PREPARED),
            (false, None) => Words::Text(format!("SAVEPOINT assent_vote; {prepare}")),
            (false, Some(question)) => Words::Text(format!("SAVEPOINT assent_vote; {question}; {prepare}")),
        }
    }

    fn one_phase(&self, is_open: bool) -> Words {
        if is_open { Words::End(BARE_COMMIT.to_owned(), COMMITTED) } else { Words::Text(ONE_PHASE.to_owned()) }
    }

    /// Puts the words for the end of a transaction on their way; on a connection of the caller's they are given back.
    fn send_end(&mut self, words: impl FnOnce(&Self, bool) -> Words) -> Option<String> {
        self.asked = None;
        let is_open = match &mut self.client.0 {
            Way::Line(line) => line.is_open(),
            Way::Given(_) => false,
        };
        let words = words(self, is_open);
        let Way::Line(line) = &mut self.client.0 else { return Some(words.in_full()) };
        if line.has_let_go() {
            last::let_go(&mut self.asks, &mut self.last);
        }
        match (words, &self.asks) {
            (Words::Asked(question, sql, end), Some(asks)) => {
                let end = end.as_ref().map(|(sql, tag)| (sql.as_str(), *tag));
                line.send_asked(question.of(asks), (&sql, &[]), end);
                self.asked = Some(question);
            }
            (Words::End(sql, tag), _) => line.send_end(&sql, tag),
            (words, _) => line.send(&words.in_full()),
        }
        None
    }

    /// Says them, unless they are on their way already, and hears the answer.
    pub(super) fn converse(&mut self, words: impl FnOnce(&Self, bool) -> Words) -> Result<Vec<Row>, Failure> {
        if !matches!(&self.client.0, Way::Line(line) if line.is_awaited())
            && let Some(in_full) = self.send_end(words)
        {
            return self.client.ask(&in_full);
        }
        let answer = self.ask(|_| "");
        if let Some(question) = self.asked {
            if answer.as_ref().is_err_and(|failure| failure.is(NO_STATEMENT)) {
                // Somebody has let go of it in the dark, and may do so each time.
                self.asks = None;
            } else if let Some(asks) = &mut self.asks {
                question.of_mut(asks).answered(answer.is_ok());
            }
        }
        answer
    }

    /// What was done on this connection, before a vote asks. Whatever was not rows written may have changed the role: SET ROLE says so
    /// itself, a function does not. Trap: nor does what a statement that writes rows calls or sets off (set_config); from that vote on, until something
    /// else is said, people are told the role of the vote that was asked. Recovery goes by the list's.
    fn note_work(&mut self) {
        let Way::Line(line) = &mut self.client.0 else { return };
        // The driver may not have read all of it.
        _ = line.is_open();
        self.work = line.pace().take_work();
        self.role = self.role.take().filter(|_| !self.work.did_else);
    }

    fn prepare(&mut self, xid: Xid) -> Reply {
        if !matches!(&self.client.0, Way::Line(line) if line.is_awaited()) {
            self.note_work();
        }
        let answered = self.converse(|it, is_open| it.vote(&xid, is_open));
        if let Way::Line(line) = &self.client.0 {
            // Our own question's.
            _ = line.pace().take_work();
        }
        match answered {
            Ok(answer) => {
                // The connection is free at once; the branch no longer belongs to it.
                self.stand = Stand::Idle;
                match (answer.first(), self.asked.take()) {
                    (Some(row), Some(Question::Writer)) => {
                        self.asking.told(true);
                        self.evidence = read_evidence([row.word(0), row.word(1), self.role.as_deref()]);
                    }
                    (Some(row), _) => {
                        self.asking.told(!row.is_null(0));
                        self.evidence = read_evidence([1, 2, 3].map(|at| row.word(at)));
                        let role = self.evidence.as_ref().map(|evidence| evidence.role.clone());
                        self.role = role.filter(|_| !self.work.did_else);
                    }
                    (None, _) => {}
                }
                if let Some(evidence) = &self.evidence {
                    self.witness = Witness::write(&self.place, evidence);
                }
                Reply::Vote(Vote::Yes)
            }
            Err(failure) => self.failed_vote(Step::Vote, xid, failure),
        }
    }

    fn commit_one_phase(&mut self, xid: Xid) -> Reply {
        match self.converse(Self::one_phase) {
            Ok(_) => {
                self.stand = Stand::Idle;
                Reply::Done
            }
            Err(failure) => self.failed_vote(Step::OnePhase, xid, failure),
        }
    }

    pub(super) fn failed_vote(&mut self, step: Step, xid: Xid, failure: Failure) -> Reply {
        // A lost vote may have been a yes: then the stand stays, and nothing more is said on a dead connection.
        let session_ended = failure.lost;
        let reply = failure.judged(step);
        if !session_ended {
            self.stand = if matches!(reply, Reply::Lost(_)) { Stand::Idle } else { Stand::Over(xid) };
            // When the SAVEPOINT failed, the failed transaction is still there; else this only earns a warning. A
            // connection that breaks now takes nothing back: the no was definite.
            let _freed = self.say(ROLLBACK);
        }
        reply
    }

    pub(super) fn roll_back_open(&mut self, xid: Xid) -> Reply {
        match self.say(ROLLBACK) {
            Ok(()) => {
                self.is_begun();
                self.stand = Stand::Over(xid);
                Reply::Done
            }
            Err(failure) => failure.judged(Step::Other),
        }
    }

    fn finish(&mut self, words: &str, xid: Xid) -> Reply {
        match self.ask(|_| second(words, &xid)) {
            Ok(_) => Reply::Done,
            Err(failure) => match failure.judged(Step::Second) {
                Reply::Refused(kind @ (Kind::Denied | Kind::Invalid), native) => {
                    Reply::Refused(kind, self.explained(&xid, native))
                }
                reply => reply,
            },
        }
    }
}

impl kept::Session for Session {
    fn limit(&mut self, longest: Duration) -> bool {
        if let Way::Line(line) = &mut self.client.0 {
            line.limit(Some(longest));
            return true;
        }
        false
    }

    fn ahead(&mut self, verb: &Verb, longest: Duration) -> bool {
        self.limit(longest);
        if matches!(self.client.0, Way::Given(_)) {
            return false;
        }
        // As `step` will ask for it.
        let words = match self.stand.plan(verb) {
            Plan::Start(_) => Some(self.opening().to_owned()),
            Plan::End { .. } => match self.begun() {
                Begin::Said => self.send_end(Self::wrote),
                Begin::Owed => Some(self.opening().to_owned()),
                Begin::Refused(_) => Some(ROLLBACK.to_owned()),
            },
            Plan::Prepare(xid) => {
                self.note_work();
                self.send_end(|it, is_open| it.vote(&xid, is_open))
            }
            Plan::CommitOnePhase(_) => self.send_end(Self::one_phase),
            Plan::CommitLast(xid) => self.send_last(&xid, last::votes(verb)),
            Plan::VoteNo(_) | Plan::RollbackOpen(_) => Some(ROLLBACK.to_owned()),
            Plan::CommitPrepared(xid) => Some(second(COMMIT, &xid)),
            Plan::RollbackPrepared(xid) => Some(second(UNDO, &xid)),
            Plan::Answer(_) | Plan::Recover | Plan::Recovery => None,
        };
        if let (Way::Line(line), Some(words)) = (&mut self.client.0, words) {
            line.send(&words);
        }
        true
    }

    fn occupant(&self) -> Option<Xid> {
        self.stand.occupant()
    }

    fn has_ended(&self) -> bool {
        match &self.client.0 {
            Way::Line(line) => line.has_ended(),
            Way::Given(client) => client.is_closed(),
        }
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
            Plan::CommitLast(xid) => self.commit_last(xid, last::votes(verb)),
            Plan::VoteNo(xid) => match self.roll_back_open(xid) {
                Reply::Done => Reply::RolledBack(said("the work was reported failed when it ended".to_owned())),
                other => other,
            },
            Plan::CommitPrepared(xid) => self.finish(COMMIT, xid),
            Plan::RollbackPrepared(xid) => self.finish(UNDO, xid),
            Plan::RollbackOpen(xid) => self.roll_back_open(xid),
            Plan::Recovery => match verb {
                Verb::Claim(node) => self.claim(*node),
                Verb::Inquire { xid, witness } => self.inquire(xid, witness),
                Verb::Settle { node, tx, mark } => self.settle(*node, *tx, *mark),
                Verb::Rows { node, after } => self.rows(*node, *after),
                Verb::Clear { node, txs } => self.clear(*node, txs),
                // No session keeps a prepared branch from others.
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
            return Some(unreachable(verb, plan, closed()));
        }
        if let Some(reply) = self.unbegun(&plan) {
            return Some(reply);
        }
        match plan {
            Plan::Answer(reply) => Some(reply),
            Plan::End { xid, success: true } if self.is_last() => {
                self.stand = Stand::Ended { xid, success: true };
                Some(Reply::Vote(Vote::Decides))
            }
            Plan::End { xid, success } if !(success && (self.asking.asks() || *self.begun() != Begin::Said)) => {
                // PostgreSQL has no word for it.
                self.stand = Stand::Ended { xid, success };
                Some(Reply::Done)
            }
            _ => None,
        }
    }
}

pub(super) fn closed() -> Native {
    said("the connection was closed".to_owned())
}

/// XA, xa_start [XAER_OUTSIDE]: that work is not ours to vote on.
fn outside() -> Reply {
    let message = "a transaction is open on this connection; end it before a branch starts".to_owned();
    Reply::Refused(Kind::Invalid, Native { code: "25001".to_owned(), message })
}

/// A word of phase two to a branch.
fn second(words: &str, xid: &Xid) -> String {
    [words, " ", &gid(xid)].concat()
}

/// A gid as a literal.
pub(super) fn gid(xid: &Xid) -> String {
    // Digits, base64 and lines between them: there is nothing to be doubled.
    ["'", &xid.to_gid(), "'"].concat()
}

/// Only a plain no counts.
fn is_no(answer: &[Row]) -> bool {
    answer.iter().map(|row| row.word(0)).eq([Some("f")])
}

fn read_evidence([number, place, role]: [Option<&str>; 3]) -> Option<Evidence> {
    Some(Evidence { number: number?.parse().ok()?, place: place?.parse().ok()?, role: role?.to_owned() })
}
