//! The records of the coordinator's log. Drawn in docs/format.md, section "Coordinator records".
//!
//! Walk: a kind is a record and its version (`record << 8 | version`) · `decided_head` and `branches` lay the parts of a
//! decision, [`Record::read`] reads any record back.

use assent_frame::{Malformed, Reader, Writer};
use assent_ids::{Epoch, Incarnation, NodeId, ResourceId, TxId};
use assent_xa::{BranchRecord, Outcome};

use crate::By;

/// A decision, and finished transactions that ride along.
pub(crate) const DECIDED: u16 = 0x0101;
/// Transactions that may be forgotten.
pub(crate) const FINISHED: u16 = 0x0201;
/// Everything that must still be known.
pub(crate) const CHECKPOINT: u16 = 0x0301;
/// Clients that never decide commit again.
pub(crate) const FENCED: u16 = 0x0401;
/// The clients that are not fenced.
pub(crate) const CLIENTS: u16 = 0x0501;

pub(crate) const TX_BYTES: usize = 16;
const DECIDED_HEAD_BYTES: usize = TX_BYTES + 2;

/// What is known of clients: everyone up to `upto` who is not in `live` is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) node: NodeId,
    pub(crate) upto: Incarnation,
    pub(crate) live: Vec<Incarnation>,
}

/// One decision as it stands in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) tx: TxId,
    pub(crate) outcome: Outcome,
    pub(crate) by: By,
    pub(crate) acknowledged: bool,
    /// As laid by [`branches`].
    pub(crate) branches: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Decided(Decided, Vec<TxId>),
    Finished(Vec<TxId>),
    Checkpoint(Census, Vec<Decided>),
    Fenced(Vec<Incarnation>),
    Clients(Census),
}

const fn outcome_byte(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Committed => 1,
        Outcome::RolledBack => 2,
    }
}

/// What stands before the branches of a decision.
pub(crate) fn decided_head(tx: TxId, outcome: Outcome, by: By) -> [u8; DECIDED_HEAD_BYTES] {
    let mut head = [0; DECIDED_HEAD_BYTES];
    let bytes = tx_bytes(tx).into_iter().chain([outcome_byte(outcome), by.byte()]);
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    head
}

pub(crate) fn tx_bytes(tx: TxId) -> [u8; TX_BYTES] {
    let mut bytes = [0; TX_BYTES];
    let words = tx
        .incarnation
        .epoch
        .0
        .to_le_bytes()
        .into_iter()
        .chain(tx.incarnation.number.to_le_bytes())
        .chain(tx.counter.to_le_bytes());
    bytes.iter_mut().zip(words).for_each(|(to, from)| *to = from);
    bytes
}

/// Lays branches; they are kept like this in memory, too: one piece, whatever their number.
pub(crate) fn branches(list: &[BranchRecord]) -> Box<[u8]> {
    let mut out = Writer::new();
    // The door has checked the number.
    out.u16(u16::try_from(list.len()).unwrap_or(u16::MAX));
    for branch in list {
        out.u64(branch.resource.0).u16(branch.number).u16(branch.flags).bytes(&branch.witness);
    }
    out.into_vec().into_boxed_slice()
}

/// Reads branches that [`branches`] laid.
pub(crate) fn read_branches(bytes: &[u8]) -> Result<Vec<BranchRecord>, Malformed> {
    let mut reader = Reader::new(bytes);
    let list = take_branches(&mut reader)?;
    reader.end()?;
    Ok(list)
}

fn take_branches(reader: &mut Reader<'_>) -> Result<Vec<BranchRecord>, Malformed> {
    let count = reader.u16("branches")?;
    (0..count)
        .map(|_| {
            Ok(BranchRecord {
                resource: ResourceId(reader.u64("branch.resource")?),
                number: reader.u16("branch.number")?,
                flags: reader.u16("branch.flags")?,
                witness: reader.bytes("branch.witness")?.to_vec(),
            })
        })
        .collect()
}

pub(crate) fn lay_fenced(list: &[Incarnation]) -> Vec<u8> {
    let mut out = Writer::new();
    list.iter().for_each(|incarnation| lay_incarnation(&mut out, *incarnation));
    out.into_vec()
}

pub(crate) fn lay_census(out: &mut Writer, census: &Census) {
    out.u64(census.node.0);
    lay_incarnation(out, census.upto);
    out.u32(u32::try_from(census.live.len()).unwrap_or(u32::MAX));
    census.live.iter().for_each(|incarnation| lay_incarnation(out, *incarnation));
}

pub(crate) fn lay_entry(out: &mut Writer, tx: TxId, outcome: Outcome, by: By, acknowledged: bool, branches: &[u8]) {
    out.raw(&decided_head(tx, outcome, by)).u8(u8::from(acknowledged)).raw(branches);
}

fn lay_incarnation(out: &mut Writer, incarnation: Incarnation) {
    out.u32(incarnation.epoch.0).u32(incarnation.number);
}

