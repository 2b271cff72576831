//! `assent bench tx`: the cells somebody asks for, a server for each that needs one, floors between them, and the report.

mod floors;
pub(crate) mod options;
mod print;
mod real;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use assent_bench::BenchError;
use assent_bench::proxy::Delay;
use assent_bench::report::{Cell, Report, csv};
use assent_bench::tx::axes::{Case, Engine, Place};
use assent_bench::tx::{self, NAMES, Progress, Rules, charts};
use assent_kind::Kind;
use indicatif::ProgressBar;

use self::floors::Floors;
use self::options::{BenchTx, Branches};
use super::keep::Kept;
use super::server::{Server, Settings, Store, address};
use super::{Folder, print_json};
use crate::failure::Failure;

/// Runs the command.
pub(super) fn run(arguments: &BenchTx, json: bool) -> Result<ExitCode, Failure> {
    arguments.check()?;
    let folder = Folder::new(arguments.folder.as_deref())?;
    // Its own folder in what may be the user's: cells clean theirs.
    let cells = folder.path().join("assent-bench-cell");
    if arguments.once {
        return once(arguments, &cells, json);
    }
    let title = if arguments.branches == Branches::Real {
        "Distributed transactions: one row in PostgreSQL and one in MariaDB"
    } else {
        "Distributed transactions with two resource managers"
    };
    let kept = Kept::begin("tx", title, folder.path(), arguments.keep.outputs())?;
    let cases = arguments.cases();
    let raced = if arguments.branches == Branches::Real {
        real::race(arguments, &cases, &cells, &kept)
    } else {
        race(arguments, &cases, folder.path(), &cells, &kept)
    };
    _ = std::fs::remove_dir_all(&cells);
    raced?;
    let mut report = kept.sink().report();
    report.complete = !kept.sink().interrupted();
    show(&report, arguments, json)?;
    let code = kept.end(!json && !arguments.csv)?;
    // Whoever stopped it knows why nothing came of it.
    failed(&report).filter(|_| report.complete).map_or(Ok(code), Err)
}

fn race(arguments: &BenchTx, cases: &[Case], folder: &Path, cells: &Path, kept: &Kept) -> Result<(), Failure> {
    let rules = arguments.rules();
    kept.sink().draw(charts::of(cases, &rules));
    notes(&rules).into_iter().for_each(|sentence| kept.sink().note(sentence));
    let mut floors = Floors::new(folder, cases, &rules);
    let line = Line::new(cases.len());
    let mut start = |case: &Case, folder: &Path| start(arguments.server.as_deref(), case, folder);
    let mut measure = || floors.measure(kept.sink());
    tx::run(cells, &rules, cases, &mut start, kept.sink(), &mut measure, |progress| line.tell(progress))?;
    line.end();
    Ok(())
}

/// What a reader of the cells must know, where it is not as usual.
fn notes(rules: &Rules) -> Vec<String> {
    let Rules { commit, sleeps, branches, servers, delay, rate, rounds } = rules;
    let plain = Rules::default();
    let Delay { rtt_us, jitter_us } = delay;
    [
        (*commit != plain.commit, "Every transaction is rolled back.".to_owned()),
        (*sleeps != plain.sleeps, format!("{sleeps} sleeps a cycle: the last is left out.")),
        (*branches != plain.branches, "The branches are two key-value stores in the client's process.".to_owned()),
        (*servers != plain.servers, format!("{servers} coordinators; a client takes each in turn.")),
        (*delay != plain.delay, format!("A round trip between client and server takes {rtt_us}±{} us.", jitter_us / 2)),
        (*rounds != plain.rounds, format!("Every cell was run {rounds} times, in turn with the others.")),
        (rate.is_some(), format!("Open loop: {} transactions begin each second.", rate.unwrap_or_default())),
    ]
    .into_iter()
    .filter_map(|(odd, sentence)| odd.then_some(sentence))
    .collect()
}

