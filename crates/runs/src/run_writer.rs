//! Writing a run: entries come in the order of their keys, the file grows at its end, and is whole after one sync.
//!
//! Walk: [`RunWriter::push`] fills a data block and notes it in the index · [`RunWriter::finish`] lays what is behind the
//! data and syncs. Dropped before that, it takes its file away.
//! Deliberately absent: when a run is long enough, and the folder's sync; both are the caller's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_frame::Writer;
use assent_world::{Access, Barrier, Disk, File, Open, write_all_at};

use crate::block::{BlockBuilder, shared};
use crate::run::{Footer, RunFacts, RunId};
use crate::seal::{Place, SEAL_BYTES, seal};
use crate::{Entry, RunsError, filter};

/// A run's bytes, before a manifest may name it.
pub(crate) const RUN: Barrier = Barrier::new("runs: a run's bytes before a manifest names it");

/// Bytes given to the disk at once.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes that may wait for a sync. All of a long run in one sync would stand in the device's queue before the next commit's few
/// bytes, and in the file system's before its metadata.
const UNSYNCED_BYTES_MAX: u64 = 1 << 20;

/// A run file that is being written.
#[derive(Debug)]
pub(crate) struct RunWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    block_bytes: usize,
    /// Where `waiting` begins in the file.
    written: u64,
    unsynced: u64,
    unsynced_max: u64,
    waiting: Vec<u8>,
    data: BlockBuilder,
    /// Not greater than any key of the open data block, greater than all before it.
    from: Vec<u8>,
    index: BlockBuilder,
    index_from: Vec<u8>,
    /// Index blocks that are done, each with what stands for it in the top block.
    indexes: Vec<(Vec<u8>, Vec<u8>)>,
    index_bytes: usize,
    /// None: the run gets no filter.
    hashes: Option<Vec<u64>>,
    facts: RunFacts,
}

impl RunWriter {
    /// Makes the file.
    ///
    /// # Errors
    /// As the disk says; so for all below. The file is gone after an error, once this is dropped.
    pub(crate) fn create(disk: &Arc<dyn Disk>, folder: &Path, id: RunId, block_bytes: u32) -> Result<Self, RunsError> {
        Self::create_at(disk, id.path(folder), id, block_bytes)
    }

    /// The same under another name.
    pub(crate) fn create_at(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        id: RunId,
        block_bytes: u32,
    ) -> Result<Self, RunsError> {
        let file = disk.open(&path, Open { access: Access::Create, direct: false });
        let file = file.map_err(|error| RunsError::disk("create", &path, &error))?;
        let facts = RunFacts {
            id,
            bytes: 0,
            first: Vec::new(),
            last: Vec::new(),
            seq_min: u64::MAX,
            seq_max: 0,
            entries: 0,
            tombstones: 0,
            value_bytes: 0,
            knows: 0,
        };
        Ok(RunWriter {
            disk: Arc::clone(disk),
            path,
            file: Some(file),
            block_bytes: usize::try_from(block_bytes).unwrap_or(usize::MAX),
            written: 0,
            unsynced: 0,
            unsynced_max: UNSYNCED_BYTES_MAX,
            waiting: Vec::new(),
            data: BlockBuilder::default(),
            from: Vec::new(),
            index: BlockBuilder::index(),
            index_from: Vec::new(),
            indexes: Vec::new(),
            index_bytes: 0,
            hashes: Some(Vec::new()),
            facts,
        })
    }

    /// Without a filter: for a file in which no key is ever looked up.
    pub(crate) fn unfiltered(mut self) -> Self {
        self.hashes = None;
        self
    }

    /// Synced once, when it is whole: where nobody else waits for a sync.
    pub(crate) fn synced_once(mut self) -> Self {
        self.unsynced_max = u64::MAX;
        self
    }

