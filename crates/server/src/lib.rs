//! The binary protocol served: a coordinator, a key-value store, or both, to many connections on one thread.
//!
//! ```text
//!  sockets ─▶ desk: read all that waits ─▶ step each (append, never wait) ─▶ wait: the first wait syncs for all
//!     ▲                                                                          │
//!     └────────────── one write per connection ◀── answer all ◀──────────────────┘
//! ```
//! One sync a turn for each journal, whatever the number of requests; no thread crossing. Recovery and housekeeping
//! have threads of their own, beside the desk.
//!
//! Walk: [`Server::start`] puts the parts together · `desk` turns · `connection` one socket and its patience · `role`
//! greets and hands requests to `decisions`, `store` (`objects`: many keys at once), `admin` · `seats` who speaks for a client · `owed` what waits for a
//! sync · `long` messages in parts · `inquiry` what takes longer than a turn · [`views`] transactions in the words of the wire · `caretakers`
//! recovery and ticks · `report` what a round of recovery did · `watch`, `numbers` for meters and health.
//! Deliberately absent: async, HTTP (`rest`), and the driving of anybody's commit: clients do that.
#![forbid(unsafe_code)]

mod admin;
mod caretakers;
mod chores;
mod connection;
mod decisions;
mod deferred;
mod desk;
mod inquiry;
mod keyspaces;
mod long;
mod numbers;
mod objects;
mod owed;
mod range;
mod report;
mod role;
mod seats;
mod server;
mod shared;
mod store;
mod told;
pub mod views;
mod watch;

pub use server::{Config, Engines, Server, ServerError};
