//! Branches of decided transactions that their resource lists no more, and what became of them.
//!
//! Walk: [`Attendant::conclude`] counts listings without the branch · [`Attendant::inquire`] asks the resource, with the
//! witness that the decision has kept, and `judge::truth` says what follows.
//!
//! One listing is no evidence: it may come from a server that just lost its place (a standby, an old primary before its
//! fail-over). Two one after the other are worth a question; a failure between them, and the count begins anew.

use std::collections::BTreeSet;

use assent_ids::{Branch, Xid};
use assent_kind::Kind;
use assent_xa::{BranchRecord, Native, Outcome, Reply, Verb};

use crate::judge::{Truth, truth};
use crate::recovery::Orphan;
use crate::resolve::{fate, misfit};
use crate::station::patience;
use crate::{Attendant, BranchReport, Finish, Resolution, Round};

/// What became of this branch?
pub(crate) struct Question {
    pub(crate) xid: Xid,
    pub(crate) outcome: Outcome,
    pub(crate) witness: Vec<u8>,
}

impl Attendant {
    /// Concludes about branches that are not listed.
    pub(crate) fn conclude(&mut self, orphans: Vec<Orphan>, list: &BTreeSet<Xid>, round: &mut Round) {
        let (node, now) = (self.coordinator.node(), self.clock.now());
        let mut before = std::mem::take(&mut self.missed);
        let (mut questions, mut done) = (Vec::new(), Vec::new());
        for Orphan { tx, outcome, record, is_cleared } in orphans {
            let BranchRecord { resource, number, flags, mark, .. } = record;
            let xid = Branch { node, tx, resource, number, flags, mark }.xid();
            if list.contains(&xid) {
                continue;
            }
            let mut missed = before.remove(&xid).unwrap_or_default();
            missed.looks = missed.looks.saturating_add(1);
            let is_due = missed.looks >= 2 && now >= missed.not_before;
            self.missed.insert(xid, missed);
            match is_due {
                // A person has seen to it, and the resource has forgotten it.
                true if is_cleared => done.push((xid, Resolution::NotListed)),
                true => questions.push(Question { xid, outcome, witness: record.witness }),
                false => {}
            }
        }
        done.extend(self.inquire(questions));
        for (xid, resolution) in done {
            self.leave(xid, resolution, round);
        }
    }

    /// Asks what became of branches that are decided and gone.
    pub(crate) fn inquire(&mut self, questions: Vec<Question>) -> Vec<(Xid, Resolution)> {
        let (mut asked, mut verbs) = (Vec::new(), Vec::new());
        for Question { xid, outcome, witness } in questions {
            // Without a witness nobody says that it voted: it may just have been seen, and its rollback is presumed.
            asked.push((xid, outcome, !witness.is_empty()));
            verbs.push(Verb::Inquire { xid, witness });
        }
        let replies = self.station.tell_all(verbs, self.clock.now(), |_| {});
        let known = asked.into_iter().zip(replies).map(|((xid, outcome, has_voted), reply)| {
            let resolution = match reply {
                Some(Reply::Past(past)) => concluded(truth(outcome, past, has_voted)),
                Some(Reply::Refused(kind, native)) => Resolution::Retry(kind, native),
                Some(Reply::Lost(native)) => Resolution::Retry(Kind::InDoubt, native),
                Some(other) => misfit(&other),
                None => Resolution::Retry(Kind::Unavailable, Native::default()),
            };
            (xid, resolution)
        });
        known.collect()
    }

    /// Notes what is known now of a branch that was not listed.
    fn leave(&mut self, xid: Xid, resolution: Resolution, round: &mut Round) {
        let Some(Branch { tx, resource, number, .. }) = xid.branch() else { return };
        match (fate(&resolution), self.missed.get_mut(&xid)) {
            (Some(fate), _) => {
                let retries = self.missed.remove(&xid).map_or(0, |missed| missed.failures);
                if !self.coordinator.progress(tx, resource, number, fate, retries) {
                    return;
                }
            }
            (None, Some(missed)) => {
                missed.failures = missed.failures.saturating_add(1);
                missed.not_before = self.clock.now().after(patience(missed.failures));
            }
            (None, None) => {}
        }
        round.branches.push(BranchReport { tx, xid, resource: self.station.name().to_owned(), resolution });
    }
}

fn concluded(truth: Truth) -> Resolution {
    match truth {
        Truth::Finished(Finish::Committed) => Resolution::Committed,
        Truth::Finished(Finish::CommittedInferred) => Resolution::CommittedInferred,
        Truth::Finished(Finish::RolledBack) => Resolution::RolledBack,
        Truth::Finished(Finish::NotListed) => Resolution::NotListed,
        Truth::Heuristic(heuristic, native) => Resolution::Heuristic(heuristic, native),
        Truth::Open => Resolution::Waiting,
    }
}
