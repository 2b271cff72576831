//! The ledger: key to place, in an ordered map of its own that survives restarts; values stay in the journal.
//!
//! ```text
//!   row   keyspace 4 (big endian), key  ->  version 2, entry 8, hash 8, at 4, value length 4, modified 8, expiry 8,
//!                                             metadata length 2, metadata
//!   note  what the map cannot say of the moment up to which it is durable: the last entry then, branches, outcomes; what lives where
//! ```
//! Walk: [`Ledger::open`] finds what was durable and says from where to replay · [`Ledger::apply`] makes one journal entry
//! visible, whole · [`Ledger::find`], [`crate::view::View::find`] are a key now or as of a view · [`Ledger::close_memory`] bounds the next
//! replay, [`Ledger::flush`] writes it out, [`Ledger::merge`] merges.
//! A row is known by the end of the entry that committed it, so "as of P" is: every entry that ends at or before P.
//! Deliberately absent: values, locks of writers, the journal's meaning of a branch.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use assent_ids::Lsn;
use assent_journal::Log;
use assent_kind::Kind;
use assent_runs::{AtOnce, Debt, InOrder, Opened, Runs, RunsError};
use assent_world::Disk;
use xxhash_rust::xxh3::xxh3_64;

use crate::KvError;
use crate::config::Config;
use crate::note::{self, Moment, Note};
use crate::record::{Effect, Metadata, Place};
use crate::rows::{Laid, head, laid, place, split};
use crate::space::Space;
use crate::tally::{Clerk, Unknown, laid_bytes};
use crate::throttle::Flushes;
use crate::time::Time;
use crate::vault::{Accounts, Asked, Compacted, Dead, VaultError};
use crate::view::View;

/// Keys with their keyspace that are laid on the stack.
const SHORT_KEY_BYTES: usize = 128;
/// Longer values are not kept here: the system's cache has them, or [`crate::long`].
pub(crate) const KEPT_BYTES_MAX: u32 = 4 << 10;
/// So much of the memory that rows were laid in is kept for the next ones.
const LAYING_BYTES: usize = 64 << 10;
/// How a journal is counted that gives nothing back: as the default one would.
pub(crate) const CELL_BYTES: u64 = (16 << 20) - 4096;

/// What is known of a key without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) place: Place,
    pub(crate) metadata: Metadata,
    /// Where the entry ends that made it so.
    pub(crate) committed: Lsn,
}

/// A value, or what leads to it.
pub(crate) enum Found {
    Kept(Vec<u8>),
    Elsewhere(Box<Head>),
}

/// And the value, if it is kept.
pub(crate) type WithValue = (Head, Option<Vec<u8>>);

impl Head {
    /// Whether its value is short enough to be kept in memory.
    fn is_small(&self) -> bool {
        self.place.value_bytes <= KEPT_BYTES_MAX
    }
}

/// What is kept beside a row is its value: all of it, or nothing.
fn whole(place: &Place, beside: &[u8]) -> Option<Vec<u8>> {
    (u32::try_from(beside.len()) == Ok(place.value_bytes)).then(|| beside.to_vec())
}

/// How much the ledger has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) keys: u64,
    pub(crate) value_bytes: u64,
    pub(crate) runs: u64,
    pub(crate) runs_bytes: u64,
}

/// What of the journal an open may still need, whichever manifest it believes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What stands before is read by nobody but by address.
    pub(crate) needs: Lsn,
    /// Both manifests name the same volumes.
    pub(crate) agreed: bool,
}

/// The map and what its next notes will say.
#[derive(Debug)]
pub(crate) struct Ledger {
    runs: Runs,
    notes: Mutex<Notes>,
    /// Where rows are laid.
    laying: Mutex<Vec<u8>>,
    /// The last visible entry, and where it ends.
    entry: AtomicU64,
    published: AtomicU64,
    /// Puts that this opening has made visible, and the bytes of their values.
    made: [AtomicU64; 2],
    /// Once it is known, what has expired is buried.
    pub(crate) time: OnceLock<Arc<Time>>,
    /// What compactions are to give back.
    pub(crate) space: Space,
    /// What level 0 of its files may hide.
    pub(crate) unknown: Unknown,
    pub(crate) flushes: Flushes,
}

