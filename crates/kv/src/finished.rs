//! What became of branches that were prepared: the latest of them, so that recovery can ask (`Verb::Inquire`).
//!
//! Walk: [`Finished::note`] at publishing and at replay, in log order · the ledger's note carries it ·
//! [`Finished::became`] answers with the witness of the vote: which store, and where in its journal the vote stands. A
//! store that was copied or set back has the same id, and cannot know what came after the copy: the place tells it.
//! Deliberately absent: branches of other programs' coordinators, who do not ask, and branches that ended in one phase,
//! which nobody voted for.

use std::collections::{HashMap, VecDeque};

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Branch, Lsn, NodeId, Xid};
use assent_xa::{Native, Past};

use crate::branch::Ending;
use crate::record::{lay_xid, read_xid};

/// An outcome and where its record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) lsn: Lsn,
    pub(crate) branch: Branch,
    pub(crate) ending: Ending,
}

pub(crate) fn lay_row(note: &mut Writer, row: &Row) {
    note.u64(row.lsn.0).u8(match row.ending {
        Ending::Commit => 1,
        Ending::Rollback => 2,
    });
    lay_xid(note, &row.branch.xid());
}

pub(crate) fn read_row(reader: &mut Reader<'_>) -> Result<Row, Malformed> {
    let lsn = Lsn(reader.u64("lsn")?);
    let ending = match reader.u8("ending")? {
        1 => Ending::Commit,
        2 => Ending::Rollback,
        _ => return Err(Malformed { field: "ending" }),
    };
    let branch = read_xid(reader)?.branch().ok_or(Malformed { field: "xid" })?;
    Ok(Row { lsn, branch, ending })
}

/// The latest outcomes.
#[derive(Debug)]
pub(crate) struct Finished {
    /// In log order.
    rows: VecDeque<Row>,
    by_branch: HashMap<Branch, (Lsn, Ending)>,
    /// Every outcome whose record stands here or behind is among them.
    floor: Lsn,
    most: usize,
}

impl Finished {
    /// Remembers so many; everything before `floor` is not known.
    pub(crate) fn new(most: u32, floor: Lsn) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { rows: VecDeque::new(), by_branch: HashMap::new(), floor, most }
    }

    pub(crate) const fn floor(&self) -> Lsn {
        self.floor
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows.iter().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The outcome of a branch that was prepared is durable.
    pub(crate) fn note(&mut self, lsn: Lsn, xid: &Xid, ending: Ending) {
        if let Some(branch) = xid.branch() {
            self.keep(Row { lsn, branch, ending });
        }
    }

    pub(crate) fn keep(&mut self, row: Row) {
        self.by_branch.insert(row.branch, (row.lsn, row.ending));
        self.rows.push_back(row);
        while self.rows.len() > self.most {
            let Some(old) = self.rows.pop_front() else { return };
            self.floor = self.floor.max(Lsn(old.lsn.0.saturating_add(1)));
            // The same name may have been used again since.
            if self.by_branch.get(&old.branch).is_some_and(|(lsn, _)| *lsn == old.lsn) {
                self.by_branch.remove(&old.branch);
            }
        }
    }

    fn outcome(&self, xid: &Xid) -> Option<Past> {
        let (_, ending) = self.by_branch.get(&xid.branch()?)?;
        Some(match ending {
            Ending::Commit => Past::Committed,
            Ending::Rollback => Past::RolledBack,
        })
    }

    /// What became of a branch. `is_here`: it is known and unfinished. `end`: the journal's. Without a witness only what
    /// is remembered is known.
    pub(crate) fn became(&self, xid: &Xid, voted: &Voucher, store: NodeId, is_here: bool, end: Lsn) -> Past {
        let elsewhere = |message: String| Past::Elsewhere(Native { code: "elsewhere".to_owned(), message });
        let place = match voted {
            Voucher::None => None,
            Voucher::Foreign => {
                return elsewhere("the witness of the vote is not one of this kind of store".to_owned());
            }
            Voucher::Of { store: voter, .. } if *voter != store => {
                return elsewhere(format!("store {voter} voted, and this is store {store}"));
            }
            Voucher::Of { prepare, .. } => Some(*prepare),
        };
        match (is_here, self.outcome(xid), place) {
            (true, ..) => Past::Open,
            (false, Some(past), _) => past,
            // The vote stands where all outcomes are known, or behind everything: this journal never had it.
            (false, None, Some(prepare)) if prepare >= self.floor || prepare >= end => elsewhere(format!(
                "store {store} voted at LSN {prepare}, and its journal here (to LSN {end}) never had that vote: it is an \
                 older copy"
            )),
            (false, None, None) => elsewhere(format!(
                "it is not prepared in store {store}, and nothing was kept of its vote: what became of it nobody can know; \
                 look at its keys"
            )),
            (false, None, Some(_)) => Past::Forgotten,
        }
    }
}

