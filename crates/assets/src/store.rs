//! Two snapshots on disk, written alternately: the newest that is whole is believed, and the log behind the older one is kept.
//!
//! Walk: [`Store::load`] at an open · [`Store::write`] lays a fresh file beside both, makes it durable, and gives it the name of the
//! one that is not believed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_frame::{PAYLOAD_BYTES_MAX, parse};
use assent_ids::Lsn;
use assent_membership::Sequence;
use assent_replica::Pace;
use assent_world::{Access, Clock, Disk, File, Open, read_exact_at, write_all_at};

use crate::barrier;
use crate::config::Limits;
use crate::error::{AssetsError, refused};
use crate::image::{ImageHead, Loading, View};
use crate::logic::Logics;
use crate::machine::Machine;
use crate::rules::Rules;

const NAMES: [&str; 2] = ["assets-1", "assets-2"];
const NAME_NEW: &str = "assets.new";
const READ_BYTES: usize = 1 << 20;
/// How Linux says that the disk did not do it (EIO), or gave what is no file system's (EBADMSG, EUCLEAN).
const OF_THE_DISK: [i32; 3] = [5, 74, 117];
/// How much a snapshot writes before it looks at the clock again.
const PACE_BYTES: u64 = 1 << 18;

/// A snapshot that is whole, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) sequence: Sequence,
    /// Where the log goes on behind it.
    pub(crate) place: Lsn,
}

/// What stands under each name.
pub(crate) type Slots = [Option<Kept>; 2];

/// Where snapshots are.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
}

/// What an open found.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The newest whole snapshot.
    pub(crate) machine: Option<(Machine, Lsn)>,
    pub(crate) slots: Slots,
    /// How far the log reached when the newest was written whose beginning is whole: the log that leads on from an older one reaches as far.
    pub(crate) reaches: Lsn,
    /// Files that are not whole, and what is wrong with them.
    pub(crate) damaged: Vec<(PathBuf, String)>,
}

