//! The openings of a journal: epoch, salt, run of the operating system. Durable before the first append of an opening.
//!
//! The file `epochs` holds the same list twice, each copy checksummed, and is replaced as a whole: written beside, synced,
//! renamed, its entry synced. So a crash leaves the old list or the new one, and one rotten copy loses nothing.
//! Openings of which no batch is left are dropped: the list stays as long as the log needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use assent_frame::{Head, PAYLOAD_BYTES_MAX, Reader, Writer, lay, parse};
use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

use crate::JournalError;
use crate::barrier;
use crate::error::{damaged, refused};
use crate::layout::{BLOCK_BYTES, KIND_EPOCHS, length};

pub(crate) const NAME: &str = "epochs";
const UNNAMED: &str = "epochs.tmp";
const OPENING_BYTES: usize = 32;
const OPENINGS_MAX: usize = PAYLOAD_BYTES_MAX / OPENING_BYTES;
const LAZY: u32 = 1;

/// One opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) salt: u64,
    /// The run of the operating system.
    pub(crate) boot: u128,
    /// It acknowledged before the sync (RPO > 0).
    pub(crate) lazy: bool,
}

/// All openings that matter, by epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    openings: BTreeMap<u32, Opening>,
}

impl Epochs {
    /// The last opening.
    pub(crate) fn last(&self) -> Option<(u32, Opening)> {
        self.openings.last_key_value().map(|(epoch, opening)| (*epoch, *opening))
    }

    /// Whether a file takes no further one.
    pub(crate) fn is_full(&self) -> bool {
        self.openings.len() >= OPENINGS_MAX
    }

    /// The epochs of all of them.
    pub(crate) fn all(&self) -> BTreeSet<u32> {
        self.openings.keys().copied().collect()
    }

    /// Whether a batch of this epoch and salt is ours.
    pub(crate) fn know(&self, epoch: u32, salt: u64) -> bool {
        self.openings.get(&epoch).is_some_and(|opening| opening.salt == salt)
    }

    /// Adds an opening and forgets those that have no batch left.
    pub(crate) fn open(&mut self, epoch: u32, opening: Opening, living: &BTreeSet<u32>) {
        self.openings.retain(|epoch, _| living.contains(epoch));
        self.openings.insert(epoch, opening);
    }

    pub(crate) fn lay(&self) -> Vec<u8> {
        let mut fields = Writer::new();
        for (epoch, opening) in &self.openings {
            let flags = if opening.lazy { LAZY } else { 0 };
            fields.u32(*epoch).u32(flags).u64(opening.salt).u128(opening.boot);
        }
        let mut copy = Vec::new();
        let mark = self.last().map_or(0, |(epoch, _)| u64::from(epoch));
        lay(&mut copy, Head { mark, kind: KIND_EPOCHS, flags: 0, chain: 0 }, &[fields.as_slice()]);
        copy.resize(copy.len().next_multiple_of(length(BLOCK_BYTES)), 0);
        copy.repeat(2)
    }

    fn parse_copy(bytes: &[u8]) -> Option<Self> {
        let Ok(Some((frame, _))) = parse(bytes, PAYLOAD_BYTES_MAX) else { return None };
        if frame.kind != KIND_EPOCHS {
            return None;
        }
        let mut epochs = Self::default();
        let mut reader = Reader::new(frame.payload);
        while !reader.rest().is_empty() {
            let epoch = reader.u32("epoch").ok()?;
            let flags = reader.u32("flags").ok()?;
            let salt = reader.u64("salt").ok()?;
            let boot = reader.u128("boot").ok()?;
            epochs.openings.insert(epoch, Opening { salt, boot, lazy: flags & LAZY != 0 });
        }
        Some(epochs)
    }

    /// The list from the file's bytes: either copy will do.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (front, back) = bytes.split_at_checked(bytes.len() / 2)?;
        Self::parse_copy(front).or_else(|| Self::parse_copy(back))
    }
}

/// Reads the file; none if there is none.
///
/// # Errors
/// `Corrupt` if neither copy is whole.
pub(crate) fn load(disk: &dyn Disk, folder: &Path) -> Result<Option<Epochs>, JournalError> {
    let path = folder.join(NAME);
    let file = match disk.open(&path, Open { access: Access::Read, direct: false }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| refused("opening", &path, &error))?,
    };
    let reading = |error| refused("reading", &path, &error);
    // Two copies of the longest list, and what fills their blocks.
    let size = file.size().map_err(reading)?.min(4 << 20);
    let mut bytes = vec![0; length(size)];
    let read = read_exact_at(&*file, 0, &mut bytes).map_err(reading)?;
    bytes.truncate(read);
    Epochs::parse(&bytes).map(Some).ok_or_else(|| damaged(&path, 0, "neither copy of the openings is whole"))
}

/// Replaces the file, durably.
///
/// # Errors
/// As the disk says; `Config` if more openings than a file takes have batches left.
pub(crate) fn store(disk: &dyn Disk, folder: &Path, epochs: &Epochs) -> Result<(), JournalError> {
    if epochs.openings.len() > OPENINGS_MAX {
        let (name, value) = ("epochs", epochs.openings.len().to_string());
        return Err(JournalError::Config {
            name,
            value,
            rule: "at most 32768 openings with entries left: trim the journal",
        });
    }
    let unnamed = folder.join(UNNAMED);
    match disk.unlink(&unnamed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused("removing", &unnamed, &error)),
        _ => {}
    }
    let write = || {
        let file = disk.open(&unnamed, Open { access: Access::Create, direct: false })?;
        write_all_at(&*file, 0, &epochs.lay())?;
        file.sync_all(barrier::EPOCHS)?;
        disk.rename(&unnamed, &folder.join(NAME))
    };
    write().map_err(|error| refused("writing", &unnamed, &error))?;
    disk.sync_dir(folder, barrier::EPOCHS_ENTRY).map_err(|error| refused("syncing", folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Epochs {
        let mut epochs = Epochs::default();
        for epoch in 1..=3 {
            let opening = Opening { salt: u64::from(epoch) * 11, boot: 7, lazy: epoch == 2 };
            epochs.open(epoch, opening, &BTreeSet::from([1, 2, 3]));
        }
        epochs
    }

    #[test]
    fn openings_survive_and_one_rotten_copy_loses_nothing() {
        let bytes = three().lay();
        assert_eq!(Epochs::parse(&bytes), Some(three()));
        for at in [0, 30, 100, bytes.len() / 2, bytes.len() / 2 + 40] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert_eq!(Epochs::parse(&bad), Some(three()), "byte {at}");
        }
        let mut bad = bytes;
        bad[30] ^= 1;
        let half = bad.len() / 2;
        bad[half + 30] ^= 1;
        assert_eq!(Epochs::parse(&bad), None);
        assert_eq!(Epochs::parse(&[]), None);
    }

    #[test]
    fn an_opening_without_a_batch_is_forgotten_at_the_next() {
        let mut epochs = three();
        epochs.open(4, Opening { salt: 44, boot: 7, lazy: false }, &BTreeSet::from([2]));
        assert_eq!(epochs.openings.keys().copied().collect::<Vec<_>>(), [2, 4]);
        assert!(epochs.know(2, 22) && !epochs.know(3, 33) && !epochs.know(2, 33));
        assert_eq!(epochs.last().map(|(epoch, _)| epoch), Some(4));
    }
}
