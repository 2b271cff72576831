//! What the coordinator may forget, and what it must hear, until it surely has been told.
//!
//! Walk: [`Notes::finished`], [`Notes::acknowledged`] and [`Notes::heuristic`] note · [`Notes::take`] gives what goes with
//! the next message · [`Notes::proven`]: an answer to a later message came back, so they arrived · [`Notes::lost`]: the
//! connection ended, they go again · [`Notes::restarted`]: the coordinator did, and may have lost what it had not yet
//! written. Telling twice does no harm, but for a heuristic outcome, which a person may have seen to and had forgotten: it goes again
//! only while a restart may have lost it.

use std::collections::VecDeque;
use std::time::Duration;

use assent_ids::{Incarnation, TxId};
use assent_world::Moment;
use assent_xa::{Decision, Deviation, Outcome, Voted};

/// Beyond, notes are dropped: the coordinator then remembers until this client is gone.
const NOTES_MAX: usize = 65_536;

/// So many that arrived are kept for a restart of the coordinator. Beyond, it remembers what it lost until this client
/// is gone.
const PROVEN_MAX: usize = 4_096;

/// What has arrived is durable by then, many times over: a coordinator makes it so with the next decision or tick.
const LAZY_MAX: Duration = Duration::from_secs(60);

/// So many votes wait for a message; beyond, and when a connection ends, history lacks them.
const BALLOTS_MAX: usize = 1_024;

/// What the branches of one voted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ballots {
    pub(crate) tx: TxId,
    pub(crate) outcome: Outcome,
    pub(crate) votes: Vec<Voted>,
}

/// Branches that ended otherwise than they were told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strayed {
    pub(crate) tx: TxId,
    /// What they were told.
    pub(crate) told: Outcome,
    pub(crate) branches: Vec<Deviation>,
}

/// What goes in one go, in this order: votes and a heuristic outcome before anything lets its transaction be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) ballots: Vec<Ballots>,
    /// Decided by rows.
    pub(crate) noted: Vec<Decision>,
    pub(crate) strayed: Vec<Strayed>,
    pub(crate) finished: Vec<TxId>,
    pub(crate) acknowledged: Vec<TxId>,
}

impl Told {
    const fn len(&self) -> usize {
        self.ballots.len() + self.noted.len() + self.strayed.len() + self.finished.len() + self.acknowledged.len()
    }

    fn keep_only(&mut self, incarnation: Incarnation) {
        self.ballots.retain(|it| it.tx.incarnation == incarnation);
        self.noted.retain(|it| it.tx.incarnation == incarnation);
        self.strayed.retain(|it| it.tx.incarnation == incarnation);
        self.finished.retain(|tx| tx.incarnation == incarnation);
        self.acknowledged.retain(|tx| tx.incarnation == incarnation);
    }

    fn extend(&mut self, other: Self) {
        self.noted.extend(other.noted);
        self.strayed.extend(other.strayed);
        self.finished.extend(other.finished);
        self.acknowledged.extend(other.acknowledged);
    }
}

#[derive(Debug)]
enum Note {
    /// And since when it is known to have arrived.
    Strayed(Strayed, Moment),
    Finished(TxId),
    Acknowledged(TxId),
}