impl Store {
    /// The folder is there, durably.
    pub(crate) fn make_folder(&self) -> Result<(), AssetsError> {
        self.disk.create_dir(&self.folder).map_err(|error| refused("making", &self.folder, &error))?;
        let parent = match self.folder.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => &self.folder,
        };
        self.disk.sync_dir(parent, barrier::FOLDER).map_err(|error| refused("syncing", parent, &error))
    }

    /// Loads the newest snapshot that is whole. One that is not, or that the disk does not read, is named, and the other one is tried.
    pub(crate) fn load(&self, limits: Limits, logics: &Logics) -> Result<Loaded, AssetsError> {
        let mut loaded = Loaded::default();
        let mut found: Vec<(usize, PathBuf, Arc<dyn File>, ImageHead)> = Vec::new();
        for (slot, name) in NAMES.iter().enumerate() {
            let path = self.folder.join(name);
            let file = match self.disk.open(&path, Open { access: Access::Read, direct: false }) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if is_of_the_disk(&error) => {
                    loaded.damaged.push((path, unopened(&error)));
                    continue;
                }
                Err(error) => return Err(refused("opening", &path, &error)),
            };
            match Frames::new(&*file).head() {
                Ok(head) => {
                    let own = Rules::new(limits, logics);
                    own.check(&head.rules)
                        .map_err(|what| AssetsError::Rules { file: path.display().to_string(), what })?;
                    found.push((slot, path, file, head));
                }
                Err(what) => loaded.damaged.push((path, what)),
            }
        }
        loaded.reaches = found.iter().map(|(_, _, _, head)| Lsn(head.place)).max().unwrap_or(Lsn::ZERO);
        found.sort_by_key(|(_, _, _, head)| std::cmp::Reverse(head.sequence));
        for (slot, path, file, head) in found {
            let kept = Kept { sequence: head.sequence, place: Lsn(head.place) };
            if loaded.machine.is_some() {
                // It is believed when it is needed. Its place only says how much log is kept.
                if let Some(place) = loaded.slots.get_mut(slot) {
                    *place = Some(kept);
                }
                continue;
            }
            match Frames::new(&*file).load(Loading::new(limits, logics.clone())) {
                Ok(machine) => {
                    loaded.machine = Some((machine, kept.place));
                    if let Some(place) = loaded.slots.get_mut(slot) {
                        *place = Some(kept);
                    }
                }
                Err(what) => loaded.damaged.push((path, what)),
            }
        }
        Ok(loaded)
    }

    /// Writes a snapshot in the place of the older one. `settle` is called when its bytes are durable and nobody can find it yet.
    pub(crate) fn write(
        &self,
        slots: &mut Slots,
        view: &View,
        place: Lsn,
        slow: &mut Slow<'_>,
        settle: impl FnOnce() -> Result<(), AssetsError>,
    ) -> Result<u64, AssetsError> {
        let new = self.folder.join(NAME_NEW);
        let written = self.write_new(&new, view, place, slow).and_then(|bytes| settle().map(|()| bytes));
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                // What cannot be removed now is removed by the next one.
                _ = self.disk.unlink(&new);
                return Err(error);
            }
        };
        let newest = slots.iter().enumerate().max_by_key(|(_, kept)| kept.map(|kept| kept.sequence));
        let slot = newest.filter(|(_, kept)| kept.is_some()).map_or(0, |(newest, _)| 1 - newest);
        let (Some(name), Some(kept)) = (NAMES.get(slot), slots.get_mut(slot)) else { return Ok(bytes) };
        // From here on it is unknown which one stands there, until the folder is synced.
        *kept = None;
        self.disk.rename(&new, &self.folder.join(name)).map_err(|error| refused("naming", &new, &error))?;
        self.disk.sync_dir(&self.folder, barrier::NAME).map_err(|error| refused("syncing", &self.folder, &error))?;
        *kept = Some(Kept { sequence: view.sequence(), place });
        Ok(bytes)
    }

    fn write_new(&self, new: &Path, view: &View, place: Lsn, slow: &mut Slow<'_>) -> Result<u64, AssetsError> {
        let failed = |error: &io::Error| refused("writing", new, error);
        match self.disk.unlink(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused("removing", new, &error)),
            _ => {}
        }
        let file = self.disk.open(new, Open { access: Access::Create, direct: false });
        let file = file.map_err(|error| failed(&error))?;
        let mut bytes = 0;
        view.write(place.0, |frame| {
            write_all_at(&*file, bytes, frame).map_err(|error| failed(&error))?;
            bytes += length(frame.len());
            slow.wrote(length(frame.len()));
            Ok::<(), AssetsError>(())
        })?;
        file.sync_all(barrier::IMAGE).map_err(|error| failed(&error))?;
        Ok(bytes)
    }

    /// The older one of two that are whole, or the only one.
    pub(crate) fn load_older(&self, limits: Limits, logics: &Logics) -> Option<(Machine, Lsn)> {
        let mut older: Option<(Machine, Lsn)> = None;
        for name in NAMES {
            let path = self.folder.join(name);
            let Ok(file) = self.disk.open(&path, Open { access: Access::Read, direct: false }) else { continue };
            let Ok(head) = Frames::new(&*file).head() else { continue };
            let Ok(machine) = Frames::new(&*file).load(Loading::new(limits, logics.clone())) else { continue };
            if older.as_ref().is_none_or(|(older, _)| machine.sequence() < older.sequence()) {
                older = Some((machine, Lsn(head.place)));
            }
        }
        older
    }

    /// Reads both files from one end to the other; what each is, or what is wrong with it.
    pub(crate) fn verify(&self, limits: Limits, logics: &Logics) -> Result<Vec<Verified>, AssetsError> {
        let mut verified = Vec::new();
        for name in NAMES {
            let path = self.folder.join(name);
            let loaded = match self.disk.open(&path, Open { access: Access::Read, direct: false }) {
                Ok(file) => Frames::new(&*file).load(Loading::new(limits, logics.clone())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if is_of_the_disk(&error) => Err(unopened(&error)),
                Err(error) => return Err(refused("opening", &path, &error)),
            };
            verified.push(Verified { path, found: loaded.map(|machine| (machine.sequence(), machine.hash())) });
        }
        Ok(verified)
    }
}

