//! `assent bench assets`: servers of assets, each in a process of its own, against an echo in another one.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use assent_bench::assets::{self, Row, Shape, Subject};
use assent_kind::Kind;
use clap::Args;
use serde::Serialize;

use super::{Folder, bar, print_json, table};
use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchAssets {
    /// Rows: connections x commands under way on each.
    #[arg(long, value_delimiter = ',', default_values_t = ["6x1".to_owned(), "64x1".to_owned(), "6x16".to_owned(), "6x128".to_owned()])]
    pub(crate) shapes: Vec<String>,
    /// What stands behind an answer.
    #[arg(long, value_delimiter = ',', default_values_t = ["written".to_owned(), "durable".to_owned()],
        value_parser = ["durable", "written", "none"])]
    pub(crate) ack: Vec<String>,
    /// Assets that commands go round over; 1: a hot one.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) assets: u64,
    /// Rounds of slices, the floor's beside each server's.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub(crate) slice_ms: u64,
    /// The folder to write in; a temporary one if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Serialize)]
struct Outcome {
    scenario: &'static str,
    role: &'static str,
    assets: u64,
    rounds: u32,
    slice_ms: u64,
    rows: Vec<Row>,
    /// Commands that were answered, and how many of them the assets do not show, or show twice.
    answered: u64,
    lost: u64,
    doubled: u64,
}

/// A server, killed when this is dropped.
struct Process {
    child: Child,
    subject: Subject,
}

impl Process {
    fn start(arguments: &[&str], ready: &str, executes: bool) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| Failure::io("start", "a server", &error))?;
        let (mut line, process) = (String::new(), child.id());
        if let Some(out) = child.stdout.take() {
            _ = BufReader::new(out).read_line(&mut line);
        }
        let at = line.trim().strip_prefix(ready).and_then(|at| at.parse().ok());
        let Some(at) = at else {
            _ = child.kill();
            _ = child.wait();
            return Err(Failure::new(Kind::Unavailable, format!("a server of the race did not start: {line:?}")));
        };
        Ok(Self { child, subject: Subject { at, process, executes } })
    }

    fn serving(folder: &Path, ack: &str) -> Result<Self, Failure> {
        let data = folder.display().to_string();
        let arguments = ["assets", "serve", "--data", &data, "--listen", "127.0.0.1:0", "--ack", ack];
        Self::start(&arguments, "ready assets=", true)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The hidden server of the floor.
pub(super) fn echo() -> Result<(), Failure> {
    Ok(assets::echo(|at| println!("ready echo={at}"))?)
}

fn shape(text: &str) -> Result<Shape, Failure> {
    let wrong = || Failure::invalid(format!("--shapes {text}: write connections x commands under way, as 6x16"));
    let (connections, outstanding) = text.split_once('x').ok_or_else(wrong)?;
    let number = |text: &str, most: u32| text.parse().ok().filter(|number| (1..=most).contains(number));
    let (connections, outstanding) = (number(connections, 1_000), number(outstanding, 1_024));
    connections.zip(outstanding).map(|(connections, outstanding)| Shape { connections, outstanding }).ok_or_else(wrong)
}

/// Runs the race.
pub(super) fn run(arguments: &BenchAssets, json: bool) -> Result<(), Failure> {
    let folder = Folder::new(arguments.folder.as_deref())?;
    let shapes = arguments.shapes.iter().map(|text| shape(text)).collect::<Result<Vec<_>, _>>()?;
    let slice = Duration::from_millis(arguments.slice_ms);
    let count = shapes.len() * usize::try_from(arguments.rounds).unwrap_or(1);
    let progress = bar(u64::try_from(count).unwrap_or(0), "rounds");
    let (mut rows, mut answered, mut lost, mut doubled) = (Vec::new(), 0, 0, 0);
    let floor = Process::start(&["bench", "assets-echo"], "ready echo=", false)?;
    for shape in shapes {
        let start = |ack: &String| {
            let server = Process::serving(&assets::folder(folder.path(), ack, shape), ack)?;
            assets::create(&server.subject.at, arguments.assets)?;
            Ok::<_, Failure>((server, Vec::new()))
        };
        let mut servers = arguments.ack.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        let mut floors = Vec::new();
        for _ in 0..arguments.rounds {
            floors.push(assets::drive(&floor.subject, shape, arguments.assets, slice)?);
            for (server, slices) in &mut servers {
                slices.push(assets::drive(&server.subject, shape, arguments.assets, slice)?);
            }
            progress.inc(1);
        }
        let floor = Row::of(shape, "floor", &floors, None);
        for ((server, slices), ack) in servers.iter().zip(&arguments.ack) {
            let done: u64 = slices.iter().map(|slice| slice.done).sum();
            let executed = assets::executed(&server.subject.at, arguments.assets)?;
            answered += done;
            lost += done.saturating_sub(executed);
            doubled += executed.saturating_sub(done);
            rows.push(Row::of(shape, ack, slices, Some(&floor)));
        }
        rows.push(floor);
    }
    progress.finish_and_clear();
    let (assets, rounds, slice_ms) = (arguments.assets, arguments.rounds, arguments.slice_ms);
    let outcome = Outcome { scenario: "assets", role: "solo", assets, rounds, slice_ms, rows, answered, lost, doubled };
    if json {
        return print_json(&outcome);
    }
    print(&outcome);
    Ok(())
}

fn print(outcome: &Outcome) {
    let head = [
        "",
        "answer has behind it",
        "commands/s",
        "x floor",
        "server CPU us",
        "mean us",
        "p50",
        "68.27 %",
        "95.45 %",
        "99.73 %",
        "max",
    ];
    let mut shown = table(&head);
    for row in &outcome.rows {
        let Shape { connections, outstanding } = row.shape;
        let figures = [row.mean, row.p50, row.p68_27, row.p95_45, row.p99_73, row.max].map(|us| format!("{us:.1}"));
        let named = [format!("{connections} x {outstanding}"), row.what.clone(), format!("{:.0}", row.per_second)];
        let more = [format!("{:.2}", row.ratio_to_floor), format!("{:.2}", row.server_cpu_us)];
        shown.add_row(named.into_iter().chain(more).chain(figures));
    }
    let Outcome { assets, answered, lost, doubled, .. } = outcome;
    println!("solo, one add a command over {assets} assets; the floor gives the same bytes back\n{shown}");
    println!("{answered} commands answered, {lost} lost, {doubled} doubled");
}
