//! The files of a table: which of them is believed, and how fresh ones are made.
//!
//! Walk: [`examine`] reads what is there and changes nothing · [`make`] lays a table into fresh files, each durable before
//! it takes the place of an old one, the believed one's place last.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_ids::Epoch;
use assent_journal::JournalError;
use assent_kind::Kind;
use assent_world::{Access, Disk, File, Open, is_short, read_exact_at, write_all_at};

use crate::engine::barrier;
use crate::engine::image::Image;
use crate::engine::layout::{self, BLOCK, BLOCK_BYTES, BLOCKS_MAX, Head, Key};
use crate::engine::rows;

/// The names of the files; the third only where RPO > 0.
pub(crate) const NAMES: [&str; 3] = ["table-1", "table-2", "table-3"];
const NAME_NEW: &str = "table.new";
/// The file by which a journal's folder is known.
const JOURNAL: &str = "epochs";

/// The state engines that a coordinator's folder may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// A log with checkpoints and history.
    Journal,
    /// A table updated in place.
    Table,
}

/// The engine whose files are in this folder, if that is another one than the wanted.
///
/// # Errors
/// As the disk says; a folder that is not there is nobody's.
pub fn is_foreign(disk: &dyn Disk, folder: &Path, wanted: Engine) -> Result<Option<Engine>, JournalError> {
    let names = match disk.list(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused("listing", folder, &error)),
    };
    let has = |name: &str| names.iter().any(|there| there == name);
    Ok(match wanted {
        Engine::Journal => NAMES.iter().any(|name| has(name)).then_some(Engine::Table),
        Engine::Table => has(JOURNAL).then_some(Engine::Journal),
    })
}

/// What an opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The epoch of this opening; of the last one, if it was opened to read only.
    pub epoch: Epoch,
    /// Rows.
    pub rows: u64,
    /// The last opening closed properly, or there was none.
    pub is_clean: bool,
    /// The operating system is still the run of the last opening.
    pub is_same_boot: bool,
    /// The last opening acknowledged before the sync (RPO > 0), did not close, and the operating system was restarted.
    pub may_have_lost: bool,
    /// A file that was not whole: the state before what was being written into it is served.
    pub torn: Option<PathBuf>,
    /// Damaged blocks, file and offset, that were taken from another file.
    pub healed: Vec<(PathBuf, u64)>,
}

/// A table that is believed.
#[derive(Debug)]
pub(crate) struct Believed {
    pub(crate) head: Head,
    pub(crate) rows: BTreeMap<Key, Vec<u8>>,
    /// Which file.
    pub(crate) file: usize,
    pub(crate) torn: Option<usize>,
    /// Which blocks of it came from another file.
    pub(crate) healed: Vec<u32>,
}

/// A file as it was read.
pub(crate) type Bytes = Option<Vec<u8>>;

/// The disk's refusal, with what was being done to what.
pub(crate) fn refused(doing: &'static str, path: &Path, error: &io::Error) -> JournalError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
        _ => Kind::Unavailable,
    };
    let (path, short) = (path.display().to_string(), is_short(error));
    JournalError::Disk { doing, path, error: error.to_string(), kind, short }
}

/// Reads the files of a folder; changes nothing. `None`: there is no table yet.
///
/// # Errors
/// `Corrupt`, naming file and offset, where no file is whole or one that was durable is gone.
pub(crate) fn examine(disk: &dyn Disk, folder: &Path) -> Result<Option<Believed>, JournalError> {
    let mut files: [Bytes; 3] = [None, None, None];
    for (name, file) in NAMES.iter().zip(&mut files) {
        *file = read(disk, &folder.join(name))?;
    }
    examine_bytes(&files).map_err(|damage| {
        let file = NAMES.get(damage.file).map(|name| folder.join(name)).unwrap_or_default();
        JournalError::Corrupt { file: file.display().to_string(), offset: damage.offset, what: damage.what.to_owned() }
    })
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Bytes, JournalError> {
    let file = match disk.open(path, Open { access: Access::Read, direct: false }) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused("opening", path, &error)),
    };
    let bytes = file.size().map_err(|error| refused("reading", path, &error))?;
    let most = BLOCK_BYTES * (u64::from(BLOCKS_MAX) + 1);
    let mut memory = vec![0; usize::try_from(bytes.min(most)).unwrap_or(0)];
    let read = read_exact_at(&*file, 0, &mut memory).map_err(|error| refused("reading", path, &error))?;
    memory.truncate(read);
    Ok(Some(memory))
}

