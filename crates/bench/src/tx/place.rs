//! Where a cell's decisions are made and what its branches are.

use std::path::Path;
use std::sync::Arc;

use assent_client::{Client, ClientConfig, Retries};
use assent_coordinator::{Caretaker, Coordinator, Identity, Round};
use assent_journal::{Config, Journal, Keeper, Log};
use assent_kind::Kind;
use assent_kv::{Kv, KvResource};
use assent_resources::Dummy;
use assent_world::{Clock, Disk, RealClock, RealDice, RealDisk};
use assent_xa::{Reply, Resource, Verb};

use super::{Branches, Place};
use crate::BenchError;

/// The names of the two resources; a served coordinator must have them registered.
pub(super) const NAMES: [&str; 2] = ["bench-1", "bench-2"];

/// Everything that the clients of a cell share.
pub(super) struct Setting {
    client: Client,
    journal: Option<Arc<Journal>>,
    stores: Option<[Arc<Kv>; 2]>,
    _keeper: Option<Keeper>,
    _caretaker: Option<Caretaker>,
}

/// One branch's resource.
pub(super) enum Branch {
    Dummy(Dummy),
    Kv(KvResource),
}

/// One helper thread looks after all journals of the process.
fn keep(keeper: &mut Option<Keeper>, journal: &Arc<Journal>, clock: &Arc<dyn Clock>) {
    match keeper {
        Some(keeper) => keeper.add(journal),
        None => *keeper = Some(Keeper::start(Arc::clone(journal), Arc::clone(clock))),
    }
}

impl Setting {
    pub(super) fn make(folder: &Path, place: &Place, branches: Branches) -> Result<Self, BenchError> {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))?;
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let open = |name: &str| {
            let config = Config { log_size: 64 << 20, ..Config::default() };
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let opened = Journal::open(disk, Arc::clone(&clock), Arc::new(RealDice), &folder.join(name), config);
            opened.map(|(journal, _)| journal).map_err(|error| BenchError::new(error.kind(), error))
        };
        let mut keeper = None;
        let stores = match branches {
            Branches::Dummy => None,
            Branches::Kv => {
                let mut store = |name: &str| -> Result<Arc<Kv>, BenchError> {
                    let journal = open(name)?;
                    keep(&mut keeper, &journal, &clock);
                    let log: Arc<dyn Log> = journal;
                    let checkpoints = folder.join(format!("{name}-checkpoints"));
                    Kv::open(log, Arc::new(RealDisk), &checkpoints, assent_kv::Config::default())
                        .map(Arc::new)
                        .map_err(|error| BenchError::new(error.kind(), error))
                };
                Some([store("kv-1")?, store("kv-2")?])
            }
        };
        let (client, journal, caretaker) = match place {
            Place::Embedded => {
                let journal = open("coordinator")?;
                keep(&mut keeper, &journal, &clock);
                let failed = |error: assent_coordinator::CoordinatorError| BenchError::new(error.kind(), error);
                let identity = Identity::load_or_create(&RealDisk, &RealDice, folder).map_err(failed)?;
                let log: Arc<dyn Log> = journal.clone();
                let config = assent_coordinator::Config::default();
                let coordinator = Coordinator::open(log, Arc::clone(&clock), identity, config).map_err(failed)?;
                let coordinator = Arc::new(coordinator);
                // A failed tick closes the log, and every commit says so from then on.
                let listener = Box::new(|_: Result<&Round, &assent_coordinator::CoordinatorError>| {});
                let caretaker = Caretaker::start(Arc::clone(&coordinator), None, Arc::clone(&clock), listener)
                    .map_err(|error| BenchError::new(Kind::Unavailable, format!("cannot start a thread: {error}")))?;
                let client = Client::embedded(&coordinator, Retries::default())
                    .map_err(|error| BenchError::new(error.kind, error))?;
                (client, Some(journal), Some(caretaker))
            }
            Place::Served(address) => {
                let config = ClientConfig {
                    resources: NAMES.map(str::to_owned).to_vec(),
                    ..ClientConfig::new(address.clone(), "bench")
                };
                (Client::connect(config), None, None)
            }
        };
        Ok(Self { client, journal, stores, _keeper: keeper, _caretaker: caretaker })
    }

    /// What a client opens: its handle and its two resources.
    pub(super) fn open(&self) -> (Client, [Branch; 2]) {
        let branches = match &self.stores {
            None => NAMES.map(|name| Branch::Dummy(Dummy::new(name))),
            Some([one, two]) => {
                let [first, second] = NAMES;
                [
                    Branch::Kv(KvResource::new(first, Arc::clone(one))),
                    Branch::Kv(KvResource::new(second, Arc::clone(two))),
                ]
            }
        };
        (self.client.clone(), branches)
    }

    pub(super) fn syncs(&self) -> Option<u64> {
        self.journal.as_ref().map(|journal| journal.counts().syncs)
    }

    pub(super) fn round_trips(&self) -> Option<u64> {
        if self.journal.is_some() { None } else { Some(self.client.counts().round_trips) }
    }
}

impl Branch {
    /// The branch's work: one small put where there is a store.
    pub(super) fn work(&self, key: u64) -> Result<(), BenchError> {
        match self {
            Self::Dummy(_) => Ok(()),
            Self::Kv(store) => store
                .put(0, &key.to_be_bytes(), b"a value of thirty-two bytes, each")
                .map_err(|error| BenchError::new(error.kind(), error)),
        }
    }
}

impl Resource for Branch {
    fn name(&self) -> &str {
        match self {
            Self::Dummy(dummy) => dummy.name(),
            Self::Kv(store) => store.name(),
        }
    }

    fn send(&mut self, verb: Verb) {
        match self {
            Self::Dummy(dummy) => dummy.send(verb),
            Self::Kv(store) => store.send(verb),
        }
    }

    fn receive(&mut self) -> Reply {
        match self {
            Self::Dummy(dummy) => dummy.receive(),
            Self::Kv(store) => store.receive(),
        }
    }

    fn witness(&mut self) -> Vec<u8> {
        match self {
            Self::Dummy(dummy) => dummy.witness(),
            Self::Kv(store) => store.witness(),
        }
    }

    fn let_go(&mut self) {
        match self {
            Self::Dummy(dummy) => dummy.let_go(),
            Self::Kv(store) => store.let_go(),
        }
    }
}
