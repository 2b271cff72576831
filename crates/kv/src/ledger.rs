//! The ledger: key to place, in an ordered map of its own that survives restarts; values stay in the journal.
//!
//! ```text
//!   row   keyspace 4 (big endian), key  ->  version 2, entry 8, hash 8, at 4, value length 4, modified 8, expiry 8,
//!                                             metadata length 2, metadata
//!   note  what the map cannot say of the moment up to which it is durable: the last entry then, branches, outcomes
//! ```
//! Walk: [`Ledger::open`] finds what was durable and says from where to replay · [`Ledger::apply`] makes one journal entry
//! visible, whole · [`Ledger::find`], [`crate::view::View::find`] are a key now or as of a view · [`Ledger::close_memory`] bounds the next
//! replay, [`Ledger::flush`] writes it out, [`Ledger::merge`] merges.
//! A row is known by the end of the entry that committed it, so "as of P" is: every entry that ends at or before P.
//! Deliberately absent: values, locks of writers, the journal's meaning of a branch.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};
use assent_journal::Log;
use assent_kind::Kind;
use assent_runs::{AtOnce, Change, Debt, Entry, Fate, Opened, Owner, Pace, Runs, RunsError, Step, Tally};
use assent_world::Disk;
use xxhash_rust::xxh3::xxh3_64;

use crate::KvError;
use crate::config::Config;
use crate::finished::{Row, lay_row, read_row};
use crate::record::{Became, Effect, Place, lay_xid, read_xid};
use crate::time::{Time, is_over};
use crate::view::View;

const ROW_VERSION: u8 = 2;
/// Goes with the rows': an older ledger is built anew.
const NOTE_VERSION: u8 = 2;
const ROW_HEAD_BYTES: usize = 43;

/// What is known of a key without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) place: Place,
    pub(crate) metadata: Vec<u8>,
    /// Where the entry ends that made it so.
    pub(crate) committed: Lsn,
}

/// What replay cannot find out from the map's rows, as of a place in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The last entry: where it begins and where it ends.
    pub(crate) entry: Lsn,
    pub(crate) end: Lsn,
    /// Prepared branches and where their records begin.
    pub(crate) prepared: Vec<(Xid, Lsn)>,
    /// Of the finished ones: see [`crate::finished::Finished`].
    pub(crate) floor: Lsn,
    pub(crate) finished: Vec<Row>,
    /// Puts and bytes of their values that this opening had made visible by then.
    pub(crate) made: [u64; 2],
    /// XXH3-64 of the last entry's payload, once somebody has read it: whose journal this is.
    pub(crate) hash: Option<u64>,
}

/// How much the ledger has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) keys: u64,
    pub(crate) value_bytes: u64,
    pub(crate) runs: u64,
    pub(crate) runs_bytes: u64,
}

/// What an opening found.
pub(crate) struct Found {
    pub(crate) ledger: Ledger,
    /// None: the map was empty, or could not be believed; replay everything.
    pub(crate) moment: Option<Moment>,
    /// Whether there was one that could not be believed.
    pub(crate) is_rebuilt: bool,
}

/// The map and what its next notes will say.
#[derive(Debug)]
pub(crate) struct Ledger {
    runs: Runs,
    notes: Mutex<Notes>,
    /// The last visible entry, and where it ends.
    entry: AtomicU64,
    published: AtomicU64,
    /// Puts that this opening has made visible, and the bytes of their values.
    made: [AtomicU64; 2],
    /// Once it is known, what has expired is buried.
    time: OnceLock<Arc<Time>>,
}

#[derive(Debug, Default)]
struct Notes {
    /// One for each part of the memory that is closed and not yet written out, the oldest first.
    closed: VecDeque<Moment>,
    /// What the map is durable up to.
    durable: Moment,
    /// Puts that its runs have, and the bytes of their values.
    kept: [u64; 2],
}

