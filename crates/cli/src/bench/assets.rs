//! `assent bench assets`: one server or a pair of them, each process of its own, against a floor of as many processes, and the report.
//!
//! Walk: [`options`] make cases · `assent_bench::assets::race` starts this program as servers, witness and floor, and runs them · [`print`]
//! lays a table a role · what was lost, doubled or different in the end is a failure.

pub(crate) mod options;

use std::process::ExitCode;
use std::time::Duration;

use assent_bench::assets::race::{self, Plan};
use assent_bench::assets::{Case, Program, charts, floor, scenario};
use assent_bench::report::{Cell, Report, csv, shown};
use assent_kind::Kind;

use self::options::{AssetsFloor, BenchAssets};
use super::keep::Kept;
use super::{Folder, bar, print_json, table};
use crate::failure::Failure;

/// Figures and their heads.
const FIGURES: [(&str, &str); 14] = [
    ("per_s", "commands/s"),
    ("ratio_to_floor", "x floor"),
    ("command_mean_us", "mean us"),
    ("command_p50_us", "p50"),
    ("command_p68_27_us", "68.27 %"),
    ("command_p95_45_us", "95.45 %"),
    ("command_p99_73_us", "99.73 %"),
    ("command_max_us", "max"),
    ("cpu_primary_us", "CPU us: primary"),
    ("cpu_standby_us", "standby"),
    ("cpu_server_us", "server"),
    ("cpu_servers_us", "all servers"),
    ("cpu_client_us", "client"),
    ("cpu_all_us", "sum"),
];

/// One process of the floor.
pub(super) fn serve_floor(arguments: &AssetsFloor) -> Result<(), Failure> {
    Ok(floor::serve(arguments.next.as_ref(), |at| _ = say!("ready floor={at}"))?)
}

/// Figures of the scenarios and their heads.
const SCENARIO_FIGURES: [(&str, &str); 18] = [
    ("commands", "commands"),
    ("assets", "assets"),
    ("took_s", "seconds"),
    ("per_s", "commands/s"),
    ("cpu_servers_us", "CPU us: servers"),
    ("under_load_s", "seconds under load"),
    ("alone_per_s", "commands/s alone"),
    ("beside_per_s", "beside snapshots"),
    ("turns", "turns"),
    ("lost_percent", "lost %"),
    ("lost_percent_low", "at least"),
    ("lost_percent_high", "at most"),
    ("still_percent_low", "without one at least"),
    ("still_percent_high", "at most"),
    ("core_percent_server", "% of a core: server"),
    ("core_percent_primary", "primary"),
    ("core_percent_standby", "standby"),
    ("core_percent_witness", "witness"),
];

/// Runs the race, or scenarios in its place.
pub(super) fn run(arguments: &BenchAssets, json: bool) -> Result<ExitCode, Failure> {
    if arguments.scenario.is_empty() { run_race(arguments, json) } else { run_scenarios(arguments, json) }
}

fn run_scenarios(arguments: &BenchAssets, json: bool) -> Result<ExitCode, Failure> {
    let folder = Folder::new(arguments.folder.as_deref())?;
    let title = "Assets: replay, catch-up, snapshots and rest of a node";
    let kept = Kept::begin("assets", title, folder.path(), arguments.keep.outputs())?;
    kept.sink().draw(scenario::charts(&arguments.scenario));
    kept.sink().note(
        "Replay: from the start of killed servers with a log and no snapshot until each has executed all of it. Catch-up: from the start of a \
         standby until it is in the set. Snapshot: from its request until it is kept, alone. Beside 6 x 16: each turn has a snapshot of each node, of 250,000 \
         assets at most, and stands between two without; lost is the median of the turns, at least and at most so much in 95 of 100 cases; \
         without one: the same of turns without.",
    );
    let path = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
    let rows = folder.path().join("assent-bench-assets");
    let plan = scenario::Plan {
        program: &path,
        folder: &rows,
        scenarios: &arguments.scenario,
        commands: arguments.commands,
        assets: arguments.snapshot_assets,
        rounds: arguments.rounds,
        slice: Duration::from_millis(arguments.slice_ms),
    };
    let progress = bar(u64::try_from(plan.rows()).unwrap_or(0), "rows");
    let ran = scenario::run(&plan, kept.sink(), |done, row| {
        progress.set_position(u64::try_from(done).unwrap_or(0));
        progress.set_message(row.to_owned());
    });
    progress.finish_and_clear();
    _ = std::fs::remove_dir_all(&rows);
    ran?;
    told(arguments, kept, json, &SCENARIO_FIGURES)
}

