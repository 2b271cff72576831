//! What is asked of the document race.

use std::time::Duration;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A tiny document with a long history.
    History,
    /// One field of large documents.
    Large,
}

/// All of them by their names.
pub const SCENARIOS: [(&str, Scenario); 2] = [("history", Scenario::History), ("large", Scenario::Large)];

impl Scenario {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Large => "large",
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
    /// How many revisions there are when an open is measured, also at the end.
    pub depths: Vec<u32>,
    /// Writers, on a document each.
    pub writers: Vec<u32>,
    /// Threads that read beside a writer.
    pub readers: u32,
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
            window: Duration::from_secs(5),
            slice: Duration::from_millis(50),
            cold: 7,
            warm: 1_001,
            sizes: vec![1_800_000, 100_000_000],
            large_commits: 2_000,
            cache_bytes: 64 << 20,
        }
    }
}
