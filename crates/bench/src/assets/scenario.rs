//! What a node does beside serving: it replays its log, catches up, writes a snapshot, or nothing at all.
//!
//! ```text
//!   replay     commands without a snapshot · every server killed · started again: until each has executed all of them
//!   catch-up   the standby killed · commands · the standby started again: until it is in the set
//!   snapshot   many assets: one while nothing else goes on, then beside a load that lasts until it is kept, taking turns with slices without
//!   idle       nobody asks anything: processor time
//! ```
//! Walk: [`Scenario`] has rows · [`run`] plays each over processes of its own (`place`), loaded as the race loads them (`load`); after a
//! restart the state must be the one before it.
//! Deliberately absent: a floor. A node is held against a number of its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assent_kind::Kind;
use assent_world::net::Address;
use assent_world::{Clock as _, Moment, RealClock};

use super::load::{Slice, drive};
use super::meter::Meter;
use super::place::{Program, Subject, make, remove, until, whole};
use super::speech::Speech;
use super::{Case, Role, Shape, Spread, audit};
use crate::BenchError;
use crate::report::sink::Sink;
use crate::report::{Cell, ChartKind, ChartSpec, Figures};
use crate::stats::{median, per_second};

/// Assets that commands fall on.
const LOADED_ASSETS: u64 = 100;
/// Beside many assets: so many of them are changed, so that a snapshot has pages to copy.
const CHANGED_ASSETS: u64 = 20_000;
const FILLED_BY: Shape = Shape { connections: 6, outstanding: 128 };
const BESIDE: Shape = Shape { connections: 6, outstanding: 16 };
/// No snapshot but those that are asked for.
const NEVER: &str = "1000000000000";
/// What takes longer has failed.
const AT_MOST: Duration = Duration::from_secs(300);

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// A restart with a log and no snapshot.
    Replay,
    /// A standby that missed commands.
    CatchUp,
    /// A snapshot of many assets.
    Snapshot,
    /// Nothing.
    Idle,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Replay, Self::CatchUp, Self::Snapshot, Self::Idle];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::CatchUp => "catch-up",
            Self::Snapshot => "snapshot",
            Self::Idle => "idle",
        }
    }

    /// That of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// Who runs, and what stands behind an answer. All servers of a replay are killed: with less than `durable` a pair would wait for a
    /// person's word.
    const fn rows(self) -> &'static [(Role, &'static str)] {
        match self {
            Self::Replay => &[(Role::Solo, "durable"), (Role::Pair, "durable")],
            Self::CatchUp => &[(Role::Pair, "received")],
            Self::Snapshot | Self::Idle => &[(Role::Solo, "written"), (Role::Pair, "received")],
        }
    }
}

/// What is played, and how much of it.
#[derive(Debug)]
pub struct Plan<'p> {
    /// What the processes are of.
    pub program: &'p Path,
    /// The folder of the servers; what a row leaves in it is removed.
    pub folder: &'p Path,
    /// Which.
    pub scenarios: &'p [Scenario],
    /// Commands that are replayed, or caught up.
    pub commands: u64,
    /// Assets in a snapshot.
    pub assets: u64,
    /// Snapshots while nothing else goes on, and beside a load.
    pub rounds: u32,
    /// How long a slice is.
    pub slice: Duration,
}

impl Plan<'_> {
    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.scenarios.iter().map(|scenario| scenario.rows().len()).sum()
    }
}

/// Plays every scenario and puts its rows into the report, also those that fail. `progress` is told the row that begins.
///
/// # Errors
/// What the disk says of the folder or the report; never what one row says.
pub fn run(plan: &Plan<'_>, sink: &Sink, mut progress: impl FnMut(usize, &str)) -> Result<(), BenchError> {
    make(plan.folder)?;
    let rows = plan.scenarios.iter().flat_map(|scenario| scenario.rows().iter().map(|row| (*scenario, *row)));
    for (number, (scenario, (role, ack))) in rows.enumerate() {
        if sink.interrupted() {
            return Ok(());
        }
        progress(number, &format!("{} {}", scenario.name(), role.name()));
        let folder = plan.folder.join(format!("{}-{}", scenario.name(), role.name()));
        make(&folder)?;
        let played = one(plan, scenario, role, ack, &folder);
        remove(&folder);
        let labels = [("scenario", scenario.name()), ("role", role.name()), ("ack", ack)];
        let mut cell = Cell::new(labels.map(|(name, value)| (name, value.to_owned())));
        match played {
            Ok(figures) => cell.figures = figures,
            Err(error) => cell.error = Some(error.to_string()),
        }
        sink.put(cell)?;
    }
    Ok(())
}

