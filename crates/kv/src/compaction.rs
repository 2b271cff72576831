//! What is dead in the journal and in the volumes gives its room back.
//!
//! ```text
//!   choose    the accounts say which volumes, or the oldest cells of the journal
//!   write     sync the log · read them in order · the ledger says what lives · one new volume, durable, known to nobody
//!   commit    the ledger's note names it, and no more what it replaces · POINT OF NO RETURN
//!   publish   readers that come now use it; who has pinned the set before goes on with that
//!   let go    the note once more, so that neither manifest names the old ones · their files go with the last who pins them,
//!             stretches of the journal are released once no set that somebody pins reads them
//! ```
//! Until the commit nothing has happened, and what was written is removed. After it the rest can be done at any time, by the next
//! call or by the next open: a file that no note names is removed there.
//!
//! Walk: [`Kv::compact_once`] · [`judge`] asks the ledger.
//! Deliberately absent: threads, and a loop; whoever has one calls until there is nothing to do.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

use assent_ids::Lsn;
use assent_journal::Span;
use assent_kind::Kind;
use assent_runs::Pace;
use assent_world::Barrier;

use crate::ledger::Ledger;
use crate::values::{Held, Set};
use crate::vault::{Asked, Choice, Compacted, Compaction, Horizon, Liveness, Raw, Source, VaultError, Volume, compact};
use crate::{Kv, KvError};

pub(crate) const FOLDER: Barrier = Barrier::new("kv: the folder of volumes before anything in it");

const HOUR_MS: u64 = 60 * 60 * 1000;

/// What compactions did since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) compactions: u64,
    pub(crate) failed: u64,
    /// Bytes of what was read, of what was written, and of files and stretches that went.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) reclaimed: u64,
}

impl Kv {
    /// Compacts once, if something is worth it, and gives back the room that nobody reads any more. Whether there was
    /// something to compact; none where it was told to stop, or at an hour that is not permitted. Readers and writers go on
    /// meanwhile. Over a log that does not keep what it trims until it is released, nothing is ever compacted.
    ///
    /// # Errors
    /// `Busy` while another compacts; `Full`, `Corrupt` naming the file, or as the disk says: nothing was changed, nothing was left
    /// behind, and the store goes on.
    pub fn compact_once(&self, pace: &dyn Pace) -> Result<bool, KvError> {
        self.refuse_read_only()?;
        if self.shared.log.stretch_bytes().is_none() {
            return Ok(false);
        }
        let _alone = self.compactor()?;
        let done = self.compact_alone(pace);
        if done.is_err() {
            self.done().failed += 1;
        }
        done
    }

