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
//! Also where nothing is needed any more a volume is written: it says so of its range to whoever has lost the ledger. Cells of the
//! journal that cannot be read are passed (`kept`).
//! Until the commit nothing has happened, and what was written is removed. After it the rest can be done at any time, by the next
//! call or by the next open: a file that no note names is removed there.
//!
//! Walk: [`Kv::compact_once`], [`Kv::compact_asked`] · [`Asking`] asks the ledger, [`judge`] says what its answer means.
//! Deliberately absent: threads, and a loop; whoever has one calls until there is nothing to do.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

use assent_kind::Kind;
use assent_runs::{Pace, RunsError};
use assent_world::{Barrier, Moment};

use crate::ledger::Ledger;
use crate::record::Place;
use crate::space::Look;
use crate::values::{Held, Set, Shelf};
use crate::vault::{
    Account, Accounts, Answer, Answers, Asked, Choice, Chooser, Compacted, Compaction, Dead, Horizon, Liveness, Raw,
    Source, VaultError, Volume, compact, remove, volumes,
};
use crate::{Config, Kv, KvError};

pub(crate) const FOLDER: Barrier = Barrier::new("kv: the folder of volumes before anything in it");

/// So often in a row the disk may refuse to read a place before it is left as it is.
const UNREAD_MAX: u32 = 3;

const HOUR_MS: u64 = 60 * 60 * 1000;

/// What compactions did since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) compactions: u64,
    pub(crate) failed: u64,
    /// How often room could not be given back.
    pub(crate) releases_failed: u64,
    /// Bytes of what was read, of what was written, and of files and stretches that went.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) reclaimed: u64,
}

/// A place that could not be read, and how often in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unread {
    place: u64,
    times: u32,
}

/// What there is to choose from, at one moment.
struct Looked {
    accounts: Accounts,
    damaged: BTreeSet<u64>,
    sealed_end: u64,
    log_end: u64,
    at: Moment,
    chooser: Chooser,
}

impl Looked {
    fn look(&self, config: &Config) -> Look {
        let Self { accounts, damaged, sealed_end, log_end, at, chooser } = self;
        // What was written since the last two manifests can be taken by none, and is there all the time; and as much comes while one is written.
        let tail_bytes = config.volume_bytes.max(4 * config.checkpoint_bytes);
        let owed = chooser.owed(accounts, damaged, (*sealed_end, *log_end), tail_bytes, config.volume_bytes);
        let (_, live) = accounts.sums(*log_end);
        // A small store has as much more time as it has room.
        let volume = chooser.volume_bytes + chooser.none(config.volume_bytes, live);
        Look { owed, at: *at, end: *log_end, live, volume, unjudged: tail_bytes }
    }
}

impl Unread {
    fn again(&mut self, place: u64) -> u32 {
        let before = if self.place == place { self.times } else { 0 };
        *self = Self { place, times: before + 1 };
        self.times
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
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
        self.compact(pace, self.config.space_room_bytes_min)
    }

    /// The same for somebody who asks for room now: [`Config::space_room_bytes_min`] does not count, as it does not after the disk
    /// refused room. Either makes a checkpoint then, so that what is dead in the journal can be given back.
    ///
    /// # Errors
    /// As [`Kv::compact_once`].
    pub fn compact_asked(&self, pace: &dyn Pace) -> Result<bool, KvError> {
        self.compact(pace, 0)
    }

