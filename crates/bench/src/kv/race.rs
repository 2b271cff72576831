//! The cells of a run: each in a process of its own, under the same limit of memory, all stores of a workload in turn.
//!
//! Walk: [`run`] takes round by round, case by case, store by store, in an order that is turned each round · one cell: its folder
//! is made, its process started, caged, told its job; its samples are read until its last word; its folder is removed and the disk
//! left quiet · rounds of a cell are one cell of the report: medians.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use assent_kind::Kind;
use assent_world::{Disk as _, Gate, RealDisk};

use super::cage::Cage;
use super::client::now;
use super::scenario::{Case, Job};
use super::store::{Member, Named};
use super::{cell, pipe};
use crate::BenchError;
use crate::record::{Recorder, merged};
use crate::report::sink::Sink;
use crate::report::{Cell, Figures, Labels};
use crate::stats::median;

/// How often the race looks whether it was stopped while a cell runs.
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

/// Runs every cell of a plan and puts it into the report, also those that fail.
///
/// # Errors
/// What the disk says of the folder or the report; never what one cell says.
pub fn run(plan: &Plan<'_>, sink: &Sink, mut progress: impl FnMut(&Progress<'_>)) -> Result<(), BenchError> {
    for store in plan.stores {
        sink.note(store.about.clone());
    }
    let limit = limited(plan, sink);
    let mut rounds: BTreeMap<Labels, Vec<Result<Cell, BenchError>>> = BTreeMap::new();
    let (mut done, of) = (0, plan.cases.len() * plan.stores.len() * usize::try_from(plan.rounds).unwrap_or(1));
    let mut eta = Eta::new(plan);
    for round in 0..plan.rounds {
        for case in plan.cases {
            for store in turned(plan.stores, round) {
                if sink.interrupted() {
                    return Ok(());
                }
                let mut labels = case.labels();
                labels.insert("store".to_owned(), store.name.clone());
                progress(&Progress { done, of, labels: &labels, ended: None, left: eta.left() });
                clean(plan.folder)?;
                let job = Job { store: store.name.clone(), folder: plan.folder.to_owned(), case: case.clone() };
                let outcome = one(plan, &job, limit, sink);
                settle(plan.folder)?;
                done += 1;
                eta.passed(case);
                if sink.interrupted() {
                    // Killed half way: no figure of it means anything.
                    return Ok(());
                }
                let all = rounds.entry(labels.clone()).or_default();
                all.push(outcome);
                let cell = pooled(&labels, all);
                progress(&Progress { done, of, labels: &labels, ended: Some(&cell), left: eta.left() });
                sink.put(cell)?;
            }
        }
    }
    Ok(())
}

