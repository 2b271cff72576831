//! A database: documents over one journal, whose commits share its syncs.
//!
//! ```text
//!   commit   lay once -> the desk's lock: append, stage -> wait: durable -> publish in log order -> answer
//!   read     the newest revision that is published, or any before it: no lock
//! ```
//! Walk: [`Database::open`] opens the index and replays the journal behind it · [`Database::create`], [`Database::document`],
//! [`Database::edit_anew`], [`Database::drop_document`] · [`Store::append`] and [`Store::wait`] are the one commit path · [`Database::tick`] does what
//! is off it.
//! Deliberately absent: threads, and files of documents: a commit makes, renames and lists none.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use assent_ids::{Lsn, Xid};
use assent_journal::{Log, Ticket};
use assent_kind::Kind;
use assent_runs::RunsError;
use assent_world::{Clock, Disk, Moment};

use crate::act::{KIND_CREATE, KIND_DROP, Truncation, lay_create, lay_drop};
use crate::branch::Branches;
use crate::config::{Config, NAME_BYTES_MAX};
use crate::document::{Doc, Document, Seat};
use crate::edit::Edit;
use crate::entry::Root;
use crate::index::{Effect, Index, Named};
use crate::once::{Once, OnceName};
use crate::place::{Entry, LSN_END};
use crate::replay::replay;
use crate::store::{Kept, Store};
use crate::{DocsError, Versioning};

/// More documents than this that nobody holds are forgotten until they are asked for again.
pub(crate) const DOCUMENTS_KEPT: usize = 4096;

/// What an appended entry makes visible once it is durable.
#[derive(Debug)]
pub(crate) enum Staging {
    Created(Arc<str>, Named),
    /// With the request that was done by it.
    Dropped(Seat, Option<Once>),
    /// Nobody else writes the document before this is visible, whoever waits for it or not.
    Committed(Seat, Arc<Root>),
    /// The first one's document goes, and this revision of the other's comes in its place.
    Replaced(Seat, Seat, Arc<Root>),
    /// The same while it is cut back; with what is the newest revision then.
    Truncated(Seat, Truncation, Arc<Root>),
    Prepared(Xid, Entry),
    Tagged(Arc<Doc>, String, Option<u32>),
    /// The outcome of a branch, with the documents that it held and the revisions that it commits.
    Ended(Xid, Vec<Seat>, Vec<Root>),
}

impl Staging {
    /// Whether nobody writes the document before this is visible.
    fn holds(&self, doc: &Arc<Doc>) -> bool {
        let is_of = |seat: &Seat| Arc::ptr_eq(&seat.0, doc);
        match self {
            Self::Dropped(seat, _) | Self::Committed(seat, _) | Self::Truncated(seat, ..) => is_of(seat),
            Self::Replaced(gone, seat, _) => is_of(gone) || is_of(seat),
            Self::Ended(_, seats, _) => seats.iter().any(is_of),
            Self::Created(..) | Self::Prepared(..) | Self::Tagged(..) => false,
        }
    }
}

/// What is appended and not yet visible, in log order.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    queue: VecDeque<(Ticket, Staging)>,
    pub(crate) branches: Branches,
    /// Why nothing more can become visible.
    broken: Option<RunsError>,
    /// Why nothing is written but outcomes.
    pub(crate) withheld: Option<DocsError>,
}

impl Desk {
    pub(crate) fn push(&mut self, ticket: Ticket, staging: Staging) {
        self.queue.push_back((ticket, staging));
    }

    /// Whether something carries a request of this name that is on its way, or a branch that waits for its outcome.
    pub(crate) fn carries(&self, name: &OnceName) -> bool {
        let is_in = |root: &Root| Once::all_of(&root.meta).any(|once| once.name == *name);
        let staged = |staging: &Staging| match staging {
            Staging::Committed(_, root) | Staging::Replaced(_, _, root) => is_in(root),
            Staging::Ended(_, _, roots) => roots.iter().any(is_in),
            Staging::Dropped(_, once) => once.as_ref().is_some_and(|once| once.name == *name),
            Staging::Created(..) | Staging::Truncated(..) | Staging::Prepared(..) | Staging::Tagged(..) => false,
        };
        self.queue.iter().any(|(_, staging)| staged(staging))
            || self.branches.roots().any(is_in)
            || self.branches.has_unreadable()
    }

    /// Whether a document's drop is on its way.
    pub(crate) fn drops(&self, doc: &Arc<Doc>) -> bool {
        let is_drop = |staging: &Staging| match staging {
            Staging::Dropped(Seat(of), _) | Staging::Replaced(Seat(of), ..) => Arc::ptr_eq(of, doc),
            _ => false,
        };
        self.queue.iter().any(|(_, staging)| is_drop(staging))
    }

