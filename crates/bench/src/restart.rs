//! What a restart takes, and what memory is kept: a coordinator's folder after many finished transactions and some in doubt.
//!
//! Walk: [`fill`] has a coordinator decide them in a server's folder and leaves it as a killed one does · the caller starts
//! a server there and [`commit_one`] is its first commit · [`commit_many`] is load for who watches its memory.
//! Deliberately absent: processes; the command line starts and measures them.

use std::path::Path;

use assent_client::{Client, ClientConfig};
use assent_coordinator::Embedded;
use assent_ids::ResourceId;
use assent_kind::Kind;
use assent_resources::Dummy;
use assent_world::net::Address;
use assent_xa::{BranchRecord, Decider as _, Decision, Outcome};
use serde::Serialize;

use crate::BenchError;
use crate::house::House;

/// The registered names; nothing listens at their addresses, so what is in doubt stays it.
pub const NAMES: [&str; 2] = ["bench-1", "bench-2"];
/// The folder of a server's data within the race's.
pub const DATA: &str = "served";

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Outcomes {
    /// Always `restart`.
    pub scenario: &'static str,
    /// In the folder when the server was started.
    pub finished: u32,
    /// Decided, their branches not finished.
    pub in_doubt: u32,
    /// Of the journal in that folder.
    pub journal_bytes: u64,
    /// From the start of the process until it said that it is ready.
    pub ready_ms: f64,
    /// From the start of the process until the first commit was answered.
    pub first_commit_ms: f64,
    /// The server's resident memory.
    pub memory: Vec<Memory>,
}

/// Resident memory at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// After what.
    pub after: String,
    /// Kilobytes (`VmRSS`).
    pub resident_kb: u64,
}

/// Decides `finished` transactions that are then finished, and `in_doubt` that are not, in `folder`/[`DATA`].
///
/// # Errors
/// What the disk or the coordinator says.
pub fn fill(
    folder: &Path,
    finished: u32,
    in_doubt: u32,
    threads: u32,
    progress: impl Fn(u64) + Sync,
) -> Result<(), BenchError> {
    let house = House::open(&folder.join(DATA), Vec::new())?;
    let embedded = house.coordinator.embedded().map_err(|error| BenchError::new(error.kind(), error))?;
    side_by_side(threads, |thread| {
        // In doubt before, between and after the others, as they would be.
        let share = |all: u32| all / threads + u32::from(thread < all % threads);
        let (mut finish, mut leave) = (share(finished), share(in_doubt));
        let each = finish / leave.max(1);
        while finish + leave > 0 {
            let turn = each.min(finish).max(u32::from(leave == 0) * finish);
            for _ in 0..turn {
                decide(&embedded, true)?;
            }
            if leave > 0 {
                decide(&embedded, false)?;
            }
            finish -= turn;
            leave = leave.saturating_sub(1);
            progress(u64::from(turn) + 1);
        }
        Ok(())
    })
}

fn decide(embedded: &Embedded, finish: bool) -> Result<(), BenchError> {
    let (_, tx) = embedded.begin().map_err(|error| BenchError::new(error.kind, error))?;
    let record = |(number, name): (u16, &str)| BranchRecord {
        resource: ResourceId::of(name),
        number,
        flags: 0,
        mark: None,
        // About as long as an adapter's.
        witness: vec![7; 64],
    };
    let branches = (0..).zip(NAMES).map(record).collect();
    let decided = embedded.decide(&Decision { tx, outcome: Outcome::Committed, first: true, branches });
    match decided.map_err(|error| BenchError::new(error.kind, error))? {
        Outcome::Committed if finish => embedded.finished(tx),
        Outcome::Committed => {}
        Outcome::RolledBack => return Err(BenchError::new(Kind::Internal, format!("{tx} is rolled back"))),
    }
    Ok(())
}

/// A fresh client's first transaction of two branches that answer at once.
///
/// # Errors
/// What the coordinator says.
pub fn commit_one(server: &Address) -> Result<(), BenchError> {
    commit(&client(server), &mut NAMES.map(Dummy::new))
}

/// `count` such transactions from `threads` threads over one connection.
///
/// # Errors
/// What the coordinator says.
pub fn commit_many(
    server: &Address,
    count: u32,
    threads: u32,
    progress: impl Fn(u64) + Sync,
) -> Result<(), BenchError> {
    let client = client(server);
    side_by_side(threads, |thread| {
        let mut branches = NAMES.map(Dummy::new);
        for _ in 0..count / threads + u32::from(thread < count % threads) {
            commit(&client, &mut branches)?;
            progress(1);
        }
        Ok(())
    })
}

fn client(server: &Address) -> Client {
    let resources = NAMES.map(str::to_owned).to_vec();
    Client::connect(ClientConfig { resources, ..ClientConfig::new(server.clone(), "bench") })
}

fn commit(client: &Client, [one, two]: &mut [Dummy; 2]) -> Result<(), BenchError> {
    let mut tx = client.begin().map_err(|error| BenchError::new(error.kind, error))?;
    let (_one, _two) = (tx.enlist(one), tx.enlist(two));
    tx.commit().map(drop).map_err(|error| BenchError::new(error.kind, error))
}

fn side_by_side(threads: u32, work: impl Fn(u32) -> Result<(), BenchError> + Sync) -> Result<(), BenchError> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(BenchError::new(Kind::Internal, "a client panicked")))
        })
    })
}
