//! Which run files are open: a bounded number, however many runs a map has. Its owner's volumes are opened likewise.
//!
//! Walk: each run has a [`Slot`] · [`OpenRuns::file`] gives its file; opens it if it is shut, and shuts the one that was
//! opened first if there are too many. Whoever reads has the file until the end of that read.
//! Deliberately absent: what is in a file; that is `run_reader`'s, which keeps the top of a run's index while its file is shut.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use assent_world::File;

/// One run's file, if it is open.
#[derive(Debug, Default)]
pub struct Slot {
    file: Mutex<Option<Arc<dyn File>>>,
}

/// The open files of a map's runs, the one that was opened first in front.
#[derive(Debug)]
pub struct OpenRuns {
    most: usize,
    slots: Mutex<VecDeque<Weak<Slot>>>,
}

impl OpenRuns {
    /// At most so many are open beside those that are read.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self { most: usize::try_from(most).unwrap_or(usize::MAX), slots: Mutex::default() }
    }

    /// A run's file.
    ///
    /// # Errors
    /// What `open` says; then nothing was changed.
    pub fn file(
        &self,
        slot: &Arc<Slot>,
        open: impl FnOnce() -> io::Result<Arc<dyn File>>,
    ) -> io::Result<Arc<dyn File>> {
        let mut place = slot.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = place.as_ref() {
            return Ok(Arc::clone(file));
        }
        let file = open()?;
        *place = Some(Arc::clone(&file));
        // Two slots are never locked at once, nor a slot and the list.
        drop(place);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push_back(Arc::downgrade(slot));
        let first = if slots.len() > self.most { slots.pop_front() } else { None };
        drop(slots);
        if let Some(first) = first.and_then(|first| first.upgrade()) {
            *first.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use assent_sim::SimDisk;
    use assent_world::{Access, Disk, Open, read_exact_at, write_all_at};

    use super::*;

    fn create(disk: &SimDisk, name: &str) -> io::Result<Arc<dyn File>> {
        let file = disk.open(name.as_ref(), Open { access: Access::Create, direct: false })?;
        write_all_at(&*file, 0, name.as_bytes())?;
        Ok(file)
    }

    #[test]
    fn the_first_of_too_many_is_shut_and_who_reads_has_it_still() {
        let disk = SimDisk::new();
        let (open, slots) = (OpenRuns::new(2), [Arc::<Slot>::default(), Arc::default(), Arc::default()]);
        let is_open = || slots.each_ref().map(|slot| slot.file.lock().unwrap().is_some());
        let read = open.file(&slots[0], || create(&disk, "a")).unwrap();
        open.file(&slots[1], || create(&disk, "b")).unwrap();
        open.file(&slots[0], || panic!("it is open")).unwrap();
        assert_eq!(is_open(), [true, true, false]);
        assert!(open.file(&slots[2], || Err(io::ErrorKind::NotFound.into())).is_err());
        assert_eq!(is_open(), [true, true, false], "a failure shuts none");
        open.file(&slots[2], || create(&disk, "c")).unwrap();
        assert_eq!(is_open(), [false, true, true]);
        let mut byte = [0];
        assert_eq!((read_exact_at(&*read, 0, &mut byte).unwrap(), byte), (1, *b"a"));
        open.file(&slots[0], || Ok(Arc::clone(&read))).unwrap();
        assert_eq!(is_open(), [true, false, true]);
    }
}