    /// The newest revision that is left once a truncation is visible that is on its way.
    pub(crate) fn truncated(&self, doc: &Arc<Doc>) -> Option<u32> {
        self.queue.iter().rev().find_map(|(_, staging)| match staging {
            Staging::Truncated(seat, truncation, _) if Arc::ptr_eq(&seat.0, doc) => Some(truncation.to),
            _ => None,
        })
    }

    /// Whether a tag is on its way to a document.
    pub(crate) fn has_tag(&self, doc: &Arc<Doc>, tag: &str) -> bool {
        let is_one = |staging: &Staging| matches!(staging, Staging::Tagged(of, name, Some(_)) if Arc::ptr_eq(of, doc) && name == tag);
        self.queue.iter().any(|(_, staging)| is_one(staging))
    }
}

/// Numbers about a database, each of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Journal entries that the open replayed.
    pub replayed: u64,
    /// Whether the open found the index damaged or of another journal, and built it anew.
    pub rebuilt: bool,
    /// The next open replays from here.
    pub checkpoint: Lsn,
    /// Everything that ends here or before is visible.
    pub published: Lsn,
    /// Bytes of the index that only memory has.
    pub memory_bytes: u64,
    /// Pages that are kept in memory.
    pub pages: u64,
    /// Their bytes, and those of kept revisions and histories.
    pub cache_bytes: u64,
}

/// A database. All methods may be called from many threads.
#[derive(Debug)]
pub struct Database {
    pub(crate) store: Arc<Store>,
    replayed: u64,
    rebuilt: bool,
}

impl Database {
    /// Opens the database over its journal; `folder` holds the index and is made if it is missing. An index that is damaged,
    /// or another journal's, is built anew from the journal.
    ///
    /// # Errors
    /// [`DocsError::Config`]; [`DocsError::Record`] if the journal has what no database wrote; as the disk says.
    pub fn open(
        log: Arc<dyn Log>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        folder: &Path,
        config: Config,
    ) -> Result<Self, DocsError> {
        config.check()?;
        let (index, rebuilt) = Index::open(&*log, &disk, folder, config.memory_bytes)?;
        match Self::over(Arc::clone(&log), Arc::clone(&clock), (index, rebuilt), config) {
            // Its blocks are read when they are needed: what is damaged in one is seen only now. One that was built just now is not tried again;
            // and what is there stays where no other can be built.
            Err(DocsError::Index(RunsError::Damaged { .. })) if !rebuilt && is_whole(&*log)? => {
                let index = Index::create(&*log, &disk, folder, config.memory_bytes)?;
                Self::over(log, clock, (index, true), config)
            }
            opened => opened,
        }
    }

    /// Replays what the index does not have.
    fn over(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        (index, rebuilt): (Index, bool),
        config: Config,
    ) -> Result<Self, DocsError> {
        let replayed = replay(&*log, &index, config.memory_bytes)?;
        let (roots_bytes, told_bytes) = (config.cache_bytes / 8, config.cache_bytes / 32);
        let shown = AtomicU64::new(index.published().0);
        let store = Store {
            log,
            clock,
            index,
            pages: Kept::new(config.cache_bytes - roots_bytes - told_bytes, 4096),
            roots: Kept::new(roots_bytes, 512),
            told: Kept::new(told_bytes, 8192),
            config,
            desk: Mutex::default(),
            documents: Mutex::default(),
            claims: Mutex::default(),
            stepping: Mutex::default(),
            shown,
            path_bytes: Arc::default(),
            epochs: AtomicU32::new(0),
        };
        let database = Self { store: Arc::new(store), replayed, rebuilt };
        database.recover_branches()?;
        Ok(database)
    }

