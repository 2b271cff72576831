//! The options of `assent bench docs`.

use std::path::PathBuf;
use std::time::Duration;

use assent_bench::docs::scenario::{Given, SCENARIOS, Scenario};
use clap::Args;

use crate::bench::keep::Keep;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchDocs {
    /// What is run: history (a tiny document with many revisions), large (one field of large documents), rest (a page of a large
    /// document over HTTP), mixed (readers of it beside a writer), or all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "all", value_parser = scenarios)]
    pub(crate) scenario: Vec<Named>,
    /// Commits of history's document.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    pub(crate) commits: u32,
    /// How many revisions there are when an open is measured; at the end it is measured too. Depths beyond --commits are filled without syncs.
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "200,1000,10000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depths: Vec<u32>,
    /// Writers at once, on a document each.
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "1,16,64", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) writers: Vec<u32>,
    /// Threads, or clients over HTTP, that read beside a writer.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) readers: u32,
    /// Commits a second of mixed's second writer; the first one goes as fast as it can.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) pace: u32,
    /// Seconds that writers and readers run, and each row of rest and mixed.
    #[arg(short = 't', long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) duration: f64,
    /// Megabytes of JSON of large's documents.
    #[arg(long, value_delimiter = ',', value_name = "MB,..", default_value = "1.8,100", value_parser = megabytes)]
    pub(crate) sizes: Vec<u64>,
    /// Commits of each of them.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    pub(crate) large_commits: u32,
    /// How often a cold call is made.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) cold: u32,
    /// How often a warm one.
    #[arg(long, default_value_t = 1_001, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) warm: u32,
    /// MiB of pages that are kept in memory.
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) cache: u64,
    /// Clients of rest, each with one request under way.
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "1,4,8,16,32", value_parser = clap::value_parser!(u32).range(1..=250))]
    pub(crate) clients: Vec<u32>,
    /// Objects of the document of rest and mixed.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) objects: u32,
    /// Revisions of that document: rest has all clients at the fewest, 1 and 16 at the others.
    #[arg(long, value_delimiter = ',', value_name = "N,..", default_value = "5,1900", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) revisions: Vec<u32>,
    /// Seconds of requests before each slice of rest and mixed that are not counted.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) warm_up: f64,
    /// Slices of a row of rest and mixed, between those of its neighbours.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// The figures of each row as CSV on stdout.
    #[arg(short = 's', long, conflicts_with = "json")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

/// One scenario or all under one name.
#[derive(Clone, Debug)]
pub(crate) struct Named(Vec<Scenario>);

fn scenarios(text: &str) -> Result<Named, String> {
    if text == "all" {
        return Ok(Named(SCENARIOS.iter().map(|(_, scenario)| *scenario).collect()));
    }
    Scenario::named(text).map(|scenario| Named(vec![scenario])).ok_or_else(|| {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        format!("known are {}, all", known.join(", "))
    })
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.001..=1e6).contains(number));
    number.ok_or_else(|| "write seconds, 0.001 to 1000000".to_owned())
}

fn megabytes(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.001..=1e5).contains(number));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 10^11 bytes")]
    number.map(|number| (number * 1e6) as u64).ok_or_else(|| "write megabytes, 0.001 to 100000".to_owned())
}

impl BenchDocs {
    /// As the race takes them.
    pub(crate) fn given(&self) -> Given {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for scenario in self.scenario.iter().flat_map(|named| &named.0) {
            if !scenarios.contains(scenario) {
                scenarios.push(*scenario);
            }
        }
        Given {
            scenarios,
            commits: self.commits,
            depths: self.depths.clone(),
            writers: self.writers.clone(),
            readers: self.readers,
            pace: self.pace,
            window: Duration::from_secs_f64(self.duration),
            sizes: self.sizes.clone(),
            large_commits: self.large_commits,
            cold: self.cold,
            warm: self.warm,
            cache_bytes: self.cache << 20,
            clients: self.clients.clone(),
            objects: self.objects,
            revisions: self.revisions.clone(),
            warm_up: Duration::from_secs_f64(self.warm_up),
            rounds: self.rounds,
            ..Given::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Bench, Cli, Command};

    fn parse(words: &str) -> Result<BenchDocs, clap::Error> {
        let words = ["assent", "bench", "docs"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Bench(Bench::Docs(options)) => Ok(*options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_word_it_is_what_is_published_and_what_cannot_work_is_refused() {
        assert_eq!(parse("").unwrap().given(), Given::default());
        let given = parse("--scenario history,all --commits 50 -t 0.5 --sizes 0.25").unwrap().given();
        assert_eq!((given.scenarios.len(), given.commits, given.sizes), (SCENARIOS.len(), 50, vec![250_000]));
        let given =
            parse("--scenario mixed --clients 2,3 --revisions 7 --warm-up 0.25 --rounds 9 --pace 820").unwrap().given();
        assert_eq!((given.scenarios, given.clients, given.revisions), (vec![Scenario::Mixed], vec![2, 3], vec![7]));
        assert_eq!((given.warm_up, given.rounds, given.pace), (Duration::from_millis(250), 9, 820));
        for wrong in ["--clients 0", "--revisions 0", "--objects 0", "--rounds 0", "--pace 0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["--scenario nothing", "--commits 1", "--sizes 0", "-t 0", "--writers 0", "--depths 0", "--cold 0"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
