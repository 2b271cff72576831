//! The simulated disk behind `world`'s door.
//!
//! Walk: [`SimDisk`] finds names in the [`State`] · [`file`](crate::file) reads, writes and syncs · every operation
//! asks [`Schedule`] for its fault, and a [`Recording`] keeps the state after it · [`SimDisk::kill`] ends the process,
//! [`SimDisk::cut_power`] the machine, [`SimDisk::survivors`] shows all that a power cut could leave.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_world::{Access, Barrier, Disk, DiskRoom, File, Lock, Open};

use crate::dice::Rng;
use crate::fault::{Call, Fault, Operation, Schedule, full, io_error};
use crate::file::SimFile;
use crate::recording::{Cut, Recording, Step};
use crate::state::State;
use crate::survive::{Flight, Stale};

/// What a power cut leaves of all that was not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing of it.
    Nothing,
    /// All of it.
    Everything,
    /// Any of it, by chance.
    Seeded(u64),
}

/// A disk in memory that forgets what was not made durable. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    inside: Arc<Mutex<Inside>>,
}

#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) state: State,
    pub(crate) schedule: Schedule,
    pub(crate) ignored: Option<Barrier>,
    pub(crate) barriers: BTreeSet<Barrier>,
    pub(crate) recording: Option<Recording>,
    /// Grows with every death of the process; handles of an earlier life are dead.
    pub(crate) life: u64,
    /// Files and sectors that cannot be read.
    pub(crate) unreadable: BTreeSet<(String, u64)>,
    /// Open handles a file.
    pub(crate) handles: BTreeMap<u64, usize>,
    locks: BTreeSet<u64>,
    capacity_bytes: Option<u64>,
    stale: Stale,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk: the root folder and nothing else.
    #[must_use]
    pub fn new() -> Self {
        Self::of(State::new(), Stale::ALL, None)
    }

    pub(crate) fn of(state: State, stale: Stale, ignored: Option<Barrier>) -> Self {
        let inside = Inside {
            state,
            schedule: Schedule::default(),
            ignored,
            barriers: BTreeSet::new(),
            recording: None,
            life: 0,
            unreadable: BTreeSet::new(),
            handles: BTreeMap::new(),
            locks: BTreeSet::new(),
            capacity_bytes: None,
            stale,
        };
        SimDisk { inside: Arc::new(Mutex::new(inside)) }
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses what places may hold that were never written. [`Stale::ALL`] at first.
    pub fn set_stale(&self, stale: Stale) {
        self.inside().stale = stale;
    }

    /// Lets one later call fail. Several may wait.
    pub fn inject(&self, call: Call, fault: Fault) {
        self.inside().schedule.add(call, fault);
    }

    /// From now on, or no more, every read of this sector of this file fails with EIO, whoever asks how often: a place that the medium
    /// has lost. What is written there does not mend it. It goes with the disk's copies.
    pub fn set_unreadable(&self, path: &Path, sector: u64, is_unreadable: bool) {
        let place = (path.to_string_lossy().into_owned(), sector);
        let mut inside = self.inside();
        if is_unreadable {
            inside.unreadable.insert(place);
        } else {
            inside.unreadable.remove(&place);
        }
    }

    /// How many files the process has open; one that it opened twice counts twice.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.inside().handles.values().sum()
    }

    /// How many calls there were, so that a test can fail each of them in turn.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.inside().schedule.calls()
    }

    /// From now on the syncs of this label answer `Ok` and do nothing; a durable write is a plain one.
    pub fn ignore(&self, barrier: Barrier) {
        self.inside().ignored = Some(barrier);
    }

    /// The barriers that were passed so far.
    #[must_use]
    pub fn barriers(&self) -> BTreeSet<Barrier> {
        self.inside().barriers.clone()
    }

    /// The most bytes that files may own, in blocks of 4096; `None` for no limit. A write behind it is cut short, or
    /// fails with `StorageFull` if nothing fits.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.inside().capacity_bytes = bytes;
    }

    /// How many bytes files own. A file that was unlinked counts until its last handle is dropped.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.inside().used_bytes()
    }

    /// The process dies: its handles and locks are gone, the page cache stays.
    pub fn kill(&self) {
        self.inside().kill();
    }

    /// The power goes and comes back, in place: the process is dead and the page cache lost.
    pub fn cut_power(&self, survival: Survival) {
        let mut inside = self.inside();
        let flight = Flight::of(&inside.state, inside.stale);
        let choice = match survival {
            Survival::Nothing => flight.lost(),
            Survival::Everything => flight.newest(),
            Survival::Seeded(seed) => flight.random(&mut Rng::new(seed)),
        };
        inside.state = flight.land(&choice);
        inside.kill();
    }

    /// The distinct disks that a power cut could leave now: all of them if at most `most` choices lead there, else so
    /// many choices by chance. This disk goes on as it is.
    #[must_use]
    pub fn survivors(&self, most: u64, seed: u64) -> Vec<SimDisk> {
        let inside = self.inside();
        let flight = Flight::of(&inside.state, inside.stale);
        let mut seen = BTreeSet::new();
        let landed = flight.choices(most, most, &mut Rng::new(seed)).into_iter().map(|choice| flight.land(&choice));
        let distinct = landed.filter(|state| seen.insert(state.hash()));
        distinct.map(|state| SimDisk::of(state, inside.stale, inside.ignored)).collect()
    }

    /// Another disk with what a reader sees on this one now, all of it durable. This disk goes on as it is.
    #[must_use]
    pub fn copy(&self) -> SimDisk {
        let inside = self.inside();
        let flight = Flight::of(&inside.state, inside.stale);
        let copy = SimDisk::of(flight.land(&flight.newest()), inside.stale, inside.ignored);
        copy.inside().unreadable.clone_from(&inside.unreadable);
        copy
    }

    /// What a reader can see now, as one number: names, lengths and bytes.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.inside().state.hash()
    }

    pub(crate) fn record(&self, acknowledged: usize, attempted: usize) {
        let mut inside = self.inside();
        inside.recording = Some(Recording::begin(&inside.state, acknowledged, attempted));
    }

    pub(crate) fn tell(&self, acknowledged: usize, attempted: usize) {
        if let Some(recording) = &mut self.inside().recording {
            recording.tell(acknowledged, attempted);
        }
    }

    pub(crate) fn recorded(&self) -> Vec<Cut> {
        self.inside().recording.take().map(Recording::finish).unwrap_or_default()
    }

    /// An operation on names: its fault, the change, its place in the recording.
    fn change<T>(
        &self,
        operation: Operation,
        barrier: Option<Barrier>,
        path: &Path,
        change: impl FnOnce(&mut Inside) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut inside = self.inside();
        if let Some(error) = inside.enter(operation, barrier).and_then(Fault::error) {
            return Err(error);
        }
        inside.state.begin();
        let answer = change(&mut inside)?;
        let path = Arc::from(path.to_string_lossy());
        inside.left(Step { operation, barrier, path, at: 0, bytes: 0, half: false });
        Ok(answer)
    }

    fn handle(&self, inside: &mut Inside, node: u64, path: &Path, writes: bool) -> Arc<dyn File> {
        *inside.handles.entry(node).or_default() += 1;
        let path = Arc::from(path.to_string_lossy());
        Arc::new(SimFile { disk: self.clone(), node, path, life: inside.life, writes })
    }
}

