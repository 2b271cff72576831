//! The protocol as a table: every message, every cut, every limit.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod wire {
    mod fuzz;
    mod golden;
    mod handshake;
    mod messages;
}
