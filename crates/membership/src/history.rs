//! Which epoch wrote which stretch of a log, and where two logs meet.
//!
//! A primary never resumes its epoch after a restart and appends in order, so an epoch and a sequence name one entry, and
//! two logs that share it share everything before it. Where the last such entry stands follows from a list of stretches.
//! Deliberately absent: checksums. The stream compares them too; they find damage, not divergence.

use std::fmt;

use assent_ids::Epoch;

/// Counts the entries of a group's log from 1; 0 stands before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An entry's name, ordered as logs are compared: the epoch first, then the sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The epoch that wrote it.
    pub epoch: Epoch,
    /// Its number.
    pub sequence: Sequence,
}

/// A log's stretches: each epoch that wrote into it, with the last sequence that it wrote. One entry a tenure.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct History(Vec<(Epoch, Sequence)>);

impl History {
    /// The last entry; all zeroes before the first.
    #[must_use]
    pub fn end(&self) -> Place {
        self.0.last().map_or_else(Place::default, |(epoch, sequence)| Place { epoch: *epoch, sequence: *sequence })
    }

    /// Entries of this epoch have been appended, up to this sequence. What is not behind the end changes nothing.
    pub fn grew(&mut self, epoch: Epoch, to: Sequence) {
        let end = self.end();
        if epoch < end.epoch || to <= end.sequence {
            return;
        }
        match self.0.last_mut() {
            Some((last, sequence)) if *last == epoch => *sequence = to,
            _ => self.0.push((epoch, to)),
        }
    }

    /// Everything behind this sequence is gone.
    pub fn cut(&mut self, to: Sequence) {
        let mut before = Sequence(0);
        self.0.retain_mut(|(_, last)| {
            let kept = before < to;
            before = *last;
            *last = (*last).min(to);
            kept
        });
    }

    /// The last sequence up to which both logs are the same.
    #[must_use]
    pub fn meets(&self, other: &Self) -> Sequence {
        let mut meeting = Sequence(0);
        for (epoch, first, last) in self.stretches() {
            for (_, their_first, their_last) in other.stretches().filter(|(theirs, ..)| *theirs == epoch) {
                let shared = last.min(their_last);
                if shared > first.max(their_first) {
                    meeting = meeting.max(shared);
                }
            }
        }
        meeting
    }

    /// Each epoch that wrote into it, with the last sequence that it wrote; [`History::grew`], told so in this order, makes the same.
    pub fn tenures(&self) -> impl Iterator<Item = (Epoch, Sequence)> + '_ {
        self.0.iter().copied()
    }

    /// Each epoch with the sequence before its first entry and that of its last.
    fn stretches(&self) -> impl Iterator<Item = (Epoch, Sequence, Sequence)> + '_ {
        let mut before = Sequence(0);
        self.0.iter().map(move |(epoch, last)| {
            let stretch = (*epoch, before, *last);
            before = *last;
            stretch
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(log: &[u32]) -> History {
        let mut history = History::default();
        for (at, epoch) in log.iter().enumerate() {
            history.grew(Epoch(*epoch), Sequence(at as u64 + 1));
        }
        history
    }

    #[test]
    fn a_diverged_tail_is_found_also_when_it_is_the_longer_one() {
        assert_eq!(of(&[1, 1, 1, 1]).meets(&of(&[1, 1, 2])), Sequence(2));
        assert_eq!(of(&[1, 1, 3]).meets(&of(&[1, 1, 2, 2])), Sequence(2));
        assert_eq!(of(&[]).meets(&of(&[1])), Sequence(0));
        assert_eq!(of(&[2]).meets(&of(&[1])), Sequence(0));
        assert!(of(&[1, 2]).end() > of(&[1, 1, 1]).end(), "a newer epoch outranks a longer log");
    }

    proptest! {
        /// Logs as groups write them: a common beginning, then tails of epochs that the other side never saw.
        #[test]
        fn where_two_logs_meet_is_where_a_walk_over_their_entries_says(
            shared in prop::collection::vec(1_u32..4, 0..8),
            mine in prop::collection::vec(0_u32..3, 0..6),
            theirs in prop::collection::vec(0_u32..3, 0..6),
            cut in 0_usize..16,
        ) {
            let rising = |mut tail: Vec<u32>, step: u32, shared: &[u32]| {
                let floor = shared.last().copied().unwrap_or(1);
                tail.sort_unstable();
                let tail = tail.into_iter().map(move |epoch| floor + 1 + epoch * 2 + step);
                shared.iter().copied().chain(tail).collect::<Vec<u32>>()
            };
            let mut shared = shared;
            shared.sort_unstable();
            let (mine, theirs) = (rising(mine, 0, &shared), rising(theirs, 1, &shared));
            let walked = mine.iter().zip(&theirs).take_while(|(one, other)| one == other).count() as u64;
            prop_assert_eq!(of(&mine).meets(&of(&theirs)), Sequence(walked));
            prop_assert_eq!(of(&theirs).meets(&of(&mine)), Sequence(walked));
            let mut shorter = of(&mine);
            shorter.cut(Sequence(cut as u64));
            prop_assert_eq!(shorter, of(&mine[..mine.len().min(cut)]));
        }
    }
}
