//! Reads a volume: by address, or from one end to the other. Damage is told by file and offset, and hides nothing else.
//!
//! Walk: [`Volume::open`] takes either seal and the top, or the top from the blocks · [`Volume::get`] is one block of the
//! index, from a cache if it is there, and one read · [`Volume::records`] goes on behind what is damaged; the items of a
//! damaged block are found by walking their frames · [`Volume::doom`] removes the file with its last holder.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assent_frame::{HEADER_BYTES, PAYLOAD_BYTES_MAX, laid_bytes, parse};
use assent_kind::Kind;
use assent_runs::{OpenFiles, Slot};
use assent_world::{Access, Disk, File, Open, read_direct, read_exact_at, remove_in_steps};

use crate::vault::index::{self, Row, Top};
use crate::vault::item::{self, Address, Item, Record};
use crate::vault::seal::{self, BLOCK_BYTES, Facts};
use crate::vault::{OPENING, Source, VaultError};

/// Blocks of indexes that are kept in memory, by volume and number.
pub(crate) trait Blocks: Send + Sync {
    fn get(&self, volume: (u64, u32), block: usize) -> Option<Arc<[u8]>>;
    fn keep(&self, volume: (u64, u32), block: usize, payload: &Arc<[u8]>);
}

/// None are kept.
#[derive(Debug)]
pub(crate) struct NoBlocks;

impl Blocks for NoBlocks {
    fn get(&self, _: (u64, u32), _: usize) -> Option<Arc<[u8]>> {
        None
    }

    fn keep(&self, _: (u64, u32), _: usize, _: &Arc<[u8]>) {}
}

const READ: Open = Open { access: Access::Read, direct: false };
/// A walk reads so much at once.
const AHEAD_BYTES: usize = 512 << 10;
/// The longest item: a value of full length in pieces, with all that is said of it.
const ITEM_BYTES_MAX: u64 = (256 << 20) + (4 << 20);

/// A volume that can be read, by any number of threads.
pub(crate) struct Volume {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Its file, while that is one of those that are open.
    slot: Arc<Slot>,
    open: Arc<OpenFiles>,
    facts: Facts,
    /// Its first seal says that it was.
    is_finished: bool,
    top: Top,
    doomed: AtomicBool,
}

