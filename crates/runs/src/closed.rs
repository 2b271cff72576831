//! A map that takes nothing more until it is opened again: nobody knows, or nobody can know any more, whether what it shows is what counts.
//!
//! Walk: [`Runs::close`] with the reason, for ever · [`Runs::refuse_closed`] before whatever would change it · [`Runs::wholly`] closes it
//! where a change panics half-way: others would go on with a manifest that nobody is shown, and lose what it names.
//! Deliberately absent: readers. They see what was shown last, which is whole, and whose files stay: those go with a later commit.

use crate::RunsError;
use crate::runs::Runs;

/// Closes the map where it is dropped before the change is done.
struct Half<'a> {
    runs: &'a Runs,
    is_done: bool,
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            _ = self.runs.close("a promise of ours was broken in the midst of a change".to_owned());
        }
    }
}

impl Runs {
    /// Makes a change that must not be done by half: where it panics, the map is closed as behind a commit of which nobody knows whether it
    /// counts. For owners whose own state changes with a commit; what locks the change needs are the caller's to hold until it is closed.
    pub fn wholly<T>(&self, change: impl FnOnce() -> T) -> T {
        let mut half = Half { runs: self, is_done: false };
        let done = change();
        half.is_done = true;
        done
    }

    /// From now on everything is refused. The first reason stays.
    pub(crate) fn close(&self, reason: String) -> RunsError {
        let reason = self.closed.get_or_init(|| reason).clone();
        RunsError::Closed { reason }
    }

    /// Whether a commit ended so that nobody knows whether it counts, or panicked: everything is refused until the map is opened again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    pub(crate) fn refuse_closed(&self) -> Result<(), RunsError> {
        self.closed.get().map_or(Ok(()), |reason| Err(RunsError::Closed { reason: reason.clone() }))
    }
}
