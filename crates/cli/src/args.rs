//! The command line, as clap reads it. Every option's text is its documentation.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Assent: writes that belong together happen together.
#[derive(Debug, Parser)]
#[command(name = "assent", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// One JSON object on stdout instead of a table; errors too.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Moves money between several stores while processes are killed, and counts it afterwards.
    Demo(Demo),
    /// Runs the engines that a configuration names.
    Serve(Serve),
    /// Keeps who leads in groups of replicas: the arbiter of pairs, on a third machine.
    Witness(Witness),
    /// Asks every resource of a configuration whether it keeps what it says, and changes nothing.
    #[command(after_help = DOCTOR_EXIT)]
    Doctor(Doctor),
    /// What the coordinator knows of transactions.
    #[command(subcommand)]
    Tx(Tx),
    /// Keys and values of a store: reads, writes, loads and exports them.
    #[command(subcommand)]
    Kv(Box<crate::kv::options::Kv>),
    /// Versioned JSON documents of a folder: every revision stays readable.
    #[command(subcommand)]
    Docs(Box<crate::docs::options::Docs>),
    /// Reads a password from stdin and prints its hash, for a user in assent.toml.
    Password,
    /// Numbers in memory that many change at once: serves them, reads and changes them, verifies what a server left.
    #[command(subcommand)]
    Assets(Box<crate::assets::options::Assets>),
    /// Looks into a journal folder, without changing it.
    #[command(subcommand)]
    Journal(Journal),
    /// Races, against floors measured in the same run.
    #[command(subcommand)]
    Bench(Bench),
    /// One client process of the demo.
    #[command(hide = true)]
    DemoClient(DemoClient),
    /// Kills every process at every stop point and counts what every store holds; on private servers only.
    #[command(hide = true)]
    Matrix(crate::matrix::Arguments),
    /// One client process of the matrix.
    #[command(hide = true)]
    MatrixClient(crate::matrix::ClientArguments),
    /// Harms a pair of asset servers in every way, under clients, and judges what they were told.
    #[command(hide = true)]
    Failover(crate::failover::Arguments),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Demo {
    /// Also over this PostgreSQL, e.g. postgresql://user:password@host:5432/database.
    #[arg(long, value_name = "URL", env = "ASSENT_DEMO_POSTGRES", hide_env_values = true)]
    pub(crate) postgres: Option<String>,
    /// Also over this MariaDB, e.g. mysql://user:password@host:3306/database.
    #[arg(long, value_name = "URL", env = "ASSENT_DEMO_MARIADB", hide_env_values = true)]
    pub(crate) mariadb: Option<String>,
    /// What keeps the coordinator's state.
    #[arg(long, default_value = "journal", value_parser = ["journal", "table"])]
    pub(crate) engine: String,
    /// Transfers in all.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) transfers: u64,
    /// Accounts in each store.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub(crate) accounts: u32,
    /// Client processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) clients: u32,
    /// The same seed moves the same money; where a kill falls still depends on the machine.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Kills at these stop points instead of the usual ones, e.g. client-before-decision:50 (the process that freezes
    /// there) or client-between-commits:9=postgres (another one, while it is frozen). `assent serve --help-stops`
    /// lists them.
    #[arg(long, value_name = "STOP[:NTH][=VICTIM]")]
    pub(crate) kill: Vec<crate::demo::Kill>,
    /// Keeps the folder with journals and configurations; a failed run always does.
    #[arg(long)]
    pub(crate) keep: bool,
    /// A program that kills and revives the private servers of --postgres and --mariadb: it is called as
    /// `HOOK kill DIR postgres` and `HOOK revive DIR postgres`. Without it they are never killed.
    #[arg(long, value_name = "HOOK", requires = "kill_dir")]
    pub(crate) kill_hook: Option<PathBuf>,
    /// The folder that the hook is given.
    #[arg(long, value_name = "DIR", requires = "kill_hook")]
    pub(crate) kill_dir: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DemoClient {
    /// The plan, as JSON in a file.
    #[arg(long)]
    pub(crate) plan: PathBuf,
    /// Which client this is.
    #[arg(long)]
    pub(crate) number: u32,
    /// Which run of it, from 1.
    #[arg(long)]
    pub(crate) run: u32,
    /// Transfers to do.
    #[arg(long)]
    pub(crate) transfers: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = "assent.toml", env = "ASSENT_CONFIG")]
    pub(crate) config: PathBuf,
    /// Where the binary protocol listens; over [server] listen.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Where health and metrics listen; over [admin] listen.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) admin_listen: Option<String>,
    /// Where engines keep their folders; over data_dir.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Listens beyond loopback although there is neither TLS nor authentication: all listeners, as `server.insecure` and
    /// `http.insecure` do it for the binary protocol and for HTTP.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The data folder is an older copy put back (a backup, a snapshot): decisions made since are not in it, so nobody presumes that what
    /// clients of before left prepared was not decided. Once; the folder keeps it. docs/operations.md, "Backup".
    #[arg(long)]
    pub(crate) restored: bool,
    /// Lists the places where `ASSENT_STOP=name[:nth]` freezes a process, and ends.
    #[arg(long)]
    pub(crate) help_stops: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Witness {
    /// Where it keeps what it holds. Nobody else's folder, and never a copy: a witness that forgets stops its groups.
    #[arg(long, value_name = "DIR", env = "ASSENT_WITNESS_DIR")]
    pub(crate) data: PathBuf,
    /// Where members ask it.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7432", env = "ASSENT_WITNESS_LISTEN")]
    pub(crate) listen: String,
    /// Listens beyond loopback although there is neither TLS nor authentication.
    #[arg(long)]
    pub(crate) insecure: bool,
}