/// One server for a case: the user's, or one of ours over an empty folder.
fn start(given: Option<&str>, case: &Case, folder: &Path) -> Result<tx::Server, BenchError> {
    let started = match given {
        Some(text) => address("--server", text).map(Server::Given),
        None => {
            // Dummies answer in the client's process; recovery never finds anything of theirs at these addresses.
            let store = |name| Store { name, kind: "assent", url: "127.0.0.1:1" };
            Server::start_as(folder, &NAMES.map(store), &settings(case))
        }
    };
    let server = started.map_err(|failure| BenchError { kind: failure.kind, message: failure.message })?;
    let (address, admin) = (server.address().clone(), server.admin().cloned());
    Ok(tx::Server { address, admin, process: server.process(), guard: Box::new(server) })
}

/// What a case says of its server.
fn settings(case: &Case) -> Settings {
    let mut numbers = vec![("min_elapsed_sync_time", case.rpo.min_ms), ("max_elapsed_sync_time", case.rpo.max_ms)];
    numbers.extend(case.workload.log_size.map(|bytes| ("log_size", bytes)));
    numbers.extend(case.workload.max_buffer_log_size.map(|bytes| ("max_buffer_log_size", bytes)));
    let engine = (case.engine != Engine::Journal).then(|| case.engine.to_string());
    Settings { threads: Some(case.threads), engine, numbers, is_apart: true }
}

/// The trace of one transaction.
fn once(arguments: &BenchTx, folder: &Path, json: bool) -> Result<ExitCode, Failure> {
    if arguments.branches == Branches::Real {
        return Err(Failure::invalid("--once traces dummies and kv; leave --branches real out"));
    }
    let mut traces = Vec::new();
    for case in arguments.cases() {
        let mut start = |case: &Case, folder: &Path| start(arguments.server.as_deref(), case, folder);
        let steps = tx::once(folder, &arguments.rules(), &case, &mut start);
        _ = std::fs::remove_dir_all(folder);
        traces.push((case.labels(), steps?));
    }
    if json {
        print_json(&traces)?;
    } else {
        traces.iter().try_for_each(|(labels, steps)| print::trace(labels, steps))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: &Report, arguments: &BenchTx, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(report);
    }
    if arguments.csv {
        say!("{}", csv::lay(report)?.trim_end())?;
    } else {
        print::table_of(report)?;
    }
    Ok(())
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
        let Progress { done, of, case, ended, left } = progress;
        let (done, of) = (u64::try_from(*done).unwrap_or(0), u64::try_from(*of).unwrap_or(0));
        let left = about(*left);
        if let Some(bar) = &self.bar {
            bar.set_length(of);
            bar.set_position(done);
            bar.set_message(format!("{} · {left} left", name(case)));
        } else if let Some(cell) = ended.filter(|_| self.cells > 1) {
            aside!("{done}/{of} {}: {} · {left} left", name(case), told(cell));
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A cell's place, without what most runs have one of.
fn name(case: &Case) -> String {
    let Case { workload, mode, place, engine, rpo, threads, clients, .. } = case;
    let place = match place {
        Place::Embedded => "embedded".to_owned(),
        Place::Served => format!("threads {threads}"),
    };
    format!("{} {mode} RPO {rpo} {engine} {place} clients {clients}", workload.name)
}

fn told(cell: &Cell) -> String {
    let figure = |name: &str| cell.figures.get(name).copied().unwrap_or_default();
    match &cell.error {
        Some(error) => format!("failed: {error}"),
        None => format!("{:.0} tps, total 95 % {:.0} us", figure("tps"), figure("total_p95_us")),
    }
}

fn about(left: Duration) -> String {
    let seconds = left.as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_is_not_as_usual_and_nothing_else() {
        assert_eq!(notes(&Rules::default()), Vec::<String>::new());
        let rules =
            Rules { servers: 2, delay: Delay { rtt_us: 923, jitter_us: 400 }, rate: Some(2_000.0), ..Rules::default() };
        let told = [
            "2 coordinators; a client takes each in turn.",
            "A round trip between client and server takes 923±200 us.",
            "Open loop: 2000 transactions begin each second.",
        ];
        assert_eq!(notes(&rules), told);
    }
}