    fn compact(&self, pace: &dyn Pace, room_bytes_min: u64) -> Result<bool, KvError> {
        self.refuse_read_only()?;
        if self.shared.log.stretch_bytes().is_none() {
            return Ok(false);
        }
        let _alone = self.compactor()?;
        let mut compacts = self.shared.ledger.space.compacts(&**self.shared.time.clock());
        let done = self.compact_alone(pace, room_bytes_min);
        compacts.well = matches!(done, Ok(true));
        drop(compacts);
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

    fn compact_alone(&self, pace: &dyn Pace, room_bytes_min: u64) -> Result<bool, KvError> {
        // What cannot be given back now stays: the next call tries again, and no value needs it.
        if self.give_back().is_err() {
            self.done().releases_failed += 1;
        }
        if self.shared.ledger.is_closed() {
            let reason = "an earlier write of the ledger failed".to_owned();
            return Err(KvError::Ledger(RunsError::Closed { reason }));
        }
        let is_permitted = self.config.chooser().hours.permit(self.hour());
        if let Some(cell) = self.unreadable_front().filter(|_| is_permitted) {
            return self.pass(&cell, pace);
        }
        // Where that finds no room either, what can be compacted without it may make some.
        let settled = self.settle();
        let looked = self.looked();
        match self.pass_full(&looked, pace) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // What it would have spared is written, then.
            Err(_) => self.done().failed += 1,
        }
        let Some(choice) = self.choice(&looked, room_bytes_min) else { return settled.map(|()| false) };
        let read = self.shared.ledger.accounts().bytes_between(choice.first, choice.end);
        let compacted = match self.write_compacted(&choice, pace) {
            Err(VaultError::Stopped) => return Ok(false),
            Err(VaultError::Unreadable { place, what, kind }) => {
                // Whoever reads it is told. Others may be compacted meanwhile.
                self.damaged().insert(place);
                return Err(KvError::Volume { kind, what });
            }
            // Of the value, or of what the ledger says of it.
            Err(VaultError::Unread { place, what, kind, short } | VaultError::Ledger { place, what, kind, short })
                if kind != Kind::Closed =>
            {
                // It may pass; a sector that the disk has lost does not, and nothing waits for that. Want of descriptors says nothing of it.
                if !short && self.unread().again(place) == UNREAD_MAX {
                    self.damaged().insert(place);
                }
                return Err(KvError::Volume { kind, what });
            }
            done => done?,
        };
        self.unread().forget();
        self.adopt(&compacted)?;
        {
            let mut done = self.done();
            done.compactions += 1;
            done.bytes_in += read;
            done.bytes_out += compacted.facts.bytes;
        }
        // It counts; what fails from here on is tried again by the next call.
        _ = self.give_back();
        Ok(true)
    }

    /// What to compact next, if the hour permits it.
    fn choice(&self, looked: &Looked, room_bytes_min: u64) -> Option<Choice> {
        let Kv { config, shared, .. } = self;
        let hour = self.hour();
        let Looked { accounts, damaged, sealed_end, log_end, chooser, .. } = looked;
        self.leave_free(chooser.volume_bytes);
        // A disk that is full of what is dead takes nothing more. Of what writers owe nothing changes.
        let refused = shared.ledger.space.no_room.refused();
        let choose = |chooser: &Chooser| {
            let asked = Chooser { room_bytes_min, ..*chooser };
            let chooser = if refused.is_some() { self.in_need(&asked, accounts) } else { asked };
            chooser.choose(accounts, damaged, *sealed_end, *log_end, hour)
        };
        // While somebody writes and something is too much one more, so that nobody is who waits for nothing.
        let one_more = || Chooser { beside_bytes: chooser.beside_bytes + 2 * chooser.volume_bytes, ..*chooser };
        let was_told = shared.ledger.space.was_told();
        let choice = choose(chooser).or_else(|| if was_told { choose(&one_more()) } else { None });
        if let Some(published) = refused.filter(|published| self.is_settled(*published))
            && choice.is_none()
            && chooser.hours.permit(hour)
        {
            shared.ledger.space.no_room.ended(published);
        }
        let look = looked.look(config);
        match choice {
            Some(_) => shared.ledger.space.owes(&look),
            None if look.owed.bytes == 0 && chooser.hours.permit(hour) => shared.ledger.space.owes_nothing(&look),
            None => {}
        }
        choice
    }

    /// Of the day, where the store is: by the clock as it is, not by the store's time, which never goes back behind an hour that it once was.
    fn hour(&self) -> u8 {
        let offset_ms = i64::from(self.config.utc_offset_minutes) * 60_000;
        let shifted = self.shared.time.clock().wall_ms().saturating_add_signed(offset_ms);
        u8::try_from(shifted / HOUR_MS % 24).unwrap_or(0)
    }

    /// Lets what is behind the front of the journal be compacted before it, where that is worth it. Whether it did.
    fn pass_full(&self, looked: &Looked, pace: &dyn Pace) -> Result<bool, KvError> {
        let Looked { accounts, damaged, sealed_end, log_end, chooser, .. } = looked;
        // It gives nothing back, and takes some.
        if self.shared.ledger.space.no_room.refused().is_some() {
            return Ok(false);
        }
        let full = chooser.passes(accounts, damaged, (*sealed_end, *log_end), self.hour());
        full.map_or(Ok(false), |full| self.pass_readable(full, pace))
    }

    /// While a compaction or a merge takes its time writers go on: what is owed by now.
    pub(crate) fn look_at_space(&self) {
        let space = &self.shared.ledger.space;
        if space.goes_on(self.shared.log.end().0) {
            space.owes_now(&self.looked().look(&self.config));
        }
    }

