//! The options of `assent assets`.

use std::path::PathBuf;

use assent_world::net::Address;
use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;

#[derive(Debug, Subcommand)]
pub(crate) enum Assets {
    /// Serves the assets of a folder until it is told to stop.
    Serve(Serve),
    /// How a server is: what it promises, its numbers, and where the time of its commands goes. Of several nodes: each in a line.
    Status {
        #[command(flatten)]
        server: Server,
        /// Shows the steps of the command that was sampled last, and when each was done.
        #[arg(long)]
        trace: bool,
    },
    /// The same, again and again, until it is interrupted.
    Top {
        #[command(flatten)]
        server: Server,
        /// Milliseconds between two looks.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
        every_ms: u64,
        /// Looks so often, and ends; 0: until it is interrupted.
        #[arg(long, default_value_t = 0)]
        times: u64,
    },
    /// Creates assets, all of them or none.
    Create {
        /// ID=VALUE.
        #[arg(required = true, value_parser = pair)]
        assets: Vec<(u64, i64)>,
        #[command(flatten)]
        server: Server,
    },
    /// What assets are, all at one moment.
    Get {
        /// Which.
        #[arg(required = true)]
        ids: Vec<u64>,
        #[command(flatten)]
        server: Server,
    },
    /// Sets assets, all of them or none.
    Set {
        /// ID=VALUE.
        #[arg(required = true, value_parser = pair)]
        assets: Vec<(u64, i64)>,
        #[command(flatten)]
        server: Server,
    },
    /// Adds to assets, to all of them or to none.
    Add {
        /// ID=NUMBER, which may be negative.
        #[arg(required = true, value_parser = pair)]
        assets: Vec<(u64, i64)>,
        /// Refused where a sum would be less.
        #[arg(long, allow_hyphen_values = true)]
        min: Option<i64>,
        /// Refused where a sum would be more.
        #[arg(long, allow_hyphen_values = true)]
        max: Option<i64>,
        #[command(flatten)]
        server: Server,
    },
    /// Sets an asset if it is what is expected.
    CompareAndSet {
        /// Which.
        id: u64,
        /// What it must be.
        #[arg(allow_hyphen_values = true)]
        expected: i64,
        /// What it is then.
        #[arg(allow_hyphen_values = true)]
        value: i64,
        #[command(flatten)]
        server: Server,
    },
    /// Removes assets, all of them or none; prints what they were.
    Remove {
        /// Which.
        #[arg(required = true)]
        ids: Vec<u64>,
        #[command(flatten)]
        server: Server,
    },
    /// Prints changes of assets as they are confirmed, one a line.
    Watch {
        /// Which; none: all.
        ids: Vec<u64>,
        /// Changes that wait for a slow reader, at most; what is beyond is told as missed.
        #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        keep: u32,
        /// Ends after so many lines; 0: when it is interrupted.
        #[arg(long, default_value_t = 0)]
        lines: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Has the server write a snapshot.
    Snapshot(Server),
    /// Gives the lead of a group to one of its nodes, when that holds everything; waits until it leads.
    HandOver {
        /// To which.
        node: u8,
        /// Milliseconds that this may take.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
        wait_ms: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Tells the node that is asked to stay out: it leads nothing, and nobody counts on it.
    HoldOut(Server),
    /// Lets a node that was held out come back.
    Release(Server),
    /// Makes the node that is asked lead although it may lack what was answered. Only where no other node runs, or will again with what
    /// it has; what only they hold is lost. Stays visible in the status until `settle`.
    Force(Server),
    /// Says to the primary that what a forced lead may have lost is settled: the status need not show it any more.
    Settle(Server),
    /// Reads a stopped server's log and snapshots, and says whether they are whole and belong together; exit code 13 if not.
    Verify {
        /// Its folder.
        data: PathBuf,
    },
    /// Holds two stopped servers' logs and states against each other; exit code 13 names the first difference.
    Compare {
        /// The folder of one.
        one: PathBuf,
        /// The folder of the other.
        other: PathBuf,
    },
}

/// A running server, or the nodes of a group.
#[derive(Args, Clone, Debug)]
pub(crate) struct Server {
    /// A running server; of a group all nodes, with commas between them.
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:7433",
        env = "ASSENT_ASSETS_SERVER"
    )]
    pub(crate) server: Vec<String>,
}

/// What an answer has behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Acknowledge {
    /// The disk: nothing that was answered is lost.
    Durable,
    /// The kernel, of each node in sync: a killed process loses nothing, a lost machine at most the window.
    Written,
    /// The memory of each node in sync, of a group: one of them may be lost with all it has.
    Received,
    /// This process's memory.
    None,
}

/// Why a read of a group is never older than what was answered before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Read {
    /// The set is asked for each: a round to the standby.
    Safe,
    /// Standbys have promised not to lead for --silent-ms: no round, as long as clocks run as --lease-drift-ppm says.
    Lease,
}

