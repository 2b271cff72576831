//! Assets served by one desk thread: all that has arrived is ordered, confirmed once, and answered.
//!
//! Walk: a round takes what waits at each ready connection, up to a limit · each command is ordered, its answer laid and held back ·
//! one [`Engine::confirm`] for all · answers and news go out. A second thread writes snapshots when they are due.
//! Deliberately absent: TLS and accounts. Whoever reaches it can change everything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use assent_frame::{Head, lay};
use assent_kind::Kind;
use assent_world::net::{Address, Events, Interest, Listener, Peer, Poll, Token, Waker};
use assent_world::{Clock, Gate};

use crate::command::COMMAND_BYTES_MAX;
use crate::engine::{Engine, Ordered};
use crate::error::AssetsError;
use crate::message::{self, ASKED_BYTES_MAX, Ask, KIND_ANSWER, KIND_ASK, KIND_COMMAND, Status};
use crate::subscribe::SubscriptionId;
use crate::trace::{Step, Trace};

/// As many connections at once; one more is closed at once.
pub const CLIENTS_MAX: usize = 4_096;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;
const READ_BYTES: usize = 1 << 16;
/// What one connection may have answered in one round before the others have their turn.
const ROUND_BYTES_MAX: usize = 1 << 18;
/// Answers that a client does not read; beyond this nothing more is taken from it.
const UNREAD_BYTES_MAX: usize = 1 << 20;
/// News that go out in one frame.
const NEWS_MAX: usize = 1_024;
const NEWS_KEPT_MAX: u32 = 65_536;
/// How soon an accept that failed for want of descriptors is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How often the keeper looks whether a snapshot is due.
const KEEPER_PAUSE: Duration = Duration::from_millis(500);

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

/// What a door tells of the promise that its log keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Milliseconds after which an acknowledged command is durable at the latest; 0 where it is before.
    pub window_ms: u64,
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
    while !stopping.load(Ordering::SeqCst) {
        let seen = gate.value();
        if seen != asked || engine.snapshot_due() {
            asked = seen;
            // It is tried again when more has been logged; until then the older ones stay, and `replay_bytes` tells.
            _ = engine.snapshot();
        }
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
    answer: Vec<u8>,
    buffer: Vec<u8>,
}

