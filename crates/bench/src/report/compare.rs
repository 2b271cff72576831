//! Two reports of one scenario held against each other, cell by cell.
//!
//! Deliberately absent: a verdict. Two runs on two days differ by themselves; who judges needs the spread of several.

use std::collections::BTreeSet;

use assent_kind::Kind;
use serde::Serialize;

use super::csv::other_names;
use super::{Cell, ChartKind, Figures, Labels, Report};
use crate::BenchError;

/// What two reports have in common, and what not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Of both.
    pub scenario: String,
    /// What a reader must know before any ratio: other machines, partial reports.
    pub warnings: Vec<String>,
    /// Floors of both, by name, at their medians.
    pub floors: Vec<Row>,
    /// Cells of both, a row for each figure.
    pub rows: Vec<Row>,
    /// Cells of both of which at least one failed.
    pub failed: Vec<Failed>,
    /// Cells that only the first has.
    pub only_in_a: Vec<Labels>,
    /// Cells that only the second has.
    pub only_in_b: Vec<Labels>,
}

/// One figure of a cell, or of a floor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The cell's; of a floor its name.
    pub labels: Labels,
    /// Its name.
    pub figure: String,
    /// The first report's.
    pub a: Option<f64>,
    /// The second report's.
    pub b: Option<f64>,
    /// The second's over the first's.
    pub ratio: Option<f64>,
}

/// A cell that failed in at least one of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    /// The cell's.
    pub labels: Labels,
    /// Why it failed in the first.
    pub a: Option<String>,
    /// Why it failed in the second.
    pub b: Option<String>,
}

/// Holds `b` against `a`, at these figures; at those of their charts where none is named.
///
/// # Errors
/// [`Kind::Invalid`] for two scenarios, and for a figure that neither has.
pub fn compare(a: &Report, b: &Report, figures: &[String]) -> Result<Comparison, BenchError> {
    if a.scenario != b.scenario {
        let said = format!("one report is of {}, the other of {}; compare two of one scenario", a.scenario, b.scenario);
        return Err(BenchError::new(Kind::Invalid, said));
    }
    let figures = if figures.is_empty() { usual(a, b) } else { figures.to_vec() };
    let known = |name: &String| a.cells.iter().chain(&b.cells).any(|cell| cell.figures.contains_key(name));
    if let Some(unknown) = figures.iter().find(|name| !known(name)) {
        return Err(BenchError::new(Kind::Invalid, format!("no cell of either report has a figure {unknown:?}")));
    }
    let find = |cells: &[Cell], labels: &Labels| cells.iter().find(|cell| cell.labels == *labels).cloned();
    let lacks = |of: &[Cell], other: &[Cell]| -> Vec<Labels> {
        of.iter().filter(|cell| find(other, &cell.labels).is_none()).map(|cell| cell.labels.clone()).collect()
    };
    let pairs = a.cells.iter().filter_map(|cell| Some((cell, find(&b.cells, &cell.labels)?)));
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (one, two) in pairs {
        rows.extend(figures.iter().filter_map(|name| row(&one.labels, name, &one.figures, &two.figures)));
        if one.error.is_some() || two.error.is_some() {
            failed.push(Failed { labels: one.labels.clone(), a: one.error.clone(), b: two.error });
        }
    }
    Ok(Comparison {
        scenario: a.scenario.clone(),
        warnings: warnings(a, b),
        floors: floors(a, b),
        rows,
        failed,
        only_in_a: lacks(&a.cells, &b.cells),
        only_in_b: lacks(&b.cells, &a.cells),
    })
}

/// What their charts show; without charts, all that is no statistic of a call.
fn usual(a: &Report, b: &Report) -> Vec<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for chart in a.charts.iter().chain(&b.charts) {
        names.extend(chart.y.iter().cloned());
        names.extend((chart.kind == ChartKind::Curve).then(|| chart.x.clone()));
    }
    let known = |name: &String| a.cells.iter().chain(&b.cells).any(|cell| cell.figures.contains_key(name));
    names.retain(known);
    if names.is_empty() {
        names.extend(other_names(a).into_iter().chain(other_names(b)));
    }
    names.into_iter().collect()
}

fn row(labels: &Labels, name: &str, a: &Figures, b: &Figures) -> Option<Row> {
    let (a, b) = (a.get(name).copied(), b.get(name).copied());
    let ratio = a.zip(b).map(|(a, b)| b / a).filter(|ratio| ratio.is_finite());
    (a.is_some() || b.is_some()).then(|| Row { labels: labels.clone(), figure: name.to_owned(), a, b, ratio })
}

fn floors(a: &Report, b: &Report) -> Vec<Row> {
    let of_both = a.floors.iter().filter_map(|one| Some((one, b.floors.iter().find(|two| two.name == one.name)?)));
    let labels = |name: &String| Labels::from([("floor".to_owned(), name.clone())]);
    of_both.filter_map(|(one, two)| row(&labels(&one.name), "p50", &one.figures, &two.figures)).collect()
}

fn warnings(a: &Report, b: &Report) -> Vec<String> {
    let differences = a.host.differences(&b.host);
    let mut warnings = Vec::new();
    if !differences.is_empty() {
        warnings.push(format!("the machines differ, so that ratios say little: {}", differences.join("; ")));
    }
    for (name, report) in [("first", a), ("second", b)] {
        if !report.complete {
            warnings.push(format!("the {name} report is partial: its race was stopped"));
        }
        if report.host.build == "debug" {
            warnings.push(format!("the {name} report is of a debug build"));
        }
    }
    warnings
}
