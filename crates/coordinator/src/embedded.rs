//! The coordinator in the application's own process: one client of it, without a wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assent_ids::{Mark, NodeId, ResourceId, TxId};
use assent_kind::Kind;
use assent_world::stop::{self, Stop};
use assent_xa::{DecideError, Decider, Decision, Deviation, Outcome, Voted};

use crate::{Coordinator, CoordinatorError, Known, Session};

/// So long a row is waited for, as a served client waits for its decision.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// This process as a client. When it is dropped, its undecided transactions are left to recovery.
#[derive(Debug)]
pub struct Embedded {
    coordinator: Arc<Coordinator>,
    session: Session,
    counter: AtomicU64,
}

impl Coordinator {
    /// A client in this process.
    ///
    /// # Errors
    /// As [`Coordinator::handshake`].
    pub fn embedded(self: &Arc<Self>) -> Result<Embedded, CoordinatorError> {
        let session = self.handshake("embedded")?;
        Ok(Embedded { coordinator: Arc::clone(self), session, counter: AtomicU64::new(0) })
    }
}

impl Embedded {
    /// Its coordinator.
    #[must_use]
    pub const fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }
}

impl Decider for Embedded {
    fn begin(&self) -> Result<(NodeId, TxId), DecideError> {
        // Only distinctness matters: every other order comes from the coordinator's lock.
        let counter = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((self.coordinator.node(), TxId { incarnation: self.session.incarnation, counter }))
    }

    fn decide(&self, decision: &Decision) -> Result<Outcome, DecideError> {
        stop::at(Stop::CoordinatorBeforeDecision);
        let outcome = self.coordinator.decide(decision);
        stop::at(Stop::CoordinatorAfterDecision);
        outcome
    }

    fn settles(&self, resources: &[ResourceId]) -> bool {
        self.coordinator.settles(resources)
    }

    fn noted(&self, decision: &Decision) {
        self.coordinator.noted(decision);
    }

    fn settle(&self, tx: TxId, mark: Mark) -> Result<Outcome, DecideError> {
        let clock = &self.coordinator.clock;
        let until = clock.now().after(SETTLES_WITHIN);
        loop {
            match self.coordinator.settle(tx, mark)? {
                Known::Committed => return Ok(Outcome::Committed),
                Known::RolledBack => return Ok(Outcome::RolledBack),
                Known::Undecided | Known::InDoubt | Known::Unknown => {}
            }
            if clock.now() >= until {
                let message = format!("the row of {tx} could not be asked for in time; recovery goes on asking");
                return Err(DecideError { kind: Kind::InDoubt, message });
            }
            clock.sleep(PAUSE);
        }
    }

    fn finished(&self, tx: TxId) {
        self.coordinator.finished(tx);
    }

    fn acknowledged(&self, tx: TxId) {
        self.coordinator.acknowledged(tx);
    }

    fn heuristic(&self, tx: TxId, told: Outcome, branches: &[Deviation]) {
        self.coordinator.heuristic(tx, told, branches);
    }

    fn voted(&self, tx: TxId, outcome: Outcome, votes: &[Voted]) {
        self.coordinator.voted(tx, outcome, votes);
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.coordinator.lost(self.session.incarnation);
    }
}
