//! The race of the document store: long histories and large documents, embedded, each durable commit against a durable write of the
//! same bytes in the same run.
//!
//! Warm is a call like those before it. Cold is the first call of its sort after the database was closed and opened again: the
//! process keeps nothing, the page cache does. Whatever is read is checked.
//!
//! Walk: [`scenario`] says what is asked for · [`run`] runs it in a folder · [`history`] and [`large`] are the scenarios, [`readers`] a
//! part of one, [`desk`] opens their database · [`rest`] has the two over HTTP, whose servers are processes · [`charts`] what is drawn.
//! Deliberately absent: peers.

pub mod charts;
mod desk;
mod history;
mod large;
mod readers;
mod rest;
pub mod scenario;
mod unsynced;

use std::path::Path;
use std::time::{Duration, Instant};

use assent_docs::{DocsError, Document, Look as _, NodeKey, Revision};
use assent_kind::Kind;

use self::scenario::{Given, Scenario};
use crate::BenchError;
use crate::floor::Floor;
use crate::report::Cell;
use crate::report::sink::Sink;

/// A race under way.
struct Stage<'r> {
    folder: &'r Path,
    given: &'r Given,
    sink: &'r Sink,
    scenario: Scenario,
    progress: &'r dyn Fn(&str),
}

/// Runs what is asked for, each scenario in a folder of its own, and puts rows into the report as they come.
///
/// # Errors
/// What the disk says, and [`Kind::Corrupt`] for what was read and is wrong. What was measured before is in the report.
pub fn run(folder: &Path, given: &Given, sink: &Sink, progress: impl Fn(&str)) -> Result<(), BenchError> {
    for scenario in &given.scenarios {
        let folder = folder.join(format!("assent-bench-{}", scenario.name()));
        clean(&folder)?;
        std::fs::create_dir_all(&folder).map_err(|error| BenchError::disk("making the race's folder", &error))?;
        let stage = Stage { folder: &folder, given, sink, scenario: *scenario, progress: &progress };
        let ran = match scenario {
            Scenario::History => history::run(&stage),
            Scenario::Large => large::run(&stage),
            Scenario::Rest | Scenario::Mixed => rest::run(&stage),
        };
        clean(&folder)?;
        ran?;
        if sink.interrupted() {
            return Ok(());
        }
    }
    Ok(())
}

fn clean(folder: &Path) -> Result<(), BenchError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::disk("cleaning the race's folder", &error))
        }
        _ => Ok(()),
    }
}

impl Stage<'_> {
    /// A row of the report: its labels are the scenario, what was done, and on what.
    fn row(&self, row: &str, on: &str) -> Cell {
        let labels = [("scenario", self.scenario.name().to_owned()), ("row", row.to_owned()), ("on", on.to_owned())];
        Cell::new(labels)
    }

    /// One slice of the floor: durable writes of so many bytes each. The best way's median, in microseconds.
    fn floor(&self, bytes: u64, each: Duration) -> Result<f64, BenchError> {
        let mut floor = Floor::new(self.folder, usize::try_from(bytes.max(1)).unwrap_or(usize::MAX))?;
        floor.slice(each)?;
        for kept in floor.kept() {
            self.sink.put_floor(kept)?;
        }
        floor.best().map(|best| best.p50).ok_or_else(|| BenchError::new(Kind::Internal, "the floor has no slices"))
    }

    fn tell(&self, what: &str) {
        (self.progress)(what);
    }
}

fn failed(error: DocsError) -> BenchError {
    BenchError::new(error.kind(), error)
}

