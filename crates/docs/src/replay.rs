//! Replaying: what the journal has behind the index, entry by entry, and whether each can be what follows.
//!
//! Walk: [`replay`] reads on from where the index ends · each kind has its judge · a revision stands on the newest one, by its
//! place and by its hash, or the open refuses.
//! Deliberately absent: the tail of the journal that was never acknowledged: the journal itself does not believe it.

use std::fmt;

use assent_frame::Malformed;
use assent_journal::{Entry as Laid, Log};
use assent_kind::Kind;
use xxhash_rust::xxh3::xxh3_64;

use crate::DocsError;
use crate::act::{
    KIND_CREATE, KIND_DROP, KIND_OUTCOME, KIND_PREPARE, KIND_REPLACE, KIND_TAG, KIND_TRUNCATE, Replacing, Tagging,
    read_create, read_drop, read_outcome, read_prepare, read_replace, read_tag, read_truncate,
};
use crate::entry::{KIND_COMMIT, KIND_PAGE, Root, read_commit};
use crate::index::{Effect, Index, Named};
use crate::place::Entry;
use crate::store::settled;

/// Every journal entry behind what the index is durable up to. The journal believes nothing before it is durable.
pub(crate) fn replay(log: &dyn Log, index: &Index, memory_bytes: u64) -> Result<u64, DocsError> {
    let mut replayed = 0;
    for entry in log.read(index.published())? {
        let entry = entry?;
        Replay { log, index, entry: &entry }.judge()?;
        replayed += 1;
        if index.memory_bytes() > memory_bytes && index.close_memory() {
            index.flush(log)?;
        }
    }
    Ok(replayed)
}

/// One entry.
struct Replay<'a> {
    log: &'a dyn Log,
    index: &'a Index,
    entry: &'a Laid,
}

