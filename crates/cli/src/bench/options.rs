//! The options of the races over real databases.

use std::path::PathBuf;

use clap::Args;

use crate::args::Coordinator;

/// The two databases of a race. Its tables are made there and dropped.
#[derive(Args, Clone)]
pub(crate) struct Databases {
    /// PostgreSQL, e.g. postgresql://user:password@host:5432/database.
    #[arg(long, value_name = "URL", env = "ASSENT_BENCH_POSTGRES", hide_env_values = true)]
    pub(crate) postgres: String,
    /// MariaDB, e.g. mysql://user:password@host:3306/database.
    #[arg(long, value_name = "URL", env = "ASSENT_BENCH_MARIADB", hide_env_values = true)]
    pub(crate) mariadb: String,
}

impl std::fmt::Debug for Databases {
    // The URLs hold passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Databases(..)")
    }
}

impl Databases {
    /// As the races take them.
    pub(crate) fn named(&self) -> assent_bench::databases::Databases {
        assent_bench::databases::Databases { postgres: self.postgres.clone(), mariadb: self.mariadb.clone() }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchReal {
    #[command(flatten)]
    pub(crate) databases: Databases,
    /// Numbers of threads; each keeps two sessions, four with a coordinator.
    #[arg(short = 'l', long, value_delimiter = ',', default_values_t = [1, 10, 50],
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) clients: Vec<u32>,
    /// Rounds of slices.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub(crate) slice_ms: u64,
    /// One of the two branches only reads, as is found out, and as its connection is told: PostgreSQL's, and then MariaDB's.
    #[arg(long)]
    pub(crate) read_mostly: bool,
    /// A round trip between the client and both databases, microseconds, for the floors too: half of it each way.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) rtt_us: u64,
    /// Only the embedded coordinator, or only a served one.
    #[arg(long, value_enum)]
    pub(crate) coordinator: Option<Coordinator>,
    /// A coordinator that runs already and has bench-postgres and bench-mariadb registered, instead of one started for
    /// the race.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchRecover {
    #[command(flatten)]
    pub(crate) databases: Databases,
    /// Branches in doubt, over both databases; PostgreSQL's max_prepared_transactions must hold half of them.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) branches: u32,
    /// Clients killed at each stop point, one after the other; 0 = none.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) kills: u32,
    /// Seconds after which recovery counts as failed.
    #[arg(long, default_value_t = 120)]
    pub(crate) limit_s: u64,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchVictim {
    #[command(flatten)]
    pub(crate) databases: Databases,
    /// The coordinator.
    #[arg(long)]
    pub(crate) server: String,
    /// Whose first row is updated.
    #[arg(long)]
    pub(crate) table: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchRestart {
    /// Transactions finished before the restart.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) finished: u32,
    /// Transactions in doubt at the restart.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub(crate) in_doubt: u32,
    /// Transactions after it, for its memory; 0 = none. The base is taken after the first 10,000.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) transactions: u32,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}