    fn looked(&self) -> Looked {
        let Kv { config, shared, .. } = self;
        let (accounts, damaged) = (shared.ledger.expected(), self.damaged().clone());
        let (sealed_end, log_end) = (self.sealed_end(), shared.log.end().0);
        let (_, live) = accounts.sums(log_end);
        let sized = config.chooser().sized(live).stocked(shared.log.waiting());
        // Until it is done, what a compaction writes stands beside what that replaces; where as much is too much, writers wait longest; and they
        // go on meanwhile.
        let coming = 17 * sized.volume_bytes / 5;
        // The bound is one of keys and values: what they are framed by is dead.
        let framing = sized.share(shared.ledger.framing_bytes(live));
        let kept = shared.values.kept_beside(|| shared.log.sealed());
        let beside_bytes = kept + shared.log.idle_bytes() + shared.ledger.room_bytes() + framing + coming;
        let at = shared.time.clock().now();
        Looked { accounts, damaged, sealed_end, log_end, at, chooser: Chooser { beside_bytes, ..sized } }
    }

    /// What stands before is trimmed, complete, and read by no open but through a volume.
    pub(crate) fn sealed_end(&self) -> u64 {
        self.shared.ledger.settled().needs.min(self.shared.log.start()).0
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
        let Choice { first, end, .. } = *choice;
        let flushed = shared.ledger.durable().0;
        let generation = self.generation((first, end, choice.generation), &set)?;
        let inside = |held: &&Arc<Held>| first <= held.account.first && held.account.first < end;
        let mut read: Vec<Box<dyn Source + '_>> = Vec::new();
        let missing = |first| VaultError::Missing { from: first, to: log.oldest().0 }.unreadable(first);
        for held in set.volumes.iter().filter(inside) {
            let first = held.account.first;
            read.push(match &held.volume {
                // Before the oldest that is there now: its file is gone, or its header cannot be read.
                _ if held.account.is_kept() && log.oldest().0 > first => return Err(missing(first)),
                _ if held.account.is_kept() => Box::new(Raw::kept(log, &held.account)),
                Ok(volume) => Box::new(Arc::clone(volume)),
                Err(error) => return Err(error.clone().found_at(first)),
            });
        }
        let cell_bytes = shared.ledger.cell_bytes();
        let is_recounted = shared.ledger.broken().0 > 0;
        if end > raw_from {
            let first = first.max(raw_from);
            // Nothing is released that is not in a volume: a stretch that is not there now lives.
            if log.oldest().0 > first {
                return Err(missing(first));
            }
            // What is counted anew is asked for, all of it.
            let dead = if is_recounted { Dead::default() } else { shared.ledger.dead_before(end) };
            read.push(Box::new(Raw::new(log, first, end, dead)));
        }
        let horizon = |held: &Arc<Held>| {
            let Account { first, end, as_of, .. } = held.account;
            Horizon { first, end, as_of, holds: held.account.holds() }
        };
        let mut others: Vec<Horizon> = set.volumes.iter().filter(|held| !inside(held)).map(horizon).collect();
        others.push(Horizon { first: end.max(raw_from), end: u64::MAX, as_of: 0, holds: true });
        let sources = read.iter().map(|source| &**source).collect();
        let remembered_from = self.desk().finished.oldest().0;
        let window_bytes = self.config.window_bytes();
        let compaction = Compaction {
            first,
            end,
            generation,
            sources,
            others,
            durable,
            flushed,
            remembered_from,
            cell_bytes,
            window_bytes,
        };
        let mut ledger = Asking { ledger: &shared.ledger, durable, is_recounted, leaving: 0 };
        let compacted = compact(&compaction, &mut ledger, disk, volumes_folder, pace)?;
        Ok(Compacted { leaving: ledger.leaving, ..compacted })
    }

    /// Of what is written: above every file on disk that has any of its range, known or not. Where the ledger is lost, the highest
    /// counts.
    pub(crate) fn generation(&self, (first, end, least): (u64, u64, u32), set: &Set) -> Result<u32, VaultError> {
        let Kv { shared, disk, volumes_folder, .. } = self;
        let known = shared.ledger.accounts().generation_between(first, end);
        let mut generation = least.max(known.saturating_add(1));
        for (begins, number) in volumes(&**disk, volumes_folder)? {
            if begins >= end || number < generation {
                continue;
            }
            let is_it = |held: &&Arc<Held>| (held.account.first, held.account.generation) == (begins, number);
            let ends = match set.volumes.iter().find(is_it) {
                Some(held) => held.account.end,
                // Of one that cannot be opened the range is not known.
                None => {
                    Volume::open(disk, volumes_folder, begins, number).map_or(u64::MAX, |volume| volume.facts().end)
                }
            };
            if ends > first {
                generation = number.saturating_add(1);
            }
        }
        Ok(generation)
    }