    /// The next entry. Its key is greater than all before.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) -> Result<(), RunsError> {
        let value_bytes = entry.value.map_or(0, <[u8]>::len);
        if !self.data.is_empty() && self.data.len() + entry.key.len() + value_bytes > self.block_bytes {
            self.close_data()?;
        }
        if self.facts.entries == 0 {
            self.facts.first = entry.key.to_vec();
        } else if self.data.is_empty() {
            debug_assert!(self.facts.last.as_slice() < entry.key, "keys rise");
            // The shortest key that tells this block from the one before.
            let length = shared(&self.facts.last, entry.key) + 1;
            self.from = entry.key.get(..length).unwrap_or(entry.key).to_vec();
        } else {
            debug_assert!(self.data.last() < entry.key, "keys rise");
        }
        self.data.push(entry);
        if let Some(hashes) = &mut self.hashes {
            hashes.push(filter::hash(entry.key));
        }
        self.facts.entries += 1;
        self.facts.tombstones += u64::from(entry.value.is_none());
        self.facts.value_bytes += number(value_bytes);
        self.facts.seq_min = self.facts.seq_min.min(entry.seq);
        self.facts.seq_max = self.facts.seq_max.max(entry.seq);
        Ok(())
    }

    /// How long the file would be now, but for its filter and facts.
    pub(crate) fn bytes(&self) -> u64 {
        self.written + number(self.waiting.len() + self.data.len() + self.index_bytes + self.index.len())
    }

    /// Lays the rest and makes the bytes durable. The folder is the caller's to sync, once for all its runs.
    pub(crate) fn finish(self, knows: u64) -> Result<RunFacts, RunsError> {
        self.close(knows, true)
    }

    /// The same without a sync: for a file that no manifest will name.
    pub(crate) fn finish_unsynced(self) -> Result<RunFacts, RunsError> {
        self.close(0, false)
    }

    fn close(mut self, knows: u64, synced: bool) -> Result<RunFacts, RunsError> {
        if !self.data.is_empty() {
            self.close_data()?;
        }
        if !self.index.is_empty() {
            self.close_index();
        }
        let mut top = BlockBuilder::index();
        for (from, block) in std::mem::take(&mut self.indexes) {
            let place = self.lay(block)?;
            top.push(&Entry { key: &from, seq: 0, value: Some(&place.lay()) });
        }
        let filter = self.hashes.as_mut().map_or_else(filter::lay_none, filter::lay);
        let filter = self.lay(filter)?;
        self.facts.knows = knows;
        self.facts.seq_min = self.facts.seq_min.min(self.facts.seq_max);
        let top = top.finish();
        self.facts.bytes = self.end_behind(top.len());
        let mut writer = Writer::new();
        self.facts.lay(&mut writer);
        let facts = self.lay(writer.into_vec())?;
        let top = self.lay(top)?;
        let footer = Footer { top, filter, facts }.lay(self.facts.id);
        self.waiting.extend_from_slice(&footer);
        self.write()?;
        if synced && let Some(file) = &self.file {
            file.sync_all(RUN).map_err(|error| RunsError::disk("sync", &self.path, &error))?;
        }
        // From here on the file stays.
        self.file = None;
        Ok(self.facts.clone())
    }

    /// How long the file is with its facts, a top block of so many bytes and the footer.
    fn end_behind(&self, top: usize) -> u64 {
        let mut writer = Writer::new();
        self.facts.lay(&mut writer);
        let behind = writer.as_slice().len() + SEAL_BYTES + top + SEAL_BYTES + crate::run::FOOTER_BYTES;
        self.written + number(self.waiting.len() + behind)
    }

    fn close_data(&mut self) -> Result<(), RunsError> {
        self.facts.last.clear();
        self.facts.last.extend_from_slice(self.data.last());
        let block = self.data.finish();
        let place = self.lay(block)?;
        if self.index.is_empty() {
            self.index_from.clone_from(&self.from);
        }
        self.index.push(&Entry { key: &self.from, seq: 0, value: Some(&place.lay()) });
        if self.index.len() >= self.block_bytes {
            self.close_index();
        }
        Ok(())
    }

    fn close_index(&mut self) {
        let block = self.index.finish();
        self.index_bytes += block.len();
        self.indexes.push((std::mem::take(&mut self.index_from), block));
    }

    /// Seals a piece and lays it at the end.
    fn lay(&mut self, mut piece: Vec<u8>) -> Result<Place, RunsError> {
        let offset = self.written + number(self.waiting.len());
        seal(&mut piece, self.facts.id, offset);
        let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        self.waiting.extend_from_slice(&piece);
        if self.waiting.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(Place { offset, length })
    }

    fn write(&mut self) -> Result<(), RunsError> {
        let Some(file) = &self.file else { return Ok(()) };
        for piece in self.waiting.chunks(WRITE_BYTES) {
            write_all_at(&**file, self.written, piece).map_err(|error| RunsError::disk("write", &self.path, &error))?;
            self.written += number(piece.len());
            self.unsynced += number(piece.len());
            // A part of a rebuild is never synced: nobody commits meanwhile.
            if self.unsynced >= self.unsynced_max && self.hashes.is_some() {
                file.sync_data(RUN).map_err(|error| RunsError::disk("sync", &self.path, &error))?;
                self.unsynced = 0;
            }
        }
        self.waiting.clear();
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // What cannot be taken away now is in no manifest, and goes at the next open.
            _ = self.disk.unlink(&self.path);
        }
    }
}

fn number(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
