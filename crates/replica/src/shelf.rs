//! The one place that names a member's snapshots: the one that is kept, one that is being laid, one that comes from elsewhere.
//!
//! ```text
//!   snapshot          kept: whole, durable, what a restart begins with
//!   snapshot.new      the own one, being laid by the snapshots' thread
//!   snapshot.coming   another member's, laid piece by piece
//! ```
//! Walk: [`Shelf::write`] lays the state as it was in one turn, and names it if that turn still is · [`Shelf::revoke`] begins another turn:
//! what is under way is never named · a snapshot from elsewhere comes ([`Shelf::begin`], [`Coming::keep`]), is checked
//! ([`Shelf::check`]) and named ([`Shelf::install`]), which is another turn, too · [`Lent`] keeps what is being sent readable.
//! Of two snapshots the one with the lower sequence is never named over the other: memory and disk would tell two stories. One that cannot
//! be read is replaced also by one that stands as high.
//! Deliberately absent: threads. Whoever writes is not whoever revokes; one lock orders them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_membership::{Member, Sequence};
use assent_world::{Access, Barrier, Disk, File, Open, write_all_at};

use crate::barrier;
use crate::error::{ReplicaError, refused};
use crate::machine::{Next, Put};
use crate::message::{Base, Piece};
use crate::snapshot::{self, Snapshot};

pub(crate) const NAME: &str = "snapshot";
const NAME_NEW: &str = "snapshot.new";
/// A snapshot that is laid is synced each time so much was written.
const SYNC_BYTES: u64 = 16 << 20;
const NAME_COMING: &str = "snapshot.coming";

/// A member's snapshots.
#[derive(Debug)]
pub struct Shelf {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// Which turn it is.
    turn: u64,
    kept: Option<Arc<Snapshot>>,
    /// The one that is kept cannot be read: one that stands as high takes its name.
    is_unreadable: bool,
}

/// What became of a snapshot that was to be written.
#[derive(Debug)]
pub enum Wrote {
    /// It is kept, durably.
    Kept(Arc<Snapshot>),
    /// Its turn is over, or one that stands higher is kept: nobody will find it.
    Revoked,
    /// The disk refused its bytes; the one before stays.
    Failed(ReplicaError),
}

/// A snapshot that comes from elsewhere, as far as it is here.
#[derive(Clone)]
pub struct Coming {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl fmt::Debug for Coming {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Coming").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Shelf {
    /// The snapshots of a folder.
    ///
    /// # Errors
    /// `Damaged`, or as the disk says.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self, ReplicaError> {
        let kept = Snapshot::open(&*disk, &folder.join(NAME))?.map(Arc::new);
        let shelf =
            Self { disk, folder: folder.to_path_buf(), slot: Mutex::new(Slot { turn: 0, kept, is_unreadable: false }) };
        // Halves of earlier ones.
        shelf.remove(NAME_NEW)?;
        shelf.remove(NAME_COMING)?;
        Ok(shelf)
    }

    /// The one that is kept; none before the first.
    #[must_use]
    pub fn kept(&self) -> Option<Arc<Snapshot>> {
        self.slot().kept.clone()
    }

    /// Where the one that is kept stands.
    #[must_use]
    pub fn base(&self) -> Base {
        self.kept().map(|kept| kept.base.clone()).unwrap_or_default()
    }

