//! The options of `assent assets`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Assets {
    /// Serves the assets of a folder until it is told to stop.
    Serve(Serve),
    /// How a server is: what it promises, its numbers, and where the time of its commands goes.
    Status(Server),
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
        #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        keep: u32,
        /// Ends after so many lines; 0: when it is interrupted.
        #[arg(long, default_value_t = 0)]
        lines: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Has the server write a snapshot.
    Snapshot(Server),
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

/// A running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct Server {
    /// A running server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7433", env = "ASSENT_ASSETS_SERVER")]
    pub(crate) server: String,
}

/// What an answer has behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Acknowledge {
    /// The disk: nothing that was answered is lost.
    Durable,
    /// The kernel: a killed process loses nothing, a lost machine at most the window.
    Written,
    /// This process's memory.
    None,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Where it keeps its log and its snapshots.
    #[arg(long, value_name = "DIR", env = "ASSENT_ASSETS_DIR")]
    pub(crate) data: PathBuf,
    /// Where clients ask it.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7433", env = "ASSENT_ASSETS_LISTEN")]
    pub(crate) listen: String,
    /// What an answer has behind it. Votes and outcomes of branches are durable in each.
    #[arg(long, value_enum, default_value_t = Acknowledge::Durable)]
    pub(crate) ack: Acknowledge,
    /// Milliseconds after which an answered command is durable at the latest, where it is not before: the window that a lost machine
    /// may take.
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) max_elapsed_sync_time: u64,
    /// Bytes of log after which a snapshot is written.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) snapshot_log_bytes: u64,
    /// Bytes a second that a snapshot writes at most; 0: as the disk takes them.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) snapshot_bytes_per_second: u64,
    /// Traces one in so many commands; 0: none.
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    pub(crate) trace_every: u32,
    /// Listens beyond loopback although there is neither TLS nor authentication.
    #[arg(long)]
    pub(crate) insecure: bool,
}

fn pair(text: &str) -> Result<(u64, i64), String> {
    let wrong = || format!("{text:?} is not ID=NUMBER, as 7=100");
    let (id, number) = text.split_once('=').ok_or_else(wrong)?;
    Ok((id.parse().map_err(|_| wrong())?, number.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::pair;

    #[test]
    fn a_pair_is_an_id_and_a_number() {
        assert_eq!(pair("7=-5"), Ok((7, -5)));
        for wrong in ["7", "=5", "7=", "-7=5", "7=5=5", "a=1", "7=9223372036854775808"] {
            assert!(pair(wrong).is_err_and(|error| error.contains("is not ID=NUMBER")), "{wrong}");
        }
    }
}
