//! The real disk: the files of this machine.
//!
//! Walk: [`RealDisk`] opens · `RealFile` keeps one buffered descriptor and, for direct writes, a second one past the
//! page cache, and a third one once somebody reads so. Linux keeps them coherent: a direct write drops the cached pages it covers, and a
//! direct read is of what was written.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::io::ReadWriteFlags;

use crate::buffer::is_aligned;
use crate::descriptors::{expect_descriptors, files_max, is_short, limit};
use crate::disk::{Access, Barrier, Disk, DiskRoom, Durably, File, Lock, Open, write_all_at};
use crate::room;

/// How a call is refused that has done nothing: where it is not there, or a sandbox or a file system does not take it.
const REFUSED: [i32; 5] = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::ESPIPE, libc::EOPNOTSUPP];
const ZEROES_BYTES: usize = 1 << 20;
static ZEROES: [u8; ZEROES_BYTES] = [0; ZEROES_BYTES];

/// Descriptors for each file that somebody keeps open: he has others, too, and is not alone.
const EACH_FILE: u64 = 4;

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile {
    buffered: fs::File,
    direct: Option<fs::File>,
    /// For reads past the page cache, once somebody has asked for one; none where the system cannot.
    reads: OnceLock<Option<fs::File>>,
}

#[derive(Debug)]
struct RealLock {
    // The lock lives as long as the descriptor.
    _file: fs::File,
}

impl Lock for RealLock {}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl RealDisk {
    /// As [`Disk::lock`], of a file that is there and that this process may read: it takes no right to write it. Readers
    /// share it.
    ///
    /// # Errors
    /// `WouldBlock` if somebody holds it who does not only read, and as the operating system says.
    pub fn lock_to_read(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = fs::File::open(path)?;
        file.try_lock_shared().map_err(io::Error::from)?;
        Ok(Box::new(RealLock { _file: file }))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match open.access {
            Access::Read => {}
            Access::Write => _ = options.write(true),
            Access::Create => _ = options.write(true).create_new(true),
        }
        let buffered = options.open(path)?;
        let direct = (open.direct && open.access != Access::Read)
            .then(|| fs::OpenOptions::new().write(true).custom_flags(past_the_cache()).open(path));
        let direct = match direct.transpose() {
            // A file system without O_DIRECT (tmpfs before 6.6) refuses it: the buffered way serves.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => None,
            direct => direct?,
        };
        Ok(Arc::new(RealFile { buffered, direct, reads: OnceLock::new() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, folder: &Path, _: Barrier) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(Box::new(RealLock { _file: file }))
    }

    fn has_other_names(&self, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.nlink() > 1)
    }

    fn room(&self, folder: &Path) -> io::Result<Option<DiskRoom>> {
        let facts = rustix::fs::statvfs(folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        // What root alone may take is not for a store, and a file system that counts nothing says zero of both.
        let room = DiskRoom { free_bytes: bytes(facts.f_bavail), bytes: bytes(facts.f_blocks) };
        Ok((room.bytes > 0).then_some(room))
    }

    fn files_max(&self) -> u32 {
        files_max(limit())
    }

    fn expect_files(&self, many: u32) {
        expect_descriptors(u64::from(many).saturating_mul(EACH_FILE));
    }
}

fn past_the_cache() -> i32 {
    i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0)
}

impl RealFile {
    /// The same file once more: its name may be another by now, or none.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    fn reads(&self) -> Option<&fs::File> {
        if let Some(known) = self.reads.get() {
            return known.as_ref();
        }
        let path = format!("/proc/self/fd/{}", self.buffered.as_raw_fd());
        let again = fs::OpenOptions::new().read(true).custom_flags(past_the_cache()).open(path);
        // Want of descriptors passes; all else is so for good.
        if again.as_ref().is_err_and(is_short) {
            return None;
        }
        self.reads.get_or_init(|| again.ok()).as_ref()
    }

    /// Of no length it would be all of the file. Where the system cannot, the sync does it all.
    #[expect(unsafe_code, reason = "no safe wrapper knows this call")]
    fn write_back(&self, at: u64, bytes: u64, how: libc::c_uint) -> io::Result<()> {
        let (Ok(at), Ok(length @ 1..)) = (i64::try_from(at), i64::try_from(bytes)) else { return Ok(()) };
        // SAFETY: the descriptor is open as long as `self` is, and nothing else is handed over.
        let done = unsafe { libc::sync_file_range(self.buffered.as_raw_fd(), at, length, how) };
        let error = io::Error::last_os_error();
        // Who is not let to make the call, or not of such a file, is told nothing of what was written.
        let is_refused = error.raw_os_error().is_some_and(|number| REFUSED.contains(&number));
        if done == 0 || is_refused { Ok(()) } else { Err(error) }
    }
}

