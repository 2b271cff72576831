//! `assent serve`: opens what the configuration names, serves it, and closes it in an orderly way.
//!
//! Walk: identity and journals open first, so that damage is found before anyone connects · engines replay · the server
//! and the admin listener start · one line on stdout says that it is ready · SIGTERM or SIGINT: the server drains, the
//! journals close cleanly · SIGHUP: users and certificates are read again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::engine::{self, TableConfig, TableLog};
use assent_coordinator::{Agent, Coordinator, Identity};
use assent_docs::{Database, DocsConnector, Meta};
use assent_door::{Check, Health, Metrics, Shield, listen_address, shielded_address};
use assent_journal::{Counts, Journal, JournalError, Keeper, Kept, Log, State};
use assent_kind::Kind;
use assent_kv::{Kv, KvConnector};
use assent_link::LinkConfig;
use assent_resources::{MariadbConnector, PostgresConnector, RemoteConnector};
use assent_rest::{Admin, Certificates, Documents, Entrance, LogLevel, Rest, Service, Settings};
use assent_server::{Engines, Server};
use assent_world::stop::Stop;
use assent_world::{Clock, Dice as _, Disk, RealClock, RealDice, RealDisk};
use assent_xa::Connector;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use crate::args::Serve;
use crate::assets::numbers::Numbers;
use crate::assets::serve::{Served, others};
use crate::config::{Config, Engine, Flag, HISTORY_BYTES_MAX, LostDecision, Resource, StateEngine};
use crate::descriptors::{self, Descriptors};
use crate::entrance;
use crate::failure::Failure;
use crate::logging;
use crate::read_back::ReadBack;

/// How long a stop waits for what is under way.
const DRAIN: Duration = Duration::from_secs(5);

/// More starts than a server makes between a copy of its folder and the day when the copy is put back: the restored server
/// gives no incarnation that a client of the lost one had.
const RESTORED_EPOCHS: u32 = 1_000;
/// And a number below this one that is rolled: the same copy may be put back once more. Of their 32 bits that leaves four thousand restores.
const RESTORED_AT_RANDOM: u64 = 1 << 20;

