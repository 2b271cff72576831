//! What the demo found, as a table for people and as one JSON object for programs.

use assent_bench::stats::Latency;
use serde::Serialize;

use crate::bench::table;
use crate::failure::Failure;

/// Everything at the end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// No money was made or lost.
    pub(super) conserved: bool,
    /// Branches that stores still hold prepared.
    pub(super) left_prepared: u64,
    /// Money before the first transfer.
    pub(super) sum_before: u64,
    /// Money in the stopped stores.
    pub(super) sum_after: u64,
    /// Where it is.
    pub(super) stores: Vec<StoreReport>,
    /// Transfers that were to be done.
    pub(super) transfers: u64,
    /// Clients saw these commit.
    pub(super) committed: u64,
    /// Clients saw these roll back: conflicts, too little money, stores that were down.
    pub(super) rolled_back: u64,
    /// Questions that clients asked again after a lost answer.
    pub(super) asked_again: u64,
    /// Branches that the recovery agent found and finished.
    pub(super) in_doubt: Vec<ResolvedBranch>,
    /// Who died, where, and what became of the transaction it was at.
    pub(super) kills: Vec<KillReport>,
    /// Ordered kills whose moment never came.
    pub(super) kills_missed: Vec<String>,
    /// Committed transfers per second, deaths and restarts included.
    pub(super) tps: f64,
    /// From begin to the end of commit, as the clients saw it.
    pub(super) latency_us: Latency,
    /// The transfers alone.
    pub(super) elapsed_ms: u64,
    /// From the last transfer until nothing was in doubt.
    pub(super) settled_ms: u64,
    /// Chance.
    pub(super) seed: u64,
}

/// One store at the end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StoreReport {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) accounts: u64,
    pub(super) sum_before: u64,
    pub(super) sum_after: u64,
    pub(super) left_prepared: u64,
}

/// A branch that nobody was left to finish.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ResolvedBranch {
    pub(super) tx: String,
    pub(super) resource: String,
    pub(super) how: String,
}

/// One death.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KillReport {
    /// Who was killed.
    pub(super) victim: String,
    /// Who was frozen then.
    pub(super) frozen: String,
    /// Where.
    pub(super) stop: String,
    /// The transaction or branch it was at.
    pub(super) about: String,
    /// What became of it.
    pub(super) fate: String,
}

impl Report {
    /// Whether every promise was kept.
    pub(super) fn is_good(&self) -> bool {
        self.conserved && self.left_prepared == 0 && self.kills_missed.is_empty()
    }

    /// For people.
    pub(super) fn print(&self) -> Result<(), Failure> {
        let mut stores = table(&["store", "kind", "accounts", "sum before", "sum after", "left prepared"]);
        for store in &self.stores {
            stores.add_row([
                store.name.clone(),
                store.kind.to_owned(),
                store.accounts.to_string(),
                store.sum_before.to_string(),
                store.sum_after.to_string(),
                store.left_prepared.to_string(),
            ]);
        }
        stores.add_row([
            "all".to_owned(),
            String::new(),
            String::new(),
            self.sum_before.to_string(),
            self.sum_after.to_string(),
            self.left_prepared.to_string(),
        ]);
        say!("{stores}")?;
        if !self.kills.is_empty() {
            let mut kills = table(&["killed", "at stop point", "its transaction, and what became of it"]);
            for kill in &self.kills {
                let killed = if kill.victim == kill.frozen {
                    kill.victim.clone()
                } else {
                    format!("{} (while {} was frozen)", kill.victim, kill.frozen)
                };
                kills.add_row([killed, kill.stop.clone(), kill.fate.clone()]);
            }
            say!("{kills}")?;
        }
        if !self.in_doubt.is_empty() {
            let mut branches = table(&["left in doubt", "in", "resolved by the agent"]);
            for branch in self.in_doubt.iter().take(20) {
                branches.add_row([branch.tx.clone(), branch.resource.clone(), branch.how.clone()]);
            }
            say!("{branches}")?;
        }
        say!(
            "{} transfers: {} committed, {} rolled back; {} in-doubt branches found and resolved, {} questions asked again",
            self.transfers,
            self.committed,
            self.rolled_back,
            self.in_doubt.len(),
            self.asked_again
        )?;
        say!(
            "{:.0} committed/s over {:.1} s with all deaths; latency p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms, max {:.0} ms",
            self.tps,
            f64::from(u32::try_from(self.elapsed_ms).unwrap_or(u32::MAX)) / 1e3,
            self.latency_us.p50 / 1e3,
            self.latency_us.p95 / 1e3,
            self.latency_us.p99 / 1e3,
            self.latency_us.max / 1e3
        )?;
        self.kills_missed
            .iter()
            .try_for_each(|missed| say!("the kill at {missed} never came: more transfers are needed"))?;
        if self.is_good() {
            say!("Money is conserved and nothing is left prepared.")?;
        } else if !self.conserved {
            say!("MONEY IS NOT CONSERVED: {} before, {} after.", self.sum_before, self.sum_after)?;
        } else if self.left_prepared > 0 {
            say!("{} BRANCHES ARE LEFT PREPARED.", self.left_prepared)?;
        }
        Ok(())
    }
}
