//! The race's tables: what differs between cells names a row.

use std::collections::{BTreeMap, BTreeSet};

use assent_bench::report::{Cell, Labels, Report};
use assent_bench::tx::Step;

use super::super::table;
use crate::failure::Failure;

/// Labels in the order of a row.
const LABELS: [&str; 8] = ["way", "workload", "mode", "coordinator", "engine", "rpo", "threads", "clients"];
/// Figures, their heads and digits.
const FIGURES: [(&str, &str, usize); 11] = [
    ("tps", "tps", 0),
    ("total_p50_us", "total p50 us", 0),
    ("total_p95_us", "p95 us", 0),
    ("total_p99_us", "p99 us", 0),
    ("total_max_us", "max us", 0),
    ("cpu_client_us_per_tx", "client CPU us/tx", 0),
    ("cpu_server_us_per_tx", "server CPU us/tx", 0),
    ("disk_syncs_per_s", "syncs/s", 0),
    ("disk_syncs_per_tx", "syncs/tx", 3),
    ("round_trips_per_tx", "round trips/tx", 3),
    ("unsynced", "unsynced", 0),
];

/// Floors, and a row a cell.
pub(super) fn table_of(report: &Report) -> Result<(), Failure> {
    for floor in &report.floors {
        let figure = |name: &str| floor.figures.get(name).copied().unwrap_or_default();
        say!("floor: {}: p50 {:.0}, p95 {:.0} {}", floor.name, figure("p50"), figure("p95"), floor.unit)?;
    }
    let labels: Vec<&str> =
        LABELS.into_iter().filter(|name| *name == "clients" || varies(&report.cells, name)).collect();
    let known = |name: &str| report.cells.iter().any(|cell| cell.figures.contains_key(name));
    let figures: Vec<_> = FIGURES.into_iter().filter(|(name, ..)| known(name)).collect();
    let heads: Vec<&str> = labels.iter().copied().chain(figures.iter().map(|(_, head, _)| *head)).collect();
    let mut rows = table(&heads);
    for cell in &report.cells {
        let mut row: Vec<String> =
            labels.iter().map(|name| cell.labels.get(*name).cloned().unwrap_or_default()).collect();
        if cell.error.is_some() {
            row.push("failed".to_owned());
        } else {
            row.extend(figures.iter().map(|(name, _, digits)| {
                cell.figures.get(*name).map_or_else(String::new, |value| format!("{value:.digits$}"))
            }));
        }
        rows.add_row(row);
    }
    say!("{rows}")?;
    for (error, cells) in errors(&report.cells) {
        say!("failed, {cells} of {} cells: {error}", report.cells.len())?;
    }
    for note in &report.notes {
        say!("{note}")?;
    }
    Ok(())
}

/// Each reason, and how many cells failed for it.
fn errors(cells: &[Cell]) -> BTreeMap<&str, usize> {
    let mut errors = BTreeMap::new();
    for error in cells.iter().filter_map(|cell| cell.error.as_deref()) {
        *errors.entry(error).or_default() += 1;
    }
    errors
}

fn varies(cells: &[Cell], name: &str) -> bool {
    cells.iter().map(|cell| cell.labels.get(name)).collect::<BTreeSet<_>>().len() > 1
}

/// One transaction, step by step.
pub(super) fn trace(labels: &Labels, steps: &[Step]) -> Result<(), Failure> {
    let mut rows = table(&["at us", "took us", "what"]);
    for step in steps {
        let took = step.took_us.map_or_else(String::new, |us| format!("{us:.1}"));
        rows.add_row([format!("{:.1}", step.at_us), took, step.what.clone()]);
    }
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    say!(
        "one transaction, coordinator {}, engine {}, RPO {}\n{rows}",
        label("coordinator"),
        label("engine"),
        label("rpo")
    )
}
