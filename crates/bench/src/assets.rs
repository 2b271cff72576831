//! The race of assets: commands of many connections, each with so many under way, on one server or a pair, against a floor of the same
//! frames through as many processes.
//!
//! ```text
//!   solo    client ── server                         floor: client ── echo
//!   pair    client ── primary ── standby             floor: client ── relay ── echo        there and back
//!                        └── witness
//! ```
//! Walk: [`Case`] is one row · [`race::run`] takes the cases that differ in their acknowledgement alone together, with their floor: all are
//! started (`place`), slices take turns (`load`), and in the end nothing may be lost or doubled and both nodes have one state (`audit`)
//! · [`cell`] makes figures of slices · [`charts::of`] what is drawn of them.
//! Every command adds one to one asset, so that the updates of all assets are the commands that were executed.
//! Deliberately absent: how a server is configured beyond what a row says; all else is the product's default.

pub mod audit;
pub mod charts;
pub mod figures;
pub mod floor;
mod load;
mod meter;
pub mod peers;
mod place;
pub mod race;
pub mod scenario;
pub mod speech;

use std::fmt::Display;

use assent_kind::Kind;
use serde::Serialize;

pub use figures::cell;
pub use load::{Slice, drive};
pub use meter::Meter;
pub use place::{Program, Subject};

use crate::BenchError;
use crate::report::Labels;

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Role {
    /// One server.
    Solo,
    /// Primary, standby and witness.
    Pair,
}

impl Role {
    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Solo => "solo",
            Self::Pair => "pair",
        }
    }
}

/// Which asset comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Spread {
    /// Each in its turn.
    Even,
    /// Always the same one.
    Hot,
    /// The n-th as often as 1/n.
    Zipf,
}

impl Spread {
    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Hot => "hot",
            Self::Zipf => "zipf",
        }
    }
}

/// Connections, and commands under way on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shape {
    /// Connections, each with a thread.
    pub connections: u32,
    /// Commands under way on each.
    pub outstanding: u32,
}

/// One row without its acknowledgement: all acknowledgements of it run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    /// What runs.
    pub role: Role,
    /// The load.
    pub shape: Shape,
    /// Where it falls.
    pub spread: Spread,
    /// How many there are.
    pub assets: u64,
    /// The network's round trip between any two processes, added to the machine's own; 0: none is added.
    pub rtt_us: u64,
    /// Connections that are told every change.
    pub subscribers: u32,
}

impl Case {
    /// The labels of a row, or of its floor.
    #[must_use]
    pub fn labels(&self, ack: &str) -> Labels {
        let Shape { connections, outstanding } = self.shape;
        let labels = [
            ("role", self.role.name().to_owned()),
            ("ack", ack.to_owned()),
            ("shape", format!("{connections} x {outstanding}")),
            ("spread", self.spread.name().to_owned()),
            ("rtt_us", self.rtt_us.to_string()),
            ("subscribers", self.subscribers.to_string()),
        ];
        labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Assets that the commands may fall on.
    #[must_use]
    pub const fn reached(&self) -> u64 {
        match self.spread {
            Spread::Hot => 1,
            Spread::Even | Spread::Zipf => self.assets,
        }
    }
}

fn failed(doing: &str, error: &dyn Display) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use assent_assets::{Config, Door, Engine, Logics, Promise};
    use assent_journal::Journal;
    use assent_world::net::Address;
    use assent_world::{RealClock, RealDice, RealDisk};

    use super::speech::Speech;
    use super::*;

    fn case(role: Role, connections: u32, outstanding: u32) -> Case {
        let shape = Shape { connections, outstanding };
        Case { role, shape, spread: Spread::Zipf, assets: 1_500, rtt_us: 0, subscribers: 0 }
    }

    /// A process of the floor, as a thread that outlives the test.
    fn floor(next: Option<Address>) -> Address {
        let (send, receive) = channel();
        std::thread::spawn(move || floor::serve(next.as_ref(), |at| send.send(at.clone()).unwrap()));
        receive.recv().unwrap()
    }

    #[test]
    fn every_server_is_loaded_by_one_client_and_nothing_is_lost_or_doubled() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(RealClock));
        let place = folder.path().join("log");
        let log = Journal::open(disk.clone(), clock.clone(), Arc::new(RealDice), &place, Default::default());
        let config = Config::default();
        let opened = Engine::open(log.unwrap().0, disk, clock.clone(), folder.path(), config, Logics::default());
        let at = "127.0.0.1:0".parse().unwrap();
        let door = Door::open(Arc::new(opened.unwrap().0), Promise::default(), &at, clock).unwrap();
        audit::create(door.address(), 1_500).unwrap();
        let echo = floor(None);
        let relay = floor(Some(echo.clone()));
        let mut done = 0;
        let slice = Duration::from_millis(50);
        for case in [case(Role::Solo, 1, 1), case(Role::Solo, 3, 16), case(Role::Solo, 2, 1_024)] {
            for at in [&echo, &relay] {
                let seen = drive(at, Speech::Echo, &case, slice).unwrap();
                assert_eq!(seen.done, u64::try_from(seen.samples.len()).unwrap());
                let shape = case.shape;
                assert!(seen.done >= u64::from(shape.connections * shape.outstanding), "each was answered");
            }
            done += drive(door.address(), Speech::Assets, &case, slice).unwrap().done;
        }
        assert_eq!(audit::executed(door.address(), 1_500).unwrap(), done);
        audit::agreed(&[door.address().clone(), door.address().clone()]).unwrap();
        // A command that is refused is no answer of this race.
        let unknown = Case { assets: 1_501, spread: Spread::Even, ..case(Role::Solo, 1, 1_024) };
        let error = drive(door.address(), Speech::Assets, &unknown, slice).unwrap_err();
        assert!(error.message.contains("Refused"), "{error}");
    }
}
