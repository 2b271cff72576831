//! `assent bench report`: lays a kept report anew, as a page, as CSV, or its charts as pictures; several runs of one race as one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assent_bench::chart::{draw, plot};
use assent_bench::report::pool::merge;
use assent_bench::report::sink::{Sink, replace};
use assent_bench::report::{Report, csv, html};
use clap::Args;

use super::keep::Keep;
use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchReport {
    /// The JSON of a race. Of several races of one kind on one machine: they are put together, each cell with the rounds of all of them, into
    /// a report of another name.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The page to write.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["csv", "charts", "report"])]
    pub(crate) html: Option<PathBuf>,
    /// The CSV to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Each chart as an SVG picture with its legend, named by its title, into this folder, which must exist.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) charts: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: Keep,
}

/// Runs the command.
pub(super) fn run(arguments: &BenchReport) -> Result<ExitCode, Failure> {
    let reports = arguments.files.iter().map(|file| Report::read(file)).collect::<Result<Vec<_>, _>>()?;
    let report = merge(&reports)?;
    let outputs = arguments.keep.outputs();
    if let Some(json) = outputs.json.as_deref().filter(|json| reports.len() > 1 && is_among(json, &arguments.files)) {
        let said = format!("--report would write {} over with all of them: name another", json.display());
        return Err(Failure::invalid(said));
    }
    if outputs.json.is_some() {
        Sink::new(report.clone(), outputs)?.finish(report.complete)?;
    }
    if let Some(path) = &arguments.html {
        replace(path, html::lay(&report)?.as_bytes())?;
    }
    if let Some(path) = &arguments.csv {
        replace(path, csv::lay(&report)?.as_bytes())?;
    }
    if let Some(folder) = &arguments.charts {
        for spec in &report.charts {
            let picture = draw::picture(spec, &plot(spec, &report.cells))?;
            if !picture.is_empty() {
                replace(&folder.join(format!("{}.svg", named(&spec.title))), picture.as_bytes())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is one of these, by whatever name.
fn is_among(file: &Path, files: &[PathBuf]) -> bool {
    file.canonicalize()
        .is_ok_and(|file| files.iter().any(|other| other.canonicalize().is_ok_and(|other| other == file)))
}

/// A title as the name of a file.
fn named(title: &str) -> String {
    let lower = title.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}
