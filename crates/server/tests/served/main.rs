//! The server as its peers see it: real sockets on loopback, a real journal, coordinator and store in a temporary folder.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "helpers of tests speak to the server as strangers do, and fail loudly"
)]

mod claims;
mod edges;
mod hostile;
mod house;
mod killed;
mod limits;
mod long;
mod operator;
mod recovery;
mod siege;
mod stopping;
mod storing;
mod walk;
