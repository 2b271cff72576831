//! HTTP: how the process stands and what it has counted. The only room with an asynchronous runtime, on one thread of
//! its own.
//!
//! Walk: [`Rest::start`] binds and serves · `routes` answers `/health` and `/metrics` · `listener` bounds connections
//! and their silence · [`Rest::stop`] finishes what is under way.
//! Deliberately absent: anything that changes something; it needs no authentication because it only reads numbers, and
//! listens on loopback (`door::listen_address`).
#![forbid(unsafe_code)]

mod listener;
mod rest;
mod routes;

pub use rest::{Rest, RestError};
