//! The protocol as a table, and as every order of events.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod every_order;
mod story;
mod table;
