//! What is known of a branch's work, by the server's own account: the state of the transaction that it sends along with
//! its answers (session_track_transaction_info).
//!
//! Walk: [`track`] switches it on · XA START's answer shows whether it is told here · each answer that the caller's work
//! leaves behind may show more · [`end_telling`] has what rows have hidden told with the branch's end · where it tells
//! nothing, [`ASK`] does: it makes the transaction one with an unsafe statement. A state that has changed is told in full.
//! The letters stand for tables by how a statement locks them, through views, triggers and functions: `W` a
//! transactional one was written to, `w` another, temporary ones included, and whether or not a row was found. SELECT ...
//! FOR UPDATE locks as a write does. So a missing `W` says that nothing was written; a `W` that something may have been.
//! What is not told, as the caller has switched it off or used an unsafe statement before, counts as not known.
//! Source: MySQL's manual, "Server Tracking of Client State Changes"; MariaDB's "session_track_transaction_info"; tried on
//! MariaDB 10.11 with every kind of statement (`tests/resources/databases/read_only.rs`).
//! Considered: the Handler counters of SHOW SESSION STATUS, twice a branch; each look costs more than a statement.

use assent_xa::Native;
use mysql::prelude::Queryable as _;
use mysql::session_state_change::SessionStateChange;
use mysql::{Conn, SessionStateInfo};

use super::failure::Failure;

/// Passes in every state of a branch, touches no table, answers with no row.
pub(super) const ASK: &str = "DO UUID()";

/// Has the end of a branch answered with the whole account: to switch it on, where it is on, changes nothing but that it is told once
/// more; where it was off it begins anew, with no transaction open. One statement for two; a server that does not know it (MySQL) says so.
/// Source: MariaDB's manual, "SET STATEMENT"; tried on MariaDB 10.11.
/// Considered: another variable that the server tells of, and with it of what is not told yet: that may be from before the
/// account was switched off.
pub(super) fn end_telling(name: &str) -> String {
    ["SET STATEMENT session_track_transaction_info = 'STATE' FOR XA END ", name].concat()
}

/// The same without an end.
pub(super) const TELL: &str = "SET STATEMENT session_track_transaction_info = 'STATE' FOR DO 1";

/// Switches the account on, and answers no row.
pub(super) const TRACK: &str = "SET SESSION session_track_transaction_info = 'STATE'";

/// A statement that was cut short (lock wait, interrupted, statement timeout) was undone alone; the branch goes on.
const CUT_SHORT: [u16; 3] = [1205, 1317, 1969];

/// What is known.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "an account: each is told by itself")]
pub(super) struct Known {
    /// Whether the server tells.
    pub(super) told: bool,
    /// A transactional table was locked for writing.
    wrote: bool,
    /// So was one that is not.
    pub(super) wrote_plain: bool,
    /// Nothing else was, up to now.
    whole: bool,
    /// A statement failed, so the branch may have been rolled back.
    failed: bool,
    /// A statement was undone alone.
    pub(super) half: Option<Native>,
    /// The driver's last answer is one to this branch.
    pub(super) heard: bool,
    /// Something was said whose answers may have told more than was heard.
    pub(super) hidden: bool,
    /// The branch has ended, and the server is told by the next message.
    pub(super) end_owed: bool,
}

impl Known {
    /// Of a branch that was started by the last statement of this connection.
    pub(super) fn at_start(connection: &Conn) -> Self {
        Self { told: state(connection).is_some_and(|state| state.open), heard: true, ..Self::default() }
    }

    /// Of a branch whose start goes with its first words, on a connection that has told before.
    pub(super) fn to_start() -> Self {
        Self { told: true, ..Self::default() }
    }

    /// What the last answer told, if it was one to this branch.
    pub(super) fn hear(&mut self, connection: &Conn) {
        if self.heard {
            self.take(state(connection));
        }
    }

    /// Work of the caller's begins, and counts as failed until it is over. Whether some had failed before.
    pub(super) const fn suspect(&mut self) -> bool {
        std::mem::replace(&mut self.failed, true)
    }

    /// It is over; as it was before.
    pub(super) const fn settle(&mut self, had_failed: bool) {
        self.failed = had_failed;
    }

