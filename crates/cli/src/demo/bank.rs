//! One store of the demo as a bank: accounts that can be filled, changed within a branch, and summed.
//!
//! Walk: [`Bank::open`] connects · [`Bank::fill`] makes the accounts · [`Bank::add`] works within the branch that the
//! client has started · [`Bank::sum`] and [`Bank::left_prepared`] count SQL banks; key-value banks are counted from
//! their own files by the scene.

use assent_ids::Mark;
use assent_kind::Kind;
use assent_link::LinkConfig;
use assent_resources::{Limits, Mariadb, Postgres, Remote};
use assent_wire::Op;
use assent_xa::{Reply, Resource, Verb};
use mysql::prelude::Queryable as _;

use super::plan::{BALANCE, Plan, Store, StoreKind};
use crate::failure::Failure;

/// Accounts are filled in batches of this many.
const FILL: u32 = 500;
/// How long a table of a bank waits to be dropped: InnoDB's own thread may be at its statistics, for seconds on a busy disk.
const DROP_WAIT_S: u32 = 30;
/// The keyspace of accounts.
pub(crate) const ACCOUNTS: u32 = 0;

/// A connection to one bank.
pub(crate) enum Bank {
    /// A key-value store in another process.
    Remote(Box<Remote>),
    /// A table in PostgreSQL.
    Postgres(Postgres, String),
    /// A table in MariaDB.
    Mariadb(Mariadb, String),
}

/// An account's key.
pub(crate) fn key(account: u32) -> [u8; 4] {
    account.to_be_bytes()
}

/// A balance's bytes.
pub(crate) fn value(balance: u64) -> [u8; 8] {
    balance.to_be_bytes()
}

