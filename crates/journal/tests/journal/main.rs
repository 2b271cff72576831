//! The journal on a simulated and on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod basics;
mod gate;
mod stage;