    /// Makes a document without a revision.
    ///
    /// # Errors
    /// [`DocsError::Name`], [`DocsError::Exists`], [`DocsError::Config`] for a window beyond its limit; as
    /// [`crate::Pending::wait`].
    pub fn create(&self, name: &str, versioning: Versioning) -> Result<Document, DocsError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(DocsError::Name { name: name.to_owned() });
        }
        versioning.check()?;
        let mut desk = self.store.writer()?;
        let exists = || DocsError::Exists { name: name.to_owned() };
        if self.store.index.name(name)?.is_some() {
            return Err(exists());
        }
        let is_staged = |(_, staging): &&(Ticket, Staging)| matches!(staging, Staging::Created(of, _) if **of == *name);
        let staged = desk.queue.iter().find(is_staged).map(|(ticket, _)| *ticket);
        if let Some(ticket) = staged {
            drop(desk);
            return Err(match self.store.wait(ticket) {
                // Who is told that it is there finds it.
                Ok(()) => exists(),
                // That one is in doubt; nothing was written for who asks here.
                Err(DocsError::InDoubt(error)) => error.into(),
                Err(DocsError::Late(error) | DocsError::Unpublished(error)) => error.into(),
                Err(error) => error,
            });
        }
        let document = self.store.index.next_document();
        let laid = lay_create(document, versioning, name);
        let staging = |_| Staging::Created(name.into(), Named { document, versioning });
        let ticket = self.store.stage(&mut desk, KIND_CREATE, &laid, staging)?;
        drop(desk);
        self.store.wait(ticket)?;
        self.document(name)
    }

    /// A document by its name.
    ///
    /// # Errors
    /// [`DocsError::NoDocument`]; [`DocsError::Damaged`] if its newest commit cannot be read: what is left then, [`Database::older`] has.
    pub fn document(&self, name: &str) -> Result<Document, DocsError> {
        let doc = self.held(name)?;
        match &doc.withheld {
            Some(why) => Err(why.clone()),
            None => Ok(Document { store: Arc::clone(&self.store), doc }),
        }
    }

    /// Begins a change of the document of this name; of another one that has come in its place while its writer was waited for. All
    /// of them are waited for as long as the configuration says of one.
    ///
    /// # Errors
    /// As [`Database::document`] and [`Document::edit`].
    pub fn edit(&self, name: &str) -> Result<Edit, DocsError> {
        let began = self.store.clock.now();
        loop {
            match self.document(name)?.edit_since(began) {
                // It is gone from the index before it says so: each turn is somebody else's commit.
                Err(DocsError::NoDocument { .. }) => self.refuse_late(name, began)?,
                edit => return edit,
            }
        }
    }

    /// Who lost each time is told so once its time to wait is over.
    pub(crate) fn refuse_late(&self, name: &str, began: Moment) -> Result<(), DocsError> {
        let waited_ms = self.store.config.writer_wait_ms;
        let is_late = self.store.clock.now().since(began) > Duration::from_millis(waited_ms);
        if is_late { Err(DocsError::Busy { name: name.to_owned(), waited_ms }) } else { Ok(()) }
    }

    pub(crate) fn load(&self, name: &str, Named { document, versioning }: Named) -> Result<Doc, DocsError> {
        let doc = Doc::new(document, name.into(), versioning, Root::empty(document));
        doc.head.show(Arc::new(Root { epoch: self.store.next_epoch(), ..self.store.head(&doc)? }));
        Ok(doc)
    }

    /// Whether a document of this name is there and has a revision. Reads no commit.
    ///
    /// # Errors
    /// As the index says.
    pub fn has_revision(&self, name: &str) -> Result<bool, DocsError> {
        let Some(named) = self.store.index.name(name)? else { return Ok(false) };
        Ok(self.store.index.newest(named.document)?.is_some())
    }

    /// The names of documents behind this one, in order, at most so many.
    ///
    /// # Errors
    /// As the index says.
    pub fn names(&self, behind: Option<&str>, limit: usize) -> Result<Vec<String>, DocsError> {
        Ok(self.store.index.names(behind, limit)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Drops a document with all its revisions, after its writer: also one whose newest commit cannot be read. Who holds one of them can
    /// still read it.
    ///
    /// # Errors
    /// [`DocsError::NoDocument`], [`DocsError::Busy`]; as [`crate::Pending::wait`].
    pub fn drop_document(&self, name: &str) -> Result<(), DocsError> {
        drop_under(&self.store, self.seat(name)?, None)
    }

    /// What is to be done now and then by whoever owns a loop, about every 100 ms: publishes what nobody waited for, and
    /// writes the index out when it is due. A failure is not told: the journal has everything.
    pub fn tick(&self) {
        _ = self.store.publish(&mut self.store.desk());
        let behind = self.store.index.published().0.saturating_sub(self.store.index.durable().0);
        let Config { checkpoint_bytes, memory_bytes, .. } = self.store.config;
        if behind >= checkpoint_bytes || self.store.index.memory_bytes() >= memory_bytes {
            _ = self.checkpoint();
        }
    }

    /// Writes out everything of the index that is visible, so that the next open replays nothing before it; trims the journal, if
    /// the configuration says that it keeps what is trimmed.
    ///
    /// # Errors
    /// As the disk or the journal says. The database goes on without it.
    pub fn checkpoint(&self) -> Result<(), DocsError> {
        self.store.checkpoint()
    }

    /// A clean stop: whatever was appended is made durable and visible, and the index is written out, so that the next open replays
    /// nothing.
    ///
    /// # Errors
    /// As [`Database::checkpoint`]: the next open replays what is missing.
    pub fn close(self) -> Result<(), DocsError> {
        self.store.log.sync()?;
        self.store.publish_all()?;
        self.checkpoint()
    }

    /// Numbers about it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Store { index, pages, roots, told, .. } = &*self.store;
        Stats {
            replayed: self.replayed,
            rebuilt: self.rebuilt,
            checkpoint: index.durable(),
            published: index.published(),
            memory_bytes: index.memory_bytes(),
            pages: u64::try_from(pages.len()).unwrap_or(u64::MAX),
            cache_bytes: pages.weight() + roots.weight() + told.weight(),
        }
    }
}

