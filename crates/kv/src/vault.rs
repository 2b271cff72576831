//! Where values live: the journal's kept segments as they are, and compacted volumes.
//!
//! ```text
//!   lsn:   0 ........ a ........ b ........ raw_from ................. end of the log
//!          | volume   | volume   | volume   | the journal, read by LSN |
//! ```
//! An (LSN, offset) is the address of a value for ever. Below `raw_from` it is looked up in the volume whose range holds it,
//! from there on in the journal. Compacting a volume, or the oldest cells of the journal, writes one new volume of the same
//! range with what still lives, and nothing in the ledger changes.
//!
//! Walk: [`Item`] is what a volume holds · [`VolumeWriter`] writes one, [`Volume`] reads it · [`Accounts`] know what lives
//! where · [`choose`] says what to compact next · [`compact`] does it · [`Raw`] shows the journal as items.
//! Deliberately absent: the ledger ([`Answers`] stand for it), a manifest (whoever calls makes a new volume known before
//! he releases what it replaces: `compaction`), threads and clocks.

mod accounts;
mod choose;
mod compact;
mod dead;
mod error;
mod hides;
pub(crate) mod index;
mod item;
mod raw;
mod seal;
mod volume;
mod window;
mod writer;

#[cfg(test)]
mod asked_test;
#[cfg(test)]
mod compact_test;
#[cfg(test)]
mod gate_test;
#[cfg(test)]
mod simulated_test;
#[cfg(test)]
mod volume_test;

pub(crate) use accounts::{Account, Accounts, Booking};
pub(crate) use choose::{Choice, Chooser, Front, Hours, Owed};
pub(crate) use compact::{Answer, Answers, Asked, Compacted, Compaction, Horizon, Liveness, Source, compact, keep};
pub(crate) use dead::Dead;
pub(crate) use error::{OPENING, VaultError};
pub(crate) use item::PIECE_BYTES as VALUE_PIECE_BYTES;
pub(crate) use item::{Address, Body, Item, Record, Value, value_bytes};
pub(crate) use raw::{Raw, items};
pub(crate) use seal::Facts;
pub(crate) use volume::{Blocks, NoBlocks, Volume, count_unknown, remove, remove_unknown, volumes};
pub(crate) use writer::PACE_BYTES;
#[cfg(test)]
pub(crate) use writer::VolumeWriter;

use assent_world::Barrier;

/// A volume's bytes, before a manifest can know it.
pub(crate) const FILE: Barrier = Barrier::new("kv: a volume's bytes before a manifest knows it");
/// A volume's name, before a manifest can know it.
pub(crate) const NAME: Barrier = Barrier::new("kv: a volume's name before a manifest knows it");
