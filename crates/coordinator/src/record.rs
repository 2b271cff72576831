//! The records of the coordinator's log, read. Drawn in docs/format.md, section "Coordinator records".
//!
//! Walk: a kind is a record and its version (`record << 8 | version`) · [`Record::read`] reads any record back, also of
//! the versions that earlier programs laid · `lay` is the other direction.

use assent_frame::{Malformed, Reader};
use assent_ids::{Epoch, Incarnation, NodeId, ResourceId, TxId};
use assent_xa::{Ballot, BranchRecord, Heuristic, Native, Outcome, Voice, Voted, read_votes, take_votes};

use crate::chain::{Digest, Seal};
use crate::coordinator::row_of;
use crate::note::Note;
use crate::{Action, By, Fate, Finish, lay};

/// A decision without its time, as it was laid before there was a history.
pub(crate) const DECIDED_1: u16 = 0x0101;
/// A decision, and finished transactions that ride along.
pub(crate) const DECIDED: u16 = 0x0102;
/// Transactions that may be forgotten, without their time.
pub(crate) const FINISHED_1: u16 = 0x0201;
/// Transactions that may be forgotten.
pub(crate) const FINISHED: u16 = 0x0202;
/// Everything that must still be known, as it was before there was a history.
pub(crate) const CHECKPOINT_1: u16 = 0x0301;
/// Everything that must still be known.
pub(crate) const CHECKPOINT: u16 = 0x0302;
/// Clients that never decide commit again.
pub(crate) const FENCED: u16 = 0x0401;
/// The clients that are not fenced.
pub(crate) const CLIENTS: u16 = 0x0501;
/// How a branch was left.
pub(crate) const BRANCH: u16 = 0x0601;
/// A client, and what it calls itself.
pub(crate) const CLIENT: u16 = 0x0701;
/// The digest of all records before it.
pub(crate) const SEAL: u16 = 0x0801;
/// A person's word.
pub(crate) const OPERATOR: u16 = 0x0901;
/// An opening, where the log may acknowledge before it syncs.
pub(crate) const OPENED: u16 = 0x0a01;

/// What branches voted, where not all that were asked said yes.
pub(crate) const VOTES: u16 = 0x0c01;

/// A transaction as a checkpoint keeps it, alone: told by a state table only.
pub(crate) const ENTRY: u16 = 0x0b01;

pub(crate) const TX_BYTES: usize = 16;

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
    /// Milliseconds since 1970, as the coordinator's machine said; 0: an earlier program did not note it.
    pub(crate) at_ms: u64,
    pub(crate) acknowledged: bool,
    /// As laid by [`lay::branches`].
    pub(crate) branches: Box<[u8]>,
    /// Where the decision may be a row, too: as the branches say.
    pub(crate) row: Option<ResourceId>,
    /// Of a checkpoint's entry: branches that ended otherwise than decided.
    pub(crate) notes: Vec<Note>,
}

/// Everything that must still be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) census: Census,
    pub(crate) labels: Vec<(Incarnation, String)>,
    pub(crate) opened: Opened,
    /// The seal right before it; a version 1 has none.
    pub(crate) seal: Option<Seal>,
    pub(crate) entries: Vec<Decided>,
}

/// An opening that looked for what its predecessors may have lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) epoch: Epoch,
    /// Its log may acknowledge before it syncs.
    pub(crate) is_lazy: bool,
    /// Decisions of clients of earlier epochs than this may be lost.
    pub(crate) lost_below: Epoch,
}

/// What branches voted, and how it ended, as its client said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Votes {
    pub(crate) at_ms: u64,
    pub(crate) tx: TxId,
    pub(crate) outcome: Outcome,
    pub(crate) votes: Vec<Voted>,
}

