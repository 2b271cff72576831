//! A small file system in memory that can be filled, where this user may mount one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// It goes away with the value.
#[derive(Debug)]
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Nothing where this user may not mount, or no size is wanted.
    pub(super) fn mount(folder: &Path, mib: u32) -> Option<Self> {
        if mib == 0 || !rustix::process::geteuid().is_root() {
            return None;
        }
        std::fs::create_dir_all(folder).ok()?;
        let options = format!("size={mib}m");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder).output().ok()?;
        output.status.success().then(|| Self(folder.to_owned()))
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the room that is left.
    #[expect(clippy::disallowed_methods, reason = "a harness fills a disk")]
    pub(super) fn fill(&self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::io("fill", self.0.display(), &error);
        let mut file = std::fs::File::create(self.ballast()).map_err(failed)?;
        // Smaller and smaller pieces, until not a block is left.
        let bytes = vec![7; 1 << 20];
        for length in [bytes.len(), 4_096] {
            while file.write_all(bytes.get(..length).unwrap_or_default()).is_ok() {}
        }
        Ok(())
    }

    /// Gives the room back; nothing if it was not taken.
    #[expect(clippy::disallowed_methods, reason = "a harness frees a disk")]
    pub(super) fn free(&self) -> Result<(), Failure> {
        match std::fs::remove_file(self.ballast()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::io("free", self.0.display(), &error))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Still used by a process that is about to die: it goes when that has gone.
        _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
