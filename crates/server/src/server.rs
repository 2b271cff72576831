//! The server: its parts put together, started and stopped.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_coordinator::{Agent, Attendance, Coordinator};
use assent_door::{DoorError, Drain, Health, Limits, Metrics, Slots};
use assent_ids::{NodeId, ResourceId};
use assent_journal::Log;
use assent_kind::Kind;
use assent_kv::Kv;
use assent_world::net::{Address, Listener, Poll, Waker};
use assent_world::{Clock, Moment};

use crate::caretakers;
use crate::desk::{Desk, WAKER};
use crate::inquiry::{self, Inquiries};
use crate::long::Budget;
use crate::numbers::Numbers;
use crate::seats::Seats;
use crate::shared::{Inbox, Recovery, Shared};
use crate::told::Told;
use crate::watch;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; it has passed `assent_door::listen_address`.
    pub listen: Address,
    /// Desks: threads that serve. One is best unless the work on one core is the limit.
    pub threads: u32,
    /// What a peer may take.
    pub limits: Limits,
    /// The registered resource names that a client may enlist.
    pub resources: Vec<String>,
    /// Where they are, for people, by their names: host, port, database and account.
    pub places: Vec<(String, String)>,
    /// A client that is silent for three times this counts as lost; 0 asks for no heartbeats.
    pub heartbeat_ms: u32,
    /// What clients are told about how long they may be away: the coordinator's own `client_lost_ms`.
    pub client_lost_ms: u32,
}

impl Config {
    /// The defaults, listening there.
    #[must_use]
    pub fn new(listen: Address) -> Self {
        Self {
            listen,
            threads: 1,
            limits: Limits::default(),
            resources: Vec::new(),
            places: Vec::new(),
            heartbeat_ms: 333,
            client_lost_ms: 1000,
        }
    }
}

/// What is served. Each part may be absent; its requests are refused then.
pub struct Engines {
    /// The data folder's identity, for the handshake.
    pub node: NodeId,
    /// Decisions.
    pub coordinator: Option<Arc<Coordinator>>,
    /// Its log, for health and the gauge of unsynced decisions.
    pub coordinator_log: Option<Arc<dyn Log>>,
    /// Recovery of the coordinator's transactions, over its own connections.
    pub agent: Option<Agent>,
    /// The key-value store, as a resource manager and for plain use.
    pub kv: Option<Arc<Kv>>,
    /// Its log, for health.
    pub kv_log: Option<Arc<dyn Log>>,
}

impl Engines {
    /// Nothing yet.
    #[must_use]
    pub const fn of(node: NodeId) -> Self {
        Self { node, coordinator: None, coordinator_log: None, agent: None, kv: None, kv_log: None }
    }
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engines")
            .field("coordinator", &self.coordinator.is_some())
            .field("agent", &self.agent.is_some())
            .field("kv", &self.kv.is_some())
            .finish()
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A limit that cannot work.
    #[error(transparent)]
    Limit(#[from] DoorError),
    /// A number of threads that cannot work.
    #[error("server.threads = {0}; it must be 1 to 64")]
    Threads(u32),
    /// Nobody can listen there.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: Address,
        /// As the operating system says.
        error: io::Error,
    },
    /// The operating system gave no thread or no event queue.
    #[error("cannot start the server's threads: {0}")]
    Start(io::Error),
}

impl ServerError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Limit(error) => error.kind(),
            Self::Threads(_) => Kind::Invalid,
            Self::Listen { .. } | Self::Start(_) => Kind::Unavailable,
        }
    }
}

/// A running server. Dropped, it stops at once; [`Server::stop`] lets what is under way finish.
#[derive(Debug)]
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
}

