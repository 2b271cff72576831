//! Who leads a group of replicas, who holds what was acknowledged, and what may be acknowledged: as a value.
//!
//! Walk: a [`Configuration`] lives with an arbiter and changes only by compare-and-set · a [`Node`] is one member: an
//! [`Event`] in, [`Action`]s out, to be done in their order · [`History`] which epoch wrote which stretch of a log, and
//! where two logs meet · [`Ack`] and [`Reach`] what a confirmation means · [`Lease`] and [`Promise`] reads without a round
//! of messages · [`Sessions`] a request is executed once, also when it is sent again to another primary.
//! Deliberately absent: I/O, threads, clocks, the stream of commands itself, and consensus: that is the arbiter's.
//! The rules are listed in `rules.rs`; the model check (`model_test.rs`) leaves each one out in turn and must miss it.
#![forbid(unsafe_code)]

mod configuration;
mod event;
mod follow;
mod history;
mod lead;
mod lease;
mod member;
mod node;
mod reach;
mod rules;
mod sessions;
mod wait;

#[cfg(test)]
mod group_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod progress_test;
#[cfg(test)]
mod story_test;
#[cfg(test)]
mod table_test;

pub use configuration::Configuration;
pub use event::{Action, Body, Event, Letter, Standing, Why, Word, WordError};
pub use history::{History, Place, Sequence};
pub use lease::{Lease, Promise};
pub use member::{InSync, Life, MEMBERS_MAX, Member};
pub use node::{Node, Setup, SetupError};
pub use reach::{Ack, Reach};
pub use sessions::{Admission, SESSIONS_MAX, Sessions};
