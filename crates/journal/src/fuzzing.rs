//! Plain functions that fuzzers feed: bytes from a disk never panic.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use assent_world::{Barrier, Disk, Durably, File, Lock, Open};

use crate::epochs::Epochs;
use crate::journal;
use crate::layout::{BLOCK_BYTES, length};
use crate::listing;
use crate::reader::Source;
use crate::segment::Files;

/// Recovers a folder whose `epochs` file and only segment are these bytes (the first 8192, and the rest), and reads all
/// entries that it then shows; then the same segment as an archived one.
pub fn fuzz_recovery(bytes: &[u8]) {
    let (epochs, segment) = bytes.split_at_checked(length(2 * BLOCK_BYTES)).unwrap_or((bytes, &[]));
    _ = Epochs::parse(epochs);
    let files = vec![
        ("epochs".to_owned(), Arc::new(Bytes(epochs.to_vec()))),
        (listing::name(0), Arc::new(Bytes(segment.to_vec()))),
        (listing::archived_name(0, None, false), Arc::new(Bytes(segment.to_vec()))),
    ];
    let files = Files::new(Arc::new(Folder(files)));
    let folder = PathBuf::from("journal");
    let archived = listing::list_archived(&*files.disk, &folder, u64::MAX, false).unwrap_or_default();
    let epochs = Arc::default();
    let end = archived.last().map_or(0, |segment| segment.end());
    let source = Source { files: Arc::clone(&files), segments: Arc::new(archived), epochs };
    for entry in source.clone().entries(0, end).flatten() {
        _ = source.entry(entry.lsn.0, end);
    }
    let Ok((found, epochs)) = journal::examine(&files, &folder, false) else { return };
    let source = Source { files, segments: found.segments, epochs: Arc::new(epochs) };
    for entry in source.clone().entries(0, found.end).flatten() {
        _ = source.entry(entry.lsn.0, found.end);
    }
    for lsn in (0..found.end.min(4096)).step_by(8) {
        _ = source.entry(lsn, found.end);
    }
}

/// Files that can only be read.
#[derive(Debug)]
struct Folder(Vec<(String, Arc<Bytes>)>);

#[derive(Debug)]
struct Bytes(Vec<u8>);

fn denied<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl Disk for Folder {
    fn create_dir(&self, _: &std::path::Path) -> io::Result<()> {
        denied()
    }

    fn open(&self, path: &std::path::Path, _: Open) -> io::Result<Arc<dyn File>> {
        let named = self.0.iter().find(|(name, _)| path.ends_with(name));
        named.map(|(_, file)| Arc::clone(file) as Arc<dyn File>).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, _: &std::path::Path, _: &std::path::Path) -> io::Result<()> {
        denied()
    }

    fn unlink(&self, _: &std::path::Path) -> io::Result<()> {
        denied()
    }

    fn list(&self, _: &std::path::Path) -> io::Result<Vec<String>> {
        Ok(self.0.iter().map(|(name, _)| name.clone()).collect())
    }

    fn sync_dir(&self, _: &std::path::Path, _: Barrier) -> io::Result<()> {
        denied()
    }

    fn lock(&self, _: &std::path::Path) -> io::Result<Box<dyn Lock>> {
        denied()
    }
}

impl File for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(crate::layout::bytes(self.0.len()))
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(length(at)..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(read)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<usize> {
        denied()
    }

    fn write_durable_at(&self, _: u64, _: &[u8], _: Durably, _: Barrier) -> io::Result<usize> {
        denied()
    }

    fn preallocate_zeroed(&self, _: u64) -> io::Result<()> {
        denied()
    }

    fn set_size(&self, _: u64) -> io::Result<()> {
        denied()
    }

    fn sync_data(&self, _: Barrier) -> io::Result<()> {
        denied()
    }

    fn sync_all(&self, _: Barrier) -> io::Result<()> {
        denied()
    }
}
