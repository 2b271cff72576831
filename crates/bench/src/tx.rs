//! The race of distributed transactions with two branches: open, begin, commit, close, as the field measures it.
//!
//! ```text
//!   open-close (an online service)                 batch
//!   sleep t1 · open · sleep t1 · begin · work t2 ·  open · { sleep t1, t1 · begin · work t2 · commit · sleep t1, t1 } ·
//!   commit · sleep t1 · close · sleep t1            close
//! ```
//! A sleep is uniform in [median - delta/2, median + delta/2]; a median of 0 is none. Closed loop: the next cycle begins
//! when the last one has ended.
//!
//! Walk: [`run`] makes the coordinators and branches of each [`Cell`], then runs slices of all cells and of the floor in
//! turn, so that a noisy machine is noisy for all.

mod cycle;
mod place;

use std::path::Path;
use std::time::{Duration, Instant};

use assent_world::net::Address;
use serde::Serialize;

use self::cycle::{Timed, cycles};
use self::place::Setting;
use crate::BenchError;
use crate::floor::{Floor, WayCost};
use crate::stats::{Latency, Samples, median, per_second};

/// Bytes of the floor's write: about what a decision with two branches takes.
const FLOOR_BYTES: usize = 256;
const FLOOR_SLICE: Duration = Duration::from_millis(250);

/// A sleep: its median and its whole width.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleep {
    /// The middle.
    pub median_us: u64,
    /// From the shortest to the longest.
    pub delta_us: u64,
}

/// What the two branches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Branches {
    /// Resources that answer at once.
    Dummy,
    /// Two key-value stores in the same process, one put each.
    Kv,
}

/// Where decisions are made.
#[derive(Clone, Debug)]
pub enum Place {
    /// In this process.
    Embedded,
    /// By a server there.
    Served(Address),
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Commit, or else roll back.
    pub commit: bool,
    /// Open and close in every cycle.
    pub open_close: bool,
    /// Cycles of each client.
    pub cycles: u32,
    /// The application's sleep.
    pub t1: Sleep,
    /// The work between begin and commit.
    pub t2: Sleep,
    /// Sleeps t1 of a cycle: 5, or 4 without the last.
    pub sleeps: u32,
    /// What is committed.
    pub branches: Branches,
    /// Rounds that the cycles are cut into.
    pub rounds: u32,
}

/// One cell of the race.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Where.
    pub place: Place,
    /// Client threads.
    pub clients: u32,
}

/// Latencies of the calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Calls {
    /// Getting a client and its resources.
    pub open: Latency,
    /// Beginning and enlisting.
    pub begin: Latency,
    /// Committing or rolling back.
    pub commit: Latency,
    /// Letting the client go.
    pub close: Latency,
    /// Their sum, cycle by cycle.
    pub total: Latency,
}

/// A cell's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// `embedded` or `served`.
    pub coordinator: &'static str,
    /// What was committed.
    pub branches: Branches,
    /// Client threads.
    pub clients: u32,
    /// Transactions of all of them.
    pub transactions: u64,
    /// Median over the rounds.
    pub tps: f64,
    /// Of each call.
    pub latency_us: Calls,
    /// The median total latency against the floor of the same run.
    pub p50_ratio_to_floor: f64,
    /// Syncs of the coordinator's journal a transaction; embedded only, else null.
    pub syncs_per_tx: Option<f64>,
    /// Round trips to the coordinator a transaction; served only, else null.
    pub round_trips_per_tx: Option<f64>,
    /// All rounds.
    pub elapsed_ms: u64,
}

/// The race's result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Always `tx`.
    pub scenario: &'static str,
    /// `commit` or `rollback`.
    pub ending: &'static str,
    /// `open_close` or `batch`.
    pub mode: &'static str,
    /// The best way to make a decision's bytes durable, in the same run.
    pub floor_us: WayCost,
    /// Each cell.
    pub cells: Vec<Figures>,
}

struct Runner {
    setting: Setting,
    cell: Cell,
    timed: Timed,
    rates: Vec<f64>,
    medians: Vec<f64>,
    elapsed: Duration,
}

impl Runner {
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    fn slice(&mut self, options: &Options, round: u32) -> Result<(), BenchError> {
        let all = options.cycles.div_ceil(options.rounds.max(1));
        let start = Instant::now();
        let parts = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.cell.clients)
                .map(|client| {
                    let setting = &self.setting;
                    scope.spawn(move || cycles(setting, options, (client, round), all))
                })
                .collect();
            let joined = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|_| Err(BenchError::new(assent_kind::Kind::Internal, "a client panicked")))
            });
            joined.collect::<Result<Vec<_>, _>>()
        })?;
        let took = start.elapsed();
        let mut timed = Timed::default();
        parts.iter().for_each(|part| timed.extend(part));
        self.rates.push(per_second(timed.total.len(), took));
        self.medians.push(timed.total.latency().p50);
        self.timed.extend(&timed);
        self.elapsed += took;
        Ok(())
    }

    fn figures(&self, options: &Options, floor_us: f64) -> Figures {
        let per_tx = |count: Option<u64>| count.map(|count| ratio(count, self.timed.total.len()));
        let latency = |samples: &Samples| samples.latency();
        Figures {
            coordinator: match self.cell.place {
                Place::Embedded => "embedded",
                Place::Served(_) => "served",
            },
            branches: options.branches,
            clients: self.cell.clients,
            transactions: u64::try_from(self.timed.total.len()).unwrap_or(u64::MAX),
            tps: median(&self.rates),
            latency_us: Calls {
                open: latency(&self.timed.open),
                begin: latency(&self.timed.begin),
                commit: latency(&self.timed.commit),
                close: latency(&self.timed.close),
                total: latency(&self.timed.total),
            },
            p50_ratio_to_floor: median(&self.medians) / floor_us.max(1e-9),
            syncs_per_tx: per_tx(self.setting.syncs()),
            round_trips_per_tx: per_tx(self.setting.round_trips()),
            elapsed_ms: u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn ratio(count: u64, of: usize) -> f64 {
    count as f64 / of.max(1) as f64
}

/// Runs the cells in `folder`; `progress` is told how many slices of how many are done.
///
/// # Errors
/// What the disk, a coordinator or a store says.
pub fn run(
    folder: &Path,
    options: &Options,
    cells: &[Cell],
    mut progress: impl FnMut(u64, u64),
) -> Result<Outcome, BenchError> {
    let mut floor = Floor::new(folder, FLOOR_BYTES)?;
    let mut runners = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        runners.push(Runner {
            setting: Setting::make(&folder.join(format!("cell-{number}")), &cell.place, options.branches)?,
            cell: cell.clone(),
            timed: Timed::default(),
            rates: Vec::new(),
            medians: Vec::new(),
            elapsed: Duration::ZERO,
        });
    }
    let slices = u64::from(options.rounds) * u64::try_from(cells.len()).unwrap_or(1);
    let mut done = 0;
    for round in 0..options.rounds {
        floor.slice(FLOOR_SLICE)?;
        for runner in &mut runners {
            runner.slice(options, round)?;
            done += 1;
            progress(done, slices);
        }
    }
    floor.slice(FLOOR_SLICE)?;
    let best = floor.best().ok_or_else(|| BenchError::new(assent_kind::Kind::Internal, "the floor has no slices"))?;
    Ok(Outcome {
        scenario: "tx",
        ending: if options.commit { "commit" } else { "rollback" },
        mode: if options.open_close { "open_close" } else { "batch" },
        floor_us: best,
        cells: runners.iter().map(|runner| runner.figures(options, best.p50)).collect(),
    })
}
