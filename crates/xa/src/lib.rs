//! Two-phase commit as a value, and what a resource manager is to it.
//!
//! Walk: [`Resource`] a branch's door: send a [`Verb`], receive a [`Reply`] · [`Decider`] where a decision becomes
//! durable.
//! Deliberately absent: I/O, clocks, threads.
#![forbid(unsafe_code)]

mod decider;
mod resource;

pub use decider::{BranchRecord, DecideError, Decider, Decision, Outcome};
pub use resource::{Connector, Heuristic, Native, Reply, Resource, Verb, Vote};
