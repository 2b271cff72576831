//! Which branches are asked at their end whether they wrote anything.
//!
//! The question is a message of its own, which a branch that writes pays for nothing; one that only read saves its vote
//! and two syncs by it. So it is asked while one of the last branches on this connection only read, and of the first
//! ones, of which nothing is known. Who is not asked says it all the same, in the message of its vote: so one branch that
//! only read is enough to be asked again, and nothing has to be tried now and then.
//! A connection that only reads ([`Session::only_read`]) is never asked: its branches begin with BEGIN READ ONLY, so the server refuses what
//! writes, and end with their COMMIT. Trap: what the session was set to is gone by RESET ALL and DISCARD ALL, so no branch relies on it.
//! Source: PostgreSQL's manual, "BEGIN" and "SET TRANSACTION" (SESSION CHARACTERISTICS).
//! Deliberately absent: the question itself (`session.rs`).

use assent_kind::Kind;
use assent_xa::Native;

use super::client::Way;
use super::codes::judge_connect;
use super::line::BEGIN;
use super::session::{Session, closed};
use crate::kept::said;

/// For what the caller says outside of branches.
const ONLY_READ: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";
const BEGIN_READ_ONLY: &str = "BEGIN READ ONLY";

/// So many branches that wrote, one after the other, end the asking. A question costs a fifth of what it saves, so
/// it pays from one reader in five; and a few more, as a question too few costs more than one too many.
const WRITERS_MAX: u8 = 8;

/// What this connection does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Always,
    Never,
    /// The server refuses what writes: they commit when they end.
    Needless,
    /// Depending on what the last branches did.
    Adaptive {
        /// How many wrote since one did not.
        writers: u8,
    },
}

impl Asking {
    pub(super) const ADAPTIVE: Self = Self::Adaptive { writers: 0 };

    /// Whether a branch's end has words with the server.
    pub(super) const fn asks(self) -> bool {
        match self {
            Self::Always | Self::Needless => true,
            Self::Never => false,
            Self::Adaptive { writers } => writers < WRITERS_MAX,
        }
    }

    /// What the caller wants; a connection that only reads stays one.
    pub(super) fn set(&mut self, wanted: Self) {
        if *self != Self::Needless {
            *self = wanted;
        }
    }

    /// A branch has told whether it wrote.
    pub(super) const fn told(&mut self, wrote: bool) {
        if let Self::Adaptive { writers } = self {
            *writers = if wrote { writers.saturating_add(1) } else { 0 };
        }
    }
}

impl Session {
    /// From now on the server refuses what writes.
    pub(super) fn only_read(&mut self) -> Result<(), (Kind, Native)> {
        if let Some(xid) = self.stand.occupant() {
            return Err((Kind::Invalid, said(format!("branch {xid} is not finished on this connection"))));
        }
        if self.client.is_closed() {
            return Err((Kind::Unavailable, closed()));
        }
        // What it was asked last may not have been answered to the end.
        let is_open = match &mut self.client.0 {
            Way::Line(line) => line.is_open() || !line.is_idle(),
            Way::Given(_) => false,
        };
        let why = match &self.client.0 {
            Way::Line(_) if is_open => "a transaction is open on this connection; end it first",
            Way::Line(_) if self.asks.is_some() => "",
            Way::Line(_) => {
                "a pool may lead to another session in between, which would take writes, and a connection that has let go of what it had \
                 prepared counts as one; connect anew, and to the server"
            }
            Way::Given(_) => {
                "a connection of the caller's own does not tell whether a transaction is open; connect by a URL"
            }
        };
        if !why.is_empty() {
            return Err((Kind::Invalid, said(why.to_owned())));
        }
        let said = self.ask(|_| ONLY_READ);
        said.map_err(|failure| (judge_connect(&failure.native.code), failure.native))?;
        if let Way::Line(line) = &mut self.client.0 {
            line.open_with(BEGIN_READ_ONLY);
        }
        (self.asking, self.last) = (Asking::Needless, None);
        Ok(())
    }

    /// What a branch begins with.
    pub(super) const fn opening(&self) -> &'static str {
        match &self.client.0 {
            Way::Line(line) => line.opening(),
            Way::Given(_) => BEGIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_left_alone_after_eight_and_one_reader_brings_the_question_back() {
        let mut asking = Asking::ADAPTIVE;
        let mut asked = |wrote| {
            let asks = asking.asks();
            asking.told(wrote);
            asks
        };
        let run = [(8, true, true), (300, true, false), (1, false, false), (8, true, true), (1, true, false)];
        for (branches, wrote, asks) in run {
            for branch in 0..branches {
                assert_eq!(asked(wrote), asks, "branch {branch} of {branches}");
            }
        }
        // One reader in eight keeps it going.
        asked(false);
        for branch in 0..80 {
            assert!(asked(branch % 8 != 7), "{branch}");
        }
    }

    #[test]
    fn who_said_always_or_never_is_obeyed() {
        for (mut asking, asks) in [(Asking::Always, true), (Asking::Needless, true), (Asking::Never, false)] {
            for wrote in [true, false].repeat(20) {
                asking.told(wrote);
                assert_eq!(asking.asks(), asks);
            }
        }
    }
}
