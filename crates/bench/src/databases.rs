//! The two databases of a race, by their URLs: plain sessions, adapters' connectors, and their errors.

use assent_kind::Kind;
use assent_resources::{MariadbConnector, PostgresConnector, ResourceError};
use assent_xa::Connector;
use postgres::NoTls;

use crate::BenchError;

/// The registered names of the two databases; a served coordinator must know them.
pub const NAMES: [&str; 2] = ["bench-postgres", "bench-mariadb"];

/// Where they are.
#[derive(Clone)]
pub struct Databases {
    /// `postgresql://user:password@host:port/database`
    pub postgres: String,
    /// `mysql://user:password@host:port/database`
    pub mariadb: String,
}

impl std::fmt::Debug for Databases {
    // The URLs hold passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Databases(..)")
    }
}

impl Databases {
    /// Recovery's connections, as an application or a server would give them.
    pub(crate) fn connectors(&self) -> Result<Vec<Box<dyn Connector>>, BenchError> {
        let failed = |error: ResourceError| BenchError::new(error.kind(), error);
        let [postgres, mariadb] = NAMES;
        Ok(vec![
            Box::new(PostgresConnector::new(postgres, &self.postgres).map_err(failed)?),
            Box::new(MariadbConnector::new(mariadb, &self.mariadb).map_err(failed)?),
        ])
    }
}

/// A plain session.
pub(crate) fn open_postgres(url: &str) -> Result<postgres::Client, BenchError> {
    postgres::Client::connect(url, NoTls).map_err(|error| postgres_said(&error))
}

/// A plain session, over TCP as the adapter's.
pub(crate) fn open_mariadb(url: &str) -> Result<mysql::Conn, BenchError> {
    let options = mysql::Opts::from_url(url)
        .map_err(|_| BenchError::new(Kind::Invalid, "write --mariadb as mysql://user:password@host:port/database"))?;
    let options = mysql::OptsBuilder::from_opts(options).prefer_socket(false);
    mysql::Conn::new(options).map_err(|error| mariadb_said(&error))
}

/// What the server or the driver said, as an error of the race.
pub(crate) fn postgres_said(error: &postgres::Error) -> BenchError {
    let said = error.as_db_error().map_or_else(|| error.to_string(), |said| format!("{} {}", said.code().code(), said));
    BenchError::new(Kind::Unavailable, format!("PostgreSQL: {said}"))
}

/// What the server or the driver said, as an error of the race.
pub(crate) fn mariadb_said(error: &mysql::Error) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("MariaDB: {error}"))
}