/// Runs until it is told to stop.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode, Failure> {
    if arguments.help_stops {
        say!("ASSENT_STOP=NAME[:NTH] freezes the process (SIGSTOP) at the NTH passing of:")?;
        Stop::ALL.iter().try_for_each(|stop| say!("  {}", stop.name()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let log_level = logging::start();
    // Before anything is opened: from here on a stop is orderly.
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| Failure::io("watch", "signals", &error))?;
    let config = Config::load(&arguments.config, &flags(arguments))?;
    let house = House::open(&config, arguments.restored)?;
    let mut running = house.start(&config, log_level)?;
    let docs = running.docs.as_ref().map(|docs| format!(" docs={}", docs.address())).unwrap_or_default();
    let assets = running.assets.as_ref().map(|(assets, _)| format!(" {}", assets.ready())).unwrap_or_default();
    say!("ready protocol={} admin={}{docs}{assets}", running.server.address(), running.rest.address())?;
    loop {
        let signal = match &mut running.assets {
            Some((assets, _)) => assets.wait(&mut signals)?,
            None => signals.forever().next().unwrap_or(SIGTERM),
        };
        if signal != SIGHUP {
            info!("stopping on signal {signal}");
            break;
        }
        match Config::load(&arguments.config, &flags(arguments)) {
            Ok(config) => entrance::reload(&config, &running.identity, running.certificates.as_deref()),
            Err(failure) => warn!("nothing is read again: {}", failure.message),
        }
    }
    running.stop(&house);
    Ok(ExitCode::SUCCESS)
}

fn flags(arguments: &Serve) -> Vec<Flag> {
    let text = |key, value: &Option<String>| value.clone().map(|value| (key, toml::Value::String(value)));
    // Said where the server was started, not beside the file.
    let here = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let folder = arguments.data_dir.as_ref().map(|path| here(path).display().to_string());
    [
        text("server.listen", &arguments.listen),
        text("admin.listen", &arguments.admin_listen),
        text("data_dir", &folder),
        arguments.insecure.then_some(("server.insecure", toml::Value::Boolean(true))),
        arguments.insecure.then_some(("http.insecure", toml::Value::Boolean(true))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What was opened: journals and the engines over them.
struct House {
    /// Raised before anything is opened.
    descriptors: Descriptors,
    clock: Arc<dyn Clock>,
    identity: Identity,
    keeper: Option<Keeper>,
    coordinator: Option<(StateLog, Arc<Coordinator>)>,
    kv: Option<(Arc<Journal>, Arc<Kv>)>,
    documents: Option<(Arc<Journal>, Arc<Database>)>,
}

/// What keeps the coordinator's state.
enum StateLog {
    Journal(Arc<Journal>),
    Table(Arc<TableLog>),
}

impl StateLog {
    fn log(&self) -> Arc<dyn Log> {
        match self {
            Self::Journal(journal) => journal.clone(),
            Self::Table(table) => table.clone(),
        }
    }

    fn close(&self) -> Result<(), JournalError> {
        match self {
            Self::Journal(journal) => journal.close(),
            Self::Table(table) => table.close(),
        }
    }
}

/// What becomes of the part of a journal that is trimmed.
#[derive(Clone, Copy)]
enum Keeps {
    /// A history of so many bytes; and so many epochs are left out.
    History { bytes: u64, epochs_skipped: u32 },
    /// Its engine still reads it, and releases it itself.
    UntilReleased,
}

impl House {
    fn open(config: &Config, is_restored: bool) -> Result<Self, Failure> {
        let folder = &config.data_dir;
        std::fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder.display(), &error))?;
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        let identity = Identity::load_or_create(&RealDisk, &RealDice, folder)?;
        if is_restored && config.coordinator.is_none() {
            return Err(Failure::invalid(
                "--restored is about a coordinator's decisions, and the configuration has no [coordinator]",
            ));
        }
        let descriptors = Descriptors::raised();
        let mut house =
            Self { descriptors, clock, identity, keeper: None, coordinator: None, kv: None, documents: None };
        if let Some(section) = &config.coordinator {
            let state = house.state(&folder.join("coordinator"), section, is_restored)?;
            let settings = assent_coordinator::Config {
                client_lost_ms: config.server.client_lost_ms,
                lost_decision: lost_decision(section),
                is_restored,
                ..assent_coordinator::Config::default()
            };
            let coordinator = Coordinator::open(state.log(), Arc::clone(&house.clock), identity, settings)?;
            if is_restored {
                warn!(
                    "an older copy of {} was put back: nothing that clients before epoch {} left prepared is presumed to be undecided; \
                     it is held unless a committed branch of it is found. Start without --restored from now on",
                    folder.display(),
                    coordinator.epoch()
                );
            }
            house.coordinator = Some((state, Arc::new(coordinator)));
        }
        if let Some(section) = &config.kv {
            let journal = house.journal(&folder.join("kv"), section, sized(16 << 20), Keeps::UntilReleased)?;
            let (log, disk): (Arc<dyn Log>, Arc<dyn Disk>) = (journal.clone(), Arc::new(RealDisk));
            let settings = section.store(identity.node);
            let (memory_bytes, cache_bytes) = (settings.memory_bytes, settings.cache_bytes);
            let value_cache_bytes = settings.value_cache_bytes;
            let background_bytes_per_second = settings.background_bytes_per_second;
            info!(
                memory_bytes,
                cache_bytes,
                value_cache_bytes,
                background_bytes_per_second,
                "the store's memory, and its work in the background"
            );
            let (ledger, clock) = (folder.join("kv-ledger"), Arc::clone(&house.clock));
            let mut shown = ReadBack::of(&ledger);
            let kv = Kv::open_telling(log, disk, clock, &ledger, settings, &mut |progress| shown.tell(progress))?;
            shown.end(kv.stats().rebuilt > 0);
            house.kv = Some((journal, Arc::new(kv)));
        }
        if let Some(section) = &config.documents {
            let defaults =
                assent_journal::Config { writes_in_flight: assent_docs::Config::WRITES_IN_FLIGHT, ..sized(64 << 20) };
            let journal = house.journal(&folder.join("docs"), &section.engine(), defaults, Keeps::UntilReleased)?;
            let (log, disk): (Arc<dyn Log>, Arc<dyn Disk>) = (journal.clone(), Arc::new(RealDisk));
            let index = folder.join("docs-index");
            let database = Database::open(log, disk, Arc::clone(&house.clock), &index, section.settings())?;
            if database.stats().rebuilt {
                warn!("{}: was damaged or another journal's, and has been built anew", index.display());
            }
            house.documents = Some((journal, Arc::new(database)));
        }
        Ok(house)
    }

    fn state(&mut self, folder: &Path, section: &Engine, is_restored: bool) -> Result<StateLog, Failure> {
        let rolled = u32::try_from(RealDice.roll() % RESTORED_AT_RANDOM).unwrap_or_default();
        let epochs_skipped = if is_restored { RESTORED_EPOCHS + rolled } else { 0 };
        if section.engine.unwrap_or_default() == StateEngine::Table {
            return self.table(folder, section, epochs_skipped).map(StateLog::Table);
        }
        if engine::is_foreign(&RealDisk, folder, engine::Engine::Journal)?.is_some() {
            return Err(Failure::invalid(format!(
                "{} holds a state table: write coordinator.engine = \"table\", or give the coordinator another data folder",
                folder.display()
            )));
        }
        let history = section.history_bytes_max.unwrap_or(HISTORY_BYTES_MAX);
        let writes_in_flight = assent_coordinator::Config::WRITES_IN_FLIGHT;
        let defaults = assent_journal::Config { writes_in_flight, ..sized(16 << 20) };
        self.journal(folder, section, defaults, Keeps::History { bytes: history, epochs_skipped })
            .map(StateLog::Journal)
    }

    fn table(&mut self, folder: &Path, section: &Engine, epochs_skipped: u32) -> Result<Arc<TableLog>, Failure> {
        let defaults = TableConfig::default();
        let settings = TableConfig {
            log_size: section.log_size.unwrap_or(defaults.log_size),
            max_buffer_log_size: buffer(section)?.unwrap_or(defaults.max_buffer_log_size),
            min_elapsed_sync_time: section.min_elapsed_sync_time.unwrap_or(0),
            max_elapsed_sync_time: section.max_elapsed_sync_time.unwrap_or(0),
            direct: section.direct.unwrap_or(defaults.direct),
            dsync: section.dsync.unwrap_or(defaults.dsync),
            epochs_skipped,
        };
        let (table, found) = TableLog::open(&RealDisk, Arc::clone(&self.clock), &RealDice, folder, settings)?;
        let how = if found.is_clean { "closed cleanly" } else { "recovered" };
        info!("{}: state table, epoch {}, {} rows, {how}", folder.display(), found.epoch, found.rows);
        if let Some(torn) = &found.torn {
            warn!(
                "{}: not whole; the state before its last group is served, of which nobody was told more",
                torn.display()
            );
        }
        for (file, offset) in &found.healed {
            warn!("{}: damaged at byte {offset}, healed from the other copy: look after this disk", file.display());
        }
        self.keep(&table);
        Ok(table)
    }

    fn keep<K: Kept + 'static>(&mut self, kept: &Arc<K>) {
        match &self.keeper {
            Some(keeper) => keeper.add(kept),
            None => self.keeper = Some(Keeper::start(Arc::clone(kept), Arc::clone(&self.clock))),
        }
    }

    fn journal(
        &mut self,
        folder: &Path,
        section: &Engine,
        defaults: assent_journal::Config,
        keeps: Keeps,
    ) -> Result<Arc<Journal>, Failure> {
        let (archive_bytes_max, kept_until_released, epochs_skipped) = match keeps {
            Keeps::History { bytes, epochs_skipped } => (bytes, false, epochs_skipped),
            Keeps::UntilReleased => (0, true, 0),
        };
        let settings = assent_journal::Config {
            log_size: section.log_size.unwrap_or(defaults.log_size),
            max_buffer_log_size: buffer(section)?.unwrap_or(defaults.max_buffer_log_size),
            min_elapsed_sync_time: section.min_elapsed_sync_time.unwrap_or(0),
            max_elapsed_sync_time: section.max_elapsed_sync_time.unwrap_or(0),
            direct: section.direct.unwrap_or(defaults.direct),
            dsync: section.dsync.unwrap_or(defaults.dsync),
            archive_bytes_max,
            kept_until_released,
            epochs_skipped,
            ..defaults
        };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let (journal, recovery) = Journal::open(disk, Arc::clone(&self.clock), Arc::new(RealDice), folder, settings)?;
        info!(
            "{}: epoch {}, {} entries, end {}, {}",
            folder.display(),
            recovery.epoch,
            recovery.entries,
            recovery.end,
            if recovery.clean { "closed cleanly" } else { "recovered" }
        );
        if let Some(torn) = &recovery.torn {
            warn!("{}: a write that was never acknowledged was cut off at byte {}", torn.file.display(), torn.offset);
        }
        self.keep(&journal);
        Ok(journal)
    }

    fn start(&self, config: &Config, log_level: Option<LogLevel>) -> Result<Running, Failure> {
        let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
        let (many, resources) = (config.server.connections_max, config.resources.len());
        let open = descriptors::Engines {
            store: config.kv.is_some(),
            reads_directly: config.kv.as_ref().is_some_and(|it| it.value_cache_bytes.is_some_and(|bytes| bytes > 0)),
            documents: config.documents.is_some(),
        };
        let places = self.descriptors.places(many, resources, open)?;
        let (places, clients_max) = places.with_assets(config.assets.is_some());
        let assets = config.assets.as_ref().map(|assets| serve_assets(config, assets, clients_max, &metrics, &health));
        let assets = assets.transpose()?;
        let limits = assent_door::Limits {
            connections_max: places.protocol,
            idle_ms: config.server.idle_ms,
            partial_frame_ms: config.server.partial_frame_ms,
            long_bytes_max: config.server.long_bytes_max,
            ..assent_door::Limits::default()
        };
        let mut engines = Engines::of(self.identity.node);
        let mut stand = Vec::new();
        if let Some((state, coordinator)) = &self.coordinator {
            match state {
                StateLog::Journal(journal) => count(&metrics, "coordinator", journal, Journal::counts),
                StateLog::Table(table) => count(&metrics, "coordinator", table, TableLog::counts),
            }
            let connectors = config.resources.iter().map(|it| self.connector(it)).collect::<Result<Vec<_>, _>>()?;
            stand.extend(connectors.iter().map(|it| (it.name().to_owned(), it.place())));
            engines.agent = Some(Agent::new(Arc::clone(coordinator), connectors, Arc::clone(&self.clock)));
            engines.coordinator = Some(Arc::clone(coordinator));
            engines.coordinator_log = Some(state.log());
        }
        if let Some((journal, kv)) = &self.kv {
            count(&metrics, "kv", journal, Journal::counts);
            amplify(&metrics, journal, kv);
            engines.kv = Some(Arc::clone(kv));
            engines.kv_log = Some(journal.clone());
        }
        let listen = listen_address("server.listen", &config.server.listen, config.server.insecure)?;
        let settings = assent_server::Config {
            threads: config.server.threads,
            limits,
            resources: config.resources.iter().map(|resource| resource.name.clone()).collect(),
            places: stand,
            client_lost_ms: u32::try_from(config.server.client_lost_ms).unwrap_or(u32::MAX),
            ..assent_server::Config::new(listen)
        };
        let identity = Arc::new(config.identity.open(Arc::clone(&self.clock))?);
        let certificates = config.tls.as_ref().map(|tls| tls.open().map(Arc::new)).transpose()?;
        let shield = Shield { tls: certificates.is_some(), identity: !identity.is_open() };
        let admin = shielded_address("admin.listen", &config.admin.listen, shield, config.http.insecure)?;
        let server = Server::start(&settings, engines, Arc::clone(&self.clock), &metrics, &health)?;
        let limits = assent_door::Limits { connections_max: places.admin, ..limits };
        let entrance = Entrance {
            settings: Settings { limits, ..config.http },
            identity: Arc::clone(&identity),
            certificates: certificates.clone(),
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&metrics),
        };
        let limits = assent_door::Limits { connections_max: places.docs, ..limits };
        let readers = Entrance { settings: Settings { limits, ..config.http }, ..entrance.clone() };
        let docs = self.serve_documents(config, shield, readers, &metrics, &health)?;
        let service = Service::admin(self.admin(config, metrics, health, log_level));
        let rest = Rest::start(&admin, entrance, service)?;
        Ok(Running { server, rest, docs, assets, identity, certificates })
    }

    /// The documents' own listener, if there are any.
    fn serve_documents(
        &self,
        config: &Config,
        shield: Shield,
        entrance: Entrance,
        metrics: &Arc<Metrics>,
        health: &Arc<Health>,
    ) -> Result<Option<Rest>, Failure> {
        let Some((journal, database)) = &self.documents else { return Ok(None) };
        count(metrics, "documents", journal, Journal::counts);
        let log = Arc::clone(journal);
        health.watch("documents", move || match log.state() {
            State::Open => Check::ok("serving"),
            State::Full => Check::failed("the disk is full: make room, writing goes on by itself"),
            State::Closed => Check::failed("the journal is closed after a failure: restart, recovery decides"),
        });
        let address = shielded_address("docs.listen", &config.docs.listen, shield, config.http.insecure)?;
        let (metrics, health, database) = (Arc::clone(metrics), Arc::clone(health), Arc::clone(database));
        let service = Service::documents(Documents { metrics, health, database });
        Ok(Some(Rest::start(&address, entrance, service)?))
    }

    /// What the admin listener serves.
    fn admin(&self, config: &Config, metrics: Arc<Metrics>, health: Arc<Health>, log_level: Option<LogLevel>) -> Admin {
        Admin {
            metrics,
            health,
            node: self.identity.node,
            coordinator: self.coordinator.as_ref().map(|(_, coordinator)| Arc::clone(coordinator)),
            coordinator_log: self.coordinator.as_ref().map(|(state, _)| state.log()),
            kv: self.kv.as_ref().map(|(_, kv)| Arc::clone(kv)),
            own_store: config.own("kv").map(str::to_owned),
            documents: self.documents.as_ref().map(|(_, database)| Arc::clone(database)),
            own_documents: config.own("docs").map(str::to_owned),
            resources: config.resources.iter().map(|resource| resource.name.clone()).collect(),
            configuration: config.shown.clone(),
            log_level,
        }
    }

    fn connector(&self, resource: &Resource) -> Result<Box<dyn Connector>, Failure> {
        match (&self.kv, &self.documents) {
            (Some((_, kv)), _) if resource.is_own("kv") => {
                Ok(Box::new(KvConnector::new(&resource.name, Arc::clone(kv))))
            }
            // What recovery commits says what its edits said when they voted.
            (_, Some((_, database))) if resource.is_own("docs") => {
                Ok(Box::new(DocsConnector::new(&resource.name, Arc::clone(database), Meta::default())))
            }
            _ => connector(resource),
        }
    }
}

