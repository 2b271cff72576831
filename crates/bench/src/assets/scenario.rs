//! What a node does beside serving: it replays its log, catches up, writes a snapshot, or nothing at all.
//!
//! ```text
//!   replay     commands without a snapshot · every server killed · started again: until each has executed all of them
//!   catch-up   the standby killed · commands · the standby started again: until it has executed them
//!   snapshot   beside a load: many of some assets, which take turns with as long without one · then one of many assets while nothing goes on
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
use super::place::{Program, Subject, make, remove, until, until_each, whole};
use super::speech::Speech;
use super::{Case, Role, Shape, Spread, audit};
use crate::BenchError;
use crate::report::sink::Sink;
use crate::report::{Cell, ChartKind, ChartSpec, Figures};
use crate::stats::{median, median_within, per_second};

/// Assets that commands fall on.
const LOADED_ASSETS: u64 = 100;
/// Beside many assets: so many of them are changed, so that a snapshot has pages to copy.
const CHANGED_ASSETS: u64 = 20_000;
const FILLED_BY: Shape = Shape { connections: 6, outstanding: 128 };
const BESIDE: Shape = Shape { connections: 6, outstanding: 16 };
/// A snapshot beside a load is of so many assets at most: a second or two at its pace, so that many of them can take turns with none. All
/// pages that are changed are copied within that time: a longer one of more assets costs less a second.
const BESIDE_ASSETS: u64 = 250_000;
/// Snapshots beside a load, for each round; one slice lasts so long at most, and so many of them come before the first.
const TURNS: u32 = 8;
const SLICE_MAX: Duration = Duration::from_millis(100);
const SLICES: u32 = 10;
/// How often a node is asked whether its snapshot is kept: beside a load seldom, since that costs it as much as a hundred commands.
const LOOK_ALONE: Duration = Duration::from_millis(3);
const LOOK_BESIDE: Duration = Duration::from_millis(50);
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
    /// Snapshots while nothing else goes on; beside a load there are eight times as many.
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
    let (everything, before) = (state(&subject.at)?.0, cpu_s(subject, &[0]));
    let began = RealClock.now();
    subject.again(program, &standby)?;
    // In the set it has everything, and is not yet through with it.
    whole(&nodes)?;
    for node in &nodes {
        until("a standby has executed everything", AT_MOST, || Ok(state(node)?.0 >= everything))?;
    }
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
    let beside = BESIDE_ASSETS.min(plan.assets);
    audit::create(&subject.at, beside)?;
    let turns = take_turns(plan, subject, &case(role, BESIDE, CHANGED_ASSETS.min(beside)))?;
    if plan.assets > beside {
        audit::create_more(&subject.at, beside + 1..=plan.assets)?;
    }
    audit::agreed(&subject.nodes)?;
    let changed = case(role, Shape { connections: 1, outstanding: 1 }, 1);
    let mut took_s = Vec::new();
    for _ in 0..plan.rounds.max(1) {
        // One that nothing happened since is not written again.
        drive(&subject.at, subject.speech, &changed, Duration::from_millis(1))?;
        let began = RealClock.now();
        written(&subject.at, LOOK_ALONE, &AtomicBool::new(false))?;
        took_s.push(since(began).as_secs_f64());
    }
    let mut figures = turns.figures();
    figures.insert("assets".to_owned(), float(plan.assets));
    figures.insert("took_s".to_owned(), median(&took_s));
    Ok(figures)
}

/// What a load does beside a snapshot and without one, in turns of a second or two: a ratio is one of neighbours, so that it tells of the
/// snapshot and not of a machine that becomes slower.
#[derive(Debug, Default)]
struct Turns {
    /// A second: one more of these, since each snapshot stands between two.
    without: Vec<f64>,
    with: Vec<f64>,
    /// How long each node's snapshot took meanwhile.
    snapshots_s: Vec<f64>,
}

impl Turns {
    /// Each turn by the mean of its neighbours.
    fn lost_percent(turns: &[f64], neighbours: impl Fn(usize) -> Option<(f64, f64)>) -> Vec<f64> {
        let lost = |(at, own): (usize, &f64)| {
            let (before, after) = neighbours(at)?;
            Some((1.0 - own * 2.0 / (before + after).max(1e-9)) * 100.0)
        };
        turns.iter().enumerate().filter_map(lost).collect()
    }

