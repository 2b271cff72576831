//! What became of branches that were prepared: the latest of them, so that recovery can ask (`Verb::Inquire`).
//!
//! Walk: [`Finished::note`] at publishing and at replay, in log order · the ledger's note carries it ·
//! [`Finished::became`] answers with the witness of the vote: which store, and where in its journal the vote stands. A
//! store that was copied or set back has the same id, and cannot know what came after the copy: the place tells it.
//! Deliberately absent: branches of other programs' coordinators, who do not ask, and branches that ended in one phase,
//! which nobody voted for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Branch, Epoch, Incarnation, Lsn, NodeId, ResourceId, TxId, Xid};
use assent_xa::{Native, Past};

use crate::branch::Ending;
use crate::record::read_xid;
use crate::vault::index::{read_varint, varint};

/// An outcome and where its record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) lsn: Lsn,
    pub(crate) branch: Branch,
    pub(crate) ending: Ending,
}

/// Lays rows one behind the other. Most are of few clients, whose transactions are counted: what a row shares with those before it is
/// said once.
pub(crate) fn lay_rows(note: &mut Writer, rows: &[Row]) {
    let mut lines: BTreeMap<Line, (u64, u64)> = BTreeMap::new();
    let mut all = Vec::new();
    for row in rows {
        let line = Line::of(&row.branch);
        if let Entry::Vacant(vacant) = lines.entry(line) {
            vacant.insert((count(all.len()), 0));
            all.push(line);
        }
    }
    note.u32(u32::try_from(rows.len()).unwrap_or(u32::MAX)).u32(u32::try_from(all.len()).unwrap_or(u32::MAX));
    for Line { node, epoch, incarnation, resource } in all {
        note.u64(node).u32(epoch).u32(incarnation).u64(resource);
    }
    let mut before = 0;
    for Row { lsn, branch, ending } in rows {
        let Some((number, counted)) = lines.get_mut(&Line::of(branch)) else { continue };
        let counter = branch.tx.counter;
        let is_commit = u64::from(*ending == Ending::Commit);
        for value in [
            near(lsn.0, before),
            *number,
            near(counter, *counted),
            branch.number.into(),
            u64::from(branch.flags) << 1 | is_commit,
        ] {
            varint(note, value);
        }
        (before, *counted) = (lsn.0, counter);
    }
}

/// Reads them back.
///
/// # Errors
/// [`Malformed`].
pub(crate) fn read_rows(reader: &mut Reader<'_>) -> Result<Vec<Row>, Malformed> {
    let (count, distinct) = (reader.u32("finished")?, reader.u32("clients")?);
    let mut lines = Vec::new();
    for _ in 0..distinct {
        let line = Line {
            node: reader.u64("node")?,
            epoch: reader.u32("epoch")?,
            incarnation: reader.u32("incarnation")?,
            resource: reader.u64("resource")?,
        };
        lines.push((line, 0));
    }
    let (mut rows, mut before) = (Vec::new(), 0);
    for _ in 0..count {
        let lsn = far(read_varint(reader)?, before);
        let number = usize::try_from(read_varint(reader)?).unwrap_or(usize::MAX);
        let (line, counted) = lines.get_mut(number).ok_or(Malformed { field: "client" })?;
        let counter = far(read_varint(reader)?, *counted);
        let word = |value: u64| u16::try_from(value).map_err(|_| Malformed { field: "branch" });
        let number = word(read_varint(reader)?)?;
        let said = read_varint(reader)?;
        let branch = line.branch(counter, number, word(said >> 1)?);
        let ending = if said & 1 == 1 { Ending::Commit } else { Ending::Rollback };
        rows.push(Row { lsn: Lsn(lsn), branch, ending });
        (before, *counted) = (lsn, counter);
    }
    Ok(rows)
}

/// Whose transactions are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    node: u64,
    epoch: u32,
    incarnation: u32,
    resource: u64,
}

impl Line {
    const fn of(branch: &Branch) -> Self {
        let Incarnation { epoch, number } = branch.tx.incarnation;
        Self { node: branch.node.0, epoch: epoch.0, incarnation: number, resource: branch.resource.0 }
    }

