//! The race of distributed transactions with two branches: open, begin, commit, close, as the field measures it.
//!
//! ```text
//!   open-close (an online service)                 batch
//!   sleep t1 · open · sleep t1 · begin · work t2 ·  open · { sleep t1, t1 · begin · work t2 · commit · sleep t1, t1 } ·
//!   commit · sleep t1 · close · sleep t1            close
//! ```
//! A sleep is uniform in [median - delta/2, median + delta/2]; a median of 0 is none. Closed loop: the next cycle begins
//! when the last one has ended; with a rate they begin at their times instead, and count from them.
//!
//! Walk: [`matrix::cases`] lays the products of the [`axes`] · [`run`] takes each cell: its folder is cleaned, its servers are started
//! anew, a slice of the floors is measured, its clients run, and what they and the servers have cost goes into the report ·
//! [`charts::of`] says what is drawn of it · [`once`] traces one transaction.
//! Deliberately absent: how a server is started; who calls brings that ([`Starter`]).

pub mod axes;
pub mod charts;
mod cycle;
pub mod matrix;
mod meter;
mod place;
mod race;
mod trace;

use std::any::Any;
use std::path::Path;

use assent_world::net::Address;

pub use race::{Progress, once, run};
pub use trace::Step;

use crate::BenchError;
use crate::proxy::Delay;
use axes::{Branches, Case};

/// The names of the two resources; a served coordinator must have them registered.
pub const NAMES: [&str; 2] = ["bench-1", "bench-2"];

/// What holds for all cells of a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Commit, or else roll back.
    pub commit: bool,
    /// Sleeps of a cycle: 5, or 4 without the last.
    pub sleeps: u32,
    /// What is committed.
    pub branches: Branches,
    /// Coordinators; a client takes each in turn.
    pub servers: u32,
    /// The network before each of them.
    pub delay: Delay,
    /// Transactions that all clients together begin each second, instead of a closed loop.
    pub rate: Option<f64>,
    /// How often every cell is run, in turn with the others; its figures are over all.
    pub rounds: u32,
}

impl Default for Rules {
    fn default() -> Self {
        let (branches, delay) = (Branches::Dummy, Delay::default());
        Self { commit: true, sleeps: 5, branches, servers: 1, delay, rate: None, rounds: 1 }
    }
}

/// A coordinator's server, as it was started for a cell. Dropped, it ends.
pub struct Server {
    /// Where it listens.
    pub address: Address,
    /// Where it tells its metrics.
    pub admin: Option<Address>,
    /// Its process on this machine.
    pub process: Option<u32>,
    /// Ends it when it is dropped.
    pub guard: Box<dyn Any>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, admin, process, .. } = self;
        f.debug_struct("Server")
            .field("address", address)
            .field("admin", admin)
            .field("process", process)
            .finish_non_exhaustive()
    }
}

/// Starts one server of a case over an empty folder.
pub type Starter<'s> = dyn FnMut(&Case, &Path) -> Result<Server, BenchError> + 's;
