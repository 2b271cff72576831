//! Which branches are asked at their end whether they wrote anything.
//!
//! The question is a message of its own, which a branch that writes pays for nothing; one that only read saves its vote
//! and two syncs by it. So it is asked while one of the last branches on this connection only read, and of the first
//! ones, of which nothing is known. Who is not asked says it all the same, in the message of its vote: so one branch that
//! only read is enough to be asked again, and nothing has to be tried now and then.
//! Deliberately absent: the question itself (`session.rs`).

/// So many branches that wrote, one after the other, end the asking. A question costs a fifth of what it saves, so
/// it pays from one reader in five; and a few more, as a question too few costs more than one too many.
const WRITERS_MAX: u8 = 8;

/// What this connection does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Always,
    Never,
    /// Depending on what the last branches did.
    Adaptive {
        /// How many wrote since one did not.
        writers: u8,
    },
}

impl Asking {
    pub(super) const ADAPTIVE: Self = Self::Adaptive { writers: 0 };

    pub(super) const fn asks(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Adaptive { writers } => writers < WRITERS_MAX,
        }
    }

    /// A branch has told whether it wrote.
    pub(super) const fn told(&mut self, wrote: bool) {
        if let Self::Adaptive { writers } = self {
            *writers = if wrote { writers.saturating_add(1) } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_left_alone_after_eight_and_one_reader_brings_the_question_back() {
        let mut asking = Asking::ADAPTIVE;
        let mut asked = |wrote| {
            let asks = asking.asks();
            asking.told(wrote);
            asks
        };
        let run = [(8, true, true), (300, true, false), (1, false, false), (8, true, true), (1, true, false)];
        for (branches, wrote, asks) in run {
            for branch in 0..branches {
                assert_eq!(asked(wrote), asks, "branch {branch} of {branches}");
            }
        }
        // One reader in eight keeps it going.
        asked(false);
        for branch in 0..80 {
            assert!(asked(branch % 8 != 7), "{branch}");
        }
    }

    #[test]
    fn who_said_always_or_never_is_obeyed() {
        for (mut asking, asks) in [(Asking::Always, true), (Asking::Never, false)] {
            for wrote in [true, false].repeat(20) {
                asking.told(wrote);
                assert_eq!(asking.asks(), asks);
            }
        }
    }
}
