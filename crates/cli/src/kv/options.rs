//! The options of `assent kv`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Kv {
    /// Sets a key, to a value from the command line, a file or stdin; prints its place in the journal.
    Put(Put),
    /// Writes a key's value to stdout or a file, byte for byte.
    Get(Get),
    /// What is known of keys, without their values.
    Head(Head),
    /// Removes keys, or all keys of a range; of one that has every key, only with --all.
    Delete(Delete),
    /// The keys of a range in their order, with their values.
    Scan(Scan),
    /// Reads objects, as lines of JSON or as CSV, and sets them, many under way at a time.
    #[command(after_help = LINES)]
    Load(Load),
    /// Writes all objects of a range, as lines of JSON or as CSV.
    #[command(after_help = LINES)]
    Export(Export),
    /// What the store holds and does.
    Stats(Stats),
    /// Reads everything and prints each damage; exit code 13 if there is any.
    Verify(Verify),
    /// Has the server give back the room of what is dead, now, as long as that is worth it.
    Compact(Server),
    /// Keyspaces that have names: makes, drops and lists them.
    #[command(subcommand)]
    Keyspace(Keyspace),
}

const LINES: &str = "JSON: an object a line, {\"key\": text} or {\"key_base64\": bytes}, likewise value and metadata; expiry_ms since 1970, 0 or \
    absent for never. CSV: a header, then an object a row, in columns of the same names and any order; an empty cell is as if absent, and without key \
    and key_base64 the key is empty, likewise the value. Export writes lsn and modified_ms, too; load takes them and does not keep them.";

/// How objects are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A JSON object a line.
    Json,
    /// A header, then a row for each.
    Csv,
}

impl Format {
    /// As it was asked for, else by how the file's name ends.
    pub(crate) fn of(asked: Option<Self>, file: &Path) -> Self {
        let is_csv = || file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        asked.unwrap_or_else(|| if is_csv() { Self::Csv } else { Self::Json })
    }

    /// What objects are in it.
    pub(crate) const fn rows(self) -> &'static str {
        match self {
            Self::Json => "lines",
            Self::Csv => "rows",
        }
    }
}

/// A running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct Server {
    /// A running server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7430", env = "ASSENT_SERVER")]
    pub(crate) server: String,
}

/// Where it is read from.
#[derive(Args, Clone, Debug)]
pub(crate) struct From {
    #[command(flatten)]
    pub(crate) server: Server,
    /// A stopped server's data folder instead, whatever server is named; it is only read.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// How keys are written on the command line, and whose they are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Naming {
    /// Whose keys: a keyspace's name, or a number below 1073741824, which needs none.
    #[arg(long, short = 'k', value_name = "NAME|ID", default_value = "0")]
    pub(crate) keyspace: String,
    /// Keys are written in hexadecimal, here and in what is printed.
    #[arg(long)]
    pub(crate) hex: bool,
}

/// A range of keys.
#[derive(Args, Clone, Debug)]
pub(crate) struct Range {
    /// Keys that begin with this.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
    /// From this key on.
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<String>,
    /// Up to this key, which is not in it.
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<String>,
}

/// What the keys must be like for a write to happen; else it is refused with exit code 4, and nothing is written.
#[derive(Args, Clone, Debug)]
pub(crate) struct If {
    /// Only if the key is not there.
    #[arg(long, conflicts_with_all = ["if_present", "if_lsn"])]
    pub(crate) if_absent: bool,
    /// Only if the key is there.
    #[arg(long, conflicts_with = "if_lsn")]
    pub(crate) if_present: bool,
    /// Only if the key is as the write left it that was answered with this number; head says it, too.
    #[arg(long, value_name = "LSN")]
    pub(crate) if_lsn: Option<u64>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Put {
    /// The key.
    pub(crate) key: String,
    /// The value; without it, and without --file, it is read from stdin.
    pub(crate) value: Option<String>,
    /// The value is this file; - is stdin.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "value")]
    pub(crate) file: Option<PathBuf>,
    /// Kept beside the value, at most 4096 bytes.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) metadata: String,
    /// It expires after this time: 90s, 30m, 1h or 2d.
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    #[command(flatten)]
    pub(crate) only: If,
    /// Waits at most so long while a prepared branch holds a key: 90s, 30m or 1h; without, that is a conflict at once.
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<String>,
    /// Answers once the kernel has it; without, once it is on disk.
    #[arg(long)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) naming: Naming,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Get {
    /// The key.
    pub(crate) key: String,
    /// Writes the value to this file instead of stdout. Until it is whole it is called FILE.part, and what was in FILE before stays.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) naming: Naming,
    #[command(flatten)]
    pub(crate) from: From,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Head {
    /// The keys.
    #[arg(required = true)]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) naming: Naming,
    #[command(flatten)]
    pub(crate) from: From,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Delete {
    /// The keys; fine if one is not there.
    #[arg(conflicts_with_all = ["prefix", "from", "to", "all"])]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) range: Range,
    /// All keys of the keyspace.
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) only: If,
    /// Waits at most so long while a prepared branch holds a key: 90s, 30m or 1h; without, that is a conflict at once.
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<String>,
    /// Answers once the kernel has it; without, once it is on disk.
    #[arg(long)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) naming: Naming,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) range: Range,
    /// At most so many.
    #[arg(long, short = 'n', default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
    /// Without their values.
    #[arg(long)]
    pub(crate) keys_only: bool,
    #[command(flatten)]
    pub(crate) naming: Naming,
    #[command(flatten)]
    pub(crate) from: From,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    /// The objects; - is stdin.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// How they are written; without this, csv for a name that ends in .csv, else json.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Leaves out so many lines, or rows behind the header: those that an earlier load says it has done.
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    pub(crate) skip: u64,
    /// Objects of one batch, which is set whole or not at all.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) batch: u32,
    /// Batches that are under way at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) in_flight: u32,
    /// Answers once the kernel has it; without, once it is on disk.
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Whose keys: a keyspace's name, or a number below 1073741824, which needs none.
    #[arg(long, short = 'k', value_name = "NAME|ID", default_value = "0")]
    pub(crate) keyspace: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) range: Range,
    /// Writes to this file instead of stdout. Until all is there it is called FILE.part, and what was in FILE before stays.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Each page as of when it is read, and not all of one moment: of a store that is written so much that it keeps none for so long.
    #[arg(long)]
    pub(crate) page_by_page: bool,
    /// How they are written; without this, csv for a name that ends in .csv, else json.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) naming: Naming,
    #[command(flatten)]
    pub(crate) from: From,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) from: From,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keyspace {
    /// Makes one; prints its number.
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        server: Server,
    },
    /// Drops one with all that is in it, at once.
    Drop {
        /// Its name.
        name: String,
        #[command(flatten)]
        server: Server,
    },
    /// All that have names.
    List {
        #[command(flatten)]
        from: From,
    },
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) from: From,
}
