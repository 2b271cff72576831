//! The tables of a race, made and dropped by it, and the servers' own counters.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use assent_kind::Kind;
use mysql::prelude::Queryable as _;

use crate::BenchError;
use crate::databases::{Databases, mariadb_said, open_mariadb, open_postgres, postgres_said};

/// How long a dropped table may be waited for: what a killed race left prepared keeps its own.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Numbers the races of this process.
static RACES: AtomicU32 = AtomicU32::new(0);

/// Syncs that the servers and the coordinator's journal have counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Syncs {
    pub(crate) postgres: Option<u64>,
    pub(crate) mariadb: Option<u64>,
    pub(crate) journal: Option<u64>,
}

impl Syncs {
    /// What came between two looks.
    pub(crate) fn add(&mut self, before: Syncs, after: Syncs) {
        let more = |sum: &mut Option<u64>, before: Option<u64>, after: Option<u64>| {
            if let (Some(before), Some(after)) = (before, after) {
                *sum = Some(sum.unwrap_or(0) + after.saturating_sub(before));
            }
        };
        more(&mut self.postgres, before.postgres, after.postgres);
        more(&mut self.mariadb, before.mariadb, after.mariadb);
        more(&mut self.journal, before.journal, after.journal);
    }
}

/// One table in each database, with a row for each thread.
pub(crate) struct Stage {
    table: String,
    postgres: postgres::Client,
    mariadb: mysql::Conn,
}

impl Stage {
    pub(crate) fn make(databases: &Databases, rows: u32) -> Result<Self, BenchError> {
        // Every race has its own: one that was killed may have left its table locked.
        let table = format!("assent_bench_{}_{}", std::process::id(), RACES.fetch_add(1, Ordering::Relaxed));
        let (postgres, mariadb) = (open_postgres(&databases.postgres)?, open_mariadb(&databases.mariadb)?);
        let mut stage = Self { table, postgres, mariadb };
        let table = &stage.table;
        let wait = DROP_WAIT.as_secs();
        // Autovacuum comes when it likes, and would come to one way and not to another; HOT needs room on the page.
        let make = format!(
            "SET lock_timeout = '{wait}s'; DROP TABLE IF EXISTS {table};
             CREATE TABLE {table} (id int PRIMARY KEY, n bigint NOT NULL)
                 WITH (fillfactor = 20, autovacuum_enabled = off);
             INSERT INTO {table} SELECT number, 0 FROM generate_series(0, {rows} - 1) AS number"
        );
        stage.postgres.batch_execute(&make).map_err(|error| postgres_said(&error))?;
        let said = |error: mysql::Error| mariadb_said(&error);
        stage.mariadb.query_drop(format!("SET lock_wait_timeout = {wait}")).map_err(said)?;
        stage.mariadb.query_drop(format!("DROP TABLE IF EXISTS {table}")).map_err(said)?;
        let make = format!("CREATE TABLE {table} (id int PRIMARY KEY, n bigint NOT NULL) ENGINE = InnoDB");
        stage.mariadb.query_drop(make).map_err(said)?;
        let values: Vec<String> = (0..rows).map(|row| format!("({row}, 0)")).collect();
        let fill = format!("INSERT INTO {table} VALUES {}", values.join(", "));
        stage.mariadb.query_drop(fill).map_err(said)?;
        Ok(stage)
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The servers' counters now, and the journal's as it was given.
    pub(crate) fn syncs(&mut self, journal: Option<u64>) -> Result<Syncs, BenchError> {
        // Servers before 14 and after 17 count elsewhere.
        let question = "SELECT wal_sync::text FROM pg_catalog.pg_stat_wal";
        let found = self.postgres.simple_query(question).ok().and_then(|messages| first(&messages));
        let postgres = found.and_then(|text| text.parse().ok());
        let counted = self.mariadb.query_first("SHOW GLOBAL STATUS LIKE 'Innodb_data_fsyncs'");
        let counted: Option<(String, u64)> = counted.map_err(|error| mariadb_said(&error))?;
        Ok(Syncs { postgres, mariadb: counted.map(|it| it.1), journal })
    }

    /// The updates that each database holds in the rows where the condition is true.
    pub(crate) fn updates(&mut self, condition: &str) -> Result<[u64; 2], BenchError> {
        let question = format!("SELECT COALESCE(SUM(n), 0) FROM {} WHERE {condition}", self.table);
        let messages = self.postgres.simple_query(&question).map_err(|error| postgres_said(&error))?;
        let postgres = first(&messages).and_then(|text| text.parse().ok());
        let mariadb: Option<u64> = self.mariadb.query_first(question).map_err(|error| mariadb_said(&error))?;
        match (postgres, mariadb) {
            (Some(postgres), Some(mariadb)) => Ok([postgres, mariadb]),
            _ => Err(BenchError::new(Kind::Internal, "a sum had no answer")),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // On the way out of a failure there is nobody to tell; the table's name says whose it was.
        _ = self.postgres.batch_execute(&format!("DROP TABLE IF EXISTS {}", self.table));
        _ = self.mariadb.query_drop(format!("DROP TABLE IF EXISTS {}", self.table));
    }
}

fn first(messages: &[postgres::SimpleQueryMessage]) -> Option<String> {
    messages.iter().find_map(|message| match message {
        postgres::SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten().map(str::to_owned),
        _ => None,
    })
}
