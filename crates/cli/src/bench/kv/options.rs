//! The options of `assent bench kv`.

use std::path::PathBuf;

use assent_bench::kv::keys::Spread;
use assent_bench::kv::scenario::{Given, SCENARIOS, Scenario};
use assent_bench::kv::value::{HEAD_BYTES, VALUE_BYTES_MAX};
use clap::Args;

use crate::bench::keep::Keep;

/// A store refuses more.
const VALUE_CACHE_MIB_MAX: u64 = 1 << 20;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchKv {
    /// Workloads: kv-sync, kv-nosync, kv-put, kv-parallel, kv-slow, kv-head, kv-headput, kv-scan, kv-compact, kv-index; small values in
    /// memory: memory-get, memory-head, memory-put, memory-batch, memory-open; or kv, memory, all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "kv-sync,kv-nosync", value_parser = scenarios)]
    pub(crate) scenario: Vec<Named>,
    /// Stores; all that the program knows if not given.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    pub(crate) store: Vec<String>,
    /// Runs every cell by this program, which knows more stores; `make peers-kv` builds one.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// Says which stores there are, and ends.
    #[arg(long)]
    pub(crate) list: bool,
    /// Client threads, one number or several; a workload has its own (45, kv-head 100), kv-parallel and memory keep theirs.
    #[arg(short = 'l', long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: Vec<u32>,
    /// How keys are drawn: pareto (80 % on 20 % of the keys) or uniform.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) spread: Vec<Draws>,
    /// Different keys.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) keys: u64,
    /// Bytes of a value, incompressible; in memory 64.
    #[arg(long, default_value_t = 8_192, value_parser = value_bytes)]
    pub(crate) value_bytes: usize,
    /// Writes every key before the clock starts; else keys start empty and grow.
    #[arg(long)]
    pub(crate) preload: bool,
    /// Seconds that a cell runs.
    #[arg(short = 't', long, default_value_t = 60.0, value_parser = seconds, conflicts_with = "operations")]
    pub(crate) duration: f64,
    /// Operations of each client instead, for a run whose counts are known.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Open loop: operations that all clients together begin each second, whatever the answers do; latencies count from the time an
    /// operation was meant to begin.
    #[arg(long, value_name = "PER-SECOND", value_parser = positive)]
    pub(crate) rate: Option<f64>,
    /// Turns a second of the slow disk of kv-slow.
    #[arg(long, default_value_t = 120.0, value_parser = positive)]
    pub(crate) disk_iops: f64,
    /// MiB of memory that a store's process may use, page cache included; 0 is no limit.
    #[arg(long, default_value_t = 1_536, value_name = "MIB")]
    pub(crate) memory: u64,
    /// MiB of it that a store may use as its own cache of blocks, where it has one.
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    pub(crate) cache: u64,
    /// MiB more of it that ours keeps long values in, which it reads past the page cache then; others have the same memory as page cache. Seven
    /// twelfths of `--memory` if not given.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(..=VALUE_CACHE_MIB_MAX))]
    pub(crate) value_cache: Option<u64>,
    /// MiB of a segment of ours and of the floor; 16 is what `assent serve` has.
    #[arg(long, default_value_t = 16, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_024))]
    pub(crate) segment: u64,
    /// Keys that are looked for in the end, at most, spread over all.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) audit: u64,
    /// How often every cell is run, in turn with the others.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Goes on with the report of this name, if it is there: rounds that it has are not run again, nor cells that failed. It must be of this
    /// machine, and of the same settings.
    #[arg(long, requires = "report")]
    pub(crate) go_on: bool,
    /// Keeps what `--preload` writes in this folder, once for each store, and gives each cell a copy of it: also the next race. Some
    /// 4 GiB a store.
    #[arg(long, value_name = "DIR", requires = "preload")]
    pub(crate) loads: Option<PathBuf>,
    /// The same seed draws the same keys and values.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The figures of each cell and call as CSV on stdout.
    #[arg(short = 's', long, conflicts_with = "json")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// The folder to write in; a temporary one if not given. Cells clean their own folder in it.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// What the race asks its program.
    #[arg(value_enum, hide = true)]
    pub(crate) verb: Option<Verb>,
}

/// One workload or several under one name.
#[derive(Clone, Debug)]
pub(crate) struct Named(Vec<Scenario>);

/// What the race asks its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Verb {
    /// Who takes part.
    Members,
    /// Runs the cell that stdin names.
    Cell,
}

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Draws {
    /// 80 % on 20 % of the keys.
    Pareto,
    /// The same on each.
    Uniform,
}

