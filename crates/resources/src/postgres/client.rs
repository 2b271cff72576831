//! What the caller works with: a blocking connection with the driver's own questions.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, SimpleQueryMessage, Statement, ToStatement};

use super::answer::{self, Row as TextRow};
use super::failure::Failure;
use super::line::Line;

/// A PostgreSQL connection, lent for a branch's work. Everything blocks, without a time limit but the server's own
/// (`statement_timeout`). The questions are those of the crates `postgres` and `tokio-postgres`, whose types they take and
/// give. COPY, rows one by one and notifications need a connection of one's own: `Postgres::over` and
/// [`PostgresClient::native`].
///
/// Statements, and rows, which keep theirs, are dropped by the thread that works, or while nobody does. Where another thread drops the last of
/// one while [`PostgresClient::batch_execute`] waits, and the batch fails, the connection is given up, and the server's words are lost.
#[derive(Debug)]
pub struct PostgresClient(pub(super) Way);

/// Whose connection it is.
pub(super) enum Way {
    /// Ours, spoken on by whoever holds it.
    Line(Line),
    /// The caller's, with a runtime of its own.
    Given(postgres::Client),
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Line(_) => "Line(..)",
            Self::Given(_) => "Given(..)",
        })
    }
}

impl PostgresClient {
    /// Several statements in one message, their rows thrown away. The branch's first words take its BEGIN with them, so a
    /// position that the server names in their error counts from there.
    ///
    /// # Errors
    /// What the server says to the first that fails, or how the connection broke; so for all of these.
    pub fn batch_execute(&mut self, sql: &str) -> Result<(), Error> {
        match &mut self.0 {
            Way::Line(line) => line.batch(sql),
            Way::Given(client) => client.batch_execute(sql),
        }
    }

    /// Several statements in one message, and what they answer, as text.
    ///
    /// # Errors
    /// As above.
    pub fn simple_query(&mut self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        match &mut self.0 {
            Way::Line(line) => line.text(sql),
            Way::Given(client) => client.simple_query(sql),
        }
    }

    /// One statement with parameters; how many rows it changed.
    ///
    /// # Errors
    /// As above.
    pub fn execute<T>(&mut self, statement: &T, parameters: &[&(dyn ToSql + Sync)]) -> Result<u64, Error>
    where
        T: ?Sized + ToStatement,
    {
        match &mut self.0 {
            Way::Line(line) => line.run(async |client| client.execute(statement, parameters).await),
            Way::Given(client) => client.execute(statement, parameters),
        }
    }

    /// One statement with parameters, and its rows.
    ///
    /// # Errors
    /// As above.
    pub fn query<T>(&mut self, statement: &T, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error>
    where
        T: ?Sized + ToStatement,
    {
        match &mut self.0 {
            Way::Line(line) => line.run(async |client| client.query(statement, parameters).await),
            Way::Given(client) => client.query(statement, parameters),
        }
    }

    /// One statement with parameters, and its only row.
    ///
    /// # Errors
    /// As above; also if there is none, or another one.
    pub fn query_one<T>(&mut self, statement: &T, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row, Error>
    where
        T: ?Sized + ToStatement,
    {
        match &mut self.0 {
            Way::Line(line) => line.run(async |client| client.query_one(statement, parameters).await),
            Way::Given(client) => client.query_one(statement, parameters),
        }
    }

    /// One statement with parameters, and its row if it has one.
    ///
    /// # Errors
    /// As above; also if there is another one.
    pub fn query_opt<T>(&mut self, statement: &T, parameters: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Error>
    where
        T: ?Sized + ToStatement,
    {
        match &mut self.0 {
            Way::Line(line) => line.run(async |client| client.query_opt(statement, parameters).await),
            Way::Given(client) => client.query_opt(statement, parameters),
        }
    }

    /// A statement, parsed once for many.
    ///
    /// # Errors
    /// As above.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        match &mut self.0 {
            Way::Line(line) => line.run(async |client| client.prepare(sql).await),
            Way::Given(client) => client.prepare(sql),
        }
    }

    /// Words of ours, in one message, and the rows of their answer.
    pub(super) fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>, Failure> {
        let client = match &mut self.0 {
            Way::Line(line) => return line.ask(sql),
            Way::Given(client) => client,
        };
        let messages = client.simple_query(sql).map_err(|error| Failure::of(&error))?;
        if !messages.iter().any(|message| matches!(message, SimpleQueryMessage::CommandComplete(_))) {
            return Err(answer::without_statement());
        }
        let text = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                let columns = (0..row.len()).map(|at| row.try_get(at).ok().flatten().map(str::to_owned));
                Some(TextRow(columns.collect()))
            }
            _ => None,
        };
        Ok(messages.into_iter().filter_map(text).collect())
    }

    /// The connection that the caller had opened.
    pub fn native(&mut self) -> Option<&mut postgres::Client> {
        match &mut self.0 {
            Way::Line(_) => None,
            Way::Given(client) => Some(client),
        }
    }

    /// Whether the connection is known to be over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Way::Line(line) => line.is_closed(),
            Way::Given(client) => client.is_closed(),
        }
    }
}
