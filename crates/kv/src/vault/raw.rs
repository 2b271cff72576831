//! The journal, shown as the items that a volume of the same places would hold.
//!
//! A value's seq is the end of its batch; writes of a branch are prepared, whatever has become of it since: who compacts
//! asks. One entry is in memory at a time. An entry that is still being appended is not there: its places must not be
//! compacted before it is complete.

use assent_frame::laid_bytes;
use assent_ids::Lsn;
use assent_journal::{Entry, Log};
use xxhash_rust::xxh3::xxh3_64;

use crate::op::Op;
use crate::record::{Content, Placed};
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
        // Damage is behind the last entry that was whole; within a long one others may begin.
        let mut place = self.first;
        let entries = self.log.begun(Lsn(self.first), Lsn(self.end));
        for entry in entries.map_err(|error| VaultError::from(error).found_at(place))? {
            let entry = entry.map_err(|error| VaultError::from(error).found_at(place))?;
            items(&entry, then).map_err(|error| match error {
                VaultError::Record { .. } => error.found_at(entry.lsn.0),
                error => error,
            })?;
            let laid = u64::try_from(laid_bytes(entry.payload.len())).unwrap_or(u64::MAX);
            let behind = if entry.end.0 - entry.lsn.0 <= laid { entry.end } else { entry.lsn };
            place = behind.0.min(self.end - 1);
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
        Content::Batch { modified, ops } => ops.into_iter().try_for_each(|Placed { at, op }| {
            let body = match op {
                Op::Put { keyspace, key, metadata, value, expiry } => {
                    Body::Value { seq, value: valued((keyspace, key), (modified, expiry), metadata, value) }
                }
                Op::Delete { keyspace, key } => Body::Deleted { seq, keyspace, key },
                Op::Erase { keyspace, from, to } => Body::Erased { seq, keyspace, from, to },
            };
            then(Item { address: Address::new(lsn, at), body })
        }),
        Content::Prepare { xid, modified, ops } => ops.into_iter().try_for_each(|Placed { at, op }| {
            let body = match op {
                Op::Put { keyspace, key, metadata, value, expiry } => {
                    Body::Prepared { xid, value: valued((keyspace, key), (modified, expiry), metadata, value) }
                }
                // No prepare record erases: decoding has refused it.
                Op::Delete { keyspace, key } | Op::Erase { keyspace, from: key, .. } => {
                    Body::PreparedDelete { xid, keyspace, key }
                }
            };
            then(Item { address: Address::new(lsn, at), body })
        }),
    }
}

fn valued<'a>(
    (keyspace, key): (u32, &'a [u8]),
    (modified, expiry): (u64, u64),
    metadata: &'a [u8],
    value: &'a [u8],
) -> Value<'a> {
    Value { keyspace, key, modified, expiry, metadata, value, hash: xxh3_64(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Durability;
    use crate::record::{KIND_BATCH, Laid};

    #[test]
    fn an_entry_shows_its_times_its_erases_and_nothing_that_it_erases_itself() {
        let ops = [
            Op::put(1, b"b", b"gone"),
            Op::erase(1, b"a", Some(b"c")),
            Op::put(1, b"b", b"new").expiring(9),
            Op::erase(2, b"", None),
        ];
        let payload = Laid::batch(&ops, Durability::Durable, 7).parts(&ops).concat();
        let entry = Entry { lsn: Lsn(64), end: Lsn(200), kind: KIND_BATCH, payload };
        let mut found = Vec::new();
        items(&entry, &mut |item| {
            found.push(match item.body {
                Body::Value { seq, value } => format!("{seq} value {} {}", value.modified, value.expiry),
                Body::Deleted { seq, .. } => format!("{seq} deleted"),
                Body::Erased { seq, keyspace, from, to } => format!("{seq} erased {keyspace} {from:?} {to:?}"),
                other => panic!("{other:?}"),
            });
            Ok(())
        })
        .unwrap();
        assert_eq!(found, ["200 deleted", "200 erased 1 [97] Some([99])", "200 value 7 9", "200 erased 2 [] None"]);
    }
}
