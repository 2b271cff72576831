//! The trace of one transaction: what was called, what each branch was told, and when.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use assent_xa::Verb;
use serde::Serialize;

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Since the beginning, when the step had ended.
    pub at_us: f64,
    /// How long it took; null for what is only sent.
    pub took_us: Option<f64>,
    /// What it was.
    pub what: String,
}

/// Steps, as they are made.
#[derive(Debug)]
pub(super) struct Trace {
    start: Instant,
    steps: Mutex<Vec<Step>>,
}

impl Trace {
    #[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
    pub(super) fn begin() -> Self {
        Self { start: Instant::now(), steps: Mutex::default() }
    }

    pub(super) fn note(&self, what: String, took: Option<Duration>) {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let step = Step { at_us: us(self.start.elapsed()), took_us: took.map(us), what };
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The verb as the XA standard calls it.
pub(super) const fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Start(_) => "xa_start",
        Verb::End { .. } => "xa_end",
        Verb::Prepare(_) => "xa_prepare",
        Verb::Commit(_) => "xa_commit",
        Verb::CommitOnePhase(_) => "xa_commit in one phase",
        Verb::Rollback(_) => "xa_rollback",
        Verb::Recover(_) => "xa_recover",
        Verb::Forget(_) => "xa_forget",
        Verb::Claim(_) => "claim",
        Verb::Inquire { .. } => "inquire",
        Verb::Evict(_) => "evict",
        Verb::Freed { .. } => "freed",
        Verb::CommitLast { .. } => "commit with a row",
        Verb::Settle { .. } => "settle",
        Verb::Rows { .. } => "rows",
        Verb::Clear { .. } => "clear",
    }
}
