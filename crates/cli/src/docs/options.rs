//! The options of `assent docs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Docs {
    /// Makes a document, with a value or empty.
    Create(Create),
    /// Puts JSON in the place of a document's value, or of a part of it; what is equal to before is written anew, too.
    Put(Put),
    /// Writes a document, or a part of it, as of any revision.
    Get(Get),
    /// What a JSONPath (RFC 9535) selects, as of any revision: a line for each result, with its path.
    Query(Query),
    /// Changes a document by a JSON Patch (RFC 6902) or a merge patch (RFC 7396): all of it or nothing.
    Patch(Patch),
    /// The revisions of a document, the newest first; or what one place of it was.
    History(History),
    /// What differs between two revisions, whichever is the older.
    Diff(Diff),
    /// Makes a document what it was: a new revision, that is equal to an earlier one.
    Revert(Revert),
    /// Names a revision; without a tag, lists those that are named.
    Tag(Tag),
    /// What is committed after a revision, the oldest first, with what each commit changed.
    Watch(Watch),
    /// Reads a large document, or lines of JSON as the values of an array, in little memory and as one revision.
    Load(Load),
    /// The names of all documents.
    List {
        #[command(flatten)]
        data: Data,
    },
    /// Drops all revisions of a document that are newer than one, for good.
    Truncate(Truncate),
    /// Drops a document with all its revisions.
    Drop {
        /// The document.
        name: String,
        #[command(flatten)]
        data: Data,
    },
    /// Reads every revision and prints each damage; exit code 13 if there is any.
    Verify(Verify),
}

/// Where documents are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Data {
    /// The folder with the documents; create and load make it. One process has it at a time, another waits five seconds.
    #[arg(long, value_name = "DIR", default_value = "docs", env = "ASSENT_DOCS")]
    pub(crate) data: PathBuf,
}

/// What is kept of a commit beside what it changes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Saying {
    /// Why; history shows it.
    #[arg(long, short = 'm', value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
    /// Who; else the operating system's user.
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
}

/// JSON from the command line, a file or stdin.
#[derive(Args, Clone, Debug)]
pub(crate) struct Json {
    /// JSON; without it and --file, it is read from stdin.
    #[arg(value_name = "JSON", conflicts_with = "file")]
    pub(crate) value: Option<String>,
    /// Reads it from this file; - is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Which revision; the newest without any.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub(crate) struct When {
    /// The revision of this number.
    #[arg(long, short = 'r', value_name = "NUMBER")]
    pub(crate) revision: Option<u32>,
    /// The revision of this name.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// As it was then: 90s, 30m, 1h or 2d ago, or UTC as 2026-11-20T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) as_of: Option<String>,
}

