//! The journal: an append-only run of checksummed entries, durable in order.
//!
//! Walk: to be drawn with the local-disk form.
#![forbid(unsafe_code)]

mod error;
mod log;

pub use error::JournalError;
pub use log::{Entry, Log, State, Ticket};
