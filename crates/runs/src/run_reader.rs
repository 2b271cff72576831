//! Reading a run: one key, or a walk.
//!
//! Walk: [`Run::open`] costs nothing, the first use reads the end of the file, and the first look-up what all of them ask (`held`) ·
//! [`Run::get`] asks the filter, then the index, then one block · [`Run::cursor`] · [`Run::doom`]: the file goes with the last who
//! uses it · `open_runs` says which files are open: one may be shut between two reads.
//! What is damaged is named and never answered from. A filter is the exception: without it a look-up reads a block more.
//! Deliberately absent: which run is asked first, and what an erased range hides; a check of every byte, which is `run_verify`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use assent_frame::{Malformed, Reader};
use assent_world::{Access, Disk, File, Open, read_exact_at, remove_in_steps};
use smallvec::SmallVec;

use crate::RunsError;
use crate::block::{Block, BlockCursor};
use crate::cache::{Busy, Cache, Cached};
use crate::filter::Filter;
use crate::held::Held;
use crate::open_runs::Slot;
use crate::run::{FOOTER_BYTES, Footer, RunFacts, RunId};
use crate::run_cursor::RunCursor;
use crate::seal::{Place, unseal};

/// Bytes read from the end of the file at first: footer, top block and facts of most runs.
const TAIL_BYTES: u64 = 16 << 10;

/// How a walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A block at a time, through the cache.
    Cached,
    /// Far ahead, past the cache: for whoever reads everything once.
    Ahead,
}

/// What a key became, in memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedEntry {
    /// The place in the owner's order.
    pub(crate) seq: u64,
    /// The value; `None`: it was deleted.
    pub(crate) value: Option<Row>,
}

/// A value: a short one needs no memory of its own.
pub(crate) type Row = SmallVec<[u8; 96]>;

/// One run file that can be read by many at once.
#[derive(Debug)]
pub(crate) struct Run {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    facts: RunFacts,
    cache: Arc<Cache>,
    slot: Arc<Slot>,
    opened: OnceLock<Opened>,
    held: OnceLock<Held>,
    doomed: AtomicBool,
}

/// What the end of the file says.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) top: Arc<Block>,
    pub(crate) footer: Footer,
}

impl Run {
    /// A run of these facts. The file is opened when it is first used.
    pub(crate) fn open(disk: &Arc<dyn Disk>, folder: &Path, facts: RunFacts, cache: &Arc<Cache>) -> Arc<Self> {
        Self::open_at(disk, facts.id.path(folder), facts, cache)
    }

    /// The same under another name.
    pub(crate) fn open_at(disk: &Arc<dyn Disk>, path: PathBuf, facts: RunFacts, cache: &Arc<Cache>) -> Arc<Self> {
        Arc::new(Run {
            disk: Arc::clone(disk),
            path,
            facts,
            cache: Arc::clone(cache),
            slot: Arc::default(),
            opened: OnceLock::new(),
            held: OnceLock::new(),
            doomed: AtomicBool::new(false),
        })
    }

    /// What is known of it.
    pub(crate) const fn facts(&self) -> &RunFacts {
        &self.facts
    }

    /// Its number.
    pub(crate) const fn id(&self) -> RunId {
        self.facts.id
    }

    pub(crate) const fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The memory that it keeps beside the cache: its facts, and once it was used the top of its index.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let top = self.opened.get().map_or(0, |opened| opened.top.bytes());
        let bytes = size_of::<Self>() + self.facts.first.len() + self.facts.last.len() + top;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Removes the file when the last who uses it is gone.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    /// Takes [`Run::doom`] back.
    pub(crate) fn spare(&self) {
        self.doomed.store(false, Ordering::Release);
    }

