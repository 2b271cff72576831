//! Threads that may block: each does one piece of work at a time, and sleeps until somebody has another one for it.
//!
//! ```text
//!   work ──▶ a thread that sleeps, the last one first, or a new one ── one wake-up ──▶ done ──▶ free for the next ──▶ told
//! ```
//! Not those of the runtime: it wakes a thread while it holds the lock that this one needs first, so that both sleep once more for each
//! piece of work, four calls of the kernel instead of two.
//!
//! Walk: [`Crew::give`] · [`Shared::serve`] the loop of a thread · [`Crew::end`].
//! Deliberately absent: a queue, and a number of threads: whoever gives work has a place for it (`pool`). A thread that was needed once is kept.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, Thread};
use std::time::Duration;

use assent_kind::Kind;
use assent_world::wake_soon;

use crate::problem::Problem;

/// Does it and does not panic, and gives what tells whoever waits for it: its thread is free by then.
pub(crate) type Work = Box<dyn FnOnce() -> Told + Send>;
pub(crate) type Told = Box<dyn FnOnce() + Send>;

/// Threads that may block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crew(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    hands: Mutex<Hands>,
    left: Condvar,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Hands {
    sleeping: Vec<Arc<Hand>>,
    /// All of them, also those that work.
    threads: usize,
}

/// One thread.
struct Hand {
    thread: Thread,
    /// What it is to do next.
    next: Mutex<Option<Work>>,
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").field("thread", &self.thread.id()).finish_non_exhaustive()
    }
}

impl Hand {
    fn next(&self) -> MutexGuard<'_, Option<Work>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crew {
    /// Has this done.
    ///
    /// # Errors
    /// `Unavailable` once they are to end, or if there is no thread to be had. Nothing of it was done.
    pub(crate) fn give(&self, work: Work) -> Result<(), Problem> {
        let Self(shared) = self;
        let mut hands = shared.hands();
        if shared.is_over.load(Ordering::Acquire) {
            return Err(Problem::of(Kind::Unavailable, "the server is stopping, and nothing of this was done"));
        }
        if let Some(hand) = hands.sleeping.pop() {
            // Under the lock that an end needs: a thread that sees the end sees this.
            *hand.next() = Some(work);
            drop(hands);
            // Behind all locks: it needs them.
            hand.thread.unpark();
            return Ok(());
        }
        hands.threads += 1;
        drop(hands);
        let own = Arc::clone(shared);
        let hired = Builder::new().name("rest-work".to_owned()).spawn(move || own.serve(work));
        hired.map(drop).map_err(|error: io::Error| {
            shared.gone();
            Problem::of(Kind::Unavailable, format!("no thread for this: {error}; ask again"))
        })
    }

    /// Takes no more work, and waits for what is being done, but not for longer than this.
    pub(crate) fn end(&self, within: Duration) {
        let Self(shared) = self;
        let mut hands = shared.hands();
        shared.is_over.store(true, Ordering::Release);
        for hand in hands.sleeping.drain(..) {
            hand.thread.unpark();
        }
        let waited = shared.left.wait_timeout_while(hands, within, |hands| hands.threads > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, first: Work) {
        // It waits for a disk, and then for a core: those that serve may keep all of them busy.
        wake_soon();
        let hand = Arc::new(Hand { thread: thread::current(), next: Mutex::new(Some(first)) });
        loop {
            // Before it looks for work: what was given before the end is done.
            let is_over = self.is_over.load(Ordering::Acquire);
            let next = hand.next().take();
            match next {
                Some(work) => {
                    let told = work();
                    // First: who hears it may have the next one for this thread, before it sleeps.
                    self.is_free(&hand);
                    // A panic of what nobody waits for any more has been printed; the thread has a next one by now, maybe.
                    _ = catch_unwind(AssertUnwindSafe(told));
                }
                None if is_over => break,
                None => thread::park(),
            }
        }
        self.gone();
    }

    fn is_free(&self, hand: &Arc<Hand>) {
        let mut hands = self.hands();
        if !self.is_over.load(Ordering::Acquire) {
            hands.sleeping.push(Arc::clone(hand));
        }
    }

    fn gone(&self) {
        self.hands().threads -= 1;
        self.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Work that tells which thread did it.
    fn named(to: &Sender<thread::ThreadId>) -> Work {
        let to = to.clone();
        Box::new(move || Box::new(move || _ = to.send(thread::current().id())))
    }

    #[test]
    fn one_thread_does_what_comes_one_after_the_other_and_each_that_waits_has_its_own() {
        let (crew, (done, told)) = (Crew::default(), channel());
        crew.give(named(&done)).unwrap();
        let first = told.recv().unwrap();
        for _ in 0..1_000 {
            crew.give(named(&done)).unwrap();
            assert_eq!(told.recv().unwrap(), first, "it was free before it told");
        }
        assert_eq!(crew.0.hands().threads, 1);
        let (go, wait) = channel::<()>();
        let waits = move || -> Told {
            _ = wait.recv();
            Box::new(|| {})
        };
        crew.give(Box::new(waits)).unwrap();
        crew.give(named(&done)).unwrap();
        assert_ne!(told.recv().unwrap(), first);
        assert_eq!(crew.0.hands().threads, 2);
        crew.end(Duration::ZERO);
        assert_eq!(crew.give(named(&done)).unwrap_err().kind, Kind::Unavailable.name());
        drop(go);
        crew.end(Duration::from_secs(60));
        assert_eq!(crew.0.hands().threads, 0);
    }

    #[test]
    fn a_panic_of_what_nobody_waits_for_takes_no_thread_away() {
        let (crew, (done, told)) = (Crew::default(), channel());
        for _ in 0..100 {
            crew.give(Box::new(|| Box::new(|| panic!("dropped by nobody's choice")))).unwrap();
            crew.give(named(&done)).unwrap();
            told.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        crew.end(Duration::from_secs(60));
        assert_eq!(crew.0.hands().threads, 0);
    }

    #[test]
    fn what_was_given_is_done_whoever_ends_them_meanwhile() {
        for _ in 0..200 {
            let (crew, (done, told)) = (Crew::default(), channel());
            let ending = crew.clone();
            let ends = thread::spawn(move || ending.end(Duration::from_secs(60)));
            let given = (0..20).take_while(|_| crew.give(named(&done)).is_ok()).count();
            ends.join().unwrap();
            drop(done);
            assert_eq!(told.iter().count(), given);
        }
    }
}
