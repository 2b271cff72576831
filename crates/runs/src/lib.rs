//! An ordered, persistent map from bytes to bytes: what was written last is in memory, the rest in sorted, immutable runs.
//!
//! ```text
//!   apply    owner's log order -> memtable -> publish            nothing here is durable: the owner's log is
//!   flush    memtable -> a run -> manifest (with the mark up to which the owner need not replay)
//!   merge    runs -> fewer, larger, disjoint runs -> manifest
//!   look     View: one version of everything, pinned; memtables and runs, the newest first
//! ```
//! Memory: `arena`, `memtable`, `ranges`, `version` · files: `block`, `seal`, `filter`, `run*`, `level`, `merged`, `parts`,
//! `cache`, `doorkeeper`, `held`, `memo`, `open_runs` · what is durable: `manifest`, `book` · what happens: `policy`, `step`, `runs`, `bulk` · who looks: `view`, `walk`, `in_order`.
//! Deliberately absent: threads, a log of its own, and what keys and values mean.
#![forbid(unsafe_code)]

mod arena;
mod block;
mod book;
mod bulk;
mod cache;
mod closed;
mod config;
mod doorkeeper;
mod entry;
mod error;
mod facts;
mod filter;
#[doc(hidden)]
pub mod fuzzing;
mod held;
mod in_order;
mod level;
mod manifest;
mod memo;
mod memtable;
mod merged;
mod nowhere;
mod open_runs;
mod output;
mod owner;
mod parts;
mod places;
mod policy;
mod ranges;
mod run;
mod run_cursor;
mod run_reader;
mod run_verify;
mod run_writer;
mod runs;
mod seal;
mod shunned;
mod step;
mod told;
mod version;
mod view;
mod walk;

#[cfg(test)]
mod files_test;

use assent_world::Barrier;

pub use bulk::Bulk;
pub use config::Config;
pub use entry::{Change, Entry, Range};
pub use error::RunsError;
pub use facts::{Debt, Facts, LevelFacts, Opened, Verified};
pub use in_order::InOrder;
pub use open_runs::{OpenRuns as OpenFiles, Slot};
pub use owner::{AtOnce, Fate, Go, Owner, Pace, Tally};
pub use runs::Runs;
pub use step::Step;
pub use view::{Found, Newest, Pinned, View};
pub use walk::Walk;

/// The longest key.
pub const KEY_BYTES_MAX: usize = (64 << 10) + 16;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

/// Every place of this room that makes something durable.
pub const BARRIERS: &[Barrier] = &[
    manifest::FOLDER,
    manifest::COPY_BYTES,
    manifest::COPY_NAMES,
    manifest::COPY_AGAIN,
    manifest::COPY_VOID,
    manifest::COPY,
    run_writer::RUN,
    output::RUN_NAMES,
    bulk::BULK_NAMES,
];