/// A person's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) at_ms: u64,
    pub(crate) tx: TxId,
    pub(crate) action: Action,
    pub(crate) who: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Decided(Decided, Vec<TxId>),
    /// When (0: not noted), and which.
    Finished(u64, Vec<TxId>),
    Checkpoint(Checkpoint),
    Fenced(Vec<Incarnation>),
    Clients(Census),
    /// When.
    Branch(u64, TxId, Note),
    /// When.
    Client(u64, Incarnation, String),
    Seal(Seal),
    Operator(Word),
    /// When.
    Opened(u64, Opened),
    /// A row of a state table.
    Entry(Decided),
    Votes(Votes),
}

impl Record {
    /// Reads a record; `None` for a kind that this program does not know.
    pub(crate) fn read(kind: u16, payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(payload);
        let from = &mut reader;
        let record = match kind {
            DECIDED_1 | DECIDED => {
                let mut decided = head(from)?;
                decided.at_ms = if kind == DECIDED { from.u64("decided.at")? } else { 0 };
                (decided.branches, decided.row) = own_branches(from)?;
                Record::Decided(decided, txs(from)?)
            }
            FINISHED_1 => Record::Finished(0, txs(from)?),
            FINISHED => Record::Finished(from.u64("finished.at")?, txs(from)?),
            CHECKPOINT_1 | CHECKPOINT => Record::Checkpoint(checkpoint(from, kind == CHECKPOINT)?),
            FENCED => {
                let mut list = Vec::new();
                while !from.rest().is_empty() {
                    list.push(incarnation(from)?);
                }
                Record::Fenced(list)
            }
            CLIENTS => Record::Clients(census(from)?),
            BRANCH => Record::Branch(from.u64("branch.at")?, tx(from)?, note(from)?),
            CLIENT => Record::Client(from.u64("client.at")?, incarnation(from)?, from.text("client.label")?.to_owned()),
            SEAL => Record::Seal(seal(from)?),
            OPERATOR => Record::Operator(word(from)?),
            OPENED => Record::Opened(from.u64("opened.at")?, opened(from)?),
            ENTRY => Record::Entry(entry(from, true)?),
            VOTES => Record::Votes(votes(from)?),
            _ => return Ok(None),
        };
        reader.end()?;
        Ok(Some(record))
    }
}

/// Reads branches that [`lay::branches`] laid.
pub(crate) fn read_branches(bytes: &[u8]) -> Result<Vec<BranchRecord>, Malformed> {
    read_votes(bytes)
}

fn head(reader: &mut Reader<'_>) -> Result<Decided, Malformed> {
    let (tx, outcome) = (tx(reader)?, outcome(reader)?);
    let by = by(reader)?;
    let notes = Vec::new();
    Ok(Decided { tx, outcome, by, at_ms: 0, acknowledged: false, branches: Box::default(), row: None, notes })
}

fn outcome(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    match reader.u8("outcome")? {
        1 => Ok(Outcome::Committed),
        2 => Ok(Outcome::RolledBack),
        _ => Err(Malformed { field: "outcome" }),
    }
}

fn votes(from: &mut Reader<'_>) -> Result<Votes, Malformed> {
    let (at_ms, tx, outcome) = (from.u64("votes.at")?, tx(from)?, outcome(from)?);
    let count = from.u16("votes")?;
    let votes = (0..count).map(|_| {
        let (resource, number) = (ResourceId(from.u64("vote.resource")?), from.u16("vote.number")?);
        let ballot = match from.u8("vote")? {
            1 => Ballot::Yes,
            2 => Ballot::ReadOnly,
            3 => Ballot::No,
            _ => return Err(Malformed { field: "vote" }),
        };
        let retries = from.u32("vote.retries")?;
        let native =
            Native { code: from.text("vote.code")?.to_owned(), message: from.text("vote.message")?.to_owned() };
        Ok(Voted { resource, number, voice: Voice { ballot, retries, native } })
    });
    Ok(Votes { at_ms, tx, outcome, votes: votes.collect::<Result<_, _>>()? })
}