    /// After work of the caller's, of which the last answer may tell something.
    pub(super) fn note<T>(&mut self, connection: Option<&Conn>, worked: &Result<T, Failure>) {
        match worked {
            Ok(_) => connection.into_iter().for_each(|connection| self.hear(connection)),
            Err(failure) => {
                self.failed = true;
                if matches!(failure, Failure::Server(code, _) if CUT_SHORT.contains(code)) {
                    self.half = Some(failure.native());
                }
            }
        }
    }

    /// After [`end_telling`]: whether the server told.
    pub(super) fn told_at_end(&mut self, state: Option<State>) -> bool {
        self.whole = state.is_some_and(|state| state.open);
        self.take(state);
        self.whole
    }

    /// After [`ASK`], by its answer.
    pub(super) fn asked(&mut self, state: Option<State>) {
        self.whole = state.is_some_and(|state| state.open && state.unsafe_statement);
        self.take(state);
    }

    /// What an answer told.
    pub(super) fn take(&mut self, state: Option<State>) {
        if let Some(state) = state {
            self.wrote |= state.wrote;
            self.wrote_plain |= state.wrote_plain;
        }
    }

    /// Surely nothing was written.
    pub(super) fn read_only(&self) -> bool {
        self.whole && !self.wrote && !self.wrote_plain
    }

    /// Whether the server may have given the branch up, or a part of it.
    pub(super) fn in_question(&self) -> bool {
        self.failed || self.half.is_some()
    }

    /// Whether asking could find that nothing was written.
    pub(super) fn may_be_read_only(&self) -> bool {
        self.told && !self.wrote && !self.wrote_plain
    }

    /// Whether a table without transactions may have been written to and would still be told.
    pub(super) fn plain_may_be_told(&self) -> bool {
        // Of plain statements each answer was heard, and one that wrote told of it: so it would have told of all.
        let heard_all = self.wrote && !self.hidden && !self.failed;
        self.told && !self.whole && !heard_all
    }
}

/// Switches the account on. A server that has none of it tells nothing.
pub(super) fn track(connection: &mut Conn) {
    let _older = connection.query_drop(TRACK);
}

/// Several statements in one message, each judged for itself; as far as the first that fails, and which one that was.
/// What a statement answers in rows of a name and a number, the last of all is kept in `number`.
pub(super) fn say_all(
    connection: &mut Conn,
    statements: &[String],
    done: &mut usize,
    number: &mut Option<u64>,
) -> Result<(), mysql::Error> {
    let mut results = connection.query_iter(statements.join("; "))?;
    while let Some(rows) = results.iter() {
        for row in rows {
            let told = row?.get_opt::<u64, _>(1).and_then(Result::ok);
            *number = told.or(*number);
        }
        *done += 1;
    }
    drop(results);
    // Then it was the answer to something older.
    if *done == statements.len() { Ok(()) } else { Err(mysql::DriverError::PacketOutOfSync.into()) }
}

/// What an answer told of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    open: bool,
    wrote_plain: bool,
    wrote: bool,
    unsafe_statement: bool,
}

impl State {
    /// Whether a transaction is open.
    pub(super) const fn is_open(self) -> bool {
        self.open
    }
}

pub(super) fn state(connection: &Conn) -> Option<State> {
    state_in(&connection.session_state_changes().ok()?)
}

/// The same, of what came with an answer.
pub(super) fn state_in(changes: &[SessionStateInfo<'_>]) -> Option<State> {
    changes.iter().find_map(|change| match change.decode() {
        Ok(SessionStateChange::TransactionState(state)) => read(state.as_bytes()),
        _ => None,
    })
}

/// Eight letters: T or I or _, r, R, w, W, s, S, L.
fn read(letters: &[u8]) -> Option<State> {
    let &[open, _, _, wrote_plain, wrote, unsafe_statement, _, _] = letters else { return None };
    Some(State {
        open: open == b'T',
        wrote_plain: wrote_plain != b'_',
        wrote: wrote != b'_',
        unsafe_statement: unsafe_statement != b'_',
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letters_say_what_was_written() {
        let state = |letters: &[u8]| read(letters).map(|it| (it.open, it.wrote_plain, it.wrote, it.unsafe_statement));
        assert_eq!(state(b"T_R__sS_"), Some((true, false, false, true)));
        assert_eq!(state(b"T___W___"), Some((true, false, true, false)));
        assert_eq!(state(b"T__wW___"), Some((true, true, true, false)));
        assert_eq!(state(b"____Ws__"), Some((false, false, true, true)));
        assert_eq!(state(b"T_R__s"), None);
        assert_eq!(state(b"T_R__sS_X"), None);
    }
}
