//! The cells of a run: each in a process of its own, under the same limit of memory, all stores of a workload in turn.
//!
//! Walk: [`check`] refuses a report of other settings · [`run`] takes round by round, case by case, store by store, in an order that is
//! turned each round, but what the report has already · one cell: its folder is made, its process started, caged, told its job; its
//! samples are read until its last word; its folder is removed and the disk left quiet · rounds of a cell are one cell of the report
//! ([`pool`]) · what a cell begins with may be kept ([`super::loads`]).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::{Clock as _, Disk as _, Gate, RealClock, RealDisk};

use super::cage::Cage;
use super::client::now;
use super::loads::{self, Loads};
use super::scenario::{Begin, Case, Job};
use super::store::{Member, Named};
use super::{cell, pipe};
use crate::BenchError;
use crate::record::Recorder;
use crate::report::pool::{differ, pool};
use crate::report::sink::Sink;
use crate::report::{Cell, Labels, Report};

/// How often the race looks whether it was stopped while a cell runs or the disk rests.
const LOOK: Duration = Duration::from_millis(100);
/// What a cell takes beside its duration, at a guess, until cells have shown it.
const OVERHEAD: Duration = Duration::from_secs(3);

/// A program that runs cells: `PROGRAM ARGUMENTS.. members` and `PROGRAM ARGUMENTS.. cell`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What stands before its verb.
    pub arguments: Vec<String>,
}

/// Who runs a cell.
#[derive(Clone, Debug)]
pub enum Runner<'r> {
    /// This process; memory is not limited and figures of it are of all cells together. For tests.
    Here(&'r [Member]),
    /// A process for each cell.
    Program(&'r Program),
}

/// A run.
#[derive(Debug)]
pub struct Plan<'p> {
    /// The folder of the cells; it is cleaned before and after each.
    pub folder: &'p Path,
    /// What is run.
    pub cases: &'p [Case],
    /// Who takes part, in the order of the first round.
    pub stores: &'p [Named],
    /// How often.
    pub rounds: u32,
    /// The limit of memory, page cache included.
    pub memory_bytes: Option<u64>,
    /// Keeps what is loaded before the clock starts in this folder, once for each store, and gives each cell a copy of it.
    pub loads: Option<&'p Path>,
    /// By whom.
    pub runner: Runner<'p>,
}

/// How far a run has come.
#[derive(Debug)]
pub struct Progress<'p> {
    /// Cells that have ended.
    pub done: usize,
    /// All of them, rounds counted.
    pub of: usize,
    /// The one that begins, or has just ended.
    pub labels: &'p Labels,
    /// What came of it; `None` when it begins.
    pub ended: Option<&'p Cell>,
    /// What the rest will take, by the time of those that have ended.
    pub left: Duration,
}

impl Program {
    /// Who takes part.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] where the program cannot be run or says something else.
    pub fn members(&self) -> Result<Vec<Named>, BenchError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let wrong = |what: String| BenchError::new(Kind::Unavailable, format!("asking {name} for its members: {what}"));
        let output = Command::new(&self.path).args(&self.arguments).arg("members").stdin(Stdio::null()).output();
        let output = output.map_err(|error| wrong(error.to_string()))?;
        if !output.status.success() {
            return Err(wrong(format!("{}: {}", output.status, last_line(&output.stderr))));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.to_string()))
    }
}

