//! A thread that ticks a coordinator and runs its agent, where nobody owns a loop: an embedded coordinator, or a server
//! whose desk must not wait for foreign databases.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::{Clock, Gate, Moment};

use crate::{Agent, Coordinator, CoordinatorError, Round};

const TICK: Duration = Duration::from_millis(100);

/// What a caretaker tells: every round that found something, and every tick that failed.
pub type Listener = Box<dyn Fn(Result<&Round, &CoordinatorError>) + Send>;

/// A coordinator's housekeeper. Dropped, it finishes what it is at and stops.
#[derive(Debug)]
pub struct Caretaker {
    stop: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
}

impl Caretaker {
    /// Starts it: a tick every 100 ms; a round of the agent at once, whenever a client is fenced, and as often as
    /// [`Agent::pause`] says.
    ///
    /// # Errors
    /// As the operating system says, when it gives no thread.
    pub fn start(
        coordinator: Arc<Coordinator>,
        agent: Option<Agent>,
        clock: Arc<dyn Clock>,
        listener: Listener,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(Gate::default());
        let watch = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("assent-caretaker".to_owned())
            .spawn(move || Care { coordinator, agent, clock, listener, next: Moment(0), fenced: 0 }.run(&watch))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        self.stop.set(1);
        self.stop.wake_all();
        if let Some(thread) = self.thread.take() {
            // It panicked: the panic was printed where it happened, there is nothing to add.
            _ = thread.join();
        }
    }
}

struct Care {
    coordinator: Arc<Coordinator>,
    agent: Option<Agent>,
    clock: Arc<dyn Clock>,
    listener: Listener,
    next: Moment,
    fenced: u64,
}

impl Care {
    fn run(mut self, stop: &Gate) {
        while stop.value() == 0 {
            self.once();
            stop.wait(0, Some(TICK));
        }
    }

    fn once(&mut self) {
        if let Err(error) = self.coordinator.tick() {
            (self.listener)(Err(&error));
        }
        let Some(agent) = &mut self.agent else { return };
        let fenced = self.coordinator.state().gauges.fenced;
        if self.clock.now() < self.next && fenced == self.fenced {
            return;
        }
        self.fenced = fenced;
        let round = agent.round();
        if !round.branches.is_empty() || !round.is_clean() {
            (self.listener)(Ok(&round));
        }
        self.next = self.clock.now().after(agent.pause());
    }
}
