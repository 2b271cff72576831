//! The index: names of documents, and for each revision where its commit stands. Derived: the journal has everything.
//!
//! ```text
//!   'n' name                  -> version 2, document (varint), versioning 2
//!   'r' document 8, revision 4 (big endian) -> version 2, entry 6, time 6, hash 8, author (length 1), message (all that is left)
//!   'p' xid                   -> version 2, entry 6: it is prepared there and has no outcome
//!   't' document 8, tag       -> version 2, revision 4
//!   'k' document 8            -> version 2, next node key (varint): not below this, once revisions were dropped
//!   'i', 'j'                  -> requests that were done, and which may go (`once`)
//!   note                      -> version 2, last entry 8, its end 8, its hash 8, next document 8
//! ```
//! Walk: [`Index::open`] says from where to replay · [`Index::apply`] makes one journal entry visible · [`Index::name`],
//! [`Index::row`], [`Index::newest`], [`Index::rows`] look · [`Index::close_memory`] and [`Index::flush`] bound the next replay.
//! Deliberately absent: the order of commits, which is the database's.

mod once;
mod rows;
mod tags;

use std::collections::VecDeque;
use std::ops::{Bound, RangeInclusive};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};
use assent_journal::Log;
use assent_kind::Kind;
use assent_runs::{AtOnce, Change, Entry as Run, Opened, Owner, Runs, RunsError, Tally, View};
use assent_world::Disk;
use xxhash_rust::xxh3::xxh3_64;

use self::rows::{
    Keys, floor_key, lay_named, lay_row, name_key, read_floor, read_named, read_prepared, read_row, read_told, row_key,
    xid_key,
};
use self::tags::tag_key;
use crate::Told;
use crate::act::{Truncation, read_xid};
use crate::entry::Root;
use crate::once::Once;
use crate::place::{Entry, lay_lsn};
use crate::versioning::Versioning;
use crate::{DocsError, varint};

const VERSION: u8 = 2;
/// What the index's memory may take, as a multiple of what it is written out at. Commits wait before; what is durable by then waits until
/// there is room.
const MEMORY_TIMES_MAX: u64 = 8;

/// A document, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) document: u64,
    pub(crate) versioning: Versioning,
}

/// A revision, without its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) revision: u32,
    pub(crate) entry: Entry,
    pub(crate) time_ms: u64,
    /// The XXH3-64 of the entry's payload.
    pub(crate) hash: u64,
    pub(crate) author: String,
    pub(crate) message: String,
}

