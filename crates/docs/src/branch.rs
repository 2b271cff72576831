//! Branches of distributed transactions: revisions that are prepared, and wait for their outcome through any crash.
//!
//! ```text
//!   edits -> prepare: ONE entry with all their commits -> Prepared, the writers' seats stay taken
//!         -> commit | rollback: one small entry -> Finishing -> visible, or nothing -> gone
//! ```
//! Walk: [`Database::prepare_begin`] votes · [`Database::commit_prepared_begin`] and [`Database::rollback_prepared_begin`] append
//! the outcome · [`Database::wait`] for each of the three · [`Database::in_doubt`] lists, [`Database::recover`] one coordinator's.
//! Deliberately absent: outcomes that this store decides on its own, and the memory of branches that are finished.

mod voucher;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use assent_frame::Malformed;
use assent_ids::{Branch as Ours, NodeId, Xid};
use assent_journal::Ticket;
use assent_kind::Kind as Class;
use assent_xa::{Native, Past, Vote};
use xxhash_rust::xxh3::xxh3_64;

use crate::act::{KIND_OUTCOME, KIND_PREPARE, Outcome, lay_outcome, lay_prepare, read_prepare};
use crate::commit::{Laid, Pending, keep};
use crate::database::{Database, Staging};
use crate::document::Seat;
use crate::edit::Edit;
use crate::entry::{Meta, Root, read_commit};
use crate::place::Entry;
use crate::store::settled;
use crate::{DocsError, NodeKey};

/// Something that is appended. It holds once [`Database::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it holds once Database::wait has returned"]
pub struct Appended {
    ticket: Option<Ticket>,
}

impl Appended {
    /// Nothing was appended, and there is nothing to wait for.
    pub(crate) const NOTHING: Self = Self { ticket: None };

    pub(crate) const fn of(pending: &Pending) -> Self {
        Self { ticket: pending.ticket() }
    }
}

/// A vote, which holds once it was waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voted {
    /// What the branch will do.
    pub vote: Vote,
    /// Wait for this before the vote is told.
    pub appended: Appended,
    /// What the coordinator keeps of a yes, and asks with later what became of it.
    pub witness: Vec<u8>,
}

/// A branch without an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// Its name.
    pub xid: Xid,
    /// The documents that it holds, each with the number that its revision will have.
    pub documents: Vec<(String, u32)>,
}

/// A branch that is known here.
#[derive(Debug)]
enum Branch {
    /// Its edits are being laid.
    Preparing,
    Prepared {
        prepare: Entry,
        seats: Vec<Seat>,
        roots: Vec<Root>,
        /// Whether its vote is durable.
        is_listed: bool,
    },
    /// Its outcome is appended. Asked again, it waits for the same one. While that is not durable, a crash may leave it prepared: it
    /// is listed with these documents.
    Finishing { ticket: Ticket, is_commit: bool, documents: Option<Vec<(String, u32)>> },
    /// An open found it prepared, and could not read what.
    Unreadable(DocsError),
}

impl Branch {
    const fn state(&self) -> &'static str {
        match self {
            Self::Preparing => "being prepared",
            Self::Prepared { .. } => "prepared",
            Self::Finishing { is_commit: true, .. } => "being committed",
            Self::Finishing { is_commit: false, .. } => "being rolled back",
            Self::Unreadable(_) => "prepared, and cannot be read",
        }
    }
}

impl Branch {
    /// The documents that it holds, if its vote is durable.
    fn listed(&self) -> Option<Vec<(String, u32)>> {
        match self {
            Self::Prepared { is_listed: true, seats, roots, .. } => {
                let documents = seats.iter().zip(roots).map(|(seat, root)| (seat.0.name.to_string(), root.revision));
                Some(documents.collect())
            }
            Self::Finishing { documents, .. } => documents.clone(),
            // Nobody knows which.
            Self::Unreadable(_) => Some(Vec::new()),
            Self::Preparing | Self::Prepared { .. } => None,
        }
    }
}