impl Ledger {
    /// Opens the map in its folder. One that is damaged, or of another journal, is emptied: the journal has everything.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn open(
        log: &dyn Log,
        disk: &Arc<dyn Disk>,
        folder: &Path,
        config: &Config,
        read_only: bool,
    ) -> Result<Found, KvError> {
        let open = || -> Result<(Runs, Opened), RunsError> {
            let config = config.ledger();
            if read_only {
                Runs::open_read_only(Arc::clone(disk), folder, config)
            } else {
                Runs::open(Arc::clone(disk), folder, config)
            }
        };
        let fresh = || -> Result<(Runs, Opened), RunsError> {
            let config = config.ledger();
            if read_only { Runs::in_memory(config) } else { Runs::create(Arc::clone(disk), folder, config) }
        };
        let (runs, moment, is_rebuilt) = match open() {
            Ok((runs, opened)) if opened.applied == 0 => (runs, None, false),
            Ok((runs, opened)) => match believed(log, &opened)? {
                Some(moment) => (runs, Some(moment), false),
                None => {
                    drop(runs);
                    (fresh()?.0, None, true)
                }
            },
            Err(RunsError::Damaged { .. }) => (fresh()?.0, None, true),
            Err(error) => return Err(error.into()),
        };
        let (moment, kept) = moment.unzip();
        let (durable, kept) = (moment.clone().unwrap_or_default(), kept.unwrap_or_default());
        let (entry, published) = (AtomicU64::new(durable.entry.0), AtomicU64::new(durable.end.0));
        let notes = Mutex::new(Notes { closed: VecDeque::new(), durable, kept });
        Ok(Found {
            ledger: Self { runs, notes, entry, published, made: Default::default(), time: OnceLock::new() },
            moment,
            is_rebuilt,
        })
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
            let rows: Vec<Laid> = effects.iter().map(row).collect();
            let changes: Vec<Change<'_>> = rows.iter().map(Laid::change).collect();
            self.runs.apply(end.0, &changes)?;
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
        let found = self.runs.get(&laid_key(keyspace, key))?;
        found.map(|found| head(found.seq, &found.value)).transpose()
    }

    /// The map as it is now, until dropped; `time`: what has expired by then is not there.
    pub(crate) fn view(&self, time: u64) -> View {
        View::of(self.runs.view(), time)
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

    fn made(&self) -> [u64; 2] {
        self.made.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Bytes that only memory has.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.runs.memory_bytes()
    }

    /// Whether nothing can be written out any more before it is opened again.
    pub(crate) fn is_closed(&self) -> bool {
        self.runs.is_closed()
    }

    /// Writes the oldest closed part of the memory out; whether there was one. Nothing becomes durable here before the
    /// journal is.
    ///
    /// # Errors
    /// As the disk or the journal says. Nothing has changed then.
    pub(crate) fn flush(&self, log: &dyn Log) -> Result<bool, KvError> {
        self.before_a_commit(log)?;
        let owner = Clerk { ledger: self, log };
        Ok(self.runs.flush(&owner, &AtOnce)?.is_some())
    }

    /// Does the most urgent piece of work that is no flush; whether there was any. A flush may be under way meanwhile. What it
    /// commits is of entries that are durable already.
    ///
    /// # Errors
    /// As the disk says; `Corrupt`, naming the file, if what it had to read is damaged. Nothing has changed then.
    pub(crate) fn merge(&self, log: &dyn Log, pace: &dyn Pace) -> Result<bool, KvError> {
        let owner = Clerk { ledger: self, log };
        Ok(self.runs.merge(&owner, pace)?.is_some_and(|step| step != Step::Stopped))
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

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the map what to note.
struct Clerk<'a> {
    ledger: &'a Ledger,
    log: &'a dyn Log,
}

impl Owner for Clerk<'_> {
    fn durable(&self) -> u64 {
        self.log.durable().0
    }

    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::new(Count { clerk: self, comes: [0; 2], goes: [0; 2], applied: Lsn::ZERO })
    }
}

struct Count<'a> {
    clerk: &'a Clerk<'a>,
    /// Puts and bytes of their values that come, and that go.
    comes: [u64; 2],
    goes: [u64; 2],
    /// What the note was asked for.
    applied: Lsn,
}

impl Count<'_> {
    fn kept(&self, kept: [u64; 2]) -> [u64; 2] {
        std::array::from_fn(|at| {
            let of = |counts: &[u64; 2]| counts.get(at).copied().unwrap_or_default();
            of(&kept).saturating_add(of(&self.comes)).saturating_sub(of(&self.goes))
        })
    }

    fn count(counts: &mut [u64; 2], entry: &Entry<'_>) {
        // A row that cannot be read is told to whoever asks for its key.
        let Some(Ok(head)) = entry.value.map(|row| head(entry.seq, row)) else { return };
        let [keys, bytes] = counts;
        *keys += 1;
        *bytes += u64::from(head.place.value_bytes);
    }
}

