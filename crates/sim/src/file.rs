//! One open file of the simulated disk.

use std::io;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use assent_world::{Barrier, Durably, File};

use crate::content::{SECTOR, long, size};
use crate::disk::{Inside, SimDisk, dead};
use crate::fault::{Fault, Operation, full, io_error};
use crate::inode::Inode;
use crate::recording::Step;

#[derive(Debug)]
pub(crate) struct SimFile {
    pub(crate) disk: SimDisk,
    pub(crate) node: u64,
    pub(crate) path: Arc<str>,
    pub(crate) life: u64,
    pub(crate) writes: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut inside = self.disk.inside();
        if inside.life == self.life
            && let Some(count) = inside.handles.get_mut(&self.node)
        {
            *count -= 1;
            if *count == 0 {
                inside.handles.remove(&self.node);
            }
        }
    }
}

impl SimFile {
    /// Counts the call; the answer is the disk and the fault.
    fn enter(
        &self,
        operation: Operation,
        barrier: Option<Barrier>,
    ) -> io::Result<(MutexGuard<'_, Inside>, Option<Fault>)> {
        let mut inside = self.disk.inside();
        if inside.life != self.life {
            return Err(dead());
        }
        let fault = inside.enter(operation, barrier);
        Ok((inside, fault))
    }

    fn enter_to_write(
        &self,
        operation: Operation,
        barrier: Option<Barrier>,
    ) -> io::Result<(MutexGuard<'_, Inside>, Option<Fault>)> {
        if !self.writes {
            // EBADF, as for a descriptor that was opened to read.
            return Err(io::Error::from_raw_os_error(9));
        }
        self.enter(operation, barrier)
    }

    fn left(&self, inside: &mut Inside, operation: Operation, barrier: Option<Barrier>, place: (u64, u64), half: bool) {
        let (at, bytes) = place;
        inside.left(Step { operation, barrier, path: self.path.clone(), at, bytes, half });
    }

    /// Writes what fits into the page cache; the answer is how much.
    fn write(&self, inside: &mut Inside, at: u64, bytes: &[u8], fault: Option<Fault>) -> io::Result<usize> {
        let mut bytes = match fault {
            Some(Fault::Short) => bytes.get(..bytes.len().div_ceil(2)).unwrap_or_default(),
            _ => bytes,
        };
        let end = at.checked_add(long(bytes.len())).ok_or(io::ErrorKind::FileTooLarge)?;
        if let Some(room) = inside.room_bytes() {
            let seen = &inside.state.file_mut(self.node)?.seen;
            let fits = seen.end_within(at..end, room);
            if fits <= at && !bytes.is_empty() {
                return Err(full());
            }
            bytes = bytes.get(..size(fits - at)).unwrap_or_default();
        }
        let operation = inside.state.begin();
        inside.state.file_mut(self.node)?.write(operation, at, bytes);
        Ok(bytes.len())
    }

    fn sync(&self, operation: Operation, barrier: Barrier, lengths: bool) -> io::Result<()> {
        let (mut inside, fault) = self.enter(operation, Some(barrier))?;
        let answer = self.settle(&mut inside, barrier, fault, None, lengths);
        self.left(&mut inside, operation, Some(barrier), (0, 0), false);
        answer
    }

    /// Makes sectors durable, or fails to, or is ignored.
    fn settle(
        &self,
        inside: &mut Inside,
        barrier: Barrier,
        fault: Option<Fault>,
        sectors: Option<Range<u64>>,
        lengths: bool,
    ) -> io::Result<()> {
        let ignored = inside.is_ignored(barrier);
        let file = inside.state.file_mut(self.node)?;
        match fault {
            Some(Fault::Io | Fault::Full | Fault::Descriptors) => {
                file.fail(sectors.as_ref());
                Err(io_error())
            }
            _ if ignored => Ok(()),
            _ => {
                let freed = file.settle(sectors, lengths);
                freed.into_iter().for_each(|content| inside.state.free(content));
                Ok(())
            }
        }
    }

    fn is_unreadable(&self, inside: &Inside, at: u64, bytes: usize) -> bool {
        let sectors = at / SECTOR..(at + long(bytes)).div_ceil(SECTOR);
        let mut places = inside.unreadable.iter();
        places.any(|(path, sector)| **path == *self.path && sectors.contains(sector))
    }