impl Store {
    pub(crate) fn documents(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Doc>>> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // A thread that died in the lock said so; the desk is whole between operations.
    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The desk of somebody who will append one entry.
    pub(crate) fn writer(&self) -> Result<MutexGuard<'_, Desk>, DocsError> {
        let desk = self.finisher()?;
        desk.withheld.clone().map_or(Ok(desk), Err)
    }

    /// The same for the outcome of a branch.
    pub(crate) fn finisher(&self) -> Result<MutexGuard<'_, Desk>, DocsError> {
        if self.index.memory_bytes() >= 4 * self.config.memory_bytes {
            // Whoever writes it out now is waited for: who went on would fill it meanwhile.
            self.make_room()?;
        }
        let desk = self.desk();
        if let Some(error) = &desk.broken {
            return Err(error.clone().into());
        }
        if self.log.end().0 >= LSN_END {
            let limit = LSN_END;
            return Err(DocsError::Size { part: "a journal", size: self.log.end().0, limit });
        }
        Ok(desk)
    }

    /// Appends an entry and stages what it makes visible. Under one lock, so the queue's order is the log's order.
    pub(crate) fn stage(
        &self,
        desk: &mut Desk,
        kind: u16,
        laid: &[u8],
        staging: impl FnOnce(Ticket) -> Staging,
    ) -> Result<Ticket, DocsError> {
        let ticket = self.log.append(kind, &[laid])?;
        desk.push(ticket, staging(ticket));
        Ok(ticket)
    }

    /// Appends an entry and stages it.
    pub(crate) fn append(
        &self,
        kind: u16,
        laid: &[u8],
        staging: impl FnOnce(Ticket) -> Staging,
    ) -> Result<Ticket, DocsError> {
        let mut desk = self.writer()?;
        self.stage(&mut desk, kind, laid, staging)
    }

    /// Waits until it is durable and visible. May be called in any order, from any thread.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), DocsError> {
        self.log.wait_durable(ticket).map_err(DocsError::InDoubt)?;
        // POINT OF NO RETURN: the commit is on disk.
        // Of those whom one sync has woken the first publishes for all.
        if self.shown.load(Ordering::Acquire) >= ticket.end.0 {
            return Ok(());
        }
        // Sync before publish: a reader must not see what a crash could take back.
        self.publish_all()
    }

    /// Publishes what is durable, also where the index must be written out first.
    fn publish_all(&self) -> Result<(), DocsError> {
        loop {
            let published = self.publish(&mut self.desk());
            match published {
                Err(DocsError::Late(error)) => match self.make_room() {
                    Ok(()) => {}
                    // It stays in the queue: whoever publishes next tries again.
                    Err(_) => return Err(DocsError::Late(error)),
                },
                published => return published,
            }
        }
    }

    /// Waits for a commit of this document that is appended and for which, perhaps, nobody waits.
    pub(crate) fn settle(&self, doc: &Arc<Doc>) -> Result<(), DocsError> {
        let ticket = self.desk().queue.iter().rev().find(|(_, staging)| staging.holds(doc)).map(|(ticket, _)| *ticket);
        ticket.map_or(Ok(()), |ticket| self.wait(ticket))
    }

    /// Publishes what is durable, in log order.
    fn publish(&self, desk: &mut Desk) -> Result<(), DocsError> {
        if let Some(error) = &desk.broken {
            return Err(DocsError::Unpublished(error.clone()));
        }
        let durable = self.log.durable();
        while let Some((ticket, staging)) = desk.queue.front().filter(|(ticket, _)| ticket.end <= durable) {
            let effect = match staging {
                Staging::Created(name, named) => Effect::Created(name, *named),
                Staging::Dropped(Seat(doc), once) => Effect::Dropped(&doc.name, doc.id, once.as_ref()),
                Staging::Committed(_, root) => Effect::Committed(root),
                Staging::Replaced(Seat(gone), Seat(doc), root) => {
                    let named = Named { document: doc.id, versioning: doc.versioning };
                    Effect::Replaced(gone.id, &doc.name, named, root)
                }
                Staging::Truncated(_, truncation, _) => Effect::Truncated(truncation),
                Staging::Prepared(xid, entry) => Effect::Prepared(xid, *entry),
                Staging::Tagged(doc, tag, revision) => Effect::Tagged(doc.id, tag, *revision),
                Staging::Ended(xid, _, roots) => Effect::Ended(xid, roots),
            };
            match self.index.apply(ticket.lsn, ticket.end, &effect) {
                Ok(()) => {}
                // There will be room.
                Err(error) if error.kind() == Kind::Busy => return Err(DocsError::Late(error)),
                Err(error) => {
                    desk.broken = Some(error.clone());
                    return Err(DocsError::Unpublished(error));
                }
            }
            let end = ticket.end;
            let Some((_, staging)) = desk.queue.pop_front() else { return Ok(()) };
            match staging {
                Staging::Created(..) | Staging::Tagged(..) => {}
                Staging::Dropped(gone, _) => {
                    gone.0.is_gone.store(true, Ordering::Release);
                    self.documents().remove(&gone.0.name);
                }
                Staging::Committed(seat, root) => self.show(&seat, root),
                Staging::Replaced(gone, seat, root) => {
                    gone.0.is_gone.store(true, Ordering::Release);
                    seat.0.show(root);
                    // Whoever was faster has loaded the one that came: nobody loads it a second time.
                    let mut documents = self.documents();
                    if documents.get(&gone.0.name).is_some_and(|kept| Arc::ptr_eq(kept, &gone.0)) {
                        documents.remove(&gone.0.name);
                    }
                }
                Staging::Truncated(seat, _, root) => {
                    seat.0.show(root);
                    self.let_in(&seat);
                }
                Staging::Prepared(xid, _) => desk.branches.listed(&xid),
                Staging::Ended(xid, seats, roots) => {
                    seats.iter().zip(roots).for_each(|(seat, root)| self.show(seat, Arc::new(root)));
                    seats.iter().for_each(|seat| self.let_in(seat));
                    desk.branches.gone(&xid);
                }
            }
            self.shown.store(end.0, Ordering::Release);
        }
        Ok(())
    }

    /// A document that was withheld is loaded like any other from here on, unless it is withheld again: who waits for its seat looks anew.
    fn let_in(&self, seat: &Seat) {
        if seat.0.withheld.is_some() {
            seat.0.is_gone.store(true, Ordering::Release);
            self.documents().remove(&seat.0.name);
        }
    }

    /// A revision is the newest from here on.
    fn show(&self, seat: &Seat, root: Arc<Root>) {
        self.roots.keep((root.document, root.epoch, root.revision), Arc::clone(&root));
        seat.0.show(root);
    }

    fn checkpoint(&self) -> Result<(), DocsError> {
        let _alone = match self.stepping.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            // Somebody else does it now.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        self.write_out()
    }

    /// The same, behind whoever does it now.
    fn make_room(&self) -> Result<(), DocsError> {
        let _alone = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_out()
    }

    fn write_out(&self) -> Result<(), DocsError> {
        loop {
            self.index.flush(&*self.log)?;
            let published = {
                let mut desk = self.desk();
                let published = self.publish(&mut desk);
                self.index.close_memory();
                published
            };
            self.index.flush(&*self.log)?;
            match published {
                Err(DocsError::Late(_)) => {}
                published => break published?,
            }
        }
        if self.config.trims {
            self.log.trim(self.index.replay_floor())?;
        }
        Ok(())
    }
}

/// Drops the document of a seat.
///
/// # Errors
/// `NoDocument` if it is gone already; as the journal says.
pub(crate) fn drop_under(store: &Store, seat: Seat, once: Option<Once>) -> Result<(), DocsError> {
    let doc = &seat.0;
    if store.index.name(&doc.name)?.is_none_or(|named| named.document != doc.id) {
        return Err(DocsError::NoDocument { name: doc.name.to_string() });
    }
    let laid = lay_drop(doc.id, &doc.name, once.as_ref());
    // Nobody writes behind it, though it may be long before it is visible.
    let ticket = store.append(KIND_DROP, &laid, |_| Staging::Dropped(seat.leaving(), once))?;
    store.wait(ticket)
}

/// Whether all of the journal can be read: an index can be built of it.
fn is_whole(log: &dyn Log) -> Result<bool, DocsError> {
    Ok(log.read(log.oldest())?.all(|entry| entry.is_ok()))
}
