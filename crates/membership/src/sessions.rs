//! Sessions of clients: a request that is sent again is answered again, also by another primary.
//!
//! The table is a function of the log: it is replicated because the log is, and rebuilt by whoever applies it. So it has
//! no clock, and who is evicted follows from the log alone.
//! Walk: [`Sessions::open`] as the log says · [`Sessions::admit`] before a request is put behind the log ·
//! [`Sessions::executed`] as the log says.

use std::collections::{BTreeMap, VecDeque};

use crate::history::Sequence;

/// As many sessions as are remembered. One more evicts the one that was silent for the longest stretch of the log.
pub const SESSIONS_MAX: usize = 65_536;
/// As many answers of one session as are remembered, and so as many requests as it may have under way.
const ANSWERS_MAX: usize = 1_024;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission<A> {
    /// It was never executed: put it behind the log.
    New,
    /// It was executed, with this answer; to be told once this sequence is confirmed.
    Again(Sequence, A),
    /// Whether it was executed cannot be known: its session, or its answer, is gone. Never execute it.
    InDoubt,
    /// Requests before it are missing; a session counts without a gap.
    Gap {
        /// The next that would be taken.
        expected: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session<A> {
    /// The last request executed.
    last: u64,
    answers: VecDeque<(Sequence, A)>,
    used: Sequence,
}

/// The sessions of a group's clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sessions<A> {
    table: BTreeMap<Sequence, Session<A>>,
    /// By when they were last used; the first is the next to go.
    by_use: BTreeMap<Sequence, Sequence>,
    sessions_max: usize,
}

impl<A: Clone> Default for Sessions<A> {
    fn default() -> Self {
        Self::new(SESSIONS_MAX)
    }
}

impl<A: Clone> Sessions<A> {
    /// No session yet. Everybody in the group has the same limit, or their tables differ.
    #[must_use]
    pub const fn new(sessions_max: usize) -> Self {
        Self { table: BTreeMap::new(), by_use: BTreeMap::new(), sessions_max }
    }

    /// The log opens a session here; the sequence is its name.
    pub fn open(&mut self, at: Sequence) {
        while self.table.len() >= self.sessions_max.max(1) {
            let Some((_, evicted)) = self.by_use.pop_first() else { break };
            self.table.remove(&evicted);
        }
        self.table.insert(at, Session { last: 0, answers: VecDeque::new(), used: at });
        self.by_use.insert(at, at);
    }

    /// The log closes a session: its client knows all its answers.
    pub fn close(&mut self, session: Sequence) {
        if let Some(gone) = self.table.remove(&session) {
            self.by_use.remove(&gone.used);
        }
    }

    /// A client asks for a request, by its number in the session, from 1.
    #[must_use]
    pub fn admit(&self, session: Sequence, request: u64) -> Admission<A> {
        let Some(known) = self.table.get(&session) else { return Admission::InDoubt };
        let expected = known.last.saturating_add(1);
        if request == expected {
            return Admission::New;
        }
        if request > expected {
            return Admission::Gap { expected };
        }
        // How many answers after the last one, counted from behind.
        let back = usize::try_from(known.last - request).unwrap_or(usize::MAX);
        let at = known.answers.len().checked_sub(1).and_then(|newest| newest.checked_sub(back));
        match at.and_then(|at| known.answers.get(at)) {
            Some((sequence, answer)) => Admission::Again(*sequence, answer.clone()),
            None => Admission::InDoubt,
        }
    }

    /// The log executed the next request of a session here, with this answer. An evicted session is passed over: its
    /// request was taken in before the eviction, and its client will be told that it is in doubt.
    pub fn executed(&mut self, session: Sequence, at: Sequence, answer: A) {
        let Some(known) = self.table.get_mut(&session) else { return };
        known.last = known.last.saturating_add(1);
        known.answers.push_back((at, answer));
        if known.answers.len() > ANSWERS_MAX {
            known.answers.pop_front();
        }
        self.by_use.remove(&known.used);
        known.used = at;
        self.by_use.insert(at, session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once_and_its_answer_is_told_again() {
        let mut sessions = Sessions::new(2);
        let one = Sequence(1);
        assert_eq!(sessions.admit(one, 1), Admission::<&str>::InDoubt, "nobody opened it");
        sessions.open(one);
        assert_eq!(sessions.admit(one, 1), Admission::New);
        assert_eq!(sessions.admit(one, 2), Admission::Gap { expected: 1 });
        sessions.executed(one, Sequence(2), "ten");
        sessions.executed(one, Sequence(3), "eleven");
        assert_eq!(sessions.admit(one, 1), Admission::Again(Sequence(2), "ten"));
        assert_eq!(sessions.admit(one, 2), Admission::Again(Sequence(3), "eleven"));
        assert_eq!(sessions.admit(one, 3), Admission::New);
        assert_eq!(sessions.admit(one, 0), Admission::InDoubt);
    }

    #[test]
    fn the_session_that_was_silent_longest_goes_and_its_retry_is_in_doubt() {
        let mut sessions = Sessions::new(2);
        sessions.open(Sequence(1));
        sessions.open(Sequence(2));
        sessions.executed(Sequence(1), Sequence(3), ());
        sessions.open(Sequence(4));
        assert_eq!(sessions.admit(Sequence(2), 1), Admission::InDoubt);
        assert_eq!(sessions.admit(Sequence(1), 1), Admission::Again(Sequence(3), ()));
        sessions.executed(Sequence(2), Sequence(5), ());
        assert_eq!(sessions.admit(Sequence(2), 1), Admission::InDoubt, "not revived by what was under way");
        sessions.close(Sequence(1));
        sessions.open(Sequence(6));
        assert_eq!(sessions.admit(Sequence(4), 1), Admission::New, "a closed one made room");
        assert_eq!((sessions.table.len(), sessions.by_use.len()), (2, 2));
    }

    #[test]
    fn an_answer_beyond_the_limit_is_in_doubt_and_the_one_at_the_limit_is_known() {
        let mut sessions = Sessions::new(1);
        sessions.open(Sequence(1));
        for at in 0..=ANSWERS_MAX as u64 {
            sessions.executed(Sequence(1), Sequence(2 + at), at);
        }
        assert_eq!(sessions.admit(Sequence(1), 1), Admission::InDoubt);
        assert_eq!(sessions.admit(Sequence(1), 2), Admission::Again(Sequence(3), 1));
    }
}