/// What is drawn of these scenarios.
#[must_use]
pub fn charts(scenarios: &[Scenario]) -> Vec<ChartSpec> {
    let bars = |title: &str, y: &[&str], y_title: &str, of: Scenario| ChartSpec {
        title: title.to_owned(),
        kind: ChartKind::Bars,
        x: "role".to_owned(),
        along: String::new(),
        y: y.iter().map(|name| (*name).to_owned()).collect(),
        series: vec!["scenario".to_owned()],
        only: [("scenario".to_owned(), vec![of.name().to_owned()])].into(),
        x_title: "who runs".to_owned(),
        y_title: y_title.to_owned(),
        x_log: false,
        y_log: false,
    };
    let of = |scenario: &Scenario| match scenario {
        Scenario::Replay => bars("Replay of a log", &["per_s"], "commands per second", *scenario),
        Scenario::CatchUp => bars("Catch-up of a standby", &["per_s"], "commands per second", *scenario),
        Scenario::Snapshot => {
            bars("Commands beside a snapshot", &["alone_per_s", "beside_per_s"], "commands per second", *scenario)
        }
        Scenario::Idle => bars("Processor time of nothing", &["core_percent"], "percent of a core", *scenario),
    };
    scenarios.iter().map(of).collect()
}

fn one(plan: &Plan<'_>, scenario: Scenario, role: Role, ack: &str, folder: &Path) -> Result<Figures, BenchError> {
    let mut extra = vec!["--snapshot-log-bytes".to_owned(), NEVER.to_owned()];
    if role == Role::Pair {
        extra.extend(["--snapshot-every".to_owned(), NEVER.to_owned()]);
    }
    let program = Program { path: plan.program.to_owned(), extra };
    let mut subject = Subject::open(&program, folder, &case(role, FILLED_BY, LOADED_ASSETS), ack)?;
    match scenario {
        Scenario::Replay => replay(plan, &program, &mut subject, role),
        Scenario::CatchUp => catch_up(plan, &program, &mut subject, role),
        Scenario::Snapshot => snapshot(plan, &subject, role),
        Scenario::Idle => Ok(idle(plan, &subject)),
    }
}

const fn case(role: Role, shape: Shape, assets: u64) -> Case {
    Case { role, shape, spread: Spread::Even, assets, rtt_us: 0, subscribers: 0 }
}

/// So many commands at least.
fn fill(plan: &Plan<'_>, subject: &Subject, role: Role) -> Result<u64, BenchError> {
    let mut done = 0;
    while done < plan.commands {
        done += drive(&subject.at, subject.speech, &case(role, FILLED_BY, LOADED_ASSETS), plan.slice)?.done;
    }
    Ok(done)
}

fn replay(plan: &Plan<'_>, program: &Program, subject: &mut Subject, role: Role) -> Result<Figures, BenchError> {
    audit::create(&subject.at, LOADED_ASSETS)?;
    let commands = fill(plan, subject, role)?;
    audit::agreed(&subject.nodes)?;
    let nodes = subject.nodes.clone();
    let before = state(&subject.at)?;
    let log_bytes = audit::status(&subject.at)?.stats.replay_bytes;
    let servers = subject.servers();
    subject.kill(&servers);
    let began = RealClock.now();
    subject.again(program, &servers)?;
    for node in &nodes {
        until("a restarted node has executed everything", AT_MOST, || Ok(state(node)?.0 >= before.0))?;
    }
    let took = since(began);
    let cpu_s = cpu_s(subject, &servers);
    if role == Role::Pair {
        // Which of two leads after both were started again is theirs to say.
        subject.at = whole(&nodes)?;
    }
    audit::agreed(&nodes)?;
    if audit::executed(&subject.at, LOADED_ASSETS)? != commands {
        return Err(lost("a restart"));
    }
    let mut figures = rate(commands, took, cpu_s);
    figures.insert("log_bytes".to_owned(), float(log_bytes));
    Ok(figures)
}

