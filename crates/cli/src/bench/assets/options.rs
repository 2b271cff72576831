//! The options of `assent bench assets`.

use std::path::PathBuf;

use assent_bench::assets::peers::Peer;
use assent_bench::assets::scenario::Scenario;
use assent_bench::assets::{Case, Role, Shape, Spread};
use assent_world::net::Address;
use clap::{Args, ValueEnum};

use crate::bench::keep::Keep;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchAssets {
    /// In the place of the race: replay, catch-up, snapshot, idle. What a node takes for a restart with its log, for a standby that missed
    /// commands, for a snapshot alone and beside a load, for nothing at all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", value_parser = scenario)]
    pub(crate) scenario: Vec<Scenario>,
    /// Commands that are replayed, or caught up.
    #[arg(long, default_value_t = 3_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) commands: u64,
    /// Assets in the snapshots of `--scenario snapshot`.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub(crate) snapshot_assets: u64,
    /// One server, or primary, standby and witness.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Runs::Pair, Runs::Solo])]
    pub(crate) role: Vec<Runs>,
    /// Rows: connections x commands under way on each.
    #[arg(long, value_delimiter = ',', default_value = "6x1,64x1,6x16,64x16,6x128,64x128", value_parser = shape)]
    pub(crate) shapes: Vec<Shape>,
    /// What stands behind an answer; `received` is a pair's word, and left out where one server runs.
    #[arg(long, value_delimiter = ',', default_value = "received,written,durable",
        value_parser = ["durable", "written", "received", "none"])]
    pub(crate) ack: Vec<String>,
    /// How the commands fall on the assets: each in its turn, all on one, or the n-th as often as 1/n.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Falls::Even])]
    pub(crate) spread: Vec<Falls>,
    /// Assets.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) assets: u64,
    /// Microseconds of a network's round trip between any two processes, the clients' too, added to the machine's own.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub(crate) rtt_us: Vec<u64>,
    /// Connections that are told every change.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) subscribers: Vec<u32>,
    /// Others beside ours, in the same rows: redis-received and redis-durable (Redis; with WAIT 1 where it is a pair), etcd (three members where
    /// it is a pair). Their programs must be there.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", value_parser = peer)]
    pub(crate) peers: Vec<Peer>,
    /// Rounds of slices, the floor's beside each server's.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub(crate) slice_ms: u64,
    /// The figures of each row as CSV on stdout.
    #[arg(short = 's', long, conflicts_with = "json")]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

/// One process of the floor of `bench assets`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AssetsFloor {
    /// Where it hands the bytes on; without it, it gives them back.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) next: Option<Address>,
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runs {
    /// One server.
    Solo,
    /// Primary, standby and witness.
    Pair,
}

/// Where commands fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Falls {
    /// Each asset in its turn.
    Even,
    /// All on one.
    Hot,
    /// The n-th as often as 1/n.
    Zipf,
}

impl BenchAssets {
    /// Every product of the axes.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for role in &self.role {
            let role = if *role == Runs::Solo { Role::Solo } else { Role::Pair };
            for spread in &self.spread {
                let spread = match spread {
                    Falls::Even => Spread::Even,
                    Falls::Hot => Spread::Hot,
                    Falls::Zipf => Spread::Zipf,
                };
                for (rtt_us, subscribers) in
                    self.rtt_us.iter().flat_map(|rtt| self.subscribers.iter().map(move |s| (*rtt, *s)))
                {
                    for shape in &self.shapes {
                        let case = Case { role, shape: *shape, spread, assets: self.assets, rtt_us, subscribers };
                        if !cases.contains(&case) {
                            cases.push(case);
                        }
                    }
                }
            }
        }
        cases
    }
}

fn scenario(text: &str) -> Result<Scenario, String> {
    let known = Scenario::ALL.map(Scenario::name).join(", ");
    Scenario::named(text).ok_or_else(|| format!("known are {known}"))
}

fn peer(text: &str) -> Result<Peer, String> {
    let known = Peer::ALL.map(Peer::name).join(", ");
    Peer::named(text).ok_or_else(|| format!("known are {known}"))
}

fn shape(text: &str) -> Result<Shape, String> {
    let wrong = || "write connections x commands under way, as 6x16: 1 to 1000 and 1 to 1024".to_owned();
    let (connections, outstanding) = text.split_once('x').ok_or_else(wrong)?;
    let number = |text: &str, most: u32| text.parse().ok().filter(|number| (1..=most).contains(number));
    let (connections, outstanding) = (number(connections, 1_000), number(outstanding, 1_024));
    connections.zip(outstanding).map(|(connections, outstanding)| Shape { connections, outstanding }).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        // As the whole command line has it.
        #[arg(long = "json", id = "json")]
        _json: bool,
        #[command(flatten)]
        bench: BenchAssets,
    }

    fn parsed(line: &str) -> Result<BenchAssets, clap::Error> {
        clap::Parser::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
            .map(|line: Line| line.bench)
    }

    #[test]
    fn cases_are_every_product_once_and_a_shape_is_two_numbers() {
        assert_eq!(parsed("").unwrap().cases().len(), 12);
        let cases = parsed("--role pair --shapes 6x1,6x1,1x1024 --spread hot,zipf --rtt-us 0,150 --subscribers 0,2")
            .unwrap()
            .cases();
        assert_eq!(cases.len(), 16);
        assert_eq!(parsed("--scenario idle,catch-up").unwrap().scenario, [Scenario::Idle, Scenario::CatchUp]);
        assert!(parsed("--scenario race").is_err());
        assert_eq!(parsed("--peers redis-received,etcd").unwrap().peers, [Peer::RedisReceived, Peer::Etcd]);
        assert!(cases.iter().all(|case| case.role == Role::Pair && case.assets == 100));
        for wrong in ["--shapes 6", "--shapes 0x1", "--shapes 1x1025", "--shapes 1001x1", "--ack some", "--peers redis"]
        {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
