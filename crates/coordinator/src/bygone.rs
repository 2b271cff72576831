//! Outcomes of forgotten transactions whose client never said that it knows them. For its information, when it comes
//! late; gone with the process.
//!
//! Walk: [`Bygones::keep`] where an entry goes · [`Bygones::outcome`] where somebody asks.
//! Deliberately absent: any part in a decision. Nothing is decided, told to a branch or kept because of what stands here.

use std::collections::VecDeque;

use assent_ids::TxId;
use assent_xa::Outcome;

/// So many of the latest are kept.
pub(crate) const BYGONES_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Bygones(VecDeque<(TxId, Outcome)>);

impl Bygones {
    pub(crate) fn keep(&mut self, tx: TxId, outcome: Outcome) {
        if self.0.len() >= BYGONES_MAX {
            _ = self.0.pop_front();
        }
        self.0.push_back((tx, outcome));
    }

    /// Looked for one by one: it is asked about once in a client's misfortune.
    pub(crate) fn outcome(&self, tx: TxId) -> Option<Outcome> {
        self.0.iter().rev().find(|(one, _)| *one == tx).map(|(_, outcome)| *outcome)
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::{Epoch, Incarnation};

    use super::*;

    #[test]
    fn the_oldest_goes_when_one_too_many_comes() {
        let tx = |counter| TxId { incarnation: Incarnation { epoch: Epoch(1), number: 1 }, counter };
        let mut bygones = Bygones::default();
        (0..4_096).for_each(|counter| bygones.keep(tx(counter), Outcome::Committed));
        assert_eq!(bygones.outcome(tx(0)), Some(Outcome::Committed), "at the limit");
        bygones.keep(tx(4_096), Outcome::RolledBack);
        let known = [0, 1, 4_096, 4_097].map(|counter| bygones.outcome(tx(counter)));
        assert_eq!(known, [None, Some(Outcome::Committed), Some(Outcome::RolledBack), None], "one beyond");
    }
}
