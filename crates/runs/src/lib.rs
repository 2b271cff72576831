//! An ordered, persistent map from bytes to bytes: what was written last is in memory, the rest in sorted, immutable runs.
//!
//! ```text
//!   apply    owner's log order -> memtable -> publish            nothing here is durable: the owner's log is
//!   flush    memtable -> a run -> manifest (with the mark up to which the owner need not replay)
//!   merge    runs -> fewer, larger, disjoint runs -> manifest
//!   look     View: one version of everything, pinned; memtables and runs, the newest first
//! ```
//! Deliberately absent: threads, a log of its own, and what keys and values mean.
#![forbid(unsafe_code)]

mod block;
mod cache;
mod entry;
mod error;
mod filter;
#[doc(hidden)]
pub mod fuzzing;
mod level;
mod merged;
mod parts;
mod run;
mod run_cursor;
mod run_reader;
mod run_verify;
mod run_writer;
mod seal;

#[cfg(test)]
#[path = "files_test.rs"]
mod files_test;

pub use entry::{Entry, Range};
pub use error::RunsError;
