//! What is asked for: the field's scenarios, their defaults, and the cells somebody makes of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::keys::Spread;
use super::store::Ability;
use crate::report::Labels;

/// The workloads by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Sync on every write.
    KvSync,
    /// No sync.
    KvNosync,
    /// PUT alone, sync on every write: what those who wait at once share.
    KvPut,
    /// Eight stores on one disk at once, one client each.
    KvParallel,
    /// kv-sync and kv-nosync on a slow disk.
    KvSlow,
    /// A read is HEAD on two of three stores, then one GET; an UPDATE is GET and PUT on all three.
    KvHead,
    /// The same, but an UPDATE has HEAD and PUT on two of the three.
    KvHeadput,
    /// kv-nosync while folds over all keys and versions run.
    KvScan,
    /// kv-nosync in the value-compaction window.
    KvCompact,
    /// 100 GET : 10 UPDATE : 10 UPDATE with 4 index entries : 1 + 1 ranges of an index.
    KvIndex,
    /// GET of small values that fit in memory.
    MemoryGet,
    /// HEAD of them.
    MemoryHead,
    /// PUT without sync.
    MemoryPut,
    /// PUT of 16 at once, without sync.
    MemoryBatch,
    /// Closes the store and opens it again.
    MemoryOpen,
}

/// All of them with their names.
pub const SCENARIOS: [(&str, Scenario); 15] = [
    ("kv-sync", Scenario::KvSync),
    ("kv-nosync", Scenario::KvNosync),
    ("kv-put", Scenario::KvPut),
    ("kv-parallel", Scenario::KvParallel),
    ("kv-slow", Scenario::KvSlow),
    ("kv-head", Scenario::KvHead),
    ("kv-headput", Scenario::KvHeadput),
    ("kv-scan", Scenario::KvScan),
    ("kv-compact", Scenario::KvCompact),
    ("kv-index", Scenario::KvIndex),
    ("memory-get", Scenario::MemoryGet),
    ("memory-head", Scenario::MemoryHead),
    ("memory-put", Scenario::MemoryPut),
    ("memory-batch", Scenario::MemoryBatch),
    ("memory-open", Scenario::MemoryOpen),
];

/// Writes of a batch.
pub const BATCH_WRITES: u64 = 16;
/// Stores of kv-parallel, and its clients.
const PARALLEL: u32 = 8;
/// Copies of kv-head and kv-headput.
pub(super) const COPIES: u32 = 3;
/// Threads of the scenarios in memory.
const MEMORY_CLIENTS: u32 = 2;
const MEMORY_VALUE_BYTES: usize = 64;

impl Scenario {
    /// Its name in a report.
    #[must_use]
    pub fn name(self) -> &'static str {
        SCENARIOS.into_iter().find(|(_, scenario)| *scenario == self).map_or("", |(name, _)| name)
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SCENARIOS.into_iter().find(|(own, _)| *own == name).map(|(_, scenario)| scenario)
    }

    /// Whether it is of small values that fit in memory.
    #[must_use]
    pub const fn is_in_memory(self) -> bool {
        matches!(self, Self::MemoryGet | Self::MemoryHead | Self::MemoryPut | Self::MemoryBatch | Self::MemoryOpen)
    }

    /// Whether every key is looked at once before the clock starts: what is measured is what memory has, and not how it came there.
    #[must_use]
    pub const fn is_warmed(self) -> bool {
        matches!(self, Self::MemoryGet | Self::MemoryHead)
    }

    /// Whether every store of a cell has all keys.
    #[must_use]
    pub const fn has_copies(self) -> bool {
        matches!(self, Self::KvHead | Self::KvHeadput)
    }

    /// What a store must be able to do for it.
    #[must_use]
    pub const fn needs(self) -> &'static [Ability] {
        match self {
            Self::KvSlow => &[Ability::SlowDisk],
            Self::KvHead | Self::KvHeadput | Self::MemoryHead => &[Ability::Head],
            Self::KvScan => &[Ability::Fold],
            Self::KvCompact => &[Ability::Compaction],
            Self::KvIndex => &[Ability::Order],
            _ => &[],
        }
    }
}

