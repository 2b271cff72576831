//! What a member must not forget beside its log: the configuration it knew last, which is its fence, what its
//! confirmations live in, and for how long it may have promised not to lead.
//!
//! ```text
//!   own: one frame, kind 1: | version 1 | disk 8 | starts 8 | boots 8 | boot id 16 | out 1 | promised 8 | configuration |
//! ```
//! Walk: [`Own::open`] at each start counts it, durably, before anything is said to anybody · [`Own::store`] as the replica
//! wants · [`Own::life`] for its setup.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_frame::{Head, Malformed, PAYLOAD_BYTES_MAX, Reader, Writer};
use assent_membership::{Ack, Configuration, Life};
use assent_world::{Clock, Dice, Disk};

use crate::barrier;
use crate::error::{ReplicaError, damaged};
use crate::{letters, whole};

pub(crate) const NAME: &str = "own";
const KIND: u16 = 1;
const VERSION: u8 = 2;
/// Without a promise.
const VERSION_1: u8 = 1;
/// A number of starts is no number of boots, also where a group was told another acknowledgement since.
const COUNTED_STARTS: u64 = 1 << 63;
/// So many bits behind a counted number tell lives apart that have the same one: a folder that was put back counts once more.
const APART_BITS: u32 = 24;
const APART: u64 = (1 << APART_BITS) - 1;
/// The most starts, or boots, that are counted so.
const COUNTED_MAX: u64 = COUNTED_STARTS >> APART_BITS;

/// What a member keeps of itself.
#[derive(Debug)]
pub struct Own {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    kept: Kept,
    /// Random bits of this start.
    apart: u64,
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Random bits born with the folder.
    identity: u64,
    starts: u64,
    boots: u64,
    boot_id: u128,
    out: bool,
    promised_ms: u64,
    known: Configuration,
}

impl Kept {
    pub(crate) const fn known(&self) -> &Configuration {
        &self.known
    }

    pub(crate) const fn out(&self) -> bool {
        self.out
    }
}

impl Own {
    /// Reads what the folder's member kept, and counts this start. The folder is there, locked by its journal.
    ///
    /// # Errors
    /// `Damaged`, or as the disk says.
    pub fn open(disk: Arc<dyn Disk>, clock: &dyn Clock, dice: &dyn Dice, folder: &Path) -> Result<Self, ReplicaError> {
        let path = folder.join(NAME);
        let mut kept = match whole::read(&*disk, folder, NAME)? {
            Some(bytes) => parse(&bytes).ok_or_else(|| damaged(&path, "its checksum or its fields are wrong"))?,
            None => Kept { identity: dice.roll(), ..Kept::default() },
        };
        let boot_id = clock.boot_id();
        kept.starts = kept.starts.saturating_add(1);
        if boot_id == 0 || boot_id != kept.boot_id {
            kept.boots = kept.boots.saturating_add(1);
        }
        kept.boot_id = boot_id;
        let own = Self { disk, folder: folder.to_path_buf(), kept, apart: dice.roll() };
        own.write()?;
        Ok(own)
    }

    /// What confirmations live in, as this acknowledgement means them.
    #[must_use]
    pub fn life(&self, ack: Ack) -> Life {
        let memory = match ack {
            Ack::None | Ack::Received => counted(self.kept.starts, self.apart) | COUNTED_STARTS,
            Ack::Written if self.kept.boot_id == 0 => counted(self.kept.boots, self.apart),
            // The same in every start of one boot: the identity of that is random too.
            Ack::Written => counted(self.kept.boots, u64::try_from(self.kept.boot_id & u128::from(APART)).unwrap_or(0)),
            Ack::Durable => 0,
        };
        Life { disk: self.kept.identity, memory }
    }

    /// The configuration that was stored last.
    #[must_use]
    pub const fn known(&self) -> &Configuration {
        &self.kept.known
    }

    /// Whether a person told it to stay out.
    #[must_use]
    pub const fn out(&self) -> bool {
        self.kept.out
    }

    /// The longest promise that it may have given.
    #[must_use]
    pub const fn promised_ms(&self) -> u64 {
        self.kept.promised_ms
    }

    /// Keeps how long its promises may be, durably.
    ///
    /// # Errors
    /// As the disk says: then nothing longer may be promised.
    pub fn promise(&mut self, length_ms: u64) -> Result<(), ReplicaError> {
        self.kept.promised_ms = length_ms;
        self.write()
    }

    /// Keeps this configuration, durably.
    ///
    /// # Errors
    /// As the disk says: then nothing that follows from it may be done.
    pub fn store(&mut self, known: Configuration) -> Result<(), ReplicaError> {
        self.kept.known = known;
        self.write()
    }

    /// Keeps whether it is to stay out, durably.
    ///
    /// # Errors
    /// As the disk says.
    pub fn stay_out(&mut self, out: bool) -> Result<(), ReplicaError> {
        self.kept.out = out;
        self.write()
    }

    fn write(&self) -> Result<(), ReplicaError> {
        let barriers = [barrier::OWN, barrier::OWN_ENTRY];
        whole::replace(&*self.disk, &self.folder, NAME, &lay(&self.kept), barriers)
    }
}

/// Grows with the number, and is another one where that is counted once more.
fn counted(number: u64, apart: u64) -> u64 {
    (number.min(COUNTED_MAX - 1) << APART_BITS) | (apart & APART)
}

fn lay(kept: &Kept) -> Vec<u8> {
    let mut fields = Writer::new();
    fields.u8(VERSION).u64(kept.identity).u64(kept.starts).u64(kept.boots).u128(kept.boot_id).u8(u8::from(kept.out));
    fields.u64(kept.promised_ms);
    letters::lay_configuration(&mut fields, &kept.known);
    let mut out = Vec::new();
    assent_frame::lay(&mut out, Head { kind: KIND, ..Head::default() }, &[fields.as_slice()]);
    out
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Kept> {
    let Ok(Some((frame, _))) = assent_frame::parse(bytes, PAYLOAD_BYTES_MAX) else { return None };
    let fields = || -> Result<(u8, Kept), Malformed> {
        let mut fields = Reader::new(frame.payload);
        let version = fields.u8("version")?;
        let kept = Kept {
            identity: fields.u64("disk")?,
            starts: fields.u64("starts")?,
            boots: fields.u64("boots")?,
            boot_id: fields.u128("boot id")?,
            out: letters::flag(&mut fields, "out")?,
            promised_ms: if version == VERSION_1 { 0 } else { fields.u64("promised")? },
            known: letters::read_configuration(&mut fields)?,
        };
        fields.end().map(|()| (version, kept))
    };
    fields()
        .ok()
        .filter(|(version, _)| frame.kind == KIND && [VERSION_1, VERSION].contains(version))
        .map(|(_, kept)| kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_counted_once_more_is_another_life_and_a_later_one_is_higher() {
        assert_ne!(counted(2, 7), counted(2, 8), "a folder that was put back counts from there");
        assert!(
            counted(3, 0) > counted(2, u64::MAX) && counted(1, 0) > 100,
            "also than what was counted without these bits"
        );
        assert!(counted(u64::MAX, u64::MAX) < COUNTED_STARTS, "and no number of boots is one of starts");
    }
}
