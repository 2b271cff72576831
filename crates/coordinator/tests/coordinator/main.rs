//! The coordinator over a log in memory, over the real journal on a simulated disk, and against resources that fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    missing_debug_implementations,
    reason = "tests fail by panicking, and say how far they came"
)]
#![expect(clippy::duplicate_mod, reason = "the contract runs over a log and again over a state table")]

mod agent;
mod agent_claims;
mod agent_histories;
mod agent_lost;
mod agent_many;
mod agent_truth;
mod bank;
mod chain;
mod client;
mod counted;
mod decisions;
mod fencing;
mod fuzz;
mod gate;
mod history;
mod interleavings;
mod memory;
mod operators;
mod over_a_table;
mod restart;
mod row_rules;
mod rows;
mod speed;
mod stand;
mod table;
mod table_work;