impl Record {
    /// Reads a record; `None` for a kind that this program does not know.
    pub(crate) fn read(kind: u16, payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(payload);
        let record = match kind {
            DECIDED => {
                let mut decided = head(&mut reader)?;
                decided.branches = own_branches(&mut reader)?;
                Record::Decided(decided, txs(&mut reader)?)
            }
            FINISHED => Record::Finished(txs(&mut reader)?),
            CHECKPOINT => {
                let census = census(&mut reader)?;
                let count = reader.u32("entries")?;
                let entries = (0..count).map(|_| entry(&mut reader)).collect::<Result<_, _>>()?;
                Record::Checkpoint(census, entries)
            }
            FENCED => {
                let mut list = Vec::new();
                while !reader.rest().is_empty() {
                    list.push(incarnation(&mut reader)?);
                }
                Record::Fenced(list)
            }
            CLIENTS => Record::Clients(census(&mut reader)?),
            _ => return Ok(None),
        };
        reader.end()?;
        Ok(Some(record))
    }
}

fn head(reader: &mut Reader<'_>) -> Result<Decided, Malformed> {
    let tx = tx(reader)?;
    let outcome = match reader.u8("outcome")? {
        1 => Outcome::Committed,
        2 => Outcome::RolledBack,
        _ => return Err(Malformed { field: "outcome" }),
    };
    let by = By::from_byte(reader.u8("by")?).ok_or(Malformed { field: "by" })?;
    Ok(Decided { tx, outcome, by, acknowledged: false, branches: Box::default() })
}

fn entry(reader: &mut Reader<'_>) -> Result<Decided, Malformed> {
    let mut decided = head(reader)?;
    decided.acknowledged = reader.u8("acknowledged")? != 0;
    decided.branches = own_branches(reader)?;
    Ok(decided)
}

fn own_branches(reader: &mut Reader<'_>) -> Result<Box<[u8]>, Malformed> {
    Ok(branches(&take_branches(reader)?))
}

fn txs(reader: &mut Reader<'_>) -> Result<Vec<TxId>, Malformed> {
    let mut list = Vec::new();
    while !reader.rest().is_empty() {
        list.push(tx(reader)?);
    }
    Ok(list)
}

fn tx(reader: &mut Reader<'_>) -> Result<TxId, Malformed> {
    Ok(TxId { incarnation: incarnation(reader)?, counter: reader.u64("counter")? })
}

fn incarnation(reader: &mut Reader<'_>) -> Result<Incarnation, Malformed> {
    Ok(Incarnation { epoch: Epoch(reader.u32("epoch")?), number: reader.u32("number")? })
}

fn census(reader: &mut Reader<'_>) -> Result<Census, Malformed> {
    let node = NodeId(reader.u64("node")?);
    let upto = incarnation(reader)?;
    let count = reader.u32("live")?;
    let live = (0..count).map(|_| incarnation(reader)).collect::<Result<_, _>>()?;
    Ok(Census { node, upto, live })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u32, number: u32) -> Incarnation {
        Incarnation { epoch: Epoch(epoch), number }
    }

    fn some() -> (TxId, Vec<BranchRecord>) {
        let branch = |number, witness: &[u8]| BranchRecord {
            resource: ResourceId(0xfeed),
            number,
            flags: 1,
            witness: witness.to_vec(),
        };
        (TxId { incarnation: at(3, 4), counter: 5 }, vec![branch(0, b""), branch(1, b"xid8 77")])
    }

    fn laid() -> Vec<(u16, Vec<u8>, Record)> {
        let (tx, list) = some();
        let body = branches(&list);
        let head = decided_head(tx, Outcome::Committed, By::Client);
        let of = |acknowledged| Decided {
            tx,
            outcome: Outcome::Committed,
            by: By::Client,
            acknowledged,
            branches: body.clone(),
        };
        let census = Census { node: NodeId(9), upto: at(3, 8), live: vec![at(2, 1), at(3, 7)] };
        let mut clients = Writer::new();
        lay_census(&mut clients, &census);
        let mut checkpoint = Writer::new();
        lay_census(&mut checkpoint, &census);
        checkpoint.u32(1);
        lay_entry(&mut checkpoint, tx, Outcome::Committed, By::Client, true, &body);
        vec![
            (DECIDED, [&head[..], &body, &tx_bytes(tx)].concat(), Record::Decided(of(false), vec![tx])),
            (FINISHED, tx_bytes(tx).to_vec(), Record::Finished(vec![tx])),
            (CHECKPOINT, checkpoint.into_vec(), Record::Checkpoint(census.clone(), vec![of(true)])),
            (FENCED, lay_fenced(&[at(1, 2)]), Record::Fenced(vec![at(1, 2)])),
            (CLIENTS, clients.into_vec(), Record::Clients(census)),
        ]
    }

    #[test]
    fn records_survive_and_no_cut_is_taken_for_the_whole() {
        for (kind, bytes, record) in laid() {
            assert_eq!(Record::read(kind, &bytes), Ok(Some(record.clone())));
            for end in 0..bytes.len() {
                // Only whole entries of an open list can be missing unseen; the frame's length guards those.
                let cut = Record::read(kind, &bytes[..end]);
                assert_ne!(cut, Ok(Some(record.clone())), "{kind:#x} cut at {end}");
            }
        }
        assert_eq!(read_branches(&branches(&some().1)), Ok(some().1));
        assert_eq!(Record::read(0x0102, &[]), Ok(None));
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let (_, decided, _) = laid().swap_remove(0);
        let text: String = decided.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "030000000400000005000000000000000101\
             0200edfe00000000000000000100\
             00000000edfe0000000000000100010007000000786964382037370300000004000000\
             0500000000000000"
        );
    }
}