fn catch_up(plan: &Plan<'_>, program: &Program, subject: &mut Subject, role: Role) -> Result<Figures, BenchError> {
    audit::create(&subject.at, LOADED_ASSETS)?;
    let standby = [1];
    subject.kill(&standby);
    until("a primary goes on alone", AT_MOST, || {
        Ok(audit::status(&subject.at)?.group.is_some_and(|group| group.in_sync.len() == 1))
    })?;
    let commands = fill(plan, subject, role)?;
    let nodes = subject.nodes.clone();
    let before = cpu_s(subject, &[0]);
    let began = RealClock.now();
    subject.again(program, &standby)?;
    whole(&nodes)?;
    let took = since(began);
    let primary_cpu_s = cpu_s(subject, &[0]) - before;
    let standby_cpu_s = cpu_s(subject, &standby);
    audit::agreed(&nodes)?;
    if audit::executed(&subject.at, LOADED_ASSETS)? != commands {
        return Err(lost("a catch-up"));
    }
    let mut figures = rate(commands, took, primary_cpu_s + standby_cpu_s);
    figures.insert("cpu_standby_us".to_owned(), standby_cpu_s * 1e6 / float(commands).max(1.0));
    Ok(figures)
}

fn snapshot(plan: &Plan<'_>, subject: &Subject, role: Role) -> Result<Figures, BenchError> {
    audit::create(&subject.at, plan.assets)?;
    audit::agreed(&subject.nodes)?;
    let changed = case(role, Shape { connections: 1, outstanding: 1 }, 1);
    let (mut took_s, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds.max(1) {
        // One that nothing happened since is not written again.
        drive(&subject.at, subject.speech, &changed, Duration::from_millis(1))?;
        let began = RealClock.now();
        written(&subject.at, &AtomicBool::new(false))?;
        took_s.push(since(began).as_secs_f64());
    }
    let (mut alone, mut beside, mut under_load_s) = (Vec::new(), Vec::new(), Vec::new());
    let load = case(role, BESIDE, CHANGED_ASSETS.min(plan.assets));
    let slice = || drive(&subject.at, Speech::Assets, &load, plan.slice);
    for _ in 0..plan.rounds.max(1) {
        let with = beside_snapshots(&subject.nodes, slice)?;
        // As many slices without, so that both see the machine for as long.
        let mut without = Beside::default();
        for _ in 0..with.slices {
            without.add(&slice()?);
        }
        ratios.push(with.per_s() / without.per_s().max(1e-9));
        alone.push(without.per_s());
        beside.push(with.per_s());
        under_load_s.extend(with.snapshots_s);
    }
    let figures = [
        ("assets", float(plan.assets)),
        ("took_s", median(&took_s)),
        ("under_load_s", median(&under_load_s)),
        ("alone_per_s", median(&alone)),
        ("beside_per_s", median(&beside)),
        ("lost_percent", (1.0 - median(&ratios)) * 100.0),
    ];
    Ok(figures.map(|(name, value)| (name.to_owned(), value)).into())
}

/// A load in slices.
#[derive(Debug, Default)]
struct Beside {
    done: usize,
    took: Duration,
    slices: u32,
    /// How long each node's snapshot took meanwhile.
    snapshots_s: Vec<f64>,
}

impl Beside {
    fn add(&mut self, slice: &Slice) {
        self.done += slice.samples.len();
        self.took += slice.took;
        self.slices += 1;
    }

    fn per_s(&self) -> f64 {
        per_second(self.done, self.took)
    }
}

/// A load while each node writes a snapshot, in slices until the last of them is kept.
fn beside_snapshots(nodes: &[Address], slice: impl Fn() -> Result<Slice, BenchError>) -> Result<Beside, BenchError> {
    let (stop, mut beside) = (AtomicBool::new(false), Beside::default());
    std::thread::scope(|scope| {
        let write = |node: &Address| {
            let (node, stop) = (node.clone(), &stop);
            scope.spawn(move || {
                let began = RealClock.now();
                written(&node, stop)?;
                Ok::<_, BenchError>(since(began).as_secs_f64())
            })
        };
        // Something must have happened since the last one.
        slice()?;
        let writers: Vec<_> = nodes.iter().map(write).collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            match slice() {
                Ok(slice) => beside.add(&slice),
                Err(error) => {
                    stop.store(true, Ordering::SeqCst);
                    return Err(error);
                }
            }
        }
        for writer in writers {
            let panicked = |_| Err(BenchError::new(Kind::Internal, "who asks for snapshots panicked"));
            beside.snapshots_s.push(writer.join().unwrap_or_else(panicked)?);
        }
        Ok(beside)
    })
}

