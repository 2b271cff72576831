//! What the owner of a map is asked while a step works: to count, to judge, to go on or to stop.
//!
//! Walk: [`Owner::tally`] opens an account for one step · [`Tally::enters`] and [`Tally::leaves`] are told of each value that
//! begins or ends to be in a run · [`Tally::note`] is committed with it · [`Pace`] slows the step down or ends it.
//! Deliberately absent: counts of tombstones. They hold nothing; of one that a flush writes is told what it may hide ([`Tally::hides`]).

use crate::Entry;

/// Who keeps the log and knows what values are.
pub trait Owner: Send + Sync {
    /// Opens the account of one flush or merge. It is dropped if that fails: then none of it was ever said.
    fn tally(&self) -> Box<dyn Tally + '_>;

    /// How far the owner's log is durable. A memtable is flushed only when all of it is: the map must not know what a power cut
    /// can take from the log, for the log is not replayed below [`crate::Runs::applied`].
    fn durable(&self) -> u64;

    /// Whether runs of level 0 that are little beside what they meet below are gathered among themselves before all of them go down: level 1 is
    /// written again less often, and may be twice as long. What they supersede leaves later by so much. Default false.
    fn gathers(&self) -> bool {
        false
    }

    /// Whether nobody waits for syncs of the owner's log: then a flush writes its run and syncs it once, where it else syncs each MiB of it, so
    /// that somebody's few bytes find the device free. Default false.
    fn is_lazy(&self) -> bool {
        false
    }

    /// Whether level 0 is to go down now, however few its runs are: what they hide has to be known. Asked before each merge.
    fn hurries(&self) -> bool {
        false
    }
}

/// The account of one flush or merge; what it says is committed with it, or was never said.
pub trait Tally {
    /// A value reaches its first run: by a flush.
    fn enters(&mut self, entry: &Entry<'_>);

    /// A value leaves for good: superseded, deleted, erased or expired. Only one that [`Tally::enters`] was told of, and only
    /// once.
    fn leaves(&mut self, entry: &Entry<'_>);

    /// A tombstone of this key reaches its first run, by a flush: what the files may have of it is superseded.
    fn hides(&mut self, key: &[u8]) {
        let _ = key;
    }

    /// A value that is about to be written.
    fn judge(&mut self, entry: &Entry<'_>) -> Fate {
        let _ = entry;
        Fate::Keep
    }

    /// The note to commit, with this mark up to which the owner will not replay. Called once, under the manifest's lock, when all
    /// else is done and durable. The commit may still fail: what the owner holds in memory changes in [`Tally::committed`].
    fn note(&mut self, applied: u64) -> Vec<u8>;

    /// The note is durable. Under the same hold of the lock: no other note comes between. Not called where the commit failed.
    fn committed(self: Box<Self>);
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Keep,
    /// It has expired, and is written as a tombstone, or not at all where there is nothing to hide.
    Bury,
}

/// Told while a step works, about every 256 KiB that it went through, or a thousand questions to a ledger.
pub trait Pace: Sync {
    /// So many bytes were written since it was asked last. It may sleep.
    fn wrote(&self, bytes: u64) -> Go;
}

/// Whether a step goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It ends, and leaves nothing behind.
    Stop,
}

/// A pace that never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtOnce;

impl Pace for AtOnce {
    fn wrote(&self, _: u64) -> Go {
        Go::On
    }
}
