//! The records of the coordinator's log, laid. Drawn in docs/format.md, section "Coordinator records"; read by `record`.
//!
//! Walk: `decided_head` and `branches` are the parts of a decision · one function for each other record.

use assent_frame::Writer;
use assent_ids::{Incarnation, TxId};
use assent_xa::{Ballot, BranchRecord, Heuristic, Native, Outcome, Voted, lay_votes};

use crate::chain::Seal;
use crate::note::Note;
use crate::record::{Census, Opened, TX_BYTES, Word};
use crate::table::Entry;
use crate::{By, Fate, Finish};

const DECIDED_HEAD_BYTES: usize = TX_BYTES + 2 + 8;

const fn outcome_byte(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Committed => 1,
        Outcome::RolledBack => 2,
    }
}

/// What stands before the branches of a decision.
pub(crate) fn decided_head(tx: TxId, outcome: Outcome, by: By, at_ms: u64) -> [u8; DECIDED_HEAD_BYTES] {
    let mut head = [0; DECIDED_HEAD_BYTES];
    let bytes = tx_bytes(tx).into_iter().chain([outcome_byte(outcome), by.byte()]).chain(at_ms.to_le_bytes());
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

/// Lays branches; they are kept like this in memory, too: one piece, whatever their number, which the door has checked.
pub(crate) fn branches(list: &[BranchRecord]) -> Box<[u8]> {
    lay_votes(list).into_boxed_slice()
}

pub(crate) fn fenced(list: &[Incarnation]) -> Vec<u8> {
    let mut out = Writer::new();
    list.iter().for_each(|incarnation| put_incarnation(&mut out, *incarnation));
    out.into_vec()
}

pub(crate) fn census(census: &Census) -> Vec<u8> {
    let mut out = Writer::new();
    put_census(&mut out, census);
    out.into_vec()
}

/// A checkpoint up to its entries, which [`entry`] lays.
pub(crate) fn checkpoint(
    census: &Census,
    labels: &[(Incarnation, &str)],
    opened: &Opened,
    last: &Seal,
    entries: usize,
) -> Writer {
    let mut out = Writer::new();
    put_census(&mut out, census);
    out.u32(u32::try_from(labels.len()).unwrap_or(u32::MAX));
    for (incarnation, label) in labels {
        put_incarnation(&mut out, *incarnation);
        out.text(label);
    }
    put_opened(&mut out, opened);
    out.raw(&seal(last)).u32(u32::try_from(entries).unwrap_or(u32::MAX));
    out
}

pub(crate) fn entry(out: &mut Writer, tx: TxId, entry: &Entry) {
    let Entry { outcome, by, is_acknowledged, at_ms, branches, .. } = entry;
    out.raw(&tx_bytes(tx)).u8(outcome_byte(*outcome)).u8(by.byte()).u8(u8::from(*is_acknowledged));
    out.u64(*at_ms).raw(branches);
    // What else the agent did is looked at again.
    let kept = || entry.progress.values().filter(|note| matches!(note.fate, Fate::Heuristic(..) | Fate::Cleared));
    out.u16(u16::try_from(kept().count()).unwrap_or(u16::MAX));
    kept().take(usize::from(u16::MAX)).for_each(|note| put_note(out, note));
}

pub(crate) fn branch(at_ms: u64, tx: TxId, note: &Note) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(at_ms).raw(&tx_bytes(tx));
    put_note(&mut out, note);
    out.into_vec()
}

pub(crate) fn votes(at_ms: u64, tx: TxId, outcome: Outcome, votes: &[Voted]) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(at_ms).raw(&tx_bytes(tx)).u8(outcome_byte(outcome));
    // The door has checked the number.
    out.u16(u16::try_from(votes.len()).unwrap_or(u16::MAX));
    for Voted { resource, number, voice } in votes {
        let ballot = match voice.ballot {
            Ballot::Yes => 1,
            Ballot::ReadOnly => 2,
            Ballot::No => 3,
        };
        let Native { code, message } = &voice.native;
        out.u64(resource.0).u16(*number).u8(ballot).u32(voice.retries).text(code).text(message);
    }
    out.into_vec()
}

pub(crate) fn client(at_ms: u64, incarnation: Incarnation, label: &str) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(at_ms);
    put_incarnation(&mut out, incarnation);
    out.text(label);
    out.into_vec()
}

pub(crate) fn seal(seal: &Seal) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(seal.number).raw(&seal.previous.0).raw(&seal.digest.0).u64(seal.count).u64(seal.at_ms);
    out.into_vec()
}

pub(crate) fn operator(word: &Word) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(word.at_ms).raw(&tx_bytes(word.tx)).u8(word.action.byte()).text(&word.who).text(&word.reason);
    out.into_vec()
}

pub(crate) fn opened(at_ms: u64, opened: &Opened) -> Vec<u8> {
    let mut out = Writer::new();
    out.u64(at_ms);
    put_opened(&mut out, opened);
    out.into_vec()
}

fn put_opened(out: &mut Writer, opened: &Opened) {
    out.u32(opened.epoch.0).u8(u8::from(opened.is_lazy)).u32(opened.lost_below.0);
}

fn put_note(out: &mut Writer, note: &Note) {
    let (fate, detail) = match &note.fate {
        Fate::Finished(Finish::Committed) => (1, 0),
        Fate::Finished(Finish::CommittedInferred) => (2, 0),
        Fate::Finished(Finish::RolledBack) => (3, 0),
        Fate::Finished(Finish::NotListed) => (4, 0),
        Fate::Heuristic(heuristic, _) => (5, heuristic_byte(*heuristic)),
        Fate::Cleared => (6, 0),
        // Never noted: [`crate::Coordinator::note`] takes ends only.
        Fate::Open | Fate::Prepared => (0, 0),
    };
    let Native { code, message } = note.words();
    out.u64(note.resource.0).u16(note.number).u8(fate).u8(detail).u8(note.by.byte()).u32(note.retries);
    out.text(code).text(message);
}

const fn heuristic_byte(heuristic: Heuristic) -> u8 {
    match heuristic {
        Heuristic::Committed => 1,
        Heuristic::RolledBack => 2,
        Heuristic::Mixed => 3,
        Heuristic::Hazard => 4,
    }
}

fn put_census(out: &mut Writer, census: &Census) {
    out.u64(census.node.0);
    put_incarnation(out, census.upto);
    out.u32(u32::try_from(census.live.len()).unwrap_or(u32::MAX));
    census.live.iter().for_each(|incarnation| put_incarnation(out, *incarnation));
}

fn put_incarnation(out: &mut Writer, incarnation: Incarnation) {
    out.u32(incarnation.epoch.0).u32(incarnation.number);
}