    const fn branch(&self, counter: u64, number: u16, flags: u16) -> Branch {
        let incarnation = Incarnation { epoch: Epoch(self.epoch), number: self.incarnation };
        let (node, resource) = (NodeId(self.node), ResourceId(self.resource));
        Branch { node, tx: TxId { incarnation, counter }, resource, number, flags, mark: None }
    }
}

/// The distance from another number, small where they are near, whichever is higher.
const fn near(value: u64, from: u64) -> u64 {
    let distance = value.wrapping_sub(from).cast_signed();
    ((distance << 1) ^ (distance >> 63)).cast_unsigned()
}

const fn far(near: u64, from: u64) -> u64 {
    from.wrapping_add((near >> 1) ^ (near & 1).wrapping_neg())
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// As notes of version 3 have it.
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

/// By what a branch is known here: its mark says where its decision is, and no two branches differ in that alone.
const fn named(branch: Branch) -> Branch {
    Branch { mark: None, ..branch }
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

    /// No outcome that is remembered, or will be, stands before. Where a ledger was built anew that may be before the floor: volumes
    /// say some outcomes and not all.
    pub(crate) fn oldest(&self) -> Lsn {
        self.rows.front().map_or(self.floor, |row| row.lsn)
    }

    /// These too, which stand before all others.
    pub(crate) fn precede(&mut self, mut before: Vec<Row>) {
        before.sort_unstable_by_key(|row| row.lsn);
        let mut all = Self { rows: VecDeque::new(), by_branch: HashMap::new(), ..*self };
        before.into_iter().chain(self.rows()).for_each(|row| all.keep(row));
        *self = all;
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
        let row = Row { branch: named(row.branch), ..row };
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
        let (_, ending) = self.by_branch.get(&named(xid.branch()?))?;
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
    use super::*;

    const STORE: NodeId = NodeId(5);
    const END: Lsn = Lsn(1_000);

    fn xid(counter: u64) -> Xid {
        let tx = TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
        Branch { node: NodeId(7), tx, resource: ResourceId::of("kv"), number: 0, flags: 0, mark: None }.xid()
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

    #[test]
    fn rows_come_back_whatever_they_are_and_take_few_bytes_where_they_are_of_few_clients() {
        let row = |lsn, node, number, counter, (branch, flags)| {
            let tx = TxId { incarnation: Incarnation { epoch: Epoch(3), number }, counter };
            let branch = Branch { node: NodeId(node), tx, resource: ResourceId(5), number: branch, flags, mark: None };
            Row { lsn: Lsn(lsn), branch, ending: if counter % 3 == 0 { Ending::Rollback } else { Ending::Commit } }
        };
        let odd = [
            row(u64::MAX, 7, 1, 9, (0, 0)),
            row(0, 7, 1, u64::MAX, (u16::MAX, u16::MAX)),
            row(8, u64::MAX, u32::MAX, 0, (1, 1)),
            row(8, 7, 1, 3, (0, 1)),
        ];
        let many: Vec<Row> =
            (0..65_536_u32).map(|at| row(u64::from(at) * 900, 7, at % 64, u64::from(at / 64), (0, 0))).collect();
        for rows in [&odd[..], &many, &[]] {
            let mut note = Writer::new();
            lay_rows(&mut note, rows);
            let bytes = note.into_vec();
            assert_eq!(read_rows(&mut Reader::new(&bytes)).unwrap(), rows);
            assert!(bytes.len() < 8 + 64 * 24 + rows.len() * 7 + 60, "{} bytes for {} rows", bytes.len(), rows.len());
            for end in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
                assert!(read_rows(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn a_row_of_before_is_read() {
        let mut note = Writer::new();
        note.u64(77).u8(2);
        crate::record::lay_xid(&mut note, &xid(4));
        let branch = xid(4).branch().unwrap();
        let row = Row { lsn: Lsn(77), branch, ending: Ending::Rollback };
        assert_eq!(read_row(&mut Reader::new(note.as_slice())), Ok(row));
    }
}