/// Where files of a table cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) what: &'static str,
}

fn damage<T>(file: usize, number: u32, what: &'static str) -> Result<T, Damage> {
    Err(Damage { file, offset: u64::from(number) * BLOCK_BYTES, what })
}

/// Finds the newest table that is whole.
pub(crate) fn examine_bytes(files: &[Bytes; 3]) -> Result<Option<Believed>, Damage> {
    let Some(first) = files.iter().position(Option::is_some) else { return Ok(None) };
    let head = |file: &Bytes| file.as_ref().and_then(|bytes| Head::read(bytes.get(..BLOCK)?).ok());
    let mut heads: Vec<(usize, Head)> = (0..).zip(files).filter_map(|(at, file)| Some((at, head(file)?))).collect();
    heads.sort_by_key(|(_, head)| std::cmp::Reverse(head.generation));
    let Some((newest, latest)) = heads.first() else {
        return damage(first, 0, "no file of this table has a whole first block");
    };
    if let Some((stranger, _)) = heads.iter().find(|(_, head)| head.id != latest.id) {
        return damage(*stranger, 0, "it belongs to another table");
    }
    // Durable once, so it must be there, or something newer.
    let synced = heads.iter().map(|(_, head)| head.synced).max().unwrap_or(0);
    let mut broken: Option<(usize, u32)> = None;
    for (file, head) in &heads {
        match assemble(files, *file, head) {
            Ok(healed) if head.generation >= synced => {
                let rows = gather(files, *file, head, &healed)?;
                let headless =
                    (0..).zip(files).find(|(at, file)| file.is_some() && heads.iter().all(|one| one.0 != *at));
                let torn = broken.map(|(file, _)| file).or(headless.map(|(at, _)| at));
                let healed = healed.into_iter().map(|(number, _)| number).collect();
                return Ok(Some(Believed { head: head.clone(), rows, file: *file, torn, healed }));
            }
            Ok(_) => break,
            Err(number) => _ = broken.get_or_insert((*file, number)),
        }
    }
    let (file, number) = broken.unwrap_or((*newest, 0));
    damage(file, number, "what was durable in this block is gone, and no other file has it")
}

/// Whether all blocks together are what the head says. Damaged ones are taken from any other file that has them: which
/// blocks of this file came from which. Else the first block that is not right, 0 if it cannot be told which.
fn assemble(files: &[Bytes; 3], file: usize, head: &Head) -> Result<Vec<(u32, usize)>, u32> {
    let (mut healed, mut digest) = (Vec::new(), 0_u64);
    for number in 1..=head.blocks {
        let of = |at: usize| layout::whole(head.id, block(files, at, number)?, number);
        let own = of(file).map(|sum| (sum, file));
        let others = || (0..files.len()).find_map(|at| of(at).map(|sum| (sum, at)));
        let (sum, from) = own.or_else(others).ok_or(number)?;
        if from != file {
            healed.push((number, from));
        }
        digest = digest.wrapping_add(sum);
    }
    match digest == head.digest {
        true => Ok(healed),
        false => Err(healed.first().map_or(0, |(number, _)| *number)),
    }
}

fn block(files: &[Bytes; 3], file: usize, number: u32) -> Option<&[u8]> {
    let at = usize::try_from(number).ok()? * BLOCK;
    files.get(file)?.as_ref()?.get(at..at + BLOCK)
}

