//! What the caller works with: the driver's connection, with the branch's beginning in front of its first words.
//!
//! Walk: [`MariadbClient::query_drop`] takes XA START with it in one message, where the server is known to tell of its
//! transactions; everything else goes behind it, all of it through the [`Gate`] · each answer is read for what the server tells, before the next one
//! takes its place in the driver.
//! Trap: the driver tells of the last answer only, and rows have no such answer; so what is not one plain statement that
//! writes counts as hidden, and the vote then asks ([`super::known::ASK`]).
//! Deliberately absent: which words start a branch, and what passes (`begin.rs`), what the account means (`known.rs`).

use mysql::prelude::{AsStatement, Queryable};
use mysql::{Binary, Conn, Params, QueryResult, Result, Statement, Text};

use super::begin::{Gate, Grip};
use super::failure::{Failure, is_broken};
use super::known::Known;

/// Statements with one answer that is no row, and tells what they wrote.
const WRITES: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "REPLACE"];

/// A MariaDB or MySQL connection, lent for a branch's work: use it by the driver's [`Queryable`].
#[derive(Debug)]
pub struct MariadbClient<'s> {
    gate: Gate<'s>,
    known: &'s mut Known,
    grip: &'s mut Grip,
    /// The driver lost its way.
    broken: Option<Failure>,
}

impl<'s> MariadbClient<'s> {
    pub(super) const fn new(gate: Gate<'s>, known: &'s mut Known, grip: &'s mut Grip) -> Self {
        Self { gate, known, grip, broken: None }
    }

    /// Why the connection is of no more use, if it broke.
    pub(super) fn leave(self) -> Option<Failure> {
        self.broken
    }

    /// The driver's connection: for what is not a statement. The branch has started; what is said here is not looked at
    /// one by one. From then on the verbs go by the driver too.
    ///
    /// # Errors
    /// What the server says to the start of the branch.
    pub fn native(&mut self) -> Result<&mut Conn> {
        self.next(false);
        let connection = self.gate.pass()?;
        self.grip.loosen();
        Ok(connection)
    }

    /// How many rows the last statement changed.
    #[must_use]
    pub fn affected_rows(&self) -> u64 {
        self.gate.connection().affected_rows()
    }

    /// The number that the last statement gave to a row of its own accord, or 0.
    #[must_use]
    pub fn last_insert_id(&self) -> u64 {
        self.gate.connection().last_insert_id()
    }

    /// By which the server names this connection.
    #[must_use]
    pub fn connection_id(&self) -> u32 {
        self.gate.connection().connection_id()
    }

    /// Before the next answer takes the place of the last one.
    fn next(&mut self, is_plain: bool) {
        self.known.hear(self.gate.connection());
        self.known.heard = true;
        self.known.hidden |= !is_plain;
    }
}

impl Queryable for MariadbClient<'_> {
    fn query_iter<Q: AsRef<str>>(&mut self, query: Q) -> Result<QueryResult<'_, '_, '_, Text>> {
        self.next(false);
        self.gate.pass()?.query_iter(query).inspect_err(|error| note(&mut self.broken, error))
    }

    /// One message, also for the first of a branch. Unlike the driver's, it gives the error of any of several statements.
    fn query_drop<Q: AsRef<str>>(&mut self, query: Q) -> Result<()> {
        let query = query.as_ref();
        self.next(is_plain(query));
        let said = self.gate.pass_with(query).and_then(finish).inspect_err(|error| note(&mut self.broken, error));
        self.known.hidden |= said.is_err();
        said
    }

    fn prep<Q: AsRef<str>>(&mut self, query: Q) -> Result<Statement> {
        self.next(true);
        self.gate.pass()?.prep(query).inspect_err(|error| note(&mut self.broken, error))
    }

    fn close(&mut self, statement: Statement) -> Result<()> {
        self.gate.pass()?.close(statement)
    }

    fn exec_iter<S, P>(&mut self, statement: S, params: P) -> Result<QueryResult<'_, '_, '_, Binary>>
    where
        S: AsStatement,
        P: Into<Params>,
    {
        self.next(false);
        self.gate.pass()?.exec_iter(statement, params).inspect_err(|error| note(&mut self.broken, error))
    }

    fn exec_batch<S, P, I>(&mut self, statement: S, params: I) -> Result<()>
    where
        Self: Sized,
        S: AsStatement,
        P: Into<Params>,
        I: IntoIterator<Item = P>,
    {
        self.next(false);
        self.gate.pass()?.exec_batch(statement, params).inspect_err(|error| note(&mut self.broken, error))
    }
}

/// The first that broke it counts.
fn note(broken: &mut Option<Failure>, error: &mysql::Error) {
    if broken.is_none() && is_broken(error) {
        *broken = Some(Failure::of(error));
    }
}

/// To the end. The rows are of no interest; an error among them, or in a statement's place, is.
pub(super) fn finish(mut results: QueryResult<'_, '_, '_, Text>) -> Result<()> {
    while let Some(mut rows) = results.iter() {
        rows.find_map(Result::err).map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// Whether the text is one statement whose answer tells all that it wrote.
fn is_plain(sql: &str) -> bool {
    let first = sql.trim_start().split(|byte: char| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let returns = |part: &[u8]| part.eq_ignore_ascii_case(b"returning");
    WRITES.iter().any(|word| first.eq_ignore_ascii_case(word))
        && !sql.contains(';')
        && !sql.as_bytes().windows(b"returning".len()).any(returns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_connection_is_noted_and_one_of_a_statement_is_not() {
        let server = mysql::MySqlError { state: String::new(), code: 1062, message: String::new() };
        let mut broken = None;
        note(&mut broken, &mysql::Error::MySqlError(server));
        assert!(broken.is_none());
        note(&mut broken, &mysql::Error::IoError(std::io::ErrorKind::BrokenPipe.into()));
        note(&mut broken, &mysql::DriverError::PacketOutOfSync.into());
        assert!(matches!(broken, Some(Failure::Lost(why)) if why.message.contains("pipe")), "the first one");
    }

    #[test]
    fn only_one_statement_that_writes_and_answers_no_row_is_plain() {
        for sql in ["UPDATE t SET n = 1", " insert INTO t VALUES (1)", "Delete from t", "REPLACE INTO t VALUES (1)"] {
            assert!(is_plain(sql), "{sql}");
        }
        for sql in [
            "",
            "SELECT * FROM t FOR UPDATE",
            "SET session_track_transaction_info = OFF",
            "CALL p()",
            "UPDATE t SET n = 1; SELECT 1",
            "INSERT INTO t VALUES (1) Returning id",
            "/* first */ UPDATE t SET n = 1",
        ] {
            assert!(!is_plain(sql), "{sql}");
        }
    }
}
