//! Members as processes of their own: killed, frozen, started again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod child;
mod front;
mod processes;
mod stalled;
