//! `assent bench docs`: long histories, large documents, both over HTTP, and the report.
//!
//! Walk: [`options`] say what is asked for · `assent_bench::docs` runs it · a table for each scenario, a line a row.

pub(crate) mod options;

use std::collections::BTreeMap;
use std::process::ExitCode;

use assent_bench::docs::scenario::Scenario;
use assent_bench::docs::{self, charts};
use assent_bench::report::{Cell, Report, csv, shown};

use self::options::BenchDocs;
use super::keep::Kept;
use super::{Folder, print_json, table};
use crate::failure::Failure;

/// Figures and their heads.
const FIGURES: [(&str, &str); 27] = [
    ("per_s", "per s"),
    ("ratio_to_one", "x one"),
    ("ratio_to_floor", "x floor"),
    ("ratio_to_alone", "x alone"),
    ("ratio_to_open", "x no token"),
    ("p50_ratio_to_tiny", "p50 x tiny"),
    ("commits_per_s", "commits/s beside"),
    ("bytes_each", "bytes each"),
    ("syncs_each", "syncs each"),
    ("mb_per_s", "MB/s"),
    ("commit_p50_us", "commit p50 us"),
    ("commit_p95_us", "p95"),
    ("commit_p99_us", "p99"),
    ("commit_call_p99_us", "p99 of the call"),
    ("core_wait_us", "wait for a core us"),
    ("read_p50_us", "read p50 us"),
    ("read_p95_us", "p95"),
    ("read_p99_us", "p99"),
    ("read_max_us", "max"),
    ("server_cpu_us", "server CPU us"),
    ("client_cpu_us", "client CPU us"),
    ("database_p50_us", "open p50 us"),
    ("document_cold_p50_us", "document, cold"),
    ("document_warm_p50_us", "warm"),
    ("warm_p50_us", "warm p50 us"),
    ("cold_p50_us", "cold p50 us"),
    ("cold_max_us", "cold max us"),
];

/// Runs the command.
pub(super) fn run(arguments: &BenchDocs, json: bool) -> Result<ExitCode, Failure> {
    let folder = Folder::new(arguments.folder.as_deref())?;
    let title = "Documents: long histories, large documents, and both over HTTP";
    let kept = Kept::begin("docs", title, folder.path(), arguments.keep.outputs())?;
    let mut given = arguments.given();
    given.program = Some(std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?);
    kept.sink().draw(charts::of(&given));
    kept.sink().note(
        "Embedded, one process; hashes and path summary on, sliding snapshots of three fragments. Every commit is durable, every read is \
         checked. Warm: a call like those before it. Cold: the first one after the database was closed and opened again, with a warm page \
         cache. The floor: one durable write of the same bytes, the best of four ways, in slices between those of the commits.",
    );
    if given.scenarios.iter().any(|scenario| matches!(scenario, Scenario::Rest | Scenario::Mixed)) {
        kept.sink().note(
            "rest and mixed: servers, the floor and the load generator are processes of their own on this machine, over loopback, HTTP/1.1, \
             a request under way on each connection, log level error. Each answer is made anew and checked by length and hash. The floor: \
             a constant answer of the same length through the same HTTP library, with one thread. Processor time is user and system of the \
             process within the window, for each answer.",
        );
    }
    let line = indicatif::ProgressBar::new_spinner();
    let ran = docs::run(folder.path(), &given, kept.sink(), |what| {
        line.set_message(what.to_owned());
        line.tick();
    });
    line.finish_and_clear();
    ran?;
    let mut report = kept.sink().report();
    report.complete = !kept.sink().interrupted();
    if json {
        print_json(&report)?;
    } else if arguments.csv {
        say!("{}", csv::lay(&report)?.trim_end())?;
    } else {
        print(&report)?;
    }
    kept.end(!json && !arguments.csv)
}

/// A table for each sort of row, then what is to be known.
fn print(report: &Report) -> Result<(), Failure> {
    let mut sorts: BTreeMap<(usize, String), Vec<&Cell>> = BTreeMap::new();
    let label = |cell: &Cell, name: &str| cell.labels.get(name).cloned().unwrap_or_default();
    let mut known: Vec<String> = Vec::new();
    for cell in &report.cells {
        let sort = format!("{}: {}", label(cell, "scenario"), label(cell, "row"));
        let at = known.iter().position(|of| *of == sort).unwrap_or_else(|| {
            known.push(sort.clone());
            known.len() - 1
        });
        sorts.entry((at, sort)).or_default().push(cell);
    }
    for ((_, sort), cells) in sorts {
        let is_there = |name: &str| cells.iter().any(|cell| cell.figures.contains_key(name));
        let figures: Vec<_> = FIGURES.into_iter().filter(|(name, _)| is_there(name)).collect();
        let heads: Vec<&str> = std::iter::once("").chain(figures.iter().map(|(_, head)| *head)).collect();
        let mut rows = table(&heads);
        for cell in cells {
            let figure = |name: &str| cell.figures.get(name).map_or_else(String::new, |value| shown(*value));
            rows.add_row(std::iter::once(label(cell, "on")).chain(figures.iter().map(|(name, _)| figure(name))));
        }
        say!("{sort}\n{rows}")?;
    }
    for note in &report.notes {
        say!("{note}")?;
    }
    Ok(())
}