    fn seen<'a>(&self, inside: &'a Inside) -> io::Result<&'a Inode> {
        inside.state.files.get(&self.node).map(|file| &**file).ok_or_else(dead)
    }
}

impl File for SimFile {
    fn size(&self) -> io::Result<u64> {
        let (inside, fault) = self.enter(Operation::Size, None)?;
        match fault.and_then(Fault::error) {
            Some(error) => Err(error),
            None => Ok(self.seen(&inside)?.seen_bytes),
        }
    }

    /// The model has one cache; what a direct write promises more than a buffered one is not in it.
    fn is_direct(&self) -> bool {
        true
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (inside, fault) = self.enter(Operation::Read, None)?;
        if let Some(error) = fault.and_then(Fault::error) {
            return Err(error);
        }
        if self.is_unreadable(&inside, at, buffer.len()) {
            return Err(io_error());
        }
        let file = self.seen(&inside)?;
        let mut count = size(file.seen_bytes.saturating_sub(at)).min(buffer.len());
        if fault == Some(Fault::Short) {
            count = count.div_ceil(2);
        }
        file.seen.read(at, buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let (mut inside, fault) = self.enter_to_write(Operation::Write, None)?;
        if let Some(error) = fault.and_then(Fault::error) {
            return Err(error);
        }
        let written = self.write(&mut inside, at, bytes, fault)?;
        self.left(&mut inside, Operation::Write, None, (at, long(written)), false);
        Ok(written)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8], how: Durably, barrier: Barrier) -> io::Result<usize> {
        let (mut inside, fault) = self.enter_to_write(Operation::WriteDurable, Some(barrier))?;
        if fault == Some(Fault::Full) {
            return Err(full());
        }
        let written = self.write(&mut inside, at, bytes, fault)?;
        let place = (at, long(written));
        self.left(&mut inside, Operation::WriteDurable, Some(barrier), place, true);
        let sectors = match how {
            Durably::DataSync => None,
            Durably::Dsync => Some(at / SECTOR..(at + long(written)).div_ceil(SECTOR)),
        };
        let answer = self.settle(&mut inside, barrier, fault, sectors, false);
        self.left(&mut inside, Operation::WriteDurable, Some(barrier), place, false);
        answer.map(|()| written)
    }

    fn preallocate_zeroed(&self, bytes: u64) -> io::Result<()> {
        let (mut inside, fault) = self.enter_to_write(Operation::Preallocate, None)?;
        if let Some(error) = fault.and_then(Fault::error) {
            return Err(error);
        }
        let owned = self.seen(&inside)?.seen.owned_bytes();
        if inside.room_bytes().is_some_and(|room| bytes.next_multiple_of(4096) > room.saturating_add(owned)) {
            return Err(full());
        }
        let operation = inside.state.begin();
        inside.state.file_mut(self.node)?.zero(operation, bytes);
        self.left(&mut inside, Operation::Preallocate, None, (0, bytes), false);
        Ok(())
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        if !self.writes {
            // EINVAL, as ftruncate says it.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (mut inside, fault) = self.enter_to_write(Operation::SetSize, None)?;
        if let Some(error) = fault.and_then(Fault::error) {
            return Err(error);
        }
        let operation = inside.state.begin();
        inside.state.file_mut(self.node)?.set_bytes(operation, bytes);
        self.left(&mut inside, Operation::SetSize, None, (0, bytes), false);
        Ok(())
    }

    /// Nothing of it is durable, and it loses nothing: only a fault is seen.
    fn await_write_back(&self, _: u64, _: u64) -> io::Result<()> {
        let (_inside, fault) = self.enter(Operation::WriteBack, None)?;
        fault.and_then(Fault::error).map_or(Ok(()), Err)
    }

    fn sync_data(&self, barrier: Barrier) -> io::Result<()> {
        self.sync(Operation::SyncData, barrier, false)
    }

    fn sync_all(&self, barrier: Barrier) -> io::Result<()> {
        self.sync(Operation::SyncAll, barrier, true)
    }

    fn give_back(&self) {
        // All steps at once: who still reads it notices.
        _ = self.set_size(0);
    }
}