impl File for RealFile {
    fn size(&self) -> io::Result<u64> {
        self.buffered.metadata().map(|metadata| metadata.len())
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.buffered.read_at(buffer, at)
    }

    fn read_direct_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let direct = is_aligned(at, buffer).then(|| self.reads()).flatten();
        match direct.map(|file| file.read_at(buffer, at)) {
            // A disk whose blocks are longer, or a file system that takes the flag and then does not.
            None | Some(Err(_)) => self.buffered.read_at(buffer, at),
            Some(read) => read,
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.buffered.write_at(bytes, at)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, _: Barrier) -> io::Result<usize> {
        let file = match &self.direct {
            Some(direct) if is_aligned(at, bytes) => direct,
            _ => &self.buffered,
        };
        match how {
            Durably::DataSync => {
                let written = file.write_at(bytes, at)?;
                file.sync_data()?;
                Ok(written)
            }
            Durably::Dsync => Ok(rustix::io::pwritev2(file, &[io::IoSlice::new(bytes)], at, ReadWriteFlags::DSYNC)?),
        }
    }

    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        // Reserve first: a full disk is found before anything is written.
        reserve(&self.buffered, bytes)?;
        self.buffered.set_len(bytes)?;
        let mut at = 0;
        while at < bytes {
            let chunk = usize::try_from(bytes - at).unwrap_or(ZEROES_BYTES).min(ZEROES_BYTES);
            write_all_at(self, at, ZEROES.get(..chunk).unwrap_or_default())?;
            at += u64::try_from(chunk).unwrap_or(u64::MAX);
            if at < bytes {
                // Not all of it in one sync at the end: whoever commits meanwhile would wait for that.
                self.buffered.sync_data()?;
            }
        }
        Ok(())
    }

    fn reserve_zeroed(&self, bytes: u64) -> io::Result<()> {
        // Over what was written before nothing but zeroes will do, and where nothing can be reserved neither.
        if self.size()? == 0 && reserve(&self.buffered, bytes)? {
            return self.buffered.set_len(bytes);
        }
        self.preallocate_zeroed(bytes)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.buffered.set_len(bytes)
    }

    fn sync_data(&self, _: Barrier) -> io::Result<()> {
        self.buffered.sync_data()
    }

    fn sync_all(&self, _: Barrier) -> io::Result<()> {
        self.buffered.sync_all()
    }

    fn expect_random_reads(&self) {
        // Where the system takes no hint it reads ahead.
        _ = rustix::fs::fadvise(&self.buffered, 0, None, rustix::fs::Advice::Random);
    }

    fn will_read(&self, at: u64, bytes: u64) {
        // Of no length it would be all of the file.
        if let Some(bytes) = NonZeroU64::new(bytes) {
            _ = rustix::fs::fadvise(&self.buffered, at, Some(bytes), rustix::fs::Advice::WillNeed);
        }
    }

    fn begin_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.write_back(at, bytes, libc::SYNC_FILE_RANGE_WRITE)
    }

    fn await_write_back(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.write_back(at, bytes, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    }

    fn give_back(&self) {
        // Without a second descriptor it goes all at once.
        _ = self.buffered.try_clone().map(room::give_back);
    }
}

