//! What is asked of the document race.

use std::path::PathBuf;
use std::time::Duration;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A tiny document with a long history.
    History,
    /// One field of large documents.
    Large,
    /// A page of a large document over HTTP, by more and more clients.
    Rest,
    /// Readers of that page beside a writer.
    Mixed,
}

/// All of them by their names.
pub const SCENARIOS: [(&str, Scenario); 4] =
    [("history", Scenario::History), ("large", Scenario::Large), ("rest", Scenario::Rest), ("mixed", Scenario::Mixed)];

impl Scenario {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Large => "large",
            Self::Rest => "rest",
            Self::Mixed => "mixed",
        }
    }

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SCENARIOS.iter().find(|(known, _)| *known == name).map(|(_, scenario)| *scenario)
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// What is run, in order.
    pub scenarios: Vec<Scenario>,
    /// Commits of history's document.
    pub commits: u32,
    /// So many commits make one point of the rate.
    pub step: u32,
    /// How many revisions there are when an open is measured, also at the end. Beyond `commits` they are made without a sync each, and what
    /// is measured there comes last.
    pub depths: Vec<u32>,
    /// Writers, on a document each.
    pub writers: Vec<u32>,
    /// Threads, or clients over HTTP, that read beside a writer.
    pub readers: u32,
    /// Commits a second of mixed's writer that does not go flat out.
    pub pace: u32,
    /// How long a window of many writers, or of readers, is.
    pub window: Duration,
    /// How long a slice of each way of the floor is.
    pub slice: Duration,
    /// How often a cold call is made.
    pub cold: u32,
    /// How often a warm one.
    pub warm: u32,
    /// Bytes of JSON of large's documents.
    pub sizes: Vec<u64>,
    /// Commits of each of them.
    pub large_commits: u32,
    /// Bytes of pages that are kept in memory.
    pub cache_bytes: u64,
    /// The program that has the processes of rest and mixed.
    pub program: Option<PathBuf>,
    /// Clients of rest, each with one request under way.
    pub clients: Vec<u32>,
    /// Objects of the document of rest and mixed.
    pub objects: u32,
    /// How many revisions that document has; all clients at the fewest, 1 and 16 at the others.
    pub revisions: Vec<u32>,
    /// How long requests are sent before a slice counts.
    pub warm_up: Duration,
    /// The window is that many slices, those of a row's neighbours between them.
    pub rounds: u32,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            scenarios: SCENARIOS.iter().map(|(_, scenario)| *scenario).collect(),
            commits: 10_000,
            step: 1_000,
            depths: vec![200, 1_000, 10_000],
            writers: vec![1, 16, 64],
            readers: 16,
            pace: 1_000,
            window: Duration::from_secs(5),
            slice: Duration::from_millis(50),
            cold: 7,
            warm: 1_001,
            sizes: vec![1_800_000, 100_000_000],
            large_commits: 2_000,
            cache_bytes: 256 << 20,
            program: None,
            clients: vec![1, 4, 8, 16, 32],
            objects: 20_000,
            revisions: vec![5, 1_900],
            warm_up: Duration::from_millis(500),
            rounds: 3,
        }
    }
}