const DOCTOR_EXIT: &str = "Exit code: 0 if nothing is worse than a warning (with --strict: than a note), 2 if there is an error, \
    8 if there is none and a resource could not be asked. With --json: {\"findings\":[{resource, severity, what, advice}], \"worst\"}; \
    the severities are ok, note, warning, unreachable, error.";

#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {
    /// The configuration; its [[resource]] list is asked.
    #[arg(long, value_name = "FILE", default_value = "assent.toml", env = "ASSENT_CONFIG")]
    pub(crate) config: PathBuf,
    /// A warning is exit code 2 too: for a job that watches.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Source {
    /// A running server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7430", env = "ASSENT_SERVER")]
    pub(crate) server: String,
    /// A stopped server's data folder instead, whatever server is named; it is only read.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The stopped server's configuration, for the names of its resources; its folder knows them by their ids.
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) config: Option<PathBuf>,
}

/// A person's word, kept in the coordinator's log.
#[derive(Args, Clone, Debug)]
pub(crate) struct Word {
    /// Does it; without, it only says what it would do.
    #[arg(long)]
    pub(crate) yes: bool,
    /// In whose name; else the operating system's user.
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Why.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// A running server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7430", env = "ASSENT_SERVER")]
    pub(crate) server: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct TxLog {
    /// Decided at this time or later: 90s, 30m, 1h or 2d ago, or UTC as 2026-11-20T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Decided before this time.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only those in this state.
    #[arg(long, value_enum)]
    pub(crate) state: Option<TxState>,
    /// Only those with a branch in this resource.
    #[arg(long, value_name = "NAME")]
    pub(crate) resource: Option<String>,
    /// Only this one.
    #[arg(long, value_name = "TX")]
    pub(crate) tx: Option<String>,
    /// At most so many, the oldest first.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) from: Source,
}

/// A way to be over, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum TxState {
    /// Decided to commit.
    Committed,
    /// Decided to roll back.
    RolledBack,
    /// A branch ended otherwise than decided.
    Heuristic,
    /// Decided, and not finished.
    InDoubt,
    /// A person had a hand in it.
    Forced,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tx {
    /// Decided transactions with branches that are not finished yet, and what is in doubt.
    List {
        #[command(flatten)]
        from: Source,
    },
    /// Everything known of one transaction.
    Show {
        /// epoch.incarnation.counter, as `tx list` prints it.
        tx: String,
        #[command(flatten)]
        from: Source,
    },
    /// Decides that a transaction in doubt commits; recovery then tells its branches.
    Commit {
        /// epoch.incarnation.counter, as `tx list` prints it.
        tx: String,
        #[command(flatten)]
        word: Word,
    },
    /// Decides that a transaction in doubt rolls back; recovery then tells its branches.
    Rollback {
        /// epoch.incarnation.counter, as `tx list` prints it.
        tx: String,
        #[command(flatten)]
        word: Word,
    },
    /// Lets a heuristic outcome leave the list, once a person has brought the data in order.
    Forget {
        /// epoch.incarnation.counter, as `tx list` prints it.
        tx: String,
        #[command(flatten)]
        word: Word,
    },
    /// What was decided so far: by whom, when, and how each branch was left.
    Log(TxLog),
    /// Whether the coordinator's log is as it was written; exit code 13 names the place where it is not.
    Verify {
        /// The head that an earlier run printed and somebody kept elsewhere: it must be in the chain.
        #[arg(long, value_name = "NUMBER:DIGEST")]
        kept: Option<String>,
        #[command(flatten)]
        from: Source,
    },
    /// Has the recovery agent scan every resource now, and says what it did.
    Recover {
        /// A running server.
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7430", env = "ASSENT_SERVER")]
        server: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Journal {
    /// Every batch and entry, with its place.
    Inspect {
        /// The journal's folder, e.g. data/coordinator.
        folder: PathBuf,
        /// At most so many entries.
        #[arg(long, default_value_t = 1_000)]
        limit: u64,
    },
    /// Reads everything and says whether it is whole, and where it ends.
    Check {
        /// The journal's folder.
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// 256 bytes made durable: one appender, many, pipelined, lazy; against the best way without us.
    Journal(BenchJournal),
    /// Distributed transactions with two resources: open, begin, commit, close.
    Tx(Box<crate::bench::tx::options::BenchTx>),
    /// Key-value stores: 8 KB objects under pressure, ours beside a floor, and beside peers with --program.
    Kv(Box<crate::bench::kv::options::BenchKv>),
    /// Documents: long histories and large documents, each durable commit against a durable write of the same bytes; a page over
    /// HTTP against a constant answer.
    Docs(Box<crate::bench::docs::options::BenchDocs>),
    /// Assets, on one server and on a pair: commands of many connections, one or many under way on each, against the same frames through as
    /// many processes.
    Assets(Box<crate::bench::assets::options::BenchAssets>),
    /// A process of the floor of `bench assets`.
    #[command(hide = true)]
    AssetsFloor(crate::bench::assets::options::AssetsFloor),
    /// The load generator of `bench docs`: a plan on stdin, what came of it on stdout.
    #[command(hide = true)]
    WebLoad,
    /// The floor of `bench docs` over HTTP.
    #[command(hide = true)]
    WebFloor {
        /// Bytes of its answer.
        bytes: u32,
    },
    /// One row in PostgreSQL and one in MariaDB, against two plain commits and against the XA verbs by hand.
    Real(crate::bench::options::BenchReal),
    /// Branches in doubt in PostgreSQL and MariaDB, and killed clients: how long until nothing is left.
    Recover(crate::bench::options::BenchRecover),
    /// A server started over a long log: how long until its first commit, and what memory it keeps.
    Restart(crate::bench::options::BenchRestart),
    /// Holds two kept reports of one scenario against each other.
    Compare(crate::bench::compare::BenchCompare),
    /// Lays the page or the CSV of a kept report anew.
    Report(crate::bench::report::BenchReport),
    /// One client of `bench recover`.
    #[command(hide = true)]
    Victim(crate::bench::options::BenchVictim),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchJournal {
    /// Bytes of an entry.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) bytes: u32,
    /// Threads of the blocking and pipelined workloads.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) threads: u32,
    /// Rounds of slices.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(crate) slice_ms: u64,
    /// Durable writes under way at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) writes_in_flight: u32,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

/// Where decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Coordinator {
    /// In the application's process.
    Embedded,
    /// In a server process, over loopback.
    Served,
}
