//! What the arbiter is asked, one question after the other, and what an answer means for who asked.
//!
//! Walk: [`Questions::read`] and [`Questions::change`] note what is to be asked next · [`Questions::hand`] hands it to the arbiter's
//! thread · [`Questions::answered`] says what the value hears of the answer.
//! A refusal is told only when nothing that was asked before it can come true any more: else who asked would take it for over.
//! Deliberately absent: the arbiter, and threads.

use std::collections::VecDeque;

use assent_arbiter::ArbiterError;
use assent_membership::Configuration;

use crate::event::Input;

/// A question to the arbiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Read,
    Change { expect: u64, to: Configuration },
}

impl Question {
    fn is_change_of(&self, version: u64) -> bool {
        matches!(self, Self::Change { expect, .. } if *expect >= version)
    }
}

/// What was asked, and what is to be.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    next: Option<Question>,
    /// Without an answer, in their order.
    under_way: VecDeque<Question>,
    /// The answer to a change of this version was lost: it may come true at any time.
    doubted: Option<u64>,
}

impl Questions {
    pub(crate) fn read(&mut self) {
        self.next.get_or_insert(Question::Read);
    }

    /// A change goes before a read: its answer is one too.
    pub(crate) fn change(&mut self, expect: u64, to: Configuration) {
        let question = Question::Change { expect, to };
        // Once is enough until it is answered: a slow arbiter would never have answered all of it.
        if !self.under_way.contains(&question) {
            self.next = Some(question);
        }
    }

    /// Hands over what is to be asked; what is not taken is said again with a tick.
    pub(crate) fn hand(&mut self, order: impl FnOnce(Question) -> bool) {
        if let Some(question) = self.next.take()
            && order(question.clone())
        {
            self.under_way.push_back(question);
        }
    }

    /// The first of those under way has this answer.
    pub(crate) fn answered(&mut self, answer: Result<Configuration, ArbiterError>) -> Input {
        let question = self.under_way.pop_front();
        match (question, answer) {
            (_, Ok(held)) => {
                self.doubted = self.doubted.filter(|expect| held.version <= *expect);
                Input::Arbiter(held)
            }
            (Some(Question::Change { expect, to }), Err(ArbiterError::Refused { .. })) => {
                if self.may_come_true(expect) { Input::Time } else { Input::Refused { expect, to } }
            }
            (_, Err(ArbiterError::Unavailable { .. } | ArbiterError::Version { .. })) => Input::ArbiterSilent,
            (question, Err(_)) => {
                if let Some(Question::Change { expect, .. }) = question {
                    self.doubted = self.doubted.max(Some(expect));
                }
                Input::ArbiterSilent
            }
        }
    }

    /// Whether a change of this version or a later one was asked for, and may yet be done.
    fn may_come_true(&self, version: u64) -> bool {
        let mut open = self.under_way.iter().chain(&self.next);
        self.doubted >= Some(version) || open.any(|question| question.is_change_of(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(version: u64) -> Configuration {
        Configuration { version, ..Configuration::default() }
    }

    fn asked(changes: &[(u64, u64)]) -> Questions {
        let mut questions = Questions::default();
        for (expect, version) in changes {
            questions.change(*expect, to(*version));
            questions.hand(|_| true);
        }
        questions
    }

    fn refused() -> Result<Configuration, ArbiterError> {
        Err(ArbiterError::Refused { at: "w".to_owned(), why: "full".to_owned() })
    }

    fn doubt() -> Result<Configuration, ArbiterError> {
        Err(ArbiterError::InDoubt { at: "w".to_owned(), why: "lost".to_owned() })
    }

    #[test]
    fn a_refusal_is_told_when_nothing_that_was_asked_can_come_true() {
        let mut questions = asked(&[(5, 6)]);
        assert_eq!(questions.answered(refused()), Input::Refused { expect: 5, to: to(6) });
        // It is asked again, and that is lost: it may be done from now on, whatever is refused.
        questions.change(5, to(6));
        questions.hand(|_| true);
        assert_eq!(questions.answered(doubt()), Input::ArbiterSilent);
        questions.change(5, to(6));
        questions.hand(|_| true);
        assert_eq!(questions.answered(refused()), Input::Time);
        // Until the arbiter is heard to be beyond it.
        questions.read();
        questions.hand(|_| true);
        assert_eq!(questions.answered(Ok(to(6))), Input::Arbiter(to(6)));
        questions.change(6, to(7));
        questions.hand(|_| true);
        assert_eq!(questions.answered(refused()), Input::Refused { expect: 6, to: to(7) });
    }

    #[test]
    fn a_refusal_waits_for_what_else_is_under_way_and_an_older_change_is_over() {
        let mut questions = asked(&[(5, 6), (5, 7)]);
        assert_eq!(questions.answered(refused()), Input::Time);
        assert_eq!(questions.answered(refused()), Input::Refused { expect: 5, to: to(7) });
        // What is not handed over yet will be.
        let mut questions = asked(&[(5, 6)]);
        questions.change(5, to(8));
        assert_eq!(questions.answered(refused()), Input::Time);
        // Who asks behind version 5 has seen it: nothing of before comes true.
        let mut questions = asked(&[(4, 5), (5, 6)]);
        assert_eq!(questions.answered(doubt()), Input::ArbiterSilent);
        assert_eq!(questions.answered(refused()), Input::Refused { expect: 5, to: to(6) });
    }

    #[test]
    fn one_change_is_asked_once_until_it_is_answered() {
        let mut questions = asked(&[(5, 6), (5, 6)]);
        questions.read();
        questions.hand(|question| {
            assert_eq!(question, Question::Read);
            false
        });
        assert_eq!(questions.answered(refused()), Input::Refused { expect: 5, to: to(6) });
        questions.hand(|_| panic!("what was not taken is said again by who wants it"));
    }
}