impl Volume {
    /// Opens the volume of this name, alone.
    ///
    /// # Errors
    /// As [`Volume::open_among`].
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        first: u64,
        generation: u32,
    ) -> Result<Arc<Self>, VaultError> {
        Self::open_among(&Arc::new(OpenFiles::new(1)), disk, folder, first, generation)
    }

    /// Opens the volume of this name; its file stays open while it is one of so many.
    ///
    /// # Errors
    /// `Damaged`, naming file and offset, if neither seal is whole or it is another volume; as the disk says.
    pub(crate) fn open_among(
        open: &Arc<OpenFiles>,
        disk: &Arc<dyn Disk>,
        folder: &Path,
        first: u64,
        generation: u32,
    ) -> Result<Arc<Self>, VaultError> {
        let path = folder.join(seal::name(first, generation));
        let slot = Arc::<Slot>::default();
        let file = open.file(&slot, || opened(&**disk, &path));
        let file = file.map_err(|error| VaultError::disk(OPENING, &path, &error))?;
        let size = file.size().map_err(|error| VaultError::disk("reading", &path, &error))?;
        let back = size.saturating_sub(bytes(BLOCK_BYTES));
        let last = || read(&*file, &path, back, BLOCK_BYTES).ok().and_then(|block| Facts::parse(&block).ok());
        let (facts, is_finished) = match read(&*file, &path, 0, BLOCK_BYTES) {
            Ok(block) => match Facts::parse_first(&block) {
                Ok(front) => front,
                Err(what) => (last().ok_or_else(|| VaultError::damaged(&path, 0, what))?, false),
            },
            // The disk does not read it, and may know better: nobody takes it for one that was never finished.
            Err(unread) => (last().ok_or(unread)?, true),
        };
        if (facts.first, facts.generation) != (first, generation) {
            return Err(VaultError::damaged(&path, 0, format!("it says that it is {}", facts.name())));
        }
        let top = top(&*file, &path, &facts)?;
        let doomed = AtomicBool::new(false);
        let (disk, open) = (Arc::clone(disk), Arc::clone(open));
        Ok(Arc::new(Self { disk, path, slot, open, facts, is_finished, top, doomed }))
    }

    /// What a file of this name says of itself that cannot be opened, if it says that it was whole and durable once: then it has rotted.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn finished_once(
        disk: &dyn Disk,
        folder: &Path,
        first: u64,
        generation: u32,
    ) -> Result<Option<Facts>, VaultError> {
        let path = folder.join(seal::name(first, generation));
        let file = opened(disk, &path).map_err(|error| VaultError::disk(OPENING, &path, &error))?;
        let front = Facts::parse_first(&read(&*file, &path, 0, BLOCK_BYTES)?);
        let finished = front.ok().filter(|(_, is_finished)| *is_finished).map(|(facts, _)| facts);
        Ok(finished.filter(|facts| (facts.first, facts.generation) == (first, generation)))
    }

    /// Its file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It is not the one that was asked for.
    pub(crate) fn another(&self) -> VaultError {
        let Facts { end, bytes, as_of, .. } = self.facts;
        let what =
            format!("its seal says {bytes} bytes up to LSN {end} as of {as_of}, which the ledger's note does not");
        VaultError::damaged(&self.path, 0, what)
    }

    /// So many bytes from a place of its file, or as many as there are.
    fn read(&self, at: u64, wanted: usize) -> Result<Vec<u8>, VaultError> {
        read(&*self.file()?, &self.path, at, wanted)
    }

    fn file(&self) -> Result<Arc<dyn File>, VaultError> {
        let file = self.open.file(&self.slot, || opened(&*self.disk, &self.path));
        file.map_err(|error| VaultError::disk(OPENING, &self.path, &error))
    }

    fn will_read(&self, at: u64, wanted: usize) {
        if let Ok(file) = self.file() {
            file.will_read(at, bytes(wanted));
        }
    }

    /// What it says of itself.
    pub(crate) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether it is known that it was whole and durable once: what is damaged in it has rotted since. Of one whose first seal is
    /// damaged, or that an older release wrote, it is not known.
    pub(crate) const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// What it keeps in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        bytes(size_of::<Self>() + self.top.memory_bytes())
    }

    /// Its file goes with its last holder.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    /// The item at an address.
    ///
    /// # Errors
    /// `Damaged`, naming file and offset; as the disk says.
    pub(crate) fn get(&self, blocks: &dyn Blocks, address: Address) -> Result<Option<Record>, VaultError> {
        self.find(blocks, address, false)
    }

    /// The same, read past the system's cache.
    ///
    /// # Errors
    /// As [`Volume::get`].
    pub(crate) fn get_directly(&self, blocks: &dyn Blocks, address: Address) -> Result<Option<Record>, VaultError> {
        self.find(blocks, address, true)
    }

    fn find(&self, blocks: &dyn Blocks, address: Address, directly: bool) -> Result<Option<Record>, VaultError> {
        let Some(number) = self.top.find(address) else { return Ok(None) };
        let row = match self.block(blocks, number) {
            Ok(payload) => index::find(&payload, address).unwrap_or_default(),
            // Damaged, or not read: its items still stand in their order.
            Err(_) => {
                let (rows, end) = self.scan(number)?;
                let found = rows.into_iter().find(|row| row.address == address);
                match (found, end) {
                    (None, Some(damage)) => return Err(damage),
                    (found, _) => found,
                }
            }
        };
        row.map(|row| self.record(row, directly)).transpose()
    }

    /// A block's payload.
    fn block(&self, blocks: &dyn Blocks, number: usize) -> Result<Arc<[u8]>, VaultError> {
        let volume = (self.facts.first, self.facts.generation);
        if let Some(payload) = blocks.get(volume, number) {
            return Ok(payload);
        }
        let block = self.read(block_at(&self.facts, number), BLOCK_BYTES)?;
        let payload: Option<Arc<[u8]>> = index::block(&block, number).map(Arc::from);
        let what = "the checksum of this block of the index fails";
        let damaged = || VaultError::damaged(&self.path, block_at(&self.facts, number), what);
        let payload = payload.filter(|payload| index::rows(payload).is_ok()).ok_or_else(damaged)?;
        blocks.keep(volume, number, &payload);
        Ok(payload)
    }

    fn record(&self, row: Row, directly: bool) -> Result<Record, VaultError> {
        let wanted = length(row.bytes);
        let direct = || {
            let read = read_direct(&*self.file()?, row.offset, wanted);
            read.map_err(|error| VaultError::disk("reading", &self.path, &error))
        };
        self.record_in(row, || if directly { direct() } else { self.read(row.offset, wanted) })
    }

    fn record_in(&self, row: Row, read: impl FnOnce() -> Result<Vec<u8>, VaultError>) -> Result<Record, VaultError> {
        let damaged = |at: usize, what: String| VaultError::damaged(&self.path, row.offset + bytes(at), what);
        if row.bytes > ITEM_BYTES_MAX || row.offset.saturating_add(row.bytes) > self.facts.index_at {
            return Err(damaged(0, format!("{} bytes do not fit there", row.bytes)));
        }
        Record::parse(read()?, row.address).map_err(|(at, what)| damaged(at, what))
    }

    /// All items in order, and what is damaged in their place.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record, VaultError>> {
        let (mut numbers, mut ahead) = (0..self.top.len(), Ahead::default());
        let (mut rows, mut damages) = (Vec::new().into_iter(), Vec::new().into_iter());
        std::iter::from_fn(move || {
            loop {
                if let Some(row) = rows.next() {
                    return Some(self.record_in(row, || ahead.read(self, row)));
                }
                if let Some(damage) = damages.next() {
                    return Some(Err(damage));
                }
                let (found, wrong) = self.rows(numbers.next()?);
                (rows, damages) = (found.into_iter(), wrong.into_iter());
            }
        })
    }

    /// The rows of a block, and what is damaged about them.
    fn rows(&self, number: usize) -> (Vec<Row>, Vec<VaultError>) {
        match self.block(&NoBlocks, number) {
            Ok(payload) => (index::rows(&payload).unwrap_or_default(), Vec::new()),
            Err(wrong) => match self.scan(number) {
                Ok((rows, end)) => (rows, [wrong].into_iter().chain(end).collect()),
                Err(error) => (Vec::new(), vec![wrong, error]),
            },
        }
    }

    /// The items of a block by their frames, up to the first that is damaged.
    fn scan(&self, number: usize) -> Result<(Vec<Row>, Option<VaultError>), VaultError> {
        let (mut at, end) = self.top.region(number, self.facts.index_at);
        let mut rows: Vec<Row> = Vec::new();
        while at < end {
            let head = self.read(at, HEADER_BYTES)?;
            let said = head.first_chunk().map_or(0, |said| length(u64::from(u32::from_le_bytes(*said))));
            let bytes_of_it = laid_bytes(said.min(PAYLOAD_BYTES_MAX));
            let frame = self.read(at, bytes_of_it)?;
            let Ok(Some((frame, laid))) = parse(&frame, PAYLOAD_BYTES_MAX) else {
                let what =
                    "the checksum of the frame there fails, and the index that knows what follows is damaged too";
                return Ok((rows, Some(VaultError::damaged(&self.path, at, what))));
            };
            let address = Address::new(frame.mark, frame.chain);
            match rows.last_mut().filter(|_| item::continues(frame.kind)) {
                Some(row) => row.bytes += bytes(laid),
                None => rows.push(Row { address, offset: at, bytes: bytes(laid) }),
            }
            at += bytes(laid);
        }
        Ok((rows, None))
    }

    /// Reads everything; each damage is told. Answers how many items are whole.
    pub(crate) fn verify(&self, told: &mut dyn FnMut(&VaultError)) -> u64 {
        let mut whole = 0;
        for record in self.records() {
            match record {
                Ok(_) => whole += 1,
                Err(error) => told(&error),
            }
        }
        for (at, what) in [(0, "first"), (self.facts.bytes - bytes(BLOCK_BYTES), "second")] {
            let seal = self.read(at, BLOCK_BYTES);
            if seal.is_ok_and(|seal| Facts::parse(&seal) != Ok(self.facts)) {
                told(&VaultError::damaged(&self.path, at, format!("its {what} seal is not whole")));
            }
        }
        let at = block_at(&self.facts, self.top.len());
        let laid = self.read(at, length(self.facts.top_bytes));
        if laid.is_ok_and(|laid| Top::parse(&laid, self.top.len()).is_none()) {
            told(&VaultError::damaged(&self.path, at, "the top of its index is not whole"));
        }
        whole
    }
}

