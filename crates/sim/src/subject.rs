//! What an exploration explores: a workload, what it was promised, and a check.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::Xxh3;

use crate::content::mix;
use crate::disk::SimDisk;

/// Something that must survive power cuts. Single-threaded, and the same for the same seed.
pub trait Subject {
    /// What the workload attempts and what it was promised: a value written, a transaction committed.
    type Fact: Clone + Debug + Hash;

    /// Works on a disk: opens or creates, writes, and tells the witness. No fault strikes here but those that the
    /// workload injects itself.
    ///
    /// With [`Subject::lives`] above one it also runs on disks that a power cut has left; then the witness already
    /// knows the facts of earlier lives, and the workload may add what it found ("recovered", say).
    ///
    /// # Errors
    /// One sentence, when something went wrong that should not have. It counts as a red state.
    fn workload(&self, disk: &SimDisk, seed: u64, witness: &Witness<Self::Fact>) -> Result<(), String>;

    /// Recovers from what a power cut left, and compares: everything acknowledged is there, nothing is that was not
    /// attempted. It may run on what a power cut in the middle of an earlier check left, so it writes only what
    /// recovery writes.
    ///
    /// # Errors
    /// One sentence: what was promised and what was found.
    fn check(&self, disk: &SimDisk, acknowledged: &[Self::Fact], attempted: &[Self::Fact]) -> Result<(), String>;

    /// How many workloads follow each other on one disk, with a power cut between them.
    fn lives(&self) -> u32 {
        1
    }
}

/// Told by a workload as it goes, so that every power cut knows what had been promised before it.
#[derive(Debug)]
pub struct Witness<F> {
    disk: SimDisk,
    told: Mutex<Told<F>>,
}

/// Facts in the order they were told, each with the hash of all up to it.
#[derive(Clone, Debug)]
pub(crate) struct Told<F> {
    acknowledged: Vec<(F, u64)>,
    attempted: Vec<(F, u64)>,
}

impl<F: Clone + Hash> Told<F> {
    pub(crate) const fn nothing() -> Self {
        Told { acknowledged: Vec::new(), attempted: Vec::new() }
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.acknowledged.len(), self.attempted.len())
    }

    /// What had been told at a moment.
    pub(crate) fn until(&self, acknowledged: usize, attempted: usize) -> Self {
        let first = |facts: &[(F, u64)], count| facts.get(..count).unwrap_or(facts).to_vec();
        Told { acknowledged: first(&self.acknowledged, acknowledged), attempted: first(&self.attempted, attempted) }
    }

    pub(crate) fn hash(&self) -> u64 {
        let last = |facts: &[(F, u64)]| facts.last().map_or(0, |(_, hash)| *hash);
        mix(last(&self.acknowledged), last(&self.attempted))
    }

    pub(crate) fn acknowledged(&self) -> Vec<F> {
        self.acknowledged.iter().map(|(fact, _)| fact.clone()).collect()
    }

    pub(crate) fn attempted(&self) -> Vec<F> {
        self.attempted.iter().map(|(fact, _)| fact.clone()).collect()
    }
}

impl<F: Clone + Hash> Witness<F> {
    pub(crate) const fn of(disk: SimDisk, told: Told<F>) -> Self {
        Witness { disk, told: Mutex::new(told) }
    }

    /// A witness for a test of its own, without an exploration.
    #[must_use]
    pub const fn new(disk: SimDisk) -> Self {
        Self::of(disk, Told::nothing())
    }

    /// About to ask for this: from now on it may be found.
    pub fn attempt(&self, fact: F) {
        self.tell(|told| add(&mut told.attempted, fact));
    }

    /// This was promised: from now on it must be found.
    pub fn acknowledge(&self, fact: F) {
        self.tell(|told| add(&mut told.acknowledged, fact));
    }

    /// All that was promised so far, in earlier lives too.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<F> {
        self.told().acknowledged()
    }

    /// All that was attempted so far, in earlier lives too.
    #[must_use]
    pub fn attempted(&self) -> Vec<F> {
        self.told().attempted()
    }

    pub(crate) fn finish(self) -> Told<F> {
        self.told.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, add: impl FnOnce(&mut Told<F>)) {
        let mut told = self.told();
        add(&mut told);
        let (acknowledged, attempted) = told.counts();
        self.disk.tell(acknowledged, attempted);
    }

    fn told(&self) -> MutexGuard<'_, Told<F>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add<F: Hash>(facts: &mut Vec<(F, u64)>, fact: F) {
    let mut hasher = Xxh3::with_seed(facts.last().map_or(1, |(_, hash)| *hash));
    fact.hash(&mut hasher);
    facts.push((fact, hasher.finish()));
}
