//! Where a cell's decisions are made and what its branches are.

use std::path::Path;
use std::sync::Arc;

use assent_client::{Client, ClientConfig, Retries};
use assent_coordinator::engine::{TableConfig, TableLog};
use assent_coordinator::{Caretaker, Coordinator, Identity, Round};
use assent_journal::{Config, Counts, Journal, Keeper, Kept, Log};
use assent_kind::Kind;
use assent_kv::{Kv, KvResource};
use assent_resources::Dummy;
use assent_world::net::Address;
use assent_world::{Clock, Disk, RealClock, RealDice, RealDisk};
use assent_xa::{Reply, Resource, Verb};

use super::axes::{Branches, Case, Engine, Place};
use super::meter::Counters;
use super::trace::{self, Trace};
use super::{NAMES, Rules};
use crate::BenchError;

/// One coordinator of a cell.
struct Seat {
    client: Client,
    embedded: Option<Embedded>,
}

/// A coordinator in this process, and its log.
struct Embedded {
    coordinator: Arc<Coordinator>,
    state: State,
    _caretaker: Caretaker,
}

/// What keeps its decisions.
enum State {
    Journal(Arc<Journal>),
    Table(Arc<TableLog>),
}

impl State {
    fn log(&self) -> Arc<dyn Log> {
        match self {
            Self::Journal(journal) => journal.clone(),
            Self::Table(table) => table.clone(),
        }
    }

    fn counts(&self) -> Counts {
        match self {
            Self::Journal(journal) => journal.counts(),
            Self::Table(table) => table.counts(),
        }
    }
}

/// Everything that the clients of a cell share.
pub(super) struct Setting {
    seats: Vec<Seat>,
    stores: Option<[Arc<Kv>; 2]>,
    trace: Option<Arc<Trace>>,
    _keeper: Option<Keeper>,
}

/// What a client has opened.
pub(super) struct Opened {
    clients: Vec<Client>,
    pub(super) branches: [Branch; 2],
}

/// One branch's resource.
pub(super) struct Branch {
    kind: Kinds,
    trace: Option<Arc<Trace>>,
}

enum Kinds {
    Dummy(Dummy),
    Kv(KvResource),
}

/// The logs of a cell in this process, and the one helper thread that looks after them.
#[derive(Default)]
struct Logs {
    keeper: Option<Keeper>,
}

impl Logs {
    fn journal(&mut self, folder: &Path, config: Config) -> Result<Arc<Journal>, BenchError> {
        let (clock, disk): (Arc<dyn Clock>, Arc<dyn Disk>) = (Arc::new(RealClock), Arc::new(RealDisk));
        let opened = Journal::open(disk, clock, Arc::new(RealDice), folder, config);
        let (journal, _) = opened.map_err(|error| BenchError::new(error.kind(), error))?;
        self.keep(&journal);
        Ok(journal)
    }

    fn table(&mut self, folder: &Path, config: TableConfig) -> Result<Arc<TableLog>, BenchError> {
        let opened = TableLog::open(&RealDisk, Arc::new(RealClock), &RealDice, folder, config);
        let (table, _) = opened.map_err(|error| BenchError::new(error.kind(), error))?;
        self.keep(&table);
        Ok(table)
    }

