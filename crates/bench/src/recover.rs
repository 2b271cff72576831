//! What recovery takes: many branches in doubt in both databases, half of them decided, and one whose client was killed.
//!
//! Walk: [`Doubt::leave`] prepares a branch in each database for every transaction and has every second one decided, by a
//! coordinator in a server's folder, which is then left as a killed one leaves it · the caller starts a server there ·
//! [`Doubt::watch`] returns when nothing is prepared any more · [`Doubt::audit`] looks at every row.
//! [`Doubt::transaction`] is the client that the caller freezes and kills.
//! Deliberately absent: processes; the command line starts and kills them.

use std::path::Path;
use std::time::Duration;

use assent_client::{Client, ClientConfig};
use assent_coordinator::Embedded;
use assent_ids::{Branch, NodeId, ResourceId, TxId, Xid};
use assent_kind::Kind;
use assent_resources::{Limits, Mariadb, Postgres, ResourceError};
use assent_world::net::Address;
use assent_world::{Clock as _, RealClock};
use assent_xa::{BranchRecord, Decider as _, Decision, Outcome, Reply, Resource, Verb, Vote};
use mysql::prelude::Queryable as _;
use serde::Serialize;

use crate::BenchError;
use crate::databases::{Databases, NAMES, open_postgres, postgres_said};
use crate::house::House;
use crate::real::{Ours, Workload};
use crate::stage::Stage;

/// The folder of a server's data within the race's.
pub const DATA: &str = "served";

/// Branches that wait for recovery.
pub struct Doubt {
    databases: Databases,
    stage: Stage,
    node: NodeId,
    transactions: u32,
}

impl std::fmt::Debug for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doubt")
            .field("node", &self.node)
            .field("transactions", &self.transactions)
            .finish_non_exhaustive()
    }
}

/// What recovery took.
#[derive(Clone, Debug, Serialize)]
pub struct Outcomes {
    /// Always `recover`.
    pub scenario: &'static str,
    /// In doubt over both databases when the server was started.
    pub branches: u64,
    /// From the server's start until nothing was prepared, milliseconds.
    pub clean_after_ms: u64,
    /// Clients that were killed in the middle of one transaction.
    pub killed: Vec<Killed>,
}

/// One client's death.
#[derive(Clone, Debug, Serialize)]
pub struct Killed {
    /// The stop point where it was frozen and killed.
    pub stop: String,
    /// From its SIGKILL until both databases were clean, each time, milliseconds.
    pub clean_after_ms: Vec<u64>,
}

impl Doubt {
    /// Leaves `transactions` of two branches each in doubt. Row `2n` belongs to one decided commit, row `2n + 1` to an
    /// orphan. The coordinator's folder is `folder`/[`DATA`].
    ///
    /// # Errors
    /// `Invalid` if PostgreSQL's max_prepared_transactions is too small; what a database or the disk says.
    pub fn leave(
        folder: &Path,
        databases: &Databases,
        transactions: u32,
        threads: u32,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Self, BenchError> {
        room(databases, transactions)?;
        let stage = Stage::make(databases, transactions.max(1))?;
        let house = House::open(&folder.join(DATA), Vec::new())?;
        let node = house.coordinator.node();
        let embedded = house.coordinator.embedded().map_err(|error| BenchError::new(error.kind(), error))?;
        let (embedded, table, progress) = (&embedded, stage.table(), &progress);
        let step = usize::try_from(threads.max(1)).unwrap_or(1);
        std::thread::scope(|scope| {
            let share = |first: u32| {
                move || one_share(embedded, databases, table, (first..transactions).step_by(step), progress)
            };
            let workers: Vec<_> = (0..threads.max(1)).map(|first| scope.spawn(share(first))).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "a client panicked")))
            })
        })?;
        Ok(Self { databases: databases.clone(), stage, node, transactions })
    }

    /// The table that the rows are in.
    #[must_use]
    pub fn table(&self) -> &str {
        self.stage.table()
    }

    /// Branches of the coordinator's node that are prepared, over both databases.
    ///
    /// # Errors
    /// What a database says.
    pub fn prepared(&self) -> Result<u64, BenchError> {
        self.watcher()?.count()
    }

    /// Looks every `pause` until nothing is prepared, for at most `limit`.
    ///
    /// # Errors
    /// `Unavailable` with what is left; what a database says.
    pub fn watch(&self, pause: Duration, limit: Duration) -> Result<(), BenchError> {
        let mut watcher = self.watcher()?;
        let deadline = RealClock.now().after(limit);
        loop {
            let left = watcher.count()?;
            if left == 0 {
                return Ok(());
            }
            if RealClock.now() >= deadline {
                let message = format!("{left} branches are still prepared after {} ms", limit.as_millis());
                return Err(BenchError::new(Kind::Unavailable, message));
            }
            RealClock.sleep(pause);
        }
    }

    /// Whether everything that was decided is there, in both, and nothing else.
    ///
    /// # Errors
    /// `Internal` with what was found.
    pub fn audit(&mut self) -> Result<(), BenchError> {
        let decided = u64::from(self.transactions.div_ceil(2));
        let found = [self.stage.updates("id % 2 = 0")?, self.stage.updates("id % 2 = 1")?];
        let expected = [[decided; 2], [0; 2]];
        if found == expected {
            return Ok(());
        }
        let message =
            format!("PostgreSQL and MariaDB hold {found:?} updates (decided, orphans), not {expected:?}; report this");
        Err(BenchError::new(Kind::Internal, message))
    }

    /// One transaction over both databases, against a served coordinator: what a client does that is frozen and killed.
    ///
    /// # Errors
    /// What a database or the coordinator says.
    pub fn transaction(databases: &Databases, server: Address, table: &str) -> Result<(), BenchError> {
        let resources = NAMES.map(str::to_owned).to_vec();
        let client = Client::connect(ClientConfig { resources, ..ClientConfig::new(server, "bench-recover") });
        Ours::open(databases)?.transaction(&client, Workload::BothWrite, table, 0)
    }

    fn watcher(&self) -> Result<Watcher, BenchError> {
        let connect = |it: Box<dyn assent_xa::Connector>| {
            it.connect().map_err(|(kind, native)| BenchError::new(kind, native.message))
        };
        let stores = self.databases.connectors()?.into_iter().map(connect).collect::<Result<_, _>>()?;
        Ok(Watcher { node: self.node, stores })
    }
}