fn gather(
    files: &[Bytes; 3],
    file: usize,
    head: &Head,
    healed: &[(u32, usize)],
) -> Result<BTreeMap<Key, Vec<u8>>, Damage> {
    let mut parts: BTreeMap<Key, BTreeMap<u32, (u32, &[u8])>> = BTreeMap::new();
    for number in 1..=head.blocks {
        let from = healed.iter().find(|(at, _)| *at == number).map_or(file, |(_, from)| *from);
        let pieces = layout::pieces(block(files, from, number).unwrap_or_default());
        let Ok(pieces) = pieces else { return damage(from, number, "its rows cannot be read") };
        for (_, piece) in pieces {
            let twice = parts.entry(piece.key).or_default().insert(piece.number, (piece.of, piece.bytes)).is_some();
            if twice || !rows::is_known(piece.key.kind) {
                return damage(from, number, "a row of an unknown kind, or twice: a newer program may have written it");
            }
        }
    }
    let mut whole = BTreeMap::new();
    for (key, pieces) in parts {
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let mut row = Vec::new();
        for (expected, (number, (of, bytes))) in (0..).zip(pieces) {
            if number != expected || of != count {
                return damage(file, 0, "a row lacks a piece");
            }
            row.extend_from_slice(bytes);
        }
        _ = whole.insert(key, row);
    }
    Ok(whole)
}

/// One file of an open table.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) generation: u64,
    /// Blocks that changed since it was last written.
    pub(crate) stale: std::collections::BTreeSet<u32>,
}

/// How files are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) folder: &'a Path,
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    pub(crate) direct: bool,
}

/// Lays a table into fresh files, the place of the believed one last. Each has one generation more than the one before;
/// `head` has the first's, and comes back with the last's.
///
/// # Errors
/// As the disk says. Then the believed file is still there.
pub(crate) fn make(
    making: Making<'_>,
    image: &Image,
    head: &mut Head,
    believed: Option<usize>,
) -> Result<Vec<Copy>, JournalError> {
    let Making { disk, folder, count, .. } = making;
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|at| Some(*at) == believed);
    let mut copies = Vec::new();
    for at in order {
        let Some(name) = NAMES.get(at) else { continue };
        copies.push((at, fresh(making, &folder.join(name), image, head)?));
        head.synced = head.generation;
        head.generation += 1;
    }
    head.generation -= 1;
    // Their names before an old file goes, and before anything is written into them.
    let sync = || disk.sync_dir(folder, barrier::NAME).map_err(|error| refused("syncing", folder, &error));
    sync()?;
    let mut is_removed = false;
    for name in NAMES.get(count..).unwrap_or_default() {
        is_removed |= remove(disk, &folder.join(name))?;
    }
    if is_removed {
        sync()?;
    }
    copies.sort_by_key(|(at, _)| *at);
    Ok(copies.into_iter().map(|(_, copy)| copy).collect())
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<bool, JournalError> {
    match disk.unlink(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(refused("removing", path, &error)),
    }
}

fn fresh(making: Making<'_>, path: &Path, image: &Image, head: &Head) -> Result<Copy, JournalError> {
    let Making { disk, folder, bytes, direct, .. } = making;
    let new = folder.join(NAME_NEW);
    // A half-made one of a process that was killed.
    _ = remove(disk, &new)?;
    let file =
        disk.open(&new, Open { access: Access::Create, direct }).map_err(|error| refused("making", &new, &error))?;
    let lay = || {
        file.preallocate_zeroed(bytes)?;
        let mut block = vec![0; BLOCK];
        head.lay(&mut block);
        write_all_at(&*file, 0, &block)?;
        for number in 1..=image.blocks() {
            write_all_at(&*file, u64::from(number) * BLOCK_BYTES, image.bytes(number))?;
        }
        file.sync_all(barrier::FILE)?;
        disk.rename(&new, path)
    };
    if let Err(error) = lay() {
        // What cannot be finished need not fill the disk.
        _ = remove(disk, &new);
        return Err(refused("writing", &new, &error));
    }
    Ok(Copy { path: path.to_path_buf(), file, generation: head.generation, stale: std::collections::BTreeSet::new() })
}