fn checkpoint(from: &mut Reader<'_>, is_whole: bool) -> Result<Checkpoint, Malformed> {
    let census = census(from)?;
    let (mut labels, mut found, mut last) = (Vec::new(), Opened::default(), None);
    if is_whole {
        let count = from.u32("labels")?;
        for _ in 0..count {
            labels.push((incarnation(from)?, from.text("label")?.to_owned()));
        }
        found = opened(from)?;
        last = Some(seal(from)?);
    }
    let count = from.u32("entries")?;
    let entries = (0..count).map(|_| entry(from, is_whole)).collect::<Result<_, _>>()?;
    Ok(Checkpoint { census, labels, opened: found, seal: last, entries })
}

fn entry(reader: &mut Reader<'_>, is_whole: bool) -> Result<Decided, Malformed> {
    let mut decided = head(reader)?;
    decided.acknowledged = reader.u8("acknowledged")? != 0;
    decided.at_ms = if is_whole { reader.u64("entry.at")? } else { 0 };
    (decided.branches, decided.row) = own_branches(reader)?;
    if is_whole {
        let count = reader.u16("notes")?;
        decided.notes = (0..count).map(|_| note(reader)).collect::<Result<_, _>>()?;
    }
    Ok(decided)
}

fn own_branches(reader: &mut Reader<'_>) -> Result<(Box<[u8]>, Option<ResourceId>), Malformed> {
    let branches = take_votes(reader)?;
    Ok((lay::branches(&branches), row_of(&branches)))
}

fn note(from: &mut Reader<'_>) -> Result<Note, Malformed> {
    let (resource, number) = (ResourceId(from.u64("note.resource")?), from.u16("note.number")?);
    let (fate, detail) = (from.u8("note.fate")?, from.u8("note.heuristic")?);
    let (by, retries) = (by(from)?, from.u32("note.retries")?);
    let native = Native { code: from.text("note.code")?.to_owned(), message: from.text("note.message")?.to_owned() };
    let (fate, native) = match fate {
        1 => (Fate::Finished(Finish::Committed), native),
        2 => (Fate::Finished(Finish::CommittedInferred), native),
        3 => (Fate::Finished(Finish::RolledBack), native),
        4 => (Fate::Finished(Finish::NotListed), native),
        5 => (Fate::Heuristic(heuristic(detail)?, native), Native::default()),
        6 => (Fate::Cleared, native),
        _ => return Err(Malformed { field: "note.fate" }),
    };
    Ok(Note { resource, number, fate, by, retries, native })
}

const fn heuristic(byte: u8) -> Result<Heuristic, Malformed> {
    match byte {
        1 => Ok(Heuristic::Committed),
        2 => Ok(Heuristic::RolledBack),
        3 => Ok(Heuristic::Mixed),
        4 => Ok(Heuristic::Hazard),
        _ => Err(Malformed { field: "note.heuristic" }),
    }
}

fn seal(from: &mut Reader<'_>) -> Result<Seal, Malformed> {
    Ok(Seal {
        number: from.u64("seal.number")?,
        previous: digest(from)?,
        digest: digest(from)?,
        count: from.u64("seal.count")?,
        at_ms: from.u64("seal.at")?,
    })
}

fn opened(from: &mut Reader<'_>) -> Result<Opened, Malformed> {
    let epoch = Epoch(from.u32("opened.epoch")?);
    let is_lazy = from.u8("opened.lazy")? != 0;
    Ok(Opened { epoch, is_lazy, lost_below: Epoch(from.u32("opened.lost")?) })
}

fn digest(from: &mut Reader<'_>) -> Result<Digest, Malformed> {
    let bytes = from.raw(32, "digest")?.try_into();
    bytes.map(Digest).map_err(|_| Malformed { field: "digest" })
}

fn word(from: &mut Reader<'_>) -> Result<Word, Malformed> {
    Ok(Word {
        at_ms: from.u64("word.at")?,
        tx: tx(from)?,
        action: Action::from_byte(from.u8("action")?).ok_or(Malformed { field: "action" })?,
        who: from.text("who")?.to_owned(),
        reason: from.text("reason")?.to_owned(),
    })
}

fn by(reader: &mut Reader<'_>) -> Result<By, Malformed> {
    By::from_byte(reader.u8("by")?).ok_or(Malformed { field: "by" })
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
#[path = "record_test.rs"]
mod tests;
