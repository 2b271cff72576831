//! Real requests over loopback, at listeners over real engines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "helpers of tests speak to the listener as strangers do, and fail by panicking"
)]

mod beside;
mod damage;
mod documents;
mod faults;
mod greed;
mod house;
mod jsoniq;
mod keys;
mod limits;
mod listener;
mod long;
mod once;
mod openapi;
mod people;
mod provider;
mod refused;
mod roles;
mod server;
mod strangers;
mod tls;
mod together;
mod transactions;
mod uploads;
mod versions;
mod watching;