impl Tally for Count<'_> {
    fn enters(&mut self, entry: &Entry<'_>) {
        Self::count(&mut self.comes, entry);
    }

    fn leaves(&mut self, entry: &Entry<'_>) {
        Self::count(&mut self.goes, entry);
    }

    fn judge(&mut self, entry: &Entry<'_>) -> Fate {
        let Some(Ok(Head { place: Place { expiry, .. }, .. })) = entry.value.map(|row| head(entry.seq, row)) else {
            return Fate::Keep;
        };
        let is_over = |time: &Arc<Time>| expiry != 0 && is_over(expiry, time.now_ms());
        if self.clerk.ledger.time.get().is_some_and(is_over) { Fate::Bury } else { Fate::Keep }
    }

    fn note(&mut self, applied: u64) -> Vec<u8> {
        let notes = self.clerk.ledger.notes();
        let moment = notes.closed.iter().rev().find(|moment| moment.end.0 <= applied).unwrap_or(&notes.durable);
        self.applied = Lsn(applied);
        lay_note(moment, self.kept(notes.kept), moment.hash.unwrap_or_default())
    }

    fn committed(self: Box<Self>) {
        let mut notes = self.clerk.ledger.notes();
        notes.kept = self.kept(notes.kept);
        while notes.closed.front().is_some_and(|moment| moment.end <= self.applied) {
            notes.durable = notes.closed.pop_front().unwrap_or_default();
        }
    }
}