impl Inside {
    /// Counts a call and finds its fault.
    pub(crate) fn enter(&mut self, operation: Operation, barrier: Option<Barrier>) -> Option<Fault> {
        self.barriers.extend(barrier);
        self.schedule.call(operation, barrier)
    }

    /// Keeps the state after an operation.
    pub(crate) fn left(&mut self, step: Step) {
        if let Some(recording) = &mut self.recording {
            recording.step(&self.state, step);
        }
    }

    pub(crate) fn is_ignored(&self, barrier: Barrier) -> bool {
        self.ignored == Some(barrier)
    }

    fn kill(&mut self) {
        self.life += 1;
        self.handles.clear();
        self.locks.clear();
    }

    fn used_bytes(&self) -> u64 {
        let named: BTreeSet<u64> =
            self.state.folders.values().flat_map(|folder| folder.seen.values().copied()).collect();
        let live = |node: &u64| named.contains(node) || self.handles.contains_key(node);
        self.state.files.iter().filter(|(node, _)| live(node)).map(|(_, file)| file.seen.owned_bytes()).sum()
    }

    /// How many bytes there is still room for.
    pub(crate) fn room_bytes(&self) -> Option<u64> {
        self.capacity_bytes.map(|capacity| capacity.saturating_sub(self.used_bytes()))
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(Operation::CreateDir, None, path, |inside| {
            if inside.state.folder(path).is_ok() {
                return Ok(());
            }
            let place = inside.state.find(path)?;
            if place.node.is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            inside.state.add_folder(&place);
            Ok(())
        })
    }