/// One cell, for whichever store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The workload.
    pub scenario: Scenario,
    /// Whether every write is durable when it is answered.
    pub sync: bool,
    /// Client threads.
    pub clients: u32,
    /// How they draw their keys.
    pub spread: Spread,
    /// Stores at once.
    pub stores: u32,
    /// Different keys, over all stores.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Every key is written once before the clock starts.
    pub preload: bool,
    /// How long the clients run.
    pub duration_ms: u64,
    /// Or, instead, how many operations each of them does.
    pub operations: Option<u64>,
    /// Operations that all clients together begin each second, instead of a closed loop.
    pub rate: Option<f64>,
    /// A disk that takes so many turns a second.
    pub disk_iops: Option<f64>,
    /// Memory for a store's own cache of blocks; of several stores together.
    pub cache_bytes: u64,
    /// And for values, likewise.
    #[serde(default)]
    pub value_cache_bytes: u64,
    /// Bytes of a segment of ours and of the floor.
    pub segment_bytes: u64,
    /// Keys that are looked for in the end, at most; spread over all.
    pub audit_keys: u64,
    /// Another one draws other keys.
    pub seed: u64,
}

/// With what a cell begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// An empty folder; where it is to be loaded, it loads it.
    #[default]
    Empty,
    /// The same, and it ends once that is loaded and closed: others begin with a copy.
    Load,
    /// What another one has loaded.
    Loaded,
}

/// One cell of one store, as the process that runs it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Whose turn it is.
    pub store: String,
    /// Where; it is there.
    pub folder: PathBuf,
    /// What is in it, and what for.
    #[serde(default)]
    pub begin: Begin,
    /// What.
    pub case: Case,
}

