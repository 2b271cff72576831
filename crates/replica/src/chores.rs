//! What would keep the desk waiting, on threads of their own: the disk, and the arbiter.
//!
//! Each has one order at a time; what comes meanwhile waits for the next one. Each answer is a note to the desk.
//! Deliberately absent: retries. The replica says again, with a tick, what it still wants.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use assent_arbiter::{Arbiter, ArbiterError};
use assent_journal::{Journal, Log, Ticket};
use assent_membership::{Configuration, Sequence};

use crate::error::ReplicaError;
use crate::snapshot::Snapshot;

/// Something for the disk.
#[derive(Debug)]
pub(crate) enum DiskOrder {
    /// Writes the journal up to this entry, and syncs it if told so.
    Log { journal: Arc<Journal>, last: (Sequence, Ticket), to_disk: bool },
    /// Makes this the snapshot.
    Snapshot(Arc<Snapshot>),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum DiskDone {
    Log { journal: Arc<Journal>, written: Sequence },
    Snapshot(Arc<Snapshot>),
}

/// A question to the arbiter.
#[derive(Debug)]
pub(crate) enum Question {
    Read,
    Change { expect: u64, to: Configuration },
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
    pub(crate) fn start(name: &str, work: impl FnOnce(Receiver<O>) + Send + 'static) -> std::io::Result<Self> {
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

/// Does the disk's orders.
pub(crate) fn disk(
    orders: &Receiver<DiskOrder>,
    write: impl Fn(&Snapshot) -> Result<(), ReplicaError>,
    done: impl Fn(Result<DiskDone, ReplicaError>) -> bool,
) {
    for order in orders {
        let result = match order {
            DiskOrder::Log { journal, last: (written, ticket), to_disk } => {
                let wrote = if to_disk { journal.wait_durable(ticket) } else { journal.wait(ticket) };
                wrote.map(|()| DiskDone::Log { journal, written }).map_err(ReplicaError::from)
            }
            DiskOrder::Snapshot(snapshot) => write(&snapshot).map(|()| DiskDone::Snapshot(snapshot)),
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