fn run_race(arguments: &BenchAssets, json: bool) -> Result<ExitCode, Failure> {
    let folder = Folder::new(arguments.folder.as_deref())?;
    let title = "Assets: one server and a pair, against as many processes that do nothing";
    let kept = Kept::begin("assets", title, folder.path(), arguments.keep.outputs())?;
    let cases = arguments.cases();
    kept.sink().draw(charts::of(&cases));
    kept.sink().note(note(arguments));
    let path = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
    let rows = folder.path().join("assent-bench-assets");
    let plan = Plan {
        program: &Program { path, extra: Vec::new() },
        folder: &rows,
        cases: &cases,
        acks: &arguments.ack,
        peers: &arguments.peers,
        rounds: arguments.rounds,
        slice: Duration::from_millis(arguments.slice_ms),
    };
    let progress = bar(u64::try_from(cases.len()).unwrap_or(0), "rows");
    let ran = race::run(&plan, kept.sink(), |done, case| {
        progress.set_position(u64::try_from(done).unwrap_or(0));
        progress.set_message(said(case));
    });
    progress.finish_and_clear();
    _ = std::fs::remove_dir_all(&rows);
    ran?;
    told(arguments, kept, json, &FIGURES)
}

/// Tells what is in the report, and what in it must not be.
fn told(arguments: &BenchAssets, kept: Kept, json: bool, figures: &[(&str, &str)]) -> Result<ExitCode, Failure> {
    let mut report = kept.sink().report();
    report.complete = !kept.sink().interrupted();
    if json {
        print_json(&report)?;
    } else if arguments.csv {
        say!("{}", csv::lay(&report)?.trim_end())?;
    } else {
        print(&report, figures)?;
    }
    let code = kept.end(!json && !arguments.csv)?;
    wrong(&report).filter(|_| report.complete).map_or(Ok(code), Err)
}

fn said(case: &Case) -> String {
    let (role, spread) = (case.role.name(), case.spread.name());
    format!("{role} {} x {}, {spread}, {} us", case.shape.connections, case.shape.outstanding, case.rtt_us)
}

fn note(arguments: &BenchAssets) -> String {
    format!(
        "Each command adds one to one of {} assets; a client thread for each connection, all in one process. The floor gives the same frames \
         back through as many processes: one behind the client where a server stands alone, two in a row for a pair. Slices of {} ms, \
         {} of each row, take turns with the floor's; the ratio is the median of those within a round. In the end the assets must show every \
         command that was answered, once, and both nodes one state.",
        arguments.assets, arguments.slice_ms, arguments.rounds
    )
}

/// What must not be: a row without figures, commands that were lost or done twice.
fn wrong(report: &Report) -> Option<Failure> {
    let error = report.cells.iter().find_map(|cell| {
        let error = cell.error.as_ref()?;
        Some(Failure::new(Kind::Unavailable, format!("{}: {error}", name(cell))))
    });
    let doubt = report.cells.iter().find_map(|cell| {
        let figure = |name: &str| cell.figures.get(name).copied().unwrap_or(0.0);
        let (lost, doubled) = (figure("lost"), figure("doubled"));
        let is_wrong = lost > 0.0 || doubled > 0.0;
        is_wrong
            .then(|| Failure::new(Kind::Corrupt, format!("{}: {lost} commands lost, {doubled} doubled", name(cell))))
    });
    doubt.or(error)
}

fn name(cell: &Cell) -> String {
    let label = |name: &str| cell.labels.get(name).map(String::as_str).unwrap_or_default();
    let mut named = ["scenario", "role", "shape", "ack"].map(label).join(" ").trim().replace("  ", " ");
    for (label_name, usual, words) in
        [("spread", "even", ""), ("rtt_us", "0", " us links"), ("subscribers", "0", " subscribed")]
    {
        let value = label(label_name);
        if value != usual && !value.is_empty() {
            named += &format!(", {value}{words}");
        }
    }
    named
}

fn print(report: &Report, figures: &[(&str, &str)]) -> Result<(), Failure> {
    let is_there = |name: &str| report.cells.iter().any(|cell| cell.figures.contains_key(name));
    let figures: Vec<_> = figures.iter().filter(|(name, _)| is_there(name)).collect();
    let heads: Vec<&str> = std::iter::once("").chain(figures.iter().map(|(_, head)| *head)).collect();
    let mut rows = table(&heads);
    for cell in &report.cells {
        let figure = |name: &str| cell.figures.get(name).map_or_else(String::new, |value| shown(*value));
        rows.add_row(std::iter::once(name(cell)).chain(figures.iter().map(|(name, _)| figure(name))));
    }
    say!("{rows}")?;
    let sum = |figure: &str| report.cells.iter().filter_map(|cell| cell.figures.get(figure)).sum::<f64>();
    if is_there("answered") {
        say!("{} commands answered, {} lost, {} doubled", sum("answered"), sum("lost"), sum("doubled"))?;
    }
    for cell in &report.cells {
        if let Some(error) = &cell.error {
            say!("{}: failed: {error}", name(cell))?;
        }
    }
    report.notes.iter().try_for_each(|note| say!("{note}"))
}