/// One snapshot file, read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The file.
    pub path: PathBuf,
    /// Its sequence and the hash of its state; or what is wrong with it.
    pub found: Result<(Sequence, u64), String>,
}

/// Whether the disk does not give a file, and not whoever may open which, and how many.
fn is_of_the_disk(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| OF_THE_DISK.contains(&number))
}

fn unopened(error: &io::Error) -> String {
    format!("not to be opened: {error}")
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Frames of a file, read in order.
struct Frames<'a> {
    file: &'a dyn File,
    /// Bytes that were read, from this offset on.
    bytes: Vec<u8>,
    offset: u64,
    used: usize,
}

impl<'a> Frames<'a> {
    const fn new(file: &'a dyn File) -> Self {
        Self { file, bytes: Vec::new(), offset: 0, used: 0 }
    }

    /// Gives the next frame to `take`. The error says what is wrong with the file.
    fn next<T>(
        &mut self,
        take: impl FnOnce(&assent_frame::Frame<'_>) -> Result<T, assent_frame::Malformed>,
    ) -> Result<T, String> {
        loop {
            let at = self.offset + length(self.used);
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            match parse(rest, PAYLOAD_BYTES_MAX) {
                Err(error) => return Err(format!("damaged at byte {at}: {error}")),
                Ok(Some((frame, bytes))) => {
                    let taken = take(&frame).map_err(|error| format!("damaged at byte {at}: {error}"));
                    self.used += bytes;
                    return taken;
                }
                Ok(None) => {}
            }
            if !self.more()? {
                return Err(format!("it ends at byte {at}, within a snapshot"));
            }
        }
    }

    /// Reads on; false at the end of the file.
    fn more(&mut self) -> Result<bool, String> {
        self.bytes.drain(..self.used.min(self.bytes.len()));
        self.offset += length(self.used);
        self.used = 0;
        let have = self.bytes.len();
        self.bytes.resize(have + READ_BYTES, 0);
        let buffer = self.bytes.get_mut(have..).unwrap_or_default();
        let at = self.offset + length(have);
        let read = read_exact_at(self.file, at, buffer);
        let read = read.map_err(|error| format!("not to be read from byte {at} on: {error}"))?;
        self.bytes.truncate(have + read);
        Ok(read > 0)
    }

    fn head(mut self) -> Result<ImageHead, String> {
        self.next(ImageHead::read)
    }

    fn load(mut self, mut loading: Loading) -> Result<Machine, String> {
        while !loading.is_whole() {
            self.next(|frame| loading.take(frame))?;
        }
        loading.finish().map(|(machine, _)| machine).map_err(|error| error.to_string())
    }
}

/// Holds a snapshot back, so that it takes no more of the disk and of the processors than it may.
pub(crate) struct Slow<'a> {
    clock: &'a dyn Clock,
    /// How many commands were executed by now.
    executed: &'a dyn Fn() -> u64,
    pace: Pace,
    unlooked_bytes: u64,
}

impl<'a> Slow<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, bytes_per_s_max: u64, executed: &'a dyn Fn() -> u64) -> Self {
        Self { clock, executed, pace: Pace::new(bytes_per_s_max, clock.now(), executed()), unlooked_bytes: 0 }
    }

    fn wrote(&mut self, bytes: u64) {
        self.pace.wrote(bytes);
        self.unlooked_bytes += bytes;
        if self.unlooked_bytes < PACE_BYTES {
            return;
        }
        self.unlooked_bytes = 0;
        loop {
            let wait = self.pace.wait(self.clock.now(), (self.executed)());
            if wait.is_zero() {
                return;
            }
            self.clock.sleep(wait);
        }
    }
}
