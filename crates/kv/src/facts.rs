//! What the ledger's files are like and did since the open, for meters.

use assent_runs::{Debt, Facts};

use crate::Kv;
use crate::ledger::Ledger;

impl Kv {
    /// The ledger's levels, its cache, and what was written of it; and what waits to be written or merged. Waits for a commit
    /// of the ledger, as [`Kv::stats`] does.
    #[must_use]
    pub fn ledger_facts(&self) -> (Facts, Debt) {
        self.shared.ledger.facts()
    }
}

impl Ledger {
    fn facts(&self) -> (Facts, Debt) {
        (self.runs().facts(), self.runs().debt())
    }
}

/// For each hundred that live; 0 where none do.
pub(crate) fn percent(bytes: u64, live: u64) -> u64 {
    bytes.saturating_mul(100).checked_div(live).unwrap_or(0)
}