/// Runs every cell of a plan and puts it into the report, also those that fail; rounds that the report has already are not run again, nor
/// cells that failed.
///
/// # Errors
/// What the disk says of the folders or the report, [`Kind::Invalid`] where the report has a cell with other settings, and [`Kind::Busy`]
/// where another race has the folder of loads; never what one cell says.
pub fn run(plan: &Plan<'_>, sink: &Sink, mut progress: impl FnMut(&Progress<'_>)) -> Result<(), BenchError> {
    check(plan, &sink.report())?;
    let _lock = plan.loads.map(loads::lock).transpose()?;
    let limit = limited(plan, sink);
    let known = sink.report().cells.into_iter().map(|cell| (cell.labels.clone(), cell));
    let mut known: BTreeMap<Labels, Cell> = known.collect();
    let turns: Vec<Turn<'_>> = turns(plan, limit).filter(|turn| !is_done(turn, &known)).collect();
    for store in plan.stores {
        sink.note(store.about.clone());
    }
    let of = plan.cases.len() * plan.stores.len() * usize::try_from(plan.rounds).unwrap_or(1);
    let (before, mut eta) = (of - turns.len(), Eta::new(&turns));
    for (done, Turn { case, store, cell, .. }) in (before..).zip(turns) {
        if sink.interrupted() {
            return Ok(());
        }
        let labels = cell.labels.clone();
        let is_failed = known.get(&labels).is_some_and(|known| known.error.is_some());
        if !is_failed {
            progress(&Progress { done, of, labels: &labels, ended: None, left: eta.left() });
            clean(plan.folder)?;
            let outcome = one(plan, (case, store), limit, sink)?;
            settle(plan.folder)?;
            if sink.interrupted() {
                // Killed half way: no figure of it means anything.
                return Ok(());
            }
            let ended = match outcome {
                Ok(ran) => Cell { labels: cell.labels, settings: cell.settings, ..ran },
                Err(error) => Cell { error: Some(error.message), ..cell },
            };
            let ended = pool(&known.remove(&labels).into_iter().chain([ended]).collect::<Vec<_>>());
            known.insert(labels.clone(), ended.clone());
            sink.put(ended)?;
        }
        eta.passed(case);
        progress(&Progress { done: done + 1, of, labels: &labels, ended: known.get(&labels), left: eta.left() });
    }
    Ok(())
}

/// Whether the cells that a report has, also those that are whole or that failed, were run with the settings of this plan.
///
/// # Errors
/// [`Kind::Invalid`] with the first setting that differs.
pub fn check(plan: &Plan<'_>, report: &Report) -> Result<(), BenchError> {
    let differs = |turn: Turn<'_>| {
        let known = report.cells.iter().find(|known| known.labels == turn.cell.labels)?;
        differ(known, &turn.cell)
    };
    // What is set is the same in every round.
    match turns(plan, limit(plan).ok()).take_while(|turn| turn.round == 0).find_map(differs) {
        Some(error) => Err(BenchError::new(Kind::Invalid, format!("the report cannot be gone on with: {error}"))),
        None => Ok(()),
    }
}

/// One cell in one round.
struct Turn<'p> {
    round: u32,
    case: &'p Case,
    store: &'p Named,
    /// Its labels and settings.
    cell: Cell,
}

fn turns<'p>(plan: &'p Plan<'_>, limit: Option<u64>) -> impl Iterator<Item = Turn<'p>> {
    let of = move |round: u32, case: &'p Case| {
        turned(plan.stores, round).map(move |store| {
            let mut cell = Cell { labels: case.labels(), settings: case.settings(), ..Cell::default() };
            cell.labels.insert("store".to_owned(), store.name.clone());
            let memory = limit.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
            let loaded = if case.preload && plan.loads.is_some() { "a copy" } else { "by itself" };
            let more = [("store", store.about.as_str()), ("memory bytes", &memory), ("loaded", loaded)];
            cell.settings.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
            Turn { round, case, store, cell }
        })
    };
    (0..plan.rounds).flat_map(move |round| plan.cases.iter().flat_map(move |case| of(round, case)))
}

/// Whether the report has this round; of a cell that failed, all.
fn is_done(turn: &Turn<'_>, known: &BTreeMap<Labels, Cell>) -> bool {
    let rounds = |cell: &Cell| u32::try_from(cell.rounds().len()).unwrap_or(u32::MAX);
    known.get(&turn.cell.labels).is_some_and(|cell| cell.error.is_some() || rounds(cell) > turn.round)
}

/// The limit of memory, or why there is none.
fn limit(plan: &Plan<'_>) -> Result<u64, String> {
    match (plan.memory_bytes, &plan.runner) {
        (None, _) => Err("none was asked for".to_owned()),
        (Some(_), Runner::Here(_)) => Err("all cells run in one process".to_owned()),
        (Some(bytes), Runner::Program(_)) => Cage::make(bytes).map(|_| bytes),
    }
}

