//! The axes of the race, and one place on all of them: a [`Case`].
//!
//! Deliberately absent: which products of them are run; [`super::matrix`] has those.

use std::fmt;
use std::str::FromStr;

use assent_kind::Kind;

use crate::BenchError;
use crate::pace::Think;
use crate::report::Labels;

/// What a client's cycle opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// An online service: every cycle opens and closes.
    OpenClose,
    /// Open once, commit many times, close once.
    Batch,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenClose => "open-close",
            Self::Batch => "batch",
        })
    }
}

/// How the coordinator keeps its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// Appended to one log.
    Journal,
    /// A table, updated in place.
    Table,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Journal => "journal",
            Self::Table => "table",
        })
    }
}

/// Where decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In this process.
    Embedded,
    /// By server processes.
    Served,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Served => "served",
        })
    }
}

/// What the two branches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Branches {
    /// Resources that answer at once.
    Dummy,
    /// Two key-value stores in the client's process, one put each.
    Kv,
}

impl fmt::Display for Branches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dummy => "dummy",
            Self::Kv => "kv",
        })
    }
}

/// What a crash of the machine may take: decisions of the last so many milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rpo {
    /// Never two syncs within that time.
    pub min_ms: u64,
    /// Synced at the latest after that time; 0 = before it is acknowledged.
    pub max_ms: u64,
}

impl fmt::Display for Rpo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.min_ms, self.max_ms)
    }
}

impl FromStr for Rpo {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let wrong = |why: &str| BenchError::new(Kind::Invalid, format!("RPO {text:?}: {why}"));
        let number = |part: &str| part.parse().ok();
        let parts = text.split_once('/').and_then(|(min, max)| Some((number(min)?, number(max)?)));
        match parts {
            Some((min_ms, max_ms)) if min_ms <= max_ms => Ok(Self { min_ms, max_ms }),
            Some(_) => Err(wrong("the first is at most the second")),
            None => Err(wrong("write MIN/MAX in milliseconds, as 0/5")),
        }
    }
}

/// How long application and resources take, and the log that suits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// As the report calls it.
    pub name: String,
    /// The application's sleep.
    pub t1: Think,
    /// The work between begin and commit.
    pub t2: Think,
    /// The server's, if not its own default.
    pub log_size: Option<u64>,
    /// The server's, if not its own default.
    pub max_buffer_log_size: Option<u64>,
}

impl Workload {
    /// The names that [`Workload::named`] knows.
    pub const NAMES: [&str; 4] = ["medium", "high", "extreme", "none"];

    /// The field's workload of that name; `none` has no think time.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let t1 = Think { median_us: 1_000, delta_us: 1_000 };
        let (t1, t2, logs) = match name {
            "medium" => (t1, Think { median_us: 100_000, delta_us: 100_000 }, None),
            "high" => (t1, Think { median_us: 10_000, delta_us: 10_000 }, Some((5_242_880, 1_310_720))),
            "extreme" => (t1, t1, Some((52_428_800, 13_107_200))),
            "none" => (Think::default(), Think::default(), Some((52_428_800, 13_107_200))),
            _ => return None,
        };
        let (log_size, max_buffer_log_size) = logs.unzip();
        Some(Self { name: name.to_owned(), t1, t2, log_size, max_buffer_log_size })
    }

    /// With the sleeps that somebody gave; named by them if they are not its own.
    #[must_use]
    pub fn with(self, t1: Think, t2: Think) -> Self {
        if (t1, t2) == (self.t1, self.t2) {
            return self;
        }
        let name = format!("t1={}±{} t2={}±{}", t1.median_us, t1.delta_us / 2, t2.median_us, t2.delta_us / 2);
        Self { name, t1, t2, ..self }
    }
}

/// One cell: a place on every axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// How long things take.
    pub workload: Workload,
    /// Opens in every cycle, or once.
    pub mode: Mode,
    /// Where decisions are made.
    pub place: Place,
    /// How they are kept.
    pub engine: Engine,
    /// What may be lost.
    pub rpo: Rpo,
    /// Threads of a server.
    pub threads: u32,
    /// Client threads.
    pub clients: u32,
    /// Cycles of each client.
    pub cycles: u32,
}

impl Case {
    /// As a report names the cell. The cycles are a figure: they say how exact the others are.
    #[must_use]
    pub fn labels(&self) -> Labels {
        let pairs = [
            ("workload", self.workload.name.clone()),
            ("mode", self.mode.to_string()),
            ("coordinator", self.place.to_string()),
            ("engine", self.engine.to_string()),
            ("rpo", self.rpo.to_string()),
            ("threads", self.threads.to_string()),
            ("clients", self.clients.to_string()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
