//! Assets served by one desk thread: all that has arrived is ordered, confirmed once, and answered.
//!
//! Walk: a round takes what waits at each ready connection, up to a limit · each command is ordered, its answer laid and held back ·
//! one [`Engine::confirm`] for all · answers and news go out. A second thread writes snapshots when they are due.
//! Deliberately absent: TLS and accounts. Whoever reaches it can change everything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_frame::{Head, lay};
use assent_kind::Kind;
use assent_world::net::{Address, Events, Interest, Listener, Poll, Token, Waker};
use assent_world::{Clock, Gate};

use crate::command::COMMAND_BYTES_MAX;
use crate::engine::{Engine, Ordered};
use crate::error::AssetsError;
use crate::guest::{AGAIN, CLIENTS_MAX, Guest, NEWS_KEPT_MAX, NEWS_MAX, READ_BYTES, ROUND_BYTES_MAX};
use crate::message::{self, ASKED_BYTES_MAX, Ask, KIND_ANSWER, KIND_ASK, KIND_COMMAND, Status};
use crate::subscribe::SubscriptionId;
use crate::trace::{Step, Trace};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;
/// How often the keeper looks whether a snapshot is due.
const KEEPER_PAUSE: Duration = Duration::from_millis(500);
/// A snapshot that the disk refuses again and again is tried so seldom at last, in looks.
const LOOKS_MAX: u32 = 128;

const _: () = assert!(COMMAND_BYTES_MAX <= ASKED_BYTES_MAX, "one limit for all frames of clients");

/// A server of assets at work.
#[derive(Debug)]
pub struct Door {
    address: Address,
    stopping: Arc<AtomicBool>,
    waker: Arc<Waker>,
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
}

/// What a door is told of its process, and of the promise that its log keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Milliseconds after which an acknowledged command is durable at the latest; 0 where it is before.
    pub window_ms: u64,
    /// Connections at once, where the process has no room for [`CLIENTS_MAX`].
    pub clients_max: Option<usize>,
}

impl Door {
    /// Serves these assets there until it is stopped or dropped.
    ///
    /// # Errors
    /// As the operating system says of the address.
    pub fn open(engine: Arc<Engine>, promise: Promise, at: &Address, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut listener = Listener::bind(at)?;
        let address = listener.address()?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        engine.wake(Arc::clone(&waker));
        let (stopping, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Gate::default()));
        let desk = Desk {
            engine: Arc::clone(&engine),
            promise,
            listener,
            poll,
            clock,
            stopping: Arc::clone(&stopping),
            gate: Arc::clone(&gate),
            clients: BTreeMap::new(),
            next: FIRST,
            accept_again: false,
            again: BTreeSet::new(),
            subscribers: BTreeSet::new(),
            answer: Vec::new(),
            buffer: vec![0; READ_BYTES],
        };
        let mut door =
            Self { address, stopping: Arc::clone(&stopping), waker, gate: Arc::clone(&gate), threads: vec![] };
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        door.threads.push(named("assets").spawn(move || desk.work())?);
        door.threads.push(named("assets-keeper").spawn(move || keep(&engine, &stopping, &gate))?);
        Ok(door)
    }

    /// Where it really listens.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Closes all connections. What was answered is kept as was promised.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // If it cannot be woken it has ended already.
        _ = self.waker.wake();
        self.gate.bump();
        self.gate.wake_all();
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes snapshots when they are due, or when somebody asks.
fn keep(engine: &Engine, stopping: &AtomicBool, gate: &Gate) {
    let mut asked = gate.value();
    // Looks that are passed by, and how many will be after the next failure.
    let (mut passed, mut next) = (0_u32, 1_u32);
    while !stopping.load(Ordering::SeqCst) {
        let seen = gate.value();
        if seen != asked || (passed == 0 && engine.snapshot_due()) {
            asked = seen;
            // Until one is written the older ones stay, and `replay_bytes` tells.
            (passed, next) = match engine.snapshot() {
                Ok(_) => (0, 1),
                Err(_) => (next, (next * 2).min(LOOKS_MAX)),
            };
        }
        passed = passed.saturating_sub(1);
        gate.wait(seen, Some(KEEPER_PAUSE));
    }
}

struct Desk {
    engine: Arc<Engine>,
    promise: Promise,
    listener: Listener,
    poll: Poll,
    clock: Arc<dyn Clock>,
    stopping: Arc<AtomicBool>,
    gate: Arc<Gate>,
    clients: BTreeMap<usize, Client>,
    next: usize,
    accept_again: bool,
    /// Connections that may have more to be read than their turn took.
    again: BTreeSet<usize>,
    subscribers: BTreeSet<usize>,
    answer: Vec<u8>,
    buffer: Vec<u8>,
}

