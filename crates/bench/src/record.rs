//! What the calls of a workload took: every sample is kept, percentiles are exact, an HDR histogram is laid beside them.
//!
//! Walk: a thread has a [`Recorder`] of its own · [`Recorder::record`] in each call · [`Recorder::merge`] when it has ended ·
//! [`Recorder::fill`] a cell.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_kind::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

use crate::BenchError;
use crate::report::Cell;
use crate::stats::{Latency, Samples};

/// Of an HDR histogram: a value is known to one in a thousand.
const DIGITS: u8 = 3;

/// Samples by call.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    calls: BTreeMap<&'static str, Samples>,
}

impl Recorder {
    /// One call took that long. With a rate: from the instant that the schedule meant it to begin (`pace::OpenLoop`).
    pub fn record(&mut self, call: &'static str, took: Duration) {
        self.calls.entry(call).or_default().push(took);
    }

    /// Samples that were taken elsewhere.
    pub fn extend(&mut self, call: &'static str, samples: &Samples) {
        self.calls.entry(call).or_default().extend(samples);
    }

    /// All of another thread's.
    pub fn merge(&mut self, other: &Recorder) {
        for (call, samples) in &other.calls {
            self.calls.entry(call).or_default().extend(samples);
        }
    }

    /// The samples of a call.
    #[must_use]
    pub fn samples(&self, call: &str) -> Option<&Samples> {
        self.calls.get(call)
    }

    /// The percentiles of a call; all zero if it was never made.
    #[must_use]
    pub fn latency(&self, call: &str) -> Latency {
        self.calls.get(call).map(Samples::latency).unwrap_or_default()
    }

    /// Lays figures (`CALL_p95_us` ..) and histograms of every call into a cell.
    ///
    /// # Errors
    /// [`Kind::Internal`] where a histogram cannot be laid.
    pub fn fill(&self, cell: &mut Cell) -> Result<(), BenchError> {
        for (call, samples) in &self.calls {
            for (name, value) in samples.latency().named() {
                let unit = if name == "samples" { "" } else { "_us" };
                cell.figures.insert(format!("{call}_{name}{unit}"), value);
            }
            cell.histograms.insert((*call).to_owned(), histogram(samples)?);
        }
        Ok(())
    }
}

/// Two histograms of a cell as one.
///
/// # Errors
/// [`Kind::Corrupt`] where one of them is none.
pub fn merged(one: &str, other: &str) -> Result<String, BenchError> {
    let mut sum = unlaid(one)?;
    sum.add(unlaid(other)?).map_err(|error| failed(&error))?;
    laid(&sum)
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::new(Kind::Internal, format!("the histogram: {error}"))
}

fn unlaid(text: &str) -> Result<Histogram<u64>, BenchError> {
    let wrong = |error: &dyn std::fmt::Display| BenchError::new(Kind::Corrupt, format!("no histogram: {error}"));
    let bytes = STANDARD.decode(text).map_err(|error| wrong(&error))?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| wrong(&error))
}

fn histogram(samples: &Samples) -> Result<String, BenchError> {
    let mut histogram = Histogram::<u64>::new(DIGITS).map_err(|error| failed(&error))?;
    for nanos in samples.nanos() {
        histogram.record(*nanos).map_err(|error| failed(&error))?;
    }
    laid(&histogram)
}

fn laid(histogram: &Histogram<u64>) -> Result<String, BenchError> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(|error| failed(&error))?;
    Ok(STANDARD.encode(bytes))
}
