//! A disk that loses power, a clock that stands still, dice with a seed: the doors of `world`, simulated.
//!
//! Walk: [`SimDisk`] keeps what is durable apart from what is written; [`SimDisk::inject`], [`SimDisk::ignore`],
//! [`SimDisk::kill`] and [`SimDisk::cut_power`] do the harm · [`SimClock`] and [`SimDice`] · [`Explore`] cuts the power
//! of a [`Subject`] everywhere and checks what is left: that is a power-loss gate · [`fuzz`] feeds a plain function ·
//! [`WatchedDisk`] is any disk beside which somebody counts its files' calls or holds them up ·
//! [`linear`] judges a history of calls and answers, [`register`] is what they are compared with.
//!
//! ```
//! use assent_sim::{Explore, SimDisk, Subject, Witness};
//! use assent_world::{Access, Barrier, Disk, Open, write_all_at};
//!
//! const FILE: Barrier = Barrier::new("doc: the file's byte before it is promised");
//! const NAME: Barrier = Barrier::new("doc: the file's name before it is promised");
//!
//! /// One file with one byte in it.
//! struct OneByte;
//!
//! impl Subject for OneByte {
//!     type Fact = u8;
//!
//!     fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<u8>) -> Result<(), String> {
//!         let byte = seed.to_le_bytes()[0] | 1;
//!         let write = || {
//!             let file = disk.open("byte".as_ref(), Open { access: Access::Create, direct: false })?;
//!             write_all_at(&*file, 0, &[byte])?;
//!             file.sync_all(FILE)?;
//!             disk.sync_dir("".as_ref(), NAME)
//!         };
//!         witness.attempt(byte);
//!         write().map_err(|error: std::io::Error| error.to_string())?;
//!         witness.acknowledge(byte);
//!         Ok(())
//!     }
//!
//!     fn check(&self, disk: &SimDisk, acknowledged: &[u8], _: &[u8]) -> Result<(), String> {
//!         let Some(byte) = acknowledged.first() else { return Ok(()) };
//!         let mut found = [0];
//!         let file = disk.open("byte".as_ref(), Open { access: Access::Read, direct: false });
//!         _ = file.and_then(|file| file.read_at(0, &mut found)).map_err(|error| error.to_string())?;
//!         if found == [*byte] { Ok(()) } else { Err(format!("promised {byte}, found {found:?}")) }
//!     }
//! }
//!
//! let gate = Explore { states_max: 1_000, ..Explore::new() };
//! gate.run(&OneByte).unwrap();
//! gate.ignoring(&OneByte, FILE).unwrap();
//! gate.ignoring(&OneByte, NAME).unwrap();
//! ```
//! Deliberately absent: threads (a run is the same again only if it has one), and any knowledge of the subject.
#![forbid(unsafe_code)]

mod clock;
mod content;
mod dice;
mod disk;
mod explore;
mod fault;
mod file;
mod fuzz;
mod inode;
pub mod linear;
mod recording;
pub mod register;
mod report;
mod state;
mod subject;
mod survive;
mod watched;

pub use clock::SimClock;
pub use content::SECTOR_BYTES;
pub use dice::{Rng, SimDice};
pub use disk::{SimDisk, Survival};
pub use explore::{Explore, StayedGreen};
pub use fault::{Call, Fault, Operation};
pub use fuzz::{fuzz, input};
pub use report::{Blow, Failure, Report};
pub use subject::{Subject, Witness};
pub use survive::Stale;
pub use watched::{Watch, WatchedDisk};
