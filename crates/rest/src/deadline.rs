//! Until when the work of a request is worth doing: who asked was told by then that it was not done, and the thread is wanted.
//!
//! Walk: [`Deadline::check`] in every loop that a caller can make long · [`Deadline::bound`] where the loop is the library's.
//! Deliberately absent: a way to stop what looks nowhere.

use std::sync::Arc;
use std::time::Duration;

use assent_docs::Revision;
use assent_kind::Kind;
use assent_world::{Clock, Moment};

use crate::problem::Problem;

/// Loops look at the clock at each so manieth turn.
const TURNS: usize = 256;

/// Until when a request's work goes on.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    clock: Arc<dyn Clock>,
    until: Moment,
    patience: Duration,
}

impl Deadline {
    pub(crate) fn after(clock: &Arc<dyn Clock>, patience: Duration) -> Self {
        Self { clock: Arc::clone(clock), until: clock.now().after(patience), patience }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.clock.now() >= self.until
    }

    /// Refuses to go on where it is over.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.is_over() { Err(self.over()) } else { Ok(()) }
    }

    /// That it is over.
    pub(crate) fn over(&self) -> Problem {
        let waited = self.patience.as_millis();
        Problem::of(Kind::Unavailable, format!("not done within {waited} ms, and given up; ask for less"))
    }

    /// A revision that is read for as long as that.
    pub(crate) fn bound(&self, revision: Revision) -> Revision {
        let deadline = self.clone();
        revision.while_wanted(Arc::new(move || !deadline.is_over()))
    }

    /// The same in a loop whose turns are short.
    pub(crate) fn check_at(&self, turn: usize) -> Result<(), Problem> {
        if turn.is_multiple_of(TURNS) { self.check() } else { Ok(()) }
    }
}
