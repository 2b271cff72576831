//! Recovery that runs by itself: asks every registered resource for its prepared branches and finishes them as decided.
//!
//! Walk: [`Agent::round`] asks all resources, then reads all answers · a branch that nobody here can have begun stops all
//! · each resource's [`Attendant`] does what follows.
//! The composition for who has one thread: tests, a simulation, an application that owns its loop. A dead resource costs
//! each round its own time-out; [`crate::Attendance`] runs the attendants beside each other instead.
//! A coordinator without an agent has no claims: nobody sees that its data folder was copied.

use std::sync::Arc;
use std::time::Duration;

use assent_ids::ResourceId;
use assent_world::Clock;
use assent_xa::Connector;

use crate::attendant::Look;
use crate::{Attendant, Coordinator, Round};

const PAUSE_AT_REST: Duration = Duration::from_secs(10);

/// The recovery agent: an attendant for each registered resource.
pub struct Agent {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) attendants: Vec<Attendant>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("attendants", &self.attendants).finish_non_exhaustive()
    }
}

impl Agent {
    /// An agent with its own connections to these resources. From here on the coordinator decides no commit before each
    /// of them was asked for its claim ([`Agent::claim`] or a round), or a second has passed.
    #[must_use]
    pub fn new(coordinator: Arc<Coordinator>, connectors: Vec<Box<dyn Connector>>, clock: Arc<dyn Clock>) -> Self {
        let names = connectors.iter().map(|one| (ResourceId::of(one.name()), one.name().to_owned()));
        let names: Vec<(ResourceId, String)> = names.collect();
        let registered: Arc<[ResourceId]> = names.iter().map(|(id, _)| *id).collect();
        coordinator.attend(&names);
        let attendant = |connector| {
            Attendant::new(Arc::clone(&coordinator), connector, Arc::clone(&registered), Arc::clone(&clock))
        };
        let attendants = connectors.into_iter().map(attendant).collect();
        Self { coordinator, attendants }
    }

    /// How long to wait before the next round.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.attendants.iter().map(Attendant::pause).min().unwrap_or(PAUSE_AT_REST)
    }

    /// Whether a resource's connection has ended while nobody asked it anything: a round is due, whatever the pause.
    pub fn is_cut_off(&mut self) -> bool {
        self.attendants.iter_mut().any(Attendant::is_cut_off)
    }

    /// One for each resource, in the order of the connectors.
    pub fn attendants(&mut self) -> &mut [Attendant] {
        &mut self.attendants
    }

    /// Connects to every resource and claims it, so that commits are taken; looks at nothing yet.
    pub fn claim(&mut self) {
        self.attendants.iter_mut().for_each(Attendant::claim);
    }

    /// One look at every resource, and every action that follows.
    pub fn round(&mut self) -> Round {
        // Asks all, then reads all: their work overlaps.
        let mut looks: Vec<Look> = self.attendants.iter_mut().map(Attendant::ask).collect();
        self.attendants.iter_mut().zip(&mut looks).for_each(|(attendant, look)| attendant.read(look));
        let acted = self.attendants.iter_mut().zip(looks).map(|(attendant, look)| attendant.act(look));
        let mut round = Round::default();
        acted.for_each(|one| round.merge(one));
        if self.attendants.is_empty() {
            round.unregistered.extend(self.coordinator.sweep(&[]).unregistered);
        }
        round
    }
}
