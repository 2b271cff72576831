//! What recovery does with a prepared branch: a table, no I/O.

use std::time::Duration;

use assent_xa::Outcome;

use crate::{By, Standing};

/// A prepared branch of this node, as the agent found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// What is decided, durably.
    pub(crate) decided: Option<Outcome>,
    /// Where its client stands.
    pub(crate) client: Standing,
    /// In how many looks one after the other it was listed.
    pub(crate) looks: u32,
    /// For how long, as far as we have seen.
    pub(crate) prepared: Duration,
    /// For how long it may be.
    pub(crate) prepared_max: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Judgement {
    /// Tell it to commit.
    Commit,
    /// Tell it to roll back.
    Rollback,
    /// Decide rollback, durably, unless somebody was faster; then do what is decided.
    Abort(By),
    /// Look again.
    Wait,
    /// Another copy of this data folder is at work: touch nothing anywhere.
    Stop,
}

pub(crate) fn judge(case: Case) -> Judgement {
    let seen_twice = case.looks >= 2;
    match (case.client, case.decided) {
        (Standing::Never, _) => Judgement::Stop,
        // A healthy client drives its own commit; seen twice, it may have lost its connection to the resource.
        (Standing::Connected, Some(_)) if !seen_twice => Judgement::Wait,
        (_, Some(Outcome::Committed)) => Judgement::Commit,
        (_, Some(Outcome::RolledBack)) => Judgement::Rollback,
        // Seen once it may have been finished since the resource listed it.
        (_, None) if !seen_twice => Judgement::Wait,
        (Standing::Fenced | Standing::Fencing, None) => Judgement::Abort(By::Agent),
        (Standing::Connected | Standing::Lost | Standing::Resumable, None) if case.prepared > case.prepared_max => {
            Judgement::Abort(By::Timeout)
        }
        (Standing::Connected | Standing::Lost | Standing::Resumable, None) => Judgement::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_judged_as_the_table_says() {
        use By::{Agent, Timeout};
        use Judgement::{Abort, Commit, Rollback, Stop, Wait};
        use Standing::{Connected, Fenced, Fencing, Lost, Never, Resumable};
        // Seen once; seen twice; seen twice and for too long. For committed, rolled back, undecided each.
        let table = [
            (Connected, [Wait, Commit, Commit], [Wait, Rollback, Rollback], [Wait, Wait, Abort(Timeout)]),
            (Lost, [Commit; 3], [Rollback; 3], [Wait, Wait, Abort(Timeout)]),
            (Resumable, [Commit; 3], [Rollback; 3], [Wait, Wait, Abort(Timeout)]),
            (Fencing, [Commit; 3], [Rollback; 3], [Wait, Abort(Agent), Abort(Agent)]),
            (Fenced, [Commit; 3], [Rollback; 3], [Wait, Abort(Agent), Abort(Agent)]),
            (Never, [Stop; 3], [Stop; 3], [Stop; 3]),
        ];
        assert_eq!(table.map(|row| row.0), Standing::ALL);
        let prepared_max = Duration::from_secs(60);
        for (client, committed, rolled_back, undecided) in table {
            let decided = [(Some(Outcome::Committed), committed), (Some(Outcome::RolledBack), rolled_back)];
            for (decided, row) in decided.into_iter().chain([(None, undecided)]) {
                let times = [(1, 0), (2, 60), (2, 61)];
                for ((looks, seconds), expected) in times.into_iter().zip(row) {
                    let prepared = Duration::from_secs(seconds);
                    let case = Case { decided, client, looks, prepared, prepared_max };
                    assert_eq!(judge(case), expected, "{case:?}");
                }
            }
        }
    }
}
