//! The journal, shown as the items that a volume of the same places would hold.
//!
//! A value's seq is the end of its batch; writes of a branch are prepared, whatever has become of it since: who compacts
//! asks. One entry is in memory at a time. An entry that is still being appended is not there: its places must not be
//! compacted before it is complete. Deliberately absent: erased ranges, which no entry says yet.

use assent_ids::Lsn;
use assent_journal::{Entry, Log};
use xxhash_rust::xxh3::xxh3_64;

use crate::record::{Content, Op, Placed};
use crate::vault::item::{Address, Body, Item, Value};
use crate::vault::{Source, VaultError};

/// What begins in the journal between two places.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) log: &'a dyn Log,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Source for Raw<'_> {
    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
        for entry in self.log.begun(Lsn(self.first), Lsn(self.end))? {
            items(&entry?, then)?;
        }
        Ok(())
    }
}

/// The items of one entry, in order.
///
/// # Errors
/// `Record` if it is none of this version; as `then` says.
pub(crate) fn items(entry: &Entry, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
    let content = Content::decode(entry.kind, &entry.payload);
    let content = content.map_err(|malformed| VaultError::Record { lsn: entry.lsn, malformed })?;
    let (lsn, seq) = (entry.lsn.0, entry.end.0);
    let mut outcome = |xid, prepare: Lsn, committed| {
        let body = Body::Outcome { seq, xid, prepare: prepare.0, committed };
        then(Item { address: Address::new(lsn, 0), body })
    };
    match content {
        Content::Commit { xid, prepare } => outcome(xid, prepare, true),
        Content::Rollback { xid, prepare } => outcome(xid, prepare, false),
        Content::Batch { ops } => ops.into_iter().try_for_each(|Placed { at, op }| {
            let body = match op {
                Op::Put { keyspace, key, metadata, value } => {
                    Body::Value { seq, value: valued(keyspace, key, metadata, value) }
                }
                Op::Delete { keyspace, key } => Body::Deleted { seq, keyspace, key },
            };
            then(Item { address: Address::new(lsn, at), body })
        }),
        Content::Prepare { xid, ops } => ops.into_iter().try_for_each(|Placed { at, op }| {
            let body = match op {
                Op::Put { keyspace, key, metadata, value } => {
                    Body::Prepared { xid, value: valued(keyspace, key, metadata, value) }
                }
                Op::Delete { keyspace, key } => Body::PreparedDelete { xid, keyspace, key },
            };
            then(Item { address: Address::new(lsn, at), body })
        }),
    }
}

fn valued<'a>(keyspace: u32, key: &'a [u8], metadata: &'a [u8], value: &'a [u8]) -> Value<'a> {
    Value { keyspace, key, modified: 0, expiry: 0, metadata, value, hash: xxh3_64(value) }
}
