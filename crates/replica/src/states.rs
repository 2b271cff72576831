//! The hashes of the last states, own and heard: two members that applied the same log must have the same.
//!
//! Whichever comes second is compared. What one of them has forgotten is not compared: the next one will be.

use std::collections::BTreeMap;

use assent_membership::Sequence;

use crate::event::Fault;
use crate::message::Said;
use crate::replica::Replica;
use crate::rules::Rule;

/// So far a standby may be behind and is compared all the same: 65,536 entries.
const KEPT_MAX: usize = 1_024;

/// Hashes of states, by the last entry applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct States {
    own: BTreeMap<Sequence, u64>,
    theirs: BTreeMap<Sequence, u64>,
}

impl States {
    pub(crate) fn cut(&mut self, to: Sequence) {
        self.own.retain(|at, _| *at <= to);
        self.theirs.retain(|at, _| *at <= to);
    }
}

impl Replica {
    /// The own state has this hash there.
    pub(crate) fn own_state(&mut self, at: Sequence, hash: u64) {
        keep(&mut self.states.own, at, hash);
        for member in self.audience() {
            self.send(member, Said::State { at, hash });
        }
        self.compare(at);
    }

    /// The primary's state has this hash there.
    pub(crate) fn their_state(&mut self, at: Sequence, hash: u64) {
        keep(&mut self.states.theirs, at, hash);
        self.compare(at);
    }

    /// Says the last hash again: the first time may have been lost, or too early.
    pub(crate) fn tell_state(&mut self) {
        if let Some((at, hash)) = self.states.own.last_key_value().map(|(at, hash)| (*at, *hash)) {
            for member in self.audience() {
                self.send(member, Said::State { at, hash });
            }
        }
    }

    fn compare(&mut self, at: Sequence) {
        if let (Some(own), Some(theirs)) = (self.states.own.get(&at).copied(), self.states.theirs.get(&at).copied()) {
            self.counts.compared += 1;
            if own == theirs || !self.keeps(Rule::Compare) {
                return;
            }
            self.halt(Fault::StateDiffers { at, own, theirs });
        }
    }
}

fn keep(hashes: &mut BTreeMap<Sequence, u64>, at: Sequence, hash: u64) {
    hashes.insert(at, hash);
    while hashes.len() > KEPT_MAX {
        hashes.pop_first();
    }
}
