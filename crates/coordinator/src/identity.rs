//! Who this node is: 64 random bits and a key, born once with the data folder.
//!
//! ```text
//!   0            8      10       18         34       38
//!   | "ASNTNODE" | 1    | node   | key      | CRC-32C of 0..34
//! ```
//! Walk: [`Identity::load_or_create`] writes `node.new`, syncs it, gives it its name and syncs the folder, each before
//! anybody may use the identity: an XID with a node id that a power cut takes back would be nobody's branch.

use std::io;
use std::path::Path;

use assent_frame::{Malformed, Reader, Writer, crc32c};
use assent_ids::{Incarnation, NodeId};
use assent_world::{Access, Barrier, Dice, Disk, Open, read_exact_at, write_all_at};
use siphasher::sip128::SipHasher24;

use crate::CoordinatorError;

const MAGIC: [u8; 8] = *b"ASNTNODE";
const VERSION: u16 = 1;
const FILE_BYTES: usize = 38;
const NAME: &str = "node";
const NAME_NEW: &str = "node.new";
const LOCK: &str = "node.lock";

pub(crate) const FOLDER_BEFORE_BYTES: Barrier =
    Barrier::new("coordinator: the data folder's entry before anything in it");
pub(crate) const BYTES_BEFORE_NAME: Barrier = Barrier::new("coordinator: the identity's bytes before its name");
pub(crate) const NAME_BEFORE_USE: Barrier = Barrier::new("coordinator: the identity's name before its first use");

/// A node and the key of its clients' secrets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// In every XID of this node.
    pub node: NodeId,
    /// Never leaves the data folder.
    pub key: [u8; 16],
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.node)
    }
}

impl Identity {
    /// The identity of this data folder; both are made, durably, if they are not there.
    ///
    /// # Errors
    /// [`CoordinatorError::Identity`] as the disk says, [`CoordinatorError::IdentityDamaged`] if the file is.
    pub fn load_or_create(disk: &dyn Disk, dice: &dyn Dice, folder: &Path) -> Result<Self, CoordinatorError> {
        let path = folder.join(NAME);
        let trouble = |doing, error: &io::Error| CoordinatorError::Identity {
            doing,
            path: path.display().to_string(),
            error: error.to_string(),
        };
        disk.create_dir(folder).map_err(|error| trouble("making the folder of", &error))?;
        let parent = match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => folder,
        };
        // Also when it was there, for the same reason as below.
        disk.sync_dir(parent, FOLDER_BEFORE_BYTES).map_err(|error| trouble("syncing the parent folder of", &error))?;
        match disk.open(&path, Open { access: Access::Read, direct: false }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Two processes that begin at once: whoever comes second takes the first one's, who may work with it already.
                let lock = disk.lock(&folder.join(LOCK)).map_err(|error| trouble("locking for", &error))?;
                match disk.open(&path, Open { access: Access::Read, direct: false }) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        create(disk, dice, folder).map_err(|error| trouble("making", &error))?;
                    }
                    found => _ = found.map_err(|error| trouble("opening", &error))?,
                }
                drop(lock);
            }
            Err(error) => return Err(trouble("opening", &error)),
        }
        // Also when it was there: a process killed before this line may have left a name that is not durable.
        disk.sync_dir(folder, NAME_BEFORE_USE).map_err(|error| trouble("syncing the folder of", &error))?;
        Self::load(disk, folder)
    }

    /// The identity of a data folder that is only looked at: nothing is made and nothing is synced.
    ///
    /// # Errors
    /// As [`Identity::load_or_create`]; also if there is none.
    pub fn load(disk: &dyn Disk, folder: &Path) -> Result<Self, CoordinatorError> {
        let path = folder.join(NAME);
        let trouble = |doing, error: &io::Error| CoordinatorError::Identity {
            doing,
            path: path.display().to_string(),
            error: error.to_string(),
        };
        let mut bytes = [0; FILE_BYTES + 1];
        let read = disk
            .open(&path, Open { access: Access::Read, direct: false })
            .and_then(|file| read_exact_at(&*file, 0, &mut bytes))
            .map_err(|error| trouble("reading", &error))?;
        parse(bytes.get(..read).unwrap_or_default())
            .map_err(|_| CoordinatorError::IdentityDamaged { path: path.display().to_string() })
    }

    /// The secret with which that client may resume. Computed, so that a restarted server knows it without a list.
    #[must_use]
    pub fn secret(&self, incarnation: Incarnation) -> u128 {
        let mut words = [0; 8];
        let (epoch, number) = words.split_at_mut(4);
        epoch.copy_from_slice(&incarnation.epoch.0.to_le_bytes());
        number.copy_from_slice(&incarnation.number.to_le_bytes());
        SipHasher24::new_with_key(&self.key).hash(&words).as_u128()
    }
}