fn scenarios(text: &str) -> Result<Named, String> {
    let those = |chosen: &dyn Fn(Scenario) -> bool| {
        Named(SCENARIOS.iter().map(|(_, scenario)| *scenario).filter(|scenario| chosen(*scenario)).collect())
    };
    match text {
        "all" => Ok(those(&|_| true)),
        "kv" => Ok(those(&|scenario| !scenario.is_in_memory())),
        "memory" => Ok(those(&Scenario::is_in_memory)),
        name => Scenario::named(name).map(|scenario| Named(vec![scenario])).ok_or_else(|| {
            let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
            format!("known are {}, kv, memory, all", known.join(", "))
        }),
    }
}

fn value_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| (HEAD_BYTES..=VALUE_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("write bytes, {HEAD_BYTES} to {VALUE_BYTES_MAX}"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "write a number per second, more than 0".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.001..=1e6).contains(number));
    number.ok_or_else(|| "write seconds, 0.001 to 1000000".to_owned())
}

impl BenchKv {
    /// As the race takes them.
    pub(crate) fn given(&self) -> Given {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for scenario in self.scenario.iter().flat_map(|named| &named.0) {
            if !scenarios.contains(scenario) {
                scenarios.push(*scenario);
            }
        }
        let spread = |draws: &Draws| match draws {
            Draws::Pareto => Spread::Pareto,
            Draws::Uniform => Spread::Uniform,
        };
        let duration = std::time::Duration::from_secs_f64(self.duration);
        Given {
            scenarios,
            clients: self.clients.clone(),
            spreads: self.spread.iter().map(spread).collect(),
            keys: self.keys,
            value_bytes: self.value_bytes,
            preload: self.preload,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            operations: self.operations,
            rate: self.rate,
            disk_iops: self.disk_iops,
            cache_bytes: self.cache << 20,
            value_cache_bytes: self.value_cache_mib() << 20,
            segment_bytes: self.segment << 20,
            audit_keys: self.audit,
            seed: self.seed,
        }
    }

    fn value_cache_mib(&self) -> u64 {
        self.value_cache.unwrap_or((self.memory / 12 * 7).min(VALUE_CACHE_MIB_MAX))
    }

    /// The limit of memory, where one is asked for.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        (self.memory > 0).then_some(self.memory << 20)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Bench, Cli, Command};

    fn parse(words: &str) -> Result<BenchKv, clap::Error> {
        let words = ["assent", "bench", "kv"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Bench(Bench::Kv(options)) => Ok(*options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_word_it_is_the_fields_two_workloads_in_a_limit_of_memory() {
        let options = parse("").unwrap();
        assert_eq!(options.given().cases(), Given::default().cases());
        assert_eq!((options.memory_bytes(), options.rounds), (Some(1_536 << 20), 1));
        assert_eq!(parse("--memory 0").unwrap().memory_bytes(), None);
    }

    #[test]
    fn workloads_have_names_and_groups_and_none_is_run_twice() {
        let count = |words: &str| parse(words).unwrap().given().scenarios.len();
        assert_eq!((count("--scenario all"), count("--scenario kv"), count("--scenario memory")), (15, 10, 5));
        assert_eq!(count("--scenario kv-scan,kv,memory-get"), 11);
        let given = parse("--scenario kv-nosync -l 8,45 --spread uniform,pareto -t 0.5 --rate 2000").unwrap().given();
        assert_eq!((given.cases().len(), given.duration_ms, given.rate), (4, 500, Some(2_000.0)));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for wrong in [
            "--scenario kv-sync,nothing",
            "--scenario",
            "-l 0",
            "--keys 0",
            "--value-bytes 39",
            "--value-bytes 1048577",
            "-t 0",
            "-t 1 --operations 5",
            "--rate 0",
            "--rate nan",
            "--disk-iops -1",
            "--rounds 0",
            "--go-on",
            "--loads kept",
            "--audit 0",
            "--value-cache 1048577",
            "-s --json",
            "nonsense",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for (words, mib) in [
            ("", 896),
            ("--memory 0", 0),
            ("--memory 18446744073709551615", 1 << 20),
            ("--value-cache 7", 7),
            ("--memory 3072 --value-cache 0", 0),
        ] {
            assert_eq!(parse(words).unwrap().value_cache_mib(), mib, "{words}");
        }
        assert_eq!(parse("cell").unwrap().verb, Some(Verb::Cell));
    }
}
