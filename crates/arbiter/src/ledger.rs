//! The built-in arbiter: the configurations of all its groups in one small file, replaced and synced at each change.
//!
//! ```text
//!   witness: one frame, kind 1; payload: for each group its name, and its configuration as text
//! ```
//! Walk: [`Ledger::open`] takes the folder's lock, reads the file, and has its name durable before it believes it ·
//! [`Ledger::change`] writes `witness.new`, syncs it, renames it, syncs the folder, and only then says so.
//! A failed rename, or sync of the folder, poisons it: what reached the disk is not known, and the next open finds out.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_frame::{Head, Reader, Writer};
use assent_membership::Configuration;
use assent_world::{Access, Disk, Lock, Open, read_exact_at, write_all_at};

use crate::arbiter::{ArbiterError, GroupName};
use crate::{barrier, text};

/// As many groups as one witness keeps.
pub const GROUPS_MAX: usize = 128;

const NAME: &str = "witness";
const NAME_NEW: &str = "witness.new";
const LOCK: &str = "lock";
const KIND: u16 = 1;
const BYTES_MAX: usize = GROUPS_MAX * (text::BYTES_MAX + crate::GROUP_BYTES_MAX + 8);

const _: () = assert!(BYTES_MAX <= assent_frame::PAYLOAD_BYTES_MAX, "any ledger fits a frame");

/// The configurations of a witness's groups, on its disk.
#[derive(Debug)]
pub struct Ledger {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    held: BTreeMap<GroupName, Configuration>,
    poisoned: bool,
    _lock: Box<dyn Lock>,
}

impl Ledger {
    /// Opens the ledger of this folder; both are made if they are not there.
    ///
    /// # Errors
    /// `Locked` if another process has it, `Damaged` if the file is, and as the disk says.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self, ArbiterError> {
        disk.create_dir(folder).map_err(|error| refused("making", folder, &error))?;
        let parent = match folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => folder,
        };
        // Also when it was there: a process killed before this line may have left a name that is not durable.
        disk.sync_dir(parent, barrier::FOLDER).map_err(|error| refused("syncing", parent, &error))?;
        let lock = disk.lock(&folder.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ArbiterError::Locked { path: folder.display().to_string() },
            _ => refused("locking", folder, &error),
        })?;
        // Nobody hears of what a power cut could take back.
        disk.sync_dir(folder, barrier::NAME).map_err(|error| refused("syncing", folder, &error))?;
        let held = load(&*disk, &folder.join(NAME))?;
        Ok(Self { disk, folder: folder.to_owned(), held, poisoned: false, _lock: lock })
    }

    /// What is held for a group; version 0 for one that was never changed.
    ///
    /// # Errors
    /// `Poisoned`: a change that failed may be on the disk or not.
    pub fn read(&self, group: &GroupName) -> Result<Configuration, ArbiterError> {
        if self.poisoned {
            return Err(ArbiterError::Poisoned);
        }
        Ok(self.held.get(group).cloned().unwrap_or_default())
    }

    /// Holds this, durably, if that version is held, and this can follow it; returns what is held.
    ///
    /// # Errors
    /// `Version`, `Groups`, `Poisoned`; `Disk`: full, and nothing was done; or else it may be done or not.
    pub fn change(
        &mut self,
        group: &GroupName,
        expect: u64,
        to: &Configuration,
    ) -> Result<Configuration, ArbiterError> {
        let held = self.read(group)?;
        if to.version <= expect {
            return Err(ArbiterError::Version { expect, to: to.version });
        }
        // A ledger that was set back counts the same versions once more: who asks for what cannot follow means another one.
        if held.version != expect || !to.can_follow(&held) {
            return Ok(held);
        }
        if held.version == 0 && self.held.len() >= GROUPS_MAX {
            return Err(ArbiterError::Groups { name: group.to_string() });
        }
        let mut next = self.held.clone();
        next.insert(group.clone(), to.clone());
        // A failure here leaves what was held: the new file has no name yet, and the next change begins another one.
        self.lay(&next)?;
        self.name().inspect_err(|_| self.poisoned = true)?;
        self.held = next;
        Ok(to.clone())
    }

    /// Lays a new file, durably, beside the one that counts.
    fn lay(&self, held: &BTreeMap<GroupName, Configuration>) -> Result<(), ArbiterError> {
        let new = self.folder.join(NAME_NEW);
        match self.disk.unlink(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused("removing", &new, &error)),
            _ => {}
        }
        let mut fields = Writer::new();
        for (group, configuration) in held {
            fields.text(group.as_str()).text(&text::write(configuration));
        }
        let mut bytes = Vec::new();
        assent_frame::lay(&mut bytes, Head { kind: KIND, ..Head::default() }, &[fields.as_slice()]);
        let write = || {
            let file = self.disk.open(&new, Open { access: Access::Create, direct: false })?;
            write_all_at(&*file, 0, &bytes)?;
            file.sync_all(barrier::BYTES)
        };
        write().map_err(|error| refused("writing", &new, &error))
    }

    /// Gives it the name. After a failure nobody knows which of both has it.
    fn name(&self) -> Result<(), ArbiterError> {
        let doubt = |error: io::Error| {
            let path = self.folder.display().to_string();
            ArbiterError::Disk { doing: "renaming in", path, error: error.to_string(), full: false }
        };
        self.disk.rename(&self.folder.join(NAME_NEW), &self.folder.join(NAME)).map_err(doubt)?;
        // POINT OF NO RETURN: the change is on the disk; whoever asks from now on hears it.
        self.disk.sync_dir(&self.folder, barrier::NAME).map_err(doubt)
    }
}

fn load(disk: &dyn Disk, path: &Path) -> Result<BTreeMap<GroupName, Configuration>, ArbiterError> {
    let file = match disk.open(path, Open { access: Access::Read, direct: false }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other.map_err(|error| refused("opening", path, &error))?,
    };
    let mut bytes = vec![0; assent_frame::laid_bytes(BYTES_MAX)];
    let read = read_exact_at(&*file, 0, &mut bytes).map_err(|error| refused("reading", path, &error))?;
    bytes.truncate(read);
    parse(&bytes).map_err(|why| ArbiterError::Damaged { place: path.display().to_string(), why })
}

pub(crate) fn parse(bytes: &[u8]) -> Result<BTreeMap<GroupName, Configuration>, String> {
    let frame = match assent_frame::parse(bytes, BYTES_MAX) {
        Ok(Some((frame, laid))) if frame.kind == KIND && laid == bytes.len() => frame,
        Ok(_) => return Err("not one whole ledger".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let mut held = BTreeMap::new();
    let mut fields = Reader::new(frame.payload);
    while !fields.rest().is_empty() {
        let group = fields.text("group").map_err(|error| error.to_string())?;
        let group: GroupName = group.parse().map_err(|error: ArbiterError| error.to_string())?;
        let configuration = fields.bytes("configuration").map_err(|error| error.to_string())?;
        held.insert(group, text::read(configuration)?);
    }
    Ok(held)
}

fn refused(doing: &'static str, path: &Path, error: &io::Error) -> ArbiterError {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    ArbiterError::Disk { doing, path: path.display().to_string(), error: error.to_string(), full }
}