    /// Makes a compaction count, and shows it to readers.
    pub(crate) fn adopt(&self, compacted: &Compacted) -> Result<(), KvError> {
        let Kv { shared, disk, volumes_folder, .. } = self;
        let values = &shared.values;
        let Compacted { first, end, generation, .. } = *compacted;
        let volume = Volume::open_among(&values.open, disk, volumes_folder, first, generation)
            .inspect_err(|_| remove(&**disk, volumes_folder, first, generation))?;
        if let Err(error) = shared.ledger.renote(Some(compacted)) {
            // Where nobody knows whether the note counts, it may name the volume.
            if !shared.ledger.is_closed() {
                volume.doom();
            }
            return Err(error);
        }
        // Who panics here has shown nothing: readers go on with the volumes of before, whose files stay.
        let set = values.pin();
        let gone = |held: &&Arc<Held>| first <= held.account.first && held.account.first < end;
        let mut volumes: Vec<Arc<Held>> = set.volumes.iter().filter(|held| !gone(held)).cloned().collect();
        let old: Vec<Arc<Held>> = set.volumes.iter().filter(gone).cloned().collect();
        if let Some(account) = shared.ledger.accounts().volume_of(first) {
            volumes.push(Arc::new(Held { account: *account, volume: Ok(volume) }));
            volumes.sort_by_key(|held| held.account.first);
        }
        values.publish(Set { raw_from: set.raw_from.max(end), volumes });
        self.leaving().extend(old);
        Ok(())
    }

    /// Opens the volumes that could not be opened before: descriptors that were missing may be there now.
    pub(crate) fn open_anew(&self) {
        let values = &self.shared.values;
        if !values.look().misses_any() {
            return;
        }
        // Who compacts makes a set of his own, and shows it.
        let Ok(_alone) = self.compactor() else { return };
        let (open, accounts) = (&values.open, &self.shared.ledger.accounts());
        let shelf = Shelf { disk: &self.disk, folder: &self.volumes_folder, open, accounts };
        let Some((set, opened)) = values.pin().opened_anew(shelf) else { return };
        values.publish(set);
        // What was tried in vain meanwhile is tried again.
        let mut damaged = self.damaged();
        opened.iter().for_each(|first| _ = damaged.remove(first));
    }

    /// Lets everything go that neither manifest names and no reader pins.
    fn give_back(&self) -> Result<(), KvError> {
        let Kv { shared, .. } = self;
        let sealed = shared.log.sealed();
        let unread = shared.values.unread(&sealed);
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

/// The ledger as it is now or later, for a compaction.
struct Asking<'a> {
    ledger: &'a Ledger,
    durable: u64,
    /// Also how much of what is dead has rows that will leave.
    is_recounted: bool,
    leaving: u64,
}

impl Answers for Asking<'_> {
    fn alone(&mut self, asked: &Asked<'_>) -> Result<Liveness, VaultError> {
        let newest = self.ledger.newest(asked.keyspace, asked.key).map_err(|error| told(error, asked))?;
        self.judged(newest, asked)
    }

    fn in_order(&mut self) -> Box<Answer<'_>> {
        let mut rows = self.ledger.in_order();
        Box::new(move |asked| {
            let newest = rows.newest(asked.keyspace, asked.key).map_err(|error| told(error, asked))?;
            self.judged(newest, asked)
        })
    }
}

impl Asking<'_> {
    fn judged(&mut self, newest: Option<(u64, Option<Place>)>, asked: &Asked<'_>) -> Result<Liveness, VaultError> {
        let liveness = judge(newest, self.durable, asked);
        if self.is_recounted && matches!(liveness, Liveness::Dead { .. }) {
            self.leaving += self.ledger.written_bytes(asked).map_err(|error| told(error, asked))?;
        }
        Ok(liveness)
    }
}

fn told(error: KvError, asked: &Asked<'_>) -> VaultError {
    let short = match &error {
        KvError::Ledger(RunsError::Disk { short, .. }) => *short,
        KvError::Journal(error) => error.is_short(),
        _ => false,
    };
    VaultError::Ledger { place: asked.address.lsn, what: error.to_string(), kind: error.kind(), short }
}

/// What has become of a write, by what the ledger says that its key became last.
fn judge(newest: Option<(u64, Option<Place>)>, durable: u64, asked: &Asked<'_>) -> Liveness {
    match newest {
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
    }
}

impl Kv {
    pub(crate) fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of volumes, before the first is made. Also if it is there: who made it may have died before its entry was durable.
    pub(crate) fn make_folder(&self) -> Result<(), VaultError> {
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

    /// Places at which a compaction found damage.
    pub(crate) fn damaged(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Held>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "compaction_test.rs"]
mod tests;
