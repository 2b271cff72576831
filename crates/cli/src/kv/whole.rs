//! A file that takes its name when all of it is there and on the disk: what had the name before stays until then, and a part of it is never
//! taken for the whole.
//!
//! Walk: [`Whole::begin`] · whoever writes has the file, under the name with `.part` behind it · [`Whole::end`]. Dropped before, nothing of it stays.
//! Deliberately absent: what is no file. A pipe or a device is written as it is.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file on its way.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) file: File,
    /// What it is called until its end, and from then on; none where it is written as it is.
    names: Option<(PathBuf, PathBuf)>,
}

#[expect(clippy::disallowed_methods, reason = "a front door writes the file that it is given")]
impl Whole {
    pub(super) fn begin(path: &Path) -> Result<Self, Failure> {
        // Through a link: it is the file that is written anew, and not the link.
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let failed = |path: &Path, error: &io::Error| Failure::io("write", path.display(), error);
        let before = fs::metadata(&real).ok();
        if before.as_ref().is_some_and(|facts| !facts.is_file()) {
            let file = File::create(&real).map_err(|error| failed(path, &error))?;
            return Ok(Self { file, names: None });
        }
        let mut part = real.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        // What a command that was killed has left is begun anew; what another writes is not.
        let open = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&part);
        let file = open
            .and_then(|file| file.try_lock().map_err(io::Error::from).and_then(|()| file.set_len(0)).map(|()| file));
        let file = file.map_err(|error| failed(&part, &error))?;
        let whole = Self { file, names: Some((part, real)) };
        if let Some(facts) = before {
            // Who could not read it before cannot read what comes.
            whole.file.set_permissions(facts.permissions()).map_err(|error| failed(path, &error))?;
        }
        Ok(whole)
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        let Some((part, real)) = self.names.take() else { return Ok(()) };
        let done = self.file.sync_all().and_then(|()| fs::rename(&part, &real));
        if done.is_err() {
            self.names = Some((part, real));
            return done;
        }
        let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

#[expect(clippy::disallowed_methods, reason = "a front door removes what it has begun")]
impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.names {
            _ = fs::remove_file(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_had_the_name_stays_until_all_is_there_and_nothing_stays_of_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        for (way, text, ends) in [(&path, "one", true), (&path, "two", false), (&link, "three", true)] {
            let before = fs::read_to_string(&path).unwrap_or_default();
            let mut whole = Whole::begin(way).unwrap();
            whole.file.write_all(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap_or_default(), before);
            let expected = if ends {
                whole.end().unwrap();
                text
            } else {
                drop(whole);
                &before
            };
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), (expected, 2));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        Whole::begin(&path).unwrap().end().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
        let first = Whole::begin(&path).unwrap();
        assert_eq!(Whole::begin(&path).unwrap_err().kind, assent_kind::Kind::Busy, "two at once");
        drop(first);
        let mut killed = Whole::begin(&path).unwrap();
        killed.file.write_all(b"of one that was killed").unwrap();
        killed.names = None;
        drop(killed);
        assert_eq!(names(), 3);
        Whole::begin(&path).unwrap().end().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("", 2));
        Whole::begin(Path::new("/dev/null")).unwrap().end().unwrap();
        let error = Whole::begin(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.message.contains("/nowhere/at/all"), "{}", error.message);
    }
}
