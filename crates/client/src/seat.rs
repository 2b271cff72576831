//! A resource's place in a transaction, shared by the transaction that drives it and the handle that works on it.
//!
//! Not a plain `&mut` in the transaction: the application could not work on what the transaction holds. One lock that
//! nobody else wants costs a few nanoseconds a call. Who ends the transaction on the thread that holds a [`Work`] would wait for himself: he is
//! told ([`Chair::is_mine`]).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assent_ids::{Branch, Mark, NodeId, TxId, Xid};
use assent_xa::{Ballot, Native, Reply, Resource, Verb, Voice, Voted};

use crate::WorkError;

/// Where a branch's start stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    /// Sent, its answer not received.
    Sent,
    /// Done.
    Done,
    /// Not done.
    Failed(Reply),
    /// The transaction has ended.
    Over,
}

pub(crate) struct Seat<T: ?Sized> {
    node: NodeId,
    tx: TxId,
    pub(crate) xid: Xid,
    start: Start,
    pub(crate) resource: T,
}

/// A borrowed resource of any type, as one that has a size.
pub(crate) struct Lent<'r, R: ?Sized>(&'r mut R);

impl<R: Resource + ?Sized> Resource for Lent<'_, R> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn send(&mut self, verb: Verb) {
        self.0.send(verb);
    }

    fn defer(&mut self, verb: Verb) -> Option<Verb> {
        self.0.defer(verb)
    }

    fn receive(&mut self) -> Reply {
        self.0.receive()
    }

    fn witness(&mut self) -> Vec<u8> {
        self.0.witness()
    }

    fn decides(&mut self) -> Option<Mark> {
        self.0.decides()
    }

    fn let_go(&mut self) {
        self.0.let_go();
    }
}

/// A seat, and which thread works on it.
pub(crate) struct Chair<T: ?Sized> {
    /// As [`me`] has it; 0 for none.
    worker: AtomicUsize,
    /// The transaction has ended beneath its work: whoever has that gives the branch up behind it.
    is_left: AtomicBool,
    seat: Mutex<Seat<T>>,
}

pub(crate) type Shared<'r> = Arc<Chair<dyn Resource + 'r>>;

pub(crate) fn lock<T: ?Sized>(chair: &Chair<T>) -> MutexGuard<'_, Seat<T>> {
    // A panic of the application's work leaves the resource as it is; the transaction is rolled back by its drop.
    chair.seat.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number of this thread that no other has while it lives.
fn me() -> usize {
    thread_local! {
        static ME: u8 = const { 0 };
    }
    ME.with(|me| std::ptr::from_ref(me).addr())
}

impl<T> Chair<T> {
    pub(crate) const fn new(seat: Seat<T>) -> Self {
        Self { worker: AtomicUsize::new(0), is_left: AtomicBool::new(false), seat: Mutex::new(seat) }
    }
}

impl<T: ?Sized> Chair<T> {
    /// Whether this thread works on it: to lock it would be to wait for ever.
    pub(crate) fn is_mine(&self) -> bool {
        // Only this thread writes its own number.
        self.worker.load(Ordering::Relaxed) == me()
    }
}

impl<T: Resource + ?Sized> Chair<T> {
    /// Gives the branch up, and its connection with it, or has this thread's work do so when it is let go of.
    pub(crate) fn give_up(&self) {
        if self.is_mine() {
            self.is_left.store(true, Ordering::Relaxed);
        } else {
            lock(self).give_up();
        }
    }
}

impl<T: Resource> Seat<T> {
    /// Sends the start of the branch; its answer is received with the first work, so that branches overlap.
    pub(crate) fn begin(node: NodeId, tx: TxId, xid: Xid, mut resource: T) -> Self {
        resource.send(Verb::Start(xid));
        Self { node, tx, xid, start: Start::Sent, resource }
    }
}

