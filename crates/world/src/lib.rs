//! The only doors to the outside: disk, clock, dice, network. Everything else in Assent takes them as arguments, so
//! that the simulation runs the code that ships.
//!
//! Walk: [`Disk`] and [`File`] with their [`Barrier`]s, really [`RealDisk`] · [`Clock`], really [`RealClock`] ·
//! [`Dice`], really [`RealDice`] · [`net`] sockets · [`Gate`] one futex word to wait at · [`AlignedBuffer`] memory
//! for direct writes, [`read_direct`] a piece of a file so · [`stop`] named places where a process can be frozen · [`wake_soon`] and
//! [`give_way`] a short turn at a core and a long one, [`soon`] a short one for a while ·
//! [`expect_descriptors`] a long table of open files at once.
//! Deliberately absent: any knowledge of journals, protocols or transactions.

mod buffer;
mod clock;
mod descriptors;
mod dice;
mod disk;
mod gate;
pub mod net;
mod real;
mod room;
pub mod stop;
mod turn;

pub use buffer::{AlignedBuffer, BLOCK_BYTES, read_direct};
pub use clock::{Clock, Moment, RealClock};
pub use descriptors::{expect_descriptors, files_max, is_short};
pub use dice::{Dice, RealDice};
pub use disk::{
    Access, Barrier, Disk, DiskRoom, Durably, File, Lock, Open, read_exact_at, remove_in_steps, write_all_at,
    write_all_durable_at,
};
pub use gate::Gate;
pub use real::RealDisk;
pub use turn::{give_way, wake_soon};
