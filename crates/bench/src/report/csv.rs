//! A report as rows for a spreadsheet: a row for each cell and call.

use std::collections::BTreeSet;

use assent_kind::Kind;

use super::{Cell, Report};
use crate::BenchError;

/// The statistics of a call, as [`crate::stats::Latency::named`] names them.
pub const STATISTICS: [&str; 14] =
    ["samples", "min", "p25", "p50", "p75", "p85", "p90", "p95", "p98", "p99", "p999", "max", "mean", "sd"];

/// The text of the file: labels, call, its statistics in microseconds, the cell's other figures, its error. A cell without
/// calls has one row.
///
/// # Errors
/// What the writer says; never for a report in memory.
pub fn lay(report: &Report) -> Result<String, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::new(Kind::Internal, format!("laying CSV: {error}"));
    let (labels, others) = (label_names(report), other_names(report));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let statistics = STATISTICS.map(|name| if name == "samples" { name.to_owned() } else { format!("{name}_us") });
    let head = labels.iter().cloned().chain(["call".to_owned()]).chain(statistics).chain(others.iter().cloned());
    writer.write_record(head.chain(["error".to_owned()])).map_err(|error| failed(&error))?;
    for cell in &report.cells {
        let mut calls: Vec<Option<String>> = calls(cell).into_iter().map(Some).collect();
        if calls.is_empty() {
            calls.push(None);
        }
        for call in calls {
            let mut row: Vec<String> =
                labels.iter().map(|name| cell.labels.get(name).cloned().unwrap_or_default()).collect();
            row.push(call.clone().unwrap_or_default());
            let figure = |name: &str| cell.figures.get(name).map(f64::to_string).unwrap_or_default();
            row.extend(
                STATISTICS.map(|name| call.as_deref().map(|call| figure(&of_call(call, name))).unwrap_or_default()),
            );
            row.extend(others.iter().map(|name| figure(name)));
            row.push(cell.error.clone().unwrap_or_default());
            writer.write_record(row).map_err(|error| failed(&error))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

/// Every label of any cell.
pub(super) fn label_names(report: &Report) -> Vec<String> {
    let names: BTreeSet<String> = report.cells.iter().flat_map(|cell| cell.labels.keys().cloned()).collect();
    names.into_iter().collect()
}

/// Every figure that is no statistic of a call.
pub(super) fn other_names(report: &Report) -> Vec<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for cell in &report.cells {
        let of_calls: BTreeSet<String> =
            calls(cell).iter().flat_map(|call| STATISTICS.map(|name| of_call(call, name))).collect();
        names.extend(cell.figures.keys().filter(|name| !of_calls.contains(*name)).cloned());
    }
    names.into_iter().collect()
}

/// The calls of a cell: each that has a number of samples.
pub(super) fn calls(cell: &Cell) -> Vec<String> {
    cell.figures.keys().filter_map(|name| name.strip_suffix("_samples")).map(str::to_owned).collect()
}

/// The figure that holds a statistic of a call.
pub(super) fn of_call(call: &str, statistic: &str) -> String {
    let unit = if statistic == "samples" { "" } else { "_us" };
    format!("{call}_{statistic}{unit}")
}