/// What a vote leaves with the coordinator, and what comes back with its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voucher {
    /// Nothing was kept.
    None,
    /// A vote of such a store.
    Of {
        /// Who it is.
        store: NodeId,
        /// Where its prepare record begins.
        prepare: Lsn,
    },
    /// Bytes that no such store gave.
    Foreign,
}

const WITNESS_BYTES: usize = 17;
const VERSION: u8 = 1;

/// The witness of a vote: version 1, store 8, place of the prepare record 8, little endian.
pub(crate) fn witness(store: NodeId, prepare: Lsn) -> Vec<u8> {
    let mut laid = Vec::with_capacity(WITNESS_BYTES);
    laid.push(VERSION);
    laid.extend_from_slice(&store.0.to_le_bytes());
    laid.extend_from_slice(&prepare.0.to_le_bytes());
    laid
}

impl Voucher {
    pub(crate) fn read(witness: &[u8]) -> Self {
        let words = |rest: &[u8]| {
            let (store, prepare) = rest.split_first_chunk::<8>()?;
            let prepare: [u8; 8] = prepare.try_into().ok()?;
            Some(Self::Of { store: NodeId(u64::from_le_bytes(*store)), prepare: Lsn(u64::from_le_bytes(prepare)) })
        };
        match witness.split_first() {
            None => Self::None,
            Some((&VERSION, rest)) => words(rest).unwrap_or(Self::Foreign),
            Some(_) => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation, ResourceId, TxId};

    use super::*;

    const STORE: NodeId = NodeId(5);
    const END: Lsn = Lsn(1_000);

    fn xid(counter: u64) -> Xid {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
        Branch { node: NodeId(7), tx, resource: ResourceId::of("kv"), number: 0, flags: 0 }.xid()
    }

    fn voted(prepare: u64) -> Voucher {
        Voucher::read(&witness(STORE, Lsn(prepare)))
    }

    #[test]
    fn the_latest_are_known_and_older_ones_forgotten_but_never_taken_for_another_stores() {
        let mut finished = Finished::new(2, Lsn(0));
        finished.note(Lsn(10), &xid(1), Ending::Commit);
        finished.note(Lsn(20), &xid(2), Ending::Rollback);
        finished.note(Lsn(30), &xid(3), Ending::Commit);
        let asked = |counter, prepare| finished.became(&xid(counter), &voted(prepare), STORE, false, END);
        assert_eq!((asked(3, 25), asked(2, 15), asked(1, 5)), (Past::Committed, Past::RolledBack, Past::Forgotten));
        assert_eq!(finished.floor(), Lsn(11));
        assert_eq!(finished.became(&xid(3), &Voucher::None, STORE, false, END), Past::Committed);
        let nobody = finished.became(&xid(9), &Voucher::None, STORE, false, END);
        assert!(matches!(nobody, Past::Elsewhere(_)), "nothing says that it voted here: {nobody:?}");
    }

    #[test]
    fn another_store_an_older_copy_and_foreign_bytes_cannot_know() {
        let mut finished = Finished::new(8, Lsn(0));
        finished.note(Lsn(10), &xid(1), Ending::Commit);
        let asked = |voted: Voucher| matches!(finished.became(&xid(2), &voted, STORE, false, END), Past::Elsewhere(_));
        assert!(asked(Voucher::Of { store: NodeId(6), prepare: Lsn(1) }), "another store");
        assert!(asked(voted(2_000)), "set back to before the vote");
        assert!(asked(voted(500)), "set back, and gone on since");
        assert!(asked(Voucher::read(b"postgres")) && asked(Voucher::read(&[VERSION])));
        let other = Voucher::Of { store: NodeId(6), prepare: Lsn(1) };
        assert!(matches!(finished.became(&xid(1), &other, STORE, true, END), Past::Elsewhere(_)));
        assert_eq!(finished.became(&xid(1), &voted(5), STORE, true, END), Past::Open);
    }

    #[test]
    fn a_name_that_is_used_again_keeps_its_latest_outcome() {
        let mut finished = Finished::new(2, Lsn(0));
        finished.note(Lsn(10), &xid(1), Ending::Rollback);
        finished.note(Lsn(20), &xid(1), Ending::Commit);
        finished.note(Lsn(30), &xid(2), Ending::Commit);
        assert_eq!(finished.became(&xid(1), &voted(15), STORE, false, END), Past::Committed);
    }
}
