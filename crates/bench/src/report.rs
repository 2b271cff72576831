//! What a race leaves behind: host, floors, cells and the charts that are drawn of them.
//!
//! Walk: a race makes a [`Report`] and gives it to a [`sink::Sink`], which keeps it on disk while cells come in · [`html`] and
//! [`csv`] lay a finished or partial report for people and programs · [`compare`] holds two against each other · [`pool`] puts several
//! runs together.
//! Deliberately absent: knowledge of a workload. Labels and figures are names; a chart is a pure function of cells.

pub mod compare;
pub mod csv;
pub mod html;
pub mod pool;
pub mod sink;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use assent_kind::Kind;
use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::host::Host;

/// The layout of the JSON file. It grows when an old reader would misread a new file.
pub const FORMAT: u32 = 1;

/// Named figures; the unit is in the name: `tps`, `total_p95_us`, `server_cpu_us_per_tx`.
pub type Figures = BTreeMap<String, f64>;

/// Labels that name a cell: `engine` = `journal`, `rpo` = `0/5`, `clients` = `50`.
pub type Labels = BTreeMap<String, String>;

/// A race's result, whole or as far as it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`FORMAT`].
    pub format: u32,
    /// The workload: `tx`, `kv`, `docs`, `assets`.
    pub scenario: String,
    /// One line for people.
    pub title: String,
    /// The command line without folders of the machine and without addresses that hold passwords.
    pub command: String,
    /// Where it ran.
    pub host: Host,
    /// What the same work costs without us, measured in the same run.
    pub floors: Vec<Floor>,
    /// One for each product of the axes, also those that failed.
    pub cells: Vec<Cell>,
    /// What is drawn of the cells.
    pub charts: Vec<ChartSpec>,
    /// Whether every cell that was asked for was run.
    pub complete: bool,
    /// What a reader must know, one sentence each.
    pub notes: Vec<String>,
}

/// One floor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// What was done: `durable write, hot`.
    pub name: String,
    /// Of all its figures: `us`, `operations/s`.
    pub unit: String,
    /// `p50`, `p95` and what else is known.
    pub figures: Figures,
}

/// One product of the axes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its place on each axis. No two cells of a report have the same labels.
    pub labels: Labels,
    /// What was measured; empty for a cell that failed at once.
    #[serde(default)]
    pub figures: Figures,
    /// By call: an HDR histogram of nanoseconds, V2 with deflate, base64.
    #[serde(default)]
    pub histograms: BTreeMap<String, String>,
    /// What changes while a cell runs, by name: places and values, in the order of the places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// What must be the same where its rounds are put together with others of the same labels. Empty: that is not said, and they are
    /// not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: Labels,
    /// The figures of each round that went well, where there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Figures>,
    /// Why it failed, one sentence.
    #[serde(default)]
    pub error: Option<String>,
}

impl Cell {
    /// A cell without figures.
    #[must_use]
    pub fn new<'l>(labels: impl IntoIterator<Item = (&'l str, String)>) -> Self {
        let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { labels, ..Self::default() }
    }
}

/// What the x axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// Figures over a label whose values are numbers.
    Lines,
    /// A figure over a figure, the points ordered along a label whose values are numbers.
    Curve,
    /// Series of the cells, a line a cell.
    Series,
    /// Figures for each value of a label, side by side.
    Bars,
}

/// One chart. Cells that differ in a label that is neither an axis nor a series nor filtered get lines of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChartSpec {
    /// Above it.
    pub title: String,
    /// How it is laid.
    pub kind: ChartKind,
    /// Lines and bars: a label. Curve: a figure. Series: empty.
    pub x: String,
    /// Curve: the label that orders the points. Lines: the same as `x`, or empty.
    #[serde(default)]
    pub along: String,
    /// Figures, or names of series. More than one makes a line each, or a bar.
    pub y: Vec<String>,
    /// The labels that make a line.
    #[serde(default)]
    pub series: Vec<String>,
    /// Only cells that have one of these values of each of these labels.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// Under the x axis, with its unit: `clients`, `transactions/s`.
    pub x_title: String,
    /// Beside the y axis, with its unit.
    pub y_title: String,
    /// A logarithmic x axis.
    #[serde(default)]
    pub x_log: bool,
    /// A logarithmic y axis.
    #[serde(default)]
    pub y_log: bool,
}