fn create(disk: &dyn Disk, dice: &dyn Dice, folder: &Path) -> io::Result<()> {
    let new = folder.join(NAME_NEW);
    match disk.unlink(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A half-made one of a process that was killed.
        _ => {}
    }
    let file = disk.open(&new, Open { access: Access::Create, direct: false })?;
    let mut bytes = Writer::new();
    bytes.raw(&MAGIC).u16(VERSION).u64(dice.roll()).u64(dice.roll()).u64(dice.roll());
    let sum = crc32c(bytes.as_slice());
    bytes.u32(sum);
    write_all_at(&*file, 0, bytes.as_slice())?;
    file.sync_all(BYTES_BEFORE_NAME)?;
    disk.rename(&new, &folder.join(NAME))
}

fn parse(bytes: &[u8]) -> Result<Identity, Malformed> {
    let mut reader = Reader::new(bytes);
    let magic = reader.raw(MAGIC.len(), "magic")?;
    let version = reader.u16("version")?;
    let node = NodeId(reader.u64("node")?);
    let key = reader.raw(16, "key")?.try_into().map_err(|_| Malformed { field: "key" })?;
    let sum = reader.u32("checksum")?;
    reader.end()?;
    let covered = bytes.get(..FILE_BYTES - 4).unwrap_or_default();
    if magic != MAGIC || version != VERSION || sum != crc32c(covered) {
        return Err(Malformed { field: "checksum" });
    }
    Ok(Identity { node, key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use assent_ids::Epoch;
    use assent_sim::{SimDice, SimDisk};

    #[test]
    fn each_client_has_its_own_secret_and_the_key_is_not_printed() {
        let identity = Identity { node: NodeId(1), key: [7; 16] };
        let at = |epoch, number| Incarnation { epoch: Epoch(epoch), number };
        assert_eq!(identity.secret(at(1, 2)), identity.secret(at(1, 2)));
        assert_ne!(identity.secret(at(1, 2)), identity.secret(at(2, 1)));
        let other = Identity { node: NodeId(1), key: [8; 16] };
        assert_ne!(identity.secret(at(1, 2)), other.secret(at(1, 2)));
        assert_eq!(format!("{identity:?}"), "Identity(0000000000000001)");
    }

    #[test]
    fn of_two_processes_that_begin_at_once_only_one_makes_an_identity() {
        let (disk, dice, folder) = (SimDisk::new(), SimDice::new(1), Path::new("data"));
        disk.create_dir(folder).unwrap();
        let first = disk.lock(&folder.join(LOCK)).unwrap();
        assert!(Identity::load_or_create(&disk, &dice, folder).is_err());
        assert!(!disk.list(folder).unwrap().iter().any(|name| name == NAME), "the first one is at it");
        drop(first);
        let made = Identity::load_or_create(&disk, &dice, folder).unwrap();
        let again = Identity::load_or_create(&disk, &dice, folder).unwrap();
        assert_eq!((made.node, made.key), (again.node, again.key));
    }

    #[test]
    fn every_flipped_bit_of_the_file_is_seen() {
        let mut bytes = Writer::new();
        bytes.raw(&MAGIC).u16(VERSION).u64(1).u64(2).u64(3);
        let sum = crc32c(bytes.as_slice());
        bytes.u32(sum);
        let bytes = bytes.into_vec();
        assert_eq!(bytes.len(), FILE_BYTES);
        assert!(parse(&bytes).is_ok());
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bad).is_err(), "bit {bit}");
        }
        assert!(parse(&bytes[..37]).is_err());
        assert!(parse(&[&bytes[..], &[0]].concat()).is_err());
    }
}