/// Has a node write a snapshot, and waits until it is kept: then less is to be replayed than a moment before. False where it was told to
/// stop waiting: where nothing new happened since the last one, none is written.
fn written(node: &Address, stop: &AtomicBool) -> Result<bool, BenchError> {
    // Looked at before it is asked for: a short one is kept when the answer comes.
    let mut before = audit::status(node)?.stats.replay_bytes;
    let mut now = audit::snapshot(node)?.stats.replay_bytes;
    until("a snapshot is kept", AT_MOST, || {
        if now < before || stop.load(Ordering::SeqCst) {
            return Ok(true);
        }
        (before, now) = (now, audit::status(node)?.stats.replay_bytes);
        Ok(now < before)
    })?;
    Ok(now < before)
}

/// Processor time of nothing, in percent of one core.
fn idle(plan: &Plan<'_>, subject: &Subject) -> Figures {
    // What a start leaves to be done is done.
    RealClock.sleep(Duration::from_secs(1));
    let look = || -> Vec<(&'static str, Meter)> {
        subject.processes().map(|(name, process)| (name, Meter::of(process))).collect()
    };
    let (before, began) = (look(), RealClock.now());
    RealClock.sleep((plan.slice * plan.rounds).max(Duration::from_secs(5)));
    let seconds = since(began).as_secs_f64();
    let mut figures = Figures::new();
    let mut most = 0_f64;
    for ((name, before), (_, after)) in before.into_iter().zip(look()) {
        let percent = (after - before).cpu_s * 100.0 / seconds;
        figures.insert(format!("core_percent_{name}"), percent);
        most = most.max(percent);
    }
    figures.insert("core_percent".to_owned(), most);
    figures
}

fn state(node: &Address) -> Result<(u64, u64), BenchError> {
    audit::status(node).map(|status| (status.stats.sequence.0, status.stats.hash))
}

fn since(began: Moment) -> Duration {
    RealClock.now().since(began)
}

fn cpu_s(subject: &Subject, which: &[usize]) -> f64 {
    let of = |at: &usize| subject.processes().nth(*at).map_or(0.0, |(_, process)| Meter::of(process).cpu_s);
    which.iter().map(of).sum()
}

fn rate(commands: u64, took: Duration, cpu_s: f64) -> Figures {
    let count = float(commands).max(1.0);
    let figures = [
        ("commands", count),
        ("took_s", took.as_secs_f64()),
        ("per_s", count / took.as_secs_f64().max(1e-9)),
        ("cpu_servers_us", cpu_s * 1e6 / count),
    ];
    figures.map(|(name, value)| (name.to_owned(), value)).into()
}

fn lost(after: &str) -> BenchError {
    BenchError::new(Kind::Corrupt, format!("what was answered is not what is there after {after}"))
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_has_a_name_rows_and_a_chart() {
        for scenario in Scenario::ALL {
            assert_eq!(Scenario::named(scenario.name()), Some(scenario));
            assert!(!scenario.rows().is_empty());
            let charts = charts(&[scenario]);
            let chart = &charts[0];
            assert_eq!(chart.only["scenario"], [scenario.name()]);
        }
        assert_eq!(Scenario::named("race"), None);
    }

    #[test]
    fn a_rate_is_of_all_commands_and_all_processors() {
        let figures = rate(2_000_000, Duration::from_secs(4), 1.0);
        assert_eq!((figures["per_s"], figures["cpu_servers_us"], figures["took_s"]), (500_000.0, 0.5, 4.0));
    }
}
