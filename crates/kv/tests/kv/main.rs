//! The key-value store judged from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "helpers of tests may"
)]

mod branches;
mod checkpoints;
mod compactions;
mod conditions;
mod conflicts;
mod counting;
mod counts;
mod damaged_ledger;
mod erase;
mod expiry;
mod faults;
mod folds;
mod full;
mod fuzz;
mod gate;
mod held;
mod hints;
mod history;
mod hours;
mod isolation;
mod kept;
mod keyspaces;
mod leases;
mod limits;
mod long;
mod model;
mod moves;
mod offline;
mod overload;
mod panics;
mod passed;
mod patience;
mod plain;
mod progress;
mod queues;
mod readers;
mod resource;
mod scripted_log;
mod small_disk;
mod space;
mod stress;
mod unreadable;
mod value_cache;
mod waiting;

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use assent_ids::{Branch, Epoch, Incarnation, NodeId, ResourceId, TxId, Xid};
use assent_kv::{Config, Kv, Rows};
use assent_sim::{SimClock, SimDisk};
use scripted_log::ScriptedLog;

pub const NODE: NodeId = NodeId(77);

/// A branch of our node.
pub fn xid(counter: u64) -> Xid {
    let incarnation = Incarnation { epoch: Epoch(1), number: 1 };
    let tx = TxId { incarnation, counter };
    Branch { node: NODE, tx, resource: ResourceId::of("kv"), number: 0, flags: 0, mark: None }.xid()
}

/// A store on a simulated disk, with the log beneath it in sight.
#[derive(Debug)]
pub struct Desk {
    pub disk: SimDisk,
    pub clock: SimClock,
    pub log: Arc<ScriptedLog>,
    pub kv: Arc<Kv>,
}

pub fn open(disk: &SimDisk, config: Config) -> Desk {
    open_at(disk, &SimClock::new(), config)
}

pub fn open_at(disk: &SimDisk, clock: &SimClock, config: Config) -> Desk {
    let log = Arc::new(ScriptedLog::open(disk, false).unwrap());
    let (the_disk, the_clock) = (Arc::new(disk.clone()), Arc::new(clock.clone()));
    let kv = Kv::open(Arc::clone(&log) as _, the_disk, the_clock, Path::new("kv"), config).unwrap();
    Desk { disk: disk.clone(), clock: clock.clone(), log, kv: Arc::new(kv) }
}

/// What threads in the background do, until there is nothing to do.
pub fn keep(kv: &Kv) {
    kv.tick();
    while kv.work(&assent_runs::AtOnce) {}
}

pub fn fresh() -> Desk {
    open(&SimDisk::new(), Config::default())
}

impl Desk {
    /// The process dies and starts again; the page cache stays, and so does the clock.
    pub fn again(self) -> Desk {
        self.again_with(Config::default())
    }

    pub fn again_with(self, config: Config) -> Desk {
        let Desk { disk, clock, log, kv } = self;
        drop((log, kv));
        disk.kill();
        open_at(&disk, &clock, config)
    }
}

pub fn all(kv: &Kv, keyspace: u32) -> Rows {
    kv.scan(keyspace, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap()
}

pub fn rows(rows: &[(&str, &str)]) -> Rows {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}
