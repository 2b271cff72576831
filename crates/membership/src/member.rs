//! Members of a group, and the lives in which they hold what they confirmed.

use std::fmt;

/// As many members as a group may have.
pub const MEMBERS_MAX: usize = 7;

/// A member of a group, by its number in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(pub u8);

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a member's confirmations live in. It is another one whenever some of them may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// The data folder: random bits born with it.
    pub disk: u64,
    /// What holds that which is not synced, by a number that grows, unless the folder goes back in time: then it is another one all the
    /// same, but for `written` where the copy was made in this boot, or the one before. `ack = durable`: nothing, always 0. `written`: the
    /// boots of the operating system, counted in the folder. `received`: the openings of the log.
    pub memory: u64,
}

/// The members that hold everything that was acknowledged, each in the life in which it does. Sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InSync(Vec<(Member, Life)>);

impl InSync {
    /// One member alone.
    #[must_use]
    pub fn only(member: Member, life: Life) -> Self {
        Self(vec![(member, life)])
    }

    /// With this member in this life, which replaces another one of his.
    #[must_use]
    pub fn with(mut self, member: Member, life: Life) -> Self {
        self.0.retain(|(of, _)| *of != member);
        self.0.push((member, life));
        self.0.sort_unstable();
        self
    }

    /// Without this member.
    #[must_use]
    pub fn without(mut self, member: Member) -> Self {
        self.0.retain(|(of, _)| *of != member);
        self
    }

    /// The life in which a member holds everything.
    #[must_use]
    pub fn life(&self, member: Member) -> Option<Life> {
        self.iter().find(|(of, _)| *of == member).map(|(_, life)| life)
    }

    /// Whether this member is in it, and nobody else.
    #[must_use]
    pub fn is_only(&self, member: Member) -> bool {
        matches!(self.0.as_slice(), [(only, _)] if *only == member)
    }

    /// Whether a member that lives now as said still holds everything. One that is alone in the set acknowledged nothing
    /// that was not durable, so it only needs its disk.
    #[must_use]
    pub fn vouches(&self, member: Member, now: Life) -> bool {
        match self.life(member) {
            Some(then) => then.disk == now.disk && (then.memory == now.memory || self.is_only(member)),
            None => false,
        }
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Member, Life)> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody is in it: before the first configuration.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_vouches_for_what_it_held_and_alone_the_disk_is_enough() {
        let (one, two) = (Member(1), Member(2));
        let then = Life { disk: 7, memory: 1 };
        let again = Life { disk: 7, memory: 2 };
        let replaced = Life { disk: 8, memory: 1 };
        let alone = InSync::only(one, then);
        let pair = alone.clone().with(two, then);
        assert!(alone.vouches(one, then) && alone.vouches(one, again) && !alone.vouches(one, replaced));
        assert!(pair.vouches(one, then) && !pair.vouches(one, again) && !pair.vouches(one, replaced));
        assert!(!alone.vouches(two, then), "who is not in the set holds nothing");
        assert_eq!(pair.clone().with(one, again).life(one), Some(again));
        assert_eq!(pair.with(one, again).without(one), InSync::only(two, then));
    }
}
