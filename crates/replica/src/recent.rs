//! The last entries of the own log, in memory: what is not confirmed, and a little more for standbys that are a little behind.

use std::collections::VecDeque;

use assent_membership::Sequence;

use crate::entry::{Chain, Entry};

/// A run of entries without a gap; its last one is the log's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// How many of them, and of their bytes, are not confirmed.
    unconfirmed: (usize, usize),
}

impl Recent {
    pub(crate) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.unconfirmed.0 += 1;
        self.unconfirmed.1 += entry.bytes();
        self.entries.push_back(entry);
    }

    /// Everything up to here is confirmed; the oldest entries go, if there are many, and none behind `landed`: what is not here any more
    /// can be read from the log without waiting for its disk.
    pub(crate) fn confirm(&mut self, to: Sequence, landed: Sequence, bytes_max: usize) {
        while self.unconfirmed.0 > 0 {
            let first = self.entries.len().saturating_sub(self.unconfirmed.0);
            let Some(entry) = self.entries.get(first).filter(|entry| entry.sequence <= to) else { break };
            self.unconfirmed.0 -= 1;
            self.unconfirmed.1 = self.unconfirmed.1.saturating_sub(entry.bytes());
        }
        while self.bytes > bytes_max && self.entries.len() > self.unconfirmed.0 {
            let Some(gone) = self.entries.pop_front_if(|entry| entry.sequence <= landed) else { break };
            self.bytes = self.bytes.saturating_sub(gone.bytes());
        }
    }

    /// Everything behind this entry is gone.
    pub(crate) fn cut(&mut self, to: Sequence) {
        while let Some(gone) = self.entries.pop_back_if(|entry| entry.sequence > to) {
            self.bytes = self.bytes.saturating_sub(gone.bytes());
            if self.unconfirmed.0 > 0 {
                self.unconfirmed.0 -= 1;
                self.unconfirmed.1 = self.unconfirmed.1.saturating_sub(gone.bytes());
            }
        }
    }

    /// Nothing is left of it: the log begins anew.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many bytes are not confirmed.
    pub(crate) const fn unconfirmed_bytes(&self) -> usize {
        self.unconfirmed.1
    }

    /// The chain up to an entry, if it is one of these.
    pub(crate) fn chain(&self, at: Sequence) -> Option<Chain> {
        self.index(at).and_then(|index| self.entries.get(index)).map(|entry| entry.chain)
    }

    /// What follows an entry; none if that has gone already.
    pub(crate) fn behind(&self, after: Sequence) -> Option<impl Iterator<Item = &Entry>> {
        let next = Sequence(after.0.checked_add(1)?);
        self.index(next).map(|index| self.entries.range(index..))
    }

    fn index(&self, at: Sequence) -> Option<usize> {
        let first = self.entries.front()?.sequence;
        let index = usize::try_from(at.0.checked_sub(first.0)?).ok()?;
        (index < self.entries.len()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Epoch;

    use super::*;
    use crate::entry::Mark;

    #[test]
    fn confirmed_entries_go_when_there_are_many_and_unconfirmed_ones_stay() {
        let mut recent = Recent::default();
        let mut end = Mark { sequence: Sequence(10), chain: Chain(1) };
        for _ in 0..6 {
            let entry = Entry::behind(end, Epoch(1), 1, [0; 80].as_slice().to_vec().into());
            end = entry.mark();
            recent.push(entry);
        }
        assert_eq!(recent.unconfirmed_bytes(), 600);
        recent.confirm(Sequence(13), Sequence(10), 450);
        assert_eq!((recent.bytes, recent.unconfirmed_bytes()), (600, 300), "the disk has none of them");
        recent.confirm(Sequence(13), Sequence(13), 450);
        assert_eq!(recent.unconfirmed_bytes(), 300);
        let left = |recent: &Recent, after| {
            recent.behind(Sequence(after)).map(|entries| entries.map(|entry| entry.sequence.0).collect())
        };
        assert_eq!(left(&recent, 11), None::<Vec<u64>>, "12 and what came before made room");
        assert_eq!(left(&recent, 12), Some(vec![13, 14, 15, 16]));
        recent.confirm(Sequence(14), Sequence(16), 0);
        assert_eq!(left(&recent, 14), Some(vec![15, 16]), "what is not confirmed stays, however little there may be");
        assert_eq!((recent.chain(Sequence(16)), recent.chain(Sequence(17))), (Some(end.chain), None));
        recent.cut(Sequence(15));
        assert_eq!((left(&recent, 14), recent.unconfirmed_bytes()), (Some(vec![15]), 100));
        assert_eq!(left(&recent, 15), None, "nothing follows the end");
    }
}
