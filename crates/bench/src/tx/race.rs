//! The cells of a run, one after the other, and what each has cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::Gate;
use assent_world::net::Address;

use super::axes::{Branches, Case, Place};
use super::cycle::Worker;
use super::meter::{Counters, cpu_of, own_cpu, scrape};
use super::place::Setting;
use super::trace::{Step, Trace};
use super::{Rules, Server, Starter};
use crate::BenchError;
use crate::proxy::{Delay, Proxy};
use crate::record::Recorder;
use crate::report::sink::Sink;
use crate::report::{Cell, Figures};

/// How often what is not synced yet is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// What a cell takes beside its cycles: a folder, a server, a slice of the floors.
const OVERHEAD: Duration = Duration::from_millis(1_500);

/// How far a run has come.
#[derive(Debug)]
pub struct Progress<'p> {
    /// Cells that have ended.
    pub done: usize,
    /// All of them.
    pub of: usize,
    /// The one that begins, or has just ended.
    pub case: &'p Case,
    /// What came of it; `None` when it begins.
    pub ended: Option<&'p Cell>,
    /// What the rest will take, by the time of those that have ended.
    pub left: Duration,
}

/// What a case has cost, over all its rounds.
#[derive(Debug, Default)]
struct Measured {
    recorder: Recorder,
    elapsed: Duration,
    client_cpu: Duration,
    server_cpu: Option<Duration>,
    round_trips: u64,
    one_way: u64,
    /// Of each coordinator.
    counters: Vec<Counters>,
    unsynced: Vec<u64>,
}

/// Everything of a cell that is not its clients.
struct House {
    setting: Setting,
    proxies: Vec<Proxy>,
    servers: Vec<Server>,
}

/// Whose decisions may not be synced yet.
enum Eyes<'h> {
    /// Of each server.
    Admins(Vec<Address>),
    /// In this process.
    Here(&'h Setting),
}

/// What the house has cost so far.
struct Look {
    own_cpu: Duration,
    server_cpu: Option<Duration>,
    counters: Vec<Counters>,
    travelled: (u64, u64),
}