impl Volume {
    /// Hands over every item, in order. What is damaged and stands there twice, a block of the index or a seal, hides none of them.
    ///
    /// # Errors
    /// The first damage, if there are fewer than its seal says; as the disk says; as `then` says.
    pub(crate) fn each<E: From<VaultError>>(
        &self,
        mut then: impl FnMut(&Record, Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut items, mut damage) = (0, None);
        for record in self.records() {
            match record {
                Ok(record) => {
                    then(&record, record.item()?)?;
                    items += 1;
                }
                Err(error) if error.kind() == Kind::Corrupt => _ = damage.get_or_insert(error),
                Err(error) => return Err(error.into()),
            }
        }
        if items == self.facts.items {
            return Ok(());
        }
        Err(damage.unwrap_or_else(|| self.lacks(items)).into())
    }

    /// It has fewer items than it says, or more.
    pub(crate) fn lacks(&self, items: u64) -> VaultError {
        VaultError::damaged(&self.path, 0, format!("{items} items, its seal says {}", self.facts.items))
    }
}

/// What a walk has read of the items behind the one that it is at: the system reads ahead for nobody ([`File::expect_random_reads`]).
#[derive(Default)]
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    fn read(&mut self, volume: &Volume, row: Row) -> Result<Vec<u8>, VaultError> {
        let wanted = length(row.bytes);
        let alone = || volume.read(row.offset, wanted);
        if wanted >= AHEAD_BYTES {
            return alone();
        }
        if let Some(found) = self.find(row) {
            return Ok(found.to_vec());
        }
        let left = length(volume.facts.index_at.saturating_sub(row.offset));
        let most = left.min(AHEAD_BYTES);
        // What stands behind it may be on a sector that is lost, and that is none of its business.
        let Ok(bytes) = volume.read(row.offset, most) else { return alone() };
        volume.will_read(row.offset + self::bytes(most), AHEAD_BYTES.min(left - most));
        (self.at, self.bytes) = (row.offset, bytes);
        self.find(row).map_or_else(alone, |found| Ok(found.to_vec()))
    }

    fn find(&self, row: Row) -> Option<&[u8]> {
        let from = length(row.offset.checked_sub(self.at)?);
        self.bytes.get(from..from.checked_add(length(row.bytes))?)
    }
}

