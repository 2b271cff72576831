//! Adapters to resource managers: each speaks the verbs of [`assent_xa`] to something that can vote.
//!
//! Walk: [`Postgres`] and [`Mariadb`] a user's own database, each with a connector · [`Remote`] a branch in another
//! Assent process · [`Dummy`] answers at once · [`Scripted`] answers what a text file says, by the names of XA's return
//! codes · [`doctor`] looks at one before it is trusted.
//! Deliberately absent: when which verb is sent (`xa`), what was decided (`coordinator`).
#![forbid(unsafe_code)]

mod codes;
#[cfg(any(feature = "postgres", feature = "mariadb"))]
pub mod doctor;
mod dummy;
#[cfg(any(feature = "postgres", feature = "mariadb"))]
mod error;
#[cfg(any(feature = "postgres", feature = "mariadb"))]
mod kept;
#[cfg(feature = "mariadb")]
mod mariadb;
#[cfg(feature = "postgres")]
mod postgres;
mod remote;
mod scripted;
#[cfg(any(feature = "postgres", feature = "mariadb"))]
mod stand;
#[cfg(any(feature = "postgres", feature = "mariadb"))]
mod url;

pub use self::dummy::{Calls, Dummy, DummyConnector};
#[cfg(any(feature = "postgres", feature = "mariadb"))]
pub use self::error::ResourceError;
#[cfg(any(feature = "postgres", feature = "mariadb"))]
pub use self::kept::Limits;
#[cfg(feature = "mariadb")]
pub use self::mariadb::{Mariadb, MariadbClient, MariadbConnector};
#[cfg(feature = "postgres")]
pub use self::postgres::{Postgres, PostgresClient, PostgresConnector};
pub use self::remote::{Remote, RemoteConnector, RemoteError, Rows};
pub use self::scripted::{Script, ScriptError, Scripted, ScriptedConnector};

/// What a decision keeps of a branch's vote, in words for people: for a PostgreSQL the transaction's number, role and database, for a
/// MariaDB connection and server. Nothing for what neither of them wrote.
#[cfg(all(feature = "postgres", feature = "mariadb"))]
#[must_use]
pub fn witness_words(witness: &[u8]) -> Option<String> {
    postgres::witness::words(witness).or_else(|| mariadb::witness::words(witness))
}
