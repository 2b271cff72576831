//! The journal's race: 256 bytes made durable, by one appender and by many, against the floor of the same run.
//!
//! Walk: slices of the floor and of each workload in turn, several rounds; ratios are between medians of one run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assent_journal::{Config, Journal, Keeper, Log, Ticket};
use assent_kind::Kind;
use assent_world::{RealClock, RealDice, RealDisk};
use serde::Serialize;

use crate::BenchError;
use crate::floor::{Floor, WayCost};
use crate::stats::{Latency, Samples, median, per_second};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of an entry.
    pub bytes: usize,
    /// Rounds of slices.
    pub rounds: u32,
    /// How long a slice is.
    pub slice: Duration,
    /// Threads of the blocking and the pipelined workload.
    pub threads: usize,
    /// Tickets each thread of the pipelined workload has under way.
    pub tickets: usize,
    /// Durable writes under way at the same time.
    pub writes_in_flight: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes: 256, rounds: 7, slice: Duration::from_millis(400), threads: 64, tickets: 16, writes_in_flight: 2 }
    }
}

/// One workload's figures.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Threads that append.
    pub threads: usize,
    /// Median over the rounds.
    pub ops_per_s: f64,
    /// Operations per second against the floor's.
    pub ops_ratio_to_floor: f64,
    /// Over all rounds.
    pub latency_us: Latency,
    /// The median latency against the floor's.
    pub p50_ratio_to_floor: f64,
    /// Entries made durable by one sync, on average.
    pub entries_per_sync: f64,
}

/// The race's result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Always `journal`.
    pub scenario: &'static str,
    /// Bytes of an entry.
    pub bytes: usize,
    /// The best way.
    pub floor_us: WayCost,
    /// Every way.
    pub ways_us: Vec<WayCost>,
    /// One blocking appender.
    pub one: Figures,
    /// Many blocking appenders.
    pub blocking: Figures,
    /// Many appenders with several tickets under way each.
    pub pipelined: Figures,
    /// One appender, acknowledged from the kernel (RPO 10 ms).
    pub lazy: Figures,
    /// Many appenders with several tickets under way each, acknowledged from the kernel (RPO 10 ms).
    pub lazy_pipelined: Figures,
}

struct Subject {
    journal: Arc<Journal>,
    _keeper: Keeper,
    samples: Samples,
    rates: Vec<f64>,
    medians: Vec<f64>,
    syncs: u64,
    threads: usize,
    tickets: usize,
}

impl Subject {
    fn new(folder: &Path, config: Config, threads: usize, tickets: usize) -> Result<Self, BenchError> {
        let clock = Arc::new(RealClock);
        let (journal, _) = Journal::open(Arc::new(RealDisk), clock.clone(), Arc::new(RealDice), folder, config)
            .map_err(|error| BenchError::new(error.kind(), error))?;
        let keeper = Keeper::start(Arc::clone(&journal), clock);
        Ok(Self {
            journal,
            _keeper: keeper,
            samples: Samples::default(),
            rates: Vec::new(),
            medians: Vec::new(),
            syncs: 0,
            threads,
            tickets,
        })
    }

    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    fn slice(&mut self, options: &Options) -> Result<(), BenchError> {
        let payload = vec![0x5a; options.bytes];
        let before = self.journal.counts().syncs;
        let start = Instant::now();
        let parts = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|_| scope.spawn(|| appender(&self.journal, &payload, self.tickets, start, options.slice)))
                .collect();
            workers
                .into_iter()
                .map(|worker| {
                    worker.join().unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "an appender panicked")))
                })
                .collect::<Result<Vec<_>, _>>()
        })?;
        let took = start.elapsed();
        let mut round = Samples::default();
        parts.iter().for_each(|part| round.extend(part));
        self.rates.push(per_second(round.len(), took));
        self.medians.push(round.latency().p50);
        self.samples.extend(&round);
        self.syncs += self.journal.counts().syncs - before;
        // What was appended is never read: give it back, or long runs fill the disk.
        self.journal.trim(self.journal.durable()).map_err(|error| BenchError::new(error.kind(), error))
    }

    fn figures(&self, floor_us: f64) -> Figures {
        let ops_per_s = median(&self.rates);
        Figures {
            threads: self.threads,
            ops_per_s,
            ops_ratio_to_floor: ops_per_s * floor_us / 1e6,
            latency_us: self.samples.latency(),
            p50_ratio_to_floor: median(&self.medians) / floor_us.max(1e-9),
            entries_per_sync: ratio(self.samples.len(), self.syncs),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn ratio(entries: usize, syncs: u64) -> f64 {
    entries as f64 / (syncs.max(1)) as f64
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn appender(
    journal: &Journal,
    payload: &[u8],
    tickets: usize,
    start: Instant,
    slice: Duration,
) -> Result<Samples, BenchError> {
    let failed = |error: assent_journal::JournalError| BenchError::new(error.kind(), error);
    let mut samples = Samples::default();
    let mut under_way: std::collections::VecDeque<(Instant, Ticket)> = std::collections::VecDeque::new();
    while start.elapsed() < slice {
        while under_way.len() < tickets {
            let began = Instant::now();
            under_way.push_back((began, journal.append(1, &[payload]).map_err(failed)?));
        }
        if let Some((began, ticket)) = under_way.pop_front() {
            journal.wait(ticket).map_err(failed)?;
            samples.push(began.elapsed());
        }
    }
    under_way.into_iter().try_for_each(|(_, ticket)| journal.wait(ticket)).map_err(failed)?;
    Ok(samples)
}

/// Runs the race in `folder`; `progress` is told after each round how many of how many are done.
///
/// # Errors
/// What the disk or the journal says.
pub fn run(folder: &Path, options: Options, mut progress: impl FnMut(u32, u32)) -> Result<Outcome, BenchError> {
    let config = Config { log_size: 64 << 20, writes_in_flight: options.writes_in_flight, ..Config::default() };
    let lazy = Config { log_size: 64 << 20, max_elapsed_sync_time: 10, ..Config::default() };
    let mut floor = Floor::new(folder, options.bytes)?;
    let mut one = Subject::new(&folder.join("one"), config.clone(), 1, 1)?;
    let mut blocking = Subject::new(&folder.join("blocking"), config.clone(), options.threads, 1)?;
    let mut pipelined = Subject::new(&folder.join("pipelined"), config, options.threads, options.tickets)?;
    let mut lazily = Subject::new(&folder.join("lazy"), lazy.clone(), 1, 1)?;
    let mut lazily_pipelined = Subject::new(&folder.join("lazy-pipelined"), lazy, options.threads, options.tickets)?;
    for round in 0..options.rounds {
        floor.slice(options.slice)?;
        for subject in [&mut one, &mut blocking, &mut pipelined, &mut lazily, &mut lazily_pipelined] {
            subject.slice(&options)?;
        }
        progress(round + 1, options.rounds);
    }
    let best = floor.best().ok_or_else(|| BenchError::new(Kind::Internal, "the floor has no slices"))?;
    Ok(Outcome {
        scenario: "journal",
        bytes: options.bytes,
        floor_us: best,
        ways_us: floor.costs(),
        one: one.figures(best.p50),
        blocking: blocking.figures(best.p50),
        pipelined: pipelined.figures(best.p50),
        lazy: lazily.figures(best.p50),
        lazy_pipelined: lazily_pipelined.figures(best.p50),
    })
}