/// Whether memory can be limited; the report says so or why not.
fn limited(plan: &Plan<'_>, sink: &Sink) -> Option<u64> {
    match limit(plan) {
        Ok(bytes) => {
            sink.note(format!(
                "Each store runs in a process of its own, limited to {} MiB with its page cache.",
                bytes >> 20
            ));
            Some(bytes)
        }
        Err(why) => {
            sink.note(format!("No memory limit: {why}."));
            None
        }
    }
}

/// Each round another store begins.
fn turned(stores: &[Named], round: u32) -> impl Iterator<Item = &Named> {
    let first = usize::try_from(round).unwrap_or(0) % stores.len().max(1);
    stores.iter().cycle().skip(first).take(stores.len())
}

/// One round of one store in one case: what came of it, or why the race cannot go on.
fn one(
    plan: &Plan<'_>,
    (case, store): (&Case, &Named),
    limit: Option<u64>,
    sink: &Sink,
) -> Result<Result<Cell, BenchError>, BenchError> {
    let job =
        |folder: &Path, begin| Job { store: store.name.clone(), folder: folder.to_owned(), begin, case: case.clone() };
    let Some(folder) = plan.loads.filter(|_| case.preload) else {
        return Ok(work(plan, &job(plan.folder, Begin::Empty), limit, sink));
    };
    // No load waits for the disk before its end: one serves cells with sync and without.
    let load = |folder: &Path| {
        let job = job(folder, Begin::Load);
        let job = Job { case: Case { sync: false, ..job.case }, ..job };
        work(plan, &job, limit, sink).map(|cell| cell.figures)
    };
    let loaded = match Loads::new(folder, limit).copy(case, store, plan.folder, load)? {
        Ok(loaded) => loaded,
        Err(error) => return Ok(Err(error)),
    };
    rest(loads::rest(plan.folder), sink);
    Ok(work(plan, &job(plan.folder, Begin::Loaded), limit, sink).map(|mut cell| {
        cell.figures.extend(loaded);
        cell
    }))
}

/// Nobody does anything for as long, unless the race is stopped.
fn rest(how_long: Duration, sink: &Sink) {
    let begun = now();
    while begun.elapsed() < how_long && !sink.interrupted() {
        RealClock.sleep(LOOK.min(how_long));
    }
}

/// A job, done by whoever does that.
fn work(plan: &Plan<'_>, job: &Job, limit: Option<u64>, sink: &Sink) -> Result<Cell, BenchError> {
    let mut made = Cell::default();
    let (recorder, done) = match plan.runner {
        Runner::Here(members) => {
            let recorder = Mutex::new(Recorder::default());
            let done = cell::run(job, members, &recorder)?;
            (recorder.into_inner().unwrap_or_else(PoisonError::into_inner), done)
        }
        Runner::Program(program) => {
            let (recorder, mut done, peak) = apart(program, job, limit, sink)?;
            if let Some(peak) = peak {
                done.figures.insert("memory_peak_mb".to_owned(), super::number(peak) / 1_048_576.0);
            }
            (recorder, done)
        }
    };
    made.figures = done.figures;
    made.series = done.series;
    recorder.fill(&mut made)?;
    Ok(made)
}