/// What one journal entry means to the index.
#[derive(Clone, Debug)]
pub(crate) enum Effect<'a> {
    Created(&'a str, Named),
    /// With the request that was done by it.
    Dropped(&'a str, u64, Option<&'a Once>),
    Committed(&'a Root),
    /// A document of this number goes, and another one comes under its name, with its first revision.
    Replaced(u64, &'a str, Named, &'a Root),
    Truncated(&'a Truncation),
    Prepared(&'a Xid, Entry),
    /// The tag of a document's revision; none: it has no such tag any more.
    Tagged(u64, &'a str, Option<u32>),
    /// With the revisions that are committed by it: none at a rollback.
    Ended(&'a Xid, &'a [Root]),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moment {
    entry: Lsn,
    end: Lsn,
    next_document: u64,
    hash: Option<u64>,
}

impl Moment {
    /// Nothing is in the index yet.
    fn first(log: &dyn Log) -> Self {
        Self { next_document: 1, end: log.oldest(), ..Self::default() }
    }
}

fn sizes(memory_bytes: u64) -> assent_runs::Config {
    let memory_bytes_max = memory_bytes.saturating_mul(MEMORY_TIMES_MAX);
    assent_runs::Config { memory_bytes_max, settles_late: true, ..assent_runs::Config::default() }
}

#[derive(Debug, Default)]
struct Notes {
    /// One for each part of the memory that is closed and not yet written out, the oldest first.
    closed: VecDeque<Moment>,
    durable: Moment,
}

#[derive(Debug)]
pub(crate) struct Index {
    runs: Runs,
    notes: Mutex<Notes>,
    entry: AtomicU64,
    published: AtomicU64,
    next_document: AtomicU64,
}

impl Index {
    /// Opens the index; replay begins at [`Index::published`]. One that is damaged, or of another journal, begins anew.
    ///
    /// # Errors
    /// As the disk or the journal says.
    pub(crate) fn open(
        log: &dyn Log,
        disk: &Arc<dyn Disk>,
        folder: &Path,
        memory_bytes: u64,
    ) -> Result<(Self, bool), DocsError> {
        match Runs::open(Arc::clone(disk), folder, sizes(memory_bytes)) {
            Ok((runs, opened)) if opened.applied == 0 => return Ok((Self::of(runs, Moment::first(log)), false)),
            Ok((runs, opened)) => {
                if let Some(moment) = believed(log, &opened)? {
                    return Ok((Self::of(runs, moment), false));
                }
            }
            Err(RunsError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok((Self::create(log, disk, folder, memory_bytes)?, true))
    }

    /// Begins it anew, whatever was there.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn create(
        log: &dyn Log,
        disk: &Arc<dyn Disk>,
        folder: &Path,
        memory_bytes: u64,
    ) -> Result<Self, DocsError> {
        let (runs, _) = Runs::create(Arc::clone(disk), folder, sizes(memory_bytes))?;
        Ok(Self::of(runs, Moment::first(log)))
    }

    fn of(runs: Runs, durable: Moment) -> Self {
        Self {
            runs,
            notes: Mutex::new(Notes { closed: VecDeque::new(), durable }),
            entry: AtomicU64::new(durable.entry.0),
            published: AtomicU64::new(durable.end.0),
            next_document: AtomicU64::new(durable.next_document),
        }
    }

    /// Everything that ends here or before is visible.
    pub(crate) fn published(&self) -> Lsn {
        Lsn(self.published.load(Ordering::Acquire))
    }

    /// One entry becomes visible. One writer at a time.
    ///
    /// # Errors
    /// As the map says; what is refused has not become visible.
    pub(crate) fn apply(&self, entry: Lsn, end: Lsn, effect: &Effect<'_>) -> Result<(), RunsError> {
        match effect {
            Effect::Created(name, named) => {
                let put = Change::Put { key: &name_key(name), value: &lay_named(*named) };
                self.runs.apply(end.0, &[put])?;
                self.made(*named);
            }
            Effect::Dropped(name, document, once) => {
                let (name, keys) = (name_key(name), Keys::of(*document));
                let gone = keys.gone().into_iter().chain([Change::Delete { key: &name }]);
                let done = Self::dropped_rows(*document, *once);
                self.runs.apply(end.0, &gone.chain(once::changes(&done)).collect::<Vec<_>>())?;
            }
            Effect::Replaced(gone, name, named, root) => {
                let (name, value, keys) = (name_key(name), lay_named(*named), Keys::of(*gone));
                let (key, row) = (row_key(root.document, root.revision), lay_row(root));
                let put = [Change::Put { key: &name, value: &value }, Change::Put { key: &key, value: &row }];
                let done = self.done_rows(&[root]);
                let changes = keys.gone().into_iter().chain(put).chain(once::changes(&done));
                self.runs.apply(end.0, &changes.collect::<Vec<_>>())?;
                self.made(*named);
            }
            Effect::Tagged(document, tag, revision) => {
                let key = tag_key(*document, tag);
                let row = [&[VERSION], revision.unwrap_or_default().to_le_bytes().as_slice()].concat();
                let change = match revision {
                    Some(_) => Change::Put { key: &key, value: &row },
                    None => Change::Delete { key: &key },
                };
                self.runs.apply(end.0, &[change])?;
            }
            Effect::Prepared(xid, entry) => {
                let mut row = vec![VERSION];
                lay_lsn(&mut row, entry.laid());
                self.runs.apply(end.0, &[Change::Put { key: &xid_key(xid), value: &row }])?;
            }
            Effect::Ended(xid, roots) => {
                let prepared = xid_key(xid);
                let row = |root: &Root| (row_key(root.document, root.revision), lay_row(root));
                let rows: Vec<_> = roots.iter().map(row).collect();
                let put = rows.iter().map(|(key, value)| Change::Put { key, value });
                let done = self.done_rows(&roots.iter().collect::<Vec<_>>());
                let changes: Vec<_> =
                    put.chain([Change::Delete { key: &prepared }]).chain(once::changes(&done)).collect();
                self.runs.apply(end.0, &changes)?;
            }
            Effect::Truncated(Truncation { document, to, next_node, .. }) => {
                let from = row_key(*document, to.saturating_add(1));
                let behind = row_key(document.saturating_add(1), 0);
                let mut floor = vec![VERSION];
                varint::lay(&mut floor, *next_node);
                let rows = Change::Erase { from: &from, to: Some(&behind) };
                let floor = Change::Put { key: &floor_key(*document), value: &floor };
                let gone = self.tags_behind(*document, *to)?;
                let gone = gone.iter().map(|key| Change::Delete { key });
                self.runs.apply(end.0, &gone.chain([rows, floor]).collect::<Vec<_>>())?;
            }
            Effect::Committed(root) => {
                let (key, row) = (row_key(root.document, root.revision), lay_row(root));
                let done = self.done_rows(&[root]);
                let put = Change::Put { key: &key, value: &row };
                self.runs.apply(end.0, &std::iter::once(put).chain(once::changes(&done)).collect::<Vec<_>>())?;
            }
        }
        self.entry.store(entry.0, Ordering::Release);
        self.published.store(end.0, Ordering::Release);
        Ok(())
    }

    fn made(&self, Named { document, .. }: Named) {
        self.next_document.fetch_max(document.saturating_add(1), Ordering::AcqRel);
    }

    /// # Errors
    /// As the disk says; `Corrupt`, naming the file, if a block that is needed is damaged. So for all below.
    pub(crate) fn name(&self, name: &str) -> Result<Option<Named>, DocsError> {
        let Some(found) = self.runs.get(&name_key(name))? else { return Ok(None) };
        read_named(&found.value).map(Some).map_err(|malformed| wrong(found.seq, &malformed))
    }

    /// The names of documents behind this one, in order.
    pub(crate) fn names(&self, behind: Option<&str>, limit: usize) -> Result<Vec<(String, Named)>, DocsError> {
        let from = behind.map_or_else(|| Bound::Included(b"n".to_vec()), |name| Bound::Excluded(name_key(name)));
        let view = self.runs.view();
        let mut walk = view.range(from.as_ref().map(Vec::as_slice), Bound::Excluded(b"o"));
        let mut names = Vec::new();
        while names.len() < limit
            && let Some((key, found)) = walk.next()?
        {
            let named = read_named(&found.value).map_err(|malformed| wrong(found.seq, &malformed))?;
            names.push((String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned(), named));
        }
        Ok(names)
    }

    /// The row of one revision.
    pub(crate) fn row(&self, document: u64, revision: u32) -> Result<Option<Row>, DocsError> {
        let Some(found) = self.runs.get(&row_key(document, revision))? else { return Ok(None) };
        read_row(revision, &found.value).map(Some).map_err(|malformed| wrong(found.seq, &malformed))
    }

    /// The row of the newest revision.
    pub(crate) fn newest(&self, document: u64) -> Result<Option<Row>, DocsError> {
        Ok(self.rows(document, 0..=u32::MAX, 1)?.pop())
    }

    /// Where a branch is prepared that has no outcome.
    pub(crate) fn prepared_at(&self, xid: &Xid) -> Result<Option<Entry>, DocsError> {
        let Some(found) = self.runs.get(&xid_key(xid))? else { return Ok(None) };
        read_prepared(&found.value).map(Some).map_err(|malformed| wrong(found.seq, &malformed))
    }

    /// All branches that are prepared and have no outcome.
    pub(crate) fn prepared(&self) -> Result<Vec<(Xid, Entry)>, DocsError> {
        let view = self.runs.view();
        let mut walk = view.range(Bound::Included(b"p"), Bound::Excluded(b"q"));
        let mut prepared = Vec::new();
        while let Some((key, found)) = walk.next()? {
            let xid = read_xid(&mut Reader::new(key.get(1..).unwrap_or_default()));
            let row = xid.and_then(|xid| Ok((xid, read_prepared(&found.value)?)));
            prepared.push(row.map_err(|malformed| wrong(found.seq, &malformed))?);
        }
        Ok(prepared)
    }

    /// Keys of new nodes do not begin before this, whatever the newest revision says: those of dropped ones are not used again.
    pub(crate) fn next_node(&self, document: u64) -> Result<u64, DocsError> {
        let Some(found) = self.runs.get(&floor_key(document))? else { return Ok(0) };
        read_floor(&found.value).map_err(|malformed| wrong(found.seq, &malformed))
    }

    /// The rows of revisions in a range, the newest first.
    pub(crate) fn rows(
        &self,
        document: u64,
        revisions: RangeInclusive<u32>,
        limit: usize,
    ) -> Result<Vec<Row>, DocsError> {
        self.rows_as(document, revisions, limit, read_row)
    }

    /// What a history tells of the revisions in a range, the newest first.
    pub(crate) fn told(
        &self,
        document: u64,
        revisions: RangeInclusive<u32>,
        limit: usize,
    ) -> Result<Vec<Told>, DocsError> {
        self.rows_as(document, revisions, limit, read_told)
    }

    fn rows_as<T>(
        &self,
        document: u64,
        revisions: RangeInclusive<u32>,
        limit: usize,
        read: impl Fn(u32, &[u8]) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, DocsError> {
        if revisions.is_empty() {
            return Ok(Vec::new());
        }
        let view = self.runs.view();
        if let Some(rows) = Self::page(&view, document, &revisions, limit, &read)? {
            return Ok(rows);
        }
        let (from, to) = (row_key(document, *revisions.start()), row_key(document, *revisions.end()));
        let mut walk = view.range(Bound::Included(&from), Bound::Included(&to));
        let mut rows = Vec::new();
        while rows.len() < limit
            && let Some((key, found)) = walk.prev()?
        {
            let revision = key.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            rows.push(read(revision, &found.value).map_err(|malformed| wrong(found.seq, &malformed))?);
        }
        Ok(rows)
    }

    /// The same where it can be told which rows these are: a walk onward costs a part of one back. Nothing where one of them is missing.
    fn page<T>(
        view: &View,
        document: u64,
        revisions: &RangeInclusive<u32>,
        limit: usize,
        read: impl Fn(u32, &[u8]) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, DocsError> {
        let last = *revisions.end();
        let many = u32::try_from(limit).unwrap_or(u32::MAX);
        // Revisions are numbered from 1 without a gap.
        let first = last.saturating_sub(many.saturating_sub(1)).max(*revisions.start()).max(1);
        if many < 2 || last == u32::MAX || first > last {
            return Ok(None);
        }
        let (from, to) = (row_key(document, first), row_key(document, last));
        let mut walk = view.range(Bound::Included(&from), Bound::Included(&to));
        let mut rows = Vec::with_capacity(usize::try_from(last - first).unwrap_or_default().min(4096) + 1);
        let mut expected = first;
        while let Some(Run { key, seq, value: Some(row) }) = walk.next_entry()? {
            if key != row_key(document, expected) {
                return Ok(None);
            }
            rows.push(read(expected, row).map_err(|malformed| wrong(seq, &malformed))?);
            if expected == last {
                rows.reverse();
                return Ok(Some(rows));
            }
            expected += 1;
        }
        Ok(None)
    }

    /// Closes what is in memory, so that the next flush writes it out. Whether there was anything.
    pub(crate) fn close_memory(&self) -> bool {
        let (entry, end) = (Lsn(self.entry.load(Ordering::Acquire)), self.published());
        let mut notes = self.notes();
        // One waits at most: each part costs memory of its own.
        if !notes.closed.is_empty() || end <= notes.durable.end || entry == notes.durable.entry {
            return false;
        }
        let next_document = self.next_document.load(Ordering::Acquire);
        notes.closed.push_back(Moment { entry, end, next_document, hash: None });
        self.runs.rotate(end.0);
        true
    }

    /// Writes the closed part of the memory out, and merges what is due.
    ///
    /// # Errors
    /// As the disk or the journal says. Nothing has changed then.
    pub(crate) fn flush(&self, log: &dyn Log) -> Result<(), DocsError> {
        let unread = self.notes().closed.front().copied();
        if let Some(moment) = unread {
            if log.durable() < moment.end {
                log.sync()?;
            }
            let hash = xxh3_64(&log.read_at(moment.entry)?.payload);
            self.notes().closed.iter_mut().filter(|closed| closed.end == moment.end).for_each(|c| c.hash = Some(hash));
        }
        let owner = Clerk { index: self, log };
        while self.runs.step(&owner, &AtOnce)?.is_some() {}
        Ok(())
    }

    /// The next open replays from here.
    pub(crate) fn durable(&self) -> Lsn {
        self.notes().durable.end
    }

    /// A number that no document has or had; what is made but not yet visible has its number too.
    pub(crate) fn next_document(&self) -> u64 {
        self.next_document.fetch_add(1, Ordering::AcqRel)
    }

    /// Whether a document of that number was ever made.
    pub(crate) fn knows(&self, document: u64) -> bool {
        document < self.next_document.load(Ordering::Acquire)
    }

    /// Up to here no manifest asks for the journal.
    pub(crate) fn replay_floor(&self) -> Lsn {
        Lsn(self.runs.replay_floor())
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.runs.memory_bytes()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong(committed: u64, malformed: &Malformed) -> DocsError {
    DocsError::Record { lsn: Lsn(committed), what: format!("the index's row of it: {malformed}") }
}

/// What a note says, if it is one of this journal's.
fn believed(log: &dyn Log, opened: &Opened) -> Result<Option<Moment>, DocsError> {
    let Ok(moment) = read_note(&opened.note) else { return Ok(None) };
    if moment.end.0 != opened.applied || moment.end > log.end() || moment.end < log.oldest() {
        return Ok(None);
    }
    match log.read_at(moment.entry) {
        Ok(entry) if Some(xxh3_64(&entry.payload)) == moment.hash => Ok(Some(moment)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn lay_note(moment: &Moment) -> Vec<u8> {
    let mut note = Writer::new();
    note.u8(VERSION).u64(moment.entry.0).u64(moment.end.0).u64(moment.hash.unwrap_or_default());
    note.u64(moment.next_document);
    note.into_vec()
}

fn read_note(bytes: &[u8]) -> Result<Moment, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let (entry, end) = (Lsn(reader.u64("entry")?), Lsn(reader.u64("end")?));
    let (hash, next_document) = (Some(reader.u64("hash")?), reader.u64("next document")?);
    reader.end()?;
    Ok(Moment { entry, end, next_document, hash })
}

/// Tells the map what to note.
struct Clerk<'a> {
    index: &'a Index,
    log: &'a dyn Log,
}

impl Owner for Clerk<'_> {
    fn durable(&self) -> u64 {
        self.log.durable().0
    }

    fn tally(&self) -> Box<dyn Tally + '_> {
        Box::new(Noting { index: self.index, applied: Lsn::ZERO })
    }
}

struct Noting<'a> {
    index: &'a Index,
    applied: Lsn,
}

impl Tally for Noting<'_> {
    fn enters(&mut self, _: &Run<'_>) {}

    fn leaves(&mut self, _: &Run<'_>) {}

    fn note(&mut self, applied: u64) -> Vec<u8> {
        self.applied = Lsn(applied);
        let notes = self.index.notes();
        let moment = notes.closed.iter().rev().find(|moment| moment.end.0 <= applied).unwrap_or(&notes.durable);
        lay_note(moment)
    }

    fn committed(self: Box<Self>) {
        let mut notes = self.index.notes();
        while notes.closed.front().is_some_and(|moment| moment.end <= self.applied) {
            notes.durable = notes.closed.pop_front().unwrap_or_default();
        }
    }
}