fn wrong(what: impl std::fmt::Display) -> BenchError {
    BenchError::new(Kind::Corrupt, what)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
const fn number(count: u64) -> f64 {
    count as f64
}

/// Three steps: to the value, to the first member or value, to the next one; what that says.
fn three_steps(revision: &Revision) -> Result<(NodeKey, String), BenchError> {
    let gone = || wrong(format!("revision {} has no such node", revision.number()));
    let value = revision.item(revision.value().ok_or_else(gone)?).map_err(failed)?;
    let first = revision.item(value.node.first.ok_or_else(gone)?).map_err(failed)?;
    let second = revision.item(first.node.right.ok_or_else(gone)?).map_err(failed)?;
    Ok((second.node.key, second.text().to_owned()))
}

/// Opens a revision and reads what it says of the field that every commit sets.
fn open_and_read(doc: &Document, revision: u32) -> Result<(), BenchError> {
    let (_, text) = three_steps(&doc.at(revision).map_err(failed)?)?;
    if text == history::count(revision) {
        return Ok(());
    }
    Err(wrong(format!("revision {revision} says {text:?}, {:?} was committed", history::count(revision))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::report::Report;
    use crate::report::sink::Outputs;

    /// Each row of readers beside somebody tells how much that one wrote.
    fn told_beside(report: &Report) {
        for (beside, rate) in [
            ("a writer of 1,000 commits/s", "commits_per_s"),
            ("a writer flat out", "commits_per_s"),
            ("a writer flat out that is woken soon", "commits_per_s"),
            ("1,000 bare durable writes/s", "writes_per_s"),
            ("bare durable writes flat out, woken soon", "writes_per_s"),
        ] {
            let on = format!("2 readers beside {beside}");
            let cell =
                report.cells.iter().find(|cell| cell.labels["on"] == on).unwrap_or_else(|| panic!("no row {on}"));
            let told = [rate, "ratio_to_alone", "core_wait_us"].map(|figure| cell.figures.get(figure).copied());
            assert!(told[0] > Some(0.0) && told[1] > Some(0.0) && told[2].is_some(), "{on}: {told:?}");
        }
    }

    #[test]
    fn a_small_race_fills_every_row_and_its_counts_are_those_of_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report::new("docs", "a test", String::new(), Host::default());
        let sink = Sink::new(report, Outputs::default()).unwrap();
        let given = Given {
            scenarios: vec![Scenario::History, Scenario::Large],
            commits: 60,
            step: 25,
            depths: vec![20, 60, 3_000],
            writers: vec![1, 3],
            readers: 2,
            window: Duration::from_millis(100),
            slice: Duration::from_millis(1),
            cold: 2,
            warm: 3,
            sizes: vec![50_000],
            large_commits: 20,
            ..Given::default()
        };
        sink.draw(charts::of(&given));
        run(folder.path(), &given, &sink, |_| {}).unwrap();
        let report = sink.report();
        let cell = |row: &str, on: &str| {
            let is_it = |cell: &&Cell| cell.labels["row"] == row && cell.labels["on"] == on;
            report.cells.iter().find(is_it).unwrap_or_else(|| panic!("no row {row}, {on}"))
        };
        let commit = cell("commit", "one field, one thread");
        assert_eq!((commit.figures["syncs_each"], commit.figures["writes_each"]), (1.0, 1.0));
        assert!(commit.figures["bytes_each"] <= 200.0 && commit.figures["floor_us"] > 0.0, "{:?}", commit.figures);
        // 20, 25, 50 and 60 revisions.
        assert_eq!(commit.series["commits_per_s"].len(), 4);
        assert_eq!(commit.figures["commit_samples"], 59.0);
        let deep = cell("commit", "one field, 3000 revisions deep");
        assert!(deep.figures["syncs_each"] == 1.0 && deep.figures["bytes_each"] <= 200.0, "{:?}", deep.figures);
        for (row, on) in [
            ("open", "20 revisions"),
            ("open", "60 revisions"),
            ("open", "3000 revisions"),
            ("commit", "one field, 3000 revisions deep"),
            ("open and read", "revision 1500 of 3000"),
            ("history", "a page of 100 of 3000"),
            ("open and read", "revision 1"),
            ("open and read", "revision 30"),
            ("history", "60 revisions"),
            ("history", "a page of 100"),
            ("diff", "revisions 59 and 60"),
            ("serialise", "revision 60"),
            ("commit", "3 writers, a document each"),
            ("read", "1 reader alone"),
            ("read", "2 readers alone"),
            ("load", "0.05 MB"),
            ("commit", "one field of 0.05 MB"),
            ("diff", "neighbours of 0.05 MB"),
            ("serialise", "0.05 MB"),
        ] {
            let cell = cell(row, on);
            assert!(!cell.figures.is_empty() && cell.error.is_none(), "{row}, {on}");
        }
        assert_eq!(cell("commit", "1 writer, a document each").figures["ratio_to_one"], 1.0);
        assert!(cell("commit", "3 writers, a document each").figures["ratio_to_one"] > 0.0);
        assert_eq!(cell("read", "1 reader alone").figures["ratio_to_one"], 1.0);
        assert_eq!(cell("read", "2 readers alone").figures["ratio_to_alone"], 1.0);
        told_beside(&report);
        assert!(cell("commit", "one field of 0.05 MB").figures["bytes_each"] <= 1024.0);
        assert!(report.floors.len() >= 4 && report.charts.len() == 13);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
