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

/// What was told up to one moment.
#[derive(Clone, Debug)]
pub(crate) struct Told<F> {
    pub(crate) acknowledged: Facts<F>,
    pub(crate) attempted: Facts<F>,
}

/// Facts in the order they were told; each has the hash of all up to it.
#[derive(Clone, Debug)]
pub(crate) struct Facts<F> {
    pub(crate) all: Vec<F>,
    hashes: Vec<u64>,
}

impl<F: Clone + Hash> Facts<F> {
    const fn none() -> Self {
        Facts { all: Vec::new(), hashes: Vec::new() }
    }

    fn add(&mut self, fact: F) {
        let mut hasher = Xxh3::with_seed(self.hash());
        fact.hash(&mut hasher);
        self.hashes.push(hasher.finish());
        self.all.push(fact);
    }

    fn until(&self, count: usize) -> Self {
        let all = self.all.get(..count).unwrap_or(&self.all).to_vec();
        Facts { all, hashes: self.hashes.get(..count).unwrap_or(&self.hashes).to_vec() }
    }

    fn hash(&self) -> u64 {
        self.hashes.last().copied().unwrap_or(1)
    }
}

impl<F: Clone + Hash> Told<F> {
    pub(crate) const fn nothing() -> Self {
        Told { acknowledged: Facts::none(), attempted: Facts::none() }
    }

    pub(crate) const fn counts(&self) -> (usize, usize) {
        (self.acknowledged.all.len(), self.attempted.all.len())
    }

    /// What had been told at a moment.
    pub(crate) fn until(&self, acknowledged: usize, attempted: usize) -> Self {
        Told { acknowledged: self.acknowledged.until(acknowledged), attempted: self.attempted.until(attempted) }
    }

    pub(crate) fn hash(&self) -> u64 {
        mix(self.acknowledged.hash(), self.attempted.hash())
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
        self.tell(|told| told.attempted.add(fact));
    }

    /// This was promised: from now on it must be found.
    pub fn acknowledge(&self, fact: F) {
        self.tell(|told| told.acknowledged.add(fact));
    }

    /// All that was promised so far, in earlier lives too.
    #[must_use]
    pub fn acknowledged(&self) -> Vec<F> {
        self.told().acknowledged.all.clone()
    }

    /// All that was attempted so far, in earlier lives too.
    #[must_use]
    pub fn attempted(&self) -> Vec<F> {
        self.told().attempted.all.clone()
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
