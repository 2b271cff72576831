//! A coordinator embedded in the bench's process, in the same folders as a server's, with its keeper and caretaker.

use std::path::Path;
use std::sync::Arc;

use assent_client::{Client, Retries};
use assent_coordinator::{Agent, Caretaker, Coordinator, CoordinatorError, Identity, Round};
use assent_journal::{Config, Journal, Keeper, Log};
use assent_kind::Kind;
use assent_world::{Clock, RealClock, RealDice, RealDisk};
use assent_xa::Connector;

use crate::BenchError;

/// The coordinator and what keeps it going.
pub(crate) struct House {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) journal: Arc<Journal>,
    _caretaker: Caretaker,
    _keeper: Keeper,
}

impl House {
    /// Opens it in `folder`. With connectors it has an agent, without it finishes nothing by itself.
    pub(crate) fn open(folder: &Path, connectors: Vec<Box<dyn Connector>>) -> Result<Self, BenchError> {
        let failed = |error: CoordinatorError| BenchError::new(error.kind(), error);
        let clock: Arc<dyn Clock> = Arc::new(RealClock);
        std::fs::create_dir_all(folder)
            .map_err(|error| BenchError::disk(&format!("making {}", folder.display()), &error))?;
        let identity = Identity::load_or_create(&RealDisk, &RealDice, folder).map_err(failed)?;
        // As `assent serve` sets a coordinator's journal.
        let writes_in_flight = assent_coordinator::Config::WRITES_IN_FLIGHT;
        let config = Config { log_size: 16 << 20, writes_in_flight, ..Config::default() };
        let place = folder.join("coordinator");
        let (journal, _) = Journal::open(Arc::new(RealDisk), Arc::clone(&clock), Arc::new(RealDice), &place, config)
            .map_err(|error| BenchError::new(error.kind(), error))?;
        let keeper = Keeper::start(Arc::clone(&journal), Arc::clone(&clock));
        let log: Arc<dyn Log> = journal.clone();
        let settings = assent_coordinator::Config::default();
        let coordinator = Arc::new(Coordinator::open(log, Arc::clone(&clock), identity, settings).map_err(failed)?);
        let mut agent =
            (!connectors.is_empty()).then(|| Agent::new(Arc::clone(&coordinator), connectors, Arc::clone(&clock)));
        // Commits are taken from then on.
        agent.iter_mut().for_each(Agent::claim);
        // A failed tick closes the log, and every commit says so from then on.
        let listener = Box::new(|_: Result<&Round, &CoordinatorError>| {});
        let caretaker = Caretaker::start(Arc::clone(&coordinator), agent, clock, listener)
            .map_err(|error| BenchError::new(Kind::Unavailable, format!("cannot start a thread: {error}")))?;
        Ok(Self { coordinator, journal, _caretaker: caretaker, _keeper: keeper })
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Result<Client, BenchError> {
        Client::embedded(&self.coordinator, Retries::default()).map_err(|error| BenchError::new(error.kind, error))
    }
}
