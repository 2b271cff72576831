//! The race over real branches: one row in PostgreSQL and one in MariaDB, against two floors of the same run.
//!
//! The floors: two plain commits, which are not atomic; and the XA verbs by hand, without a coordinator and one after the
//! other, as a programmer would write them with the same drivers. All of them keep their sessions.
//! Walk: tables and sessions are made · for each workload and number of threads a slice of every way, several rounds, in
//! an order that turns · ratios are between slices of the same round, and their median counts · the rows are added up.
//! Deliberately absent: pools; a thread has its own two sessions and its own two rows.

mod network;
mod ways;

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use assent_client::{Client, ClientConfig};
use assent_kind::Kind;
use assent_world::net::Address;
use serde::Serialize;

use crate::BenchError;
use crate::databases::{Databases, NAMES};
use crate::house::House;
use crate::proxy::Delay;
use crate::stage::{Stage, Syncs};
use crate::stats::{Latency, Samples, median, per_second};
use network::Network;
pub(crate) use ways::Ours;
use ways::{Crew, Theirs};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the rows are.
    pub databases: Databases,
    /// Numbers of threads, each a row.
    pub threads: Vec<u32>,
    /// Rounds of slices.
    pub rounds: u32,
    /// How long a slice is.
    pub slice: Duration,
    /// What the transactions do.
    pub workloads: Vec<Workload>,
    /// Between the client and the databases, for the floors too.
    pub delay: Delay,
    /// Also with a coordinator in this process.
    pub embedded: bool,
    /// Also with this one, which has [`NAMES`] registered.
    pub served: Option<Address>,
}

/// What a transaction does in its two branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Updates one row in each.
    BothWrite,
    /// Reads one row in PostgreSQL, updates one in MariaDB.
    PostgresReads,
    /// Updates one row in PostgreSQL, reads one in MariaDB.
    MariadbReads,
}

/// How it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A floor: two commits, one after the other. Not atomic.
    Plain,
    /// A floor: prepare and commit of both, one after the other, no decision kept anywhere. Not atomic after a crash.
    ByHand,
    /// Assent, the coordinator in this process.
    Embedded,
    /// The same, and the decision is a row of the PostgreSQL.
    EmbeddedLast,
    /// The same, and the branch that reads is said to.
    EmbeddedReader,
    /// Assent, the coordinator in a server process.
    Served,
    /// The same, and the decision is a row of the PostgreSQL.
    ServedLast,
    /// The same, and the branch that reads is said to.
    ServedReader,
}

impl Way {
    const fn is_embedded(self) -> bool {
        matches!(self, Self::Embedded | Self::EmbeddedLast | Self::EmbeddedReader)
    }

    const fn told(self) -> Told {
        match self {
            Self::Plain | Self::ByHand | Self::Embedded | Self::Served => Told::Nothing,
            Self::EmbeddedLast | Self::ServedLast => Told::Last,
            Self::EmbeddedReader | Self::ServedReader => Told::Reader,
        }
    }

    /// With either coordinator.
    const fn ours(workload: Workload) -> [[Self; 2]; 2] {
        match workload {
            Workload::BothWrite => [[Self::Embedded, Self::EmbeddedLast], [Self::Served, Self::ServedLast]],
            Workload::PostgresReads | Workload::MariadbReads => {
                [[Self::Embedded, Self::EmbeddedReader], [Self::Served, Self::ServedReader]]
            }
        }
    }
}

/// What a thread's two connections are told of what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    /// The PostgreSQL decides.
    Last,
    /// The one that reads only reads.
    Reader,
}

/// One row's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What was done.
    pub workload: Workload,
    /// How.
    pub way: Way,
    /// Threads.
    pub threads: u32,
    /// Transactions in all rounds.
    pub transactions: u64,
    /// Median over the rounds.
    pub tps: f64,
    /// Median of the rounds' ratios.
    pub ratio_to_plain: f64,
    /// Median of the rounds' ratios.
    pub ratio_to_by_hand: f64,
    /// Begin to commit, work included; over all rounds, microseconds.
    pub latency_us: Latency,
    /// Processor time of this process a transaction, microseconds: drivers, adapters, coordinator if embedded.
    pub cpu_us_per_tx: f64,
    /// Syncs of PostgreSQL's log a transaction (`pg_stat_wal.wal_sync`); null on servers without it.
    pub postgres_syncs_per_tx: Option<f64>,
    /// Syncs of `InnoDB` a transaction (`Innodb_data_fsyncs`).
    pub mariadb_syncs_per_tx: Option<f64>,
    /// Syncs of the coordinator's journal a transaction; embedded only.
    pub journal_syncs_per_tx: Option<f64>,
    /// Messages to both databases a transaction; only with a delay, which counts them.
    pub messages_per_tx: Option<f64>,
}

/// The race's result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Always `real`.
    pub scenario: &'static str,
    /// Rounds of slices.
    pub rounds: u32,
    /// How long a slice was.
    pub slice_ms: u64,
    /// Round trip between client and databases; 0 where nothing was between them.
    pub rtt_us: u64,
    /// Updates that the databases hold in the end; as many as were committed, or the run fails.
    pub updates_found: u64,
    /// The rows.
    pub figures: Vec<Figures>,
}

