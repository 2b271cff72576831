//! Assets judged from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::unit_arg,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "helpers of tests may"
)]

mod branches;
mod client;
mod counts;
mod faults;
mod fuzz;
mod gate;
mod group;
mod limits;
mod model;
mod nodes;
mod recovery;
mod resource;
mod retries;
mod rules;
mod runs;
mod served;
mod stalled;
mod subscriptions;
mod threads;

use std::path::Path;
use std::sync::Arc;

use assent_assets::{
    Answer, Asset, AssetId, Command, Config, Engine, Logics, Op, Recovery, Request, Results, SessionName,
};
use assent_frame::Writer;
use assent_ids::Xid;
use assent_journal::Journal;
use assent_membership::Ack;
use assent_sim::{SimClock, SimDice, SimDisk};

/// Assets on a simulated disk.
#[derive(Debug)]
pub struct House {
    pub disk: SimDisk,
    pub clock: SimClock,
    pub log: Arc<Journal>,
    pub engine: Arc<Engine>,
    pub recovery: Recovery,
}

/// Small segments, so that a few commands fill one.
pub fn small() -> assent_journal::Config {
    assent_journal::Config { log_size: 5 * 4096, max_buffer_log_size: 2 * 4096, ..Default::default() }
}

pub fn try_open(disk: &SimDisk, salt: u64, config: Config) -> Result<House, String> {
    try_open_over(disk, salt, config, small())
}

/// Answers are told when the kernel has them.
pub fn lazy(disk: &SimDisk) -> House {
    let log = assent_journal::Config { max_elapsed_sync_time: 1_000, ..small() };
    try_open_over(disk, 1, Config { ack: Ack::Written, ..Config::default() }, log).unwrap()
}

fn try_open_over(
    disk: &SimDisk,
    salt: u64,
    config: Config,
    log_config: assent_journal::Config,
) -> Result<House, String> {
    let clock = SimClock::new();
    let (the_disk, the_clock) = (Arc::new(disk.clone()), Arc::new(clock.clone()));
    let opened =
        Journal::open(the_disk.clone(), the_clock.clone(), Arc::new(SimDice::new(salt)), Path::new("log"), log_config);
    let (log, _) = opened.map_err(|error| error.to_string())?;
    let opened = Engine::open(log.clone(), the_disk, the_clock, Path::new("assets"), config, Logics::default());
    let (engine, recovery) = opened.map_err(|error| error.to_string())?;
    Ok(House { disk: disk.clone(), clock, log, engine: Arc::new(engine), recovery })
}

pub fn open(disk: &SimDisk, salt: u64) -> House {
    try_open(disk, salt, Config::default()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn fresh() -> House {
    open(&SimDisk::new(), 1)
}

impl House {
    /// The process dies and starts again; the page cache stays.
    pub fn again(self, salt: u64) -> House {
        let House { disk, log, engine, .. } = self;
        drop((log, engine));
        disk.kill();
        open(&disk, salt)
    }

    pub fn run(&self, ops: &[Op]) -> Answer {
        self.engine.execute(&batch(None, ops)).unwrap()
    }

    pub fn asked(&self, session: SessionName, number: u64, ops: &[Op]) -> Answer {
        let request = Request { session, number, window: 4 };
        self.engine.execute(&batch(Some(request), ops)).unwrap()
    }

    /// One whose name no other one of this house has.
    pub fn session(&self) -> SessionName {
        let name = SessionName(1 << 63 | self.engine.stats().sequence.0);
        match self.engine.execute(&laid(|out| Command::lay_open(out, name))).unwrap() {
            Answer::Opened(session) => session,
            other => panic!("{other:?}"),
        }
    }

    pub fn prepare(&self, number: u64, ops: &[Op]) -> Answer {
        self.engine.execute(&laid(|out| Command::lay_prepare(out, &xid(number), ops))).unwrap()
    }

    pub fn outcome(&self, number: u64, committed: bool) -> Answer {
        self.engine.execute(&laid(|out| Command::lay_outcome(out, &xid(number), committed))).unwrap()
    }

    pub fn value(&self, id: u64) -> Option<i64> {
        self.engine.peek(AssetId(id)).map(|asset| asset.value)
    }
}

pub fn laid(lay: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::new();
    lay(&mut out);
    out.into_vec()
}

pub fn batch(request: Option<Request>, ops: &[Op]) -> Vec<u8> {
    laid(|out| Command::lay_batch(out, request, ops))
}

pub fn xid(number: u64) -> Xid {
    Xid::new(7, &number.to_be_bytes(), b"assets").unwrap()
}

pub const fn create(id: u64, value: i64) -> Op {
    Op::Create { id: AssetId(id), value }
}

pub const fn add(id: u64, by: i64) -> Op {
    Op::Add { id: AssetId(id), by }
}

pub const fn get(id: u64) -> Op {
    Op::Get { id: AssetId(id) }
}

pub fn done(assets: &[(i64, u64)]) -> Answer {
    Answer::Done(results(assets))
}

pub fn results(assets: &[(i64, u64)]) -> Results {
    let assets = assets.iter().map(|(value, updates)| Asset { value: *value, updates: *updates }).collect();
    Results { assets, output: Vec::new() }
}
