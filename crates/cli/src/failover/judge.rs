//! Holds what clients were told against what the pair shows at the end. No I/O.
//!
//! Walk: [`judge`] takes histories apart by asset · each must be linearizable, from what it was before to what it is at the end · and
//! counted: every change that was acknowledged is there, none twice.

use std::collections::BTreeMap;

use assent_sim::linear::{Timed, Verdict, linearizable};
use assent_sim::register::{Answer, Call, Did, Register, Registers};

use super::load::Told;

/// States that may be visited for one asset.
const STATES_MAX: usize = 2_000_000;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) faults: Vec<String>,
    /// Operations that were answered, and of them those that changed an asset.
    pub(super) answered: u64,
    pub(super) acknowledged: u64,
    pub(super) in_doubt: u64,
    /// Changes that are not there although they were acknowledged, and changes that nobody asked for.
    pub(super) lost: u64,
    pub(super) doubled: u64,
}

/// Judges the histories of all clients between two looks at all assets.
pub(super) fn judge(before: &[Told], told: Vec<Told>, after: &[Told]) -> Judged {
    let mut judged = Judged::default();
    let mut by_asset: BTreeMap<u64, Vec<Timed<Did>>> = BTreeMap::new();
    for one in told {
        by_asset.entry(one.asset).or_default().push(one.timed);
    }
    for (asset, end) in after.iter().filter_map(|told| Some((told.asset, seen(told)?))) {
        let mut history = by_asset.remove(&asset).unwrap_or_default();
        let Some(start) = before.iter().find(|told| told.asset == asset).and_then(seen) else {
            judged.faults.push(format!("asset {asset}: nobody looked at it before"));
            continue;
        };
        judged.count(asset, start, end, &history);
        history.extend(after.iter().filter(|told| told.asset == asset).map(|told| told.timed.clone()));
        match linearizable(&Registers, start, &history, STATES_MAX) {
            Verdict::Linearizable => {}
            Verdict::Undecided { visited } => {
                judged.faults.push(format!("asset {asset}: not decided within {visited} states"));
            }
            Verdict::Contradiction { at, placed, state } => {
                let call = history.get(at).map(|timed| (timed.op, timed.invoked, timed.returned));
                judged.faults.push(format!(
                    "asset {asset}: not linearizable: behind {placed} of {} calls it is {state:?}, and that does not explain {call:?}",
                    history.len()
                ));
            }
        }
    }
    for asset in by_asset.keys() {
        judged.faults.push(format!("asset {asset}: nobody looked at it at the end"));
    }
    judged
}

fn seen(told: &Told) -> Option<Register> {
    match told.timed.op.answer {
        Answer::Done(register) => Some(register),
        Answer::Differs(_) | Answer::InDoubt => None,
    }
}

impl Judged {
    fn count(&mut self, asset: u64, start: Register, end: Register, history: &[Timed<Did>]) {
        let changes = |timed: &&Timed<Did>| timed.op.call != Call::Get;
        let of = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let answered = history.iter().filter(|timed| timed.op.answer != Answer::InDoubt);
        let done = answered.clone().filter(changes).filter(|timed| matches!(timed.op.answer, Answer::Done(_)));
        let (done, answered) = (of(done.count()), of(answered.count()));
        let doubted = history.iter().filter(|timed| timed.op.answer == Answer::InDoubt).filter(changes);
        let doubted = of(doubted.count());
        let made = end.updates.saturating_sub(start.updates);
        let lost = (start.updates + done).saturating_sub(end.updates);
        let doubled = made.saturating_sub(done + doubted);
        if lost + doubled > 0 {
            self.faults.push(format!(
                "asset {asset}: {done} changes acknowledged, {doubted} in doubt, {made} made: {lost} lost, {doubled} doubled"
            ));
        }
        self.answered += answered;
        self.acknowledged += done;
        self.in_doubt += doubted;
        self.lost += lost;
        self.doubled += doubled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(asset: u64, at: u64, call: Call, answer: Answer) -> Told {
        let returned = (answer != Answer::InDoubt).then_some(at + 1);
        Told { asset, timed: Timed { op: Did { call, answer }, invoked: at, returned } }
    }

    fn done(value: i64, updates: u64) -> Answer {
        Answer::Done(Register { value, updates })
    }

    fn look(at: u64, all: &[(u64, i64, u64)]) -> Vec<Told> {
        all.iter().map(|(asset, value, updates)| told(*asset, at, Call::Get, done(*value, *updates))).collect()
    }

    fn found(history: &[Told], end: &[(u64, i64, u64)]) -> Judged {
        judge(&look(0, &[(1, 5, 10), (2, 0, 0)]), history.to_vec(), &look(100, end))
    }

    #[test]
    fn what_is_there_once_is_good_and_what_is_in_doubt_may_be_there() {
        let history = [
            told(1, 1, Call::Add(2), done(7, 11)),
            told(2, 2, Call::Set(4), Answer::InDoubt),
            told(2, 3, Call::Get, done(0, 0)),
        ];
        for end in [(2, 0, 0), (2, 4, 1)] {
            let judged = found(&history, &[(1, 7, 11), end]);
            let expected =
                Judged { faults: Vec::new(), answered: 2, acknowledged: 1, in_doubt: 1, lost: 0, doubled: 0 };
            assert_eq!(judged, expected);
        }
    }

    #[test]
    fn a_lost_one_a_doubled_one_and_an_answer_that_nothing_explains_are_faults() {
        let history = [told(1, 1, Call::Add(2), done(7, 11)), told(1, 5, Call::Add(2), done(9, 12))];
        let lost = found(&history, &[(1, 7, 11), (2, 0, 0)]);
        assert_eq!((lost.lost, lost.doubled, lost.faults.len()), (1, 0, 2), "{lost:?}");
        assert!(lost.faults[1].starts_with("asset 1: not linearizable: behind 2 of 3 calls"), "{lost:?}");
        let doubled = found(&history, &[(1, 11, 13), (2, 0, 0)]);
        assert_eq!((doubled.lost, doubled.doubled, doubled.faults.len()), (0, 1, 2), "{doubled:?}");
        let doubt = [told(2, 1, Call::Add(3), Answer::InDoubt)];
        let twice = found(&doubt, &[(1, 5, 10), (2, 6, 2)]);
        assert_eq!((twice.lost, twice.doubled), (0, 1), "{twice:?}");
        // The counts are right, the values are not.
        let stale = [told(1, 1, Call::Add(2), done(7, 11)), told(1, 5, Call::Get, done(5, 10))];
        let stale = found(&stale, &[(1, 7, 11), (2, 0, 0)]);
        assert_eq!((stale.lost, stale.doubled, stale.faults.len()), (0, 0, 1), "{stale:?}");
    }

    #[test]
    fn an_asset_that_nobody_looked_at_is_a_fault() {
        let judged = judge(&[], vec![told(3, 1, Call::Get, done(0, 0))], &look(9, &[(1, 0, 0)]));
        assert_eq!(judged.faults.len(), 2, "{judged:?}");
    }
}
