//! A coordinator with everything around it, to be restarted at will.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use assent_coordinator::{Agent, Config, Coordinator, Identity, Operator, Session};
use assent_ids::{NodeId, ResourceId, TxId};
use assent_sim::SimClock;
use assent_xa::{BranchRecord, Connector, Decision, Outcome};

use crate::bank::Bank;
use crate::memory::MemoryLog;

pub(crate) const IDENTITY: Identity = Identity { node: NodeId(0x00a5_5e47), key: [3; 16] };
pub(crate) const LOST: Duration = Duration::from_millis(1_001);
pub(crate) const NAMES: [&str; 3] = ["bank-a", "bank-b", "bank-c"];

/// Which state engine the coordinator restarts from.
pub(crate) trait Form {
    const IS_TABLE: bool;
}

/// A log, replayed.
pub(crate) struct Journal;
/// A state table: what was appended led to rows, and the rows are read.
pub(crate) struct Table;

impl Form for Journal {
    const IS_TABLE: bool = false;
}

impl Form for Table {
    const IS_TABLE: bool = true;
}

pub(crate) type Stand = StandOver<Journal>;

pub(crate) struct StandOver<F> {
    form: PhantomData<F>,
    pub(crate) log: MemoryLog,
    pub(crate) clock: SimClock,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) agent: Agent,
    pub(crate) banks: Vec<Bank>,
    pub(crate) config: Config,
}

impl<F: Form> StandOver<F> {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let (log, clock) = (MemoryLog::new(), SimClock::new());
        log.stored().is_table = F::IS_TABLE;
        let banks: Vec<Bank> = NAMES.iter().map(|name| Bank::new(name)).collect();
        let (coordinator, agent) = open(&log, &clock, &banks, config);
        Self { form: PhantomData, log, clock, coordinator, agent, banks, config }
    }

    /// The coordinator's machine dies and comes back; what was not synced is lost or kept.
    pub(crate) fn restart(&mut self, keeps: bool) {
        self.log = self.log.reopen(keeps);
        self.dies();
        (self.coordinator, self.agent) = open(&self.log, &self.clock, &self.banks, self.config);
    }

    /// The agent's connections end with its process.
    pub(crate) fn dies(&mut self) {
        self.agent = Agent::new(Arc::clone(&self.coordinator), Vec::new(), Arc::new(self.clock.clone()));
    }

    /// Long enough for every lost client, and for the upkeep that fences it.
    pub(crate) fn fence(&self) {
        self.clock.advance(LOST);
        self.coordinator.tick().unwrap();
    }

    /// Time for the agent's patience, and a look.
    pub(crate) fn round(&mut self) -> assent_coordinator::Round {
        self.clock.advance(Duration::from_millis(500));
        self.agent.round()
    }
}

pub(crate) fn open(log: &MemoryLog, clock: &SimClock, banks: &[Bank], config: Config) -> (Arc<Coordinator>, Agent) {
    let clock = Arc::new(clock.clone());
    let coordinator = Coordinator::open(Arc::new(log.clone()), Arc::clone(&clock) as _, IDENTITY, config).unwrap();
    let coordinator = Arc::new(coordinator);
    let connectors = banks.iter().map(|bank| Box::new(bank.clone()) as Box<dyn Connector>).collect();
    let mut agent = Agent::new(Arc::clone(&coordinator), connectors, clock);
    agent.claim();
    (coordinator, agent)
}

pub(crate) fn tx(session: &Session, counter: u64) -> TxId {
    TxId { incarnation: session.incarnation, counter }
}

pub(crate) fn branch(name: &str, number: u16) -> BranchRecord {
    BranchRecord { resource: ResourceId::of(name), number, flags: 0, mark: None, witness: Vec::new() }
}

pub(crate) fn decision(tx: TxId, outcome: Outcome, first: bool) -> Decision {
    Decision { tx, outcome, first, branches: vec![branch(NAMES[0], 0), branch(NAMES[1], 1)] }
}

pub(crate) fn commit(tx: TxId) -> Decision {
    decision(tx, Outcome::Committed, true)
}

pub(crate) fn operator() -> Operator {
    Operator { who: "ada".to_owned(), reason: "the account was checked by hand".to_owned() }
}