/// One workload, number of threads and way, over all rounds.
struct Row {
    workload: Workload,
    threads: u32,
    way: Way,
    rates: Vec<f64>,
    samples: Samples,
    syncs: Syncs,
    cpu: Duration,
    messages: Option<u64>,
}

/// Everything that the slices share.
struct Race<'o> {
    options: &'o Options,
    stage: Stage,
    network: Option<Network>,
    theirs: Vec<Theirs>,
    /// By workload, and what they were told: an adapter is set up for what it mostly does.
    ours: Vec<(Workload, Told, Vec<Ours>)>,
    house: Option<House>,
    embedded: Option<Client>,
    served: Option<Client>,
    expected: [u64; 2],
}

/// Runs the race; the embedded coordinator works in `folder`. `progress` is told after each slice how many of how many are
/// done.
///
/// # Errors
/// What a database, a coordinator or the disk says; `Internal` if an update is missing or was done twice.
pub fn run(folder: &Path, options: &Options, mut progress: impl FnMut(u64, u64)) -> Result<Outcome, BenchError> {
    let mut race = Race::new(folder, options)?;
    let mut rows = race.rows();
    let groups = options.workloads.len() * options.threads.len();
    let ways = rows.len() / groups.max(1);
    let slices = u64::try_from(rows.len()).unwrap_or(u64::MAX).saturating_mul(options.rounds.into());
    let mut done = 0;
    // Once through, uncounted: caches fill, journals lay out their first segments.
    for row in &mut rows {
        race.slice(row, options.slice / 4)?;
    }
    rows = race.rows();
    for round in 0..options.rounds {
        for group in rows.chunks_mut(ways.max(1)) {
            // Whoever comes first or after whom: each in turn.
            let turn = usize::try_from(round).unwrap_or(0) % ways.max(1);
            group.rotate_left(turn);
            for row in group.iter_mut() {
                race.slice(row, options.slice)?;
                done += 1;
                progress(done, slices);
            }
            group.rotate_right(turn);
        }
    }
    let updates_found = race.audit()?;
    let figures = rows.chunks(ways.max(1)).flat_map(|group| group.iter().map(|row| row.figures(group))).collect();
    let slice_ms = u64::try_from(options.slice.as_millis()).unwrap_or(u64::MAX);
    let rtt_us = options.delay.rtt_us;
    Ok(Outcome { scenario: "real", rounds: options.rounds, slice_ms, rtt_us, updates_found, figures })
}

impl<'o> Race<'o> {
    fn new(folder: &Path, options: &'o Options) -> Result<Self, BenchError> {
        let threads = options.threads.iter().copied().max().unwrap_or(1);
        let stage = Stage::make(&options.databases, threads)?;
        let network = Network::between(&options.databases, options.delay)?;
        let there = network.as_ref().map_or(&options.databases, |network| &network.databases);
        let theirs = (0..threads).map(|_| Theirs::open(there)).collect::<Result<_, _>>()?;
        let mut ours = Vec::new();
        for workload in options.workloads.iter().filter(|_| options.embedded || options.served.is_some()) {
            let [either, _] = Way::ours(*workload);
            for told in either.map(Way::told) {
                let open = (0..threads).map(|_| Ours::open_told(there, *workload, told));
                ours.push((*workload, told, open.collect::<Result<_, _>>()?));
            }
        }
        let house = options
            .embedded
            .then(|| House::open(&folder.join("embedded"), options.databases.connectors()?))
            .transpose()?;
        let embedded = house.as_ref().map(House::client).transpose()?;
        let served = options.served.clone().map(|address| {
            let resources = NAMES.map(str::to_owned).to_vec();
            Client::connect(ClientConfig { resources, ..ClientConfig::new(address, "bench") })
        });
        Ok(Self { options, stage, network, theirs, ours, house, embedded, served, expected: [0; 2] })
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for workload in &self.options.workloads {
            let mut ways = vec![Way::Plain, Way::ByHand];
            let [embedded, served] = Way::ours(*workload);
            ways.extend(self.embedded.iter().flat_map(|_| embedded));
            ways.extend(self.served.iter().flat_map(|_| served));
            for threads in &self.options.threads {
                rows.extend(ways.iter().map(|way| Row::new(*workload, *threads, *way)));
            }
        }
        rows
    }

