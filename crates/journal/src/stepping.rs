//! Group commit one step at a time, so that a test on one thread can have several writes in flight and choose which is
//! done first.

use std::sync::Arc;

use crate::group::Flight;
use crate::journal::Journal;

/// A closed batch that is not yet on the disk.
#[derive(Debug)]
pub struct Write {
    journal: Arc<Journal>,
    flight: Flight,
    result: Option<Result<(), String>>,
}

/// Closes the open batch as a leader would; none if it is empty or as many writes as allowed are under way.
#[must_use]
pub fn close(journal: &Arc<Journal>) -> Option<Write> {
    let flight = journal.take()?;
    Some(Write { journal: Arc::clone(journal), flight, result: None })
}

impl Write {
    /// Writes it.
    pub fn write(&mut self) {
        self.result = Some(self.journal.write(&self.flight));
    }

    /// Tells the journal that it is done.
    pub fn land(mut self) {
        let result = self.result.take().unwrap_or_else(|| self.journal.write(&self.flight));
        self.journal.land(self.flight, result);
    }
}
