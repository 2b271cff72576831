//! The client for `async` code: a handle that many tasks share, and a thread behind it that has the connection.
//!
//! Walk: [`AsyncClient::connect`] · [`AsyncClient::execute`] is a future of the answer; what many tasks have under way is pipelined on one
//! connection and in one session, in the order in which they asked.
//! It needs no runtime and works with each: the thread only wakes. Deliberately absent: a runtime's sockets; one thread for each client is
//! the price.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use assent_kind::Kind;
use assent_world::Clock;

use crate::answer::Answer;
use crate::client::Client;
use crate::command::Op;
use crate::line::ClientError;
use crate::options::{Event, Options};

/// Events that nobody asked for; the oldest go.
const EVENTS_MAX: usize = 256;

/// A client that many tasks share. The connection ends with the last of its clones.
#[derive(Clone)]
pub struct AsyncClient {
    orders: SyncSender<Order>,
    events: Arc<Mutex<VecDeque<Event>>>,
}

/// The answer to a command, when it is there. Dropped, the command is done all the same.
#[derive(Debug)]
#[must_use = "the answer is had by waiting for it"]
pub struct Answering(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot(Mutex<Place>);

#[derive(Debug, Default)]
struct Place {
    answer: Option<Result<Answer, ClientError>>,
    waker: Option<Waker>,
}

enum What {
    Batch(Vec<Op>),
    Call { logic: u16, input: Vec<u8> },
}

struct Order {
    what: What,
    slot: Arc<Slot>,
}

impl AsyncClient {
    /// Connects, on the caller's thread: it waits up to the patience of the options.
    ///
    /// # Errors
    /// As [`Client::connect`]; `Full` where the process may have no further thread.
    pub fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        let window = usize::try_from(options.window).unwrap_or(1);
        let client = Client::connect(options, clock)?;
        let (orders, taken) = sync_channel(window);
        let events = Arc::new(Mutex::default());
        let desk = Desk { client, waiting: VecDeque::new(), events: Arc::clone(&events), window };
        let named = std::thread::Builder::new().name("assets-client".to_owned());
        let spawned: io::Result<_> = named.spawn(move || desk.work(&taken));
        match spawned {
            Ok(_) => Ok(Self { orders, events }),
            Err(error) => Err(ClientError::new(Kind::Full, format!("starting a thread: {error}"))),
        }
    }

    /// Executes a batch. The answer is `Busy`, and nothing is done, while more commands wait than the window has places. Where nobody answers for
    /// longer than the patience it is `InDoubt` for what was sent, which may be done yet, and `Unavailable` for what was not, which is not done.
    pub fn execute(&self, ops: &[Op]) -> Answering {
        self.order(What::Batch(ops.to_vec()))
    }

    /// Executes business logic.
    pub fn call(&self, logic: u16, input: &[u8]) -> Answering {
        self.order(What::Call { logic, input: input.to_vec() })
    }

    /// What happened since this was asked last: fail-overs among it.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn order(&self, what: What) -> Answering {
        let slot = Arc::new(Slot::default());
        let refused = match self.orders.try_send(Order { what, slot: Arc::clone(&slot) }) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => Some((Kind::Busy, "more commands wait than the window has places")),
            Err(TrySendError::Disconnected(_)) => Some((Kind::Closed, "the client's thread has ended")),
        };
        if let Some((kind, text)) = refused {
            slot.fill(Err(ClientError::new(kind, text.to_owned())));
        }
        Answering(slot)
    }
}

impl fmt::Debug for AsyncClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").finish_non_exhaustive()
    }
}

impl Slot {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, answer: Result<Answer, ClientError>) {
        let waker = {
            let mut place = self.place();
            place.answer = Some(answer);
            place.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Future for Answering {
    type Output = Result<Answer, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut place = self.0.place();
        match place.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                place.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The thread behind the handles.
struct Desk {
    client: Client,
    /// Whose answers are missing, in their order; nobody's, once it was told that nobody knows.
    waiting: VecDeque<Option<Arc<Slot>>>,
    events: Arc<Mutex<VecDeque<Event>>>,
    window: usize,
}

impl Desk {
    fn work(mut self, orders: &Receiver<Order>) {
        let mut held = None;
        loop {
            if self.waiting.is_empty() && held.is_none() {
                match orders.recv() {
                    Ok(order) => held = Some(order),
                    // The last handle has gone.
                    Err(_) => return,
                }
            }
            while self.waiting.len() < self.window
                && let Some(order) = held.take().or_else(|| orders.try_recv().ok())
            {
                held = self.send(order);
                if held.is_some() {
                    break;
                }
            }
            if !self.waiting.is_empty() && !self.receive() {
                // Nobody answers: who stands behind what was sent hears it, too, for what nobody sent nobody did.
                let nobody = || ClientError::new(Kind::Unavailable, "no server answers; nothing was done".to_owned());
                let unsent = held.take().into_iter().chain(orders.try_iter());
                unsent.for_each(|order| order.slot.fill(Err(nobody())));
                // Nor would anybody hear of an answer, once the last handle has gone.
                if Arc::strong_count(&self.events) == 1 {
                    return;
                }
            }
        }
    }

    /// Lays a command; gives it back where it is to be sent when others have their answers.
    fn send(&mut self, order: Order) -> Option<Order> {
        let laid = match &order.what {
            What::Batch(ops) => self.client.send(ops),
            What::Call { logic, input } => self.client.send_call(*logic, input),
        };
        match laid {
            Ok(_) => self.waiting.push_back(Some(order.slot)),
            Err(error) if error.kind == Kind::Busy && !self.waiting.is_empty() => return Some(order),
            Err(error) => order.slot.fill(Err(error)),
        }
        None
    }

    /// Whether anybody answered.
    fn receive(&mut self) -> bool {
        let before = self.client.waiting();
        let answer = self.client.receive().map(|(_, answer)| answer);
        let is_answered = self.client.waiting() != before;
        if !is_answered {
            // Nobody answers. What was sent is kept, and may be done yet: that is all that can be told.
            let text = answer.err().map_or_else(String::new, |error| error.message);
            for slot in self.waiting.iter_mut().filter_map(Option::take) {
                slot.fill(Err(ClientError::new(Kind::InDoubt, format!("{text}; it may be done yet"))));
            }
        } else if let Some(slot) = self.waiting.pop_front().flatten() {
            slot.fill(answer);
        }
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for event in self.client.events() {
            if events.len() >= EVENTS_MAX {
                events.pop_front();
            }
            events.push_back(event);
        }
        is_answered
    }
}
