//! The one helper thread of a process: it looks after its journals, off the commit path.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_world::{Clock, Gate, Moment, wake_soon};

use crate::journal::Journal;

/// What a keeper looks after: a journal, or another log that has something to do off its commit path.
pub trait Kept: Send + Sync {
    /// Does what is due. Returns after which pause to call again.
    fn maintain(&self) -> Duration;

    /// From now on this gate is bumped and woken when something is due that the last call could not know.
    fn tell_keeper(&self, gate: &Arc<Gate>);
}

impl Kept for Journal {
    fn maintain(&self) -> Duration {
        Journal::maintain(self)
    }

    fn tell_keeper(&self, gate: &Arc<Gate>) {
        Journal::tell_keeper(self, gate);
    }
}

/// Calls [`Journal::maintain`] when it is due, until it is dropped. Journals that nobody else holds are let go.
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    gate: Arc<Gate>,
    stop: AtomicBool,
    kept: Mutex<Vec<Due>>,
}

struct Due {
    kept: Weak<dyn Kept>,
    due: Moment,
}

impl Keeper {
    /// Starts the thread for a first journal, or what else is to be kept.
    #[must_use]
    pub fn start<K: Kept + 'static>(first: Arc<K>, clock: Arc<dyn Clock>) -> Self {
        let (stop, kept) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { clock, gate: Arc::default(), stop, kept });
        let mut keeper = Self { shared: Arc::clone(&shared), thread: None };
        keeper.add(&first);
        drop(first);
        let thread = std::thread::Builder::new().name("journal-keeper".to_owned()).spawn(move || keep(&shared));
        // Without a thread the journals still work: an append makes its segments itself. Only the bound of RPO > 0
        // needs the keeper, and a process that cannot have one more thread has other sorrows.
        keeper.thread = thread.ok();
        keeper
    }

    /// Looks after one more.
    pub fn add<K: Kept + 'static>(&self, kept: &Arc<K>) {
        let weak: Weak<K> = Arc::downgrade(kept);
        let due = Due { kept: weak, due: self.shared.clock.now() };
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner).push(due);
        kept.tell_keeper(&self.shared.gate);
        self.shared.gate.bump();
        self.shared.gate.wake_all();
    }

    /// Stops the thread and waits for it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.gate.bump();
        self.shared.gate.wake_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; here nothing is left to do about it.
            _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

fn keep(shared: &Shared) {
    // Who waits for a sync that is due, or for a segment, waits for this thread.
    wake_soon();
    let mut called = true;
    let mut seen = shared.gate.value();
    while !shared.stop.load(Ordering::Acquire) {
        let pause = round(shared, called);
        shared.gate.wait(seen, Some(pause));
        // Who changed the gate has something due that the last round could not know. One look says both: no call falls between two.
        let now = shared.gate.value();
        called = now != seen;
        seen = now;
    }
}

fn round(shared: &Shared, called: bool) -> Duration {
    let mut kept = shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|one| one.kept.strong_count() > 0);
    let mut pause = Duration::from_secs(1);
    for one in kept.iter_mut() {
        if let Some(kept) = one.kept.upgrade()
            && (called || one.due <= shared.clock.now())
        {
            let next = kept.maintain();
            one.due = shared.clock.now().after(next);
        }
        pause = pause.min(one.due.since(shared.clock.now()));
    }
    pause
}
