//! How each part stands, in a sentence.
//!
//! Walk: [`Health::watch`] gives a part a name and a question · [`Health::report`] asks them all · the worst answer is
//! the answer of the whole.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// How a part stands. Ordered: the worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It does all of its work.
    Ok,
    /// It works, and somebody should look.
    Degraded,
    /// It does not do its work.
    Failed,
}

impl State {
    /// The word in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

/// A part's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// How it stands.
    pub state: State,
    /// Why, for people.
    pub sentence: String,
}

impl Check {
    /// All is well.
    #[must_use]
    pub fn ok(sentence: impl Into<String>) -> Self {
        Self { state: State::Ok, sentence: sentence.into() }
    }

    /// It works, and somebody should look.
    #[must_use]
    pub fn degraded(sentence: impl Into<String>) -> Self {
        Self { state: State::Degraded, sentence: sentence.into() }
    }

    /// It does not work.
    #[must_use]
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self { state: State::Failed, sentence: sentence.into() }
    }
}

/// All answers at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The worst of them; [`State::Ok`] if there are none.
    pub state: State,
    /// By name.
    pub checks: BTreeMap<String, Check>,
}

type Question = Box<dyn Fn() -> Check + Send + Sync>;

/// The parts and their questions.
#[derive(Default)]
pub struct Health {
    questions: Mutex<BTreeMap<String, Question>>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Asks this part from now on; one of the same name is replaced. The question must not block.
    pub fn watch(&self, name: &str, question: impl Fn() -> Check + Send + Sync + 'static) {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Box::new(question));
    }

    /// Asks all parts.
    #[must_use]
    pub fn report(&self) -> Report {
        let questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let checks: BTreeMap<_, _> = questions.iter().map(|(name, question)| (name.clone(), question())).collect();
        let state = checks.values().map(|check| check.state).max().unwrap_or(State::Ok);
        Report { state, checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_part_speaks_for_the_whole() {
        let health = Health::default();
        assert_eq!(health.report().state, State::Ok);
        health.watch("kv", || Check::ok("12 branches"));
        health.watch("coordinator", || Check::degraded("1 heuristic outcome waits for a person"));
        assert_eq!(health.report().state, State::Degraded);
        health.watch("kv", || Check::failed("the journal is closed"));
        let report = health.report();
        assert_eq!(report.state, State::Failed);
        assert_eq!(report.checks.len(), 2);
        assert_eq!(report.checks.get("kv").map(|check| check.sentence.as_str()), Some("the journal is closed"));
    }
}
