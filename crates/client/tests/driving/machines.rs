//! The parties of the simulated world (`protocol`), each on its own machine: two stores and the coordinator with its agent.
//!
//! Walk: [`Machine`] dies with or without a power cut · [`Store`] falls and rises, and its connections ([`Line`]) end with it
//! · [`House`] is the coordinator.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use assent_coordinator::{Agent, Config, Coordinator, Identity};
use assent_ids::{NodeId, TxId};
use assent_journal::{Config as JournalConfig, Journal};
use assent_kind::Kind;
use assent_kv::{Config as KvConfig, Kv, KvResource};
use assent_sim::{Rng, SimClock, SimDice, SimDisk, Survival};
use assent_world::Disk;
use assent_xa::{Connector, Native, Reply, Resource, Verb};

pub(super) const NAMES: [&str; 2] = ["north", "south"];

/// One computer: its disk, its clock, and how often it was opened.
pub(super) struct Machine {
    pub(super) disk: SimDisk,
    pub(super) clock: SimClock,
    pub(super) lives: u64,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { disk: SimDisk::new(), clock: SimClock::new(), lives: 0 }
    }

    pub(super) fn dies(&self, rng: &mut Rng) {
        if rng.below(2) == 0 {
            self.disk.kill();
        } else {
            self.disk.cut_power(Survival::Seeded(rng.below(u64::MAX)));
            self.clock.reboot();
        }
    }

    pub(super) fn journal(&mut self, seed: u64, lazy_ms: u64) -> Arc<Journal> {
        self.lives += 1;
        let dice = Arc::new(SimDice::new(seed ^ self.lives << 32));
        let config = JournalConfig {
            log_size: 20_480,
            max_buffer_log_size: 8_192,
            max_elapsed_sync_time: lazy_ms,
            ..JournalConfig::default()
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Journal::open(disk, Arc::new(self.clock.clone()), dice, Path::new("log"), config).unwrap().0
    }
}

/// The way to a store, for as long as there is one.
pub(super) type Slot = Arc<Mutex<Option<Arc<Kv>>>>;

pub(super) struct Door(pub(super) usize, pub(super) Slot);

impl Connector for Door {
    fn name(&self) -> &str {
        NAMES[self.0]
    }

    fn connect(&self) -> Result<Box<dyn Resource>, (Kind, Native)> {
        let Some(kv) = self.1.lock().unwrap().clone() else { return Err((Kind::Unavailable, Native::default())) };
        let inner = KvResource::new(NAMES[self.0], Arc::clone(&kv));
        Ok(Box::new(Line { inner, kv, slot: Arc::clone(&self.1), is_lost: false }))
    }
}

/// A connection that ends when the store's process does.
pub(super) struct Line {
    pub(super) inner: KvResource,
    pub(super) kv: Arc<Kv>,
    pub(super) slot: Slot,
    pub(super) is_lost: bool,
}

impl Resource for Line {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn send(&mut self, verb: Verb) {
        let now = self.slot.lock().unwrap().clone();
        self.is_lost |= now.is_none_or(|now| !Arc::ptr_eq(&now, &self.kv));
        if !self.is_lost {
            self.inner.send(verb);
        }
    }

    fn receive(&mut self) -> Reply {
        if self.is_lost { Reply::Lost(Native::default()) } else { self.inner.receive() }
    }

    fn witness(&mut self) -> Vec<u8> {
        self.inner.witness()
    }
}

pub(super) struct Store {
    pub(super) machine: Machine,
    pub(super) slot: Slot,
    pub(super) connections: BTreeMap<TxId, KvResource>,
}

impl Store {
    pub(super) fn rises(&mut self, at: usize) {
        let journal = self.machine.journal(at as u64, 0);
        let config = KvConfig { checkpoint_bytes: 8_000, store: NodeId(7 + at as u64), ..KvConfig::default() };
        let disk: Arc<dyn Disk> = Arc::new(self.machine.disk.clone());
        let clock = Arc::new(self.machine.clock.clone());
        let kv = Kv::open(journal, disk, clock, Path::new("checkpoints"), config).unwrap();
        *self.slot.lock().unwrap() = Some(Arc::new(kv));
    }

    pub(super) fn falls(&mut self, rng: &mut Rng) {
        self.machine.dies(rng);
        self.connections.clear();
        *self.slot.lock().unwrap() = None;
    }

    pub(super) fn kv(&self) -> Option<Arc<Kv>> {
        self.slot.lock().unwrap().clone()
    }
}

pub(super) struct House {
    pub(super) machine: Machine,
    pub(super) identity: Identity,
    pub(super) journal: Arc<Journal>,
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) agent: Agent,
}

pub(super) fn open_house(
    machine: &mut Machine,
    identity: Identity,
    lazy: bool,
    slots: &[Slot; 2],
) -> (Arc<Journal>, Arc<Coordinator>, Agent) {
    let journal = machine.journal(99, if lazy { 400 } else { 0 });
    let clock = Arc::new(machine.clock.clone());
    let config = Config { checkpoint_bytes: 6_000, ..Config::default() };
    let coordinator = Arc::new(Coordinator::open(journal.clone(), clock.clone(), identity, config).unwrap());
    let doors = [0, 1].map(|at| Box::new(Door(at, Arc::clone(&slots[at]))) as Box<dyn Connector>);
    let mut agent = Agent::new(Arc::clone(&coordinator), doors.into(), clock);
    agent.claim();
    (journal, coordinator, agent)
}
