//! The folder that a member has left, looked at while it does not run: whole, and the same as another one's. Nothing is changed.
//!
//! Walk: [`Left::open`] its journal, its snapshot, the configuration that it knew · [`Left::verify`] every entry in its chain, and the
//! state that they lead to · [`compare`] two logs side by side, and the states behind the last entry that both have.
//! Nobody wrote down how far entries were confirmed: those at the end count, and a primary of a higher epoch may cut them yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assent_journal::{Archive, Journal, Log as _};
use assent_membership::{Configuration, Place, Sequence};
use assent_world::{Clock, Disk};

use crate::entry::{Entry, Mark};
use crate::error::{ReplicaError, damaged};
use crate::machine::Machine;
use crate::message::Base;
use crate::own::{self, Kept};
use crate::shelf;
use crate::snapshot::Snapshot;
use crate::whole;

/// What a member has left.
#[derive(Debug)]
pub struct Left {
    folder: PathBuf,
    log: Archive,
    snapshot: Option<Snapshot>,
    own: Kept,
    base: Base,
}

/// What was found in a member's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The configuration that it knew last.
    pub known: Configuration,
    /// Whether a person told it to stay out.
    pub out: bool,
    /// The last entry in its snapshot.
    pub snapshot: Sequence,
    /// Whether the log reaches back to its beginning, so that the snapshot was held against what it leads to.
    pub reached: bool,
    /// The first entry that can be read; none if only the snapshot is there.
    pub first: Option<Sequence>,
    /// The end of the log.
    pub end: Place,
    /// The hash of the state behind it.
    pub hash: u64,
}

/// What two members' folders have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The last entry up to which both are known to be one history; none if there is none that both know.
    pub same_to: Option<Sequence>,
    /// The first entry that is not the same in both.
    pub differs: Option<Sequence>,
    /// Where each ends.
    pub ends: [Place; 2],
    /// The hash of each state behind the last entry that both have; none where one of them has no way back there.
    pub hashes: Option<[u64; 2]>,
}

impl Compared {
    /// Whether nothing tells them apart, as far as the shorter one goes, and something says that they belong together.
    #[must_use]
    pub fn are_same(&self) -> bool {
        self.differs.is_none() && self.same_to.is_some() && self.hashes.is_none_or(|[one, other]| one == other)
    }
}

/// Where a log begins and ends that can be read on from its snapshot.
struct Walked {
    first: Option<Sequence>,
    end: Mark,
    place: Place,
}

impl Left {
    /// Opens what is there. Its member must not run.
    ///
    /// # Errors
    /// `Damaged` names the file; `NotFound` where no member ever was; as the disk and the journal say.
    pub fn open(disk: Arc<dyn Disk>, clock: &dyn Clock, folder: &Path) -> Result<Self, ReplicaError> {
        let bytes = whole::read(&*disk, folder, own::NAME)?.ok_or(ReplicaError::Missing { at: Sequence(0) })?;
        let own = own::parse(&bytes);
        let own = own.ok_or_else(|| damaged(&folder.join(own::NAME), "its checksum or its fields are wrong"))?;
        let snapshot = Snapshot::open(&*disk, &folder.join(shelf::NAME))?;
        let base = snapshot.as_ref().map(|snapshot| snapshot.base.clone()).unwrap_or_default();
        let (log, _) = Journal::open_read_only(disk, clock, folder)?;
        Ok(Self { folder: folder.to_path_buf(), log, snapshot, own, base })
    }

    /// Walks everything: each entry must follow the one before, and be a command that the machine takes. The machine is as before its first
    /// command; returned as it is behind the last.
    ///
    /// # Errors
    /// `Damaged` names what cannot be believed; as the journal says.
    pub fn verify<M: Machine>(&self, machine: M) -> Result<(Found, M), ReplicaError> {
        let at_base = self.base.end.sequence;
        // Held against the snapshot, while the log reaches back to its beginning.
        let mut replayed = (at_base > Sequence(0)).then(|| machine.empty());
        let mut state = machine;
        self.load(&mut state)?;
        let (mut reached, mut answer) = (false, Vec::new());
        let walked = self.walk(|entry, goes_on| {
            if !goes_on && entry.sequence > Sequence(1) {
                replayed = None;
            }
            if let Some(from_the_beginning) = replayed.as_mut().filter(|_| entry.sequence <= at_base) {
                self.apply(from_the_beginning, entry, &mut answer)?;
                if entry.sequence == at_base {
                    if from_the_beginning.hash() != state.hash() {
                        let why = format!("its state behind entry {at_base} is not the one that the log leads to");
                        return Err(damaged(&self.folder.join(shelf::NAME), why));
                    }
                    reached = true;
                }
            }
            if entry.sequence > at_base { self.apply(&mut state, entry, &mut answer) } else { Ok(()) }
        })?;
        let found = Found {
            known: self.own.known().clone(),
            out: self.own.out(),
            snapshot: at_base,
            reached,
            first: walked.first,
            end: walked.place,
            hash: state.hash(),
        };
        Ok((found, state))
    }

    fn load<M: Machine>(&self, machine: &mut M) -> Result<(), ReplicaError> {
        let Some(snapshot) = &self.snapshot else { return Ok(()) };
        snapshot.load(|next| machine.load(next)).map_err(|why| damaged(&self.folder.join(shelf::NAME), why))
    }