/// Connections that only list.
struct Watcher {
    node: NodeId,
    stores: Vec<Box<dyn Resource>>,
}

impl Watcher {
    fn count(&mut self) -> Result<u64, BenchError> {
        let mut sum = 0;
        for store in &mut self.stores {
            match store.call(Verb::Recover(self.node)) {
                Reply::Listed(xids) => sum += u64::try_from(xids.len()).unwrap_or(u64::MAX),
                reply => return Err(unexpected(store.name(), "its list", &reply)),
            }
        }
        Ok(sum)
    }
}

fn unexpected(name: &str, what: &str, reply: &Reply) -> BenchError {
    BenchError::new(Kind::Unavailable, format!("{name} answered {what} with {}: {reply:?}", reply.name()))
}

/// A vote that found no slot would end the race half-way.
fn room(databases: &Databases, transactions: u32) -> Result<(), BenchError> {
    let mut client = open_postgres(&databases.postgres)?;
    let said = |error: postgres::Error| postgres_said(&error);
    let row = client
        .query_one(
            "SELECT current_setting('max_prepared_transactions')::bigint - (SELECT count(*) FROM pg_prepared_xacts)",
            &[],
        )
        .map_err(said)?;
    let free: i64 = row.try_get(0).map_err(said)?;
    if i64::from(transactions) > free {
        let message = format!(
            "{transactions} transactions in doubt need as many slots, and PostgreSQL has {free} left: set its \
             max_prepared_transactions higher (scripts/bench-sql does), or ask for fewer with --branches"
        );
        return Err(BenchError::new(Kind::Invalid, message));
    }
    Ok(())
}

/// One thread's transactions.
fn one_share(
    embedded: &Embedded,
    databases: &Databases,
    table: &str,
    rows: impl Iterator<Item = u32>,
    progress: &(impl Fn(u64) + Sync),
) -> Result<(), BenchError> {
    let failed = |error: ResourceError| BenchError::new(error.kind(), error);
    let [bank, shop] = NAMES;
    let mut postgres = Postgres::connect(bank, &databases.postgres, Limits::WORK).map_err(failed)?;
    for row in rows {
        let (node, tx) = embedded.begin().map_err(|error| BenchError::new(error.kind, error))?;
        let sql = format!("UPDATE {table} SET n = n + 1 WHERE id = {row}");
        let first = Branch { node, tx, resource: ResourceId::of(bank), number: 0, flags: 0, mark: None };
        prepared(&mut postgres, first.xid(), |it| it.work(|session| session.batch_execute(&sql)).map_err(failed))?;
        // A prepared branch keeps its session, so each has its own, which ends here.
        let mut mariadb = Mariadb::connect(shop, &databases.mariadb, Limits::WORK).map_err(failed)?;
        let second = Branch { resource: ResourceId::of(shop), number: 1, ..first };
        prepared(&mut mariadb, second.xid(), |it| it.work(|session| session.query_drop(&sql)).map_err(failed))?;
        if row % 2 == 0 {
            let branches = vec![record(&first, postgres.witness()), record(&second, mariadb.witness())];
            decide(embedded, tx, branches)?;
        }
        progress(2);
    }
    Ok(())
}

fn record(branch: &Branch, witness: Vec<u8>) -> BranchRecord {
    let Branch { resource, number, flags, mark, .. } = *branch;
    BranchRecord { resource, number, flags, mark, witness }
}

fn decide(embedded: &Embedded, tx: TxId, branches: Vec<BranchRecord>) -> Result<(), BenchError> {
    let decided = embedded.decide(&Decision { tx, outcome: Outcome::Committed, first: true, branches });
    match decided.map_err(|error| BenchError::new(error.kind, error))? {
        Outcome::Committed => Ok(()),
        Outcome::RolledBack => Err(BenchError::new(Kind::Internal, format!("{tx} was decided by somebody else"))),
    }
}

/// Start, work, end, prepare.
fn prepared<R: Resource>(
    resource: &mut R,
    xid: Xid,
    work: impl FnOnce(&mut R) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    match resource.call(Verb::Start(xid)) {
        Reply::Done => {}
        reply => return Err(unexpected(resource.name(), "a start", &reply)),
    }
    work(resource)?;
    for verb in [Verb::End { xid, success: true }, Verb::Prepare(xid)] {
        match resource.call(verb) {
            Reply::Done | Reply::Vote(Vote::Yes) => {}
            reply => return Err(unexpected(resource.name(), "end or prepare", &reply)),
        }
    }
    Ok(())
}
