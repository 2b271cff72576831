//! The journal, shown as the items that a volume of the same places would hold.
//!
//! A value's seq is the end of its batch; writes of a branch are prepared, whatever has become of it since: who compacts
//! asks. One entry is in memory at a time. An entry that is still being appended is not there: its places must not be
//! compacted before it is complete.

use std::cell::Cell;

use assent_frame::laid_bytes;
use assent_ids::Lsn;
use assent_journal::{Entry, Log};
use xxhash_rust::xxh3::xxh3_64;

use crate::op::Op;
use crate::record::{Content, Placed};
use crate::vault::item::{Address, Body, Item, Value};
use crate::vault::{Account, Dead, Source, VaultError};

impl Account {
    /// Where the entries of a kept stretch end that begin in it: what is behind may be gone.
    pub(crate) const fn reads_to(&self) -> u64 {
        if self.is_passed() { self.until } else { self.end }
    }

    /// And where they all are complete; the log's end where that was not noted.
    pub(crate) const fn complete_by(&self) -> u64 {
        match self.until {
            0 => u64::MAX,
            until if until > self.reads_to() => until,
            _ => self.reads_to(),
        }
    }
}

/// What begins in the journal between two places.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    log: &'a dyn Log,
    first: u64,
    end: u64,
    /// Where what begins in it is complete, if it is.
    by: u64,
    /// Of the cells from `first` on.
    dead: Dead,
    /// Up to here reach the pieces of the long entries that the walk has met: what begins before lies between them.
    pieces_end: Cell<u64>,
}

impl<'a> Raw<'a> {
    /// With what is known to be dead of it. All that is behind it in the log is there.
    pub(crate) const fn new(log: &'a dyn Log, first: u64, end: u64, dead: Dead) -> Self {
        Self { log, first, end, by: u64::MAX, dead, pieces_end: Cell::new(0) }
    }

    /// A stretch that was kept: what is behind its last entry may be gone.
    pub(crate) fn kept(log: &'a dyn Log, account: &Account) -> Self {
        let (first, end, by) = (account.first, account.reads_to(), account.complete_by());
        Self { log, first, end, by, dead: Dead::default(), pieces_end: Cell::new(0) }
    }
}

impl Source for Raw<'_> {
    fn is_dead(&self, address: Address) -> bool {
        address.lsn >= self.pieces_end.get() && self.dead.knows(address)
    }

    fn walk(&self, then: &mut dyn FnMut(Item<'_>) -> Result<(), VaultError>) -> Result<(), VaultError> {
        // Damage is behind the last entry that was whole; within a long one others may begin.
        let mut place = self.first;
        let entries = self.log.begun(Lsn(self.first), Lsn(self.end), Lsn(self.by));
        self.pieces_end.set(0);
        for entry in entries.map_err(|error| VaultError::from(error).found_at(place))? {
            let entry = entry.map_err(|error| VaultError::from(error).found_at(place))?;
            let laid = u64::try_from(laid_bytes(entry.payload.len())).unwrap_or(u64::MAX);
            let is_whole = entry.end.0 - entry.lsn.0 <= laid;
            if !is_whole {
                self.pieces_end.set(self.pieces_end.get().max(entry.end.0));
            }
            items(&entry, then).map_err(|error| match error {
                VaultError::Record { .. } => error.found_at(entry.lsn.0),
                error => error,
            })?;
            let behind = if is_whole { entry.end } else { entry.lsn };
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
    use assent_ids::Epoch;
    use assent_journal::{Entries, JournalError, State, Ticket};

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

    /// A log of entries that were said to be there.
    #[derive(Debug)]
    struct Said(Vec<Entry>);

    impl Log for Said {
        fn append(&self, _: u16, _: &[&[u8]]) -> Result<Ticket, JournalError> {
            unreachable!()
        }
        fn wait(&self, _: Ticket) -> Result<(), JournalError> {
            unreachable!()
        }
        fn wait_durable(&self, _: Ticket) -> Result<(), JournalError> {
            unreachable!()
        }
        fn sync(&self) -> Result<Lsn, JournalError> {
            unreachable!()
        }
        fn durable(&self) -> Lsn {
            unreachable!()
        }
        fn end(&self) -> Lsn {
            unreachable!()
        }
        fn start(&self) -> Lsn {
            unreachable!()
        }
        fn read(&self, _: Lsn) -> Result<Entries<'_>, JournalError> {
            Ok(Box::new(self.0.iter().cloned().map(Ok)))
        }
        fn read_at(&self, _: Lsn) -> Result<Entry, JournalError> {
            unreachable!()
        }
        fn trim(&self, _: Lsn) -> Result<(), JournalError> {
            unreachable!()
        }
        fn epoch(&self) -> Epoch {
            unreachable!()
        }
        fn state(&self) -> State {
            unreachable!()
        }
    }

    /// Values of a long entry had the bits of values that lay between its pieces: these would have been taken for dead with them.
    #[test]
    fn what_lies_between_the_pieces_of_a_long_entry_is_asked_for_and_so_is_the_long_entry() {
        let entry = |lsn: u64, pieces: u64, keys: u64| {
            let keys: Vec<[u8; 8]> = (0..keys).map(u64::to_be_bytes).collect();
            let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::put(1, key, b"value")).collect();
            let payload = Laid::batch(&ops, Durability::Durable, 7).parts(&ops).concat();
            let end = lsn + u64::try_from(laid_bytes(payload.len())).unwrap() + pieces;
            Entry { lsn: Lsn(lsn), end: Lsn(end), kind: KIND_BATCH, payload }
        };
        // Before it, the long one, within it, and right behind it.
        let (before, long) = (entry(0, 0, 2), entry(512, 2_000, 100));
        let (within, behind) = (entry(1_500, 0, 9), entry(long.end.0, 0, 3));
        let expected = [(0, 0), (512, 100), (1_500, 9), (long.end.0, 0)];
        let mut dead = Dead::new(1 << 16, 0, 1 << 20);
        let log = Said(vec![before, long, within, behind]);
        let mut all = Vec::new();
        Raw::new(&log, 0, 1 << 16, Dead::default())
            .walk(&mut |item| {
                all.push(item.address);
                Ok(())
            })
            .unwrap();
        all.iter().for_each(|address| dead.note(*address));
        let raw = Raw::new(&log, 0, 1 << 16, dead);
        let mut asked = Vec::new();
        raw.walk(&mut |item| {
            if !raw.is_dead(item.address) {
                asked.push(item.address.lsn);
            }
            Ok(())
        })
        .unwrap();
        for (lsn, count) in expected {
            assert_eq!(asked.iter().filter(|asked| **asked == lsn).count(), count, "{lsn}");
        }
        assert_eq!(all.len(), 114);
    }
}
