//! What a branch is between its start and its outcome.
//!
//! ```text
//!   start -> Working(open) -> end -> Working(ended) -> prepare -> Prepared -> commit | rollback -> Finishing -> gone
//!                                         | one phase, or nothing written ------------------------^  or gone at once
//! ```
//! A verb that does not fit changes nothing (X/Open XA, chapter 6: the state tables).
//! Deliberately absent: locks and the journal.

use std::sync::Arc;

use assent_ids::{Lsn, Xid};
use assent_journal::Ticket;

use crate::conditions::Expected;
use crate::config::ROW_BYTES;
use crate::keyed::Keyed;
use crate::op::Op;
use crate::record::Effect;
use crate::snapshot::{Bounds, Own};
use crate::time::is_over;
use crate::{KvError, Lease};

/// One write of a branch: a value, or nothing for a delete.
pub(crate) type Write = Option<Put>;

/// A value that a branch wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) value: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) expiry: u64,
}

/// Where the work of a branch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It goes on.
    Open,
    /// `xa_end`: it is done.
    Ended,
    /// `xa_end` with TMFAIL: it can only be rolled back.
    Failed,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "active",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// The writes and the view of a branch that is not prepared. Nothing of it is durable.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) phase: Phase,
    pub(crate) writes: Keyed<Write>,
    /// What must hold when it votes.
    pub(crate) conditions: Vec<Expected>,
    /// As they will be laid, conditions counted too.
    pub(crate) bytes: u64,
    /// Taken at the first read.
    pub(crate) snapshot: Option<Arc<Lease>>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Open, writes: Keyed::default(), conditions: Vec::new(), bytes: 0, snapshot: None }
    }

    /// What it keeps in memory: small writes take more than they are laid as.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let rows = self.writes.len() + self.conditions.len();
        self.bytes.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX).saturating_mul(ROW_BYTES))
    }

    /// The bytes of its writes once this one is among them.
    pub(crate) fn bytes_with(&self, op: &Op<'_>) -> u64 {
        let (keyspace, key) = op.key();
        let replaced = self.writes.get(keyspace, key).map_or(0, |old| as_op(keyspace, key, old).laid_bytes());
        self.bytes + op.laid_bytes() - replaced
    }

    /// A put or a delete: the door has refused an erase.
    pub(crate) fn write(&mut self, op: &Op<'_>) {
        self.bytes = self.bytes_with(op);
        let (keyspace, key) = op.key();
        let write = match op {
            Op::Put { metadata, value, expiry, .. } => {
                Some(Put { value: value.to_vec(), metadata: metadata.to_vec(), expiry: *expiry })
            }
            Op::Delete { .. } | Op::Erase { .. } => None,
        };
        self.writes.insert(keyspace, key.into(), write);
    }

    /// Its writes as operations, in key order.
    pub(crate) fn ops(&self) -> Vec<Op<'_>> {
        self.each().collect()
    }

    /// As [`Work::ops`], one by one.
    pub(crate) fn each(&self) -> impl Iterator<Item = Op<'_>> {
        self.writes.iter().map(|(keyspace, key, write)| as_op(keyspace, key, write))
    }

    /// Its own writes within bounds: as many as a scan of `limit` rows, or of so many bytes, can need.
    pub(crate) fn own(
        &self,
        keyspace: u32,
        (from, to): Bounds<'_>,
        (limit, bytes_max): (usize, u64),
        now: u64,
    ) -> Vec<Own> {
        let mut own = Vec::new();
        let (mut puts, mut bytes) = (0, 0_u64);
        for (key, write) in self.writes.range(keyspace, from, to) {
            if puts == limit || bytes > bytes_max {
                break;
            }
            let put = write.as_ref().filter(|put| !is_over(put.expiry, now));
            puts += usize::from(put.is_some());
            bytes = bytes.saturating_add(put.map_or(0, |put| u64::try_from(put.value.len()).unwrap_or(u64::MAX)));
            own.push((key.clone(), put.map(|put| put.value.clone())));
        }
        own
    }
}

fn as_op<'a>(keyspace: u32, key: &'a [u8], write: &'a Write) -> Op<'a> {
    match write {
        Some(Put { value, metadata, expiry }) => Op::Put { keyspace, key, metadata, value, expiry: *expiry },
        None => Op::Delete { keyspace, key },
    }
}

/// How a branch is being finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Commit,
    Rollback,
}

/// A branch that is known here.
#[derive(Debug)]
pub(crate) enum Branch {
    /// Its writes are in memory.
    Working(Work),
    /// Its writes are in the journal and its keys are held, through any crash, until it is told its outcome.
    Prepared {
        /// Where its prepare record begins.
        entry: Lsn,
        /// What commits with it.
        effects: Vec<Effect>,
        /// Whether its prepare record is durable and published: whether it may be listed.
        listed: bool,
    },
    /// Its outcome is appended and not yet durable. Asked again, it waits for the same ticket.
    Finishing {
        /// Its outcome's record.
        ticket: Ticket,
        /// Which outcome.
        ending: Ending,
        /// Where its prepare record begins; none after one phase.
        prepare: Option<Lsn>,
        /// As for a prepared one.
        listed: bool,
    },
}

impl Branch {
    /// Its state in a message.
    pub(crate) const fn state(&self) -> &'static str {
        match self {
            Self::Working(work) => work.phase.name(),
            Self::Prepared { .. } => "prepared",
            Self::Finishing { ending: Ending::Commit, .. } => "being committed",
            Self::Finishing { ending: Ending::Rollback, .. } => "being rolled back",
        }
    }

    /// Why a verb does not fit.
    pub(crate) fn refuse(&self, xid: Xid, verb: &'static str) -> KvError {
        KvError::State { xid: Box::new(xid), state: self.state(), verb }
    }

    /// Where its durable prepare record begins, if it has one.
    pub(crate) const fn prepared_at(&self) -> Option<Lsn> {
        match self {
            Self::Prepared { entry, listed: true, .. } => Some(*entry),
            Self::Finishing { prepare, listed: true, .. } => *prepare,
            _ => None,
        }
    }
}
