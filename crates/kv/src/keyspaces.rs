//! Keyspaces by name: a number for each name, made and dropped while the store works.
//!
//! ```text
//!   row of keyspace 2^32 - 1:   name -> id 4 (metadata)          made when it was written
//!                               (empty) -> the next id 4
//! ```
//! Walk: [`Kv::keyspace_create`] writes the name's row and the next id in one batch · [`Kv::keyspace_drop`] erases the range
//! and the name's row in one batch: gone at once, however much was in it; the space returns by merges and compaction ·
//! [`Names`] is the same as of the end of the log: nobody writes into what is being dropped.
//! An id is never used twice: the next one is in the log with whatever used the one before.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::PoisonError;

use assent_ids::Lsn;

use crate::desk::Desk;
use crate::error::rows_fit;
use crate::keyed::Key;
use crate::ledger::{Head, Ledger};
use crate::line::Place;
use crate::op::{Durability, Op};
use crate::record::{Became, Effect};
use crate::{Kv, KvError};

/// Keyspaces from here on have names: they are written only while they exist. Those below need none.
pub const NAMED_FROM: u32 = 0x4000_0000;
/// The longest name of a keyspace.
pub const NAME_BYTES_MAX: usize = 255;
/// Where the names are.
pub(crate) const SYSTEM: u32 = u32::MAX;

/// A keyspace that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Its number: what reads and writes take.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
}

/// A name as people read it in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_debug())
    }
}

/// Names and ids as of the end of the log.
#[derive(Debug)]
pub(crate) struct Names {
    ids: BTreeMap<Key, u32>,
    /// Each id with its name.
    live: BTreeMap<u32, Key>,
    next: u32,
    /// Why they are not known. Everything else goes on.
    damaged: Option<KvError>,
}

impl Default for Names {
    fn default() -> Self {
        Self { ids: BTreeMap::new(), live: BTreeMap::new(), next: NAMED_FROM, damaged: None }
    }
}

impl Names {
    /// What the ledger says, with nothing on its way. Where it is damaged, nobody makes, drops or writes named keyspaces.
    pub(crate) fn read(ledger: &Ledger) -> Self {
        let mut names = Self::default();
        for row in ledger.view(0).range(SYSTEM, (Bound::Unbounded, Bound::Unbounded)) {
            match row {
                Ok((name, Head { metadata, .. })) => names.put(&name, &metadata),
                Err(error) => return Self { damaged: Some(error), ..Self::default() },
            }
        }
        names
    }

    fn refuse_damaged(&self) -> Result<(), KvError> {
        self.damaged.clone().map_or(Ok(()), Err)
    }

    /// Something of the names is on its way.
    pub(crate) fn take(&mut self, effect: &Effect) {
        match &effect.became {
            _ if effect.keyspace != SYSTEM => {}
            Became::Value { metadata, .. } => self.put(&effect.key, metadata),
            Became::Nothing | Became::Erased { .. } => {
                if let Some(id) = self.ids.remove(&*effect.key) {
                    self.live.remove(&id);
                }
            }
        }
    }

    fn put(&mut self, name: &[u8], metadata: &[u8]) {
        let Some(id) = id_of(metadata) else { return };
        if name.is_empty() {
            self.next = id;
        } else {
            let name = Key::from(name);
            self.ids.insert(Key::clone(&name), id);
            self.live.insert(id, name);
        }
    }
}

fn id_of(metadata: &[u8]) -> Option<u32> {
    metadata.first_chunk().map(|id| u32::from_le_bytes(*id))
}

impl Desk {
    /// Nobody writes into a named keyspace that is not, or will not be once the log is published.
    pub(crate) fn refuse_dropped<'a>(&self, ops: impl Iterator<Item = Op<'a>>) -> Result<(), KvError> {
        let mut named = ops.map(|op| op.key().0).filter(|keyspace| (NAMED_FROM..SYSTEM).contains(keyspace));
        match named.find(|keyspace| !self.names.live.contains_key(keyspace)) {
            Some(keyspace) => self.names.refuse_damaged().and(Err(KvError::Dropped { keyspace })),
            None => Ok(()),
        }
    }
}

