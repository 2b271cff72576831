//! What the ledger's files are like and did since the open, for meters.

use assent_runs::{Debt, Facts};

use crate::ledger::Ledger;
use crate::{Kv, Stats};

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

impl Stats {
    /// Bytes on disk in which values stand, for each hundred bytes of values that live; 0 where none do.
    #[must_use]
    pub fn space_amplification_percent(&self) -> u64 {
        self.value_bytes_on_disk.saturating_mul(100).checked_div(self.live_bytes).unwrap_or(0)
    }
}
