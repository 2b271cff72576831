//! What the demo does, written down once for all its processes, and the one source of its chance.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Money in each account at the beginning.
pub(crate) const BALANCE: u64 = 1_000;

/// One store that holds accounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Store {
    /// The registered resource name.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: StoreKind,
    /// Its address or URL.
    pub(crate) url: String,
}

/// What a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreKind {
    /// A key-value store in another Assent process.
    Assent,
    /// A PostgreSQL database.
    Postgres,
    /// A MariaDB database.
    Mariadb,
}

impl StoreKind {
    /// The name in a configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Assent => "assent",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
        }
    }
}

/// The whole demo, as its processes read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The coordinator's address.
    pub(crate) coordinator: String,
    /// Where money is.
    pub(crate) stores: Vec<Store>,
    /// Accounts in each store.
    pub(crate) accounts: u32,
    /// Where chance begins.
    pub(crate) seed: u64,
    /// The table in SQL databases.
    pub(crate) table: String,
    /// Whether a PostgreSQL decides, where it is the first store of a transaction.
    #[serde(default)]
    pub(crate) last_resource: bool,
}

impl Plan {
    /// Reads it from a file.
    #[expect(clippy::disallowed_methods, reason = "a front door reads its own files")]
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let bytes = std::fs::read(path).map_err(|error| Failure::io("read", path.display(), &error))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::invalid(format!("{} is no plan: {error}", path.display())))
    }

    /// Writes it to a file.
    pub(crate) fn save(&self, path: &Path) -> Result<PathBuf, Failure> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Failure::invalid(error.to_string()))?;
        write(path, &text)?;
        Ok(path.to_owned())
    }
}

/// Writes a text file of the demo's own.
#[expect(clippy::disallowed_methods, reason = "a front door writes its own files")]
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::io("write", path.display(), &error))
}

/// Chance that a seed repeats (SplitMix64: Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The chance of one run of one client.
    pub(crate) const fn new(seed: u64, client: u32, run: u32) -> Self {
        Self(seed ^ ((client as u64) << 40) ^ ((run as u64) << 20))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// One transfer: which account of which store gives how much to which other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Who gives: store and account.
    pub(crate) from: (usize, u32),
    /// Who gets: another store, and an account.
    pub(crate) to: (usize, u32),
    /// How much.
    pub(crate) amount: u64,
}

impl Transfer {
    /// The next one of this chance.
    pub(crate) fn pick(chance: &mut Chance, stores: usize, accounts: u32) -> Self {
        let index = |number: u64| usize::try_from(number).unwrap_or(0);
        let account = |number: u64| u32::try_from(number).unwrap_or(0);
        let count = u64::try_from(stores).unwrap_or(2);
        let from = chance.below(count);
        let to = (from + 1 + chance.below(count - 1)) % count;
        Self {
            from: (index(from), account(chance.below(u64::from(accounts)))),
            to: (index(to), account(chance.below(u64::from(accounts)))),
            amount: 1 + chance.below(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_a_transfer_is_always_between_two_stores() {
        for stores in 2..5 {
            let (mut one, mut two) = (Chance::new(7, 1, 1), Chance::new(7, 1, 1));
            for _ in 0..1_000 {
                let transfer = Transfer::pick(&mut one, stores, 10);
                assert_eq!(transfer, Transfer::pick(&mut two, stores, 10));
                assert_ne!(transfer.from.0, transfer.to.0);
                assert!(transfer.from.0 < stores && transfer.to.0 < stores);
                assert!(transfer.from.1 < 10 && transfer.to.1 < 10 && (1..=100).contains(&transfer.amount));
            }
        }
    }
}