    fn open(&self, path: &Path, open: Open) -> io::Result<Arc<dyn File>> {
        if open.access == Access::Create {
            return self.change(Operation::Create, None, path, |inside| {
                let place = inside.state.find(path)?;
                if place.node.is_some() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                if inside.room_bytes() == Some(0) {
                    return Err(full());
                }
                let node = inside.state.add_file(&place);
                Ok(self.handle(inside, node, path, true))
            });
        }
        let mut inside = self.inside();
        if let Some(error) = inside.enter(Operation::Open, None).and_then(Fault::error) {
            return Err(error);
        }
        let node = inside.state.find(path)?.node.ok_or(io::ErrorKind::NotFound)?;
        if !inside.state.files.contains_key(&node) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(self.handle(&mut inside, node, path, open.access == Access::Write))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Operation::Rename, None, to, |inside| {
            let (old, new) = (inside.state.find(from)?, inside.state.find(to)?);
            let node = old.node.ok_or(io::ErrorKind::NotFound)?;
            if old.folder != new.folder {
                return Err(io::ErrorKind::CrossesDevices.into());
            }
            match new.node {
                Some(same) if same == node => return Ok(()),
                Some(other) if inside.state.folders.contains_key(&other) => {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                _ => {}
            }
            inside.state.change(old.folder, vec![(old.name, None), (new.name, Some(node))]);
            Ok(())
        })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.change(Operation::Unlink, None, path, |inside| {
            let place = inside.state.find(path)?;
            let node = place.node.ok_or(io::ErrorKind::NotFound)?;
            if inside.state.folders.contains_key(&node) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            inside.state.change(place.folder, vec![(place.name, None)]);
            Ok(())
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut inside = self.inside();
        if let Some(error) = inside.enter(Operation::List, None).and_then(Fault::error) {
            return Err(error);
        }
        let node = inside.state.folder(folder)?;
        let folder = inside.state.folders.get(&node);
        Ok(folder.into_iter().flat_map(|folder| folder.seen.keys()).map(|name| name.as_ref().to_owned()).collect())
    }

    fn sync_dir(&self, folder: &Path, barrier: Barrier) -> io::Result<()> {
        self.change(Operation::SyncDir, Some(barrier), folder, |inside| {
            let node = inside.state.folder(folder)?;
            if !inside.is_ignored(barrier) {
                inside.state.settle_folder(node);
            }
            Ok(())
        })
    }

    fn room(&self, _: &Path) -> io::Result<Option<DiskRoom>> {
        let inside = self.inside();
        let room = inside.capacity_bytes.zip(inside.room_bytes());
        Ok(room.map(|(bytes, free_bytes)| DiskRoom { free_bytes, bytes }))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.change(Operation::Lock, None, path, |inside| {
            let place = inside.state.find(path)?;
            let node = match place.node {
                Some(node) => node,
                None => inside.state.add_file(&place),
            };
            if !inside.locks.insert(node) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(Box::new(SimLock { disk: self.clone(), node, life: inside.life }) as Box<dyn Lock>)
        })
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    node: u64,
    life: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut inside = self.disk.inside();
        if inside.life == self.life {
            inside.locks.remove(&self.node);
        }
    }
}

/// A handle of a process that is dead.
pub(crate) fn dead() -> io::Error {
    io_error()
}
