//! The client's one thread of its own: heartbeats while the application is quiet. Never on the way of a commit.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::Gate;

use crate::served::Served;

/// Well below a heartbeat, so that a lost connection is resumed in time.
const BEAT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Helper {
    stop: Arc<Gate>,
    served: Arc<Served>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    pub(crate) fn start(served: Arc<Served>) -> Self {
        let stop = Arc::new(Gate::default());
        let (gate, beating) = (Arc::clone(&stop), Arc::clone(&served));
        let beat = move || {
            while gate.value() == 0 {
                gate.wait(0, Some(BEAT));
                if gate.value() == 0 {
                    beating.beat();
                }
            }
        };
        // Without a thread there are no heartbeats: a quiet client is lost and gets another incarnation.
        let thread = std::thread::Builder::new().name("assent-heartbeat".to_owned()).spawn(beat).ok();
        Self { stop, served, thread }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.set(1);
        self.stop.wake_all();
        // Ends the connection, and with it whatever the thread waits for.
        self.served.end();
        if let Some(thread) = self.thread.take() {
            // It panicked: the panic was printed where it happened, there is nothing to add.
            _ = thread.join();
        }
    }
}