    /// What this key became, as this run says. `hash` is its [`crate::filter::hash`].
    ///
    /// # Errors
    /// As the disk says; `Damaged` naming file and place. So for all below.
    pub(crate) fn get(&self, key: &[u8], hash: u64) -> Result<Option<OwnedEntry>, RunsError> {
        if !self.facts.spans(key) || !self.may_hold(hash)? {
            return Ok(None);
        }
        let opened = self.opened()?;
        let Some(index) = self.place_for(&opened.top, opened.footer.top, key)? else { return Ok(None) };
        let data = match self.held()?.index(index) {
            Some(block) => self.place_for(block, index, key)?,
            None => self.place_for(&*self.block(index)?, index, key)?,
        };
        let Some(data) = data else { return Ok(None) };
        self.entry_in(&*self.block(data)?, data, key)
    }

    /// What a block of this run, which stands there, says that a key became.
    pub(crate) fn entry_in(&self, block: &Block, at: Place, key: &[u8]) -> Result<Option<OwnedEntry>, RunsError> {
        let became = block.get(key).map_err(|malformed| self.malformed(at, malformed))?;
        Ok(became.map(|(seq, value)| OwnedEntry { seq, value: value.map(Row::from_slice) }))
    }

    /// The block of the index that says where a key would be, and where it stands itself.
    pub(crate) fn index_for(&self, key: &[u8]) -> Result<Option<(Arc<Block>, Place)>, RunsError> {
        let opened = self.opened()?;
        let Some(at) = self.place_for(&opened.top, opened.footer.top, key)? else { return Ok(None) };
        let block = match self.held()?.index(at) {
            Some(block) => Arc::clone(block),
            None => self.block(at)?,
        };
        Ok(Some((block, at)))
    }

    /// A walk, which stands nowhere at first.
    pub(crate) fn cursor(self: &Arc<Self>, reading: Reading) -> RunCursor {
        RunCursor::new(Arc::clone(self), reading)
    }

    /// What an index block says about where a key is.
    fn place_for(&self, index: &Block, at: Place, key: &[u8]) -> Result<Option<Place>, RunsError> {
        let value = index.value_before(key).map_err(|malformed| self.malformed(at, malformed))?;
        value.map(|value| self.place(value, at)).transpose()
    }

    fn place(&self, value: &[u8], at: Place) -> Result<Place, RunsError> {
        Place::read(value).ok_or_else(|| self.malformed(at, Malformed { field: "place" }))
    }

    /// The place that stands where a cursor over an index block does.
    pub(crate) fn pointed(&self, cursor: &BlockCursor, at: Place) -> Result<Option<Place>, RunsError> {
        cursor.entry().map(|entry| self.place(entry.value.unwrap_or_default(), at)).transpose()
    }

    /// The top block and where it stands.
    pub(crate) fn top(&self) -> Result<(Arc<Block>, Place), RunsError> {
        self.opened().map(|opened| (Arc::clone(&opened.top), opened.footer.top))
    }

    /// A block, through the cache.
    pub(crate) fn block(&self, place: Place) -> Result<Arc<Block>, RunsError> {
        if let Ok(Some(Cached::Block(block))) = self.cache.get(self.id(), place.offset) {
            return Ok(block);
        }
        let block = self.block_past_cache(place)?;
        self.cache.insert(self.id(), place.offset, Cached::Block(Arc::clone(&block)));
        Ok(block)
    }

    /// A block as it stands in the file.
    pub(crate) fn block_past_cache(&self, place: Place) -> Result<Arc<Block>, RunsError> {
        self.parse_block(place, &self.read(place)?)
    }

    /// The block that these bytes are, if they are those of this place.
    pub(crate) fn parse_block(&self, place: Place, piece: &[u8]) -> Result<Arc<Block>, RunsError> {
        let block = Block::parse(self.unseal(place, piece)?);
        block.map(Arc::new).map_err(|malformed| self.malformed(place, malformed))
    }

    pub(crate) fn may_hold(&self, hash: u64) -> Result<bool, RunsError> {
        match self.held()?.filter() {
            Some(filter) => Ok(filter.may_hold(hash)),
            None => Ok(self.filter()?.may_hold(hash)),
        }
    }

