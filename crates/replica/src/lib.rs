//! One log in several members: what a primary puts behind its log comes to its standbys in the same order, the same bytes.
//!
//! Walk: [`Replica`] is one member as a value: an [`Input`] in, [`Output`]s out, to be done in their order; who leads is decided by
//! the `membership` inside it · [`Entry`] and its [`Chain`] · [`Message`] is what members say, in bytes · [`OwnLog`] is a
//! member's copy of the log in its journal, [`Own`] what else it must not forget, [`Snapshot`] where replay begins ·
//! [`Running`] is a member with its threads and sockets, over a [`Machine`], with a [`Front`] for clients on its desk ·
//! [`Left`] is what one left that does not run.
//! Deliberately absent: what a command means, and a protocol for clients.
#![forbid(unsafe_code)]

mod barrier;
mod chores;
mod desk;
mod entry;
mod error;
mod event;
mod execute;
mod front;
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod inspect;
mod keeping;
mod lending;
mod letters;
mod machine;
mod member;
mod message;
mod own;
mod own_log;
mod pace;
mod primary;
mod questions;
mod recent;
mod replica;
mod rules;
mod settings;
mod shelf;
mod snapshot;
mod standby;
mod states;
mod status;
mod told;
mod watch;
mod whole;
mod wires;

#[cfg(test)]
mod gate_test;
#[cfg(test)]
mod inspect_test;
#[cfg(test)]
mod own_log_test;
#[cfg(test)]
mod promise_test;
#[cfg(test)]
mod shelf_test;
#[cfg(test)]
mod sim_test;
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub mod simulation_test;
#[cfg(test)]
mod stage_test;
#[cfg(test)]
mod story_test;
#[cfg(test)]
mod stream_test;
#[cfg(test)]
mod told_test;
#[cfg(test)]
mod toy_test;

pub use barrier::BARRIERS;
pub use entry::{COMMAND_BYTES_MAX, Chain, Entry, Mark};
pub use error::ReplicaError;
pub use event::{Fault, Input, Opened, Output, ReadAt, Refused};
pub use front::{FRONT_TOKEN, Front, Port, Ready};
pub use inspect::{Compared, Found, Left, compare};
pub use machine::{CHUNK_BYTES_MAX, Machine, Next, Put};
pub use member::{CallError, Doors, Home, Running, StartError, Tuning};
pub use message::{Base, Message, MessageError, PIECE_BYTES_MAX, Piece, STREAM_BYTES_MAX, Said};
pub use own::Own;
pub use own_log::{Fetched, OwnLog};
pub use pace::{BESIDE_COMMANDS_BYTES_PER_S, Pace};
pub use replica::Replica;
pub use settings::{LeaseSettings, Settings, SettingsError};
pub use shelf::{Coming, Lent, Shelf, Wrote};
pub use snapshot::Snapshot;
pub use status::{Counts, Feeding, Lag, Status};
pub use told::Told;