/// A balance of bytes.
pub(crate) fn balance(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn put<'a>(key: &'a [u8], money: &'a [u8]) -> Op<'a> {
    Op::Put { keyspace: ACCOUNTS, key, value: money }
}

impl Bank {
    /// Connects. A lock that somebody else holds is waited for a second at most: that somebody may have been killed.
    pub(crate) fn open(store: &Store, plan: &Plan) -> Result<Self, Failure> {
        match store.kind {
            StoreKind::Assent => {
                let address = store.url.parse().map_err(|error| Failure::invalid(format!("{error}")))?;
                Ok(Self::Remote(Box::new(Remote::new(&store.name, address, LinkConfig::default()))))
            }
            StoreKind::Postgres => {
                let mut bank = Postgres::connect(&store.name, &store.url, Limits::WORK)?;
                bank.work(|client| client.batch_execute("SET lock_timeout = '1s'"))?;
                if plan.last_resource {
                    bank = bank.last_resource()?;
                }
                Ok(Self::Postgres(bank, plan.table.clone()))
            }
            StoreKind::Mariadb => {
                let mut bank = Mariadb::connect(&store.name, &store.url, Limits::WORK)?;
                bank.work(|connection| connection.query_drop("SET SESSION innodb_lock_wait_timeout = 1"))?;
                Ok(Self::Mariadb(bank, plan.table.clone()))
            }
        }
    }

    /// Makes the accounts. A table that is there already is somebody's: refused.
    pub(crate) fn fill(&mut self, accounts: u32) -> Result<(), Failure> {
        match self {
            Self::Remote(bank) => {
                for first in (0..accounts).step_by(usize::try_from(FILL).unwrap_or(1)) {
                    let keys: Vec<[u8; 4]> = (first..accounts.min(first + FILL)).map(key).collect();
                    let money = value(BALANCE);
                    let puts: Vec<Op<'_>> = keys.iter().map(|key| put(key, &money)).collect();
                    bank.write(&puts, true)?;
                }
            }
            Self::Postgres(bank, table) => {
                let statements = format!(
                    "CREATE TABLE {table} (id integer PRIMARY KEY, balance bigint NOT NULL); \
                     INSERT INTO {table} SELECT id, {BALANCE} FROM generate_series(0, {}) AS id",
                    accounts - 1
                );
                bank.work(|client| client.batch_execute(&statements))?;
            }
            Self::Mariadb(bank, table) => {
                let create =
                    format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL) ENGINE=InnoDB");
                bank.work(|connection| connection.query_drop(&create))?;
                for first in (0..accounts).step_by(usize::try_from(FILL).unwrap_or(1)) {
                    let rows: Vec<String> =
                        (first..accounts.min(first + FILL)).map(|id| format!("({id},{BALANCE})")).collect();
                    let insert = format!("INSERT INTO {table} VALUES {}", rows.join(","));
                    bank.work(|connection| connection.query_drop(&insert))?;
                }
            }
        }
        Ok(())
    }

    /// Adds to an account, or takes from it, within the branch; false if it does not hold enough.
    pub(crate) fn add(&mut self, account: u32, amount: i64) -> Result<bool, Failure> {
        match self {
            Self::Remote(bank) => {
                let bytes = bank.get(ACCOUNTS, &key(account))?;
                let Some(before) = bytes.as_deref().and_then(balance) else {
                    return Err(Failure::new(Kind::Corrupt, format!("account {account} is gone")));
                };
                let Some(after) = before.checked_add_signed(amount) else { return Ok(false) };
                bank.put(ACCOUNTS, &key(account), &value(after))?;
                Ok(true)
            }
            Self::Postgres(bank, table) => {
                let update = format!(
                    "UPDATE {table} SET balance = balance + {amount} WHERE id = {account} AND balance + {amount} >= 0"
                );
                Ok(bank.work(|client| client.execute(&update, &[]))? == 1)
            }
            Self::Mariadb(bank, table) => {
                let update = format!(
                    "UPDATE {table} SET balance = balance + {amount} WHERE id = {account} AND balance + {amount} >= 0"
                );
                let changed = bank.work(|connection| {
                    connection.query_drop(&update)?;
                    Ok(connection.affected_rows())
                })?;
                Ok(changed == 1)
            }
        }
    }

    /// How many accounts an SQL bank has and what is in them.
    pub(crate) fn sum(&mut self) -> Result<(u64, u64), Failure> {
        let gone = || Failure::new(Kind::Corrupt, "the sum of accounts cannot be read");
        match self {
            Self::Remote(_) => Err(gone()),
            Self::Postgres(bank, table) => {
                let select = format!("SELECT count(*), sum(balance)::bigint FROM {table}");
                let row = bank.work(|client| client.query_one(&select, &[]))?;
                let number = |column: usize| u64::try_from(row.get::<_, i64>(column)).map_err(|_| gone());
                Ok((number(0)?, number(1)?))
            }
            Self::Mariadb(bank, table) => {
                let select = format!("SELECT count(*), CAST(sum(balance) AS UNSIGNED) FROM {table}");
                bank.work(|connection| connection.query_first::<(u64, u64), _>(&select))?.ok_or_else(gone)
            }
        }
    }

    /// How many branches of this node an SQL bank still holds prepared (`pg_prepared_xacts`, `XA RECOVER`).
    pub(crate) fn left_prepared(&mut self, node: assent_ids::NodeId) -> Result<u64, Failure> {
        match self.call(Verb::Recover(node)) {
            Reply::Listed(branches) => Ok(u64::try_from(branches.len()).unwrap_or(u64::MAX)),
            other => Err(Failure::new(Kind::Unavailable, format!("cannot list prepared branches: {other:?}"))),
        }
    }

    /// Drops what [`Bank::fill`] made in an SQL bank.
    pub(crate) fn drop_table(&mut self) -> Result<(), Failure> {
        match self {
            Self::Remote(_) => {}
            Self::Postgres(bank, table) => {
                let statement = format!("DROP TABLE {table}");
                bank.work(|client| client.batch_execute(&statement))?;
            }
            Self::Mariadb(bank, table) => {
                let wait = format!("SET SESSION innodb_lock_wait_timeout = {DROP_WAIT_S}");
                let statement = format!("DROP TABLE {table}");
                bank.work(|connection| [wait, statement].iter().try_for_each(|it| connection.query_drop(it)))?;
            }
        }
        Ok(())
    }
}

impl Bank {
    fn resource(&self) -> &dyn Resource {
        match self {
            Self::Remote(bank) => &**bank,
            Self::Postgres(bank, _) => bank,
            Self::Mariadb(bank, _) => bank,
        }
    }

    fn resource_mut(&mut self) -> &mut dyn Resource {
        match self {
            Self::Remote(bank) => &mut **bank,
            Self::Postgres(bank, _) => bank,
            Self::Mariadb(bank, _) => bank,
        }
    }
}

impl Resource for Bank {
    fn name(&self) -> &str {
        self.resource().name()
    }

    fn send(&mut self, verb: Verb) {
        self.resource_mut().send(verb);
    }

    fn receive(&mut self) -> Reply {
        self.resource_mut().receive()
    }

    fn witness(&mut self) -> Vec<u8> {
        self.resource_mut().witness()
    }

    fn decides(&mut self) -> Option<Mark> {
        self.resource_mut().decides()
    }

    fn let_go(&mut self) {
        self.resource_mut().let_go();
    }
}