/// The assets of `[assets]`, in the folder of that name.
fn serve_assets(
    config: &Config,
    assets: &crate::assets::options::Serve,
    clients_max: u32,
    metrics: &Metrics,
    health: &Health,
) -> Result<(Served, Numbers), Failure> {
    let mut told = assets.clone();
    told.data = Some(config.data_dir.join("assets"));
    told.insecure |= config.server.insecure;
    let served = Served::open(&told, usize::try_from(clients_max).unwrap_or(usize::MAX))?;
    let numbers = Numbers::start(served.address(), &others(&told), metrics, health)?;
    Ok((served, numbers))
}

/// What a log has done to its disk.
fn count<L: Log + 'static>(metrics: &Metrics, name: &'static str, log: &Arc<L>, counts: fn(&L) -> Counts) {
    let counter = |what, help, of: fn(&Counts) -> u64| {
        let log = Arc::clone(log);
        metrics.sample_counter(what, Some(("log", name)), help, move || of(&counts(&log)));
    };
    counter("log_entries", "Entries appended to a log", |it| it.entries);
    counter("log_writes", "Batches that a log has written", |it| it.writes);
    counter("log_syncs", "Syncs and durable writes of a log", |it| it.syncs);
    counter("log_written_bytes", "Bytes that a log has written", |it| it.bytes);
}

