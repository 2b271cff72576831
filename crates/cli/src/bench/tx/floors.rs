//! The floors of a run: the same bytes and think times without us. They are measured at its beginning, in its middle and at
//! its end, and their samples pooled, so that a slow quarter of an hour of the machine is slow for both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assent_bench::BenchError;
use assent_bench::floor::echo::{self, Answer, Load};
use assent_bench::floor::{Floor, Way, kept};
use assent_bench::pace::Think;
use assent_bench::report::sink::Sink;
use assent_bench::stats::Samples;
use assent_bench::tx::Rules;
use assent_bench::tx::axes::{Case, Workload};
use assent_kind::Kind;

/// Bytes of the floor's write: about what a decision with two branches takes.
const BYTES: usize = 256;
const SLICE: Duration = Duration::from_millis(150);
/// Writes that follow a sleep each, and that sleep.
const IDLE_WRITES: u32 = 200;
const IDLE: Duration = Duration::from_millis(1);
/// Messages of an echo without think time.
const ECHOES: u32 = 2_000;
/// What the clients of one load sleep in all, at most.
const SLEEPS_US: u64 = 1_000_000;

/// The floors, as far as they are known.
pub(super) struct Floors {
    folder: PathBuf,
    loads: Vec<(String, Load)>,
    /// Calls so far, and those that measure.
    call: usize,
    moments: Vec<usize>,
    /// The durable writes, and the best way of them so far.
    writes: Option<(Floor, Way)>,
    pooled: BTreeMap<String, Samples>,
}

impl Floors {
    pub(super) fn new(folder: &Path, cases: &[Case], rules: &Rules) -> Self {
        let cells = cases.len() * usize::try_from(rules.rounds).unwrap_or(1);
        // A run of a cell or two is not worth three moments.
        let moments = if cells < 3 { vec![0] } else { vec![0, cells / 2, cells] };
        let folder = folder.join("assent-bench-floors");
        Self { folder, loads: loads(cases, rules), call: 0, moments, writes: None, pooled: BTreeMap::new() }
    }

    /// Is called before each cell and after the last.
    pub(super) fn measure(&mut self, sink: &Sink) -> Result<(), BenchError> {
        let call = self.call;
        self.call += 1;
        if !self.moments.contains(&call) {
            return Ok(());
        }
        let made = std::fs::create_dir_all(&self.folder);
        made.map_err(|error| BenchError { kind: Kind::Unavailable, message: format!("the floors' folder: {error}") })?;
        self.writes(sink)?;
        self.echoes(sink)
    }

    fn writes(&mut self, sink: &Sink) -> Result<(), BenchError> {
        let mut floor = match self.writes.take() {
            Some((floor, _)) => floor,
            None => Floor::new(&self.folder, BYTES)?,
        };
        floor.slice(SLICE)?;
        floor.slice(SLICE)?;
        let best = floor.best().map_or(Way::DirectDataSync, |best| best.way);
        floor.kept().into_iter().try_for_each(|floor| sink.put_floor(floor))?;
        let idle = floor.idle(IDLE_WRITES, IDLE)?;
        self.writes = Some((floor, best));
        self.pool(sink, format!("durable write of {BYTES} bytes, the best way, each after 1 ms of sleep"), &idle)
    }

    fn echoes(&mut self, sink: &Sink) -> Result<(), BenchError> {
        let (one, stop) = (Load { clients: 1, messages: ECHOES, think: Vec::new() }, sink.flag());
        let bare = echo::run(&Answer::AtOnce, &one, &stop)?;
        self.pool(sink, "echo over loopback, one client".to_owned(), &bare)?;
        let way = self.writes.as_ref().map_or(Way::DirectDataSync, |(_, way)| *way);
        for (name, load) in self.loads.clone() {
            let answer = Answer::Durable { folder: &self.folder, way, bytes: BYTES };
            let samples = echo::run(&answer, &load, &stop)?;
            self.pool(sink, name, &samples)?;
        }
        Ok(())
    }

