//! What the coordinator may forget, until it surely has been told.
//!
//! Walk: [`Notes::finished`] and [`Notes::acknowledged`] note · [`Notes::take`] gives what goes with the next message ·
//! [`Notes::proven`]: an answer to a later message came back, so they arrived · [`Notes::lost`]: the connection ended,
//! they go again · [`Notes::restarted`]: the coordinator did, and may have lost what it had not yet written. Telling
//! twice does no harm.

use std::collections::VecDeque;

use assent_ids::{Incarnation, TxId};

/// Beyond, notes are dropped: the coordinator then remembers until this client is gone.
const NOTES_MAX: usize = 65_536;

/// So many that arrived are kept for a restart of the coordinator. Beyond, it remembers what it lost until this client
/// is gone.
const PROVEN_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug)]
enum Note {
    Finished(TxId),
    Acknowledged(TxId),
}

#[derive(Debug, Default)]
struct Batch {
    number: u64,
    finished: Vec<TxId>,
    acknowledged: Vec<TxId>,
}

#[derive(Debug, Default)]
pub(crate) struct Notes {
    next: Batch,
    flying: VecDeque<Batch>,
    /// Of what waits and flies.
    count: usize,
    /// The last that arrived.
    proven: VecDeque<Note>,
}

impl Notes {
    pub(crate) fn finished(&mut self, tx: TxId) {
        if self.has_room() {
            self.next.finished.push(tx);
        }
    }

    pub(crate) fn acknowledged(&mut self, tx: TxId) {
        if self.has_room() {
            self.next.acknowledged.push(tx);
        }
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.count < NOTES_MAX;
        self.count += usize::from(has_room);
        has_room
    }

    /// Whether something waits to be told.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.next.finished.is_empty() || !self.next.acknowledged.is_empty()
    }

    /// Whether something is told or waits to be.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What goes now, if anything waits: finished, acknowledged. Of another incarnation nothing is told: the coordinator
    /// forgets by itself what a fenced client left.
    pub(crate) fn take(&mut self, incarnation: Incarnation) -> Option<(Vec<TxId>, Vec<TxId>)> {
        let all = self.next.finished.len() + self.next.acknowledged.len();
        self.next.finished.retain(|tx| tx.incarnation == incarnation);
        self.next.acknowledged.retain(|tx| tx.incarnation == incarnation);
        self.count -= all - self.next.finished.len() - self.next.acknowledged.len();
        if !self.is_waiting() {
            return None;
        }
        let number = self.next.number;
        let batch = std::mem::replace(&mut self.next, Batch { number: number + 1, ..Batch::default() });
        let told = (batch.finished.clone(), batch.acknowledged.clone());
        self.flying.push_back(batch);
        Some(told)
    }

    /// Batches before this number have been taken: give it to [`Notes::proven`] when what was sent now is answered.
    pub(crate) const fn number(&self) -> u64 {
        self.next.number
    }

    /// Everything taken before that number has arrived.
    pub(crate) fn proven(&mut self, number: u64) {
        while let Some(batch) = self.flying.pop_front_if(|batch| batch.number < number) {
            self.count -= batch.finished.len() + batch.acknowledged.len();
            let acknowledged = batch.acknowledged.into_iter().map(Note::Acknowledged);
            self.proven.extend(acknowledged.chain(batch.finished.into_iter().map(Note::Finished)));
        }
        let old = self.proven.len().saturating_sub(PROVEN_MAX);
        self.proven.drain(..old);
    }

    /// What arrived goes again: the coordinator keeps it lazily, so its restart may have lost it.
    pub(crate) fn restarted(&mut self) {
        for note in std::mem::take(&mut self.proven) {
            match note {
                Note::Finished(tx) => self.finished(tx),
                Note::Acknowledged(tx) => self.acknowledged(tx),
            }
        }
    }

    /// What was not proven goes again.
    pub(crate) fn lost(&mut self) {
        for batch in self.flying.drain(..) {
            self.next.finished.extend(batch.finished);
            self.next.acknowledged.extend(batch.acknowledged);
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Epoch;

    use super::*;

    const ME: Incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    const OTHER: Incarnation = Incarnation { epoch: Epoch(1), number: 2 };

    fn tx(incarnation: Incarnation, counter: u64) -> TxId {
        TxId { incarnation, counter }
    }

    #[test]
    fn a_note_is_told_until_an_answer_proves_that_it_arrived() {
        let mut notes = Notes::default();
        notes.finished(tx(ME, 1));
        notes.acknowledged(tx(ME, 2));
        assert_eq!(notes.take(ME), Some((vec![tx(ME, 1)], vec![tx(ME, 2)])));
        let first = notes.number();
        notes.finished(tx(ME, 3));
        assert_eq!(notes.take(ME), Some((vec![tx(ME, 3)], vec![])));
        notes.proven(first);
        notes.lost();
        assert_eq!(notes.take(ME), Some((vec![tx(ME, 3)], vec![])), "only the second batch goes again");
        notes.proven(notes.number());
        assert!(notes.is_empty());
        notes.lost();
        assert_eq!(notes.take(ME), None);
    }

    #[test]
    fn the_last_that_arrived_go_again_when_the_coordinator_has_restarted() {
        let mut notes = Notes::default();
        notes.finished(tx(ME, 1));
        notes.acknowledged(tx(ME, 2));
        _ = notes.take(ME);
        notes.proven(notes.number());
        assert_eq!(notes.take(ME), None, "a lost connection alone is no reason");
        notes.restarted();
        assert_eq!(notes.take(ME), Some((vec![tx(ME, 1)], vec![tx(ME, 2)])));
        notes.proven(notes.number());
        let many = u64::try_from(PROVEN_MAX).unwrap();
        for counter in 0..many {
            notes.finished(tx(ME, 10 + counter));
            _ = notes.take(ME);
        }
        notes.proven(notes.number());
        notes.restarted();
        let told = (0..many).map(|counter| tx(ME, 10 + counter)).collect();
        assert_eq!(notes.take(ME), Some((told, vec![])), "the last ones, and not more");
    }

    #[test]
    fn notes_of_a_fenced_incarnation_are_dropped_and_there_is_a_limit() {
        let mut notes = Notes::default();
        notes.finished(tx(OTHER, 1));
        notes.finished(tx(ME, 1));
        assert_eq!(notes.take(ME), Some((vec![tx(ME, 1)], vec![])));
        notes.proven(notes.number());
        assert!(notes.is_empty());
        for counter in 0..=70_000 {
            notes.finished(tx(ME, counter));
        }
        assert_eq!(notes.take(ME).map(|(finished, _)| finished.len()), Some(NOTES_MAX));
    }
}
