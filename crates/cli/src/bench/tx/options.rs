//! The options of `assent bench tx`: the field's own, short and long, and ours beyond.

use std::path::PathBuf;

use assent_bench::databases;
use assent_bench::pace::Think;
use assent_bench::proxy::Delay;
use assent_bench::tx::Rules;
use assent_bench::tx::axes::{self, Case, Mode, Place, Rpo, Workload};
use assent_bench::tx::matrix::{self, Given};
use clap::Args;

use crate::args::Coordinator;
use crate::bench::keep::Keep;
use crate::failure::Failure;

#[derive(Args, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the field's options are switches")]
pub(crate) struct BenchTx {
    /// Commits every transaction (the default).
    #[arg(short = 'c', long, conflicts_with = "rollback")]
    pub(crate) commit: bool,
    /// Rolls every transaction back.
    #[arg(short = 'r', long)]
    pub(crate) rollback: bool,
    /// Runs many cycles (the default); --once runs one.
    #[arg(short = 'b', long, conflicts_with = "once")]
    pub(crate) benchmark: bool,
    /// One transaction of one client, and the trace of its calls.
    #[arg(long, conflicts_with_all = ["matrix", "csv", "report", "rate"])]
    pub(crate) once: bool,
    /// Opens and closes in every cycle, as an online service does; else once a client.
    #[arg(short = 'o', long)]
    pub(crate) open_close: bool,
    /// Opens once a client (the default without --matrix); with -o both modes are run.
    #[arg(long)]
    pub(crate) batch: bool,
    /// The figures of each cell and call as CSV on stdout.
    #[arg(short = 's', long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Client threads, one number or several; the default is 10.
    #[arg(short = 'l', long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: Vec<u32>,
    /// Cycles of each client; the default is 100.
    #[arg(short = 'C', long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cycles: Option<u32>,
    /// Median of the application's sleep t1, microseconds; the default is 1000, 0 is no sleep.
    #[arg(short = 'd', long, value_name = "US")]
    pub(crate) medium_delay: Option<u64>,
    /// Full width of t1 around its median, microseconds; the default is 1000.
    #[arg(short = 'D', long, value_name = "US")]
    pub(crate) delta_delay: Option<u64>,
    /// Median of the resources' work t2, microseconds; the default is 100000.
    #[arg(short = 'p', long, value_name = "US")]
    pub(crate) medium_processing: Option<u64>,
    /// Full width of t2 around its median, microseconds; the default is 100000.
    #[arg(short = 'P', long, value_name = "US")]
    pub(crate) delta_processing: Option<u64>,
    /// Sleeps of a cycle: 5 as the original tool, 4 without the last.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(4..=5))]
    pub(crate) sleeps: u32,
    /// The field's workloads: sleeps and the server's log sizes. medium = slow resources (the default), high = normal,
    /// extreme = in memory, none = no sleep at all.
    #[arg(long, value_delimiter = ',', value_parser = workload, value_name = "NAME,..")]
    pub(crate) workload: Vec<Workload>,
    /// min_elapsed_sync_time and max_elapsed_sync_time of the coordinator, milliseconds; the default is 0/0.
    #[arg(long, value_delimiter = ',', value_parser = rpo, value_name = "MIN/MAX,..")]
    pub(crate) rpo: Vec<Rpo>,
    /// How the coordinator keeps its decisions; the default is journal.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) engine: Vec<Engine>,
    /// Threads of the server; the default is 1.
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) server_threads: Vec<u32>,
    /// What the two branches are.
    #[arg(long, value_enum, default_value_t = Branches::Dummy)]
    pub(crate) branches: Branches,
    /// In this process, or in a server's (the default), or both.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) coordinator: Vec<Coordinator>,
    /// A coordinator that runs already, instead of one started for each cell; its engine and RPO are its own.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["servers", "matrix"])]
    pub(crate) server: Option<String>,
    /// Coordinators; a client takes each in turn, one a transaction.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) servers: u32,
    /// A network between client and server: the round trip, microseconds.
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub(crate) rtt_us: u64,
    /// Full width of the round trip around --rtt-us, microseconds.
    #[arg(long, default_value_t = 0, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub(crate) rtt_jitter_us: u64,
    /// Open loop: transactions that all clients together begin each second, whatever the answers do. The sleeps t1 are
    /// left out, and the total latency counts from the time a transaction was meant to begin.
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// A named product of the axes; other options narrow it. short: every chart in less than ten minutes. tuning: threads
    /// of the server and RPO. published: what the field published, some hours.
    #[arg(long, value_enum)]
    pub(crate) matrix: Option<Matrix>,
    /// How often every cell is run, in turn with the others; with real branches the rounds of slices (then 7).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: Option<u32>,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// With --branches real: PostgreSQL, e.g. postgresql://user:password@host:5432/database.
    #[arg(long, value_name = "URL", env = "ASSENT_BENCH_POSTGRES", hide_env_values = true)]
    pub(crate) postgres: Option<String>,
    /// With --branches real: MariaDB, e.g. mysql://user:password@host:3306/database.
    #[arg(long, value_name = "URL", env = "ASSENT_BENCH_MARIADB", hide_env_values = true)]
    pub(crate) mariadb: Option<String>,
    /// The folder to write in; a temporary one if not given. Cells clean their own folder in it.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