    fn slice(&mut self, row: &mut Row, slice: Duration) -> Result<(), BenchError> {
        let before = self.syncs()?;
        let (messages, proxied) = self.travelled();
        let (table, workload) = (self.stage.table(), row.workload);
        let samples = match row.way {
            Way::Plain => {
                side_by_side(&mut self.theirs, row.threads, slice, |it, thread, _| it.plain(workload, table, thread))
            }
            Way::ByHand => side_by_side(&mut self.theirs, row.threads, slice, |it, thread, count| {
                it.by_hand(workload, table, thread, count)
            }),
            way => {
                let client = if way.is_embedded() { &self.embedded } else { &self.served };
                let ours = self.ours.iter_mut().find(|(of, told, _)| (*of, *told) == (workload, way.told()));
                let (Some(client), Some((_, _, ours))) = (client, ours) else {
                    return Err(BenchError::new(Kind::Internal, "a way without its coordinator or its sessions"));
                };
                side_by_side(ours, row.threads, slice, |it, thread, _| it.transaction(client, workload, table, thread))
            }
        }?;
        let (samples, took, cpu) = samples;
        let (messages_after, proxied_after) = self.travelled();
        row.cpu += cpu.saturating_sub(proxied_after.saturating_sub(proxied));
        if let (Some(before), Some(after)) = (messages, messages_after) {
            row.messages = Some(row.messages.unwrap_or(0) + (after - before));
        }
        row.syncs.add(before, self.syncs()?);
        row.rates.push(per_second(samples.len(), took));
        let count = u64::try_from(samples.len()).unwrap_or(u64::MAX);
        let [postgres, mariadb] = &mut self.expected;
        *postgres += if workload == Workload::PostgresReads { 0 } else { count };
        *mariadb += if workload == Workload::MariadbReads { 0 } else { count };
        row.samples.extend(&samples);
        Ok(())
    }

    /// Messages so far, and what carrying them cost.
    fn travelled(&self) -> (Option<u64>, Duration) {
        self.network.as_ref().map_or((None, Duration::ZERO), |it| (Some(it.messages()), it.cpu()))
    }

    fn syncs(&mut self) -> Result<Syncs, BenchError> {
        let journal = self.house.as_ref().map(|house| house.journal.counts().syncs);
        self.stage.syncs(journal)
    }

    /// Every commit is there, once.
    fn audit(&mut self) -> Result<u64, BenchError> {
        let found = self.stage.updates("true")?;
        if found != self.expected {
            let message = format!(
                "PostgreSQL and MariaDB hold {found:?} updates, and {:?} were committed; report this",
                self.expected
            );
            return Err(BenchError::new(Kind::Internal, message));
        }
        Ok(found.iter().sum())
    }
}

/// Threads that start together, each with its own sessions, until the slice is over. The samples of all, and how long it
/// took until the last was done, and the processor time of this process.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn side_by_side<C: Crew>(
    crews: &mut [C],
    threads: u32,
    slice: Duration,
    transaction: impl Fn(&mut C, u32, u64) -> Result<(), BenchError> + Sync,
) -> Result<(Samples, Duration, Duration), BenchError> {
    let count = usize::try_from(threads).unwrap_or(usize::MAX).min(crews.len());
    let (begin, transaction) = (&Barrier::new(count), &transaction);
    let before = cpu();
    let parts = std::thread::scope(|scope| {
        let crews = (0..threads).zip(crews.iter_mut());
        let workers: Vec<_> = crews
            .map(|(thread, crew)| {
                scope.spawn(move || {
                    begin.wait();
                    let start = Instant::now();
                    let (mut samples, mut end) = (Samples::default(), start);
                    while end.duration_since(start) < slice {
                        let before = end;
                        let number = u64::try_from(samples.len()).unwrap_or(u64::MAX);
                        transaction(crew, thread, number)?;
                        end = Instant::now();
                        samples.push(end.duration_since(before));
                    }
                    crew.rest()?;
                    Ok((samples, end.duration_since(start)))
                })
            })
            .collect();
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "a client panicked"))));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let took = parts.iter().map(|(_, took)| *took).max().unwrap_or(slice);
    let spent = cpu().saturating_sub(before);
    let mut samples = Samples::default();
    parts.iter().for_each(|(part, _)| samples.extend(part));
    Ok((samples, took, spent))
}

/// Processor time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Row {
    fn new(workload: Workload, threads: u32, way: Way) -> Self {
        let (rates, samples, syncs) = (Vec::new(), Samples::default(), Syncs::default());
        Self { workload, threads, way, rates, samples, syncs, cpu: Duration::ZERO, messages: None }
    }

    fn figures(&self, group: &[Row]) -> Figures {
        let against = |way: Way| {
            let floor = group.iter().find(|row| row.way == way);
            let rates = self.rates.iter().zip(floor.map_or(&[][..], |row| &row.rates));
            median(&rates.map(|(own, floor)| own / floor.max(1e-9)).collect::<Vec<_>>())
        };
        let transactions = u64::try_from(self.samples.len()).unwrap_or(u64::MAX);
        let per_tx = |count: Option<u64>| count.map(|count| ratio(count, transactions));
        Figures {
            workload: self.workload,
            way: self.way,
            threads: self.threads,
            transactions,
            tps: median(&self.rates),
            ratio_to_plain: against(Way::Plain),
            ratio_to_by_hand: against(Way::ByHand),
            latency_us: self.samples.latency(),
            cpu_us_per_tx: ratio(u64::try_from(self.cpu.as_micros()).unwrap_or(u64::MAX), transactions),
            postgres_syncs_per_tx: per_tx(self.syncs.postgres),
            mariadb_syncs_per_tx: per_tx(self.syncs.mariadb),
            messages_per_tx: per_tx(self.messages),
            journal_syncs_per_tx: per_tx(self.syncs.journal.filter(|_| self.way.is_embedded())),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}
