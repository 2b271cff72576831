//! The races: workloads, floors measured in the same run, exact statistics.
//!
//! Walk: [`journal`], [`tx`], [`kv`], [`assets`], [`docs`] and [`real`] run a workload and give a serialisable result · [`floor`] says what the same bytes cost
//! without us · [`report`] what a race leaves behind: JSON, CSV, a page with charts, comparison · [`record`] and [`pace`] how a workload
//! is timed · [`host`] where it ran · [`recover`] and [`restart`] leave a folder as a crash does, for a server that is then measured · [`stats`] exact percentiles over all samples.
//! Deliberately absent: printing; the command line lays tables.
#![forbid(unsafe_code)]

pub mod assets;
pub mod chart;
pub mod databases;
pub mod docs;
pub mod floor;
pub mod host;
mod house;
pub mod journal;
pub mod kv;
pub mod pace;
pub mod proxy;
pub mod real;
pub mod record;
pub mod recover;
pub mod report;
pub mod restart;
mod stage;
pub mod stats;
pub mod tx;
pub mod web;

use assent_kind::Kind;

/// Why a race could not be run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct BenchError {
    /// What the caller must do.
    pub kind: Kind,
    /// One sentence.
    pub message: String,
}

impl BenchError {
    pub(crate) fn new(kind: Kind, message: impl std::fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// What the disk refused while something was done.
    pub(crate) fn disk(doing: &str, error: &std::io::Error) -> Self {
        let (kind, advice) = match error.kind() {
            std::io::ErrorKind::StorageFull => (Kind::Full, ": make room"),
            std::io::ErrorKind::PermissionDenied => (Kind::Denied, ": name a folder that may be written"),
            _ => (Kind::Unavailable, ""),
        };
        Self { kind, message: format!("{doing}: {error}{advice}") }
    }

    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}