    /// Which turn it is: what is captured now is written in this one.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.slot().turn
    }

    /// Whether the one that is kept could not be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.slot().is_unreadable
    }

    /// This one could not be read.
    fn doubt(&self, snapshot: &Arc<Snapshot>) {
        let mut slot = self.slot();
        slot.is_unreadable |= slot.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, snapshot));
    }

    /// Another turn: a snapshot that is under way will not be named. Returns where the one that is kept stands.
    pub fn revoke(&self) -> Base {
        let mut slot = self.slot();
        slot.turn += 1;
        slot.kept.as_ref().map(|kept| kept.base.clone()).unwrap_or_default()
    }

    /// Lays the chunks of a state that was captured in this turn, and makes them the snapshot, durably. `wrote` hears of bytes written,
    /// and may hold it back or give up.
    ///
    /// # Errors
    /// As the disk says of the name: which one is kept is unknown then, and the member must stop.
    pub fn write(
        &self,
        turn: u64,
        base: &Base,
        mut wrote: impl FnMut(u64) -> io::Result<()>,
        chunks: impl FnOnce(Put<'_>) -> io::Result<()>,
    ) -> Result<Wrote, ReplicaError> {
        if self.turn() != turn {
            return Ok(Wrote::Revoked);
        }
        let laid = self.create(NAME_NEW).and_then(|file| {
            let mut synced = 0;
            let in_steps = |bytes: u64| {
                // In steps: one sync of everything at the end would keep those of the log waiting behind it.
                if bytes.saturating_sub(synced) >= SYNC_BYTES {
                    synced = bytes;
                    file.sync_data(barrier::SNAPSHOT)?;
                }
                wrote(bytes)
            };
            let lay = || snapshot::lay(&*file, base, in_steps, chunks).and_then(|_| file.sync_all(barrier::SNAPSHOT));
            lay().map_err(|error| refused("writing", &self.folder.join(NAME_NEW), &error)).map(|()| file)
        });
        let file = match laid {
            Ok(file) => file,
            Err(error) => {
                // What cannot be removed now is removed by the next one.
                _ = self.disk.unlink(&self.folder.join(NAME_NEW));
                return Ok(if self.turn() == turn { Wrote::Failed(error) } else { Wrote::Revoked });
            }
        };
        let mut slot = self.slot();
        if slot.turn != turn || !slot.gives_way_to(base.end.sequence) {
            drop(slot);
            self.remove(NAME_NEW)?;
            return Ok(Wrote::Revoked);
        }
        let kept = self.name(&mut slot, NAME_NEW, file, barrier::SNAPSHOT_ENTRY)?;
        Ok(Wrote::Kept(kept))
    }

    /// A snapshot comes from elsewhere, from its first byte on.
    ///
    /// # Errors
    /// As the disk says.
    pub fn begin(&self) -> Result<Coming, ReplicaError> {
        Ok(Coming { path: self.folder.join(NAME_COMING), file: self.create(NAME_COMING)?, bytes: 0 })
    }

    /// Reads what came, every checksum, gives the chunks to `take`, and makes the bytes durable; its name is not. The inner error
    /// says what is wrong with it.
    ///
    /// # Errors
    /// As the disk says.
    pub fn check(
        &self,
        coming: &Coming,
        base: &Base,
        take: impl FnOnce(Next<'_>) -> Result<(), String>,
    ) -> Result<Result<(), String>, ReplicaError> {
        let told = |error: io::Error| refused("reading", &self.folder.join(NAME_COMING), &error);
        let found = match Snapshot::of(Arc::clone(&coming.file)).map_err(told)? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        if found.base != *base {
            return Ok(Err(format!("it stands behind entry {}, not {}", found.base.end.sequence, base.end.sequence)));
        }
        if let Err(why) = found.load(take) {
            return Ok(Err(why));
        }
        coming.file.sync_all(barrier::COMING).map_err(told)?;
        Ok(Ok(()))
    }

    /// Makes what came, and was checked, the snapshot, durably: another turn.
    ///
    /// # Errors
    /// [`ReplicaError::Older`] if one that stands as high is kept; as the disk says: the member must stop.
    pub fn install(&self, coming: &Coming, base: &Base) -> Result<Arc<Snapshot>, ReplicaError> {
        let mut slot = self.slot();
        slot.turn += 1;
        if slot.stands() >= base.end.sequence {
            return Err(ReplicaError::Older { found: base.end.sequence, kept: slot.stands() });
        }
        self.name(&mut slot, NAME_COMING, Arc::clone(&coming.file), barrier::COMING_ENTRY)
    }

    /// Gives these bytes the name of the one that is kept. What they say of themselves is read again: it is what a restart finds.
    fn name(
        &self,
        slot: &mut Slot,
        from: &str,
        file: Arc<dyn File>,
        entry: Barrier,
    ) -> Result<Arc<Snapshot>, ReplicaError> {
        let (from, to) = (self.folder.join(from), self.folder.join(NAME));
        let found = Snapshot::of(file).map_err(|error| refused("reading", &from, &error))?;
        let found = Arc::new(found.map_err(|why| crate::error::damaged(&from, why))?);
        self.disk.rename(&from, &to).map_err(|error| refused("naming", &from, &error))?;
        self.disk.sync_dir(&self.folder, entry).map_err(|error| refused("syncing", &self.folder, &error))?;
        slot.kept = Some(Arc::clone(&found));
        slot.is_unreadable = false;
        Ok(found)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>, ReplicaError> {
        self.remove(name)?;
        let path = self.folder.join(name);
        self.disk
            .open(&path, Open { access: Access::Create, direct: false })
            .map_err(|error| refused("making", &path, &error))
    }

    fn remove(&self, name: &str) -> Result<(), ReplicaError> {
        let path = self.folder.join(name);
        match self.disk.unlink(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused("removing", &path, &error)),
            _ => Ok(()),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn stands(&self) -> Sequence {
        self.kept.as_ref().map_or(Sequence(0), |kept| kept.base.end.sequence)
    }

    fn gives_way_to(&self, at: Sequence) -> bool {
        at > self.stands() || (at == self.stands() && self.is_unreadable)
    }
}

impl Coming {
    /// Puts the next piece behind what is here.
    ///
    /// # Errors
    /// As the disk says.
    pub fn keep(&mut self, piece: &Piece) -> Result<(), ReplicaError> {
        let wrote = write_all_at(&*self.file, piece.offset, &piece.bytes);
        wrote.map_err(|error| refused("writing", &self.path, &error))?;
        self.bytes = piece.offset.saturating_add(u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}

/// Snapshots that are being sent: each stays readable, and the same, until its standby needs it no longer.
#[derive(Debug, Default)]
pub struct Lent(BTreeMap<Member, Arc<Snapshot>>);

impl Lent {
    /// A piece for a standby: of the snapshot of that place if it is lent to it, else the beginning of the one that is kept now;
    /// none if there is none.
    ///
    /// # Errors
    /// As the disk says: this one is lent no more, and another one that stands as high may take its place.
    pub fn piece(
        &mut self,
        shelf: &Shelf,
        to: Member,
        at: Sequence,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Option<Piece>, ReplicaError> {
        let same = |lent: &Arc<Snapshot>| lent.base.end.sequence == at;
        let (lent, offset) = match self.0.get(&to).filter(|lent| same(lent)) {
            Some(lent) => (Arc::clone(lent), offset),
            None => {
                let Some(kept) = shelf.kept() else { return Ok(None) };
                let offset = if same(&kept) { offset } else { 0 };
                self.0.insert(to, Arc::clone(&kept));
                (kept, offset)
            }
        };
        let piece = lent.piece(offset, bytes_max);
        if piece.is_err() {
            self.0.remove(&to);
            shelf.doubt(&lent);
        }
        piece.map(Some).map_err(|error| refused("reading", &shelf.folder.join(NAME), &error))
    }

    /// This standby needs none any more.
    pub fn end(&mut self, to: Member) {
        self.0.remove(&to);
    }
}
