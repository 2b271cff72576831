//! Transactions as an application drives them: embedded, over a wire that misbehaves, and across real stores.
//!
//! Walk: `embedded` the protocol with resources of a few lines (`double`) · `wire` a coordinator of a few lines (`peer`)
//! that loses answers, restarts and fences · `stores` coordinator and stores served, branches by `Remote`
//! · `protocol` everything at once in a simulated world (`machines`) · `returns` the X/Open tables of return values (`tables/`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests")]

mod double;
mod embedded;
mod machines;
mod peer;
mod protocol;
mod returns;
mod stores;
mod wire;