    fn figures(&self) -> Figures {
        let at = |at: usize| self.without.get(at).copied();
        let lost = Self::lost_percent(&self.with, |turn| at(turn).zip(at(turn + 1)));
        // The same of turns in which there was no snapshot: what the machine does by itself.
        let still = Self::lost_percent(&self.without, |turn| at(turn.checked_sub(1)?).zip(at(turn + 1)));
        let ((low, high), (still_low, still_high)) = (median_within(&lost), median_within(&still));
        let figures = [
            ("turns", float(u64::try_from(self.with.len()).unwrap_or(0))),
            ("under_load_s", median(&self.snapshots_s)),
            ("alone_per_s", median(&self.without)),
            ("beside_per_s", median(&self.with)),
            ("lost_percent", median(&lost)),
            ("lost_percent_low", low),
            ("lost_percent_high", high),
            ("still_percent_low", still_low),
            ("still_percent_high", still_high),
        ];
        figures.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

fn take_turns(plan: &Plan<'_>, subject: &Subject, load: &Case) -> Result<Turns, BenchError> {
    let length = plan.slice.min(SLICE_MAX);
    let slice = || drive(&subject.at, Speech::Assets, load, length);
    let (mut turns, mut slices) = (Turns::default(), SLICES);
    let without = |slices: u32| (0..slices).map(|_| slice()).collect::<Result<Vec<_>, _>>().map(|all| rate_of(&all));
    // Who starts is slow.
    without(slices)?;
    turns.without.push(without(slices)?);
    for _ in 0..plan.rounds.max(1) * TURNS {
        let with = beside_snapshots(&subject.nodes, slice, &mut turns.snapshots_s)?;
        turns.with.push(rate_of(&with));
        // As many slices without, so that both see the machine for as long.
        slices = u32::try_from(with.len()).unwrap_or(slices);
        turns.without.push(without(slices)?);
    }
    Ok(turns)
}

fn rate_of(slices: &[Slice]) -> f64 {
    per_second(slices.iter().map(|slice| slice.samples.len()).sum(), slices.iter().map(|slice| slice.took).sum())
}

/// A load while each node writes a snapshot: the slices that were over before the first of them was kept, one at least.
fn beside_snapshots(
    nodes: &[Address],
    slice: impl Fn() -> Result<Slice, BenchError>,
    took_s: &mut Vec<f64>,
) -> Result<Vec<Slice>, BenchError> {
    let (stop, mut slices) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        let write = |node: &Address| {
            let (node, stop) = (node.clone(), &stop);
            scope.spawn(move || {
                let began = RealClock.now();
                written(&node, LOOK_BESIDE, stop)?;
                Ok::<_, BenchError>(since(began).as_secs_f64())
            })
        };
        let writers: Vec<_> = nodes.iter().map(write).collect();
        loop {
            let slice = slice().inspect_err(|_| stop.store(true, Ordering::SeqCst))?;
            let is_kept = writers.iter().any(std::thread::ScopedJoinHandle::is_finished);
            if !is_kept || slices.is_empty() {
                slices.push(slice);
            }
            if is_kept {
                break;
            }
        }
        for writer in writers {
            let panicked = |_| Err(BenchError::new(Kind::Internal, "who asks for snapshots panicked"));
            took_s.push(writer.join().unwrap_or_else(panicked)?);
        }
        Ok(slices)
    })
}

/// Has a node write a snapshot, and waits until it is kept: then less is to be replayed than a moment before. False where it was told to
/// stop waiting: where nothing new happened since the last one, none is written.
fn written(node: &Address, look: Duration, stop: &AtomicBool) -> Result<bool, BenchError> {
    // Looked at before it is asked for: a short one is kept when the answer comes.
    let mut before = audit::status(node)?.stats.replay_bytes;
    let mut now = audit::snapshot(node)?.stats.replay_bytes;
    until_each(look, "a snapshot is kept", AT_MOST, || {
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
    fn a_snapshot_that_costs_a_tenth_is_told_apart_from_a_machine_that_becomes_slower() {
        // The machine loses a hundredth with each turn, and a snapshot a tenth.
        let speed = |turn: u32| 1_000.0 * 0.99_f64.powi(i32::try_from(turn).unwrap());
        let turns = Turns {
            without: (0..=24).map(|turn| speed(2 * turn)).collect(),
            with: (0..24).map(|turn| speed(2 * turn + 1) * 0.9).collect(),
            snapshots_s: vec![1.0],
        };
        let figures = turns.figures();
        for (figure, is) in [("lost_percent", 10.0), ("lost_percent_low", 10.0), ("lost_percent_high", 10.0)] {
            assert!((figures[figure] - is).abs() < 0.05, "{figures:?}");
        }
        assert!(figures["still_percent_low"].abs() < 0.1 && figures["still_percent_high"].abs() < 0.1, "{figures:?}");
        assert!(figures["turns"] > 23.0);
    }

    #[test]
    fn a_rate_is_of_all_commands_and_all_processors() {
        let figures = rate(2_000_000, Duration::from_secs(4), 1.0);
        assert_eq!((figures["per_s"], figures["cpu_servers_us"], figures["took_s"]), (500_000.0, 0.5, 4.0));
    }
}