/// A cell in a process of its own, caged before it is told anything.
fn apart(
    program: &Program,
    job: &Job,
    limit: Option<u64>,
    sink: &Sink,
) -> Result<(Recorder, pipe::Done, Option<u64>), BenchError> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| BenchError::new(Kind::Unavailable, format!("{what}: {error}"));
    let cage = limit.map(Cage::make).transpose().map_err(|why| failed("the limit of memory", &why))?;
    let said = beside(&job.folder);
    #[expect(clippy::disallowed_methods, reason = "what a child process says goes to a file beside its folder")]
    let err = std::fs::File::create(&said).map_err(|error| BenchError::disk("keeping what the cell says", &error))?;
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).arg("cell").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err);
    // A signal of the terminal does not reach it: the race hears it, and ends it.
    let mut child = command.process_group(0).spawn().map_err(|error| failed("starting the cell's process", &error))?;
    let told = cage.as_ref().map_or(Ok(()), |cage| cage.take(child.id())).and_then(|()| tell(&mut child, job));
    let mut recorder = Recorder::default();
    let heard = match told {
        Ok(()) => hear(&mut child, &mut recorder, sink),
        Err(why) => Err(failed("telling the cell's process", &why)),
    };
    if heard.is_err() {
        _ = child.kill();
    }
    let status = child.wait().map_err(|error| failed("waiting for the cell's process", &error))?;
    #[expect(clippy::disallowed_methods, reason = "what a child process has said")]
    let words = std::fs::read(&said).unwrap_or_default();
    _ = RealDisk.unlink(&said);
    let peak = cage.as_ref().and_then(Cage::peak_bytes);
    match heard? {
        Some(done) => Ok((recorder, done, peak)),
        None if cage.as_ref().is_some_and(|cage| cage.kills() > 0) => {
            let bytes = limit.unwrap_or_default();
            Err(BenchError::new(
                Kind::Full,
                format!("the kernel killed it at its limit of {} MiB of memory", bytes >> 20),
            ))
        }
        None => {
            let how = status.signal().map_or_else(|| status.to_string(), |signal| format!("signal {signal}"));
            Err(failed(&format!("its process ended without a result ({how})"), &last_line(&words)))
        }
    }
}

/// Beside the folder, which the cell fills.
fn beside(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".said");
    PathBuf::from(name)
}

fn tell(child: &mut Child, job: &Job) -> Result<(), String> {
    let text = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let mut input = child.stdin.take().ok_or("it has no input")?;
    input.write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// Reads until its last word; who stops the race ends the process.
fn hear(child: &mut Child, recorder: &mut Recorder, sink: &Sink) -> Result<Option<pipe::Done>, BenchError> {
    let process = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let Some(output) = child.stdout.take() else { return Ok(None) };
    let over = Gate::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while over.value() == 0 {
                over.wait(0, Some(LOOK));
                // It is waited for only when this thread has ended: its number is its own until then.
                if let Some(process) = process.filter(|_| sink.interrupted()) {
                    _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
                }
            }
        });
        let heard = pipe::read(&mut std::io::BufReader::with_capacity(1 << 20, output), recorder);
        over.set(1);
        over.wake_all();
        heard
    })
}

fn last_line(words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}

/// No state of an earlier cell is left.
pub(super) fn clean(folder: &Path) -> Result<(), BenchError> {
    remove(folder)?;
    std::fs::create_dir_all(folder).map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))
}

pub(super) fn remove(folder: &Path) -> Result<(), BenchError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::disk(&format!("cleaning {}", folder.display()), &error))
        }
        _ => Ok(()),
    }
}

/// Gives the space back, and has the disk do now what it owes, so that the next cell does not pay for it.
fn settle(folder: &Path) -> Result<(), BenchError> {
    remove(folder)?;
    rustix::fs::sync();
    Ok(())
}

/// What the cells that have not ended will take.
struct Eta {
    start: Instant,
    passed: Duration,
    all: Duration,
}

fn expected(case: &Case) -> Duration {
    let load = Duration::from_millis(if case.preload { case.keys / 50 } else { 0 });
    OVERHEAD + load + Duration::from_millis(case.duration_ms)
}

impl Eta {
    fn new(turns: &[Turn<'_>]) -> Self {
        let all = turns.iter().map(|turn| expected(turn.case)).sum();
        Self { start: now(), passed: Duration::ZERO, all }
    }

    fn passed(&mut self, case: &Case) {
        self.passed += expected(case);
    }

    fn left(&self) -> Duration {
        let left = self.all.saturating_sub(self.passed);
        if self.passed.is_zero() {
            return left;
        }
        left.mul_f64((self.start.elapsed().as_secs_f64() / self.passed.as_secs_f64()).min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_another_store_begins() {
        let stores = ["a", "b", "c"].map(|name| Named { name: name.to_owned(), about: String::new() });
        let names = |round| turned(&stores, round).map(|store| store.name.as_str()).collect::<String>();
        assert_eq!([names(0), names(1), names(2), names(3)], ["abc", "bca", "cab", "abc"]);
        assert_eq!(turned(&[], 1).count(), 0);
    }
}