struct Client {
    guest: Guest,
    /// Where in the outbox the answers of this round begin, and whose they are.
    held_from: usize,
    held: Vec<u64>,
    subscription: Option<(SubscriptionId, u64)>,
}

impl Desk {
    fn work(mut self) {
        let mut events = Events::with_capacity(1_024);
        while !self.stopping.load(Ordering::SeqCst) {
            let pause = match (self.again.is_empty(), self.accept_again) {
                (false, _) => Some(Duration::ZERO),
                (true, true) => Some(AGAIN),
                (true, false) => None,
            };
            match self.poll.poll(&mut events, pause) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
            if self.accept_again || events.iter().any(|event| event.token() == LISTENER) {
                self.accept();
            }
            // Nobody says again that one of these has closed: they are read to the end.
            let mut ready: BTreeMap<usize, bool> = self.again.iter().map(|token| (*token, true)).collect();
            self.again.clear();
            for event in events.iter().filter(|event| event.token().0 >= FIRST) {
                *ready.entry(event.token().0).or_default() |= event.is_read_closed();
            }
            let is_woken = events.iter().any(|event| event.token() == WAKER);
            self.round(&ready, is_woken);
        }
    }

    /// Everybody who is ready has a turn; one confirmation for all. With each goes whether its other end has closed.
    fn round(&mut self, ready: &BTreeMap<usize, bool>, is_woken: bool) {
        let (mut all, mut traces) = (None, Vec::new());
        for (token, is_closing) in ready {
            let Some(mut client) = self.clients.remove(token) else { continue };
            // What could not be written before goes first: it makes room.
            client.guest.say();
            client.guest.hear(&mut self.buffer, *is_closing);
            if let Some(ordered) = self.take_in(*token, &mut client, &mut traces) {
                all = Some(all.map_or(ordered, |before: Ordered| before.and(ordered)));
            }
            self.clients.insert(*token, client);
        }
        let confirmed = all.map_or(Ok(()), |all| self.engine.confirm_here(all));
        for trace in &mut traces {
            trace.stamp(Step::Confirmed, &*self.clock);
        }
        for token in ready.keys() {
            let Some(client) = self.clients.get_mut(token) else { continue };
            if let Err(error) = &confirmed {
                client.put_in_doubt(error);
            }
            client.release();
            if client.has_gone() {
                self.leave(*token);
            } else if client.guest.has_more && !client.guest.is_full() {
                // Without room it waits: whoever reads its answers again is ready to be written to.
                self.again.insert(*token);
            }
        }
        for mut trace in traces {
            trace.stamp(Step::Replied, &*self.clock);
            self.engine.book(trace);
        }
        // A slow subscriber who has room again is told now, also when nothing happens any more.
        if all.is_some() || is_woken || self.subscribers.iter().any(|token| ready.contains_key(token)) {
            self.tell_news();
        }
    }