impl Report {
    /// A report without cells, not complete.
    #[must_use]
    pub fn new(scenario: &str, title: &str, command: String, host: Host) -> Self {
        Self {
            format: FORMAT,
            scenario: scenario.to_owned(),
            title: title.to_owned(),
            command,
            host,
            floors: Vec::new(),
            cells: Vec::new(),
            charts: Vec::new(),
            complete: false,
            notes: Vec::new(),
        }
    }

    /// Takes a cell in, in the place of one with the same labels. A figure that is no number is left out and noted.
    pub fn put(&mut self, mut cell: Cell) {
        let odd: Vec<String> =
            cell.figures.iter().filter(|(_, value)| !value.is_finite()).map(|(name, _)| name.clone()).collect();
        for name in odd {
            cell.figures.remove(&name);
            self.notes.push(format!("{}: {name} was no number and is left out", named(&cell.labels)));
        }
        // Also of one round, where the median is a number: JSON has none for it, and the report could not be read again.
        cell.rounds.iter_mut().for_each(|round| round.retain(|_, value| value.is_finite()));
        match self.cells.iter_mut().find(|kept| kept.labels == cell.labels) {
            Some(kept) => *kept = cell,
            None => self.cells.push(cell),
        }
    }

    /// Takes a floor in, in the place of one with the same name.
    pub fn put_floor(&mut self, mut floor: Floor) {
        floor.figures.retain(|_, value| value.is_finite());
        match self.floors.iter_mut().find(|kept| kept.name == floor.name) {
            Some(kept) => *kept = floor,
            None => self.floors.push(floor),
        }
    }

    /// A report from its JSON.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where it is no report, or one of another format.
    pub fn from_json(text: &str) -> Result<Self, BenchError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let refuse =
            |error: serde_json::Error| BenchError::new(Kind::Invalid, format!("not a report of ours: {error}"));
        let head: Head = serde_json::from_str(text).map_err(refuse)?;
        if head.format != FORMAT {
            let said = format!("a report of format {}; this program reads format {FORMAT}", head.format);
            return Err(BenchError::new(Kind::Invalid, said));
        }
        serde_json::from_str(text).map_err(refuse)
    }

    /// Reads a report that a sink wrote.
    ///
    /// # Errors
    /// What the disk says, or [`Kind::Invalid`] where it is no report, or one of another format.
    #[expect(clippy::disallowed_methods, reason = "a report is read once, by a person's command")]
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let bytes = std::fs::read(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => BenchError::new(Kind::NotFound, format!("no report at {}", path.display())),
            _ => BenchError::disk(&format!("reading {}", path.display()), &error),
        })?;
        let text = String::from_utf8_lossy(&bytes);
        Self::from_json(&text).map_err(|error| BenchError::new(error.kind, format!("{}: {error}", path.display())))
    }
}

/// Labels as one line: `clients=50 engine=journal`.
#[must_use]
pub fn named(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

/// A figure for people: four digits are enough, thousands apart.
#[must_use]
pub fn shown(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.001 => 3,
        _ => return format!("{value:.1e}"),
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let first = whole.len() % 3;
    let (head, rest) = whole.split_at_checked(first).unwrap_or((whole, ""));
    let mut parts: Vec<&str> = if head.is_empty() { Vec::new() } else { vec![head] };
    parts.extend((0..rest.len()).step_by(3).filter_map(|at| rest.get(at..at + 3)));
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_can_be_read_again_whatever_was_measured() {
        let mut report = Report::new("kv", "", String::new(), Host::default());
        let round = |value: f64| Figures::from([("us".to_owned(), value), ("mb".to_owned(), 1.0)]);
        let rounds = [f64::NAN, 5.0, f64::INFINITY].map(round).to_vec();
        report.put(Cell { figures: round(5.0), rounds, ..Cell::default() });
        let again = Report::from_json(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(again, report);
        assert_eq!(again.cells[0].rounds.iter().map(Figures::len).collect::<Vec<_>>(), [1, 2, 1]);
    }
}
