//! `assent bench compare`: two reports of one scenario beside each other.

use std::path::PathBuf;
use std::process::ExitCode;

use assent_bench::report::compare::{Comparison, Row, compare};
use assent_bench::report::{Labels, Report, named, shown};
use clap::Args;

use super::{print_json, table};
use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchCompare {
    /// The JSON of a race.
    pub(crate) a: PathBuf,
    /// The JSON of another race of the same scenario.
    pub(crate) b: PathBuf,
    /// Figures to compare, e.g. tps,total_p95_us; without it those of the reports' charts.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) figures: Vec<String>,
}

/// Runs the command.
pub(super) fn run(arguments: &BenchCompare, json: bool) -> Result<ExitCode, Failure> {
    let (a, b) = (Report::read(&arguments.a)?, Report::read(&arguments.b)?);
    let found = compare(&a, &b, &arguments.figures)?;
    if json {
        print_json(&found)?;
    } else {
        print(&found)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(found: &Comparison) -> Result<(), Failure> {
    found.warnings.iter().for_each(|warning| aside!("assent: warning: {warning}"));
    let all = shared(&found.rows);
    if !all.is_empty() {
        say!("every cell compared: {}", named(&all))?;
    }
    for (what, rows) in [("floor", &found.floors), ("cell", &found.rows)] {
        if !rows.is_empty() {
            let mut lines = table(&[what, "figure", "A", "B", "B / A"]);
            lines.add_rows(rows.iter().map(|row| line(row, &all)));
            say!("{lines}")?;
        }
    }
    for cell in &found.failed {
        let said = |error: &Option<String>| error.clone().unwrap_or_else(|| "done".to_owned());
        say!("failed: {}: A: {}; B: {}", named(&cell.labels), said(&cell.a), said(&cell.b))?;
    }
    for (which, cells) in [("A", &found.only_in_a), ("B", &found.only_in_b)] {
        cells.iter().try_for_each(|labels| say!("only in {which}: {}", named(labels)))?;
    }
    let compared = found.rows.len();
    say!("{compared} figures of the same cells compared; one run each: a difference needs several to mean something")
}

/// Labels that tell no two of several cells apart need no place in each row.
fn shared(rows: &[Row]) -> Labels {
    let mut cells = rows.iter().map(|row| &row.labels);
    let Some(first) = cells.next().filter(|first| rows.iter().any(|row| row.labels != **first)) else {
        return Labels::new();
    };
    let mut all = first.clone();
    cells.for_each(|labels| all.retain(|name, value| labels.get(name) == Some(value)));
    all
}

fn line(row: &Row, all: &Labels) -> [String; 5] {
    let text = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), shown);
    let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut labels = row.labels.clone();
    labels.retain(|name, _| !all.contains_key(name));
    let cell = labels.get("floor").cloned().unwrap_or_else(|| named(&labels));
    [cell, row.figure.clone(), text(row.a), text(row.b), ratio]
}