    /// As `assent serve` sets a coordinator's log.
    fn state(&mut self, folder: &Path, case: &Case) -> Result<State, BenchError> {
        let writes_in_flight = assent_coordinator::Config::WRITES_IN_FLIGHT;
        let (journal, table) = (Config { writes_in_flight, ..Config::default() }, TableConfig::default());
        let log_size = case.workload.log_size;
        let buffer = case.workload.max_buffer_log_size.and_then(|bytes| usize::try_from(bytes).ok());
        let (min_elapsed_sync_time, max_elapsed_sync_time) = (case.rpo.min_ms, case.rpo.max_ms);
        match case.engine {
            Engine::Journal => {
                let (log_size, max_buffer_log_size) =
                    (log_size.unwrap_or(16 << 20), buffer.unwrap_or(journal.max_buffer_log_size));
                let config =
                    Config { log_size, max_buffer_log_size, min_elapsed_sync_time, max_elapsed_sync_time, ..journal };
                self.journal(folder, config).map(State::Journal)
            }
            Engine::Table => {
                let (log_size, max_buffer_log_size) =
                    (log_size.unwrap_or(table.log_size), buffer.unwrap_or(table.max_buffer_log_size));
                let config = TableConfig {
                    log_size,
                    max_buffer_log_size,
                    min_elapsed_sync_time,
                    max_elapsed_sync_time,
                    ..table
                };
                self.table(folder, config).map(State::Table)
            }
        }
    }

    fn keep<K: Kept + 'static>(&mut self, kept: &Arc<K>) {
        match &self.keeper {
            Some(keeper) => keeper.add(kept),
            None => self.keeper = Some(Keeper::start(Arc::clone(kept), Arc::new(RealClock))),
        }
    }
}

impl Setting {
    /// The coordinators are at `doors` if they are served.
    pub(super) fn make(
        folder: &Path,
        case: &Case,
        rules: &Rules,
        doors: &[Address],
        trace: Option<Arc<Trace>>,
    ) -> Result<Self, BenchError> {
        make_folder(folder)?;
        let mut logs = Logs::default();
        let stores = match rules.branches {
            Branches::Dummy => None,
            Branches::Kv => Some([store(&mut logs, folder, "kv-1")?, store(&mut logs, folder, "kv-2")?]),
        };
        let seats = match case.place {
            Place::Embedded => {
                let folders = (1..=rules.servers).map(|number| folder.join(format!("embedded-{number}")));
                folders.map(|folder| embedded(&mut logs, &folder, case)).collect::<Result<_, _>>()?
            }
            Place::Served => doors.iter().map(served).collect(),
        };
        Ok(Self { seats, stores, trace, _keeper: logs.keeper })
    }

    /// What a client opens: handles of the coordinators and its two resources.
    pub(super) fn open(&self) -> Opened {
        let branch = |kind| Branch { kind, trace: self.trace.clone() };
        let branches = match &self.stores {
            None => NAMES.map(|name| branch(Kinds::Dummy(Dummy::new(name)))),
            Some([one, two]) => {
                let [first, second] = NAMES;
                let kv = |name, store: &Arc<Kv>| branch(Kinds::Kv(KvResource::new(name, Arc::clone(store))));
                [kv(first, one), kv(second, two)]
            }
        };
        Opened { clients: self.seats.iter().map(|seat| seat.client.clone()).collect(), branches }
    }

    /// What the coordinators in this process have counted; none if they are served.
    pub(super) fn counters(&self) -> Vec<Counters> {
        let embedded = self.seats.iter().filter_map(|seat| seat.embedded.as_ref());
        let of = |it: &Embedded| {
            let (log, said) = (it.state.counts(), it.coordinator.gauges());
            Counters {
                writes: log.writes,
                syncs: log.syncs,
                decisions: said.decided_committed + said.decided_rolled_back,
                unsynced: said.decisions_unsynced,
            }
        };
        embedded.map(of).collect()
    }

    /// What has travelled to all coordinators: round trips, and messages without an answer.
    pub(super) fn travelled(&self) -> (u64, u64) {
        let counts = self.seats.iter().map(|seat| seat.client.counts());
        counts.fold((0, 0), |(trips, one_way), it| (trips + it.round_trips, one_way + it.one_way))
    }

    pub(super) const fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }
}

