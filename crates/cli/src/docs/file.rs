//! A file that is written anew: what it said stays until all that it is to say is on the disk.
//!
//! Walk: [`replace`] writes a file beside it, syncs, renames.
//! Deliberately absent: files that are none. What goes to a pipe or a device goes there as it comes.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const BUFFER_BYTES: usize = 1 << 20;

/// Has a file written. If that fails, or the process dies, it is what it was.
#[expect(clippy::disallowed_methods, reason = "a front door writes the file that it is given")]
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("write", path.display(), &error);
    // The file itself, and not what leads to it.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let before = fs::metadata(&path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        let device = OpenOptions::new().write(true).open(&path).map_err(failed)?;
        return write(&mut BufWriter::with_capacity(BUFFER_BYTES, device));
    }
    let beside = beside(&path);
    let whole = || -> Result<(), Failure> {
        let file = File::create(&beside).map_err(failed)?;
        if let Some(before) = before {
            file.set_permissions(before.permissions()).map_err(failed)?;
        }
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        write(&mut out)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).and_then(|()| fs::rename(&beside, &path)).map_err(failed)
    };
    let done = whole();
    if done.is_err() {
        // What is half written is nobody's.
        _ = fs::remove_file(&beside);
    }
    done
}

/// Its name while it is written: no other process has it.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks at the files that it is about")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_written_is_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy.json");
        fs::write(&path, "the last good copy").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let long = vec![b'x'; 3 * BUFFER_BYTES];
        let failed = replace(&link, |out| {
            out.write_all(&long).unwrap();
            Err(Failure::invalid("a damaged page"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "the last good copy");
        replace(&link, |out| out.write_all(&long).map_err(|error| Failure::io("write", "copy", &error))).unwrap();
        assert_eq!(fs::read(&path).unwrap(), long);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "what leads to it still does");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
        let missing = replace(&folder.path().join("none").join("copy.json"), |_| Ok(()));
        assert!(missing.is_err());
    }
}