impl std::fmt::Debug for BenchTx {
    // The URLs hold passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BenchTx(..)")
    }
}

/// What the two branches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Branches {
    /// Resources that answer at once.
    Dummy,
    /// Two key-value stores of ours in the client's process, one put each.
    Kv,
    /// One row in PostgreSQL and one in MariaDB, against two plain commits and the XA verbs by hand; without sleeps.
    Real,
}

/// How the coordinator keeps its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// Appended to one log.
    Journal,
    /// A table, updated in place.
    Table,
}

/// A named product of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Matrix {
    /// Every chart, in less than ten minutes.
    Short,
    /// Threads of the server, RPO, both modes.
    Tuning,
    /// What the field published.
    Published,
}

fn workload(name: &str) -> Result<Workload, String> {
    Workload::named(name).ok_or_else(|| format!("write one of {}", Workload::NAMES.join(", ")))
}

fn rpo(text: &str) -> Result<Rpo, String> {
    text.parse().map_err(|error: assent_bench::BenchError| error.to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "write transactions per second, more than 0".to_owned())
}

impl BenchTx {
    /// Every cell.
    pub(crate) fn cases(&self) -> Vec<Case> {
        matrix::cases(self.matrix.map(Matrix::named), &self.given())
    }

    /// What holds for all of them.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            commit: !self.rollback,
            sleeps: self.sleeps,
            branches: if self.branches == Branches::Kv { axes::Branches::Kv } else { axes::Branches::Dummy },
            servers: self.servers,
            delay: Delay { rtt_us: self.rtt_us, jitter_us: self.rtt_jitter_us },
            rate: self.rate,
            rounds: self.rounds.unwrap_or(1),
        }
    }

    /// The databases of real branches.
    pub(crate) fn databases(&self) -> Result<databases::Databases, Failure> {
        match (&self.postgres, &self.mariadb) {
            (Some(postgres), Some(mariadb)) => {
                Ok(databases::Databases { postgres: postgres.clone(), mariadb: mariadb.clone() })
            }
            _ => Err(Failure::invalid("--branches real needs --postgres URL and --mariadb URL")),
        }
    }

    /// What cannot work together, beyond what clap has refused.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let embedded = self.coordinator.contains(&Coordinator::Embedded);
        if self.server.is_some() && embedded {
            return Err(Failure::invalid("--server is a served coordinator: leave --coordinator embedded out"));
        }
        if embedded && (self.rtt_us > 0 || self.rtt_jitter_us > 0) {
            return Err(Failure::invalid("--rtt-us is the way to a server: leave --coordinator embedded out"));
        }
        if self.rtt_jitter_us / 2 > self.rtt_us {
            let most = self.rtt_us * 2;
            return Err(Failure::invalid(format!("--rtt-jitter-us is at most {most}, twice of --rtt-us")));
        }
        if self.branches == Branches::Real {
            return self.check_real();
        }
        Ok(())
    }

    fn check_real(&self) -> Result<(), Failure> {
        let sleeps = [self.medium_delay, self.delta_delay, self.medium_processing, self.delta_processing];
        let odd = [
            ("--matrix", self.matrix.is_some()),
            ("--once", self.once),
            ("--rollback", self.rollback),
            ("--rate", self.rate.is_some()),
            ("--rtt-us", self.rtt_us > 0),
            ("--servers", self.servers > 1),
            ("--workload, -d, -D, -p and -P", !self.workload.is_empty() || sleeps.iter().any(Option::is_some)),
            ("--cycles", self.cycles.is_some()),
            ("--open-close and --batch", self.open_close || self.batch),
        ];
        match odd.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::invalid(format!(
                "{option}: real branches are measured in slices of a second without sleeps; leave it out"
            ))),
            None => Ok(()),
        }
    }

    fn given(&self) -> Given {
        let sleep = |median: Option<u64>, delta: Option<u64>, own: Think| Think {
            median_us: median.unwrap_or(own.median_us),
            delta_us: delta.unwrap_or(own.delta_us),
        };
        let mut workloads = self.workload.clone();
        if workloads.is_empty() && (self.matrix.is_none() || self.has_sleeps()) {
            workloads.extend(Workload::named("medium"));
        }
        if self.has_sleeps() {
            for it in &mut workloads {
                let t1 = sleep(self.medium_delay, self.delta_delay, it.t1);
                let t2 = sleep(self.medium_processing, self.delta_processing, it.t2);
                *it = it.clone().with(t1, t2);
            }
        }
        Given {
            workloads,
            cycles: self.cycles,
            modes: [(self.open_close, Mode::OpenClose), (self.batch, Mode::Batch)]
                .into_iter()
                .filter_map(|(asked, mode)| asked.then_some(mode))
                .collect(),
            places: self.coordinator.iter().map(|it| place(*it)).collect(),
            engines: self.engine.iter().map(|it| it.named()).collect(),
            rpos: self.rpo.clone(),
            threads: self.server_threads.clone(),
            clients: self.clients.clone(),
        }
    }

    const fn has_sleeps(&self) -> bool {
        self.medium_delay.is_some()
            || self.delta_delay.is_some()
            || self.medium_processing.is_some()
            || self.delta_processing.is_some()
    }
}

