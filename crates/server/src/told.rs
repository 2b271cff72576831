//! What the log is told of recovery: every branch that is finished, and what stands in the way once, again when it
//! changes, and every minute as long as it lasts. A look at a resource comes twice a second while anything is in doubt.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use assent_coordinator::{BranchReport, Resolution, Round};
use assent_ids::Xid;
use assent_world::Moment;

use crate::report::{fate, troubles};

const AGAIN: Duration = Duration::from_secs(60);
/// More branches finished in one look are counted, not named: the history names them all.
const NAMED_MAX: usize = 16;

/// A resource, and a branch of it or itself.
type Subject = (String, Option<Xid>);

/// What stands in the way, as it was told last.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeMap<Subject, (String, Moment)>>);

impl Told {
    /// Tells the log of a round.
    pub(crate) fn tell(&self, round: &Round, now: Moment) {
        finished(round);
        for (subject, why, is_error) in self.news(round, now) {
            let resource = subject.0.as_str();
            match (subject.1.and_then(|xid| xid.branch()), is_error) {
                (Some(branch), true) => tracing::error!(tx = %branch.tx, resource, fate = why, "recovery"),
                (Some(branch), false) => tracing::warn!(tx = %branch.tx, resource, fate = why, "recovery"),
                (None, _) => tracing::warn!(resource, why, "recovery"),
            }
        }
    }

    /// What has changed or lasts, and whether a person must see to it.
    fn news(&self, round: &Round, now: Moment) -> Vec<(Subject, String, bool)> {
        let troubles = troubles(round).into_iter().map(|(resource, why)| ((resource, None), why, false));
        let open = round.branches.iter().filter(|branch| {
            matches!(branch.resolution, Resolution::Heuristic(..) | Resolution::Retry(..) | Resolution::Held)
        });
        let open = open.map(|branch| {
            let is_error = matches!(branch.resolution, Resolution::Heuristic(..));
            ((branch.resource.clone(), Some(branch.xid)), fate(&branch.resolution), is_error)
        });
        let all: Vec<(Subject, String, bool)> = troubles.chain(open).collect();
        // Nothing panics under the lock.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = |resource: &str| round.resources.iter().any(|one| one.name == resource);
        told.retain(|subject, _| !looked(&subject.0) || all.iter().any(|(other, _, _)| other == subject));
        let mut news = Vec::new();
        for (subject, why, is_error) in all {
            match told.entry(subject.clone()) {
                Entry::Occupied(mut last) => {
                    if last.get().0 == why && now.since(last.get().1) < AGAIN {
                        continue;
                    }
                    last.insert((why.clone(), now));
                }
                Entry::Vacant(first) => _ = first.insert((why.clone(), now)),
            }
            news.push((subject, why, is_error));
        }
        news
    }
}

fn finished(round: &Round) {
    let is_told =
        |branch: &&BranchReport| branch.resolution.is_finished() && !matches!(branch.resolution, Resolution::NotListed);
    let finished: Vec<&BranchReport> = round.branches.iter().filter(is_told).collect();
    for branch in finished.iter().take(NAMED_MAX) {
        let resource = branch.resource.as_str();
        tracing::info!(tx = %branch.tx, resource, fate = fate(&branch.resolution), "recovery");
    }
    if finished.len() > NAMED_MAX {
        tracing::info!(branches = finished.len() - NAMED_MAX, "recovery: as many more were finished in this look");
    }
}

#[cfg(test)]
mod tests {
    use assent_coordinator::ResourceReport;
    use assent_kind::Kind;
    use assent_xa::Native;

    use super::*;

    fn round(trouble: Option<&str>) -> Round {
        let words = |message: &str| (Kind::Unavailable, Native { code: String::new(), message: message.to_owned() });
        let name = "bank".to_owned();
        let resources = vec![ResourceReport { name, listed: None, trouble: trouble.map(words) }];
        Round { resources, ..Round::default() }
    }

    #[test]
    fn trouble_is_told_once_when_it_changes_and_every_minute() {
        let told = Told::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000);
        let lines = |trouble, seconds| told.news(&round(trouble), at(seconds)).len();
        assert_eq!(lines(Some("refused"), 0), 1);
        assert_eq!(lines(Some("refused"), 1), 0, "the same");
        assert_eq!(lines(Some("still starting"), 2), 1, "another reason");
        assert_eq!(lines(Some("still starting"), 61), 0);
        assert_eq!(lines(Some("still starting"), 62), 1, "it lasts");
        assert_eq!(lines(None, 63), 0);
        assert_eq!(lines(Some("still starting"), 64), 1, "it was well in between");
    }
}
