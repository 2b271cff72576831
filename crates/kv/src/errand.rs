//! The lock of the desk that many writers want, and the errands of those who find it taken: whoever has it runs them.
//!
//! Who loses his core with a lock in his hands is passed by all others until they stand before it. They would be let in one after the other,
//! each when he is given a core, and beside 45 threads on two of them the last one waits for 50 ms, nobody having had the lock for longer
//! than six. So who writes does not stand there: what he wants lies in a list, the next writer who has the desk does all of it, and who lies
//! in the list mostly has one sleep before him. (Flat combining: D. Hendler, I. Incze, N. Shavit, M. Tzafrir, SPAA 2010.)
//! So somebody may panic in another one's errand: he is the one who dies then, and the desk is broken as it would be by the other.
//!
//! ```text
//!   wanted   free: done by oneself · taken: left in the list, then sleep until it is done, or the desk is free and it is still there
//!   desk     taken -> errands -> one's own -> errands that have come meanwhile -> given back -> wake whose errands were run
//! ```
//! No wake-up is lost: who leaves an errand looks at the lock behind that, and who gives the desk back looks at the list behind that, and
//! wakes one of those who have left something. Those whose errands were run in one go are woken in one: whoever wakes them one by one is passed by
//! each of them.
//!
//! Walk: [`Counter::lock`] · [`Counter::try_lock`] · [`Counter::leave`] an errand, and [`AtDesk::errands`] takes all · [`Taken::done`] answers one.
//! Deliberately absent: what an errand does ([`crate::writers`]).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use assent_journal::Ticket;
use assent_runs::RunsError;
use assent_world::Gate;
use smallvec::SmallVec;

use crate::KvError;
use crate::desk::Desk;
use crate::op::{Durability, Op};
use crate::record::{Laid, ShortKey};

/// Longer ones wait for the desk: an errand is a copy of its bytes.
pub(crate) const ERRAND_BYTES_MAX: u64 = 64 << 10;
/// So often one looks whether the desk is free, some hundred nanoseconds in between: who has it mostly has it for a microsecond or two.
const LOOKS: u32 = 16;
const PAUSES: u32 = 8;

/// Why a store takes nothing more once a thread has panicked with the desk in its hands.
pub(crate) const PANICKED: &str = "a thread panicked with what all writers share in its hands";

/// What is asked for. The answer is where it stands in the log, or what it has to wait for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To append this.
    Append { batch: Box<(Carried, Laid)>, durability: Durability },
    /// To let readers see what ends there.
    Show { ticket: Ticket, durability: Durability },
}

pub(crate) type Answer = Result<Option<Ticket>, KvError>;

/// One write, with its bytes.
#[derive(Debug)]
pub(crate) struct Carried {
    keyspace: u32,
    key: ShortKey,
    /// Of a put; none is a delete.
    put: Option<Put>,
}

#[derive(Debug)]
struct Put {
    metadata: SmallVec<[u8; 64]>,
    value: Vec<u8>,
    expiry: u64,
}

impl Carried {
    /// If it is one write that is not too long.
    pub(crate) fn of(ops: &[Op<'_>]) -> Option<Self> {
        let [op] = ops else { return None };
        if op.laid_bytes() > ERRAND_BYTES_MAX {
            return None;
        }
        let put = match *op {
            Op::Put { metadata, value, expiry, .. } => {
                Some(Put { metadata: SmallVec::from_slice(metadata), value: value.to_vec(), expiry })
            }
            Op::Delete { .. } => None,
            Op::Erase { .. } => return None,
        };
        let (keyspace, key) = op.key();
        Some(Self { keyspace, key: ShortKey::from_slice(key), put })
    }

    pub(crate) fn op(&self) -> Op<'_> {
        let Self { keyspace, key, put } = self;
        let Some(Put { metadata, value, expiry }) = put else { return Op::delete(*keyspace, key) };
        Op::Put { keyspace: *keyspace, key, metadata, value, expiry: *expiry }
    }
}

/// What somebody has left.
#[derive(Debug)]
struct Errand(Mutex<State>);

#[derive(Debug)]
enum State {
    Left(Asked),
    Taken,
    Run(Answer),
}

/// What was left since the last that was taken, and where all of them sleep: it changes when they were run, and when the desk may be free.
#[derive(Debug, Default)]
struct Errands {
    all: Vec<Arc<Errand>>,
    gate: Arc<Gate>,
}

impl Errand {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self) -> Option<Answer> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Run(answer) => Some(answer),
            other => {
                *state = other;
                None
            }
        }
    }
}

/// An errand in the hands of whoever has the desk. Should he panic, it is not known what became of the one that he had begun.
pub(crate) struct Taken(Arc<Errand>);

