//! Writes a volume, once, in the order of addresses.
//!
//! Walk: [`VolumeWriter::create`] · [`VolumeWriter::push`] lays items into one buffer, which goes to the file as it fills ·
//! [`VolumeWriter::finish`] lays index, top and the two seals and syncs file and folder: from then on a manifest may know it.
//! Whatever goes wrong, or stops it, leaves no file behind. Memory: the buffer, one piece of a value, and six bytes an item.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_frame::lay;
use assent_runs::{Go, Pace};
use assent_world::{Access, Disk, File, Open, write_all_at};

use crate::vault::index::{Building, Row};
use crate::vault::item::{self, Address, Body, Item};
use crate::vault::seal::{BLOCK_BYTES, Facts};
use crate::vault::{FILE, NAME, VaultError};

/// The pace is told about every so many bytes.
pub(crate) const PACE_BYTES: usize = 256 << 10;

/// So many bytes may be on their way to the disk, and a buffer's: all of a volume in one sync would stand before the next commit's few
/// bytes.
const WRITE_BACK_BYTES_MAX: u64 = 1 << 20;

/// A volume that is being written.
pub(crate) struct VolumeWriter<'a> {
    disk: &'a dyn Disk,
    pace: &'a dyn Pace,
    folder: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    facts: Facts,
    /// Where the buffer's first byte goes.
    at: u64,
    /// From here on what was written may still be on its way to the disk.
    written_back: u64,
    buffer: Vec<u8>,
    index: Building,
    last: Option<Address>,
    finished: bool,
}

impl<'a> VolumeWriter<'a> {
    /// Begins the volume of this range and generation.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn create(
        disk: &'a dyn Disk,
        folder: &Path,
        (first, end): (u64, u64),
        generation: u32,
        pace: &'a dyn Pace,
    ) -> Result<Self, VaultError> {
        let facts = Facts { first, end, generation, ..Facts::default() };
        let path = folder.join(facts.name());
        // One of a process that died before a manifest knew it.
        match disk.unlink(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(VaultError::disk("removing", &path, &error));
            }
            _ => {}
        }
        let open = Open { access: Access::Create, direct: false };
        let file = disk.open(&path, open).map_err(|error| VaultError::disk("making", &path, &error))?;
        let (buffer, index) = (vec![0; BLOCK_BYTES], Building::default());
        let folder = folder.to_path_buf();
        Ok(Self {
            disk,
            pace,
            folder,
            path,
            file,
            facts,
            at: 0,
            written_back: 0,
            buffer,
            index,
            last: None,
            finished: false,
        })
    }

    /// One more item.
    ///
    /// # Errors
    /// `Order` if it does not stand behind all others, or within the volume's range; `Stopped` if the pace says so; as the
    /// disk says.
    pub(crate) fn push(&mut self, item: &Item<'_>) -> Result<(), VaultError> {
        let address = item.address;
        let within = (self.facts.first..self.facts.end).contains(&address.lsn);
        if !within || self.last.is_some_and(|last| last >= address) {
            let (last, first) = (self.last.unwrap_or_default(), self.facts.first);
            return Err(VaultError::Order { address, last, first });
        }
        let offset = self.place();
        item::lay(item, |head, parts| {
            lay(&mut self.buffer, head, parts);
            self.flush_if_full()
        })?;
        self.index.add(Row { address, offset, bytes: self.place() - offset });
        self.last = Some(address);
        self.facts.items += 1;
        self.facts.values += u64::from(matches!(item.body, Body::Value { .. } | Body::Prepared { .. }));
        Ok(())
    }

    /// Makes the volume whole and durable, with its name. What it holds was alive as of `as_of`; the journal
    /// is counted in cells of `cell_bytes`.
    ///
    /// # Errors
    /// As [`VolumeWriter::push`].
    pub(crate) fn finish(mut self, as_of: u64, cell_bytes: u64) -> Result<Facts, VaultError> {
        let (index, top_bytes, blocks) = std::mem::take(&mut self.index).lay();
        self.facts.index_at = self.place();
        for part in index.chunks(PACE_BYTES) {
            self.buffer.extend_from_slice(part);
            self.flush_if_full()?;
        }
        let bytes = self.place() + bytes(BLOCK_BYTES);
        self.facts = Facts { as_of, top_bytes, blocks, bytes, cell_bytes, ..self.facts };
        self.buffer.extend_from_slice(&self.facts.lay(false));
        self.flush(self.buffer.len())?;
        let file = &*self.file;
        file.sync_all(FILE).map_err(|error| VaultError::disk("syncing", &self.path, &error))?;
        // Behind the sync: who finds this block knows that what is damaged was whole once, and is not half a file of a power cut.
        let seal = self.facts.lay(true);
        write_all_at(file, 0, &seal).map_err(|error| VaultError::disk("writing", &self.path, &error))?;
        file.sync_data(FILE).map_err(|error| VaultError::disk("syncing", &self.path, &error))?;
        let folder = &self.folder;
        self.disk.sync_dir(folder, NAME).map_err(|error| VaultError::disk("syncing", folder, &error))?;
        self.finished = true;
        Ok(self.facts)
    }

    /// The same of one that only says that its range stands in the journal as it is, which is kept up to `until`.
    ///
    /// # Errors
    /// As [`VolumeWriter::push`].
    pub(crate) fn finish_kept(mut self, until: u64, cell_bytes: u64) -> Result<Facts, VaultError> {
        self.facts.until = if until <= self.facts.end { until } else { 0 };
        self.finish(0, cell_bytes)
    }

    /// Where the next byte goes.
    fn place(&self) -> u64 {
        self.at + bytes(self.buffer.len())
    }

    fn flush_if_full(&mut self) -> Result<(), VaultError> {
        if self.buffer.len() < PACE_BYTES {
            return Ok(());
        }
        // A block that is not full yet waits: the disk would write it twice.
        self.flush(self.buffer.len() / BLOCK_BYTES * BLOCK_BYTES)
    }

    /// So many of the buffer's bytes.
    fn flush(&mut self, count: usize) -> Result<(), VaultError> {
        let written = write_all_at(&*self.file, self.at, self.buffer.get(..count).unwrap_or_default());
        written.map_err(|error| VaultError::disk("writing", &self.path, &error))?;
        let length = bytes(count);
        let gone = (self.at + length).saturating_sub(WRITE_BACK_BYTES_MAX).max(self.written_back);
        // What is said of it here no sync says again.
        let went = self.file.begin_write_back(self.at, length);
        let went = match gone - self.written_back {
            0 => went,
            bytes => went.and_then(|()| self.file.await_write_back(self.written_back, bytes)),
        };
        went.map_err(|error| VaultError::disk("syncing", &self.path, &error))?;
        (self.at, self.written_back) = (self.at + length, gone);
        self.buffer.drain(..count);
        match self.pace.wrote(length) {
            Go::On => Ok(()),
            Go::Stop => Err(VaultError::Stopped),
        }
    }
}

impl Drop for VolumeWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // If even that fails, it is in no manifest: the next open removes it.
            _ = self.disk.unlink(&self.path);
        }
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