/// The branches of a database.
#[derive(Debug, Default)]
pub(crate) struct Branches(BTreeMap<Xid, Branch>);

impl Branches {
    /// Its vote is durable.
    pub(crate) fn listed(&mut self, xid: &Xid) {
        if let Some(Branch::Prepared { is_listed, .. }) = self.0.get_mut(xid) {
            *is_listed = true;
        }
    }

    /// The revisions of those that are prepared.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Root> {
        self.0.values().flat_map(|branch| match branch {
            Branch::Prepared { roots, .. } => roots.as_slice(),
            Branch::Preparing | Branch::Finishing { .. } | Branch::Unreadable(_) => &[],
        })
    }

    /// Whether one is prepared of which nobody knows what it says.
    pub(crate) fn has_unreadable(&self) -> bool {
        self.0.values().any(|branch| matches!(branch, Branch::Unreadable(_)))
    }

    /// Its outcome is durable.
    pub(crate) fn gone(&mut self, xid: &Xid) {
        self.0.remove(xid);
    }
}

impl Database {
    /// Votes for all these edits together. Nothing changed: `ReadOnly`, and the branch is gone. Otherwise they are appended in one
    /// entry; nobody else writes their documents, through any crash, until the branch is told its outcome.
    ///
    /// # Errors
    /// [`DocsError::Known`]; as [`Edit::commit_begin`]. Nothing is prepared then, and the edits are gone.
    pub fn prepare_begin(&self, xid: &Xid, edits: Vec<Edit>, meta: &Meta) -> Result<Voted, DocsError> {
        match self.store.desk().branches.0.entry(*xid) {
            Slot::Occupied(_) => return Err(DocsError::Known { xid: Box::new(*xid) }),
            Slot::Vacant(free) => _ = free.insert(Branch::Preparing),
        }
        let voted = self.prepare(xid, edits, meta);
        if !matches!(voted, Ok(Voted { vote: Vote::Yes, .. })) {
            self.store.desk().branches.gone(xid);
        }
        voted
    }

    fn prepare(&self, xid: &Xid, edits: Vec<Edit>, meta: &Meta) -> Result<Voted, DocsError> {
        let mut laid = Vec::new();
        for edit in edits {
            if !Arc::ptr_eq(&edit.store, &self.store) {
                return Err(DocsError::Unfit { key: NodeKey::DOCUMENT, why: "the edit is of another database" });
            }
            if edit.gone.is_some() {
                let why = "a document is put in the place of another by a commit of its own, not by a branch";
                return Err(DocsError::Unfit { key: NodeKey::DOCUMENT, why });
            }
            laid.extend(edit.lay(meta)?);
        }
        if laid.is_empty() {
            return Ok(Voted { vote: Vote::ReadOnly, appended: Appended::NOTHING, witness: Vec::new() });
        }
        let parts: Vec<_> = laid.iter().map(|laid| (&*laid.seat.0.name, laid.bytes.as_slice())).collect();
        let bytes = lay_prepare(xid, &parts);
        let mut desk = self.store.writer()?;
        let mut prepare = Entry::HERE;
        let ticket = self.store.stage(&mut desk, KIND_PREPARE, &bytes, |ticket| {
            prepare = Entry::new(ticket.lsn, bytes.len());
            Staging::Prepared(*xid, prepare)
        })?;
        let (mut seats, mut roots) = (Vec::new(), Vec::new());
        for Laid { seat, root, bytes, fragments, .. } in laid {
            let root = settled(root, prepare, xxh3_64(&bytes));
            keep(&self.store, &root, fragments);
            seats.push(seat);
            roots.push(root);
        }
        desk.branches.0.insert(*xid, Branch::Prepared { prepare, seats, roots, is_listed: false });
        let witness = voucher::lay(ticket.lsn, &bytes);
        Ok(Voted { vote: Vote::Yes, appended: Appended { ticket: Some(ticket) }, witness })
    }

