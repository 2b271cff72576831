//! The journal on a simulated and on a real disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod archive;
mod basics;
mod contract;
mod cut;
mod faults;
mod gate;
mod indirect;
mod kept;
mod late;
mod leaving;
mod parts;
mod policy;
mod real;
mod restarts;
mod stage;
