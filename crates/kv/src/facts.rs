//! What the ledger's files are like and did since the open, for meters.

use assent_runs::{Debt, Facts};

use crate::ledger::Ledger;
use crate::long::Longs;
use crate::{Kv, ValueCache};

impl Kv {
    /// The ledger's levels, its cache, and what was written of it; and what waits to be written or merged. Waits for a commit
    /// of the ledger, as [`Kv::stats`] does.
    #[must_use]
    pub fn ledger_facts(&self) -> (Facts, Debt) {
        self.shared.ledger.facts()
    }

    /// What is kept of long values, and how often it was of use: nothing where they have no memory ([`crate::Config::value_cache_bytes`]).
    #[must_use]
    pub fn value_cache(&self) -> ValueCache {
        self.shared.values.longs.as_ref().map(Longs::facts).unwrap_or_default()
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