/// What the store has written, by what was put into it, both since it was opened. Before the first put there is no answer.
fn amplify(metrics: &Metrics, journal: &Arc<Journal>, kv: &Arc<Kv>) {
    let (journal, kv) = (Arc::clone(journal), Arc::clone(kv));
    let help = "Bytes that the store has written for each hundred bytes of values that were put: entries, zeroes ahead of them, values \
                anew, the ledger; since the start, what an open writes of what it has replayed among it";
    metrics.sample_gauge_if("kv_write_amplification_percent", None, help, move || {
        let (counts, (stats, (facts, _))) = (journal.counts(), (kv.stats(), kv.ledger_facts()));
        let ledger = facts.flushed_bytes.saturating_add(facts.merged_bytes);
        let written = [counts.bytes, counts.zeroed_bytes, stats.compacted_bytes_out, ledger];
        let written = written.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        written.saturating_mul(100).checked_div(stats.put_bytes).and_then(|percent| i64::try_from(percent).ok())
    });
}

/// A journal's settings where nothing is said of them.
fn sized(log_size: u64) -> assent_journal::Config {
    assent_journal::Config { log_size, ..assent_journal::Config::default() }
}

fn buffer(section: &Engine) -> Result<Option<usize>, Failure> {
    let bytes = section.max_buffer_log_size.map(usize::try_from).transpose();
    bytes.map_err(|_| Failure::invalid("max_buffer_log_size does not fit this machine's memory"))
}