impl Taken {
    /// Taken out, it is asked for once.
    pub(crate) fn asked(&self) -> Option<Asked> {
        match std::mem::replace(&mut *self.0.state(), State::Taken) {
            State::Left(asked) => Some(asked),
            _ => None,
        }
    }

    /// It was run.
    pub(crate) fn done(self, answer: Answer) {
        *self.0.state() = State::Run(answer);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let closed = || RunsError::Closed { reason: PANICKED.to_owned() };
        let why = match *state {
            State::Run(_) => return,
            // Nobody has begun with it.
            State::Left(Asked::Append { .. }) => KvError::Ledger(closed()),
            State::Left(Asked::Show { .. }) | State::Taken => KvError::Unpublished(closed()),
        };
        *state = State::Run(Err(why));
    }
}

/// The desk, its lock, and the list.
#[derive(Debug)]
pub(crate) struct Counter {
    desk: Mutex<Desk>,
    errands: Mutex<Errands>,
    /// How many there are.
    left: AtomicUsize,
}

impl Counter {
    pub(crate) fn new(desk: Desk) -> Self {
        Self { desk: Mutex::new(desk), errands: Mutex::default(), left: AtomicUsize::new(0) }
    }

    /// Waits for the desk.
    pub(crate) fn lock(&self) -> AtDesk<'_> {
        self.at(self.desk.lock().unwrap_or_else(broken))
    }

    /// The desk, if it is free or soon is.
    pub(crate) fn try_lock(&self) -> Option<AtDesk<'_>> {
        for _ in 0..LOOKS {
            match self.desk.try_lock() {
                Ok(desk) => return Some(self.at(desk)),
                Err(TryLockError::Poisoned(died)) => return Some(self.at(broken(died))),
                Err(TryLockError::WouldBlock) => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
            }
        }
        None
    }

    fn at<'a>(&'a self, desk: MutexGuard<'a, Desk>) -> AtDesk<'a> {
        AtDesk { desk, behind: Behind { counter: self, run: SmallVec::new() } }
    }

    /// Leaves this to whoever has the desk, and waits until it was done. `serve` has the desk, if it is free and that was not done yet.
    pub(crate) fn leave(&self, asked: Asked, mut serve: impl FnMut(&mut AtDesk<'_>)) -> Answer {
        let errand = Arc::new(Errand(Mutex::new(State::Left(asked))));
        let gate = {
            let mut errands = self.errands();
            errands.all.push(Arc::clone(&errand));
            self.left.store(errands.all.len(), Ordering::Relaxed);
            Arc::clone(&errands.gate)
        };
        loop {
            let seen = gate.value();
            if let Some(answer) = errand.answer() {
                return answer;
            }
            // Who gives the desk back looks behind that whether anything is left: one of the two sees the other.
            fence(Ordering::SeqCst);
            match self.try_lock() {
                Some(mut desk) => serve(&mut desk),
                None => gate.wait(seen, None),
            }
        }
    }

    fn errands(&self) -> MutexGuard<'_, Errands> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

/// Whoever panicked may have had an entry in his hands, off the queue and not yet visible: what came behind it must not be either.
fn broken(died: PoisonError<MutexGuard<'_, Desk>>) -> MutexGuard<'_, Desk> {
    let mut desk = died.into_inner();
    desk.breaks(PANICKED);
    desk
}

/// The desk, in somebody's hands. It is given back before anybody is woken: fields go in their order.
pub(crate) struct AtDesk<'a> {
    desk: MutexGuard<'a, Desk>,
    behind: Behind<'a>,
}

impl AtDesk<'_> {
    /// All errands that were left.
    pub(crate) fn errands(&mut self) -> Vec<Taken> {
        let Behind { counter, run } = &mut self.behind;
        if counter.left.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let Errands { all, gate } = {
            let mut errands = counter.errands();
            counter.left.store(0, Ordering::Relaxed);
            std::mem::take(&mut *errands)
        };
        run.push(gate);
        all.into_iter().map(Taken).collect()
    }
}

impl Deref for AtDesk<'_> {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

impl DerefMut for AtDesk<'_> {
    fn deref_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }
}

/// What follows when the desk is given back.
struct Behind<'a> {
    counter: &'a Counter,
    /// Where those sleep whose errands were run.
    run: SmallVec<[Arc<Gate>; 2]>,
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        fence(Ordering::SeqCst);
        if self.counter.left.load(Ordering::Relaxed) > 0 {
            // First: whoever wakes many may have no core until they have had theirs.
            let gate = Arc::clone(&self.counter.errands().gate);
            gate.bump();
            gate.wake(1);
        }
        for gate in &self.run {
            gate.bump();
            gate.wake_all();
        }
    }
}

#[cfg(test)]
#[path = "errand_test.rs"]
mod tests;
