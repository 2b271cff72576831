//! What would keep the desk waiting, on threads of their own: the disk under the log, the snapshots, and the arbiter.
//!
//! Each has one order at a time; what comes meanwhile waits for the next one. Each answer is a note to the desk.
//! Deliberately absent: retries. The replica says again, with a tick, what it still wants.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use assent_arbiter::{Arbiter, ArbiterError};
use assent_ids::Lsn;
use assent_journal::{Journal, JournalError, Log, Ticket};
use assent_membership::{Configuration, Sequence};
use assent_world::{Clock, give_way};

use crate::error::ReplicaError;
use crate::machine::Machine;
use crate::message::Base;
use crate::pace::Pace;
use crate::questions::Question;
use crate::shelf::{Coming, Shelf, Wrote};

/// Something for the disk under the log: write the journal up to this entry, and sync it if told so; then make room for so many bytes.
#[derive(Debug)]
pub(crate) struct LogOrder {
    pub(crate) journal: Arc<Journal>,
    pub(crate) last: Option<(Sequence, Ticket)>,
    pub(crate) to_disk: bool,
    pub(crate) room_bytes: Option<usize>,
}

impl LogOrder {
    fn work(self) -> LogDone {
        let Self { journal, last, to_disk, room_bytes } = self;
        let wrote = match last {
            Some((_, ticket)) if to_disk => journal.wait_durable(ticket),
            Some((_, ticket)) => journal.wait(ticket),
            None => Ok(()),
        };
        let worked = wrote.and_then(|()| room_bytes.map_or(Ok(()), |bytes| journal.make_room(bytes)));
        LogDone { journal, written: worked.map(|()| last.map(|(last, _)| last)) }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct LogDone {
    pub(crate) journal: Arc<Journal>,
    pub(crate) written: Result<Option<Sequence>, JournalError>,
}

/// Something for the snapshots' thread.
pub(crate) enum ShelfOrder<M: Machine> {
    /// Makes this the snapshot, if it is still this turn.
    Write { turn: u64, base: Base, view: M::View },
    /// Gives back the room of the log before this place, if it is still this log.
    Trim { log: u64, journal: Arc<Journal>, place: Lsn },
    /// Reads one that came from elsewhere into this machine. The number is given back.
    Load { number: u64, coming: Coming, base: Base, machine: M },
}

/// What came of it.
pub(crate) enum ShelfDone<M: Machine> {
    Wrote(Wrote),
    Trimmed(Result<(), ReplicaError>),
    Loaded { number: u64, base: Base, machine: Result<M, String> },
}

/// A thread that takes one order after the other.
#[derive(Debug)]
pub(crate) struct Worker<O> {
    orders: Option<SyncSender<O>>,
    thread: Option<JoinHandle<()>>,
}

impl<O: Send + 'static> Worker<O> {
    /// # Errors
    /// As the operating system says of threads.
    pub(crate) fn start(name: &str, work: impl FnOnce(Receiver<O>) + Send + 'static) -> io::Result<Self> {
        let (orders, taken) = sync_channel(1);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(taken))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Hands an order over; false if it is still at work.
    pub(crate) fn order(&self, order: O) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

impl<O> Drop for Worker<O> {
    fn drop(&mut self) {
        // Without orders it ends.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Does the orders of the log.
pub(crate) fn log(orders: &Receiver<LogOrder>, done: impl Fn(LogDone) -> bool) {
    for order in orders {
        if !done(order.work()) {
            return;
        }
    }
}

/// Which opening of the log it is: a cut makes another one of the same files, and must not meet somebody who gives some of them back.
#[derive(Debug, Default)]
pub(crate) struct Openings(Mutex<u64>);

impl Openings {
    pub(crate) fn now(&self) -> u64 {
        *self.held()
    }

    /// Opens it anew, when nobody gives anything back.
    pub(crate) fn anew<T>(&self, open: impl FnOnce() -> T) -> T {
        let mut held = self.held();
        *held += 1;
        open()
    }

    fn trim(&self, log: u64, journal: &Journal, place: Lsn) -> Result<(), ReplicaError> {
        let held = self.held();
        if *held == log { journal.trim(place).map_err(ReplicaError::from) } else { Ok(()) }
    }

    fn held(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How fast a snapshot is written, and whether it still is to be.
pub(crate) struct Slow {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bytes_per_s_max: u64,
    /// Commands that the desk has executed.
    pub(crate) executed: Arc<AtomicU64>,
    pub(crate) stopping: Arc<AtomicBool>,
}

impl Slow {
    fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    fn begin(&self) -> Pace {
        Pace::new(self.bytes_per_s_max, self.clock.now(), self.executed())
    }

    /// More was written: holds back what is too fast.
    fn wrote(&self, pace: &mut Pace, goes_on: impl Fn() -> bool) -> io::Result<()> {
        loop {
            if self.stopping.load(Ordering::SeqCst) || !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let wait = pace.wait(self.clock.now(), self.executed());
            if wait.is_zero() {
                return Ok(());
            }
            self.clock.sleep(wait);
        }
    }
}

/// Does the orders of the shelf.
pub(crate) fn snapshots<M: Machine>(
    orders: &Receiver<ShelfOrder<M>>,
    shelf: &Shelf,
    openings: &Openings,
    slow: &Slow,
    done: impl Fn(Result<ShelfDone<M>, ReplicaError>) -> bool,
) {
    give_way();
    for order in orders {
        let result = match order {
            ShelfOrder::Write { turn, base, view } => {
                let (mut pace, mut before) = (slow.begin(), 0);
                let wrote = |bytes: u64| {
                    pace.wrote(bytes.saturating_sub(std::mem::replace(&mut before, bytes)));
                    slow.wrote(&mut pace, || shelf.turn() == turn)
                };
                shelf.write(turn, &base, wrote, |put| M::lay(&view, put)).map(ShelfDone::Wrote)
            }
            ShelfOrder::Trim { log, journal, place } => Ok(ShelfDone::Trimmed(openings.trim(log, &journal, place))),
            ShelfOrder::Load { number, coming, base, mut machine } => {
                let read = shelf.check(&coming, &base, |next| machine.load(next));
                read.map(|read| ShelfDone::Loaded { number, base, machine: read.map(|()| machine) })
            }
        };
        if !done(result) {
            return;
        }
    }
}

/// Asks the arbiter.
pub(crate) fn ask(
    questions: &Receiver<Question>,
    arbiter: &dyn Arbiter,
    answered: impl Fn(Result<Configuration, ArbiterError>) -> bool,
) {
    for question in questions {
        let answer = match question {
            Question::Read => arbiter.read(),
            Question::Change { expect, to } => arbiter.change(expect, &to),
        };
        if !answered(answer) {
            return;
        }
    }
}
