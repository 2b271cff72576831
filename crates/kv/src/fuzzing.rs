//! Plain functions that fuzzers feed: bytes from a disk never panic.

use std::io;
use std::path::Path;
use std::sync::Arc;

use assent_frame::{Head, Reader, lay};
use assent_world::{Barrier, Disk, Durably, File, Lock, Open};

use crate::vault::{Accounts, Address, NoBlocks, Record, Volume, index};

/// Reads these bytes as a volume from one end to the other and by address; then as what stands in one behind its checksums.
pub fn fuzz_volume(bytes: &[u8]) {
    let disk: Arc<dyn Disk> = Arc::new(Single(Arc::new(Bytes(bytes.to_vec()))));
    if let Ok(volume) = Volume::open(&disk, Path::new(""), 0, 1) {
        for record in volume.records().flatten() {
            _ = (record.item().is_ok(), volume.get(&NoBlocks, record.address).is_ok());
        }
        _ = volume.get(&NoBlocks, Address::new(1 << 40, 0)).is_ok();
        _ = volume.verify(&mut |_| {});
    }
    let (kind, payload) = bytes.split_first().unwrap_or((&0, &[]));
    let mut laid = Vec::new();
    let head = Head { mark: 64, kind: 0x30 + u16::from(kind & 7), flags: u16::from(kind >> 7), chain: 8 };
    lay(&mut laid, head, &[payload]);
    if let Ok(record) = Record::parse(laid, Address::new(64, 8)) {
        _ = record.item().is_ok();
    }
    _ = index::rows(bytes).is_ok();
    _ = Accounts::read(&mut Reader::new(bytes)).is_ok();
}

/// One file under every name, that can only be read.
#[derive(Debug)]
struct Single(Arc<Bytes>);

#[derive(Debug)]
struct Bytes(Vec<u8>);

fn denied<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl Disk for Single {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        denied()
    }

    fn open(&self, _: &Path, _: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::clone(&self.0) as Arc<dyn File>)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        denied()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        denied()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        denied()
    }

    fn sync_dir(&self, _: &Path, _: Barrier) -> io::Result<()> {
        denied()
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Lock>> {
        denied()
    }
}

impl File for Bytes {
    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.0.len()).unwrap_or(u64::MAX))
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
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