    /// Commits a prepared branch: all its revisions, or after a crash none. Who looks at several of its documents at that moment may
    /// see one of them before another.
    ///
    /// # Errors
    /// [`DocsError::Unknown`], [`DocsError::State`]; `Full`, `Busy` or `Closed` as the journal says: it is as it was.
    pub fn commit_prepared_begin(&self, xid: &Xid) -> Result<Appended, DocsError> {
        self.end(xid, true)
    }

    /// Rolls a prepared branch back: its documents are what they were.
    ///
    /// # Errors
    /// As [`Database::commit_prepared_begin`].
    pub fn rollback_prepared_begin(&self, xid: &Xid) -> Result<Appended, DocsError> {
        self.end(xid, false)
    }

    fn end(&self, xid: &Xid, is_commit: bool) -> Result<Appended, DocsError> {
        let mut desk = self.store.finisher()?;
        let verb = if is_commit { "commit" } else { "rollback" };
        let unknown = || DocsError::Unknown { xid: Box::new(*xid) };
        let (prepare, time_ms) = match desk.branches.0.get(xid).ok_or_else(unknown)? {
            Branch::Prepared { prepare, roots, .. } => {
                // Whoever asks for a time in between has seen the revisions before, and shall see them again.
                let time_ms = roots.iter().map(|root| root.time_ms).max().unwrap_or_default();
                (*prepare, time_ms.max(self.store.clock.wall_ms()))
            }
            Branch::Finishing { ticket, is_commit: as_before, .. } if *as_before == is_commit => {
                return Ok(Appended { ticket: Some(*ticket) });
            }
            Branch::Unreadable(error) => return Err(error.clone()),
            branch => return Err(DocsError::State { xid: Box::new(*xid), state: branch.state(), verb }),
        };
        let outcome = Outcome { is_commit, time_ms, prepare, xid: *xid };
        // POINT OF NO RETURN for a commit: once this entry is durable, we only ever complete.
        let ticket = self.store.log.append(KIND_OUTCOME, &[&lay_outcome(&outcome)])?;
        let documents = desk.branches.0.get(xid).and_then(Branch::listed);
        let finishing = Branch::Finishing { ticket, is_commit, documents };
        if let Some(Branch::Prepared { seats, mut roots, .. }) = desk.branches.0.insert(*xid, finishing) {
            roots.iter_mut().for_each(|root| root.time_ms = time_ms);
            let roots = if is_commit { roots } else { Vec::new() };
            let seats = seats.into_iter().map(Seat::leaving).collect();
            desk.push(ticket, Staging::Ended(*xid, seats, roots));
        }
        Ok(Appended { ticket: Some(ticket) })
    }

    /// Waits until it is durable; an outcome is visible then.
    ///
    /// # Errors
    /// [`DocsError::InDoubt`] if the journal failed: whether it holds is known once the database is reopened.
    pub fn wait(&self, appended: Appended) -> Result<(), DocsError> {
        appended.ticket.map_or(Ok(()), |ticket| self.store.wait(ticket))
    }