/// Runs the cases in `folder` and puts a cell of each into the report, also of those that fail. `floors` is called before
/// each cell, to measure a slice of what the same work costs without us.
///
/// # Errors
/// What the disk says of the folder or the report, and what `floors` says; never what one cell says.
pub fn run(
    folder: &Path,
    rules: &Rules,
    cases: &[Case],
    start: &mut Starter<'_>,
    sink: &Sink,
    floors: &mut dyn FnMut() -> Result<(), BenchError>,
    mut progress: impl FnMut(&Progress<'_>),
) -> Result<(), BenchError> {
    let mut kept: BTreeMap<usize, Measured> = BTreeMap::new();
    // Of each case the first: a later round that goes well does not make it undone.
    let mut failed: BTreeMap<usize, String> = BTreeMap::new();
    let (mut done, of) = (0, cases.len() * usize::try_from(rules.rounds).unwrap_or(1));
    let mut eta = Eta::new(rules, cases);
    for round in 0..rules.rounds {
        for (place, case) in cases.iter().enumerate() {
            if sink.interrupted() {
                return Ok(());
            }
            progress(&Progress { done, of, case, ended: None, left: eta.left() });
            floors()?;
            let measured = one(folder, rules, case, round, start, &sink.flag());
            done += 1;
            eta.passed(case);
            match measured {
                Ok(more) => kept.entry(place).or_default().merge(more),
                Err(error) if rules.rounds == 1 => _ = failed.insert(place, error.to_string()),
                Err(error) => _ = failed.entry(place).or_insert_with(|| format!("round {}: {error}", round + 1)),
            }
            // One that failed fails all: what went well would hide it.
            let cell = match (failed.get(&place), kept.get(&place)) {
                (None, Some(all)) => all.cell(case, rules)?,
                (error, _) => Cell { labels: case.labels(), error: error.cloned(), ..Cell::default() },
            };
            if rules.rounds == 1 {
                // Nobody adds to its samples any more.
                kept.remove(&place);
            }
            progress(&Progress { done, of, case, ended: Some(&cell), left: eta.left() });
            sink.put(cell)?;
        }
    }
    floors()
}

/// One transaction of one client, step by step.
///
/// # Errors
/// What the server, the coordinator or a branch says.
pub fn once(folder: &Path, rules: &Rules, case: &Case, start: &mut Starter<'_>) -> Result<Vec<Step>, BenchError> {
    let case = Case { clients: 1, cycles: 1, ..case.clone() };
    let house = House::make(folder, rules, &case, start, true)?;
    let Some(trace) = house.setting.trace() else { return Ok(Vec::new()) };
    let never = AtomicBool::new(false);
    Worker::new(&house.setting, (&case, rules), [&never, &never], (0, 0)).run()?;
    if case.place == Place::Served {
        let (round_trips, one_way) = house.setting.travelled();
        trace.note(format!("travelled: {round_trips} round trips, {one_way} messages without an answer"), None);
    }
    Ok(trace.steps())
}

/// One round of one case.
fn one(
    folder: &Path,
    rules: &Rules,
    case: &Case,
    round: u32,
    start: &mut Starter<'_>,
    interrupted: &AtomicBool,
) -> Result<Measured, BenchError> {
    let house = House::make(folder, rules, case, start, false)?;
    let before = house.look()?;
    let watch = Arc::new(Gate::default());
    let (outcome, unsynced) = std::thread::scope(|scope| {
        let (eyes, gate) = (house.eyes(case), Arc::clone(&watch));
        let looking = eyes.map(|eyes| scope.spawn(move || look_on(&eyes, &gate)));
        let outcome = clients(&house.setting, (case, rules), round, interrupted);
        watch.set(1);
        watch.wake_all();
        (outcome, looking.and_then(|looking| looking.join().ok()).unwrap_or_default())
    });
    let (recorder, elapsed) = outcome?;
    let after = house.look()?;
    let pairs = after.counters.iter().zip(&before.counters);
    let measured = Measured {
        recorder,
        elapsed,
        client_cpu: after.own_cpu.saturating_sub(before.own_cpu),
        server_cpu: after.server_cpu.zip(before.server_cpu).map(|(after, before)| after.saturating_sub(before)),
        round_trips: after.travelled.0 - before.travelled.0,
        one_way: after.travelled.1 - before.travelled.1,
        counters: pairs.map(|(after, before)| after.since(*before)).collect(),
        unsynced,
    };
    drop(house);
    clean(folder)?;
    Ok(measured)
}

/// Clients that begin together; what they measured, and how long it took until the last was done. The first that fails stops
/// all.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn clients(
    setting: &Setting,
    (case, rules): (&Case, &Rules),
    round: u32,
    interrupted: &AtomicBool,
) -> Result<(Recorder, Duration), BenchError> {
    let count = usize::try_from(case.clients).unwrap_or(usize::MAX);
    let begin = &Barrier::new(count + 1);
    let (stop, failed) = (AtomicBool::new(false), Mutex::<Option<BenchError>>::default());
    let (stop, failure) = (&stop, &failed);
    let (parts, start) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..case.clients)
            .map(|client| {
                scope.spawn(move || {
                    let worker = Worker::new(setting, (case, rules), [interrupted, stop], (client, round));
                    begin.wait();
                    worker.run().inspect_err(|error| {
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert_with(|| error.clone());
                        stop.store(true, Ordering::Relaxed);
                    })
                })
            })
            .collect();
        begin.wait();
        let start = Instant::now();
        (workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>(), start)
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut recorder = Recorder::default();
    let mut elapsed = Duration::ZERO;
    for part in parts {
        let (own, end) = part.unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "a client panicked")))?;
        recorder.merge(&own);
        elapsed = elapsed.max(end.saturating_duration_since(start));
    }
    Ok((recorder, elapsed))
}

/// Looks at what is not synced yet, until the clients have ended, and once then.
fn look_on(eyes: &Eyes<'_>, gate: &Gate) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        gate.wait(0, Some(LOOK));
        seen.extend(eyes.look().map(|all| all.iter().map(|it| it.unsynced).sum::<u64>()));
        if gate.value() != 0 {
            return seen;
        }
    }
}

impl Eyes<'_> {
    /// `None` where one does not answer: that is no zero. A server that does not answer now fails the cell when its counters are asked
    /// for.
    fn look(&self) -> Option<Vec<Counters>> {
        match self {
            Self::Admins(admins) => admins.iter().map(|admin| scrape(admin).ok()).collect(),
            Self::Here(setting) => Some(setting.counters()),
        }
    }
}