impl Replay<'_> {
    fn judge(&self) -> Result<(), DocsError> {
        match self.entry.kind {
            KIND_CREATE => self.create(),
            KIND_DROP => self.drop(),
            // It means nothing before a commit leads to it.
            KIND_PAGE => Ok(()),
            KIND_COMMIT => self.commit(),
            KIND_REPLACE => self.replace(),
            KIND_TRUNCATE => self.truncate(),
            KIND_TAG => self.tag(),
            KIND_PREPARE => self.prepare(),
            KIND_OUTCOME => self.outcome(),
            kind => Err(self.wrong(format!("its kind is {kind}"))),
        }
    }

    fn wrong(&self, what: impl fmt::Display) -> DocsError {
        DocsError::Record { lsn: self.entry.lsn, what: what.to_string() }
    }

    fn read<'e, T>(&'e self, read: impl FnOnce(&'e [u8]) -> Result<T, Malformed>) -> Result<T, DocsError> {
        read(&self.entry.payload).map_err(|malformed| self.wrong(malformed))
    }

    fn apply(&self, effect: &Effect<'_>) -> Result<(), DocsError> {
        let apply = || self.index.apply(self.entry.lsn, self.entry.end, effect);
        match apply() {
            // One entry may be many rows. Memory that has nothing takes any.
            Err(error) if error.kind() == Kind::Busy && self.index.close_memory() => {
                self.index.flush(self.log)?;
                Ok(apply()?)
            }
            applied => Ok(applied?),
        }
    }

    fn create(&self) -> Result<(), DocsError> {
        let (document, versioning, name) = self.read(read_create)?;
        if self.index.name(name)?.is_some() {
            return Err(self.wrong(format!("it makes document {name:?}, which is there already")));
        }
        self.apply(&Effect::Created(name, Named { document, versioning }))
    }

    fn drop(&self) -> Result<(), DocsError> {
        let (document, name, once) = self.read(read_drop)?;
        if self.index.name(name)?.is_none_or(|named| named.document != document) {
            return Err(self.wrong(format!("it drops document {name:?}, which is not there")));
        }
        self.apply(&Effect::Dropped(name, document, once.as_ref()))
    }

    fn replace(&self) -> Result<(), DocsError> {
        let Replacing { gone, versioning, name, commit } = self.read(read_replace)?;
        if self.index.name(name)?.is_none_or(|named| named.document != gone) {
            return Err(self.wrong(format!("it replaces document {name:?}, which is not there")));
        }
        let root = self.standing(commit, Entry::new(self.entry.lsn, self.entry.payload.len()))?;
        if root.revision != 1 || root.document == gone {
            let Root { document, revision, .. } = root;
            return Err(
                self.wrong(format!("it replaces document {gone} by revision {revision} of document {document}"))
            );
        }
        self.apply(&Effect::Replaced(gone, name, Named { document: root.document, versioning }, &root))
    }

    fn commit(&self) -> Result<(), DocsError> {
        let own = Entry::new(self.entry.lsn, self.entry.payload.len());
        let root = self.revision(&self.entry.payload, own)?;
        self.apply(&Effect::Committed(&root))
    }

    /// A commit of a document that is there.
    fn revision(&self, commit: &[u8], own: Entry) -> Result<Root, DocsError> {
        let root = self.standing(commit, own)?;
        if !self.index.knows(root.document) {
            return Err(self.wrong(format!("it commits to document {}, which was never made", root.document)));
        }
        Ok(root)
    }

    /// A commit that stands on the newest revision.
    fn standing(&self, commit: &[u8], own: Entry) -> Result<Root, DocsError> {
        let (root, _) = read_commit(commit).map_err(|malformed| self.wrong(malformed))?;
        let (revision, before, hash) = self.newest(root.document)?;
        if revision.checked_add(1) != Some(root.revision) || before != root.previous {
            return Err(self.wrong(format!("it commits revision {} after revision {revision}", root.revision)));
        }
        if hash != root.previous_hash {
            return Err(self.wrong(format!("revision {revision}, on which it stands, is not the one that is there")));
        }
        Ok(settled(root, own, xxh3_64(commit)))
    }

    /// The newest revision: its number, its entry and the hash of that.
    fn newest(&self, document: u64) -> Result<(u32, Entry, u64), DocsError> {
        let row = self.index.newest(document)?;
        Ok(row.map_or((0, Entry::HERE, 0), |row| (row.revision, row.entry, row.hash)))
    }

    fn truncate(&self) -> Result<(), DocsError> {
        let truncation = self.read(read_truncate)?;
        let (revision, before, hash) = self.newest(truncation.document)?;
        if truncation.to >= revision || (before, hash) != (truncation.newest, truncation.newest_hash) {
            let to = truncation.to;
            return Err(self.wrong(format!("it drops what is behind revision {to} where {revision} is the newest")));
        }
        self.apply(&Effect::Truncated(&truncation))
    }

    fn tag(&self) -> Result<(), DocsError> {
        let Tagging { document, revision, tag } = self.read(read_tag)?;
        let newest = self.newest(document)?.0;
        if let Some(revision) = revision.filter(|revision| *revision > newest) {
            return Err(self.wrong(format!("it tags revision {revision} where {newest} is the newest")));
        }
        self.apply(&Effect::Tagged(document, tag, revision))
    }

    fn prepare(&self) -> Result<(), DocsError> {
        let (xid, parts) = self.read(read_prepare)?;
        if self.index.prepared_at(&xid)?.is_some() {
            return Err(self.wrong(format!("it prepares branch {xid}, which is prepared already")));
        }
        let own = Entry::new(self.entry.lsn, self.entry.payload.len());
        parts.iter().try_for_each(|(_, commit)| self.revision(commit, own).map(drop))?;
        self.apply(&Effect::Prepared(&xid, own))
    }

    fn outcome(&self) -> Result<(), DocsError> {
        let outcome = self.read(read_outcome)?;
        if self.index.prepared_at(&outcome.xid)? != Some(outcome.prepare) {
            return Err(self.wrong(format!("it ends branch {}, which is not prepared there", outcome.xid)));
        }
        let mut roots = Vec::new();
        if outcome.is_commit {
            let prepare = self.log.read_at(outcome.prepare.lsn())?;
            let (_, parts) = read_prepare(&prepare.payload).map_err(|malformed| self.wrong(malformed))?;
            for (_, commit) in parts {
                let root = self.revision(commit, outcome.prepare)?;
                roots.push(Root { time_ms: outcome.time_ms, ..root });
            }
        }
        self.apply(&Effect::Ended(&outcome.xid, &roots))
    }
}