/// Whether memory can be limited; the report says so or why not.
fn limited(plan: &Plan<'_>, sink: &Sink) -> Option<u64> {
    let made = match (plan.memory_bytes, &plan.runner) {
        (None, _) => Err("none was asked for".to_owned()),
        (Some(_), Runner::Here(_)) => Err("all cells run in one process".to_owned()),
        (Some(bytes), Runner::Program(_)) => Cage::make(bytes).map(|_| bytes),
    };
    match made {
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

/// One round of one store in one case.
fn one(plan: &Plan<'_>, job: &Job, limit: Option<u64>, sink: &Sink) -> Result<Cell, BenchError> {
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

/// All rounds of a cell so far as one. One that failed fails all: a median over those that went well would hide it.
fn pooled(labels: &Labels, rounds: &[Result<Cell, BenchError>]) -> Cell {
    let mut cell = Cell { labels: labels.clone(), ..Cell::default() };
    for (number, round) in rounds.iter().enumerate() {
        if let Err(error) = round {
            let of = if rounds.len() > 1 { format!("round {}: ", number + 1) } else { String::new() };
            cell.error = Some(format!("{of}{}", error.message));
            return cell;
        }
    }
    let rounds: Vec<&Cell> = rounds.iter().flatten().collect();
    cell.figures = medians(&rounds);
    for round in &rounds {
        for (call, text) in &round.histograms {
            let sum = match cell.histograms.get(call) {
                Some(known) => merged(known, text).unwrap_or_else(|_| known.clone()),
                None => text.clone(),
            };
            cell.histograms.insert(call.clone(), sum);
        }
        cell.series = round.series.clone();
    }
    cell
}

/// The median of each figure over the rounds; samples are added up, and of the longest the longest counts.
fn medians(rounds: &[&Cell]) -> Figures {
    let names = rounds.iter().flat_map(|round| round.figures.keys()).collect::<std::collections::BTreeSet<_>>();
    let mut figures = Figures::new();
    for name in names {
        let values: Vec<f64> = rounds.iter().filter_map(|round| round.figures.get(name).copied()).collect();
        let value = match name {
            name if name.ends_with("_samples") => values.iter().sum(),
            name if name.ends_with("_max_us") => values.iter().copied().fold(0.0, f64::max),
            _ => median(&values),
        };
        figures.insert(name.clone(), value);
    }
    if rounds.len() > 1 {
        let rates: Vec<f64> = rounds.iter().filter_map(|round| round.figures.get("ops_per_s").copied()).collect();
        let ends = rates.iter().fold(None, |ends: Option<(f64, f64)>, rate| {
            let (least, most) = ends.unwrap_or((*rate, *rate));
            Some((least.min(*rate), most.max(*rate)))
        });
        if let Some((least, most)) = ends {
            figures.insert("ops_per_s_least_round".to_owned(), least);
            figures.insert("ops_per_s_best_round".to_owned(), most);
        }
    }
    figures
}

/// No state of an earlier cell is left.
fn clean(folder: &Path) -> Result<(), BenchError> {
    remove(folder)?;
    std::fs::create_dir_all(folder).map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))
}

fn remove(folder: &Path) -> Result<(), BenchError> {
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
    fn new(plan: &Plan<'_>) -> Self {
        let once: Duration = plan.cases.iter().map(expected).sum();
        let stores = u32::try_from(plan.stores.len()).unwrap_or(1);
        Self { start: now(), passed: Duration::ZERO, all: once * stores * plan.rounds }
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

    fn round(pairs: &[(&str, f64)]) -> Result<Cell, BenchError> {
        let figures = pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Ok(Cell { figures, ..Cell::default() })
    }

    #[test]
    fn rounds_are_medians_and_a_failed_one_is_not_hidden() {
        let rounds = [
            round(&[("ops_per_s", 10.0), ("get_max_us", 5.0), ("get_samples", 7.0)]),
            round(&[("ops_per_s", 30.0), ("get_max_us", 9.0), ("get_samples", 7.0)]),
            round(&[("ops_per_s", 11.0), ("get_max_us", 6.0), ("get_samples", 7.0)]),
        ];
        let cell = pooled(&Labels::new(), &rounds);
        let figures: Vec<(&str, f64)> = cell.figures.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let expected = [
            ("get_max_us", 9.0),
            ("get_samples", 21.0),
            ("ops_per_s", 11.0),
            ("ops_per_s_best_round", 30.0),
            ("ops_per_s_least_round", 10.0),
        ];
        assert_eq!(figures, expected);
        let [one, ..] = rounds;
        let failed = pooled(&Labels::new(), &[one, Err(BenchError::new(Kind::Corrupt, "key 3: gone"))]);
        assert_eq!((failed.error.as_deref(), failed.figures.len()), (Some("round 2: key 3: gone"), 0));
    }

    #[test]
    fn each_round_another_store_begins() {
        let stores = ["a", "b", "c"].map(|name| Named { name: name.to_owned(), about: String::new() });
        let names = |round| turned(&stores, round).map(|store| store.name.as_str()).collect::<String>();
        assert_eq!([names(0), names(1), names(2), names(3)], ["abc", "bca", "cab", "abc"]);
        assert_eq!(turned(&[], 1).count(), 0);
    }
}