/// No state of an earlier cell is left.
fn clean(folder: &Path) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::disk(&format!("cleaning {}", folder.display()), &error);
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::create_dir_all(folder).map_err(failed)
}

impl House {
    fn make(
        folder: &Path,
        rules: &Rules,
        case: &Case,
        start: &mut Starter<'_>,
        traced: bool,
    ) -> Result<Self, BenchError> {
        clean(folder)?;
        let served = if case.place == Place::Served { rules.servers } else { 0 };
        let servers = (1..=served).map(|number| {
            let folder = folder.join(format!("server-{number}"));
            clean(&folder)?;
            start(case, &folder)
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let far = rules.delay != Delay::default();
        let proxies = servers.iter().filter(|_| far).map(|server| Proxy::start(&server.address, rules.delay));
        let proxies = proxies.collect::<Result<Vec<_>, _>>()?;
        let doors: Vec<Address> = if far {
            proxies.iter().map(|proxy| proxy.address().clone()).collect()
        } else {
            servers.iter().map(|server| server.address.clone()).collect()
        };
        let trace = traced.then(|| Arc::new(Trace::begin()));
        let setting = Setting::make(&folder.join("client"), case, rules, &doors, trace)?;
        Ok(Self { setting, proxies, servers })
    }

    /// Whom to ask while the clients run: where nothing may be unsynced nobody is asked, nor where one has nobody to ask.
    fn eyes(&self, case: &Case) -> Option<Eyes<'_>> {
        let is_lazy = case.rpo.max_ms > 0;
        let eyes = if self.servers.is_empty() {
            Eyes::Here(&self.setting)
        } else {
            Eyes::Admins(self.servers.iter().map(|server| server.admin.clone()).collect::<Option<_>>()?)
        };
        is_lazy.then_some(eyes)
    }

    fn look(&self) -> Result<Look, BenchError> {
        let proxied: Duration = self.proxies.iter().map(Proxy::cpu).sum();
        let processes: Option<Vec<u32>> = self.servers.iter().map(|server| server.process).collect();
        let server_cpu = processes.filter(|all| !all.is_empty()).and_then(|all| all.into_iter().map(cpu_of).sum());
        let counters: Vec<Counters> = if self.servers.is_empty() {
            self.setting.counters()
        } else {
            let asked = self.servers.iter().filter_map(|server| server.admin.as_ref()).map(scrape);
            asked.collect::<Result<_, _>>()?
        };
        let own_cpu = own_cpu().saturating_sub(proxied);
        Ok(Look { own_cpu, server_cpu, counters, travelled: self.setting.travelled() })
    }
}

impl Measured {
    fn merge(&mut self, more: Self) {
        self.recorder.merge(&more.recorder);
        self.elapsed += more.elapsed;
        self.client_cpu += more.client_cpu;
        self.server_cpu = match (self.server_cpu, more.server_cpu) {
            (Some(own), Some(more)) => Some(own + more),
            (own, more) => own.or(more),
        };
        self.round_trips += more.round_trips;
        self.one_way += more.one_way;
        if self.counters.is_empty() {
            self.counters = more.counters;
        } else {
            self.counters.iter_mut().zip(more.counters).for_each(|(own, more)| *own = own.and(more));
        }
        self.unsynced.extend(more.unsynced);
    }

    fn cell(&self, case: &Case, rules: &Rules) -> Result<Cell, BenchError> {
        let mut cell = Cell { labels: case.labels(), figures: self.figures(case, rules), ..Cell::default() };
        self.recorder.fill(&mut cell)?;
        Ok(cell)
    }

