//! A store of the matrix: every transaction writes its name into each.

use std::collections::BTreeSet;

use assent_wire::Bound;
use mysql::prelude::Queryable as _;

use crate::demo::bank::Bank;
use crate::failure::Failure;

/// The keyspace of names.
const NAMES: u32 = 0;
/// Keys of one scan.
const PAGE: u32 = 1_000;

impl Bank {
    /// Makes the table of names; a key-value store needs none.
    pub(super) fn open_ledger(&mut self) -> Result<(), Failure> {
        match self {
            Self::Remote(_) => {}
            Self::Postgres(bank, table) => {
                let create = format!("CREATE TABLE {table} (name varchar(64) PRIMARY KEY)");
                bank.work(|client| client.batch_execute(&create))?;
            }
            Self::Mariadb(bank, table) => {
                let create = format!("CREATE TABLE {table} (name VARCHAR(64) PRIMARY KEY) ENGINE=InnoDB");
                bank.work(|connection| connection.query_drop(&create))?;
            }
        }
        Ok(())
    }

    /// Writes a name, within the branch.
    pub(super) fn note(&mut self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Remote(bank) => bank.put(NAMES, name.as_bytes(), b"")?,
            Self::Postgres(bank, table) => {
                let insert = format!("INSERT INTO {table} VALUES ('{name}')");
                bank.work(|client| client.execute(&insert, &[]))?;
            }
            Self::Mariadb(bank, table) => {
                let insert = format!("INSERT INTO {table} VALUES ('{name}')");
                bank.work(|connection| connection.query_drop(&insert))?;
            }
        }
        Ok(())
    }

    /// The committed names that begin so.
    pub(super) fn noted(&mut self, prefix: &str) -> Result<BTreeSet<String>, Failure> {
        match self {
            Self::Remote(bank) => {
                let (mut names, mut last) = (BTreeSet::new(), None::<Vec<u8>>);
                loop {
                    let from = last.as_deref().map_or(Bound::Included(prefix.as_bytes()), Bound::Excluded);
                    let (rows, more) = bank.scan(NAMES, from, Bound::Unbounded, PAGE)?;
                    let keys = rows.into_iter().map(|(key, _)| key);
                    let ours: Vec<Vec<u8>> = keys.take_while(|key| key.starts_with(prefix.as_bytes())).collect();
                    last = ours.last().cloned();
                    let is_full = more && last.is_some();
                    names.extend(ours.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()));
                    if !is_full {
                        return Ok(names);
                    }
                }
            }
            Self::Postgres(bank, table) => {
                let select = format!("SELECT name FROM {table} WHERE name LIKE '{prefix}%'");
                let rows = bank.work(|client| client.query(&select, &[]))?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
            Self::Mariadb(bank, table) => {
                let select = format!("SELECT name FROM {table} WHERE name LIKE '{prefix}%'");
                Ok(bank.work(|connection| connection.query::<String, _>(&select))?.into_iter().collect())
            }
        }
    }
}