    fn apply<M: Machine>(&self, machine: &mut M, entry: &Entry, answer: &mut Vec<u8>) -> Result<(), ReplicaError> {
        answer.clear();
        let applied = machine.apply(entry.sequence, entry.kind, &entry.payload, answer);
        applied.map_err(|why| damaged(&self.folder, format!("entry {}: {why}", entry.sequence)))
    }

    fn entries(&self) -> Result<impl Iterator<Item = Result<Entry, ReplicaError>>, ReplicaError> {
        let parse = |laid: assent_journal::Entry| {
            let parsed = Entry::parse(laid.kind, laid.payload.into());
            parsed.map_err(|error| damaged(&self.folder, format!("the entry at {}: {error}", laid.lsn)))
        };
        Ok(self.log.read(self.log.start())?.map(move |laid| laid.map_err(ReplicaError::from).and_then(parse)))
    }

    /// Each entry, and whether it goes on from the one before: as [`crate::OwnLog::open`] believes them.
    fn walk(&self, mut each: impl FnMut(&Entry, bool) -> Result<(), ReplicaError>) -> Result<Walked, ReplicaError> {
        let base = &self.base;
        let mut walked = Walked { first: None, end: Mark::default(), place: Place::default() };
        for entry in self.entries()? {
            let entry = entry?;
            let wrong =
                |what: &str| damaged(&self.folder, format!("entry {} of epoch {} {what}", entry.sequence, entry.epoch));
            let is_behind = entry.sequence > base.end.sequence;
            let mut goes_on = entry.follows(walked.end);
            if is_behind && walked.end.sequence < base.end.sequence {
                // Behind a snapshot that came from elsewhere.
                goes_on = false;
                if !entry.follows(base.end) {
                    return Err(wrong("does not follow the snapshot"));
                }
            } else if is_behind && !goes_on {
                return Err(wrong("does not follow the one before it"));
            }
            if entry.sequence == base.end.sequence && entry.chain != base.end.chain {
                return Err(wrong("is not the one that the snapshot ends with"));
            }
            if !goes_on || walked.first.is_none() {
                walked.first = Some(entry.sequence);
            }
            each(&entry, goes_on)?;
            (walked.end, walked.place) = (entry.mark(), entry.place());
        }
        if walked.end.sequence < base.end.sequence {
            walked = Walked { first: None, end: base.end, place: base.history.end() };
        }
        Ok(walked)
    }

    /// The hash of the state behind this entry, if there is a way to it.
    fn hash_behind<M: Machine>(
        &self,
        at: Sequence,
        walked: &Walked,
        mut machine: M,
    ) -> Result<Option<u64>, ReplicaError> {
        let mut behind = self.base.end.sequence;
        if behind <= at {
            self.load(&mut machine)?;
        } else if walked.first == Some(Sequence(1)) {
            behind = Sequence(0);
        } else {
            return Ok(None);
        }
        let mut answer = Vec::new();
        for entry in self.entries()? {
            let entry = entry?;
            if entry.sequence > behind && entry.sequence <= at {
                self.apply(&mut machine, &entry, &mut answer)?;
            }
        }
        Ok(Some(machine.hash()))
    }
}

/// Compares what two members of one group have left. `machine` makes one before its first command.
///
/// # Errors
/// As [`Left::verify`], for either of them.
pub fn compare<M: Machine>(one: &Left, other: &Left, machine: impl Fn() -> M) -> Result<Compared, ReplicaError> {
    let (first, second) = (one.walk(|_, _| Ok(()))?, other.walk(|_, _| Ok(()))?);
    let (mut left, mut right) = (marks(one, &first)?, marks(other, &second)?);
    let (mut a, mut b) = (left.next().transpose()?, right.next().transpose()?);
    let (mut same_to, mut differs) = (None, None);
    while let (Some(here), Some(there)) = (a, b) {
        match here.sequence.cmp(&there.sequence) {
            std::cmp::Ordering::Less => a = left.next().transpose()?,
            std::cmp::Ordering::Greater => b = right.next().transpose()?,
            std::cmp::Ordering::Equal if here.chain != there.chain => {
                differs = Some(here.sequence);
                break;
            }
            std::cmp::Ordering::Equal => {
                same_to = Some(here.sequence);
                (a, b) = (left.next().transpose()?, right.next().transpose()?);
            }
        }
    }
    let least = first.end.sequence.min(second.end.sequence);
    let both = differs.map_or(least, |at| Sequence(at.0.saturating_sub(1)));
    let hashes = [one.hash_behind(both, &first, machine())?, other.hash_behind(both, &second, machine())?];
    let hashes = if let [Some(one), Some(other)] = hashes { Some([one, other]) } else { None };
    Ok(Compared { same_to, differs, ends: [first.place, second.place], hashes })
}

/// What is known of the chain, in its order: where the snapshot stands, and each entry that is read behind it or before.
fn marks<'a>(
    left: &'a Left,
    walked: &Walked,
) -> Result<impl Iterator<Item = Result<Mark, ReplicaError>> + use<'a>, ReplicaError> {
    let (base, from) = (left.base.end, walked.first.unwrap_or(Sequence(u64::MAX)));
    // Where the log reaches back behind the snapshot, its entry is the mark, too.
    let own = Some(base).filter(|base| base.sequence < from);
    let entries = left.entries()?.filter(move |entry| entry.as_ref().map_or(true, |entry| entry.sequence >= from));
    Ok(own.into_iter().map(Ok).chain(entries.map(|entry| entry.map(|entry| entry.mark()))))
}