/// What `then` said is not what reading said.
enum Walked {
    Read(VaultError),
    Then(VaultError),
}

impl From<VaultError> for Walked {
    fn from(error: VaultError) -> Self {
        Self::Read(error)
    }
}

impl Source for Volume {
    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
        self.each(|_, item| then(item).map_err(Walked::Then)).map_err(|error| match error {
            Walked::Read(error) => error.found_at(self.facts.first),
            Walked::Then(error) => error,
        })
    }
}

impl Source for Arc<Volume> {
    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
        self.as_ref().walk(then)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            // One that stays is in no manifest: the next open removes it.
            _ = remove_in_steps(&*self.disk, &self.path);
        }
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume({})", self.path.display())
    }
}

/// How many files of volumes there are that nobody knows; none in a folder that is not there.
///
/// # Errors
/// As the disk says.
pub(crate) fn count_unknown(disk: &dyn Disk, folder: &Path, known: &BTreeSet<(u64, u32)>) -> Result<u64, VaultError> {
    let unknown = volumes(disk, folder)?.into_iter().filter(|volume| !known.contains(volume)).count();
    Ok(bytes(unknown))
}

/// Removes the file of a volume that nobody will know. One that stays is in no manifest: the next open removes it.
pub(crate) fn remove(disk: &dyn Disk, folder: &Path, first: u64, generation: u32) {
    _ = disk.unlink(&folder.join(seal::name(first, generation)));
}

