//! What the simulation must miss: duties by name, so that a test can leave one out and see a seed go red.
//!
//! Those of the stream are `replica`'s, those of who leads `membership`'s.
//! Deliberately absent: a way to leave one out in a build that ships. There the answer is a constant.

/// What lets a command be done once, and be answered with what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// What a session sends again is not executed again, also where it stands in a run.
    Once,
    /// Each command of a run has its answer.
    Answers,
    /// Who begins with a snapshot has its branches that wait for their outcome.
    Branches,
    /// And holds what those hold.
    Held,
    /// A vote is told when it is on every disk in the set.
    Kept,
    /// What changed is told to subscribers in the turn in which it was executed.
    News,
    /// What stands in the log alone has its place behind the run that was begun.
    Behind,
    /// Who waits when the lead is lost hears nothing that was meant for another.
    Doubt,
}

#[cfg(test)]
mod sim_test;

#[cfg(test)]
thread_local! {
    static LEFT_OUT: std::cell::Cell<Option<Duty>> = const { std::cell::Cell::new(None) };
}

impl Duty {
    #[cfg(test)]
    pub(crate) fn is_kept(self) -> bool {
        LEFT_OUT.get() != Some(self)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "only a test leaves a duty out")]
    pub(crate) const fn is_kept(self) -> bool {
        true
    }

    /// On this thread nobody cares for it meanwhile.
    #[cfg(test)]
    pub(crate) fn left_out<T>(self, meanwhile: impl FnOnce() -> T) -> T {
        LEFT_OUT.set(Some(self));
        let done = meanwhile();
        LEFT_OUT.set(None);
        done
    }
}