impl Opened {
    /// The coordinator of the client's next transaction, each in turn, and its two resources.
    pub(super) fn next(&mut self, transaction: u64) -> Result<(&Client, &mut [Branch; 2]), BenchError> {
        let count = u64::try_from(self.clients.len()).unwrap_or(1).max(1);
        let client = usize::try_from(transaction % count).ok().and_then(|place| self.clients.get(place));
        let none = || BenchError::new(Kind::Invalid, "no coordinator to ask");
        Ok((client.ok_or_else(none)?, &mut self.branches))
    }
}

fn make_folder(folder: &Path) -> Result<(), BenchError> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))
}

fn store(logs: &mut Logs, folder: &Path, name: &str) -> Result<Arc<Kv>, BenchError> {
    let config = Config { log_size: 64 << 20, kept_until_released: true, ..Config::default() };
    let log: Arc<dyn Log> = logs.journal(&folder.join(name), config)?;
    let ledger = folder.join(format!("{name}-ledger"));
    let opened = Kv::open(log, Arc::new(RealDisk), Arc::new(RealClock), &ledger, assent_kv::Config::default());
    opened.map(Arc::new).map_err(|error| BenchError::new(error.kind(), error))
}

fn embedded(logs: &mut Logs, folder: &Path, case: &Case) -> Result<Seat, BenchError> {
    make_folder(folder)?;
    let state = logs.state(&folder.join("coordinator"), case)?;
    let failed = |error: assent_coordinator::CoordinatorError| BenchError::new(error.kind(), error);
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let identity = Identity::load_or_create(&RealDisk, &RealDice, folder).map_err(failed)?;
    let settings = assent_coordinator::Config::default();
    let coordinator = Arc::new(Coordinator::open(state.log(), Arc::clone(&clock), identity, settings).map_err(failed)?);
    // A failed tick closes the log, and every commit says so from then on.
    let listener = Box::new(|_: Result<&Round, &assent_coordinator::CoordinatorError>| {});
    let caretaker = Caretaker::start(Arc::clone(&coordinator), None, clock, listener)
        .map_err(|error| BenchError::new(Kind::Unavailable, format!("cannot start a thread: {error}")))?;
    let client = Client::embedded(&coordinator, Retries::default());
    let client = client.map_err(|error| BenchError::new(error.kind, error))?;
    Ok(Seat { client, embedded: Some(Embedded { coordinator, state, _caretaker: caretaker }) })
}

fn served(door: &Address) -> Seat {
    let resources = NAMES.map(str::to_owned).to_vec();
    let config = ClientConfig { resources, ..ClientConfig::new(door.clone(), "bench") };
    Seat { client: Client::connect(config), embedded: None }
}

impl Branch {
    /// The branch's work: one small put where there is a store.
    pub(super) fn work(&self, key: u64) -> Result<(), BenchError> {
        match &self.kind {
            Kinds::Dummy(_) => Ok(()),
            Kinds::Kv(store) => store
                .put(0, &key.to_be_bytes(), b"a value of thirty-two bytes, each")
                .map_err(|error| BenchError::new(error.kind(), error)),
        }
    }

    fn resource(&mut self) -> &mut dyn Resource {
        match &mut self.kind {
            Kinds::Dummy(dummy) => dummy,
            Kinds::Kv(store) => store,
        }
    }
}

impl Resource for Branch {
    fn name(&self) -> &str {
        match &self.kind {
            Kinds::Dummy(dummy) => dummy.name(),
            Kinds::Kv(store) => store.name(),
        }
    }

    fn send(&mut self, verb: Verb) {
        if let Some(trace) = &self.trace {
            trace.note(format!("{} <- {}", self.name(), trace::name(&verb)), None);
        }
        self.resource().send(verb);
    }

    fn receive(&mut self) -> Reply {
        let reply = self.resource().receive();
        if let Some(trace) = &self.trace {
            trace.note(format!("{} -> {reply:?}", self.name()), None);
        }
        reply
    }

    fn witness(&mut self) -> Vec<u8> {
        self.resource().witness()
    }

    fn let_go(&mut self) {
        self.resource().let_go();
    }
}