#[derive(Debug, Default)]
struct Batch {
    number: u64,
    told: Told,
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
            self.next.told.finished.push(tx);
        }
    }

    pub(crate) fn acknowledged(&mut self, tx: TxId) {
        if self.has_room() {
            self.next.told.acknowledged.push(tx);
        }
    }

    pub(crate) fn heuristic(&mut self, strayed: Strayed) {
        if self.has_room() {
            self.next.told.strayed.push(strayed);
        }
    }

    /// Before anything lets it be forgotten; told twice, history has it twice.
    pub(crate) fn noted(&mut self, decision: Decision) {
        if self.has_room() {
            self.next.told.noted.push(decision);
        }
    }

    /// For history: told at most once.
    pub(crate) fn voted(&mut self, ballots: Ballots) {
        if self.next.told.ballots.len() < BALLOTS_MAX && self.has_room() {
            self.next.told.ballots.push(ballots);
        }
    }

    /// Whether more would be dropped.
    pub(crate) const fn is_full(&self) -> bool {
        self.count >= NOTES_MAX
    }

    fn has_room(&mut self) -> bool {
        let has_room = !self.is_full();
        self.count += usize::from(has_room);
        has_room
    }

    /// Whether something waits to be told.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.next.told.len() > 0
    }

    /// Whether something is told or waits to be.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What goes now, if anything waits. Of another incarnation nothing is told: the coordinator forgets by itself what
    /// a fenced client left, and its recovery learns what the branches did.
    pub(crate) fn take(&mut self, incarnation: Incarnation) -> Option<Told> {
        let all = self.next.told.len();
        self.next.told.keep_only(incarnation);
        self.count -= all - self.next.told.len();
        if !self.is_waiting() {
            return None;
        }
        let number = self.next.number;
        let batch = std::mem::replace(&mut self.next, Batch { number: number + 1, ..Batch::default() });
        let told = batch.told.clone();
        self.flying.push_back(batch);
        Some(told)
    }

    /// Batches before this number have been taken: give it to [`Notes::proven`] when what was sent now is answered.
    pub(crate) const fn number(&self) -> u64 {
        self.next.number
    }

    /// Everything taken before that number has arrived by now.
    pub(crate) fn proven(&mut self, number: u64, now: Moment) {
        while let Some(batch) = self.flying.pop_front_if(|batch| batch.number < number) {
            self.count -= batch.told.len();
            // A restarted coordinator learns from the row what it lost.
            let Told { strayed, finished, acknowledged, ballots: _, noted: _ } = batch.told;
            self.proven.extend(strayed.into_iter().map(|it| Note::Strayed(it, now)));
            self.proven.extend(acknowledged.into_iter().map(Note::Acknowledged));
            self.proven.extend(finished.into_iter().map(Note::Finished));
        }
        let old = self.proven.len().saturating_sub(PROVEN_MAX);
        self.proven.drain(..old);
    }

    /// What arrived goes again: the coordinator, last heard of then, keeps it lazily, so its restart may have lost it.
    pub(crate) fn restarted(&mut self, heard: Moment) {
        for note in std::mem::take(&mut self.proven) {
            match note {
                Note::Strayed(strayed, since) if heard.since(since) <= LAZY_MAX => self.heuristic(strayed),
                Note::Strayed(..) => {}
                Note::Finished(tx) => self.finished(tx),
                Note::Acknowledged(tx) => self.acknowledged(tx),
            }
        }
    }

    /// What was not proven goes again.
    pub(crate) fn lost(&mut self) {
        for batch in self.flying.drain(..) {
            // They may have arrived, and a line of history must not stand there twice.
            self.count -= batch.told.ballots.len();
            self.next.told.extend(batch.told);
        }
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Epoch;

    use super::*;

    const ME: Incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    const OTHER: Incarnation = Incarnation { epoch: Epoch(1), number: 2 };

    const NOW: Moment = Moment(5);

    /// Finished and acknowledged.
    fn told(finished: Vec<TxId>, acknowledged: Vec<TxId>) -> Option<Told> {
        Some(Told { finished, acknowledged, ..Told::default() })
    }

    fn tx(incarnation: Incarnation, counter: u64) -> TxId {
        TxId { incarnation, counter }
    }

    #[test]
    fn a_note_is_told_until_an_answer_proves_that_it_arrived() {
        let mut notes = Notes::default();
        notes.finished(tx(ME, 1));
        notes.acknowledged(tx(ME, 2));
        assert_eq!(notes.take(ME), told(vec![tx(ME, 1)], vec![tx(ME, 2)]));
        let first = notes.number();
        notes.finished(tx(ME, 3));
        assert_eq!(notes.take(ME), told(vec![tx(ME, 3)], vec![]));
        notes.proven(first, NOW);
        notes.lost();
        assert_eq!(notes.take(ME), told(vec![tx(ME, 3)], vec![]), "only the second batch goes again");
        notes.proven(notes.number(), NOW);
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
        notes.proven(notes.number(), NOW);
        assert_eq!(notes.take(ME), None, "a lost connection alone is no reason");
        notes.restarted(NOW);
        assert_eq!(notes.take(ME), told(vec![tx(ME, 1)], vec![tx(ME, 2)]));
        notes.proven(notes.number(), NOW);
        let many = u64::try_from(PROVEN_MAX).unwrap();
        for counter in 0..many {
            notes.finished(tx(ME, 10 + counter));
            _ = notes.take(ME);
        }
        notes.proven(notes.number(), NOW);
        notes.restarted(NOW);
        let last = (0..many).map(|counter| tx(ME, 10 + counter)).collect();
        assert_eq!(notes.take(ME), told(last, vec![]), "the last ones, and not more");
    }

    #[test]
    fn notes_of_a_fenced_incarnation_are_dropped_and_there_is_a_limit() {
        let mut notes = Notes::default();
        notes.finished(tx(OTHER, 1));
        notes.finished(tx(ME, 1));
        assert_eq!(notes.take(ME), told(vec![tx(ME, 1)], vec![]));
        notes.proven(notes.number(), NOW);
        assert!(notes.is_empty());
        for counter in 0..=70_000 {
            notes.finished(tx(ME, counter));
        }
        assert_eq!(notes.take(ME).map(|told| told.finished.len()), Some(NOTES_MAX));
    }

    #[test]
    fn votes_are_told_once_before_what_lets_them_be_forgotten_and_there_is_a_limit() {
        let ballots = |counter| Ballots { tx: tx(ME, counter), outcome: Outcome::Committed, votes: vec![] };
        let mut notes = Notes::default();
        notes.voted(ballots(1));
        notes.finished(tx(ME, 1));
        let first = notes.take(ME).unwrap();
        assert_eq!((first.ballots, first.finished), (vec![ballots(1)], vec![tx(ME, 1)]));
        notes.lost();
        assert_eq!(notes.take(ME), told(vec![tx(ME, 1)], vec![]), "nobody knows whether they arrived");
        notes.proven(notes.number(), NOW);
        notes.restarted(NOW);
        assert_eq!(notes.take(ME), told(vec![tx(ME, 1)], vec![]));
        notes.proven(notes.number(), NOW);
        (0..2_000).for_each(|counter| notes.voted(ballots(counter)));
        assert_eq!(notes.take(ME).map(|told| told.ballots.len()), Some(BALLOTS_MAX));
        notes.voted(ballots(1));
        notes.lost();
        assert_eq!(notes.take(ME).map(|told| told.ballots.len()), Some(1), "those that were not sent");
        notes.proven(notes.number(), NOW);
        assert!(notes.is_empty());
    }

    #[test]
    fn what_a_row_has_decided_is_told_before_it_may_be_forgotten_and_again_over_another_connection() {
        let noted = || Decision { tx: tx(ME, 1), outcome: Outcome::Committed, first: true, branches: vec![] };
        let mut notes = Notes::default();
        notes.noted(noted());
        notes.finished(tx(ME, 1));
        let first = notes.take(ME).unwrap();
        assert_eq!((first.noted.as_slice(), first.finished.len()), (&[noted()][..], 1));
        notes.lost();
        assert_eq!(notes.take(ME), Some(first));
        notes.proven(notes.number(), NOW);
        assert!(notes.is_empty());
        notes.restarted(NOW);
        assert_eq!(notes.take(ME), told(vec![tx(ME, 1)], vec![]));
        notes.noted(Decision { tx: tx(OTHER, 1), ..noted() });
        assert_eq!(notes.take(ME), None, "a fenced client's is recovery's to find");
    }

    #[test]
    fn a_heuristic_outcome_is_told_until_it_has_arrived_and_again_to_a_restarted_coordinator() {
        let strayed = || Strayed { tx: tx(ME, 1), told: Outcome::Committed, branches: vec![] };
        let mut notes = Notes::default();
        notes.heuristic(strayed());
        notes.acknowledged(tx(ME, 1));
        let first = notes.take(ME).unwrap();
        assert_eq!((first.strayed.as_slice(), first.acknowledged.len()), (&[strayed()][..], 1));
        notes.lost();
        assert_eq!(notes.take(ME), Some(first.clone()), "the connection ended");
        notes.proven(notes.number(), NOW);
        notes.restarted(NOW);
        assert_eq!(notes.take(ME), Some(first), "the coordinator may have lost it");
        // A person may have had it forgotten, of a coordinator that has long kept it.
        notes.proven(notes.number(), NOW);
        notes.restarted(NOW.after(LAZY_MAX));
        let again = notes.take(ME).unwrap();
        assert_eq!((again.strayed.len(), again.acknowledged.len()), (1, 1), "at the limit");
        notes.proven(notes.number(), NOW);
        notes.restarted(NOW.after(LAZY_MAX + Duration::from_micros(1)));
        assert_eq!(notes.take(ME), told(vec![], vec![tx(ME, 1)]), "one beyond");
        notes.heuristic(strayed());
        _ = notes.take(ME);
        notes.lost();
        assert_eq!(notes.take(OTHER), None, "a fenced client's branches are recovery's to see");
        assert!(notes.is_empty());
    }
}
