//! The configuration of a group: the one value that the arbiter holds.

use assent_ids::Epoch;

use crate::member::{InSync, Life, Member};

/// Who leads, in which epoch, and who holds what was acknowledged. Changes only by compare-and-set on its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    /// Counts the changes. 0: there never was one.
    pub version: u64,
    /// Counts the primaries. A number of ours, never a revision of the arbiter's.
    pub epoch: Epoch,
    /// The primary of this epoch; nobody in version 0.
    pub primary: Option<Member>,
    /// Who holds everything that was acknowledged. The primary is one of them.
    pub in_sync: InSync,
    /// Whether a person's word made a primary, and not what it held: until a person says that what was lost is settled.
    pub forced: bool,
}

impl Configuration {
    /// The next epoch under this member. Everybody else in the set stays there: the others hold everything too. Only
    /// the old primary goes, which is taken for dead.
    #[must_use]
    pub fn promoted(&self, member: Member, life: Life) -> Self {
        let rest = match self.primary {
            Some(primary) => self.in_sync.clone().without(primary),
            None => InSync::default(),
        };
        self.next_epoch(member, rest.with(member, life))
    }

    /// The next epoch under this member alone: nobody is known to hold everything.
    #[must_use]
    pub fn alone(&self, member: Member, life: Life, forced: bool) -> Self {
        Self { forced: forced || self.forced, ..self.next_epoch(member, InSync::only(member, life)) }
    }

    /// The next epoch under another member of the set, by the word of its primary, who stays in it.
    #[must_use]
    pub fn handed_to(&self, member: Member) -> Self {
        self.next_epoch(member, self.in_sync.clone())
    }

    /// The same epoch with another set.
    #[must_use]
    pub fn with_set(&self, in_sync: InSync) -> Self {
        Self { version: self.version.saturating_add(1), in_sync, ..self.clone() }
    }

    /// Whether an arbiter that forgets nothing can come to hold this behind that: versions grow, epochs never shrink, and an
    /// epoch has one primary. Where it cannot, one of the two is of a history that was set back.
    #[must_use]
    pub fn can_follow(&self, held: &Self) -> bool {
        let of_one_epoch = self.epoch == held.epoch && self.primary == held.primary;
        self.version > held.version && (self.epoch > held.epoch || of_one_epoch)
    }

    /// This, counted on from whichever is higher: what is next follows both, also where they are of two histories.
    pub(crate) fn raised(&self, held: &Self) -> Self {
        Self { version: self.version.max(held.version), epoch: self.epoch.max(held.epoch), ..self.clone() }
    }

    fn next_epoch(&self, primary: Member, in_sync: InSync) -> Self {
        Self {
            version: self.version.saturating_add(1),
            epoch: Epoch(self.epoch.0.saturating_add(1)),
            primary: Some(primary),
            in_sync,
            forced: self.forced,
        }
    }
}