/// Takes room for that many bytes; false where the file system cannot.
fn reserve(file: &fs::File, bytes: u64) -> io::Result<bool> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, BLOCK_BYTES, read_exact_at, write_all_durable_at};

    const TEST: Barrier = Barrier::new("world: a test");

    #[test]
    fn what_is_written_back_is_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let open = Open { access: Access::Create, direct: false };
        let file = RealDisk.open(&folder.path().join("file"), open).unwrap();
        write_all_at(&*file, 0, &[7; 10_000]).unwrap();
        for (at, bytes) in [(0, 10_000), (4096, 0), (9_000, 1 << 40), (u64::MAX, 1)] {
            file.begin_write_back(at, bytes).unwrap();
            file.await_write_back(at, bytes).unwrap();
            file.will_read(at, bytes);
        }
        let mut read = [0; 10_000];
        assert_eq!(file.read_at(0, &mut read).unwrap(), 10_000);
        assert_eq!(read, [7; 10_000]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "asks the system itself what it keeps")]
    fn a_direct_read_leaves_nothing_in_the_page_cache_and_is_of_what_was_written() {
        // Beside this program: a temporary folder may be in memory, where there is nothing to read past.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let mut read = AlignedBuffer::zeroed(BLOCK_BYTES);
        // One is read past it and the other is not read at all.
        let is_cached = [true, false].map(|is_read| {
            let path = folder.path().join(if is_read { "read" } else { "not" });
            let file = RealDisk.open(&path, Open { access: Access::Create, direct: false }).unwrap();
            for byte in [b'a', b'b'] {
                write_all_at(&*file, 0, &[byte; BLOCK_BYTES]).unwrap();
                // Written, and still in memory alone.
                assert_eq!(file.read_direct_at(0, read.as_mut_slice()).unwrap(), BLOCK_BYTES);
                assert_eq!(read.as_slice(), [byte; BLOCK_BYTES]);
            }
            file.sync_all(Barrier::new("test")).unwrap();
            let plain = fs::File::open(&path).unwrap();
            rustix::fs::fadvise(&plain, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            if is_read {
                file.read_direct_at(0, read.as_mut_slice()).unwrap();
            }
            let mut byte = [0];
            let into = &mut [io::IoSliceMut::new(&mut byte)];
            rustix::io::preadv2(&plain, into, 0, ReadWriteFlags::NOWAIT).is_ok()
        });
        let direct = fs::OpenOptions::new().read(true).custom_flags(past_the_cache()).open(folder.path().join("read"));
        // Else the file system knows no direct reads, or does not say what is in memory.
        if direct.is_ok() && !is_cached[1] {
            assert!(!is_cached[0]);
        }
    }

    #[test]
    fn direct_and_buffered_writes_of_one_file_see_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = RealDisk.open(&path, Open { access: Access::Create, direct: true }).unwrap();
        file.preallocate_zeroed(1 << 16).unwrap();
        file.sync_all(TEST).unwrap();
        RealDisk.sync_dir(folder.path(), TEST).unwrap();
        for how in [Durably::DataSync, Durably::Dsync] {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES * 2);
            block.as_mut_slice().fill(7);
            write_all_durable_at(&*file, 4096, block.as_slice(), how, TEST).unwrap();
            write_all_durable_at(&*file, 5000, &[8; 10], how, TEST).unwrap();
            write_all_at(&*file, 6000, &[9; 10]).unwrap();
            let mut seen = vec![0; 1 << 16];
            assert_eq!(read_exact_at(&*file, 0, &mut seen).unwrap(), 1 << 16);
            assert!(seen[..4096].iter().chain(&seen[12288..]).all(|byte| *byte == 0));
            assert_eq!((seen[4096], seen[5000], seen[5010], seen[6000], seen[12287]), (7, 8, 7, 9, 7));
        }
        assert_eq!(file.size().unwrap(), 1 << 16);
    }

    /// Bytes that the disk has fetched for this thread, where that is counted.
    fn fetched() -> Option<u64> {
        let counts = fs::read_to_string("/proc/thread-self/io").ok()?;
        counts.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
    }

    /// One get behind values that had just been written read four MiB of what stood behind its own, and eight clients waited for that.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "this is the door, and it is looked at from outside")]
    fn of_a_file_that_is_read_here_and_there_nothing_is_read_that_nobody_asked_for() {
        const PIECE: usize = 16 << 10;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = RealDisk.open(&path, Open { access: Access::Create, direct: false }).unwrap();
        file.preallocate_zeroed(8 << 20).unwrap();
        file.sync_all(TEST).unwrap();
        let looked = fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&looked, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let read = RealDisk.open(&path, Open { access: Access::Read, direct: false }).unwrap();
        read.expect_random_reads();
        let fetches = |at| {
            let before = fetched();
            read_exact_at(&*read, at, &mut [0; PIECE]).unwrap();
            fetched().zip(before).map(|(after, before)| after - before)
        };
        if matches!(fetches(4 << 20), None | Some(0)) {
            // A file system that has all of it in memory, or a system that does not count.
            return;
        }
        // Some of it may stand in memory still; nothing beside it is fetched.
        let seen: Vec<_> = (0..16).map(|piece| fetches(piece * PIECE as u64).unwrap()).collect();
        let all: u64 = seen.iter().sum();
        assert!(seen.iter().all(|bytes| *bytes <= PIECE as u64) && all > 0, "{seen:?}");
    }

    #[test]
    fn a_lock_is_exclusive_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let lock = RealDisk.lock(&path).unwrap();
        assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        assert!(RealDisk.lock(&path).is_ok());
    }

    #[test]
    fn names_are_listed_in_order_and_missing_files_are_not_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a", "c"] {
            RealDisk.open(&folder.path().join(name), Open { access: Access::Create, direct: false }).unwrap();
        }
        RealDisk.rename(&folder.path().join("c"), &folder.path().join("0")).unwrap();
        assert_eq!(RealDisk.list(folder.path()).unwrap(), ["0", "a", "b"]);
        RealDisk.unlink(&folder.path().join("a")).unwrap();
        let missing = RealDisk.open(&folder.path().join("a"), Open { access: Access::Read, direct: false });
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        RealDisk.create_dir(folder.path()).unwrap();
    }
}