/// What is held by a lazy coordinator after a power cut; says so, once, where there is something to lose.
fn lost_decision(section: &Engine) -> assent_coordinator::LostDecision {
    let told = section.lost_decision.unwrap_or_default();
    let (word, policy) = match told {
        LostDecision::Hold => ("held for a person", assent_coordinator::LostDecision::Hold),
        LostDecision::Rollback => ("rolled back", assent_coordinator::LostDecision::Rollback),
    };
    if let Some(ms) = section.max_elapsed_sync_time.filter(|ms| *ms > 0) {
        warn!(
            "RPO > 0: a decision to commit is told up to {ms} ms before it is on disk (coordinator.max_elapsed_sync_time); \
             prepared branches whose decision a power cut may have taken are {word} (coordinator.lost_decision)"
        );
    }
    policy
}

/// What recovery reaches it by.
pub(crate) fn connector(resource: &Resource) -> Result<Box<dyn Connector>, Failure> {
    let (name, url) = (&resource.name, resource.url()?);
    Ok(match resource.kind.as_str() {
        "postgres" => Box::new(PostgresConnector::new(name, &url)?),
        "mariadb" => Box::new(MariadbConnector::new(name, &url)?),
        _ => {
            let address = url.parse().map_err(|error: assent_world::net::AddressError| {
                Failure::new(Kind::Invalid, format!("resource {name:?}: url: {error}"))
            })?;
            Box::new(RemoteConnector::new(name, address, LinkConfig::default()))
        }
    })
}

struct Running {
    server: Server,
    rest: Rest,
    docs: Option<Rest>,
    assets: Option<(Served, Numbers)>,
    identity: Arc<assent_rest::Identity>,
    certificates: Option<Arc<Certificates>>,
}

impl Running {
    fn stop(self, house: &House) {
        // First, so that a standby leads as soon as may be.
        if let Some((assets, numbers)) = self.assets {
            drop(numbers);
            if let Err(failure) = assets.stop() {
                warn!("{}", failure.message);
            }
        }
        self.server.stop(DRAIN);
        self.rest.stop(DRAIN);
        if let Some(docs) = self.docs {
            docs.stop(DRAIN);
        }
        let coordinator = house.coordinator.as_ref().map(|it| it.0.close());
        if let Some(Err(error)) = house.kv.as_ref().map(|it| it.1.keep_time()) {
            warn!("what had expired may be there again if the clock is set back: {error}");
        }
        let kv = house.kv.as_ref().map(|it| it.0.close());
        let documents = house.documents.as_ref().map(|it| it.0.close());
        for error in [coordinator, kv, documents].into_iter().flatten().filter_map(Result::err) {
            warn!("{error}");
        }
    }
}
