//! A connection of the binary protocol, as a caller has it: blocking, pipelined, shared by many threads.
//!
//! ```text
//!   thread A  lay ─┐                      ┌─▶ its answer
//!   thread B  lay ─┼─▶ one write ─▶ … ─▶ read ─▶ B is handed its own, and the reading when A leaves
//!   thread C  lay ─┘   (who comes first)    (who waits first)
//! ```
//! No thread of its own: who comes first writes what all have laid, who waits first reads for all.
//!
//! Walk: [`Link::connect`] greets · [`Link::lay`] queues a request, [`Link::send`] puts it on its way, [`Link::receive`]
//! waits for its answer, [`Link::request`] is both · [`Link::one_way`] travels with whatever goes next · [`LinkError`]
//! tells surely not done from perhaps done.
//! Deliberately absent: reconnecting (only the caller knows what may be sent again), heartbeats (the caller has the
//! clock; [`Link::idle`] tells when one is due), TLS.
#![forbid(unsafe_code)]

mod error;
mod handshake;
mod link;
mod state;

pub use assent_world::net::Address;
pub use error::LinkError;
pub use handshake::LinkConfig;
pub use link::{Arrived, Link, Ticket};
pub use state::Counts;