/// What the next note will say.
#[derive(Debug)]
pub(crate) struct Notes {
    /// One for each part of the memory that is closed and not yet written out, the oldest first.
    pub(crate) closed: VecDeque<Moment>,
    /// What the map is durable up to.
    pub(crate) durable: Moment,
    /// Puts that its runs have, and the bytes of their values.
    pub(crate) kept: [u64; 2],
    /// What lives where, of what its runs have. Changed under the manifest's lock alone: no note is laid from older ones.
    pub(crate) accounts: Accounts,
    /// How often volumes were replaced; what the manifest before the newest asks of the journal, and of which count it is. Of one that
    /// an earlier opening wrote, nothing is known: everything, and none.
    pub(crate) replaced: u64,
    pub(crate) older_needs: Lsn,
    pub(crate) older_replaced: Option<u64>,
    /// What merges have booked out of the oldest cells of the journal.
    pub(crate) dead: Dead,
    /// Bookings that did not fit, and the first of them.
    pub(crate) broken: u64,
    pub(crate) first_broken: Option<VaultError>,
}

impl Notes {
    fn new(durable: Moment, kept: [u64; 2], accounts: Accounts) -> Self {
        Self {
            closed: VecDeque::new(),
            durable,
            kept,
            accounts,
            replaced: 0,
            older_needs: Lsn::ZERO,
            older_replaced: None,
            dead: Dead::default(),
            broken: 0,
            first_broken: None,
        }
    }

    /// A manifest is durable that says this of the accounts.
    pub(crate) fn committed(&mut self, accounts: Accounts) {
        (self.older_needs, self.older_replaced) = (self.durable.needs(), Some(self.replaced));
        self.accounts = accounts;
    }

    /// The note as it was last committed, but for these accounts.
    fn lay(&self, accounts: &Accounts) -> Vec<u8> {
        note::lay(&self.durable, self.kept, accounts)
    }
}

