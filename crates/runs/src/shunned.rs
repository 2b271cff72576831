//! Runs that cannot be read. Merges go round them, so that all others go on: else the one that is most urgent would fail for ever, runs of
//! level 0 become ever more, and writers wait for them.
//!
//! One that is damaged stays so. One that the disk does not read may be read the next time: it counts when that failed three times in a row. That
//! there was no descriptor for it does not.
//! Deliberately absent: a memory of it on the disk. The next opening finds it again by the first merge that needs it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::RunsError;
use crate::run::RunId;

/// So often in a row a run is tried that the disk does not read.
const UNREAD_MAX: u32 = 3;

/// Those that were met.
#[derive(Debug, Default)]
pub(crate) struct Shunned(Mutex<Met>);

#[derive(Debug, Default)]
struct Met {
    runs: BTreeSet<RunId>,
    /// The last one that could not be read, and how often in a row.
    unread: Option<(RunId, u32)>,
}

impl Shunned {
    fn met(&self) -> MutexGuard<'_, Met> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn runs(&self) -> BTreeSet<RunId> {
        self.met().runs.clone()
    }

    /// A step that reads these runs of a folder failed.
    pub(crate) fn failed(&self, error: &RunsError, folder: &Path, runs: &[RunId]) {
        let (path, is_for_good) = match error {
            RunsError::Damaged { file, .. } => (file, true),
            RunsError::Disk { path, full: false, short: false, .. } => (path, false),
            _ => return,
        };
        let Some(run) = runs.iter().copied().find(|run| run.path(folder) == *path) else { return };
        let mut met = self.met();
        let before = met.unread.filter(|(last, _)| *last == run).map_or(0, |(_, times)| times);
        met.unread = Some((run, before + 1));
        if is_for_good || before + 1 >= UNREAD_MAX {
            met.runs.insert(run);
        }
    }

    /// One came to its end.
    pub(crate) fn succeeded(&self) {
        self.met().unread = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_run_counts_at_once_and_an_unread_one_from_the_third_time_in_a_row() {
        let folder = Path::new("map");
        let unread = |run: u64| RunsError::Disk {
            doing: "read",
            path: RunId(run).path(folder),
            reason: "it does not".to_owned(),
            full: false,
            short: false,
        };
        let shunned = Shunned::default();
        let all = [RunId(1), RunId(2), RunId(3)];
        let fails = |error: &RunsError| {
            shunned.failed(error, folder, &all);
            shunned.runs().into_iter().map(|run| run.0).collect::<Vec<_>>()
        };
        assert_eq!(fails(&RunsError::damaged(&RunId(2).path(folder), 0, "rot")), [2]);
        assert_eq!(fails(&RunsError::damaged(&RunId(7).path(folder), 0, "rot")), [2], "none that it reads");
        assert_eq!([fails(&unread(1)), fails(&unread(1)), fails(&unread(3)), fails(&unread(1))], [[2]; 4]);
        shunned.succeeded();
        assert_eq!([fails(&unread(1)), fails(&unread(1))], [[2]; 2]);
        assert_eq!(fails(&unread(1)), [1, 2]);
        // For want of a descriptor, however often: EMFILE.
        let short = RunsError::disk("open", &RunId(3).path(folder), &std::io::Error::from_raw_os_error(24));
        assert_eq!([fails(&short), fails(&short), fails(&short), fails(&short)], [[1, 2]; 4].map(Vec::from));
        let full = RunsError::Disk {
            doing: "write",
            path: RunId(3).path(folder),
            reason: String::new(),
            full: true,
            short: false,
        };
        assert_eq!([fails(&full), fails(&full), fails(&full), fails(&RunsError::ReadOnly)], [[1, 2]; 4].map(Vec::from));
    }
}
