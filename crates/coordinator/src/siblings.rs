//! Looking for a committed sibling of a branch whose decision a power cut may have taken (RPO > 0).
//!
//! Walk: an attendant that would presume an abort asks [`Coordinator::sibling`] · every attendant answers what is asked of
//! its resource in its own next look ([`Attendant::search`]) · one committed branch is proof that commit was decided.
//! Deliberately absent: a conclusion while a resource has not answered, and one for ever: a client that was told "committed"
//! may still be telling its branches, so who is held is asked about again.

use std::collections::BTreeMap;
use std::time::Duration;

use assent_ids::{Branch, Mark, ResourceId, TxId};
use assent_kind::Kind;
use assent_world::Moment;
use assent_xa::{BranchRecord, DecideError, Outcome, Past, Reply, Verb};

use crate::attendant::PAUSE_IN_DOUBT;
use crate::recovery::records;
use crate::{Attendant, By, Coordinator, Pending};

/// Branches are numbered from 0 in a transaction, also those that drop out. So many are looked for; so a transaction with
/// more is not committed where its decision may be lost ([`Coordinator::is_searchable`]).
const NUMBERS: u16 = 16;

/// So many transactions in one look, 64 inquiries: a crowd of them keeps no other branch waiting.
const ASKED_MAX: usize = 4;

/// An answer is good for so long, where so many transactions are asked about: for two turns of all of them, as a crowd that was never all
/// answered at one moment would be searched for without end.
pub(crate) fn lasts(asked: usize) -> Duration {
    let turn = u32::try_from(asked.div_ceil(ASKED_MAX)).unwrap_or(u32::MAX);
    PAUSE_IN_DOUBT.saturating_mul(turn.saturating_mul(2)).max(NOTHING_LASTS)
}

const NOTHING_LASTS: Duration = Duration::from_secs(10);

/// What one resource is asked about the transaction's branches.
pub(crate) type Questions = BTreeMap<TxId, Question>;

/// How the branch is marked that is asked for; and what the resource knows, nothing while it has not answered.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) mark: Option<Mark>,
    pub(crate) answer: Option<Answer>,
    /// It was asked, whatever it said.
    pub(crate) is_tried: bool,
}

/// A resource's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This branch is committed.
    Committed(BranchRecord),
    /// It knew of no committed one at that time.
    Nothing(Moment),
}

/// What all resources know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sibling {
    /// This branch is committed: commit was decided.
    Committed(BranchRecord),
    /// All have answered, and know of none.
    Nowhere,
    /// Somebody has not answered yet.
    Unknown,
}

impl Coordinator {
    /// Refuses a commit whose decision a power cut may take, and of which recovery could then not ask for every branch: one
    /// that it missed would be the one that shows what was decided.
    pub(crate) fn is_searchable(&self, branches: &[BranchRecord]) -> Result<(), DecideError> {
        let last = branches.iter().map(|branch| branch.number).max().unwrap_or_default();
        if last < NUMBERS || !self.log.is_lazy() {
            return Ok(());
        }
        let message = format!(
            "a commit with branch number {last}: with max_elapsed_sync_time above 0 recovery looks for {NUMBERS} branches, \
             from number 0, when a power cut has taken the decision; enlist fewer resources, or set it to 0"
        );
        Err(DecideError { kind: Kind::Invalid, message })
    }

    /// Whether a sibling of a branch with this mark is committed. Asks all resources, and again when their answers are old.
    pub(crate) fn sibling(&self, tx: TxId, mark: Option<Mark>) -> Sibling {
        let now = self.clock.now();
        self.state().attended.sibling(tx, mark, now)
    }

    pub(crate) fn questions(&self, resource: ResourceId) -> Vec<(TxId, Option<Mark>)> {
        self.state().attended.questions(resource)
    }

    fn answer(&self, resource: ResourceId, tx: TxId, answer: Option<Answer>) {
        self.state().attended.answer(resource, tx, answer);
    }

    /// Decides commit, as the lost decision did, unless somebody was faster. Nobody is told before it is waited for.
    pub(crate) fn restore_begin(&self, tx: TxId, sibling: BranchRecord) -> Result<Pending, DecideError> {
        let mut branches = self.state().attended.seen(tx).map(|(_, seen)| records(seen)).unwrap_or_default();
        if !branches.iter().any(|one| (one.resource, one.number) == (sibling.resource, sibling.number)) {
            branches.push(sibling);
        }
        let ruling = self.ruling(tx, Outcome::Committed, By::Agent, &branches);
        let mut state = self.state();
        match state.table.get(tx) {
            Some(entry) => Ok(crate::coordinator::pending(entry)),
            None => self.lay(&mut state, ruling),
        }
    }
}

impl Attendant {
    /// Answers what is asked of this resource.
    pub(crate) fn search(&mut self) {
        let (node, resource) = (self.coordinator.node(), self.station.id);
        let mut asked = self.coordinator.questions(resource);
        // On from where the last look came to, so that each has its turn.
        let behind = asked.partition_point(|(tx, _)| Some(*tx) <= self.searched);
        asked.rotate_left(behind);
        for (tx, mark) in asked.into_iter().take(ASKED_MAX) {
            self.searched = Some(tx);
            // All branches of a transaction have the same mark, the first one, too.
            let ask = |number| {
                let branch = Branch { node, tx, resource, number, flags: 0, mark };
                Verb::Inquire { xid: branch.xid(), witness: Vec::new() }
            };
            let replies = self.station.tell_all((0..NUMBERS).map(ask).collect(), self.clock.now(), |_| {});
            let is_committed = |reply: &Option<Reply>| *reply == Some(Reply::Past(Past::Committed));
            let is_answered = |reply: &Option<Reply>| matches!(reply, Some(Reply::Past(_)));
            if let Some((number, _)) = (0..NUMBERS).zip(&replies).find(|(_, reply)| is_committed(reply)) {
                let record = BranchRecord { resource, number, flags: 0, mark, witness: Vec::new() };
                self.coordinator.answer(resource, tx, Some(Answer::Committed(record)));
            } else {
                let nothing = replies.iter().all(is_answered).then(|| Answer::Nothing(self.clock.now()));
                self.coordinator.answer(resource, tx, nothing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_s_answers_last_until_all_were_asked() {
        let seconds: Vec<u64> = [0, 1, 40, 41, 1_000, usize::MAX].iter().map(|asked| lasts(*asked).as_secs()).collect();
        assert_eq!(seconds[..5], [10, 10, 10, 11, 250]);
        assert!(seconds[5] >= u64::from(u32::MAX) / 2);
    }
}
