//! A file that is replaced as a whole: written beside, synced, renamed, its entry synced. So it is the old one or the new one.

use std::io;
use std::path::Path;

use assent_world::{Access, Barrier, Disk, Open, read_exact_at, write_all_at};

use crate::error::{ReplicaError, refused};

/// All bytes of a file; none if it is not there.
///
/// # Errors
/// As the disk says.
pub(crate) fn read(disk: &dyn Disk, folder: &Path, name: &str) -> Result<Option<Vec<u8>>, ReplicaError> {
    let path = folder.join(name);
    let file = match disk.open(&path, Open { access: Access::Read, direct: false }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| refused("opening", &path, &error))?,
    };
    let reading = |error| refused("reading", &path, &error);
    let size = usize::try_from(file.size().map_err(reading)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    let read = read_exact_at(&*file, 0, &mut bytes).map_err(reading)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Replaces a file, durably.
///
/// # Errors
/// As the disk says: then it is the old one or the new one.
pub(crate) fn replace(
    disk: &dyn Disk,
    folder: &Path,
    name: &str,
    bytes: &[u8],
    [content, entry]: [Barrier; 2],
) -> Result<(), ReplicaError> {
    let unnamed = folder.join(format!("{name}.new"));
    match disk.unlink(&unnamed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused("removing", &unnamed, &error)),
        _ => {}
    }
    let write = || {
        let file = disk.open(&unnamed, Open { access: Access::Create, direct: false })?;
        write_all_at(&*file, 0, bytes)?;
        file.sync_all(content)?;
        disk.rename(&unnamed, &folder.join(name))
    };
    write().map_err(|error| refused("writing", &unnamed, &error))?;
    disk.sync_dir(folder, entry).map_err(|error| refused("syncing", folder, &error))
}
