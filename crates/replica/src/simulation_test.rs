//! A group in simulated time, for the tests of this room and of any above it that has a [`Machine`](crate::Machine).
//!
//! Walk: `group_test` is the group and what happens to it · `seat_test` is one member of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    missing_debug_implementations,
    reason = "a test, also where it is that of a room above"
)]

mod group_test;
mod seat_test;

pub use group_test::{Group, Play, SEEDS, Seen, Stage, gate, play};
pub use seat_test::{Said, Seat, Shape, Up};