impl<T: Resource + ?Sized> Seat<T> {
    /// Whether the branch has started, told once its answer is there.
    pub(crate) fn started(&mut self) -> Result<(), WorkError> {
        if self.start == Start::Sent {
            self.start = match self.resource.receive() {
                Reply::Done => Start::Done,
                reply => Start::Failed(reply),
            };
        }
        match &self.start {
            Start::Failed(reply) => {
                Err(WorkError::NotStarted { resource: self.resource.name().to_owned(), reply: reply.clone() })
            }
            Start::Over => Err(WorkError::Over { node: self.node, tx: self.tx }),
            Start::Sent | Start::Done => Ok(()),
        }
    }

    /// A start that was refused is a no.
    pub(crate) fn refused(&self) -> Option<Voted> {
        let Start::Failed(reply) = &self.start else { return None };
        let Branch { resource, number, .. } = self.xid.branch()?;
        let native = match reply {
            Reply::Refused(_, native)
            | Reply::Unknown(native)
            | Reply::RolledBack(native)
            | Reply::Lost(native)
            | Reply::Heuristic(_, native) => native.clone(),
            Reply::Done | Reply::Vote(_) | Reply::Listed(_) | Reply::Past(_) | Reply::Row(_) | Reply::Rows(_) => {
                Native::default()
            }
        };
        Some(Voted { resource, number, voice: Voice { ballot: Ballot::No, retries: 0, native } })
    }

    /// Whether there is surely no branch to end.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.start, Start::Failed(Reply::Refused(..) | Reply::Unknown(_)))
    }

    /// No more work on it.
    pub(crate) fn leave(&mut self) {
        self.start = Start::Over;
    }

    fn give_up(&mut self) {
        // Its answer would be taken for that of the next branch.
        _ = self.started();
        self.leave();
        self.resource.let_go();
    }
}

/// A resource within a transaction: work on it by [`Enlisted::work`].
pub struct Enlisted<'r, R: ?Sized>(Arc<Chair<Lent<'r, R>>>);

impl<R: ?Sized> fmt::Debug for Enlisted<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Enlisted");
        if let Ok(seat) = self.0.seat.try_lock() {
            shown.field("tx", &seat.tx).field("start", &seat.start);
        }
        shown.finish_non_exhaustive()
    }
}

impl<'r, R: Resource + ?Sized> Enlisted<'r, R> {
    pub(crate) fn new(node: NodeId, tx: TxId, xid: Xid, resource: &'r mut R) -> Self {
        Self(Arc::new(Chair::new(Seat::begin(node, tx, xid, Lent(resource)))))
    }

    pub(crate) fn seat(&self) -> Shared<'r>
    where
        R: 'r,
    {
        Arc::clone(&self.0) as Shared<'r>
    }

    /// The resource, to work on within the branch. Let it go before the transaction ends, by a commit, a rollback or its drop: that refuses to
    /// wait for a work of its own thread, and waits for one of another.
    ///
    /// # Errors
    /// [`WorkError`] if the branch was not started, the transaction has ended, or this thread has such a work already.
    pub fn work(&self) -> Result<Work<'_, 'r, R>, WorkError> {
        if self.0.is_mine() {
            return Err(WorkError::Held);
        }
        let mut seat = lock(&self.0);
        seat.started()?;
        self.0.worker.store(me(), Ordering::Relaxed);
        Ok(Work { seat, chair: &self.0 })
    }
}

/// An enlisted resource, held.
pub struct Work<'s, 'r, R: Resource + ?Sized> {
    seat: MutexGuard<'s, Seat<Lent<'r, R>>>,
    chair: &'s Chair<Lent<'r, R>>,
}

impl<R: Resource + ?Sized> Drop for Work<'_, '_, R> {
    fn drop(&mut self) {
        self.chair.worker.store(0, Ordering::Relaxed);
        if self.chair.is_left.load(Ordering::Relaxed) {
            self.seat.give_up();
        }
    }
}

impl<R: Resource + ?Sized> fmt::Debug for Work<'_, '_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({})", self.seat.tx)
    }
}

impl<R: Resource + ?Sized> Deref for Work<'_, '_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        self.seat.resource.0
    }
}

impl<R: Resource + ?Sized> DerefMut for Work<'_, '_, R> {
    fn deref_mut(&mut self) -> &mut R {
        self.seat.resource.0
    }
}
