//! `assent bench kv`: the stores and workloads somebody asks for, a process for each cell, and the report.
//!
//! Walk: who takes part is asked of the program that runs the cells: this one, or one that knows more stores · [`options`] make cells ·
//! `assent_bench::kv::race` runs them · [`print`] lays the table. The two verbs behind the options are for the race alone.

pub(crate) mod options;
mod print;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use assent_bench::kv::race::{Plan, Program, Progress, Runner};
use assent_bench::kv::store::Named;
use assent_bench::kv::{cell, charts, members, race};
use assent_bench::report::{Cell, Labels, Report, csv};
use assent_kind::Kind;
use indicatif::ProgressBar;

use self::options::{BenchKv, Verb};
use super::keep::Kept;
use super::{Folder, print_json};
use crate::failure::Failure;

/// Runs the command.
pub(super) fn run(arguments: &BenchKv, json: bool) -> Result<ExitCode, Failure> {
    match arguments.verb {
        Some(Verb::Members) => cell::tell(&members(), std::io::stdout())?,
        Some(Verb::Cell) => cell::serve(&members(), std::io::stdin(), std::io::stdout())?,
        None => return raced(arguments, json),
    }
    Ok(ExitCode::SUCCESS)
}

fn raced(arguments: &BenchKv, json: bool) -> Result<ExitCode, Failure> {
    let program = program(arguments)?;
    let stores = chosen(arguments, program.members()?)?;
    if arguments.list {
        stores.iter().try_for_each(|store| say!("{}", store.about))?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = Folder::new(arguments.folder.as_deref())?;
    // Its own folder in what may be the user's: cells clean theirs.
    let cells = folder.path().join("assent-bench-cell");
    let title = "Key-value stores: objects under pressure";
    let cases = arguments.given().cases();
    let plan = Plan {
        folder: &cells,
        cases: &cases,
        stores: &stores,
        rounds: arguments.rounds,
        memory_bytes: arguments.memory_bytes(),
        loads: arguments.loads.as_deref(),
        runner: Runner::Program(&program),
    };
    let outputs = arguments.keep.outputs();
    let kept = if arguments.go_on {
        Kept::go_on("kv", title, folder.path(), outputs, |report| race::check(&plan, report))?
    } else {
        Kept::begin("kv", title, folder.path(), outputs)?
    };
    let mut drawn = kept.sink().report().charts;
    drawn.extend(charts::of(&cases).into_iter().filter(|chart| !drawn.contains(chart)).collect::<Vec<_>>());
    kept.sink().draw(drawn);
    notes(arguments).into_iter().for_each(|sentence| kept.sink().note(sentence));
    let line = Line::new(cases.len() * stores.len());
    let ran = race::run(&plan, kept.sink(), |progress| line.tell(progress));
    line.end();
    _ = std::fs::remove_dir_all(&cells);
    ran?;
    let mut report = kept.sink().report();
    report.complete = !kept.sink().interrupted();
    if json {
        print_json(&report)?;
    } else if arguments.csv {
        say!("{}", csv::lay(&report)?.trim_end())?;
    } else {
        print::table_of(&report)?;
    }
    let code = kept.end(!json && !arguments.csv)?;
    // Whoever stopped it knows why nothing came of it.
    failed(&report).filter(|_| report.complete).map_or(Ok(code), Err)
}

/// Who runs the cells: the program that was named, or this one.
fn program(arguments: &BenchKv) -> Result<Program, Failure> {
    match &arguments.program {
        Some(path) => Ok(Program { path: path.clone(), arguments: Vec::new() }),
        None => {
            let path = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
            Ok(Program { path, arguments: vec!["bench".to_owned(), "kv".to_owned()] })
        }
    }
}

/// The stores that were named, or all.
fn chosen(arguments: &BenchKv, all: Vec<Named>) -> Result<Vec<Named>, Failure> {
    if arguments.store.is_empty() {
        return Ok(all);
    }
    let known: Vec<&str> = all.iter().map(|store| store.name.as_str()).collect();
    let find = |name: &String| {
        all.iter().find(|store| store.name == *name).cloned().ok_or_else(|| {
            let more = if arguments.program.is_none() { "; more come with --program (make peers-kv)" } else { "" };
            Failure::invalid(format!("--store {name:?}: known are {}{more}", known.join(", ")))
        })
    };
    arguments.store.iter().map(find).collect()
}

/// What a reader of the cells must know.
fn notes(arguments: &BenchKv) -> Vec<String> {
    let given = arguments.given();
    let mut notes = vec![format!(
        "{} keys, values of {} bytes, {}; an UPDATE is a GET and a PUT of the same key, 5 GET to 1 UPDATE; every value read is \
         checked, and {} keys at most are looked for after the store was closed and opened again.",
        given.keys,
        given.value_bytes,
        if given.preload { "all written before the clock starts" } else { "none written when the clock starts" },
        given.audit_keys
    )];
    if given.scenarios.iter().any(|scenario| scenario.is_warmed()) {
        notes.push(
            "memory-get and memory-head: every store has looked at each key once before the clock starts (first_looks_per_s); what of \
             it stays in memory is its own affair."
                .to_owned(),
        );
    }
    if arguments.rounds > 1 {
        // Without their number: rounds may be added to the report.
        notes.push(
            "Each cell was run as often as its \"rounds\" say, in turn with the others: medians over the rounds, means over the 10-second \
             windows of all of them; histograms hold all of them, the rate over time is the last one's."
                .to_owned(),
        );
    }
    if arguments.loads.is_some() && given.preload {
        notes.push(
            "Each cell begins with a copy of its store as it was loaded once, and with nothing of it in memory."
                .to_owned(),
        );
    }
    if let Some(rate) = given.rate {
        notes.push(format!(
            "Open loop: {rate} operations begin each second and count from the time they were meant to begin."
        ));
    }
    notes
}

/// A run of which nothing came is a failure; one failed cell among others is a line of the report.
fn failed(report: &Report) -> Option<Failure> {
    let error = report.cells.first()?.error.as_ref()?;
    let all = report.cells.iter().all(|cell| cell.error.is_some());
    let of = report.cells.len();
    all.then(|| Failure::new(Kind::Unavailable, format!("no cell of {of} could be measured; the first: {error}")))
}

/// The progress: a bar where somebody looks on, else a line a cell.
struct Line {
    bar: Option<ProgressBar>,
    cells: usize,
}

impl Line {
    fn new(cells: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
            let style = style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style)
        });
        Self { bar, cells }
    }

    fn tell(&self, progress: &Progress<'_>) {
        let Progress { done, of, labels, ended, left } = progress;
        let left = about(*left);
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(*of).unwrap_or(0));
            bar.set_position(u64::try_from(*done).unwrap_or(0));
            bar.set_message(format!("{} · {left} left", name(labels)));
        } else if let Some(cell) = ended.filter(|_| self.cells > 1) {
            aside!("{done}/{of} {}: {} · {left} left", name(labels), told(cell));
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn name(labels: &Labels) -> String {
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    format!("{} {} {} clients {}", label("store"), label("scenario"), label("keys"), label("clients"))
}

fn told(cell: &Cell) -> String {
    let figure = |name: &str| cell.figures.get(name).copied();
    match (&cell.error, figure("ops_per_s")) {
        (Some(error), _) => format!("failed: {error}"),
        (None, Some(rate)) => format!("{rate:.0} operations/s"),
        (None, None) => format!("{:.0} us to open", figure("open_p50_us").unwrap_or_default()),
    }
}

fn about(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5_999 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}