    fn compactor(&self) -> Result<MutexGuard<'_, ()>, KvError> {
        match self.compacting.try_lock() {
            Ok(alone) => Ok(alone),
            Err(TryLockError::Poisoned(alone)) => Ok(alone.into_inner()),
            Err(TryLockError::WouldBlock) => Err(KvError::Busy { what: "compactions at once", limit: 1 }),
        }
    }

    fn compact_alone(&self, pace: &dyn Pace) -> Result<bool, KvError> {
        self.give_back()?;
        let Some(choice) = self.choice() else { return Ok(false) };
        let read = self.shared.ledger.accounts().bytes_between(choice.first, choice.end);
        let compacted = match self.write_compacted(&choice, pace) {
            Err(VaultError::Stopped) => return Ok(false),
            Err(damaged) if damaged.kind() == Kind::Corrupt => {
                // Whoever reads it is told. Another one may be compacted meanwhile.
                self.damaged().insert(choice.first);
                return Err(damaged.into());
            }
            done => done?,
        };
        self.adopt(&compacted)?;
        {
            let mut done = self.done();
            done.compactions += 1;
            done.bytes_in += read;
            done.bytes_out += compacted.facts.map_or(0, |facts| facts.bytes);
        }
        // It counts; what fails from here on is tried again by the next call.
        _ = self.give_back();
        Ok(true)
    }

    /// What to compact next, if the hour permits it.
    fn choice(&self) -> Option<Choice> {
        let Kv { config, shared, .. } = self;
        let shifted = self.shared.time.now_ms().saturating_add_signed(i64::from(config.utc_offset_minutes) * 60_000);
        let hour = u8::try_from(shifted / HOUR_MS % 24).unwrap_or(0);
        let mut accounts = shared.ledger.accounts();
        self.damaged().iter().for_each(|first| accounts.spare(*first));
        // Trimmed, complete, and read by no open but through a volume.
        let needs = shared.ledger.settled().needs.min(shared.log.start());
        config.chooser().choose(&accounts, needs.0, shared.log.end().0, hour)
    }

    fn write_compacted(&self, choice: &Choice, pace: &dyn Pace) -> Result<Compacted, VaultError> {
        let Kv { shared, volumes_folder, .. } = self;
        let (log, disk) = (&*shared.log, &*self.disk);
        self.make_folder()?;
        // Published first: what is visible then is durable after the sync.
        let published = shared.ledger.published();
        let durable = published.min(log.sync()?).0;
        let set = shared.values.pin();
        let raw_from = set.raw_from;
        let Choice { first, end, generation, .. } = *choice;
        let inside = |held: &&Arc<Held>| first <= held.account.first && held.account.first < end;
        let mut sources: Vec<&dyn Source> = Vec::new();
        for held in set.volumes.iter().filter(inside) {
            sources.push(&**held.volume.as_ref().map_err(VaultError::clone)?);
        }
        let (oldest, cell_bytes) = (log.oldest().0, shared.ledger.cell_bytes());
        let raw = Raw { log, first: first.max(raw_from).max(oldest), end };
        if end > raw_from {
            // A cell that was released in part was so before a rebuild counted it anew; a whole one was never compacted.
            if oldest >= first.max(raw_from) + cell_bytes {
                let what = "the journal begins behind it: a stretch of it is missing";
                return Err(VaultError::Compaction { first, end, what });
            }
            sources.push(&raw);
        }
        let horizon =
            |held: &Arc<Held>| Horizon { first: held.account.first, end: held.account.end, as_of: held.account.as_of };
        let mut others: Vec<Horizon> = set.volumes.iter().filter(|held| !inside(held)).map(horizon).collect();
        others.push(Horizon { first: end.max(raw_from), end: u64::MAX, as_of: 0 });
        let compaction = Compaction { first, end, generation, sources, others, durable, cell_bytes };
        compact(&compaction, &mut |asked| judge(&shared.ledger, durable, asked), disk, volumes_folder, pace)
    }

    /// Makes a compaction count, and shows it to readers.
    fn adopt(&self, compacted: &Compacted) -> Result<(), KvError> {
        let Kv { shared, disk, volumes_folder, .. } = self;
        let values = &shared.values;
        let Compacted { first, end, generation, .. } = *compacted;
        let volume = compacted
            .facts
            .map(|_| Volume::open_among(&values.open, disk, volumes_folder, first, generation))
            .transpose()?;
        if let Err(error) = shared.ledger.renote(Some(compacted)) {
            // Where nobody knows whether the note counts, it may name the volume.
            if let Some(volume) = volume.filter(|_| !shared.ledger.is_closed()) {
                volume.doom();
            }
            return Err(error);
        }
        let set = values.pin();
        let gone = |held: &&Arc<Held>| first <= held.account.first && held.account.first < end;
        let mut volumes: Vec<Arc<Held>> = set.volumes.iter().filter(|held| !gone(held)).cloned().collect();
        let old: Vec<Arc<Held>> = set.volumes.iter().filter(gone).cloned().collect();
        if let (Some(volume), Some(account)) = (volume, shared.ledger.accounts().volume_of(first)) {
            volumes.push(Arc::new(Held { account: *account, volume: Ok(volume) }));
            volumes.sort_by_key(|held| held.account.first);
        }
        values.publish(Set { raw_from: set.raw_from.max(end), volumes });
        self.leaving().extend(old);
        Ok(())
    }

    /// Lets everything go that neither manifest names and no reader pins.
    fn give_back(&self) -> Result<(), KvError> {
        let Kv { shared, .. } = self;
        let read_from = Lsn(shared.values.pinned_from());
        let sealed = shared.log.sealed();
        let unread: Vec<&Span> = sealed.iter().take_while(|span| span.end <= read_from).collect();
        if unread.is_empty() && self.leaving().is_empty() {
            return Ok(());
        }
        if !shared.ledger.settled().agreed {
            // The older manifest is one of before: an open that goes back to it needs what it names.
            shared.ledger.renote(None)?;
        }
        self.let_go();
        for span in unread {
            shared.log.release(span.first)?;
            self.done().reclaimed += span.bytes;
        }
        Ok(())
    }

    /// Volumes that were replaced, once both manifests say so: their files go with the last reader.
    fn let_go(&self) {
        let mut leaving = self.leaving();
        for held in leaving.drain(..) {
            if let Ok(volume) = &held.volume {
                volume.doom();
                self.done().reclaimed += volume.facts().bytes;
            }
        }
    }
}

/// What has become of a write, as the ledger has it now or later.
pub(crate) fn judge(ledger: &Ledger, durable: u64, asked: &Asked<'_>) -> Result<Liveness, VaultError> {
    let newest = ledger.newest(asked.keyspace, asked.key).map_err(|error| VaultError::Ledger(error.to_string()))?;
    Ok(match newest {
        None => Liveness::Absent,
        Some((seq, Some(place))) if (place.entry.0, place.at) == (asked.address.lsn, asked.address.at) => {
            Liveness::Live { seq }
        }
        Some((since, Some(_))) => Liveness::Dead { since },
        // A delete of this very entry, or one that it cannot be told from: it hides what came before.
        Some((seq, None)) if asked.deletes && asked.seq.is_none_or(|own| own == seq) => Liveness::Live { seq },
        // Perhaps its own time was over, and the ledger buried it under its own seq: then it hides what came before.
        Some((seq, None)) if !asked.deletes && asked.seq.is_none_or(|own| own == seq) && seq <= durable => {
            Liveness::Absent
        }
        Some((since, None)) => Liveness::Dead { since },
    })
}

impl Kv {
    pub(crate) fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of volumes, before the first is made. Also if it is there: who made it may have died before its entry was durable.
    fn make_folder(&self) -> Result<(), VaultError> {
        let folder = &self.volumes_folder;
        if self.has_folder.load(Ordering::Acquire) {
            return Ok(());
        }
        self.disk.create_dir(folder).map_err(|error| VaultError::disk("making", folder, &error))?;
        let parent = match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.disk.sync_dir(parent, FOLDER).map_err(|error| VaultError::disk("syncing", parent, &error))?;
        self.has_folder.store(true, Ordering::Release);
        Ok(())
    }

    /// Volumes, by their first place, in which a compaction found damage.
    fn damaged(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Held>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
