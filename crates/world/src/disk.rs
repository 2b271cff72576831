//! The disk as a door: files, folders, and the barriers that make them durable.
//!
//! What a caller may believe: bytes are durable after [`File::sync_data`], [`File::sync_all`] or a
//! [`File::write_durable_at`] of them returned `Ok`; a length after [`File::sync_all`] (or `sync_data`, where the
//! bytes need it to be read); a folder's entries after [`Disk::sync_dir`]. Nothing else, and nothing after an error.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The name of one place in the code that makes something durable. The simulated disk can ignore one by name; a gate
/// must then go red, else the barrier proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Barrier(&'static str);

impl Barrier {
    /// A label, unique in the whole system: `room: what must be durable before what`.
    #[must_use]
    pub const fn new(label: &'static str) -> Self {
        Self(label)
    }

    /// The label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.0
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A new file, to read and write; an error if it exists.
    Create,
}

/// What to open and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Read, write or create.
    pub access: Access,
    /// Durable writes of whole aligned blocks go past the page cache, where the file system can. Reads never do.
    pub direct: bool,
}

/// How [`File::write_durable_at`] makes its bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durably {
    /// A write, then fdatasync.
    DataSync,
    /// One write with RWF_DSYNC.
    Dsync,
}

/// How much room a file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that this process may still take.
    pub free_bytes: u64,
    /// Bytes of all of it, taken or not.
    pub bytes: u64,
}

/// So many files of one kind may be kept open anywhere.
pub(crate) const FILES_MAX_LEAST: u32 = 64;

/// The files of one machine.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder; fine if it is there. Not durable before its parent is synced.
    ///
    /// # Errors
    /// As the operating system says; so for all below.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens or creates a file. A new entry is not durable before its folder is synced.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `PermissionDenied` and others.
    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>>;

    /// Renames within a folder, atomically, over an existing file if there is one. Not durable before the folder is
    /// synced.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's entry. Not durable before the folder is synced.
    ///
    /// # Errors
    /// `NotFound` and others.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// `NotFound` if the folder is not there, and others.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes a folder's entries durable.
    ///
    /// # Errors
    /// As the operating system says. What is durable is unknown then.
    fn sync_dir(&self, folder: &Path, barrier: Barrier) -> io::Result<()>;

    /// Takes the exclusive lock of this file (made if missing) until the answer is dropped or the process dies.
    ///
    /// # Errors
    /// `WouldBlock` if somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;

    /// Whether a file has a name beside this one (a hard link): who writes into it then writes into somebody else's, too.
    ///
    /// # Errors
    /// As the operating system says.
    fn has_other_names(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// How much room there is for what a folder holds, as of now: others may take it. None where nobody knows.
    ///
    /// # Errors
    /// As the operating system says.
    fn room(&self, folder: &Path) -> io::Result<Option<DiskRoom>> {
        let _ = folder;
        Ok(None)
    }

    /// How many files of one kind somebody may keep open to read them, beside what all others open.
    fn files_max(&self) -> u32 {
        FILES_MAX_LEAST
    }

    /// Says that somebody will keep so many open: what that takes is made ready at once, so that no read waits for it.
    fn expect_files(&self, many: u32) {
        _ = many;
    }
}

/// An exclusive lock, held until dropped.
pub trait Lock: Send + Sync + Debug {}

/// One open file. Positions are explicit, so that many threads can use it at once.
pub trait File: Send + Sync + Debug {
    /// Its length in bytes.
    ///
    /// # Errors
    /// As the operating system says; so for all below.
    fn size(&self) -> io::Result<u64>;

    /// Whether aligned durable writes really bypass the page cache: a file opened `direct` on a file system that can.
    fn is_direct(&self) -> bool;