/// How the pages of a document are versioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// What a commit changed; after so many, all of a page again, a part at a time.
    #[default]
    Sliding,
    /// What a commit changed; after so many, all of a page again.
    Incremental,
    /// What has changed since all of a page was written.
    Differential,
    /// All of a page with every change of it.
    Full,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Create {
    /// The document.
    pub(crate) name: String,
    /// Its value, as JSON; without it and --file the document is empty.
    #[arg(value_name = "JSON", conflicts_with = "file")]
    pub(crate) value: Option<String>,
    /// Reads the value from this file; - is stdin.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How its pages are versioned.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) versioning: Strategy,
    /// Fragments that a page is read from at most, with sliding and incremental.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) window: u8,
    #[command(flatten)]
    pub(crate) saying: Saying,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Put {
    /// The document.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) json: Json,
    /// Only this part of it: a JSONPath of one node.
    #[arg(long, value_name = "JSONPATH")]
    pub(crate) at: Option<String>,
    /// As a small edit: what is found in both versions keeps its node keys, and only what differs is written.
    #[arg(long, conflicts_with = "at")]
    pub(crate) import: bool,
    #[command(flatten)]
    pub(crate) saying: Saying,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// What is written of a node beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Metadata {
    #[default]
    None,
    NodeKey,
    NodeKeyAndChildCount,
    All,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Get {
    /// The document.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) when: When,
    /// Only this part of it: a JSONPath of one node.
    #[arg(long, value_name = "JSONPATH")]
    pub(crate) at: Option<String>,
    /// In lines.
    #[arg(long)]
    pub(crate) pretty: bool,
    /// So many levels; the first value is on level 1.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_level: Option<u32>,
    /// So many children of each container.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max_children: Option<u64>,
    /// So many nodes in all.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_nodes: Option<u64>,
    /// What is written of each node beside its value.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) metadata: Metadata,
    /// Writes to this file instead of stdout.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Query {
    /// The document.
    pub(crate) name: String,
    /// The query, e.g. '$.orders[?@.price > 10].item'.
    #[arg(value_name = "JSONPATH")]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) when: When,
    /// At most so many results; the first ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    pub(crate) limit: u64,
    /// Only the values, a line each.
    #[arg(long, conflicts_with = "paths")]
    pub(crate) values: bool,
    /// Only the paths, a line each.
    #[arg(long)]
    pub(crate) paths: bool,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Patch {
    /// The document.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) patch: Json,
    /// It is a merge patch, and no list of operations.
    #[arg(long)]
    pub(crate) merge: bool,
    #[command(flatten)]
    pub(crate) saying: Saying,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Tag {
    /// The document.
    pub(crate) name: String,
    /// The name; one that is there is moved.
    pub(crate) tag: Option<String>,
    /// The revision; the newest without it.
    #[arg(value_name = "REVISION")]
    pub(crate) number: Option<u32>,
    /// Takes the name away; the revision stays.
    #[arg(long, requires = "tag", conflicts_with = "number")]
    pub(crate) delete: bool,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Watch {
    /// The document.
    pub(crate) name: String,
    /// After this revision; from the first one on without it.
    #[arg(long, value_name = "REVISION", default_value_t = 0)]
    pub(crate) after: u32,
    /// Goes on until it is stopped: looks again twice a second.
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Truncate {
    /// The document.
    pub(crate) name: String,
    /// The newest revision that stays.
    #[arg(value_name = "REVISION")]
    pub(crate) number: u32,
    /// Does it; without, it only says what it would do.
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct History {
    /// The document.
    pub(crate) name: String,
    /// From this revision on.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) from: u32,
    /// Up to this revision.
    #[arg(long, value_name = "NUMBER", default_value_t = u32::MAX, hide_default_value = true)]
    pub(crate) to: u32,
    /// What was there where a JSON Pointer (RFC 6901) leads, e.g. /price: a row for each time that it became something else.
    #[arg(long, value_name = "POINTER")]
    pub(crate) pointer: Option<String>,
    /// At most so many, the newest first.
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 100)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// When lines are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Diff {
    /// The document.
    pub(crate) name: String,
    /// The revision that it leads from; the one before the other without it.
    #[arg(value_name = "REVISION")]
    pub(crate) old: Option<u32>,
    /// The revision that it leads to; the newest without it.
    #[arg(value_name = "REVISION")]
    pub(crate) new: Option<u32>,
    /// Only this part of it: a JSONPath of one node.
    #[arg(long, value_name = "JSONPATH", conflicts_with_all = ["patch", "merge"])]
    pub(crate) at: Option<String>,
    /// So many levels; the first value is on level 1.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["patch", "merge"])]
    pub(crate) max_level: Option<u32>,
    /// As a JSON Patch (RFC 6902), that `assent docs patch` takes.
    #[arg(long, conflicts_with = "merge")]
    pub(crate) patch: bool,
    /// As a merge patch (RFC 7396).
    #[arg(long)]
    pub(crate) merge: bool,
    /// Whether lines are coloured.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub(crate) colour: Colour,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Revert {
    /// The document.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) to: Earlier,
    #[command(flatten)]
    pub(crate) saying: Saying,
    #[command(flatten)]
    pub(crate) data: Data,
}

/// An earlier revision.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Earlier {
    /// The revision of this number.
    #[arg(value_name = "REVISION")]
    pub(crate) number: Option<u32>,
    /// The revision of this name.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// As it was then: 90s, 30m, 1h or 2d ago, or UTC as 2026-11-20T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) as_of: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    /// The document; it is made if it is missing.
    pub(crate) name: String,
    /// The file; - is stdin.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Each line is a value, that is put behind all others of the document's array.
    #[arg(long)]
    pub(crate) lines: bool,
    /// Lines are committed so many at a time, and stay whatever comes later; without, all of them at the end or none.
    #[arg(long, value_name = "NUMBER", requires = "lines", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) commit_every: Option<u64>,
    /// Replaces the value that a document has; without, it must have none.
    #[arg(long, conflicts_with = "lines")]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) saying: Saying,
    #[command(flatten)]
    pub(crate) data: Data,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Verify {
    /// The documents; all without any.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Only the newest revision of each.
    #[arg(long)]
    pub(crate) newest: bool,
    #[command(flatten)]
    pub(crate) data: Data,
}
