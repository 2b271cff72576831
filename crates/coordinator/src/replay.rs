//! The log read back: what is decided and not finished, and who was fenced.
//!
//! A checkpoint replaces everything read before it. That is right because every record is appended under one lock: none
//! laid after the checkpoint's state was taken stands before it.

use assent_ids::{Lsn, NodeId, TxId};
use assent_world::Moment;

use crate::chain::Chain;
use crate::clients::Before;
use crate::record::{Census, Checkpoint, Decided, Opened, Record};
use crate::table::{Entry, Table};
use crate::{Action, CoordinatorError, Fate};

/// What a record costs beside its payload; only for knowing when a checkpoint is due.
const RECORD_OVERHEAD_BYTES: u64 = 32;

/// About how many bytes of log these parts take.
pub(crate) fn record_bytes(parts: &[&[u8]]) -> u64 {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(RECORD_OVERHEAD_BYTES)
}

#[derive(Debug)]
pub(crate) struct Replay {
    node: NodeId,
    now: Moment,
    pub(crate) table: Table,
    pub(crate) before: Before,
    /// Records read.
    pub(crate) count: u64,
    /// Bytes of them since the last checkpoint.
    pub(crate) bytes: u64,
    pub(crate) chain: Chain,
    pub(crate) opened: Opened,
}

impl Replay {
    pub(crate) fn new(node: NodeId, now: Moment) -> Self {
        Self {
            node,
            now,
            table: Table::default(),
            before: Before::default(),
            count: 0,
            bytes: 0,
            chain: Chain::default(),
            opened: Opened::default(),
        }
    }

    pub(crate) fn apply(&mut self, lsn: Lsn, kind: u16, payload: &[u8]) -> Result<(), CoordinatorError> {
        let record = Record::read(kind, payload).map_err(|malformed| CoordinatorError::record(lsn, kind, malformed))?;
        let unknown = || CoordinatorError::Record { lsn, kind, what: "its kind is not known".to_owned() };
        self.count += 1;
        self.bytes += record_bytes(&[payload]);
        let record = record.ok_or_else(unknown)?;
        match &record {
            Record::Seal(seal) => self.chain = Chain::behind(*seal),
            Record::Checkpoint(Checkpoint { seal: Some(seal), .. }) => {
                self.chain = Chain::behind(*seal);
                self.chain.take(kind, &[payload]);
            }
            _ => self.chain.take(kind, &[payload]),
        }
        self.enter(record)
    }

    fn enter(&mut self, record: Record) -> Result<(), CoordinatorError> {
        match record {
            Record::Decided(decided, forgotten) => {
                forgotten.into_iter().for_each(|tx| self.table.replay_forgotten(tx));
                self.insert(decided);
            }
            Record::Finished(_, list) => list.into_iter().for_each(|tx| self.table.replay_forgotten(tx)),
            Record::Checkpoint(Checkpoint { census, labels, opened, entries, .. }) => {
                self.census(census)?;
                self.before.name(labels);
                self.opened = opened;
                self.table.clear();
                entries.into_iter().for_each(|decided| self.insert(decided));
                self.bytes = 0;
            }
            Record::Fenced(list) => self.before.fence(list),
            Record::Clients(census) => self.census(census)?,
            // A restarted agent looks again; what it found the first time is history.
            Record::Branch(_, tx, note) if matches!(note.fate, Fate::Heuristic(..)) => _ = self.table.note(tx, &note),
            Record::Branch(..) | Record::Seal(_) | Record::Votes(_) => {}
            Record::Client(_, incarnation, label) => self.before.name(vec![(incarnation, label)]),
            Record::Operator(word) if word.action == Action::Forget => {
                self.table.clear_heuristics(word.tx);
            }
            // The decision that follows is its effect.
            Record::Operator(_) => {}
            Record::Opened(_, opened) => self.opened = opened,
            Record::Entry(decided) => self.insert(decided),
        }
        Ok(())
    }

    fn census(&mut self, census: Census) -> Result<(), CoordinatorError> {
        if census.node != self.node {
            return Err(CoordinatorError::Node { log: census.node, folder: self.node });
        }
        self.before.take(census);
        Ok(())
    }

    fn insert(&mut self, decided: Decided) {
        let (tx, entry) = entry(decided, self.now);
        self.table.insert(tx, entry);
    }
}

pub(crate) fn entry(decided: Decided, since: Moment) -> (TxId, Entry) {
    let Decided { tx, outcome, by, at_ms, acknowledged, branches, row, notes } = decided;
    let entry = Entry {
        outcome,
        by,
        // The log's open has made durable what it shows.
        ticket: None,
        is_logged: true,
        branches,
        since,
        at_ms,
        is_acknowledged: acknowledged,
        is_finished: false,
        is_cleared: notes.iter().any(|note| matches!(note.fate, Fate::Cleared)),
        row,
        progress: notes.into_iter().map(|note| (note.place(), note)).collect(),
    };
    (tx, entry)
}
