//! A report as one page without any outside reference.

use super::Report;
use crate::BenchError;

/// The text of the page.
///
/// # Errors
/// What the drawing of a chart says.
pub fn lay(_report: &Report) -> Result<String, BenchError> {
    Ok(String::new())
}
