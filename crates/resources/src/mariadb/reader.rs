//! Branches that only read: how one that was found to leaves its connection, and connections whose branches are said to.
//!
//! Walk: [`Session::finish_read_only`] a branch that was found to · [`Session::leave`] sends a branch's last word and waits for nothing · [`Session::clear`] reads the answer before
//! anything else is said there.
//! A connection that only reads ([`Session::only_read`]): START TRANSACTION READ ONLY, in one message with the caller's first words · the caller's
//! work, of which the server refuses every write · COMMIT, which is left behind. There is no branch of XA, nothing to ask and nothing for
//! recovery to find.
//! Source: MariaDB's manual, "START TRANSACTION" (access mode) and "SET TRANSACTION"; tried on MariaDB 10.11.
//! Trap: temporary tables may be written to all the same; they are the connection's own. So may everything in a transaction that the caller
//! begins for writing in the branch's place.
//! Considered: the last word together with the next branch's first ones, a message less; until then a branch would keep its
//! locks and its view.

use assent_ids::Xid;
use assent_kind::Kind;
use assent_xa::{Native, Reply, Vote};

use super::codes::{Step, judge_connect};
use super::failure::{Failure, plain};
use super::known::{self, Known};
use super::session::Session;
use crate::kept::said;
use crate::stand::Stand;

/// The first of them is for the next transaction only, and refused where one is open (1568).
const ONLY_READ: [&str; 2] = ["SET TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ ONLY"];

/// ER_CANT_CHANGE_TX_CHARACTERISTICS.
const OPEN: u16 = 1568;

const BEGIN: &str = "START TRANSACTION READ ONLY";

impl Session {
    /// A commit, so that even if the server had not counted something it would not be lost.
    pub(super) fn finish_read_only(&mut self, xid: Xid) -> Reply {
        let words = self.one_phase(&xid);
        if self.leave(&words) {
            return Reply::Vote(Vote::ReadOnly);
        }
        match self.commit_one_phase(xid) {
            Reply::Done => Reply::Vote(Vote::ReadOnly),
            other => other,
        }
    }

    /// From now on the server refuses what writes, and branches are plain transactions.
    pub(crate) fn only_read(&mut self) -> Result<(), (Kind, Native)> {
        if let Some(xid) = self.stand.occupant() {
            return Err((Kind::Invalid, said(format!("branch {xid} is not finished on this connection"))));
        }
        self.clear();
        self.say_all(|_| ONLY_READ.map(str::to_owned).to_vec()).map_err(|(_, failure)| match failure {
            Failure::Server(OPEN, _) => (Kind::Invalid, failure.native()),
            Failure::Server(code, _) => (judge_connect(code), failure.native()),
            Failure::Lost(native) => (Kind::Unavailable, native),
        })?;
        self.only_reads = true;
        self.open_wire();
        Ok(())
    }

    /// What is said before the caller's first words. Where the caller has had the connection since the last branch, it is refused if a
    /// transaction is open, which it would commit, and the session is set again.
    pub(super) fn opening(&self) -> String {
        let [once, session] = ONLY_READ;
        if self.grip.lent { [once, session, BEGIN].join("; ") } else { BEGIN.to_owned() }
    }

    /// Ends the transaction of a branch that is said to read.
    pub(super) fn end_reading(&mut self, xid: Xid, success: bool) -> Reply {
        if !success {
            return self.roll_back_reading(xid);
        }
        // A deadlock ends the transaction, which only one statement is told; what was read behind that is of no one moment.
        if self.known.in_question() {
            match self.is_open() {
                Ok(true) => {}
                Ok(false) => {
                    let why = "a statement failed, and the server does not say that the branch's transaction goes on";
                    return match self.roll_back_reading(xid) {
                        Reply::Done => Reply::RolledBack(said(why.to_owned())),
                        other => other,
                    };
                }
                Err(failure) => return plain(Step::Open, &failure),
            }
        }
        if self.leave(&["COMMIT".to_owned()]) {
            return Reply::Vote(Vote::ReadOnly);
        }
        match self.say("COMMIT") {
            Ok(()) => {
                self.stand = Stand::Idle;
                Reply::Vote(Vote::ReadOnly)
            }
            Err(failure) => plain(Step::Open, &failure),
        }
    }

    pub(super) fn roll_back_reading(&mut self, xid: Xid) -> Reply {
        match self.say("ROLLBACK") {
            Ok(()) => {
                self.stand = Stand::Over(xid);
                Reply::Done
            }
            Err(failure) => plain(Step::Rollback, &failure),
        }
    }

    /// Only what the server says.
    fn is_open(&mut self) -> Result<bool, Failure> {
        let told = self.say_all(|_| vec![known::TELL.to_owned()]).map_err(|(_, failure)| failure)?;
        Ok(told.is_some_and(known::State::is_open))
    }

    /// Sends the last words of a branch that wrote nothing, and does not wait for the answer; nothing where somebody else keeps the
    /// time, who would not be there when it is read.
    pub(super) fn leave(&mut self, words: &[String]) -> bool {
        let limited = self.grip.wire.as_mut().and_then(|wire| wire.longest().map(|longest| (wire, longest)));
        let Some(sent) = limited.map(|(wire, longest)| wire.send(words, longest)) else { return false };
        self.stand = Stand::Idle;
        match sent {
            Ok(()) => self.grip.leaves = true,
            // Without its connection the branch is rolled back, which is the same to one that wrote nothing.
            Err(failure) => self.break_off(failure.native()),
        }
        true
    }

    /// Reads what the server says to a branch that was left.
    pub(super) fn clear(&mut self) {
        if !std::mem::take(&mut self.grip.leaves) {
            return;
        }
        // What it tells is not of the branch that comes.
        let told = self.grip.wire.as_mut().map(|wire| wire.receive(&mut 0, &mut Known::default()));
        if let Some(Err(failure)) = told {
            self.break_off(failure.native());
        }
    }
}