impl Case {
    /// Its place on each axis; the store is one more.
    #[must_use]
    pub fn labels(&self) -> Labels {
        let sync = if self.sync { "every write" } else { "none" };
        let pairs = [
            ("scenario", self.scenario.name().to_owned()),
            ("sync", sync.to_owned()),
            ("clients", self.clients.to_string()),
            ("keys", self.spread.name().to_owned()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What must be the same in all rounds of a cell, beside its labels. Not the seed: another one is another draw of the same.
    #[must_use]
    pub fn settings(&self) -> Labels {
        let Self { stores, keys, value_bytes, preload, duration_ms, operations, rate, disk_iops, .. } = *self;
        let told = |number: Option<f64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let lasts = operations.map_or_else(|| format!("{duration_ms} ms"), |count| format!("{count} a client"));
        let pairs = [
            ("stores", stores.to_string()),
            ("different keys", keys.to_string()),
            ("value bytes", value_bytes.to_string()),
            ("preload", preload.to_string()),
            ("lasts", lasts),
            ("operations offered each second", told(rate)),
            ("disk turns each second", told(disk_iops)),
            ("cache bytes", self.cache_bytes.to_string()),
            ("value cache bytes", self.value_cache_bytes.to_string()),
            ("segment bytes", self.segment_bytes.to_string()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// What somebody gave; without, a scenario has its own.
#[derive(Clone, Debug)]
pub struct Given {
    /// Which.
    pub scenarios: Vec<Scenario>,
    /// Client threads; kv-parallel and the scenarios in memory have their own number.
    pub clients: Vec<u32>,
    /// How keys are drawn.
    pub spreads: Vec<Spread>,
    /// Different keys.
    pub keys: u64,
    /// Bytes of a value; in memory 64.
    pub value_bytes: usize,
    /// Every key is written before the clock starts; in memory always.
    pub preload: bool,
    /// How long a cell runs.
    pub duration_ms: u64,
    /// Or how many operations each client does.
    pub operations: Option<u64>,
    /// An open loop.
    pub rate: Option<f64>,
    /// Turns a second of kv-slow's disk.
    pub disk_iops: f64,
    /// Memory for a store's own cache.
    pub cache_bytes: u64,
    /// And for values.
    pub value_cache_bytes: u64,
    /// Bytes of a segment of ours and of the floor.
    pub segment_bytes: u64,
    /// Keys that are looked for in the end.
    pub audit_keys: u64,
    /// Another one draws other keys.
    pub seed: u64,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            scenarios: vec![Scenario::KvSync, Scenario::KvNosync],
            clients: Vec::new(),
            spreads: Vec::new(),
            keys: 500_000,
            value_bytes: 8_192,
            preload: false,
            duration_ms: 60_000,
            operations: None,
            rate: None,
            disk_iops: 120.0,
            cache_bytes: 128 << 20,
            value_cache_bytes: 896 << 20,
            segment_bytes: 16 << 20,
            audit_keys: 100_000,
            seed: 1,
        }
    }
}

impl Given {
    /// Every cell, in the order they are run.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        self.scenarios.iter().flat_map(|scenario| self.of(*scenario)).collect()
    }

    fn of(&self, scenario: Scenario) -> Vec<Case> {
        let own_clients: &[u32] = match scenario {
            Scenario::KvParallel => &[PARALLEL],
            Scenario::KvHead | Scenario::KvHeadput => &[100],
            Scenario::MemoryOpen => &[1],
            _ if scenario.is_in_memory() => &[MEMORY_CLIENTS],
            _ => &[45],
        };
        let is_fixed = scenario == Scenario::KvParallel || scenario.is_in_memory();
        let clients = if is_fixed || self.clients.is_empty() { own_clients } else { &self.clients };
        let own_spreads: &[Spread] = match scenario {
            Scenario::KvHead => &[Spread::Pareto, Spread::Uniform],
            _ if scenario.is_in_memory() => &[Spread::Uniform],
            _ => &[Spread::Pareto],
        };
        let spreads = if self.spreads.is_empty() || scenario.is_in_memory() { own_spreads } else { &self.spreads };
        let syncs: &[bool] = match scenario {
            Scenario::KvSync | Scenario::KvPut | Scenario::KvParallel => &[true],
            Scenario::KvSlow => &[true, false],
            _ => &[false],
        };
        let mut cases = Vec::new();
        for sync in syncs {
            for spread in spreads {
                cases.extend(clients.iter().map(|clients| self.case(scenario, *sync, *spread, *clients)));
            }
        }
        cases
    }

    fn case(&self, scenario: Scenario, sync: bool, spread: Spread, clients: u32) -> Case {
        let stores = match scenario {
            Scenario::KvParallel => PARALLEL,
            Scenario::KvHead | Scenario::KvHeadput => COPIES,
            _ => 1,
        };
        let memory = scenario.is_in_memory();
        Case {
            scenario,
            sync,
            clients,
            spread,
            stores,
            keys: self.keys.max(u64::from(clients) * 4).next_multiple_of(u64::from(stores)),
            value_bytes: if memory { MEMORY_VALUE_BYTES } else { self.value_bytes },
            preload: self.preload || memory,
            duration_ms: self.duration_ms,
            operations: self.operations,
            rate: self.rate,
            disk_iops: (scenario == Scenario::KvSlow).then_some(self.disk_iops),
            cache_bytes: self.cache_bytes,
            // Short ones are kept beside their rows.
            value_cache_bytes: if memory { 0 } else { self.value_cache_bytes },
            segment_bytes: self.segment_bytes,
            audit_keys: self.audit_keys,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_scenario_has_its_cells_and_no_two_have_the_same_place() {
        let scenarios: Vec<Scenario> = SCENARIOS.iter().map(|(_, scenario)| *scenario).collect();
        let all = Given { scenarios, clients: vec![8, 45], ..Given::default() }.cases();
        let places: BTreeSet<_> = all.iter().map(Case::labels).collect();
        assert_eq!(places.len(), all.len());
        let count = |name: &str| all.iter().filter(|case| case.scenario.name() == name).count();
        let counts = SCENARIOS.map(|(name, _)| count(name));
        // kv-slow with and without sync, kv-head with both ways to draw; each with 8 and 45 clients.
        assert_eq!(counts, [2, 2, 2, 1, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1]);
        for (name, scenario) in SCENARIOS {
            assert_eq!((Scenario::named(name), scenario.name()), (Some(scenario), name));
            assert_eq!(serde_json::to_string(&scenario).unwrap(), format!("{name:?}"));
        }
    }

    #[test]
    fn without_a_word_it_is_the_fields_two_workloads() {
        let cases = Given::default().cases();
        let told: Vec<_> =
            cases.iter().map(|it| (it.scenario, it.sync, it.clients, it.value_bytes, it.stores)).collect();
        assert_eq!(told, [(Scenario::KvSync, true, 45, 8_192, 1), (Scenario::KvNosync, false, 45, 8_192, 1)]);
        assert!(cases.iter().all(|case| !case.preload && case.disk_iops.is_none()));
        let scenarios = vec![Scenario::KvSlow, Scenario::MemoryPut];
        let slow = Given { scenarios, keys: 1, value_cache_bytes: 9, ..Given::default() }.cases();
        assert_eq!(slow.iter().map(|case| case.value_cache_bytes).collect::<Vec<_>>(), [9, 9, 0], "of long values");
        assert_eq!(slow.iter().map(|case| case.disk_iops).collect::<Vec<_>>(), [Some(120.0), Some(120.0), None]);
        assert!(slow[0].keys >= 45 * 4, "clients find keys that nobody else is writing");
        assert!(slow[2].preload && slow[2].value_bytes == 64 && slow[2].clients == 2);
    }
}
