//! Where a running race puts its cells: whatever ends it, the files on disk are a valid report of what was measured.
//!
//! Walk: [`Sink::put`] takes a cell and replaces the JSON file by rename · [`Sink::finish`] lays CSV and HTML too. A clone is the
//! same sink, so that the thread that hears Ctrl-C can finish what the race began.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_kind::Kind;

use super::{Cell, ChartSpec, Floor, Report, csv, html};
use crate::BenchError;

/// The files to write; a race without any keeps its report in memory.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// The report itself.
    pub json: Option<PathBuf>,
    /// A row a cell and call.
    pub csv: Option<PathBuf>,
    /// One page for people.
    pub html: Option<PathBuf>,
}

impl Outputs {
    /// The three of them beside each other: `NAME.json`, `NAME.csv`, `NAME.html`.
    #[must_use]
    pub fn named(name: &Path) -> Self {
        let with = |extension: &str| {
            let mut path = name.as_os_str().to_owned();
            path.push(extension);
            Some(PathBuf::from(path))
        };
        Self { json: with(".json"), csv: with(".csv"), html: with(".html") }
    }
}

/// The report of a running race.
#[derive(Clone, Debug)]
pub struct Sink {
    report: Arc<Mutex<Report>>,
    outputs: Arc<Outputs>,
    interrupted: Arc<AtomicBool>,
}

impl Sink {
    /// Begins: writes the report as it is, so that a folder that cannot be written is noticed before the race.
    ///
    /// # Errors
    /// What the disk says.
    pub fn new(report: Report, outputs: Outputs) -> Result<Self, BenchError> {
        let sink = Self {
            report: Arc::new(Mutex::new(report)),
            outputs: Arc::new(outputs),
            interrupted: Arc::new(AtomicBool::new(false)),
        };
        sink.save(&sink.lock())?;
        Ok(sink)
    }

    /// One more cell, also one that failed.
    ///
    /// # Errors
    /// What the disk says; the cell is kept in memory all the same.
    pub fn put(&self, cell: Cell) -> Result<(), BenchError> {
        let mut report = self.lock();
        report.put(cell);
        self.save(&report)
    }

    /// One more floor, or better known.
    ///
    /// # Errors
    /// What the disk says.
    pub fn put_floor(&self, floor: Floor) -> Result<(), BenchError> {
        let mut report = self.lock();
        report.put_floor(floor);
        self.save(&report)
    }

    /// What is drawn of the cells.
    pub fn draw(&self, charts: Vec<ChartSpec>) {
        self.lock().charts = charts;
    }

    /// What a reader must know.
    pub fn note(&self, sentence: impl Into<String>) {
        let (mut report, sentence) = (self.lock(), sentence.into());
        if !report.notes.contains(&sentence) {
            report.notes.push(sentence);
        }
    }

    /// Writes every file. `complete` where every cell that was asked for was run.
    ///
    /// # Errors
    /// What the disk says.
    pub fn finish(&self, complete: bool) -> Result<(), BenchError> {
        let mut report = self.lock();
        report.complete = complete;
        self.save(&report)?;
        if let Some(path) = &self.outputs.csv {
            replace(path, csv::lay(&report)?.as_bytes())?;
        }
        if let Some(path) = &self.outputs.html {
            replace(path, html::lay(&report)?.as_bytes())?;
        }
        Ok(())
    }

    /// Asks the race to stop where it stands; it looks at [`Sink::interrupted`] between cycles.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked the race to stop.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// The flag itself, for threads that look at it in every cycle.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// The files it writes.
    #[must_use]
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// The report as it is now.
    #[must_use]
    pub fn report(&self) -> Report {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        // A report is plain data: whoever panicked left a valid one.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self, report: &Report) -> Result<(), BenchError> {
        let Some(path) = &self.outputs.json else { return Ok(()) };
        let text = serde_json::to_string(report).map_err(|error| BenchError::new(Kind::Internal, error))?;
        replace(path, text.as_bytes())
    }
}

/// Lays a file whole or not at all: written beside it, then renamed.
///
/// # Errors
/// What the disk says.
#[expect(clippy::disallowed_methods, reason = "a report is no log: it must be whole, it need not be durable")]
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        _ = std::fs::remove_file(&beside);
        BenchError::disk(&format!("writing the report {}", path.display()), &error)
    })
}