/// Those that serve, and those that work for them.
#[derive(Debug, Default)]
struct Threads {
    desks: Vec<JoinHandle<()>>,
    helpers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens and serves.
    ///
    /// # Errors
    /// [`ServerError`] names the wrong value, or the address that is taken.
    pub fn start(
        config: &Config,
        engines: Engines,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        health: &Health,
    ) -> Result<Self, ServerError> {
        config.limits.check()?;
        if !(1..=64).contains(&config.threads) {
            return Err(ServerError::Threads(config.threads));
        }
        let refused = |error| ServerError::Listen { address: config.listen.clone(), error };
        let listener = Listener::bind(&config.listen).map_err(refused)?;
        let address = listener.address().map_err(refused)?;
        let (mut polls, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..config.threads {
            let poll = Poll::new().map_err(ServerError::Start)?;
            inboxes.push(Inbox::new(Waker::new(poll.registry(), WAKER).map_err(ServerError::Start)?));
            polls.push(poll);
        }
        let registered = config.resources.iter().map(|name| (name.clone(), ResourceId::of(name))).collect();
        let numbers = Numbers::new(metrics, crate::role::KINDS, engines.kv.is_some());
        let attend = |agent| attendance(agent, &clock, &numbers).map(Arc::new);
        let attendance = engines.agent.map(attend).transpose().map_err(ServerError::Start)?;
        let shared = Arc::new(Shared {
            node: engines.node,
            coordinator: engines.coordinator,
            kv: engines.kv,
            kv_log: engines.kv_log.clone(),
            clock,
            limits: config.limits,
            heartbeat_ms: config.heartbeat_ms,
            client_lost_ms: config.client_lost_ms,
            slots: Slots::new(config.limits.connections_max),
            budget: Budget::new(config.limits.long_bytes_max),
            drain: Drain::default(),
            numbers,
            registered,
            places: config.places.iter().map(|(name, place)| (ResourceId::of(name), place.clone())).collect(),
            seats: Seats::default(),
            recovery: Recovery::new(attendance),
            inquiries: Inquiries::default(),
            histories: Inquiries::default(),
            chores: Inquiries::default(),
            walks: Inquiries::default(),
            inboxes,
            failed: Mutex::new(None),
        });
        watch::server(&shared, metrics, health);
        if let (Some(coordinator), Some(log)) = (&shared.coordinator, &engines.coordinator_log) {
            watch::coordinator(coordinator, log, metrics, health);
        }
        if let (Some(kv), Some(log)) = (&shared.kv, &engines.kv_log) {
            watch::store(kv, log, metrics, health);
        }
        // What was opened meanwhile (a store's journal may be long) must not eat the time that clients have to resume.
        if let Some(coordinator) = &shared.coordinator {
            coordinator.listening();
        }
        // From here on a failure drops the server, which ends the threads that have been started.
        let server = Self { address, shared, threads: Mutex::default() };
        server.start_threads(polls, listener, engines.coordinator_log)?;
        if let Some(coordinator) = &server.shared.coordinator {
            // Whoever is told that the server is ready finds it so.
            if let Some(why) = coordinator.first_claims() {
                tracing::error!(why, "no commit is taken for now");
            }
        }
        Ok(server)
    }

    fn start_threads(
        &self,
        polls: Vec<Poll>,
        listener: Listener,
        log: Option<Arc<dyn Log>>,
    ) -> Result<(), ServerError> {
        let mut listener = Some(listener);
        for (number, poll) in polls.into_iter().enumerate() {
            let shared = Arc::clone(&self.shared);
            let mut desk = Desk::new(number, shared, poll, listener.take()).map_err(ServerError::Start)?;
            let desk = spawn(&format!("desk-{number}"), move || {
                // Votes and commits of all its clients would stand there with it.
                assent_kv::stand_in_no_line();
                desk.run();
            })?;
            self.threads().desks.push(desk);
        }
        if let Some(attendance) = self.shared.recovery.attendance().map(Arc::clone) {
            let shared = Arc::clone(&self.shared);
            self.help("recovery", move || caretakers::recover(&shared, &attendance))?;
        }
        let shared = Arc::clone(&self.shared);
        self.help("inquiries", move || inquiry::serve(&shared, &shared.inquiries, None))?;
        if self.shared.coordinator.is_some() {
            let shared = Arc::clone(&self.shared);
            self.help("histories", move || inquiry::serve(&shared, &shared.histories, log.as_ref()))?;
        }
        if self.shared.kv.is_some() {
            let shared = Arc::clone(&self.shared);
            self.help("chores", move || inquiry::serve(&shared, &shared.chores, None))?;
            let shared = Arc::clone(&self.shared);
            self.help("walks", move || inquiry::serve(&shared, &shared.walks, None))?;
        }
        if let Some(coordinator) = self.shared.coordinator.clone() {
            let shared = Arc::clone(&self.shared);
            self.help("tick-tx", move || caretakers::tick_coordinator(&shared, &coordinator))?;
        }
        if let Some(kv) = self.shared.kv.clone() {
            let (shared, store) = (Arc::clone(&self.shared), Arc::clone(&kv));
            self.help("tick-kv", move || caretakers::tick_kv(&shared, &store))?;
            let (shared, store) = (Arc::clone(&self.shared), Arc::clone(&kv));
            self.help("keys-kv", move || caretakers::watch_keys(&shared, &store))?;
            let shared = Arc::clone(&self.shared);
            self.help("work-kv", move || caretakers::work_kv(&shared, &kv))?;
        }
        Ok(())
    }

    fn help(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
        let helper = spawn(name, work)?;
        self.threads().helpers.push(helper);
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it listens; tells the port if 0 was asked for.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Takes no new connection, finishes what is under way (requests, branches that are started or prepared on a
    /// connection), but not for longer than this. May be called from any thread, and again.
    pub fn stop(&self, within: Duration) {
        let now = self.shared.clock.now();
        self.shared.drain.begin(now, within);
        self.shared.inboxes.iter().for_each(Inbox::wake);
        self.shared.recovery.rest();
        // Whoever else stops it waits here, and finds nothing to do.
        let threads = &mut *self.threads();
        // The desks end by then of their own; a round of recovery may be inside somebody's slow database, and a store
        // inside its checkpoint: both are safe to leave.
        let until = self.shared.drain.until().unwrap_or(now).after(GRACE);
        threads.desks.drain(..).for_each(|desk| self.join(desk, until));
        // Not before: what a desk has asked them is under way.
        let Shared { inquiries, histories, chores, walks, .. } = &*self.shared;
        [inquiries, histories, chores, walks].into_iter().for_each(Inquiries::stop);
        self.shared.recovery.stop();
        threads.helpers.drain(..).for_each(|helper| self.join(helper, until));
        if self.shared.recovery.attendance().is_some_and(|attendance| !attendance.wait()) {
            tracing::warn!("recovery was still inside somebody's database when the server stopped");
        }
    }

    fn join(&self, thread: JoinHandle<()>, until: Moment) {
        while !thread.is_finished() {
            if self.shared.clock.now() >= until {
                tracing::warn!(name = thread.thread().name(), "a thread was still at work when the server stopped");
                return;
            }
            self.shared.clock.sleep(Duration::from_millis(1));
        }
        _ = thread.join();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ServerError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(ServerError::Start)
}

/// The agent at work; what it does is counted and told to the log.
fn attendance(agent: Agent, clock: &Arc<dyn Clock>, numbers: &Numbers) -> io::Result<Attendance> {
    let (rounds, log, time) = (numbers.rounds.clone(), Told::default(), Arc::clone(clock));
    let listener: assent_coordinator::Listener = Box::new(move |told| {
        if let Ok(round) = told {
            rounds.inc();
            log.tell(round, time.now());
        }
    });
    Attendance::start(agent, Arc::clone(clock), Arc::new(listener))
}

/// What a desk may take beyond the given time to close its sockets, and helpers to finish a step.
const GRACE: Duration = Duration::from_millis(500);

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