impl Ledger {
    /// Opens the map in its folder, and says from where to replay: without a moment, everything. Nothing if the map is damaged,
    /// or of another journal.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn open(
        log: &dyn Log,
        disk: &Arc<dyn Disk>,
        folder: &Path,
        config: &Config,
        read_only: bool,
    ) -> Result<Option<(Self, Option<Moment>)>, KvError> {
        let (disk, settings) = (Arc::clone(disk), config.ledger());
        let opened =
            if read_only { Runs::open_read_only(disk, folder, settings) } else { Runs::open(disk, folder, settings) };
        match opened {
            Ok((runs, opened)) if opened.applied == 0 => Ok(Some((Self::empty(runs, log), None))),
            Ok((runs, opened)) => Ok(believed(log, &opened)?.map(|Note { moment, kept, accounts }| {
                (Self::of(runs, Notes::new(moment.clone(), kept, accounts)), Some(moment))
            })),
            Err(RunsError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// An empty one without a folder.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub(crate) fn in_memory(log: &dyn Log, config: &Config) -> Result<Self, KvError> {
        let (runs, _) = Runs::in_memory(config.ledger())?;
        Ok(Self::empty(runs, log))
    }

    fn empty(runs: Runs, log: &dyn Log) -> Self {
        let accounts = Accounts::new(log.stretch_bytes().unwrap_or(CELL_BYTES));
        Self::of(runs, Notes::new(Moment::default(), [0; 2], accounts))
    }

    fn of(runs: Runs, notes: Notes) -> Self {
        let (entry, published) = (AtomicU64::new(notes.durable.entry.0), AtomicU64::new(notes.durable.end.0));
        let unknown = Unknown::default();
        if runs.debt().level0_runs > 0 {
            unknown.one_more();
        }
        Self {
            runs,
            notes: Mutex::new(notes),
            laying: Mutex::default(),
            entry,
            published,
            made: Default::default(),
            time: OnceLock::new(),
            space: Space::default(),
            unknown,
            flushes: Flushes::default(),
        }
    }

    /// Everything that ends here or before is visible, nothing else.
    pub(crate) fn published(&self) -> Lsn {
        Lsn(self.published.load(Ordering::Acquire))
    }

    /// One entry becomes visible, whole. One writer at a time.
    ///
    /// # Errors
    /// As the map says; what is refused has not become visible.
    pub(crate) fn apply(&self, entry: Lsn, end: Lsn, effects: &[Effect]) -> Result<(), RunsError> {
        if !effects.is_empty() {
            // One writer at a time: nobody waits for it.
            let mut memory = self.laying.lock().unwrap_or_else(PoisonError::into_inner);
            let laid = Laid::of(effects, std::mem::take(&mut memory));
            self.runs.apply(end.0, &laid.changes())?;
            *memory = laid.into_memory();
            memory.shrink_to(LAYING_BYTES);
            drop(memory);
            for place in effects.iter().filter_map(Effect::place) {
                let [keys, bytes] = &self.made;
                keys.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(place.value_bytes.into(), Ordering::Relaxed);
            }
        }
        self.entry.store(entry.0, Ordering::Release);
        self.published.store(end.0, Ordering::Release);
        Ok(())
    }

    /// From now on merges bury what has expired.
    pub(crate) fn tell_time(&self, time: &Arc<Time>) {
        _ = self.time.set(Arc::clone(time));
    }

    /// A key now, expired or not.
    ///
    /// # Errors
    /// As the disk says; `Corrupt`, naming the file, if a block that is needed is damaged. So for all below.
    pub(crate) fn find(&self, keyspace: u32, key: &[u8]) -> Result<Option<Head>, KvError> {
        with_laid_key(keyspace, key, |laid| self.runs.look(laid, head))?.transpose()
    }

    /// The same, and its value if that is kept beside its row: one look for both.
    pub(crate) fn find_with_value(&self, keyspace: u32, key: &[u8]) -> Result<Option<WithValue>, KvError> {
        let both = |seq, row: &[u8], beside: &[u8]| head(seq, row).map(|head| (whole(&head.place, beside), head));
        let found = with_laid_key(keyspace, key, |laid| self.runs.look_beside(laid, both))?.transpose()?;
        Ok(found.map(|(value, head)| (head, value)))
    }

    /// The same of one that is not `over`, for whoever wants the value alone: most heads are not even laid.
    pub(crate) fn find_value(
        &self,
        keyspace: u32,
        key: &[u8],
        over: impl Fn(&Place) -> bool,
    ) -> Result<Option<Found>, KvError> {
        let value = |seq, row: &[u8], beside: &[u8]| {
            let (place, metadata) = split(seq, row)?;
            if over(&place) {
                return Ok::<_, KvError>(None);
            }
            let kept = whole(&place, beside).map(Found::Kept);
            Ok(Some(kept.unwrap_or_else(|| Found::Elsewhere(Box::new(laid(seq, place, metadata))))))
        };
        Ok(with_laid_key(keyspace, key, |laid| self.runs.look_beside(laid, value))?.transpose()?.flatten())
    }

    /// The value of a row, if it is kept beside it.
    pub(crate) fn kept(&self, keyspace: u32, key: &[u8], head: &Head) -> Option<Vec<u8>> {
        let kept = || {
            with_laid_key(keyspace, key, |laid| {
                self.runs.beside(laid, head.committed.0, |value| whole(&head.place, value))
            })
        };
        if head.is_small() { kept().flatten() } else { None }
    }

    /// Keeps the value of a row, which was right, if it is small and somebody asks for it again.
    pub(crate) fn keep(&self, keyspace: u32, key: &[u8], head: &Head, value: &[u8]) {
        if head.is_small() {
            with_laid_key(keyspace, key, |laid| self.runs.keep_beside(laid, head.committed.0, value));
        }
    }

    /// The map as it is now, until dropped; `time`: what has expired by then is not there.
    pub(crate) fn view(&self, time: u64) -> View {
        View::of(self.runs.view(), time, self.time.get().cloned())
    }

    /// Closes what is in memory, so that the next step writes it out; `moment` is what holds at its end, which is now.
    /// Whether there was anything. Not while an earlier part waits and this one is smaller than `least` bytes: each part costs
    /// memory of its own.
    pub(crate) fn close_memory(&self, least: u64, moment: impl FnOnce(Lsn, Lsn) -> Moment) -> bool {
        let (entry, end) = (Lsn(self.entry.load(Ordering::Acquire)), self.published());
        let active = self.runs.debt().active_bytes;
        let mut notes = self.notes();
        let last = notes.closed.back().map_or(notes.durable.end, |moment| moment.end);
        if end <= last || (!notes.closed.is_empty() && active < least) {
            return false;
        }
        notes.closed.push_back(Moment { made: self.made(), ..moment(entry, end) });
        // Also where no row has changed: the next open shall not replay what it need not.
        self.runs.rotate(end.0);
        true
    }

    /// Whether something is closed and not yet written out.
    pub(crate) fn has_closed(&self) -> bool {
        !self.notes().closed.is_empty()
    }

    /// The next open replays from here.
    pub(crate) fn durable(&self) -> Lsn {
        self.notes().durable.end
    }

    pub(crate) const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Whether a look-up in the files costs little: most of what it reads is kept in memory.
    pub(crate) fn is_near_memory(&self) -> bool {
        self.files_bytes() <= self.runs.cache_bytes_max().saturating_mul(2)
    }

    /// Bytes of its files.
    pub(crate) fn files_bytes(&self) -> u64 {
        self.runs.facts().bytes
    }

    /// How much there is. Waits for a commit of the map: nobody who holds a lock that it needs may ask.
    pub(crate) fn held(&self) -> Held {
        let facts = self.runs.facts();
        let notes = self.notes();
        let add = |at: usize| {
            let of = |counts: &[u64; 2]| counts.get(at).copied().unwrap_or_default();
            of(&notes.kept).saturating_add(of(&self.made()).saturating_sub(of(&notes.durable.made)))
        };
        Held { keys: add(0), value_bytes: add(1), runs: facts.runs, runs_bytes: facts.bytes }
    }

    /// Bytes of values that this opening has made visible, those that it replayed among them.
    pub(crate) fn made_bytes(&self) -> u64 {
        let [_, bytes] = self.made();
        bytes
    }

    fn made(&self) -> [u64; 2] {
        self.made.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Reads all of the map's files, until it is told to stop; answers how many.
    pub(crate) fn verify(&self, is_stopped: &dyn Fn() -> bool, told: &mut dyn FnMut(&RunsError)) -> u64 {
        self.runs.verify_until(is_stopped, told).runs
    }

    /// Bytes that only memory has.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.runs.memory_bytes()
    }

    /// Whether nothing can be written out any more before it is opened again.
    pub(crate) fn is_closed(&self) -> bool {
        self.runs.is_closed()
    }

    /// In what the journal is counted.
    pub(crate) fn cell_bytes(&self) -> u64 {
        self.notes().accounts.cell_bytes()
    }

    /// What lives where, as the newest manifest says.
    pub(crate) fn accounts(&self) -> Accounts {
        self.notes().accounts.clone()
    }

    /// The same, as it will be once what is known to be superseded is booked out: to choose by, not to count.
    pub(crate) fn expected(&self) -> Accounts {
        self.notes().accounts.expected()
    }

    /// What a key became last, as far as that is known: when, and its place if it has a value. Not as of a view: now.
    pub(crate) fn newest(&self, keyspace: u32, key: &[u8]) -> Result<Option<(u64, Option<Place>)>, KvError> {
        with_laid_key(keyspace, key, |laid| self.runs.newest(laid, placed))?.transpose()
    }

    /// The same for many keys in their order, as of now.
    pub(crate) fn in_order(&self) -> Rows {
        Rows(self.runs.view().in_order_ahead())
    }

    /// Bytes that the accounts count for the write that is asked about, if a file of the map still has its row: it will leave.
    pub(crate) fn written_bytes(&self, asked: &Asked<'_>) -> Result<u64, KvError> {
        let (key, mut bytes) = (laid_key(asked.keyspace, asked.key), 0);
        for row in self.runs.view().written(&key)? {
            let Some(value) = row.value else { continue };
            let place = place(row.seq, &value)?;
            if (place.entry.0, place.at) == (asked.address.lsn, asked.address.at) {
                bytes += laid_bytes(&key, &place);
            }
        }
        Ok(bytes)
    }

    /// What an open may still need, whichever manifest it believes.
    pub(crate) fn settled(&self) -> Settled {
        let Notes { durable, older_needs, older_replaced, replaced, .. } = &*self.notes();
        Settled { needs: durable.needs().min(*older_needs), agreed: *older_replaced == Some(*replaced) }
    }

    /// Bookings that did not fit, and the first of them.
    pub(crate) fn broken(&self) -> (u64, Option<VaultError>) {
        let notes = self.notes();
        (notes.broken, notes.first_broken.clone())
    }

    /// Commits that what was compacted is read from the new volume; none: commits the same note again, so that both manifests say
    /// the same.
    ///
    /// # Errors
    /// As the disk says; nothing has changed then, but with `Closed`, where nobody knows.
    pub(crate) fn renote(&self, compacted: Option<&Compacted>) -> Result<(), KvError> {
        let (next, refused) = (Cell::new(None), Cell::new(None));
        let note = || {
            let notes = self.notes();
            let mut accounts = notes.accounts.clone();
            // All of it or nothing: where it does not fit, the note stays as it is.
            refused.set(compacted.and_then(|compacted| match accounts.replace(compacted) {
                Ok(()) if notes.broken > 0 => {
                    accounts.recount(compacted);
                    None
                }
                replaced => replaced.err(),
            }));
            let laid = notes.lay(&accounts);
            next.set(Some(accounts));
            laid
        };
        self.runs.renote(note, || {
            if let Some(accounts) = next.take() {
                let mut notes = self.notes();
                notes.committed(accounts);
                notes.replaced += u64::from(compacted.is_some());
                let raw_from = notes.accounts.raw_from();
                notes.dead.go_on(raw_from);
            }
        })?;
        refused.take().map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// Writes the oldest closed part of the memory out; whether there was one. Nothing becomes durable here before the
    /// journal is.
    ///
    /// # Errors
    /// As the disk or the journal says. Nothing has changed then.
    pub(crate) fn flush(&self, log: &dyn Log) -> Result<bool, KvError> {
        self.before_a_commit(log)?;
        let owner = Clerk { ledger: self, log };
        let flushed = self.runs.flush(&owner, &AtOnce)?.is_some();
        if flushed && log.stretch_bytes().is_some() {
            // Kept by the journal until somebody releases it: it only leaves what an open examines. What fails is tried again.
            _ = log.trim(self.settled().needs);
        }
        Ok(flushed)
    }

    /// Bytes that only snapshots keep in memory.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.runs.pinned_bytes()
    }

    /// What waits to be written out and merged.
    pub(crate) fn debt(&self) -> Debt {
        self.runs.debt()
    }

    /// What is visible may be only in the kernel: the map must not know more than the disk. And a note says of which journal
    /// it is.
    fn before_a_commit(&self, log: &dyn Log) -> Result<(), KvError> {
        let (behind, unread) = {
            let notes = self.notes();
            let unread = notes.closed.iter().find(|moment| moment.hash.is_none()).map(|moment| moment.entry);
            (notes.closed.back().map(|moment| moment.end), unread)
        };
        if behind.is_some_and(|end| log.durable() < end) {
            log.sync()?;
        }
        let Some(entry) = unread else { return Ok(()) };
        let hash = xxh3_64(&log.read_at(entry)?.payload);
        let mut notes = self.notes();
        notes.closed.iter_mut().filter(|moment| moment.entry == entry).for_each(|moment| moment.hash = Some(hash));
        Ok(())
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a note says, if it is one of this journal's.
///
/// # Errors
/// As the disk says: what cannot be read now is not another journal's for that.
fn believed(log: &dyn Log, opened: &Opened) -> Result<Option<Note>, KvError> {
    let Ok(note) = Note::read(&opened.note) else { return Ok(None) };
    let moment = &note.moment;
    if moment.end.0 != opened.applied || moment.end > log.end() {
        return Ok(None);
    }
    match log.read_at(moment.entry) {
        Ok(entry) if Some(xxh3_64(&entry.payload)) == moment.hash => Ok(Some(note)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// As [`laid_key`], on the stack where the key is short: a look-up allocates for what it finds, and for nothing else.
pub(crate) fn with_laid_key<R>(keyspace: u32, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
    let mut short = [0; SHORT_KEY_BYTES];
    let Some(laid) = short.get_mut(..4 + key.len()) else { return then(&laid_key(keyspace, key)) };
    let (front, back) = laid.split_at_mut(4);
    front.copy_from_slice(&keyspace.to_be_bytes());
    back.copy_from_slice(key);
    then(laid)
}

/// Look-ups of many keys in their order, as of one moment.
pub(crate) struct Rows(InOrder);

impl Rows {
    /// As [`Ledger::newest`].
    pub(crate) fn newest(&mut self, keyspace: u32, key: &[u8]) -> Result<Option<(u64, Option<Place>)>, KvError> {
        with_laid_key(keyspace, key, |laid| self.0.newest(laid, placed))?.transpose()
    }
}

fn placed(seq: u64, row: Option<&[u8]>) -> Result<(u64, Option<Place>), KvError> {
    let place = row.map(|row| place(seq, row)).transpose()?;
    Ok((seq, place))
}

pub(crate) fn laid_key(keyspace: u32, key: &[u8]) -> Vec<u8> {
    let mut laid = Vec::with_capacity(4 + key.len());
    laid.extend_from_slice(&keyspace.to_be_bytes());
    laid.extend_from_slice(key);
    laid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_laid_the_same_on_the_stack_and_elsewhere() {
        for length in [0, 1, SHORT_KEY_BYTES - 4, SHORT_KEY_BYTES - 3, 1000] {
            let key: Vec<u8> = (0..=255).cycle().take(length).collect();
            with_laid_key(0x0102_0304, &key, |laid| assert_eq!(laid, laid_key(0x0102_0304, &key)));
        }
    }
}
