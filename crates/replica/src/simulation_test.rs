//! A group in simulated time, for the tests of this room and of any above it that has a [`Machine`](crate::Machine).
//!
//! Walk: who plays, and how a seed is played (`play_test`), in which shape (`shape_test`) · the group and what happens to it
//! (`group_test`), what goes wrong (`harm_test`), what must never be (`judge_test`) · one member's machine (`seat_test`) and what runs on
//! it (`up_test`).
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
mod harm_test;
mod judge_test;
mod play_test;
mod seat_test;
mod shape_test;
mod up_test;

pub use group_test::Group;
pub use play_test::{Play, SEEDS, Seen, Stage, gate, play};
pub use seat_test::{Said, Seat};
pub use shape_test::Shape;
pub use up_test::Up;