    fn pool(&mut self, sink: &Sink, name: String, more: &Samples) -> Result<(), BenchError> {
        if more.is_empty() {
            // Stopped before its first message.
            return Ok(());
        }
        let all = self.pooled.entry(name.clone()).or_default();
        all.extend(more);
        sink.put_floor(kept(name, &all.latency()))
    }
}

impl Drop for Floors {
    fn drop(&mut self) {
        // Its files first, which are in there. What cannot be removed is in nobody's way.
        self.writes = None;
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A bare server with the sleeps of the quickest workload: one client, and the fewest and the most of the cases.
fn loads(cases: &[Case], rules: &Rules) -> Vec<(String, Load)> {
    let quickest = cases.iter().map(|case| &case.workload).min_by_key(|it| cycle_us(&think(it, rules)));
    let Some(workload) = quickest else { return Vec::new() };
    let think = think(workload, rules);
    let clients = cases.iter().map(|case| case.clients);
    let mut clients = vec![1, clients.clone().min().unwrap_or(1), clients.max().unwrap_or(1)];
    clients.dedup();
    let messages = u32::try_from(SLEEPS_US / cycle_us(&think).max(1)).unwrap_or(u32::MAX).clamp(10, 1_000);
    let load = |clients| {
        let plural = if clients == 1 { "" } else { "s" };
        let name = format!("echo and sync, the best way: {clients} client{plural}, sleeps as {}", workload.name);
        (name, Load { clients, messages, think: think.clone() })
    };
    clients.into_iter().map(load).collect()
}

/// The sleeps of a cycle.
fn think(workload: &Workload, rules: &Rules) -> Vec<Think> {
    let t1 = vec![workload.t1; usize::try_from(rules.sleeps).unwrap_or(5) - 1];
    t1.into_iter().chain([workload.t2]).filter(|think| think.median_us > 0).collect()
}

fn cycle_us(think: &[Think]) -> u64 {
    think.iter().map(|think| think.median_us).sum()
}

#[cfg(test)]
mod tests {
    use assent_bench::host::Host;
    use assent_bench::report::Report;
    use assent_bench::report::sink::Outputs;
    use assent_bench::tx::matrix::{Given, Matrix, cases};

    use super::*;

    #[test]
    fn a_bare_server_has_the_sleeps_of_the_quickest_workload() {
        let all = loads(&cases(Some(Matrix::Short), &Given::default()), &Rules::default());
        let clients: Vec<u32> = all.iter().map(|(_, load)| load.clients).collect();
        assert_eq!(clients, [1, 10, 100]);
        assert!(
            all.iter().all(|(name, load)| load.think.len() == 5 && load.messages == 200 && name.contains("extreme"))
        );
    }

    #[test]
    fn floors_are_measured_at_three_moments_of_a_run_and_keep_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let none = Given { workloads: Workload::named("none").into_iter().collect(), ..Given::default() };
        let cases = cases(None, &Given { clients: vec![1, 2, 3, 4], ..none });
        let sink = Sink::new(Report::new("tx", "", String::new(), Host::default()), Outputs::default()).unwrap();
        let mut floors = Floors::new(folder.path(), &cases, &Rules::default());
        let mut counts = Vec::new();
        for _ in 0..=cases.len() {
            floors.measure(&sink).unwrap();
            let echo = sink.report().floors.iter().find(|it| it.name == "echo over loopback, one client").cloned();
            counts.push(echo.unwrap().figures["samples"]);
        }
        let set = f64::from(ECHOES);
        assert_eq!(counts, [set, set, 2.0 * set, 2.0 * set, 3.0 * set]);
        // Four hot ways, one after a sleep, one echo, and echoes with a sync for 1 and 4 clients.
        assert_eq!(sink.report().floors.len(), 4 + 1 + 1 + 2);
        drop(floors);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left behind");
    }
}
