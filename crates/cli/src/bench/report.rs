//! `assent bench report`: lays a kept report anew, as a page or as CSV.

use std::path::PathBuf;
use std::process::ExitCode;

use assent_bench::report::sink::replace;
use assent_bench::report::{Report, csv, html};
use clap::Args;

use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchReport {
    /// The JSON of a race.
    pub(crate) file: PathBuf,
    /// The page to write.
    #[arg(long, value_name = "FILE", required_unless_present = "csv")]
    pub(crate) html: Option<PathBuf>,
    /// The CSV to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(arguments: &BenchReport) -> Result<ExitCode, Failure> {
    let report = Report::read(&arguments.file)?;
    if let Some(path) = &arguments.html {
        replace(path, html::lay(&report)?.as_bytes())?;
    }
    if let Some(path) = &arguments.csv {
        replace(path, csv::lay(&report)?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
