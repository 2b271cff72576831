//! Any arbiter, the same tests: in this process, behind its door, and etcd where it is installed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail loudly, say what they skip, and break files by hand"
)]

mod door;
mod etcd;
mod fuzz;
mod power;
mod suite;
