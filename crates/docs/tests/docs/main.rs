//! The document store judged from outside.
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

mod anew;
mod beside;
mod branches;
mod counts;
mod damage;
mod diff;
mod fuzz;
mod gate;
mod held;
mod import;
mod json;
mod jsonpath;
mod kills;
mod load;
mod members;
mod model;
mod once;
mod past;
mod patch;
mod reopened;
mod resource;
mod serialise;
mod store;
mod tags;
mod tree;
mod truncate;
mod writers;

use std::path::Path;
use std::sync::Arc;

use assent_docs::{At, Config, Database, Look, Meta, NodeKey, Value, Versioning};
use assent_journal::Journal;
use assent_kind::Kind;
use assent_sim::{SimClock, SimDice, SimDisk};

/// A database on a simulated disk.
#[derive(Debug)]
pub struct Desk {
    pub disk: SimDisk,
    pub clock: SimClock,
    pub log: Arc<Journal>,
    pub db: Database,
    pub config: Config,
}

pub fn journal() -> assent_journal::Config {
    assent_journal::Config { log_size: 1 << 20, kept_until_released: true, settles_late: true, ..Default::default() }
}

pub fn open_with(disk: &SimDisk, clock: &SimClock, salt: u64, journal: assent_journal::Config, config: Config) -> Desk {
    let dice = Arc::new(SimDice::new(salt));
    let opened = Journal::open(Arc::new(disk.clone()), Arc::new(clock.clone()), dice, Path::new("log"), journal);
    let (log, _) = opened.unwrap();
    let db = Database::open(
        Arc::clone(&log) as _,
        Arc::new(disk.clone()),
        Arc::new(clock.clone()),
        Path::new("index"),
        config,
    );
    Desk { disk: disk.clone(), clock: clock.clone(), log, db: db.unwrap(), config }
}

pub fn fresh() -> Desk {
    fresh_with(Config::default())
}

pub fn fresh_with(config: Config) -> Desk {
    let config = Config { trims: true, writer_wait_ms: 0, ..config };
    open_with(&SimDisk::new(), &SimClock::new(), 1, journal(), config)
}

impl Desk {
    /// There is no more room on the disk, and none that the journal has left.
    pub fn fill(&self) {
        let doc = self.db.create("filling", Versioning::default()).unwrap();
        self.disk.set_capacity(Some(self.disk.used_bytes()));
        for bytes in [100_000, 1_000, 1] {
            let text = "x".repeat(bytes);
            let fill = || {
                let mut edit = doc.edit()?;
                edit.value().map_or(Ok(()), |value| edit.remove(value))?;
                edit.insert(At::Last(NodeKey::DOCUMENT), None, Value::String(&text))?;
                edit.commit(&Meta::default()).map(drop)
            };
            assert_eq!(std::iter::repeat_with(fill).find_map(Result::err).unwrap().kind(), Kind::Full);
        }
    }

    /// The process dies and starts again; the page cache stays.
    pub fn again(self) -> Desk {
        let Desk { disk, clock, log, db, config } = self;
        drop((log, db));
        disk.kill();
        open_with(&disk, &clock, disk.hash(), journal(), config)
    }
}

pub fn says(message: &str) -> Meta {
    Meta { author: "ann".to_owned(), message: message.to_owned(), fields: Vec::new() }
}