/// What a caller may write: everything but the store's own rows.
pub(crate) const fn refuse_system(op: &Op<'_>) -> Result<(), KvError> {
    let (keyspace, _) = op.key();
    if keyspace == SYSTEM { Err(KvError::Reserved { keyspace }) } else { Ok(()) }
}

fn check_name(name: &str) -> Result<(), KvError> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(KvError::Named { name: Name(name.chars().take(80).collect()), bytes: name.len() })
}

impl Kv {
    /// Makes a keyspace of this name, durably; the answer is its id, which was never used before.
    ///
    /// # Errors
    /// `Invalid` for a name that is empty, longer than [`NAME_BYTES_MAX`] or has control characters; `Conflict` if it exists;
    /// as [`Kv::batch`].
    pub fn keyspace_create(&self, name: &str) -> Result<u32, KvError> {
        check_name(name)?;
        let _alone = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let id = {
            let desk = self.desk();
            desk.names.refuse_damaged()?;
            if desk.names.ids.contains_key(name.as_bytes()) {
                return Err(KvError::NameKnown { name: Name(name.to_owned()) });
            }
            desk.names.next
        };
        let next = id.checked_add(1).filter(|_| id < SYSTEM);
        let limit = u64::from(SYSTEM - NAMED_FROM);
        let next = next.ok_or(KvError::Many { what: "keyspaces ever made", count: limit + 1, limit })?;
        let (id_bytes, next_bytes) = (id.to_le_bytes(), next.to_le_bytes());
        let row = |key, metadata| Op::Put { keyspace: SYSTEM, key, metadata, value: &[], expiry: 0 };
        self.write_names(&[row(name.as_bytes(), &id_bytes), row(b"", &next_bytes)])?;
        Ok(id)
    }

    /// Drops a keyspace, durably, with all that is in it: one entry, and gone at once. Its id is never used again, and who still
    /// writes to it is refused.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name; `Conflict` if a prepared branch holds a key in it; as [`Kv::batch`].
    pub fn keyspace_drop(&self, name: &str) -> Result<Lsn, KvError> {
        let _alone = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let id = {
            let desk = self.desk();
            desk.names.refuse_damaged()?;
            desk.names.ids.get(name.as_bytes()).copied()
        };
        let id = id.ok_or_else(|| KvError::NameUnknown { name: Name(name.chars().take(80).collect()) })?;
        self.write_names(&[Op::erase(id, b"", None), Op::delete(SYSTEM, name.as_bytes())])
    }

    /// The keyspaces that have names, in the order of these.
    ///
    /// # Errors
    /// As [`Kv::head`].
    pub fn keyspaces(&self) -> Result<Vec<Keyspace>, KvError> {
        let rows = self.snapshot().heads(SYSTEM, Bound::Excluded(b""), Bound::Unbounded, usize::MAX)?;
        Ok(rows.iter().filter_map(|(name, head)| keyspace(name, &head.metadata, head.modified)).collect())
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    /// As [`Kv::head`].
    pub fn keyspace(&self, name: &str) -> Result<Option<Keyspace>, KvError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        // Writes ask it, too: it stands in no line.
        let head = self.shared.head(SYSTEM, name.as_bytes())?;
        Ok(head.and_then(|head| keyspace(name.as_bytes(), &head.metadata, head.place.modified)))
    }

    fn write_names(&self, ops: &[Op<'_>]) -> Result<Lsn, KvError> {
        rows_fit(ops)?;
        let pending = self.append_batch(ops, Durability::Durable, &mut Place::nowhere())?;
        self.wait(pending)?;
        Ok(pending.lsn().unwrap_or_default())
    }
}

fn keyspace(name: &[u8], metadata: &[u8], created: u64) -> Option<Keyspace> {
    let name = String::from_utf8_lossy(name).into_owned();
    Some(Keyspace { id: id_of(metadata)?, name, created })
}