/// What a note says, if it is one of this journal's.
///
/// # Errors
/// As the disk says: what cannot be read now is not another journal's for that.
fn believed(log: &dyn Log, opened: &Opened) -> Result<Option<(Moment, [u64; 2])>, KvError> {
    let Ok((mut moment, kept, hash)) = read_note(&opened.note) else { return Ok(None) };
    if moment.end.0 != opened.applied || moment.end > log.end() {
        return Ok(None);
    }
    match log.read_at(moment.entry) {
        Ok(entry) if xxh3_64(&entry.payload) == hash => {
            moment.hash = Some(hash);
            Ok(Some((moment, kept)))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn laid_key(keyspace: u32, key: &[u8]) -> Vec<u8> {
    let mut laid = Vec::with_capacity(4 + key.len());
    laid.extend_from_slice(&keyspace.to_be_bytes());
    laid.extend_from_slice(key);
    laid
}

/// An effect as the map takes it.
struct Laid {
    key: Vec<u8>,
    to: To,
}

enum To {
    Value(Vec<u8>),
    Nothing,
    Erased { to: Option<Vec<u8>> },
}

impl Laid {
    fn change(&self) -> Change<'_> {
        match &self.to {
            To::Value(value) => Change::Put { key: &self.key, value },
            To::Nothing => Change::Delete { key: &self.key },
            To::Erased { to } => Change::Erase { from: &self.key, to: to.as_deref() },
        }
    }
}

fn row(effect: &Effect) -> Laid {
    let to = match &effect.became {
        Became::Value { place, metadata } => {
            let mut laid = Writer::behind(Vec::with_capacity(ROW_HEAD_BYTES + metadata.len()));
            laid.u8(ROW_VERSION).u64(place.entry.0).u64(place.hash).u32(place.at).u32(place.value_bytes);
            laid.u64(place.modified).u64(place.expiry).u16(place.metadata_bytes).raw(metadata);
            To::Value(laid.into_vec())
        }
        Became::Nothing => To::Nothing,
        Became::Erased { to: Some(to) } => To::Erased { to: Some(laid_key(effect.keyspace, to)) },
        Became::Erased { to: None } => To::Erased { to: behind(effect.keyspace) },
    };
    Laid { key: laid_key(effect.keyspace, &effect.key), to }
}

/// The first key behind a keyspace.
pub(crate) fn behind(keyspace: u32) -> Option<Vec<u8>> {
    keyspace.checked_add(1).map(|next| laid_key(next, b""))
}

pub(crate) fn head(seq: u64, row: &[u8]) -> Result<Head, KvError> {
    let read = || -> Result<Head, Malformed> {
        let mut reader = Reader::new(row);
        if reader.u8("version")? != ROW_VERSION {
            return Err(Malformed { field: "version" });
        }
        let entry = Lsn(reader.u64("entry")?);
        let hash = reader.u64("hash")?;
        let at = reader.u32("place")?;
        let value_bytes = reader.u32("value length")?;
        let (modified, expiry) = (reader.u64("modified")?, reader.u64("expiry")?);
        let metadata_bytes = reader.u16("metadata length")?;
        let metadata = reader.raw(metadata_bytes.into(), "metadata")?.to_vec();
        reader.end()?;
        let place = Place { entry, hash, at, value_bytes, metadata_bytes, modified, expiry };
        Ok(Head { place, metadata, committed: Lsn(seq) })
    };
    read().map_err(|malformed| KvError::Row { committed: Lsn(seq), what: malformed.to_string() })
}

fn lay_note(moment: &Moment, kept: [u64; 2], hash: u64) -> Vec<u8> {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut note = Writer::new();
    note.u8(NOTE_VERSION).u64(moment.entry.0).u64(moment.end.0).u64(hash).u64(moment.floor.0);
    kept.iter().for_each(|count| _ = note.u64(*count));
    note.u32(count(moment.prepared.len()));
    for (xid, entry) in &moment.prepared {
        lay_xid(note.u64(entry.0), xid);
    }
    note.u32(count(moment.finished.len()));
    moment.finished.iter().for_each(|row| lay_row(&mut note, row));
    note.into_vec()
}

fn read_note(bytes: &[u8]) -> Result<(Moment, [u64; 2], u64), Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8("version")? != NOTE_VERSION {
        return Err(Malformed { field: "version" });
    }
    let (entry, end) = (Lsn(reader.u64("entry")?), Lsn(reader.u64("end")?));
    let hash = reader.u64("hash")?;
    let floor = Lsn(reader.u64("floor")?);
    let kept = [reader.u64("keys")?, reader.u64("value bytes")?];
    let mut moment = Moment { entry, end, floor, ..Moment::default() };
    for _ in 0..reader.u32("prepared")? {
        let entry = Lsn(reader.u64("entry")?);
        moment.prepared.push((read_xid(&mut reader)?, entry));
    }
    for _ in 0..reader.u32("finished")? {
        moment.finished.push(read_row(&mut reader)?);
    }
    reader.end()?;
    Ok((moment, kept, hash))
}

#[cfg(test)]
mod tests {
    use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId};

    use super::*;
    use crate::branch::Ending;
    use crate::keyed::Key;

    fn branch(counter: u64) -> Branch {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
        Branch { node: NodeId(7), tx, resource: ResourceId::of("kv"), number: 0, flags: 0 }
    }

    #[test]
    fn rows_and_notes_come_back_as_they_were_laid() {
        let place =
            Place { entry: Lsn(64), hash: 5, at: 24, value_bytes: 10, metadata_bytes: 4, modified: 6, expiry: 7 };
        let became = Became::Value { place, metadata: b"meta"[..].into() };
        let laid = row(&Effect { keyspace: 3, key: b"k"[..].into(), became });
        let Change::Put { key: b"\0\0\0\x03k", value } = laid.change() else { panic!("{:?}", laid.change()) };
        let read = head(9, value).unwrap();
        let erased = |keyspace, to: Option<&[u8]>| {
            row(&Effect { keyspace, key: b"k"[..].into(), became: Became::Erased { to: to.map(Key::from) } })
        };
        let ends = |laid: &Laid| match laid.change() {
            Change::Erase { to, .. } => to.map(<[u8]>::to_vec),
            change => panic!("{change:?}"),
        };
        assert_eq!(ends(&erased(3, Some(b"m"))), Some(b"\0\0\0\x03m".to_vec()));
        assert_eq!(ends(&erased(3, None)), Some(b"\0\0\0\x04".to_vec()));
        assert_eq!(ends(&erased(u32::MAX, None)), None);
        assert_eq!(read, Head { place, metadata: b"meta".to_vec(), committed: Lsn(9) });
        let row = Row { lsn: Lsn(5), branch: branch(2), ending: Ending::Rollback };
        let prepared = vec![(branch(1).xid(), Lsn(8))];
        let moment = Moment {
            entry: Lsn(8),
            end: Lsn(80),
            prepared,
            floor: Lsn(3),
            finished: vec![row],
            made: [0; 2],
            hash: None,
        };
        let note = lay_note(&moment, [3, 30], 77);
        assert_eq!(read_note(&note).unwrap(), (moment, [3, 30], 77));
        for end in 0..note.len() {
            assert!(read_note(&note[..end]).is_err(), "{end}");
        }
    }
}
