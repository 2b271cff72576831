//! What recovery does with a prepared branch, and what it concludes about one that is gone: two tables, no I/O.

use std::time::Duration;

use assent_xa::{Heuristic, Native, Outcome, Past};

use crate::{By, Finish, Standing};

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
    /// Whether another process of this node is at work at some resource: its clients' branches look like ours.
    pub(crate) is_rivalled: bool,
    /// Whether a power cut may have taken its decision.
    pub(crate) may_be_lost: bool,
    /// Whether its decision may be a row of a last resource, of which nothing is known here.
    pub(crate) is_marked: bool,
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
    /// The same, but its decision may be lost: look for a sibling that is committed first.
    Search(By),
    /// Ask for the row that may decide it, and judge again when recovery's own stands there.
    Settle,
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
        // Its client writes no decision any more, but may have. To ask at once does no harm, whatever has become of it.
        (Standing::Fenced | Standing::Fencing, None) if case.is_marked && !case.is_rivalled => Judgement::Settle,
        // Seen once it may have been finished since the resource listed it.
        (_, None) if !seen_twice => Judgement::Wait,
        // The other process may be deciding commit just now.
        (_, None) if case.is_rivalled => Judgement::Wait,
        (Standing::Fenced | Standing::Fencing, None) => presumed(By::Agent, case.may_be_lost),
        (Standing::Connected | Standing::Lost | Standing::Resumable, None) if case.prepared > case.prepared_max => {
            if case.is_marked {
                Judgement::Settle
            } else {
                presumed(By::Timeout, case.may_be_lost)
            }
        }
        (Standing::Connected | Standing::Lost | Standing::Resumable, None) => Judgement::Wait,
    }
}

const fn presumed(by: By, may_be_lost: bool) -> Judgement {
    if may_be_lost { Judgement::Search(by) } else { Judgement::Abort(by) }
}

/// What follows from a resource's word on a branch that it does not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Nothing is left to do.
    Finished(Finish),
    /// It ended otherwise than decided, or nobody can know.
    Heuristic(Heuristic, Native),
    /// It is there after all: look again.
    Open,
}

/// A durable decision, what became of the branch, and whether something was kept of its vote.
pub(crate) fn truth(decided: Outcome, past: Past, has_voted: bool) -> Truth {
    let says = |message: &str| Native { code: String::new(), message: message.to_owned() };
    match (decided, past) {
        (_, Past::Open) => Truth::Open,
        (Outcome::Committed, Past::Committed) => Truth::Finished(Finish::Committed),
        // It voted yes, nothing of ours rolls it back after this decision, and it is the server that voted.
        (Outcome::Committed, Past::Forgotten) => Truth::Finished(Finish::CommittedInferred),
        (Outcome::Committed, Past::RolledBack) => {
            Truth::Heuristic(Heuristic::RolledBack, says("decided commit; a person or a fail-over undid it"))
        }
        (Outcome::Committed, Past::Elsewhere(native)) => Truth::Heuristic(Heuristic::Hazard, native),
        (Outcome::RolledBack, Past::RolledBack) => Truth::Finished(Finish::RolledBack),
        (Outcome::RolledBack, Past::Forgotten) => Truth::Finished(Finish::NotListed),
        (Outcome::RolledBack, Past::Committed) => {
            Truth::Heuristic(Heuristic::Committed, says("decided rollback; a person committed it"))
        }
        (Outcome::RolledBack, Past::Elsewhere(native)) if has_voted => Truth::Heuristic(Heuristic::Hazard, native),
        // Presumed abort: nobody was ever told that it might commit.
        (Outcome::RolledBack, Past::Elsewhere(_)) => Truth::Finished(Finish::NotListed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_judged_as_the_table_says() {
        use By::{Agent, Timeout};
        use Judgement::{Abort, Commit, Rollback, Search, Settle, Stop, Wait};
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
                    let (is_rivalled, may_be_lost, is_marked) = (false, false, false);
                    let case =
                        Case { decided, client, looks, prepared, prepared_max, is_rivalled, may_be_lost, is_marked };
                    assert_eq!(judge(case), expected, "{case:?}");
                    let rivalled = Case { is_rivalled: true, ..case };
                    let undecided = if client == Never { Stop } else { Wait };
                    let searched = if let Abort(by) = expected { Search(by) } else { expected };
                    assert_eq!(judge(Case { may_be_lost: true, ..case }), searched, "{case:?}");
                    // Nobody presumes an abort of a marked one; a fenced client's row is asked for at once.
                    let is_over = matches!(client, Fenced | Fencing) && decided.is_none();
                    let asked = if matches!(expected, Abort(_)) || is_over { Settle } else { expected };
                    for may_be_lost in [false, true] {
                        assert_eq!(judge(Case { is_marked: true, may_be_lost, ..case }), asked, "{case:?}");
                    }
                    assert_eq!(judge(Case { is_marked: true, ..rivalled }), judge(rivalled), "{rivalled:?}");
                    assert_eq!(judge(rivalled), if decided.is_some() { expected } else { undecided }, "{rivalled:?}");
                }
            }
        }
    }

    #[test]
    fn only_the_server_that_voted_can_say_that_a_branch_is_done() {
        use Finish::{Committed as Did, CommittedInferred as Inferred, NotListed, RolledBack as Undid};
        use Heuristic::{Committed, Hazard, RolledBack};
        // Decided commit; decided rollback, of one that voted; of one that did not.
        let other = || Native { code: String::new(), message: "another timeline".to_owned() };
        let table = [
            (Past::Open, [None; 3], [None; 3]),
            (Past::Committed, [Some(Did), None, None], [None, Some(Committed), Some(Committed)]),
            (Past::RolledBack, [None, Some(Undid), Some(Undid)], [Some(RolledBack), None, None]),
            (Past::Forgotten, [Some(Inferred), Some(NotListed), Some(NotListed)], [None; 3]),
            (Past::Elsewhere(other()), [None, None, Some(NotListed)], [Some(Hazard), Some(Hazard), None]),
        ];
        let cases = [(Outcome::Committed, true), (Outcome::RolledBack, true), (Outcome::RolledBack, false)];
        for (past, finished, heuristic) in table {
            for (at, (decided, has_voted)) in cases.into_iter().enumerate() {
                let (end, how) = match truth(decided, past.clone(), has_voted) {
                    Truth::Finished(finish) => (Some(finish), None),
                    Truth::Heuristic(how, native) => {
                        assert!(!native.message.is_empty(), "a person is told why");
                        (None, Some(how))
                    }
                    Truth::Open => (None, None),
                };
                assert_eq!((end, how), (finished[at], heuristic[at]), "{decided:?} {past:?} {has_voted}");
            }
            // A commit that was decided always had a vote.
            let unvoted = truth(Outcome::Committed, past.clone(), false);
            assert_eq!(unvoted, truth(Outcome::Committed, past, true));
        }
    }
}
