//! What the ledger's note says: what the map's rows cannot say of the moment up to which they are durable, and what lives where.
//!
//! Walk: [`Moment`] is taken under the desk's lock when memory is closed · [`Note::lay`] when a manifest is committed,
//! [`Note::read`] at an open · [`Moment::needs`] says what of the journal must stay where it is.
//! Deliberately absent: when it is laid; that is `ledger`'s.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Lsn, Xid};

use crate::finished::{Row, lay_rows, read_row, read_rows};
use crate::record::{lay_xid, read_xid};
use crate::vault::Accounts;

/// Goes with the rows': an older ledger is built anew.
const NOTE_VERSION: u8 = 5;
/// Without the time.
const NOTE_VERSION_4: u8 = 4;
/// And finished branches one by one.
const NOTE_VERSION_3: u8 = 3;

/// What replay cannot find out from the map's rows, as of a place in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The last entry: where it begins and where it ends.
    pub(crate) entry: Lsn,
    pub(crate) end: Lsn,
    /// The latest time that anybody was told, in milliseconds since 1970: what was over by then stays so.
    pub(crate) latest_ms: u64,
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

impl Moment {
    /// From here on an open reads the journal itself: the last entry, to know whose it is, and the records of branches that were
    /// prepared then. What stands before is not compacted before it, and no append under way began before it.
    pub(crate) fn needs(&self) -> Lsn {
        self.prepared.iter().map(|(_, entry)| *entry).fold(self.entry, Lsn::min)
    }
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) moment: Moment,
    /// Puts that the runs have, and the bytes of their values.
    pub(crate) kept: [u64; 2],
    /// What lives in which volume; so it says which volumes there are.
    pub(crate) accounts: Accounts,
}

/// Lays a note.
pub(crate) fn lay(moment: &Moment, kept: [u64; 2], accounts: &Accounts) -> Vec<u8> {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut note = Writer::new();
    note.u8(NOTE_VERSION)
        .u64(moment.entry.0)
        .u64(moment.end.0)
        .u64(moment.hash.unwrap_or_default())
        .u64(moment.floor.0)
        .u64(moment.latest_ms);
    kept.iter().for_each(|count| _ = note.u64(*count));
    note.u32(count(moment.prepared.len()));
    for (xid, entry) in &moment.prepared {
        lay_xid(note.u64(entry.0), xid);
    }
    lay_rows(&mut note, &moment.finished);
    accounts.lay(&mut note);
    note.into_vec()
}

impl Note {
    /// Reads it back.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("version")?;
        if !(NOTE_VERSION_3..=NOTE_VERSION).contains(&version) {
            return Err(Malformed { field: "version" });
        }
        let (entry, end) = (Lsn(reader.u64("entry")?), Lsn(reader.u64("end")?));
        let hash = Some(reader.u64("hash")?);
        let floor = Lsn(reader.u64("floor")?);
        let latest_ms = if version == NOTE_VERSION { reader.u64("time")? } else { 0 };
        let kept = [reader.u64("keys")?, reader.u64("value bytes")?];
        let mut moment = Moment { entry, end, latest_ms, floor, hash, ..Moment::default() };
        for _ in 0..reader.u32("prepared")? {
            let entry = Lsn(reader.u64("entry")?);
            moment.prepared.push((read_xid(&mut reader)?, entry));
        }
        if version >= NOTE_VERSION_4 {
            moment.finished = read_rows(&mut reader)?;
        } else {
            for _ in 0..reader.u32("finished")? {
                moment.finished.push(read_row(&mut reader)?);
            }
        }
        let accounts = Accounts::read(&mut reader)?;
        reader.end()?;
        Ok(Self { moment, kept, accounts })
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId};

    use super::*;
    use crate::branch::Ending;
    use crate::vault::Booking;

    fn branch(counter: u64) -> Branch {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
        Branch { node: NodeId(7), tx, resource: ResourceId::of("kv"), number: 0, flags: 0, mark: None }
    }

    #[test]
    fn a_note_comes_back_as_it_was_laid_and_says_what_it_needs() {
        let row = Row { lsn: Lsn(5), branch: branch(2), ending: Ending::Rollback };
        let prepared = vec![(branch(1).xid(), Lsn(16)), (branch(3).xid(), Lsn(8))];
        let moment = Moment {
            entry: Lsn(72),
            end: Lsn(80),
            latest_ms: 1_795_200_000_123,
            prepared,
            floor: Lsn(3),
            finished: vec![row],
            made: [0; 2],
            hash: Some(77),
        };
        let mut accounts = Accounts::new(100);
        let mut booking = Booking::new(100);
        booking.enters(150, 30);
        accounts.book(&booking).unwrap();
        let bytes = lay(&moment, [3, 30], &accounts);
        let note = Note { moment, kept: [3, 30], accounts };
        assert_eq!((Note::read(&bytes).as_ref(), note.moment.needs()), (Ok(&note), Lsn(8)));
        for end in 0..bytes.len() {
            assert!(Note::read(&bytes[..end]).is_err(), "{end}");
        }
        // As the version before laid it: without the time.
        let mut before = bytes;
        before[0] = NOTE_VERSION_4;
        before.drain(33..41);
        let old = Note::read(&before).unwrap();
        assert_eq!(old.moment, Moment { latest_ms: 0, ..note.moment });
    }
}
