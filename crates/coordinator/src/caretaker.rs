//! Threads that tick a coordinator and run its agent, where nobody owns a loop: an embedded coordinator.
//!
//! The tick has a thread of its own: a fence, or a checkpoint, waits for no foreign database.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::{Clock, Gate};

use crate::{Agent, Attendance, Bell, Coordinator, Listener};

const TICK: Duration = Duration::from_millis(100);

/// A coordinator's housekeeper. Dropped, it finishes what it is at and stops.
#[derive(Debug)]
pub struct Caretaker {
    stop: Arc<Gate>,
    tick: Option<JoinHandle<()>>,
    _attendance: Option<Attendance>,
}

impl Caretaker {
    /// Starts it: a tick every 100 ms; a look at each of the agent's resources at once, whenever a client is fenced, and
    /// as often as [`crate::Attendant::pause`] says. The listener is told of looks that found something. Returns when
    /// every resource has been asked for its claim, after a second at the latest: a client may begin.
    ///
    /// # Errors
    /// As the operating system says, when it gives no thread.
    pub fn start(
        coordinator: Arc<Coordinator>,
        agent: Option<Agent>,
        clock: Arc<dyn Clock>,
        listener: Listener,
    ) -> std::io::Result<Self> {
        let noteworthy: Listener = Box::new(move |told| match told {
            Ok(round) if round.branches.is_empty() && round.is_clean() => {}
            told => listener(told),
        });
        let listener = Arc::new(noteworthy);
        let attendance = agent.map(|agent| Attendance::start(agent, clock, Arc::clone(&listener))).transpose()?;
        let bell = attendance.as_ref().map(Attendance::bell);
        let stop = Arc::new(Gate::default());
        let watch = Arc::clone(&stop);
        let tick = std::thread::Builder::new().name("assent-caretaker".to_owned()).spawn({
            let coordinator = Arc::clone(&coordinator);
            move || tick(&coordinator, bell.as_ref(), &listener, &watch)
        })?;
        // Why commits are still refused, if they are, every one of them says.
        _ = coordinator.first_claims();
        Ok(Self { stop, tick: Some(tick), _attendance: attendance })
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        self.stop.set(1);
        self.stop.wake_all();
        if let Some(thread) = self.tick.take() {
            // It panicked: the panic was printed where it happened, there is nothing to add.
            _ = thread.join();
        }
    }
}

fn tick(coordinator: &Coordinator, bell: Option<&Bell>, listener: &Listener, stop: &Gate) {
    let mut known = 0;
    while stop.value() == 0 {
        if let Err(error) = coordinator.tick() {
            listener(Err(&error));
        }
        // A client was fenced: what it left behind can be finished now.
        let calls = coordinator.calls();
        if let Some(bell) = bell.filter(|_| std::mem::replace(&mut known, calls) != calls) {
            bell.ring();
        }
        stop.wait(0, Some(TICK));
    }
}