    fn figures(&self, case: &Case, rules: &Rules) -> Figures {
        let transactions = number(self.recorder.samples("total").map_or(0, |it| u64::try_from(it.len()).unwrap_or(0)));
        let (seconds, per_tx) = (self.elapsed.as_secs_f64().max(1e-9), |sum: f64| sum / transactions.max(1.0));
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let all = self.counters.iter().fold(Counters::default(), |sum, it| sum.and(*it));
        let mut figures: Vec<(&str, f64)> = vec![
            ("tps", transactions / seconds),
            ("transactions", transactions),
            ("cycles", f64::from(case.cycles)),
            ("elapsed_ms", seconds * 1e3),
            ("cpu_client_us_per_tx", per_tx(us(self.client_cpu))),
            ("cpu_client_percent", us(self.client_cpu) / seconds / 1e4),
            ("cpu_us_per_tx", per_tx(us(self.client_cpu + self.server_cpu.unwrap_or_default()))),
        ];
        if let Some(rate) = rules.rate {
            figures.push(("rate_per_s", rate));
        }
        if let Some(cpu) = self.server_cpu {
            figures.push(("cpu_server_us_per_tx", per_tx(us(cpu))));
            figures.push(("cpu_server_percent", us(cpu) / seconds / 1e4));
        }
        if case.place == Place::Served {
            figures.push(("round_trips_per_tx", per_tx(number(self.round_trips))));
            figures.push(("one_way_per_tx", per_tx(number(self.one_way))));
        }
        if !self.counters.is_empty() {
            figures.push(("disk_writes_per_s", number(all.writes) / seconds));
            figures.push(("disk_syncs_per_s", number(all.syncs) / seconds));
            figures.push(("disk_syncs_per_tx", per_tx(number(all.syncs))));
            figures.push(("decisions", number(all.decisions)));
        }
        // Where nobody looked there is nothing to tell, and not nothing unsynced.
        if let Some(most) = self.unsynced.iter().copied().max() {
            let looks = number(u64::try_from(self.unsynced.len()).unwrap_or(u64::MAX));
            figures.push(("unsynced", number(most)));
            figures.push(("unsynced_mean", number(self.unsynced.iter().sum()) / looks));
        }
        let mut figures: Figures = figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if self.counters.len() > 1 {
            for (server, counters) in self.counters.iter().enumerate() {
                figures.insert(format!("decisions_server_{}", server + 1), number(counters.decisions));
            }
        }
        figures
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// What the cells that have not ended will take: their sleeps, at the pace of those that have.
struct Eta<'r> {
    rules: &'r Rules,
    start: Instant,
    passed: Duration,
    all: Duration,
}

impl<'r> Eta<'r> {
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    fn new(rules: &'r Rules, cases: &[Case]) -> Self {
        let once: Duration = cases.iter().map(|case| expected(case, rules)).sum();
        Self { rules, start: Instant::now(), passed: Duration::ZERO, all: once * rules.rounds }
    }

    fn passed(&mut self, case: &Case) {
        self.passed += expected(case, self.rules);
    }

    fn left(&self) -> Duration {
        let (left, took) = (self.all.saturating_sub(self.passed), self.start.elapsed());
        if self.passed.is_zero() {
            return left;
        }
        left.mul_f64((took.as_secs_f64() / self.passed.as_secs_f64()).min(100.0))
    }
}

/// What a case takes: its sleeps where it has any, else a guess at its work.
fn expected(case: &Case, rules: &Rules) -> Duration {
    let (t1, t2) = (case.workload.t1.median_us, case.workload.t2.median_us);
    let work = match rules.branches {
        Branches::Dummy => 500,
        Branches::Kv => 2_000,
    };
    let cycle = Duration::from_micros(t1 * u64::from(rules.sleeps - 1) + t2 + work);
    let paced = rules.rate.map(|rate| Duration::from_secs_f64(f64::from(case.clients) / rate.max(1e-3)));
    OVERHEAD + paced.unwrap_or(cycle) * case.cycles
}

#[cfg(test)]
mod tests {
    use super::super::matrix::{Given, cases};
    use super::*;

    #[test]
    fn a_look_that_failed_is_no_look_and_without_one_nothing_is_told() {
        let (gate, case) = (Gate::default(), cases(None, &Given::default()).remove(0));
        // The clients have ended: one look.
        gate.set(1);
        // Port 1 of this machine: nobody listens.
        let seen = look_on(&Eyes::Admins(vec!["127.0.0.1:1".parse().unwrap()]), &gate);
        assert!(seen.is_empty(), "{seen:?}");
        let told = |unsynced: &[u64]| {
            let counters = vec![Counters::default()];
            let figures = Measured { counters, unsynced: unsynced.to_vec(), ..Measured::default() };
            let figures = figures.figures(&case, &Rules::default());
            ["decisions", "unsynced", "unsynced_mean"].map(|name| figures.get(name).copied())
        };
        assert_eq!(told(&seen), [Some(0.0), None, None]);
        assert_eq!(told(&[0, 0]), [Some(0.0), Some(0.0), Some(0.0)], "who looked and saw nothing says so");
        assert_eq!(told(&[3, 0, 6]), [Some(0.0), Some(6.0), Some(3.0)]);
    }
}
