//! Logs and snapshots of servers that do not run, looked at: whole, and the same as another one's. Nothing is changed.
//!
//! Walk: [`verify`] reads both snapshots, replays all log that there is, and holds the states against each other · [`compare`] walks two
//! logs side by side where they overlap, and compares the states behind the last command that both have.

use std::path::Path;
use std::sync::Arc;

use assent_ids::Lsn;
use assent_journal::{Entry, Log};
use assent_membership::Sequence;
use assent_world::Disk;

use crate::config::Limits;
use crate::engine::KIND_RULES;
use crate::error::AssetsError;
use crate::logic::Logics;
use crate::machine::Machine;
use crate::recover::{self, Recovery};
use crate::store::{Store, Verified};

/// One server's data.
#[derive(Debug)]
pub struct Kept<'a> {
    /// Its log.
    pub log: &'a dyn Log,
    /// Where its snapshots are.
    pub disk: Arc<dyn Disk>,
    /// Their folder.
    pub folder: &'a Path,
    /// As the server has it.
    pub limits: Limits,
    /// As the server has it.
    pub logics: Logics,
}

/// What was found in one server's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The snapshots, each read as a whole.
    pub snapshots: Vec<Verified>,
    /// What an open would do.
    pub recovery: Recovery,
    /// Snapshots that were reached by replay, and had the state that they say.
    pub reached: u64,
    /// The last command.
    pub sequence: Sequence,
    /// The hash of the state behind it.
    pub hash: u64,
    /// Assets in it.
    pub assets: usize,
    /// Branches in doubt in it.
    pub in_doubt: usize,
}

/// What two servers' data have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Commands that both logs have.
    pub commands: u64,
    /// The first that is not the same in both.
    pub differs: Option<Sequence>,
    /// Where each ends.
    pub ends: [Sequence; 2],
    /// The hash of each state behind the last command that both have.
    pub hashes: [u64; 2],
}

impl Compared {
    /// Whether nothing tells them apart, as far as the shorter one goes.
    #[must_use]
    pub fn are_same(&self) -> bool {
        let [one, other] = self.hashes;
        self.differs.is_none() && one == other
    }
}

/// Verifies one server's data.
///
/// # Errors
/// `Corrupt` names what cannot be believed; a snapshot whose state is another one than the log leads to counts as that.
pub fn verify(kept: &Kept<'_>) -> Result<Found, AssetsError> {
    let store = store(kept);
    let recovered = recover::recover(kept.log, &store, kept.limits, &kept.logics)?;
    let snapshots = store.verify(kept.limits, &kept.logics)?;
    let whole: Vec<(&Verified, Sequence, u64)> =
        snapshots.iter().filter_map(|one| one.found.as_ref().ok().map(|(at, hash)| (one, *at, *hash))).collect();
    let mut reached = 0;
    // From the beginning, or from the older snapshot: then the newer one is met on the way.
    if let Some((mut machine, place)) = oldest(kept, &store) {
        let mut answers = Vec::new();
        for entry in kept.log.read(place)? {
            recover::apply(&mut machine, &entry?, &mut answers)?;
            for (one, at, hash) in whole.iter().filter(|(_, at, _)| *at == machine.sequence()) {
                if *hash != machine.hash() {
                    let what = format!("its state at command {at} is not the one that the log leads to");
                    return Err(AssetsError::Corrupt { file: one.path.display().to_string(), what });
                }
                reached += 1;
            }
        }
    }
    let machine = recovered.machine;
    Ok(Found {
        reached,
        recovery: recovered.recovery,
        sequence: machine.sequence(),
        hash: machine.hash(),
        assets: machine.assets(),
        in_doubt: machine.in_doubt().len(),
        snapshots,
    })
}

/// Compares two servers' data.
///
/// # Errors
/// As [`verify`], for either of them.
pub fn compare(kept: [&Kept<'_>; 2]) -> Result<Compared, AssetsError> {
    let [one, other] = kept;
    let open = |kept: &Kept<'_>| recover::recover(kept.log, &store(kept), kept.limits, &kept.logics);
    let (first, second) = (open(one)?.machine, open(other)?.machine);
    let ends = [first.sequence(), second.sequence()];
    let [a, b] = ends;
    let both = a.min(b);
    let hash = |kept: &Kept<'_>, machine: &Machine| match machine.sequence() == both {
        true => Ok(machine.hash()),
        false => hash_behind(kept, both),
    };
    let hashes = [hash(one, &first)?, hash(other, &second)?];
    let (mut left, mut right) = (numbered(one.log)?, numbered(other.log)?);
    let (mut commands, mut differs) = (0, None);
    let (mut a, mut b) = (left.next().transpose()?, right.next().transpose()?);
    while let (Some((at, one)), Some((and, other))) = (&a, &b) {
        match at.cmp(and) {
            std::cmp::Ordering::Less => a = left.next().transpose()?,
            std::cmp::Ordering::Greater => b = right.next().transpose()?,
            std::cmp::Ordering::Equal => {
                if one.payload != other.payload {
                    differs = Some(*at);
                    break;
                }
                commands += 1;
                (a, b) = (left.next().transpose()?, right.next().transpose()?);
            }
        }
    }
    Ok(Compared { commands, differs, ends, hashes })
}

fn store(kept: &Kept<'_>) -> Store {
    Store { disk: Arc::clone(&kept.disk), folder: kept.folder.to_path_buf() }
}

/// The oldest state from which the log can be replayed.
fn oldest(kept: &Kept<'_>, store: &Store) -> Option<(Machine, Lsn)> {
    if kept.log.start() == Lsn::ZERO {
        return Some((Machine::new(kept.limits, kept.logics.clone()), Lsn::ZERO));
    }
    store.load_older(kept.limits, &kept.logics)
}

/// The hash of the state behind an earlier command.
fn hash_behind(kept: &Kept<'_>, at: Sequence) -> Result<u64, AssetsError> {
    let too_far = || AssetsError::Corrupt {
        file: kept.folder.display().to_string(),
        what: format!("its snapshots are behind command {at}, where the other one ends: there is nothing to compare"),
    };
    let (mut machine, place) = oldest(kept, &store(kept)).ok_or_else(too_far)?;
    let mut answers = Vec::new();
    for entry in kept.log.read(place)? {
        if machine.sequence() >= at {
            break;
        }
        recover::apply(&mut machine, &entry?, &mut answers)?;
    }
    if machine.sequence() == at { Ok(machine.hash()) } else { Err(too_far()) }
}

type Numbered<'a> = Box<dyn Iterator<Item = Result<(Sequence, Entry), AssetsError>> + 'a>;

fn numbered(log: &dyn Log) -> Result<Numbered<'_>, AssetsError> {
    let number = |entry: Entry| Ok((recover::head(&entry)?.0, entry));
    let entries = log.read(log.start())?.filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.kind == KIND_RULES));
    Ok(Box::new(entries.map(move |entry| entry.map_err(AssetsError::Log).and_then(number))))
}
