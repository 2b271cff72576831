//! The map judged from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "helpers of tests may"
)]

mod accounts;
mod beside;
mod dirty;
mod faults;
mod gate;
mod gathered;
mod in_order;
mod lanes;
mod model;
mod open_files;
mod panics;
mod plain;
mod rot;
mod script;
mod stress;

use std::path::Path;
use std::sync::Arc;

use assent_runs::{AtOnce, Config, Opened, Runs, RunsError, Step};
use assent_sim::SimDisk;

pub use accounts::Accounts;

pub const FOLDER: &str = "map";

/// Sizes at which a handful of writes fills every level.
pub fn small() -> Config {
    Config {
        memory_bytes_max: 8 << 10,
        memory_bytes_kept: 8 << 20,
        bulk_bytes: 1 << 10,
        run_bytes: 1 << 10,
        block_bytes: 128,
        level0_runs: 2,
        level1_bytes: 2 << 10,
        level_ratio: 2,
        cache_bytes: 1 << 20,
        rows_bytes: 1 << 20,
        open_runs_max: 2,
        settles_late: false,
    }
}

pub fn open(disk: &SimDisk, config: Config) -> Result<(Runs, Opened, Accounts), RunsError> {
    let (runs, opened) = Runs::open(Arc::new(disk.clone()), Path::new(FOLDER), config)?;
    let accounts = Accounts::of(&opened.note);
    Ok((runs, opened, accounts))
}

/// As an owner does: a memtable is closed at the place where it has become too large.
pub fn close_if_full(runs: &Runs) {
    if runs.debt().active_bytes >= 1 << 10 {
        runs.rotate(runs.seq());
    }
}

/// Steps until there is nothing to do.
pub fn settle(runs: &Runs, accounts: &Accounts) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = runs.step(accounts, &AtOnce).unwrap() {
        steps.push(step);
        assert!(steps.len() < 10_000, "it never ends: {:?}", steps.last());
    }
    steps
}
