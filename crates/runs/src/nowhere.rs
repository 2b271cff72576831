//! A disk that has nothing and takes nothing: for a map that is in memory only.
//!
//! Walk: [`Nowhere`] finds nothing, and denies the rest.
//! Deliberately absent: everything.

use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_world::{Barrier, Disk, File, Lock, Open};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Nowhere;

fn denied<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

fn nothing<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

impl Disk for Nowhere {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        denied()
    }

    fn open(&self, _: &Path, _: Open) -> io::Result<Arc<dyn File>> {
        nothing()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        nothing()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        nothing()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        nothing()
    }

    fn sync_dir(&self, _: &Path, _: Barrier) -> io::Result<()> {
        denied()
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Lock>> {
        denied()
    }
}