    fn held(&self) -> Result<&Held, RunsError> {
        if let Some(held) = self.held.get() {
            return Ok(held);
        }
        // Two that come first at once both read; what one of them read is held. A failure is not.
        let held = Held::of(self)?;
        Ok(self.held.get_or_init(|| held))
    }

    /// The filter, through the cache.
    fn filter(&self) -> Result<Arc<Filter>, RunsError> {
        let opened = self.opened()?;
        let place = opened.footer.filter;
        if !self.cache.takes(u64::from(place.length)) {
            // To read it each time would cost more than the blocks that it saves.
            return Ok(Arc::default());
        }
        match self.cache.get(self.id(), place.offset) {
            Ok(Some(Cached::Filter(filter))) => return Ok(filter),
            Ok(_) => {}
            // To read it once more is dearer than the block that it may save.
            Err(Busy) => return Ok(Arc::default()),
        }
        let filter = Arc::new(self.filter_or_none(place, self.read(place).map(Cow::Owned))?);
        self.cache.insert(self.id(), place.offset, Cached::Filter(Arc::clone(&filter)));
        Ok(filter)
    }

    /// The filter that was read there; one that is damaged, not there, or not read by the disk answers "perhaps" to everything.
    pub(crate) fn filter_or_none(
        &self,
        place: Place,
        piece: Result<Cow<'_, [u8]>, RunsError>,
    ) -> Result<Filter, RunsError> {
        match piece.and_then(|piece| self.parse_filter(place, &piece)) {
            // Every key is still found without it; `verify` tells.
            Err(RunsError::Damaged { .. } | RunsError::Disk { doing: "read", .. }) => Ok(Filter::default()),
            read => read,
        }
    }

    pub(crate) fn read_filter(&self, place: Place) -> Result<Filter, RunsError> {
        self.parse_filter(place, &self.read(place)?)
    }

    fn parse_filter(&self, place: Place, piece: &[u8]) -> Result<Filter, RunsError> {
        Filter::parse(self.unseal(place, piece)?).map_err(|malformed| self.malformed(place, malformed))
    }

