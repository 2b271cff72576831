//! Decisions that a log still holds, for people who look into it afterwards.

use assent_ids::TxId;
use assent_journal::Log;
use assent_xa::Outcome;

use crate::record::Record;
use crate::{By, CoordinatorError};

/// One decision as it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Of which transaction.
    pub tx: TxId,
    /// What.
    pub outcome: Outcome,
    /// By whom.
    pub by: By,
}

/// Every decision since the log's start, in order, finished or not. Checkpoints trim the older ones away.
///
/// # Errors
/// As the log says; [`CoordinatorError::Record`] for a record that cannot be read.
pub fn decisions(log: &dyn Log) -> Result<Vec<Made>, CoordinatorError> {
    let mut made = Vec::new();
    for entry in log.read(log.start())? {
        let entry = entry?;
        let record = Record::read(entry.kind, &entry.payload)
            .map_err(|malformed| CoordinatorError::record(entry.lsn, entry.kind, malformed))?;
        if let Some(Record::Decided(decided, _)) = record {
            made.push(Made { tx: decided.tx, outcome: decided.outcome, by: decided.by });
        }
    }
    Ok(made)
}