    /// Reads at a position; fewer bytes than asked at the end of the file, or whenever the system likes.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// As [`File::read_at`], past the page cache where memory, position and length are at multiples of [`crate::BLOCK_BYTES`] and the system
    /// can: for who keeps in memory himself what he reads. Default: as [`File::read_at`].
    ///
    /// # Errors
    /// As the operating system says.
    fn read_direct_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(at, buffer)
    }

    /// Writes at a position into the page cache; may write fewer bytes than given. Extends the file if needed.
    ///
    /// # Errors
    /// `StorageFull` and others; what was written is unknown then.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Writes at a position within the file's length; durable when it returns. May write fewer bytes than given.
    /// On a file opened `direct`, aligned blocks (pointer, position and length at multiples of
    /// [`crate::BLOCK_BYTES`]) bypass the page cache.
    ///
    /// # Errors
    /// As the operating system says. What is durable is unknown then: never retry, reopen and recover.
    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize>;

    /// Makes the file `bytes` long and writes zeroes over all of it, so that later syncs touch no metadata. Not
    /// durable before `sync_all`.
    ///
    /// # Errors
    /// `StorageFull` and others.
    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()>;

    /// As [`File::preallocate_zeroed`], but the zeroes may be the file system's word alone: half of what the disk must write,
    /// and syncs of what is written there later touch metadata. For files that are synced now and then.
    ///
    /// # Errors
    /// As [`File::preallocate_zeroed`].
    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        self.preallocate_zeroed(bytes)
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn set_size(&self, bytes: u64) -> io::Result<()>;

    /// Makes all written bytes durable, and the length if they need it (fdatasync).
    ///
    /// # Errors
    /// As the operating system says. What is durable is unknown then: never retry, reopen and recover.
    fn sync_data(&self, barrier: Barrier) -> io::Result<()>;

    /// Makes all written bytes and metadata durable (fsync).
    ///
    /// # Errors
    /// As [`File::sync_data`].
    fn sync_all(&self, barrier: Barrier) -> io::Result<()>;

    /// Says that it is read here and there: what stands behind a piece that is read is not read with it. Linux takes a read behind pages
    /// that it has in memory for one of a row, and reads up to as much again ahead, however much that is. Who walks such a file
    /// reads long pieces, or waits for the disk at each short one. A hint.
    fn expect_random_reads(&self) {}

    /// Says that these bytes will be read soon: the disk may bring them meanwhile. Who walks says it of the piece behind the one that it has
    /// in hand. A hint.
    fn will_read(&self, at: u64, bytes: u64) {
        let _ = (at, bytes);
    }

    /// Has what was written there go to the disk from now on, without a wait. It makes nothing durable; nor does the next.
    ///
    /// # Errors
    /// As [`File::sync_data`]; where the system has no such call none.
    fn begin_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        let _ = (at, bytes);
        Ok(())
    }

    /// Waits until what [`File::begin_write_back`] was told of has gone: who writes much waits for what he wrote a while ago, so that the
    /// sync at its end, and those of others meanwhile, find little to do.
    ///
    /// # Errors
    /// As [`File::sync_data`], and told once: a sync of this file that follows may say that all is well.
    fn await_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        let _ = (at, bytes);
        Ok(())
    }

    /// Gives back the room of a file that is open to be written, has no name any more and is read by nobody: in steps, so
    /// that a disk that is told of freed blocks does not stand still. Who still reads it finds it cut.
    fn give_back(&self) {}
}

/// Removes a file that nobody reads: its entry at once, its room in steps ([`File::give_back`]).
///
/// # Errors
/// As [`Disk::unlink`].
pub fn remove_in_steps(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    // What cannot be opened goes all at once.
    let file = disk.open(path, Open { access: Access::Write, direct: false });
    disk.unlink(path)?;
    file.into_iter().for_each(|file| file.give_back());
    Ok(())
}

/// Writes all of `bytes`, in as many calls as it takes.
///
/// # Errors
/// The first error of [`File::write_at`]; a call that writes nothing is `WriteZero`.
pub fn write_all_at(file: &dyn File, at: u64, bytes: &[u8]) -> io::Result<()> {
    all(at, bytes, |at, rest| file.write_at(at, rest))
}

/// Writes all of `bytes` durably, in as many calls as it takes.
///
/// # Errors
/// The first error of [`File::write_durable_at`]; a call that writes nothing is `WriteZero`.
pub fn write_all_durable_at(file: &dyn File, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<()> {
    all(at, bytes, |at, rest| file.write_durable_at(at, rest, how, barrier))
}

fn all(mut at: u64, mut rest: &[u8], mut write: impl FnMut(u64, &[u8]) -> io::Result<usize>) -> io::Result<()> {
    while !rest.is_empty() {
        let written = write(at, rest)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = rest.get(written..).unwrap_or_default();
        at += u64::try_from(written).unwrap_or(u64::MAX);
    }
    Ok(())
}

/// Fills `buffer` from a position, in as many calls as it takes; the answer is how many bytes there were before the
/// end of the file.
///
/// # Errors
/// The first error of [`File::read_at`].
pub fn read_exact_at(file: &dyn File, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..)
        && !rest.is_empty()
    {
        match file.read_at(at + u64::try_from(done).unwrap_or(u64::MAX), rest)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}