    /// All branches that wait for their outcome: their vote is durable. Also those whose outcome is appended and is not durable yet.
    #[must_use]
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        let desk = self.store.desk();
        let listed = |(xid, branch): (&Xid, &Branch)| Some(InDoubt { xid: *xid, documents: branch.listed()? });
        desk.branches.0.iter().filter_map(listed).collect()
    }

    /// The branches of [`Database::in_doubt`] that are of one coordinator's node.
    #[must_use]
    pub fn recover(&self, node: NodeId) -> Vec<Xid> {
        let prefix = Ours::prefix(node);
        let all = self.in_doubt().into_iter().map(|branch| branch.xid);
        all.filter(|xid| xid.gtrid().starts_with(&prefix) && xid.branch().is_some()).collect()
    }

    /// Whether a branch of that name is prepared, or on its way there or from there.
    pub(crate) fn knows(&self, xid: &Xid) -> bool {
        self.store.desk().branches.0.contains_key(xid)
    }

    /// At the open: branches that are prepared take the seats of their documents again. One that cannot be read shuts nothing but what
    /// it holds: its documents, or all of them if nobody knows which.
    pub(crate) fn recover_branches(&self) -> Result<(), DocsError> {
        for (xid, prepare) in self.store.index.prepared()? {
            let branch = self.recover_branch(&xid, prepare)?;
            let mut desk = self.store.desk();
            if let Branch::Unreadable(error) = &branch {
                desk.withheld.get_or_insert_with(|| error.clone());
            }
            desk.branches.0.insert(xid, branch);
        }
        Ok(())
    }

    fn recover_branch(&self, xid: &Xid, prepare: Entry) -> Result<Branch, DocsError> {
        let entry = match self.store.log.read_at(prepare.lsn()) {
            Err(error) if matches!(error.kind(), Class::Corrupt | Class::NotFound) => {
                let (xid, lsn, what) = (Box::new(*xid), prepare.lsn(), error.to_string());
                return Ok(Branch::Unreadable(DocsError::Unreadable { xid, lsn, what }));
            }
            entry => entry?,
        };
        let wrong = |what: &dyn std::fmt::Display| DocsError::Record { lsn: entry.lsn, what: what.to_string() };
        let (_, parts) = read_prepare(&entry.payload).map_err(|malformed| wrong(&malformed))?;
        let (mut seats, mut roots) = (Vec::new(), Vec::new());
        for (name, commit) in parts {
            let (root, _) = read_commit(commit).map_err(|malformed| wrong(&malformed))?;
            let newest = self.store.index.newest(root.document)?.map_or(0, |row| row.revision);
            let doc = self.held(name)?;
            if doc.id != root.document || newest.checked_add(1) != Some(root.revision) {
                return Err(wrong(&format!("it prepares revision {} of {name:?}, which is elsewhere", root.revision)));
            }
            seats.push(Seat::take(&self.store, &doc)?);
            roots.push(settled(root, prepare, xxh3_64(commit)));
        }
        Ok(Branch::Prepared { prepare, seats, roots, is_listed: true })
    }

    /// What became of a branch that is not listed. `witness`: that of its vote.
    ///
    /// # Errors
    /// As the journal and the index say.
    pub fn inquire(&self, xid: &Xid, witness: &[u8]) -> Result<Past, DocsError> {
        let elsewhere = |message: String| Ok(Past::Elsewhere(Native { code: "elsewhere".to_owned(), message }));
        if self.knows(xid) {
            return Ok(Past::Open);
        }
        let Some(voucher) = voucher::read(witness) else {
            let why =
                if witness.is_empty() { "nothing was kept of its vote" } else { "its witness is not of such a store" };
            return elsewhere(format!(
                "branch {xid} is not prepared here, and {why}: nobody can know what became of it"
            ));
        };
        let lsn = voucher.prepare;
        let entry = match self.store.log.read_at(lsn) {
            Err(error) if matches!(error.kind(), Class::Corrupt | Class::NotFound | Class::Invalid) => {
                return elsewhere(format!("branch {xid} voted at LSN {lsn}, which cannot be read here: {error}"));
            }
            entry => entry?,
        };
        if entry.kind != KIND_PREPARE || !voucher.is_of(&entry.payload) {
            let message = format!(
                "branch {xid} voted at LSN {lsn}, and this database has something else there: it is an older copy, or another one"
            );
            return elsewhere(message);
        }
        let wrong = |malformed: Malformed| DocsError::Record { lsn, what: malformed.to_string() };
        let (_, parts) = read_prepare(&entry.payload).map_err(wrong)?;
        for (_, commit) in parts {
            let (root, _) = read_commit(commit).map_err(wrong)?;
            let row = self.store.index.row(root.document, root.revision)?;
            if row.is_some_and(|row| row.entry.lsn() == lsn) {
                return Ok(Past::Committed);
            }
        }
        // Rolled back, or committed and truncated or dropped since.
        Ok(Past::Forgotten)
    }
}
