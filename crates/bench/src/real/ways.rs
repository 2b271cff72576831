//! One transaction in each way, over a thread's own two sessions.

use assent_client::{Client, WorkError};
use assent_resources::{Limits, Mariadb, Postgres, ResourceError};
use mysql::prelude::Queryable as _;

use super::{Told, Workload};
use crate::BenchError;
use crate::databases::{Databases, NAMES, mariadb_said, open_mariadb, open_postgres, postgres_said};

/// Has its share of the server's counters reported, not a second later.
const FLUSH_COUNTERS: &str = "SELECT pg_catalog.pg_stat_force_next_flush()";

/// A thread's sessions.
pub(super) trait Crew: Send {
    /// Untimed, after a slice.
    fn rest(&mut self) -> Result<(), BenchError>;
}

/// The drivers alone.
pub(super) struct Theirs {
    postgres: postgres::Client,
    mariadb: mysql::Conn,
}

/// The adapters.
pub(crate) struct Ours {
    postgres: Postgres,
    mariadb: Mariadb,
}

fn update(table: &str, row: u32) -> String {
    format!("UPDATE {table} SET n = n + 1 WHERE id = {row}")
}

fn select(table: &str, row: u32) -> String {
    format!("SELECT n FROM {table} WHERE id = {row}")
}

/// The statements of the two branches.
fn work(workload: Workload, table: &str, row: u32) -> [String; 2] {
    match workload {
        Workload::BothWrite => [update(table, row), update(table, row)],
        Workload::PostgresReads => [select(table, row), update(table, row)],
        Workload::MariadbReads => [update(table, row), select(table, row)],
    }
}

impl Theirs {
    pub(super) fn open(databases: &Databases) -> Result<Self, BenchError> {
        Ok(Self { postgres: open_postgres(&databases.postgres)?, mariadb: open_mariadb(&databases.mariadb)? })
    }

    fn postgres(&mut self, sql: &str) -> Result<(), BenchError> {
        self.postgres.batch_execute(sql).map_err(|error| postgres_said(&error))
    }

    fn mariadb(&mut self, sql: &str) -> Result<(), BenchError> {
        self.mariadb.query_drop(sql).map_err(|error| mariadb_said(&error))
    }

    /// Begin both, work in both, commit one and then the other.
    pub(super) fn plain(&mut self, workload: Workload, table: &str, row: u32) -> Result<(), BenchError> {
        let [postgres, mariadb] = work(workload, table, row);
        self.postgres("BEGIN")?;
        self.mariadb("BEGIN")?;
        self.postgres(&postgres)?;
        self.mariadb(&mariadb)?;
        self.postgres("COMMIT")?;
        self.mariadb("COMMIT")
    }

    /// The verbs, a message each.
    pub(super) fn by_hand(&mut self, workload: Workload, table: &str, row: u32, count: u64) -> Result<(), BenchError> {
        let [postgres, mariadb] = work(workload, table, row);
        let xid = format!("'{table}-{row}-{count}'");
        self.postgres("BEGIN")?;
        self.mariadb(&format!("XA START {xid}"))?;
        self.postgres(&postgres)?;
        self.mariadb(&mariadb)?;
        self.mariadb(&format!("XA END {xid}"))?;
        self.postgres(&format!("PREPARE TRANSACTION {xid}"))?;
        self.mariadb(&format!("XA PREPARE {xid}"))?;
        self.postgres(&format!("COMMIT PREPARED {xid}"))?;
        self.mariadb(&format!("XA COMMIT {xid}"))
    }
}

impl Crew for Theirs {
    fn rest(&mut self) -> Result<(), BenchError> {
        // Servers before 15 do not have it, and count late.
        _ = self.postgres.batch_execute(FLUSH_COUNTERS);
        Ok(())
    }
}

impl Ours {
    /// As they come.
    pub(crate) fn open(databases: &Databases) -> Result<Self, BenchError> {
        let failed = |error: ResourceError| BenchError::new(error.kind(), error);
        let [postgres, mariadb] = NAMES;
        Ok(Self {
            postgres: Postgres::connect(postgres, &databases.postgres, Limits::WORK).map_err(failed)?,
            mariadb: Mariadb::connect(mariadb, &databases.mariadb, Limits::WORK).map_err(failed)?,
        })
    }

    /// Told what they are for.
    pub(super) fn open_told(databases: &Databases, workload: Workload, told: Told) -> Result<Self, BenchError> {
        let failed = |error: ResourceError| BenchError::new(error.kind(), error);
        let Self { postgres, mariadb } = Self::open(databases)?;
        let (postgres, mariadb) = match (told, workload) {
            (Told::Last, _) => (postgres.last_resource().map_err(failed)?, mariadb),
            (Told::Reader, Workload::PostgresReads) => (postgres.read_only().map_err(failed)?, mariadb),
            (Told::Reader, Workload::MariadbReads) => (postgres, mariadb.read_only().map_err(failed)?),
            _ => (postgres, mariadb),
        };
        Ok(Self { postgres, mariadb })
    }

    /// Begin, enlist both, work in both, commit.
    pub(crate) fn transaction(
        &mut self,
        client: &Client,
        workload: Workload,
        table: &str,
        row: u32,
    ) -> Result<(), BenchError> {
        let not_started = |error: WorkError| BenchError::new(error.kind(), error);
        let failed = |error: ResourceError| BenchError::new(error.kind(), error);
        let [postgres, mariadb] = work(workload, table, row);
        let mut tx = client.begin().map_err(|error| BenchError::new(error.kind, error))?;
        let (bank, shop) = (tx.enlist(&mut self.postgres), tx.enlist(&mut self.mariadb));
        bank.work().map_err(not_started)?.work(|session| session.batch_execute(&postgres)).map_err(failed)?;
        shop.work().map_err(not_started)?.work(|session| session.query_drop(&mariadb)).map_err(failed)?;
        tx.commit().map(drop).map_err(|error| BenchError::new(error.kind, error))
    }
}

impl Crew for Ours {
    fn rest(&mut self) -> Result<(), BenchError> {
        // Servers before 15 do not have it, and count late.
        _ = self.postgres.work(|session| session.batch_execute(FLUSH_COUNTERS));
        Ok(())
    }
}