/// The volumes whose files are there; none in a folder that is not there.
///
/// # Errors
/// As the disk says.
pub(crate) fn volumes(disk: &dyn Disk, folder: &Path) -> Result<Vec<(u64, u32)>, VaultError> {
    match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => {
            let names = names.map_err(|error| VaultError::disk("listing", folder, &error))?;
            Ok(names.iter().filter_map(|name| seal::named(name)).collect())
        }
    }
}

/// Removes the files of volumes that nobody knows: of a process that died before or after a manifest did.
///
/// # Errors
/// As the disk says.
pub(crate) fn remove_unknown(disk: &dyn Disk, folder: &Path, known: &BTreeSet<(u64, u32)>) -> Result<u64, VaultError> {
    let names = disk.list(folder).map_err(|error| VaultError::disk("listing", folder, &error))?;
    let mut removed = 0;
    for name in names.iter().filter(|name| seal::named(name).is_some_and(|volume| !known.contains(&volume))) {
        let path = folder.join(name);
        match disk.unlink(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(VaultError::disk("removing", &path, &error));
            }
            _ => removed += 1,
        }
    }
    Ok(removed)
}

/// The top as it was laid; else from the blocks, and where one of these is not whole from what stands behind the items of the one before it.
fn top(file: &dyn File, path: &Path, facts: &Facts) -> Result<Top, VaultError> {
    let blocks = usize::try_from(facts.blocks).unwrap_or(usize::MAX);
    let size = file.size().map_err(|error| VaultError::disk("reading", path, &error))?;
    if facts.bytes <= size {
        let laid = read(file, path, block_at(facts, blocks), length(facts.top_bytes)).unwrap_or_default();
        if let Some(top) = Top::parse(&laid, blocks) {
            return Ok(top);
        }
    }
    let mut top = Top::default();
    // Items begin behind the first seal, and each block's behind those of the one before.
    let mut begins = Some(bytes(BLOCK_BYTES));
    for number in 0..blocks {
        let rows = read(file, path, block_at(facts, number), BLOCK_BYTES);
        let rows = rows.map(|block| index::block(&block, number).and_then(|payload| index::rows(payload).ok()));
        let first = match &rows {
            Ok(Some(rows)) => rows.first().map(|row| (row.address, row.offset)),
            _ => begins.and_then(|offset| Some((begun(file, path, offset)?, offset))),
        };
        let Some((address, offset)) = first else {
            let what = "neither this block of the index nor its top is whole";
            return Err(rows.err().unwrap_or_else(|| VaultError::damaged(path, block_at(facts, number), what)));
        };
        begins = rows.ok().flatten().and_then(|rows| rows.last().map(|row| row.offset + row.bytes));
        top.add(address, offset);
    }
    Ok(top)
}

/// The address of the item that begins there, if one does.
fn begun(file: &dyn File, path: &Path, offset: u64) -> Option<Address> {
    let head = read(file, path, offset, HEADER_BYTES).ok()?;
    let said = head.first_chunk().map_or(0, |said| length(u64::from(u32::from_le_bytes(*said))));
    let frame = read(file, path, offset, laid_bytes(said.min(PAYLOAD_BYTES_MAX))).ok()?;
    let (frame, _) = parse(&frame, PAYLOAD_BYTES_MAX).ok()??;
    (!item::continues(frame.kind)).then(|| Address::new(frame.mark, frame.chain))
}

fn block_at(facts: &Facts, number: usize) -> u64 {
    facts.index_at + bytes(number) * bytes(BLOCK_BYTES)
}

/// Who walks reads long pieces ([`Ahead`]); who asks for one value after the other reads each by itself.
fn opened(disk: &dyn Disk, path: &Path) -> io::Result<Arc<dyn File>> {
    let file = disk.open(path, READ)?;
    file.expect_random_reads();
    Ok(file)
}

/// As many bytes as there are.
fn read(file: &dyn File, path: &Path, at: u64, wanted: usize) -> Result<Vec<u8>, VaultError> {
    let mut memory = vec![0; wanted];
    let read = read_exact_at(file, at, &mut memory).map_err(|error| VaultError::disk("reading", path, &error))?;
    memory.truncate(read);
    Ok(memory)
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