#[derive(Args, Clone, Debug, Deserialize)]
#[serde(try_from = "toml::Table")]
pub(crate) struct Serve {
    /// Where it keeps its log and its snapshots.
    #[arg(long, value_name = "DIR", env = "ASSENT_ASSETS_DIR", required_unless_present = "take_over")]
    pub(crate) data: Option<PathBuf>,
    /// Where clients ask a server that is alone; of a group, `--member` says it.
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:7433",
        env = "ASSENT_ASSETS_LISTEN",
        conflicts_with = "node"
    )]
    pub(crate) listen: String,
    /// What an answer has behind it. Votes and outcomes of branches are durable in each, in a group on the disk of each node in sync.
    #[arg(long, value_enum, default_value_t = Acknowledge::Durable)]
    pub(crate) ack: Acknowledge,
    /// Milliseconds after which an answered command is durable at the latest, where it is not before: the window that a lost machine
    /// may take.
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) max_elapsed_sync_time: u64,
    /// Bytes of log after which a snapshot is written.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) snapshot_log_bytes: u64,
    /// Bytes a second that a snapshot writes at most; 0: as the disk takes them. While commands change assets, never more than 4 MiB.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) snapshot_bytes_per_second: u64,
    /// Traces one in so many commands; 0: none.
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub(crate) trace_every: u32,
    /// Also says over HTTP how it is: `/health`, `/metrics` for Prometheus. In a configuration, `[admin]` says where.
    #[arg(long, value_name = "HOST:PORT", env = "ASSENT_ASSETS_ADMIN")]
    pub(crate) admin: Option<String>,
    /// Listens beyond loopback although there is neither TLS nor authentication.
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) group: Group,
}

/// A server that is one node of a group.
#[derive(Args, Clone, Debug)]
pub(crate) struct Group {
    /// This node's number in a group; without it the server is alone.
    #[arg(long, value_name = "N", requires_all = ["member", "witness"], value_parser = clap::value_parser!(u8).range(0..=254))]
    pub(crate) node: Option<u8>,
    /// A node of the group: where the others reach it, and where its clients do. Once for each, this one too.
    #[arg(long, value_name = "N=PEER,CLIENT", requires = "node", value_parser = member)]
    pub(crate) member: Vec<Node>,
    /// Who keeps the group's configuration: `assent witness`, or etcd.
    #[arg(long, value_name = "HOST:PORT|etcd://HOST:PORT", requires = "node")]
    pub(crate) witness: Option<String>,
    /// The group's name there.
    #[arg(long, value_name = "NAME", default_value = "assets")]
    pub(crate) group: String,
    /// Who leads where nothing else makes a difference; the lowest number if nothing is said.
    #[arg(long, value_name = "N", requires = "node")]
    pub(crate) preferred: Option<u8>,
    /// Starts on the folder that a dead node of this number left, in the place of --data.
    #[arg(long, value_name = "DIR", requires = "node", conflicts_with = "data")]
    pub(crate) take_over: Option<PathBuf>,
    /// Milliseconds after which a node that says nothing is taken for lost.
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(60..=60_000))]
    pub(crate) silent_ms: u64,
    /// How a primary knows that nobody else leads when it answers a read.
    #[arg(long, value_enum, default_value_t = Read::Safe)]
    pub(crate) read: Read,
    /// With --read lease: how many millionths a clock of a node may run faster or slower than true time.
    #[arg(long, value_name = "PPM", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) lease_drift_ppm: u32,
    /// Milliseconds after which a standby that confirms nothing is taken out.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) slow_ms: u64,
    /// Milliseconds that a start waits for nodes that are missing.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) patience_ms: u64,
    /// Commands after which a node writes a snapshot.
    #[arg(long, value_name = "COMMANDS", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) snapshot_every: u64,
}

/// A node of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) number: u8,
    /// Where the others reach it.
    pub(crate) peer: Address,
    /// Where clients do.
    pub(crate) client: Address,
}

fn member(text: &str) -> Result<Node, String> {
    let wrong = || format!("{text:?} is not N=PEER,CLIENT, as 1=10.0.0.1:7441,10.0.0.1:7433");
    let (number, places) = text.split_once('=').ok_or_else(wrong)?;
    let (peer, client) = places.split_once(',').ok_or_else(wrong)?;
    let number = number.parse().ok().filter(|number| *number < u8::MAX).ok_or_else(wrong)?;
    let place = |text: &str| {
        let address: Address = text.parse().map_err(|error| format!("{text}: {error}"))?;
        match address {
            Address::Tcp { port: 0, .. } => Err(format!("{text}: the others must know the port: it cannot be 0")),
            address => Ok(address),
        }
    };
    Ok(Node { number, peer: place(peer)?, client: place(client)? })
}

fn pair(text: &str) -> Result<(u64, i64), String> {
    let wrong = || format!("{text:?} is not ID=NUMBER, as 7=100");
    let (id, number) = text.split_once('=').ok_or_else(wrong)?;
    Ok((id.parse().map_err(|_| wrong())?, number.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::{member, pair};

    #[test]
    fn a_member_is_a_number_and_two_places() {
        let node = member("2=127.0.0.1:7441,unix:/run/a").unwrap();
        assert_eq!((node.number, node.peer.to_string().as_str()), (2, "127.0.0.1:7441"));
        for wrong in ["2", "2=a:1", "255=a:1,b:2", "-1=a:1,b:2", "1=a:0,b:2", "1=a:1,b:0", "1=a,b:2"] {
            assert!(member(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pair_is_an_id_and_a_number() {
        assert_eq!(pair("7=-5"), Ok((7, -5)));
        for wrong in ["7", "=5", "7=", "-7=5", "7=5=5", "a=1", "7=9223372036854775808"] {
            assert!(pair(wrong).is_err_and(|error| error.contains("is not ID=NUMBER")), "{wrong}");
        }
    }
}
