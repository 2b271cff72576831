//! A stopped server's folder, to be read: nobody serves it as long as that takes.
//!
//! What a running one has in memory is not in its files, and a reader of them would tell half of it as all.

use std::io;
use std::path::Path;

use assent_kind::Kind;
use assent_world::{Lock, RealDisk};

use crate::failure::Failure;

/// Nobody serves this journal, or state table, while the lock is held. Where there is none, nobody ever did.
pub(crate) fn alone(journal: &Path) -> Result<Option<Box<dyn Lock>>, Failure> {
    let path = journal.join("LOCK");
    if !path.is_file() {
        return Ok(None);
    }
    // To read takes no right to write: neither in a folder of somebody else's nor where nothing can be written.
    match RealDisk.lock_to_read(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let message = format!("{} is open in another process: ask it, with --server", journal.display());
            Err(Failure::new(Kind::Busy, message))
        }
        Err(error) => Err(Failure::io("lock", path.display(), &error)),
    }
}