const fn place(coordinator: Coordinator) -> Place {
    match coordinator {
        Coordinator::Embedded => Place::Embedded,
        Coordinator::Served => Place::Served,
    }
}

impl Engine {
    const fn named(self) -> axes::Engine {
        match self {
            Self::Journal => axes::Engine::Journal,
            Self::Table => axes::Engine::Table,
        }
    }
}

impl Matrix {
    const fn named(self) -> matrix::Matrix {
        match self {
            Self::Short => matrix::Matrix::Short,
            Self::Tuning => matrix::Matrix::Tuning,
            Self::Published => matrix::Matrix::Published,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Bench, Cli, Command};

    fn parse(words: &str) -> Result<BenchTx, clap::Error> {
        let words = ["assent", "bench", "tx"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Bench(Bench::Tx(options)) => Ok(*options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_word_the_fields_defaults_are_run() {
        let options = parse("").unwrap();
        let [case] = &*options.cases() else { panic!() };
        assert_eq!((case.clients, case.cycles, case.mode, case.place), (10, 100, Mode::Batch, Place::Served));
        assert_eq!(case.workload, Workload::named("medium").unwrap());
        let rules = options.rules();
        assert_eq!((rules.commit, rules.sleeps, rules.servers, rules.rounds), (true, 5, 1, 1));
    }

    #[test]
    fn short_and_long_options_say_the_same() {
        let short = parse("-r -b -o -s -l 7 -C 9 -d 10 -D 4 -p 20 -P 6").unwrap();
        let long = parse(
            "--rollback --benchmark --open-close --csv --clients 7 --cycles 9 --medium-delay 10 --delta-delay 4 \
             --medium-processing 20 --delta-processing 6",
        )
        .unwrap();
        assert_eq!(short.cases(), long.cases());
        for options in [short, long] {
            assert!(options.csv && options.benchmark && !options.rules().commit);
            let [case] = &*options.cases() else { panic!() };
            assert_eq!((case.mode, case.clients, case.cycles), (Mode::OpenClose, 7, 9));
            let sleeps = (case.workload.t1, case.workload.t2);
            let think = |median_us, delta_us| Think { median_us, delta_us };
            assert_eq!(sleeps, (think(10, 4), think(20, 6)));
        }
        assert!(parse("-c").unwrap().rules().commit && parse("--commit --sleeps 4").unwrap().rules().sleeps == 4);
    }

    #[test]
    fn a_part_of_the_sleeps_leaves_the_rest_to_the_workload() {
        let options = parse("--workload extreme -p 5000").unwrap();
        let [case] = &*options.cases() else { panic!() };
        assert_eq!(
            (case.workload.t2.median_us, case.workload.t2.delta_us, case.workload.t1.median_us),
            (5_000, 1_000, 1_000)
        );
        assert_eq!(case.workload.log_size, Some(52_428_800));
    }

    #[test]
    fn every_axis_takes_several_values_and_the_product_is_run() {
        let options = parse(
            "-o --batch -l 1,10,50 --rpo 0/0,0/5 --engine journal,table --server-threads 1,2 --workload high,none \
             --coordinator served",
        );
        assert_eq!(options.unwrap().cases().len(), 2 * 3 * 2 * 2 * 2 * 2);
        let narrowed = parse("--matrix published --workload extreme --engine journal -l 50").unwrap();
        assert_eq!(narrowed.cases().len(), 3);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for wrong in [
            "-c -r",
            "-b --once",
            "--sleeps 3",
            "--sleeps 6",
            "-l 0",
            "-C 0",
            "--rpo 5",
            "--rpo 6/5",
            "--engine etcd",
            "--workload light",
            "--server-threads 0",
            "--rate 0",
            "--rate -1",
            "--rate nan",
            "--servers 0",
            "--matrix long",
            "--once --matrix short",
            "-s --json",
            "--server a:1 --servers 2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "--coordinator embedded --rtt-us 900",
            "--rtt-us 100 --rtt-jitter-us 202",
            "--branches real --matrix short",
            "--branches real -C 5",
            "--branches real --workload none",
            "--coordinator embedded --server a:1",
        ] {
            assert!(parse(wrong).unwrap().check().is_err(), "{wrong}");
        }
        for right in
            ["--rtt-us 923 --rtt-jitter-us 400", "--branches real -l 1,10", "--branches kv --coordinator embedded"]
        {
            assert!(parse(right).unwrap().check().is_ok(), "{right}");
        }
        assert!(format!("{:?}", parse("--postgres postgresql://u:secret@h/d").unwrap()).find("secret").is_none());
    }
}