struct Client {
    peer: Peer,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Where in the outbox the answers of this round begin, and whose they are.
    held_from: usize,
    held: Vec<u64>,
    subscription: Option<(SubscriptionId, u64)>,
    /// The other end has closed, or said what nobody understands: what is answered still goes out.
    is_over: bool,
    /// Its turn ended before everything was taken that has arrived.
    has_more: bool,
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
            let mut ready = std::mem::take(&mut self.again);
            ready.extend(events.iter().map(|event| event.token().0).filter(|token| *token >= FIRST));
            self.round(&ready);
        }
    }

    /// Everybody who is ready has a turn; one confirmation for all.
    fn round(&mut self, ready: &BTreeSet<usize>) {
        let (mut all, mut traces) = (None, Vec::new());
        for token in ready {
            let Some(mut client) = self.clients.remove(token) else { continue };
            // What could not be written before goes first: it makes room.
            client.say();
            client.hear(&mut self.buffer);
            if let Some(ordered) = self.take_in(&mut client, &mut traces) {
                all = Some(all.map_or(ordered, |before: Ordered| before.and(ordered)));
            }
            self.clients.insert(*token, client);
        }
        let confirmed = all.map_or(Ok(()), |all| self.engine.confirm(all));
        for trace in &mut traces {
            trace.stamp(Step::Confirmed, &*self.clock);
        }
        for token in ready {
            let Some(client) = self.clients.get_mut(token) else { continue };
            if let Err(error) = &confirmed {
                client.put_in_doubt(error);
            }
            client.release();
            client.say();
            if client.has_gone() {
                self.leave(*token);
            } else if client.has_more && client.outbox.len() < UNREAD_BYTES_MAX {
                // Without room it waits: whoever reads its answers again is ready to be written to.
                self.again.insert(*token);
            }
        }
        for mut trace in traces {
            trace.stamp(Step::Replied, &*self.clock);
            self.engine.book(trace);
        }
        if all.is_some() {
            self.tell_news();
        }
    }

    /// Orders the commands of one connection, as many as a round takes.
    fn take_in(&mut self, client: &mut Client, traces: &mut Vec<Trace>) -> Option<Ordered> {
        let mut inbox = std::mem::take(&mut client.inbox);
        let (mut taken, mut all) = (0, None);
        client.held_from = client.outbox.len();
        loop {
            let rest = inbox.get(taken..).unwrap_or_default();
            let (frame, laid) = match assent_frame::parse(rest, ASKED_BYTES_MAX) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(_) => {
                    client.is_over = true;
                    taken = inbox.len();
                    break;
                }
            };
            // What is whole and has no room waits for the next round.
            if client.outbox.len() - client.held_from >= ROUND_BYTES_MAX || client.outbox.len() >= UNREAD_BYTES_MAX {
                client.has_more = true;
                break;
            }
            match frame.kind {
                KIND_COMMAND => {
                    if let Some(ordered) = self.command(client, frame.mark, frame.payload, traces) {
                        all = Some(all.map_or(ordered, |before: Ordered| before.and(ordered)));
                    }
                }
                KIND_ASK => self.ask(client, frame.mark, frame.payload),
                _ => client.is_over = true,
            }
            taken += laid;
        }
        inbox.drain(..taken.min(inbox.len()));
        client.inbox = inbox;
        all
    }

    fn command(&mut self, client: &mut Client, mark: u64, bytes: &[u8], traces: &mut Vec<Trace>) -> Option<Ordered> {
        let mut trace = self.engine.sample();
        trace.stamp(Step::Arrived, &*self.clock);
        self.answer.clear();
        match self.engine.order(bytes, &mut self.answer, &mut trace) {
            Ok(ordered) => {
                client.held.push(mark);
                lay(&mut client.outbox, Head { mark, kind: KIND_ANSWER, ..Head::default() }, &[&self.answer]);
                if trace.is_on() {
                    traces.push(trace);
                }
                Some(ordered)
            }
            Err(error) => {
                // It stands among answers that wait: so it has its turn, too.
                client.held.push(mark);
                message::lay_refused(&mut client.outbox, mark, error.kind(), &error.to_string());
                None
            }
        }
    }

    fn ask(&self, client: &mut Client, mark: u64, payload: &[u8]) {
        client.held.push(mark);
        match Ask::read(payload) {
            Ok(Ask::Status) => self.status().lay(&mut client.outbox, mark),
            Ok(Ask::Snapshot) => {
                self.gate.bump();
                self.gate.wake_all();
                self.status().lay(&mut client.outbox, mark);
            }
            Ok(Ask::Subscribe { wanted, most }) => {
                if client.subscription.is_some() {
                    let text = "a connection has one subscription";
                    return message::lay_refused(&mut client.outbox, mark, Kind::Busy, text);
                }
                let most = usize::try_from(most.min(NEWS_KEPT_MAX)).unwrap_or(1);
                let wanted = if wanted.is_empty() { None } else { Some(wanted) };
                client.subscription = Some((self.engine.subscribe(wanted.as_deref(), most), mark));
                self.status().lay(&mut client.outbox, mark);
            }
            Err(error) => message::lay_refused(&mut client.outbox, mark, Kind::Invalid, &error.to_string()),
        }
    }

    fn status(&self) -> Status {
        let (steps, trace) = self.engine.steps(|steps| {
            let rows = steps.percentiles().into_iter().map(|(name, row)| (name.to_owned(), row)).collect();
            (rows, steps.table().unwrap_or_default())
        });
        Status {
            ack: self.engine.ack(),
            window_ms: self.promise.window_ms,
            closed: self.engine.closed(),
            stats: self.engine.stats(),
            steps,
            trace,
        }
    }

    /// What was confirmed is told to subscribers who have room; the others are told later, or that they missed it.
    fn tell_news(&mut self) {
        let mut over = Vec::new();
        for (token, client) in &mut self.clients {
            let Some((id, mark)) = client.subscription else { continue };
            while client.outbox.len() < UNREAD_BYTES_MAX {
                let news = self.engine.news(id, NEWS_MAX);
                if news.is_empty() {
                    break;
                }
                message::lay_news(&mut client.outbox, mark, &news);
            }
            client.say();
            if client.has_gone() {
                over.push(*token);
            }
        }
        over.into_iter().for_each(|token| self.leave(token));
    }

    fn leave(&mut self, token: usize) {
        self.again.remove(&token);
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
            if self.clients.len() >= CLIENTS_MAX {
                continue;
            }
            let token = self.next;
            self.next = self.next.wrapping_add(1).max(FIRST);
            let both = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut peer, Token(token), both).is_ok() {
                self.clients.insert(token, Client::new(peer));
                self.again.insert(token);
            }
        }
    }
}

impl Client {
    const fn new(peer: Peer) -> Self {
        Self {
            peer,
            inbox: Vec::new(),
            outbox: Vec::new(),
            held_from: 0,
            held: Vec::new(),
            subscription: None,
            is_over: false,
            has_more: false,
        }
    }

    /// Takes in what has arrived, as long as it reads its answers.
    fn hear(&mut self, buffer: &mut [u8]) {
        let before = self.inbox.len();
        self.has_more = false;
        while !self.is_over {
            let is_full = self.outbox.len() >= UNREAD_BYTES_MAX || self.inbox.len() > ASKED_BYTES_MAX;
            if is_full || self.inbox.len() - before >= ROUND_BYTES_MAX {
                self.has_more = true;
                return;
            }
            match self.peer.read(buffer) {
                Ok(0) => self.is_over = true,
                Ok(read) => {
                    self.inbox.extend_from_slice(buffer.get(..read).unwrap_or_default());
                    // Less than there was room for: that was all. A readiness that comes now is a new event.
                    if read < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
        }
    }

    /// The answers of this round say what nobody can know.
    fn put_in_doubt(&mut self, error: &AssetsError) {
        self.outbox.truncate(self.held_from);
        let text = error.to_string();
        for mark in self.held.drain(..) {
            message::lay_refused(&mut self.outbox, mark, error.kind(), &text);
        }
    }

    /// The answers of this round may go out.
    fn release(&mut self) {
        self.held.clear();
        self.held_from = self.outbox.len();
    }

    /// Writes what may be told and can be written.
    fn say(&mut self) {
        let mut written = 0;
        while written < self.outbox.len() {
            match self.peer.write(self.outbox.get(written..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_over = true;
                    written = self.outbox.len();
                }
            }
        }
        self.outbox.drain(..written.min(self.outbox.len()));
        self.held_from = self.outbox.len();
    }

    const fn has_gone(&self) -> bool {
        self.is_over && self.outbox.is_empty()
    }
}
