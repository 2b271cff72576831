//! An open: the newest snapshot that is whole, and the log behind it.
//!
//! Walk: `store` loads · the log is read from the snapshot's place and applied · each command's number must follow the one before.
//! Deliberately absent: repair. What cannot be believed is named, and nothing is served.

use std::path::PathBuf;

use assent_frame::Reader;
use assent_ids::Lsn;
use assent_journal::{Entry, JournalError, Log};
use assent_kind::Kind;
use assent_membership::Sequence;

use crate::config::Limits;
use crate::engine::{KIND_COMMAND, KIND_RULES};
use crate::error::AssetsError;
use crate::logic::Logics;
use crate::machine::Machine;
use crate::rules::Rules;
use crate::store::{Slots, Store};

const LOG: &str = "the log of the assets";

/// What an open found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last command of the snapshot; 0 without one.
    pub snapshot: Sequence,
    /// Where the log was read from.
    pub place: Lsn,
    /// Commands that were replayed behind it.
    pub replayed: u64,
    /// Snapshots that are not whole, and what is wrong with each. What they held was had from the older one and a longer log.
    pub damaged: Vec<(PathBuf, String)>,
}

/// What an open begins with.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) machine: Machine,
    pub(crate) end: Lsn,
    pub(crate) slots: Slots,
    /// Whether a snapshot or the log said which rules it has.
    pub(crate) has_rules: bool,
    pub(crate) recovery: Recovery,
}

pub(crate) fn recover(log: &dyn Log, store: &Store, limits: Limits, logics: &Logics) -> Result<Recovered, AssetsError> {
    let loaded = store.load(limits, logics)?;
    let (mut machine, place) = match loaded.machine {
        Some((machine, place)) => (machine, place),
        None if log.start() == Lsn::ZERO => (Machine::new(limits, logics.clone()), Lsn::ZERO),
        None => return Err(without_snapshot(log, &loaded.damaged, store)),
    };
    let reaches = loaded.reaches;
    if reaches > log.end() {
        let beside = loaded.damaged.iter().map(|(file, what)| format!("; {}: {what}", file.display()));
        let beside: String = beside.collect();
        let what = format!("it ends at {}, and a snapshot was taken at {reaches}{beside}", log.end());
        return Err(corrupt_log(what));
    }
    let snapshot = machine.sequence();
    let (mut end, mut has_rules) = (place, place > Lsn::ZERO);
    let (mut replayed, mut answers) = (0, Vec::new());
    for entry in log.read(place).map_err(|error| behind(place, error))? {
        let entry = entry?;
        apply(&mut machine, &entry, &mut answers)?;
        has_rules |= entry.kind == KIND_RULES;
        (end, replayed) = (entry.end, replayed + u64::from(entry.kind == KIND_COMMAND));
    }
    let recovery = Recovery { snapshot, place, replayed, damaged: loaded.damaged };
    Ok(Recovered { machine, end, slots: loaded.slots, has_rules, recovery })
}

/// Applies the next command of a log. What it was answered stands in `answers`, alone.
pub(crate) fn apply(machine: &mut Machine, entry: &Entry, answers: &mut Vec<u8>) -> Result<(), AssetsError> {
    if entry.kind == KIND_RULES {
        let kept = Rules::read(&mut Reader::new(&entry.payload)).map_err(|error| wrong(entry, &error.to_string()))?;
        let differs = |what| AssetsError::Rules { file: LOG.to_owned(), what };
        return machine.rules().check(&kept).map_err(differs);
    }
    let (sequence, time_ms, command) = head(entry)?;
    answers.clear();
    machine.apply(sequence, time_ms, command, answers).map_err(|error| wrong(entry, &error.to_string()))
}

/// An entry's sequence, time and command.
pub(crate) fn head(entry: &Entry) -> Result<(Sequence, u64, &[u8]), AssetsError> {
    if entry.kind != KIND_COMMAND {
        return Err(wrong(entry, &format!("kind {} is not of assets", entry.kind)));
    }
    let mut reader = Reader::new(&entry.payload);
    let head = reader.u64("sequence").and_then(|sequence| Ok((Sequence(sequence), reader.u64("time")?)));
    let (sequence, time_ms) = head.map_err(|error| wrong(entry, &error.to_string()))?;
    Ok((sequence, time_ms, reader.rest()))
}

fn wrong(entry: &Entry, what: &str) -> AssetsError {
    corrupt_log(format!("the entry at {}: {what}", entry.lsn))
}

/// No snapshot can be read, and the log does not begin at the beginning any more.
fn without_snapshot(log: &dyn Log, damaged: &[(PathBuf, String)], store: &Store) -> AssetsError {
    match damaged.first() {
        Some((path, what)) => AssetsError::Corrupt { file: path.display().to_string(), what: what.clone() },
        None => AssetsError::Corrupt {
            file: store.folder.display().to_string(),
            what: format!("there is no snapshot in it, and the log begins at {}", log.start()),
        },
    }
}

fn behind(place: Lsn, error: JournalError) -> AssetsError {
    match error.kind() {
        Kind::NotFound => corrupt_log(format!("it does not reach back to {place}, where the snapshot ends")),
        _ => AssetsError::Log(error),
    }
}

fn corrupt_log(what: String) -> AssetsError {
    AssetsError::Corrupt { file: LOG.to_owned(), what }
}