    pub(crate) fn opened(&self) -> Result<&Opened, RunsError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        // Two that come first at once both read; what one of them read is kept. A failure is not.
        let opened = self.read_end()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    fn file(&self) -> Result<Arc<dyn File>, RunsError> {
        // Walks go block by block, and the system reads ahead for them.
        let open = || self.disk.open(&self.path, Open { access: Access::Read, direct: false });
        self.cache.open.file(&self.slot, open).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => self.damaged(0, "the file is not there"),
            _ => RunsError::disk("open", &self.path, &error),
        })
    }

    fn read_end(&self) -> Result<Opened, RunsError> {
        let file = self.file()?;
        let bytes = file.size().map_err(|error| RunsError::disk("open", &self.path, &error))?;
        if bytes != self.facts.bytes {
            return Err(self.damaged(bytes, format!("{bytes} bytes; it was written with {}", self.facts.bytes)));
        }
        let tail_at = bytes.saturating_sub(TAIL_BYTES);
        let tail = self.read_file(&*file, tail_at, bytes - tail_at)?;
        let footer_at = bytes.saturating_sub(number(FOOTER_BYTES));
        let Some(footer) = tail.last_chunk::<FOOTER_BYTES>() else {
            return Err(self.damaged(footer_at, "too short for a run"));
        };
        let footer = Footer::read(footer, self.id()).map_err(|what| self.damaged(footer_at, what))?;
        let top = footer.top;
        let from = top.offset.checked_sub(tail_at).and_then(|from| usize::try_from(from).ok());
        let piece = from.and_then(|from| tail.get(from..)?.get(..length(top)));
        let top = match piece {
            Some(piece) => self.parse_block(top, piece)?,
            None => self.parse_block(top, &self.read_piece(&*file, top)?)?,
        };
        Ok(Opened { top, footer })
    }

    /// A piece as it stands in the file.
    pub(crate) fn read(&self, place: Place) -> Result<Vec<u8>, RunsError> {
        self.read_piece(&*self.file()?, place)
    }

    fn read_piece(&self, file: &dyn File, place: Place) -> Result<Vec<u8>, RunsError> {
        match place.offset.checked_add(u64::from(place.length)) {
            Some(end) if end <= self.facts.bytes => self.read_file(file, place.offset, u64::from(place.length)),
            _ => Err(self.damaged(place.offset, "a piece is said to be where the file has ended")),
        }
    }

    /// Bytes of the file, at most up to its end, in this memory.
    pub(crate) fn read_at(&self, at: u64, bytes: u64, memory: Vec<u8>) -> Result<Vec<u8>, RunsError> {
        let bytes = bytes.min(self.facts.bytes.saturating_sub(at));
        self.read_into(&*self.file()?, at, bytes, memory)
    }

    fn read_file(&self, file: &dyn File, at: u64, bytes: u64) -> Result<Vec<u8>, RunsError> {
        self.read_into(file, at, bytes, Vec::new())
    }

    fn read_into(&self, file: &dyn File, at: u64, bytes: u64, mut buffer: Vec<u8>) -> Result<Vec<u8>, RunsError> {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        match buffer.capacity() {
            // The system has memory that is zero.
            0 => buffer = vec![0; bytes],
            _ => buffer.resize(bytes, 0),
        }
        let read = read_exact_at(file, at, &mut buffer);
        let read = read.map_err(|error| RunsError::disk("read", &self.path, &error))?;
        if read < buffer.len() {
            return Err(self.damaged(at + number(read), "the file ends early"));
        }
        Ok(buffer)
    }

    pub(crate) fn unseal<'a>(&self, place: Place, piece: &'a [u8]) -> Result<&'a [u8], RunsError> {
        unseal(piece, self.id(), place.offset)
            .ok_or_else(|| self.damaged(place.offset, format!("the checksum of {} bytes does not match", place.length)))
    }

    pub(crate) fn malformed(&self, at: Place, malformed: Malformed) -> RunsError {
        self.damaged(at.offset, malformed.to_string())
    }

    pub(crate) fn damaged(&self, at: u64, what: impl Into<String>) -> RunsError {
        RunsError::damaged(&self.path, at, what)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            // What cannot be taken away now is in no manifest, and goes at the next open.
            _ = remove_in_steps(&*self.disk, &self.path);
        }
    }
}

fn number(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

pub(crate) fn length(place: Place) -> usize {
    usize::try_from(place.length).unwrap_or(usize::MAX)
}

/// The facts that a file has of itself: for a map whose manifests are lost, and for fuzzers.
///
/// # Errors
/// As [`Run::get`].
pub(crate) fn read_facts(disk: &Arc<dyn Disk>, folder: &Path, id: RunId) -> Result<RunFacts, RunsError> {
    let path = id.path(folder);
    let damaged = |at, what: String| RunsError::damaged(&path, at, what);
    let failed = |error: std::io::Error| RunsError::disk("read", &path, &error);
    let file = disk.open(&path, Open { access: Access::Read, direct: false }).map_err(failed)?;
    let bytes = file.size().map_err(failed)?;
    let mut footer = [0; FOOTER_BYTES];
    let at = bytes.saturating_sub(number(FOOTER_BYTES));
    read_exact_at(&*file, at, &mut footer).map_err(failed)?;
    let place = Footer::read(&footer, id).map_err(|what| damaged(at, what))?.facts;
    if place.offset.checked_add(u64::from(place.length)).is_none_or(|end| end > at) {
        return Err(damaged(at, "a piece is said to be where the file has ended".to_owned()));
    }
    let mut piece = vec![0; length(place)];
    read_exact_at(&*file, place.offset, &mut piece).map_err(failed)?;
    let Some(laid) = unseal(&piece, id, place.offset) else {
        return Err(damaged(place.offset, "the checksum of the facts does not match".to_owned()));
    };
    let mut reader = Reader::new(laid);
    RunFacts::read(&mut reader).map_err(|malformed| damaged(place.offset, malformed.to_string()))
}