    /// Orders the commands of one connection, as many as a round takes.
    fn take_in(&mut self, token: usize, client: &mut Client, traces: &mut Vec<Trace>) -> Option<Ordered> {
        let mut inbox = std::mem::take(&mut client.guest.inbox);
        let (mut taken, mut all) = (0, None);
        client.held_from = client.guest.outbox.len();
        loop {
            let rest = inbox.get(taken..).unwrap_or_default();
            let (frame, laid) = match assent_frame::parse(rest, ASKED_BYTES_MAX) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(_) => {
                    client.guest.is_over = true;
                    taken = inbox.len();
                    break;
                }
            };
            // What is whole and has no room waits for the next round.
            if client.guest.outbox.len() - client.held_from >= ROUND_BYTES_MAX || client.guest.is_full() {
                client.guest.has_more = true;
                break;
            }
            match frame.kind {
                KIND_COMMAND => {
                    if let Some(ordered) = self.command(client, frame.mark, frame.payload, traces) {
                        all = Some(all.map_or(ordered, |before: Ordered| before.and(ordered)));
                    }
                }
                // One a round: it looks at everything, while everybody waits.
                KIND_ASK if client.guest.has_asked => {
                    client.guest.has_more = true;
                    break;
                }
                KIND_ASK => {
                    client.guest.has_asked = true;
                    self.ask(token, client, frame.mark, frame.payload);
                }
                _ => client.guest.is_over = true,
            }
            taken += laid;
        }
        inbox.drain(..taken.min(inbox.len()));
        client.guest.inbox = inbox;
        all
    }

    fn command(&mut self, client: &mut Client, mark: u64, bytes: &[u8], traces: &mut Vec<Trace>) -> Option<Ordered> {
        let mut trace = self.engine.sample();
        trace.stamp(Step::Arrived, &*self.clock);
        self.answer.clear();
        match self.engine.order(bytes, &mut self.answer, &mut trace) {
            Ok(ordered) => {
                client.held.push(mark);
                lay(&mut client.guest.outbox, Head { mark, kind: KIND_ANSWER, ..Head::default() }, &[&self.answer]);
                if trace.is_on() {
                    traces.push(trace);
                }
                Some(ordered)
            }
            Err(error) => {
                // It stands among answers that wait: so it has its turn, too.
                client.held.push(mark);
                message::lay_refused(&mut client.guest.outbox, mark, error.kind(), &error.to_string());
                None
            }
        }
    }

    fn ask(&mut self, token: usize, client: &mut Client, mark: u64, payload: &[u8]) {
        client.held.push(mark);
        let out = &mut client.guest.outbox;
        match Ask::read(payload) {
            Ok(Ask::Status) => self.status().lay(out, mark),
            Ok(Ask::Snapshot) => {
                self.gate.bump();
                self.gate.wake_all();
                self.status().lay(out, mark);
            }
            Ok(Ask::Subscribe { wanted, most }) => {
                if client.subscription.is_some() {
                    let text = "a connection has one subscription";
                    return message::lay_refused(out, mark, Kind::Busy, text);
                }
                let most = usize::try_from(most.min(NEWS_KEPT_MAX)).unwrap_or(1);
                let wanted = if wanted.is_empty() { None } else { Some(wanted) };
                match self.engine.subscribe(wanted.as_deref(), most) {
                    Ok(id) => client.subscription = Some((id, mark)),
                    Err(error) => return message::lay_refused(out, mark, error.kind(), &error.to_string()),
                }
                self.subscribers.insert(token);
                self.status().lay(out, mark);
            }
            Ok(Ask::Word(_)) => {
                let text = "this server is alone: nobody to hand the lead to, and no group to be held out of";
                message::lay_refused(out, mark, Kind::Invalid, text);
            }
            Err(error) => message::lay_refused(out, mark, Kind::Invalid, &error.to_string()),
        }
    }

    fn status(&self) -> Status {
        let (steps, trace) = self.engine.steps(|steps| (steps.times(), steps.table().unwrap_or_default()));
        Status {
            ack: self.engine.ack(),
            window_ms: self.promise.window_ms,
            closed: self.engine.closed(),
            stats: self.engine.stats(),
            steps,
            trace,
            group: None,
        }
    }

    /// What was confirmed is told to subscribers who have room; the others are told later, or that they missed it.
    fn tell_news(&mut self) {
        let mut over = Vec::new();
        for token in &self.subscribers {
            let Some(client) = self.clients.get_mut(token) else { continue };
            let Some((id, mark)) = client.subscription else { continue };
            while !client.guest.is_full() {
                let news = self.engine.news(id, NEWS_MAX);
                if news.is_empty() {
                    break;
                }
                message::lay_news(&mut client.guest.outbox, mark, &news);
            }
            client.release();
            if client.has_gone() {
                over.push(*token);
            }
        }
        over.into_iter().for_each(|token| self.leave(token));
    }

    fn leave(&mut self, token: usize) {
        self.again.remove(&token);
        self.subscribers.remove(&token);
        if let Some(Client { subscription: Some((id, _)), .. }) = self.clients.remove(&token) {
            self.engine.unsubscribe(id);
        }
    }

    fn accept(&mut self) {
        self.accept_again = false;
        loop {
            let mut peer = match self.listener.accept() {
                Ok(Some(peer)) => peer,
                Ok(None) => return,
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            };
            if self.clients.len() >= self.promise.clients_max.unwrap_or(CLIENTS_MAX).min(CLIENTS_MAX) {
                continue;
            }
            let token = self.next;
            self.next = self.next.wrapping_add(1).max(FIRST);
            let both = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut peer, Token(token), both).is_ok() {
                let (guest, held) = (Guest::new(peer), Vec::new());
                self.clients.insert(token, Client { guest, held_from: 0, held, subscription: None });
                self.again.insert(token);
            }
        }
    }
}

impl Client {
    /// The answers of this round say what nobody can know.
    fn put_in_doubt(&mut self, error: &AssetsError) {
        self.guest.outbox.truncate(self.held_from);
        let text = error.to_string();
        for mark in self.held.drain(..) {
            message::lay_refused(&mut self.guest.outbox, mark, error.kind(), &text);
        }
    }

    /// The answers of this round may go out.
    fn release(&mut self) {
        self.held.clear();
        self.guest.say();
        self.held_from = self.guest.outbox.len();
    }

    const fn has_gone(&self) -> bool {
        self.guest.has_gone()
    }
}
